"""AM-softmax, additive-margin cosine softmax (Wang et al., 2018).

    L = mean_i -log( e^{s(cos_iy - m)} / (e^{s(cos_iy - m)} + sum_{c != y_i} e^{s cos_ic}) )

cos_ic: cosine between embedding i and the proxy of class c; y_i: the class of sample i.
"""

from __future__ import annotations

from torch import Tensor, nn

from ..proxies.class_proxies import ClassProxyLoss
from ..proxies.logits import softmax_loss


def am_softmax(own: Tensor, others: Tensor, scale: float, margin: float) -> Tensor:
    """Return the loss per sample, from s cos_iy and log sum_{c != y_i} e^{s cos_ic}."""
    return softmax_loss(own - scale * margin, others)


class AMSoftmaxLoss(ClassProxyLoss):
    """Softmax over the cosines to one proxy per class, with a margin for the sample's own class.

    Parameters
    ----------
    num_classes : int
        Number of classes C. Labels run from 0 to ``num_classes - 1``; -1 means an unknown class.
    embedding_dim : int
        Number of dimensions of the embeddings.
    scale : float
        Scale s that multiplies the cosines, positive. It sharpens the softmax, since cosines are limited to [-1, 1].
    margin : float
        Margin m that is subtracted from the cosine to the proxy of the sample's own class; 0 gives the normalized
        softmax. The diversification paper uses 0.1 for CUB-200-2011 and Stanford Online Products, and 0.05 for
        Cars-196.
    block : int, optional
        Number of samples processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Notes
    -----
    The proxies are initialized uniformly in +-1/sqrt(num_classes), as in the published code of Chu et al. (2020); only
    their directions matter. With one class, the loss is 0.
    """

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        *,
        scale: float = 20.0,
        margin: float = 0.1,
        block: int | None = None,
    ) -> None:
        super().__init__(num_classes, embedding_dim, block=block)
        self.scale = scale
        self.margin = margin
        nn.init.uniform_(self.proxies, -(num_classes**-0.5), num_classes**-0.5)

    def per_sample(self, own: Tensor, others: Tensor) -> Tensor:
        return am_softmax(own, others, scale=self.scale, margin=self.margin)
