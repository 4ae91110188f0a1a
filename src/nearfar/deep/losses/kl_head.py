"""Kullback-Leibler divergence on a softmax head (Kullback & Leibler, 1951).

    forward:  L = sum_i sum_l y_il log(y_il / q_il)        reverse:  L = sum_i sum_l q_il log(q_il / y_il)

y_i: target distribution over classes; q_i = softmax(W z_i + b): predicted distribution of the embedding z_i. By
default, the mean over the samples replaces the sum.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...settings import check_options
from ..autograd import traced
from ..proxies.heads import HeadLoss, smoothed

DIRECTIONS = ("forward", "reverse")


def kl_head(outputs: Tensor, targets: Tensor, direction: str) -> Tensor:
    """Return the divergence per sample between target distributions and the softmax of the outputs."""
    log_q = outputs.log_softmax(1)
    if direction == "reverse":
        return (log_q.exp() * (log_q - targets.log())).sum(1)
    return (torch.xlogy(targets, targets) - targets * log_q).sum(1)


class KLHead(HeadLoss):
    """Kullback-Leibler divergence between the predicted and the target class probabilities.

    Parameters
    ----------
    num_classes : int
        Number of classes C. Labels run from 0 to ``num_classes - 1``; -1 means an unknown class.
    embedding_dim : int
        Number of dimensions of the embeddings.
    direction : {"forward", "reverse"}
        "forward" is KL(y || q), the divergence of the prediction q from the target y. "reverse" is KL(q || y), as the
        survey prints it. It is infinite where a target is 0, so it needs `smoothing` or strictly positive target rows.
    smoothing : float
        Label smoothing: weight of the uniform distribution in the targets, in [0, 1).
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
    sum to 1. With one-hot targets, the loss is the cross-entropy.

    The survey describes a linear last layer, whose outputs can be negative; here, they pass through a softmax.
    """

    probabilities = True

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        *,
        direction: str = "forward",
        smoothing: float = 0.0,
        reduction: str = "mean",
        block: int | None = None,
    ) -> None:
        super().__init__(num_classes, embedding_dim, reduction=reduction, block=block)
        check_options(self, DIRECTIONS, direction=direction)
        if not 0 <= smoothing < 1:
            raise ValueError(f"KLHead: smoothing must be in [0, 1), got {smoothing}")
        self.direction = direction
        self.smoothing = smoothing

    def term(self, outputs: Tensor, targets: Tensor) -> Tensor:
        known = (targets != 0).any(1)
        y = smoothed(targets, self.smoothing)
        if self.direction == "reverse":
            self._check_positive(y, known)
            y = torch.where(known[:, None], y, 1.0)  # the rows of unknown class are not counted
        return kl_head(outputs, y, self.direction)

    def _check_positive(self, y: Tensor, known: Tensor) -> None:
        if y.device.type != "cpu" or traced():
            return
        zero = int(((y <= 0).any(1) & known).sum())
        if zero:
            raise ValueError(
                f"KLHead: direction='reverse' needs positive targets (smoothing > 0), {zero} rows have zeros"
            )
