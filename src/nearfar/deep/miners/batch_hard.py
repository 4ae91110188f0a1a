"""Batch-hard mining (Hermans, Beyer & Leibe, 2017).

p(a) = argmax_{p in P(a)} d_ap,    n(a) = argmin_{n in N(a)} d_an
"""

from __future__ import annotations

import torch

from ..pairwise.comparison import Rows, Triplets
from ..pairwise.hinges import narrowed, positives
from .base import Miner


def batch_hard(rows: Rows) -> Rows:
    """Keep the farthest positive and the nearest negative of each anchor; of equally distant ones, only one."""
    d = rows.d.detach()
    columns, keep = positives(rows)
    if not columns.shape[1]:  # no anchor has a positive, and `argmax` would fail
        return narrowed(rows, Triplets(columns, columns, keep))
    # (b, 1) each: the place of the farthest positive among `columns`; the nearest negative's distance and column
    far = torch.where(keep, d.gather(1, columns), -torch.inf).argmax(1, keepdim=True)
    near = torch.where(rows.neg, d, torch.inf).min(1, keepdim=True)
    both = keep.any(1, keepdim=True) & (near.values < torch.inf)
    return narrowed(rows, Triplets(columns.gather(1, far), near.indices, both))


class BatchHard(Miner):
    """Select the hardest positive and the hardest negative of every anchor in the batch.

    Anchors without a positive or without a negative are left out.
    """

    def narrow(self, rows: Rows) -> Rows:
        return batch_hard(rows)

    def __repr__(self) -> str:
        return "BatchHard()"
