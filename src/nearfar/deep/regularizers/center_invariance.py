"""Center invariance (Wu, Liu, Li & Fu, 2017).

    L = mean_c (|w_c|^2 - mean_k |w_k|^2)^2 / 4

w_c: the center of class c, as it is, not scaled.
"""

from __future__ import annotations

from torch import Tensor

from ..wholebatch.center_terms import CenterTerm, mean_of_real


class CenterInvariance(CenterTerm):
    """How far the squared lengths of class centers are from their mean: rare classes get centers as long as others.

    It acts on the proxies of a loss in the same objective; without one, on the means of the classes of the batch.

    Notes
    -----
    Losses that scale their proxies to unit length do not feel it: it is for those that read their lengths, as heads do.

    Examples
    --------
    >>> from nearfar import CrossEntropyHead
    >>> objective = CrossEntropyHead(10, 16) + 0.1 * CenterInvariance()
    """

    def penalty(self, centers: Tensor, real: Tensor) -> Tensor:
        squares = centers.square().sum(2)
        deviations = squares - mean_of_real(squares, real)
        return mean_of_real(deviations.square() / 4, real)
