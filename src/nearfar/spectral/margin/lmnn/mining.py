"""Triplets (anchor, same class, other class) chosen by distance (Poorheravi et al., 2020), in blocks of rows.

The positives of an anchor are rows of its class, the negatives rows of other classes. batch_hard: the k furthest
positives and the k nearest negatives. batch_semi_hard: the k nearest positives, each with the first k negatives that
are at least as far away. extreme_hpen, extreme_epen, extreme_ephn: hard or easy (the k furthest or nearest) positives
with easy or hard (the k furthest or nearest) negatives. negative_sampling: the k nearest positives, each with k
negatives drawn with the weights min(c, 1 / q(d)), where q is the density of the distance d on the unit sphere.
"""

from __future__ import annotations

import numpy as np

from ....numerics.checks import class_sizes
from ....numerics.constraints import generator
from ....numerics.pair_differences import squared_distances
from ....numerics.types import Array, Ints, Seed
from ..impostors import IMPOSTOR_BLOCK_CELLS, smallest

# strategy -> whether the furthest positives, and whether the furthest negatives, are taken
PRODUCTS = {
    "batch_hard": (True, False),
    "extreme_hpen": (True, True),
    "extreme_epen": (False, True),
    "extreme_ephn": (False, False),
}
STRATEGIES = (*PRODUCTS, "batch_semi_hard", "negative_sampling")

CAP = 1.4  # c, the largest weight of a drawn negative


def mine(X: Array, labels: Ints, strategy: str, k: int = 3, *, seed: Seed = None) -> Ints:
    """Return triplets of rows, shape (m, 3), in order of increasing anchor.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    labels : ndarray of shape (n,)
        Class codes, all known.
    strategy : str
        One of `STRATEGIES`. "negative_sampling" uses the rows scaled to unit length.
    k : int
        Number of positives of each anchor, and of negatives of each of these pairs; fewer if there are not enough
        rows.
    seed : int, Generator, RandomState or None
        Seed of the random number generator of "negative_sampling".
    """
    largest = int(class_sizes(labels).max())
    k = max(1, min(k, largest - 1, len(X) - largest))
    if strategy == "negative_sampling":
        X = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-300)
    rng = generator(seed)
    step = max(1, IMPOSTOR_BLOCK_CELLS // len(X))
    blocks = [block(X, labels, slice(a, a + step), strategy, k, rng) for a in range(0, len(X), step)]
    return np.concatenate(blocks)


def block(X: Array, labels: Ints, rows: slice, strategy: str, k: int, rng: np.random.Generator) -> Ints:
    """Return the triplets of some anchors."""
    D = squared_distances(X[rows], X)
    same = labels[rows, None] == labels
    anchors = np.arange(len(X))[rows]
    furthest, far_negatives = PRODUCTS.get(strategy, (False, False))
    own = same.copy()  # (b, n), True for the other rows of the anchor's class
    own[np.arange(len(D)), anchors] = False
    positive_keys = -D if furthest else D
    positives = smallest(np.where(own, positive_keys, np.inf), k)  # (b, k)
    mated = np.take_along_axis(own, positives, axis=1)  # False where the class has fewer than k other rows
    negative_keys = -D if far_negatives else D
    N = np.where(same, np.inf, negative_keys)
    if strategy == "batch_semi_hard":
        negatives = not_nearer(N, np.take_along_axis(D, positives, 1), k)
    elif strategy == "negative_sampling":
        draw = rejection_draws if X.shape[1] > 2 else gumbel_draws
        negatives = draw(D, labels[rows], labels, X.shape[1], k, rng)
    else:
        negatives = np.repeat(smallest(N, k)[:, None], k, axis=1)
    a, p, n = np.broadcast_arrays(anchors[:, None, None], positives[:, :, None], negatives)
    triplets = np.stack([a, p, n], axis=-1)[mated].reshape(-1, 3)
    return triplets[triplets[:, 2] >= 0]


def not_nearer(N: Array, bound: Array, k: int) -> Ints:
    """Return the columns of the first k finite values that are not below each of the bounds (b, k).

    If there are fewer, the remaining places hold -1.
    """
    found = []
    for limit in bound.T:
        D = np.where(np.less(N, limit[:, None]), np.inf, N)
        at = smallest(D, k)
        found.append(np.where(np.isfinite(np.take_along_axis(D, at, 1)), at, -1))
    return np.stack(found, axis=1)


def rejection_draws(D: Array, own: Ints, labels: Ints, d: int, k: int, rng: np.random.Generator) -> Ints:
    """Draw k times k different columns of other classes for every row of D, one after another by weight; (b, k, k).

    A column is proposed at random, kept with probability weight / c, and drawn again if the same draw already holds
    it. In three or more dimensions, weights are between 1/2 and c, so few tries and few distances are needed.
    """
    order = np.argsort(labels, kind="stable")
    size = np.bincount(labels)
    start = np.cumsum(size) - size
    row = np.repeat(np.arange(len(D)), k)
    found = np.full((len(row), k), -1)
    for place in range(k):
        left = np.arange(len(row))
        while len(left):
            i = row[left]
            c = own[row[left]]
            # a position among the rows of other classes, sorted by class; then the column of that row
            other = rng.integers(len(labels) - size[c])
            column = order[other + np.where(other >= start[c], size[c], 0)]
            kept = CAP * rng.random(len(left)) < np.exp(log_weights(D[i, column], d))
            kept &= (found[left] != column[:, None]).all(axis=1)
            found[left[kept], place] = column[kept]
            left = left[~kept]
    return found.reshape(len(D), k, k)


def gumbel_draws(D: Array, own: Ints, labels: Ints, d: int, k: int, rng: np.random.Generator) -> Ints:
    """Draw from the same distribution by k tables of random numbers, which works even if some weights are almost 0."""
    w = np.where(own[:, None] == labels, -np.inf, log_weights(D, d))
    return np.stack([smallest(-w - rng.gumbel(size=w.shape), k) for _ in range(k)], axis=1)


def log_weights(D: Array, d: int) -> Array:
    """Return log min(c, 1 / q), q = r^(d-2) (1 - r^2/4)^((d-3)/2), from squared distances r^2 of unit rows."""
    tiny = 1e-300
    log_q = (d - 2) / 2 * np.log(np.maximum(D, tiny)) + (d - 3) / 2 * np.log(np.maximum(1 - D / 4, tiny))
    return np.minimum(-log_q, np.log(CAP))
