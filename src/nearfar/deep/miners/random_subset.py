"""A random part of what a miner selects, a miner of PyTorch Metric Learning (Musgrave, Belongie & Lim, 2020).

    P'(a) = the k members of P(a) with the smallest u_ap,    N'(a) with the smallest u_an,    u ~ uniform on [0, 1)

If the other miner selects triplets, the k triplets of the anchor with the smallest u_apn.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..pairwise.comparison import Rows
from ..pairwise.hinges import narrowed
from .base import Miner

# streams of random numbers; the other miner has those before
POSITIVES = 2
NEGATIVES = 3
TRIPLETS = 4


def random_subset(rows: Rows, k: int) -> Rows:
    """Keep k random positives and k random negatives of each anchor, or k of its triplets."""
    m = rows.d.shape[1]
    if rows.triplets is not None:
        positive, negative, keep = rows.triplets
        # a number for each triplet that does not depend on its place
        level = rows.uniform(positive * m + negative, TRIPLETS)
        return narrowed(rows, rows.triplets._replace(keep=smallest(level, keep, k)))
    columns = torch.arange(m, device=rows.d.device)
    return rows._replace(
        pos=smallest(rows.uniform(columns, POSITIVES), rows.pos, k),
        neg=smallest(rows.uniform(columns, NEGATIVES), rows.neg, k),
    )


def smallest(level: Tensor, mask: Tensor, k: int) -> Tensor:
    """Return the mask, (b, m), of the at most k entries of each row with the smallest levels among those of a mask."""
    if mask.shape[1] <= k:
        return mask
    first = torch.where(mask, level, torch.inf).topk(k, dim=1, largest=False).indices
    return mask & torch.zeros_like(mask).scatter(1, first, True)


class RandomSubset(Miner):
    """Keep at most k random tuples of every anchor, of all or of those that another miner selects.

    Parameters
    ----------
    k : int
        Number of tuples of an anchor that are kept, drawn without replacement; at least 1. It limits the triplets, if
        the other miner selects triplets, and else the positives and the negatives, each.
    miner : callable, optional
        Miner to draw from. By default, the draw is from all pairs.

    Raises
    ------
    ValueError
        If `k` is below 1.

    Notes
    -----
    Every tuple of an anchor has the same chance, so the mean over an anchor's pairs keeps its expectation. Memory and
    time of a loss hardly change, because no list of tuples is built in either case.

    Random numbers follow from one draw of PyTorch's global generator per call, which the first process shares with the
    others. They depend neither on the block size of the loss nor on the number of processes.

    Examples
    --------
    >>> from nearfar import PairMargins, TripletLoss
    >>> loss = TripletLoss(miner=RandomSubset(5, PairMargins(0.2, 0.8)))
    """

    draws = True

    def __init__(self, k: int = 1, miner: Callable[[Rows], Rows] | None = None) -> None:
        if k < 1:
            raise ValueError(f"RandomSubset: k must be at least 1, got {k}")
        if miner is not None and (not callable(miner) or isinstance(miner, type)):
            raise TypeError(f"RandomSubset: miner must be a miner such as BatchHard(), got {miner!r}")
        self.k = k
        self.miner = miner
        self.reads_vectors = getattr(miner, "reads_vectors", False)

    def narrow(self, rows: Rows) -> Rows:
        if self.miner is not None:
            rows = self.miner(rows)
        return random_subset(rows, self.k)

    def __repr__(self) -> str:
        return f"RandomSubset(k={self.k}, miner={self.miner!r})"
