"""Supervision of all kinds, always as indices into X and never as copies of its rows.

Labels are integer codes 0, 1, ... with -1 for unknown. Everything drawn from labels is seeded, and nothing loops over
samples, pairs or triplets.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ..fit_warnings import warn
from .types import AnyArray, Array, Bools, Ints, Seed


class Pairs(NamedTuple):
    """Pairs of rows, given or drawn from labels: i[k] and j[k] are similar or not; weights None means all 1."""

    i: Ints
    j: Ints
    similar: Bools
    weight: Array | None = None
    from_labels: bool = False

    def part(self, similar: bool) -> Pairs:
        """Return only the similar, or only the dissimilar pairs."""
        keep = self.similar == similar
        return Pairs(self.i[keep], self.j[keep], self.similar[keep], None if self.weight is None else self.weight[keep])

    @property
    def weights(self) -> Array:
        return np.ones(len(self.i)) if self.weight is None else self.weight

    @property
    def sign(self) -> Array:
        """+1.0 for similar, -1.0 for dissimilar pairs."""
        return np.where(self.similar, 1.0, -1.0)


class LabelPairs(NamedTuple):
    """Every pair that the labels imply, never written out (see `scatter.pair_scatters`).

    Attributes
    ----------
    labels : ndarray of shape (n,)
        Codes 0, 1, ...; -1 rows are in no pair.
    weighting : "pairs" or "class"
    row_weight : ndarray of shape (n,) or None
        How often each row counts, above 0; None: once.
    """

    labels: Ints
    weighting: str = "pairs"
    row_weight: Array | None = None


def generator(seed: Seed) -> np.random.Generator:
    """Return a numpy Generator made from an int, a Generator, a RandomState or None."""
    if isinstance(seed, np.random.RandomState):
        return np.random.default_rng(seed.randint(0, 2**31 - 1))
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError):
        kinds = "an integer >= 0, a RandomState, a Generator or None"
        raise ValueError(f"random_state must be {kinds}; got {seed!r}") from None


def is_label(y: AnyArray, label: Any) -> Bools:
    """Return which entries of y are this label; text and numbers are never equal."""
    if label is None or ((y.dtype.kind in "US") != isinstance(label, (str, bytes)) and y.dtype != object):
        return np.zeros(len(y), dtype=bool)
    return np.asarray(y == label, dtype=bool)


def numbered(y: AnyArray, unlabeled: Any = None) -> AnyArray:
    """Return labels that are objects, or a list of text and a number, as numbers; return others as they are.

    Labels that equal `unlabeled` become -1, and others 0, 1, ...

    Raises
    ------
    ValueError
        Missing labels (None, NaN), or labels of several types.

    Examples
    --------
    >>> numbered(["owl", -1, "cat", "owl"], unlabeled=-1).tolist()
    [0, -1, 1, 0]
    """
    names = np.asarray(y)
    if (
        names.dtype.kind in "US"
        and isinstance(y, (list, tuple))
        and not all(isinstance(name, (str, bytes)) for name in y)
    ):
        names = np.array(y, dtype=object)  # beside text NumPy turns numbers into text, and so -1 into a class
    if names.dtype.kind == "f" and np.isnan(names).any():
        names = names.astype(object)
    if names.dtype != object or names.ndim != 1:
        return y
    missing = sum(is_missing(label) for label in names)
    if missing:
        told = f"y: {missing} of {len(names)} labels are missing"
        raise ValueError(f"{told}; write another value there, such as -1, and pass it as unlabeled=")
    known = ~is_label(names, unlabeled)
    kinds = sorted({type(label).__name__ for label in names[known].tolist()})
    if len(kinds) > 1:
        hint = "the value that marks rows without a label is passed as unlabeled="
        raise ValueError(f"y must hold labels of one type; got {', '.join(kinds)}; {hint}")
    codes = np.full(len(names), -1, dtype=np.intp)
    codes[known] = encode(names[known])[1]
    return codes


def is_missing(label: Any) -> bool:
    """Whether the label is None, NaN, or the NA of pandas, which cannot be compared."""
    return label is None or type(label).__name__ == "NAType" or bool(label != label)


def encode(y: AnyArray, unlabeled: Any = None) -> tuple[AnyArray, Ints]:
    """Return class names and each row's code: 0, 1, ... by first appearance, or -1 where y equals `unlabeled`.

    Codes that do not depend on the names make every learner invariant to them.
    """
    known = ~is_label(y, unlabeled)
    names, first, inverse = np.unique(y[known], return_index=True, return_inverse=True)
    order = np.argsort(first)
    codes = np.full(len(y), -1, dtype=np.intp)
    codes[known] = np.argsort(order)[inverse.ravel()]
    return names[order], codes


def class_sizes(labels: Ints) -> Ints:
    """Return how many rows each class 0..c-1 has; unknown rows are in none."""
    return np.bincount(labels[labels >= 0])


def warn_of_small_classes(labels: Ints, k: int, names: AnyArray | None = None, setting: str = "n_neighbors") -> None:
    """Warn, once, of classes whose rows have fewer than k other rows of their class.

    Parameters
    ----------
    labels : ndarray of shape (n,)
        Codes; -1 rows are in no class.
    k : int
    names : ndarray of shape (c,), optional
        The user's names of the classes.
    setting : str
        The user's name of k.
    """
    n = class_sizes(labels)
    small = np.flatnonzero((n > 0) & (n <= k))
    if len(small) == 0:
        return
    smallest = small[n[small].argmin()]
    name = smallest if names is None else names[smallest]
    told = f"class {name!s} has {n[smallest]} row(s)"
    if len(small) > 1:
        told = f"{len(small)} classes have no more rows than that; the smallest, {name!s}, has {n[smallest]}"
    warn(f"{setting}={k}: {told}; a row has at most the other rows of its class as neighbors")


def class_counts(labels: Ints, row_weight: Array | None = None) -> Ints | Array:
    """Return how many rows each class 0..c-1 has, or the sum of their weights; unknown rows are in none."""
    if row_weight is None:
        return class_sizes(labels)
    known = labels >= 0
    return np.asarray(np.bincount(labels[known], row_weight[known]), dtype=np.float64)


def require_weighted_classes(count: AnyArray) -> None:
    """Raise unless there are at least two classes, and one with a weight above 1.

    Raises
    ------
    ValueError
    """
    if len(count) < 2:
        raise ValueError(f"y must hold at least 2 classes; got {len(count)}")
    if not (count > 1).any():
        told = "y holds only classes of one sample, so there is no similar pair"
        raise ValueError(f"{told} (a class counts as the sum of its weights)")


def require_classes(labels: Ints, similar: bool = True) -> None:
    """Raise unless there are at least two classes and, with `similar`, one class of two members.

    Raises
    ------
    ValueError
    """
    n = class_sizes(labels)
    if len(n) < 2:
        raise ValueError(f"y must hold at least 2 classes; got {len(n)}")
    if similar and n.max() < 2:
        raise ValueError("y holds only classes of one sample, so there is no similar pair")


def require_both(similar: int, dissimilar: int) -> None:
    """Raise unless there is at least one similar and one dissimilar pair; the arguments are their numbers.

    Raises
    ------
    ValueError
        One of the sets is empty; the message says which.
    """
    for n, kind in ((similar, "similar"), (dissimilar, "dissimilar")):
        if n == 0:
            raise ValueError(
                f"the set of {kind} pairs is empty; at least one {kind} pair (of weight above 0) is needed"
            )


def with_similar(pairs: Pairs) -> Pairs:
    """Return the pairs; raise if none of them is similar."""
    require_both(int(pairs.similar.sum()), 1)
    return pairs


def pairs_from_labels(labels: Ints, n_pairs: int | None, seed: Seed) -> Pairs:
    """Draw distinct pairs uniformly from all same-class pairs and from all different-class pairs.

    Parameters
    ----------
    labels : ndarray of shape (n,)
        Codes; -1 rows are in no pair.
    n_pairs : int or None
        How many of each kind; None: 20 c^2 for c classes. Where fewer exist, all of them are taken.
    seed : int, Generator, RandomState or None

    Returns
    -------
    Pairs
        The similar ones first.
    """
    require_classes(labels)
    rng = generator(seed)
    rows = np.argsort(labels, kind="stable")[(labels < 0).sum() :]
    sizes = class_sizes(labels)
    n_pairs = 20 * len(sizes) ** 2 if n_pairs is None else n_pairs
    i, j = unrank_same(sample(int((sizes * (sizes - 1) // 2).sum()), n_pairs, rng), sizes)
    k, l = unrank_different(sample(int(count_different(sizes).sum()), n_pairs, rng), sizes)
    similar = np.repeat([True, False], [len(i), len(k)])
    return Pairs(rows[np.r_[i, k]], rows[np.r_[j, l]], similar, from_labels=True)


def quadruplets_from_labels(labels: Ints, n_quadruplets: int | None, seed: Seed) -> Ints:
    """Draw rows (a, b, c, d), a and b of one class, c and d of two: both from `pairs_from_labels`, joined at random.

    Where there are fewer pairs of one kind, they are used several times.
    """
    rng = generator(seed)
    pairs = pairs_from_labels(labels, n_quadruplets, rng)
    kinds = [rng.permutation(np.stack(pairs.part(similar)[:2], axis=1)) for similar in (True, False)]
    m = max(len(kind) for kind in kinds)
    return np.concatenate([np.resize(kind, (m, 2)) for kind in kinds], axis=1)


def written_out(pairs: Pairs | LabelPairs) -> Pairs:
    """Return the pairs one by one; if labels imply them, list all n (n - 1) / 2."""
    if isinstance(pairs, Pairs):
        return pairs
    return pairs_from_labels(pairs.labels, len(pairs.labels) ** 2, 0)


def sample(total: int, n: int, rng: np.random.Generator) -> Ints:
    """Draw min(n, total) distinct numbers below `total`, rising; all are listed only where many are asked for."""
    if n >= total:
        return np.arange(total)
    if 5 * n > total:
        return np.sort(rng.permutation(total)[:n])
    drawn = distinct(rng.integers(total, size=n))
    while len(drawn) < n:
        drawn = distinct(np.r_[drawn, rng.integers(total, size=n - len(drawn))])
    return drawn


def distinct(numbers: Ints) -> Ints:
    """Return the distinct values of numbers >= 0, rising: as `np.unique`, in a third of its time."""
    rising = np.sort(numbers)
    return rising[np.diff(rising, prepend=-1) > 0]


def count_different(sizes: Ints) -> Ints:
    """Return for each class how many pairs its rows make with those of all later classes."""
    return sizes * (sizes.sum() - np.cumsum(sizes))


def unrank_same(k: Ints, sizes: Ints) -> tuple[Ints, Ints]:
    """Return the k-th same-class pair (positions in class-sorted order, i < j)."""
    per_class = sizes * (sizes - 1) // 2
    c = np.searchsorted(np.cumsum(per_class), k, side="right")
    k = k - (np.cumsum(per_class) - per_class)[c]
    # position k of the strict lower triangle: row j holds j entries
    j = ((1 + np.sqrt(1 + 8.0 * k)) // 2).astype(np.intp)
    j += (j + 1) * j // 2 <= k
    j -= j * (j - 1) // 2 > k
    start = (np.cumsum(sizes) - sizes)[c]
    return start + k - j * (j - 1) // 2, start + j


def unrank_different(k: Ints, sizes: Ints) -> tuple[Ints, Ints]:
    """Return the k-th pair of different classes (positions in class-sorted order, i < j)."""
    per_class = count_different(sizes)
    c = np.searchsorted(np.cumsum(per_class), k, side="right")
    k = k - (np.cumsum(per_class) - per_class)[c]
    end = np.cumsum(sizes)[c]
    later = sizes.sum() - end
    return end - sizes[c] + k // later, end + k % later


def chunklets_from_labels(labels: Ints, n_chunklets: int, size: int, seed: Seed) -> Ints:
    """Draw at most `n_chunklets` disjoint chunklets, each of `size` rows of one class; any class may be drawn.

    Returns
    -------
    ndarray of shape (n,)
        Chunklet number, -1 for rows in none.
    """
    rng = generator(seed)
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")][(labels < 0).sum() :]
    sizes = class_sizes(labels)
    place = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    whole = place < np.repeat(sizes // size * size, sizes)
    number = np.cumsum(whole & (place % size == 0)) - 1
    keep = rng.permutation(number.max(initial=-1) + 1)[:n_chunklets]
    renumber = np.full(number.max(initial=-1) + 1, -1)
    renumber[keep] = np.arange(len(keep))
    chunklets = np.full(len(labels), -1)
    chunklets[order[whole]] = renumber[number[whole]]
    return chunklets


def groups(pairs: Pairs, n: int) -> Ints:
    """Return the number (n,) of each row's group: rows that similar pairs connect, or a row alone."""
    must = pairs.part(similar=True)
    links = coo_array((np.ones(len(must.i)), (must.i, must.j)), shape=(n, n))
    return connected_components(links, directed=False)[1]


def close(pairs: Pairs, n: int) -> tuple[Ints, Bools]:
    """Return chunklets, the transitive closure of the must-links, and which of them a cannot-link keeps apart.

    Returns
    -------
    chunklets : ndarray of shape (n,)
        The chunklet of each row; -1 for rows in no pair.
    apart : symmetric ndarray of shape (c, c)

    Raises
    ------
    ValueError
        A cannot-link joins two rows of one chunklet.
    """
    cannot = pairs.part(similar=False)
    group = groups(pairs, n)
    torn = group[cannot.i] == group[cannot.j]
    if torn.any():
        clash = np.stack([cannot.i[torn], cannot.j[torn]], axis=1)[:5].tolist()
        raise ValueError(f"pair_labels contradict: dissimilar pairs {clash} are joined by a chain of similar pairs")
    chunklets = np.full(n, -1)
    used = np.unique(np.r_[pairs.i, pairs.j])
    chunklets[used] = np.unique(group[used], return_inverse=True)[1]
    apart = np.zeros((chunklets.max() + 1,) * 2, dtype=bool)
    apart[chunklets[cannot.i], chunklets[cannot.j]] = True
    return chunklets, apart | apart.T
