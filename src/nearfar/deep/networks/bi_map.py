"""BiMap, a bilinear map of positive definite matrices (Huang & Van Gool, 2017).

    Y = W^T X W,    W of shape (n, m) with orthonormal columns

The counterpart of a linear layer for vectors: it maps (n, n) matrices to (m, m) ones and keeps them positive definite.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...settings import Checked
from .spd import orthonormal_columns


def bi_map(X: Tensor, W: Tensor) -> Tensor:
    """Return W^T X W for (..., n, n) matrices."""
    return W.mT @ X @ W


class BiMap(Checked, nn.Module):
    """Bilinear map of positive definite matrices with a weight on the Stiefel manifold.

    Parameters
    ----------
    in_size : int
        Size n of the input matrices.
    out_size : int
        Size m of the output matrices, from 1 to n.

    Attributes
    ----------
    weight : Parameter of shape (n, m)
        Weight W, initialized uniformly among the matrices with orthonormal columns.

    Raises
    ------
    ValueError
        If `out_size` is outside 1 to `in_size`.

    Notes
    -----
    The columns of W remain orthonormal only if it is trained with `nearfar.deep.StiefelSGD`; `stiefel_parameters(net)`
    and `other_parameters(net)` divide the weights of a network between two optimizers.

    Examples
    --------
    >>> BiMap(5, 3)(torch.eye(5).expand(2, 5, 5)).shape
    torch.Size([2, 3, 3])
    """

    orthonormal = ("weight",)

    def __init__(self, in_size: int, out_size: int) -> None:
        super().__init__()
        if not 1 <= out_size <= in_size:
            raise ValueError(f"BiMap: out_size must be in 1..{in_size}, got {out_size}")
        self.weight = nn.Parameter(orthonormal_columns(torch.randn(in_size, out_size)))

    def forward(self, X: Tensor) -> Tensor:
        """Map (..., n, n) matrices to (..., m, m)."""
        if X.shape[-2:] != (len(self.weight),) * 2:
            raise ValueError(f"BiMap: X: expected (..., {len(self.weight)}, {len(self.weight)}), got {tuple(X.shape)}")
        return bi_map(X, self.weight)

    def extra_repr(self) -> str:
        """Return the sizes as text."""
        return f"{self.weight.shape[0]}, {self.weight.shape[1]}"
