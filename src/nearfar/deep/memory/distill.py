"""Distillation of a teacher's embeddings (Park et al., 2019; Tung & Mori, 2019).

    relational   L = 1/(n (n - 1)) sum_{i != j} (s_ij - t_ij)^2     s, t: cosines of student and of teacher
    cosine       L = 1/n sum_i (1 - cos(x_i, z_i))                  x, z: embeddings of student and of teacher

The teacher's embeddings of all training items are computed once and then looked up by the numbers of the items.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...settings import check_options
from ..objective.batch import Batch
from ..objective.terms import SetTerm
from ..unit_vectors import unit


def relational(x: Tensor, z: Tensor) -> Tensor:
    """Return the mean squared difference of the cosines of all pairs of student (n, d) and teacher (n, k)."""
    n = len(x)
    if n < 2:
        return x.sum() * 0
    student = unit(x)
    teacher = unit(z)
    # (n, n); the diagonal is 1 - 1 = 0, and not one of the n (n - 1) pairs
    difference = student @ student.T - teacher @ teacher.T
    pairs = ~torch.eye(n, dtype=torch.bool, device=x.device)
    return difference[pairs].square().mean()


def cosine(x: Tensor, z: Tensor) -> Tensor:
    """Return 1 minus the mean cosine between student and teacher, both (n, d)."""
    return 1 - (unit(x) * unit(z)).sum(1).mean()


class Distill(SetTerm):
    """Distance of the embeddings of a batch from those that a trained, larger network gives the same items.

    Parameters
    ----------
    teacher : str or (n, k) array
        Folder of a run, for use in a training run, or the teacher's embeddings of all training items in their order,
        for your own training loop.
    kind : {"relational", "cosine"}
        What is compared. "relational": the cosines of all pairs, for embeddings of any length. "cosine": each embedding
        with that of the teacher, which must have the same length.

    Raises
    ------
    ValueError
        If a batch has no `ids=`, or the lengths differ for "cosine".

    Notes
    -----
    Labels are not used. The teacher embeds each item once and without augmentation, so that training takes hardly
    longer. A run is data: custom code that its settings name runs only if it is trusted.

    Park et al. compare distances and angles, and Tung & Mori rows of the similarity matrix; here, cosines are compared,
    as in the evaluation.

    Examples
    --------
    >>> rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> term = Distill(teacher=rows)
    >>> round(float(term(3 * rows[[2, 0]], torch.tensor([0, 1]), ids=[2, 0])), 4)
    0.0
    """

    table: Tensor

    def __init__(self, teacher: Any, *, kind: str = "relational") -> None:
        super().__init__()
        check_options(self, ("relational", "cosine"), kind=kind)
        self.kind = kind
        self.run = teacher if isinstance(teacher, str) else None
        self.register_buffer("table", torch.empty(0), persistent=False)
        if self.run is None:
            self.learn(teacher)

    def learn(self, rows: Any) -> None:
        """Store the teacher's embeddings (n, k) of all training items.

        Raises
        ------
        ValueError
            If `rows` is not a matrix of finite numbers.
        """
        table = torch.as_tensor(np.asarray(rows)) if not isinstance(rows, Tensor) else rows
        if table.ndim != 2 or not table.is_floating_point():
            detail = "teacher must be the folder of a run or embeddings (n, k) of floats"
            raise ValueError(f"Distill: {detail}, got {teacher_of(rows)}")
        if not bool(torch.isfinite(table).all()):
            raise ValueError("Distill: the teacher's embeddings must be finite")
        self.table = table.detach().clone().to(self.table.device)

    def value(self, batch: Batch) -> Tensor:
        if not len(self.table):
            detail = "is read by a training run; elsewhere give the teacher's embeddings of all items"
            raise ValueError(f"Distill: teacher={self.run!r} {detail}")
        if batch.ids is None:
            raise ValueError("Distill: pass the numbers of the items as ids=")
        z = self.table[batch.ids].to(batch.x.dtype)
        if self.kind == "relational":
            return relational(batch.x, z)
        if z.shape != batch.x.shape:
            detail = f"embeddings have length {batch.x.shape[1]}, those of the teacher {z.shape[1]}"
            raise ValueError(f"Distill: kind='cosine' compares embeddings of one length: {detail}")
        return cosine(batch.x, z)


def teacher_of(rows: Any) -> str:
    """Return the type of an invalid teacher, for the message."""
    shape = getattr(rows, "shape", None)
    return type(rows).__name__ if shape is None else f"{type(rows).__name__} of shape {tuple(shape)}"
