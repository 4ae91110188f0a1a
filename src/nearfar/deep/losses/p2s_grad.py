"""P2SGrad, probability to similarity gradient (Zhang, Zhao, Yan, Gao, Qiao, Wang & Li, 2019).

    L = mean_i 1/2 sum_c (cos theta_ic - [c = y_i])^2

theta_ic: angle between embedding i and the proxy of class c. The paper only states a gradient: that of a softmax of
cosines, with the cosines instead of the probabilities. This is the loss with that gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..objective.relations import UNKNOWN
from ..proxies.class_proxies import ClassProxyLoss
from ..unit_vectors import unit


def p2s_grad(cosine: Tensor, own: Tensor) -> Tensor:
    """Return the loss per sample, from the (n, C) cosines and the (n,) cosines to the own class."""
    return cosine.square().sum(1) / 2 - own + 0.5


class P2SGradLoss(ClassProxyLoss):
    """Pull cosines to one proxy per class to 1 for the own class and to 0 for the others; nothing to tune.

    Parameters
    ----------
    num_classes, embedding_dim : int
        Shape of the proxies.
    block : int, optional
        Samples at a time.

    Notes
    -----
    The gradient does not vanish where the softmax is certain but the angle to the own class is not yet small.
    """

    scale = 1.0

    def __init__(self, num_classes: int, embedding_dim: int, *, block: int | None = None) -> None:
        super().__init__(num_classes, embedding_dim, block=block)

    def losses(self, x: Tensor, w: Tensor, y: Tensor, rows: slice, found: Tensor | None) -> Tensor:
        cosine = unit(x[rows]) @ w.T
        y = y[rows]
        own = cosine.gather(1, y.clamp_min(0)[:, None]).squeeze(1)
        return torch.where(y == UNKNOWN, 0.0, p2s_grad(cosine, own))
