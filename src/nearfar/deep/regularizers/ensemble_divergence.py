"""Divergence of an ensemble of embeddings, of ABE (Kim, Goyal, Chawla, Lee & Kwon, 2018).

    L = 1/B sum_i 2/(K (K - 1)) sum_{j < k} [m - ||u_ij - u_ik||^2]_+

u_ij: group j of the dimensions of embedding i, scaled to unit length. The term keeps the K embeddings of a sample
apart, so that they learn different features.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..objective.batch import Batch
from ..objective.relations import UNKNOWN
from ..objective.terms import SetTerm
from ..pairwise.groups import checked_groups, lengths_of, unit_groups


def ensemble_divergence(x: Tensor, lengths: tuple[int, ...], margin: float, counts: Tensor | None = None) -> Tensor:
    """Return the mean over samples and pairs of groups of the hinges; 0 for one group or no sample."""
    K = len(lengths)
    if K < 2 or not len(x):
        return x.sum() * 0
    # zeros at the end of shorter groups change no distance
    longest = max(lengths)
    u = torch.stack([pad(group, (0, longest - group.shape[1])) for group in unit_groups(x, lengths)], 1)  # (B, K, .)
    d = (2 - 2 * u @ u.transpose(1, 2)).clamp_min(0)  # (B, K, K)
    first, second = torch.triu_indices(K, K, 1, device=x.device)
    each = (margin - d[:, first, second]).clamp_min(0).mean(1)  # (B,)
    if counts is None:
        return each.mean()
    weight = counts.to(each.dtype)
    return (weight * each).sum() / weight.sum().clamp_min(1)


class EnsembleDivergence(SetTerm):
    """Push groups of the dimensions of each embedding apart, for embeddings that are ensembles.

    Parameters
    ----------
    groups : int or sequence of int
        Number of groups, of nearly equal length, or the length of each group. The paper has 8 groups of 64 dimensions.
        Shorter groups are padded with zeros to be compared with longer ones.
    margin : float
        Margin m on the squared distances of unit vectors.

    Notes
    -----
    This is the divergence loss of attention-based ensembles, whose network is `AttentionEnsemble`. Add it to a loss of
    groups, such as `BIERLoss`, or to any loss of the whole embedding. Samples of unknown class do not count; apart from
    that, labels are not used.
    """

    def __init__(self, groups: int | Sequence[int] = 2, *, margin: float = 1.0) -> None:
        super().__init__()
        self.groups = checked_groups("EnsembleDivergence", groups)
        self.margin = margin

    def value(self, batch: Batch) -> Tensor:
        lengths = lengths_of("EnsembleDivergence", self.groups, batch.x.shape[1])
        counts = None
        if isinstance(batch.y, Tensor) and batch.y.ndim == 1:
            counts = batch.y != UNKNOWN
        return ensemble_divergence(batch.x, lengths, self.margin, counts)
