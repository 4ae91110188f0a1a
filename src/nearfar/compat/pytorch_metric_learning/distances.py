"""Distances, called ``distance(query, reference)``: a matrix with a row per query."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...deep.distances.snr import SNRDistance as OurSNRDistance
from ...deep.pairwise.comparison import prepared_rows
from .absent import Absent, find

ABSENT = {"BatchedDistance": "losses compare in blocks themselves, see block="}


class BaseDistance(nn.Module):
    """What all distances share: scaling to unit length, a power, and which way they count.

    Parameters
    ----------
    normalize_embeddings : bool
        Scale both sides to length 1 first, in the norm of `p`.
    p, power : float
        Which norm; what the matrix is raised to.
    is_inverted : bool
        Larger is nearer.
    """

    def __init__(
        self, *, normalize_embeddings: bool = True, p: float = 2, power: float = 1, is_inverted: bool = False, **_: Any
    ) -> None:
        super().__init__()
        self.normalize_embeddings = normalize_embeddings
        self.p = p
        self.power = power
        self.is_inverted = is_inverted

    def forward(self, query_emb: Tensor, ref_emb: Tensor | None = None) -> Tensor:
        """Return the (n, m) distances of the rows of one side to those of the other, or to one another."""
        if query_emb.ndim != 2 or (ref_emb is not None and ref_emb.ndim != 2):
            raise ValueError("embeddings must be a 2D tensor of shape (batch_size, embedding_size)")
        query = self.maybe_normalize(query_emb)
        reference = query if ref_emb is None else self.maybe_normalize(ref_emb)
        found = self.compute_mat(query, reference)
        return found if self.power == 1 else found**self.power

    def compute_mat(self, query_emb: Tensor, ref_emb: Tensor) -> Tensor:
        raise NotImplementedError

    def pairwise_distance(self, query_emb: Tensor, ref_emb: Tensor) -> Tensor:
        """Return the (n,) distances of each row to the same row of the other side."""
        raise NotImplementedError

    def smallest_dist(self, *args: Any, **kwargs: Any) -> Any:
        return torch.max(*args, **kwargs) if self.is_inverted else torch.min(*args, **kwargs)

    def largest_dist(self, *args: Any, **kwargs: Any) -> Any:
        return torch.min(*args, **kwargs) if self.is_inverted else torch.max(*args, **kwargs)

    def margin(self, x: Any, y: Any) -> Any:
        """Return how much farther x is than y."""
        return y - x if self.is_inverted else x - y

    def normalize(self, embeddings: Tensor, dim: int = 1) -> Tensor:
        return nn.functional.normalize(embeddings, p=self.p, dim=dim)

    def maybe_normalize(self, embeddings: Tensor, dim: int = 1) -> Tensor:
        return self.normalize(embeddings, dim) if self.normalize_embeddings else embeddings

    def get_norm(self, embeddings: Tensor, dim: int = 1) -> Tensor:
        return torch.linalg.vector_norm(embeddings, ord=self.p, dim=dim)


class LpDistance(BaseDistance):
    """The norm of the difference, to a power."""

    def compute_mat(self, query_emb: Tensor, ref_emb: Tensor) -> Tensor:
        if self.p == 2:
            return prepared_rows(query_emb, ref_emb, "euclidean")
        return torch.cdist(query_emb, ref_emb, p=self.p)

    def pairwise_distance(self, query_emb: Tensor, ref_emb: Tensor) -> Tensor:
        return nn.functional.pairwise_distance(query_emb, ref_emb, p=self.p)


class DotProductSimilarity(BaseDistance):
    """Inner products; larger is nearer."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(is_inverted=True, **settings)

    def compute_mat(self, query_emb: Tensor, ref_emb: Tensor) -> Tensor:
        return query_emb @ ref_emb.T

    def pairwise_distance(self, query_emb: Tensor, ref_emb: Tensor) -> Tensor:
        return (query_emb * ref_emb).sum(1)


class CosineSimilarity(DotProductSimilarity):
    """Cosines; larger is nearer."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        if not self.normalize_embeddings:
            raise ValueError(
                "CosineSimilarity: normalize_embeddings must be True; DotProductSimilarity takes any length"
            )


class SNRDistance(BaseDistance):
    """The variance of the difference over that of the query."""

    def compute_mat(self, query_emb: Tensor, ref_emb: Tensor) -> Tensor:
        found: Tensor = OurSNRDistance()(query_emb, ref_emb)
        return found

    def pairwise_distance(self, query_emb: Tensor, ref_emb: Tensor) -> Tensor:
        return torch.var(query_emb - ref_emb, dim=1) / torch.var(query_emb, dim=1)


def __getattr__(name: str) -> type[Absent]:
    return find(__name__, ABSENT, name)
