"""SoftTriple (Qian et al., 2019).

    L = mean_i -log( e^{s(S_iy - m)} / (e^{s(S_iy - m)} + sum_{c != y_i} e^{s S_ic}) )
        + tau / (C K (K - 1)) sum_c sum_{j < k} sqrt(2 - 2 w_cj.w_ck + 1e-5)
    S_ic = sum_k softmax_k(x_i.w_ck / gamma) x_i.w_ck

w_ck: k-th of the K unit centres of class c; x_i: unit embedding.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize as unit

from .. import processes
from ..batch import Batch
from ..rows import Rows
from ..terms import ProxyLoss


def class_similarity(s: Tensor, centers: int, gamma: float) -> Tensor:
    """Return the (b, C) similarities S from the (b, C * K) inner products with all centres."""
    s = s.unflatten(1, (-1, centers))
    return s.squeeze(2) if centers == 1 else ((s / gamma).softmax(2) * s).sum(2)


def soft_triple(rows: Rows, centers: int, scale: float, margin: float, gamma: float) -> tuple[Tensor, Tensor]:
    """Return per anchor the cross-entropy of s(S - m [own class]), and 1 where the class is known."""
    S = class_similarity(-rows.d, centers, gamma)
    own_class = rows.pos[:, ::centers]
    logits = scale * torch.where(own_class, S - margin, S)
    known = own_class.any(1)
    own = logits.masked_fill(~own_class, 0).sum(1)
    return (logits.logsumexp(1) - own).masked_fill(~known, 0), known


def spread(w: Tensor, centers: int) -> Tensor:
    """Return 1/(C K (K-1)) times the summed distances between the centres of each class; w: (C * K, d)."""
    if centers == 1:
        return w.sum() * 0
    w = unit(w).unflatten(0, (-1, centers))  # (C, K, d)
    above = torch.ones(centers, centers, dtype=torch.bool, device=w.device).triu(1)
    gap = (2 - 2 * w @ w.mT).clamp_min(0) + 1e-5
    return gap.sqrt().masked_fill(~above, 0).sum() / (len(w) * centers * (centers - 1))


class SoftTripleLoss(ProxyLoss):
    """Softmax over classes with several centres each.

    Parameters
    ----------
    num_classes, embedding_dim : int
        Number of classes and dimension; `proxies` has the shape (num_classes * centers, embedding_dim), class by class.
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
        super().__init__(num_classes * centers, embedding_dim, distance="dot", normalize=True, block=block)
        self.num_classes, self.centers = num_classes, centers
        self.scale, self.margin, self.gamma, self.tau = scale, margin, gamma, tau
        labels = torch.arange(num_classes).repeat_interleave(centers)
        self.register_buffer("proxy_labels", labels, persistent=False)

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return soft_triple(rows, self.centers, self.scale, self.margin, self.gamma)

    def publish(self, batch: Batch) -> Batch:
        s = unit(batch.x) @ unit(self.proxies.to(batch.x.dtype)).T
        return batch._replace(scores=class_similarity(s, self.centers, self.gamma))

    def share(self, batch: Batch) -> Tensor:
        return super().share(batch) + self.tau * spread(self.proxies, self.centers) / processes.world()
