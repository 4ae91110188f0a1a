"""Pairs beyond two margins, those that have a contrastive loss (Hadsell, Chopra & LeCun, 2006).

P'(a) = {p in P(a): d_ap > m_p},    N'(a) = {n in N(a): d_an < m_n}
"""

from __future__ import annotations

from ..pairwise.comparison import Rows
from .base import Miner


def pair_margins(rows: Rows, pos_margin: float, neg_margin: float) -> Rows:
    """Keep positives that are farther than one margin, and negatives that are nearer than the other."""
    return rows._replace(pos=rows.pos & (rows.d > pos_margin), neg=rows.neg & (rows.d < neg_margin))


class PairMargins(Miner):
    """Select positives that are too far and negatives that are too near, by a margin for each.

    Parameters
    ----------
    pos_margin, neg_margin : float
        Distance beyond which positives and within which negatives are selected, in the unit of the distance of the
        loss. For "dot", the distance is minus the inner product; for "cosine", it is one minus the cosine.
    """

    def __init__(self, pos_margin: float = 0.2, neg_margin: float = 0.8) -> None:
        self.pos_margin = pos_margin
        self.neg_margin = neg_margin

    def narrow(self, rows: Rows) -> Rows:
        return pair_margins(rows, self.pos_margin, self.neg_margin)

    def __repr__(self) -> str:
        return f"PairMargins(pos_margin={self.pos_margin}, neg_margin={self.neg_margin})"
