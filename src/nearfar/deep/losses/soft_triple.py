"""SoftTriple (Qian et al., 2019).

    L = mean_i -log( e^{s(S_iy - m)} / (e^{s(S_iy - m)} + sum_{c != y_i} e^{s S_ic}) )
        + tau / (C K (K - 1)) sum_c sum_{j < k} sqrt(2 - 2 w_cj.w_ck + 1e-5)
    S_ic = sum_k softmax_k(x_i.w_ck / gamma) x_i.w_ck

w_ck: k-th of the K unit centres of class c; x_i: unit embedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize as unit
from torch.utils.checkpoint import checkpoint

from .. import processes
from ..batch import Batch
from ..proxies import cross_entropy
from ..relations import UNKNOWN
from ..rows import spans
from ..terms import ProxyLoss

CHUNK = 1 << 18  # inner products worked on at a time


class _Similarity(torch.autograd.Function):
    """See `similarity`; keeps the inner products and nothing else of their size."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, gamma: float) -> Tensor:
        s = x @ w.mT  # (K, n, C)
        S = torch.softmax(s / gamma, 0).mul_(s).sum(0)
        ctx.gamma = gamma
        ctx.save_for_backward(x, w, s, S)
        return S

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, w, s, S = ctx.saved_tensors
        slope = ((s - S) / ctx.gamma).add_(1).mul_(torch.softmax(s / ctx.gamma, 0)).mul_(grads[0])  # dL/ds
        return (slope @ w).sum(0), slope.mT @ x, None


def similarity(x: Tensor, w: Tensor, gamma: float) -> Tensor:
    """Return the (n, C) similarities S of unit embeddings x (n, d) to the classes with unit centres w (K, C, d)."""
    return _Similarity.apply(x, w, gamma) if len(w) > 1 else x @ w[0].T


def spread(w: Tensor) -> Tensor:
    """Return the distances between the unit centres w (K, C, d) of each class, summed over its pairs and classes."""
    v = w.transpose(0, 1)  # (C, K, d)
    above = torch.ones(len(w), len(w), dtype=torch.bool, device=w.device).triu(1)
    gap = ((2 - 2 * v @ v.mT).clamp_min(0) + 1e-5).sqrt()
    return gap.masked_fill(~above, 0).sum()


def soft_triple(x: Tensor, y: Tensor, w: Sequence[Tensor], scale: float, margin: float, gamma: float) -> Tensor:
    """Return the loss per anchor, 0 where the class is unknown; w: the unit centres of some classes after others."""
    S = scale * torch.cat([similarity(x, part, gamma) for part in w], 1)
    return cross_entropy(S, y.clamp_min(0)[:, None], y != UNKNOWN, scale * margin)


class SoftTripleLoss(ProxyLoss):
    """Softmax over classes with several centres each.

    Parameters
    ----------
    num_classes, embedding_dim : int
        C and the dimension. `proxies` has the shape (centers * C, embedding_dim): the first centre of every class,
        then the second of every class, and so on.
    centers : int
        K centres per class; the paper starts with 10 and lets the regulariser merge them.
    scale : float
        s, the paper's lambda.
    margin : float
        m, the paper's delta.
    gamma : float
        Softness of the choice of a class's centre: towards 0 the nearest, towards infinity their mean.
    tau : float
        Weight of the distances between a class's centres.
    block : int, optional
        Anchors at a time.

    Notes
    -----
    The published code divides the sum over pairs j < k by C K (K - 1), half of their mean, and adds 1e-5 under the
    root; so do we. The survey's formula is ``gamma=1, tau=0``. With one centre it is ``AMSoftmaxLoss``.
    """

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        *,
        centers: int = 10,
        scale: float = 20.0,
        margin: float = 0.01,
        gamma: float = 0.1,
        tau: float = 0.2,
        block: int | None = None,
    ) -> None:
        if centers < 1:
            raise ValueError(f"SoftTripleLoss: centers must be at least 1, got {centers}")
        super().__init__(num_classes, embedding_dim, distance="dot", normalize=True, block=block)
        self.centers, self.scale, self.margin, self.gamma, self.tau = centers, scale, margin, gamma, tau
        more = [torch.nn.init.kaiming_uniform_(torch.empty_like(self.proxies), a=5**0.5) for _ in range(centers)]
        self.proxies = torch.nn.Parameter(torch.cat(more))

    def publish(self, batch: Batch) -> Batch:
        x = unit(batch.x)
        return batch._replace(scores=torch.cat([similarity(x, w, self.gamma) for w in self._centres(batch)], 1))

    def share(self, batch: Batch) -> Tensor:
        self.reference(batch)  # checks the labels
        x, y, w = unit(batch.x), batch.classes("SoftTripleLoss"), self._centres(batch)
        parts = [(x[lo:hi], y[lo:hi], w) for lo, hi in spans(batch.anchors, self.num_classes, self.block)]
        whole = len(parts) == 1
        sums = [self._sum(*part) if whole else checkpoint(self._sum, *part, use_reentrant=False) for part in parts]
        known = (y != UNKNOWN).sum().clamp_min(1)  # of the whole batch, on every process
        return sum(sums, x.sum() * 0) / known + self.tau * self._spread(w) / processes.world()

    def _sum(self, x: Tensor, y: Tensor, w: list[Tensor]) -> Tensor:
        return soft_triple(x, y, w, self.scale, self.margin, self.gamma).sum()

    def _spread(self, w: list[Tensor]) -> Tensor:
        pairs = self.num_classes * self.centers * (self.centers - 1)
        return torch.stack([spread(part) for part in w]).sum() / max(pairs, 1)

    def _centres(self, batch: Batch) -> list[Tensor]:
        """Return the unit centres, (K, c, d) for a few classes after others: their products stay in the cache."""
        w = self.proxies.to(batch.x.dtype).unflatten(0, (self.centers, self.num_classes))
        size = max(1, CHUNK // (self.centers * max(1, len(batch.x))))
        return [unit(part, dim=2) for part in w.split(size, 1)]
