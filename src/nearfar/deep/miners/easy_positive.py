"""Easy positive mining (Xuan, Stylianou & Pless, 2020).

p(a) = argmin_{p in P(a)} d_ap
n(a) : every negative,  argmin_{n in N(a)} d_an (hard),  or  argmin_{n in N(a), d_an > d_ap} d_an (semi-hard)
"""

from __future__ import annotations

import torch

from ...settings import check_options
from ..pairwise.comparison import Rows, Triplets
from ..pairwise.hinges import narrowed, next_above, positives
from .base import Miner

NEGATIVES = ("hard", "semi_hard", "all")


def easy_positive(rows: Rows, negative: str, duplicate: float | None) -> Rows:
    """Keep the nearest positive and the chosen negatives of each anchor."""
    d = rows.d.detach()
    columns, keep = positives(rows)
    if not columns.shape[1]:
        return narrowed(rows, Triplets(columns, columns, keep))
    d_ap = torch.where(keep, d.gather(1, columns), torch.inf)
    if duplicate is not None:
        d_ap = torch.where(d_ap > duplicate, d_ap, torch.inf)
    near, place = d_ap.min(1, keepdim=True)  # (b, 1) each
    positive = columns.gather(1, place)
    some = near.isfinite()
    if negative == "all":
        one = torch.zeros_like(rows.pos).scatter(1, positive, some)
        return rows._replace(pos=one & rows.pos, neg=rows.neg & some)
    rivals = torch.where(rows.neg, d, torch.inf)
    if negative == "hard":
        hard = rivals.min(1, keepdim=True)
        return narrowed(rows, Triplets(positive, hard.indices, some & hard.values.isfinite()))
    chosen, found = next_above(near, rivals)
    return narrowed(rows, Triplets(positive, chosen, some & found))


class EasyPositive(Miner):
    """Select the easiest positive of every anchor, with hard, semi-hard or all negatives.

    Parameters
    ----------
    negative : {"hard", "semi_hard", "all"}
        Negatives of an anchor. "hard": the nearest negative. "semi_hard": the nearest negative that is farther than the
        positive; anchors without one are left out. "all": every negative.
    duplicate : float, optional
        Skip positives within this distance, in the unit of the distance of the loss, as copies of the same image. The
        published code uses a cosine of 0.9999, which is a squared distance of 0.0002. By default, none is skipped.

    Notes
    -----
    With the N-pair or NT-Xent loss, this is the paper's easy positive loss; with the triplet loss and
    ``negative="all"``, it is the hinge form. The published code also drops anchors unless both similarities are
    positive; this miner does not.

    The survey of Ghojogh et al. (2022), by mistake, minimizes the softmax itself, not minus its logarithm, at the
    positive that is least similar.
    """

    def __init__(self, negative: str = "hard", duplicate: float | None = None) -> None:
        check_options(self, NEGATIVES, negative=negative)
        self.negative = negative
        self.duplicate = duplicate

    def narrow(self, rows: Rows) -> Rows:
        return easy_positive(rows, self.negative, self.duplicate)

    def __repr__(self) -> str:
        return f"EasyPositive(negative={self.negative!r}, duplicate={self.duplicate})"
