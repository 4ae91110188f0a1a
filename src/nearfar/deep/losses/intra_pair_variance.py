"""Intra-pair variance loss (Yu & Tao, 2019).

    L = mean_P [(1 - eps) mu_p - s]_+^2 + mean_N [s - (1 + eps) mu_n]_+^2

P, N: pairs of similar and of dissimilar samples; s: cosine of a pair; mu_p, mu_n: mean cosines of the pairs in P and N.
Only pairs on the wrong side of the mean of their kind are pulled towards it, and the means have a gradient too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import distributed
from ..objective.batch import Batch
from ..pairwise.blockwise import sum_over_anchors
from ..pairwise.comparison import Comparison, Rows, count
from ..pairwise.contextual import TwoPassLoss
from ..pairwise.hinges import negatives, positives
from ..pairwise.reductions import hinge_squares, pair_sums
from ..rng import preserve_rng


class Means(NamedTuple):
    """The (2,) mean cosines of the similar and of the dissimilar pairs of the whole batch, with their gradient."""

    mu: Tensor


def intra_pair_variance(rows: Rows, means: Means, pos_eps: float, neg_eps: float) -> Tensor:
    """Return per anchor the sums of the squared hinges of its similar and of its dissimilar pairs, (b, 2)."""
    columns, keep = positives(rows)
    low = (1 - pos_eps) * means.mu[0]
    high = (1 + neg_eps) * means.mu[1]
    # low - s = d + low - 1, and s - high = -(d + high - 1), as d = 1 - s
    pull = torch.where(keep, rows.d.gather(1, columns) + (low - 1), 0.0).clamp_min(0)
    push = hinge_squares(negatives(rows) + (high - 1), 0.0)
    return torch.stack([pull.square().sum(1), push], 1)


class IntraPairVarianceLoss(TwoPassLoss):
    """Spread of the similar and of the dissimilar pairs beyond their means, which the paper adds to a pair loss.

    Parameters
    ----------
    pos_eps, neg_eps : float
        Relative tolerance eps around the mean cosine of the similar pairs (`pos_eps`) and of the dissimilar pairs
        (`neg_eps`).
    miner : callable, optional
        Miner that selects the pairs that count, such as ``PairMargins()``. By default, all pairs of the batch count.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Notes
    -----
    The paper's objective is ``TupletMarginLoss() + IntraPairVarianceLoss()``, with a weight. On its own, this term does
    not separate classes.
    """

    def __init__(
        self, pos_eps: float = 0.01, neg_eps: float = 0.01, *, miner: Any = None, block: int | None = None
    ) -> None:
        super().__init__(distance="cosine", normalize=True, miner=miner, block=block)
        self.pos_eps = pos_eps
        self.neg_eps = neg_eps

    def sums(self, rows: Rows) -> tuple[Tensor, Tensor]:
        columns, keep = positives(rows)
        near, far = pair_sums(rows.d, columns, keep, rows.neg)
        return torch.stack([near, far], 1), torch.stack([count(rows.pos), count(rows.neg)], 1)

    def conclude(self, total: Tensor, number: Tensor) -> Means:
        means = total / number.clamp_min(1)  # of 1 - s, (2,); an empty batch has scalar sums
        return Means(1 - means.expand(2))

    def find(self, c: Comparison, batch: Batch) -> Means | None:
        if distributed.world() == 1 and self._one_block(c):
            return None
        with preserve_rng(self.miner, c.x):  # with a graph: the gradient reaches the pairs through their means, too
            total, number, _ = sum_over_anchors(
                self.sums, c, miner=self.miner, block=self.block, single_block=self.single_block
            )
        return self.conclude(distributed.gather(total.expand(2)[None]).sum(0), distributed.total(number.detach()))

    def finish(self, rows: Rows, sums: tuple[Tensor, Tensor], means: Means) -> tuple[Tensor, Tensor]:
        return intra_pair_variance(rows, means, pos_eps=self.pos_eps, neg_eps=self.neg_eps), sums[1]
