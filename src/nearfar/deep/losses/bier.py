"""Boosting independent embeddings robustly, BIER (Opitz, Waltner, Possegger & Bischof, 2017).

    L = sum_m [ mean_P w_m l(s_m) + mean_N w_m l(s_m) ]            m = 1..M: groups of the embedding's dimensions
    w_1 = 1,  w_{m+1} = |l'(S_m)| / c,  S_m = (1 - eta_m) S_{m-1} + eta_m s_m,  eta_m = 2/(m + 1),  S_0 = 0
    l(s) = log(1 + e^{-alpha (s - beta)}) for similar pairs P, log(1 + e^{alpha eta (s - beta)}) for dissimilar ones N

s_m: cosine of a pair in group m; c: alpha for similar pairs, alpha eta for dissimilar ones. The weights, between 0 and
1, emphasize the pairs that the earlier groups together, as in boosting, have not learned yet; they are constants of the
gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ..pairwise.comparison import Rows, count
from ..pairwise.groups import checked_groups, lengths_of, unit_groups
from ..pairwise.row_loss import RowLoss


def bier(rows: Rows, lengths: tuple[int, ...], alpha: float, beta: float, eta: float) -> tuple[Tensor, Tensor]:
    """Return per anchor the weighted deviances of its similar and dissimilar pairs in every group, and their numbers.

    Both are (b, 2 M): the similar and the dissimilar pairs of the first group, then of the others.
    """
    assert rows.x is not None
    assert rows.ref is not None
    slope = torch.where(rows.pos, -alpha, alpha * eta)  # of the exponents, (b, m)
    weight = torch.ones_like(rows.d)
    boosted = torch.zeros_like(rows.d)
    sums: list[Tensor] = []
    anchors = unit_groups(rows.x, lengths)
    references = unit_groups(rows.ref, lengths)
    for place, (x, ref) in enumerate(zip(anchors, references, strict=True), start=1):
        s = x @ ref.T  # (b, m)
        value = weight * softplus(slope * (s - beta), threshold=40)
        sums += [torch.where(kept, value, 0.0).sum(1) for kept in (rows.pos, rows.neg)]
        rate = 2 / (place + 1)
        boosted = (1 - rate) * boosted + rate * s.detach()
        weight = torch.sigmoid(slope * (boosted - beta))
    numbers = torch.stack([count(rows.pos), count(rows.neg)], 1)
    return torch.stack(sums, 1), numbers.repeat(1, len(lengths))


class BIERLoss(RowLoss):
    """Binomial deviance of groups of dimensions, each of which learns the pairs that the groups before it get wrong.

    Parameters
    ----------
    groups : int or sequence of int
        Number of groups, of nearly equal length, or the length of each group, such as the paper's (96, 160, 256).
    alpha : float
        Steepness of the deviance, positive.
    beta : float
        Cosine that separates similar from dissimilar pairs.
    eta : float
        Factor on the steepness for dissimilar pairs, positive.
    miner : callable, optional
        Miner that selects the pairs that count, from the cosine distances of the whole embeddings. By default, all
        pairs of the batch count.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If `alpha` or `eta` is not positive.

    Notes
    -----
    For search, the paper concatenates the groups after scaling each to unit length and weighting it; here, the whole
    embedding is used.

    The weights are those of the published code. The paper does not divide them by c, so that dissimilar pairs weigh eta
    times as much as similar ones in all groups but the first; with the default eta, such groups learn badly.

    The groups stay different with one of the two further losses of the paper's journal version (2020):
    ``BIERLoss() + 0.1 * IndependentActivations()``, or, for A-BIER, ``BIERLoss() + 0.01 * GroupAdversary(512)``. The
    paper's initialization of the weights, which minimizes the former before the training, is not implemented.
    """

    single_block = True  # the rows read the vectors themselves

    reads_vectors = True

    def __init__(
        self,
        groups: int | Sequence[int] = 3,
        *,
        alpha: float = 2.0,
        beta: float = 0.5,
        eta: float = 25.0,
        miner: Any = None,
        block: int | None = None,
    ) -> None:
        super().__init__(distance="cosine", normalize=True, miner=miner, block=block)
        self.groups = checked_groups("BIERLoss", groups)
        if min(alpha, eta) <= 0:
            raise ValueError(f"BIERLoss: alpha and eta must be positive, got {alpha} and {eta}")
        self.alpha = alpha
        self.beta = beta
        self.eta = eta

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return bier(rows, lengths_of("BIERLoss", self.groups, rows.dim), alpha=self.alpha, beta=self.beta, eta=self.eta)
