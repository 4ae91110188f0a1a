"""What pair and triplet losses are computed from: a batch compared with a reference, in blocks of rows.

The reference is the batch itself, a memory, the class proxies or the class means. A row holds the dissimilarities of
one anchor to the whole reference, and the masks of its similar and dissimilar samples. A row loss maps a block of rows
to a numerator and a denominator per anchor, each (b,) or, for a sum of several means, (b, k); the engine adds up both
over the blocks and divides once. Every reduction of the literature is therefore exact for any block size, memory is
O(block x m), and no list of pairs or triplets is ever built.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from math import exp
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ...settings import check_options
from ..autograd import applied, traced
from ..objective.relations import UNKNOWN, Labels, is_classes, masks
from ..rng import uniform
from ..unit_vectors import unit

DISTANCES = ("sq_euclidean", "euclidean", "cosine", "dot")
Distance: TypeAlias = str | Callable[[Tensor, Tensor], Tensor]  # one of `DISTANCES`, or a function of two sides
# e^-60 is below the rounding error of a float64 sum that holds a 1; denormal results further down would be slow
EXPONENT_FLOOR = -60.0
TRANSPOSED_ROWS = 512  # a square matrix of so many rows is transposed within the processor's cache
SMALL_BLOCK = 1 << 14  # up to so many entries, the number of calls determines the time, not the number of entries
FULL = 1 << 24  # comparisons that are held at once on any device before `block=None` starts to cut the batch
SHARE_OF_MEMORY = 64  # a matrix of comparisons may take this part, a 64th, of a device's memory
BYTES_OF_A_NUMBER = 4  # of a float32
MIN_BLOCK_ROWS = 64  # with fewer rows in a block, matrix products are slow


class Triplets(NamedTuple):
    """Mined triplets, at most k for each anchor.

    Attributes
    ----------
    positive, negative : Tensor
        (b, k) int64 columns of the block.
    keep : Tensor
        (b, k) boolean mask of the places that hold a triplet.
    """

    positive: Tensor
    negative: Tensor
    keep: Tensor


class Rows(NamedTuple):
    """A block of anchors compared with the reference.

    Attributes
    ----------
    d : Tensor
        (b, m) dissimilarities. Smaller values mean nearer for any distance: "dot" is the negative inner product, and
        "cosine" is one minus the cosine.
    pos, neg : Tensor
        (b, m) boolean masks of the similar references, never the anchor itself, and of the dissimilar ones. Miners
        narrow them.
    distance : str or callable
        Distance that `d` holds: one of `DISTANCES`, or a function.
    dim : int
        Number of dimensions of the embeddings.
    triplets : Triplets or None
        Triplets, if a miner chooses one negative for each of some positives.
    first : int
        Row of the block's first anchor in the batch.
    seed : Tensor or None
        Seed () of a miner's random draws, the same in all blocks and processes; see `uniform`.
    found : Any
        What a loss computed from the whole batch before it sums its rows (`contextual.ContextualRowLoss.find`), or
        None.
    x, ref : Tensor or None
        (b, d) anchors and (m, d) references as they were compared: of unit length if the loss normalizes them. None if
        only distances are given (`Term.from_distances`); a loss that reads them says so (`RowLoss.reads_vectors`).
    """

    d: Tensor
    pos: Tensor
    neg: Tensor
    distance: Distance
    dim: int
    triplets: Triplets | None = None
    first: int = 0
    seed: Tensor | None = None
    found: Any = None
    x: Tensor | None = None
    ref: Tensor | None = None

    def uniform(self, numbers: Tensor, stream: int = 0) -> Tensor:
        """Return random numbers in [0, 1), (b, k), that depend neither on the blocks nor on the number of processes.

        Parameters
        ----------
        numbers : (k,) or (b, k) integers
            Number that identifies each draw of an anchor, such as a counter, or the column of the positive it is for.
        stream : int
            Number that separates draws for different purposes.
        """
        if self.seed is None:
            raise ValueError("rows have a seed only if the miner has `draws = True`")
        anchors = torch.arange(self.first, self.first + len(self.d), device=self.d.device)
        return uniform(self.seed, anchors, numbers, stream)


RowFunction = Callable[[Rows], tuple[Tensor, Tensor]]


def safe_sqrt(x: Tensor) -> Tensor:
    """Return the square root of x, whose gradient is 0 instead of infinite where x is 0 (two equal points)."""
    positive = x > 0
    # the inner `where` keeps the infinite slope of the root at 0 out of the graph: 0 * inf would be NaN
    return torch.where(positive, torch.where(positive, x, 1.0).sqrt(), 0.0)


class _Distances(torch.autograd.Function):
    """See `prepared_rows`; where two points coincide, the gradient of "euclidean" is 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ref: Tensor, distance: str) -> Tensor:
        if distance.endswith("euclidean"):
            # d_ij^2 = |x_i|^2 + |r_j|^2 - 2 x_i . r_j, (b, m); rounding can leave it just below 0
            squares = x.square().sum(1)
            if x is ref:
                ref_squares = squares
            else:
                ref_squares = ref.square().sum(1)
            d = torch.addmm(ref_squares, x, ref.T, alpha=-2).add_(squares[:, None]).clamp_min_(0)
            if distance == "euclidean":
                d = d.sqrt_()
        else:
            # -x_i . r_j, to which "cosine" adds 1
            d = torch.mm(-x, ref.T)
            if distance == "cosine":
                d = d.add_(1)
        ctx.distance = distance
        ctx.itself = x is ref
        ctx.save_for_backward(x, ref, d)
        return d

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, ref, d = ctx.saved_tensors
        g = distance_grad(grads[0], d, ctx.distance)
        if ctx.itself:
            # x is on both sides: the gradient is that of G + G^T, one product instead of two if transposing is cheap
            if len(g) <= TRANSPOSED_ROWS:
                return _to_side(g + g.T, x, x, ctx.distance), None, None
            return _to_side(g, x, x, ctx.distance) + _to_side(g.T, x, x, ctx.distance), None, None
        if ctx.needs_input_grad[0]:
            one = _to_side(g, x, ref, ctx.distance)
        else:
            one = None
        if ctx.needs_input_grad[1]:
            other = _to_side(g.T, ref, x, ctx.distance)
        else:
            other = None
        return one, other, None


def _to_side(g: Tensor, x: Tensor, ref: Tensor, distance: str) -> Tensor:
    """Return the (b, d) gradient in x from g, (b, m), the result of `distance_grad`."""
    if distance in ("cosine", "dot"):
        return -(g @ ref)  # of -x_i . r_j
    # sum_j g_ij (x_i - r_j), the gradient of half of the squared distances; "sq_euclidean" has twice that
    scale = 2 if distance == "sq_euclidean" else 1
    return torch.addmm(g.sum(1)[:, None] * x, g, ref, beta=scale, alpha=-scale)


def distance_grad(g: Tensor, d: Tensor, distance: Distance) -> Tensor:
    """Turn the gradient g in the distances d, (b, m), into that in d^2 / 2, or in minus the inner products.

    For "sq_euclidean", it is half of that gradient: the caller multiplies by 2.
    """
    if distance != "euclidean":
        return g
    # the gradient in d^2 / 2 is g / d; where two points coincide, d = 0 becomes infinite, and the gradient 0
    slope = torch.threshold(d, 0, torch.inf)
    if torch.is_grad_enabled():
        return g / slope
    return torch.div(g, slope, out=slope)


def check_distance(owner: object, distance: Distance) -> None:
    """Raise a ValueError that names the owner's class unless the distance is one of `DISTANCES` or callable."""
    if isinstance(distance, (str, type)) or not callable(distance):
        check_options(owner, DISTANCES, distance=distance)
    if getattr(distance, "is_inverted", False):  # as the similarities of pytorch-metric-learning say of themselves
        name = type(distance).__name__
        raise ValueError(f'distance: {name} is larger for nearer vectors; pass "cosine" or "dot", or a dissimilarity')


def called(distance: Callable[[Tensor, Tensor], Tensor], x: Tensor, ref: Tensor) -> Tensor:
    """Return the (b, m) dissimilarities that a user's function computes, or raise if they have another shape."""
    d = distance(x, ref)
    if not isinstance(d, Tensor):
        got = type(d).__name__
    elif d.shape != (len(x), len(ref)):
        got = str(tuple(d.shape))
    else:
        return d
    expected = f"({len(x)}, {len(ref)}) dissimilarities of {len(x)} to {len(ref)} vectors"
    raise ValueError(f"distance: expected {expected}, got {got}")


def prepared_rows(x: Tensor, ref: Tensor, distance: Distance) -> Tensor:
    """Return the (b, m) dissimilarities of the rows of x and ref, which for "cosine" have unit length already."""
    if not isinstance(distance, str):
        return called(distance, x, ref)
    if x.shape[0] * ref.shape[0] <= SMALL_BLOCK and distance in ("cosine", "dot") and on_host(x):
        # two calls and PyTorch's own gradient take less time here than a function with a gradient of its own
        s = x @ ref.T
        if distance == "cosine":
            return torch.rsub(s, 1)
        return -s
    if ref is x and torch.compiler.is_compiling():  # compiled functions cannot take one tensor twice
        ref = x[:]
    d: Tensor = applied(_Distances, x, ref, distance)
    return d


def sq_euclidean(x: Tensor, ref: Tensor) -> Tensor:
    """Return the (b, m) squared Euclidean distances, from one matrix product."""
    return prepared_rows(x, ref, "sq_euclidean")


def dissimilarity(x: Tensor, ref: Tensor, distance: Distance) -> Tensor:
    """Return the (b, m) dissimilarities of the rows of x and ref; `distance` is one of `DISTANCES`, or callable."""
    if distance == "cosine":
        x = unit(x)
        ref = unit(ref)
    return prepared_rows(x, ref, distance)


def on_host(x: Tensor) -> bool:
    """Return whether NumPy may read and write the memory of x: on a CPU, and not in a compiled graph."""
    return x.device.type == "cpu" and not traced()


def is_small(x: Tensor) -> bool:
    """Return whether x is on the host, and so small that its time depends on the number of calls, not of entries."""
    return x.numel() <= SMALL_BLOCK and on_host(x)


def masked_fill(x: Tensor, keep: Tensor, otherwise: float, scale: float = 1.0) -> Tensor:
    """Return a new matrix without a graph: scale x where `keep`, and the number `otherwise` elsewhere."""
    if scale != 1:
        x = x.detach() * scale
    if x.numel() <= SMALL_BLOCK or not on_host(x):
        return torch.where(keep, x, otherwise)
    if scale == 1:
        x = x.detach().clone()
    np.copyto(x.numpy(), otherwise, where=~keep.numpy(), casting="unsafe")  # writes only the few entries that change
    return x


def exponentials_(x: Tensor) -> Tensor:
    """Replace the entries of x, at most 0, by their exponentials, or by 0 where these are negligible beside 1.

    Processors are slow at exponentials that underflow, and at products of denormal numbers.
    """
    if x.dtype == torch.float64:
        floor = EXPONENT_FLOOR
    else:
        floor = EXPONENT_FLOOR * 2 / 3
    # e^floor <= e^x <= 1; everything up to 2 e^floor becomes 0
    return torch.threshold_(x.clamp_min_(floor).exp_(), 2 * exp(floor), 0.0)


def count(mask: Tensor) -> Tensor:
    """Return how many entries of each row are True."""
    return mask.sum(1, dtype=torch.int32)  # on a CPU several times as fast as the default, int64


class Comparison(NamedTuple):
    """A batch and the reference that it is compared with, before they are cut into blocks.

    Attributes
    ----------
    x, y : (n, d) tensor, labels
        Embeddings of the whole batch and their labels.
    ref, ref_y : (m, d) tensor, labels
        Reference vectors and their labels.
    anchors : slice
        Rows of `x` that this process computes.
    is_self : bool
        Whether the reference is the batch itself, so that every anchor is also a reference.
    distance : str or callable
        One of `DISTANCES`, or a function.
    normalize : bool
        Whether both sides are scaled to unit length first.
    ready : bool
        Whether both sides are `prepared`.
    ids, ref_ids : (n,) and (m,) tensors or None
        Number of each row's sample, -1 if unknown. No sample is compared with itself.
    seed : Tensor or None
        Seed of the miner's random draws, if it makes any.
    found : NamedTuple or None
        What the rows need of the whole batch besides themselves (`contextual.ContextualRowLoss.find`), which every
        block passes on.
    given : bool
        Whether `x`, (n, m), holds the dissimilarities themselves (`Term.from_distances`); `ref` is then only counted.
    """

    x: Tensor
    y: Labels
    ref: Tensor
    ref_y: Labels
    anchors: slice
    is_self: bool
    distance: Distance
    normalize: bool
    ready: bool = False
    ids: Tensor | None = None
    ref_ids: Tensor | None = None
    seed: Tensor | None = None
    found: Any = None
    given: bool = False

    @property
    def is_euclidean(self) -> bool:
        return isinstance(self.distance, str) and self.distance.endswith("euclidean")

    def prepared(self) -> Comparison:
        """Return the comparison with both sides normalized or centered, once for all blocks.

        Euclidean distances are those of the uncentered vectors; only less precision is lost to cancellation in float32.
        """
        if self.ready or self.given:
            return self
        x = self.x
        ref = self.ref
        same = ref is x  # blocks recognize the batch as its own reference by identity, so one tensor stays one
        if self.normalize or self.distance == "cosine":
            x = unit(x)
            ref = x if same else unit(ref)
        elif self.is_euclidean and len(ref):
            center = ref.detach().mean(0)
            x = x - center
            ref = x if same else ref - center
        return self._replace(x=x, ref=ref, normalize=False, ready=True)

    def block(self, x: Tensor, ref: Tensor, lo: int, hi: int) -> Rows:
        """Return the rows of anchors lo to hi - 1 of the batch; the comparison must be `prepared`."""
        pos, neg = masks(self.y, self.ref_y, slice(lo, hi))
        if self.is_self:
            # no anchor is its own positive or negative, whatever a relation matrix has there; classes make it "similar"
            pos.diagonal(lo).fill_(False)
            if not is_classes(self.y):
                neg.diagonal(lo).fill_(False)
        if self.ids is not None and self.ref_ids is not None:
            other = (self.ids[lo:hi, None] != self.ref_ids) | (self.ref_ids == UNKNOWN)
            pos = pos & other
            neg = neg & other
        if hi - lo < x.shape[0] or torch.compiler.is_compiling():  # compiled functions cannot take one tensor twice
            x = x[lo:hi]
        if self.given:
            return Rows(x, pos, neg, self.distance, 0, first=lo, seed=self.seed, found=self.found)
        d = prepared_rows(x, ref, self.distance)
        return Rows(d, pos, neg, self.distance, x.shape[1], first=lo, seed=self.seed, found=self.found, x=x, ref=ref)


@cache
def comparisons_at_once(device: torch.device) -> int:
    """Return how many comparisons `block=None` holds at once on a device.

    A matrix of them may take a 64th of the device's memory; a loss keeps about three such matrices for its gradient.
    """
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory
    elif device.type == "cpu" and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    else:
        memory = 0
    return max(FULL, memory // (SHARE_OF_MEMORY * BYTES_OF_A_NUMBER))


def spans(anchors: slice, m: int, block: int | None, device: torch.device) -> list[tuple[int, int]]:
    """Return the (first, last + 1) anchors of each block of rows.

    Without `block`, all anchors are one block if their comparisons with m references fit into the device's memory.
    """
    n = anchors.stop - anchors.start
    if block is None and 0 < n * m <= FULL:
        return [(anchors.start, anchors.stop)]
    if block is None:
        # a compiled graph holds for any machine, and cannot read this one's memory
        room = FULL if torch.compiler.is_compiling() else comparisons_at_once(device)
        if n * m <= room:
            block = n
        else:
            block = min(n, max(MIN_BLOCK_ROWS, room // (2 * m)))
    size = max(1, block)
    return [(lo, min(lo + size, anchors.stop)) for lo in range(anchors.start, anchors.stop, size)]
