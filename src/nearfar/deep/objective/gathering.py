"""The batch of all processes, from the part that each holds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from .. import distributed
from ..autograd import traced
from .batch import AnyLabels, Batch, check_columns, make_batch
from .relations import UNKNOWN, Labels, LabelSets, is_relation

MAX_ERROR_LENGTH = 2000  # bytes of an error that travel to other processes


class Outline(NamedTuple):
    """What a process announces of its part, as numbers, before the parts are gathered."""

    refused: float  # bytes of the message of the error that its arguments raised; 0 if they are valid
    rows: float
    ref_rows: float
    relation_columns: float  # 0 unless the labels are a relation matrix
    embedding_columns: float
    pooled_columns: float  # -1 without pooled features
    label_kind: float  # 0: classes, 1: relation matrix, 2: label sets
    set_columns: float
    overlap: float
    has_ref: float
    ref_is_batch: float
    ref_replicated: float
    has_ids: float
    precision: float
    pooled_precision: float
    gradient: float
    ref_gradient: float
    pooled_gradient: float


ALIKE = {  # what must be the same in all processes, and the error if it is not
    "embedding_columns": "embeddings: every process needs the same number of columns",
    "pooled_columns": "pooled: every process needs the same number of columns, -1 being none",
    "label_kind": "labels: every process needs one kind (0 classes, 1 a relation matrix, 2 label sets)",
    "set_columns": "labels: the label sets of every process need the same number of columns",
    "overlap": "labels: the label sets of every process need the same overlap",
    "has_ref": "ref: every process or none needs a reference (1 has one)",
    "ref_is_batch": "ref: in every process or in none it is the embeddings themselves (1 where it is)",
    "ref_replicated": "ref_replicated: every process needs the same setting",
    "has_ids": "ids: every process or none needs them (1 has them)",
    "precision": "embeddings: every process needs the same bytes per number",
    "pooled_precision": "pooled: every process needs the same bytes per number",
    "gradient": "embeddings: every process or none needs a gradient (1 needs one)",
    "ref_gradient": "ref: every process or none needs a gradient (1 needs one)",
    "pooled_gradient": "pooled: every process or none needs a gradient (1 needs one)",
}


def global_batch(
    embeddings: Tensor,
    labels: AnyLabels,
    ref: Tensor | None,
    ref_labels: AnyLabels | None,
    pooled: Tensor | None,
    ids: Tensor | Sequence[int] | None,
    *,
    ref_replicated: bool = False,
) -> Batch:
    """Validate the part of this process, and return the batch of all processes.

    Raises
    ------
    ValueError
        If the parts do not form one batch, or a process rejects its part. With several processes, all of them raise the
        same error, so that none waits for another that has stopped.
    """
    own_part = partial(make_batch, embeddings, labels, ref, ref_labels, pooled, ids, ref_replicated=ref_replicated)
    if distributed.world() == 1:
        return own_part()
    if traced():
        return gathered(own_part(), ref_replicated)
    try:
        batch = own_part()
    except (TypeError, ValueError, RuntimeError) as error:
        raise refused(error) from error
    return gathered(batch, ref_replicated)


def gathered(batch: Batch, ref_replicated: bool = False) -> Batch:
    """Return the batch of all processes; this process computes the anchors that it contributed.

    Parameters
    ----------
    batch : Batch
        Part of this process.
    ref_replicated : bool
        Whether the reference is the same in all processes instead of a part of it.

    Raises
    ------
    ValueError
        If the parts do not form one batch. All processes raise the same error.
    """
    if distributed.world() == 1:
        check_columns(batch.y, len(batch.x) if batch.ref is None else len(batch.ref))
        return batch
    # first the sizes and kinds, so that all processes either gather the same tensors or raise the same error
    outlines = _outlines(_outline(batch, ref_replicated))
    sizes = [int(outline.rows) for outline in outlines]
    ref_sizes = [int(outline.ref_rows) for outline in outlines]
    if ref_replicated and len(set(ref_sizes)) > 1:
        raise ValueError(f"ref_replicated: every process needs the same reference, got {ref_sizes} rows")
    # (k, d) of this process -> (n, d), n = the sum of all sizes, in the order of the ranks
    parts: dict[str, tuple[Tensor, list[int]]] = {"x": (batch.x, sizes)}
    if batch.pooled is not None:
        parts["pooled"] = (batch.pooled, sizes)
    if batch.ref is not None and batch.ref is not batch.x and not ref_replicated:
        parts["ref"] = (batch.ref, ref_sizes)
    # one call for all tensors with a gradient, whose backward passes then run in the same order in every process
    found = distributed.gather_parts([part for part, _ in parts.values()], [size for _, size in parts.values()])
    whole = dict(zip(parts, found, strict=True))
    if batch.ref is batch.x:
        ref: Tensor | None = whole["x"]
    else:
        ref = whole.get("ref", batch.ref)
    y = batch.y
    ref_y = batch.ref_y
    if is_relation(y):
        columns = [int(outline.relation_columns) for outline in outlines]
        if batch.ref is None:
            ref_sizes = sizes
        number = len(whole["x"]) if ref is None else len(ref)
        y = _whole_relation(y, sizes, columns, ref_sizes, number, batch.x.dtype)
        # a relation matrix needs no labels of references
        ref_y = None if ref is None else torch.full((number,), UNKNOWN, device=ref.device)
    else:
        y = _whole_labels(y, sizes, batch.x.dtype)
        if ref_y is not None and not ref_replicated:
            ref_y = _whole_labels(ref_y, ref_sizes, batch.x.dtype)
    ids = None if batch.ids is None else distributed.gather_numbers(batch.ids, sizes)
    return batch._replace(
        x=whole["x"],
        y=y,
        anchors=distributed.part_of(sizes),
        pooled=whole.get("pooled"),
        ref=ref,
        ref_y=ref_y,
        ids=ids,
    )


def _outline(batch: Batch, ref_replicated: bool) -> Outline:
    relation = batch.y if is_relation(batch.y) else None
    sets = batch.y if isinstance(batch.y, LabelSets) else None
    return Outline(
        refused=0,
        rows=len(batch.x),
        ref_rows=0 if batch.ref is None else len(batch.ref),
        relation_columns=0 if relation is None else relation.shape[1],
        embedding_columns=batch.x.shape[1],
        pooled_columns=-1 if batch.pooled is None else batch.pooled.shape[1],
        label_kind=2 if sets is not None else int(relation is not None),
        set_columns=0 if sets is None else sets.hot.shape[1],
        overlap=0 if sets is None else sets.overlap,
        has_ref=batch.ref is not None,
        ref_is_batch=batch.ref is batch.x,
        ref_replicated=ref_replicated,
        has_ids=batch.ids is not None,
        precision=batch.x.element_size(),
        pooled_precision=0 if batch.pooled is None else batch.pooled.element_size(),
        gradient=_has_gradient(batch.x),
        ref_gradient=_has_gradient(batch.ref),
        pooled_gradient=_has_gradient(batch.pooled),
    )


def refused(error: Exception) -> ValueError:
    """Send an error to the other processes, which exchange outlines now, and return the one that all of them raise."""
    message = str(error).encode()[:MAX_ERROR_LENGTH]
    empty = Outline(*[0.0] * len(Outline._fields))
    return _refusal(_every_outline(empty._replace(refused=len(message))), message)


def _refusal(outlines: Sequence[Outline], own: bytes) -> ValueError:
    """Return the error of the first process that rejects its part; `own` is the message of this process."""
    sizes = [int(outline.refused) for outline in outlines]
    letters = torch.tensor(list(own), dtype=torch.uint8, device=distributed.device())
    texts = bytes(distributed.gather_numbers(letters, sizes).tolist())
    first = next(rank for rank, size in enumerate(sizes) if size)
    return ValueError(f"{texts[: sizes[first]].decode(errors='replace')} (in process {first} of {len(sizes)})")


def _has_gradient(x: Tensor | None) -> bool:
    return x is not None and x.requires_grad and torch.is_grad_enabled()


def _outlines(own: Outline) -> list[Outline]:
    """Return the outlines of all processes, or raise in all of them if the parts do not make one batch."""
    every = _every_outline(own)
    if any(outline.refused for outline in every):
        raise _refusal(every, b"")
    for name, message in ALIKE.items():
        values = [getattr(outline, name) for outline in every]
        if len(set(values)) > 1:
            raise ValueError(f"{message}, got {', '.join(f'{value:g}' for value in values)}")
    return every


def _every_outline(own: Outline) -> list[Outline]:
    # not on the device of the embeddings, which a process that rejects its part may lack
    numbers = torch.tensor([own], dtype=torch.float64, device=distributed.device())
    return [Outline(*row) for row in distributed.gather_numbers(numbers).tolist()]


def _whole_labels(y: Labels, sizes: Sequence[int], dtype: torch.dtype) -> Labels:
    """Return the class numbers or the label sets of all processes."""
    if isinstance(y, LabelSets):
        return LabelSets(distributed.gather_numbers(y.hot.to(dtype), sizes), y.overlap)
    return distributed.gather_numbers(y, sizes)


def _whole_relation(
    y: Tensor, sizes: Sequence[int], columns: Sequence[int], ref_sizes: Sequence[int], number: int, dtype: torch.dtype
) -> Tensor:
    """Return the relation matrix of all samples to all references, of which there are `number`.

    A process has a column for every reference of all processes, or only for those of its own part; its samples'
    relation to the others is then unknown.
    """
    y = y.to(dtype)
    if list(columns) == list(ref_sizes) and number not in columns:
        own = y
        # a process that only knows its own references knows nothing of the others
        y = y.new_full((len(y), number), UNKNOWN)
        y[:, distributed.part_of(ref_sizes)] = own
    elif set(columns) != {number}:
        expected = f"one column per reference, {number} of all processes or {list(ref_sizes)} of their own"
        raise ValueError(f"labels: the relation matrix needs {expected}, got {list(columns)}")
    return distributed.gather_numbers(y, sizes)
