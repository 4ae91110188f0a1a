"""Norms of class centers, the Lp regularizer of PyTorch Metric Learning (Musgrave, Belongie & Lim, 2020).

    L = mean_c |w_c|_p^power

w_c: the center of class c, as it is, not scaled.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..wholebatch.center_terms import CenterTerm, mean_of_real


class CenterNorms(CenterTerm):
    """Mean p-norm of class centers, to a power.

    It acts on the proxies of a loss in the same objective; without one, on the means of the classes of the batch.

    Parameters
    ----------
    p : float
        At least 1.
    power : float
        At least 1.

    Raises
    ------
    ValueError
        If p or the power is below 1.

    Notes
    -----
    A center of 0 has the gradient 0. Losses that scale their proxies to unit length feel it only as a decay of their
    lengths.

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
