"""Normalised temperature-scaled cross-entropy, NT-Xent or InfoNCE (Chen et al., 2020).

    L = 1/|P| sum_{(i,p) in P} log(1 + sum_{n in N(i)} e^{(s_in - s_ip) / T})

P: pairs of similar samples; N(i): samples dissimilar to i; s: cosine.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn.functional import softplus

from ..rows import Rows, masked_logsumexp
from ..terms import RowLoss


def nt_xent(rows: Rows, temperature: float) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum over its positives of -log(e^{s_p} / (e^{s_p} + sum_n e^{s_n})) and their number."""
    logits = (1 - rows.d) / temperature
    negatives = masked_logsumexp(logits, rows.neg)[:, None]
    keep = rows.pos & negatives.isfinite()  # without negatives the term is log 1
    gap = negatives.masked_fill(negatives.isinf(), 0) - logits
    return softplus(gap, threshold=40).masked_fill(~keep, 0).sum(1), rows.pos.sum(1)


class NTXentLoss(RowLoss):
    """Cross-entropy of each positive pair against the anchor's negatives.

    Parameters
    ----------
    temperature : float
        T.
    mine : callable, optional
        A miner that narrows positives and negatives.
    block : int, optional
        Anchors at a time.

    Notes
    -----
    With more than one positive per anchor the others are left out of the denominator. One log-sum-exp per anchor
    serves all its positives, and nothing saturates at low temperatures.
    """

    def __init__(self, temperature: float = 0.07, *, mine: Any = None, block: int | None = None) -> None:
        super().__init__(distance="cosine", normalize=True, mine=mine, block=block)
        self.temperature = temperature

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return nt_xent(rows, self.temperature)
