"""Hard-aware deeply cascaded embedding, HDC (Yuan, Yang & Zhang, 2017).

    L = sum_k [ mean_{P_k} d_k + mean_{N_k} [m - d_k]_+ ]          k = 1..K: groups of the embedding's dimensions
    P_{k+1}, N_{k+1}: of the pairs in P_k and N_k, the share h_{k+1} with the largest losses in group k

d_k: squared distance of a pair of unit vectors in group k; P_1, N_1: all similar and all dissimilar pairs. Each group
learns from the pairs that are hard for the group before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from ..pairwise.comparison import Rows, count
from ..pairwise.groups import checked_groups, lengths_of, unit_groups
from ..pairwise.row_loss import RowLoss

ROUNDING = 1e-6  # of a share of a number of pairs: 0.2 of 5 pairs is one pair


def hardest(loss: Tensor, kept: Tensor, share: float) -> Tensor:
    """Return which of the kept entries of each row are among the share of them with the largest losses, (b, m) bool.

    At least one of each row is, and all that are as large as the smallest of these.
    """
    values = torch.where(kept, loss.detach(), -torch.inf)
    # ceil(h |kept|), of a product that may come out a little above a whole number
    number = torch.ceil(share * kept.sum(1) - ROUNDING).long().clamp_min(1)
    falling = values.sort(1, descending=True)[0]
    if not falling.shape[1]:
        return kept
    # the smallest loss that is still kept; ties with it are kept, too, so that the order of samples does not matter
    least = falling.gather(1, number[:, None].clamp_max(falling.shape[1]) - 1)
    return kept & (values >= least)


def hdc(rows: Rows, lengths: tuple[int, ...], shares: Sequence[float], margin: float) -> tuple[Tensor, Tensor]:
    """Return per anchor the losses of its hard similar and dissimilar pairs in every group, and their numbers.

    Both are (b, 2 K): the similar and the dissimilar pairs of the first group, then of the others.
    """
    assert rows.x is not None
    assert rows.ref is not None
    near = rows.pos
    far = rows.neg
    sums: list[Tensor] = []
    numbers: list[Tensor] = []
    parts = zip(unit_groups(rows.x, lengths), unit_groups(rows.ref, lengths), strict=True)
    for place, (x, ref) in enumerate(parts):
        d = 2 - 2 * x @ ref.T  # (b, m)
        apart = (margin - d).clamp_min(0)
        sums += [torch.where(near, d, 0.0).sum(1), torch.where(far, apart, 0.0).sum(1)]
        numbers += [count(near), count(far)]
        if place + 1 < len(lengths):
            share = shares[place]
            near = hardest(d, near, share)
            far = hardest(apart, far, share)
    return torch.stack(sums, 1), torch.stack(numbers, 1)


class HDCLoss(RowLoss):
    """Contrastive loss of groups of dimensions, each of which learns from the hard pairs of the group before it.

    Parameters
    ----------
    groups : int or sequence of int
        Number of groups, of nearly equal length, or the length of each group.
    shares : sequence of float
        Share h of the pairs that each group after the first keeps, in (0, 1]; the last value applies to all further
        groups. The paper uses 0.5 and 0.2 of all pairs; here, each value is a share of the pairs that the group before
        has kept.
    margin : float
        Margin m on the squared distances of unit vectors.
    miner : callable, optional
        Miner that selects the pairs of the first group, from the cosine distances of the whole embeddings. By default,
        all pairs of the batch count.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If `shares` is empty or has a value outside (0, 1].

    Notes
    -----
    The cascade of the paper consists of three trunks of growing depth, and hard pairs are chosen from the whole batch.
    Here, groups of one embedding take the place of the trunks, and pairs are chosen for each anchor. The default of
    `margin` is a choice of this library.
    """

    single_block = True  # the rows read the vectors themselves

    reads_vectors = True

    def __init__(
        self,
        groups: int | Sequence[int] = 3,
        *,
        shares: Sequence[float] = (0.5, 0.4),
        margin: float = 1.0,
        miner: Any = None,
        block: int | None = None,
    ) -> None:
        super().__init__(distance="cosine", normalize=True, miner=miner, block=block)
        self.groups = checked_groups("HDCLoss", groups)
        values = tuple(shares) if isinstance(shares, Sequence) and not isinstance(shares, str) else ()
        if not values or not all(isinstance(share, Real) and 0 < share <= 1 for share in values):
            raise ValueError(
                f"HDCLoss: shares must be numbers in (0, 1], one of every group but the first; got {shares!r}"
            )
        self.shares = values
        self.margin = margin

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        lengths = lengths_of("HDCLoss", self.groups, rows.dim)
        missing = len(lengths) - 1 - len(self.shares)
        shares = self.shares + self.shares[-1:] * max(0, missing)
        return hdc(rows, lengths, shares, self.margin)
