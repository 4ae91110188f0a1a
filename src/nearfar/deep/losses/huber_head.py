"""Huber loss on a linear head (Huber, 1992).

    L = sum_i h(o_i - t_i)        h(r) = r^2 / 2 for |r| <= delta, delta (|r| - delta / 2) beyond

t_i: one-hot vector of the sample's class, or its number; o_i = W z_i + b; z_i: embedding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..proxies.heads import RegressionHead


def huber_head(residual: Tensor, delta: float) -> Tensor:
    """Return the Huber loss of each residual."""
    size = residual.abs()
    return torch.where(size <= delta, size.square() / 2, delta * (size - delta / 2))


class HuberHead(RegressionHead):
    """Squared errors where they are small, absolute ones beyond.

    Parameters
    ----------
    num_classes, embedding_dim : int
        Shape of the head.
    delta : float
        Residual up to which the loss is quadratic, and the largest slope.
    target : str
        "onehot", or "index" for the class number itself, which orders classes that have no order.
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
        delta: float = 1.0,
        target: str = "onehot",
        reduction: str = "mean",
        block: int | None = None,
    ) -> None:
        super().__init__(num_classes, embedding_dim, target=target, reduction=reduction, block=block)
        if delta <= 0:
            raise ValueError(f"HuberHead: delta must be positive, got {delta}")
        self.delta = delta

    def residual_loss(self, residual: Tensor) -> Tensor:
        return huber_head(residual, self.delta)
