"""Tuples of indices: three tensors are triplets (a, p, n), four are pairs (a1, p, a2, n)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from ...deep import distributed
from ...deep.objective.relations import UNKNOWN
from ...deep.pairwise.comparison import Rows, Triplets

Indices: TypeAlias = Sequence[Tensor]
Labels: TypeAlias = Tensor | None


def checked(indices: Indices) -> list[Tensor]:
    """Return the tensors of a tuple of indices, or raise."""
    parts = list(indices)
    if len(parts) not in (3, 4) or not all(isinstance(part, Tensor) and part.ndim == 1 for part in parts):
        raise ValueError("indices_tuple: expected 3 tensors (a, p, n) or 4 tensors (a1, p, a2, n) of indices")
    halves = [parts] if len(parts) == 3 else [parts[:2], parts[2:]]
    for half in halves:
        if len({len(part) for part in half}) > 1:
            raise ValueError(f"indices_tuple: tensors of unequal length, {[len(part) for part in parts]}")
    return parts


def relation_of(indices: Indices, n: int, m: int) -> Tensor:
    """Return the (n, m) relation matrix in which the pairs of the indices are known, each once, and no others."""
    parts = checked(indices)
    if len(parts) == 3:
        anchor, positive, negative = parts
        # as pairs: (a, p) similar and (a, n) dissimilar
        parts = [anchor, positive, anchor, negative]
    relation = torch.full((n, m), UNKNOWN, device=parts[0].device)
    relation[parts[2], parts[3]] = 0
    relation[parts[0], parts[1]] = 1
    return relation


def lists_twice(indices: Indices) -> bool:
    """Return whether a pair may be listed several times: those of triplets are, with each of their partners."""
    parts = checked(indices)
    if len(parts) == 3:
        return True
    pairs = (torch.stack(parts[:2]), torch.stack(parts[2:]))
    return any(torch.unique(half, dim=1).shape[1] < half.shape[1] for half in pairs)


def listed_pairs(
    x: Tensor, labels: Tensor | None, indices: Indices | None, ref: Tensor, ref_labels: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return pairs (a1, p, a2, n): those of the indices, as often as they are listed, or else all of `pair_masks`."""
    if indices is not None:
        parts = checked(indices)
        if len(parts) == 3:
            a, p, n = parts
            return a, p, a, n
        a1, p, a2, n = parts
        return a1, p, a2, n
    pos, neg = pair_masks(x, labels, None, ref, ref_labels)
    a1, p = pos.nonzero(as_tuple=True)
    a2, n = neg.nonzero(as_tuple=True)
    return a1, p, a2, n


def pair_counts(
    x: Tensor, labels: Tensor | None, indices: Indices | None, ref: Tensor, ref_labels: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return how often each similar and each dissimilar pair counts, (n, m) numbers: as often as it is listed."""
    a1, p, a2, n = listed_pairs(x, labels, indices, ref, ref_labels)
    counts = []
    for anchors, others in ((a1, p), (a2, n)):
        none = x.new_zeros(len(x), len(ref))
        counts.append(none.index_put((anchors, others), none.new_ones(len(anchors)), accumulate=True))
    return counts[0], counts[1]


def of_all_processes(indices: Indices, n: int, m: int) -> tuple[Tensor, ...]:
    """Return the indices that all processes list, counted in the batch and the references of all.

    Parameters
    ----------
    indices : 3 or 4 tensors
        The indices of this process, counted in its own part.
    n, m : int
        The number of samples and of references of this process.
    """
    parts = checked(indices)
    first_sample = distributed.part_of(distributed.numbers_of_rows(n, parts[0].device)).start
    first_reference = distributed.part_of(distributed.numbers_of_rows(m, parts[0].device)).start
    anchors = (0,) if len(parts) == 3 else (0, 2)
    # indices of a process count from its own first row; rows of all are gathered in the order of processes
    shifts = [first_sample if place in anchors else first_reference for place in range(len(parts))]
    return tuple(distributed.gather_rows(part + shift) for part, shift in zip(parts, shifts, strict=True))


def sample_weights(indices: Indices, n: int, *, anchors_only: bool = False) -> Tensor:
    """Return how often each of n samples is in the indices, or is an anchor, over the largest number; 1 if none is."""
    parts = checked(indices)
    if anchors_only:
        parts = [parts[0]] if len(parts) == 3 else [parts[0], parts[2]]
    counted = torch.bincount(torch.cat(parts), minlength=n)[:n].double()
    if not len(torch.cat(parts)):
        return torch.ones_like(counted)
    return counted / counted.max()


class GivenTriplets:
    """A miner that gives listed triplets, for one batch.

    Parameters
    ----------
    anchor, positive, negative : (t,) integers
    n : int
        Samples of the batch.
    """

    def __init__(self, anchor: Tensor, positive: Tensor, negative: Tensor, n: int) -> None:
        # ragged lists of triplets as (n, width) matrices: triplet j of anchor i is at (i, j), and `keep` has no others
        order = anchor.argsort(stable=True)
        anchor = anchor[order]
        starts = torch.searchsorted(anchor, torch.arange(n, device=anchor.device))
        place = torch.arange(len(anchor), device=anchor.device) - starts[anchor]
        width = int(place.max()) + 1 if len(anchor) else 0
        self.positive = anchor.new_zeros(n, width)
        self.negative = anchor.new_zeros(n, width)
        self.keep = torch.zeros(n, width, dtype=torch.bool, device=anchor.device)
        self.positive[anchor, place] = positive[order]
        self.negative[anchor, place] = negative[order]
        self.keep[anchor, place] = True

    def __call__(self, rows: Rows) -> Rows:
        own = slice(rows.first, rows.first + len(rows.d))
        return rows._replace(triplets=Triplets(self.positive[own], self.negative[own], self.keep[own]))


def pair_masks(
    x: Tensor, labels: Tensor | None, indices: Indices | None, ref: Tensor, ref_labels: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the (n, m) masks of similar and of dissimilar pairs, of the indices where there are any, else of labels.

    Where `ref` is the very tensor `x`, no sample is a pair with itself.
    """
    if indices is not None:
        relation = relation_of(indices, len(x), len(ref))
        return relation == 1, relation == 0
    assert labels is not None
    assert ref_labels is not None
    pos = labels[:, None] == ref_labels
    neg = ~pos
    if ref is x:
        pos.fill_diagonal_(False)
    return pos, neg
