"""NCA loss, neighborhood component analysis on a batch (Goldberger et al., 2005).

    p_ij = e^{-d_ij / T} / sum_{k in K(i)} e^{-d_ik / T}
    sum:   L = -mean_i log sum_{j in P(i)} p_ij           each:  L = -mean_i 1/|P(i)| sum_{j in P(i)} log p_ij

d: squared distance; P(i): samples similar to i; K(i): all others ("all"), or those dissimilar to i ("negatives").
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ...deprecation import renamed_settings
from ...settings import check_options
from ..pairwise.comparison import Distance, Rows, count
from ..pairwise.hinges import positives
from ..pairwise.reductions import finite, masked_logsumexp, near_and_rivals
from ..pairwise.row_loss import RowLoss

DENOMINATORS = ("all", "negatives")
POSITIVES = ("sum", "each")


def nca(rows: Rows, temperature: float, denominator: str, each: bool) -> tuple[Tensor, Tensor]:
    """Return minus the log-probability of the similar samples per anchor, and 1 where the anchor counts."""
    columns, keep = positives(rows)
    near, rivals = near_and_rivals(rows.d, columns, rows.neg, -1 / temperature)
    mates = masked_logsumexp(near, keep, -1 / temperature)  # -inf where there are none
    if denominator == "all":
        valid = keep.any(1)
    else:
        valid = keep.any(1) & rivals.isfinite()
    if denominator == "all":
        value = softplus(rivals - finite(mates), threshold=40)  # log of (all / similar)
    else:
        value = finite(rivals) - mates
    if each:
        mean = torch.where(keep, near, 0.0).sum(1) / count(keep).clamp_min(1)
        value = value + mates + mean / temperature
    return torch.where(valid, value, 0.0), valid


class NCALoss(RowLoss):
    """Probability that a sample's stochastic neighbor is similar to it.

    Parameters
    ----------
    temperature : float
        T.
    denominator : str
        "all": every other sample of known relation (the paper's, so that the loss is at least 0); "negatives":
        dissimilar samples only (the survey's), which is not bounded below.
    positives : str
        "sum": log of the summed probabilities (the paper's), or "each": mean of their logs (the survey's numerator,
        for each positive in turn).
    distance : str or callable
        "sq_euclidean" (the paper's), "euclidean", "cosine", "dot", or a function of
        anchors (b, d) and references (m, d) that returns their (b, m) dissimilarities, such as ``LpDistance(1)``.
    normalize : bool
        Scale embeddings to unit length first; the paper does not.
    miner : callable, optional
        A miner that narrows positives and negatives.
    block : int, optional
        Anchors at a time.

    Notes
    -----
    The mean is over the anchors that have a positive (with "negatives", also a negative). By mistake, the survey prints
    the distance of a difference in the denominator. In the published batch code (Sikaroudi et al., 2021) masked entries
    enter both sums as exp(0) = 1; here they are left out.
    """

    learned = ("temperature",)

    @renamed_settings(mine="miner")
    def __init__(
        self,
        temperature: float = 1.0,
        *,
        denominator: str = "all",
        positives: str = "sum",
        distance: Distance = "sq_euclidean",
        normalize: bool = False,
        miner: Any = None,
        block: int | None = None,
    ) -> None:
        super().__init__(distance=distance, normalize=normalize, miner=miner, block=block)
        check_options(self, DENOMINATORS, denominator=denominator)
        check_options(self, POSITIVES, positives=positives)
        self.temperature = temperature
        self.denominator = denominator
        self.positives = positives

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return nca(rows, self.temperature, self.denominator, self.positives == "each")
