"""Contrastive loss (Hadsell, Chopra & LeCun, 2006).

    hadsell:  1/2 sum_P rho^2 + 1/2 sum_N [m - rho]_+^2        rho the unsquared Euclidean distance
    survey:   sum_P rho^2 + sum_N [m - rho^2]_+
    xbm:      sum_P (1 - s) + sum_N s [s > m]                  s the cosine, summed per anchor
    plain:    sum_P [d - m_p]_+ + sum_N [m - d]_+              d any distance

The sums are over all pairs of similar (P) and dissimilar (N) samples, and are divided by the number of pairs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...settings import check_options
from ..pairwise.comparison import Distance, Rows, count, is_small
from ..pairwise.hinges import hinges, near_distances, negatives
from ..pairwise.reductions import hinge_squares
from ..pairwise.row_loss import RowLoss

# form: (default margin, from its source; distance in its formula)
FORMS = {
    "hadsell": (1.0, "euclidean"),
    "survey": (0.25, "sq_euclidean"),
    "xbm": (0.5, "cosine"),
    "plain": (1.0, "euclidean"),
}
REDUCTIONS = ("mean", "balanced", "anchor", "sum", "active")


def contrastive(rows: Rows, margin: float, form: str) -> tuple[Tensor, Tensor]:
    """Return per anchor the attraction of its similar and the repulsion of its dissimilar samples."""
    near, keep = near_distances(rows)  # (b, k)
    far = negatives(rows)  # (b, m), infinite where there is no negative
    if form == "hadsell":
        return torch.where(keep, near.square() / 2, 0.0).sum(1), hinge_squares(far, margin) / 2
    pull = torch.where(keep, near, 0.0).sum(1)
    # sum_N [reach - d]_+, with one threshold for all rows, and how many terms are positive
    if form == "xbm":
        reach = 1 - margin  # d = 1 - s, so s > m means d < 1 - m
    else:
        reach = margin
    if form == "survey" and is_small(far):
        # in a small batch, the number of calls determines the time: three of PyTorch take less than a function of ours
        return pull, torch.rsub(far, reach).relu().sum(1)
    push, active = hinges(far.new_full((len(far), 1), reach), far)
    if form == "xbm":
        # s = [(1 - m) - d] + m; the counts are cast first, as float32 would be the type of an integer times a float
        push = push + margin * active[:, 0].to(push.dtype)
    return pull, push


def plain_hinges(rows: Rows, margin: float, pos_margin: float) -> tuple[Tensor, Tensor]:
    """Return [d - m_p]_+ of the positives of each anchor, (b, K), and [m - d]_+ of its negatives, (b, m); else 0."""
    near, keep = near_distances(rows)
    near = torch.where(keep, near - pos_margin, 0.0)
    return near.clamp_min(0), (margin - negatives(rows)).clamp_min(0)


class ContrastiveLoss(RowLoss):
    """Contrastive loss over all pairs of the batch.

    Parameters
    ----------
    margin : float, optional
        Margin m, in the unit of the distance of `form`. Dissimilar samples that are farther apart than m (in the "xbm"
        form, whose cosine is below m) do not contribute. By default, the value of the source of `form`: 1 for "hadsell"
        and "plain", 0.25 for "survey", 0.5 for "xbm".
    form : {"hadsell", "survey", "xbm", "plain"}
        Formula of the loss:

        - "hadsell": the paper's, with unsquared Euclidean distances;
        - "survey": that of the survey of Ghojogh et al. (2022), with squared Euclidean distances;
        - "xbm": with cosines, where the margin is a cosine;
        - "plain": hinges on any distance.
    pos_margin : float
        Margin m_p of the "plain" form: similar samples at a smaller distance have no loss.
    distance : str or callable, optional
        Dissimilarity of the "plain" form: "euclidean" (the default), "sq_euclidean", "cosine" or "dot", or a callable
        that takes anchors of shape (b, d) and references of shape (m, d) and returns their dissimilarities of shape
        (b, m), such as ``LpDistance(1)``.
    normalize : bool
        Whether to scale the embeddings to unit length first; the "xbm" form always does.
    miner : callable, optional
        Miner that selects the pairs that count, such as ``PairMargins()``. By default, all pairs of the batch count.
    reduction : {"mean", "balanced", "anchor", "sum", "active"}
        How the losses of the pairs are combined:

        - "mean": divide their sum by the number of valid pairs;
        - "balanced": average similar and dissimilar pairs separately and add both means;
        - "anchor": divide their sum by the number of anchors;
        - "sum": add them up;
        - "active": like "balanced", over the pairs with a positive loss only; for the "plain" form.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If `pos_margin`, `distance` or the reduction "active" is given for a form other than "plain".

    Notes
    -----
    In the "hadsell" form, the gradient is zero for two dissimilar samples that coincide, because no direction separates
    them.
    """

    def __init__(
        self,
        margin: float | None = None,
        *,
        form: str = "hadsell",
        pos_margin: float = 0.0,
        distance: Distance | None = None,
        normalize: bool = False,
        miner: Any = None,
        reduction: str = "mean",
        block: int | None = None,
    ) -> None:
        check_options(self, FORMS, form=form)
        check_options(self, REDUCTIONS, reduction=reduction)
        default, own_distance = FORMS[form]
        if form != "plain":
            only_plain: list[tuple[str, Any]] = [("pos_margin", pos_margin), ("distance", distance)]
            if reduction == "active":
                only_plain.append(("reduction", reduction))
            for name, value in only_plain:
                if value:
                    raise ValueError(f"ContrastiveLoss: {name}={value!r} is for form='plain', got form={form!r}")
        super().__init__(distance=distance or own_distance, normalize=normalize, miner=miner, block=block)
        self.margin = default if margin is None else margin
        self.pos_margin = pos_margin
        self.form = form
        self.reduction = reduction

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        n_pos = count(rows.pos)
        n_neg = count(rows.neg)
        if self.form == "plain":
            pos_hinges, neg_hinges = plain_hinges(rows, self.margin, self.pos_margin)
            pull = pos_hinges.sum(1)
            push = neg_hinges.sum(1)
            if self.reduction == "active":
                n_pos = count(pos_hinges > 0)
                n_neg = count(neg_hinges > 0)
        else:
            pull, push = contrastive(rows, self.margin, self.form)
        if self.reduction in ("balanced", "active"):
            # two means, over the similar and over the dissimilar pairs
            return torch.stack([pull, push], 1), torch.stack([n_pos, n_neg], 1)
        pairs = n_pos + n_neg
        if self.reduction == "anchor":
            return pull + push, pairs > 0
        return pull + push, pairs
