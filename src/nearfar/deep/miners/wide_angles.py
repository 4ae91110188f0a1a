"""Triplets whose angle at the negative is wide, the angle of the angular loss (Wang, Zhou, Wen, Liu & Lin, 2017).

    (a, p, n):  tan(alpha) < |x_a - x_p| / (2 |x_n - x_c|),        x_c = (x_a + x_p) / 2

The angle is measured in the triangle that the paper bounds, between the median and half of the opposite side: it is
wide if the negative lies close to the midpoint of anchor and positive.
"""

from __future__ import annotations

from math import radians, tan

import torch

from ..pairwise.comparison import Rows, Triplets, prepared_rows, safe_sqrt
from ..pairwise.hinges import narrowed, positives
from .base import Miner


@torch.no_grad()
def wide_angles(rows: Rows, slope: float) -> Rows:
    """Keep the triplets with |x_a - x_p| > 2 slope |x_n - x_c|, one positive of each anchor after the other."""
    if rows.x is None or rows.ref is None:
        raise ValueError("WideAngles: needs the vectors of the batch, which generated triplets do not have")
    columns, keep = positives(rows, one_by_one=True)
    found = [Triplets(columns[:, :0], columns[:, :0], keep[:, :0])]
    for column, real in zip(columns.T, keep.T, strict=True):
        other = rows.ref[column]
        side = safe_sqrt((rows.x - other).square().sum(1, keepdim=True))
        # |x_n - x_c| of all negatives from the midpoint of anchor and positive, (b, m)
        median = prepared_rows((rows.x + other) / 2, rows.ref, "euclidean")
        wide = rows.neg & real[:, None] & (side > 2 * slope * median)
        negative, some = positives(rows._replace(pos=wide))
        found.append(Triplets(column[:, None].expand_as(negative), negative, some))
    return narrowed(rows, Triplets(*(torch.cat(parts, 1) for parts in zip(*found, strict=True))))


class WideAngles(Miner):
    """Select all triplets whose angle at the negative, as the angular loss defines it, exceeds a limit.

    Parameters
    ----------
    angle : float
        Limit in degrees, between 0 and 90.

    Raises
    ------
    ValueError
        If `angle` is not between 0 and 90.

    Notes
    -----
    The angles are those of the vectors that the loss compares, after scaling to unit length if the loss does so. Memory
    grows with the number of selected triplets. On an accelerator, the largest number of positives of an anchor is read
    once, which synchronizes the device.

    Examples
    --------
    >>> from nearfar import TripletLoss
    >>> loss = TripletLoss(miner=WideAngles(20))
    """

    reads_vectors = True

    def __init__(self, angle: float = 20.0) -> None:
        if not 0 < angle < 90:
            raise ValueError(f"WideAngles: angle is in degrees, between 0 and 90, got {angle}")
        self.angle = angle
        self.slope = tan(radians(angle))

    def narrow(self, rows: Rows) -> Rows:
        return wide_angles(rows, self.slope)

    def __repr__(self) -> str:
        return f"WideAngles(angle={self.angle})"
