"""Contrastive loss (Hadsell, Chopra & LeCun, 2006).

    hadsell:  1/2 sum_P rho^2 + 1/2 sum_N [m - rho]_+^2        rho the unsquared Euclidean distance
    survey:   sum_P rho^2 + sum_N [m - rho^2]_+
    xbm:      sum_P (1 - s) + sum_N s [s > m]                  s the cosine, summed per anchor

Over all pairs of similar (P) and dissimilar (N) samples, divided by their number.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...deprecation import renamed_settings
from ...settings import check_options
from ..pairwise.comparison import Rows, count
from ..pairwise.hinges import hinges, negatives, positives
from ..pairwise.reductions import hinge_squares
from ..pairwise.row_loss import RowLoss

# form: (margin of its source, distance that its formula uses)
FORMS = {"hadsell": (1.0, "euclidean"), "survey": (0.25, "sq_euclidean"), "xbm": (0.5, "cosine")}
REDUCTIONS = ("mean", "balanced", "anchor", "sum")


def contrastive(rows: Rows, margin: float, form: str) -> tuple[Tensor, Tensor]:
    """Return per anchor the attraction of its similar and the repulsion of its dissimilar samples."""
    columns, keep = positives(rows)
    # (b, K), (b, m) with others at infinity
    near = rows.d.gather(1, columns)
    far = negatives(rows)
    if form == "hadsell":
        return torch.where(keep, near.square() / 2, 0.0).sum(1), hinge_squares(far, margin) / 2
    reach = 1 - margin if form == "xbm" else margin
    push, active = hinges(far.new_full((len(far), 1), reach), far)
    if form == "xbm":  # s = (s - m) + m
        push = push + margin * active[:, 0].to(push.dtype)  # a whole number times a number would be float32
    return torch.where(keep, near, 0.0).sum(1), push


class ContrastiveLoss(RowLoss):
    """Contrastive loss over all pairs of the batch.

    Parameters
    ----------
    margin : float, optional
        m; None takes the source's: 1 ("hadsell"), 0.25 ("survey"), 0.5 ("xbm").
    form : str
        "hadsell" (the paper's), "survey" or "xbm"; they use unsquared distances, squared distances and cosines.
    normalize : bool
        Scale embeddings to unit length first; "xbm" always does.
    miner : callable, optional
        A miner that narrows the pairs.
    reduction : str
        Divide by the number of valid pairs ("mean"), average similar and dissimilar pairs separately and add
        ("balanced"), divide by the number of anchors ("anchor"), or by nothing ("sum").
    block : int, optional
        Anchors at a time.

    Notes
    -----
    In the "hadsell" form two coincident dissimilar samples have no direction to part in: their gradient is zero.
    """

    @renamed_settings(mine="miner")
    def __init__(
        self,
        margin: float | None = None,
        *,
        form: str = "hadsell",
        normalize: bool = False,
        miner: Any = None,
        reduction: str = "mean",
        block: int | None = None,
    ) -> None:
        check_options(self, FORMS, form=form)
        check_options(self, REDUCTIONS, reduction=reduction)
        default, distance = FORMS[form]
        super().__init__(distance=distance, normalize=normalize, miner=miner, block=block)
        self.margin = default if margin is None else margin
        self.form = form
        self.reduction = reduction

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        near, far = contrastive(rows, self.margin, self.form)
        n_near = count(rows.pos)
        n_far = count(rows.neg)
        if self.reduction == "balanced":
            return torch.stack([near, far], 1), torch.stack([n_near, n_far], 1)
        pairs = n_near + n_far
        return near + far, pairs > 0 if self.reduction == "anchor" else pairs
