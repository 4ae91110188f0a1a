"""Which samples are similar: the masks that every pair and triplet loss reads.

Labels are of one of three kinds: classes (an integer per sample, -1 if unknown), a relation matrix (1 similar, 0
dissimilar, -1 unknown, one row per anchor and one column per reference), or label sets (two samples are similar if
their sets overlap).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, NamedTuple, TypeAlias, TypeGuard

import numpy as np
import torch
from torch import Tensor

from .. import distributed
from ..autograd import traced

UNKNOWN = -1
MAX_LISTED_LABELS = 512  # up to so many labels, a list is faster to read than an array
MAX_COMPARISONS_WITHOUT_NUMPY = 1 << 16  # up to so many comparisons, PyTorch is as fast as NumPy


class LabelSets(NamedTuple):
    """Several labels per sample.

    Attributes
    ----------
    hot : Tensor
        (n, C) multi-hot matrix. Losses also accept arrays.
    overlap : float
        Two samples are similar if the Jaccard index of their label sets exceeds this value. With 0, they are similar if
        they share a label.
    """

    hot: Tensor
    overlap: float = 0.0

    @classmethod
    def of(cls, sets: Sequence[Sequence[int]], num_classes: int | None = None, overlap: float = 0.0) -> LabelSets:
        """Build the multi-hot matrix from one collection of class numbers per sample."""
        try:
            sets = [[index(label) for label in labels] for labels in sets]
        except TypeError as error:
            expected = "expected a list of class numbers for each sample"
            raise ValueError(f"sets: {expected}, got {sets!r:.60}") from error
        width = num_classes or 1 + max((max(labels, default=0) for labels in sets), default=0)
        hot = torch.zeros(len(sets), width)
        rows = [row for row, labels in enumerate(sets) for _ in labels]
        columns = [label for labels in sets for label in labels]
        wrong = [label for label in columns if not 0 <= label < width]
        if wrong:
            raise ValueError(f"sets: labels must be in 0..{width - 1}, got {wrong[0]}; an empty set is unknown")
        hot[rows, columns] = 1.0
        return cls(hot, overlap)

    def __len__(self) -> int:
        return len(self.hot)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> LabelSets:
        """Return the same sets on a device."""
        return LabelSets(self.hot.to(device, non_blocking=non_blocking), self.overlap)


Labels: TypeAlias = Tensor | LabelSets


def of_pairs(n: int, similar: Tensor | Sequence[Any], dissimilar: Tensor | Sequence[Any]) -> Tensor:
    """Return the (n, n) relation matrix of n samples in which only the listed pairs are known.

    Parameters
    ----------
    n : int
        Number of samples.
    similar, dissimilar : (m, 2) integers
        Numbers of the two samples of each pair, in any order. Either list may be empty.

    Raises
    ------
    ValueError
        If the pairs have another shape or dtype, a number is not in 0..n-1, or a pair is in both lists.

    Examples
    --------
    >>> of_pairs(3, similar=torch.tensor([[0, 1]]), dissimilar=torch.tensor([[2, 1]]))
    tensor([[-1,  1, -1],
            [ 1, -1,  0],
            [-1,  0, -1]])
    """
    near = _pairs("similar", similar, n)
    far = _pairs("dissimilar", dissimilar, n)
    relation = torch.full((n, n), UNKNOWN, device=near.device)
    for pairs, kind in ((near, 1), (far, 0)):
        i, j = pairs.T
        if kind == 0 and (relation[i, j] == 1).any():
            both = pairs[relation[i, j] == 1][0].tolist()
            raise ValueError(f"dissimilar: the pair {both} is also in similar")
        relation[i, j] = relation[j, i] = kind
    return relation


def _pairs(name: str, listed: Tensor | Sequence[Any], n: int) -> Tensor:
    """Return checked pairs (m, 2)."""
    try:
        pairs = torch.as_tensor(listed)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name}: expected integers of shape (m, 2), got {listed!r:.40}") from error
    if pairs.shape == (0,):
        return pairs.new_empty(0, 2, dtype=torch.long)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.is_floating_point() or pairs.dtype == torch.bool:
        raise ValueError(f"{name}: expected integers of shape (m, 2), got {pairs.dtype} of shape {tuple(pairs.shape)}")
    if pairs.numel() and not 0 <= int(pairs.min()) <= int(pairs.max()) < n:
        raise ValueError(f"{name}: samples have numbers 0..{n - 1}, got {int(pairs.min())}..{int(pairs.max())}")
    return pairs.long()


def labeled(labels: Labels) -> int:
    """Return the number of labeled samples."""
    return len(labels.hot) if isinstance(labels, LabelSets) else len(labels)


def is_classes(labels: Labels) -> bool:
    """Return whether the supervision is one class label per sample."""
    return isinstance(labels, Tensor) and labels.ndim == 1


def is_relation(labels: Labels) -> TypeGuard[Tensor]:
    """Return whether the supervision is a relation matrix."""
    return isinstance(labels, Tensor) and labels.ndim == 2


def masks(labels: Labels, ref_labels: Labels, rows: slice) -> tuple[Tensor, Tensor]:
    """Return the (b, m) masks of similar and dissimilar references for the anchors in `rows`.

    A pair with an unknown member is in neither mask. The anchor itself is not taken out here.
    """
    if isinstance(labels, LabelSets):
        assert isinstance(ref_labels, LabelSets)
        return _of_sets(labels, ref_labels.hot, rows)
    assert isinstance(ref_labels, Tensor)
    if labels.ndim == 2:
        relation = labels[rows]
        # of several processes, none may stop at its own rows while the others wait for it
        _check_degrees(relation if distributed.world() == 1 else labels)
        return relation > 0, relation == 0
    # (b, 1), (m,)
    mine = labels[rows].unsqueeze(1)
    theirs = ref_labels
    if labels.device.type != "cpu" or traced():
        same = mine == theirs
    else:
        same = _equal(mine, theirs)
        # asked on the host only: to read a label from a device would wait for it
        if _all_known(labels) and (ref_labels is labels or _all_known(ref_labels)):
            return same, ~same
    known = (mine != UNKNOWN) & (theirs != UNKNOWN)
    return same & known, ~same & known


def _check_degrees(relation: Tensor) -> None:
    """Raise if a relation matrix holds degrees of similarity; checked on the CPU only, to make no device wait."""
    if not relation.is_floating_point() or relation.device.type != "cpu" or traced():
        return
    between = relation[(relation > 0) & (relation < 1)]
    if len(between):
        got = f"the relation matrix has degrees between 0 and 1, first {float(between[0]):.3g}"
        raise ValueError(f"labels: {got}; only GeneralizedContrastiveLoss learns from degrees, others from 1, 0 and -1")


def _equal(mine: Tensor, theirs: Tensor) -> Tensor:
    """Compare classes on a CPU; if there are many, with NumPy, and in 16 bits if they fit: several times as fast."""
    if mine.shape[0] * theirs.shape[0] < MAX_COMPARISONS_WITHOUT_NUMPY:
        return mine == theirs
    a = mine.numpy()
    b = theirs.numpy()
    if max(a.max(), b.max(), -a.min(), -b.min()) < 2**15:
        a = a.astype(np.int16)
        b = b.astype(np.int16)
    return torch.from_numpy(a == b)


def _all_known(labels: Tensor) -> bool:
    """Return whether no label, on a CPU, is unknown."""
    if labels.shape[0] < MAX_LISTED_LABELS:
        return UNKNOWN not in labels.tolist()
    return UNKNOWN not in labels.numpy()


def _check_hot(hot: Tensor) -> None:
    """Raise unless label sets hold numbers from 0 to 1; checked on the CPU only, to make no device wait."""
    if hot.device.type != "cpu" or traced() or not hot.numel() or hot.dtype == torch.bool:
        return
    least, largest = (float(end) for end in hot.aminmax())
    if not (least >= 0 and largest <= 1):
        got = least if least < 0 else largest
        raise ValueError(f"labels: LabelSets need numbers from 0 to 1, got {got:g}; an unknown sample has a row of 0")


def _of_sets(labels: LabelSets, ref_hot: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
    hot = labels.hot[rows].float()
    # of several processes, none may stop at its own rows while the others wait for it
    _check_hot(hot if distributed.world() == 1 else labels.hot)
    ref_hot = ref_hot.float()
    shared = hot @ ref_hot.T  # (b, m) sizes of the intersections
    sizes = hot.sum(1)[:, None]
    ref_sizes = ref_hot.sum(1)[None]
    known = (sizes > 0) & (ref_sizes > 0)  # an empty set is unknown
    # Jaccard index |A & B| / |A | B| > overlap, without the division
    similar = shared > labels.overlap * (sizes + ref_sizes - shared)
    return similar & known, ~similar & known
