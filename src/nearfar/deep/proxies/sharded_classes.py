"""A softmax over classes whose proxies are distributed over processes: model-parallel heads, exact.

    own_i = sum_r own_i^r,    others_i = log sum_r e^{others_i^r}        r: process, with the classes of its part

Every process compares the samples of all processes with its own classes. Two numbers of each sample are exchanged,
never the logits: its logit at its own class, and the log-sum-exp over the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from .. import distributed
from ..autograd import applied
from ..objective.batch import Batch, check_width
from ..objective.relations import UNKNOWN
from ..objective.terms import Term
from ..unit_vectors import unit
from .class_proxies import ClassProxyLoss, NeighborProxyLoss
from .class_softmax import own_and_others_of
from .sampled_classes import check_share, draw_classes


class ShardedClasses(Term):
    """Loss with class proxies that are distributed over processes.

    Each process stores and trains the proxies of some classes.

    Parameters
    ----------
    loss : ClassProxyLoss
        Loss with one learned proxy for each class that reads only the cosine to the sample's own class and the
        log-sum-exp of the others, such as ``CosFaceLoss``, ``ArcFaceLoss`` or ``AMSoftmaxLoss``. Its proxies are
        reduced to those of this process. With the same seed in all processes, they are initialized as in a single
        process.
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

    def __init__(self, loss: ClassProxyLoss, *, share: float = 1.0, sparse: bool = False) -> None:
        super().__init__()
        check_share("ShardedClasses", share)
        if not isinstance(loss, ClassProxyLoss):
            raise TypeError(f"ShardedClasses: loss must be a loss with class proxies, got {loss!r}")
        kind = type(loss)
        plain = loss.reads_two_numbers and len(loss.proxies) == loss.num_classes
        learned = not isinstance(loss, NeighborProxyLoss) or loss.source == "learned"
        if not plain or not learned or getattr(loss, "assign", "class") != "class":
            detail = "each must have one learned proxy, and a loss may read only the own cosine and one log-sum-exp"
            raise TypeError(f"ShardedClasses: loss: {kind.__name__}: its classes cannot be distributed: {detail}")
        self.processes = distributed.world()
        if loss.num_classes < self.processes:
            detail = f"{loss.num_classes} classes are fewer than the {self.processes} processes"
            raise ValueError(f"ShardedClasses: loss: {detail}")
        self.first, self.last = (
            loss.num_classes * part // self.processes for part in (distributed.rank(), distributed.rank() + 1)
        )
        loss.proxies = nn.Parameter(loss.proxies.detach()[self.first : self.last].clone())
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
        check_width(name, batch.x, loss.proxies.shape[1])
        y = batch.class_numbers(name, loss.num_classes)
        proxies, own_place = self._compared(y)
        # backward of the value adds up over processes, as for parameters that all of them have
        proxies = scaled_gradient(proxies.to(batch.x.dtype), 1 / self.processes)
        own, others = own_and_others_of(unit(batch.x, loss.scale), proxies, own_place, cosines=True)
        own = distributed.total(own.detach()) + (own - own.detach())
        others = _merged(others)
        losses = torch.where(y != UNKNOWN, loss.per_sample(own, others), 0.0)
        value = losses.sum() / (y != UNKNOWN).sum().clamp_min(1)
        return value - value.detach() * (1 - 1 / self.processes)  # every process has the whole value

    def _compared(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the proxies here that a batch is compared with, and the row of each sample's own class among them.

        The row is -1 if the class is of another process, or unknown.
        """
        proxies = self.loss.proxies
        here = (y >= self.first) & (y < self.last)
        if self.share == 1 or not self.training:
            return proxies, torch.where(here, y - self.first, -1)
        drawn = draw_classes(y, self.loss.num_classes, self.share)
        drawn = drawn[(drawn >= self.first) & (drawn < self.last)]
        place = torch.searchsorted(drawn, y)  # the classes of the batch are among those that were drawn
        return embedding(drawn - self.first, proxies, sparse=self.sparse), torch.where(here, place, -1)

    @torch.no_grad()
    def all_proxies(self) -> Tensor:
        """Return the proxies of all classes, (C, d). All processes must call it."""
        return distributed.gather_numbers(self.loss.proxies, self._sizes())

    @torch.no_grad()
    def proxies_in_first(self) -> Tensor | None:
        """Return the proxies of all classes, (C, d), in the first process and None in others. All must call it."""
        return distributed.gather_to_first(self.loss.proxies, self._sizes())

    def _sizes(self) -> list[int]:
        number = self.loss.num_classes
        return [
            number * (part + 1) // self.processes - number * part // self.processes for part in range(self.processes)
        ]

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *others: Any) -> None:
        """Take the own part of proxies of all classes."""
        key = f"{prefix}loss.proxies"
        found = state_dict.get(key)
        if isinstance(found, Tensor) and len(found) == self.loss.num_classes:
            state_dict[key] = found[self.first : self.last]  # type: ignore[index]  # torch passes a dict of its own
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


def _merged(others: Tensor) -> Tensor:
    """Return the log-sum-exp over all processes of theirs, (n,), with the gradient in those of this process."""
    every = distributed.gather_numbers(others.detach()[None])  # (processes, n)
    most = every.amax(0)
    most = torch.where(most.isfinite(), most, 0.0)
    merged = (every - most).exp().sum(0).log() + most
    weight = torch.where(others.detach().isfinite(), (others.detach() - merged).exp(), 0.0)
    own = torch.where(others.isfinite(), others, 0.0)
    return merged + weight * (own - own.detach())
