"""Independent activations of the groups of an embedding, of BIER (Opitz, Waltner, Possegger & Bischof, 2017).

    L = sum_{i < j} mean_n (q_ni q_nj) / (mean_n q_ni  mean_n q_nj)        q_ni = ||f_ni||^2

f_ni: group i of the dimensions of embedding n. The numerator is the paper's sum of the squares of all products of one
dimension of group i and one of group j. A pair of groups adds 1 if their squared lengths are uncorrelated, more if both
are long for the same items, and 0 if never both respond.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..objective.batch import Batch
from ..objective.relations import UNKNOWN
from ..objective.terms import SetTerm
from ..pairwise.groups import checked_groups, lengths_of
from ..unit_vectors import LEAST_NORM


def independent_activations(x: Tensor, lengths: tuple[int, ...], keep: Tensor) -> Tensor:
    """Return the sum over pairs of groups, for the kept rows of the (n, d) embeddings x."""
    largest = x.detach().abs().amax().clamp_min(LEAST_NORM)
    groups = (x / largest).split(list(lengths), dim=1)  # the value has no scale: this only keeps powers in range
    q = torch.stack([group.square().sum(1) for group in groups], 1)  # (n, K)
    q = torch.where(keep[:, None], q, 0.0)
    mean = q.sum(0) / keep.sum().clamp_min(1)
    # divided first, so that one product holds all pairs of groups
    q = q / torch.where(mean > 0, mean, 1.0)
    together = q.T @ q / keep.sum().clamp_min(1)  # (K, K)
    return together.triu(1).sum()


class IndependentActivations(SetTerm):
    """Let groups of dimensions respond to different items, for embeddings that are ensembles.

    Parameters
    ----------
    groups : int or sequence of int
        Number of groups, of nearly equal length, or the length of each group, such as the paper's (96, 160, 256).

    Notes
    -----
    Add it to a loss of groups that does not depend on their lengths, such as `BIERLoss`. Samples of unknown class do
    not count; apart from that, labels are not used.

    The paper uses the numerator alone, to initialize the embedding layer or, in its journal version (2020), as a part
    of the loss that trains only that layer. A penalty then keeps the weights of the layer at unit length, or all groups
    would become 0. Here, the denominator serves that purpose, and the gradient reaches the trunk.
    """

    def __init__(self, groups: int | Sequence[int] = 3) -> None:
        super().__init__()
        self.groups = checked_groups("IndependentActivations", groups)

    def value(self, batch: Batch) -> Tensor:
        lengths = lengths_of("IndependentActivations", self.groups, batch.x.shape[1])
        keep = torch.ones(len(batch.x), dtype=torch.bool, device=batch.x.device)
        if isinstance(batch.y, Tensor) and batch.y.ndim == 1:
            keep = batch.y != UNKNOWN
        return independent_activations(batch.x, lengths, keep)
