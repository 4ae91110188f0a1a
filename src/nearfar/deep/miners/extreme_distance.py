"""Extreme distance mining (Sikaroudi et al., 2020).

    p(a) = argmin or argmax_{p in P(a)} d_ap,    n(a) = argmax or argmin_{n in N(a)} d_an

The easiest or hardest positive is combined with the easiest or hardest negative; "assorted" draws which for every
anchor. The search is over the batch, or over a whole set with ``nearfar.deep.mine_offline``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...settings import check_options
from ..pairwise.comparison import Rows, Triplets
from ..pairwise.hinges import narrowed
from .base import Miner

CHOICES = ("easiest", "hardest", "assorted")


def extreme_distance(rows: Rows, positive: str, negative: str) -> Rows:
    """Keep one extreme positive and one extreme negative of each anchor."""
    d = rows.d.detach()
    if not d.shape[1]:
        empty = torch.zeros_like(d, dtype=torch.int64)
        return narrowed(rows, Triplets(empty, empty, rows.pos))
    p = _extreme(d, rows.pos, _is_far(rows, positive, hardest_is_far=True))
    n = _extreme(d, rows.neg, _is_far(rows, negative, hardest_is_far=False))
    # an anchor without a positive or without a negative has no triplet, whatever `_extreme` found
    both = rows.pos.any(1, keepdim=True) & rows.neg.any(1, keepdim=True)
    return narrowed(rows, Triplets(p, n, both))


def _is_far(rows: Rows, choice: str, hardest_is_far: bool) -> Tensor:
    """Return for each anchor whether the farthest is taken instead of the nearest, (b, 1)."""
    if choice == "assorted":
        return rows.uniform(rows.pos.new_zeros(1, dtype=torch.int64), stream=int(hardest_is_far)) < 0.5
    return torch.full((len(rows.d), 1), (choice == "hardest") == hardest_is_far, device=rows.d.device)


def _extreme(d: Tensor, mask: Tensor, far: Tensor) -> Tensor:
    """Return the (b, 1) column of the farthest, or of the nearest, where the mask is True; arbitrary if it never is."""
    signed = torch.where(far, -d, d)
    return torch.where(mask, signed, torch.inf).argmin(1, keepdim=True)


class ExtremeDistance(Miner):
    """Select one triplet of extremes for every anchor.

    Parameters
    ----------
    positive, negative : {"easiest", "hardest", "assorted"}
        "easiest", "hardest", or "assorted", where each anchor draws one of the two at every call.

    Notes
    -----
    ``ExtremeDistance("hardest", "hardest")`` is batch-hard mining. Anchors without a positive or a negative are left
    out.

    Random numbers follow from one draw of PyTorch's global generator per call, which the first process shares with the
    others. They depend neither on the block size of the loss nor on the number of processes.
    """

    def __init__(self, positive: str = "hardest", negative: str = "hardest") -> None:
        check_options(self, CHOICES, positive=positive, negative=negative)
        self.positive = positive
        self.negative = negative
        self.draws = "assorted" in (positive, negative)

    def narrow(self, rows: Rows) -> Rows:
        return extreme_distance(rows, self.positive, self.negative)

    def __repr__(self) -> str:
        return f"ExtremeDistance(positive={self.positive!r}, negative={self.negative!r})"
