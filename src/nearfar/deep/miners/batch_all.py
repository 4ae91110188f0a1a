"""Batch-all mining (Ding et al., 2015).

all (a, p, n) with p in P(a), n in N(a)
"""

from __future__ import annotations

from ..pairwise.comparison import Rows
from .base import Miner


def batch_all(rows: Rows) -> Rows:
    """Keep every comparison of the batch."""
    return rows


class BatchAll(Miner):
    """Keep every triplet of the batch, which is what a loss does without a miner.

    As with all miners, no anchor is its own positive; the sums over a class in the survey of Ghojogh et al. (2022)
    include it.
    """

    def narrow(self, rows: Rows) -> Rows:
        return batch_all(rows)

    def __repr__(self) -> str:
        return "BatchAll()"
