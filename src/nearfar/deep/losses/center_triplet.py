"""Hard mining centre-triplet loss (Lv, Zhao & Chen, 2019).

    L = sum_c [ max_{i: y_i = c} d(mu_c, z_i) - min_{j: y_j != c} d(mu_c, z_j) + m ]_+

mu_c: mean embedding of class c in the batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..batch import Batch
from ..directions import unit
from ..rows import DISTANCES, dissimilarity
from ..terms import SetTerm

NEGATIVES = ("points", "centers")
REDUCTIONS = ("sum", "mean")


def center_triplet(
    z: Tensor, y: Tensor, margin: float, distance: str, negatives: str, detach_centers: bool, min_per_class: int
) -> tuple[Tensor, Tensor]:
    """Return the (C,) hinge of each class, and which classes count; y is 0..C-1."""
    counts = torch.bincount(y)
    centers = torch.zeros(len(counts), z.shape[1], dtype=z.dtype, device=z.device).index_add(0, y, z)
    centers = centers / counts[:, None]
    centers = centers.detach() if detach_centers else centers
    classes = torch.arange(len(counts), device=y.device)
    d = dissimilarity(centers, z, distance)  # (C, n)
    own = classes[:, None] == y
    far = torch.where(own, d, -torch.inf).amax(1)
    rivals, other = (
        (d, ~own) if negatives == "points" else (dissimilarity(centers, centers, distance), _others(classes))
    )
    near = torch.where(other, rivals, torch.inf).amin(1)
    valid = (counts >= min_per_class) & other.any(1)
    return torch.where(valid, far - torch.where(valid, near, 0.0) + margin, 0.0).clamp_min(0), valid


def _others(classes: Tensor) -> Tensor:
    return classes[:, None] != classes


class CenterTripletLoss(SetTerm):
    """For every class, its farthest member against the nearest stranger, both seen from the class mean.

    Parameters
    ----------
    margin : float
        m.
    distance : str
        "sq_euclidean", "euclidean", "cosine", "dot".
    normalize : bool
        Scale embeddings to unit length first.
    negatives : str
        Strangers are "points" (the survey's) or class "centers".
    detach_centers : bool
        Take the means as constants.
    min_per_class : int
        Classes with fewer samples are strangers only; the mean of a lone sample is the sample.
    reduction : str
        "sum" over classes (the formula) or their "mean".

    Notes
    -----
    The survey's anchor is the network's output for the mean image of the class; a mean image is no sample, so here it
    is the mean embedding.
    """

    def __init__(
        self,
        margin: float = 0.3,
        *,
        distance: str = "sq_euclidean",
        normalize: bool = False,
        negatives: str = "points",
        detach_centers: bool = False,
        min_per_class: int = 2,
        reduction: str = "sum",
    ) -> None:
        super().__init__()
        settings = (
            ("distance", distance, DISTANCES),
            ("negatives", negatives, NEGATIVES),
            ("reduction", reduction, REDUCTIONS),
        )
        for name, value, known in settings:
            if value not in known:
                raise ValueError(f"CenterTripletLoss: {name} must be one of {', '.join(known)}, got {value!r}")
        self.margin, self.distance, self.normalize = margin, distance, normalize
        self.negatives, self.detach_centers = negatives, detach_centers
        self.min_per_class, self.reduction = min_per_class, reduction

    def value(self, batch: Batch) -> Tensor:
        if batch.ref is not None:
            raise ValueError("CenterTripletLoss: ref does not apply, anchors are the class means of the batch")
        batch = batch.known("CenterTripletLoss")
        if not len(batch.x):
            return batch.x.sum() * 0
        z = unit(batch.x) if self.normalize else batch.x
        y = torch.unique(batch.classes("CenterTripletLoss"), return_inverse=True)[1]
        how = (self.margin, self.distance, self.negatives, self.detach_centers, self.min_per_class)
        hinges, valid = center_triplet(z, y, *how)
        return hinges.sum() / valid.sum().clamp_min(1) if self.reduction == "mean" else hinges.sum()
