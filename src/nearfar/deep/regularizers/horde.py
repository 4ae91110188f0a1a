"""HORDE, high-order moments of features as further embeddings (Jacob et al., 2019).

    L = sum_{k=2}^{K} loss( phi_k / ||phi_k|| )        phi_k = mean_x  (W_1 x) * (W_2 x) * ... * (W_k x)

x: feature vectors of an item, one per position of its map; *: entrywise product; W_j: random signs. The inner product
of two vectors phi_k estimates that of the k-th moments. For single features x and z, it is on average the k-th power of
their inner product, up to scale.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from itertools import accumulate
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..autograd import applied
from ..objective.batch import Batch
from ..objective.parser import parse_objective
from ..objective.terms import Term
from ..unit_vectors import LEAST_NORM, normalized, unit


class _Moments(torch.autograd.Function):
    """See `horde`; keeps the moments and their lengths, and computes the products again, some features at a time."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, signs: Tensor) -> tuple[Tensor, ...]:
        moments = [x.new_empty(len(x), signs.shape[2]) for _ in signs[1:]]
        for part in _parts(x, signs):
            for moment, product in zip(moments, _products(x, signs[:, :, part])[1][1:], strict=True):
                # phi_k, (n, q): the mean over the positions of the products of order k
                moment[:, part] = product.mean(1)
        units, lengths = zip(*map(normalized, moments), strict=True)
        ctx.save_for_backward(x, signs, *units, *lengths)
        return units

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        x, signs, *kept = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient will be differentiated again: write it in terms of the input
            moments = [unit(product.mean(1)) for product in _products(x, signs)[1][1:]]
            return torch.autograd.grad(moments, x, grads, create_graph=True)[0], None
        to_x = torch.zeros_like(x)
        units = kept[: len(grads)]
        lengths = kept[len(grads) :]
        along = [(g * u).sum(1, keepdim=True) for g, u in zip(grads, units, strict=True)]
        for part in _parts(x, signs):
            mapped, products = _products(x, signs[:, :, part])
            slope = torch.zeros_like(products[0])  # the gradient in the product of the orders up to k
            for k in range(len(grads), 0, -1):
                g = grads[k - 1][:, part]
                u = units[k - 1][:, part]
                # through phi / |phi|: the gradient less its part along phi, over the length; and through the mean
                slope += ((g - u * along[k - 1]) / (lengths[k - 1] * x.shape[1]))[:, None]
                # product_k = product_{k-1} * W_k x: one factor gets the slope times the other, from the last order to
                # the first
                to_x += (slope * products[k - 1]) @ signs[k, :, part].to(x.dtype).T
                slope *= mapped[k]
            to_x += slope @ signs[0, :, part].to(x.dtype).T
        return to_x, None


def _products(x: Tensor, signs: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Return W_k x, (n, positions, q) for each k, and the products of the first 1, 2, ... of them."""
    mapped = [x @ W.to(x.dtype) for W in signs]
    return mapped, list(accumulate(mapped, torch.mul))


def _parts(x: Tensor, signs: Tensor) -> list[slice]:
    """Cut the features so that the products of a part stay in a processor's cache, or do not fill a device."""
    orders, _, q = signs.shape
    in_cache = x.device.type == "cpu" and not torch.compiler.is_compiling()
    size = max(1, (1 << (21 if in_cache else 26)) // (2 * orders * max(1, len(x) * x.shape[1])))
    if size >= q:  # without a loop that depends on the batch, a compiled graph holds for any
        return [slice(0, q)]
    return [slice(lo, min(lo + size, q)) for lo in range(0, q, size)]


def horde(x: Tensor, signs: Tensor) -> list[Tensor]:
    """Return the (n, q) unit moments of the orders 2 to K of (n, positions, D) features; signs: (K, D, q)."""
    size = x.detach().norm(dim=2).amax(1).clamp_min(LEAST_NORM)
    x = x / size[:, None, None]  # moments are scaled to unit length: this only keeps their powers in range
    return list(applied(_Moments, x, signs))


class HORDE(Term):
    """Loss on high-order moments of the features, which is added to the loss of the embedding.

    Parameters
    ----------
    embedding_dim : int
        Number of dimensions of the embeddings, which the term uses unless `channels` is given.
    loss : Term or str
        Loss of each order, as a term, of which each order gets a copy, or as text. If it uses ``pooled=``, each copy
        does.
    orders : int
        Highest order K of the moments, at least 2.
    features : int
        Number q of dimensions of the moments, at least 1.
    channels : int, optional
        Number D of channels of the trunk's last feature map, which is then passed as ``pooled=`` with the shape (n, D,
        h, w), as in the paper. By default, the embedding is the only feature vector of its item. In a training run,
        ``pooled`` is what the trunk returns: a single vector per item if it averages its map, as conv4 and bn_inception
        do.
    seed : int
        Seed of the random signs, which are saved with the term.

    Raises
    ------
    ValueError
        If `orders` is below 2, or `features` or the number of channels is below 1.
    TypeError
        If `loss` is not a loss.

    Notes
    -----
    The embedding itself is order 1: train with ``loss + HORDE(embedding_dim, loss=...)``, and search with the embedding
    alone. The signs are drawn once and not trained. The defaults of `orders` and `features` were not checked against
    the paper.
    """

    signs: Tensor
    inner_dim = "features"  # what a loss inside compares, which the text of an objective fills in

    def __init__(
        self,
        embedding_dim: int,
        *,
        loss: Term | str = "BinomialDevianceLoss()",
        orders: int = 5,
        features: int = 8192,
        channels: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        width = embedding_dim if channels is None else channels
        for name, value, least in (("orders", orders, 2), ("features", features, 1), ("width", width, 1)):
            if value < least:
                raise ValueError(f"HORDE: {name} must be at least {least}, got {value}")
        if isinstance(loss, str):
            term = parse_objective(loss, embedding_dim=features)
        else:
            term = loss
        if not isinstance(term, Term):
            raise TypeError(f"HORDE: loss must be a loss such as BinomialDevianceLoss(), got {loss!r}")
        self.losses = nn.ModuleList(deepcopy(term) for _ in range(orders - 1))
        self.width = width
        self.reads_maps = channels is not None
        signs = torch.randint(0, 2, (orders, width, features), generator=torch.Generator().manual_seed(int(seed)))
        self.register_buffer("signs", (2 * signs - 1).to(torch.int8))

    def local_value(self, batch: Batch) -> Tensor:
        moments = horde(self._vectors(batch), self.signs)
        refs: Sequence[Tensor | None] = [None] * len(moments)
        if batch.ref is not None:
            refs = horde(self._own(batch.ref), self.signs)
        alone = batch._replace(scores=None)
        # orders 2 to K, each with a loss and moments (n, d_k) of its own
        losses = cast(Iterable[Term], self.losses)
        orders = zip(losses, moments, refs, strict=True)
        return torch.stack([loss.local_value(alone._replace(x=x, ref=ref)) for loss, x, ref in orders]).sum()

    def _vectors(self, batch: Batch) -> Tensor:
        """Return the (n, positions, D) feature vectors of the batch."""
        if not self.reads_maps:
            return self._own(batch.x)
        if batch.pooled is None or batch.ref is not None:
            raise ValueError("HORDE: with channels, pass the trunk's feature map as pooled=, and no ref")
        numbers = batch.pooled.shape[1]
        if numbers % self.width:
            raise ValueError(f"HORDE: pooled: expected maps of {self.width} channels, got {numbers} numbers")
        # (n, channels * height * width) to one vector of channels for each position
        return batch.pooled.unflatten(1, (self.width, -1)).transpose(1, 2)

    def _own(self, x: Tensor) -> Tensor:
        if x.shape[1] != self.width:
            raise ValueError(f"HORDE: embeddings: expected {self.width} dimensions, got {x.shape[1]}")
        return x[:, None]
