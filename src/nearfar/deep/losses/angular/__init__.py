"""Angular loss (Wang, Zhou, Wen, Liu & Lin, 2017).

    hinge:    L = mean over active (a, p, n) of [ ||a - p||^2 - 4 T ||n - c||^2 ]_+           c = (a + p) / 2
    softmax:  L = 1/|P| sum_{(a,p) in P} log(1 + sum_{n in N(a)} e^{4 T (a + p).n - 2 (1 + T) a.p})
    T = tan^2(alpha);  on unit vectors the bracket is 4 T (a + p).n - 2 (1 + T) a.p + 2 - 6 T

P: pairs of similar samples; N(a): samples dissimilar to a; all vectors have unit length.
"""

from __future__ import annotations

from math import radians, tan
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ....settings import check_options
from ...pairwise.comparison import Rows, count
from ...pairwise.contextual import BilateralRowLoss, Sides, reference_pairs, reference_vectors
from ...pairwise.hinges import few, negatives, positives
from .midpoints import Rule, midpoint_products, midpoint_sums

FORMS = ("hinge", "softmax")
REDUCTIONS = ("active", "valid", "sum")
EXACT = 5.0  # up to this T, products of exponentials of unit vectors stay in range: `midpoint_products`


def angular(rows: Rows, sides: Sides, T: float) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum over its positives of log(1 + sum_n e^f), and their number.

    f = 4 T (a + p).n - 2 (1 + T) a.p is the exponent in the formula.
    """
    columns, keep = positives(rows, one_by_one=True)
    far = negatives(rows)  # -a.n
    source = _source(rows, sides)
    rule = Rule(4 * T, hinge=False, square=sides.square)
    pull = 2 * (1 + T) * rows.d.gather(1, columns)  # -2 (1 + T) a.p
    if not few(columns) and T <= EXACT:
        f = midpoint_products(far, source, rule).gather(1, columns) + pull
    else:
        f = midpoint_sums(far, source, columns, pull, rule)[0]
    return torch.where(keep, softplus(f, threshold=40), 0.0).sum(1), count(rows.pos)


def angular_hinges(rows: Rows, sides: Sides, T: float) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum of the hinges of all its triplets, and the number of active ones."""
    columns, keep = positives(rows, one_by_one=True)
    # the part of the bracket that has no negative: -2 (1 + T) a.p + 2 - 6 T, (b, K)
    offset = torch.where(keep, 2 * (1 + T) * rows.d.gather(1, columns) + 2 - 6 * T, -torch.inf)
    rule = Rule(4 * T, hinge=True, square=sides.square)
    value, active = midpoint_sums(negatives(rows), _source(rows, sides), columns, offset, rule)
    return value.sum(1), active.sum(1)


def mined_hinges(rows: Rows, sides: Sides, T: float) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum of the hinges of its mined triplets, and the number of active ones."""
    assert rows.triplets is not None
    p, n, keep = rows.triplets
    far = rows.d.gather(1, n) + reference_pairs(rows, sides, p, n)  # -(a + p).n
    f = 2 * (1 + T) * rows.d.gather(1, p) - 4 * T * far + 2 - 6 * T
    value = torch.where(keep, f.clamp_min(0), 0.0)
    return value.sum(1), count(value > 0)


def _source(rows: Rows, sides: Sides) -> Tensor:
    """Return what the rows of positives are read from: the block, if it holds all rows, or the vectors."""
    if sides.square:
        return rows.d
    return reference_vectors(sides)


class AngularLoss(BilateralRowLoss):
    """Keep the angle at the negative, in the triangle with a positive pair, below alpha.

    Parameters
    ----------
    alpha : float
        Upper bound of the angle in degrees, in [0, 89). The paper uses 36 to 55, depending on the data set; with 0, the
        loss only attracts positives.
    form : {"hinge", "softmax"}
        "hinge" is the paper's triplet form, over all triplets or those that the miner selects. "softmax" is the paper's
        batch form, over the negatives of every positive pair; it is usually added to ``NPairLoss`` with a weight of 2.
    miner : callable, optional
        Miner that selects the triplets that count or, if `form` is "softmax", the pairs. By default, all of them count.
    reduction : {"active", "valid", "sum"}
        What the sum of the hinges is divided by: the number of triplets with a positive loss ("active"), the number of
        all selected triplets ("valid"), or nothing ("sum"). The "softmax" form is averaged over the positive pairs, or
        summed over them ("sum").
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If `alpha` is outside [0, 89).

    Notes
    -----
    Embeddings are scaled to unit length. The formula that the survey of Ghojogh et al. (2022) prints, without the
    negative and with the distance inside the tangent, is evidently a misprint. A pair without negatives contributes
    zero.
    """

    def __init__(
        self,
        alpha: float = 45.0,
        *,
        form: str = "hinge",
        miner: Any = None,
        reduction: str = "active",
        block: int | None = None,
    ) -> None:
        super().__init__(distance="dot", normalize=True, miner=miner, block=block)
        check_options(self, FORMS, form=form)
        check_options(self, REDUCTIONS, reduction=reduction)
        if not 0 <= alpha < 89:
            raise ValueError(f"AngularLoss: alpha must be in [0, 89) degrees, got {alpha}")
        self.alpha = alpha
        self.form = form
        self.reduction = reduction

    def second_pass(self, rows: Rows, sides: Sides) -> tuple[Tensor, Tensor]:
        # not 0: entries that are no negatives are infinite, and 0 inf NaN
        T = max(tan(radians(self.alpha)) ** 2, 1e-30)
        if self.form == "softmax":
            return angular(rows, sides, T)
        if rows.triplets is not None:
            value, active = mined_hinges(rows, sides, T)
            valid = count(rows.triplets.keep)
        else:
            value, active = angular_hinges(rows, sides, T)
            valid = count(rows.pos) * count(rows.neg)
        if self.reduction == "active":
            return value, active
        return value, valid
