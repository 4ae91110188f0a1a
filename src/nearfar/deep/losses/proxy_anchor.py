"""Proxy-anchor loss (Kim et al., 2020).

    L = 1/|P+| sum_{c in P+} log(1 + sum_{i in c} e^{-a (s_ic - m)})
        + 1/C sum_c log(1 + sum_{i not in c} e^{a (s_ic + m)})

s_ic: cosine between embedding i and the proxy of class c; P+: classes present in the batch; a: scale. The proxies are
the anchors, and the batch is the reference that they are compared with.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from .. import distributed
from ..objective.batch import Batch
from ..pairwise.comparison import spans
from ..pairwise.reductions import masked_logsumexp
from ..proxies.class_proxies import ClassProxyLoss, in_blocks
from ..proxies.logits import class_log_sum_exp, own_and_others


def proxy_anchor(near: Tensor, far: Tensor, scale: float, margin: float) -> Tensor:
    """Return the loss, from log sum e^{-a s_ic} over each class and log sum e^{a s_ic} over the others, (C,) each."""
    attraction = softplus(near + scale * margin, threshold=40).sum() / (near > -torch.inf).sum().clamp_min(1)
    return attraction + softplus(far + scale * margin, threshold=40).mean()


def merged(parts: Sequence[Tensor]) -> Tensor:
    """Return the log-sum-exp of numbers over parts, which are alike; -inf if there is nothing."""
    if len(parts) == 1:
        return parts[0]
    values = torch.stack(list(parts)).flatten(1).T
    return masked_logsumexp(values, values.isfinite()).view(parts[0].shape)


class ProxyAnchorLoss(ClassProxyLoss):
    """Compare the proxy of each class, as an anchor, with all samples of the batch.

    Parameters
    ----------
    num_classes : int
        Number of classes C. Labels run from 0 to ``num_classes - 1``; -1 means an unknown class.
    embedding_dim : int
        Number of dimensions of the embeddings.
    margin : float
        Margin m, added to the cosines of negatives and subtracted from those of positives.
    scale : float
        Scale a that multiplies the cosines, positive; alpha in the paper.
    block : int, optional
        Number of samples processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Notes
    -----
    The paper trains the proxies with 100 times the learning rate of the network.
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
        super().__init__(num_classes, embedding_dim, block=block)
        self.margin = margin
        self.scale = scale
        nn.init.kaiming_normal_(self.proxies, mode="fan_out")

    def sums(self, x: Tensor, w: Tensor, y: Tensor) -> Tensor:
        """Return (2, C): of some samples, the log-sum-exp of -a s over each class and of a s over the others."""
        own, far = own_and_others(self.logits(x, w), y, dim=0)
        return torch.stack([class_log_sum_exp(-own, y, self.num_classes), far])

    def per_sample(self, own: Tensor, others: Tensor) -> Tensor:
        """Return the attraction of each sample alone, which only the statistics read."""
        return softplus(self.scale * self.margin - own, threshold=40)

    def local_sample_losses(self, batch: Batch) -> Tensor:
        raise TypeError("ProxyAnchorLoss: its anchors are the proxies, so there is no loss per sample")

    def compare(self, batch: Batch) -> Tensor:
        w = self.directions(self.reference(batch)[0])
        y = batch.classes("ProxyAnchorLoss")
        self._remember(batch.x, y)

        def one(x: Tensor, w: Tensor, lo: int, hi: int) -> Tensor:
            return self.sums(x[lo:hi], w, y[lo:hi])

        parts = in_blocks(one, spans(batch.anchors, self.num_classes, self.block, batch.x.device), batch.x, w)
        if not parts:
            parts = [batch.x.new_full((2, self.num_classes), -torch.inf) + 0 * batch.x.sum()]
        both = merged(parts)
        if distributed.world() > 1:
            both = merged(distributed.gather(both[None]).unbind())
        near, far = both
        return proxy_anchor(near, far, self.scale, self.margin) / distributed.world()
