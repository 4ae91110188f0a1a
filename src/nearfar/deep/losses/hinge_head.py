"""Hinge loss on a linear head (Rosasco et al., 2004).

    L = sum_i sum_c [m - y_ic o_ic]_+        o_i = W z_i + b

y_ic: 1 where sample i is of class c and -1 elsewhere; for two classes one output, y = -1 or 1, is enough.
"""

from __future__ import annotations

from torch import Tensor

from ...settings import check_options
from ..proxies.heads import HeadLoss


def hinge_head(outputs: Tensor, signs: Tensor, margin: float, squared: bool) -> Tensor:
    """Return per sample the sum over outputs of [m - y o]_+, or of its square."""
    short = (margin - signs * outputs).clamp_min(0)
    return (short.square() if squared else short).sum(1)


class HingeHead(HeadLoss):
    """A linear support vector machine on the embedding, once the head has weight decay.

    Parameters
    ----------
    num_classes, embedding_dim : int
        Shape of the head.
    margin : float
        m.
    squared : bool
        Square the hinges.
    multiclass : str, optional
        "one_vs_rest": one output per class. None: one output for two classes, class 0 to -1 and class 1 to 1. Labels
        are 0 and 1: a label of -1 says, as for every loss, that the class is unknown.
    reduction : str
        "mean" over samples, or "sum" (the survey's).
    block : int, optional
        Samples at a time.
    """

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        *,
        margin: float = 1.0,
        squared: bool = False,
        multiclass: str | None = "one_vs_rest",
        reduction: str = "mean",
        block: int | None = None,
    ) -> None:
        check_options(self, ("one_vs_rest", None), multiclass=multiclass)
        if multiclass is None and num_classes != 2:
            raise ValueError(f"HingeHead: multiclass=None is for 2 classes, got num_classes={num_classes}")
        if margin <= 0:
            raise ValueError(f"HingeHead: margin must be positive, got {margin}")
        outputs = 1 if multiclass is None else None
        super().__init__(num_classes, embedding_dim, outputs=outputs, reduction=reduction, block=block)
        self.margin = margin
        self.squared = squared
        self.multiclass = multiclass

    def term(self, outputs: Tensor, targets: Tensor) -> Tensor:
        signs = 2 * (targets != 0).to(outputs.dtype) - 1
        signs = signs[:, 1:] if self.multiclass is None else signs
        return hinge_head(outputs, signs, self.margin, self.squared)
