"""Fisher discriminant contrastive loss, FDC (Ghojogh et al., 2020).

    L = (2 - lambda) tr(U' S_W U) + [ m - lambda tr(U' S_B U) ]_+
    S_W = sum over similar pairs (h_i - h_j)(h_i - h_j)' + e I        S_B the same over dissimilar pairs

h: features before the last linear layer U. Since U'h is the embedding z up to the bias of the layer, tr(U' S_W U) is
sum ||z_i - z_j||^2 + e ||U||^2: sums of squared distances, and one hinge for the whole batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..pairwise.comparison import Rows, count
from ..pairwise.hinges import positives
from ..pairwise.reductions import pair_sums
from ..wholebatch.fisher_hinge import FisherHinge, FisherScatters


def pair_scatter(rows: Rows) -> tuple[Tensor, Tensor]:
    """Return per anchor the (b, 2) sums of squared distances to similar and dissimilar samples, and their numbers."""
    columns, keep = positives(rows)
    near, far = pair_sums(rows.d, columns, keep, rows.neg)
    return torch.stack([near, far], 1), torch.stack([count(rows.pos), count(rows.neg)], 1)


def fisher_contrastive(
    sums: Tensor, numbers: Tensor, scatters: FisherScatters, lam: float, constants: Tensor, mean: bool
) -> tuple[Tensor, Tensor]:
    """Return each anchor's attraction, repulsion and share of the constants, (b, 3), and their (b, 3) numbers.

    constants: (2,), the parts of the attraction and of the hinge that are not distances.
    """
    pairs = numbers.sum(1, keepdim=True)
    weights = torch.stack([2 - lam + 0 * scatters.active, -lam * scatters.active])
    constant = constants[0] + scatters.active * constants[1]
    each = constant if mean else constant / scatters.number.clamp_min(1)
    return torch.cat([weights * sums, each * pairs], 1), torch.cat([numbers, pairs], 1)


class FisherContrastiveLoss(FisherHinge):
    """Within-class scatter of the similar pairs, and one hinge on the between-class scatter of the dissimilar pairs.

    Parameters
    ----------
    margin : float
        Margin m on the between-class scatter.
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
        Miner that selects the pairs that count, such as ``PairMargins()``. By default, all pairs of the batch count.
    reduction : {"sum", "mean"}
        "sum" adds up the ordered pairs, so that the right margin and lambda depend on the batch size; "mean" averages
        over each kind of pair.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If `lam` is outside [0, 2].

    Notes
    -----
    For a batch without dissimilar pairs, the hinge is m; for one without any pair, the loss is 0. The published code
    computes S_W from a random half of the batch and S_B from the other half, drawn once regardless of the labels; here,
    the labels decide.
    """

    def constants(self, like: Tensor) -> Tensor:
        """Return ((2 - lambda) e ||U||^2, m - lambda e ||U||^2)."""
        norm = self.square_norm(like)
        return torch.stack([(2 - self.lam) * self.ridge * norm, self.margin - self.lam * self.ridge * norm])

    def sums(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return pair_scatter(rows)

    def conclude(self, total: Tensor, number: Tensor) -> FisherScatters:
        total = total.expand(2)  # an empty batch sums to a number
        far = (total / number.clamp_min(1) if self.reduction == "mean" else total)[1]
        hinge = self.constants(total).detach()[1] - self.lam * far
        return FisherScatters(number.sum(), (hinge > 0).to(total.dtype))

    def finish(self, rows: Rows, sums: tuple[Tensor, Tensor], scatters: FisherScatters) -> tuple[Tensor, Tensor]:
        return fisher_contrastive(*sums, scatters, self.lam, self.constants(rows.d), self.reduction == "mean")
