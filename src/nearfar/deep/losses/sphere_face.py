"""SphereFace, angular softmax (Liu, Wen, Yu, Li, Raj & Song, 2017).

    L = mean_i -log( e^{|x_i| psi(theta_iy)} / (e^{|x_i| psi(theta_iy)} + sum_{c != y_i} e^{|x_i| cos theta_ic}) )
    psi(theta) = (-1)^k cos(m theta) - 2 k        for theta in [k pi / m, (k + 1) pi / m]

theta_ic: angle between embedding i, which keeps its length, and the proxy of class c. psi is the cosine of m times the
angle, continued so that it falls from 0 to pi.
"""

from __future__ import annotations

from torch import Tensor

from ..pairwise.comparison import safe_sqrt
from ..proxies.angular_margins import multiplied
from ..proxies.class_proxies import ClassProxyLoss
from ..proxies.logits import cosines, own_and_others, softmax_loss
from ..unit_vectors import LEAST_NORM, unit


def sphere_face(own: Tensor, others: Tensor, length: Tensor, margin: int, ease: float) -> Tensor:
    """Return the loss per sample, from |x_i| cos theta_iy, log sum_{c != y_i} e^{|x_i| cos theta_ic}, and |x_i|."""
    psi = multiplied(own / length.clamp_min(LEAST_NORM), margin)
    return softmax_loss((length * psi + ease * own) / (1 + ease), others)


class SphereFaceLoss(ClassProxyLoss):
    """Softmax over one unit proxy per class, with the angle to the sample's own class multiplied by m.

    Parameters
    ----------
    num_classes : int
        Number of classes C. Labels run from 0 to ``num_classes - 1``; -1 means an unknown class.
    embedding_dim : int
        Number of dimensions of the embeddings.
    margin : int
        Angular multiplier m, at least 1; 1 gives the softmax with unit proxies.
    scale : float
        Factor on the products, positive; 1 in the paper.
    ease : float
        Weight of cos theta_iy in its weighted mean with psi(theta_iy), which has weight 1; at least 0. The published
        code lowers this weight from 1000 to 5 during training; 0 gives the paper's formula.
    unit_proxies : bool
        Whether to scale the proxies to unit length. False gives the large-margin softmax of Liu et al. (2016), where
        ``|w_c| |x_i|`` takes the place of ``|x_i|``.
    block : int, optional
        Number of samples processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If `margin` is below 1, or `ease` below 0.

    Notes
    -----
    The lengths of the embeddings matter: the longer they are, the sharper the softmax.
    """

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        *,
        margin: int = 4,
        scale: float = 1.0,
        ease: float = 0.0,
        unit_proxies: bool = True,
        block: int | None = None,
    ) -> None:
        super().__init__(num_classes, embedding_dim, block=block)
        if margin < 1 or ease < 0:
            raise ValueError(f"SphereFaceLoss: margin must be at least 1 and ease at least 0, got {margin} and {ease}")
        self.margin = margin
        self.scale = scale
        self.ease = ease
        self.unit_proxies = unit_proxies

    def directions(self, w: Tensor) -> Tensor:
        return unit(w) if self.unit_proxies else w

    def logits(self, x: Tensor, w: Tensor) -> Tensor:
        return self.scale * x @ w.T  # s |x_i| |w_c| cos theta_ic

    def cosines_of(self, logits: Tensor, x: Tensor, w: Tensor) -> Tensor:
        return cosines(x, w)

    def losses(self, logits: Tensor, x: Tensor, w: Tensor, y: Tensor, rows: slice, found: Tensor | None) -> Tensor:
        x = x[rows]
        y = y[rows]
        length = safe_sqrt(x.square().sum(1)) * self.scale  # s |x_i|, times |w_y| unless proxies have unit length
        if not self.unit_proxies:
            length = length * safe_sqrt(w.square().sum(1))[y.clamp_min(0)]
        return sphere_face(*own_and_others(logits, y), length, self.margin, self.ease)
