"""Explicit triplets, for methods that make something from each, as a generator of negatives does."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

from .. import distributed
from ..objective.batch import Batch
from ..unit_vectors import unit
from .comparison import Distance, Rows, Triplets, safe_sqrt
from .contextual import ContextualRowLoss
from .hinges import next_above, positives
from .row_loss import RowLoss


def semi_hard(rows: Rows, fallback: str = "farthest") -> Triplets:
    """Pair every positive of a row with the nearest negative that is farther; without one, do as `BatchSemiHard`."""
    columns, keep = positives(rows)
    if not columns.shape[1]:
        return Triplets(columns, columns, keep)
    d = rows.d.detach()
    chosen, found = next_above(d.gather(1, columns), torch.where(rows.neg, d, torch.inf))
    if fallback == "hardest":
        other = torch.where(rows.neg, d, torch.inf).argmin(1, keepdim=True)
    else:
        other = torch.where(rows.neg, d, -torch.inf).argmax(1, keepdim=True)
    known = found if fallback == "skip" else rows.neg.any(1, keepdim=True)
    return Triplets(columns, torch.where(found, chosen, other), keep & known)


def indices(rows: Rows, start: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the (t,) anchors, positives and negatives of a block of rows whose first anchor is `start`.

    They are the mined triplets, or every positive pair with a semi-hard negative.
    """
    triplets = rows.triplets or semi_hard(rows)
    row, place = triplets.keep.nonzero(as_tuple=True)
    return row + start, triplets.positive[row, place], triplets.negative[row, place]


def as_batch(anchor: Tensor, positive: Tensor, negative: Tensor) -> Batch:
    """Return a batch in which each of the (t, d) anchors has one positive and one negative reference, and no other.

    With several processes the batch holds the triplets of all, and each process computes its own anchors.
    """
    own = slice(0, len(anchor))
    if distributed.world() > 1:
        sizes = [int(size) for size in distributed.gather_numbers(torch.tensor([len(anchor)], device=anchor.device))]
        anchor, positive, negative = distributed.gather_parts([anchor, positive, negative], [sizes] * 3)
        own = distributed.part_of(sizes)
    t = len(anchor)
    eye = torch.eye(t, dtype=torch.bool, device=anchor.device)
    relation = torch.full((t, 2 * t), -1, dtype=torch.int8, device=anchor.device)
    relation[:, :t].masked_fill_(eye, 1)
    relation[:, t:].masked_fill_(eye, 0)
    y = torch.full((2 * t,), -1, device=anchor.device)
    return Batch(anchor, relation, own, ref=torch.cat([positive, negative]), ref_y=y)


def triplet_value(loss: RowLoss, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """Return a process's share of a loss over (t, d) triplets, computed over the batch that `as_batch` makes of them.

    If no row reads another, rows of two columns suffice, and time and memory grow with t, not with its square.
    """
    kind = type(loss)
    adds_nothing = kind.local_value is RowLoss.local_value and kind.compare is RowLoss.compare
    alone = adds_nothing and kind.comparison in (RowLoss.comparison, ContextualRowLoss.comparison)
    single = distributed.world() == 1
    alone = alone and isinstance(loss.distance, str)  # a function compares all with all
    if loss.single_block or not alone or (single and not len(anchor)):
        return loss.local_value(as_batch(anchor, positive, negative))
    if not len(anchor):  # the other processes divide by the sums of all: zeros in the shape of theirs
        point = anchor.new_zeros(1, anchor.shape[1])
        num, den = loss.rows(own_rows(point, point, point, loss))
        return loss.divided(num.sum(0) * 0, den.sum(0, dtype=num.dtype) * 0)
    rows = own_rows(anchor, positive, negative, loss)
    num, den = loss.rows(loss.miner(rows) if loss.miner is not None else rows)
    return loss.divided(num.sum(0), den.sum(0, dtype=num.dtype))


def own_rows(anchor: Tensor, positive: Tensor, negative: Tensor, loss: RowLoss) -> Rows:
    """Return (t, 2) rows: each anchor's positive, then its negative."""
    if loss.normalize or loss.distance == "cosine":
        anchor = unit(anchor)
        positive = unit(positive)
        negative = unit(negative)
    d = torch.stack([_apart(anchor, other, loss.distance) for other in (positive, negative)], 1)
    pos = (torch.arange(2, device=d.device) == 0).expand_as(d)
    return Rows(d, pos, ~pos, loss.distance, anchor.shape[1])


def _apart(x: Tensor, y: Tensor, distance: Distance) -> Tensor:
    """Return the (t,) dissimilarities of the rows of x to those of y."""
    if distance in ("cosine", "dot"):
        return (1 if distance == "cosine" else 0) - (x * y).sum(1)
    squares = (x - y).square().sum(1)
    return safe_sqrt(squares) if distance == "euclidean" else squares


def negative_generator(d: int, rectify: bool) -> nn.Module:
    """Return two linear layers from (t, 3d) triplets to (t, d) points with a ReLU between, and after if `rectify`."""
    first = nn.Linear(3 * d, d)
    second = nn.Linear(d, d)
    for linear in (first, second):
        nn.init.normal_(linear.weight, std=0.02)
        nn.init.zeros_(linear.bias)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU() if rectify else nn.Identity())


def identity_layers(d: int, number: int) -> nn.Module:
    """Return linear layers that begin as the identity."""
    layers = [nn.Linear(d, d) for _ in range(number)]
    for layer in layers:
        nn.init.eye_(layer.weight)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


def through(network: nn.Module, x: Tensor, held: bool = False) -> Tensor:
    """Return the output of a network for x, in the precision of x; held: without gradient for the weights."""
    weights = dict(network.named_parameters())
    buffers = dict(network.named_buffers())
    if not held and all(weight.dtype == x.dtype for weight in weights.values()):
        made: Tensor = network(x)
        return made
    state = {name: (weight.detach() if held else weight).to(x.dtype) for name, weight in weights.items()}
    if held:
        copies = {name: buffer.clone() for name, buffer in buffers.items()}
    else:
        copies = buffers
    return functional_call(network, {**state, **copies}, (x,))
