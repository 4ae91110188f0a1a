"""Row losses that need something of the whole batch before any row can be counted.

A first pass over the rows, block by block, computes it. The comparison hands it to every block of the second pass
(`Rows.found`), which sums the rows like any other row loss. Nothing is stored on the loss. There are three kinds:

- a statistic of the batch, such as a mean, or whether one hinge over the whole batch is active (`TwoPassLoss`);
- a number for each reference's own row, if a positive pair (i, j) depends on the rows of both its samples
  (`BilateralRowLoss`). Its blocks are computed again in the backward pass, like those of
  `blockwise.sum_over_anchors`;
- the reference vectors themselves, from which single rows are computed again (`Sides.ref`).

The result is therefore exact for any block size, for any number of processes, and with a memory as the reference.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import distributed
from ..autograd import recomputed
from ..objective.batch import Batch, stand_in
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

    With a single process and a single block, there is one pass: the sums of the block are those of the batch.
    """

    single_block = True

    def sums(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return two sums per anchor, (b,) or (b, k) each."""
        raise NotImplementedError

    def conclude(self, total: Tensor, number: Tensor) -> Any:
        """Return a named tuple of what follows from the sums over all anchors.

        The sums have a gradient only in a single pass, so the gradient of the loss must be the same if they are held
        constant. In a single pass, second derivatives are exact, too.
        """
        raise NotImplementedError

    def finish(self, rows: Rows, sums: tuple[Tensor, Tensor], found: Any) -> tuple[Tensor, Tensor]:
        """Return (numerator, denominator) per anchor of the block."""
        raise NotImplementedError

    def find(self, c: Comparison, batch: Batch) -> Any:
        if distributed.world() == 1 and self._one_block(c):
            return None
        with torch.no_grad(), preserve_rng(self.miner, c.x):
            # a pass without graphs: `conclude` promises that constants give the same gradient
            total, number, _ = sum_over_anchors(
                self.sums, c, miner=self.miner, block=self.block, single_block=self.single_block
            )
        return self.conclude(distributed.total(total), distributed.total(number))

    def second_pass(self, rows: Rows, found: Any) -> tuple[Tensor, Tensor]:
        sums = self.sums(rows)
        if found is None:  # this block is the whole batch
            total, number = (part.sum(0) for part in sums)
            found = self.conclude(total, number.to(total.dtype))
        return self.finish(rows, sums, found)


class Sides(NamedTuple):
    """What a pair needs besides the row of its anchor.

    Attributes
    ----------
    ref : (m, d) tensor or None
        Prepared reference vectors; None if only distances are given.
    square : bool
        Whether the rows compare the whole batch with itself, so that row j is also the row of reference j.
    other : (m,) tensor or None
        Statistic of each reference's own row; None if `square` is True, or if the loss has no `statistic`.
    distances : (m, m) tensor or None
        Dissimilarities of the references to one another, if these are given instead of vectors.
    """

    ref: Tensor | None
    square: bool
    other: Tensor | None
    distances: Tensor | None = None


class BilateralRowLoss(ContextualRowLoss):
    """A row loss whose pairs depend on the rows of both samples.

    A subclass implements `second_pass`, and `statistic` if its pairs need one. The row of a reference is its comparison
    with the batch; if the batch is the reference, it is the row of that sample.
    """

    single_block = True

    def statistic(self, rows: Rows) -> Tensor:
        """Return the number that pairs need of each row, (b,). By default, 0: the pairs need none."""
        return rows.d.new_zeros(len(rows.d))

    def differentiable_tensors(self, comparison: Comparison) -> tuple[Tensor, ...]:
        if not self.single_block:
            return ()  # the rows read only their distances
        return super().differentiable_tensors(comparison)

    def find(self, c: Comparison, batch: Batch) -> Sides:
        square = c.is_self and self._one_block(c)
        has_statistic = type(self).statistic is not BilateralRowLoss.statistic
        other = None
        if has_statistic and not square:
            other = self._statistics(c)
        if c.given:
            return Sides(None, square, other, c.x if c.is_self else None)
        return Sides(c.ref, square, other)

    def _statistics(self, c: Comparison) -> Tensor:
        """Return the (m,) statistics of the rows of all references."""
        # the statistic is of the rows of the references, so these become the anchors; (m,) in the end
        c = _flipped(c)

        def one(x: Tensor, ref: Tensor, lo: int, hi: int) -> Tensor:
            rows = c.block(x, ref, lo, hi)
            return self.statistic(self.miner(rows) if self.miner is not None else rows)

        blocks = cuts(c, self.block, self.single_block)
        with preserve_rng(self.miner, c.x):
            parts = [recomputed(one, c.x, c.ref, lo, hi) for lo, hi in blocks]
        return torch.cat(parts) if parts else c.x.new_zeros(0)


def reference_vectors(sides: Sides) -> Tensor:
    """Return the reference vectors, or raise if only the distances to them are given."""
    if sides.ref is None:
        raise ValueError(
            "from_distances: this loss also compares references with one another, whose distances are not given; "
            "compare a batch with itself, in one process, or pass embeddings"
        )
    return sides.ref


def reference_rows(rows: Rows, sides: Sides, columns: Tensor) -> Tensor:
    """Return the (b, m) dissimilarities to all references of one reference per row, given by its column, (b,)."""
    if sides.square:
        return rows.d[columns]
    if sides.distances is not None:
        return sides.distances[columns]
    ref = reference_vectors(sides)
    return prepared_rows(ref[columns], ref, rows.distance)


def reference_pairs(rows: Rows, sides: Sides, one: Tensor, other: Tensor) -> Tensor:
    """Return the (b, k) dissimilarities of pairs of references, given by their columns, (b, k) each."""
    if sides.distances is not None:
        return sides.distances[one, other]
    ref = reference_vectors(sides)
    # one of the k places at a time, so that no (b, k, d) array of vectors is needed
    places = list(zip(one.T, other.T, strict=True))
    if not places:
        return rows.d[:, :0]
    if not isinstance(rows.distance, str):
        # a function compares all with all: (b, m), of which one column per row is wanted
        parts = [called(rows.distance, ref[i], ref).gather(1, j[:, None])[:, 0] for i, j in places]
        return torch.stack(parts, 1)
    if rows.distance in ("cosine", "dot"):
        products = torch.stack([(ref[i] * ref[j]).sum(1) for i, j in places], 1)
        if rows.distance == "cosine":
            return 1 - products
        return -products
    squares = torch.stack([(ref[i] - ref[j]).square().sum(1) for i, j in places], 1)
    if rows.distance == "euclidean":
        return safe_sqrt(squares)
    return squares


def _flipped(c: Comparison) -> Comparison:
    """Return the comparison whose anchors are all the references."""
    if c.is_self:
        return c._replace(anchors=slice(0, len(c.x)))
    y, ref_y = _flipped_labels(c.y, c.ref_y)
    c = c._replace(ids=c.ref_ids, ref_ids=c.ids)
    if c.given:
        x = c.x.T
        return c._replace(x=x, y=y, ref=stand_in(x), ref_y=ref_y, anchors=slice(0, len(x)))
    return c._replace(x=c.ref, y=y, ref=c.x, ref_y=ref_y, anchors=slice(0, len(c.ref)))


def _flipped_labels(y: Labels, ref_y: Labels) -> tuple[Labels, Labels]:
    if isinstance(y, LabelSets) and isinstance(ref_y, LabelSets):
        return LabelSets(ref_y.hot, y.overlap), y
    if isinstance(y, Tensor) and y.ndim == 2:
        return y.T, y.new_zeros(len(y))  # a relation matrix alone determines the masks; labels of references do not
    return ref_y, y
