"""A map of the embedding by t-SNE: which items to show, and where. It is an illustration, not a measurement."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..numerics.distances import unit_rows
from ..progress import stage
from .content import Items

LIMIT = 1500  # maximum number of points on the map
TILES = 800  # maximum number of images on the map
MIN_MAP_ITEMS = 5  # there is no map of fewer items
MAP_STEPS = 1000  # steps of gradient descent; scikit-learn's default


def map_items(labels: NDArray[np.int64], limit: int = LIMIT, seed: int = 0) -> NDArray[np.int64]:
    """Choose the items of a map: all items, the same number of every class, or all items of randomly drawn classes.

    Parameters
    ----------
    labels : ndarray of int, shape (n,)
        Class of each item.
    limit : int
        Maximum number of items.
    seed : int
        Seed of the generator that draws classes and items.

    Returns
    -------
    ndarray of int
        The chosen items, ascending.
    """
    n = len(labels)
    if n <= limit:
        return np.arange(n)
    rng = np.random.default_rng(seed)
    _, labels, counts = np.unique(labels, return_inverse=True, return_counts=True)
    most = max(5, limit // len(counts))
    shuffled = rng.permutation(n)
    turn = rng.permutation(len(counts))[labels[shuffled]]
    order = np.argsort(turn, kind="stable")
    starts = np.searchsorted(turn[order], turn[order])
    kept = shuffled[order][np.arange(n) - starts < most]
    return np.sort(kept[:limit])


def map_positions(items: Items, index: NDArray[np.int64], distance: str, seed: int = 0) -> NDArray[np.float64] | None:
    """Lay out items in two dimensions by t-SNE (van der Maaten and Hinton, 2008).

    Returns
    -------
    ndarray, shape (len(index), 2), or None
        Positions in the unit square; None for fewer than five items, or if all coincide.
    """
    from sklearn.manifold import TSNE

    x = np.asarray(items.embeddings[index], dtype=np.float64)
    if len(x) < MIN_MAP_ITEMS or not np.isfinite(x).all() or np.ptp(x, axis=0).max() == 0:
        return None
    x = _principal(unit_rows(x) if distance == "cosine" else x, most=50)
    start = "pca" if x.shape[1] > 1 else "random"
    with stage("laying out the map"):
        tsne = TSNE(perplexity=min(30.0, (len(x) - 1) / 3), init=start, max_iter=MAP_STEPS, random_state=seed)
        flat = tsne.fit_transform(x)
    extent = np.ptp(flat, axis=0)
    return (flat - flat.min(axis=0)) / np.where(extent > 0, extent, 1)


def assign_to_grid(positions: NDArray[np.float64], columns: int, rows: int) -> NDArray[np.int64]:
    """Assign each point of the unit square to its own cell of a grid, with the smallest sum of squared moves.

    Parameters
    ----------
    positions : ndarray, shape (n, 2)
        Points (x, y) in the unit square.
    columns, rows : int
        Size of the grid, at least n cells.

    Returns
    -------
    ndarray of int, shape (n, 2)
        Column and row of every point.
    """
    from scipy.optimize import linear_sum_assignment

    cells = np.stack(np.meshgrid(np.arange(columns), np.arange(rows)), axis=-1).reshape(-1, 2)
    targets = positions * [columns - 1, rows - 1]
    squares = (targets**2).sum(axis=1)[:, None] - 2 * targets @ cells.T + (cells**2).sum(axis=1)
    return cells[linear_sum_assignment(squares)[1]]


def _principal(x: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    if x.shape[1] <= most:
        return x
    centered = x - x.mean(axis=0)
    _, vectors = np.linalg.eigh(centered.T @ centered)
    return centered @ vectors[:, : -most - 1 : -1]
