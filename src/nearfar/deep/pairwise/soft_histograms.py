"""Soft histograms of the rows of a block: a value is divided between the two centers around it, and has a gradient."""

from __future__ import annotations

from torch import Tensor, where
from torch.nn.functional import pad


def soft_histogram(d: Tensor, keep: Tensor, bins: int, end: float) -> Tensor:
    """Count the kept values of each row at evenly spaced centers.

    Parameters
    ----------
    d : (b, m) tensor
        Values from 0 to `end`.
    keep : (b, m) bool tensor
        Values that count.
    bins : int
        Number of bin widths between the first center, 0, and the last, `end`.
    end : float
        Last center.

    Returns
    -------
    (b, bins + 1) tensor
        Counts. Each value adds 1 in total, the larger part to the nearer of the two centers around it.

    Examples
    --------
    >>> import torch
    >>> soft_histogram(torch.tensor([[0.25, 2.0]]), torch.ones(1, 2, dtype=torch.bool), 2, 2.0).tolist()
    [[0.75, 0.25, 1.0]]
    """
    # a value at place l + f, 0 <= f <= 1, adds 1 - f to center l, and f to center l + 1
    place = d.clamp(0, end) * (bins / end)
    low = place.detach().long().clamp_(0, bins - 1)  # the clamp gives even a NaN a place
    none = d.new_zeros(len(d), bins)
    number = none.scatter_add(1, low, keep.to(d.dtype))
    upper = none.scatter_add(1, low, where(keep, place - low, 0.0))
    return pad(number - upper, (0, 1)) + pad(upper, (1, 0))
