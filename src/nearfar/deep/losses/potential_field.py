"""Potential field metric learning, PFML (Bhatnagar & Ahuja, 2025).

    U = sum_{r != s} psi(r, s)                      over ordered pairs of points: the samples, M proxies of each class
    psi(r, s) = -1 / max(|r - s|, delta)^alpha      of one class: attraction, constant within delta
    psi(r, s) = +1 / min(|r - s|, delta)^alpha      of different classes: repulsion, constant beyond delta

Every point is a charge whose attraction and repulsion weaken with the distance. r, s: unit embeddings and unit proxies.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...settings import check_options
from ..objective.batch import Batch, check_width
from ..objective.terms import SetTerm
from ..pairwise.blockwise import sum_over_anchors
from ..pairwise.comparison import Comparison, Rows, count

REDUCTIONS = ("mean", "sum")
CORE = 1e-2  # repulsion is constant within this part of delta; it would be infinite where two points coincide


def potential_field(rows: Rows, alpha: float, delta: float) -> Tensor:
    """Return the potential energy of each anchor of the block, (b,), in the fields of all other points."""
    pull = rows.d.clamp_min(delta).pow(-alpha)  # 1 / max(d, delta)^alpha, (b, m)
    push = rows.d.clamp(CORE * delta, delta).pow(-alpha)  # 1 / min(d, delta)^alpha, (b, m)
    return torch.where(rows.neg, push, 0.0).sum(1) - torch.where(rows.pos, pull, 0.0).sum(1)


class PotentialFieldLoss(SetTerm):
    """Potential energy of samples and class proxies that attract their own class and repel the others.

    Parameters
    ----------
    num_classes : int
        Number of classes C. Labels run from 0 to ``num_classes - 1``; -1 means an unknown class. The parameter
        `proxies` has the shape (proxies_per_class * C, embedding_dim): the first proxy of every class, then the second
        of every class, and so on.
    embedding_dim : int
        Number of dimensions of the embeddings.
    proxies_per_class : int
        Number M of proxies per class, at least 1.
    alpha : float
        Exponent with which the potentials decay with the distance, positive.
    delta : float
        Distance, positive, within which samples of the same class are near enough and beyond which samples of different
        classes are far enough: neither has a gradient there.
    reduction : {"mean", "sum"}
        "mean" averages over the ordered pairs of points; "sum" adds them up, as in the paper.
    block : int, optional
        Number of points processed at a time, which affects speed and memory but not the value. By default, it is chosen
        automatically.

    Raises
    ------
    ValueError
        If `proxies_per_class`, `alpha` or `delta` is not positive, or a reference is given.

    Notes
    -----
    The paper chooses alpha and delta by cross-validation for each data set; the defaults are a choice of this library.
    Two points of different classes that coincide would have an infinite potential, so the potential is constant within
    delta / 100.

    Each step also compares the proxies with one another, so its time grows with the square of their number.

    References
    ----------
    S. Bhatnagar and N. Ahuja, "Potential field based deep metric learning", CVPR 2025.

    Examples
    --------
    >>> import nearfar
    >>> loss = nearfar.PotentialFieldLoss(num_classes=2, embedding_dim=3, proxies_per_class=1)
    >>> loss(torch.eye(3)[:2], torch.tensor([0, 1])).isfinite()
    tensor(True)
    """

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        *,
        proxies_per_class: int = 15,
        alpha: float = 2.0,
        delta: float = 0.2,
        reduction: str = "mean",
        block: int | None = None,
    ) -> None:
        super().__init__()
        check_options(self, REDUCTIONS, reduction=reduction)
        if proxies_per_class < 1:
            raise ValueError(f"PotentialFieldLoss: proxies_per_class must be at least 1, got {proxies_per_class}")
        if alpha <= 0:
            raise ValueError(f"PotentialFieldLoss: alpha must be positive, got {alpha}")
        if delta <= 0:
            raise ValueError(f"PotentialFieldLoss: delta must be positive, got {delta}")
        self.num_classes = num_classes
        self.alpha = alpha
        self.delta = delta
        self.reduction = reduction
        self.block = block
        self.proxies = nn.Parameter(torch.randn(proxies_per_class * num_classes, embedding_dim))

    def value(self, batch: Batch) -> Tensor:
        if batch.ref is not None:
            raise ValueError("PotentialFieldLoss: ref does not apply, this loss compares with its own class proxies")
        check_width("PotentialFieldLoss", batch.x, self.proxies.shape[1])
        y = batch.class_numbers("PotentialFieldLoss", self.num_classes)
        # samples and proxies are charges alike, and each is also an anchor
        points = torch.cat([batch.x, self.proxies.to(batch.x.dtype)])
        of_proxies = torch.arange(len(self.proxies), device=y.device) % self.num_classes  # one of each class in turn
        labels = torch.cat([y, of_proxies])
        comparison = Comparison(
            x=points,
            y=labels,
            ref=points,
            ref_y=labels,
            anchors=slice(0, len(points)),
            is_self=True,
            distance="euclidean",
            normalize=True,
        )
        energy, pairs, _ = sum_over_anchors(self.rows, comparison, block=self.block)
        if self.reduction == "sum":
            return energy
        return energy / pairs.clamp_min(1)

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return the energy of each point of the block, and the number of the others that act on it."""
        return potential_field(rows, self.alpha, self.delta), count(rows.pos) + count(rows.neg)
