"""CosFace, large margin cosine loss (Wang et al., 2018).

    L = mean_i -log( e^{s(cos_iy - m)} / (e^{s(cos_iy - m)} + sum_{c != y_i} e^{s cos_ic}) )

Another name for AM-softmax, with the scale and margin of the CosFace paper.
"""

from __future__ import annotations

from torch import Tensor

from ..losses.am_softmax import am_softmax
from ..proxies.class_proxies import ClassProxyLoss


class CosFaceLoss(ClassProxyLoss):
    """``AMSoftmaxLoss`` with the scale and margin used for face recognition.

    Parameters
    ----------
    num_classes : int
        Number of classes C. Labels run from 0 to ``num_classes - 1``; -1 means an unknown class.
    embedding_dim : int
        Number of dimensions of the embeddings.
    scale : float
        Scale s that multiplies the cosines, positive.
    margin : float
        Margin m that is subtracted from the cosine to the proxy of the sample's own class.
    block : int, optional
        Number of samples processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.
    """

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        *,
        scale: float = 64.0,
        margin: float = 0.35,
        block: int | None = None,
    ) -> None:
        super().__init__(num_classes, embedding_dim, block=block)
        self.scale = scale
        self.margin = margin

    def per_sample(self, own: Tensor, others: Tensor) -> Tensor:
        return am_softmax(own, others, self.scale, self.margin)
