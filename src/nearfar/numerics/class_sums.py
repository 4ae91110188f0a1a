"""The sums over rows that closed forms need: count, mean and scatter of each class, which can be added over parts.

For the rows x of a class with weights w, and z = x - mu:

    n = sum w,   mu = sum w x / n,   S = sum w z z',   t = sum w |z|^2 z,   q = sum w |z|^4

Sums about other means follow without the rows, with a = mu_old - mu_new (Chan, Golub & LeVeque, 1983):

    S + n a a',   t + tr(S) a + 2 S a + n |a|^2 a,   q + 4 a't + 4 a'S a + 2 tr(S) |a|^2 + n |a|^4

so that the parts of a table, in any order, give the same sums as the whole table, up to rounding. All sums are about
means, because raw second moments would lose the digits of features that are far from 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from . import device_arrays, psd, scatter
from .scatter import PairScatters
from .types import AnyArray, Array, Ints

BLOCK_VALUES = 1 << 22  # values of sparse rows that are made dense at a time
DEVICE_ROWS = 1 << 12  # rows of a block on a device
CANCELLATION = 1e-4  # share of raw second moments below which scatters are computed about the mean, from dense rows


@dataclass(frozen=True)
class ClassMoments:
    """Sums over the rows of each class.

    Attributes
    ----------
    count : ndarray of shape (c,)
        Number n of rows, or the sum of their weights.
    mean : ndarray of shape (c, d)
        Mean of each class.
    scatter : ndarray of shape (c, d, d), or (1, d, d)
        Scatter S of each class, or only the sum of the scatters, which takes less memory.
    cube : ndarray of shape (c, d) or None
        Sums t. None if only the sum of the scatters is kept.
    fourth : ndarray of shape (c,) or None
        Sums q. None if only the sum of the scatters is kept.
    """

    count: Array
    mean: Array
    scatter: Array
    cube: Array | None = None
    fourth: Array | None = None

    @property
    def per_class(self) -> bool:
        """Whether the scatter of each class is known."""
        return self.fourth is not None

    @property
    def n(self) -> float:
        """Number of rows of all classes together."""
        return float(self.count.sum())

    @property
    def within(self) -> Array:
        """Within-class scatter (d, d)."""
        return np.asarray(self.scatter.sum(axis=0))

    @property
    def center(self) -> Array:
        """Mean of all rows (d,)."""
        return np.asarray(self.count @ self.mean) / self.n

    @property
    def between(self) -> Array:
        """Between-class scatter sum_c n_c (mu_c - mu)(mu_c - mu)', shape (d, d)."""
        M = self.mean - self.center
        return (M * self.count[:, None]).T @ M

    @property
    def total(self) -> Array:
        """Scatter (d, d) of all rows about their mean."""
        return psd.symmetrize(self.within + self.between)

    @property
    def known(self) -> ClassMoments:
        """Sums over only those classes that have rows."""
        there = self.count > 0
        if there.all():
            return self
        return self.chosen(there)

    def chosen(self, classes: AnyArray) -> ClassMoments:
        """Return the sums over some of the classes.

        If only the sum of the scatters is known, the other classes must have no scatter.
        """
        if not self.per_class:
            return replace(self, count=self.count[classes], mean=self.mean[classes])
        assert self.cube is not None
        assert self.fourth is not None
        return ClassMoments(
            self.count[classes], self.mean[classes], self.scatter[classes], self.cube[classes], self.fourth[classes]
        )

    def together(self) -> ClassMoments:
        """Return the sums over all rows as one class."""
        return ClassMoments(np.array([self.n]), self.center[None], self.total[None])

    def weighted(self, weight: Array) -> Array:
        """Return sum_c weight_c S_c (d, d), which requires the scatter of each class."""
        return np.einsum("c,cij->ij", weight, self.scatter)

    def projected(self, V: Array) -> ClassMoments:
        """Return the sums in the coordinates V x of orthonormal rows V (r, d) that span all differences of rows."""
        # mu -> V mu, S -> V S V', t -> V t; n and q stay
        cube = self.cube
        if cube is not None:
            cube = cube @ V.T
        return replace(self, mean=self.mean @ V.T, scatter=V @ self.scatter @ V.T, cube=cube)

    def divided(self, units: Array) -> ClassMoments:
        """Return the sums of rows whose columns are divided by units (d,), without the third and fourth moments."""
        count = self.scatter.shape[0]
        lost = None if self.fourth is None else np.full(count, np.nan)
        return replace(
            self, mean=self.mean / units, scatter=self.scatter / units / units[:, None], cube=None, fourth=lost
        )

    def about(self, centers: Array) -> tuple[Array, Array]:
        """Return the scatters (c, d, d) and fourth moments (c,) about other centers (c, d)."""
        moved = shifted(self, self.mean - centers)
        assert moved.fourth is not None
        return moved.scatter, moved.fourth

    def span(self) -> Array:
        """Return orthonormal rows (r, d), with fixed signs, that span the differences between all rows."""
        w, V = psd.spectrum(self.total)
        return V[:, : psd.rank(w)].T


def class_sums(
    X: Any, codes: Ints, weight: Array | None = None, *, classes: int, per_class: bool = True
) -> ClassMoments:
    """Return the sums over rows X (n, d), dense, CSR or on a device; rows of code -1 are left out.

    Parameters
    ----------
    X : ndarray, CSR, tensor or array of the array API standard, shape (n, d)
        Rows. Those on a device are summed there, in blocks; only the sums are moved.
    codes : ndarray of shape (n,)
        Class codes 0..classes-1, or -1.
    weight : ndarray of shape (n,), optional
        Weights, at least 0. By default, all weights are 1.
    classes : int
        Number of classes.
    per_class : bool
        Keep the scatter of each class, and not only their sum.
    """
    if weight is None:
        weight = np.ones(len(codes))
    weight = np.asarray(weight, dtype=np.float64)
    keep = (codes >= 0) & (weight > 0)
    on_device = device_arrays.is_device_array(X)
    if not keep.all():
        rows = np.flatnonzero(keep)
        X = device_arrays.rows_at(X, rows) if on_device else X[rows]
        codes = codes[keep]
        weight = weight[keep]
    if len(codes) == 0:
        return no_rows(classes, X.shape[1], per_class)
    if issparse(X):
        return of_sparse(X, codes, weight, classes, per_class)
    if on_device:
        return of_device(X, codes, weight, classes, per_class)
    return of_dense(X, codes, weight, classes, per_class)


def column_sums(T: Array, codes: Ints, weight: Array | None = None, *, classes: int) -> ClassMoments:
    """Return the sums over matrices T (n, d, q): column k of class c is class c q + k of the result.

    Parameters
    ----------
    T : ndarray of shape (n, d, q)
        Matrices.
    codes, weight
        As for `class_sums`, for each matrix.
    classes : int
        Number of classes.
    """
    n, d, q = T.shape
    rows = T.transpose(0, 2, 1).reshape(n * q, d)
    columns = np.where(codes[:, None] < 0, -1, codes[:, None] * q + np.arange(q)).ravel()
    if weight is not None:
        weight = np.repeat(weight, q)
    return class_sums(rows, columns, weight, classes=classes * q)


def no_rows(classes: int, d: int, per_class: bool) -> ClassMoments:
    """Return the sums over no rows, for this number of classes."""
    count = np.zeros(classes)
    mean = np.zeros((classes, d))
    if not per_class:
        return ClassMoments(count, mean, np.zeros((1, d, d)))
    return ClassMoments(count, mean, np.zeros((classes, d, d)), mean.copy(), count.copy())


def of_dense(X: AnyArray, codes: Ints, weight: Array, classes: int, per_class: bool) -> ClassMoments:
    """Return `class_sums` of an array, from deviations from class means."""
    d = X.shape[1]
    shift = np.asarray(X.mean(axis=0, dtype=np.float64))
    R = np.asarray(X, dtype=np.float64) - shift
    count = summed(codes, weight, classes)
    # (c, n): a product with it takes the weighted sum over each class
    members = csr_array((weight, (codes, np.arange(len(R)))), shape=(classes, len(R)))
    mean = np.asarray(members @ R) / positive(count)[:, None]
    R -= mean[codes]
    placed = np.where(count[:, None] > 0, mean + shift, 0.0)
    if not per_class:
        S = (R * weight[:, None]).T @ R
        return ClassMoments(count, placed, psd.symmetrize(S)[None])
    square = np.einsum("nd,nd->n", R, R)
    cube = np.asarray(members @ (R * square[:, None]))
    fourth = summed(codes, weight * square**2, classes)
    S = np.zeros((classes, d, d))
    for c, rows in enumerate(class_rows(codes, classes)):
        Z = R[rows]
        S[c] = psd.symmetrize((Z * weight[rows, None]).T @ Z)
    return ClassMoments(count, placed, S, cube, fourth)


def of_sparse(X: Any, codes: Ints, weight: Array, classes: int, per_class: bool) -> ClassMoments:
    """Return `class_sums` of CSR rows, from raw second moments if these are accurate enough, else from dense rows."""
    X = csr_array(X, dtype=np.float64)
    n, d = X.shape
    count = summed(codes, weight, classes)
    members = csr_array((weight, (codes, np.arange(n))), shape=(classes, n))
    mean = (members @ X).toarray() / positive(count)[:, None]
    if per_class:
        parts = class_rows(codes, classes)
        own_classes = [np.array([c]) for c in range(classes)]
    else:
        parts = [np.arange(n)]
        own_classes = [np.arange(classes)]
    S = np.zeros((len(parts), d, d))
    for k, (rows, own) in enumerate(zip(parts, own_classes, strict=True)):
        part = X[rows]
        # S = sum w x x' - n mu mu'
        raw = (part.T @ part.multiply(weight[rows, None]).tocsr()).toarray()
        S[k] = psd.symmetrize(raw - (mean[own] * count[own, None]).T @ mean[own])
        if (np.diag(S[k]) < CANCELLATION * np.diag(raw)).any():
            return of_blocks(X, codes, weight, classes, per_class)
    if not per_class:
        return ClassMoments(count, mean, S)
    # |x - mu|^2 = |x|^2 - 2 x'mu + |mu|^2
    along = along_means(X, mean, codes)
    square = np.asarray(X.multiply(X).sum(axis=1)).ravel() - 2 * along + np.sum(mean**2, axis=1)[codes]
    squares = summed(codes, weight * square, classes)
    cubes = csr_array((weight * square, (codes, np.arange(n))), shape=(classes, n))
    cube = (cubes @ X).toarray() - squares[:, None] * mean
    fourth = summed(codes, weight * square**2, classes)
    return ClassMoments(count, mean, S, cube, fourth)


def of_blocks(X: Any, codes: Ints, weight: Array, classes: int, per_class: bool) -> ClassMoments:
    """Return `class_sums` of CSR rows, made dense one block at a time."""
    step = max(1, BLOCK_VALUES // max(X.shape[1], 1))
    found = None
    for a in range(0, len(codes), step):
        rows = slice(a, a + step)
        part = of_dense(X[rows].toarray(), codes[rows], weight[rows], classes, per_class)
        if found is None:
            found = part
        else:
            found = added(found, part)
    assert found is not None
    return found


def of_device(X: Any, codes: Ints, weight: Array, classes: int, per_class: bool) -> ClassMoments:
    """Return `class_sums` of rows on a device, from deviations from class means, in blocks of rows."""
    xp = device_arrays.namespace_of(X)
    dtype = device_arrays.widest(X)
    d = X.shape[1]
    count = summed(codes, weight, classes)
    shift = xp.mean(device_arrays.in_type(X[: min(DEVICE_ROWS, X.shape[0]), :], dtype), axis=0)

    def block(rows: Ints) -> tuple[Ints, Any, Any, Any]:
        """Return the classes of some rows (k,), who is of which (k, b), weights (b, 1), and the rows (b, d)."""
        own, lines = np.unique(codes[rows], return_inverse=True)
        A = device_arrays.on_device_of(X, (np.arange(len(own))[:, None] == lines).astype(np.float32))
        w = device_arrays.on_device_of(X, weight[rows, None].astype(np.float32 if dtype == xp.float32 else np.float64))
        R = device_arrays.in_type(device_arrays.rows_at(X, rows), dtype) - shift
        return own, device_arrays.in_type(A, dtype), w, R

    blocks = device_blocks(codes, classes, per_class)
    mean = np.zeros((classes, d))
    for rows in blocks:
        own, A, w, R = block(rows)
        mean[own] += device_arrays.to_host(A @ (R * w))
    mean /= positive(count)[:, None]
    S = np.zeros((classes if per_class else 1, d, d))
    cube = np.zeros((classes, d))
    fourth = np.zeros(classes)
    scatter_here = xp.zeros((d, d), dtype=dtype, device=X.device)
    for rows in blocks:
        own, A, w, R = block(rows)
        R = R - A.T @ device_arrays.on_device_of(X, mean[own], dtype)
        found = (R * w).T @ R
        if not per_class:
            scatter_here = scatter_here + found
            continue
        S[own[0]] += device_arrays.to_host(found)
        square = xp.sum(R * R, axis=1)[:, None]
        cube[own] += device_arrays.to_host(A @ (R * square * w))
        fourth[own] += device_arrays.to_host(A @ (square * square * w))[:, 0]
    placed = np.where(count[:, None] > 0, mean + device_arrays.to_host(shift), 0.0)
    if not per_class:
        S[0] = device_arrays.to_host(scatter_here)
    S = (S + S.transpose(0, 2, 1)) / 2
    if not per_class:
        return ClassMoments(count, placed, S)
    return ClassMoments(count, placed, S, cube, fourth)


def device_blocks(codes: Ints, classes: int, per_class: bool) -> list[Ints]:
    """Return the numbers of the rows of each block: sorted by class, and of one class if `per_class`."""
    if per_class:
        parts = [rows for rows in class_rows(codes, classes) if len(rows)]
    else:
        parts = [np.argsort(codes, kind="stable")]
    return [rows[a : a + DEVICE_ROWS] for rows in parts for a in range(0, len(rows), DEVICE_ROWS)]


def class_rows(codes: Ints, classes: int) -> list[Ints]:
    """Return the numbers of the rows of each class."""
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.cumsum(np.bincount(codes, minlength=classes))[:-1])


def summed(codes: Ints, values: Array, classes: int) -> Array:
    """Return the sum of the values (n,) of each class (c,)."""
    return np.asarray(np.bincount(codes, values, minlength=classes), dtype=np.float64)


def along_means(X: Any, mean: Array, codes: Ints) -> Array:
    """Return x'mu of each sparse row (n,), where mu is the mean of its class."""
    found = np.zeros(X.shape[0])
    for c, rows in enumerate(class_rows(codes, len(mean))):
        found[rows] = X[rows] @ mean[c]
    return found


def positive(count: Array) -> Array:
    """Return the counts with 0 replaced by 1, for use as divisors."""
    return np.where(count > 0, count, 1.0)


def shifted(sums: ClassMoments, a: Array) -> ClassMoments:
    """Return sums whose scatters (of each class) are taken about the means less a (c, d)."""
    n = sums.count
    if sums.cube is None or sums.fourth is None:
        S = sums.scatter + ((a * n[:, None]).T @ a)[None]
        return replace(sums, mean=sums.mean - a, scatter=S)
    S = sums.scatter
    trace = np.trace(S, axis1=1, axis2=2)
    Sa = np.einsum("cij,cj->ci", S, a)
    # t + tr(S) a + 2 S a + n |a|^2 a, and q + 4 a't + 4 a'S a + 2 tr(S) |a|^2 + n |a|^4
    square = np.sum(a**2, axis=1)
    cube = sums.cube + trace[:, None] * a + 2 * Sa + (n * square)[:, None] * a
    fourth = sums.fourth + 4 * np.sum(a * sums.cube, axis=1) + 4 * np.sum(a * Sa, axis=1)
    fourth = fourth + 2 * trace * square + n * square**2
    return ClassMoments(n, sums.mean - a, S + n[:, None, None] * a[:, :, None] * a[:, None, :], cube, fourth)


def added(A: ClassMoments, B: ClassMoments) -> ClassMoments:
    """Return the sums over the rows of both, class by class; both must have the same classes."""
    if A.per_class != B.per_class or A.mean.shape != B.mean.shape:
        raise ValueError("sums of different classes, features or settings cannot be added")
    n = A.count + B.count
    mean = A.mean + (B.count / positive(n))[:, None] * (B.mean - A.mean)
    A = shifted(A, A.mean - mean)
    B = shifted(B, B.mean - mean)
    if A.cube is None or A.fourth is None or B.cube is None or B.fourth is None:
        return ClassMoments(n, mean, A.scatter + B.scatter)
    return ClassMoments(n, mean, A.scatter + B.scatter, A.cube + B.cube, A.fourth + B.fourth)


def placed(sums: ClassMoments, places: Ints, classes: int) -> ClassMoments:
    """Return the sums with class k at places[k] of `classes` classes; the other classes are empty."""
    d = sums.mean.shape[1]
    count = np.zeros(classes)
    count[places] = sums.count
    mean = np.zeros((classes, d))
    mean[places] = sums.mean
    if sums.cube is None or sums.fourth is None:
        return ClassMoments(count, mean, sums.scatter)
    S = np.zeros((classes, d, d))
    S[places] = sums.scatter
    cube = np.zeros((classes, d))
    cube[places] = sums.cube
    fourth = np.zeros(classes)
    fourth[places] = sums.fourth
    return ClassMoments(count, mean, S, cube, fourth)


def pair_scatters(sums: ClassMoments, weighting: str = "pairs") -> PairScatters:
    """Return the scatters of all pairs that the classes imply, as `scatter.pair_scatters` does from the rows.

    Parameters
    ----------
    sums : ClassMoments
        Sums with the scatter of each class.
    weighting : {"pairs", "class"}
        Whether every pair or every class has the same weight.
    """
    return scatter.not_all_equal(label_scatters(sums, weighting))


def label_scatters(sums: ClassMoments, weighting: str = "pairs") -> PairScatters:
    """Return `pair_scatters` without a warning if all similar pairs coincide."""
    n = sums.count
    c = len(n)
    several = n > 1
    if weighting == "pairs":
        # sum_c n_c S_c, and n S_total minus that
        S = sums.weighted(n)
        D = sums.n * sums.total - S
        n_similar = float((n * (n - 1))[several].sum() / 2)
        n_all = sums.n * (sums.n - 1) / 2
        return PairScatters(S, D, n_similar, n_all - n_similar)
    # the n_c (n_c - 1) / 2 pairs of a class have the weight 1 in total, as do the n_b n_c pairs of two classes
    S = sums.weighted(2 * several / np.where(several, n - 1, 1.0))
    M = sums.mean - sums.mean.mean(axis=0)
    D = sums.weighted((c - 1) / n) + c * M.T @ M
    return PairScatters(S, D, float(several.sum()), c * (c - 1) / 2)
