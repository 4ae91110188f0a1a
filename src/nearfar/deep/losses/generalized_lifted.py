"""Generalized lifted structured loss (Hermans, Beyer & Leibe, 2017).

    L = mean_i [ log sum_{p in P(i)} e^{d_ip} + log sum_{n in N(i)} e^{m - d_in} ]_+

P(i), N(i): samples similar and dissimilar to i; d: unsquared distance. Whereas the lifted loss treats each positive on
its own, this loss treats all positives of an anchor at once, as a smooth form of the farthest positive against the
nearest negative.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..pairwise.comparison import Distance, Rows
from ..pairwise.hinges import near_columns
from ..pairwise.reductions import masked_logsumexp, near_and_rivals
from ..pairwise.row_loss import RowLoss


def generalized_lifted(rows: Rows, margin: float) -> tuple[Tensor, Tensor]:
    """Return the loss of each anchor, and 1 if it has similar and dissimilar samples."""
    columns, keep = near_columns(rows)
    both = keep.any(1) & rows.neg.any(1)
    near, rivals = near_and_rivals(rows.d, columns, rows.neg, -1.0)
    # log sum_p e^{d_ip} + log sum_n e^{m - d_in}
    gap = masked_logsumexp(near, keep) + rivals + margin
    return torch.where(both, gap, 0.0).clamp_min(0), both


class GeneralizedLiftedLoss(RowLoss):
    """Compare all positives of an anchor with all of its negatives, each by a smooth maximum.

    Parameters
    ----------
    margin : float
        Margin m between the distances of positives and of negatives, in the unit of the distance.
    distance : str or callable
        Dissimilarity of two embeddings: "euclidean" (the paper's), "sq_euclidean", "cosine" or "dot", or a callable
        that takes anchors of shape (b, d) and references of shape (m, d) and returns their dissimilarities of shape
        (b, m), such as ``LpDistance(1)``.
    normalize : bool
        Whether to scale the embeddings to unit length first; the paper does not.
    miner : callable, optional
        Miner that selects the positives and negatives that count, such as ``BatchHard()``. By default, all of them
        count.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Notes
    -----
    The mean is over the anchors that have both a positive and a negative. Several positives act like one at a greater
    distance: k positives at the same distance act like one at this distance plus log k.
    """

    def __init__(
        self,
        margin: float = 1.0,
        *,
        distance: Distance = "euclidean",
        normalize: bool = False,
        miner: Any = None,
        block: int | None = None,
    ) -> None:
        super().__init__(distance=distance, normalize=normalize, miner=miner, block=block)
        self.margin = margin

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return generalized_lifted(rows, self.margin)
