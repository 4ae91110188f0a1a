"""Large-margin problems from labels or triplets: which rows pull and push, and in which coordinates."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ....numerics import psd, scatter
from ....numerics.constraints import generator
from ....numerics.types import Array, Ints, Seed
from .. import impostors
from ..impostors import Impostors
from . import mining as triplet_mining
from .objective import LargeMargin

PULL_FLOOR = 1e-6  # of the spread of rows: what pulls along a direction weigh at least
SCATTER_ROUNDING = 1e-20  # smallest scatter that is not rounding, relative to the largest
MAX_ANCHORS = 25_000  # rows up to which all are anchors; the time grows with anchors times rows
MINING = (None, "batch_all", *triplet_mining.STRATEGIES)


class PullsAndPushes(NamedTuple):
    """How labels become pulls and pushes; the settings of the same names of `LMNN`."""

    n_neighbors: int = 3
    mu: float = 0.5
    squared: bool = False
    mining: str | None = None
    pull: str = "targets"
    seed: Seed = None

    def pose(self, X: Array, labels: Ints | None, triplets: Ints | None, L: Array) -> LargeMargin:
        """The problem on rows sorted by class, or on triplets, with neighbors looked up under L."""
        if labels is not None and self.mining in (None, "batch_all"):
            near = impostors.target_neighbors(X @ L.T, labels, self.n_neighbors, self.anchors(len(X)))
            i = np.repeat(np.arange(len(X)), near.shape[1])
            return LargeMargin(X, i, near.ravel(), self.mu, self.squared, labels=labels)
        if labels is not None:
            triplets = triplet_mining.mine(X @ L.T, labels, self.mining or "", self.n_neighbors, seed=self.seed)
        return from_triplets(X, np.asarray(triplets), self.mu, self.squared, self.pull)

    def anchors(self, n: int) -> Ints:
        """The rows that pull and are intruded on, rising: all of them, or a sample of many."""
        if n <= MAX_ANCHORS:
            return np.arange(n)
        return np.sort(generator(self.seed).choice(n, MAX_ANCHORS, replace=False))


def from_triplets(X: Array, triplets: Ints, mu: float, squared: bool, pull: str = "targets") -> LargeMargin:
    """The problem of listed triplets (m, 3); pulls weigh 1 each, or ("triplets") as often as they occur."""
    a, p, n = triplets[np.argsort(triplets[:, 0], kind="stable")].T
    edges, target, count = np.unique(a * len(X) + p, return_inverse=True, return_counts=True)
    i, j = np.divmod(edges, len(X))
    weight = count.astype(float) if pull == "triplets" else None
    return LargeMargin(X, i, j, mu, squared, weight=weight, fixed=Impostors(a, n, target.ravel()))


def whitening(problem: LargeMargin) -> tuple[Array, Array]:
    """A and B (d, r) with A' C A = I up to scale and A' B = I.

    A direction with few pulls or none weighs a small share of its spread; one without spread is left out.
    """
    S = scatter.total(problem.X)
    w, V = psd.spectrum(problem.C + PULL_FLOOR * np.trace(problem.C) / max(float(np.trace(S)), 1e-300) * S)
    w, V = (w, V) if w[0] > 0 else (np.ones_like(w), V)
    kept = w > SCATTER_ROUNDING * w[0]
    w = w[kept] / w[kept].mean()
    V = V[:, kept]
    return V / np.sqrt(w), V * np.sqrt(w)
