"""Adaptive large margin N-pair loss, ALMN (Chen & Deng, 2018).

    L = 1/|P| sum_{(i,p) in P} log(1 + sum_{n in N(i)} exp(s_in - v_ip))
    v_ip = (2 - k) s_ip + (1 - k) |z_i| |z_p|  =  s_ip - (k - 1) (cos_ip + 1) |z_i| |z_p|

P: pairs of similar samples; N(i): samples dissimilar to i; s: inner product. k = 1 is the N-pair loss; a larger k
requires a margin that grows with the lengths and with the cosine of a pair.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ..objective.batch import Batch
from ..pairwise.comparison import Rows, count, safe_sqrt
from ..pairwise.hinges import positives
from ..pairwise.reductions import near_and_rivals
from ..pairwise.row_loss import RowLoss


def almn(rows: Rows, k: float) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum over its positives of log(1 + sum_n exp(s_n - v_p)) and their number."""
    assert rows.x is not None
    assert rows.ref is not None
    columns, keep = positives(rows)
    near, rivals = near_and_rivals(rows.d, columns, rows.neg, -1.0)  # -s_p, log sum_n exp(s_n)
    # |z_i| |z_p|, (b, K)
    lengths = safe_sqrt(rows.x.square().sum(1))[:, None] * safe_sqrt(rows.ref.square().sum(1))[columns]
    lowered = (2 - k) * near + (k - 1) * lengths  # -v_p
    gap = rivals[:, None] + lowered  # -inf, a term of log 1, without negatives
    return torch.where(keep, softplus(gap, threshold=40), 0.0).sum(1), count(keep)


class ALMNLoss(RowLoss):
    """N-pair loss in which virtual, harder pairs replace the positive pairs.

    Parameters
    ----------
    k : float
        Strength of the margin, at least 1; 1 gives the N-pair loss.
    reg : float
        Weight of half the mean squared norm of the embeddings.
    miner : callable, optional
        Miner that selects the positives and negatives that count, such as ``BatchHard()``. By default, all of them
        count.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If `k` is below 1.

    Notes
    -----
    The formula is that of the authors' public code (ECAML, `npair.cpp`); the article itself was not available. The
    default of `k` is a choice of this library. Both samples of a pair are anchors in turn.
    """

    single_block = True  # the rows read the vectors themselves

    reads_vectors = True

    def __init__(self, k: float = 1.05, *, reg: float = 0.0, miner: Any = None, block: int | None = None) -> None:
        super().__init__(distance="dot", normalize=False, miner=miner, block=block)
        if k < 1:
            raise ValueError(f"ALMNLoss: k must be at least 1, got {k}")
        self.k = k
        self.reg = reg

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return almn(rows, self.k)

    def penalty(self, batch: Batch) -> Tensor | None:
        if not self.reg:
            return None
        return self.reg / 2 / max(len(batch.x), 1) * batch.x.square().sum()
