"""Proxy-anchor loss (Kim et al., 2020).

    L = 1/|P+| sum_{c in P+} log(1 + sum_{i in c} e^{-a (s_ic - m)})
        + 1/C sum_c log(1 + sum_{i not in c} e^{a (s_ic + m)})

s_ic: cosine between embedding i and the proxy of class c; P+: classes present in the batch; a: scale. The proxies are
the anchors, and the batch is the reference that they are compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from .. import distributed
from ..objective.batch import Batch
from ..objective.relations import UNKNOWN
from ..pairwise.reductions import masked_logsumexp
from ..proxies.class_proxies import ClassProxyLoss, in_blocks
from ..proxies.class_softmax import is_large, own_and_far_of
from ..proxies.divided_classes import ClassesHere, added_up
from ..proxies.logits import class_log_sum_exp, own_and_others
from ..unit_vectors import unit


def proxy_anchor(near: Tensor, far: Tensor, scale: float, margin: float, drawn: Drawn | None = None) -> Tensor:
    """Return the loss, from log sum e^{-a s_ic} over each class and log sum e^{a s_ic} over the others, (C,) each.

    If these are of some classes only, `drawn` has the numbers of classes, and the result is their part of the loss.
    """
    attraction = softplus(near + scale * margin, threshold=40).sum()
    repulsion = softplus(far + scale * margin, threshold=40)
    present = near > -torch.inf
    if drawn is None:
        return attraction / present.sum().clamp_min(1) + repulsion.mean()
    # every class of the batch is there; the weight of each other one makes up for those that were not drawn
    absent = (drawn.num_classes - drawn.present).to(far.dtype) / (drawn.number - drawn.present).clamp_min(1)
    weight = torch.where(present, 1.0, absent)
    return attraction / drawn.present.clamp_min(1) + (weight * repulsion).sum() / drawn.num_classes


class Drawn(NamedTuple):
    """How many classes there are, how many of them a batch is compared with, and how many of them it contains."""

    num_classes: int
    number: int
    present: Tensor


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

    If classes are drawn (`nearfar.deep.SampledClasses`), those of the batch always count, and those drawn from the
    others are weighted, so that the expectation of the loss and of its gradient is that with all classes.
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

    def sums(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return (2, C): of some samples, the log-sum-exp of -a s over each class and of a s over the others."""
        own, far = own_and_others(logits, y, dim=0)
        return torch.stack([class_log_sum_exp(-own, y, logits.shape[1]), far])

    def per_sample(self, own: Tensor, others: Tensor) -> Tensor:
        """Return the attraction of each sample alone, which only the statistics read."""
        return softplus(self.scale * self.margin - own, threshold=40)

    def local_sample_losses(self, batch: Batch) -> Tensor:
        raise TypeError("ProxyAnchorLoss: its anchors are the proxies, so there is no loss per sample")

    def sample_losses_of_classes(self, batch: Batch, y: Tensor, *parameters: Tensor) -> Tensor:
        return self.local_sample_losses(batch)  # raises

    def compare(self, batch: Batch) -> Tensor:
        proxies = self.reference(batch)[0]
        return self.compare_classes(batch, batch.classes("ProxyAnchorLoss"), proxies)

    @property
    def can_draw_classes(self) -> bool:
        return True

    @property
    def can_distribute_classes(self) -> bool:
        return True

    def compare_classes(self, batch: Batch, y: Tensor, *parameters: Tensor) -> Tensor:
        (proxies,) = parameters
        near, far = self._sums_over_processes(batch, y, proxies)
        drawn = None
        if len(proxies) != self.num_classes:
            drawn = Drawn(self.num_classes, len(proxies), (near > -torch.inf).sum())
        return proxy_anchor(near, far, scale=self.scale, margin=self.margin, drawn=drawn) / distributed.world()

    def compare_here(self, x: Tensor, here: ClassesHere, *parameters: Tensor) -> Tensor:
        (proxies,) = parameters
        _, near, far = self.sums_in_parts(x, proxies, here.own, here.known)
        present = distributed.total((near > -torch.inf).sum())
        return added_up(
            proxy_anchor(
                near, far, scale=self.scale, margin=self.margin, drawn=Drawn(self.num_classes, here.number, present)
            )
        )

    def sums_in_parts(self, x: Tensor, proxies: Tensor, y: Tensor, known: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the own logits, (n,), and what `sums` does, without the matrix of logits.

        y, (n,), has the place of each sample's own class among the proxies, -1 if it has none of these classes.
        """
        own, far = own_and_far_of(unit(x, self.scale), proxies, y, known)
        return own, class_log_sum_exp(-own, y, len(proxies)), far

    def _sums_over_processes(self, batch: Batch, y: Tensor, proxies: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-sum-exps of all samples, of which each process computes those of its anchors."""
        n = batch.anchors.stop - batch.anchors.start
        if self.block is None and is_large(n, len(proxies), proxies.device):
            x = batch.x[batch.anchors]
            of_anchors = y[batch.anchors]
            known = of_anchors != UNKNOWN
            own, near, far = self.sums_in_parts(x, proxies, of_anchors, known)
            parts = [torch.stack([near, far])]
            if self.collects_stats:
                self.collect_from(x, proxies, own, self.per_sample(own, own), known)
        else:
            parts = self._sums_in_blocks(batch, y, self.directions(proxies))
        # log-sum-exps of parts merge exactly: log(e^a + e^b); (2, C), positives and negatives of each proxy
        both = merged(parts)
        if distributed.world() > 1:
            both = merged(distributed.gather(both[None]).unbind())
        near, far = both
        return near, far

    def _sums_in_blocks(self, batch: Batch, y: Tensor, w: Tensor) -> list[Tensor]:
        """Return the `sums` of blocks of this process's anchors."""

        def one(x: Tensor, w: Tensor, lo: int, hi: int) -> tuple[Tensor, Tensor | None]:
            logits = self.logits(x[lo:hi], w)  # (b, C)
            statistics = None
            if self.collects_stats:
                own = logits.detach().gather(1, y[lo:hi].clamp_min(0)[:, None]).squeeze(1)
                losses = self.per_sample(own, own)
                statistics = self.statistics(losses, logits, x[lo:hi], w, y[lo:hi], y[lo:hi] != UNKNOWN)
            return self.sums(logits, y[lo:hi]), statistics

        parts = in_blocks(one, self._blocks(batch.anchors, batch.x), batch.x, w)
        self._add_up_statistics([statistics for _, statistics in parts])
        # a process without anchors adds nothing, e^{-inf}, and still takes part in the backward pass
        nothing = batch.x[:0].sum() + w[:0].sum()
        return [sums for sums, _ in parts] or [batch.x.new_full((2, len(w)), -torch.inf) + nothing]
