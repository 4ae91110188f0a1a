"""The sum of a row loss over all anchors, and its gradient, in blocks of rows that stay in a processor's cache.

The gradient of a sum is a sum over blocks, so the value and the gradient of a block are finished before the next one
begins: no matrix of all comparisons is ever stored. The distances need no graph, because their gradient is known: two
matrix products.

There are two exceptions. If a row has several numerators, their weights depend on the sums over all blocks; the blocks
are then kept for the backward pass, or, if they are too large, computed again. If the distance is a user's function,
its gradient is unknown, and the blocks are computed again, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from ..autograd import exact, recomputed, traced
from ..precision import without_autocast
from ..rng import Generators, drawn_again, generators
from .comparison import FULL, MIN_BLOCK_ROWS, Comparison, RowFunction, Rows, distance_grad, on_host, spans

Statistics: TypeAlias = Callable[[Rows, Tensor], Tensor]
"""Maps the rows of a block, after the miner, and their numerators to (k,) sums for `RowLoss.stats_`."""
COMPARISONS_IN_CACHE = 1 << 20  # comparisons in a block: fewer need more calls, more exceed the processor's caches


class Sums(NamedTuple):
    """A row loss summed over the anchors.

    Attributes
    ----------
    num, den : Tensor
        Numerator and denominator, two scalars or two (k,) vectors.
    statistics : Tensor or None
        Sums of the statistics, without a graph, if they were asked for.
    """

    num: Tensor
    den: Tensor
    statistics: Tensor | None


class RowLossError(TypeError, ValueError):
    """A row loss does not return a numerator and a denominator per anchor.

    It is a TypeError, and like all errors of a user's input also a ValueError, which the command line says in one line.
    """


def cuts(c: Comparison, block: int | None, single_block: bool) -> list[tuple[int, int]]:
    """Return the (first, last + 1) anchors of each block.

    By default, a block fits into the processor's cache. On a device, or if `single_block` is True, it is the whole
    batch, if that fits into memory.
    """
    if c.given:  # all comparisons are in memory already
        block = None
        single_block = True
    m = c.ref.shape[0]
    many = (c.anchors.stop - c.anchors.start) * m > COMPARISONS_IN_CACHE
    if many and block is None and not single_block and on_host(c.x):
        # each thread computes a part of the rows, and has a cache of its own
        block = max(MIN_BLOCK_ROWS, COMPARISONS_IN_CACHE // max(m, 1)) * torch.get_num_threads()
    return spans(c.anchors, m, block, c.x.device)


def sum_over_anchors(
    loss: RowFunction,
    comparison: Comparison,
    *,
    miner: Callable[[Rows], Rows] | None = None,
    block: int | None = None,
    single_block: bool = False,
    more: Sequence[Tensor] = (),
    statistics: Statistics | None = None,
) -> Sums:
    """Sum a row loss over the anchors.

    Parameters
    ----------
    loss, comparison, miner, block
        As in `row_loss.RowLoss`.
    single_block : bool
        Whether to hold all rows at once if they fit.
    more : sequence of tensors
        Tensors other than the distances in which the loss has a gradient, such as its parameters. Unless `single_block`
        is True, they must not depend on the vectors that are compared.
    statistics : callable, optional
        What else to sum over the rows of each block.
    """
    c = comparison.prepared()

    def mined_loss(rows: Rows) -> Sums:
        if miner is not None:
            rows = miner(rows)
        found = loss(rows)
        if not _is_per_anchor(found, rows.d.shape[0]):
            raise RowLossError(_wrong_shapes(loss, found, rows.d.shape[0]))
        return Sums(*found, None if statistics is None else statistics(rows, found[0]))

    blocks = cuts(c, block, single_block)
    if not blocks and not len(c.x):
        return Sums(c.x.sum() * 0, c.x.new_zeros(()), None)
    if not blocks:  # a process without samples: zeros of the shape that the sums have in the others
        num, den, _ = _summed(c, mined_loss, [(0, 1)], c.x, c.ref)
        return Sums(num * 0, den * 0, None)
    # several blocks: their gradients are finished one by one; see the docstring of the module
    if len(blocks) > 1 and not single_block and not traced() and isinstance(c.distance, str) and not c.given:
        inputs = [c.x, c.ref, *(part for part in more if part.requires_grad)]
        if not torch.is_grad_enabled():
            inputs = [part.detach() for part in inputs]
        plan = _Plan(
            c,
            mined_loss,
            blocks,
            keep=block is None and len(c.x) * len(c.ref) <= FULL,
            start=None if miner is None else generators(c.x.device),
        )
        return Sums(*_Swept.apply(plan, *inputs))  # type: ignore[no-untyped-call]  # torch declares no types for apply
    return _summed(c, mined_loss, blocks, c.x, c.ref)


def each_anchor(
    loss: RowFunction,
    comparison: Comparison,
    *,
    miner: Callable[[Rows], Rows] | None = None,
    block: int | None = None,
    single_block: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return numerator and denominator of every anchor of this process, (n,) or (n, k); see `sum_over_anchors`."""
    c = comparison.prepared()

    def block_loss(x: Tensor, ref: Tensor, lo: int, hi: int) -> tuple[Tensor, Tensor]:
        rows = c.block(x, ref, lo, hi)
        if miner is not None:
            rows = miner(rows)
        return loss(rows)

    blocks = cuts(c, block, single_block)
    if not blocks:
        return c.x[:0, 0], c.x[:0, 0]
    if len(blocks) == 1:
        return block_loss(c.x, c.ref, *blocks[0])
    # each block is computed again in the backward pass, so that one (b, m) matrix is held, not all of them
    parts = [recomputed(block_loss, c.x, c.ref, lo, hi) for lo, hi in blocks]
    return torch.cat([num for num, _ in parts]), torch.cat([den for _, den in parts])


def _is_per_anchor(found: object, b: int) -> bool:
    """Return whether a loss, which may be a user's own, returned two tensors with an entry per anchor."""
    if not isinstance(found, tuple) or len(found) != 2:
        return False
    num, den = found
    return isinstance(num, Tensor) and isinstance(den, Tensor) and num.shape[:1] == den.shape[:1] == (b,)


def _wrong_shapes(loss: RowFunction, found: object, b: int) -> str:
    """Return the text of the error for what `_is_per_anchor` rejects."""
    parts = found if isinstance(found, tuple) else (found,)
    shapes = [str(tuple(part.shape)) if isinstance(part, Tensor) else type(part).__name__ for part in parts]
    expected = f"expected a numerator and a denominator per anchor, tensors of shape ({b},)"
    return f"{getattr(loss, '__qualname__', loss)}: {expected}, got {' and '.join(shapes)}"


def _summed(c: Comparison, loss: Callable[[Rows], Sums], blocks: list[tuple[int, int]], x: Tensor, ref: Tensor) -> Sums:
    """Sum the blocks with a graph; if there are several, each is computed again in the backward pass."""

    def block_sums(x: Tensor, ref: Tensor, lo: int, hi: int) -> Sums:
        num, den, statistics = loss(c.block(x, ref, lo, hi))
        return Sums(num.sum(0), den.sum(0, dtype=num.dtype), statistics)

    if len(blocks) == 1:
        return block_sums(x, ref, *blocks[0])
    return _added(recomputed(block_sums, x, ref, lo, hi) for lo, hi in blocks)


def _added(blocks: Iterable[Sums]) -> Sums:
    """Return the sums over blocks."""
    nums, dens, statistics = zip(*blocks, strict=True)
    total = None if statistics[0] is None else torch.stack(statistics).sum(0)
    return Sums(torch.stack(nums).sum(0), torch.stack(dens).sum(0), total)


class _Gradients:
    """Sums over blocks of the gradients in both sides of a comparison, where wanted, and in other tensors.

    With G = (g_ij), the gradient of the loss in d_ij^2 / 2, or in -x_i . r_j, of all blocks (`distance_grad`):

        to_x_i   = sum_j g_ij (x_i - r_j)   for Euclidean distances, else  -sum_j g_ij r_j
        to_ref_j = sum_i g_ij (r_j - x_i)   for Euclidean distances, else  -sum_i g_ij x_i
    """

    def __init__(self, c: Comparison, x: Tensor, ref: Tensor, more: Sequence[Tensor], wanted: Sequence[bool]) -> None:
        self.c = c
        self.x = x
        self.ref = ref
        self.more = more
        self.to_x = torch.zeros_like(x) if wanted[0] else None
        self.to_ref = torch.zeros_like(ref) if wanted[1] else None
        self.column_sums = ref.new_zeros(len(ref))  # sum_i g_ij, which multiplies r_j once all blocks are added
        self.to_more = [torch.zeros_like(part) for part in more]

    def add(self, rows: Rows, num: Tensor, weight: Tensor | None) -> None:
        """Add the gradient of the sum of a block's numerators, (b,), or (b, k) with weights (k,)."""
        if not num.requires_grad:
            return
        if weight is None:
            weights = torch.ones_like(num)
        else:
            weights = weight.expand_as(num)
        # the graph of this block alone: it ends at its distances, whose gradient is a formula
        to_d, *to_more = torch.autograd.grad(num, (rows.d, *self.more), weights, retain_graph=True, allow_unused=True)
        for total, part in zip(self.to_more, to_more, strict=True):
            if part is not None:
                total += part
        if to_d is not None and (self.to_x is not None or self.to_ref is not None):
            g = distance_grad(to_d, rows.d.detach(), self.c.distance)
            self._add_to_sides(g, slice(rows.first, rows.first + len(to_d)))

    def _add_to_sides(self, g: Tensor, part: slice) -> None:
        """Add the gradient g, (b, m), of the anchors in `part`."""
        x = self.x[part]
        if self.to_x is not None:
            # -G r, and for Euclidean distances + diag(G 1) x; (b, d)
            self.to_x[part].addmm_(g, self.ref, alpha=-1)
            if self.c.is_euclidean:
                self.to_x[part] += g.sum(1)[:, None] * x
        if self.to_ref is not None:
            # -G' x; the column sums of G times r are added once, in `total`
            self.to_ref.addmm_(g.T, x, alpha=-1)
            if self.c.is_euclidean:
                self.column_sums += g.sum(0)

    def total(self) -> list[Tensor | None]:
        """Return the gradients in x, the reference and the other tensors; None where none is wanted."""
        if self.to_ref is not None and self.c.is_euclidean:
            self.to_ref += self.column_sums[:, None] * self.ref
        scale = 2 if self.c.distance == "sq_euclidean" else 1  # G is the gradient in d^2 / 2
        sides = [None if part is None else part.mul_(scale) for part in (self.to_x, self.to_ref)]
        return sides + self.to_more


class _Plan(NamedTuple):
    """What is summed: the comparison, the loss of its rows, the blocks, and whether their graphs may be kept.

    `start` is the state of the random generators before the first block, so that a miner draws the same numbers if the
    blocks are computed again.
    """

    c: Comparison
    loss: Callable[[Rows], Sums]
    blocks: list[tuple[int, int]]
    keep: bool
    start: Generators | None

    def again(self) -> AbstractContextManager[None]:
        """Draw the same random numbers as in the first pass."""
        if self.start is None:
            return nullcontext()
        return drawn_again(self.start)

    def block(self, x: Tensor, ref: Tensor, lo: int, hi: int, graph: bool) -> tuple[Rows, Sums]:
        """Return the rows of a block, whose distances begin a graph of their own, and the loss of each row."""
        with torch.no_grad():
            rows = self.c.block(x, ref, lo, hi)
        with torch.set_grad_enabled(graph), without_autocast(x.device):
            sums = self.loss(rows._replace(d=rows.d.requires_grad_(graph)))
        return rows, sums


class _Swept(torch.autograd.Function):
    """The sum over blocks as one function; see the docstring of the module."""

    @staticmethod
    def forward(ctx: Any, plan: _Plan, x: Tensor, ref: Tensor, *more: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        ctx.save_for_backward(x, ref, *more)
        ctx.plan = plan
        ctx.wanted = ctx.needs_input_grad[1:3]
        ctx.kept = []
        # without a gradient to compute, no block needs a graph
        graph = any(ctx.needs_input_grad)
        gradients = _Gradients(plan.c, x, ref, more, ctx.wanted)
        sums = []
        for lo, hi in plan.blocks:
            rows, (num, den, statistics) = plan.block(x, ref, lo, hi, graph)
            sums.append(Sums(num.detach().sum(0), den.sum(0), statistics))
            if graph and num.ndim == 1:  # one numerator, whose weight is the same for all blocks: finish the gradient
                gradients.add(rows, num, None)
            elif graph and plan.keep:
                ctx.kept.append((rows, num))
            else:  # too large to keep: later blocks need no graph, and the backward pass computes all of them again
                graph = False
        ctx.gradients = gradients.total() if graph and not ctx.kept else None
        num, den, statistics = _added(sums)
        den = den.to(num.dtype)
        ctx.mark_non_differentiable(den, *(() if statistics is None else (statistics,)))
        return num, den, statistics

    @staticmethod
    @exact
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        plan = ctx.plan
        (x, ref, *more) = ctx.saved_tensors
        g = grads[0]
        if torch.is_grad_enabled():  # the gradient will be differentiated again: write it with a graph
            own_x = x.view_as(x)  # two inputs, even if the reference is the batch itself
            own_ref = ref.view_as(ref)
            with plan.again():
                num = _summed(plan.c, plan.loss, plan.blocks, own_x, own_ref).num
            inputs = [own_x, own_ref, *more]
            wanted = [part for part in inputs if part.requires_grad]  # a fixed reference needs no gradient
            found = iter(torch.autograd.grad(num, wanted, g, create_graph=True, allow_unused=True))
            return None, *(next(found) if part.requires_grad else None for part in inputs)
        if ctx.gradients is not None:
            # finished in the forward pass for a weight of 1
            return None, *(None if part is None else g * part for part in ctx.gradients)
        # several numerators: their weights are known only now, and no sum over blocks can be taken before
        gradients = _Gradients(plan.c, x, ref, more, ctx.wanted)
        if ctx.kept:
            for rows, num in ctx.kept:
                gradients.add(rows, num, g)
            return None, *gradients.total()
        with plan.again():
            for lo, hi in plan.blocks:
                rows, sums = plan.block(x, ref, lo, hi, graph=True)
                gradients.add(rows, sums.num, g)
        return None, *gradients.total()
