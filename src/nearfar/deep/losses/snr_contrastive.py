"""Contrastive loss of signal-to-noise ratios (Yuan, Deng, Tang, Tang & Chen, 2019).

    L = mean_P [d_ij - m_p]_+ + mean_N [m_n - d_ij]_+ + lambda mean_i |sum_k x_ik|
    d_ij = var(x_i - x_j) / var(x_i)

P, N: ordered pairs of similar and of dissimilar samples; var: over the entries of a vector. The anchor is the signal,
and its difference to the other sample is the noise. d is not symmetric, and does not change with the scale of the
embeddings.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..objective.batch import Batch
from ..pairwise.comparison import Comparison, Rows, count
from ..pairwise.contextual import ContextualRowLoss
from ..pairwise.hinges import positives
from ..unit_vectors import LEAST_NORM, unit


class Signals(NamedTuple):
    """For every anchor, d var(x_i): the sum of the squared deviations of its entries from their mean, (n,)."""

    power: Tensor


def snr(rows: Rows, signals: Signals) -> tuple[Tensor, Tensor]:
    """Return the (b, m) ratios d_ij, and which anchors have a variance, (b, 1)."""
    power = signals.power[rows.first : rows.first + len(rows.d), None]
    has_power = power > LEAST_NORM**2
    # var(x_i - x_j) / var(x_i), where both d of the variances cancel
    return rows.d / torch.where(has_power, power, 1.0), has_power


def snr_contrastive(rows: Rows, signals: Signals, pos_margin: float, neg_margin: float) -> tuple[Tensor, Tensor]:
    """Return per anchor the sums of the hinges of both kinds of pairs, and the numbers of pairs, (b, 2) each."""
    d, has_power = snr(rows, signals)
    columns, keep = positives(rows)
    # a constant signal has the variance 0, and no ratio: its pairs do not count
    pos = keep & has_power
    neg = rows.neg & has_power
    pull = torch.where(pos, d.gather(1, columns) - pos_margin, 0.0).clamp_min(0)
    push = torch.where(neg, neg_margin - d, 0.0).clamp_min(0)
    return torch.stack([pull.sum(1), push.sum(1)], 1), torch.stack([count(pos), count(neg)], 1)


class SNRContrastiveLoss(ContextualRowLoss):
    """Contrastive loss of the signal-to-noise ratios of all ordered pairs.

    Parameters
    ----------
    pos_margin, neg_margin : float
        Margins m_p of the similar and m_n of the dissimilar pairs, in the unit of the ratio d.
    zero_mean : float
        Weight lambda of the penalty that keeps the mean of the entries of each embedding, before any scaling, near 0.
    normalize : bool
        Whether to scale the embeddings to unit length first; the paper does not.
    miner : callable, optional
        Miner that selects the pairs that count, where the sample with the smallest d is the nearest. By default, all
        pairs of the batch count.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Attributes
    ----------
    stats_ : dict of str to float
        Statistics as in `RowLoss`, except that "positive" and "negative" are means of the noise alone:
        ``|z_i - z_j|^2`` of the embeddings z, from each of which the mean of its entries is subtracted.

    Notes
    -----
    An anchor whose entries are all equal has no variance and thus forms no pairs.
    """

    single_block = True

    reads_vectors = True

    def __init__(
        self,
        pos_margin: float = 0.0,
        neg_margin: float = 1.0,
        *,
        zero_mean: float = 0.0,
        normalize: bool = False,
        miner: Any = None,
        block: int | None = None,
    ) -> None:
        # `normalize` scales the embeddings, not the deviations that are compared: the lengths of those count
        super().__init__(distance="sq_euclidean", normalize=False, miner=miner, block=block)
        self.pos_margin = pos_margin
        self.neg_margin = neg_margin
        self.zero_mean = zero_mean
        self.unit = normalize

    def comparison(self, batch: Batch) -> Comparison:
        ref = None if batch.ref is None else self._deviations(batch.ref)
        return super().comparison(batch._replace(x=self._deviations(batch.x), ref=ref))

    def _deviations(self, x: Tensor) -> Tensor:
        x = unit(x) if self.unit else x
        x = x - x[:, :1].detach()  # an embedding of equal entries becomes exactly 0, without the rounding of its mean
        return x - x.mean(1, keepdim=True)

    def find(self, c: Comparison, batch: Batch) -> Signals:
        return Signals(batch.x.square().sum(1))

    def second_pass(self, rows: Rows, signals: Signals) -> tuple[Tensor, Tensor]:
        return snr_contrastive(rows, signals, pos_margin=self.pos_margin, neg_margin=self.neg_margin)

    def penalty(self, batch: Batch) -> Tensor | None:
        if not self.zero_mean:
            return None
        return self.zero_mean * batch.x.sum(1).abs().sum() / max(len(batch.x), 1)
