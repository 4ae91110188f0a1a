"""Joint representation similarity, the regularizer of JRD (Chu et al., 2020).

    L = 1/N sum_{I != J} sum_{i in I, j in J} prod_l k_l(x_i^l, x_j^l)        N: number of different-class pairs
    k(x, x') = 1/K sum_k exp(-||x - x'||^2 / (tau 2^(k - floor(K/2))))        tau: mean squared distance in the batch

The layers l are pooled features, embedding and class scores. Minimizing the term drives the joint distributions of
classes apart.
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
        Layers of the joint kernel:

        - "pooled": the pooled features, which needs ``pooled=``;
        - "embedding": the embeddings, scaled to unit length;
        - "class": the cosines to the proxies of another loss in the same objective;
        - a module of the trunk, such as "trunk.layer3", whose maps are averaged over space. A training run provides its
          output; elsewhere, call ``watch(trunk)`` first.

        ("embedding",) is MRD in the paper, ("pooled", "embedding") is JRD-C, and ("embedding", "class") is JRD-Pooling.
    kernel : str or sequence of str
        Kernel of all layers, or of each:

        - "gaussian", with the mean squared distance as the bandwidth;
        - "laplace", with the mean L1 distance as the bandwidth (the paper does not state its own);
        - "polynomial": (x.x' + 1)^degree;
        - "exponential": exp(x.x');
        - "linear": x.x'.

        The last three act on unit vectors in every layer, unless `raw` is True.
    kernels : int or sequence of int
        Number K of bandwidths that are mixed: one number for all layers but "class", or one for each layer.
    class_kernels : int
        Number K' of bandwidths of the layer "class", if `kernels` is one number.
    degree : int
        Degree of the polynomial kernel; 2 and 5 in the paper.
    multiplier : float or sequence of float
        Ratio of each bandwidth to the one before; 2 in the paper. One number for all layers, or one for each.
    bandwidths : sequence of float, or of such sequences, optional
        Bandwidths as multiples of tau, which replace `kernels` and `multiplier`: one set for all layers, or one for
        each.
    raw : bool
        Whether the last three kernels act on the features without scaling. Their powers and exponentials may overflow.

    Notes
    -----
    The paper gives it a weight of 1 (CUB-200-2011, Cars-196) or 0.4 (Stanford Online Products), and of 0.001 with the
    polynomial and exponential kernels. Samples of unknown class are left out.

    Proposition 1 of the paper factorizes the statistic over the layers, which holds for independent layers only. What
    holds in general is the inner product of the joint characteristic functions under the spectral measure of the
    kernel.
    """

    def of(self, sums: ClassSums) -> Tensor:
        return jrs(sums)
