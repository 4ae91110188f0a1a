"""Proxy-NCA++ (Teh et al., 2020).

    L = mean_i -log( e^{-||z_i - p_y||^2 / T} / sum_c e^{-||z_i - p_c||^2 / T} )

z_i: unit embedding of sample i; p_c: unit proxy of class c; y: the sample's class.
"""

from __future__ import annotations

from torch import Tensor

from ..proxies.class_proxies import NeighborProxyLoss
from ..proxies.logits import softmax_loss


def proxy_nca_plus_plus(own: Tensor, others: Tensor) -> Tensor:
    """Return the loss per sample, from -||z - p_y||^2 / T and log sum_{c != y_i} e^{-||z - p_c||^2 / T}."""
    return softmax_loss(own, others)


class ProxyNCAPlusPlusLoss(NeighborProxyLoss):
    """Probability of the own class's proxy among all proxies, at a low temperature.

    Parameters
    ----------
    num_classes, embedding_dim : int
        Shape of the proxies.
    temperature : float
        T; 1/9 is the published code's scale 3 on both vectors.
    proxies : str
        "learned", "class_mean" or "kmeans", as in ``ProxyNCALoss``.
    block : int, optional
        Samples at a time.

    Notes
    -----
    The survey's formula keeps the own class out of the denominator, which is ``ProxyNCALoss(temperature=T)``. The
    published recipe also takes global max pooling, layer normalization, balanced batches, and Adam with epsilon 1 and
    learning rates of 4e2 for the proxies and 4e-3 for the rest.
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
        super().__init__(num_classes, embedding_dim, temperature=temperature, proxies=proxies, block=block)

    def per_sample(self, own: Tensor, others: Tensor) -> Tensor:
        return proxy_nca_plus_plus(own, others)
