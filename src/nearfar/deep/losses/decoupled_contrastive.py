"""Decoupled contrastive losses, DCL and DCLW (Yeh et al., 2022).

    L = 1/|P| sum_{(i,p) in P} [-w_ip s_ip / T + log sum_{n in N(i)} e^{s_in / T}]
    w_ip = 2 - e^{s_ip / sigma} / mean_P e^{s / sigma}  for DCLW, 1 for DCL

P: pairs of similar samples whose anchor has a negative; N(i): samples dissimilar to i; s: cosine. The weights are held
constant in the gradient; their mean over P is 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import distributed
from ..objective.batch import Batch
from ..pairwise.blockwise import sum_over_anchors
from ..pairwise.comparison import Comparison, Rows, count
from ..pairwise.contextual import ContextualRowLoss
from ..pairwise.hinges import near_columns, near_distances
from ..pairwise.reductions import near_and_rivals
from ..rng import preserve_rng


class Likeness(NamedTuple):
    """The mean of e^{(s - 1) / sigma} over all pairs that count, ()."""

    mean: Tensor


def decoupled_contrastive(
    rows: Rows, temperature: float, sigma: float | None = None, likeness: Likeness | None = None
) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum over its positives of -w_p s_p / T + log sum_n e^{s_n / T}, and their number."""
    columns, keep = near_columns(rows)
    # near: 1 - s_p, (b, k); rivals: log sum_n e^{(s_n - 1) / T}, (b,), -inf without negatives
    near, rivals = near_and_rivals(rows.d, columns, rows.neg, -1 / temperature)
    keep = keep & (rivals > -torch.inf)[:, None]
    each = rivals[:, None] + near / temperature
    if sigma is not None and likeness is not None:
        # 1 - w_p = e^{(s_p - 1) / sigma} / mean - 1, (b, k)
        share = torch.exp(-near.detach() / sigma) / likeness.mean.clamp_min(torch.finfo(near.dtype).tiny)
        each = each + (share - 1) * (1 - near) / temperature
    return torch.where(keep, each, 0.0).sum(1), count(keep)


def likenesses(rows: Rows, sigma: float) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum of e^{(s_p - 1) / sigma} over its positives, and their number, 0 without a negative."""
    near, keep = near_distances(rows)
    keep = keep & rows.neg.any(1)[:, None]
    return torch.where(keep, torch.exp(-near / sigma), 0.0).sum(1), count(keep)


class DecoupledContrastiveLoss(ContextualRowLoss):
    """NT-Xent without the positive pair in the denominator, so that easy pairs keep their gradient in small batches.

    Parameters
    ----------
    temperature : float
        Temperature T that divides the cosines, positive.
    sigma : float, optional
        Temperature of the weights of DCLW, positive; the paper uses 0.5. Positives that are less alike than the others
        then count more. By default, all count alike: DCL.
    miner : callable, optional
        Miner that selects the positives and negatives that count, such as ``BatchHard()``. By default, all of them
        count.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Notes
    -----
    The loss has no lower bound. The paper has two views of each image; with several positives, each pair has its own
    term, as in `NTXentLoss`. The paper does not say whether the weights have a gradient; here, they have none.
    """

    def __init__(
        self, temperature: float = 0.1, *, sigma: float | None = None, miner: Any = None, block: int | None = None
    ) -> None:
        super().__init__(distance="cosine", normalize=True, miner=miner, block=block)
        if sigma is not None and sigma <= 0:
            raise ValueError(f"DecoupledContrastiveLoss: sigma must be positive, got {sigma}")
        self.temperature = temperature
        self.sigma = sigma

    def find(self, c: Comparison, batch: Batch) -> Likeness | None:
        sigma = self.sigma
        if sigma is None:
            return None
        with torch.no_grad(), preserve_rng(self.miner, c.x):
            total, number, _ = sum_over_anchors(
                lambda rows: likenesses(rows, sigma), c, miner=self.miner, block=self.block
            )
        return Likeness(distributed.total(total) / distributed.total(number).clamp_min(1))

    def second_pass(self, rows: Rows, found: Likeness | None) -> tuple[Tensor, Tensor]:
        return decoupled_contrastive(rows, temperature=self.temperature, sigma=self.sigma, likeness=found)
