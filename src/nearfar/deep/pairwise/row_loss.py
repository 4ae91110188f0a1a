"""The loss that is a sum over anchors, each compared with a reference."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import distributed
from ..objective.batch import Batch
from ..objective.relations import Labels
from ..objective.terms import AnchorLoss
from ..rng import fresh_seed, preserve_rng
from .blockwise import each_anchor, sum_over_anchors
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
        Statistics of the last call: "active", the share of anchors with a positive loss, and "positive" and "negative",
        the mean distances of the positive and negative pairs.
    single_block : bool
        Whether rows read one another, so that all of them are held at once if they fit into memory.
    """

    single_block = False

    def __init__(self, *, distance: Distance, normalize: bool, miner: Any = None, block: int | None = None) -> None:
        super().__init__(block=block)
        check_distance(self, distance)
        self._check_miner(miner)
        self.distance = distance
        self.normalize = normalize
        self.miner = miner
        self.reduction = "mean"
        self._last: Comparison | None = None

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return the numerator and the denominator of each anchor of the block, both (b,), or (b, k) for k ratios."""
        raise NotImplementedError

    def differentiable_tensors(self, comparison: Comparison) -> tuple[Tensor, ...]:
        """Return the tensors, other than the distances, in which the rows have a gradient: the loss's parameters."""
        return tuple(part for part in self._parameters.values() if part is not None)

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
        )

    def compare(self, batch: Batch) -> Tensor:
        comparison = self.comparison(batch)
        # for `stats_`; `object` skips the search of `Module.__setattr__` for parameters
        object.__setattr__(self, "_last", comparison.detached())
        return self.divided(*self.summed(comparison))

    def summed(self, comparison: Comparison) -> tuple[Tensor, Tensor]:
        """Return the numerator and the denominator, summed over the anchors."""
        return sum_over_anchors(
            self.rows,
            comparison,
            miner=self.miner,
            block=self.block,
            single_block=self.single_block,
            more=self.differentiable_tensors(comparison),
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
        if self._last is None:
            return {}
        with torch.no_grad(), preserve_rng(self.miner, self._last.x):
            sums = _row_statistics(self, self._last)
        return {
            "active": sums["active"] / max(sums["anchors"], 1.0),
            "positive": sums["positive"] / max(sums["positives"], 1.0),
            "negative": sums["negative"] / max(sums["negatives"], 1.0),
        }


def _row_statistics(loss: RowLoss, comparison: Comparison) -> dict[str, float]:
    sums = dict.fromkeys(("active", "anchors", "positive", "positives", "negative", "negatives"), 0.0)

    def gather(rows: Rows) -> tuple[Tensor, Tensor]:
        if loss.miner is not None:
            rows = loss.miner(rows)
        num, den = loss.rows(rows)
        found = {
            "active": (num > 0).reshape(len(num), -1).any(1).sum(),
            "anchors": (rows.pos | rows.neg).any(1).sum(),
            "positive": rows.d.masked_fill(~rows.pos, 0).sum(),
            "positives": rows.pos.sum(),
            "negative": rows.d.masked_fill(~rows.neg, 0).sum(),
            "negatives": rows.neg.sum(),
        }
        for key, value in found.items():
            sums[key] += float(value)
        return num, den

    sum_over_anchors(gather, comparison, block=loss.block)
    return sums
