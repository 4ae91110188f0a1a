"""Sub-center ArcFace (Deng, Guo, Liu, Gong & Zafeiriou, 2020).

    L = mean_i -log( e^{s cos(theta_iy + m)} / (e^{s cos(theta_iy + m)} + sum_{c != y_i} e^{s cos theta_ic}) )
    cos theta_ic = max_k x_i.w_ck

w_ck: k-th of the K unit proxies of class c; x_i: unit embedding. Noisy samples gather at a proxy of their own instead
of pulling at that of the others. Beyond theta = pi - m, cos theta - m sin m takes the place of cos(theta + m).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..objective.batch import Batch, check_range
from ..objective.relations import UNKNOWN
from ..proxies.angular_margins import add_angle, check_margin
from ..proxies.class_centers import nearest_cosine
from ..proxies.class_proxies import ClassProxyLoss
from ..proxies.logits import softmax_loss
from ..unit_vectors import unit


def sub_center_arc_face(own: Tensor, others: Tensor, scale: float, margin: float) -> Tensor:
    """Return the loss per sample, from s cos theta_iy and log sum_{c != y_i} e^{s cos theta_ic}."""
    return softmax_loss(scale * add_angle(own / scale, margin), others)


class SubCenterArcFaceLoss(ClassProxyLoss):
    """ArcFace with several proxies per class, of which each sample is compared with the nearest.

    Parameters
    ----------
    num_classes, embedding_dim : int
        C and the dimension. `proxies` has the shape (sub_centers * C, embedding_dim): the first of every class, then
        the second of every class, and so on.
    sub_centers : int
        K proxies per class.
    scale : float
        s.
    margin : float
        m in radians, from 0 to pi; the paper's 0.5 is 28.6 degrees.
    block : int, optional
        Samples at a time.

    Raises
    ------
    ValueError
        If the margin is outside 0 to pi, or `sub_centers` is outside 1 to 255.

    Notes
    -----
    With one proxy per class it is ``ArcFaceLoss``. The paper trains with noisy labels, drops the `outliers`, and trains
    again with one proxy per class.
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
        if not 1 <= sub_centers <= 255:
            raise ValueError(f"SubCenterArcFaceLoss: sub_centers must be 1 to 255, got {sub_centers}")
        check_margin("SubCenterArcFaceLoss", margin)
        super().__init__(num_classes, embedding_dim, block=block)
        self.sub_centers = sub_centers
        self.scale = scale
        self.margin = margin
        more = [torch.nn.init.kaiming_uniform_(torch.empty_like(self.proxies), a=5**0.5) for _ in range(sub_centers)]
        self.proxies = torch.nn.Parameter(torch.cat(more))

    def per_sample(self, own: Tensor, others: Tensor) -> Tensor:
        return sub_center_arc_face(own, others, self.scale, self.margin)

    def directions(self, w: Tensor) -> Tensor:
        return w  # the comparison itself scales the proxies to unit length

    def logits(self, x: Tensor, w: Tensor) -> Tensor:
        return nearest_cosine(x, self._centers(w), self.scale)

    def publish(self, batch: Batch) -> Batch:
        return batch._replace(scores=nearest_cosine(batch.x, self._centers(self.reference(batch)[0])))

    @torch.no_grad()
    def outliers(self, embeddings: Tensor, labels: Tensor, angle: float = 1.309) -> Tensor:
        """Return which samples lie far from the proxy to which most of their class belong, (n,) bool.

        Parameters
        ----------
        embeddings : (n, d) float tensor
        labels : (n,) integers; -1 is no outlier
        angle : float
            How far, in radians; the paper's 1.309 is 75 degrees.

        Raises
        ------
        ValueError
            If there is not one label per embedding, or one is no class number.
        """
        y = torch.as_tensor(labels, dtype=torch.int64, device=self.proxies.device)
        check_range("SubCenterArcFaceLoss: labels", y, self.num_classes)
        if len(y) != len(embeddings):
            raise ValueError(f"labels: expected one per embedding, {len(embeddings)}, got {len(y)}")
        centers = unit(self._centers(self.proxies))
        known = y != UNKNOWN
        x = unit(embeddings.to(self.proxies))
        own = torch.stack([(x * center[y.clamp_min(0)]).sum(1) for center in centers], 1)
        votes = torch.zeros(self.num_classes, self.sub_centers, device=y.device)
        votes.index_put_((y[known], own[known].argmax(1)), votes.new_ones(()), accumulate=True)
        nearest = own.gather(1, votes.argmax(1)[y.clamp_min(0), None]).squeeze(1)
        return known & (nearest.clamp(-1, 1).acos() > angle)

    def _centers(self, w: Tensor) -> Tensor:
        """Return the proxies, (K, C, d)."""
        return w.unflatten(0, (self.sub_centers, self.num_classes))
