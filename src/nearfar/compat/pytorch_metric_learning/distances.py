"""Distances, called ``distance(query, reference)``: a matrix with a row per query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ...deep.distances.snr import SNRDistance as OurSNRDistance
from ...deep.pairwise.comparison import prepared_rows
from .mismatch import Mismatch
from .utils import common_functions


class BaseDistance(nn.Module):
    """Base class of all distances, also of your own: scaling to unit length, a power, and the direction.

    One of your own states `compute_mat`, and `check_shapes` where it takes embeddings of another shape.

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
        self,
        normalize_embeddings: bool = True,
        p: float = 2,
        power: float = 1,
        is_inverted: bool = False,
        *,
        collect_stats: bool | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        if settings:
            raise TypeError(f"{type(self).__name__}: unknown settings {sorted(settings)}")
        self.collect_stats = common_functions.collects_stats(collect_stats)
        self.normalize_embeddings = normalize_embeddings
        self.p = p
        self.power = power
        self.is_inverted = is_inverted

    def forward(self, query_emb: Tensor, ref_emb: Tensor | None = None) -> Tensor:
        """Return the (n, m) distances of the rows of one side to those of the other, or to one another."""
        self.check_shapes(query_emb, ref_emb)
        query = self.maybe_normalize(query_emb)
        reference = query if ref_emb is None else self.maybe_normalize(ref_emb)
        found = self.compute_mat(query, reference)
        if not 0 < self.power < 1:
            return found if self.power == 1 else found**self.power
        apart = found != 0  # the slope of a root is infinite at 0, where coinciding rows have none
        return torch.where(apart, torch.where(apart, found, 1.0) ** self.power, 0.0)

    def check_shapes(self, query_emb: Tensor, ref_emb: Tensor | None) -> None:
        """Raise where embeddings are not of the shape (n, d)."""
        if query_emb.ndim != 2 or (ref_emb is not None and ref_emb.ndim != 2):
            raise Mismatch("embeddings must be a 2D tensor of shape (batch_size, embedding_size)")

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
        if query_emb.dtype in (torch.float16, torch.bfloat16):  # which `cdist` does not take on every device
            return torch.cdist(query_emb.float(), ref_emb.float(), p=self.p).to(query_emb.dtype)
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


class BatchedDistance(nn.Module):
    """A distance of a few queries at a time, each part of the matrix handed to a function.

    Parameters
    ----------
    distance : BaseDistance
        Its attributes are also those of this one.
    iter_fn : callable, optional
        Called with a part of the matrix, and the first and the last row of it plus 1.
    batch_size : int
        Queries at a time.
    """

    def __init__(
        self,
        distance: BaseDistance,
        iter_fn: Callable[[Tensor, int, int], Any] | None = None,
        batch_size: int = 32,
    ) -> None:
        super().__init__()
        self.distance = distance
        self.iter_fn = iter_fn
        self.batch_size = batch_size

    def forward(self, query_emb: Tensor, ref_emb: Tensor | None = None) -> None:
        reference = query_emb if ref_emb is None else ref_emb
        for start in range(0, len(query_emb), self.batch_size):
            stop = min(start + self.batch_size, len(query_emb))
            part = self.distance(query_emb[start:stop], reference)
            if self.iter_fn is not None:
                self.iter_fn(part, start, stop)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("distance"), name)
