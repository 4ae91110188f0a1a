"""Dynamic ArcFace, whose margins depend on the sizes of the classes (Ha et al., 2020).

    L = mean_i -log( e^{s cos(theta_iy + m_y)} / (e^{s cos(theta_iy + m_y)} + sum_{c != y_i} e^{s cos theta_ic}) )
    m_c = a n_c^{-p} + b,    cos theta_ic = max_k x_i.w_ck

n_c: number of samples of class c; a and b: such that the smallest class has the largest margin and the largest class
the smallest; w_ck: k-th of the K unit proxies of class c. Beyond theta = pi - m, cos theta - m sin m takes the place of
cos(theta + m).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..proxies.angular_margins import check_margin, sine
from ..proxies.logits import own_and_others, softmax_loss
from ..proxies.sub_centers import SubCenterLoss


def dynamic_arc_face(own: Tensor, others: Tensor, margins: Tensor, scale: float) -> Tensor:
    """Return the (b,) losses, from s cos theta_iy, log sum_{c != y_i} e^{s cos theta_ic} and the margins, (b,) each."""
    c = own / scale
    turned = c * margins.cos() - sine(c) * margins.sin()
    return softmax_loss(scale * torch.where(c >= -margins.cos(), turned, c - margins * margins.sin()), others)


def margins_of(counts: Tensor, least: float, most: float, power: float) -> Tensor:
    """Return the margins of classes with these numbers of samples, (C,): `most` for all if these are equal."""
    weights = counts.double() ** -power
    low = weights.min()
    high = weights.max()
    share = torch.where(high > low, (weights - low) / (high - low).clamp_min(torch.finfo(weights.dtype).tiny), 1.0)
    return least + (most - least) * share


class DynamicArcFaceLoss(SubCenterLoss):
    """Sub-center ArcFace with larger margins for smaller classes, for sets in which few classes have most samples.

    Parameters
    ----------
    num_classes : int
        Number of classes C. Labels run from 0 to ``num_classes - 1``; -1 means an unknown class.
    embedding_dim : int
        Number of dimensions of the embeddings.
    class_sizes : sequence of int, optional
        Number of samples n_c of each class in the training set, at least 1. A training run fills it in. By default, all
        classes have the same size, and so the largest margin.
    least_margin, most_margin : float
        Angular margins m of the largest and of the smallest class, in radians, from 0 to pi.
    power : float
        Power p with which margins fall with the size of a class, positive.
    sub_centers : int
        Number K of proxies per class, from 1 to 255.
    scale : float
        Scale s that multiplies the cosines, positive.
    block : int, optional
        Number of samples processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If the margins are outside 0 to pi or in another order, `power` is not positive, or `class_sizes` are not one
        number of at least 1 per class.

    Examples
    --------
    >>> loss = DynamicArcFaceLoss(3, 8, class_sizes=(1, 16, 81))
    >>> [round(margin, 3) for margin in loss.margins.tolist()]  # 1, 1/2 and 1/3 between 0.5 and 0.05
    [0.5, 0.162, 0.05]
    """

    margins: Tensor

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        *,
        class_sizes: Sequence[int] | None = None,
        least_margin: float = 0.05,
        most_margin: float = 0.5,
        power: float = 0.25,
        sub_centers: int = 3,
        scale: float = 64.0,
        block: int | None = None,
    ) -> None:
        for margin in (least_margin, most_margin):
            check_margin("DynamicArcFaceLoss", margin)
        if least_margin > most_margin or power <= 0:
            got = f"{least_margin}, {most_margin} and {power}"
            raise ValueError(
                f"DynamicArcFaceLoss: least_margin must be at most most_margin, and power positive, got {got}"
            )
        super().__init__(num_classes, embedding_dim, sub_centers, block=block)
        self.scale = scale
        try:
            # on the host, also where modules are made on the device "meta"
            if class_sizes is None:
                counts = torch.ones(num_classes, device="cpu")
            else:
                counts = torch.as_tensor(class_sizes, device="cpu").double()
        except (TypeError, ValueError, RuntimeError):  # text, lists of several lengths
            counts = torch.zeros(0)
        if counts.shape != (num_classes,) or not (counts >= 1).all():
            needs = f"{num_classes} numbers of at least 1, one per class"
            raise ValueError(f"DynamicArcFaceLoss: class_sizes must be {needs}; got {class_sizes!r:.60}")
        margins = margins_of(counts, least_margin, most_margin, power).float()
        self.register_buffer("margins", margins.to(torch.get_default_device()))

    def losses(self, logits: Tensor, x: Tensor, w: Tensor, y: Tensor, rows: slice, found: Tensor | None) -> Tensor:
        own, others = own_and_others(logits, y[rows])
        return dynamic_arc_face(own, others, self.margins.to(own.dtype)[y[rows].clamp_min(0)], self.scale)

    @property
    def reads_two_numbers(self) -> bool:
        return False  # the margin is that of the sample's class

    @property
    def can_draw_classes(self) -> bool:
        return False
