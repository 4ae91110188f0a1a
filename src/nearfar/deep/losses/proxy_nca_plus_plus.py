"""Proxy-NCA++ (Teh et al., 2020).

    L = mean_i -log( e^{-||z_i - p_y||^2 / T} / sum_c e^{-||z_i - p_c||^2 / T} )

z_i: unit embedding of sample i; p_c: unit proxy of class c; y: the sample's class.
"""

from __future__ import annotations

from torch import Tensor

from ..proxies import SourcedProxyLoss, cross_entropy, own_class
from ..rows import Rows


def proxy_nca_plus_plus(rows: Rows, temperature: float) -> tuple[Tensor, Tensor]:
    """Return per anchor the cross-entropy of its distances to the proxies, and 1 where the class is known."""
    own, known = own_class(rows)
    logits = -2 / temperature * rows.d  # -||z - p||^2 up to a constant, which cancels
    return cross_entropy(logits, own, known), known


class ProxyNCAPlusPlusLoss(SourcedProxyLoss):
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
        Anchors at a time.

    Notes
    -----
    The survey's formula keeps the own class out of the denominator, which is ``ProxyNCALoss(temperature=T)``. The
    published recipe also takes global max pooling, layer normalisation, balanced batches and a proxy learning rate
    of 4e2 beside 4e-3 with Adam's epsilon 1.
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
        return proxy_nca_plus_plus(rows, self.temperature)
