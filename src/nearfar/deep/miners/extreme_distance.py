"""Extreme distance mining (Sikaroudi et al., 2020).

    p(a) = argmin or argmax_{p in P(a)} d_ap,    n(a) = argmax or argmin_{n in N(a)} d_an

The easiest or hardest positive with the easiest or hardest negative; "assorted": every anchor draws which. It searches
the batch, or a whole set with ``nearfar.deep.miners.offline.mine_offline``.
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
    """Keep one extreme positive and one extreme negative of each row."""
    d = rows.d.detach()
    if not d.shape[1]:
        empty = torch.zeros_like(d, dtype=torch.int64)
        return narrowed(rows, Triplets(empty, empty, rows.pos))
    p = _extreme(d, rows.pos, positive, hardest_is_far=True)
    n = _extreme(d, rows.neg, negative, hardest_is_far=False)
    both = rows.pos.any(1, keepdim=True) & rows.neg.any(1, keepdim=True)
    return narrowed(rows, Triplets(p, n, both))


def _extreme(d: Tensor, mask: Tensor, choice: str, hardest_is_far: bool) -> Tensor:
    """Return the (b, 1) column of the chosen extreme among the masked; arbitrary where a row has none."""
    if choice == "assorted":
        far = torch.rand(len(d), 1, device=d.device) < 0.5
    else:
        far = torch.full((len(d), 1), (choice == "hardest") == hardest_is_far, device=d.device)
    signed = torch.where(far, -d, d)
    return torch.where(mask, signed, torch.inf).argmin(1, keepdim=True)


class ExtremeDistance(Miner):
    """One triplet of extremes for every anchor.

    Parameters
    ----------
    positive, negative : str
        "easiest", "hardest", or "assorted": each anchor draws easiest or hardest anew at every call.

    Notes
    -----
    ``ExtremeDistance("hardest", "hardest")`` is batch-hard. Anchors without a positive or a negative are dropped.
    Draws come from PyTorch's global generator: with several processes each draws for its own anchors.
    """

    def __init__(self, positive: str = "hardest", negative: str = "hardest") -> None:
        check_options(self, CHOICES, positive=positive, negative=negative)
        self.positive, self.negative = positive, negative

    def narrow(self, rows: Rows) -> Rows:
        return extreme_distance(rows, self.positive, self.negative)

    def __repr__(self) -> str:
        return f"ExtremeDistance(positive={self.positive!r}, negative={self.negative!r})"
