"""SoftTriple (Qian et al., 2019).

    L = mean_i -log( e^{s(S_iy - m)} / (e^{s(S_iy - m)} + sum_{c != y_i} e^{s S_ic}) )
        + tau / (C K (K - 1)) sum_c sum_{j < k} sqrt(2 - 2 w_cj.w_ck + 1e-5)
    S_ic = sum_k softmax_k(x_i.w_ck / gamma) x_i.w_ck

w_ck: k-th of the K unit centers of class c; x_i: unit embedding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..objective.batch import Batch
from ..proxies.class_centers import similarity, spread
from ..proxies.class_proxies import ClassProxyLoss
from ..proxies.logits import softmax_loss
from ..unit_vectors import unit


def soft_triple(own: Tensor, others: Tensor, scale: float, margin: float) -> Tensor:
    """Return the loss per sample, from s S_iy and log sum_{c != y_i} e^{s S_ic}."""
    return softmax_loss(own - scale * margin, others)


class SoftTripleLoss(ClassProxyLoss):
    """Softmax over classes that have several centers each.

    Parameters
    ----------
    num_classes : int
        Number of classes C. Labels run from 0 to ``num_classes - 1``; -1 means an unknown class. The parameter
        `proxies` has the shape (centers * C, embedding_dim): the first center of every class, then the second of every
        class, and so on.
    embedding_dim : int
        Number of dimensions of the embeddings.
    centers : int
        Number K of centers per class, at least 1. The paper starts with 10 and lets the regularizer merge them.
    scale : float
        Scale s of the similarities, positive; lambda in the paper.
    margin : float
        Margin m that is subtracted from the similarity to the sample's own class; delta in the paper.
    gamma : float
        Softness of the assignment of a sample to the centers of a class, positive. As it approaches 0, only the nearest
        center counts; as it grows, all centers count equally.
    tau : float
        Weight of the penalty on the distances between the centers of a class.
    block : int, optional
        Number of samples processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If `centers` is below 1, or `gamma` is not positive.

    Notes
    -----
    As in the published code, the sum over pairs j < k is divided by C K (K - 1), which makes it half of their mean, and
    1e-5 is added under the root. The formula of the survey (Ghojogh et al., 2022) is ``gamma=1, tau=0``; one of its
    indices, and the sign of its condition on inner products, are misprinted. With one center, the loss is
    ``AMSoftmaxLoss``.
    """

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        *,
        centers: int = 10,
        scale: float = 20.0,
        margin: float = 0.01,
        gamma: float = 0.1,
        tau: float = 0.2,
        block: int | None = None,
    ) -> None:
        if centers < 1:
            raise ValueError(f"SoftTripleLoss: centers must be at least 1, got {centers}")
        if gamma <= 0:
            raise ValueError(f"SoftTripleLoss: gamma must be positive, got {gamma}")
        super().__init__(num_classes, embedding_dim, block=block)
        self.centers = centers
        self.scale = scale
        self.margin = margin
        self.gamma = gamma
        self.tau = tau
        more = [torch.nn.init.kaiming_uniform_(torch.empty_like(self.proxies), a=5**0.5) for _ in range(centers)]
        self.proxies = torch.nn.Parameter(torch.cat(more))

    def per_sample(self, own: Tensor, others: Tensor) -> Tensor:
        return soft_triple(own, others, scale=self.scale, margin=self.margin)

    def directions(self, w: Tensor) -> Tensor:
        return w  # the comparison itself scales the centers to unit length

    def logits(self, x: Tensor, w: Tensor) -> Tensor:
        return self.scale * similarity(unit(x), self._centers(w), self.gamma)

    def publish(self, batch: Batch) -> Batch:
        w = self._centers(self.reference(batch)[0])
        return batch._replace(scores=similarity(unit(batch.x), w, self.gamma))

    def penalty(self, batch: Batch) -> Tensor | None:
        if not self.tau:
            return None
        K = self.centers
        w = self._centers(self.proxies.to(batch.x.dtype))
        return self.tau / max(self.num_classes * K * (K - 1), 1) * spread(w)

    def _centers(self, w: Tensor) -> Tensor:
        """Return the centers, (K, C, d)."""
        return w.unflatten(0, (self.centers, self.num_classes))
