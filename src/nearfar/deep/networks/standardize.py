"""Rows in units of their training set: every column with mean 0 and deviation 1 there."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Standardize(nn.Module):
    """z = (x - mean) / deviation, column by column; as they are before `learn`.

    Parameters
    ----------
    columns : int
        Numbers per row.

    Examples
    --------
    >>> scale = Standardize(2)
    >>> scale.learn(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
    >>> scale(torch.tensor([[5.0, 6.0]]))
    tensor([[3., 1.]])
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(columns))
        self.register_buffer("deviation", torch.ones(columns))

    def learn(self, rows: Tensor) -> None:
        """Take mean and deviation from (n, columns) rows; a constant column keeps its unit."""
        rows = rows.double()
        mean, deviation = rows.mean(0), rows.std(0, correction=0)
        constant = deviation <= 10 * torch.finfo(self.mean.dtype).eps * mean.abs()
        self.mean.copy_(mean)
        self.deviation.copy_(torch.where(constant, 1.0, deviation))

    def forward(self, rows: Tensor) -> Tensor:
        """Return the (n, columns) rows in these units."""
        return (rows - self.mean) / self.deviation
