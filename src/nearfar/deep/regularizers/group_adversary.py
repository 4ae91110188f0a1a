"""Adversarial loss between the groups of an embedding, of A-BIER (Opitz, Waltner, Possegger & Bischof, 2020).

    L = sum_{i < j} -mean_{n, a} (u_i * g_ij(u_j))_na^2 + lambda R(g_ij)
    R = sum_layers mean_c (||w_c||^2 - 1)^2 + [||b||^2 - 1]_+

u_i: group i of the embeddings, (n, d_i), scaled to mean square 1; *: entrywise product; g_ij: regressor, linear, ReLU,
linear, which predicts group i from group j; w_c: weights of all outputs of a layer for its input c; b: its bias. The
regressors minimize L: they make their predictions as similar to group i as possible. The embeddings get the reversed
gradient, and maximize L.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import cast

import torch
from torch import Tensor, nn

from ..objective.batch import Batch, check_width
from ..objective.relations import UNKNOWN
from ..objective.terms import SetTerm
from ..pairwise.groups import checked_groups, lengths_of
from ..pairwise.triplets import through
from ..unit_vectors import unit


def reversed_gradient(x: Tensor) -> Tensor:
    """Return x, whose gradient changes its sign."""
    return 2 * x.detach() - x


def group_adversary(target: Tensor, predicted: Tensor, keep: Tensor) -> Tensor:
    """Return minus the mean square of the products of a group and its prediction, (n, d_i) each, over the kept rows."""
    # mean over the dimensions of (u * g)^2, (n,)
    products = (target * predicted).square().mean(1)
    return -torch.where(keep, products, 0.0).sum() / keep.sum().clamp_min(1)


def size_penalty(layer: nn.Linear, dtype: torch.dtype) -> Tensor:
    """Return how far the columns of a weight are from unit length, and by how much a bias exceeds it."""
    columns = layer.weight.to(dtype).square().sum(0)  # one for each input
    bias = layer.bias.to(dtype).square().sum()
    return (columns - 1).square().mean() + (bias - 1).clamp_min(0)


class GroupAdversary(SetTerm):
    """Keep each group of dimensions from being predictable from the others, for embeddings that are ensembles.

    Parameters
    ----------
    embedding_dim : int
        Number of dimensions of the embeddings.
    groups : int or sequence of int
        Number of groups, of nearly equal length, or the length of each group, such as the paper's (96, 160, 256).
    hidden : int
        Number of hidden units of each regressor, at least 1.
    lam : float
        Weight lambda of the penalty on the weights of the regressors, at least 0, without which their predictions grow
        without limit.

    Attributes
    ----------
    regressors : ModuleList
        Regressors g_ij of all i < j, in the order (0, 1), (0, 2), ..., (1, 2), ...

    Raises
    ------
    ValueError
        If `hidden` is below 1 or `lam` is negative.

    Notes
    -----
    Add a small part of it to a loss of groups, as in ``BIERLoss() + 0.01 * GroupAdversary(embedding_dim)``, which is
    A-BIER. The regressors learn with the network, in the same backward pass. Samples of unknown class do not count;
    apart from that, labels are not used.

    The defaults of `hidden` and `lam` are those of the published code. There, the term trains the embedding layer but
    not the trunk, on groups that are not scaled, and a further penalty keeps the weights of that layer at unit length.
    Here, the gradient reaches the trunk, and the scaling makes that penalty unnecessary.
    """

    def __init__(
        self, embedding_dim: int, groups: int | Sequence[int] = 3, *, hidden: int = 512, lam: float = 100.0
    ) -> None:
        super().__init__()
        if hidden < 1:
            raise ValueError(f"GroupAdversary: hidden must be at least 1, got {hidden}")
        if lam < 0:
            raise ValueError(f"GroupAdversary: lam must not be negative, got {lam}")
        self.embedding_dim = embedding_dim
        self.lengths = lengths_of("GroupAdversary", checked_groups("GroupAdversary", groups), embedding_dim)
        self.lam = lam
        self.regressors = nn.ModuleList(regressor(of, to, hidden) for to, of in combinations(self.lengths, 2))

    def value(self, batch: Batch) -> Tensor:
        x = batch.x
        check_width("GroupAdversary", x, self.embedding_dim)
        keep = torch.ones(len(x), dtype=torch.bool, device=x.device)
        if isinstance(batch.y, Tensor) and batch.y.ndim == 1:
            keep = batch.y != UNKNOWN
        parts = x.split(list(self.lengths), dim=1)
        # a length of sqrt(d_i) is a mean square of 1
        scaled = [unit(part, part.shape[1] ** 0.5) for part in parts]
        total = x.sum() * 0
        # both embeddings of a pair get the reversed gradient, the regressor between them its own
        for (target, source), g in zip(combinations(map(reversed_gradient, scaled), 2), self.regressors, strict=True):
            total = total + group_adversary(target, through(g, source), keep)
            first, _, second = cast(nn.Sequential, g)
            for layer in (first, second):
                total = total + self.lam * size_penalty(cast(nn.Linear, layer), x.dtype)
        return total


def regressor(d_in: int, d_out: int, hidden: int) -> nn.Sequential:
    """Return a network from one group to another whose weights have columns of unit length."""
    layers = [nn.Linear(d_in, hidden), nn.Linear(hidden, d_out)]
    with torch.no_grad():
        for layer in layers:
            layer.weight.copy_(unit(nn.init.normal_(layer.weight).T).T)
            nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.ReLU(), layers[1])
