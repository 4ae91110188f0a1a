"""Scatter matrices by class sums and Laplacians instead of loops over pairs, without any (pairs, d, d) array."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array, csr_array

from ..fit_warnings import warn
from . import checks, psd
from .checks import class_sizes, require_classes
from .constraints import LabelPairs, Pairs, require_both
from .pair_differences import differences
from .types import Array, Bools, Ints

DEVIATION_BLOCK_VALUES = 1 << 20  # numbers in one block of deviations
HIGH = 256  # least pairs in a block: with fewer, summing the (d, d) products would take most of the time
MAX_FEATURES_OF_DIFFERENCES = 40  # features up to which differences of all pairs take less time than a Laplacian
# share of squared lengths below which a Laplacian cannot distinguish squared differences from rounding
LAPLACIAN_CANCELLATION = 1e-8
EQUAL_ROWS_ROUNDING = 1e-24  # squares that rounding leaves between equal rows, relative to those of other rows


class PairScatters(NamedTuple):
    """Weighted sums of (x_i - x_j)(x_i - x_j)' over similar and over dissimilar pairs, and their total weights."""

    similar: Array
    dissimilar: Array
    n_similar: float
    n_dissimilar: float

    def mean(self) -> tuple[Array, Array]:
        """Return both scatters divided by their weights."""
        return self.similar / self.n_similar, self.dissimilar / self.n_dissimilar


def pair_scatters(X: Array, pairs: Pairs | LabelPairs) -> PairScatters:
    """Return the scatters of similar and dissimilar pairs, which are listed or implied by labels.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    pairs : Pairs or LabelPairs
        Pairs of rows.

    Raises
    ------
    ValueError
        There are no pairs of one kind.

    Warns
    -----
    UserWarning
        All similar pairs coincide.
    """
    if isinstance(pairs, LabelPairs):
        found = label_scatters(X, pairs)
    else:
        found = listed_scatters(X, pairs)
    return not_all_equal(found)


def not_all_equal(found: PairScatters) -> PairScatters:
    """Return the scatters; if the similar scatter holds only rounding errors, it is set to 0, with a warning."""
    if np.trace(found.similar) <= EQUAL_ROWS_ROUNDING * np.trace(found.dissimilar):
        found = found._replace(similar=np.zeros_like(found.similar))
        warn("all similar pairs coincide, so their scatter is 0; only dissimilar pairs and regularization count")
    return found


def label_scatters(X: Array, pairs: LabelPairs) -> PairScatters:
    """Return the scatters of all pairs that labels imply."""
    checks.one_of(tuple(SCATTERS), weighting=pairs.weighting)
    require_classes(pairs.labels)
    return SCATTERS[pairs.weighting](*known(X, pairs.labels))


def listed_scatters(X: Array, pairs: Pairs) -> PairScatters:
    """Return the scatters of listed pairs."""
    require_both(int(pairs.similar.sum()), int((~pairs.similar).sum()))
    similar = pairs.part(similar=True)
    dissimilar = pairs.part(similar=False)
    return PairScatters(
        weighted_outer(X, *similar[:2], similar.weight),
        weighted_outer(X, *dissimilar[:2], dissimilar.weight),
        float(similar.weights.sum()),
        float(dissimilar.weights.sum()),
    )


def all_pairs(X: Array, labels: Ints) -> PairScatters:
    """Return the scatters of all pairs with weight 1, in O(n d^2): sum_c n_c S_c, and n S_t minus that."""
    n = class_sizes(labels).astype(float)
    whole = float(n.sum())
    # sum_{i<j in c} (x_i - x_j)(x_i - x_j)' = n_c S_c, the scatter S_c around the mean of class c; (d, d)
    similar = deviations(X, labels, class_means(X, labels), n)
    n_similar = float((n * (n - 1.0))[n > 1].sum() / 2)
    n_all = whole * (whole - 1) / 2
    return PairScatters(similar, whole * total(X) - similar, n_similar, n_all - n_similar)


def class_balanced_pairs(X: Array, labels: Ints) -> PairScatters:
    """Return the scatters of all pairs, weighted so that the pairs of each class, and of each two classes, sum to 1."""
    n = class_sizes(labels).astype(float)
    means = class_means(X, labels)
    several = n > 1
    # n_c S_c over the n_c (n_c - 1) / 2 pairs of a class is 2 S_c / (n_c - 1)
    similar = deviations(X, labels, means, 2 * several / np.where(several, n - 1, 1.0))
    # the mean over the pairs of two classes is S_a / n_a + S_b / n_b + (mu_a - mu_b)(mu_a - mu_b)'; each class is in C
    # - 1 of these, and sum_{a<b} (mu_a - mu_b)(mu_a - mu_b)' = C sum_c (mu_c - mu)(mu_c - mu)'
    others = len(n) - 1
    m = means - means.mean(axis=0)
    dissimilar = deviations(X, labels, means, others / n) + len(n) * m.T @ m
    return PairScatters(similar, dissimilar, float(several.sum()), len(n) * others / 2)


SCATTERS = {"pairs": all_pairs, "class": class_balanced_pairs}


def weighted_outer(X: Array, i: Ints, j: Ints, weight: Array | None = None) -> Array:
    """Return sum_k w_k (x_i[k] - x_j[k])(x_i[k] - x_j[k])'.

    Many pairs of long rows are summed through the Laplacian of their graph, in O(m d + n d^2), and others through
    blocks of differences, in O(m d^2). The latter also applies to rows that are so near to each other, relative to
    their distance from 0, that the Laplacian would leave only rounding errors.
    """
    if len(i) > len(X) and X.shape[1] > MAX_FEATURES_OF_DIFFERENCES:
        Y = laplacian_times(X, i, j, weight)
        # sum_ij w_ij (x_i - x_j)(x_i - x_j)' over the edges = X' (diag(W 1) - W) X; (d, d)
        S = X.T @ Y
        square = np.einsum("nd,nd->n", X, X)
        sums = square[i] + square[j]
        if np.trace(S) > LAPLACIAN_CANCELLATION * float(sums.sum() if weight is None else sums @ weight):
            return (S + S.T) / 2
    S = np.zeros((X.shape[1],) * 2)
    for part, Z in differences(X, i, j, HIGH):
        S += Z.T @ (Z if weight is None else Z * weight[part, None])
    return (S + S.T) / 2


def laplacian_times(X: Array, i: Ints, j: Ints, weight: Array | None = None) -> Array:
    """Return (diag(W 1) - W) X for the graph with edges i-j of the given weights (in both directions)."""
    w = np.ones(len(i)) if weight is None else weight
    n = len(X)
    W = coo_array((np.r_[w, w], (np.r_[i, j], np.r_[j, i])), shape=(n, n)).tocsr()
    return np.asarray(W.sum(axis=1)).reshape(-1, 1) * X - W @ X


def class_means(X: Array, labels: Ints) -> Array:
    """Return the mean of each class 0..c-1, shape (c, d); every row must have a class."""
    n = class_sizes(labels)
    members = csr_array((np.ones(len(X)), (labels, np.arange(len(X)))), shape=(len(n), len(X)))
    return np.asarray(members @ X) / n[:, None]


def known(X: Array, labels: Ints) -> tuple[Array, Ints]:
    """Return the rows that have a class, and their labels; no copy is made if all rows have one."""
    keep = labels >= 0
    if keep.all():
        return X, labels
    return X[keep], labels[keep]


def deviations(X: Array, labels: Ints, means: Array, weight: Array | None = None) -> Array:
    """Return sum_i weight[c_i] (x_i - mean[c_i])(x_i - mean[c_i])', computed in blocks of rows."""
    S = np.zeros((X.shape[1],) * 2)
    step = max(1, DEVIATION_BLOCK_VALUES // max(X.shape[1], 1))
    for a in range(0, len(X), step):
        c = labels[a : a + step]
        C = X[a : a + step] - means[c]
        weighted = C
        if weight is not None:
            weighted = C * weight[c, None]
        S += C.T @ weighted
    return (S + S.T) / 2


def within(X: Array, labels: Ints) -> Array:
    """Return the sum over classes and members of (x - mu_c)(x - mu_c)'; rows with label -1 are left out."""
    X, labels = known(X, labels)
    return deviations(X, labels, class_means(X, labels))


def between(X: Array, labels: Ints) -> Array:
    """Return sum_c n_c (mu_c - mu)(mu_c - mu)'; rows with label -1 are left out."""
    X, labels = known(X, labels)
    M = class_means(X, labels) - X.mean(axis=0)
    return (M * class_sizes(labels)[:, None]).T @ M


def total(X: Array) -> Array:
    """Return the sum over rows of (x - mu)(x - mu)'."""
    return deviations(X, np.zeros(len(X), dtype=np.intp), X.mean(axis=0, keepdims=True))


def unit(X: Array) -> float:
    """Return a power of two near the standard deviation of the features: division by it causes no rounding."""
    largest = float(np.abs(X).max(initial=0.0)) or 1.0
    # in units of the largest entry, so that no square overflows or vanishes
    size = largest * float(np.sqrt(np.mean(np.var(X / largest, axis=0))))
    if size <= 0:
        return 1.0
    return float(2.0 ** np.round(np.log2(size)))


def deviation(X: Array) -> float:
    """Return the root of the mean variance of n rows along the min(n - 1, d) directions in which they differ.

    It is the same in the coordinates of the span of their differences. If no two rows differ, 1 is returned.
    """
    n, d = X.shape
    largest = float(np.abs(X).max(initial=0.0)) or 1.0
    variance = float(np.var(X / largest, axis=0).sum()) / max(1, min(n - 1, d))
    return largest * float(np.sqrt(variance)) or 1.0


def chunklets_apart(X: Array, chunklets: Ints, apart: Bools) -> Array:
    """Return the mean of (mu_l - mu_m)(mu_l - mu_m)' over pairs (l, m) of different chunklets, in both orders.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    chunklets : ndarray of shape (n,)
        Chunklet codes, -1 for rows in no chunklet.
    apart : ndarray of shape (c, c)
        Symmetric matrix that is True where a negative link separates two chunklets.
    """
    means = class_means(*known(X, chunklets))
    links = np.count_nonzero(apart)
    if links == 0:
        raise ValueError("negative_links must separate at least one pair of chunklets; there is none")
    S = np.zeros((X.shape[1],) * 2)
    step = max(1, DEVIATION_BLOCK_VALUES // len(means))
    for a in range(0, len(means), step):
        linked = apart[a : a + step].astype(np.float64)
        M = means[a : a + step]
        # some rows of the Laplacian of the links at a time: a list of all links may not fit into memory
        S += M.T @ (linked.sum(axis=1)[:, None] * M - linked @ means)
    return (S + S.T) / links


def quartic(X: Array, W: Array) -> Array:
    """Return sum_{i<j} (z' W z) z z' over all pairs, z = x_i - x_j, for symmetric W, in O(n d^2)."""
    # n sum_i a_i x_i x_i' + tr(W G) G + 2 G W G,  a_i = x_i'W x_i,  G = X'X, for centered rows
    C = X - X.mean(axis=0)
    G = C.T @ C
    a = np.einsum("nd,nd->n", C @ W, C)
    return len(C) * (C * a[:, None]).T @ C + np.sum(W * G) * G + 2 * G @ W @ G


def data_span(X: Array) -> Array:
    """Return orthonormal rows (r, d) that span the differences of the rows of X, so that projection loses nothing."""
    _, s, Vt = np.linalg.svd(centered_triangle(X), full_matrices=False)
    return psd.fix_signs(Vt[s > max(X.shape) * np.finfo(float).eps * s.max(initial=0.0)].T).T


def with_direction_outside(V: Array) -> Array:
    """Return orthonormal rows V (r, d), r < d, and one direction more, which is orthogonal to them."""
    # the axis that V covers least, without its part in V; one more projection removes what rounding left
    u = np.eye(1, V.shape[1], int(np.argmin(np.einsum("rd,rd->d", V, V))))[0]
    for _ in range(2):
        u -= V.T @ (V @ u)
        u /= np.linalg.norm(u)
    return np.vstack([V, u])


def coordinates(X: Array) -> Array:
    """Return coordinates (r, d), r >= 1, that preserve all differences between rows.

    r is below d if there are few rows or if columns are linearly dependent.
    """
    n, d = X.shape
    if d > n:
        V = data_span(X)
        if len(V) == 0:  # no two rows differ
            return np.eye(1, d)
        return V
    R = centered_triangle(X)
    lengths = np.linalg.norm(R, axis=0)
    # with columns of unit length, a dependent column adds only rounding, in any units
    R = R[:, lengths > 0] / lengths[lengths > 0]
    s = np.linalg.svd(R, compute_uv=False)
    if not s.size or s[-1] > n * psd.EPS * s[0]:
        return np.eye(d)
    return data_span(X)


def widest(L: Array, X: Array, k: int | None) -> Array:
    """Return k rows of a factor of L' L (None: all), for the directions along which X varies most in the metric.

    The last rows may be 0. The longest rows of L are not used, because X may vary little along them.
    """
    if k is None:
        return psd.compress(L)
    return widest_along(L, axes(X @ L.T, k)[1], k)


def widest_along(L: Array, U: Array, k: int) -> Array:
    """Return k rows of a factor of L' L along the directions U (d, p) of images L x, padded with rows of 0."""
    return np.pad(U.T @ L, ((0, k - U.shape[1]), (0, 0)))


def axes(X: Array, k: int) -> tuple[Array, Array]:
    """Return the k largest eigenvalues of ``total(X)`` in decreasing order, and their vectors (d, k) with fixed signs.

    If there are more features than rows, and the rows span k directions, no (d, d) matrix is formed.
    """
    span = np.empty((0, X.shape[1]))
    if X.shape[1] > len(X):
        span = data_span(X)
    if k > len(span):
        w, V = psd.spectrum(total(X))
        return w[:k], V[:, :k]
    w, V = psd.spectrum(total(X @ span.T))
    return w[:k], psd.fix_signs(span.T @ V[:, :k])


def span_or_axes(X: Array, least: int) -> Array:
    """Return `data_span` if there are more features than rows and it has `least` directions, else all axes (d, d)."""
    if X.shape[1] > len(X):
        span = data_span(X)
        if len(span) >= least:
            return span
    return np.eye(X.shape[1])


def centered_triangle(X: Array) -> Array:
    """Return the centered rows C, or for many rows a triangular R with R' R = C' C, computed from blocks of C."""
    n, d = X.shape
    mean = X.mean(axis=0)
    step = 4 * d
    if n <= step:
        return X - mean
    R = np.empty((0, d))
    for a in range(0, n, step):
        # [R; C]'[R; C] = R'R + C'C: the triangle of all blocks so far, whose condition is that of C, not of C'C
        R = np.asarray(np.linalg.qr(np.concatenate([R, X[a : a + step] - mean]), mode="r"))
    return R


def pca(X: Array, count: int | None, at_least: int | None = None) -> Array | None:
    """Return the first `count` principal directions of X as rows (count, d), or None if `count` is None.

    Raises
    ------
    ValueError
        `count` is not in 1..rank, or below `at_least`.
    """
    if count is None:
        return None
    return principal(data_span(X), count, at_least)


def principal(V: Array, count: int, at_least: int | None = None) -> Array:
    """Return the first `count` of the principal directions V (r, d), with fixed signs."""
    if not (at_least or 1) <= count <= len(V):
        raise ValueError(f"pca must be in {at_least or 1}..{len(V)} (n_components to the rank of X); got {count}")
    return psd.fix_signs(V[:count].T).T
