"""ArcFace, additive angular margin softmax (Deng et al., 2019).

    L = mean_i -log( e^{s cos(theta_iy + m)} / (e^{s cos(theta_iy + m)} + sum_{c != y_i} e^{s cos theta_ic}) )

theta_ic: angle between embedding i and the proxy of class c. Beyond theta = pi - m, where cos(theta + m) would grow
again, cos theta - m sin m takes its place.
"""

from __future__ import annotations

from torch import Tensor

from ..proxies.angular_margins import add_angle, check_margin
from ..proxies.class_proxies import ClassProxyLoss
from ..proxies.logits import softmax_loss


def arc_face(own: Tensor, others: Tensor, scale: float, margin: float) -> Tensor:
    """Return the loss per sample, from s cos theta_iy and log sum_{c != y_i} e^{s cos theta_ic}."""
    return softmax_loss(scale * add_angle(own / scale, margin), others)


class ArcFaceLoss(ClassProxyLoss):
    """Softmax over the cosines to one proxy per class, with an angular margin for the sample's own class.

    Parameters
    ----------
    num_classes : int
        Number of classes C. Labels run from 0 to ``num_classes - 1``; -1 means an unknown class.
    embedding_dim : int
        Number of dimensions of the embeddings.
    scale : float
        Scale s that multiplies the cosines, positive.
    margin : float
        Angular margin m in radians, from 0 to pi. The paper's 0.5 is 28.6 degrees.
    block : int, optional
        Number of samples processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If the margin is outside 0 to pi.
    """

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        *,
        scale: float = 64.0,
        margin: float = 0.5,
        block: int | None = None,
    ) -> None:
        super().__init__(num_classes, embedding_dim, block=block)
        check_margin("ArcFaceLoss", margin)
        self.scale = scale
        self.margin = margin

    def per_sample(self, own: Tensor, others: Tensor) -> Tensor:
        return arc_face(own, others, scale=self.scale, margin=self.margin)
