"""Proxy-anchor loss (Kim et al., 2020).

    L = 1/|P+| sum_{c in P+} log(1 + sum_{i in c} e^{-a (s_ic - m)})
        + 1/C sum_c log(1 + sum_{i not in c} e^{a (s_ic + m)})

s_ic: cosine between embedding i and the proxy of class c; P+: classes present in the batch; a: scale. The proxies are
the anchors, the batch is what they are compared with.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from .. import processes
from ..batch import Batch
from ..order import positives
from ..rows import Comparison, Rows, masked_logsumexp
from ..terms import ProxyLoss


def proxy_anchor(rows: Rows, margin: float, scale: float) -> tuple[Tensor, Tensor]:
    """Return per proxy its attraction and repulsion, (b, 2), and 1 where it takes part in their means."""
    columns, keep = positives(rows)
    near = softplus(masked_logsumexp(scale * rows.d.gather(1, columns), keep) + scale * margin, threshold=40)
    far = softplus(masked_logsumexp(-scale * rows.d, rows.neg) + scale * margin, threshold=40)
    present = keep.any(1)
    return torch.stack([near, far], 1), torch.stack([present, torch.ones_like(present)], 1)


class ProxyAnchorLoss(ProxyLoss):
    """Each class's proxy against the samples of the batch.

    Parameters
    ----------
    num_classes, embedding_dim : int
        Shape of the proxies.
    margin : float
        m.
    scale : float
        The paper's alpha.
    block : int, optional
        Proxies at a time.

    Notes
    -----
    The paper trains the proxies with 100 times the network's learning rate. With several processes each computes its
    part of the proxies against the whole batch.
    """

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        *,
        margin: float = 0.1,
        scale: float = 32.0,
        block: int | None = None,
    ) -> None:
        super().__init__(num_classes, embedding_dim, distance="dot", normalize=True, block=block)
        self.margin, self.scale = margin, scale
        nn.init.kaiming_normal_(self.proxies, mode="fan_out")

    def comparison(self, batch: Batch) -> Comparison:
        proxies, labels = self.reference(batch)
        rank, world = processes.rank(), processes.world()
        part = slice(rank * self.num_classes // world, (rank + 1) * self.num_classes // world)
        return Comparison(proxies, labels, batch.x, batch.y, part, False, self.distance, self.normalize)

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return proxy_anchor(rows, self.margin, self.scale)
