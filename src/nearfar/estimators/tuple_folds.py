"""Folds of pairs, triplets or quadruplets for cross-validation: no entity occurs in both training and test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..numerics import checks
from ..numerics.constraints import generator
from ..numerics.types import AnyArray, Ints
from .validation import shape_of


class TupleKFold:
    """Split pairs, triplets or quadruplets into folds so that no entity of a test fold occurs in training.

    With ordinary folds, a learner sees the same people or items in training and in testing, so the scores are too
    optimistic. Here, the entities themselves are split. A tuple is tested in the fold that holds all of its entities. A
    tuple of entities from several folds is never tested, and is used for training in the folds that hold none of them.

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
    With k folds, about k^(1 - s) of all tuples of s entities drawn at random are tested, and (1 - 1 / k)^s of them are
    used for training in each fold. With triplets, three folds are enough: a ninth of them is tested. Pairs within one
    entity are all tested.

    Examples
    --------
    >>> people = np.array([["ann", "ann"], ["ann", "bob"], ["bob", "bob"], ["eve", "eve"], ["eve", "bob"]])
    >>> for train, test in TupleKFold(3).split(people):
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
        """Yield (train, test): the numbers of the training tuples and of the test tuples of each fold.

        Parameters
        ----------
        X : array-like of shape (m, s) or (m, s, d)
            Tuples of s names of entities, or of s points, with s at least 2.
        y : ignored
            Present for compatibility with scikit-learn.
        groups : array-like of shape (m, s), optional
            Entities of the members of each tuple. By default, X itself if it has shape (m, s); for points, equal points
            are the same entity.
        """
        checks.counts(2, n_splits=self.n_splits)
        if groups is None:
            entities = np.asarray(X)
        else:
            entities = np.asarray(groups)
        if entities.ndim == 3 and groups is None:
            points = entities.reshape(-1, entities.shape[2])
            # equal points are one entity
            entities = np.unique(points, axis=0, return_inverse=True)[1].reshape(entities.shape[:2])
        size = shape_of(X)[1:2] or (2,)
        if entities.shape != (len(X), *size) or size < (2,):
            members = {2: "the two entities of each pair", 3: "the three entities of each triplet"}
            what = members.get(size[0], "the entities of each tuple")
            raise ValueError(f"groups must name {what}, shape {(len(X), *size)}; got shape {entities.shape}")
        names, codes = np.unique(entities, return_inverse=True)
        if len(names) < self.n_splits:
            raise ValueError(f"n_splits must be at most {len(names)}, the number of entities; got {self.n_splits}")
        order = np.arange(len(names))
        if self.shuffle:
            order = generator(self.random_state).permutation(len(names))
        fold_of = np.empty(len(names), dtype=np.intp)
        for fold, part in enumerate(np.array_split(order, self.n_splits)):
            fold_of[part] = fold
        side = fold_of[codes.reshape(entities.shape)]  # (m, s), the fold of each entity of a tuple
        for fold in range(self.n_splits):
            # tuples of a test entity and a training entity are in neither part: an entity would have been seen
            inside = side == fold
            yield np.flatnonzero(~inside.any(axis=1)), np.flatnonzero(inside.all(axis=1))
