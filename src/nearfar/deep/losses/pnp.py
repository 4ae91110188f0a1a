"""PNP, penalizing negatives before positives (Li, Min, Song, Zhu, Kang, Wei, Wei & Jiang, 2022).

    L = mean_i 1/|P(i)| sum_{j in P(i)} f(R_ij),     R_ij = sum_{k in N(i)} sigmoid((s_ik - s_ij) / T)

    O:  R        Iu: (1 + R) log(1 + R)        Ib: (b R - log(1 + b R)) / b^2
                 Ds: log(1 + R)                Dq: 1 - (1 + R)^-alpha

P(i), N(i): samples similar and dissimilar to i; s: cosine; R_ij: soft count of the negatives that rank before positive
j. The slope of f increases with R in the variants I, which pull the farthest positives most, and decreases in the
variants D.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...settings import check_options
from ..pairwise.comparison import Rows, count
from ..pairwise.hinges import positives
from ..pairwise.reductions import soft_counts
from ..pairwise.row_loss import RowLoss

VARIANTS = ("O", "Iu", "Ib", "Ds", "Dq")


def pnp(rows: Rows, temperature: float, variant: str, b: float, alpha: float) -> tuple[Tensor, Tensor]:
    """Return per anchor the mean of f over its positives, and 1 if it has one."""
    columns, keep = positives(rows, one_by_one=True)
    R = soft_counts(rows.d, columns, rows.neg, temperature)[1]  # (b, K)
    number = count(keep)
    return torch.where(keep, f(R, variant, b, alpha), 0.0).sum(1) / number.clamp_min(1), number > 0


def f(R: Tensor, variant: str, b: float, alpha: float) -> Tensor:
    """Return the penalty for R negatives before a positive."""
    if variant == "Iu":
        return (1 + R) * R.log1p()
    if variant == "Ib":
        return (b * R - (b * R).log1p()) / b**2
    if variant == "Ds":
        return R.log1p()
    if variant == "Dq":
        # 1 - (1 + R)^-alpha, exact also for small R, where 1 - (1 - tiny) would be 0
        return -torch.expm1(-alpha * R.log1p())
    return R


class PNPLoss(RowLoss):
    """Penalty on the number of negatives that rank before each positive.

    Parameters
    ----------
    variant : {"O", "Iu", "Ib", "Ds", "Dq"}
        Function f of the number R of negatives before a positive:

        - "O": the number itself;
        - "Iu", "Ib": functions with a rising slope, unbounded and bounded;
        - "Ds", "Dq": functions with a falling slope, slow and quick.

        The last two are better suited to classes that consist of several clusters; "Dq" performs best in the paper.
    temperature : float
        Temperature T of the sigmoids, positive. The smaller it is, the closer the counts are to whole numbers, and the
        fewer pairs have a gradient.
    b : float
        Parameter b of the variant "Ib", positive.
    alpha : float
        Exponent alpha of the variant "Dq", positive.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If `variant` is unknown, or `b` or `alpha` is not positive.

    Notes
    -----
    The mean is over the anchors that have a positive. The anchor itself is not part of its ranking; the published code
    counts it as a positive, nearly always with R = 0. The loss takes no miner, because a count over a part of the
    negatives is a different quantity.
    """

    def __init__(
        self,
        variant: str = "O",
        *,
        temperature: float = 0.01,
        b: float = 2.0,
        alpha: float = 1.0,
        block: int | None = None,
    ) -> None:
        super().__init__(distance="cosine", normalize=True, block=block)
        check_options(self, VARIANTS, variant=variant)
        if min(b, alpha) <= 0:
            raise ValueError(f"PNPLoss: b and alpha must be positive, got {b} and {alpha}")
        self.variant = variant
        self.temperature = temperature
        self.b = b
        self.alpha = alpha

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return pnp(rows, temperature=self.temperature, variant=self.variant, b=self.b, alpha=self.alpha)
