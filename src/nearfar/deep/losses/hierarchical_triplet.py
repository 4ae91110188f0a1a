"""Hierarchical triplet loss (Ge, Huang, Dong & Scott, 2018).

    L = 1/(2 |T|) sum_{(a,p,n) in T} [d_ap - d_an + M(y_a, y_n)]_+          M(I, J) = beta + h(I, J) - s_I
    d(I, J): mean squared distance between samples of classes I and J       s_I: mean within class I
    h(I, J): least threshold at which I and J are joined,  h_l = d_0 + l (4 - d_0) / L,  l = 1..L,  d_0 = mean_I s_I

T: triplets with a positive term; d: squared distance of unit vectors. Classes are joined as in single linkage: I and J
are joined if a chain of steps, each at most the threshold, leads from one to the other. Classes that are far apart in
this tree get a large margin, and similar classes a small one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..objective.batch import Batch
from ..pairwise.comparison import Comparison, Rows, count
from ..pairwise.contextual import ContextualRowLoss
from ..pairwise.hinges import hinges, negatives, positives
from ..unit_vectors import unit

FARTHEST = 4.0  # squared distance of unit vectors


class ClassTree(NamedTuple):
    """Margins between the classes of a batch.

    Attributes
    ----------
    margins : (C, C) tensor
        Margins M(I, J).
    member : (n,) tensor
        Place of the class of every sample.
    """

    margins: Tensor
    member: Tensor


def class_distances(x: Tensor, member: Tensor, known: Tensor, places: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return (C, C) mean squared distances between classes, (C,) within them, and (C,) numbers of samples.

    x: (n, d) unit vectors; known: (n,) bool, samples that count. Within a class of one sample the distance is 0.
    """
    count = known.to(x.dtype)
    sizes = torch.zeros(places, dtype=x.dtype, device=x.device).index_add(0, member, count)
    totals = torch.zeros(places, x.shape[1], dtype=x.dtype, device=x.device).index_add(0, member, count[:, None] * x)
    means = totals / sizes.clamp_min(1)[:, None]
    # mean_ij |x_i - x_j|^2 = 2 - 2 mu_I . mu_J for unit vectors: no (n, n) matrix
    between = (2 - 2 * means @ means.T).clamp_min(0)
    pairs = sizes * (sizes - 1)
    # the same within a class, over its n (n - 1) pairs of different samples: 2 (n^2 - |sum x|^2) / (n (n - 1))
    within = (2 * (sizes.square() - totals.square().sum(1)) / pairs.clamp_min(1)).clamp_min(0)
    return between, torch.where(pairs > 0, within, 0.0), sizes


def joining_distances(between: Tensor, sizes: Tensor) -> Tensor:
    """Return (C, C) the longest step on the best way from one class to another: where single linkage joins them."""
    empty = (sizes == 0)[:, None] | (sizes == 0)
    reach = torch.where(empty, FARTHEST, between)
    for place in range(len(reach)):  # classes of a batch
        reach = torch.minimum(reach, torch.maximum(reach[:, place : place + 1], reach[place : place + 1]))
    return reach


def margins_of_tree(between: Tensor, within: Tensor, sizes: Tensor, beta: float, levels: int) -> Tensor:
    """Return (C, C) margins from the distances of classes."""
    several = sizes > 1
    least = torch.where(several, within, 0.0).sum() / several.sum().clamp_min(1)  # d_0
    # embeddings without a length may seem as far as can be from those of their class
    step = (FARTHEST - least).clamp_min(torch.finfo(least.dtype).eps) / levels
    level = torch.floor((joining_distances(between, sizes) - least) / step) + 1
    return beta + least + step * level.clamp(1, levels) - within[:, None]


def hierarchical_triplets(rows: Rows, tree: ClassTree) -> tuple[Tensor, Tensor]:
    """Return per anchor half the sum of its hinges, and the number of active triplets."""
    own = tree.member[rows.first : rows.first + len(rows.d)]
    margins = tree.margins[own][:, tree.member]  # (b, m)
    if rows.triplets is not None:
        positive, negative, keep = rows.triplets
        gap = rows.d.gather(1, positive) - rows.d.gather(1, negative) + margins.gather(1, negative)
        value = torch.where(keep, gap.clamp_min(0), 0.0)
        return value.sum(1) / 2, count(value > 0)
    columns, keep = positives(rows)
    reach = torch.where(keep, rows.d.gather(1, columns), -torch.inf)
    value, active = hinges(reach, negatives(rows) - margins)
    return value / 2, count(active)


class HierarchicalTripletLoss(ContextualRowLoss):
    """Triplet loss whose margin depends on the distance of the classes in a tree.

    Parameters
    ----------
    beta : float
        Part of the margin that is the same for all classes.
    levels : int
        Number L of levels of the tree, at least 1.
    miner : callable, optional
        Miner that selects the triplets that count, such as ``BatchHard()``. By default, all triplets of the batch
        count.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Raises
    ------
    ValueError
        If `levels` is below 1.

    Notes
    -----
    The tree is built from the classes of the batch, without gradient. The paper builds it from all training classes
    after every epoch, and draws batches of classes that are neighbors in it, which `HierarchicalSampler` does with
    given super-classes. Samples of unknown class are in no triplet.
    """

    reads_vectors = True

    def __init__(self, beta: float = 0.1, *, levels: int = 16, miner: Any = None, block: int | None = None) -> None:
        super().__init__(distance="sq_euclidean", normalize=True, miner=miner, block=block)
        if levels < 1:
            raise ValueError(f"HierarchicalTripletLoss: levels must be at least 1, got {levels}")
        self.beta = beta
        self.levels = levels

    @torch.no_grad()
    def find(self, c: Comparison, batch: Batch) -> ClassTree:
        y = batch.classes("HierarchicalTripletLoss")
        if batch.ref is not None:
            raise ValueError(
                "HierarchicalTripletLoss: ref does not apply, the tree is built from the classes of the batch"
            )
        n = len(y)
        # the place of a class is that of its first sample, so that nothing has to be counted on a device
        places = torch.arange(n, device=y.device)
        member = torch.where(y[:, None] == y, places, n).amin(1) if n else places
        between, within, sizes = class_distances(unit(batch.x), member, y >= 0, n)
        return ClassTree(margins_of_tree(between, within, sizes, beta=self.beta, levels=self.levels), member)

    def second_pass(self, rows: Rows, tree: ClassTree) -> tuple[Tensor, Tensor]:
        return hierarchical_triplets(rows, tree)
