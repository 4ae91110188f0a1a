"""NCA loss, neighborhood component analysis on a batch (Goldberger, Roweis, Hinton & Salakhutdinov, 2004).

    p_ij = e^{-d_ij / T} / sum_{k in K(i)} e^{-d_ik / T}
    sum:   L = -mean_i log sum_{j in P(i)} p_ij           each:  L = -mean_i 1/|P(i)| sum_{j in P(i)} log p_ij

d: squared distance; P(i): samples similar to i; K(i): all others ("all"), or those dissimilar to i ("negatives").
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ...settings import check_options
from ..pairwise.comparison import Distance, Rows, count
from ..pairwise.hinges import near_columns
from ..pairwise.reductions import masked_logsumexp, near_and_rivals
from ..pairwise.row_loss import RowLoss

DENOMINATORS = ("all", "negatives")
POSITIVES = ("sum", "each")


def nca(rows: Rows, temperature: float, denominator: str, each: bool) -> tuple[Tensor, Tensor]:
    """Return minus the log-probability of the similar samples per anchor, and 1 if the anchor counts."""
    columns, keep = near_columns(rows)
    # near: d_ij of the similar, (b, k); rivals, mates: log sum e^{-d / T} over the dissimilar and the similar, (b,)
    near, rivals = near_and_rivals(rows.d, columns, rows.neg, -1 / temperature)
    mates = masked_logsumexp(near, keep, -1 / temperature)
    valid = keep.any(1)
    if denominator == "negatives":
        valid = valid & (rivals > -torch.inf)
        rivals = torch.where(valid, rivals, 0.0)
    mates = torch.where(valid, mates, 0.0)
    if denominator == "all":
        value = softplus(rivals - mates, threshold=40)  # log((e^mates + e^rivals) / e^mates)
    else:
        value = rivals - mates
    if each:
        # -mean_j log p_ij = log sum_k e^{-d_ik / T} + mean_j d_ij / T, whose first term is value + mates
        mean = torch.where(keep, near, 0.0).sum(1) / count(keep).clamp_min(1)
        value = value + mates + mean / temperature
    return torch.where(valid, value, 0.0), valid


class NCALoss(RowLoss):
    """Negative log-probability that a stochastic neighbor of a sample is similar to it.

    Parameters
    ----------
    temperature : float
        Temperature T that divides the distances, positive. It may be a tensor that requires a gradient.
    denominator : {"all", "negatives"}
        Samples over which the probabilities are normalized. "all": every other sample of known relation, as in the
        paper; the loss is then at least 0. "negatives": only dissimilar samples, as in the survey of Ghojogh et al.
        (2022); the loss then has no lower bound.
    positives : {"sum", "each"}
        How the positives of an anchor are combined. "sum": the logarithm of the sum of their probabilities, as in the
        paper. "each": the mean of the logarithms of their probabilities, for the survey's numerator, which has one
        positive at a time.
    distance : str or callable
        Dissimilarity of two embeddings: "sq_euclidean" (the paper's), "euclidean", "cosine" or "dot", or a callable
        that takes anchors of shape (b, d) and references of shape (m, d) and returns their dissimilarities of shape
        (b, m), such as ``LpDistance(1)``.
    normalize : bool
        Whether to scale the embeddings to unit length first; the paper does not.
    miner : callable, optional
        Miner that selects the positives and negatives that count, such as ``BatchHard()``. By default, all of them
        count.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Notes
    -----
    The mean is over the anchors that have a positive and, if `denominator` is "negatives", also a negative.

    The denominator in the survey contains, by mistake, the distance of a difference. In the published batch code
    (Sikaroudi et al., 2021), masked entries enter both sums as exp(0) = 1; here, they are left out.
    """

    learned = ("temperature",)

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
        return nca(rows, temperature=self.temperature, denominator=self.denominator, each=self.positives == "each")
