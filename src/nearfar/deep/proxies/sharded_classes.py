"""A softmax over classes whose proxies are shared out over processes: model-parallel heads, exact.

    own_i = sum_r own_i^r,    others_i = log sum_r e^{others_i^r}        r: process, with the classes of its part

Every process compares the samples of all processes with its own classes. Two numbers of each sample are exchanged,
never the logits: its logit at its own class, and the log-sum-exp over the others.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .. import distributed
from ..objective.batch import Batch, check_width
from ..objective.relations import UNKNOWN
from ..objective.terms import Term
from ..pairwise.comparison import spans
from .class_proxies import ClassProxyLoss, NeighborProxyLoss, in_blocks


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

    Attributes
    ----------
    first, last : int
        This process stores the proxies of the classes from `first` to `last` - 1.

    Raises
    ------
    TypeError
        If `loss` is of another kind.
    ValueError
        If there are fewer classes than processes.

    Notes
    -----
    Create it after the process group, and wrap only the network in DistributedDataParallel, which would otherwise
    average the proxies of different classes. The gradient of the proxies is complete without it, and so is that of the
    network after averaging. All processes need the proxies on a device that can exchange tensors.

    The state of each process contains its own proxies; `all_proxies` returns those of all processes. Labels are class
    numbers.

    Examples
    --------
    >>> from nearfar import CosFaceLoss
    >>> loss = ShardedClasses(CosFaceLoss(1000, 16))
    >>> loss.first, loss.last  # of one process
    (0, 1000)
    """

    def __init__(self, loss: ClassProxyLoss) -> None:
        super().__init__()
        if not isinstance(loss, ClassProxyLoss):
            raise TypeError(f"ShardedClasses: loss must be a loss with class proxies, got {loss!r}")
        kind = type(loss)
        plain = kind.compare is ClassProxyLoss.compare and kind.losses is ClassProxyLoss.losses
        plain = plain and kind.find is ClassProxyLoss.find and len(loss.proxies) == loss.num_classes
        learned = not isinstance(loss, NeighborProxyLoss) or loss.source == "learned"
        if not plain or not learned or getattr(loss, "assign", "class") != "class":
            told = "its classes cannot be shared out: each must have one learned proxy, and losses read two numbers"
            raise TypeError(f"ShardedClasses: loss: {kind.__name__}: {told}")
        self.processes = distributed.world()
        if loss.num_classes < self.processes:
            told = f"{loss.num_classes} classes are fewer than the {self.processes} processes that share them"
            raise ValueError(f"ShardedClasses: loss: {told}")
        self.first, self.last = (
            loss.num_classes * part // self.processes for part in (distributed.rank(), distributed.rank() + 1)
        )
        loss.proxies = nn.Parameter(loss.proxies.detach()[self.first : self.last].clone())
        self.loss = loss

    def local_value(self, batch: Batch) -> Tensor:
        loss = self.loss
        name = f"ShardedClasses({type(loss).__name__})"
        if distributed.world() != self.processes:
            told = f"made for {self.processes} processes, called by {distributed.world()}"
            raise ValueError(f"{name}: {told}")
        if batch.ref is not None:
            raise ValueError(f"{name}: ref does not apply, this loss compares with its own class proxies")
        check_width(name, batch.x, loss.proxies.shape[1])
        y = batch.class_numbers(name, loss.num_classes)
        # backward of the value adds up over processes, as for parameters that all of them have
        w = loss.directions(scaled_gradient(loss.proxies.to(batch.x.dtype), 1 / self.processes))
        own, others = self._of_own_classes(batch.x, w, y)
        own = distributed.total(own.detach()) + (own - own.detach())
        others = _merged(others)
        losses = torch.where(y != UNKNOWN, loss.per_sample(own, others), 0.0)
        value = losses.sum() / (y != UNKNOWN).sum().clamp_min(1)
        return value - value.detach() * (1 - 1 / self.processes)  # every process has the whole value

    def _of_own_classes(self, x: Tensor, w: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return (n,) own logits, 0 where the class is another process's, and log-sum-exps over the others here."""

        def one(x: Tensor, w: Tensor, lo: int, hi: int) -> Tensor:
            s = self.loss.logits(x[lo:hi], w)
            here = ((y[lo:hi] >= self.first) & (y[lo:hi] < self.last))[:, None]
            column = (y[lo:hi, None] - self.first).clamp(0, s.shape[1] - 1)
            at = s.gather(1, column)
            least = torch.finfo(s.dtype).min / 4  # infinities alone would have no derivative
            rest = s.scatter(1, column, torch.where(here, least, at)).logsumexp(1)
            rest = torch.where(rest > least / 2, rest, -torch.inf)
            return torch.stack([torch.where(here, at, 0.0)[:, 0], rest])

        blocks = spans(slice(0, len(x)), len(w), self.loss.block, x.device)
        parts = in_blocks(one, blocks, x, w)
        if not parts:  # a batch of nothing: zeros with a gradient
            nothing = x.sum(1) + 0 * w.sum()
            return nothing, nothing
        both = torch.cat(parts, 1)
        return both[0], both[1]

    @torch.no_grad()
    def all_proxies(self) -> Tensor:
        """Return the proxies of all classes, (C, d). All processes must call it."""
        sizes = [
            self.loss.num_classes * (part + 1) // self.processes - self.loss.num_classes * part // self.processes
            for part in range(self.processes)
        ]
        return distributed.gather_numbers(self.loss.proxies, sizes)


def scaled_gradient(x: Tensor, scale: float) -> Tensor:
    """Return x, whose gradient is multiplied by a number."""
    return x.detach() * (1 - scale) + x * scale


def _merged(others: Tensor) -> Tensor:
    """Return the log-sum-exp over all processes of theirs, (n,), with the gradient in those of this process."""
    every = distributed.gather_numbers(others.detach()[None])  # (processes, n)
    most = every.amax(0)
    most = torch.where(most.isfinite(), most, 0.0)
    merged = (every - most).exp().sum(0).log() + most
    weight = torch.where(others.detach().isfinite(), (others.detach() - merged).exp(), 0.0)
    own = torch.where(others.isfinite(), others, 0.0)
    return merged + weight * (own - own.detach())
