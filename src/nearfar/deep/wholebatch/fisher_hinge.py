"""What both Fisher discriminant losses share: a hinge on scatters of the batch, and a ridge on the last layer U."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor, nn

from ...settings import check_options
from ..objective.network_layers import BorrowsLayer
from ..pairwise.comparison import Comparison
from ..pairwise.contextual import TwoPassLoss

REDUCTIONS = ("sum", "mean")


class FisherScatters(NamedTuple):
    """For the whole batch, without gradient: the number of pairs or triplets, and 1 if the hinge is active, else 0."""

    number: Tensor
    active: Tensor


class FisherHinge(BorrowsLayer, TwoPassLoss):
    """Base class of both Fisher discriminant losses, with their settings and |U|^2; see ``FisherTripletLoss``."""

    def __init__(
        self,
        margin: float = 0.25,
        *,
        lam: float = 0.01,
        layer: nn.Linear | str | None = None,
        ridge: float = 1e-4,
        normalize: bool = False,
        miner: Any = None,
        reduction: str = "sum",
        block: int | None = None,
    ) -> None:
        super().__init__(distance="sq_euclidean", normalize=normalize, miner=miner, block=block)
        check_options(self, REDUCTIONS, reduction=reduction)
        if not 0 <= lam <= 2:
            raise ValueError(f"{type(self).__name__}: lam must be in [0, 2], got {lam}")
        self.margin = margin
        self.lam = lam
        self.ridge = ridge
        self.reduction = reduction
        self.borrow(layer)

    def square_norm(self, like: Tensor) -> Tensor:
        """Return |U|^2, a scalar of the type of a tensor; 0 without a layer."""
        if self.layer is None:
            return like.new_zeros(())
        # |U|_F^2
        return self.layer.weight.to(like.dtype).square().sum()

    def differentiable_tensors(self, comparison: Comparison) -> tuple[Tensor, ...]:
        found = super().differentiable_tensors(comparison)
        if self.layer is None:
            return found
        return (*found, self.layer.weight)
