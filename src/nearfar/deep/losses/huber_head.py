"""Huber loss on a linear head (Huber, 1964).

    L = sum_i h(o_i - t_i)        h(r) = r^2 / 2 for |r| <= delta, delta (|r| - delta / 2) beyond

The targets t_i are the one-hot vectors of the samples' classes, or the numbers of the classes; o_i = W z_i + b are the
outputs of a linear layer with bias on the embeddings z_i.
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
    """Huber loss on class targets: squared for small residuals, absolute for large ones.

    Parameters
    ----------
    num_classes : int
        Number of classes C. Labels run from 0 to ``num_classes - 1``; -1 means an unknown class.
    embedding_dim : int
        Number of dimensions of the embeddings.
    delta : float
        Residual up to which the loss is quadratic, and largest slope of the loss; positive.
    target : {"onehot", "index"}
        "onehot" regresses the one-hot vector of the class with one output per class; "index" regresses the class number
        with a single output, which imposes an order on the classes.
    reduction : {"mean", "sum"}
        "mean" averages the losses of the samples; "sum" adds them up, as in the survey of Ghojogh et al. (2022).
    block : int, optional
        Number of samples processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If `delta` is not positive.
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
