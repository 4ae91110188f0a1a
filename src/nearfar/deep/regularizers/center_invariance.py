"""Center invariance (Wu, Liu, Li & Fu, 2017).

    L = mean_c (|w_c|^2 - mean_k |w_k|^2)^2 / 4

w_c: center of class c, without scaling.
"""

from __future__ import annotations

from torch import Tensor

from ..wholebatch.center_terms import CenterTerm, mean_of_real


class CenterInvariance(CenterTerm):
    """Deviation of the squared lengths of class centers from their mean.

    It gives rare classes centers that are as long as those of the others. The term acts on the proxies of another loss
    in the same objective or, if there is none, on the class means of the batch.

    Notes
    -----
    The term has no effect on losses that scale their proxies to unit length. It is made for losses that use the
    lengths, such as classification heads.

    Examples
    --------
    >>> from nearfar import CrossEntropyHead
    >>> objective = CrossEntropyHead(10, 16) + 0.1 * CenterInvariance()
    """

    def penalty(self, centers: Tensor, real: Tensor) -> Tensor:
        squares = centers.square().sum(2)
        deviations = squares - mean_of_real(squares, real)
        return mean_of_real(deviations.square() / 4, real)
