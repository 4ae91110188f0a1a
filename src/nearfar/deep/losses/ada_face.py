"""AdaFace, a margin that follows the quality of the image (Kim, Jain & Liu, 2022).

    L = mean_i -log( e^{s f_i} / (e^{s f_i} + sum_{c != y_i} e^{s cos theta_ic}) )
    f_i = cos(theta_iy - m q_i) - m (1 + q_i)
    q_i = clip( h (|x_i| - mean_j |x_j|) / std_j |x_j|, -1, 1 )

theta_ic: angle between embedding i and the proxy of class c. The length of an embedding represents the quality of its
image: hard samples count more than easy ones in images of high quality, and less in those of low quality.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..pairwise.comparison import safe_sqrt
from ..proxies.angular_margins import sine
from ..proxies.class_proxies import ClassProxyLoss
from ..proxies.logits import own_and_others, softmax_loss


def ada_face(own: Tensor, others: Tensor, quality: Tensor, scale: float, margin: float) -> Tensor:
    """Return the loss per sample, from s cos theta_iy, log sum_{c != y_i} e^{s cos theta_ic}, and q."""
    cosine = own / scale
    turn = margin * quality
    edge = turn.cos()
    moved = cosine * edge + sine(cosine) * turn.sin()  # cos(theta - turn)
    moved = torch.where((turn > 0) & (cosine > edge), 1.0, moved)  # the angle stays within 0 and pi
    moved = torch.where((turn < 0) & (cosine < -edge), -1.0, moved)
    return softmax_loss(scale * (moved - margin - turn), others)


class AdaFaceLoss(ClassProxyLoss):
    """Softmax over the cosines to one proxy per class, with a margin that adapts to the quality of the image.

    Parameters
    ----------
    num_classes : int
        Number of classes C. Labels run from 0 to ``num_classes - 1``; -1 means an unknown class.
    embedding_dim : int
        Number of dimensions of the embeddings.
    scale : float
        Scale s that multiplies the cosines, positive.
    margin : float
        Margin m, from 0 to pi / 2, which acts both on the angle (in radians) and on the cosine.
    concentration : float
        Concentration h of the quality, positive. With 1/3, lengths within three standard deviations of the mean are
        distinguished.
    block : int, optional
        Number of samples processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If the margin is outside 0 to pi / 2, or the concentration is not positive.

    Notes
    -----
    Do not normalize the embeddings first: if all lengths are one, q is 0 and the margin is that of CosFace.

    The mean and the standard deviation of the lengths are computed over the samples of known class in the batch, across
    all processes; the paper's running mean gives the batch a weight of 0.99. As in the published code, 0.001 is added
    to the standard deviation and q has no gradient. Unlike there, lengths are not clipped at 100.
    """

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        *,
        scale: float = 64.0,
        margin: float = 0.4,
        concentration: float = 0.33,
        block: int | None = None,
    ) -> None:
        super().__init__(num_classes, embedding_dim, block=block)
        if not 0 <= margin <= 1.5708 or concentration <= 0:
            needs = "margin must be in radians, from 0 to pi / 2, and concentration positive"
            raise ValueError(f"AdaFaceLoss: {needs}, got {margin} and {concentration}")
        self.scale = scale
        self.margin = margin
        self.concentration = concentration

    @torch.no_grad()
    def find(self, x: Tensor, w: Tensor, y: Tensor) -> Tensor:
        """Return the (n,) qualities, by the mean and the deviation of the lengths of samples of known class."""
        length = safe_sqrt(x.square().sum(1))
        # unknown classes count neither for the mean nor for the deviation, and still get a quality
        known = self.counted(y)
        number = known.sum()
        away = length - torch.where(known, length, 0.0).sum() / number.clamp_min(1)
        total = torch.where(known, away, 0.0).square().sum()
        # the deviation with n - 1, as the paper has it; 1e-3 keeps q finite where all lengths are equal
        deviation = (total / (number - 1).clamp_min(1)).sqrt() + 1e-3
        return (self.concentration * away / deviation).clamp(-1, 1)

    def losses(self, logits: Tensor, x: Tensor, w: Tensor, y: Tensor, rows: slice, found: Tensor | None) -> Tensor:
        assert found is not None
        return ada_face(*own_and_others(logits, y[rows]), found[rows], self.scale, self.margin)
