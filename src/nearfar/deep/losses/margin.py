"""Margin loss (Wu, Manmatha, Smola & Krähenbühl, 2017).

    L = 1/K ( sum_{(a,p) in P} [alpha + rho_ap - beta_a]_+  +  sum_{(a,n) in N} [alpha - rho_an + beta_a]_+ )
        + nu mean_a beta_a,        beta_a = beta + beta of a's class + beta of sample a

K: number of positive terms, rho: unsquared distance of unit vectors, beta: the learned boundaries.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...deprecation import renamed_settings
from .. import distributed
from ..objective.batch import Batch, check_range
from ..objective.relations import UNKNOWN
from ..pairwise.comparison import Comparison, Rows, count
from ..pairwise.contextual import ContextualRowLoss
from ..pairwise.hinges import hinges, negatives, positives


class Boundary(NamedTuple):
    """The boundary of all anchors, (), or of each sample of the batch as an anchor, (n,)."""

    beta: Tensor


def margin(rows: Rows, alpha: float, beta: Tensor) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum of its hinges and the number of positive ones; beta is () or (b, 1)."""
    if rows.triplets is None:
        columns, keep = positives(rows)
        d_an = negatives(rows)
    else:
        columns = rows.triplets.positive
        keep = rows.triplets.keep
        d_an = torch.where(keep, rows.d.gather(1, rows.triplets.negative), torch.inf)
    pull = torch.where(keep, (alpha + rows.d.gather(1, columns) - beta).clamp_min(0), 0.0)
    push, active = hinges((alpha + beta).expand(len(d_an), 1), d_an)
    return pull.sum(1) + push, count(pull > 0) + active[:, 0]


class MarginLoss(ContextualRowLoss):
    """Margin loss with learnable boundaries, over all or the mined pairs.

    Parameters
    ----------
    margin : float
        alpha.
    boundary : float
        beta at the start, an unsquared distance.
    learn_boundary : bool
        Make beta the parameter `boundary`; give it an optimizer group of its own (paper: learning rate 0.1).
    per_class, per_sample : int, optional
        Number of classes, and of samples of the data set, that have a learned boundary of their own: the parameters
        `class_offsets` and `sample_offsets`, which begin at 0 and are added to beta. Classes are numbered from 0; a
        loss with `per_sample` is called with ``ids=``, the numbers of the samples. Unknown ones (-1) have none.
    nu : float
        Weight of the penalty on the mean boundary of the batch's samples.
    normalize : bool
        Scale embeddings to unit length first, as the paper does.
    miner : callable, optional
        ``DistanceWeighted()`` is the paper's; None takes all pairs.
    block : int, optional
        Anchors at a time.

    Notes
    -----
    A pair has the boundary of its anchor. A mined triplet counts as its two pairs.
    """

    boundary: Tensor
    class_offsets: Tensor | None
    sample_offsets: Tensor | None

    @renamed_settings(mine="miner")
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
        # of one entry, not a scalar, which no optimizer of sharded parameters takes
        self.boundary = nn.Parameter(torch.tensor([float(boundary)]), requires_grad=bool(learn_boundary))
        self.class_offsets = _offsets("per_class", per_class)
        self.sample_offsets = _offsets("per_sample", per_sample)

    def boundaries(self, batch: Batch) -> Tensor:
        """Return beta of all, (), or of each sample of the batch, (n,)."""
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

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        saved = state_dict.get(prefix + "boundary")
        if saved is not None and not saved.ndim:  # as it was before it had one entry
            state_dict[prefix + "boundary"] = saved[None]
        super()._load_from_state_dict(state_dict, prefix, *args)

    def find(self, c: Comparison, batch: Batch) -> Boundary:
        return Boundary(self.boundaries(batch))

    def second_pass(self, rows: Rows, found: Boundary) -> tuple[Tensor, Tensor]:
        beta = found.beta
        return margin(rows, self.margin, beta if not beta.ndim else beta[rows.first : rows.first + len(rows.d), None])

    def local_value(self, batch: Batch) -> Tensor:
        value = super().local_value(batch)
        if not self.nu:
            return value
        beta = self.boundaries(batch)
        return value + self.nu * beta.sum() / max(beta.numel(), 1) / distributed.world()


def _offsets(name: str, number: int | None) -> nn.Parameter | None:
    if number is not None and number < 1:
        raise ValueError(f"MarginLoss: {name} must be at least 1, got {number}")
    return None if number is None else nn.Parameter(torch.zeros(number))


def _picked(offsets: Tensor, numbers: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.where(numbers == UNKNOWN, 0.0, offsets.to(dtype)[numbers.clamp_min(0)])
