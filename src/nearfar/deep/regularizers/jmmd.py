"""Joint maximum mean discrepancy between classes, an alternative to JRS (Chu et al., 2020).

    L = -sum_{I != J} w_IJ ||C_I - C_J||        ||C_I - C_J||^2 = <C_I, C_I> + <C_J, C_J> - 2 <C_I, C_J>
    <C_I, C_J> = 1/(n_I n_J) sum_{i in I, j in J} K_ij        w_IJ = n_I n_J / N

K: the joint kernel of JRS; N: number of different-class pairs. Self pairs are part of <C_I, C_I>.
"""

from __future__ import annotations

from torch import Tensor

from ..pairwise.comparison import safe_sqrt
from ..wholebatch.kernel_embeddings import ClassSums, NormTerm


def jmmd(sums: ClassSums, squared: bool) -> Tensor:
    """Return minus the mean distance of the classes' joint mean embeddings."""
    similarities = sums.similarities()
    own = similarities.diagonal()
    # |C_I - C_J|^2, (C, C); rounding can leave it just below 0
    gap = (own[:, None] + own - 2 * similarities).clamp_min(0)
    return -(sums.weights() * (gap if squared else safe_sqrt(gap))).sum()


class JMMD(NormTerm):
    """Negative mean distance between the joint distributions of classes.

    Parameters
    ----------
    layers, kernel, kernels, class_kernels, degree, multiplier, bandwidths, raw
        As in ``JRS``.
    squared : bool
        Whether to take squared norms; the paper does not.

    Notes
    -----
    The paper gives it a weight of 0.1. Classes that coincide have the distance 0 with zero gradient.
    """

    def of(self, sums: ClassSums) -> Tensor:
        return jmmd(sums, self.squared)
