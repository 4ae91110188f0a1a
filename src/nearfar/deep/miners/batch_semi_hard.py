"""Batch semi-hard mining (Schroff, Kalenichenko & Philbin, 2015).

n(a, p) = argmin_{n in N(a), d_an > d_ap} d_an,    for every positive pair (a, p)
"""

from __future__ import annotations

import torch

from ...core.settings import Checked, one_of
from ..order import narrowed, next_above, positives
from ..rows import Rows, Triplets

FALLBACKS = ("farthest", "hardest", "skip")


def batch_semi_hard(rows: Rows, fallback: str, window: float | None) -> Rows:
    """Pair every positive with the nearest negative that is strictly farther."""
    d = rows.d.detach()
    columns, keep = positives(rows)
    if not columns.shape[1]:
        return narrowed(rows, Triplets(columns, columns, keep))
    d_ap = d.gather(1, columns)
    chosen, found = next_above(d_ap, torch.where(rows.neg, d, torch.inf))
    if fallback == "hardest":
        other = torch.where(rows.neg, d, torch.inf).min(1)
    else:
        other = torch.where(rows.neg, d, -torch.inf).max(1)
    chosen = torch.where(found, chosen, other.indices[:, None])
    keep = keep & (found if fallback == "skip" else other.values.isfinite()[:, None])
    if window is not None:
        keep = keep & (d.gather(1, chosen) < d_ap + window)
    return narrowed(rows, Triplets(columns, chosen, keep))


class BatchSemiHard(Checked):
    """For every positive pair the nearest negative that is farther than the positive.

    Parameters
    ----------
    fallback : str
        Where no negative is farther: the "farthest" one (the usual code), the "hardest", or "skip" the pair.
    window : float, optional
        Keep only pairs whose negative is nearer than d_ap + window; None keeps all.
    """

    def __init__(self, fallback: str = "farthest", window: float | None = None) -> None:
        one_of(self, FALLBACKS, fallback=fallback)
        self.fallback, self.window = fallback, window

    def __call__(self, rows: Rows) -> Rows:
        return batch_semi_hard(rows, self.fallback, self.window)

    def __repr__(self) -> str:
        return f"BatchSemiHard(fallback={self.fallback!r}, window={self.window})"
