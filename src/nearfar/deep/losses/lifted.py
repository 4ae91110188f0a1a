"""Lifted structured embedding loss (Oh Song et al., 2016).

    smooth:  J_ij = rho_ij + log( sum_{k in N(i)} e^{m - rho_ik} + sum_{k in N(j)} e^{m - rho_jk} )
    hard:    J_ij = rho_ij + max( max_{k in N(i)} m - rho_ik,  max_{k in N(j)} m - rho_jk )
    L = 1/(2|P|) sum_{(i,j) in P} [J_ij]_+^2

P: pairs of similar samples; N(i): samples dissimilar to i; rho: unsquared distance.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ...settings import check_options
from ..pairwise.comparison import Distance, Rows, count
from ..pairwise.contextual import BilateralRowLoss, Sides
from ..pairwise.hinges import negatives, positives
from ..pairwise.reductions import finite, near_and_rivals

REDUCTIONS = ("mean", "sum")


def repulsion(rows: Rows, columns: Tensor, hard: bool) -> tuple[Tensor, Tensor]:
    """Return d in the columns, (b, K), and the repulsion of each row, (b,), without the margin.

    The repulsion is log sum_n e^{-d_n} over its negatives, or max_n -d_n if `hard`; -inf if it has none.
    """
    if not hard:
        return near_and_rivals(rows.d, columns, rows.neg, -1.0)
    near = rows.d.gather(1, columns)
    if not rows.d.shape[1]:
        return near, rows.d.new_full((len(rows.d),), -torch.inf)
    # only the place has no gradient: the distance there does
    nearest = negatives(rows).detach().argmin(1, keepdim=True)
    is_negative = rows.neg.gather(1, nearest)
    return near, -torch.where(is_negative, rows.d.gather(1, nearest), torch.inf).squeeze(1)


def log_of_two(a: Tensor, b: Tensor) -> Tensor:
    """Return log(e^a + e^b), also with second derivatives where a and b are far apart; `torch.logaddexp` has none."""
    first = a >= b
    high = torch.where(first, a, b)
    low = torch.where(first, b, a)
    return high + softplus(low - high)


def lifted(rows: Rows, other: Tensor | None, margin: float, hard: bool) -> tuple[Tensor, Tensor]:
    """Return per anchor i the sum over its positives j of [J_ij]_+^2, and their number.

    `other`, (m,), is the repulsion of each reference. It is None if the rows are those of the whole batch compared with
    itself, whose own repulsions then serve.
    """
    columns, keep = positives(rows)
    near, own = repulsion(rows, columns, hard)  # rho_ij, (b, K), and the repulsion of i, (b,)
    if other is None:
        other = own
    keep = keep & (own.isfinite()[:, None] | other.isfinite()[columns])  # i or j has a negative
    # the repulsions of both samples of a pair, (b, K)
    a = own[:, None].expand(columns.shape)
    b = other[columns]
    if hard:
        both = torch.maximum(a, b)
    else:
        both = log_of_two(finite(a, -1e30), finite(b, -1e30))
    # J_ij without the -inf of pairs that have no negative, which are selected out below
    J = near + margin + torch.where(keep, both, 0.0)
    return torch.where(keep, J.clamp_min(0), 0.0).square().sum(1), count(rows.pos)


class LiftedLoss(BilateralRowLoss):
    """Compare each positive pair with all negatives of both of its samples.

    Parameters
    ----------
    margin : float
        Margin m between the distance of a positive pair and those of its negatives, in the unit of the distance.
    hard : bool
        Whether to use only the nearest negative of the two samples instead of the smooth maximum over all negatives.
    distance : str or callable
        Dissimilarity of two embeddings: "euclidean" (the paper's), "sq_euclidean" (the generic d of the survey, Ghojogh
        et al., 2022), "cosine" or "dot", or a callable that takes anchors of shape (b, d) and references of shape
        (m, d) and returns their dissimilarities of shape (b, m), such as ``LpDistance(1)``.
    normalize : bool
        Whether to scale the embeddings to unit length first; the paper does not.
    miner : callable, optional
        Miner that selects the positives and negatives that count, such as ``BatchHard()``. By default, all of them
        count.
    reduction : {"mean", "sum"}
        "mean" is half the mean over the pairs, the paper's factor 1/(2|P|); "sum" is the sum over ordered pairs, as in
        the survey.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Notes
    -----
    If a reference set is given, the negatives N(j) of a reference j are taken from the batch. Pairs for which neither
    sample has a negative contribute zero.

    The survey prints a comma between the two sums inside the logarithm where a plus is meant. The layer of the
    published code divides by rho in the gradient without a guard; here, the gradient of coincident samples is zero.
    """

    def __init__(
        self,
        margin: float = 1.0,
        *,
        hard: bool = False,
        distance: Distance = "euclidean",
        normalize: bool = False,
        miner: Any = None,
        reduction: str = "mean",
        block: int | None = None,
    ) -> None:
        super().__init__(distance=distance, normalize=normalize, miner=miner, block=block)
        check_options(self, REDUCTIONS, reduction=reduction)
        self.margin = margin
        self.hard = hard
        self.reduction = reduction

    def statistic(self, rows: Rows) -> Tensor:
        return repulsion(rows, rows.neg.new_zeros(len(rows.neg), 0, dtype=torch.int64), self.hard)[1]

    def second_pass(self, rows: Rows, sides: Sides) -> tuple[Tensor, Tensor]:
        value, pairs = lifted(rows, sides.other, margin=self.margin, hard=self.hard)
        if self.reduction != "sum":
            value = value / 2
        return value, pairs
