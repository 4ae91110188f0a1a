"""Proxy-NCA (Movshovitz-Attias et al., 2017).

    L = mean_i -log( e^{-||z_i - p(i)||^2 / T} / sum_{c != y_i} e^{-||z_i - p_c||^2 / T} )

z_i: unit embedding of sample i; p_c: unit proxy of class c; y_i: the sample's class, which is not in the denominator;
p(i): the proxy of class y_i, or the proxy that is nearest to another sample of that class.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...settings import check_options
from ..objective.relations import UNKNOWN
from ..proxies.class_proxies import NeighborProxyLoss, nearest
from ..proxies.logits import own_and_others

ASSIGNMENTS = ("class", "nearest")


def proxy_nca(own: Tensor, others: Tensor) -> Tensor:
    """Return the loss per sample, from -||z - p(i)||^2 / T and log sum_{c != y_i} e^{-||z - p_c||^2 / T}."""
    return torch.where(others > -torch.inf, others - own, 0.0)


def assigned(logits: Tensor, proxy: Tensor, y: Tensor, lo: int) -> tuple[Tensor, Tensor]:
    """Return the (b,) mean logits of samples lo, lo + 1, ... at the proxies of the others of their class, if any."""
    same = (y[lo : lo + len(logits), None] == y) & (y != UNKNOWN)  # (b, n)
    same.diagonal(lo).fill_(False)
    number = same.sum(1)
    return torch.where(same, logits[:, proxy], 0.0).sum(1) / number.clamp_min(1), number > 0


class ProxyNCALoss(NeighborProxyLoss):
    """Neighborhood component analysis with one proxy per class instead of the samples.

    Parameters
    ----------
    num_classes : int
        Number of classes C. Labels run from 0 to ``num_classes - 1``; -1 means an unknown class.
    embedding_dim : int
        Number of dimensions of the embeddings.
    temperature : float
        Temperature T that divides the squared distances, positive. The default of 1/9 corresponds to the scale of 3
        that the published code applies to both vectors.
    proxies : {"learned", "class_mean", "kmeans"}
        How the proxies are obtained:

        - "learned": trained with the network;
        - "class_mean": running means of the embeddings of each class, updated after each training call;
        - "kmeans": cluster centers that ``refit(embeddings, labels)`` computes.

        The last two receive no gradient. A training run calls ``refit`` for them with all training items before each
        epoch; in your own training loop, call it yourself.
    assign : {"class", "nearest"}
        Proxy that is the positive. "class": the proxy of its class, which the paper calls static assignment.
        "nearest": the nearest proxy of any class. The loss of an anchor is then the mean over the other samples of its
        class in the batch, and an anchor that is alone in its class does not count.
    block : int, optional
        Number of samples processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Notes
    -----
    The sample's own class is not in the denominator, so the loss can be negative and has no lower bound. The learning
    rate of the proxies is usually far larger than that of the network. With one class, the loss is 0.
    """

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        *,
        temperature: float = 1 / 9,
        proxies: str = "learned",
        assign: str = "class",
        block: int | None = None,
    ) -> None:
        super().__init__(num_classes, embedding_dim, temperature=temperature, proxies=proxies, block=block)
        check_options(self, ASSIGNMENTS, assign=assign)
        self.assign = assign

    @property
    def can_draw_classes(self) -> bool:
        return super().can_draw_classes and self.assign == "class"

    def per_sample(self, own: Tensor, others: Tensor) -> Tensor:
        return proxy_nca(own, others)

    def find(self, x: Tensor, w: Tensor, y: Tensor) -> Tensor | None:
        return nearest(x, w) if self.assign == "nearest" else None

    def losses(self, logits: Tensor, x: Tensor, w: Tensor, y: Tensor, rows: slice, found: Any) -> Tensor:
        if found is None:
            return super().losses(logits, x, w, y, rows, found)
        _, others = own_and_others(logits, y[rows])
        near, some = assigned(logits, found, y, rows.start)
        return torch.where(some, proxy_nca(near, others), 0.0)

    def counted(self, y: Tensor) -> Tensor:
        known = super().counted(y)
        if self.assign == "class":
            return known
        size = y.new_zeros(self.num_classes).scatter_add(0, y.clamp_min(0), known.long())
        return known & (size[y.clamp_min(0)] > 1)
