"""Search with a network, under the names of the other library."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ....deep.pairwise.comparison import prepared_rows
from ....deep.unit_vectors import unit


class InferenceModel:
    """The nearest neighbors of items among others, by the embeddings of a network.

    `nearfar.index.Index` keeps embeddings in a file, and finds them in blocks.

    Parameters
    ----------
    trunk : Module
        From items to features.
    embedder : Module, optional
        From features to embeddings.
    normalize_embeddings : bool
        Scale embeddings to unit length.
    """

    def __init__(
        self, trunk: nn.Module, embedder: nn.Module | None = None, *, normalize_embeddings: bool = True, **others: Any
    ) -> None:
        if others:
            told = "nearfar.index.Index has other searches"
            raise NotImplementedError(f"InferenceModel: {', '.join(sorted(others))} is not here; {told}")
        self.trunk = trunk
        self.embedder = nn.Identity() if embedder is None else embedder
        self.normalize_embeddings = normalize_embeddings
        self.known: Tensor | None = None

    @torch.no_grad()
    def get_embeddings(self, inputs: Tensor) -> Tensor:
        """Return the (n, d) embeddings of items."""
        self.trunk.eval()
        self.embedder.eval()
        found: Tensor = self.embedder(self.trunk(inputs))
        return unit(found) if self.normalize_embeddings else found

    def train_knn(self, inputs: Tensor, batch_size: int = 64) -> None:
        """Embed the items among which neighbors are found."""
        self.known = None
        self.add_to_knn(inputs, batch_size)

    def add_to_knn(self, inputs: Tensor, batch_size: int = 64) -> None:
        """Embed more of them."""
        parts = [self.get_embeddings(part) for part in inputs.split(batch_size)]
        before = [] if self.known is None else [self.known]
        self.known = torch.cat([*before, *parts])

    def get_nearest_neighbors(self, query: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the (n, k) squared distances and numbers of the nearest items, the nearest first."""
        if self.known is None:
            raise ValueError("InferenceModel: train_knn comes first")
        if k > len(self.known):
            raise ValueError(f"k: {k} neighbors are more than the {len(self.known)} items")
        d = prepared_rows(self.get_embeddings(query), self.known, "sq_euclidean")
        found = d.topk(k, 1, largest=False)
        return found.values, found.indices

    def is_match(self, x: Tensor, y: Tensor, threshold: float) -> Tensor:
        """Return whether the cosine of the embeddings of each pair is at least a threshold, (n,)."""
        one = unit(self.get_embeddings(x))
        other = unit(self.get_embeddings(y))
        return (one * other).sum(1) >= threshold
