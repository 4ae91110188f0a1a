"""Random columns of masked rows, without a list of the columns: inverse transform on running sums."""

from __future__ import annotations

import torch
from torch import Tensor


def draw(weights: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Draw k columns of each row with replacement, with probability in proportion to the weights.

    Parameters
    ----------
    weights : (b, m) float tensor
        Not negative; 0 is never drawn.
    k : int
        Draws per row, from PyTorch's global generator.

    Returns
    -------
    (b, k) columns, and (b, k) whether there was something to draw.
    """
    b, m = weights.shape
    if not m:
        return weights.new_zeros(b, k, dtype=torch.int64), weights.new_zeros(b, k, dtype=torch.bool)
    upto = weights.double().cumsum(1)
    level = torch.rand(b, k, dtype=torch.float64, device=weights.device) * upto[:, -1:]
    columns = torch.searchsorted(upto, level, right=True).clamp_max(m - 1)
    return columns, weights.gather(1, columns) > 0
