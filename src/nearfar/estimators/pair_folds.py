"""Folds of pairs for cross-validation in which no entity stands on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..numerics import checks
from ..numerics.constraints import generator
from ..numerics.types import AnyArray, Ints


class PairKFold:
    """Split pairs so that the entities of a test fold are in no training pair.

    Ordinary folds of pairs show a learner the very persons, or items, that it is tested with, and so promise too much.
    Here the entities are split; a pair is tested in the fold that has both of its entities, and a pair of entities of
    two folds is tested in none and trains where both are outside of the test fold.

    Parameters
    ----------
    n_splits : int
        At least 2.
    shuffle : bool
        Deal entities to folds at random instead of by their order.
    random_state : int, RandomState, Generator or None

    Notes
    -----
    With k folds about 1 / k of all pairs of entities drawn at random are tested at all, and (1 - 1 / k)^2 train in each
    fold. Pairs within one entity are all tested.

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
        """Yield (train, test), the numbers of the pairs on each side.

        Parameters
        ----------
        X : array-like of shape (m, 2) or (m, 2, d)
            Pairs: names of entities, or points.
        y : ignored
        groups : array-like of shape (m, 2), optional
            The entities of both sides of each pair. Default: X itself, of shape (m, 2); of points, equal points are
            one entity.
        """
        checks.counts(2, n_splits=self.n_splits)
        entities = np.asarray(X if groups is None else groups)
        if entities.ndim == 3 and groups is None:
            points = entities.reshape(-1, entities.shape[2])
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
        side = fold_of[codes.reshape(-1, 2)]  # (m, 2): the fold of each side
        for fold in range(self.n_splits):
            inside = side == fold
            yield np.flatnonzero(~inside.any(axis=1)), np.flatnonzero(inside.all(axis=1))
