"""Mean absolute error on a linear head (survey of Ghojogh et al., 2022).

    L = sum_i ||o_i - t_i||_1        o_i = W z_i + b

t_i: one-hot vector of the sample's class, or its number; z_i: embedding. By default, the mean over samples is taken.
"""

from __future__ import annotations

from torch import Tensor

from ..proxies.heads import RegressionHead


def mae_head(residual: Tensor) -> Tensor:
    """Return the absolute residuals."""
    return residual.abs()


class MAEHead(RegressionHead):
    """Absolute errors on class targets, on which a large residual pulls no harder than a small one.

    Parameters
    ----------
    num_classes, embedding_dim : int
        Shape of the head.
    target : str
        "onehot", or "index" for the class number itself, which orders classes that have no order.
    reduction : str
        "mean" over samples, or "sum" (the survey's).
    block : int, optional
        Samples at a time.

    Notes
    -----
    Where a residual is zero, so is its gradient.
    """

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        *,
        target: str = "onehot",
        reduction: str = "mean",
        block: int | None = None,
    ) -> None:
        super().__init__(num_classes, embedding_dim, target=target, reduction=reduction, block=block)

    def residual_loss(self, residual: Tensor) -> Tensor:
        return mae_head(residual)
