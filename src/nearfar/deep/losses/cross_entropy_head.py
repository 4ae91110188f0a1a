"""Cross-entropy on a softmax head (an upper bound of pairwise metric losses: Boudiaf et al., 2020).

    L = -sum_i sum_l y_il log softmax(o_i / T)_l        o_i = W z_i + b

y_i: target distribution over classes; z_i: embedding. By default, the mean over the samples replaces the sum.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ..objective.batch import Batch
from ..objective.relations import UNKNOWN, LabelSets
from ..proxies.class_softmax import is_large, own_and_others_of
from ..proxies.heads import HeadLoss, smoothed
from ..proxies.logits import softmax_loss
from ..unit_vectors import unit


def cross_entropy_head(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy per sample between target distributions and the softmax of the outputs."""
    return -(targets * outputs.log_softmax(1)).sum(1)


class CrossEntropyHead(HeadLoss):
    """The usual classification loss: softmax cross-entropy on a linear layer.

    Parameters
    ----------
    num_classes : int
        Number of classes C. Labels run from 0 to ``num_classes - 1``; -1 means an unknown class.
    embedding_dim : int
        Number of dimensions of the embeddings.
    temperature : float
        Temperature T that divides the outputs, positive.
    smoothing : float
        Label smoothing: weight of the uniform distribution in the targets, in [0, 1).
    normalize : bool
        Whether the outputs are cosines, without bias. With T = 1/s, this is AM-softmax with scale s and margin 0.
    reduction : {"mean", "sum"}
        "mean" averages the losses of the samples; "sum" adds them up, as in the survey of Ghojogh et al. (2022).
    block : int, optional
        Number of samples processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If `smoothing` is outside [0, 1).

    Notes
    -----
    To give targets other than one class per sample, pass ``LabelSets(probabilities)`` as labels; each row is scaled to
    sum to 1.
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

    def local_value(self, batch: Batch) -> Tensor:
        x = batch.x[batch.anchors]
        large = self.block is None and is_large(len(x), self.num_classes, x.device)
        if not large or self.smoothing or isinstance(batch.y, LabelSets):
            return super().local_value(batch)
        y = self.checked_labels(batch)
        weight, bias = self.parameters_for(x)
        x = unit(x, 1 / self.temperature) if bias is None else x / self.temperature
        bias = None if bias is None else bias / self.temperature
        own, others = own_and_others_of(x, weight, y[batch.anchors], bias=bias, cosines=bias is None)
        losses = torch.where(y[batch.anchors] != UNKNOWN, softmax_loss(own, others), 0.0)
        return self.reduced(losses.sum(), y != UNKNOWN)

    def class_term(self, outputs: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(outputs, y, ignore_index=UNKNOWN, reduction="none", label_smoothing=self.smoothing)

    def term(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy_head(outputs, smoothed(targets, self.smoothing))
