"""VICReg, variance-invariance-covariance regularization (Bardes, Ponce & LeCun, 2022).

    L = lambda s(Z, Z') + mu [v(Z) + v(Z')] + nu [c(Z) + c(Z')]
    s = 1/|P| sum_{(i,j) in P} |z_i - z'_j|^2 / D
    v(Z) = 1/D sum_k [gamma - sqrt(var(z^k) + eps)]_+,     c(Z) = 1/D sum_{k != l} cov(z^k, z^l)^2

P: pairs of similar samples, in the paper two views of an image; z^k: k-th of the D dimensions; var, cov: over the n
samples, divided by n - 1. Nothing pushes dissimilar samples apart explicitly: v and c prevent the embeddings from
collapsing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..objective.batch import Batch
from ..objective.relations import UNKNOWN, is_classes
from ..pairwise.blockwise import Sums
from ..pairwise.comparison import Comparison, Rows, count, on_host
from ..pairwise.hinges import positives
from ..pairwise.row_loss import RowLoss


def vicreg(z: Tensor, gamma: float, eps: float) -> tuple[Tensor, Tensor]:
    """Return v and c of the rows of z (n, D)."""
    n, D = z.shape
    centered = z - z.mean(0)
    cov = centered.T @ centered / max(n - 1, 1)
    var = cov.diagonal()
    return (gamma - (var + eps).sqrt()).clamp_min(0).mean(), (cov - var.diag()).square().sum() / D


def invariance(rows: Rows) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum over its similar samples of the mean squared difference, and their number."""
    columns, keep = positives(rows)
    return torch.where(keep, rows.d.gather(1, columns), 0.0).sum(1) / rows.dim, count(keep)


def of_classes(c: Comparison) -> tuple[Tensor, Tensor]:
    """Return the sum of `invariance` over the anchors, and of the pairs, from sums over classes: no pair is formed.

    sum_ij |z_i - z'_j|^2 = n' sum_i |u_i|^2 + n sum_j |u'_j|^2 - 2 sum_i u_i . sum_j u'_j in a class of n and n' rows,
    where u are rows less any center: here the mean of the class, so that views that lie together keep their digits.
    """
    assert isinstance(c.y, Tensor)
    assert isinstance(c.ref_y, Tensor)
    x = c.x[c.anchors]
    y = c.y[c.anchors]
    ref = c.ref
    classes, of = torch.unique(torch.cat([y, c.ref_y]), return_inverse=True)
    known = (classes != UNKNOWN).to(x.dtype)
    mine = of[: len(x)]
    theirs = of[len(x) :]
    # n and n' of each class, (C,)
    size_x = torch.bincount(mine, minlength=len(classes))
    size_ref = torch.bincount(theirs, minlength=len(classes))

    def summed(z: Tensor, own: Tensor) -> Tensor:
        return z.new_zeros(len(classes), z.shape[1]).index_add(0, own, z)

    with torch.no_grad():
        centers = (summed(x, mine) + summed(ref, theirs)) / (size_x + size_ref)[:, None]
    u = x - centers[mine]
    v = ref - centers[theirs]
    n = known * size_x
    m = known * size_ref
    # n' sum_i |u_i|^2 + n sum_j |u'_j|^2 - 2 sum_i u_i . sum_j u'_j, summed over the classes
    apart = m[mine] @ u.square().sum(1) + n[theirs] @ v.square().sum(1)
    apart = apart - 2 * known @ (summed(u, mine) * summed(v, theirs)).sum(1)
    return apart / x.shape[1], n @ m - (y != UNKNOWN).sum() * c.is_self  # none is similar to itself


class VICRegLoss(RowLoss):
    """Keep similar samples together, spread out every dimension, and decorrelate the dimensions.

    Parameters
    ----------
    invariance, variance, covariance : float
        Weights lambda, mu and nu of the three terms.
    gamma : float
        Minimum standard deviation that every dimension should have.
    eps : float
        Number that is added to the variance under the root, positive.
    miner : callable, optional
        Miner that selects the pairs that count, such as ``PairMargins()``. By default, all pairs of the batch count.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If `eps` is not positive.

    Notes
    -----
    For two views a and b of images with the numbers n, call
    ``loss(a, n, ref=b, ref_labels=n)``: Z is the batch, and Z' is the reference. Without `ref`, both are the batch, and
    the pairs are those of samples of the same class. With several processes, the numbers of images must differ between
    them.

    Embeddings keep their lengths. Those of unknown class count in v and c, but form no pairs.

    The paper's formula does not divide s by D, whereas its algorithm and the published code do. The published code
    halves v, which corresponds to ``variance=12.5``.
    """

    reads_vectors = True

    def __init__(
        self,
        invariance: float = 25.0,
        variance: float = 25.0,
        covariance: float = 1.0,
        *,
        gamma: float = 1.0,
        eps: float = 1e-4,
        miner: Any = None,
        block: int | None = None,
    ) -> None:
        super().__init__(distance="sq_euclidean", normalize=False, miner=miner, block=block)
        if eps <= 0:
            raise ValueError(f"VICRegLoss: eps must be positive, got {eps}")
        self.invariance = invariance
        self.variance = variance
        self.covariance = covariance
        self.gamma = gamma
        self.eps = eps

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        apart, pairs = invariance(rows)
        return self.invariance * apart, pairs

    def summed(self, comparison: Comparison) -> Sums:
        c = comparison
        by_class = self.miner is None and c.ids is None and is_classes(c.y) and on_host(c.x)  # a device would wait
        if not by_class:
            return super().summed(c)
        apart, pairs = of_classes(c)
        statistics = None
        if self.collects_stats:  # which anchors are active only their rows tell
            with torch.no_grad():
                statistics = super().summed(c).statistics
        return Sums(self.invariance * apart, pairs, statistics)

    def penalty(self, batch: Batch) -> Tensor | None:
        views = [batch.x] if batch.ref is None else [batch.x, batch.ref]
        if not all(len(z) for z in views):
            return None
        found = batch.x.new_zeros(())
        for z in views:
            v, c = vicreg(z, self.gamma, self.eps)
            both = self.variance * v + self.covariance * c
            # v and c are summed over both views
            found = found + both * (2 / len(views))  # a single view is both Z and Z'
        return found
