"""Whitening within classes that emphasizes the directions between classes, in closed form.

With rows x of classes c, their mean mu and the scatter S_w within classes (over n - c):

    C = (1 - a) S_w + a tr(S_w)/d I,   W' W = C^-1                  within-class covariance normalization, shrunk
    U, psi: directions and variances of the class means in the whitened space, W (mu_c - mean of all mu_c)
    L = (I + U (diag(w)^(1/2) - I) U') W,   w_k = g (1 + psi_k)^t / exp(t mean_k log(1 + psi_k)),   t = -1/2

so that the span of the class means has g times the weight of all other directions. These are kept, because classes
outside of the training rows differ in them, too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from . import psd, scatter
from .checks import class_sizes
from .class_sums import ClassMoments
from .constraints import generator
from .types import AnyArray, Array, Ints, Seed

POWER = -0.5  # t: directions in which the class means are far apart already are emphasized a little less
PER_CLASS = 0.1  # the rule for g is 1 + c / 10
MAX_GAIN = 12.0  # largest g: no larger value was ever better
CANDIDATES = (1.0, 1.5, 2.0, 3.0, 5.0, 8.0, MAX_GAIN)  # among which "cv" chooses g
CLASS_FOLDS = 3  # of classes
MAX_SCORED_ROWS = 1500  # most rows of a fold that are scored, because their similarities are a square matrix
NEGLIGIBLE = 1e-4  # share of the largest psi below which a direction does not separate classes
WITHIN_SCATTER_ROUNDING = 1e-24  # share of the total scatter that rounding leaves within classes whose rows are equal


class Whitening(NamedTuple):
    """Map x -> components (x - mean).

    Attributes
    ----------
    mean : ndarray of shape (d,)
        Mean of the rows.
    components : ndarray of shape (d, d)
        Linear map L.
    ratios : ndarray of shape (k,)
        Ratios psi of between-class to within-class variance along the k emphasized directions, in decreasing order.
    emphasis : float
        Weight g.
    """

    mean: Array
    components: Array
    ratios: Array
    emphasis: float


def discriminant_whitening(
    X: Array, labels: Ints, *, shrinkage: float = 0.5, emphasis: float | str = "auto", seed: Seed = 0
) -> Whitening:
    """Fit the whitening to rows.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows in float64, not centered.
    labels : ndarray of shape (n,)
        Class codes 0..c-1. Rows of unknown class have -1 and affect only the mean.
    shrinkage : float
        Share a of the scaled identity, in (0, 1].
    emphasis : float or str
        Weight g. "auto" is 1 + c / 10, at most 12. "cv" selects the best of seven candidates by MAP@R on held-out
        classes.
    seed : int, Generator, RandomState or None
        Seed of the random number generator that draws the folds of classes of "cv".

    Returns
    -------
    Whitening
        Whitening, which is finite even for one class, for classes of one row and for equal rows.
    """
    mean = X.mean(axis=0)
    Z = X - mean
    unit = scatter.unit(Z)  # squares of very large or small rows would leave the range of floats
    Z, labels = scatter.known(Z / unit, labels)
    labels = np.unique(labels, return_inverse=True)[1]
    if emphasis == "cv":
        emphasis = chosen_emphasis(Z, labels, shrinkage, seed)
    elif isinstance(emphasis, str):
        emphasis = rule_of_thumb(labels)
    root, U, psi = whitened_means(Z, labels, shrinkage)
    # L = (I + U (diag(w)^(1/2) - I) U') W
    stretch = np.sqrt(weights(psi, emphasis)) - 1
    components = root + (U * stretch) @ (U.T @ root)
    return Whitening(mean=mean, components=components / unit, ratios=psi, emphasis=float(emphasis))


def whitening_from_sums(
    sums: ClassMoments, rows: ClassMoments, *, shrinkage: float, emphasis: float | str
) -> Whitening:
    """Return `discriminant_whitening` from the sums over classes and over all rows; does not support "cv"."""
    mean = rows.center
    d = len(mean)
    n = sums.n
    means = sums.mean - mean  # (c, d)
    within = sums.within
    freedom = max(n - len(means), 1.0)
    variance = float(np.trace(within)) / freedom / d
    # mean variance of a feature around the mean of all rows: within classes and between them
    whole = float(np.trace(within) + np.sum(sums.count[:, None] * means**2)) / n / d
    if isinstance(emphasis, str):
        g = emphasis_by_rule(len(means))
    else:
        g = emphasis
    if variance <= WITHIN_SCATTER_ROUNDING * whole or variance == 0:
        # rows of a class do not differ: there is nothing to whiten, and directions keep their proportions
        root = np.eye(d) / np.sqrt(whole or 1.0)
    else:
        basis = None
        C = within
        if d > n:
            basis = sums.span()  # (r, d)
            # within the span of the sums, (r, r); outside of it, the shrunk covariance is a multiple of I
            C = basis @ within @ basis.T
        root = shrunk_root((1 - shrinkage) * psd.symmetrize(C) / freedom, shrinkage * variance, basis)
    U, psi = mean_directions(means, root)
    # (I + U (diag(w)^(1/2) - I) U') W
    stretch = np.sqrt(weights(psi, g)) - 1
    return Whitening(mean=mean, components=root + (U * stretch) @ (U.T @ root), ratios=psi, emphasis=float(g))


def unit_rows(X: AnyArray) -> AnyArray:
    """Return the rows scaled to unit length; rows of zeros are left unchanged."""
    largest = np.abs(X).max(axis=1, keepdims=True)
    scaled = X / np.where(largest > 0, largest, 1)  # so that squares stay in the range of floats
    length = np.linalg.norm(scaled, axis=1, keepdims=True)
    return np.asarray(scaled / np.where(length > 0, length, 1))


def rule_of_thumb(labels: Ints) -> float:
    """Return g = 1 + c / 10 for c classes, at most `MAX_GAIN`."""
    return emphasis_by_rule(len(class_sizes(labels)))


def emphasis_by_rule(classes: int) -> float:
    """Return g = 1 + c / 10, at most `MAX_GAIN`."""
    return min(1 + PER_CLASS * classes, MAX_GAIN)


def weights(psi: Array, g: float) -> Array:
    """Return the weights w (k,), whose geometric mean is g."""
    if not len(psi):
        return psi
    # w_k = g (1 + psi_k)^t / exp(t mean_k log(1 + psi_k))
    logs = np.log1p(psi)
    return g * np.exp(POWER * (logs - logs.mean()))


def whitened_means(Z: Array, labels: Ints, shrinkage: float) -> tuple[Array, Array, Array]:
    """Return W (d, d), and the directions U (d, k) and variances psi (k,) of the class means that W whitens."""
    means = Z[:0]
    if len(labels):
        means = scatter.class_means(Z, labels)
    root = within_root(Z, labels, means, shrinkage)
    return root, *mean_directions(means, root)


def mean_directions(means: Array, root: Array) -> tuple[Array, Array]:
    """Return the directions U (d, k) and variances psi (k,) of class means (c, d) that are whitened by `root`."""
    spread = means  # (c, d)
    if len(means):
        spread = (means - means.mean(axis=0)) @ root.T
    U, s, _ = np.linalg.svd(spread.T / np.sqrt(max(len(means), 1)), full_matrices=False)
    psi = s**2
    kept = psi > NEGLIGIBLE * psi.max(initial=0.0)
    return U[:, kept], psi[kept]


def within_root(Z: Array, labels: Ints, means: Array, shrinkage: float) -> Array:
    """Return W (d, d) with W' W = C^-1, computed in the span of the rows if there are more columns than rows."""
    n, d = Z.shape
    freedom = max(n - len(means), 1)
    variance = float(np.sum((Z - means[labels]) ** 2)) / freedom / d
    total = float(np.sum(Z**2)) / max(n, 1) / d
    if variance <= WITHIN_SCATTER_ROUNDING * total or variance == 0:
        # rows are equal within their classes, or alone: only the size of the rows is known
        return np.eye(d) / np.sqrt(total or 1.0)
    floor = shrinkage * variance
    basis = None
    if d > n:
        basis = scatter.data_span(Z)  # (r, d)
        Z = Z @ basis.T
        means = means @ basis.T
    return shrunk_root((1 - shrinkage) * scatter.deviations(Z, labels, means) / freedom, floor, basis)


def shrunk_root(C: Array, floor: float, basis: Array | None) -> Array:
    """Return W (d, d) with W' W = (C + floor I)^-1, for C in the coordinates of a basis (r, d) and 0 outside of it."""
    C = C.copy()
    C.flat[:: len(C) + 1] += floor
    factor = cholesky(C, lower=True, check_finite=False)
    # with C + floor I = F F', W = F^-1
    root = solve_triangular(factor, np.eye(len(C)), lower=True, check_finite=False)
    if basis is None:
        return np.asarray(root)
    # outside of the span C is floor I: W = I / sqrt(floor) + B' (root - I / sqrt(floor)) B
    outside = 1 / np.sqrt(floor)
    root.flat[:: len(root) + 1] -= outside
    whole = basis.T @ root @ basis
    whole.flat[:: len(whole) + 1] += outside
    return np.asarray(whole)


def chosen_emphasis(Z: Array, labels: Ints, shrinkage: float, seed: Seed = 0) -> float:
    """Return the candidate for g with the best mean MAP@R on the held-out classes of three folds.

    If there are too few classes for folds of two, return the rule of thumb.
    """
    several = np.flatnonzero(class_sizes(labels) > 1)
    if len(several) < 2 * CLASS_FOLDS:
        return rule_of_thumb(labels)
    rng = generator(seed)
    order = rng.permutation(several)
    scores = np.zeros(len(CANDIDATES))
    for fold in range(CLASS_FOLDS):
        out = np.isin(labels, order[fold::CLASS_FOLDS])
        held = np.flatnonzero(out)
        if len(held) > MAX_SCORED_ROWS:
            held = np.sort(rng.choice(held, MAX_SCORED_ROWS, replace=False))
        scores += left_out_scores(Z[~out], labels[~out], Z[held], labels[held], shrinkage)
    return CANDIDATES[int(np.argmax(scores))]


def left_out_scores(Z: Array, labels: Ints, others: Array, other_labels: Ints, shrinkage: float) -> Array:
    """Return the MAP@R by cosine of rows of other classes for every candidate, from one product of their rows."""
    mean = Z.mean(axis=0)
    codes = np.unique(labels, return_inverse=True)[1]
    root, U, psi = whitened_means(Z - mean, codes, shrinkage)
    T = (others - mean) @ root.T
    G = T @ T.T  # (m, m)
    along = T @ U  # (m, k); with the weights w, G becomes G + along diag(w - 1) along'
    scores = []
    for g in CANDIDATES:
        emphasized = G + (along * (weights(psi, g) - 1)) @ along.T
        scores.append(mean_precision_at_r(emphasized, other_labels))
    return np.array(scores)


def mean_precision_at_r(G: Array, labels: Ints) -> float:
    """Return MAP@R by cosine from the inner products (m, m) of rows; rows alone in their class do not count."""
    length = np.sqrt(np.maximum(np.diag(G), np.finfo(float).tiny))
    S = G / length / length[:, None]
    np.fill_diagonal(S, -np.inf)
    _, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    mates = sizes[codes] - 1  # R of each row
    if mates.max(initial=0) == 0:
        return 0.0
    k = int(mates.max())
    nearest = np.argpartition(-S, k - 1, axis=1)[:, :k]
    order = np.argsort(-np.take_along_axis(S, nearest, axis=1), axis=1, kind="stable")
    nearest = np.take_along_axis(nearest, order, axis=1)
    hit = (labels[nearest] == labels[:, None]) & (np.arange(k) < mates[:, None])
    precision = np.cumsum(hit, axis=1) / np.arange(1, k + 1)  # (m, k), precision at 1, ..., k
    counted = mates > 0
    return float(np.mean(np.sum(precision * hit, axis=1)[counted] / mates[counted]))
