"""Spherical embedding constraint, SEC (Zhang et al., 2020).

L = 1/B sum_i (|x_i| - m)^2,    m = 1/B sum_i |x_i|
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..objective.batch import Batch
from ..objective.terms import SetTerm


def spherical_constraint(x: Tensor) -> Tensor:
    """Return the variance of the norms of the rows of x."""
    squares = x.square().sum(1)
    live = squares > 0  # the root has no derivative at 0
    norms = torch.where(live, squares, 1.0).sqrt().where(live, 0.0)
    return (norms - norms.mean()).square().mean()


class SphericalConstraint(SetTerm):
    """Variance of the norms of the embeddings, to be minimized, so that all are on one sphere.

    A loss that scales embeddings to unit length changes directions in steps that are shorter for longer embeddings.
    With equal norms, the steps of all embeddings are alike.

    Notes
    -----
    The mean norm has a gradient here. The paper replaces it by a running mean in one variant. Labels are not used.

    Examples
    --------
    >>> from nearfar import MultiSimilarityLoss
    >>> objective = MultiSimilarityLoss() + 0.5 * SphericalConstraint()
    """

    def value(self, batch: Batch) -> Tensor:
        return spherical_constraint(batch.x)
