"""Fisher discriminant contrastive loss, FDC (Ghojogh et al., 2020).

    L = (2 - lambda) tr(U' S_W U) + [ m - lambda tr(U' S_B U) ]_+
    S_W = sum over similar pairs (h_i - h_j)(h_i - h_j)' + e I        S_B the same over dissimilar pairs

h: features before the last linear layer U. As U'h is the embedding z up to the layer's bias, tr(U' S_W U) is
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
    sums: Tensor, numbers: Tensor, found: FisherScatters, lam: float, constants: Tensor, mean: bool
) -> tuple[Tensor, Tensor]:
    """Return each anchor's attraction, repulsion and share of the constants, (b, 3), and their (b, 3) numbers.

    constants: (2,), what the traces add to the attraction and to the hinge besides distances.
    """
    pairs = numbers.sum(1, keepdim=True)
    weights = torch.stack([2 - lam + 0 * found.active, -lam * found.active])
    constant = constants[0] + found.active * constants[1]
    each = constant if mean else constant / found.number.clamp_min(1)
    return torch.cat([weights * sums, each * pairs], 1), torch.cat([numbers, pairs], 1)


class FisherContrastiveLoss(FisherHinge):
    """Within-class scatter of the similar pairs, and one hinge on the between-class scatter of the dissimilar ones.

    Parameters
    ----------
    margin : float
        m.
    lam : float
        lambda, in (0, 1) by the derivation; up to 2 neither scatter changes its sign.
    layer : nn.Linear or "embedding", optional
        The last layer, whose weight is U; "embedding" is that of a training run. Without it there is no ridge. The term
        does not own the layer.
    ridge : float
        e.
    normalize : bool
        Scale embeddings to unit length first; the paper does not.
    miner : callable, optional
        A miner that narrows the pairs.
    reduction : str
        "sum" over ordered pairs (margin and lambda then depend on the batch size), or "mean" over each kind of pair.
    block : int, optional
        Anchors at a time.

    Notes
    -----
    Without dissimilar pairs the hinge is m; without any pair the loss is 0. The published code takes a random half of
    the batch for S_W and the other half for S_B, drawn once without regard to the labels; here the labels decide.
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

    def finish(self, rows: Rows, sums: tuple[Tensor, Tensor], found: FisherScatters) -> tuple[Tensor, Tensor]:
        return fisher_contrastive(*sums, found, self.lam, self.constants(rows.d), self.reduction == "mean")
