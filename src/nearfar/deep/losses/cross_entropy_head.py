"""Cross-entropy on a softmax head (an upper bound of pairwise metric losses: Boudiaf et al., 2020).

    L = -sum_i sum_l y_il log softmax(o_i / T)_l        o_i = W z_i + b

y_i: target distribution over classes; z_i: embedding. By default, the mean over samples is taken.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import cross_entropy

from ..objective.relations import UNKNOWN
from ..proxies.heads import HeadLoss, smoothed


def cross_entropy_head(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy per sample between target distributions and the softmax of the outputs."""
    return -(targets * outputs.log_softmax(1)).sum(1)


class CrossEntropyHead(HeadLoss):
    """The usual classification loss.

    Parameters
    ----------
    num_classes, embedding_dim : int
        Shape of the head.
    temperature : float
        T.
    smoothing : float
        Share of the uniform distribution in the targets.
    normalize : bool
        Make the outputs cosines, without bias; with T = 1/s this is AM-softmax of scale s and margin 0.
    reduction : str
        "mean" over samples, or "sum" (the survey's).
    block : int, optional
        Samples at a time.

    Notes
    -----
    Targets other than one class per sample come as ``LabelSets(probabilities)``; rows are scaled to sum 1.
    """

    probabilities = True

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        *,
        temperature: float = 1.0,
        smoothing: float = 0.0,
        normalize: bool = False,
        reduction: str = "mean",
        block: int | None = None,
    ) -> None:
        super().__init__(num_classes, embedding_dim, normalize=normalize, reduction=reduction, block=block)
        if not 0 <= smoothing < 1:
            raise ValueError(f"CrossEntropyHead: smoothing must be in [0, 1), got {smoothing}")
        self.temperature = temperature
        self.smoothing = smoothing

    def logits(self, x: Tensor, *w: Tensor) -> Tensor:
        return self.linear(x, 1 / self.temperature, *w)

    def class_term(self, outputs: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(outputs, y, ignore_index=UNKNOWN, reduction="none", label_smoothing=self.smoothing)

    def term(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy_head(outputs, smoothed(targets, self.smoothing))
