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
    """AM-softmax regularized with the joint representation similarity of its classes.

    Parameters
    ----------
    num_classes : int
        Number of classes C. Labels run from 0 to ``num_classes - 1``; -1 means an unknown class. The proxies are the
        parameter ``terms.0.proxies``.
    embedding_dim : int
        Number of dimensions of the embeddings.
    alpha : float
        Weight of the regularizer. The paper uses 1 for CUB-200-2011 and Cars-196, and 0.4 for Stanford Online Products.
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
