"""Standardization of rows: every column has mean 0 and standard deviation 1 in the training set."""

from __future__ import annotations

import torch
from torch import Tensor

from ...numerics.standard_columns import standard
from ...numerics.types import AnyArray
from ..precision import PreciseBuffers

HALF = (torch.float16, torch.bfloat16)


class Standardize(PreciseBuffers):
    """Standardize rows column by column: z = (x - mean) / deviation. Before `learn`, rows are not changed.

    Parameters
    ----------
    columns : int
        Number of columns of the rows.

    Examples
    --------
    >>> import numpy as np
    >>> scale = Standardize(2)
    >>> scale.learn(np.array([[1.0, 5.0], [3.0, 5.0]]))
    >>> scale(torch.tensor([[5.0, 6.0]]))
    tensor([[3., 1.]])
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(columns))
        self.register_buffer("deviation", torch.ones(columns))

    def learn(self, rows: AnyArray) -> None:
        """Compute mean and standard deviation from an array (n, columns). A constant column is not scaled."""
        for buffer, learned in zip((self.mean, self.deviation), standard(rows), strict=True):
            buffer.copy_(torch.from_numpy(learned))

    def forward(self, rows: Tensor) -> Tensor:
        """Return the (n, columns) rows in these units."""
        units = (rows - self.mean) / self.deviation
        return units.to(rows.dtype) if rows.dtype in HALF else units  # then what follows is in half precision, too
