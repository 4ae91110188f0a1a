"""Row losses that need something of the whole batch before any row can be counted.

A first pass over the rows, block by block, returns it; the comparison hands it to every block of the second pass
(`Rows.found`), which sums the rows as every row loss does. Nothing of it stays on the loss. Three kinds:

- a statistic of the batch, such as a mean or whether one hinge over the batch is active (`TwoPassLoss`);
- a number of each reference's own row, where a positive pair (i, j) reads the rows of both its sides
  (`BilateralRowLoss`). Its blocks are computed again in the backward pass, like those of
  `blockwise.sum_over_anchors`;
- the reference vectors themselves, from which single rows are formed again (`Sides.ref`).

So the result is exact for any block, on any number of processes, and with a memory as reference.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import distributed
from ..autograd import recomputed
from ..objective.batch import Batch
from ..objective.relations import Labels, LabelSets
from ..rng import preserve_rng
from .blockwise import cuts, sum_over_anchors
from .comparison import Comparison, Rows, called, prepared_rows, safe_sqrt
from .row_loss import RowLoss


class ContextualRowLoss(RowLoss):
    """A row loss whose rows read what `find` returned for their comparison.

    A subclass implements `find` and `second_pass`.
    """

    def find(self, c: Comparison, batch: Batch) -> Any:
        """Return a named tuple with what the rows need besides themselves, or None."""
        raise NotImplementedError

    def second_pass(self, rows: Rows, found: Any) -> tuple[Tensor, Tensor]:
        """Return (numerator, denominator) per anchor of the block, as `RowLoss.rows` does."""
        raise NotImplementedError

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return self.second_pass(rows, rows.found)

    def comparison(self, batch: Batch) -> Comparison:
        c = super().comparison(batch).prepared()
        return c._replace(found=self.find(c, batch))

    def _one_block(self, c: Comparison) -> bool:
        return cuts(c, self.block, self.single_block) == [(0, len(c.x))]

    def differentiable_tensors(self, comparison: Comparison) -> tuple[Tensor, ...]:
        if comparison.found is None:
            return ()
        return tuple(part for part in comparison.found if isinstance(part, Tensor))


class TwoPassLoss(ContextualRowLoss):
    """A row loss that needs sums over the whole batch: a subclass implements `sums`, `conclude` and `finish`.

    Where one block holds all rows of the only process, the sums are formed once.
    """

    single_block = True

    def sums(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return two sums per anchor, (b,) or (b, k) each."""
        raise NotImplementedError

    def conclude(self, total: Tensor, number: Tensor) -> Any:
        """Return a named tuple of what follows from the sums over all anchors.

        They have a gradient only where the sums are formed once, so the loss must have the same gradient with them held
        constant. Where they have one, the second derivative is exact too.
        """
        raise NotImplementedError

    def finish(self, rows: Rows, sums: tuple[Tensor, Tensor], found: Any) -> tuple[Tensor, Tensor]:
        """Return (numerator, denominator) per anchor of the block."""
        raise NotImplementedError

    def find(self, c: Comparison, batch: Batch) -> Any:
        if distributed.world() == 1 and self._one_block(c):
            return None
        with torch.no_grad(), preserve_rng(self.miner, c.x):
            total, number = sum_over_anchors(
                self.sums, c, miner=self.miner, block=self.block, single_block=self.single_block
            )
        return self.conclude(distributed.total(total), distributed.total(number))

    def second_pass(self, rows: Rows, found: Any) -> tuple[Tensor, Tensor]:
        sums = self.sums(rows)
        if found is None:
            total, number = (part.sum(0) for part in sums)
            found = self.conclude(total, number.to(total.dtype))
        return self.finish(rows, sums, found)


class Sides(NamedTuple):
    """What a pair reads besides the row of its anchor.

    Attributes
    ----------
    ref : (m, d) tensor
        Prepared reference vectors.
    square : bool
        Whether the rows are those of the whole batch compared with itself, so that row j belongs to reference j.
    other : (m,) tensor or None
        Statistic of each reference's own row; None if `square` is True.
    """

    ref: Tensor
    square: bool
    other: Tensor | None


class BilateralRowLoss(ContextualRowLoss):
    """A row loss of pairs that read both rows: a subclass implements `second_pass`, and `statistic` if it has one.

    The row of a reference is its comparison with the batch: with the batch as reference, the row of that sample.
    """

    single_block = True

    def statistic(self, rows: Rows) -> Tensor:
        """Return a number per row, (b,); 0 for a method whose pairs need none."""
        return rows.d.new_zeros(len(rows.d))

    def differentiable_tensors(self, comparison: Comparison) -> tuple[Tensor, ...]:
        if not self.single_block:
            return ()  # the rows read only their distances
        return super().differentiable_tensors(comparison)

    def find(self, c: Comparison, batch: Batch) -> Sides:
        square = c.is_self and self._one_block(c)
        needless = square or type(self).statistic is BilateralRowLoss.statistic
        return Sides(c.ref, square, None if needless else self._statistics(c))

    def _statistics(self, c: Comparison) -> Tensor:
        """Return the (m,) statistics of the rows of all references."""
        c = _flipped(c)

        def one(x: Tensor, ref: Tensor, lo: int, hi: int) -> Tensor:
            rows = c.block(x, ref, lo, hi)
            return self.statistic(self.miner(rows) if self.miner is not None else rows)

        blocks = cuts(c, self.block, self.single_block)
        with preserve_rng(self.miner, c.x):
            parts = [recomputed(one, c.x, c.ref, lo, hi) for lo, hi in blocks]
        return torch.cat(parts) if parts else c.x.new_zeros(0)


def reference_rows(rows: Rows, sides: Sides, columns: Tensor) -> Tensor:
    """Return the (b, m) dissimilarities of one reference of each row, `columns` (b,), to all references."""
    if sides.square:
        return rows.d[columns]
    return prepared_rows(sides.ref[columns], sides.ref, rows.distance)


def reference_pairs(rows: Rows, sides: Sides, one: Tensor, other: Tensor) -> Tensor:
    """Return the (b, k) dissimilarities of pairs of references, given by their columns."""
    ref = sides.ref
    if not isinstance(rows.distance, str):
        whole = [called(rows.distance, ref[i], ref) for i in one.T]
        parts = [d.gather(1, j[:, None])[:, 0] for d, j in zip(whole, other.T, strict=True)]
        return torch.stack(parts, 1) if parts else rows.d[:, :0]
    if rows.distance in ("cosine", "dot"):
        parts = [(ref[i] * ref[j]).sum(1) for i, j in zip(one.T, other.T, strict=True)]
    else:
        parts = [(ref[i] - ref[j]).square().sum(1) for i, j in zip(one.T, other.T, strict=True)]
    products = torch.stack(parts, 1) if parts else rows.d[:, :0]
    if rows.distance == "euclidean":
        return safe_sqrt(products)
    return {"cosine": 1 - products, "dot": -products, "sq_euclidean": products}[rows.distance]


def _flipped(c: Comparison) -> Comparison:
    """Return the comparison whose anchors are all the references."""
    if c.is_self:
        return c._replace(anchors=slice(0, len(c.x)))
    y, ref_y = _flipped_labels(c.y, c.ref_y)
    c = c._replace(ids=c.ref_ids, ref_ids=c.ids)
    return c._replace(x=c.ref, y=y, ref=c.x, ref_y=ref_y, anchors=slice(0, len(c.ref)))


def _flipped_labels(y: Labels, ref_y: Labels) -> tuple[Labels, Labels]:
    if isinstance(y, LabelSets) and isinstance(ref_y, LabelSets):
        return LabelSets(ref_y.hot, y.overlap), y
    if isinstance(y, Tensor) and y.ndim == 2:
        return y.T, y.new_zeros(len(y))  # masks of a relation are read from its rows alone
    return ref_y, y
