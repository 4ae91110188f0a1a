"""The spectrum of an embedding: the eigenvalues of its covariance, which show how many directions it uses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues (d,) of the covariance, largest first."""

    eigenvalues: NDArray[np.float64]

    @property
    def trace(self) -> float:
        """Total variance, the diversity measure of the confusion objectives."""
        return float(self.eigenvalues.sum())

    @property
    def shares(self) -> NDArray[np.float64]:
        """Fraction of the variance in each direction; zeros if there is no variance."""
        if self.trace > 0:
            return self.eigenvalues / self.trace
        return np.zeros_like(self.eigenvalues)

    @property
    def effective_dimension(self) -> float:
        """Participation ratio (sum of eigenvalues)^2 / (sum of squares): d if all are equal, 1 if only one is not 0."""
        squares = float((self.shares**2).sum())
        return 1 / squares if squares > 0 else 0.0

    def directions_holding(self, share: float) -> int:
        """Return the smallest number of directions that hold this fraction of the variance; 0 without variance."""
        if self.trace > 0:
            return int(np.searchsorted(np.cumsum(self.shares), share - 1e-12) + 1)
        return 0


def spectrum(embeddings: NDArray[np.float64]) -> Spectrum:
    """Decompose the covariance (divided by n) of embeddings (n, d)."""
    x = np.asarray(embeddings, dtype=np.float64)
    centered = x - x.mean(axis=0)
    covariance = centered.T @ centered / len(x)
    return Spectrum(np.clip(np.linalg.eigvalsh(covariance)[::-1], 0, None))
