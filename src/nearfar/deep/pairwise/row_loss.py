"""The loss that is a sum over anchors, each compared with a reference."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import distributed
from ..objective.batch import Batch
from ..objective.relations import Labels
from ..objective.terms import AnchorLoss, needs_embeddings
from ..rng import fresh_seed
from .blockwise import Sums, each_anchor, sum_over_anchors
from .comparison import Comparison, Distance, Rows, check_distance


class RowLoss(AnchorLoss):
    """Base class of losses that are a sum over anchors, each compared with a reference.

    A subclass implements ``rows(rows)``, which maps a block of dissimilarities to a numerator and a denominator for
    each anchor. The value is the sum of the numerators over the sum of the denominators, or, where these have k
    columns, the sum of k such ratios.

    Parameters
    ----------
    distance : str or callable
        Dissimilarity of two embeddings: "sq_euclidean", "euclidean", "cosine" or "dot", or a callable that takes
        anchors of shape (b, d) and references of shape (m, d) and returns their dissimilarities of shape (b, m), such
        as ``LpDistance(1)``.
    normalize : bool
        Whether to scale the embeddings and the reference to unit length first.
    miner : callable, optional
        Miner that narrows the masks of each block of rows. By default, all pairs count.
    block : int, optional
        Number of anchors processed at a time. Memory is proportional to block x references, and the value is the same
        for any block. By default, it is chosen automatically.

    Attributes
    ----------
    reduction : str
        "sum" does not divide the sum over the anchors; any other value divides it by the sum of the denominators.
    stats_ : dict of str to float
        Statistics of the last call that collected them (`collect_stats`), of the anchors of this process: "active", the
        share of anchors with a positive loss, and "positive" and "negative", the mean distances of the positive and
        negative pairs. Empty if no call has.
    single_block : bool
        Whether rows read one another, so that all of them are held at once if they fit into memory.
    reads_vectors : bool
        Whether the rows read the embeddings, not only their distances.
    """

    single_block = False
    reads_vectors = False

    def __init__(self, *, distance: Distance, normalize: bool, miner: Any = None, block: int | None = None) -> None:
        super().__init__(block=block)
        check_distance(self, distance)
        self._check_miner(miner)
        self.distance = distance
        self.normalize = normalize
        self.miner = miner
        self.reduction = "mean"

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return the numerator and the denominator of each anchor of the block, both (b,), or (b, k) for k ratios."""
        raise NotImplementedError

    def differentiable_tensors(self, comparison: Comparison) -> tuple[Tensor, ...]:
        """Return the tensors, other than the distances, in which the rows have a gradient: the loss's parameters."""
        return tuple(part for part in self._parameters.values() if part is not None)

    def distances_refused(self) -> str | None:
        if self.reads_vectors:
            return needs_embeddings(type(self).__name__)
        if getattr(self.miner, "reads_vectors", False):
            return needs_embeddings(type(self.miner).__name__)
        return None

    def reference(self, batch: Batch) -> tuple[Tensor, Labels]:
        if batch.ref is None:
            return batch.x, batch.y
        assert batch.ref_y is not None
        return batch.ref, batch.ref_y

    def comparison(self, batch: Batch) -> Comparison:
        """Return what is compared with what, and how."""
        ref, ref_y = self.reference(batch)
        return Comparison(
            batch.x,
            batch.y,
            ref,
            ref_y,
            batch.anchors,
            is_self=ref is batch.x,
            distance=self.distance,
            normalize=self.normalize,
            ids=None if batch.ref_ids is None else batch.ids,
            ref_ids=batch.ref_ids,
            seed=fresh_seed(self.miner, batch.x),
            given=batch.given,
        )

    def compare(self, batch: Batch) -> Tensor:
        num, den, statistics = self.summed(self.comparison(batch))
        if self.collects_stats:
            self._sums = statistics
        return self.divided(num, den)

    def summed(self, comparison: Comparison) -> Sums:
        """Return the numerator, the denominator and, if they are collected, the statistics, summed over the anchors."""
        return sum_over_anchors(
            self.rows,
            comparison,
            miner=self.miner,
            block=self.block,
            single_block=self.single_block,
            more=self.differentiable_tensors(comparison),
            statistics=row_statistics if self.collects_stats else None,
        )

    def compare_samples(self, batch: Batch) -> Tensor:
        if type(self).divided is not RowLoss.divided:
            return super().compare_samples(batch)  # raises: this loss makes its value of the sums in another way
        num, den = each_anchor(
            self.rows, self.comparison(batch), miner=self.miner, block=self.block, single_block=self.single_block
        )
        if self.reduction != "sum":
            total = distributed.total(den.detach().sum(0).to(num.dtype))
            num = num / torch.where(total > 0, total, torch.inf)
        if num.ndim > 1:
            num = num.sum(1)
        # sum_i num_i / total is the value, so n num_i / total are losses of which it is the mean
        return num * len(batch.x)

    def divided(self, num: Tensor, den: Tensor) -> Tensor:
        """Return this process's sum of the numerators over the denominators of all processes."""
        if self.reduction != "sum":
            den = distributed.total(den.detach())
            num = num / torch.where(den > 0, den, torch.inf)  # 0 where nothing counts
        if num.ndim:
            return num.sum()
        return num

    @property
    def stats_(self) -> dict[str, float]:
        if self._sums is None:
            return {}
        active, anchors, positive, positives, negative, negatives = self._sums.tolist()
        return {
            "active": active / max(anchors, 1.0),
            "positive": positive / max(positives, 1.0),
            "negative": negative / max(negatives, 1.0),
        }


@torch.no_grad()
def row_statistics(rows: Rows, num: Tensor) -> Tensor:
    """Return the six sums of a block from which `stats_` is divided.

    They are the active anchors, all anchors that have pairs, and of both kinds of pairs the sum of the distances and
    the number of pairs.
    """
    # sums, not means: blocks and processes add them up, and the division comes last
    return torch.stack(
        [
            (num > 0).reshape(len(num), -1).any(1).sum(dtype=rows.d.dtype),
            (rows.pos | rows.neg).any(1).sum(dtype=rows.d.dtype),
            rows.d.masked_fill(~rows.pos, 0).sum(),
            rows.pos.sum(dtype=rows.d.dtype),
            rows.d.masked_fill(~rows.neg, 0).sum(),
            rows.neg.sum(dtype=rows.d.dtype),
        ]
    )
