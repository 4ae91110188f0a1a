"""Pairs drawn evenly over their distances, a miner of PyTorch Metric Learning (Musgrave, Belongie & Lim, 2020).

    bin(a, j) = floor( B (d_aj - l_a) / (u_a - l_a) )        l_a, u_a: smallest and largest distance of the kind

Some samples are drawn from every bin of an anchor's positives, and of its negatives, so that all distances count
equally, however many pairs have each distance.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..pairwise.comparison import Rows
from .base import Miner


def drawn_evenly(d: Tensor, mask: Tensor, level: Tensor, bins: int, per_bin: int) -> Tensor:
    """Return which of the masked entries of each row are drawn, at most `per_bin` of each bin.

    Parameters
    ----------
    d : (b, m) tensor
        Distances.
    mask : (b, m) bool tensor
        Entries to draw from.
    level : (b, m) tensor
        Uniform random numbers in [0, 1), by which the entries of a bin are selected.
    bins : int
        Number of bins of equal width between the smallest and the largest distance of a row.
    per_bin : int
        Number of entries to draw from each bin.
    """
    low = torch.where(mask, d, torch.inf).amin(1, keepdim=True)
    high = torch.where(mask, d, -torch.inf).amax(1, keepdim=True)
    width = torch.where(high > low, high - low, 1.0)
    place = ((d - low) / width * bins).floor().clamp(0, bins - 1)
    key = torch.where(mask, place + level, torch.inf)  # sorted by bin, and within it at random
    ordered, order = key.sort(1)
    of_bin = ordered.floor()
    first = torch.searchsorted(of_bin, of_bin)  # where the bin of each entry begins
    rank = torch.arange(d.shape[1], device=d.device) - first
    return torch.zeros_like(mask).scatter(1, order, (rank < per_bin) & ordered.isfinite())


class UniformHistogram(Miner):
    """Draw positives and negatives of every anchor such that all distances occur about equally often.

    Parameters
    ----------
    bins : int
        Number of bins of equal width between the nearest and the farthest positive of an anchor, and for its
        negatives; at least 1.
    per_bin : int
        Number of samples to draw from each bin without replacement, at least 1. If a bin has fewer, all of them are
        taken.

    Raises
    ------
    ValueError
        If `bins` or `per_bin` is below 1.

    Notes
    -----
    The published miner computes its bins from all pairs of the batch and draws with replacement. Here, every anchor has
    its own bins.

    Random numbers follow from one draw of PyTorch's global generator per call, which the first process shares with the
    others. They depend neither on the block size of the loss nor on the number of processes.
    """

    draws = True

    def __init__(self, bins: int = 10, per_bin: int = 1) -> None:
        for name, number in (("bins", bins), ("per_bin", per_bin)):
            if number < 1:
                raise ValueError(f"UniformHistogram: {name} must be at least 1, got {number}")
        self.bins = bins
        self.per_bin = per_bin

    def narrow(self, rows: Rows) -> Rows:
        d = rows.d.detach()
        if not d.shape[1]:
            return rows
        # a draw for each column, whatever the block of the anchor
        numbers = torch.arange(d.shape[1], device=d.device)
        kept = [
            drawn_evenly(d, mask, rows.uniform(numbers, stream), bins=self.bins, per_bin=self.per_bin)
            for stream, mask in enumerate((rows.pos, rows.neg))
        ]
        return rows._replace(pos=kept[0], neg=kept[1])

    def __repr__(self) -> str:
        return f"UniformHistogram(bins={self.bins}, per_bin={self.per_bin})"
