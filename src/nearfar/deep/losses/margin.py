"""Margin loss (Wu, Manmatha, Smola & Krähenbühl, 2017).

    L = 1/K ( sum_{(a,p) in P} [alpha + rho_ap - beta]_+  +  sum_{(a,n) in N} [alpha - rho_an + beta]_+ )  +  nu beta

K: number of positive terms, rho: unsquared distance of unit vectors, beta: the learned boundary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .. import processes
from ..batch import Batch
from ..order import hinges, negatives, positives
from ..rows import Rows, count
from ..terms import RowLoss


def margin(rows: Rows, alpha: float, beta: Tensor) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum of its hinges and the number of positive ones, over all or the mined pairs."""
    if rows.triplets is None:
        columns, keep = positives(rows)
        d_an = negatives(rows)
    else:
        columns, keep = rows.triplets.positive, rows.triplets.keep
        d_an = torch.where(keep, rows.d.gather(1, rows.triplets.negative), torch.inf)
    pull = torch.where(keep, (alpha + rows.d.gather(1, columns) - beta).clamp_min(0), 0.0)
    push, active = hinges((alpha + beta).expand(len(d_an), 1), d_an)
    return pull.sum(1) + push, count(pull > 0) + active[:, 0]


class MarginLoss(RowLoss):
    """Margin loss with a learnable boundary, over all or the mined pairs.

    Parameters
    ----------
    margin : float
        alpha.
    boundary : float
        beta at the start, an unsquared distance.
    learn_boundary : bool
        Make beta the parameter `boundary`; give it an optimiser group of its own (paper: learning rate 0.1).
    nu : float
        Weight of the penalty on beta.
    normalize : bool
        Scale embeddings to unit length first, as the paper does.
    mine : callable, optional
        ``DistanceWeighted()`` is the paper's; None takes all pairs.
    block : int, optional
        Anchors at a time.

    Notes
    -----
    One boundary for all classes. A mined triplet counts as its two pairs.
    """

    boundary: Tensor

    def __init__(
        self,
        margin: float = 0.2,
        *,
        boundary: float = 1.2,
        learn_boundary: bool = True,
        nu: float = 0.0,
        normalize: bool = True,
        mine: Any = None,
        block: int | None = None,
    ) -> None:
        super().__init__(distance="euclidean", normalize=normalize, mine=mine, block=block)
        self.margin, self.nu = margin, nu
        self.boundary = nn.Parameter(torch.tensor(float(boundary)), requires_grad=learn_boundary)

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return margin(rows, self.margin, self.boundary.to(rows.d.dtype))

    def share(self, batch: Batch) -> Tensor:
        value = super().share(batch)
        return value + self.nu * self.boundary.to(value.dtype) / processes.world() if self.nu else value
