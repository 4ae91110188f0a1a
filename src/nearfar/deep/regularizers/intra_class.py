"""Intra-class penalty, the experiment that motivates JRD (Chu et al., 2020).

    L = -sum_I 1/N_I sum_{i < j in I} e^{-||x_i - x_j||^2 / 2}        N_I = n_I (n_I - 1) / 2

On unit embeddings x. Added to a loss it compresses the seen classes, which the paper shows to hurt unseen ones.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..rows import Rows
from ..terms import RowLoss


def intra_class(rows: Rows) -> Tensor:
    """Return per anchor its part of its class's mean of -e^{-d/2} over pairs; 0 for a lone sample."""
    others = rows.pos.sum(1)  # n_I - 1
    kernel = torch.exp(-rows.d / 2).masked_fill(~rows.pos, 0).sum(1)
    return -kernel / (others * (others + 1)).clamp_min(1)


class IntraClassPenalty(RowLoss):
    """Minus the gaussian similarity within each class, averaged over its pairs and added over the classes.

    Parameters
    ----------
    normalize : bool
        Scale embeddings to unit length first, as the paper does.
    block : int, optional
        Anchors at a time.

    Notes
    -----
    The sum over classes is the paper's: the value grows with the number of classes of the batch. Classes of one
    sample contribute 0.
    """

    def __init__(self, *, normalize: bool = True, block: int | None = None) -> None:
        super().__init__(distance="sq_euclidean", normalize=normalize, block=block)
        self.reduction = "sum"

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return intra_class(rows), rows.pos.any(1)
