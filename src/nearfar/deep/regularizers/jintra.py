"""Intra-class part of the joint discrepancy (Chu et al., 2020).

    L = -sum_{I != J} w_IJ (||C_I|| + ||C_J||)        ||C_I||^2 = 1/n_I^2 sum_{i, j in I} K_ij        w_IJ = n_I n_J / N

K: the joint kernel of JRS; N: number of different-class pairs. It is the part of JMMD that JRS lacks: with squared
norms, JMMD = JIntra + 2 JRS.
"""

from __future__ import annotations

from torch import Tensor

from ..pairwise.comparison import safe_sqrt
from ..wholebatch.kernel_embeddings import ClassSums, NormTerm


def jintra(sums: ClassSums, squared: bool) -> Tensor:
    """Return minus the mean norm of the classes' joint mean embeddings, over both classes of each pair."""
    # |C_I|^2, (C,)
    own = sums.similarities().diagonal()
    norms = own if squared else safe_sqrt(own)
    return -(sums.weights() * (norms[:, None] + norms)).sum()


class JIntra(NormTerm):
    """Negative mean norm of the joint distributions of classes, whose minimum makes each class compact.

    Parameters
    ----------
    layers, kernel, kernels, class_kernels, degree, multiplier, bandwidths, raw
        As in ``JRS``.
    squared : bool
        Whether to take squared norms; the paper does not.
    """

    def of(self, sums: ClassSums) -> Tensor:
        return jintra(sums, self.squared)
