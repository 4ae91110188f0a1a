"""Folds of pairs for cross-validation in which no entity occurs in both training and test pairs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..numerics import checks
from ..numerics.constraints import generator
from ..numerics.types import AnyArray, Ints


class PairKFold:
    """Split pairs into folds so that no entity of a test fold occurs in a training pair.

    With ordinary folds of pairs, a learner sees the same people or items in training and in testing, so the scores
    are too optimistic. Here, the entities themselves are split. A pair is tested in the fold that holds both of its
    entities. A pair of entities from two folds is never tested, and is used for training in the folds that hold
    neither of them.

    Parameters
    ----------
    n_splits : int
        Number of folds, at least 2.
    shuffle : bool
        Assign entities to folds at random instead of in their order.
    random_state : int, RandomState, Generator or None
        Seed of the random number generator that shuffles the entities.

    Notes
    -----
    With k folds, about 1 / k of all pairs of entities drawn at random are tested, and (1 - 1 / k)^2 of them are used
    for training in each fold. Pairs within one entity are all tested.

    Examples
    --------
    >>> people = np.array([["ann", "ann"], ["ann", "bob"], ["bob", "bob"], ["eve", "eve"], ["eve", "bob"]])
    >>> for train, test in PairKFold(3).split(people):
    ...     print(train, test)
    [2 3 4] [0]
    [0 3] [2]
    [0 1 2] [3]
    """

    def __init__(self, n_splits: int = 5, *, shuffle: bool = False, random_state: Any = None) -> None:
        self.n_splits = n_splits
        self.shuffle = shuffle
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds."""
        return self.n_splits

    def split(self, X: AnyArray, y: Any = None, groups: AnyArray | None = None) -> Iterator[tuple[Ints, Ints]]:
        """Yield (train, test): the numbers of the training pairs and of the test pairs of each fold.

        Parameters
        ----------
        X : array-like of shape (m, 2) or (m, 2, d)
            Pairs of names of entities, or pairs of points.
        y : ignored
            Present for compatibility with scikit-learn.
        groups : array-like of shape (m, 2), optional
            Entities of both members of each pair. By default, X itself if it has shape (m, 2); for points, equal
            points are the same entity.
        """
        checks.counts(2, n_splits=self.n_splits)
        if groups is None:
            entities = np.asarray(X)
        else:
            entities = np.asarray(groups)
        if entities.ndim == 3 and groups is None:
            points = entities.reshape(-1, entities.shape[2])
            # equal points are one entity
            entities = np.unique(points, axis=0, return_inverse=True)[1].reshape(-1, 2)
        if entities.shape != (len(X), 2):
            needs = f"groups must name the two entities of each pair, shape ({len(X)}, 2)"
            raise ValueError(f"{needs}; got shape {entities.shape}")
        names, codes = np.unique(entities, return_inverse=True)
        if len(names) < self.n_splits:
            raise ValueError(f"n_splits must be at most {len(names)}, the number of entities; got {self.n_splits}")
        order = np.arange(len(names))
        if self.shuffle:
            order = generator(self.random_state).permutation(len(names))
        fold_of = np.empty(len(names), dtype=np.intp)
        for fold, part in enumerate(np.array_split(order, self.n_splits)):
            fold_of[part] = fold
        side = fold_of[codes.reshape(-1, 2)]  # (m, 2), the fold of each entity of a pair
        for fold in range(self.n_splits):
            # pairs of a test entity with a training entity are in neither part: their entity would have been seen
            inside = side == fold
            yield np.flatnonzero(~inside.any(axis=1)), np.flatnonzero(inside.all(axis=1))
