"""Class proxies: the cross-entropy that their losses share, and proxies that are computed instead of learned."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy as softmax_loss
from torch.nn.functional import normalize as unit

from .batch import Batch
from .relations import UNKNOWN
from .rows import Rows
from .terms import ProxyLoss

SOURCES = ("learned", "class_mean", "kmeans")


def own_class(rows: Rows) -> tuple[Tensor, Tensor]:
    """Return the (b, 1) column of each anchor's own proxy and (b,) whether it has one."""
    most = rows.pos.to(torch.uint8).max(1, keepdim=True)
    return most.indices, most.values.squeeze(1) > 0


def cross_entropy(logits: Tensor, own: Tensor, known: Tensor, margin: float | Tensor = 0.0) -> Tensor:
    """Return per anchor minus the log-softmax at its own column, the margin taken off there; 0 where not known."""
    logits = logits.scatter(1, own, logits.gather(1, own) - margin)
    return torch.where(known, softmax_loss(logits, own.squeeze(1), reduction="none"), 0.0)


def class_means(x: Tensor, y: Tensor, fallback: Tensor) -> Tensor:
    """Return the (C, d) means of the rows of x by class; a class without rows keeps its row of `fallback`."""
    sums, counts = torch.zeros_like(fallback), torch.zeros_like(fallback[:, 0])
    sums.index_add_(0, y, x.to(sums.dtype))
    counts.index_add_(0, y, torch.ones_like(y, dtype=counts.dtype))
    return torch.where(counts[:, None] > 0, sums / counts.clamp_min(1)[:, None], fallback)


def kmeans(x: Tensor, centers: Tensor, max_iter: int = 20) -> Tensor:
    """Return the centres of Lloyd's k-means from the given start, which keeps centre c the one that began there."""
    member = None
    for _ in range(max_iter):
        nearest = torch.cat([torch.cdist(rows, centers).argmin(1) for rows in x.split(4096)])
        if member is not None and torch.equal(nearest, member):
            break
        member, centers = nearest, class_means(x, nearest, centers)
    return centers


class SourcedProxyLoss(ProxyLoss):
    """A proxy loss whose proxies are learned, follow the class means, or are k-means centres."""

    def __init__(self, num_classes: int, embedding_dim: int, *, proxies: str, **how: Any) -> None:
        super().__init__(num_classes, embedding_dim, **how)
        if proxies not in SOURCES:
            name = type(self).__name__
            raise ValueError(f"{name}: proxies must be one of {', '.join(SOURCES)}, got {proxies!r}")
        self.source = proxies
        torch.nn.init.normal_(self.proxies, std=1 / 8)
        if proxies != "learned":
            self.proxies.requires_grad_(False)
        if proxies == "class_mean":
            self.register_buffer("sums", torch.zeros(num_classes, embedding_dim))
            self.register_buffer("counts", torch.zeros(num_classes))

    def share(self, batch: Batch) -> Tensor:
        value = super().share(batch)
        if self.source == "class_mean" and self.training:
            self._follow(batch)
        return value

    @torch.no_grad()
    def _follow(self, batch: Batch) -> None:
        """Move the proxies to the means of all embeddings seen so far; this batch counts from the next call on."""
        y = batch.classes(type(self).__name__)
        x, y = unit(batch.x[y != UNKNOWN]).to(self.sums.dtype), y[y != UNKNOWN]
        self.sums.index_add_(0, y, x)
        self.counts.index_add_(0, y, torch.ones_like(y, dtype=self.counts.dtype))
        means = self.sums / self.counts.clamp_min(1)[:, None]
        # a copy: the loss just computed still needs the old proxies for its gradient
        self.proxies.data = torch.where(self.counts[:, None] > 0, means.to(self.proxies.dtype), self.proxies)

    @torch.no_grad()
    def refit(self, embeddings: Tensor, labels: Tensor) -> None:
        """Set the proxies from the embeddings of a whole training set.

        Parameters
        ----------
        embeddings : (n, d) float tensor
        labels : (n,) integers; -1 is left out

        Notes
        -----
        "class_mean" takes the means of the unit embeddings and starts its running means there; "kmeans" goes on from
        the means with k-means, so that each centre stays tied to the class where it began.
        """
        if self.source == "learned":
            raise ValueError(f"{type(self).__name__}: learned proxies are not refitted; choose class_mean or kmeans")
        y = torch.as_tensor(labels, device=self.proxies.device)
        x = unit(embeddings.to(self.proxies))[y != UNKNOWN]
        y = y[y != UNKNOWN]
        means = class_means(x, y, self.proxies.data)
        if self.source == "class_mean":
            self.counts.copy_(torch.bincount(y, minlength=self.num_classes))
            self.sums.copy_(means * self.counts[:, None])
        self.proxies.data = means if self.source == "class_mean" else kmeans(x, means)
