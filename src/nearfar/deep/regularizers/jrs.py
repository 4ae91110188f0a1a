"""Joint representation similarity, the regularizer of JRD (Chu et al., 2020).

    L = 1/N sum_{I != J} sum_{i in I, j in J} prod_l k_l(x_i^l, x_j^l)        N: number of different-class pairs
    k(x, x') = 1/K sum_k exp(-||x - x'||^2 / (tau 2^(k - floor(K/2))))        tau: mean squared distance in the batch

Layers l: pooled features, embedding, class scores. Minimizing it drives the joint distributions of classes apart.
"""

from __future__ import annotations

from torch import Tensor

from ..wholebatch.kernel_embeddings import ClassSums, JointTerm


def jrs(sums: ClassSums) -> Tensor:
    """Return the mean of the joint kernel over the pairs of samples of different classes; 0 without such a pair."""
    return (sums.weights() * sums.similarities()).sum()


class JRS(JointTerm):
    """Mean joint kernel between samples of different classes, over several layers of the network.

    Parameters
    ----------
    layers : sequence of str
        Some of "pooled" (needs ``pooled=``), "embedding" (on unit vectors) and "class" (the cosines to the proxies of
        a loss in the same objective). ("embedding",) is the paper's MRD, ("pooled", "embedding") its JRD-C,
        ("embedding", "class") its JRD-Pooling. "trunk.layer3" and the like are modules of the trunk, whose maps are
        averaged over space: a training run gives them, elsewhere call ``watch(trunk)`` first.
    kernel : str or sequence of str
        "gaussian", "laplace" (bandwidth: mean L1 distance; the paper does not state its own), "polynomial"
        (x.x' + 1)^degree, "exponential" exp(x.x'), "linear" x.x'. The last three act on unit vectors in every layer,
        unless `raw`. One for all layers, or one of each.
    kernels : int or sequence of int
        Number of mixed bandwidths, K in the paper: one for all layers but "class", or one of each layer.
    class_kernels : int
        Number of bandwidths of the class layer, K' in the paper, where `kernels` is one number.
    degree : int
        Degree of the polynomial kernel (2 and 5 in the paper).
    multiplier : float or sequence of float
        Each bandwidth is so many times the one before; 2 in the paper. One for all layers, or one of each.
    bandwidths : sequence of float, or of such sequences, optional
        The bandwidths themselves, as multiples of tau, instead of `kernels` and `multiplier`: one set for all layers,
        or one of each.
    raw : bool
        Let the last three kernels act on the features as they are. Their powers and exponentials may overflow.

    Notes
    -----
    The paper weighs it 1 (CUB-200-2011, Cars-196) or 0.4 (Stanford Online Products), and 0.001 with the polynomial and
    exponential kernels. Samples of unknown class are left out. The paper's Proposition 1 factorizes the statistic over
    layers, which holds for independent layers only; what holds in general is the inner product of the joint
    characteristic functions under the kernel's spectral measure.
    """

    def of(self, sums: ClassSums) -> Tensor:
        return jrs(sums)
