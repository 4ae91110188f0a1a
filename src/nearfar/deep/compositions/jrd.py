"""Joint representation diversification, JRD (Chu et al., 2020).

L = L_AM-softmax + alpha L_JRS
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..losses.am_softmax import AMSoftmaxLoss
from ..objective.terms import Sum
from ..regularizers.jrs import JRS
from ..wholebatch.kernel_embeddings import LAYERS


class JRDLoss(Sum):
    """AM-softmax with the joint representation similarity of its classes as regularizer.

    Parameters
    ----------
    num_classes, embedding_dim : int
        Shape of the proxies, which are the parameter ``terms.0.proxies``.
    alpha : float
        Weight of the regularizer: 1 on CUB-200-2011 and Cars-196, 0.4 on Stanford Online Products.
    layers : sequence of str
        As in ``JRS``; "pooled" needs ``pooled=`` in every call.
    kernel, kernels, class_kernels, degree, multiplier, bandwidths, raw
        As in ``JRS``.
    scale, margin : float
        As in ``AMSoftmaxLoss``.
    """

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        alpha: float = 1.0,
        *,
        layers: Sequence[str] = LAYERS,
        kernel: str | Sequence[str] = "gaussian",
        kernels: int | Sequence[int] = 3,
        class_kernels: int = 1,
        degree: int = 2,
        multiplier: float | Sequence[float] = 2.0,
        bandwidths: Sequence[Any] | None = None,
        raw: bool = False,
        scale: float = 20.0,
        margin: float = 0.1,
    ) -> None:
        softmax = AMSoftmaxLoss(num_classes, embedding_dim, scale=scale, margin=margin)
        jrs = JRS(
            layers,
            kernel=kernel,
            kernels=kernels,
            class_kernels=class_kernels,
            degree=degree,
            multiplier=multiplier,
            bandwidths=bandwidths,
            raw=raw,
        )
        super().__init__([(1.0, softmax), (alpha, jrs)])
