"""Minkowski distance (Minkowski, 1910), for losses that take a function as their distance.

d(x, y) = (sum_k |x_k - y_k|^p)^(power / p)        for p = "inf":  (max_k |x_k - y_k|)^power
"""

from __future__ import annotations

from numbers import Real

import torch
from torch import Tensor

from ...settings import Checked
from ..pairwise.comparison import prepared_rows
from ..unit_vectors import LEAST_NORM


class LpDistance(Checked):
    """Distance in the p-norm, raised to a power: p = 1 is the Manhattan, p = 2 the Euclidean distance.

    Parameters
    ----------
    p : float or "inf"
        Order of the norm, at least 1. "inf" takes the largest difference of two entries.
    power : float
        Exponent of the norm, at least 1.
    normalize : bool
        Whether to scale the vectors to length 1 in the p-norm first. (``normalize=True`` of a loss does so in the
        Euclidean norm.)

    Raises
    ------
    ValueError
        If `p` or `power` is below 1.

    Notes
    -----
    The gradient of two points that coincide is 0. For p other than 2, the computation is not a matrix product: its time
    is proportional to the number of entries of all pairs, and its gradient cannot be differentiated again.

    Examples
    --------
    >>> LpDistance(1)(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0], [1.0, 0.0]]))
    tensor([[7., 1.]])
    >>> from nearfar import TripletLoss
    >>> loss = TripletLoss(margin=0.5, distance=LpDistance(1), normalize=False)
    """

    def __init__(self, p: float | str = 2.0, *, power: float = 1.0, normalize: bool = False) -> None:
        number = isinstance(p, Real) and not isinstance(p, bool)
        if p != "inf" and (not number or not float(p) >= 1):
            raise ValueError(f"LpDistance: p must be a number of at least 1 or 'inf', got {p!r}")
        if power < 1:
            raise ValueError(f"LpDistance: power must be at least 1, got {power}")
        self.p = p
        self.power = power
        self.normalize = normalize
        self.order = float(p)

    def __call__(self, x: Tensor, ref: Tensor) -> Tensor:
        """Return the (b, m) distances of the rows of x (b, d) to the rows of ref (m, d)."""
        if self.normalize:
            x = self._scaled(x)
            ref = self._scaled(ref)
        if self.order == 2 and self.power == 2:
            return prepared_rows(x, ref, "sq_euclidean")
        d = prepared_rows(x, ref, "euclidean") if self.order == 2 else torch.cdist(x, ref, p=self.order)
        return d if self.power == 1 else d**self.power

    def _scaled(self, x: Tensor) -> Tensor:
        return x / torch.linalg.vector_norm(x, ord=self.order, dim=1, keepdim=True).clamp_min(LEAST_NORM)

    def __repr__(self) -> str:
        return f"LpDistance(p={self.p!r}, power={self.power}, normalize={self.normalize})"
