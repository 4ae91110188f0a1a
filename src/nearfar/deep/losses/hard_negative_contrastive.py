"""Contrastive loss with hard negative sampling, HCL (Robinson et al., 2021).

    paper:    L = 1/|P| sum_{(a,p) in P} -log( e^{s_ap/t} / (e^{s_ap/t} + G_ap) )
              G_ap = max( (R_a - tau N e^{s_ap/t}) / (1 - tau),  N e^{-1/t} ),   R_a = N sum_n w_an e^{s_an/t}
    mixture:  L = mean_a sum_p v_ap log(1 + E_a e^{-s_ap/t})
              E_a = alpha sum_n w_an e^{s_an/t} + (1 - alpha) sum_p v_ap e^{s_ap/t}
    w = softmax over the negatives, v = softmax over the positives, of beta s / t

P: pairs of similar samples; N: number of the anchor's negatives n; s: cosine.
"""

from __future__ import annotations

from math import log, log1p
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ...settings import check_options
from ..pairwise.comparison import Rows, count
from ..pairwise.hinges import positives
from ..pairwise.reductions import finite, tilted
from ..pairwise.row_loss import RowLoss

FORMS = ("paper", "mixture")


def hard_negative_contrastive(rows: Rows, beta: float, tau: float, t: float, detach: bool) -> tuple[Tensor, Tensor]:
    """Return per anchor the sum over its positives of -log(e^{s_ap/t} / (e^{s_ap/t} + G_ap)), and their number.

    Everything is in logarithms, so that low temperatures do not overflow: log_n, log_r and log_g of N, R_a and G_ap.
    """
    columns, keep = positives(rows)
    near = (1 - rows.d.gather(1, columns)) / t  # s_ap / t, (b, K)
    number = count(rows.neg)[:, None]
    some = number > 0
    log_n = number.clamp_min(1).to(near.dtype).log()
    # `tilted` is log sum_n w_an e^{-d_an/t}, and s = 1 - d
    log_r = finite(tilted(rows.d, rows.neg, t, beta, detach))[:, None] + 1 / t + log_n
    least = log_n - 1 / t  # N e^{-1/t}
    if tau:
        # G_ap = R_a (1 - e^share) / (1 - tau), if that is positive, with e^share = tau N e^{s_ap/t} / R_a
        share = near + log_n + log(tau) - log_r
        left = torch.where(share < 0, -torch.expm1(torch.where(share < 0, share, -1.0)), 1.0)
        log_g = torch.where(share < 0, log_r + left.log() - log1p(-tau), -torch.inf)
    else:
        log_g = log_r
    log_g = torch.maximum(log_g, least)
    keep = keep & some  # without negatives the term is log 1
    return torch.where(keep, softplus(log_g - near, threshold=40), 0.0).sum(1), count(rows.pos)


def mixture(rows: Rows, beta: float, alpha: float, t: float, detach: bool) -> tuple[Tensor, Tensor]:
    """Return the survey's loss of each anchor, and 1 if it has both a positive and a negative."""
    columns, keep = positives(rows)
    d = rows.d.gather(1, columns)
    rivals = tilted(rows.d, rows.neg, t, beta, detach)
    mates = tilted(d, keep, t, beta, detach)
    near = (1 - d) / t
    valid = keep.any(1) & rows.neg.any(1)
    # log E_a, (b,): parts of weight 0 are left out, as their logarithm is -inf
    parts = []
    if alpha > 0:
        parts.append(finite(rivals) + 1 / t + log(alpha))
    if alpha < 1:
        parts.append(finite(mates) + 1 / t + log(1 - alpha))
    log_E = torch.stack(parts, 1).logsumexp(1)
    v = torch.where(keep, beta * near, -torch.inf)
    v = torch.where(valid[:, None], v, 0.0).softmax(1)
    if detach:
        v = v.detach()
    term = torch.where(keep, v * softplus(log_E[:, None] - near, threshold=40), 0.0).sum(1)
    return torch.where(valid, term, 0.0), valid


class HardNegativeContrastiveLoss(RowLoss):
    """Contrast each positive pair with the negatives, of which near ones weigh more.

    Parameters
    ----------
    temperature : float
        Temperature t that divides the cosines, positive.
    beta : float
        Concentration on near negatives, at least 0; with 0, all negatives have the same weight. It can be lowered
        during training: nothing else depends on it.
    tau_plus : float
        Probability tau, in [0, 1), that a negative is in fact of the anchor's class. Use the paper's 0.1 if labels only
        tell which views show the same image, and 0 for class labels.
    form : {"paper", "mixture"}
        Formula of the loss: "paper", or "mixture", the survey's, which uses labels.
    alpha : float
        Share of true negatives in the "mixture" form, in [0, 1].
    detach_weights : bool
        Whether to hold the weights w and v constant in the gradient; the published code does not.
    miner : callable, optional
        Miner that selects the positives and negatives that count, such as ``BatchHard()``. By default, all of them
        count.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If `beta` is negative, `tau_plus` is outside [0, 1), or `alpha` is outside [0, 1].

    Notes
    -----
    Without class labels, give each image a different label, repeated for each view: ``torch.arange(n).repeat(2)``. With
    ``beta=0`` and ``tau_plus=0``, the loss is NT-Xent.

    The survey's formula has no N, no tau and no subtraction, and also draws the positive from a tilted distribution.
    This is the "mixture" form, except that it averages over the anchors where the survey of Ghojogh et al. (2022) sums.
    """

    def __init__(
        self,
        temperature: float = 0.5,
        *,
        beta: float = 1.0,
        tau_plus: float = 0.1,
        form: str = "paper",
        alpha: float = 1.0,
        detach_weights: bool = False,
        miner: Any = None,
        block: int | None = None,
    ) -> None:
        super().__init__(distance="cosine", normalize=True, miner=miner, block=block)
        check_options(self, FORMS, form=form)
        if beta < 0:
            raise ValueError(f"HardNegativeContrastiveLoss: beta must not be negative, got {beta}")
        if not (0 <= tau_plus < 1 and 0 <= alpha <= 1):
            expected = f"tau_plus must be in [0, 1), alpha in [0, 1], got {tau_plus} and {alpha}"
            raise ValueError(f"HardNegativeContrastiveLoss: {expected}")
        self.temperature = temperature
        self.beta = beta
        self.tau_plus = tau_plus
        self.form = form
        self.alpha = alpha
        self.detach_weights = detach_weights

    def rows(self, rows: Rows) -> tuple[Tensor, Tensor]:
        if self.form == "mixture":
            return mixture(rows, beta=self.beta, alpha=self.alpha, t=self.temperature, detach=self.detach_weights)
        return hard_negative_contrastive(
            rows, beta=self.beta, tau=self.tau_plus, t=self.temperature, detach=self.detach_weights
        )
