"""AM-softmax, additive-margin cosine softmax (Wang et al., 2018).

    L = mean_i -log( e^{s(cos_iy - m)} / (e^{s(cos_iy - m)} + sum_{c != y_i} e^{s cos_ic}) )

cos_ic: cosine between embedding i and the proxy of class c; y_i: the class of sample i.
"""

from __future__ import annotations

from torch import Tensor, nn

from ..proxies import cross_entropy, own_class
from ..rows import Rows
from ..terms import ProxyLoss


def am_softmax(rows: Rows, scale: float, margin: float) -> tuple[Tensor, Tensor]:
    """Return per anchor the cross-entropy of s(cos - m [own class]), and 1 where the class is known."""
    own, known = own_class(rows)
    return cross_entropy(-scale * rows.d, own, known, scale * margin), known


class AMSoftmaxLoss(ProxyLoss):
    """Cross-entropy of cosines to one proxy per class, with a margin on the own class.

    Parameters
    ----------
    num_classes, embedding_dim : int
        Shape of the proxies.
    scale : float
        s, which sharpens the softmax of the cosines, which lie in [-1, 1].
    margin : float
        m, taken off the own class's cosine; 0 is the normalised softmax. The diversification paper takes 0.1 on
        CUB-200-2011 and Stanford Online Products, 0.05 on Cars-196.
    block : int, optional
        Anchors at a time.

    Notes
    -----
    The proxies start uniform in +-1/sqrt(num_classes), as in the published code of Chu et al. (2020); only their
    directions matter. With one class the loss is 0.
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
        super().__init__(num_classes, embedding_dim, distance="dot", normalize=True, block=block)
        self.scale, self.margin = scale, margin
        nn.init.uniform_(self.proxies, -(num_classes**-0.5), num_classes**-0.5)

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return am_softmax(rows, self.scale, self.margin)
