"""ReEig, eigenvalue rectification (Huang & Van Gool, 2017).

    Y = V diag(max(lambda, eps)) V^T,    X = V diag(lambda) V^T

The counterpart of a ReLU for vectors: a non-linearity that keeps matrices positive definite. With eps = 0 it projects
onto the positive semi-definite matrices: the result is the nearest one in Frobenius norm.
"""

from __future__ import annotations

from torch import Tensor, nn

from ...settings import Checked
from .spd import spectral


def re_eig(X: Tensor, eps: float) -> Tensor:
    """Return (..., n, n) matrices with their eigenvalues raised to eps."""
    return spectral(X, lambda values: values.clamp_min(eps), lambda values: (values > eps).to(values.dtype))


class ReEig(Checked, nn.Module):
    """Raise all eigenvalues of a matrix to at least eps.

    Parameters
    ----------
    eps : float
        Smallest eigenvalue of the result, at least 0; the published code uses 1e-4.

    Raises
    ------
    ValueError
        If `eps` is negative.

    Notes
    -----
    Matrices are symmetrized first. The gradient is exact for repeated eigenvalues; the published code sets these
    entries to 0, which is not the gradient. If no eigenvalue is below `eps`, this is the identity in value and
    gradient.
    """

    def __init__(self, eps: float = 1e-4) -> None:
        super().__init__()
        if eps < 0:
            raise ValueError(f"ReEig: eps must be at least 0, got {eps}")
        self.eps = eps

    def forward(self, X: Tensor) -> Tensor:
        """Rectify (..., n, n) matrices."""
        return re_eig(X, self.eps)

    def extra_repr(self) -> str:
        """Return the setting as text."""
        return f"eps={self.eps:g}"
