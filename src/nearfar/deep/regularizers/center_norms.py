"""Norms of class centers, the Lp regularizer of PyTorch Metric Learning (Musgrave, Belongie & Lim, 2020).

    L = mean_c |w_c|_p^power

w_c: center of class c, without scaling.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..wholebatch.center_terms import CenterTerm, mean_of_real


class CenterNorms(CenterTerm):
    """Mean p-norm of class centers, raised to a power.

    The term acts on the proxies of another loss in the same objective or, if there is none, on the class means of the
    batch.

    Parameters
    ----------
    p : float
        Order of the norm, at least 1.
    power : float
        Exponent of the norm, at least 1.

    Raises
    ------
    ValueError
        If `p` or `power` is below 1.

    Notes
    -----
    The gradient at a center of 0 is 0. For losses that scale their proxies to unit length, the term only decays the
    lengths of the proxies.

    Examples
    --------
    >>> from nearfar import CrossEntropyHead
    >>> objective = CrossEntropyHead(10, 16) + 0.01 * CenterNorms(p=2, power=2)
    """

    def __init__(self, p: float = 2.0, power: float = 1.0) -> None:
        super().__init__()
        for name, number in (("p", p), ("power", power)):
            if number < 1:
                raise ValueError(f"CenterNorms: {name} must be at least 1, got {number}")
        self.p = p
        self.power = power

    def penalty(self, centers: Tensor, real: Tensor) -> Tensor:
        norms = torch.linalg.vector_norm(centers, ord=self.p, dim=2)
        return mean_of_real(norms if self.power == 1 else norms**self.power, real)
