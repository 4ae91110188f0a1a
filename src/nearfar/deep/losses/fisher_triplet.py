"""Fisher discriminant triplet loss, FDT (Ghojogh et al., 2020).

    L = [ (2 - lambda) tr(U' S_W U) - lambda tr(U' S_B U) + m ]_+
    S_W = sum_t (h_a - h_p)(h_a - h_p)' + e I        S_B = sum_t (h_a - h_n)(h_a - h_n)' + e I

t: triplets (a, p, n); h: features before the last linear layer U. Since U'h is the embedding z up to the bias of the
layer, tr(U' S_W U) is sum_t ||z_a - z_p||^2 + e ||U||^2: one hinge for the whole batch, and no matrix of the size of
the features.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..pairwise.comparison import Rows, count
from ..pairwise.hinges import positives
from ..pairwise.reductions import pair_sums
from ..wholebatch.fisher_hinge import FisherHinge, FisherScatters


def triplet_scatter(rows: Rows, lam: float) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum over its triplets of (2 - lambda) d_ap - lambda d_an and the number of triplets."""
    if rows.triplets is not None:
        p, n, keep = rows.triplets
        gap = (2 - lam) * rows.d.gather(1, p) - lam * rows.d.gather(1, n)
        return torch.where(keep, gap, 0.0).sum(1), count(keep)
    columns, keep = positives(rows)
    # every positive is in a triplet with every negative: sum_p sum_n f(p, n) from the two sums over pairs
    near, far = pair_sums(rows.d, columns, keep, rows.neg)
    n_near = count(rows.pos)
    n_far = count(rows.neg)
    return (2 - lam) * near * n_far - lam * far * n_near, n_near * n_far


def fisher_triplet(value: Tensor, number: Tensor, scatters: FisherScatters, constant: Tensor, mean: bool) -> Tensor:
    """Return the part of each anchor; `constant`, the margin and the ridge, is shared out over the triplets."""
    each = constant if mean else constant / scatters.number.clamp_min(1)
    return scatters.active * (value + each * number)


class FisherTripletLoss(FisherHinge):
    """One hinge between the within-class and the between-class scatter of the triplets of a batch.

    Parameters
    ----------
    margin : float
        Margin m between the scatters.
    lam : float
        Weight lambda of the between-class scatter, in [0, 2]. The derivation needs (0, 1); up to 2, neither scatter
        changes its sign.
    layer : nn.Linear or "embedding", optional
        Last layer of the network, whose weight is U; "embedding" is that of a training run. The term does not
        own the layer. By default, there is no ridge.
    ridge : float
        Ridge e that is added to the diagonal of both scatter matrices.
    normalize : bool
        Whether to scale the embeddings to unit length first; the paper does not.
    miner : callable, optional
        Miner that selects the triplets that count, such as ``BatchHard()``. By default, all triplets of the batch
        count.
    reduction : {"sum", "mean"}
        "sum" adds up the triplets, as in the published code, so that the right margin and lambda depend on the batch
        size; "mean" averages over them.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If `lam` is outside [0, 2].

    Notes
    -----
    The loss is 0, with zero gradient, for a batch without triplets and for one whose hinge is inactive. The survey of
    Ghojogh et al. (2022) calls the scatters covariances, and a line of its derivation prints S_W - S_W where S_W - S_B
    is meant.
    """

    def constant(self, like: Tensor) -> Tensor:
        """Return m + (2 - 2 lambda) e ||U||^2."""
        return self.margin + (2 - 2 * self.lam) * self.ridge * self.square_norm(like)

    def sums(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return triplet_scatter(rows, self.lam)

    def conclude(self, total: Tensor, number: Tensor) -> FisherScatters:
        value = total / number.clamp_min(1) if self.reduction == "mean" else total
        return FisherScatters(number, (value + self.constant(value).detach() > 0).to(value.dtype))

    def finish(self, rows: Rows, sums: tuple[Tensor, Tensor], scatters: FisherScatters) -> tuple[Tensor, Tensor]:
        constant = self.constant(rows.d)
        mean = self.reduction == "mean"
        return fisher_triplet(*sums, scatters, constant, mean), sums[1]
