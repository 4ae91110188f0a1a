"""LogEig, the matrix logarithm as a vector (Huang & Van Gool, 2017).

    Y = V diag(log max(lambda, eps)) V^T,    X = V diag(lambda) V^T
    vector: the diagonal of Y, then sqrt(2) times what is above it

Euclidean distances of the vectors are the log-Euclidean distances || log A - log B ||_F of the matrices, so that
every loss and every search on vectors works on positive definite matrices.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...settings import Checked
from .spd import spectral


def log_eig(X: Tensor, eps: float) -> Tensor:
    """Return the logarithms of (..., n, n) matrices, eigenvalues below eps raised to it."""
    return spectral(
        X,
        lambda values: values.clamp_min(eps).log(),
        lambda values: torch.where(values > eps, 1 / values.clamp_min(eps), 0.0),
    )


def upper_vector(Y: Tensor) -> Tensor:
    """Return (..., n, n) symmetric matrices as (..., n (n + 1) / 2) vectors of the same lengths and inner products."""
    n = Y.shape[-1]
    row, column = torch.triu_indices(n, n, offset=1, device=Y.device)
    return torch.cat([Y.diagonal(dim1=-2, dim2=-1), 2**0.5 * Y[..., row, column]], dim=-1)


class LogEig(Checked, nn.Module):
    """Matrix logarithm, flattened isometrically to a vector.

    Parameters
    ----------
    eps : float
        Smallest eigenvalue, above 0, to which smaller ones are raised first; a preceding `ReEig` already ensures it.
    vector : bool
        Whether to return vectors. Otherwise, matrices are returned.

    Raises
    ------
    ValueError
        If `eps` is not positive.

    Examples
    --------
    >>> LogEig()(torch.eye(3).expand(2, 3, 3)).shape
    torch.Size([2, 6])
    """

    def __init__(self, eps: float = 1e-6, *, vector: bool = True) -> None:
        super().__init__()
        if eps <= 0:
            raise ValueError(f"LogEig: eps must be above 0, got {eps}")
        self.eps = eps
        self.vector = vector

    def forward(self, X: Tensor) -> Tensor:
        """Map (..., n, n) matrices to (..., n (n + 1) / 2) vectors."""
        Y = log_eig(X, self.eps)
        return upper_vector(Y) if self.vector else Y

    def extra_repr(self) -> str:
        """Return the settings as text."""
        return f"eps={self.eps:g}, vector={self.vector}"
