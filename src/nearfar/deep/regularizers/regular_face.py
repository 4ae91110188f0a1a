"""RegularFace (Zhao, Xu & Cheng, 2019).

    L = mean_c max_{k != c} cos(w_c, w_k)

w_c: center of class c. If classes have several centers, the mean is over all centers, each with the nearest center of
another class.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..pairwise.comparison import spans
from ..unit_vectors import unit
from ..wholebatch.center_terms import CenterTerm, mean_of_real


@torch.no_grad()
def nearest_others(w: Tensor, of_class: Tensor, real: Tensor) -> Tensor:
    """Return for each of the unit centers w (m, d) the number of the nearest real one of another class, (m,)."""
    parts = []
    for lo, hi in spans(slice(0, len(w)), len(w), None, w.device):
        s = w[lo:hi] @ w.T  # (b, m)
        other = (of_class[lo:hi, None] != of_class) & real
        parts.append(torch.where(other, s, -torch.inf).argmax(1))
    return torch.cat(parts) if parts else of_class


class RegularFace(CenterTerm):
    """Mean cosine of each class center to the nearest other center, which pushes classes apart.

    The term acts on the proxies of another loss in the same objective or, if there is none, on the class means of the
    batch.

    Notes
    -----
    The matrix of the cosines of all centers is never held: memory is that of a block of its rows. With a single class,
    the value is 0.

    Examples
    --------
    >>> from nearfar import ArcFaceLoss
    >>> objective = ArcFaceLoss(10, 16) + 1.0 * RegularFace()
    """

    def penalty(self, centers: Tensor, real: Tensor) -> Tensor:
        K, C, _ = centers.shape
        w = unit(centers.flatten(0, 1))
        of_class = torch.arange(C, device=w.device).repeat(K)
        rows = real.repeat(K)
        # the maximum has the gradient of the entry that attains it, so the search needs none
        nearest = nearest_others(w.detach(), of_class, rows)
        cosines = (w * w[nearest]).sum(1).view(K, C)
        return mean_of_real(cosines, real & (real.sum() > 1))
