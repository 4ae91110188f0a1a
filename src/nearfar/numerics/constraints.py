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
from .checks import class_sizes, encode, one_of, require_classes, table
from .types import AnyArray, Array, Bools, Ints, Seed

PAIRS_PER_SQUARED_CLASS = 20  # default number of pairs of each kind, in units of c^2 for c classes (Davis et al., 2007)
# most pairs of each kind that are drawn by default: as many as a metric of 1,000 features has free entries, and what
# 158 classes ask for; 600 classes would ask for 7 million, which take gigabytes and minutes
MAX_DEFAULT_PAIRS = 500_000


class Pairs(NamedTuple):
    """Pairs of rows, given or drawn from labels: i[k] and j[k] are similar or not.

    If `weight` is None, all weights are 1.
    """

    i: Ints
    j: Ints
    similar: Bools
    weight: Array | None = None
    from_labels: bool = False

    def part(self, similar: bool) -> Pairs:
        """Return only the similar pairs, or only the dissimilar pairs."""
        keep = self.similar == similar
        weight = self.weight
        if weight is not None:
            weight = weight[keep]
        return Pairs(self.i[keep], self.j[keep], self.similar[keep], weight)

    @property
    def weights(self) -> Array:
        """Weights of the pairs, shape (m,)."""
        if self.weight is None:
            return np.ones(len(self.i))
        return self.weight

    @property
    def sign(self) -> Array:
        """+1.0 for similar pairs and -1.0 for dissimilar pairs."""
        return np.where(self.similar, 1.0, -1.0)


class LabelPairs(NamedTuple):
    """All pairs implied by labels, which are never listed (see `scatter.pair_scatters`).

    Attributes
    ----------
    labels : ndarray of shape (n,)
        Class codes 0, 1, ...; rows with -1 are in no pair.
    weighting : {"pairs", "class"}
        Whether every pair or every class has the same weight.
    """

    labels: Ints
    weighting: str = "pairs"


def generator(seed: Seed) -> np.random.Generator:
    """Return a numpy Generator made from an int, a Generator, a RandomState or None."""
    if isinstance(seed, np.random.RandomState):
        return np.random.default_rng(seed.randint(0, 2**31 - 1))
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError):
        kinds = "an integer >= 0, a RandomState, a Generator or None"
        raise ValueError(f"random_state must be {kinds}; got {seed!r}") from None


def require_both(similar: int, dissimilar: int) -> None:
    """Raise a ValueError unless there is at least one similar and one dissimilar pair; the arguments are their numbers.

    Raises
    ------
    ValueError
        There is no pair of one kind, which the message names.
    """
    for n, kind in ((similar, "similar"), (dissimilar, "dissimilar")):
        if n == 0:
            raise ValueError(f"pairs must hold at least one {kind} pair (of weight above 0); there is none")


def with_similar(pairs: Pairs) -> Pairs:
    """Return the pairs; raise a ValueError if none of them is similar."""
    require_both(int(pairs.similar.sum()), 1)
    return pairs


def pairs_from_labels(labels: Ints, n_pairs: int | None, seed: Seed, most: int = MAX_DEFAULT_PAIRS) -> Pairs:
    """Draw distinct pairs uniformly from all same-class pairs and from all different-class pairs.

    Parameters
    ----------
    labels : ndarray of shape (n,)
        Class codes; rows with -1 are in no pair.
    n_pairs : int or None
        Number of pairs of each kind. If None, 20 c^2 for c classes, at most `most`. If fewer exist, all of them are
        used.
    seed : int, Generator, RandomState or None
        Seed of the random number generator.
    most : int
        Most pairs of each kind if `n_pairs` is None.

    Returns
    -------
    Pairs
        Pairs, with the similar ones first.
    """
    require_classes(labels)
    rng = generator(seed)
    rows = np.argsort(labels, kind="stable")[(labels < 0).sum() :]
    sizes = class_sizes(labels)
    if n_pairs is None:
        n_pairs = min(PAIRS_PER_SQUARED_CLASS * len(sizes) ** 2, most)
    n_same = int((sizes * (sizes - 1) // 2).sum())
    n_different = int(count_different(sizes).sum())
    i, j = unrank_same(sample(n_same, n_pairs, rng), sizes)
    k, l = unrank_different(sample(n_different, n_pairs, rng), sizes)
    similar = np.repeat([True, False], [len(i), len(k)])
    return Pairs(rows[np.r_[i, k]], rows[np.r_[j, l]], similar, from_labels=True)


def quadruplets_from_labels(labels: Ints, n_quadruplets: int | None, seed: Seed) -> Ints:
    """Draw quadruplets (a, b, c, d) of rows, with a and b of the same class, and c and d of different classes.

    Both pairs come from `pairs_from_labels` and are combined at random. If there are fewer pairs of one kind, they are
    used repeatedly.
    """
    rng = generator(seed)
    pairs = pairs_from_labels(labels, n_quadruplets, rng)
    near = pairs.part(similar=True)
    far = pairs.part(similar=False)
    ab = rng.permutation(np.stack([near.i, near.j], axis=1))
    cd = rng.permutation(np.stack([far.i, far.j], axis=1))
    m = max(len(ab), len(cd))
    return np.concatenate([np.resize(ab, (m, 2)), np.resize(cd, (m, 2))], axis=1)


def written_out(pairs: Pairs | LabelPairs) -> Pairs:
    """Return the pairs as a list; if labels imply them, list all n (n - 1) / 2 of them."""
    if isinstance(pairs, Pairs):
        return pairs
    return pairs_from_labels(pairs.labels, len(pairs.labels) ** 2, 0)


def sample(total: int, n: int, rng: np.random.Generator) -> Ints:
    """Draw min(n, total) distinct numbers below `total`, in increasing order.

    All numbers are listed only if many of them are requested.
    """
    if n >= total:
        return np.arange(total)
    if 5 * n > total:
        return np.sort(rng.permutation(total)[:n])
    drawn = distinct(rng.integers(total, size=n))
    while len(drawn) < n:
        drawn = distinct(np.r_[drawn, rng.integers(total, size=n - len(drawn))])
    return drawn


def distinct(numbers: Ints) -> Ints:
    """Return the distinct values of numbers >= 0 in increasing order, like `np.unique` in a third of its time."""
    rising = np.sort(numbers)
    return rising[np.diff(rising, prepend=-1) > 0]


def count_different(sizes: Ints) -> Ints:
    """Return for each class the number of pairs of its rows with those of all later classes."""
    return sizes * (sizes.sum() - np.cumsum(sizes))


def unrank_same(k: Ints, sizes: Ints) -> tuple[Ints, Ints]:
    """Return the k-th same-class pair (positions in class-sorted order, i < j)."""
    per_class = sizes * (sizes - 1) // 2
    # the class of pair k, and the number of the pair within it
    c = np.searchsorted(np.cumsum(per_class), k, side="right")
    k = k - (np.cumsum(per_class) - per_class)[c]
    # position k of the strict lower triangle: row j holds j entries
    j = ((1 + np.sqrt(1 + 8.0 * k)) // 2).astype(np.intp)
    # the square root may be rounded to the wrong side of an integer
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
    later = sizes.sum() - end  # rows of later classes, each of which forms a pair with every row of class c
    return end - sizes[c] + k // later, end + k % later


def chunklets_from_labels(labels: Ints, n_chunklets: int, size: int, seed: Seed) -> Ints:
    """Draw at most `n_chunklets` disjoint chunklets, each of `size` rows of one class; any class may be drawn.

    Returns
    -------
    ndarray of shape (n,)
        Chunklet number of each row, -1 for rows in none.
    """
    rng = generator(seed)
    # rows in random order within their classes, so that consecutive rows of a class form random chunklets
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")][(labels < 0).sum() :]
    sizes = class_sizes(labels)
    place = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # 0, 1, ... within each class
    whole = place < np.repeat(sizes // size * size, sizes)  # False for the rest of a class, too few for a chunklet
    number = np.cumsum(whole & (place % size == 0)) - 1
    keep = rng.permutation(number.max(initial=-1) + 1)[:n_chunklets]
    renumber = np.full(number.max(initial=-1) + 1, -1)
    renumber[keep] = np.arange(len(keep))
    chunklets = np.full(len(labels), -1)
    chunklets[order[whole]] = renumber[number[whole]]
    return chunklets


def groups(pairs: Pairs, n: int) -> Ints:
    """Return the group number (n,) of each row, where similar pairs connect the rows of a group."""
    must = pairs.part(similar=True)
    links = coo_array((np.ones(len(must.i)), (must.i, must.j)), shape=(n, n))
    return connected_components(links, directed=False)[1]


def degrees_of_freedom(pairs: Pairs | LabelPairs, n: int) -> int:
    """Return the number of independent differences of similar pairs: the n rows less the groups that they connect."""
    if isinstance(pairs, LabelPairs):
        known = pairs.labels[pairs.labels >= 0]
        return len(known) - len(np.unique(known))
    counted = pairs.weights > 0
    kept = Pairs(pairs.i[counted], pairs.j[counted], pairs.similar[counted])
    return n - 1 - int(groups(kept, n).max())


def close(pairs: Pairs, n: int, linked: bool = True) -> tuple[Ints, Bools]:
    """Return the transitive closure of the must-links as chunklets, and which chunklets are separated by cannot-links.

    Returns
    -------
    chunklets : ndarray of shape (n,)
        Chunklet of each row; -1 for rows in no pair.
    apart : ndarray of shape (c, c)
        Symmetric matrix that is True where a cannot-link separates two chunklets; (0, 0) unless `linked`.

    Raises
    ------
    ValueError
        A cannot-link joins two rows of the same chunklet.
    """
    cannot = pairs.part(similar=False)
    group = groups(pairs, n)
    torn = group[cannot.i] == group[cannot.j]
    if torn.any():
        clash = np.stack([cannot.i[torn], cannot.j[torn]], axis=1)[:5].tolist()
        raise ValueError(f"pair_labels must not contradict; chains of similar pairs join the dissimilar pairs {clash}")
    chunklets = np.full(n, -1)
    used = np.unique(np.r_[pairs.i, pairs.j])
    chunklets[used] = np.unique(group[used], return_inverse=True)[1]
    if not linked:
        return chunklets, np.zeros((0, 0), dtype=bool)
    apart = np.zeros((chunklets.max() + 1,) * 2, dtype=bool)
    apart[chunklets[cannot.i], chunklets[cannot.j]] = True
    return chunklets, apart | apart.T


def check_indices(indices: AnyArray | None, width: int, n: int, name: str) -> Ints:
    """Return the user's tuples of row numbers as an (m, width) integer array, after validation.

    The numbers must refer to n rows, and no tuple may name a row twice, except that the two pairs of a quadruplet
    (width 4) may share a row.

    Raises
    ------
    ValueError
        The tuples are invalid; the message names the argument, its value and what was expected.
    """
    needs = f"{name} must be an integer array of shape (m, {width}), m >= 1"
    indices = table(indices, needs, None)
    if indices.ndim != 2 or indices.shape[1] != width or len(indices) == 0:
        if indices.ndim == 3:
            points = f"; pass the points as X, and their row numbers as {name}"
        else:
            points = ""
        raise ValueError(f"{needs}; got shape {indices.shape}{points}")
    if not np.issubdtype(indices.dtype, np.integer):
        raise ValueError(f"{name} must hold integer row numbers; got dtype {indices.dtype}")
    out = (indices < 0) | (indices >= n)
    if out.any():
        raise ValueError(f"{name} must hold row numbers 0..{n - 1}; got {indices[out][:5].tolist()}")
    size = 2 if width == 4 else width  # a quadruplet is two pairs, which may share a row
    ordered = np.sort(indices.reshape(len(indices), -1, size), axis=2)
    twice = (ordered[..., 1:] == ordered[..., :-1]).any(axis=(1, 2))
    if twice.any():
        k = int(twice.argmax())
        detail = f"{name}[{k}] joins a row with itself: {indices[k].tolist()}"
        raise ValueError(f"{name} must join different rows; {detail}")
    return indices.astype(np.intp)


def present(indices: Any, rows: AnyArray, n: int, name: str, *beside: AnyArray | None) -> list[Any]:
    """Translate tuples of the user's row numbers into positions in `rows`, without the tuples of other rows.

    Returns the positions, (m', width), and the entries of each of `beside`, (m,) or None, for the tuples that are
    kept. Warns if there are as many tuples as rows, because a grid search then takes them for one per row and splits
    them like X.
    """
    rows = np.asarray(rows)
    indices = np.asarray(indices)
    if rows.shape != (n,) or len(np.unique(rows)) < n:
        raise ValueError(f"rows must be {n} different numbers, one per row of X; got shape {rows.shape}")
    if indices.ndim != 2:
        raise ValueError(f"{name} must be an integer array of two dimensions; got shape {indices.shape}")
    if len(indices) == n:
        cause = f"scikit-learn splits {name} by its folds as if there were one per row"
        warn(f"there are as many {name} as rows, {n}: {cause}; repeat one of them, and the list is not split")
    order = np.argsort(rows)
    # position of each number in the sorted rows, and whether it is there
    at = np.minimum(np.searchsorted(rows, indices, sorter=order), n - 1)
    kept = (rows[order][at] == indices).all(axis=1)
    if not kept.any():
        raise ValueError(f"{name} must join two of the rows in rows=; none of {len(indices)} does")
    entries: list[Any] = []
    for values in beside:
        if values is None:
            entries.append(None)
        else:
            entries.append(one_each(values, len(kept), name)[kept])
    return [order[at[kept]], *entries]


def one_each(values: AnyArray, m: int, name: str) -> AnyArray:
    """Return the values as an array; raise a ValueError unless there is one for each of m constraints."""
    values = np.asarray(values)
    if values.shape != (m,):
        raise ValueError(f"labels and weights of {name} must have shape ({m},); got {values.shape}")
    return values


def check_pairs(
    pairs: AnyArray | None,
    pair_labels: AnyArray | None,
    pair_weights: AnyArray | None,
    n: int,
    conflicts: str | None = None,
) -> Pairs:
    """Validate the user's pairs and return them in their order with i < j; merge repeated pairs, adding their weights.

    A warning reports merged pairs. Pairs of weight 0 are left out, so that they have no effect on methods that only
    count pairs.

    Parameters
    ----------
    pairs : array-like of shape (m, 2)
        Pairs of row numbers.
    pair_labels : array-like of shape (m,) or None
        +1 for similar pairs and -1 for dissimilar pairs. If None, all pairs are similar.
    pair_weights : array-like of shape (m,) or None
        Weights, at least 0. If None, all weights are 1.
    n : int
        Number of rows of X.
    conflicts : {"raise", "keep", "drop"} or None
        See `without_conflicts`. If None, "raise".

    Raises
    ------
    ValueError
        Indices or labels are invalid, or a pair has both labels (the message lists the first five).
    """
    ij = np.sort(check_indices(pairs, 2, n, "pairs"), axis=1)
    similar = check_pair_labels(pair_labels, len(ij))
    if pair_weights is None:
        weight = None
    else:
        weight = check_weights(pair_weights, len(ij), "pair_weights")
    kept = without_conflicts(ij, similar, conflicts or "raise")
    ij = ij[kept]
    similar = similar[kept]
    if weight is not None:
        weight = weight[kept]
    # each unordered pair and its label, coded as 2 (i n + j) + label, keep the place where they first occur
    _, first, which = np.unique(2 * (ij[:, 0] * n + ij[:, 1]) + similar, return_index=True, return_inverse=True)
    keep = np.sort(first)
    if len(keep) < len(ij):
        added = ""
        if weight is not None:
            added = ", and their weights added"
        warn(f"{len(ij) - len(keep)} of {len(ij)} pairs repeat others; they were merged{added}")
    if weight is None:
        return Pairs(ij[keep, 0], ij[keep, 1], similar[keep])
    weight = np.bincount(which, weight)[which[keep]]
    keep = keep[weight > 0]
    weight = weight[weight > 0]
    return Pairs(ij[keep, 0], ij[keep, 1], similar[keep], weight)


def pairs_of_points(numbers: Ints, pair_labels: AnyArray | None, conflicts: str | None = None) -> Pairs:
    """Return pairs of points as they were given, with i < j.

    Parameters
    ----------
    numbers : ndarray of shape (m, 2)
        Number of each point in a table of the distinct points.
    pair_labels : array-like of shape (m,) or None
        +1 for similar pairs and -1 for dissimilar pairs. If None, all pairs are similar.
    conflicts : {"raise", "keep", "drop"} or None
        See `without_conflicts`. If None, "keep": different items can have equal points.
    """
    similar = check_pair_labels(pair_labels, len(numbers))
    ij = np.sort(numbers, axis=1)
    kept = without_conflicts(ij, similar, conflicts or "keep")
    return Pairs(ij[kept, 0], ij[kept, 1], similar[kept])


def without_conflicts(ij: Ints, similar: Bools, conflicts: str) -> Bools:
    """Return which pairs (m, 2), i < j, to use, where some may be both similar and dissimilar.

    Parameters
    ----------
    conflicts : {"raise", "keep", "drop"}
        Whether to raise a ValueError for pairs with both labels, to use all of them, or none of them (with a warning).
    """
    one_of(("raise", "keep", "drop"), conflicts=conflicts)
    whole = np.ones(len(ij), dtype=bool)
    if conflicts == "keep":
        return whole
    which = np.unique(ij, axis=0, return_inverse=True)[1].ravel()
    both = (np.bincount(which, similar) > 0) & (np.bincount(which, ~similar) > 0)
    torn = both[which]
    if not torn.any():
        return whole
    if conflicts == "raise":
        listed = np.unique(ij[torn], axis=0)[:5].tolist()
        first = np.flatnonzero(which == which[torn.argmax()])
        similar_one, dissimilar_one = first[similar[first]][0], first[~similar[first]][0]
        where = f"pairs[{similar_one}] is similar and pairs[{dissimilar_one}] is not"
        detail = f"got both +1 and -1 for the pairs {listed}: {where}"
        hint = 'if annotators disagree, pass conflicts="keep" or "drop"'
        raise ValueError(f"pair_labels must give each pair one label; {detail}; {hint}")
    if torn.all():
        raise ValueError('conflicts="drop" must leave some pairs; all of them have both labels')
    warn(f"{np.count_nonzero(torn)} of {len(ij)} pairs have both labels; they were left out")
    return ~torn


def check_pair_labels(pair_labels: AnyArray | None, m: int) -> Bools:
    """Return labels +1 as True and -1 as False; if they are None, all pairs are similar."""
    if pair_labels is None:
        return np.ones(m, dtype=bool)
    s = np.asarray(pair_labels)
    if s.shape != (m,):
        raise ValueError(f"pair_labels must have one entry per pair, shape ({m},); got shape {s.shape}")
    if not np.isin(s, (-1, 1)).all():
        if np.isin(s, (0, 1)).all():
            hint = "; convert 1 and 0, or True and False, with 2 * same - 1"
        else:
            hint = ""
        got = np.unique(s)[:5].tolist()
        raise ValueError(f"pair_labels must be +1 (similar) or -1 (dissimilar); got {got}{hint}")
    return s == 1


def check_weights(weights: AnyArray, m: int, name: str) -> Array:
    """Return the weights; raise a ValueError unless they are finite, at least 0, one per constraint and not all 0."""
    w = np.asarray(weights)
    if not np.issubdtype(w.dtype, np.number):
        raise ValueError(f"{name} must be {m} finite numbers >= 0, not all 0; got dtype {w.dtype}")
    w = w.astype(np.float64)
    if w.shape != (m,) or not np.isfinite(w).all() or (w < 0).any() or not w.any():
        raise ValueError(
            f"{name} must be {m} finite numbers >= 0, not all 0; got shape {w.shape}, {w.ravel()[:5].tolist()}"
        )
    return w


def check_chunklets(
    chunklets: AnyArray, negative_links: AnyArray | None, n: int, partly: bool = False, linked: bool = True
) -> tuple[Ints, Bools]:
    """Return chunklet numbers as codes 0, 1, ... (-1 for rows in no chunklet), and which chunklets differ in class.

    Parameters
    ----------
    chunklets : array-like of shape (n,)
        Chunklet number of each row, or -1.
    negative_links : array-like of shape (m, 2) or None
        Pairs of numbers of chunklets of different classes. If None, any two chunklets are of different classes.
    n : int
        Number of rows of X.
    partly : bool
        Whether links may name chunklets that have no row here; such links are left out.
    linked : bool
        Return the matrix (c, c) of the chunklets that differ in class; otherwise, it is (0, 0).
    """
    needs = f"chunklets must be {n} integers, one per row of X, with -1 for rows in no chunklet"
    c = table(chunklets, needs, None)
    numbers = c.shape == (n,) and c.dtype.kind in "iuf"
    if not numbers or not np.isfinite(c).all() or (c != np.floor(c)).any():
        called = c.shape == (n,) and (c.dtype.kind not in "iuf" or bool(np.isnan(c).any()))
        if called:
            hint = "; pandas.factorize(c)[0] turns names into numbers, and missing names into -1"
        else:
            hint = ""
        raise ValueError(f"{needs}; got shape {c.shape}, dtype {c.dtype}{hint}")
    names, codes = encode(np.where(c < 0, -1, c), unlabeled=-1)
    if len(names) == 0:
        raise ValueError("chunklets must hold at least one chunklet number >= 0; every entry is negative")
    size = len(names) if linked else 0
    if negative_links is None:
        # without links, all chunklets differ in class
        return codes, ~np.eye(size, dtype=bool)
    links = np.asarray(negative_links)
    if links.ndim != 2 or links.shape[1] != 2 or (links[:, 0] == links[:, 1]).any():
        raise ValueError(f"negative_links must be rows of two different chunklet numbers; got {links[:5].tolist()}")
    known = np.isin(links, names).all(axis=1)
    if not known.all() and not (partly and known.any()):
        raise ValueError(f"negative_links must be numbers of two chunklets of X; got {links[~known][:5].tolist()}")
    apart = np.zeros((size, size), dtype=bool)
    if linked:
        # codes of chunklets by first appearance; a binary search needs them sorted
        order = np.argsort(names)
        i, j = order[np.searchsorted(names, links[known], sorter=order)].T
        apart[i, j] = apart[j, i] = True
    return codes, apart
