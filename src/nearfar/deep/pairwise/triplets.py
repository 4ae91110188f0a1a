"""Explicit triplets, for methods that compute something from each one, such as a synthetic negative."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from .. import distributed
from ..objective.batch import Batch
from ..rng import fresh_seed
from ..unit_vectors import unit
from .comparison import Comparison, Distance, Rows, Triplets, safe_sqrt
from .contextual import ContextualRowLoss
from .hinges import next_above, positives
from .row_loss import RowLoss


def mined_rows(batch: Batch, loss: RowLoss, miner: Any, normalize: bool) -> Rows:
    """Return the distances of this process's anchors to the whole batch, as `loss` measures them, after the miner."""
    c = Comparison(
        x=batch.x,
        y=batch.y,
        ref=batch.x,
        ref_y=batch.y,
        anchors=batch.anchors,
        is_self=True,
        distance=loss.distance,
        normalize=normalize,
        seed=fresh_seed(miner, batch.x),
    ).prepared()
    rows = c.block(c.x, c.ref, batch.anchors.start, batch.anchors.stop)
    if miner is not None:
        rows = miner(rows)
    return rows


def semi_hard(rows: Rows, fallback: str = "farthest") -> Triplets:
    """Pair every positive of an anchor with the nearest negative that is farther than it.

    If there is none, `fallback` decides, as in `BatchSemiHard`: "farthest" and "hardest" take the farthest or the
    nearest negative of the anchor, and "skip" forms no triplet.
    """
    columns, keep = positives(rows)
    if not columns.shape[1]:
        return Triplets(columns, columns, keep)
    d = rows.d.detach()
    # the nearest negative that is farther than the positive: d_ap < d_an, smallest d_an
    chosen, found = next_above(d.gather(1, columns), torch.where(rows.neg, d, torch.inf))
    if fallback == "hardest":
        other = torch.where(rows.neg, d, torch.inf).argmin(1, keepdim=True)
    else:
        other = torch.where(rows.neg, d, -torch.inf).argmax(1, keepdim=True)
    if fallback == "skip":
        known = found
    else:
        known = rows.neg.any(1, keepdim=True)
    return Triplets(columns, torch.where(found, chosen, other), keep & known)


def indices(rows: Rows, start: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the (t,) numbers of the anchors, positives and negatives of a block whose first anchor is `start`.

    They are the mined triplets, or, without a miner, every positive pair with a semi-hard negative.
    """
    triplets = rows.triplets or semi_hard(rows)
    row, place = triplets.keep.nonzero(as_tuple=True)
    return row + start, triplets.positive[row, place], triplets.negative[row, place]


def as_batch(anchor: Tensor, positive: Tensor, negative: Tensor) -> Batch:
    """Return a batch in which each of the (t, d) anchors has one positive and one negative reference, and no other.

    The references are the t positives, followed by the t negatives. With several processes, the batch holds the
    triplets of all, and each process computes its own anchors.
    """
    own = slice(0, len(anchor))
    if distributed.world() > 1:
        sizes = [int(size) for size in distributed.gather_numbers(torch.tensor([len(anchor)], device=anchor.device))]
        anchor, positive, negative = distributed.gather_parts([anchor, positive, negative], [sizes] * 3)
        own = distributed.part_of(sizes)
    t = len(anchor)
    eye = torch.eye(t, dtype=torch.bool, device=anchor.device)
    relation = torch.full((t, 2 * t), -1, dtype=torch.int8, device=anchor.device)
    # (t, 2 t): row i is similar to reference i, dissimilar to reference t + i, and its relation to others is unknown
    relation[:, :t].masked_fill_(eye, 1)
    relation[:, t:].masked_fill_(eye, 0)
    y = torch.full((2 * t,), -1, device=anchor.device)
    return Batch(anchor, relation, own, ref=torch.cat([positive, negative]), ref_y=y)


def triplet_value(
    loss: RowLoss, anchor: Tensor, positive: Tensor, negative: Tensor, keep: Tensor | None = None
) -> Tensor:
    """Return this process's share of a loss over (t, d) triplets; its value is that over `as_batch` of them.

    Only those in the mask `keep`, (t,), count. If no row reads another, rows of two columns suffice, and time and
    memory grow with t, not with its square.
    """
    kind = type(loss)
    adds_nothing = all(getattr(kind, name) is getattr(RowLoss, name) for name in ("local_value", "compare", "penalty"))
    plain = adds_nothing and kind.comparison in (RowLoss.comparison, ContextualRowLoss.comparison)
    built_in = isinstance(loss.distance, str)  # a user's function compares all with all
    no_triplets = distributed.world() == 1 and not len(anchor)
    if loss.single_block or not plain or not built_in or no_triplets:
        if keep is not None:
            anchor = anchor[keep]
            positive = positive[keep]
            negative = negative[keep]
        return loss.local_value(as_batch(anchor, positive, negative))
    if not len(anchor):  # the other processes divide by the sums of all: take part with zeros of the same shape
        point = anchor.new_zeros(1, anchor.shape[1])
        num, den = loss.rows(own_rows(point, point, point, loss))
        return loss.divided(num.sum(0) * 0, den.sum(0, dtype=num.dtype) * 0)
    rows = own_rows(anchor, positive, negative, loss)
    if keep is not None:
        rows = rows._replace(pos=rows.pos & keep[:, None], neg=rows.neg & keep[:, None])
    if loss.miner is not None:
        rows = loss.miner(rows)
    num, den = loss.rows(rows)
    return loss.divided(num.sum(0), den.sum(0, dtype=num.dtype))


def own_rows(anchor: Tensor, positive: Tensor, negative: Tensor, loss: RowLoss) -> Rows:
    """Return rows of two columns, (t, 2): the comparison of each anchor with its positive, then with its negative."""
    if loss.normalize or loss.distance == "cosine":
        anchor = unit(anchor)
        positive = unit(positive)
        negative = unit(negative)
    # from differences, not from a product: t distances instead of t^2
    near = _apart(anchor, positive, loss.distance)
    far = _apart(anchor, negative, loss.distance)
    d = torch.stack([near, far], 1)
    pos = (torch.arange(2, device=d.device) == 0).expand_as(d)
    return Rows(d, pos, ~pos, loss.distance, anchor.shape[1])


def _apart(x: Tensor, y: Tensor, distance: Distance) -> Tensor:
    """Return the (t,) dissimilarities of each row of x to the same row of y."""
    if distance == "cosine":
        return 1 - (x * y).sum(1)
    if distance == "dot":
        return 0 - (x * y).sum(1)
    # not |x|^2 + |y|^2 - 2 x.y, which loses the digits of points that are near to each other
    squares = (x - y).square().sum(1)
    if distance == "euclidean":
        return safe_sqrt(squares)
    return squares


def negative_generator(d: int, rectify: bool) -> nn.Module:
    """Return a network from (t, 3d) triplets to (t, d) points: linear, ReLU, linear, and a ReLU if `rectify`."""
    first = nn.Linear(3 * d, d)
    second = nn.Linear(d, d)
    for linear in (first, second):
        nn.init.normal_(linear.weight, std=0.02)
        nn.init.zeros_(linear.bias)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU() if rectify else nn.Identity())


def identity_layers(d: int, number: int) -> nn.Module:
    """Return linear layers that are initialized as the identity."""
    layers = [nn.Linear(d, d) for _ in range(number)]
    for layer in layers:
        # training begins from the metric that the embeddings have
        nn.init.eye_(layer.weight)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


def through(network: nn.Module, x: Tensor, held: bool = False) -> Tensor:
    """Return the output of a network for x in the precision of x; with `held`, its weights get no gradient."""
    weights: dict[str, Tensor] = dict(network.named_parameters())
    buffers = dict(network.named_buffers())
    if not held and all(weight.dtype == x.dtype for weight in weights.values()):
        made: Tensor = network(x)
        return made
    if held:
        weights = {name: weight.detach() for name, weight in weights.items()}
        buffers = {name: buffer.clone() for name, buffer in buffers.items()}  # running statistics stay as they are
    state = {name: weight.to(x.dtype) for name, weight in weights.items()}
    return functional_call(network, {**state, **buffers}, (x,))
