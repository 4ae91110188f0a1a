"""Generalized end-to-end loss for speaker verification, GE2E (Wan et al., 2018).

    S_ic = t cos(x_i, mu_c) + b,    S_iy = t cos(x_i, mu_y without x_i) + b
    softmax:   L = mean_i [-S_iy + log sum_c e^{S_ic}]
    contrast:  L = mean_i [1 - sigmoid(S_iy) + max_{c != y} sigmoid(S_ic)]

mu_c: mean of the unit embeddings of class c in the batch; y: class of sample i; t: scale, b: bias, both learned. The
logarithm of t is learned, so that t remains positive. The bias cancels in the softmax.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...settings import check_options
from ..objective.batch import Batch
from ..objective.terms import SetTerm
from ..proxies.logits import own_and_others, softmax_loss
from ..unit_vectors import unit
from ..wholebatch.batch_classes import batch_classes, of_known_class

LOSSES_OF_CENTERS = ("softmax", "contrast")


def ge2e(own: Tensor, logits: Tensor, y: Tensor, form: str) -> Tensor:
    """Return the (n,) losses from S_iy, (n,), and S_ic, (n, C), of which the own classes are not read."""
    if form == "softmax":
        return softmax_loss(own, own_and_others(logits, y)[1])
    nearest = logits.scatter(1, y[:, None], -torch.inf).amax(1)
    return torch.sigmoid(-own) + torch.sigmoid(nearest)


class GE2ELoss(SetTerm):
    """Compare each sample with the means of the classes of its batch, the own one without the sample itself.

    Parameters
    ----------
    form : {"softmax", "contrast"}
        "softmax" compares with the means of all other classes, "contrast" with the nearest of them.
    scale : float
        Scale t of the cosines at the start, positive.
    bias : float
        Bias b at the start. It has no effect on the softmax.
    learn : bool
        Whether scale and bias are learned.

    Attributes
    ----------
    log_factor : Parameter of shape (1,)
        Logarithm of t / `scale`, 0 at the start.
    bias : Parameter of shape (1,) or None
        Bias b; None with the softmax.

    Raises
    ------
    ValueError
        If `scale` is not positive, or the form is unknown.

    Notes
    -----
    The mean is over the samples whose class has another one in the batch; other samples are a mean to compare with.
    The paper trains text-independent speaker verification with "softmax", and text-dependent with "contrast".

    Examples
    --------
    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> round(GE2ELoss(scale=1.0)(x, torch.tensor([0, 0, 1, 1])).item(), 4)  # log(1 + e^{0 - 1})
    0.3133
    """

    def __init__(self, form: str = "softmax", *, scale: float = 10.0, bias: float = -5.0, learn: bool = True) -> None:
        super().__init__()
        check_options(self, LOSSES_OF_CENTERS, form=form)
        if scale <= 0:
            raise ValueError(f"GE2ELoss: scale must be positive, got {scale}")
        self.form = form
        self.scale = scale
        self.log_factor = nn.Parameter(torch.zeros(1), requires_grad=bool(learn))
        if form == "contrast":
            self.bias = nn.Parameter(torch.tensor([float(bias)]), requires_grad=bool(learn))
        else:
            self.register_parameter("bias", None)

    def value(self, batch: Batch) -> Tensor:
        if batch.ref is not None:
            raise ValueError("GE2ELoss: ref does not apply, samples are compared with the class means of the batch")
        batch = of_known_class(batch, "GE2ELoss")
        if not len(batch.x):  # DistributedDataParallel waits for the gradient of each parameter
            return batch.x.sum() * 0 + sum(part[:0].sum() for part in self.parameters())
        classes = batch_classes(batch.classes("GE2ELoss"))
        x = unit(batch.x)
        sums = classes.sums(x)  # a mean and its sum have one direction
        y = classes.member
        factor = self.scale * self.log_factor.to(x.dtype).exp()
        bias = 0.0 if self.bias is None else self.bias.to(x.dtype)
        logits = (factor * (x @ unit(sums).T) + bias).masked_fill(classes.sizes == 0, -torch.inf)
        own = factor * (x * unit(sums[y] - x)).sum(1) + bias
        counts = classes.sizes[y] > 1
        if classes.known is not None:
            counts = counts & classes.known
        losses = ge2e(own, logits, y, self.form)
        return torch.where(counts, losses, 0.0).sum() / counts.sum().clamp_min(1)

    def learned_values(self) -> dict[str, float]:
        if not self.log_factor.requires_grad:
            return {}
        values = {"scale": self.scale * float(self.log_factor.detach().exp())}
        return values if self.bias is None else {**values, "bias": float(self.bias.detach())}
