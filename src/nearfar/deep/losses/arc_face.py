"""ArcFace, additive angular margin softmax (Deng et al., 2019).

    L = mean_i -log( e^{s cos(theta_iy + m)} / (e^{s cos(theta_iy + m)} + sum_{c != y_i} e^{s cos theta_ic}) )

theta_ic: angle between embedding i and the proxy of class c. Beyond theta = pi - m, where cos(theta + m) would grow
again, cos theta - m sin m takes its place.
"""

from __future__ import annotations

from math import cos, sin

import torch
from torch import Tensor

from ..proxies import cross_entropy, own_class
from ..rows import Rows, safe_sqrt
from ..terms import ProxyLoss


def add_angle(c: Tensor, margin: float) -> Tensor:
    """Return cos(theta + margin) from c = cos theta, continued so that it falls over all of [0, pi]."""
    turned = c * cos(margin) - safe_sqrt((1 - c.square()).clamp_min(0)) * sin(margin)
    return torch.where(c >= -cos(margin), turned, c - margin * sin(margin))


def arc_face(rows: Rows, scale: float, margin: float) -> tuple[Tensor, Tensor]:
    """Return per anchor the cross-entropy of its scaled cosines, and 1 where the class is known."""
    own, known = own_class(rows)
    cosine = -rows.d.gather(1, own)
    return cross_entropy(-scale * rows.d, own, known, scale * (cosine - add_angle(cosine, margin))), known


class ArcFaceLoss(ProxyLoss):
    """Cross-entropy of cosines to one proxy per class, with a margin on the angle to the own class.

    Parameters
    ----------
    num_classes, embedding_dim : int
        Shape of the proxies.
    scale : float
        s.
    margin : float
        m in radians, from 0 to pi; the paper's 0.5 is 28.6 degrees.
    block : int, optional
        Anchors at a time.

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
        super().__init__(num_classes, embedding_dim, distance="dot", normalize=True, block=block)
        if not 0 <= margin <= 3.1416:
            raise ValueError(f"ArcFaceLoss: margin is in radians, from 0 to pi, got {margin}")
        self.scale, self.margin = scale, margin

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return arc_face(rows, self.scale, self.margin)
