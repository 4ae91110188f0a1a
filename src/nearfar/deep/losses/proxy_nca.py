"""Proxy-NCA (Movshovitz-Attias et al., 2017).

    L = mean_i -log( e^{-||z_i - p_y||^2 / T} / sum_{c != y_i} e^{-||z_i - p_c||^2 / T} )

z_i: unit embedding of sample i; p_c: unit proxy of class c; y: the sample's class, which the denominator leaves out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..proxies import SourcedProxyLoss, own_class
from ..rows import Rows, masked_logsumexp


def proxy_nca(rows: Rows, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the loss per anchor, and 1 where it has an own and another class."""
    own, known = own_class(rows)
    logits = -2 / temperature * rows.d  # -||z - p||^2 up to a constant, which cancels
    others = masked_logsumexp(logits, rows.neg)
    valid = known & others.isfinite()
    return torch.where(valid, others - logits.gather(1, own).squeeze(1), 0.0), valid


class ProxyNCALoss(SourcedProxyLoss):
    """Neighbourhood component analysis against one proxy per class.

    Parameters
    ----------
    num_classes, embedding_dim : int
        Shape of the proxies.
    temperature : float
        T; 1/9 is the published code's scale 3 on both vectors.
    proxies : str
        "learned" with the network, "class_mean" (running means of the embeddings, which move after each training
        call), or "kmeans" (centres set by ``refit(embeddings, labels)``). The last two take no gradient.
    block : int, optional
        Anchors at a time.

    Notes
    -----
    The own class is not in the denominator, so the loss can be negative and is not bounded below. Each sample is tied
    to the proxy of its class, the paper's static assignment. The proxies' learning rate is usually far larger than
    the network's. With one class the loss is 0.
    """

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        *,
        temperature: float = 1 / 9,
        proxies: str = "learned",
        block: int | None = None,
    ) -> None:
        how = {"distance": "dot", "normalize": True, "block": block}
        super().__init__(num_classes, embedding_dim, proxies=proxies, **how)
        self.temperature = temperature

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return proxy_nca(rows, self.temperature)
