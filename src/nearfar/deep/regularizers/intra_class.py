"""Intra-class penalty, the experiment that motivates JRD (Chu et al., 2020).

    L = -sum_I 1/N_I sum_{i < j in I} e^{-||x_i - x_j||^2 / 2}        N_I = n_I (n_I - 1) / 2

x: unit embeddings. With a reference set, the N_I pairs consist of a sample and a reference of class I. With a relation
matrix, they are the known pairs, and a class is a set of samples and references that chains of similar pairs connect.
Added to a loss, the term compresses the seen classes, which the paper shows to hurt unseen ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from ..autograd import host_array, uncompiled
from ..objective.batch import Batch
from ..objective.relations import UNKNOWN, masks
from ..pairwise.comparison import Comparison, Rows, spans
from ..pairwise.contextual import ContextualRowLoss


class ClassPairs(NamedTuple):
    """The number of pairs of the class of each reference, (m,)."""

    number: Tensor


def intra_class(rows: Rows, pairs: ClassPairs | None) -> Tensor:
    """Return per anchor its part of its class's mean of -e^{-d/2} over pairs; 0 for a lone sample.

    Without `pairs`, each row tells the size of its class.
    """
    kernel = torch.exp(-rows.d / 2).masked_fill(~rows.pos, 0)
    if pairs is not None:
        return -(kernel / pairs.number.clamp_min(1)).sum(1)
    # each pair is in two rows, so N_I = n_I (n_I - 1) / 2 pairs are n_I (n_I - 1) entries
    others = rows.pos.sum(1)  # n_I - 1
    return -kernel.sum(1) / (others * (others + 1)).clamp_min(1)


@uncompiled
def joined(relation: Tensor, same: bool) -> tuple[Tensor, Tensor]:
    """Return numbers of the groups of the rows (n,) and the columns (m,) of a relation that chains of 1 join.

    With `same`, row i and column i are one sample, as in a square relation whose diagonal is unknown: nobody compared
    any sample with itself. Otherwise, two samples that are similar to each other's copies only would be two
    classes.
    """
    n, m = relation.shape
    known = host_array(relation)
    same = same or (n == m and bool((known.diagonal() == UNKNOWN).all()))
    # rows and columns are nodes of one graph, the columns shifted unless they are the same samples
    row, column = np.nonzero(known > 0)
    shift = 0 if same else n
    size = max(n, shift + m)
    graph = coo_array((np.ones(len(row), dtype=np.int8), (row, shift + column)), shape=(size, size))
    groups = torch.from_numpy(connected_components(graph, directed=False)[1]).long().to(relation.device)
    return groups[:n], groups[shift : shift + m]


class IntraClassPenalty(ContextualRowLoss):
    """Negative Gaussian similarity within each class, averaged over its pairs and summed over the classes.

    Parameters
    ----------
    normalize : bool
        Whether to scale the embeddings to unit length first, as the paper does.
    block : int, optional
        Number of anchors processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Notes
    -----
    The sum over the classes is the paper's, so the value grows with the number of classes in the batch. Classes of one
    sample contribute 0.

    With `ref` and a relation matrix, samples and references are of one class if a chain of similar pairs connects them.
    If the matrix is square and its diagonal is unknown (-1), reference i is taken to be sample i, as for a copy of the
    batch.
    """

    def __init__(self, *, normalize: bool = True, block: int | None = None) -> None:
        super().__init__(distance="sq_euclidean", normalize=normalize, block=block)
        self.reduction = "sum"

    @torch.no_grad()
    def find(self, c: Comparison, batch: Batch) -> ClassPairs | None:
        matrix = isinstance(c.y, Tensor) and c.y.ndim == 2
        if c.is_self and not matrix:
            return None
        blocks = spans(slice(0, len(c.x)), len(c.ref), self.block, c.x.device)
        # the number of similar references of each anchor; added up by class below, they are its pairs
        similar = [c.block(c.x, c.ref, lo, hi).pos.sum(1).to(c.ref.dtype) for lo, hi in blocks]
        if matrix and not blocks:
            return ClassPairs(c.ref.new_zeros(len(c.ref)))
        if matrix:
            of_row, of_column = joined(c.y, c.is_self)
            pairs = c.ref.new_zeros(len(of_row) + len(of_column)).index_add(0, of_row, torch.cat(similar))
            return ClassPairs(pairs[of_column])
        number = c.ref.new_zeros(len(c.ref))
        for (lo, hi), pairs in zip(blocks, similar, strict=True):
            number = number + pairs @ masks(c.y, c.ref_y, slice(lo, hi))[0].to(number.dtype)
        return ClassPairs(number)

    def second_pass(self, rows: Rows, found: ClassPairs | None) -> tuple[Tensor, Tensor]:
        return intra_class(rows, found), rows.pos.any(1)
