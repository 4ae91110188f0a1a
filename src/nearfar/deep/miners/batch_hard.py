"""Batch-hard mining (Hermans, Beyer & Leibe, 2017).

p(a) = argmax_{p in P(a)} d_ap,    n(a) = argmin_{n in N(a)} d_an
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..rows import Rows


def batch_hard(rows: Rows) -> Rows:
    """Keep of each row its farthest positive and its nearest negative; equal distances: one of them."""
    far = rows.d.detach().masked_fill(~rows.pos, -torch.inf).argmax(1, keepdim=True)
    near = rows.d.detach().masked_fill(~rows.neg, torch.inf).argmin(1, keepdim=True)
    has_both = rows.pos.any(1, keepdim=True) & rows.neg.any(1, keepdim=True)
    pos, neg = only(far, rows.pos) & has_both, only(near, rows.neg) & has_both
    return rows._replace(pos=pos, neg=neg, partner=near.expand_as(rows.d))


def only(column: Tensor, mask: Tensor) -> Tensor:
    """Narrow a mask to one column of each row."""
    return torch.zeros_like(mask).scatter(1, column, True) & mask


class BatchHard:
    """The hardest positive and the hardest negative of every anchor, in the batch.

    Anchors without a positive or without a negative are dropped, not given a distance of zero.
    """

    def __call__(self, rows: Rows) -> Rows:
        return batch_hard(rows)

    def __repr__(self) -> str:
        return "BatchHard()"
