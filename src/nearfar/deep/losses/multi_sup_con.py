"""Supervised contrastive loss for label sets, MultiSupCon (Zaigrajew & Zieba, 2022).

    L = mean_i -1/|N(i)| sum_{p in N(i)} g_ip log( e^{s_ip / T} / sum_{k != i} e^{s_ik / T} )
    N(i) = {p != i: g_ip >= c},    g_ip = |Y_i and Y_p| / |Y_i or Y_p|

Y_i: labels of sample i; g: Jaccard index, 0 or 1 for classes; c: threshold; k: all samples with labels; s: cosine.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import distributed
from ..autograd import recomputed
from ..objective.batch import Batch
from ..objective.relations import LabelSets
from ..pairwise.comparison import Rows, spans
from ..pairwise.row_loss import RowLoss

JACCARD_SLACK = 1e-6
"""By how much a Jaccard index may be below the threshold: 1/3 as a float need not be 1 divided by 3."""


def multi_sup_con(logits: Tensor, similarity: Tensor, known: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Return the (b,) losses of the anchors, 0 without a positive, and which of them have one.

    `logits` are s / T, (b, m), `similarity` g, and `known` the pairs of two samples with labels, without the anchor.
    """
    near = known & (similarity >= threshold - JACCARD_SLACK)
    number = near.sum(1)
    total = torch.where(known, logits, -torch.inf).logsumexp(1, keepdim=True)
    log_shares = torch.where(near, logits - total, 0.0)  # without a pair, the total is -inf
    return -(similarity * log_shares).sum(1) / number.clamp_min(1), number > 0


class MultiSupConLoss(RowLoss):
    """Supervised contrastive loss of label sets, in which a positive counts by the share of labels in common.

    Parameters
    ----------
    temperature : float
        Temperature T that divides the cosines, positive.
    threshold : float
        Smallest Jaccard index c of the label sets of two similar samples, in [0, 1]. With 0, all are similar.
    miner : callable, optional
        Miner that selects the positives and negatives that count, for classes only.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If the threshold is outside [0, 1], or there is a miner and the labels are sets.

    Notes
    -----
    With one class per sample, or a relation matrix, g is 0 or 1, and this is `SupConLoss` if the threshold is above 0.
    `LabelSets.overlap` is not read. A sample without a label is of unknown class and does not count.

    Examples
    --------
    >>> from nearfar.deep.objective.relations import LabelSets
    >>> labels = LabelSets.of([[0, 1], [0], [1], [0, 1]])
    >>> MultiSupConLoss(threshold=0.5)(torch.eye(4), labels).shape
    torch.Size([])
    """

    def __init__(
        self, temperature: float = 0.1, threshold: float = 0.5, *, miner: Any = None, block: int | None = None
    ) -> None:
        super().__init__(distance="cosine", normalize=True, miner=miner, block=block)
        if not 0 <= threshold <= 1:
            raise ValueError(f"MultiSupConLoss: threshold must be in [0, 1], got {threshold}")
        self.temperature = temperature
        self.threshold = threshold

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        similarity = rows.pos.to(rows.d.dtype)
        return multi_sup_con((1 - rows.d) / self.temperature, similarity, rows.pos | rows.neg, self.threshold)

    def compare(self, batch: Batch) -> Tensor:
        if not isinstance(batch.y, LabelSets):
            return super().compare(batch)
        losses, counts = self._of_sets(batch)
        return losses.sum() / distributed.total(counts.sum().to(losses.dtype)).clamp_min(1)

    def compare_samples(self, batch: Batch) -> Tensor:
        if not isinstance(batch.y, LabelSets):
            return super().compare_samples(batch)
        losses, counts = self._of_sets(batch)
        return losses * (len(batch.x) / distributed.total(counts.sum().to(losses.dtype)).clamp_min(1))

    def _of_sets(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the losses of the anchors of this process, and which of them have a positive, (n,) each."""
        if self.miner is not None:
            raise ValueError("MultiSupConLoss: miner: a miner does not know degrees of similarity; leave it out")
        c = self.comparison(batch).prepared()
        assert isinstance(batch.y, LabelSets)
        ref_y = self.reference(batch)[1]
        assert isinstance(ref_y, LabelSets)
        hot = batch.y.hot.to(c.x.dtype)
        ref_hot = ref_y.hot.to(c.x.dtype)

        def one(x: Tensor, ref: Tensor, lo: int, hi: int) -> tuple[Tensor, Tensor]:
            shared = hot[lo:hi] @ ref_hot.T  # (b, m)
            sizes = hot[lo:hi].sum(1)[:, None]
            ref_sizes = ref_hot.sum(1)
            known = (sizes > 0) & (ref_sizes > 0)
            if c.is_self:
                known.diagonal(lo).fill_(False)
            similarity = shared / (sizes + ref_sizes - shared).clamp_min(1)
            cosines = 1 - x[lo:hi] if c.given else x[lo:hi] @ ref.T
            return multi_sup_con(cosines / self.temperature, similarity, known, self.threshold)

        blocks = spans(c.anchors, len(c.ref), self.block, c.x.device)
        parts = [recomputed(one, c.x, c.ref, lo, hi) for lo, hi in blocks]
        none = c.x[:0, 0]
        return torch.cat([none, *(loss for loss, _ in parts)]), torch.cat([none > 0, *(has for _, has in parts)])
