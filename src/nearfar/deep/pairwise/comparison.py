"""The one engine of every pair, triplet and proxy loss.

A batch is compared with a reference: itself, a memory, the class proxies, the class means. A row holds one anchor's
dissimilarities to the whole reference and the masks of its similar and dissimilar samples. A row loss maps a block of
rows to (numerator, denominator) per anchor, each (b,) or, for a sum of several means, (b, k); the engine sums both
over blocks and divides once. So every reduction of the literature is exact under blocking, memory is O(block x m),
and no pair or triplet index is ever built.
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
EXPONENT_FLOOR = (
    -60.0
)  # exponents below it add nothing that a float64 sum could hold, and would be slow denormal numbers
TRANSPOSED_ROWS = 512  # rows of a square matrix that are turned in a processor's cache
SMALL_BLOCK = 1 << 14  # entries so few that the number of calls takes the time
FULL = 1 << 24  # comparisons held at once on any device before `block=None` starts to cut the batch
SHARE_OF_MEMORY = 64
BYTES_OF_A_NUMBER = 4
MIN_BLOCK_ROWS = 64  # rows of a block, below which matrix products are slow


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
        Number of the block's first anchor in the batch.
    seed : Tensor or None
        Seed () of a miner's draws, the same in all blocks and processes; see `uniform`.
    found : Any
        What a loss computed from the whole batch before its rows are summed (`contextual.ContextualRowLoss.find`), or
        None.
    x, ref : Tensor or None
        (b, d) anchors and (m, d) references as they were compared, scaled to unit length if the loss does so.
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
        """Return random numbers in [0, 1), (b, k), that depend neither on blocks nor on the number of processes.

        Parameters
        ----------
        numbers : (k,) or (b, k) integers
            What is drawn for each anchor, such as the number of the draw, or the column of the positive that it is for.
        stream : int
            Number that distinguishes draws of several kinds.
        """
        if self.seed is None:
            raise ValueError("rows have a seed where the miner has `draws = True`")
        anchors = torch.arange(self.first, self.first + len(self.d), device=self.d.device)
        return uniform(self.seed, anchors, numbers, stream)


RowFunction = Callable[[Rows], tuple[Tensor, Tensor]]


def safe_sqrt(x: Tensor) -> Tensor:
    """Square root with gradient 0, not infinity, where x is 0 (two equal points)."""
    positive = x > 0
    return torch.where(positive, torch.where(positive, x, 1.0).sqrt(), 0.0)


class _Distances(torch.autograd.Function):
    """See `prepared_rows`; where two points coincide the gradient of "euclidean" is 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ref: Tensor, distance: str) -> Tensor:
        if distance.endswith("euclidean"):
            squares = x.square().sum(1)
            others = squares if x is ref else ref.square().sum(1)
            d = torch.addmm(others, x, ref.T, alpha=-2).add_(squares[:, None]).clamp_min_(0)
        else:
            d = torch.mm(-x, ref.T)
            d = d.add_(1) if distance == "cosine" else d
        d = d.sqrt_() if distance == "euclidean" else d
        ctx.distance = distance
        ctx.itself = x is ref
        ctx.save_for_backward(x, ref, d)
        return d

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, ref, d = ctx.saved_tensors
        g = distance_grad(grads[0], d, ctx.distance)
        if ctx.itself:
            # x is on both sides: (G + G^T) x, one product instead of two where transposing is cheap
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
    """Return the gradient in x of the comparison of its rows with ref, from that in `distance_grad`."""
    if distance in ("cosine", "dot"):
        return -(g @ ref)
    scale = 2 if distance == "sq_euclidean" else 1
    return torch.addmm(g.sum(1)[:, None] * x, g, ref, beta=scale, alpha=-scale)


def distance_grad(g: Tensor, d: Tensor, distance: Distance) -> Tensor:
    """Turn a gradient in distances into one in half squared distances, or in minus the products of the vectors.

    For "sq_euclidean" the result is half of it.
    """
    if distance != "euclidean":
        return g
    slope = torch.threshold(d, 0, torch.inf)  # where two points coincide it is 0
    if torch.is_grad_enabled():
        return g / slope
    return torch.div(g, slope, out=slope)


def check_distance(owner: object, distance: Distance) -> None:
    """Raise a ValueError that names the owner's class unless a distance is one of `DISTANCES` or can be called."""
    if isinstance(distance, (str, type)) or not callable(distance):
        check_options(owner, DISTANCES, distance=distance)


def called(distance: Callable[[Tensor, Tensor], Tensor], x: Tensor, ref: Tensor) -> Tensor:
    """Return what a function gives for rows of x and of ref, (b, m), or raise where it has another shape."""
    d = distance(x, ref)
    if not isinstance(d, Tensor) or d.shape != (len(x), len(ref)):
        got = tuple(d.shape) if isinstance(d, Tensor) else type(d).__name__
        told = f"expected ({len(x)}, {len(ref)}) dissimilarities of {len(x)} to {len(ref)} vectors, got {got}"
        raise ValueError(f"distance: {told}")
    return d


def prepared_rows(x: Tensor, ref: Tensor, distance: Distance) -> Tensor:
    """Return the (b, m) dissimilarities of rows of x to rows of ref; those of "cosine" have unit length."""
    if not isinstance(distance, str):
        return called(distance, x, ref)
    if x.shape[0] * ref.shape[0] <= SMALL_BLOCK and distance in ("cosine", "dot") and on_host(x):
        s = x @ ref.T
        return torch.rsub(s, 1) if distance == "cosine" else -s
    if ref is x and torch.compiler.is_compiling():  # compiled functions cannot take one tensor twice
        ref = x[:]
    d: Tensor = applied(_Distances, x, ref, distance)
    return d


def sq_euclidean(x: Tensor, ref: Tensor) -> Tensor:
    """Return the (b, m) squared Euclidean distances, from one matrix product."""
    return prepared_rows(x, ref, "sq_euclidean")


def dissimilarity(x: Tensor, ref: Tensor, distance: Distance) -> Tensor:
    """Return the (b, m) dissimilarities of rows of x to rows of ref; `distance` is one of `DISTANCES`, or callable."""
    sides = (unit(x), unit(ref)) if distance == "cosine" else (x, ref)
    return prepared_rows(*sides, distance)


def on_host(x: Tensor) -> bool:
    """Return whether NumPy may read and write the memory of x: on a CPU, and not in a compiled graph."""
    return x.device.type == "cpu" and not traced()


def is_small(x: Tensor) -> bool:
    """Return whether x is on the host with so few entries that the number of calls, not of entries, takes the time."""
    return x.numel() <= SMALL_BLOCK and on_host(x)


def masked_fill(x: Tensor, keep: Tensor, otherwise: float, scale: float = 1.0) -> Tensor:
    """Return scale x where `keep`, and elsewhere a number, in a new matrix without a graph."""
    x = x if scale == 1 else x.detach() * scale
    if x.numel() <= SMALL_BLOCK or not on_host(x):
        return torch.where(keep, x, otherwise)
    result = x.detach().clone() if scale == 1 else x
    np.copyto(result.numpy(), otherwise, where=~keep.numpy(), casting="unsafe")  # writes only the few that change
    return result


def exponentials_(x: Tensor) -> Tensor:
    """Overwrite x, at most 0, by its exponentials, 0 where they would add nothing to 1.

    A processor is slow to find a 0, and to square what is nearly 0.
    """
    floor = EXPONENT_FLOOR if x.dtype == torch.float64 else EXPONENT_FLOOR * 2 / 3
    return torch.threshold_(x.clamp_min_(floor).exp_(), 2 * exp(floor), 0.0)


def count(mask: Tensor) -> Tensor:
    """Return how many entries of each row are True."""
    return mask.sum(1, dtype=torch.int32)  # several times faster on a CPU than the int64 default


class Comparison(NamedTuple):
    """What is compared with what, and how.

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
        Seed of a miner's draws, if it draws.
    found : NamedTuple or None
        What the rows read of the whole batch besides themselves, which every block passes on.
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

    @property
    def is_euclidean(self) -> bool:
        return isinstance(self.distance, str) and self.distance.endswith("euclidean")

    def prepared(self) -> Comparison:
        """Normalize or center once for all blocks: distances do not change, float32 cancellation shrinks."""
        x = self.x
        ref = self.ref
        if not self.ready and (self.normalize or self.distance == "cosine"):
            x = unit(x)
            ref = x if self.ref is self.x else unit(ref)
        elif not self.ready and self.is_euclidean and len(ref):
            center = ref.detach().mean(0)
            x = x - center
            ref = x if self.ref is self.x else ref - center
        return self._replace(x=x, ref=ref, normalize=False, ready=True)

    def detached(self) -> Comparison:
        """Return the comparison without a graph, which is enough for its statistics."""
        x = self.x.detach()
        ref = x if self.is_self else self.ref.detach()
        found = self.found
        if found is not None:
            found = found._make(part.detach() if isinstance(part, Tensor) else part for part in found)
        return self._replace(x=x, ref=ref, found=found)

    def block(self, x: Tensor, ref: Tensor, lo: int, hi: int) -> Rows:
        """Return rows lo to hi (indices into the batch) of a comparison that is `prepared`."""
        pos, neg = masks(self.y, self.ref_y, slice(lo, hi))
        if self.is_self:  # no anchor is its own positive or negative, whatever a relation matrix says
            pos.diagonal(lo).fill_(False)
            if not is_classes(self.y):
                neg.diagonal(lo).fill_(False)
        if self.ids is not None and self.ref_ids is not None:
            other = (self.ids[lo:hi, None] != self.ref_ids) | (self.ref_ids == UNKNOWN)
            pos = pos & other
            neg = neg & other
        if hi - lo < x.shape[0] or torch.compiler.is_compiling():  # compiled functions cannot take one tensor twice
            x = x[lo:hi]
        d = prepared_rows(x, ref, self.distance)
        return Rows(d, pos, neg, self.distance, x.shape[1], first=lo, seed=self.seed, found=self.found, x=x, ref=ref)


@cache
def comparisons_at_once(device: torch.device) -> int:
    """Return how many comparisons `block=None` holds at once: a matrix of them takes a 64th of a device's memory.

    A loss keeps some three such matrices for its gradient.
    """
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory
    elif device.type == "cpu" and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    else:
        memory = 0
    return max(FULL, memory // (SHARE_OF_MEMORY * BYTES_OF_A_NUMBER))


def spans(anchors: slice, m: int, block: int | None, device: torch.device) -> list[tuple[int, int]]:
    """Cut the anchors into blocks of rows; None chooses the whole batch where the device's memory has room for it."""
    n = anchors.stop - anchors.start
    if block is None and 0 < n * m <= FULL:
        return [(anchors.start, anchors.stop)]
    if block is None:
        room = FULL if torch.compiler.is_compiling() else comparisons_at_once(device)
        block = n if n * m <= room else min(n, max(MIN_BLOCK_ROWS, room // (2 * m)))
    size = max(1, block)
    return [(lo, min(lo + size, anchors.stop)) for lo in range(anchors.start, anchors.stop, size)]
