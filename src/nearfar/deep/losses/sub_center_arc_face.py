"""Sub-center ArcFace (Deng, Guo, Liu, Gong & Zafeiriou, 2020).

    L = mean_i -log( e^{s cos(theta_iy + m)} / (e^{s cos(theta_iy + m)} + sum_{c != y_i} e^{s cos theta_ic}) )
    cos theta_ic = max_k x_i.w_ck

w_ck: k-th of the K unit proxies of class c; x_i: unit embedding. Noisy samples gather at a separate proxy instead of
pulling the main proxy towards them. Beyond theta = pi - m, cos theta - m sin m takes the place of cos(theta + m).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..objective.batch import Batch, check_range
from ..objective.relations import UNKNOWN
from ..proxies.angular_margins import add_angle, check_margin
from ..proxies.class_centers import nearest_cosine
from ..proxies.class_proxies import ClassProxyLoss
from ..proxies.class_softmax import own_and_others_of
from ..proxies.logits import softmax_loss
from ..unit_vectors import unit


def sub_center_arc_face(own: Tensor, others: Tensor, scale: float, margin: float) -> Tensor:
    """Return the loss per sample, from s cos theta_iy and log sum_{c != y_i} e^{s cos theta_ic}."""
    return softmax_loss(scale * add_angle(own / scale, margin), others)


class SubCenterArcFaceLoss(ClassProxyLoss):
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

    @property
    def reads_two_numbers(self) -> bool:
        return True

    @property
    def can_draw_classes(self) -> bool:
        return True

    def own_and_others(self, x: Tensor, y: Tensor, proxies: Tensor) -> tuple[Tensor, Tensor]:
        return own_and_others_of(unit(x, self.scale), self._centers(proxies), y, cosines=True)

    def cosine_sums(self, x: Tensor, proxies: Tensor) -> Tensor:
        blocks = self._blocks(slice(0, len(x)), x)
        return torch.cat([nearest_cosine(x[lo:hi], self._centers(proxies)).sum(1) for lo, hi in blocks])

    def directions(self, w: Tensor) -> Tensor:
        return w  # the comparison itself scales the proxies to unit length

    def logits(self, x: Tensor, w: Tensor) -> Tensor:
        return nearest_cosine(x, self._centers(w), self.scale)

    def publish(self, batch: Batch) -> Batch:
        return batch._replace(scores=nearest_cosine(batch.x, self._centers(self.reference(batch)[0])))

    @torch.no_grad()
    def outliers(self, embeddings: Tensor, labels: Tensor, angle: float = 1.309) -> Tensor:
        """Return which samples lie far from the dominant proxy of their class, as an (n,) boolean tensor.

        The dominant proxy is the one to which most samples of the class belong.

        Parameters
        ----------
        embeddings : (n, d) float tensor
            Embeddings of the training set.
        labels : (n,) integers
            Class of each sample. Samples of unknown class (-1) are no outliers.
        angle : float
            Smallest angle of an outlier, in radians. The paper's 1.309 is 75 degrees.

        Raises
        ------
        ValueError
            If there is not one label per embedding, or a label is not a class number.
        """
        y = torch.as_tensor(labels, dtype=torch.int64, device=self.proxies.device)
        check_range("SubCenterArcFaceLoss: labels", y, self.num_classes)
        if len(y) != len(embeddings):
            raise ValueError(f"labels: expected one per embedding, {len(embeddings)}, got {len(y)}")
        centers = unit(self._centers(self.proxies))
        known = y != UNKNOWN
        x = unit(embeddings.to(self.proxies))
        # cosines with the K proxies of the own class, (n, K)
        own = torch.stack([(x * center[y.clamp_min(0)]).sum(1) for center in centers], 1)
        # how many samples of each class are nearest to each of its proxies, (C, K): the largest is dominant
        votes = torch.zeros(self.num_classes, self.sub_centers, device=y.device)
        votes.index_put_((y[known], own[known].argmax(1)), votes.new_ones(()), accumulate=True)
        nearest = own.gather(1, votes.argmax(1)[y.clamp_min(0), None]).squeeze(1)
        return known & (nearest.clamp(-1, 1).acos() > angle)

    def _centers(self, w: Tensor) -> Tensor:
        """Return the proxies, (K, C, d), of all classes or of some."""
        return w.unflatten(0, (self.sub_centers, len(w) // self.sub_centers))
