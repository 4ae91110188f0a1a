"""Sparse centers, the regularizer of SoftTriple (Qian et al., 2019).

    L = 1 / (C K (K - 1)) sum_c sum_{j < k} sqrt(2 - 2 w_cj.w_ck + 1e-5)

w_cj: j-th of the K centers of class c, of unit length; C: number of classes.
"""

from __future__ import annotations

from torch import Tensor

from ..proxies.class_centers import spread
from ..wholebatch.center_terms import CenterTerm


class SparseCenters(CenterTerm):
    """Mean distance between the centers of a class, so that centers that are not needed merge.

    The term acts on another loss in the same objective that has several centers for each class, such as
    ``SubCenterArcFaceLoss``; ``SoftTripleLoss(tau=...)`` includes it. Classes with one center, such as the class means
    of a batch, contribute 0.

    Examples
    --------
    >>> from nearfar import SubCenterArcFaceLoss
    >>> objective = SubCenterArcFaceLoss(10, 16) + 0.1 * SparseCenters()
    """

    def penalty(self, centers: Tensor, real: Tensor) -> Tensor:
        K, C, _ = centers.shape
        if K < 2:
            return 0 * centers.sum()
        return spread(centers) / (C * K * (K - 1))
