"""Informative pairs, the mining of the multi-similarity loss (Wang et al., 2019).

P'(a) = {p in P(a): s_ap - epsilon < max_{n in N(a)} s_an}
N'(a) = {n in N(a): s_an + epsilon > min_{p in P(a)} s_ap}
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..pairwise.comparison import Distance, Rows
from .base import Miner


def informative_pairs(rows: Rows, epsilon: float) -> Rows:
    """Keep the positives and the negatives that the formulas select; t is minus the similarity s, up to a constant."""
    if not rows.d.shape[1]:
        return rows
    # with t = -s: P' = {p: t_ap + epsilon > min_n t_an}, N' = {n: t_an - epsilon < max_p t_ap}; empty sets select none
    t = -as_cosines(rows.d.detach(), rows.distance)
    nearest = torch.where(rows.neg, t, torch.inf).amin(1, keepdim=True)
    farthest = torch.where(rows.pos, t, -torch.inf).amax(1, keepdim=True)
    return rows._replace(pos=rows.pos & (t + epsilon > nearest), neg=rows.neg & (t - epsilon < farthest))


def as_cosines(d: Tensor, distance: Distance) -> Tensor:
    """Return the cosines of unit vectors up to a constant, from any distance: |x - y|^2 / 2 = 1 - x.y."""
    if distance == "euclidean":
        return -d.square() / 2
    if distance == "sq_euclidean":
        return -d / 2
    return -d


class InformativePairs(Miner):
    """Select the pairs that an anchor may confuse: far positives and near negatives, with all triplets among them.

    Parameters
    ----------
    epsilon : float
        Margin by which the cosines of positives and negatives may overlap. If the vectors are not of unit length, its
        unit is that of the inner product or of half the squared distance; if the distance of the loss is a callable,
        its unit is that of the distance.

    Notes
    -----
    ``MultiSimilarityLoss(epsilon=0.1)`` includes this mining. An anchor without positives or without negatives loses
    all of its pairs.
    """

    def __init__(self, epsilon: float = 0.1) -> None:
        self.epsilon = epsilon

    def narrow(self, rows: Rows) -> Rows:
        return informative_pairs(rows, self.epsilon)

    def __repr__(self) -> str:
        return f"InformativePairs(epsilon={self.epsilon})"
