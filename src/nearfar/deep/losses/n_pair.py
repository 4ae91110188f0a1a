"""N-pair loss (Sohn, 2016).

    npair:  1/|P| sum_{(i,p) in P} log(1 + sum_{n in N(i)} exp(s_in - s_ip))  +  reg / B sum_i ||z_i||^2
    hinge:  1/|P| sum_{(i,p) in P} sum_{n in N(i)} [d_ip - d_in + m]_+        (the survey's form)

P: pairs of similar samples, N(i): samples dissimilar to i, s: inner product, d: squared distance.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ...settings import check_options
from ..objective.batch import Batch
from ..objective.terms import needs_embeddings
from ..pairwise.comparison import Rows, count
from ..pairwise.hinges import hinges, near_columns, negatives, positives
from ..pairwise.reductions import near_and_rivals
from ..pairwise.row_loss import RowLoss

FORMS = {"npair": "dot", "hinge": "sq_euclidean"}
REDUCTIONS = ("mean", "sum")


def n_pair(rows: Rows) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum over its positives of log(1 + sum_n exp(s_n - s_p)), and their number."""
    columns, keep = near_columns(rows)
    near, rivals = near_and_rivals(rows.d, columns, rows.neg, -1.0)  # -s_p, log sum_n exp(s_n)
    gap = rivals[:, None] + near  # -inf, a term of log 1, without negatives
    return torch.where(keep, softplus(gap, threshold=40), 0.0).sum(1), count(keep)


def n_pair_hinge(rows: Rows, margin: float) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum over its positives and negatives of [d_p - d_n + m]_+, and the number of positives."""
    columns, keep = positives(rows)
    # d_ip + m: the negatives nearer than this are active
    reach = torch.where(keep, rows.d.gather(1, columns) + margin, -torch.inf)
    return hinges(reach, negatives(rows))[0], count(rows.pos)


class NPairLoss(RowLoss):
    """Multi-class N-pair loss over all positive pairs of the batch.

    Parameters
    ----------
    reg : float
        Weight of the mean squared norm of the embeddings. The published code applies its 0.002 to half of that mean.
    form : {"npair", "hinge"}
        "npair" is the paper's formula on inner products; "hinge" is the survey's (Ghojogh et al., 2022), on squared
        distances.
    margin : float
        Margin m of the "hinge" form, in the unit of squared distances.
    normalize : bool
        Whether to scale the embeddings to unit length first; the paper does not.
    miner : callable, optional
        Miner that selects the positives and negatives that count, such as ``BatchHard()``. By default, all of them
        count.
    reduction : {"mean", "sum"}
        "mean" averages over the pairs of similar samples; "sum" adds them up, as equation 13 of Chen et al. (2022)
        does. The norm penalty is the same for both.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Notes
    -----
    Once the order of the samples is right, larger embeddings lower the loss; the norm penalty prevents this growth.
    Anchors without a positive are left out, and an anchor without a negative contributes zero.

    Both samples of a pair are anchors in turn, which is the symmetric form. With ``ref=``, only the embeddings are
    anchors; for the symmetric form, average this loss and the one with both sets exchanged.
    """

    def __init__(
        self,
        reg: float = 0.002,
        *,
        form: str = "npair",
        margin: float = 0.2,
        normalize: bool = False,
        miner: Any = None,
        reduction: str = "mean",
        block: int | None = None,
    ) -> None:
        check_options(self, FORMS, form=form)
        super().__init__(distance=FORMS[form], normalize=normalize, miner=miner, block=block)
        check_options(self, REDUCTIONS, reduction=reduction)
        self.reduction = reduction
        self.reg = reg
        self.form = form
        self.margin = margin

    def distances_refused(self) -> str | None:
        if self.reg:
            return needs_embeddings("the norm penalty of NPairLoss (reg=0 leaves it out)")
        return super().distances_refused()

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        if self.form == "npair":
            return n_pair(rows)
        return n_pair_hinge(rows, self.margin)

    def penalty(self, batch: Batch) -> Tensor | None:
        if not self.reg:
            return None
        return self.reg / max(len(batch.x), 1) * batch.x.square().sum()  # reg / B sum_i |z_i|^2
