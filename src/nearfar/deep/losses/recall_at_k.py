"""Recall@k surrogate (Patel, Tolias & Matas, 2022).

    L = mean_i mean_{k in K} ( 1 - min(k, sum_{j in P(i)} sigmoid((k - r_ij) / t)) / min(k, |P(i)|) )
    r_ij = 1 + sum_{l in S(i), l != j} sigmoid((s_il - s_ij) / T)

P(i): samples similar to i; S(i): all others of known relation to i; s: cosine; r_ij: soft rank of j in the ranking of
i. The outer sigmoid is a soft decision whether j is among the first k.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral

import torch
from torch import Tensor

from ..pairwise.comparison import Rows, count
from ..pairwise.hinges import positives
from ..pairwise.reductions import soft_counts
from ..pairwise.row_loss import RowLoss


def recall_at_k(rows: Rows, ks: Sequence[int], temperature: float, rank_temperature: float) -> tuple[Tensor, Tensor]:
    """Return per anchor one minus its soft recall, and 1 if it has a positive."""
    columns, keep = positives(rows, one_by_one=True)
    # r_ij, (b, K): the count includes sigmoid(0) = 1/2 of j itself, and 1/2 more makes it the 1 of the formula
    ranks = soft_counts(rows.d, columns, rows.pos | rows.neg, rank_temperature)[1] + 0.5
    number = count(keep)
    loss = rows.d.new_zeros(len(rows.d))
    for k in ks:
        # how many positives are softly among the first k; no more than k can be, nor than there are
        among = torch.where(keep, torch.sigmoid((k - ranks) / temperature), 0.0).sum(1)
        loss = loss + (1 - among.clamp_max(k) / number.clamp(1, k)) / len(ks)
    return torch.where(number > 0, loss, 0.0), number > 0


class RecallAtKLoss(RowLoss):
    """One minus the recall at k of the batch ranked for each anchor, with sigmoids instead of steps.

    Parameters
    ----------
    ks : int or sequence of int
        Values of k, at least 1; the loss is the mean over them.
    temperature : float
        Temperature t of the sigmoid that decides whether a rank is within k, positive.
    rank_temperature : float
        Temperature T of the sigmoids that count the ranks. The smaller it is, the closer the ranks are to whole
        numbers, and the fewer pairs have a gradient.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If `ks` is empty, or contains anything but integers of at least 1.

    Notes
    -----
    The mean is over the anchors that have a positive; the paper trains with batches of thousands. The paper divides by
    the number of positives; its code and this loss divide by k where k is smaller.

    The published code counts the anchor itself as the first of its ranking, so that every rank is one higher; here, it
    is left out. The loss takes no miner, because a rank among a part of the samples is a different quantity.
    """

    def __init__(
        self,
        ks: int | Sequence[int] = (1, 2, 4, 8, 16),
        *,
        temperature: float = 1.0,
        rank_temperature: float = 0.01,
        block: int | None = None,
    ) -> None:
        super().__init__(distance="cosine", normalize=True, block=block)
        if isinstance(ks, Iterable):
            given = list(ks)
        else:
            given = [ks]
        if not given or not all(isinstance(k, Integral) and not isinstance(k, bool) and k >= 1 for k in given):
            raise ValueError(f"RecallAtKLoss: ks must be one or more integers of at least 1, got {ks!r}")
        self.ks = tuple(map(int, given))
        self.temperature = temperature
        self.rank_temperature = rank_temperature

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return recall_at_k(rows, ks=self.ks, temperature=self.temperature, rank_temperature=self.rank_temperature)
