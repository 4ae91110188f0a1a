"""Losses whose proxies are distributed over processes: model-parallel heads, exact.

    own_i = sum_r own_i^r,    others_i = log sum_r e^{others_i^r}        r: process, with the classes of its part

Every process compares the samples of all processes with its own classes. In a softmax, two numbers of each sample are
exchanged, never the logits: its logit at its own class, and the log-sum-exp over the others. A loss that is a sum over
classes exchanges its parts of the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .. import distributed
from ..autograd import applied
from ..objective.batch import Batch, check_width
from ..objective.relations import UNKNOWN
from ..objective.terms import Term
from .divided_classes import ClassesHere, DivisibleClasses, rows_of_classes
from .sampled_classes import check_share, draw_classes


class ShardedClasses(Term):
    """Loss with class proxies that are distributed over processes.

    Each process stores and trains the proxies of some classes.

    Parameters
    ----------
    loss : ClassProxyLoss or CrossEntropyHead
        Loss with learned proxies for each class that reads only the logit of the sample's own class and the
        log-sum-exp of the others, such as ``CosFaceLoss``, ``ArcFaceLoss``, ``SubCenterArcFaceLoss`` or
        ``CrossEntropyHead``, or ``ProxyAnchorLoss``. Its proxies are reduced to those of this process. With the same
        seed in all processes, they are initialized as in a single process.
    share : float
        Share of the classes that a batch is compared with, in (0, 1], as in ``SampledClasses``. Each process compares
        it with those of its own classes that were drawn.
    sparse : bool
        Whether to give the proxies a sparse gradient of the rows that were drawn.

    Attributes
    ----------
    first, last : int
        This process stores the proxies of the classes from `first` to `last` - 1.

    Raises
    ------
    TypeError
        If `loss` is of another kind.
    ValueError
        If there are fewer classes than processes, or `share` is not in (0, 1].

    Notes
    -----
    Create it after the process group, and wrap only the network in DistributedDataParallel, which would otherwise
    average the proxies of different classes. The gradient of the proxies is complete without it, and so is that of the
    network after averaging. All processes need the proxies on a device that can exchange tensors.

    The state of each process contains its own proxies; `all_proxies` returns those of all processes. A state with the
    proxies of all classes can be loaded, too: each process takes its own. Labels are class numbers.

    Examples
    --------
    >>> from nearfar import CosFaceLoss
    >>> loss = ShardedClasses(CosFaceLoss(1000, 16))
    >>> loss.first, loss.last  # of one process
    (0, 1000)
    """

    def __init__(self, loss: DivisibleClasses, *, share: float = 1.0, sparse: bool = False) -> None:
        super().__init__()
        check_share("ShardedClasses", share)
        if not isinstance(loss, DivisibleClasses):
            raise TypeError(f"ShardedClasses: loss must be a loss with class proxies, got {loss!r}")
        if not loss.can_distribute_classes:
            detail = "they need learned proxies, and a loss may read only the own logit and one log-sum-exp of others"
            name = type(loss).__name__
            raise TypeError(f"ShardedClasses: loss: {name}: its classes cannot be distributed: {detail}")
        self.processes = distributed.world()
        if loss.num_classes < self.processes:
            detail = f"{loss.num_classes} classes are fewer than the {self.processes} processes"
            raise ValueError(f"ShardedClasses: loss: {detail}")
        self.first, self.last = (
            loss.num_classes * part // self.processes for part in (distributed.rank(), distributed.rank() + 1)
        )
        for key, parameter in loss.class_parameters().items():
            setattr(loss, key, nn.Parameter(self._part(parameter.detach(), loss.num_classes)))
        self.loss = loss
        self.share = share
        self.sparse = sparse

    @property
    def title(self) -> str:
        """The name of the loss."""
        return type(self.loss).__name__

    def local_value(self, batch: Batch) -> Tensor:
        loss = self.loss
        name = f"ShardedClasses({self.title})"
        if distributed.world() != self.processes:
            detail = f"made for {self.processes} processes, called by {distributed.world()}"
            raise ValueError(f"{name}: {detail}")
        if batch.ref is not None:
            raise ValueError(f"{name}: ref does not apply, this loss compares with its own class proxies")
        y = batch.class_numbers(name, loss.num_classes)
        here, parameters = self._compared(y)
        check_width(name, batch.x, parameters[0].shape[1])
        # backward of the value adds up over processes, as for parameters that all of them have
        scaled = [scaled_gradient(rows.to(batch.x.dtype), 1 / self.processes) for rows in parameters]
        value = loss.compare_here(batch.x, here, *scaled)
        return value - value.detach() * (1 - 1 / self.processes)  # every process has the whole value

    def local_sample_losses(self, batch: Batch) -> Tensor:
        name = f"ShardedClasses({self.title})"
        raise TypeError(f"{name}: all processes compute the loss of each sample together, so there is none per sample")

    def _compared(self, y: Tensor) -> tuple[ClassesHere, list[Tensor]]:
        """Return the classes here that a batch is compared with, and their parameters."""
        loss = self.loss
        parameters: list[Tensor] = list(loss.class_parameters().values())
        here = (y >= self.first) & (y < self.last)
        known = y != UNKNOWN
        if self.share == 1 or not self.training:
            return ClassesHere(torch.where(here, y - self.first, -1), known, loss.num_classes), parameters
        drawn = draw_classes(y, loss.num_classes, self.share)
        number = len(drawn)
        drawn = drawn[(drawn >= self.first) & (drawn < self.last)]
        # `drawn` is sorted, and each process keeps those of its range
        place = torch.searchsorted(drawn, y)  # the classes of the batch are among those that were drawn
        rows = [
            rows_of_classes(parameter, drawn - self.first, self.last - self.first, sparse=self.sparse)
            for parameter in parameters
        ]
        return ClassesHere(torch.where(here, place, -1), known, number), rows

    def _part(self, whole: Tensor, num_classes: int) -> Tensor:
        """Return the rows of this process, (K * c, ...), from those of all classes, (K * C, ...)."""
        centers = whole.unflatten(0, (len(whole) // num_classes, num_classes))
        return centers[:, self.first : self.last].flatten(0, 1).clone()

    @torch.no_grad()
    def all_proxies(self) -> Tensor:
        """Return the proxies of all classes, (C, d), or (K * C, d) with K for each. All processes must call it."""
        found = self._of_all_classes(next(iter(self.loss.class_parameters().values())), distributed.gather_numbers)
        assert found is not None
        return found

    @torch.no_grad()
    def whole_in_first(self) -> dict[str, Tensor]:
        """Return the parameters of all classes, by their names, in the first process; in others their own.

        All processes must call it.
        """
        found = {}
        for key, parameter in self.loss.class_parameters().items():
            whole = self._of_all_classes(parameter, distributed.gather_to_first)
            found[key] = parameter.detach() if whole is None else whole
        return found

    def _of_all_classes(self, parameter: Tensor, gather: Callable[[Tensor, list[int]], Tensor | None]) -> Tensor | None:
        """Return the rows of all classes, (K * C, ...), where `gather` puts together the parts of the processes."""
        centers = len(parameter) // (self.last - self.first)
        of_classes = parameter.unflatten(0, (centers, self.last - self.first)).transpose(0, 1)  # (c, K, ...)
        whole = gather(of_classes, self._sizes())
        return None if whole is None else whole.transpose(0, 1).flatten(0, 1)

    def _sizes(self) -> list[int]:
        number = self.loss.num_classes
        return [
            number * (part + 1) // self.processes - number * part // self.processes for part in range(self.processes)
        ]

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *others: Any) -> None:
        """Take the own part of the parameters of all classes."""
        for name, parameter in self.loss.class_parameters().items():
            key = f"{prefix}loss.{name}"
            found = state_dict.get(key)
            centers = len(parameter) // (self.last - self.first)
            if isinstance(found, Tensor) and len(found) == centers * self.loss.num_classes:
                part = self._part(found, self.loss.num_classes)
                state_dict[key] = part  # type: ignore[index]  # torch passes a dict of its own
        super()._load_from_state_dict(state_dict, prefix, *others)


class _ScaledGradient(torch.autograd.Function):
    """See `scaled_gradient`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0] * ctx.scale, None


def scaled_gradient(x: Tensor, scale: float) -> Tensor:
    """Return x, whose gradient is multiplied by a number."""
    if scale == 1:
        return x
    same: Tensor = applied(_ScaledGradient, x, scale)
    return same
