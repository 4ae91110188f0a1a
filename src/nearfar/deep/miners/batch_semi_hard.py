"""Batch semi-hard mining (Schroff, Kalenichenko & Philbin, 2015).

n(a, p) = argmin_{n in N(a), d_an > d_ap} d_an,    for every positive pair (a, p)
"""

from __future__ import annotations

import torch

from ..rows import Rows

FALLBACKS = ("farthest", "hardest", "skip")


def batch_semi_hard(rows: Rows, fallback: str, window: float | None) -> Rows:
    """Pair every positive with the nearest negative that is strictly farther; one sort and one search per row."""
    d = rows.d.detach()
    near, order = d.masked_fill(~rows.neg, torch.inf).sort(1)
    negatives = rows.neg.sum(1, keepdim=True)
    k = torch.searchsorted(near, d.contiguous(), right=True)
    found = k < negatives
    last = (negatives - 1).clamp_min(0)
    k = torch.where(found, k, 0 if fallback == "hardest" else last)
    partner = order.gather(1, k)
    pos = rows.pos & (negatives > 0)
    if fallback == "skip":
        pos = pos & found
    if window is not None:
        pos = pos & (d.gather(1, partner) < d + window)
    chosen = torch.zeros_like(rows.neg, dtype=torch.int32).scatter_add(1, partner, pos.int()) > 0
    return rows._replace(pos=pos, neg=chosen & rows.neg, partner=partner)


class BatchSemiHard:
    """For every positive pair the nearest negative that is farther than the positive.

    Parameters
    ----------
    fallback : str
        Where no negative is farther: the "farthest" one (the usual code), the "hardest", or "skip" the pair.
    window : float, optional
        Keep only pairs whose negative is nearer than d_ap + window; None keeps all.
    """

    def __init__(self, fallback: str = "farthest", window: float | None = None) -> None:
        if fallback not in FALLBACKS:
            raise ValueError(f"BatchSemiHard: fallback must be one of {', '.join(FALLBACKS)}, got {fallback!r}")
        self.fallback, self.window = fallback, window

    def __call__(self, rows: Rows) -> Rows:
        return batch_semi_hard(rows, self.fallback, self.window)

    def __repr__(self) -> str:
        return f"BatchSemiHard(fallback={self.fallback!r}, window={self.window})"
