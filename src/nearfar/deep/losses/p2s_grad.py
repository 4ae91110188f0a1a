"""P2SGrad, probability to similarity gradient (Zhang, Zhao, Yan, Gao, Qiao, Wang & Li, 2019).

    L = mean_i 1/2 sum_c (cos theta_ic - [c = y_i])^2

theta_ic: angle between embedding i and the proxy of class c. The paper states only a gradient, that of a softmax of
cosines with the cosines instead of the probabilities. This is the loss with that gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..objective.relations import UNKNOWN
from ..proxies.class_proxies import ClassProxyLoss


def p2s_grad(cosine: Tensor, own: Tensor) -> Tensor:
    """Return the loss per sample, from the (n, C) cosines and the (n,) cosines to the own class."""
    return cosine.square().sum(1) / 2 - own + 0.5


class P2SGradLoss(ClassProxyLoss):
    """Pull the cosine to the proxy of the sample's own class to 1 and those to the others to 0, with nothing to tune.

    Parameters
    ----------
    num_classes : int
        Number of classes C. Labels run from 0 to ``num_classes - 1``; -1 means an unknown class.
    embedding_dim : int
        Number of dimensions of the embeddings.
    block : int, optional
        Number of samples processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Notes
    -----
    In contrast to a softmax that is already certain, the gradient does not vanish before the angle to the sample's own
    class is small.
    """

    scale = 1.0

    def __init__(self, num_classes: int, embedding_dim: int, *, block: int | None = None) -> None:
        super().__init__(num_classes, embedding_dim, block=block)

    def losses(self, logits: Tensor, x: Tensor, w: Tensor, y: Tensor, rows: slice, found: Tensor | None) -> Tensor:
        y = y[rows]
        own = logits.gather(1, y.clamp_min(0)[:, None]).squeeze(1)
        return torch.where(y == UNKNOWN, 0.0, p2s_grad(logits, own))  # the scale is 1: logits are cosines
