"""Losses in half and single precision: how far value and gradient are from those in float64.

    python bench/precision.py [--size 256] [--dim 128]

Embeddings of a dtype go in; the loss computes in float32 and returns the gradient in that dtype. `value` is the
relative difference of the loss from float64 on the same, rounded embeddings; `gradient` that of the gradients, in
the norm, of which rounding to the dtype alone costs up to 4e-3 (bfloat16) and 5e-4 (float16). `rounding` is what
rounding the embeddings changes in the value in float64. Entries of a gradient below 6e-8 vanish in float16, whatever
the loss: training in float16 multiplies the loss by a large number first. Random terms draw alike in all dtypes.

`products` are float32 embeddings whose matrix products round their factors to bfloat16 and add up in float32, as
devices with bfloat16 do under `torch.set_float32_matmul_precision("medium")`. The rounding is imitated, so that the
figures do not depend on the processor.
"""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import nearfar
from nearfar.catalog import METHODS, Method
from nearfar.deep.proxies.class_proxies import ClassProxyLoss

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
PER_CLASS = 4
aten = torch.ops.aten
FACTORS = {  # the places of the matrices that a function multiplies among its arguments
    aten.mm.default: (0, 1),
    aten.addmm.default: (1, 2),
    aten.bmm.default: (0, 1),
    aten.baddbmm.default: (1, 2),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=256, help="samples of the batch")
    parser.add_argument("--dim", type=int, default=128)
    settings = parser.parse_args()
    print(f"torch {torch.__version__}, {settings.size} x {settings.dim}, {PER_CLASS} of a class\n")
    print("| loss | dtype | value | gradient | rounding |")
    print("|---|---|---:|---:|---:|")
    for method in METHODS:
        if method.kind in ("loss", "regularizer", "head"):
            for dtype in DTYPES:
                print_row(
                    method, str(dtype).removeprefix("torch."), differences(method, settings.size, settings.dim, dtype)
                )
            rounded = differences(method, settings.size, settings.dim, torch.float32, products=RoundedProducts())
            print_row(method, "products", rounded)


def print_row(method: Method, kind: str, errors: tuple[float, float, float]) -> None:
    print(f"| {method.name} | {kind} | {' | '.join(f'{error:.0e}' for error in errors)} |")


class RoundedProducts(TorchDispatchMode):
    """Rounds the factors of float32 matrix products to bfloat16; products and sums remain in float32."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch declares no types for it

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        values = list(args)
        for place in FACTORS.get(func, ()):
            if values[place].dtype == torch.float32:
                values[place] = values[place].bfloat16().float()
        return func(*values, **(kwargs or {}))


def differences(
    method: Method,
    size: int,
    dim: int,
    dtype: torch.dtype,
    products: AbstractContextManager[Any] | None = None,
) -> tuple[float, float, float]:
    """Return relative differences of value, of gradient, and of the value by rounding the embeddings.

    The term is computed under `products`, its exact counterpart in float64 is not.
    """
    x, pooled = (torch.randn(size, dim, generator=torch.Generator().manual_seed(seed)).double() for seed in (0, 1))
    rounded, features = x.to(dtype), pooled.to(dtype)
    with products or nullcontext():
        value, slope = value_and_gradient(method, rounded, features)
    exact, exact_slope = value_and_gradient(method, rounded.double(), features.double())
    whole, _ = value_and_gradient(method, x, pooled)
    size_of_slope = exact_slope.norm().clamp_min(1e-300)
    return (
        abs(value - exact) / max(abs(exact), 1e-300),
        float((slope.double() - exact_slope).norm() / size_of_slope),
        abs(exact - whole) / max(abs(whole), 1e-300),
    )


def value_and_gradient(method: Method, x: Tensor, pooled: Tensor) -> tuple[float, Tensor]:
    torch.manual_seed(0)
    classes = len(x) // PER_CLASS
    sizes = {"num_classes": classes, "embedding_dim": x.shape[1]}
    settings = {**method.small, **{name: size for name, size in sizes.items() if name in method.small}}
    term = getattr(nearfar, method.name)(**settings)
    term = term.double() if x.dtype == torch.float64 else term.float()
    if isinstance(term, ClassProxyLoss):
        term.proxies.data = torch.randn(term.proxies.shape, generator=torch.Generator().manual_seed(2)).to(term.proxies)
    x = x.clone().requires_grad_()
    value = term(x, torch.arange(len(x)) % classes, pooled=pooled)
    (slope,) = torch.autograd.grad(value, x)
    return float(value.detach()), slope


if __name__ == "__main__":
    main()
