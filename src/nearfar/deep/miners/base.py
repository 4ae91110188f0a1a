"""The base class of miners, which select the comparisons of a block of rows that count."""

from __future__ import annotations

from typing import Any

from ...settings import Checked
from ..pairwise.comparison import Rows
from ..rng import fresh_seed


class Miner(Checked):
    """Base class of miners, which select the pairs or triplets of a block of rows that a loss counts.

    A loss calls its miner with each block of rows. A subclass implements ``narrow(rows) -> rows``.

    Attributes
    ----------
    draws : bool
        Whether `narrow` draws random numbers, with ``rows.uniform(...)``.
    reads_vectors : bool
        Whether `narrow` reads the embeddings or their number of dimensions, not only their distances.
    """

    draws: bool = False
    reads_vectors: bool = False

    def narrow(self, rows: Rows) -> Rows:
        """Return the rows with narrower masks."""
        raise NotImplementedError

    def __call__(self, rows: Rows, *others: Any) -> Rows:
        """Return the rows with narrower masks.

        Raises
        ------
        TypeError
            If called with embeddings and labels, as miners of other libraries are.
        """
        if others or not isinstance(rows, Rows):
            name = type(self).__name__
            raise TypeError(f"{name}: a miner is a part of a loss, which calls it: write TripletLoss(miner={name}())")
        if self.draws and rows.seed is None:
            rows = rows._replace(seed=fresh_seed(self, rows.d))
        return self.narrow(rows)
