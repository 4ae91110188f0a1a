"""Signal-to-noise distance (Yuan, Deng, Tang, Tang & Chen, 2019).

    d(x, y) = var(x - y) / var(x)

var: over the entries of a vector. The anchor x is the signal, the difference of the two is the noise.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...settings import Checked
from ..pairwise.comparison import prepared_rows
from ..unit_vectors import LEAST_NORM


class SNRDistance(Checked):
    """Variance of the difference of two vectors, divided by the variance of the anchor.

    Notes
    -----
    The distance is not symmetric, and does not change with the scale of the embeddings. An anchor whose entries are all
    equal has no variance: its distances are then the variances of the differences times the number of entries.
    ``SNRContrastiveLoss`` is the contrastive loss of the paper, which leaves such an anchor out.

    Examples
    --------
    >>> SNRDistance()(torch.tensor([[1.0, -1.0]]), torch.tensor([[1.0, -1.0], [-1.0, 1.0]]))
    tensor([[0., 4.]])
    >>> from nearfar import TripletLoss
    >>> loss = TripletLoss(distance=SNRDistance(), normalize=False)
    """

    def __call__(self, x: Tensor, ref: Tensor) -> Tensor:
        """Return the (b, m) distances of the rows of x (b, d) to the rows of ref (m, d)."""
        same = ref is x
        x = _deviations(x)
        ref = x if same else _deviations(ref)
        power = x.square().sum(1, keepdim=True)  # of each anchor; both variances have the divisor d - 1
        heard = power > LEAST_NORM**2
        return prepared_rows(x, ref, "sq_euclidean") / torch.where(heard, power, 1.0)

    def __repr__(self) -> str:
        return "SNRDistance()"


def _deviations(x: Tensor) -> Tensor:
    """Return the rows less their means; a row of equal entries becomes exactly 0, without the rounding of its mean."""
    x = x - x[:, :1].detach()
    return x - x.mean(1, keepdim=True)
