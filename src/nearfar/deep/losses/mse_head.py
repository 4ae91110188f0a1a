"""Mean squared error on a linear head (survey of Ghojogh et al., 2022).

    L = sum_i ||o_i - t_i||^2        o_i = W z_i + b

t_i: one-hot vector of the sample's class, or the number of the class; z_i: embedding. By default, the mean over the
samples replaces the sum.
"""

from __future__ import annotations

from torch import Tensor

from ..proxies.heads import RegressionHead


def mse_head(residual: Tensor) -> Tensor:
    """Return the squared residuals."""
    return residual.square()


class MSEHead(RegressionHead):
    """Least squares on class targets.

    Parameters
    ----------
    num_classes : int
        Number of classes C. Labels run from 0 to ``num_classes - 1``; -1 means an unknown class.
    embedding_dim : int
        Number of dimensions of the embeddings.
    target : {"onehot", "index"}
        "onehot" regresses the one-hot vector of the class with one output per class; "index" regresses the class number
        with a single output, as in the survey of Ghojogh et al. (2022), which imposes an order on the classes.
    reduction : {"mean", "sum"}
        "mean" averages the losses of the samples; "sum" adds them up, as in the survey.
    block : int, optional
        Number of samples processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Notes
    -----
    If it is trained to convergence on fixed embeddings, "onehot" is least-squares classification.
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
        return mse_head(residual)
