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
    """Probability of the proxy of the sample's own class among all proxies, at a low temperature.

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
        How the proxies are obtained: "learned", "class_mean" or "kmeans", as in ``ProxyNCALoss``.
    block : int, optional
        Number of samples processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Notes
    -----
    In the formula of the survey (Ghojogh et al., 2022), the sample's own class is not in the denominator; this is
    ``ProxyNCALoss(temperature=T)``. The published recipe also uses global max pooling, layer normalization, balanced
    batches, and Adam with an epsilon of 1 and learning rates of 4e2 for the proxies and 4e-3 for all other parameters.
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
