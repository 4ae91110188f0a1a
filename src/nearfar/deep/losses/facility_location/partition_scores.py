"""How far a partition is from the classes, from counts alone, for many candidate partitions at once.

Every measure here depends on the contingency table only through sums over its cells and over its cluster sizes:

    mutual information    MI = ln m + (sum phi(n_ck) - sum phi(n_c) - sum phi(n_k)) / m,   phi(n) = n ln n
    entropies             H = ln m - sum phi(n) / m
    normalized            NMI = MI / mean(H_y, H_a)
    adjusted              AMI = (MI - E) / (mean(H_y, H_a) - E),   E = sum_k e(n_k), expected at fixed sizes
    Rand index, adjusted  ARI, and equality of partitions: the same with phi(n) = n^2

so that a candidate that moves few points costs a few table look-ups.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from ....numerics.types import Array, Bools, Ints

AGREEMENTS = ("nmi", "ami", "ari", "vmeasure", "const")
MEANS = ("geometric", "arithmetic")
SMALL_TABLE = 1 << 14  # cells up to which summing them all takes less time than looking for those that change


class Agreement:
    """The structured margin Delta = 1 - agreement between a partition and the classes, in [0, 1].

    Parameters
    ----------
    y : (m,) int
        Classes 0..L-1, each at least once.
    kind : {"nmi", "ami", "ari", "vmeasure", "const"}
        "nmi"; "ami" and "ari", clipped at 0; "vmeasure" (NMI with the arithmetic mean); "const": 0 if the partitions
        are equal up to names, else 1.
    mean : {"geometric", "arithmetic"}
        Mean of the two entropies in "nmi" and "ami": "geometric" or "arithmetic".
    """

    def __init__(self, y: Ints, kind: str = "nmi", mean: str = "geometric") -> None:
        self.y = y
        self.m = len(y)
        self.kind = "nmi" if kind == "vmeasure" else kind
        self.mean = "arithmetic" if kind == "vmeasure" else mean
        counts = np.bincount(y)
        self.num_classes = len(counts)
        if self.kind in ("nmi", "ami"):
            self.phi = _n_log_n(self.m)
        else:
            self.phi = np.arange(self.m + 1.0) ** 2
        self.sum_y = float(self.phi[counts].sum())
        self.expected: Array | None = None
        if kind == "ami":
            self.expected = np.sum([expected_information(self.m, int(c)) for c in counts], axis=0)

    def margin(self, cells: Array, sizes: Ints) -> Array:
        """Return Delta per candidate from (c,) sums of phi over cells and (c, K) cluster sizes, empty ones included."""
        sum_a = self.phi[sizes].sum(1)  # (c,)
        # Delta = 1 - score; "const" is 0 only for the partition of the classes, whose cells reach both sums
        if self.kind == "const":
            return ((cells < self.sum_y) | (cells < sum_a)).astype(float)
        if self.kind == "ari":
            return 1 - np.clip(self._rand_index(cells, sum_a), 0, 1)
        return 1 - np.clip(self._information(cells, sum_a, sizes), 0, 1)

    def _rand_index(self, cells: Array, sum_a: Array) -> Array:
        def pairs(total: Any) -> Any:
            return (total - self.m) / 2

        # ARI = (pairs together in both - expected) / (mean of pairs together in each - expected)
        by_chance = pairs(self.sum_y) * pairs(sum_a) / max(pairs(self.m**2), 1)
        most = (pairs(self.sum_y) + pairs(sum_a)) / 2
        return _ratio(pairs(cells) - by_chance, most - by_chance, 1.0)

    def _information(self, cells: Array, sum_a: Array, sizes: Ints) -> Array:
        # MI, H_y and H_a of the docstring, from sums of phi(n) = n ln n
        shared = np.log(self.m) + (cells - self.sum_y - sum_a) / self.m
        h_y = np.log(self.m) - self.sum_y / self.m
        h_a = np.log(self.m) - sum_a / self.m
        if self.mean == "geometric":
            middle = np.sqrt(np.maximum(h_y * h_a, 0))
        else:
            middle = (h_y + h_a) / 2
        both_trivial = (h_y < 1e-12) & (h_a < 1e-12)
        if self.expected is None:
            return _ratio(shared, middle, both_trivial)
        by_chance = self.expected[sizes].sum(1)
        return _ratio(shared - by_chance, middle - by_chance, both_trivial)

    def of(self, a: Ints) -> float:
        """Return Delta of one partition, (m,) cluster numbers, from scratch."""
        clusters = int(a.max()) + 1
        cells = np.bincount(self.y * clusters + a)
        sizes = np.bincount(a, minlength=clusters)
        return float(self.margin(self.phi[cells].sum(keepdims=True), sizes[None])[0])


def _n_log_n(m: int) -> Array:
    n = np.arange(m + 1.0)
    return n * np.log(np.maximum(n, 1))


def _ratio(top: Array, bottom: Array, otherwise: float | Bools) -> Array:
    fine = np.abs(bottom) > 1e-12
    return np.where(fine, top / np.where(fine, bottom, 1.0), otherwise)


@lru_cache(maxsize=4096)
def expected_information(m: int, c: int) -> Array:
    """Return, for a class of c among m points, its expected part of MI with a random cluster of 0..m points.

    The overlap n of a random cluster of k points with the class is hypergeometric; its part is (n/m) ln(m n / (c k)).
    """
    # (m + 1, 1), (c,)
    k = np.arange(m + 1)[:, None]
    n = np.arange(1, c + 1)
    rest = m - c - k + n  # points in neither
    possible = (n <= k) & (rest >= 0)
    log_factorial = gammaln(np.arange(m + 1) + 1)

    def fact(count: Any) -> Any:
        return log_factorial[np.clip(count, 0, m)]

    # P(n) = C(c, n) C(m - c, k - n) / C(m, k), in logarithms: factorials overflow from 171 on
    log_p = fact(k) + fact(m - k) + fact(c) + fact(m - c) - fact(n) - fact(c - n) - fact(k - n) - fact(rest) - fact(m)
    part = n / m * np.log(m * n / (c * np.maximum(k, 1)))
    return np.where(possible, np.exp(np.where(possible, log_p, 0)) * part, 0).sum(1)


class Base(NamedTuple):
    """A partition that candidates modify.

    Attributes
    ----------
    a : (m,) int
        Cluster of each point.
    cell : (m,) int
        Number of each point's nonempty cell of the contingency table.
    counts : (cells,) int
        Number of points in each nonempty cell.
    sizes : (K,) int
        Number of points in each cluster.
    """

    a: Ints
    cell: Ints
    counts: Ints
    sizes: Ints

    @classmethod
    def of(cls, agreement: Agreement, a: Ints, clusters: int) -> Base:
        """Count a partition into `clusters` clusters, some perhaps empty."""
        key = agreement.y * clusters + a
        used = np.bincount(key, minlength=agreement.num_classes * clusters)
        number = np.cumsum(used > 0) - 1
        return cls(a, number[key], used[used > 0], np.bincount(a, minlength=clusters))


def margins(agreement: Agreement, base: Base, moved: Bools) -> Array:
    """Return Delta of every candidate partition.

    In candidate i, the points `moved[i]` leave their clusters for one new cluster.

    Parameters
    ----------
    agreement : Agreement
        Measure of agreement with the classes.
    base : Base
        Partition that the candidates modify.
    moved : (c, m) bool
        Points that each candidate moves.

    Returns
    -------
    (c,) float
        Delta of each candidate.
    """
    phi = agreement.phi
    (c, m) = moved.shape
    rows, points = np.divmod(np.flatnonzero(moved), m)  # several times as fast as nonzero

    def count(label: Ints, kinds: int) -> Ints:
        counts: Ints = np.bincount(rows * kinds + label[points], minlength=c * kinds)
        return counts

    def changes(label: Ints, before: Ints, sign: int) -> Array:
        """Per candidate by how much the sum of phi over the cells grows as its points come or go."""
        number = count(label, len(before))
        # a small table is looked up as a whole, (c, cells); of a large one, only the cells that change
        if len(number) <= SMALL_TABLE:
            return phi[before + sign * number.reshape(c, -1)].sum(1) - float(phi[before].sum())
        row, cell = np.divmod(np.flatnonzero(number > 0), len(before))
        old = before[cell]
        new = old + sign * number[row * len(before) + cell]
        return np.bincount(row, phi[new] - phi[old], c).astype(np.float64, copy=False)

    # the new cluster has only cells of points that arrived; those of the others only lose points
    arrived = changes(agreement.y, np.zeros(agreement.num_classes, dtype=np.int64), 1)
    left = float(phi[base.counts].sum()) + changes(base.cell, base.counts, -1)
    stayed = base.sizes - count(base.a, len(base.sizes)).reshape(c, -1)  # (c, K)
    return agreement.margin(arrived + left, np.column_stack([stayed, moved.sum(1)]))
