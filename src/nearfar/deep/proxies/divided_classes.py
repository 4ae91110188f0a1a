"""Losses with many classes, of which a step compares a batch with some, or each process with those of its own.

A loss says which of its parameters have a row for each class, and how it compares a batch with some of these rows.
`SampledClasses` then draws classes in each step, and `ShardedClasses` distributes them over processes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .. import distributed
from ..autograd import applied
from ..objective.batch import Batch
from ..objective.terms import Term


class ClassesHere(NamedTuple):
    """The classes that one process compares a batch with.

    Attributes
    ----------
    own : (n,) integers
        Place of each sample's own class among them, -1 if that class is of another process, or unknown.
    known : (n,) bool tensor
        Which samples are of known class.
    number : int
        Number of classes that all processes together compare the batch with.
    """

    own: Tensor
    known: Tensor
    number: int


class DivisibleClasses(Term):
    """Base class of losses whose classes can be drawn in each step, or distributed over processes.

    A class may have K rows of a parameter: the first of every class, then the second of every class, and so on.
    """

    num_classes: int

    @property
    def can_draw_classes(self) -> bool:
        """Whether `compare_classes` can compare a batch with some of the classes."""
        raise NotImplementedError

    @property
    def can_distribute_classes(self) -> bool:
        """Whether `compare_here` can compare a batch with the classes of one process."""
        raise NotImplementedError

    def class_parameters(self) -> dict[str, nn.Parameter]:
        """Return the parameters that have rows for each class, by their names; the first is the weight (K * C, d)."""
        raise NotImplementedError

    def compare_classes(self, batch: Batch, y: Tensor, *parameters: Tensor) -> Tensor:
        """Return this process's share of the value, for its anchors.

        `parameters` are the rows of the `class_parameters` for all classes, or for some, and y, (n,), has the place of
        each sample's own class among them, -1 if it is unknown.
        """
        raise NotImplementedError

    def sample_losses_of_classes(self, batch: Batch, y: Tensor, *parameters: Tensor) -> Tensor:
        """Return the losses of this process's samples, (k,), whose mean over all samples is `compare_classes`."""
        raise NotImplementedError

    def compare_here(self, x: Tensor, here: ClassesHere, *parameters: Tensor) -> Tensor:
        """Return the value for the whole batch x (n, d), with the gradient in the classes of this process.

        `parameters` are the rows of the `class_parameters` for the classes here.
        """
        raise NotImplementedError


class _RowsOfClasses(torch.autograd.Function):
    """See `rows_of_classes`; the gradient is sparse."""

    @staticmethod
    def forward(ctx: Any, parameter: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.shape = parameter.shape
        return parameter.index_select(0, rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (rows,) = ctx.saved_tensors
        return torch.sparse_coo_tensor(rows[None], grads[0], ctx.shape, check_invariants=False), None


def rows_of_classes(parameter: Tensor, classes: Tensor, num_classes: int, *, sparse: bool) -> Tensor:
    """Return the rows of some classes, (K * c, ...), from a parameter (K * C, ...); its gradient may be sparse."""
    K = len(parameter) // num_classes
    # row of the k-th center of class c: k C + c
    firsts = num_classes * torch.arange(K, device=classes.device)
    rows = (firsts[:, None] + classes).flatten()
    if not sparse:
        return parameter.index_select(0, rows)
    found: Tensor = applied(_RowsOfClasses, parameter, rows)
    return found


def added_up(x: Tensor) -> Tensor:
    """Return the sum over all processes of their x, with the gradient in that of this process."""
    return distributed.total(x.detach()) + (x - x.detach())


def log_added_up(x: Tensor) -> Tensor:
    """Return the log-sum-exp over all processes of their x, (n,), with the gradient in that of this process."""
    every = distributed.gather_numbers(x.detach()[None])  # (processes, n)
    most = every.amax(0)
    # no process has a class to compare with: the sum below is 0, its logarithm -inf
    most = torch.where(most.isfinite(), most, 0.0)
    merged = (every - most).exp().sum(0).log() + most
    # d merged / dx is the share of this process, e^{x - merged}; its value is added as 0, with this slope
    weight = torch.where(x.detach().isfinite(), (x.detach() - merged).exp(), 0.0)
    own = torch.where(x.isfinite(), x, 0.0)
    return merged + weight * (own - own.detach())
