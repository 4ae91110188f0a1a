"""What a miner is: it says which of the comparisons of a block of rows count."""

from __future__ import annotations

from typing import Any

from ...settings import Checked
from ..pairwise.comparison import Rows


class Miner(Checked):
    """A part of a loss, which calls it with each block of rows; a method states ``narrow(rows) -> rows``."""

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
            raise TypeError(f"{name}: a miner is a part of a loss, which calls it: write TripletLoss(mine={name}())")
        return self.narrow(rows)
