"""Normalized temperature-scaled cross-entropy, NT-Xent or InfoNCE (Chen et al., 2020).

    L = 1/|P| sum_{(i,p) in P} log(1 + sum_{n in N(i)} e^{(s_in - s_ip) / T})

P: pairs of similar samples; N(i): samples dissimilar to i; s: cosine.
"""

from __future__ import annotations

from math import log
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from ..autograd import in_transform
from ..objective.batch import Batch
from ..pairwise.comparison import Comparison, Rows, count
from ..pairwise.hinges import near_columns
from ..pairwise.reductions import near_and_rivals
from ..pairwise.row_loss import RowLoss

LEAST_TEMPERATURE = 0.01  # of those that are learned, as in CLIP
MOST_LOG_SCALE = -log(LEAST_TEMPERATURE)


def nt_xent(rows: Rows, temperature: float | Tensor) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum over its positives of log(1 + sum_n e^{(s_n - s_p) / T}), and their number."""
    columns, keep = near_columns(rows)
    # near: 1 - s_p, (b, k); rivals: log sum_n e^{(s_n - 1) / T}, (b,)
    near, rivals = near_and_rivals(rows.d, columns, rows.neg, -1 / temperature)
    # log sum_n e^{(s_n - s_p) / T}; -inf, a term of log 1, without negatives
    gap = rivals[:, None] + near / temperature
    return torch.where(keep, softplus(gap, threshold=40), 0.0).sum(1), count(keep)


class NTXentLoss(RowLoss):
    """Cross-entropy of each positive pair against the negatives of its anchor, also known as InfoNCE.

    Parameters
    ----------
    temperature : float
        Temperature T that divides the cosines, positive. It may be a tensor that requires a gradient.
    learn_temperature : bool
        Whether to learn the temperature from this start, as CLIP does (Radford et al., 2021): the parameter `log_scale`
        is log 1/T. Each call in training mode first returns it to the range in which T is at least 0.01, where it
        also has a gradient.
    miner : callable, optional
        Miner that selects the positives and negatives that count, such as ``BatchHard()``. By default, all of them
        count.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Notes
    -----
    If an anchor has several positives, each is compared with the negatives only: the other positives are not in its
    denominator. One log-sum-exp per anchor serves all of its positives and does not saturate at low temperatures.
    """

    learned = ("temperature",)

    def __init__(
        self,
        temperature: float = 0.07,
        *,
        learn_temperature: bool = False,
        miner: Any = None,
        block: int | None = None,
    ) -> None:
        super().__init__(distance="cosine", normalize=True, miner=miner, block=block)
        if learn_temperature and not isinstance(temperature, Tensor) and temperature < LEAST_TEMPERATURE:
            detail = f"temperature must be at least {LEAST_TEMPERATURE} if it is learned, got {temperature}"
            raise ValueError(f"NTXentLoss: {detail}")
        if learn_temperature and isinstance(temperature, Tensor):
            raise ValueError("NTXentLoss: learn_temperature needs a number as temperature, got a tensor")
        self.temperature = temperature
        self.log_scale = nn.Parameter(torch.tensor([-log(temperature)])) if learn_temperature else None

    def comparison(self, batch: Batch) -> Comparison:
        if self.log_scale is not None and self.training and not in_transform():
            # beyond the range the value has no gradient, which would leave the parameter there for ever
            self.log_scale.data.clamp_(max=MOST_LOG_SCALE)
        return super().comparison(batch)

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return nt_xent(rows, self.present_temperature(rows.d.dtype))

    def present_temperature(self, dtype: torch.dtype = torch.float32) -> float | Tensor:
        """Return the temperature; if it is learned, as a tensor (1,) with its gradient."""
        if self.log_scale is None:
            return self.temperature
        return self.log_scale.clamp_max(MOST_LOG_SCALE).to(dtype).neg().exp()

    def learned_values(self) -> dict[str, float]:
        temperature = self.present_temperature()
        return {"temperature": float(temperature.detach())} if isinstance(temperature, Tensor) else {}
