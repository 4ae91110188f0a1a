"""Tensors of PyTorch and arrays of the array API standard (2023.12 or later), which stay on their device.

NumPy's own arrays are none of them: they take the paths of NumPy. The functions here are the few that are not called
alike in PyTorch and in the standard; `namespace_of` has the others (`sum`, `exp`, `matmul`, `isfinite`, ...).
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .types import AnyArray


def is_device_array(X: Any) -> bool:
    """Return whether X is a tensor of PyTorch or an array of the standard, but not one of NumPy."""
    if isinstance(X, (np.ndarray, np.generic)):
        return False
    return is_tensor(X) or hasattr(X, "__array_namespace__")


def is_tensor(X: Any) -> bool:
    """Return whether X is a tensor of PyTorch, without importing it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(X, torch.Tensor)


def namespace_of(X: Any) -> Any:
    """Return the module with the functions for X."""
    if is_tensor(X):
        return sys.modules["torch"]
    return X.__array_namespace__()


def described(X: Any) -> str:
    """Return what X is, and where, for messages."""
    kind = f"{type(X).__module__.partition('.')[0]}.{type(X).__name__}"
    return f"{kind} on {getattr(X, 'device', 'an unknown device')}"


def to_host(X: Any) -> AnyArray:
    """Return X as an array of NumPy, moved from its device if necessary."""
    if not is_device_array(X):
        return np.asarray(X)
    if is_tensor(X):
        return X.detach().cpu().numpy()
    return np.from_dlpack(X, device="cpu")


def require_dense(X: Any) -> None:
    """Raise a ValueError if X is a sparse tensor of PyTorch."""
    if is_tensor(X) and str(X.layout) != "torch.strided":
        raise ValueError(f"X must be dense; got a tensor of layout {X.layout}; pass X.to_dense()")


def require_host(X: Any) -> Any:
    """Return an array of NumPy for one in the memory of the CPU, and anything but device arrays unchanged.

    Raises
    ------
    ValueError
        X is on another device, or a sparse tensor.
    """
    if not is_device_array(X):
        return X
    require_dense(X)
    try:
        if is_tensor(X):
            X = X.detach()
        return np.asarray(X)
    except (RuntimeError, TypeError, ValueError) as error:
        hint = "move it to the CPU, or fit a learner from labels that computes on devices, such as LFDA or FisherMetric"
        raise ValueError(f"X must be in the memory of the CPU here; got {described(X)}; {hint}") from error


def on_device_of(X: Any, values: AnyArray, dtype: Any = None) -> Any:
    """Return values of NumPy on the device of X, in a data type of the namespace of X."""
    return namespace_of(X).asarray(values, dtype=dtype, device=X.device)


def host_type(X: Any) -> Any:
    """Return the data type of rows in float32 or float64 as one of NumPy."""
    return np.dtype(str(X.dtype).rpartition(".")[2])


def in_type(X: Any, dtype: Any) -> Any:
    """Return X in another data type of its namespace."""
    if is_tensor(X):
        return X.to(dtype)
    return namespace_of(X).astype(X, dtype, copy=False)


def rows_at(X: Any, numbers: AnyArray) -> Any:
    """Return the rows of X with these numbers."""
    places = on_device_of(X, np.ascontiguousarray(numbers, dtype=np.int64))
    if is_tensor(X):
        return X.index_select(0, places)
    return namespace_of(X).take(X, places, axis=0)


def sorted_rows(X: Any) -> Any:
    """Return X with the values of each row in increasing order."""
    if is_tensor(X):
        return X.sort(dim=1).values
    return namespace_of(X).sort(X, axis=1)


def widest(X: Any) -> Any:
    """Return the data type of sums over X: float64, or float32 on a device of PyTorch without float64 (Apple's)."""
    xp = namespace_of(X)
    if getattr(X.device, "type", "") == "mps":
        return xp.float32
    return xp.float64


def unit_rows(X: Any) -> Any:
    """Return the rows scaled to unit length; rows of zeros are left unchanged."""
    xp = namespace_of(X)
    length = xp.sqrt(xp.sum(X * X, axis=1))[:, None]
    return X / xp.where(length > 0, length, xp.ones_like(length))


def checked_rows(X: Any, least: int, features: int | None = None) -> Any:
    """Return rows (n, d) in float32 or float64.

    Parameters
    ----------
    X : tensor or array
        Rows.
    least : int
        Least number of rows.
    features : int, optional
        Number of columns that X must have.

    Raises
    ------
    ValueError
        X is no dense table of finite real numbers of this shape.
    """
    require_dense(X)
    xp = namespace_of(X)
    if is_tensor(X):
        X = X.detach()
    if X.ndim != 2 or X.shape[0] < least or X.shape[1] < 1:
        raise ValueError(f"X must have shape (n, d) with at least {least} rows; got shape {tuple(X.shape)}")
    if features is not None and X.shape[1] != features:
        raise ValueError(f"X has {X.shape[1]} features, but the learner was fitted on {features}")
    half = (getattr(xp, "float16", None), getattr(xp, "bfloat16", None))
    if X.dtype in half:
        X = in_type(X, xp.float32)
    elif X.dtype not in (xp.float32, xp.float64):
        if "complex" in str(X.dtype):
            raise ValueError(f"X must hold real numbers; got {X.dtype}")
        X = in_type(X, widest(X))
    if not bool(xp.isfinite(xp.sum(X))) and not bool(xp.all(xp.isfinite(X))):
        raise ValueError("X must hold finite numbers; some are NaN or infinite")
    return X
