"""Hard mining center-triplet loss (Lv, Zhao & Chen, 2019).

    L = sum_c [ max_{i: y_i = c} d(mu_c, z_i) - min_{j: y_j != c} d(mu_c, z_j) + m ]_+

mu_c: mean embedding of class c in the batch, or the network's output for the mean input of the class.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...settings import check_options
from ..objective.batch import Batch
from ..objective.relations import UNKNOWN
from ..objective.terms import SetTerm
from ..pairwise.comparison import Distance, check_distance, dissimilarity
from ..unit_vectors import unit
from ..wholebatch.batch_classes import batch_classes, of_known_class

CENTERS = ("mean", "input_mean")
NEGATIVES = ("points", "centers")
REDUCTIONS = ("sum", "mean")


def center_triplet(
    z: Tensor,
    y: Tensor,
    centers: Tensor,
    classes: Tensor,
    *,
    margin: float,
    distance: Distance,
    negatives: str,
    min_per_class: int,
) -> tuple[Tensor, Tensor]:
    """Return the (C,) hinges of the (C, d) centers of `classes`, -1 if unknown, and which of them count."""
    d = dissimilarity(centers, z, distance)  # (C, n)
    own = classes[:, None] == y
    # the farthest member of each class, and below the nearest negative, (C,) each
    far = torch.where(own, d, -torch.inf).amax(1)
    if negatives == "points":
        rivals = d
        other = ~own & (y != UNKNOWN)
    else:
        rivals = dissimilarity(centers, centers, distance)
        other = (classes[:, None] != classes) & (classes != UNKNOWN)
    near = torch.where(other, rivals, torch.inf).amin(1)
    # a hinge needs members, and something of another class to compare with
    valid = (classes != UNKNOWN) & (own.sum(1) >= max(min_per_class, 1)) & other.any(1)
    # selected before they are subtracted: inf - inf of empty places would be NaN, also in the gradient
    gap = torch.where(valid, far, 0.0) - torch.where(valid, near, 0.0)
    return torch.where(valid, gap + margin, 0.0).clamp_min(0), valid


def class_means(z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the (C, d) mean embeddings of the classes of the batch, and these classes, -1 for an empty place."""
    classes = batch_classes(y)
    return classes.means(z), classes.labels


class CenterTripletLoss(SetTerm):
    """Compare, for every class mean, its farthest member with the nearest sample of another class.

    Parameters
    ----------
    margin : float
        Margin m between the distances of the farthest member and of the nearest negative, in the unit of the distance.
    distance : str or callable
        Dissimilarity of two embeddings: "sq_euclidean", "euclidean", "cosine" or "dot", or a callable that takes
        anchors of shape (b, d) and references of shape (m, d) and returns their dissimilarities of shape (b, m), such
        as ``LpDistance(1)``.
    normalize : bool
        Whether to scale the embeddings to unit length first.
    negatives : {"points", "centers"}
        Negatives of a class mean: "points", the samples of other classes, as in the survey of Ghojogh et al. (2022); or
        "centers", the means of other classes.
    center : {"mean", "input_mean"}
        Center of a class. "mean": the mean embedding of the class in the batch. "input_mean", as in the survey: the
        network's output for the mean input of the class, which is passed as ``ref=`` with its class in ``ref_labels=``.
    detach_centers : bool
        Whether to stop the gradient at the centers.
    min_per_class : int
        Minimum number of samples of a class. Smaller classes only provide negatives, since the mean of a single sample
        is the sample itself.
    reduction : {"sum", "mean"}
        Whether to take the "sum" over the classes, as in the formula, or their "mean".

    Notes
    -----
    In the survey, the anchor is the network's output for the mean image of the class. A mean image is not a realistic
    sample, so the default is the mean embedding.
    """

    def __init__(
        self,
        margin: float = 0.3,
        *,
        distance: Distance = "sq_euclidean",
        normalize: bool = False,
        negatives: str = "points",
        center: str = "mean",
        detach_centers: bool = False,
        min_per_class: int = 2,
        reduction: str = "sum",
    ) -> None:
        super().__init__()
        check_distance(self, distance)
        check_options(self, NEGATIVES, negatives=negatives)
        check_options(self, CENTERS, center=center)
        check_options(self, REDUCTIONS, reduction=reduction)
        self.margin = margin
        self.distance = distance
        self.normalize = normalize
        self.negatives = negatives
        self.center = center
        self.detach_centers = detach_centers
        self.min_per_class = min_per_class
        self.reduction = reduction

    def value(self, batch: Batch) -> Tensor:
        if self.center == "mean" and batch.ref is not None:
            raise ValueError("CenterTripletLoss: ref does not apply, anchors are the class means of the batch")
        if self.center == "input_mean" and batch.ref is None:
            given = "ref=, the embeddings of the mean inputs, which no training run gives"
            raise ValueError(f"CenterTripletLoss: center='input_mean' needs {given}")
        batch = of_known_class(batch, "CenterTripletLoss")
        if not len(batch.x):
            return batch.x.sum() * 0
        y = batch.classes("CenterTripletLoss")
        z = batch.x
        if self.normalize:
            z = unit(z)
        if batch.ref is None:
            centers, classes = class_means(z, y)
        else:
            centers, classes = self._given_centers(batch)
        if self.detach_centers:
            # the centers are targets: only samples move
            centers = centers.detach()
        hinges, valid = center_triplet(
            z,
            y,
            centers,
            classes,
            margin=self.margin,
            distance=self.distance,
            negatives=self.negatives,
            min_per_class=self.min_per_class,
        )
        if self.reduction == "mean":
            return hinges.sum() / valid.sum().clamp_min(1)
        return hinges.sum()

    def _given_centers(self, batch: Batch) -> tuple[Tensor, Tensor]:
        assert batch.ref is not None
        assert isinstance(batch.ref_y, Tensor)
        centers = batch.ref
        if self.normalize:
            centers = unit(centers)
        return centers, batch.ref_y
