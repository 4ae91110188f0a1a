"""Sub-center ArcFace (Deng, Guo, Liu, Gong & Zafeiriou, 2020).

    L = mean_i -log( e^{s cos(theta_iy + m)} / (e^{s cos(theta_iy + m)} + sum_{c != y_i} e^{s cos theta_ic}) )
    cos theta_ic = max_k x_i.w_ck

w_ck: k-th of the K unit proxies of class c; x_i: unit embedding. Noisy samples gather at a separate proxy instead of
pulling the main proxy towards them. Beyond theta = pi - m, cos theta - m sin m takes the place of cos(theta + m).
"""

from __future__ import annotations

from torch import Tensor

from ..proxies.angular_margins import add_angle, check_margin
from ..proxies.logits import softmax_loss
from ..proxies.sub_centers import SubCenterLoss


def sub_center_arc_face(own: Tensor, others: Tensor, scale: float, margin: float) -> Tensor:
    """Return the loss per sample, from s cos theta_iy and log sum_{c != y_i} e^{s cos theta_ic}."""
    return softmax_loss(scale * add_angle(own / scale, margin), others)


class SubCenterArcFaceLoss(SubCenterLoss):
    """ArcFace with several proxies per class, where each sample is compared with the nearest one.

    Parameters
    ----------
    num_classes : int
        Number of classes C. Labels run from 0 to ``num_classes - 1``; -1 means an unknown class. The parameter
        `proxies` has the shape (sub_centers * C, embedding_dim): the first proxy of every class, then the second of
        every class, and so on.
    embedding_dim : int
        Number of dimensions of the embeddings.
    sub_centers : int
        Number K of proxies per class, from 1 to 255.
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
        If the margin is outside 0 to pi, or `sub_centers` is outside 1 to 255.

    Notes
    -----
    With one proxy per class, this is ``ArcFaceLoss``. The paper trains on noisy labels, removes the samples that
    `outliers` finds, and trains again with one proxy per class.
    """

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        *,
        sub_centers: int = 3,
        scale: float = 64.0,
        margin: float = 0.5,
        block: int | None = None,
    ) -> None:
        check_margin("SubCenterArcFaceLoss", margin)
        super().__init__(num_classes, embedding_dim, sub_centers, block=block)
        self.scale = scale
        self.margin = margin

    def per_sample(self, own: Tensor, others: Tensor) -> Tensor:
        return sub_center_arc_face(own, others, scale=self.scale, margin=self.margin)
