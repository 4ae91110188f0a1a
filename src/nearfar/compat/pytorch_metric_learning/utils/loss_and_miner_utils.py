"""Tuples of indices: three tensors are triplets (a, p, n), four are pairs (a1, p, a2, n)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from ..indices import checked, sample_weights

Pairs: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor]
Triplets: TypeAlias = tuple[Tensor, Tensor, Tensor]


def logsumexp(x: Tensor, keep_mask: Tensor | None = None, add_one: bool = True, dim: int = 1) -> Tensor:
    """Return log sum exp of the kept numbers, and of 0 with `add_one`, with `dim` kept; 0 where nothing is kept."""
    keep = torch.ones_like(x, dtype=torch.bool) if keep_mask is None else keep_mask.bool()
    if add_one:
        shape = list(x.shape)
        shape[dim] = 1
        x = torch.cat([x, x.new_zeros(shape)], dim=dim)
        keep = torch.cat([keep, keep.new_ones(shape)], dim=dim)
    some = keep.any(dim=dim, keepdim=True)
    # a row without numbers takes part as zeros, so that neither its value nor its gradient is NaN
    shown = torch.where(keep, x, torch.where(some, -torch.inf, 0.0))
    found = torch.logsumexp(shown, dim=dim, keepdim=True)
    return torch.where(some, found, 0.0)


def get_matches_and_diffs(labels: Tensor, ref_labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the (n, m) masks of pairs of one class, no sample with itself, and of pairs of two classes."""
    itself = ref_labels is None or ref_labels is labels
    others = labels if ref_labels is None else ref_labels
    matches = labels[:, None] == others[None, :]
    diffs = ~matches
    if itself:
        matches.fill_diagonal_(False)
    return matches, diffs


def get_all_pairs_indices(labels: Tensor, ref_labels: Tensor | None = None) -> Pairs:
    """Return the indices of all pairs."""
    matches, diffs = get_matches_and_diffs(labels, ref_labels)
    a1, p = matches.nonzero(as_tuple=True)
    a2, n = diffs.nonzero(as_tuple=True)
    return a1, p, a2, n


def convert_to_pairs(indices_tuple: Sequence[Tensor] | None, labels: Tensor, ref_labels: Tensor | None = None) -> Pairs:
    """Return pairs as they are, triplets as pairs (a, p, a, n), and all pairs where there are no indices."""
    if indices_tuple is None:
        return get_all_pairs_indices(labels, ref_labels)
    parts = checked(indices_tuple)
    if len(parts) == 3:
        a, p, n = parts
        return a, p, a, n
    a1, p, a2, n = parts
    return a1, p, a2, n


def convert_to_pos_pairs_with_unique_labels(
    indices_tuple: Sequence[Tensor] | None, labels: Tensor
) -> tuple[Tensor, Tensor]:
    """Return one positive pair (a, p) of each class, the first that the indices list."""
    a, p, _, _ = convert_to_pairs(indices_tuple, labels)
    order = labels[a].argsort(stable=True)
    sorted_labels = labels[a][order]
    first = torch.ones_like(sorted_labels, dtype=torch.bool)
    first[1:] = sorted_labels[1:] != sorted_labels[:-1]
    chosen = order[first]
    return a[chosen], p[chosen]


def pos_pairs_from_tuple(indices_tuple: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the positive pairs of a tuple of indices."""
    return indices_tuple[0], indices_tuple[1]


def neg_pairs_from_tuple(indices_tuple: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the negative pairs of a tuple of indices."""
    return (indices_tuple[0], indices_tuple[2]) if len(indices_tuple) == 3 else (indices_tuple[2], indices_tuple[3])


def joined(a1: Tensor, p: Tensor, a2: Tensor, n: Tensor) -> Triplets:
    """Return the triplets of each positive pair with each negative pair of its anchor, in the order of the pairs."""
    anchors = int(torch.cat([a1, a2]).max()) + 1 if len(a1) and len(a2) else 0
    if not anchors:
        return a1[:0], p[:0], n[:0]
    order = a2.argsort(stable=True)
    counts = torch.bincount(a2, minlength=anchors)
    starts = counts.cumsum(0) - counts
    negatives = counts[a1]  # of each positive pair
    pair = torch.repeat_interleave(torch.arange(len(a1), device=a1.device), negatives)
    before = negatives.cumsum(0) - negatives
    place = torch.arange(len(pair), device=a1.device) - before[pair]
    return a1[pair], p[pair], n[order[starts[a1[pair]] + place]]


def get_all_triplets_indices(labels: Tensor, ref_labels: Tensor | None = None) -> Triplets:
    """Return the indices of all triplets."""
    return joined(*get_all_pairs_indices(labels, ref_labels))


def get_random_triplet_indices(
    labels: Tensor,
    ref_labels: Tensor | None = None,
    t_per_anchor: int | None = None,
    weights: Tensor | None = None,
) -> Triplets:
    """Draw triplets: a negative for each positive pair, or `t_per_anchor` of each anchor.

    Parameters
    ----------
    labels, ref_labels : (n,), (m,) tensors
    t_per_anchor : int, optional
        The positive is drawn, too; both with replacement.
    weights : (n, m) tensor, optional
        How likely each reference is as the negative of each anchor; where none has a weight there is no triplet.
    """
    matches, diffs = get_matches_and_diffs(labels, ref_labels)
    likely = diffs.float() if weights is None else torch.where(diffs, weights.float(), 0.0)
    valid = matches.any(1) & (likely > 0).any(1)
    if not valid.any():
        none = torch.zeros(0, dtype=torch.int64, device=labels.device)
        return none, none, none
    if t_per_anchor is None:
        a, p = (matches & valid[:, None]).nonzero(as_tuple=True)
        counts = torch.bincount(a, minlength=len(labels))
        place = torch.arange(len(a), device=a.device) - (counts.cumsum(0) - counts)[a]
        number = int(counts.max())
    else:
        a = valid.nonzero()[:, 0].repeat_interleave(t_per_anchor)
        place = torch.arange(len(a), device=a.device) % t_per_anchor
        number = t_per_anchor
        rows = valid.nonzero()[:, 0]
        p = torch.multinomial(matches[rows].float(), number, replacement=True).flatten()
    row_of = valid.cumsum(0) - 1  # the place of a valid anchor among these
    drawn = torch.multinomial(likely[valid], number, replacement=True)
    return a, p, drawn[row_of[a], place]


def convert_to_triplets(
    indices_tuple: Sequence[Tensor] | None,
    labels: Tensor,
    ref_labels: Tensor | None = None,
    t_per_anchor: int | str = 100,
) -> Triplets:
    """Return triplets as they are, those of pairs with a common anchor, and without indices all or drawn ones.

    Parameters
    ----------
    indices_tuple : 3 or 4 tensors, optional
    labels, ref_labels : (n,), (m,) tensors
    t_per_anchor : int or "all"
        Without indices, how many triplets of each anchor are drawn.
    """
    if indices_tuple is None:
        if t_per_anchor == "all":
            return get_all_triplets_indices(labels, ref_labels)
        return get_random_triplet_indices(labels, ref_labels, t_per_anchor=int(t_per_anchor))
    parts = checked(indices_tuple)
    if len(parts) == 3:
        a, p, n = parts
        return a, p, n
    return joined(*parts)


def convert_to_weights(
    indices_tuple: Sequence[Tensor] | None, labels: Tensor, dtype: torch.dtype, using_ref: bool = False
) -> Tensor:
    """Return how often each of n samples is in the indices, or is an anchor, over the largest number; 1 if none is."""
    if indices_tuple is None:
        return torch.ones(len(labels), dtype=dtype, device=labels.device)
    return sample_weights(indices_tuple, len(labels), anchors_only=using_ref).to(dtype)


def remove_self_comparisons(
    indices_tuple: Sequence[Tensor], curr_batch_idx: Tensor, ref_size: int, ref_is_subset: bool = False
) -> tuple[Tensor, ...]:
    """Leave out pairs and triplets whose positive is the anchor itself.

    Parameters
    ----------
    indices_tuple : 3 or 4 tensors
    curr_batch_idx : (n,) integers
        Where each sample is among the references; with `ref_is_subset` where each reference is among the samples.
    ref_size : int
        The number of references, which is not needed here.
    ref_is_subset : bool
    """
    parts = checked(indices_tuple)
    a, p = parts[0], parts[1]
    keep = curr_batch_idx[p] != a if ref_is_subset else curr_batch_idx[a] != p
    if len(parts) == 3:
        return tuple(part[keep] for part in parts)
    return a[keep], p[keep], parts[2], parts[3]


def get_anchors(indices_tuple: Sequence[Tensor]) -> Tensor:
    """Return the anchors of triplets, or of positive and then of negative pairs."""
    return indices_tuple[0] if len(indices_tuple) == 3 else torch.cat([indices_tuple[0], indices_tuple[2]])
