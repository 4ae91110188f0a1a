"""Cross-entropy on a softmax head (an upper bound of pairwise metric losses: Boudiaf et al., 2020).

    L = -sum_i sum_l y_il log softmax(o_i / T)_l        o_i = W z_i + b

y_i: target distribution over classes; z_i: embedding. By default, the mean over the samples replaces the sum.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ..objective.batch import Batch
from ..objective.relations import UNKNOWN, LabelSets
from ..proxies.class_softmax import is_large, own_and_others_of, own_others_and_sums_of
from ..proxies.divided_classes import ClassesHere, DivisibleClasses, added_up, log_added_up
from ..proxies.heads import HeadLoss, smoothed
from ..proxies.logits import softmax_loss
from ..unit_vectors import unit


def cross_entropy_head(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy per sample between target distributions and the softmax of the outputs."""
    return -(targets * outputs.log_softmax(1)).sum(1)


class CrossEntropyHead(HeadLoss, DivisibleClasses):
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
        n = batch.anchors.stop - batch.anchors.start
        large = self.block is None and is_large(n, self.num_classes, batch.x.device)
        if not large or isinstance(batch.y, LabelSets):
            return super().local_value(batch)
        y = self.checked_labels(batch)
        weight, bias = self.parameters_for(batch.x)
        return self.compare_classes(batch, y, weight) if bias is None else self.compare_classes(batch, y, weight, bias)

    @property
    def can_draw_classes(self) -> bool:
        return True

    @property
    def can_distribute_classes(self) -> bool:
        return True

    def class_parameters(self) -> dict[str, nn.Parameter]:
        assert self.proxies is not None
        return {"proxies": self.proxies} if self.bias is None else {"proxies": self.proxies, "bias": self.bias}

    def compare_classes(self, batch: Batch, y: Tensor, *parameters: Tensor) -> Tensor:
        return self.reduced(self._losses(batch, y, *parameters).sum(), y != UNKNOWN)

    def sample_losses_of_classes(self, batch: Batch, y: Tensor, *parameters: Tensor) -> Tensor:
        return self.reduced(self._losses(batch, y, *parameters) * len(y), y != UNKNOWN)

    def _losses(self, batch: Batch, y: Tensor, *parameters: Tensor) -> Tensor:
        """Return the losses of this process's samples, (k,), without the matrix of logits."""
        of_anchors = y[batch.anchors]
        # with smoothing, the loss also reads the mean logit
        own, others, sums = self.numbers(batch.x[batch.anchors], of_anchors, *parameters)
        losses = self.per_sample(own, others, sums / len(parameters[0]))
        return torch.where(of_anchors != UNKNOWN, losses, 0.0)

    def compare_here(self, x: Tensor, here: ClassesHere, *parameters: Tensor) -> Tensor:
        own, others, sums = self.numbers(x, here.own, *parameters)
        sums = added_up(sums) if self.smoothing else sums
        # each process has the classes of its own: one of them has the own logit, and the others add 0
        losses = self.per_sample(added_up(own), log_added_up(others), sums / here.number)
        return self.reduced(torch.where(here.known, losses, 0.0).sum(), here.known)

    def numbers(
        self, x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return what `per_sample` reads, (n,) each, without the matrix of logits: the third is their sum.

        y, (n,), has the place of each sample's own class in the weight, -1 if it has none of these classes.
        """
        if bias is None:
            x = unit(x, 1 / self.temperature)
        else:
            x = x / self.temperature
            # (W z + b) / T
            bias = bias / self.temperature
        if self.smoothing:
            return own_others_and_sums_of(x, weight, y, bias=bias, cosines=bias is None)
        own, others = own_and_others_of(x, weight, y, bias=bias, cosines=bias is None)
        return own, others, torch.zeros_like(own)

    def per_sample(self, own: Tensor, others: Tensor, mean: Tensor) -> Tensor:
        """Return the loss of each sample from its own logit, the log-sum-exp of the others, and the mean of all.

        With lse = log sum_l e^{z_l} and smoothing e: (1 - e) (lse - z_y) + e mean_l (lse - z_l) = lse - z_y + e (z_y -
        mean_l z_l)
        """
        loss = softmax_loss(own, others)
        return loss + self.smoothing * (own - mean) if self.smoothing else loss

    def class_term(self, outputs: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(outputs, y, ignore_index=UNKNOWN, reduction="none", label_smoothing=self.smoothing)

    def term(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy_head(outputs, smoothed(targets, self.smoothing))
