"""HORDE, high-order moments of features as further embeddings (Jacob et al., 2019).

    L = sum_{k=2}^{K} loss( phi_k / ||phi_k|| )        phi_k = mean_x  (W_1 x) * (W_2 x) * ... * (W_k x)

x: the feature vectors of an item, one per position of its map; *: entrywise; W_j: random signs. The inner products of
phi_k estimate those of k-th moments, E phi_k(x).phi_k(x') = (x.x')^k up to scale.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

from ..batch import Batch
from ..directions import LEAST_NORM, unit
from ..objective import parse_objective
from ..terms import Term


def horde(x: Tensor, signs: Tensor) -> list[Tensor]:
    """Return the (n, q) unit moments of the orders 2 to K of (n, positions, D) features; signs: (K, D, q)."""
    size = x.detach().norm(dim=2).amax(1).clamp_min(LEAST_NORM)
    x = x / size[:, None, None]  # moments are scaled to unit length: this only keeps their powers in range
    product, moments = x @ signs[0], []
    for W in signs[1:]:
        product = product * (x @ W)
        moments.append(unit(product.mean(1)))
    return moments


class HORDE(Term):
    """A metric loss on the moments of order 2 and more, beside the loss of the embedding itself.

    Parameters
    ----------
    embedding_dim : int
        Dimension of the embeddings, which it reads unless `channels` is given.
    loss : Term or str
        What every order is trained with, as a term (one copy of it per order) or as text.
    orders : int
        K, from 2 on.
    features : int
        q, the dimension of the moments.
    channels : int, optional
        D of the trunk's last feature map. The map is then passed as ``pooled=``, (n, D, h, w), as in the paper; None
        takes the embedding as the one feature vector of its item.
    seed : int
        Of the random signs, which are saved with the term.

    Notes
    -----
    The embedding itself is order 1: train with ``loss + HORDE(embedding_dim, loss=...)``, and search with the embedding
    alone. The signs stay as they are drawn; K and q are recalled, not read, from the paper.
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
        term = parse_objective(loss, embedding_dim=features) if isinstance(loss, str) else loss
        if not isinstance(term, Term):
            raise TypeError(f"HORDE: loss must be a loss such as BinomialDevianceLoss(), got {loss!r}")
        self.losses = nn.ModuleList(deepcopy(term) for _ in range(orders - 1))
        self.width, self.reads_maps = width, channels is not None
        signs = torch.randint(0, 2, (orders, width, features), generator=torch.Generator().manual_seed(int(seed)))
        self.register_buffer("signs", (2 * signs - 1).to(torch.int8))

    def share(self, batch: Batch) -> Tensor:
        signs = self.signs.to(batch.x.dtype)
        moments = horde(self._vectors(batch), signs)
        refs = [None] * len(moments) if batch.ref is None else horde(self._own(batch.ref), signs)
        shares = [
            loss.share(batch._replace(x=x, ref=ref, pooled=None, scores=None))
            for loss, x, ref in zip(self.losses, moments, refs, strict=True)
        ]
        return torch.stack(shares).sum()

    def _vectors(self, batch: Batch) -> Tensor:
        """Return the (n, positions, D) feature vectors of the batch."""
        if not self.reads_maps:
            return self._own(batch.x)
        if batch.pooled is None or batch.ref is not None:
            raise ValueError("HORDE: with channels, pass the trunk's feature map as pooled=, and no ref")
        if batch.pooled.shape[1] % self.width:
            raise ValueError(
                f"HORDE: pooled: expected maps of {self.width} channels, got {batch.pooled.shape[1]} numbers"
            )
        return batch.pooled.unflatten(1, (self.width, -1)).transpose(1, 2)

    def _own(self, x: Tensor) -> Tensor:
        if x.shape[1] != self.width:
            raise ValueError(f"HORDE: embeddings: expected {self.width} dimensions, got {x.shape[1]}")
        return x[:, None]
