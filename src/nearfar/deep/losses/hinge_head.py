"""Hinge loss on a linear head (Rosasco et al., 2004).

    L = sum_i sum_c [m - y_ic o_ic]_+        o_i = W z_i + b

y_ic is 1 if sample i is of class c, and -1 otherwise. For two classes, a single output with the targets -1 and 1 is
enough.
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
    """Hinge loss on a linear head: with weight decay on the head, a linear support vector machine on the embedding.

    Parameters
    ----------
    num_classes : int
        Number of classes C. Labels run from 0 to ``num_classes - 1``; -1 means an unknown class.
    embedding_dim : int
        Number of dimensions of the embeddings.
    margin : float
        Margin m, positive: outputs times their targets should be at least m.
    squared : bool
        Whether to square the hinges.
    multiclass : {"one_vs_rest"} or None
        "one_vs_rest" has one output per class. None has a single output for two classes, with the target -1 for class 0
        and 1 for class 1. Labels are 0 and 1 nevertheless: as in every loss, a label of -1 means an unknown class.
    reduction : {"mean", "sum"}
        "mean" averages the losses of the samples; "sum" adds them up, as in the survey of Ghojogh et al. (2022).
    block : int, optional
        Number of samples processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If `margin` is not positive, or `multiclass` is None and there are not two classes.
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
        return hinge_head(outputs, signs, margin=self.margin, squared=self.squared)
