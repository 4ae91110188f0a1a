"""Queries of a new model for an index of an old one, until that is embedded again.

With rows x of the new model and y of the old one of the same items, all of length 1, and their means:

    orthogonal   x -> (x - m_x) W + m_y,  W = argmin |(X - m_x) W - (Y - m_y)|  with orthonormal columns or rows
    linear       the same with any W of at most a rank, by ridge regression
    residual     x -> linear(x) + relu(x A + a) B, a small network that learns what is left
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np

from ..io import tensor_file
from ..io.untrusted import parse_json
from ..numerics.distances import as_rows, unit_rows
from ..numerics.types import AnyArray, Array
from ..quoting import quoted

KINDS_OF_ADAPTERS = ("orthogonal", "linear", "residual")
ADAPTER_FORMAT = "nearfar adapter 1"
RIDGES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # shares of the mean variance of X, among which held-out rows choose
HELD_OUT = 0.1  # of the rows: they choose, and say how well it went
FEWEST_ROWS = 20
EPOCHS = 60  # of the residual network
BATCH_ROWS = 256
RATE = 2e-3


class QueryAdapter:
    """Translate embeddings of a new model into those of an old model, to search its index.

    Parameters
    ----------
    kind : {"orthogonal", "linear", "residual"}
        Type of map. "orthogonal" is a rotation, and generalizes best to classes that it was not fitted on. "linear" is
        a ridge regression with limited rank. "residual" adds a small network to the linear map (needs PyTorch for
        `fit`).
    rank : int, optional
        Maximum rank of the linear map. By default, it is not limited.
    hidden : int
        Width of the small network.
    seed : int
        Seed of the generator that draws the held-out rows and initializes the small network.

    Attributes
    ----------
    similarity_ : float
        Mean cosine between adapted rows and rows of the old model, on a held-out tenth of the items.
    held_out_ : ndarray of bool, shape (n,)
        Whether each item was held out. Not set if the adapter was loaded.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> new = rng.normal(size=(200, 6))
    >>> turned = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    >>> adapter = QueryAdapter("orthogonal").fit(new, new @ turned)
    >>> bool(adapter.similarity_ > 0.99)
    True
    """

    def __init__(self, kind: str = "orthogonal", *, rank: int | None = None, hidden: int = 256, seed: int = 0) -> None:
        if kind not in KINDS_OF_ADAPTERS:
            raise ValueError(f"kind: expected one of {', '.join(KINDS_OF_ADAPTERS)}, got {quoted(kind)}")
        for name, value in (("rank", rank), ("hidden", hidden)):
            if value is not None and (not isinstance(value, Integral) or value < 1):
                raise ValueError(f"{name}: expected a whole number of at least 1, got {value!r:.40}")
        self.kind = kind
        self.rank = rank
        self.hidden = hidden
        self.seed = seed
        self.similarity_ = float("nan")
        self.held_out_: AnyArray = np.zeros(0, dtype=bool)
        self._arrays: dict[str, AnyArray] = {}

    def fit(self, new: Any, old: Any) -> QueryAdapter:
        """Learn from items that both models have embedded; a few thousand are enough.

        Parameters
        ----------
        new : array-like of shape (n, d)
            Embeddings of the new model.
        old : array-like of shape (n, e)
            Embeddings of the old model, of the same items in the same order.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If rows are not finite, their numbers differ, or there are fewer than 20.
        """
        x = unit_rows(as_rows(new, "new"))
        y = unit_rows(as_rows(old, "old"))
        if len(x) != len(y):
            raise ValueError(f"old: expected {len(x)} rows, one for each of new, got {len(y)}")
        if len(x) < FEWEST_ROWS:
            raise ValueError(f"new: expected at least {FEWEST_ROWS} rows to learn from, got {len(x)}")
        out = np.zeros(len(x), dtype=bool)
        out[np.random.default_rng(self.seed).permutation(len(x))[: max(1, int(HELD_OUT * len(x)))]] = True
        arrays = {"mean": x[~out].mean(axis=0), "target": y[~out].mean(axis=0)}
        X = x - arrays["mean"]
        Y = y - arrays["target"]
        if self.kind == "orthogonal":
            arrays["weight"] = procrustes(X[~out], Y[~out])
        else:
            arrays["weight"] = ridge(X, Y, out, self.rank)
        if self.kind == "residual":
            arrays |= residual(X, Y - X @ arrays["weight"], y, out, self.hidden, self.seed)
        self._arrays = {name: np.asarray(values, dtype=np.float32) for name, values in arrays.items()}
        self.held_out_ = out
        found = unit_rows(self.transform(x[out]))
        self.similarity_ = float(np.einsum("ij,ij->i", found, y[out]).mean())
        return self

    def transform(self, new: Any) -> AnyArray:
        """Map embeddings of the new model to the space of the old one.

        Parameters
        ----------
        new : array-like of shape (n, d)
            Embeddings of the new model.

        Returns
        -------
        ndarray of float32, shape (n, e)
            Embeddings as the old model would give them.

        Raises
        ------
        ValueError
            If the adapter is not fitted, or the rows have another number of columns than those it was fitted on.
        """
        if not self._arrays:
            raise ValueError("this adapter is not fitted: call fit(new, old) first")
        x = unit_rows(as_rows(new, "new"))
        width = len(self._arrays["mean"])
        if x.shape[1] != width:
            raise ValueError(f"new: expected {width} columns as the adapter was fitted to, got {x.shape[1]}")
        centered = x - self._arrays["mean"]
        found = centered @ self._arrays["weight"] + self._arrays["target"]
        if "inner" in self._arrays:
            active = np.maximum(centered @ self._arrays["inner"] + self._arrays["bias"], 0)
            found = found + active @ self._arrays["outer"]
        return np.asarray(found, dtype=np.float32)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the adapter to one file in the safetensors format, completely or not at all.

        Parameters
        ----------
        path : path
            File to write.
        """
        if not self._arrays:
            raise ValueError("this adapter is not fitted: there is nothing to save")
        settings = {"kind": self.kind, "rank": self.rank, "hidden": self.hidden, "seed": self.seed}
        about = json.dumps(settings | {"similarity": self.similarity_})
        tensor_file.write(path, self._arrays, {"format": ADAPTER_FORMAT, "about": about})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> QueryAdapter:
        """Read an adapter that `save` wrote; nothing in the file is executed.

        Parameters
        ----------
        path : path
            File to read.

        Returns
        -------
        QueryAdapter

        Raises
        ------
        FileNotFoundError
            If the file does not exist.
        ValueError
            If the file holds no adapter, or is damaged.
        """
        arrays, text = tensor_file.read(path)
        if text.get("format") != ADAPTER_FORMAT:
            raise ValueError(f"{os.fspath(path)} is no adapter (expected one that `nearfar adapt` wrote)")
        try:
            about = parse_json(text["about"])
            adapter = cls(about["kind"], rank=about["rank"], hidden=about["hidden"], seed=about["seed"])
            adapter.similarity_ = float(about["similarity"])
            _check_arrays(arrays)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{os.fspath(path)} is damaged: {error}") from error
        adapter._arrays = dict(arrays)
        return adapter


def _check_arrays(arrays: Mapping[str, AnyArray]) -> None:
    """Raise unless arrays are those of an adapter, of shapes that fit."""
    width = arrays["mean"].shape
    end = arrays["target"].shape
    expected = {"mean": width, "target": end, "weight": (*width, *end)}
    if "inner" in arrays:
        hidden = arrays["bias"].shape
        expected |= {"inner": (*width, *hidden), "bias": hidden, "outer": (*hidden, *end)}
    for name, shape in expected.items():
        if arrays[name].shape != shape or not np.isfinite(arrays[name]).all():
            raise ValueError(f"{name}: expected finite numbers of shape {shape}, got shape {arrays[name].shape}")


def procrustes(X: Array, Y: Array) -> Array:
    """Return the (d, e) matrix W with orthonormal columns, or rows if e > d, for which X W is closest to Y.

    Schoenemann, A generalized solution of the orthogonal Procrustes problem, 1966: W = U V' with X'Y = U S V'.
    """
    U, _, Vt = np.linalg.svd(X.T @ Y, full_matrices=False)
    return np.asarray(U @ Vt)


def ridge(X: Array, Y: Array, out: AnyArray, rank: int | None = None) -> Array:
    """Return W (d, e) of the least |X W - Y|^2 + a |W|^2 of at most a rank; the rows that are `out` choose a.

    The rank is that of the fitted values, as in reduced-rank regression: W V V' with V the first right singular vectors
    of X W.
    """
    known = X[~out]
    values, U = np.linalg.eigh(known.T @ known)
    products = U.T @ (known.T @ Y[~out])  # (d, e)
    size = max(float(values.mean()), np.finfo(float).tiny)
    best = np.inf
    chosen = np.zeros((X.shape[1], Y.shape[1]))
    for share in RIDGES:
        W = U @ (products / (np.maximum(values, 0) + share * size)[:, None])
        if rank is not None and rank < min(W.shape):
            V = np.linalg.svd(known @ W, full_matrices=False)[2][:rank].T
            W = W @ V @ V.T
        error = float(((X[out] @ W - Y[out]) ** 2).sum())
        if error < best:
            best = error
            chosen = W
    return chosen


def residual(X: Array, left: Array, y: Array, out: AnyArray, hidden: int, seed: int) -> dict[str, AnyArray]:
    """Return the weights, of the best epoch on rows `out`, of a small network for the residual `left` of a linear map.

    It starts at 0, so that it is never worse on these rows than the linear map alone.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    inputs = torch.from_numpy(X.astype(np.float32))
    base = torch.from_numpy((y - left).astype(np.float32))  # linear(x), about the mean
    target = torch.from_numpy(y.astype(np.float32))
    inner = (torch.randn(X.shape[1], hidden, generator=generator) * (2.0 / X.shape[1]) ** 0.5).requires_grad_()
    bias = torch.zeros(hidden, requires_grad=True)
    outer = torch.zeros(hidden, y.shape[1], requires_grad=True)
    parts = {"inner": inner, "bias": bias, "outer": outer}
    optimizer = torch.optim.Adam(parts.values(), lr=RATE, weight_decay=1e-5)
    known = torch.from_numpy(np.flatnonzero(~out))
    held = torch.from_numpy(np.flatnonzero(out))

    def loss_of(rows: torch.Tensor) -> torch.Tensor:
        found = base[rows] + torch.relu(inputs[rows] @ inner + bias) @ outer
        return 1 - torch.cosine_similarity(found, target[rows]).mean()

    best = loss_of(held).item()
    kept = {name: part.detach().numpy().copy() for name, part in parts.items()}
    for _ in range(EPOCHS):
        for batch in known[torch.randperm(len(known), generator=generator)].split(BATCH_ROWS):
            optimizer.zero_grad()
            loss_of(batch).backward()
            optimizer.step()
        with torch.no_grad():
            score = loss_of(held).item()
        if score < best:
            best = score
            kept = {name: part.detach().numpy().copy() for name, part in parts.items()}
    return kept
