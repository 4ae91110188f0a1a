"""Batch semi-hard mining (Schroff, Kalenichenko & Philbin, 2015).

n(a, p) = argmin_{n in N(a), d_an > d_ap} d_an,    for every positive pair (a, p)
"""

from __future__ import annotations

from ...settings import check_options
from ..pairwise.comparison import Rows
from ..pairwise.hinges import narrowed
from ..pairwise.triplets import semi_hard
from .base import Miner

FALLBACKS = ("farthest", "hardest", "skip")


def batch_semi_hard(rows: Rows, fallback: str, window: float | None) -> Rows:
    """Pair every positive with the nearest negative that is strictly farther, within the window if there is one."""
    found = semi_hard(rows, fallback)
    d = rows.d.detach()
    if window is not None:  # d_an < d_ap + window
        near = d.gather(1, found.negative) < d.gather(1, found.positive) + window
        found = found._replace(keep=found.keep & near)
    return narrowed(rows, found)


class BatchSemiHard(Miner):
    """Select, for every positive pair, the nearest negative that is farther than the positive.

    Parameters
    ----------
    fallback : {"farthest", "hardest", "skip"}
        What to do if no negative is farther than the positive: take the "farthest" negative, as most implementations
        do; take the "hardest" negative; or "skip" the pair.
    window : float, optional
        Keep only triplets whose negative is nearer than d_ap + window, in the unit of the distance. By default, all are
        kept.
    """

    def __init__(self, fallback: str = "farthest", window: float | None = None) -> None:
        check_options(self, FALLBACKS, fallback=fallback)
        self.fallback = fallback
        self.window = window

    def narrow(self, rows: Rows) -> Rows:
        return batch_semi_hard(rows, self.fallback, self.window)

    def __repr__(self) -> str:
        return f"BatchSemiHard(fallback={self.fallback!r}, window={self.window})"
