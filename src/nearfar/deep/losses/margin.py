"""Margin loss (Wu, Manmatha, Smola & Krähenbühl, 2017).

    L = 1/K ( sum_{(a,p) in P} [alpha + rho_ap - beta_a]_+  +  sum_{(a,n) in N} [alpha - rho_an + beta_a]_+ )
        + nu mean_a beta_a,        beta_a = beta + beta of a's class + beta of sample a

K: number of positive terms, rho: unsquared distance of unit vectors, beta: the learned boundaries.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..objective.batch import Batch, check_range
from ..objective.relations import UNKNOWN
from ..pairwise.comparison import Comparison, Rows, count
from ..pairwise.contextual import ContextualRowLoss
from ..pairwise.hinges import hinges, near_distances, negatives


class Boundary(NamedTuple):
    """The boundary beta of all anchors, (), or of each sample of the batch as an anchor, (n,)."""

    beta: Tensor


def margin(rows: Rows, alpha: float, beta: Tensor) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum of its hinges and the number of positive ones; beta is () or (b, 1)."""
    if rows.triplets is None:
        d_ap, keep = near_distances(rows)
        d_an = negatives(rows)
    else:
        d_ap = rows.d.gather(1, rows.triplets.positive)
        keep = rows.triplets.keep
        # an infinite distance is beyond every boundary: its hinge is 0
        d_an = torch.where(keep, rows.d.gather(1, rows.triplets.negative), torch.inf)
    pull = torch.where(keep, (alpha + d_ap - beta).clamp_min(0), 0.0)  # (b, k)
    # sum_n [alpha + beta - d_an]_+: hinges of one threshold per row with all of its values
    push, active = hinges((alpha + beta).expand(len(d_an), 1), d_an)
    return pull.sum(1) + push, count(pull > 0) + active[:, 0]


class MarginLoss(ContextualRowLoss):
    """Margin loss with learnable boundaries over all pairs of the batch, or over those that a miner selects.

    Parameters
    ----------
    margin : float
        Margin alpha on either side of the boundary.
    boundary : float
        Initial value of the boundary beta, an unsquared distance.
    learn_boundary : bool
        Whether beta is trained. It is the parameter `boundary`, which should have a separate optimizer group (the
        paper uses a learning rate of 0.1).
    per_class : int, optional
        Number of classes, each of which gets a learned offset that is added to beta: the parameter
        `class_offsets`, initially 0. Labels are then class numbers from 0; a sample of unknown class (-1) has no
        offset. By default, there are no offsets of classes.
    per_sample : int, optional
        Number of samples in the data set, each of which gets a learned offset that is added to beta: the
        parameter `sample_offsets`, initially 0. The loss is then called with ``ids=``, the numbers of the samples; an
        unknown sample (-1) has no offset. By default, there are no offsets of samples.
    nu : float
        Weight of the penalty on the mean boundary of the samples in the batch.
    normalize : bool
        Whether to scale the embeddings to unit length first, as the paper does.
    miner : callable, optional
        Miner that selects the pairs that count; the paper uses ``DistanceWeighted()``. By default, all pairs of the
        batch count.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If `per_class` or `per_sample` is below 1.

    Notes
    -----
    The boundary of a pair is that of its anchor. A mined triplet counts as its two pairs.
    """

    boundary: Tensor
    class_offsets: Tensor | None
    sample_offsets: Tensor | None

    def __init__(
        self,
        margin: float = 0.2,
        *,
        boundary: float = 1.2,
        learn_boundary: bool = True,
        per_class: int | None = None,
        per_sample: int | None = None,
        nu: float = 0.0,
        normalize: bool = True,
        miner: Any = None,
        block: int | None = None,
    ) -> None:
        super().__init__(distance="euclidean", normalize=normalize, miner=miner, block=block)
        self.margin = margin
        self.nu = nu
        # one entry instead of a scalar, because FSDP2 cannot shard scalars
        self.boundary = nn.Parameter(torch.tensor([float(boundary)]), requires_grad=bool(learn_boundary))
        self.class_offsets = _offsets("per_class", per_class)
        self.sample_offsets = _offsets("per_sample", per_sample)

    def boundaries(self, batch: Batch) -> Tensor:
        """Return beta of all samples, (), or of each sample of the batch, (n,)."""
        beta = self.boundary.to(batch.x.dtype).squeeze(0)
        if self.class_offsets is not None:
            y = batch.class_numbers("MarginLoss", len(self.class_offsets))
            beta = beta + _picked(self.class_offsets, y, beta.dtype)
        if self.sample_offsets is not None:
            if batch.ids is None:
                raise ValueError("MarginLoss: per_sample needs ids=, one sample number per embedding")
            check_range("MarginLoss: ids", batch.ids, len(self.sample_offsets))
            beta = beta + _picked(self.sample_offsets, batch.ids, beta.dtype)
        return beta

    def find(self, c: Comparison, batch: Batch) -> Boundary:
        return Boundary(self.boundaries(batch))

    def second_pass(self, rows: Rows, boundary: Boundary) -> tuple[Tensor, Tensor]:
        beta = boundary.beta
        if beta.ndim:
            beta = beta[rows.first : rows.first + len(rows.d), None]  # (n,) -> (b, 1), those of the block's anchors
        return margin(rows, self.margin, beta)

    def penalty(self, batch: Batch) -> Tensor | None:
        if not self.nu:
            return None
        beta = self.boundaries(batch)
        return self.nu * beta.sum() / max(beta.numel(), 1)  # nu mean_a beta_a


def _offsets(name: str, number: int | None) -> nn.Parameter | None:
    if number is not None and number < 1:
        raise ValueError(f"MarginLoss: {name} must be at least 1, got {number}")
    return None if number is None else nn.Parameter(torch.zeros(number))


def _picked(offsets: Tensor, numbers: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the offsets of classes or samples, given by their numbers, (n,); 0 for those unknown."""
    return torch.where(numbers == UNKNOWN, 0.0, offsets.to(dtype)[numbers.clamp_min(0)])
