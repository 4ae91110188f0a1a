"""Items with doubtful labels, near pairs of different classes, and hard negatives, to clean labels and for training.

Every item is judged by models that were fitted to the other folds, so they have never seen its label. Each model is a
shrunk within-class whitening (`nearfar.DiscriminantWhitening`) of the rows, which are scaled to unit length first if
they are compared by cosine. It gives two scores of an item x:

    L_c = -|x - mu_c|^2 / 2              nearness to the mean of class c
    V_c = share of the votes of its k nearest rows, weighted by exp((cos - cos of the nearest) / T)
    s_c = t L_c + log(V_c + e)           averaged over several draws of the folds

The doubt of an item with label y is max_{c != y} s_c - s_y. If it is above 0, another class is more likely.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np

from ..labels import check_lengths, class_numbers, named_classes
from ..neighbors.near_pairs import NearPairs
from ..neighbors.nearest import nearest
from ..numerics import scatter
from ..numerics.distances import as_rows, check_distance, distance_blocks, unit_rows
from ..numerics.types import Array, Bools, Ints
from ..numerics.whitening import discriminant_whitening
from .groups import Members, kinds_of
from .rerank import row_blocks, smallest

SHRINKAGE = 0.3  # shrinkage of the covariance within classes
EMPHASIS = 3.0  # factor of the span of the class means
NEIGHBORS = 25  # k
VOTE_TEMPERATURE = 0.05  # T; so small that photos of the same scene outvote all others
MEAN_WEIGHT = 0.015  # t; small, because whitened distances in a thousand dimensions are large
LEAST_VOTE = 0.1  # e; large, because a class without any vote is only weak evidence


class Suspects(NamedTuple):
    """How doubtful each label is, according to models that were not trained on it.

    Attributes
    ----------
    doubt : ndarray of float64, shape (n,)
        Above 0 if another class is more likely than the given one; minus infinity if the class has a single item, or
        items of a single group, which cannot be judged.
    suggested : ndarray of int, shape (n,)
        The most likely class other than the given one, as an index into `classes`.
    classes : list
        The labels that occur, sorted if they can be compared, else in order of appearance.
    """

    doubt: Array
    suggested: Ints
    classes: list[Any]

    def ranked(self) -> Ints:
        """Return the numbers of the items whose given class is not the most likely one, most doubtful first."""
        order = np.argsort(-self.doubt, kind="stable")
        return np.asarray(order[self.doubt[order] > 0])


def suspects(
    embeddings: Any,
    labels: Any,
    *,
    groups: Any = None,
    distance: str = "cosine",
    folds: int = 5,
    repeats: int = 3,
    seed: int = 0,
) -> Suspects:
    """Find items whose label is probably wrong.

    Parameters
    ----------
    embeddings : array-like of shape (n, d)
        Features of a network that was not trained on these labels, such as a frozen pretrained one.
    labels : array-like of shape (n,)
        The given classes, of any hashable type.
    groups : array-like of shape (n,), optional
        Object, camera or video of each item. Items of one class and one group, which would vouch for each other, are
        judged by models of the others only.
    distance : {"cosine", "euclidean", "sqeuclidean"}
        Distance by which embeddings are compared. With cosine, their lengths do not matter.
    folds : int
        Number of parts into which the items of each class are divided; each part is judged by models of the others.
    repeats : int
        Number of times that folds are drawn; the judgments are averaged.
    seed : int
        Seed of the generator that draws the folds.

    Returns
    -------
    Suspects
        The doubt about each label.

    Raises
    ------
    ValueError
        If rows, labels or groups are not valid, there are fewer than two classes, no class has two items (or items of
        two groups), or a setting is out of range.

    Notes
    -----
    The settings of the models were chosen on photos of groceries with the features of one network;
    docs/results_search.md reports how well it finds labels that were corrupted there. Memory: a few arrays of
    n x classes.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> labels = np.arange(60) % 3
    >>> rows = 4 * np.eye(3)[labels] + rng.normal(size=(60, 3))
    >>> labels[7] = 2  # it was 1
    >>> found = suspects(rows, labels)
    >>> int(found.ranked()[0]), int(found.suggested[7])
    (7, 1)
    """
    _check_whole("folds", folds, 2)
    _check_whole("repeats", repeats, 1)
    rows = _compared(embeddings, distance)
    (numbers,) = class_numbers(labels)
    check_lengths(len(rows), numbers)
    kinds = kinds_of(numbers, numbers, groups, None, leave_one_out=True)
    block = np.arange(len(rows)) if kinds is None else kinds[0]  # items that are judged together
    class_of_block = numbers[np.unique(block, return_index=True)[1]]
    sizes = np.bincount(class_of_block)
    if len(sizes) < 2:
        raise ValueError("labels: expected at least 2 classes, got 1")
    if sizes.max() < 2:
        what = "item" if groups is None else "group"
        raise ValueError(f"labels: expected a class with at least 2 {what}s, got one {what} in every class")
    nearness = np.zeros((len(rows), len(sizes)))
    votes = np.zeros_like(nearness)
    rng = np.random.default_rng(seed)
    for _ in range(repeats):
        # items of a group are judged together: a near copy in the training folds would confirm a wrong label
        parts = stratified_folds(class_of_block, folds, rng)[block]
        for part in range(folds):
            judged_rows = np.flatnonzero(parts == part)
            if len(judged_rows):
                found = judge(rows, numbers, parts != part, judged_rows)
                nearness[judged_rows] += found[0] / repeats
                votes[judged_rows] += found[1] / repeats
    # s_c = t L_c + log(V_c + e), (n, C)
    scores = MEAN_WEIGHT * nearness + np.log(votes + LEAST_VOTE)
    at = np.arange(len(rows))
    given = scores[at, numbers]
    # the best of the other classes
    scores[at, numbers] = -np.inf
    suggested = scores.argmax(axis=1)
    doubt = scores[at, suggested] - given
    # no other item of the class speaks for its label, so its absence speaks against none
    doubt[sizes[numbers] < 2] = -np.inf
    return Suspects(doubt=doubt, suggested=suggested, classes=named_classes(labels)[0])


def stratified_folds(labels: Ints, folds: int, rng: np.random.Generator) -> Ints:
    """Assign a fold to every item, so that the items of each class are spread over the folds as evenly as possible.

    Parameters
    ----------
    labels : ndarray of int, shape (n,)
        Class of each item.
    folds : int
        Number of folds.
    rng : Generator
        Generator that draws the items of each fold, and the fold at which each class starts.
    """
    order = np.lexsort((rng.random(len(labels)), labels))
    sizes = np.bincount(labels)
    begins = np.cumsum(sizes) - sizes
    place = np.arange(len(labels)) - begins[labels[order]]
    found = np.empty(len(labels), dtype=np.intp)
    # items of a class in turn, from a random first fold, so that small classes do not all fill the same one
    found[order] = (place + rng.integers(folds, size=len(sizes))[labels[order]]) % folds
    return found


def judge(rows: Array, labels: Ints, known: Bools, judged_rows: Ints) -> tuple[Array, Array]:
    """Return L and V of some items, both (b, c), by a model of the `known` rows.

    A class without such rows has the smallest L and no votes.
    """
    codes, known_labels = np.unique(labels[known], return_inverse=True)
    model = discriminant_whitening(rows[known], known_labels, shrinkage=SHRINKAGE, emphasis=1.0)
    left = (rows[judged_rows] - model.mean) @ model.components.T
    right = (rows[known] - model.mean) @ model.components.T
    means = scatter.class_means(right, known_labels)
    squares = np.einsum("ij,ij->i", left, left)[:, None] + np.einsum("ij,ij->i", means, means)
    # -|x - mu|^2 / 2 of each judged row and class mean, (b, c), in the whitened space
    near = -(squares - 2.0 * left @ means.T) / 2.0
    classes = int(labels.max()) + 1
    # classes that the fold does not know get the smallest L of the row: no candidate, and no -inf
    nearness = np.repeat(near.min(axis=1)[:, None], classes, axis=1)
    nearness[:, codes] = near
    votes = np.zeros((len(judged_rows), classes))
    votes[:, codes] = neighbor_votes(
        emphasize_class_means(left, means), emphasize_class_means(right, means), known_labels
    )
    return nearness, votes


def emphasize_class_means(rows: Array, means: Array) -> Array:
    """Center rows at the mean of the class means, and scale the span of the class means by EMPHASIS."""
    center = means.mean(axis=0)
    spread = means - center
    U, sizes, _ = np.linalg.svd(spread.T, full_matrices=False)
    U = U[:, sizes > 1e-9 * sizes.max(initial=0.0)]
    centered = rows - center
    return np.asarray(centered + (EMPHASIS - 1.0) * (centered @ U) @ U.T)


def neighbor_votes(queries: Array, gallery: Array, labels: Ints) -> Array:
    """Return the (b, c) shares of the votes of the nearest gallery rows."""
    k = min(NEIGHBORS, len(gallery))
    distances, indices = nearest(queries, gallery, k, distance="cosine")
    weights = np.exp((distances[:, :1] - distances) / VOTE_TEMPERATURE)
    weights /= weights.sum(axis=1, keepdims=True)
    votes = np.zeros((len(queries), int(labels.max()) + 1))
    np.add.at(votes, (np.arange(len(queries))[:, None], labels[indices]), weights)
    return votes


def pairs_across(embeddings: Any, labels: Any, k: int = 20, *, distance: str = "cosine") -> NearPairs:
    """Find pairs of nearly identical items that have different classes.

    Parameters
    ----------
    embeddings : array-like of shape (n, d)
        Embeddings, as arrays or tensors.
    labels : array-like of shape (n,)
        Class of each embedding, of any hashable type.
    k : int
        Maximum number of pairs to return, the closest of all.
    distance : {"cosine", "euclidean", "sqeuclidean"}
        Distance by which embeddings are compared.

    Returns
    -------
    NearPairs
        ``i`` and ``j`` (p,) with i < j, and ``distances`` (p,), closest first; p is at most k.

    Raises
    ------
    ValueError
        If rows or labels are not valid, there is a single class, or k is below 1.

    Examples
    --------
    >>> pairs_across([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]], ["a", "b", "b"], k=1)[:2]
    (array([0]), array([1]))
    """
    _check_whole("k", k, 1)
    rows = as_rows(embeddings, "embeddings")
    (numbers,) = class_numbers(labels)
    check_lengths(len(rows), numbers)
    if numbers.max() == 0:
        raise ValueError("labels: expected at least 2 classes, got 1, which has no pair of two classes")
    members = Members(numbers, numbers)
    distances, other = nearest(
        rows, rows, 1, distance=distance, hidden=lambda judged_rows: members.of_rows(numbers, judged_rows)
    )
    item = np.arange(len(rows))
    # each pair is found from both of its items, and counts once
    i = np.minimum(item, other[:, 0])
    j = np.maximum(item, other[:, 0])
    first = np.unique(i * len(rows) + j, return_index=True)[1]
    order = first[np.lexsort((j[first], i[first], distances[first, 0]))][:k]
    return NearPairs(i[order], j[order], distances[order, 0])


class HardNegatives(NamedTuple):
    """The nearest items of other classes, nearest first.

    Attributes
    ----------
    indices : ndarray of int, shape (n, k)
        Row numbers; -1 if fewer are left.
    similarities : ndarray of float64, shape (n, k)
        Cosines, or distances times -1 if items are not compared by cosine; minus infinity if fewer are left.
    """

    indices: Ints
    similarities: Array


def hard_negatives(
    embeddings: Any,
    labels: Any,
    *,
    k: int = 5,
    margin: float = 0.95,
    suspect: Any = None,
    groups: Any = None,
    distance: str = "cosine",
) -> HardNegatives:
    """Find hard negatives: the nearest items of other classes, except those that are probably positives.

    A negative that is as close as the nearest item of the same class is often of that class, with a wrong label.

    Parameters
    ----------
    embeddings : array-like of shape (n, d)
        Embeddings.
    labels : array-like of shape (n,)
        Class of each embedding, of any hashable type.
    k : int
        Number of negatives of each item.
    margin : float
        Maximum cosine of a negative, as a fraction in [0, 1] of the cosine to the nearest item of the same class. With
        1, only items that are closer than that one are left out; with 0.95, also those that are nearly as close. For
        items that are alone in their class, none are left out. Without cosine, the minimum distance of a negative is
        the distance to the nearest item of the same class, divided by the margin.
    suspect : array-like of bool, shape (n,), optional
        Items that are not used as negatives, such as ``suspects(...).doubt > 0``.
    groups : array-like of shape (n,), optional
        Object, camera or video of each item. The nearest item of the same class is then one of another group, because
        another photo of the same object is nearer than all negatives.
    distance : {"cosine", "euclidean", "sqeuclidean"}
        Distance by which embeddings are compared.

    Returns
    -------
    HardNegatives
        The negatives of each item.

    Raises
    ------
    ValueError
        If rows, labels or settings are not valid.

    References
    ----------
    Moreira et al., "NV-Retriever: Improving text embedding models with effective hard-negative mining",
    arXiv:2407.15831, 2024 ("TopK-PercPos", with a margin of 0.95).

    Examples
    --------
    >>> rows = [[1.0, 0.0], [0.9, 0.1], [0.9, 0.11], [0.7, 0.7]]
    >>> hard_negatives(rows, ["a", "a", "b", "b"], k=1).indices.ravel().tolist()
    [3, 3, -1, 0]
    """
    _check_whole("k", k, 1)
    if not isinstance(margin, Real) or not 0 <= margin <= 1:
        raise ValueError(f"margin: expected a number in 0..1, got {margin!r:.40}")
    rows = _compared(embeddings, distance)
    (numbers,) = class_numbers(labels)
    check_lengths(len(rows), numbers)
    kinds = kinds_of(numbers, numbers, groups, None, leave_one_out=True)
    kind = np.arange(len(rows)) if kinds is None else kinds[0]  # of one class and group; without groups, of one item
    n = len(rows)
    left_out = np.zeros(n, dtype=bool) if suspect is None else np.asarray(suspect, dtype=bool)
    if left_out.shape != (n,):
        raise ValueError(f"suspect: expected {n} values, one per row, got shape {left_out.shape}")
    width = min(k, n)
    found = HardNegatives(np.full((n, k), -1, dtype=np.intp), np.full((n, k), -np.inf))
    members = Members(numbers, numbers)
    for part in row_blocks(np.arange(n), 48 * n):
        likeness = _similarities(rows, part, distance)  # (b, n)
        at, item = members.of(numbers[part])
        own = np.full(len(part), np.inf)
        # members of the class, but not of the same group, where another photo of the object would be too near
        mate = kind[item] != kind[part[at]]
        nearest_mate = np.full(len(part), -np.inf)
        np.maximum.at(nearest_mate, at[mate], likeness[at[mate], item[mate]])
        several = np.isfinite(nearest_mate)
        # an item without a mate has no limit: its own class cannot say what is too near
        own[several] = _limit(nearest_mate[several], margin, distance)
        # as near as the own class: probably a positive under a wrong label
        likeness[likeness > own[:, None]] = -np.inf
        likeness[at, item] = -np.inf
        likeness[:, left_out] = -np.inf
        order = smallest(-likeness, width)
        values = np.take_along_axis(likeness, order, axis=1)
        found.indices[part, :width] = np.where(np.isfinite(values), order, -1)
        found.similarities[part, :width] = values
    return found


def _compared(embeddings: Any, distance: str) -> Array:
    """Return rows in float64, of unit length if they are compared by cosine."""
    rows = as_rows(embeddings, "embeddings")
    if check_distance(distance) == "cosine":
        return unit_rows(rows)
    return rows.astype(np.float64, copy=False)


def _similarities(rows: Array, part: Ints, distance: str) -> Array:
    """Return the cosines of rows from `_compared` to all rows, or their distances times -1, (b, n)."""
    if distance == "cosine":
        return rows[part] @ rows.T
    _, distances = next(distance_blocks(rows[part], rows, distance, len(part)))
    return -distances


def _limit(nearest_mate: Array, margin: float, distance: str) -> Array:
    """Return the highest similarity of a negative, from that of the nearest item of the same class."""
    if distance == "cosine":
        return margin * nearest_mate
    with np.errstate(divide="ignore", invalid="ignore"):  # without a margin, no negative is far enough
        return np.where(nearest_mate == 0, 0.0, nearest_mate / margin)


def _check_whole(name: str, value: int, least: int) -> None:
    if not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name}: expected an integer of at least {least}, got {value!r:.40}")
