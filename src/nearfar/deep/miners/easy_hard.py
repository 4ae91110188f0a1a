"""Easy, semi-hard or hard pairs within ranges of distances (Xuan, Stylianou & Pless, 2020).

    p(a) = argmin or argmax_{p in P'(a)} d_ap,    n(a) = argmax or argmin_{n in N'(a)} d_an
    P'(a) = {p in P(a): l_p <= d_ap <= u_p},      N'(a) = {n in N(a): l_n <= d_an <= u_n}

Easy positives and hard negatives are near; hard positives and easy negatives are far. Semi-hard samples are the hardest
ones on the right side of the other:  d_an > d_{a p(a)}  for negatives,  d_ap < d_{a n(a)}  for positives.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...settings import check_options
from ..pairwise.comparison import Rows
from .base import Miner

STRATEGIES = ("easy", "hard", "semi_hard", "all")
Limits = tuple[float, float]


def easy_hard(
    rows: Rows, positive: str, negative: str, positive_range: Limits | None, negative_range: Limits | None
) -> Rows:
    """Keep one positive and one negative of each anchor, or all of either."""
    d = rows.d.detach()
    if not d.shape[1]:  # no references, and `argmax` would fail
        return rows
    pos = within(rows.pos, d, positive_range)
    neg = within(rows.neg, d, negative_range)
    farthest_positive = positive != "easy"
    farthest_negative = negative == "easy"
    if positive == "semi_hard":
        # the selected negative first, d_{a n(a)} as (b, 1): only nearer positives remain
        other = d.gather(1, extreme(d, neg, farthest_negative))
        pos = pos & (d < other) & neg.any(1, keepdim=True)
    elif negative == "semi_hard":
        # the selected positive first, d_{a p(a)} as (b, 1): only farther negatives remain
        other = d.gather(1, extreme(d, pos, farthest_positive))
        neg = neg & (d > other) & pos.any(1, keepdim=True)
    if "all" not in (positive, negative):
        # an anchor counts only if it has both
        both = pos.any(1, keepdim=True) & neg.any(1, keepdim=True)
        pos = pos & both
        neg = neg & both
    if positive != "all":
        pos = only(pos, extreme(d, pos, farthest_positive))
    if negative != "all":
        neg = only(neg, extreme(d, neg, farthest_negative))
    return rows._replace(pos=pos, neg=neg)


def within(mask: Tensor, d: Tensor, limits: Limits | None) -> Tensor:
    """Return the entries of a mask whose distances are within limits."""
    if limits is None:
        return mask
    low, high = limits
    return mask & (d >= low) & (d <= high)


def extreme(d: Tensor, mask: Tensor, farthest: bool) -> Tensor:
    """Return the (b, 1) column of the farthest, or of the nearest, where the mask is True; arbitrary if it never is."""
    if farthest:
        return torch.where(mask, d, -torch.inf).argmax(1, keepdim=True)
    return torch.where(mask, d, torch.inf).argmin(1, keepdim=True)


def only(mask: Tensor, column: Tensor) -> Tensor:
    """Return the mask of one column of each row, (b, 1), where the given mask is True there."""
    return mask & torch.zeros_like(mask).scatter(1, column, True)


class EasyHard(Miner):
    """Select an easy, semi-hard or hard positive and negative of every anchor within ranges of distances.

    Parameters
    ----------
    positive, negative : {"easy", "hard", "semi_hard", "all"}
        Which sample is selected:

        - "easy": the nearest positive, the farthest negative;
        - "hard": the farthest positive, the nearest negative;
        - "semi_hard": the hardest negative that is farther than the selected positive, or the hardest positive that is
          nearer than the selected negative;
        - "all": every one.
    positive_range, negative_range : (float, float), optional
        Lowest and highest distance of the candidates, in the unit of the distance of the loss. By default, there are no
        limits.

    Raises
    ------
    ValueError
        If `positive` or `negative` is unknown, both are "semi_hard", "semi_hard" is combined with "all", or the ends of
        a range are not in order.

    Notes
    -----
    Anchors without a positive or a negative are left out. If one side is "all", the other side does not need it: losses
    of pairs then keep anchors that have only positives or only negatives.

    Examples
    --------
    >>> from nearfar import TripletLoss
    >>> loss = TripletLoss(miner=EasyHard("easy", "hard", negative_range=(0.1, 2.0)))
    """

    def __init__(
        self,
        positive: str = "easy",
        negative: str = "semi_hard",
        *,
        positive_range: Limits | None = None,
        negative_range: Limits | None = None,
    ) -> None:
        check_options(self, STRATEGIES, positive=positive, negative=negative)
        if positive == negative == "semi_hard":
            raise ValueError('EasyHard: positive and negative cannot both be "semi_hard": each depends on the other')
        if {positive, negative} == {"semi_hard", "all"}:
            raise ValueError('EasyHard: "semi_hard" needs a single sample on the other side, not "all"')
        self.positive = positive
        self.negative = negative
        self.positive_range = _checked("positive_range", positive_range)
        self.negative_range = _checked("negative_range", negative_range)

    def narrow(self, rows: Rows) -> Rows:
        return easy_hard(
            rows,
            positive=self.positive,
            negative=self.negative,
            positive_range=self.positive_range,
            negative_range=self.negative_range,
        )

    def __repr__(self) -> str:
        ranges = f"positive_range={self.positive_range}, negative_range={self.negative_range}"
        return f"EasyHard(positive={self.positive!r}, negative={self.negative!r}, {ranges})"


def _checked(name: str, limits: Limits | None) -> Limits | None:
    """Return a range as a pair of numbers, or raise."""
    if limits is None:
        return None
    try:
        low, high = (float(limit) for limit in limits)
    except (TypeError, ValueError) as error:
        raise ValueError(f"EasyHard: {name} must be two numbers, the lowest and the highest; got {limits!r}") from error
    if not low <= high:
        raise ValueError(f"EasyHard: {name} must have the lower number first, got {limits!r}")
    return low, high
