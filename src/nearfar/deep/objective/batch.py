"""The batch that every term of an objective receives: validated, and in float32 or float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ...labels import as_array
from .. import distributed
from ..autograd import traced
from .relations import MAX_LISTED_LABELS, UNKNOWN, Labels, LabelSets, is_classes, is_relation, labeled

AnyLabels: TypeAlias = Labels | Sequence[int]
NO_TUPLES = (  # in pytorch-metric-learning, the third argument is the tuple of indices that a miner returns
    "takes embeddings and labels, and all else by name (ref=, ref_labels=, pooled=, ids=); instead of tuples of "
    "indices a loss has a miner, TripletLoss(miner=BatchHard()), or takes a relation matrix as its labels"
)


class Batch(NamedTuple):
    """The global batch; with several processes, it holds the samples of all of them, in rank order.

    Attributes
    ----------
    x : (n, d) tensor
        Raw embeddings. Losses that compare directions normalize them themselves.
    y : (n,) tensor, (n, m) tensor or LabelSets
        Labels: classes (-1 if unknown), a relation matrix, or label sets.
    anchors : slice
        Rows of `x` that this process computes.
    pooled : (n, D) tensor or None
        Features of the trunk, if given.
    scores : (n, C) tensor or None
        Class scores that a proxy loss of the same objective publishes.
    ids : (n,) tensor or None
        Number of each row's sample in the data set, if given.
    ref, ref_y : tensors or None
        Reference to compare with and its labels, if given. If None, the batch itself is the reference.
    ref_ids : (m,) tensor or None
        Sample number of each row of `ref`, -1 if unknown. The same sample is neither similar nor dissimilar.
    centers : (K, C, d) tensor or None
        K centers of each of C classes, from a loss with class proxies in the same objective.
    given : bool
        Whether `x`, (n, m), holds the dissimilarities to the m references, instead of embeddings.
    """

    x: Tensor
    y: Labels
    anchors: slice
    pooled: Tensor | None = None
    scores: Tensor | None = None
    ref: Tensor | None = None
    ref_y: Labels | None = None
    ids: Tensor | None = None
    ref_ids: Tensor | None = None
    centers: Tensor | None = None
    given: bool = False

    def classes(self, who: str) -> Tensor:
        """Return the (n,) class labels, or raise if the labels are of another kind; `who` begins the message."""
        if not is_classes(self.y):
            raise ValueError(f"{who}: labels must be one class per sample, got a relation or label sets")
        assert isinstance(self.y, Tensor)
        return self.y

    def class_numbers(self, who: str, num_classes: int) -> Tensor:
        """Return the (n,) class labels, or raise if one is `num_classes` or more (checked on the CPU)."""
        y = self.classes(who)
        check_range(f"{who}: labels", y, num_classes)
        return y

    def known(self, who: str) -> Batch:
        """Return the batch without the samples of unknown class."""
        y = self.classes(who)
        keep = y != UNKNOWN
        if bool(keep.all()):
            return self
        return self._replace(
            x=self.x[keep],
            y=y[keep],
            pooled=_rows_where(self.pooled, keep),
            scores=_rows_where(self.scores, keep),
            ids=_rows_where(self.ids, keep),
        )


def _rows_where(part: Tensor | None, keep: Tensor) -> Tensor | None:
    return None if part is None else part[keep]


def check_distances(distances: object) -> None:
    """Raise unless dissimilarities are a finite (n, m) float tensor."""
    if not isinstance(distances, Tensor):
        raise TypeError(f"distances: expected a (n, m) float tensor, got {type(distances).__name__}")
    _floats("distances", distances, columns="m")


def stand_in(distances: Tensor) -> Tensor:
    """Return zeros (m, m) that take no memory, in the place of the m references of given dissimilarities (n, m)."""
    m = distances.shape[1]
    return distances.new_zeros(1, 1).expand(m, m)


def check_range(name: str, numbers: Tensor, end: int) -> None:
    """Raise unless the numbers are in 0..end - 1, or unknown (-1).

    They are checked on the CPU only: reading them from a device would make the host wait.
    """
    n = numbers.shape[0]
    if numbers.device.type != "cpu" or not n or traced():
        return
    if n < MAX_LISTED_LABELS:
        listed = numbers.tolist()
        # a list is faster than two reductions for a few labels
        lo = min(listed)
        hi = max(listed)
    else:
        lo = int(numbers.numpy().min())
        hi = int(numbers.numpy().max())
    if lo < UNKNOWN:
        raise ValueError(f"{name} must be in 0..{end - 1}, got {lo}; -1 is an unknown class")
    if hi >= end:
        raise ValueError(f"{name} must be in 0..{end - 1}, got {hi}")


def make_batch(
    embeddings: Tensor,
    labels: AnyLabels,
    ref: Tensor | None,
    ref_labels: AnyLabels | None,
    pooled: Tensor | None,
    ids: Tensor | Sequence[int] | None = None,
    *,
    ref_replicated: bool = False,
) -> Batch:
    """Validate the samples of one process and return them as a batch.

    `gathering.gathered` joins such batches of several processes.
    """
    check_tensor("embeddings", embeddings)
    if embeddings.ndim == 3 and getattr(labels, "shape", None) == embeddings.shape[:2]:
        got = f"got a batch of batches, {tuple(embeddings.shape)}"
        raise ValueError(f"embeddings: {got}; samplers are for DataLoader(batch_sampler=...), not for sampler=")
    x = _floats("embeddings", embeddings)
    n = x.shape[0]
    if ref is None and ref_labels is not None:
        raise ValueError("ref: needed with ref_labels, one row per label")
    if ref_replicated and (ref is None or ref is embeddings):
        raise ValueError("ref_replicated: needs ref=, rows that are the same in every process")
    y = _labels("labels", labels, n, x.device)
    if pooled is not None:
        pooled = _pooled(pooled, n)
    if ids is not None:
        ids = _ids(ids, n, x.device)
    if ref is not None and ref_labels is None and is_relation(y):
        ref_labels = torch.full((len(ref),), UNKNOWN)  # a relation matrix needs no labels of references
    if ref is embeddings:
        # `_floats` may have made another tensor of it
        ref = x  # remains one tensor, by which losses recognize the batch as its own reference
    ref, ref_y = _reference(x, ref, ref_labels)
    _check_kinds(y, ref_y)
    if is_relation(y):
        if distributed.world() == 1:  # with several, a process may have columns for its own references only
            check_columns(y, n if ref is None else len(ref))
        _check_entries(y)
        _check_one_hot(y, ref)
    return Batch(x, y, slice(0, n), pooled, ref=ref, ref_y=ref_y, ids=ids)


def check_tensor(name: str, x: object) -> None:
    """Raise unless x is a tensor."""
    if isinstance(x, Tensor):
        return
    advice = ""
    if isinstance(x, (np.ndarray, list)):
        advice = "; torch.as_tensor makes one"
    elif isinstance(x, Mapping):  # such as the outputs of a model of transformers
        advice = f"; pass one of its entries, {', '.join(map(repr, x))}"
    raise TypeError(f"{name}: expected a (n, d) float tensor, got {type(x).__name__}{advice}")


def check_width(who: str, x: object, width: int) -> None:
    """Raise unless x is a (n, width) tensor of embeddings."""
    check_tensor("embeddings", x)
    assert isinstance(x, Tensor)
    if x.ndim == 2 and not x.is_floating_point():
        raise ValueError(_not_floats("embeddings", x, "d"))
    if x.ndim != 2 or x.shape[1] != width:
        if x.ndim == 2:
            got = f"have {x.shape[1]}"
        else:
            got = f"have shape {tuple(x.shape)}"
        raise ValueError(f"{who}: embedding_dim is {width}, embeddings {got}")


def _pooled(pooled: Tensor, n: int) -> Tensor:
    """Return pooled features as (n, D) floats; maps of (n, D, h, w) are flattened."""
    check_tensor("pooled", pooled)
    if pooled.ndim > 2:
        pooled = pooled.flatten(1)
    rows = _floats("pooled", pooled)
    if len(rows) != n:
        raise ValueError(f"pooled: expected one row per embedding, {n}, got {len(rows)}")
    return rows


def _ids(ids: Tensor | Sequence[int], n: int, device: torch.device) -> Tensor:
    numbers = _numbers("ids", ids, device, "(n,) integers")
    if numbers.shape != (n,) or numbers.is_floating_point():
        raise ValueError(f"ids: expected ({n},) integers, got {numbers.dtype} of shape {tuple(numbers.shape)}")
    return numbers.long()


def _reference(x: Tensor, ref: Tensor | None, ref_labels: AnyLabels | None) -> tuple[Tensor | None, Labels | None]:
    if ref is None:
        return None, None
    if ref_labels is None:
        raise ValueError("ref_labels: needed with ref, one label per row")
    ref = _floats("ref", ref).to(x.dtype)
    if ref.shape[1] != x.shape[1]:
        raise ValueError(f"ref: expected {x.shape[1]} columns like the embeddings, got {ref.shape[1]}")
    return ref, _labels("ref_labels", ref_labels, len(ref), x.device)


def _check_kinds(y: Labels, ref_y: Labels | None) -> None:
    """Raise unless samples and references have labels of one kind; a relation matrix needs none of references."""
    if isinstance(y, LabelSets):
        widths = [labels.hot.shape[1] for labels in (y, ref_y) if isinstance(labels, LabelSets)]
        if ref_y is not None and (len(widths) < 2 or widths[0] != widths[1]):
            raise ValueError(f"ref_labels: expected LabelSets of {widths[0]} columns like the labels")
    elif ref_y is not None and is_relation(y) and not is_classes(ref_y):
        raise ValueError("ref_labels: expected one class per row, or none with a relation matrix, got another matrix")
    elif ref_y is not None and is_classes(y) and not is_classes(ref_y):
        raise ValueError("ref_labels: expected one class per row like the labels, got a relation or label sets")


def check_columns(y: Labels, number: int) -> None:
    """Raise unless a relation matrix has one column for each of a number of references."""
    if is_relation(y) and y.shape[1] != number:
        expected = f"the relation matrix needs one column per reference, {number}, got {y.shape[1]}"
        if y.shape[1] == 1:
            advice = "labels.flatten()"
        else:
            advice = "labels.argmax(1) of one-hot rows; several labels per sample are LabelSets(labels)"
        raise ValueError(f"labels: {expected}; classes are (n,) integers, {advice}")


def _check_entries(y: Labels) -> None:
    if not is_relation(y) or y.device.type != "cpu" or traced():
        return
    if y.numel() and bool(y.amax() > 1):
        expected = f"the relation matrix holds numbers up to 1, which says the same, got {float(y.amax()):.3g}"
        raise ValueError(f"labels: {expected}; divide scores by their maximum")


def _check_one_hot(y: Tensor, ref: Tensor | None) -> None:
    """Raise if a relation of a batch with itself has one-hot rows and is not symmetric, so that it has classes."""
    if ref is not None or y.shape[0] != y.shape[1] or y.device.type != "cpu" or traced():
        return
    if bool(((y == 1).sum(1) == 1).all() & ((y != 0).sum(1) == 1).all()) and not torch.equal(y, y.T):
        detail = "each row has a single 1, and the matrix is not symmetric, as for classes in one-hot rows"
        raise ValueError(f"labels: {detail}; pass labels.argmax(1), or -1 where a relation is unknown")


def _floats(name: str, x: Tensor, columns: str = "d") -> Tensor:
    check_tensor(name, x)
    if x.layout != torch.strided:
        raise ValueError(f"{name}: expected a dense tensor, got {x.layout}; x.to_dense() makes one")
    if x.ndim != 2 or not x.is_floating_point():
        raise ValueError(_not_floats(name, x, columns))
    if x.dtype != torch.float64:
        x = x.float()
    host = x.device.type == "cpu" and not traced()
    # one entry that is not finite makes the sum not finite, and a sum takes less time than a test of every entry
    if host and not isfinite(float(x.detach().sum())):
        bad = int((~x.detach().isfinite().all(1)).sum())
        if bad:
            raise ValueError(f"{name}: {bad} of {len(x)} rows are not finite")
    return x


def _not_floats(name: str, x: Tensor, columns: str) -> str:
    """Return the text of the error for a tensor of another dtype or shape."""
    advice = ""
    if x.is_complex():
        advice = "; torch.view_as_real(x).flatten(1) has the same Euclidean distances"
    return f"{name}: expected a (n, {columns}) float tensor, got {x.dtype} of shape {tuple(x.shape)}{advice}"


def _numbers(
    name: str,
    labels: Tensor | Sequence[int],
    device: torch.device,
    expected: str = "(n,) integers or a relation matrix",
) -> Tensor:
    """Return labels of any kind as a tensor on a device."""
    if isinstance(labels, Tensor):
        return labels.to(device)
    try:
        values = as_array(labels, name)
        # a copy, because columns of pandas and Arrow cannot be written to; rows of a relation may be tuples
        return torch.as_tensor(np.array(values.tolist() if values.dtype == object else values), device=device)
    except (TypeError, ValueError, RuntimeError) as error:
        got = f"expected {expected}, got {labels!r:.40}"
        numbered = "np.unique(classes, return_inverse=True)[1] numbers classes, once for all samples"
        raise ValueError(f"{name}: {got}; {numbered}") from error


def _labels(name: str, labels: AnyLabels, n: int, device: torch.device) -> Labels:
    if isinstance(labels, LabelSets):
        hot = _numbers(name, labels.hot, device)
        if hot.ndim != 2:
            raise ValueError(f"{name}: LabelSets need a (n, C) matrix, got shape {tuple(hot.shape)}")
        y: Labels = LabelSets(hot, labels.overlap)
        number = labeled(y)
    else:
        y = _numbers(name, labels, device)
        if y.ndim not in (1, 2) or (y.ndim == 1 and y.is_floating_point()):
            got = f"{y.dtype} of shape {tuple(y.shape)}"
            advice = "; classes are integers, labels.long()" if y.ndim == 1 else ""
            raise ValueError(f"{name}: expected (n,) integers or a relation matrix, got {got}{advice}")
        if y.ndim == 1:
            y = y.long()
        number = y.shape[0]
    if number != n:
        raise ValueError(f"{name}: expected one per embedding, {n}, got {number}")
    return y
