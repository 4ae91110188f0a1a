"""Losses with class proxies: how they compare a batch, and proxies that are computed instead of learned."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn

from ...neighbors.kmeans import lloyd
from ...numerics.types import AnyArray, Ints
from ...settings import check_options
from .. import distributed
from ..autograd import recomputed
from ..objective.batch import Batch, check_width
from ..objective.relations import UNKNOWN, Labels, LabelSets
from ..objective.terms import AnchorLoss
from ..pairwise.comparison import FULL, on_host, spans
from ..unit_vectors import unit
from .class_softmax import is_large, own_and_others_of
from .divided_classes import ClassesHere, DivisibleClasses, added_up, log_added_up
from .logits import cosines, own_and_others

T = TypeVar("T")
SOURCES = ("learned", "class_mean", "kmeans")
SUM_TO_ONE = 1e-3  # how far shares in half precision may be from a sum of 1
KMEANS_ROUNDS = 20  # of k-means, at most
MORE_THAN_TWO_NUMBERS = ("directions", "logits", "find", "losses", "compare")
"""Methods of `ClassProxyLoss` that a loss overrides to read more than a sample's own cosine and one log-sum-exp."""


def in_blocks(one: Callable[..., T], blocks: list[tuple[int, int]], *inputs: Tensor) -> list[T]:
    """Return ``one(*inputs, lo, hi)`` for every block; if there are several, backward computes them again."""
    if len(blocks) == 1:
        return [one(*inputs, *blocks[0])]
    return [recomputed(one, *inputs, lo, hi) for lo, hi in blocks]


class ClassProxyLoss(AnchorLoss, DivisibleClasses):
    """Base class of losses that compare samples with learnable class proxies, averaged over the samples of known class.

    The labels are class numbers from 0 to num_classes - 1, or `LabelSets` whose rows are the shares of the classes in
    each sample, for example of mixed images. Such a row sums to 1, or to 0 if the sample is unknown, and the loss of
    the sample is the mean over its classes, weighted by these shares. The proxies are a parameter of the loss, so an
    optimizer group can select them, and they are saved with it.

    A subclass implements ``per_sample(own, others)``: the loss of each sample from its scaled cosine to its own proxy
    and the log-sum-exp of those to the other proxies, -inf if there are none. A loss that needs more than these two
    numbers implements `losses` instead.

    Parameters
    ----------
    num_classes : int
        Number of classes C. Labels run from 0 to ``num_classes - 1``; -1 means an unknown class.
    embedding_dim : int
        Number of dimensions of the embeddings.
    block : int, optional
        Number of samples processed at a time, which affects speed and memory but not the value. By default, it is
        chosen automatically.

    Attributes
    ----------
    scale : float
        Factor on the cosines.
    proxies : Parameter of shape (num_classes, embedding_dim)
        Proxies of the classes.
    """

    scale: float
    proxies: nn.Parameter

    def __init__(self, num_classes: int, embedding_dim: int, *, block: int | None = None) -> None:
        super().__init__(block=block)
        self.num_classes = num_classes
        self.proxies = nn.Parameter(torch.empty(num_classes, embedding_dim))
        nn.init.kaiming_uniform_(self.proxies, a=5**0.5)

    def reference(self, batch: Batch) -> tuple[Tensor, Labels]:
        name = type(self).__name__
        if batch.ref is not None:
            raise ValueError(f"{name}: ref does not apply, this loss compares with its own class proxies")
        if isinstance(batch.y, LabelSets):
            check_shares(name, batch.y.hot, self.num_classes)
        else:
            batch.class_numbers(name, self.num_classes)
        return self.proxies_for(batch.x), torch.arange(self.num_classes, device=batch.x.device)

    def proxies_for(self, x: Tensor) -> Tensor:
        """Return the proxies in the dtype of embeddings (n, d); raise if these have another number of dimensions."""
        proxies = self.proxies
        check_width(type(self).__name__, x, proxies.shape[1])
        return distributed.whole(proxies).to(x.dtype)

    def publish(self, batch: Batch) -> Batch:
        """Give the cosines to the class proxies, the class-level representation, to the other terms."""
        return batch._replace(scores=cosines(batch.x, self.reference(batch)[0]))

    def class_centers(self) -> Tensor | None:
        return distributed.whole(self.proxies).unflatten(0, (-1, self.num_classes))

    def per_sample(self, own: Tensor, others: Tensor) -> Tensor:
        """Return the (b,) losses, 0 if `others` is -inf."""
        raise NotImplementedError

    def directions(self, w: Tensor) -> Tensor:
        """Return what every block compares with, made once: the unit proxies."""
        return unit(w)

    def logits(self, x: Tensor, w: Tensor) -> Tensor:
        """Return the (b, C) scaled cosines of embeddings to proxies; w are the `directions` of the proxies."""
        return unit(x, self.scale) @ w.T

    def get_logits(self, embeddings: Tensor) -> Tensor:
        """Return the (n, num_classes) logits of embeddings (n, d), without margin.

        The largest logit of a row is the predicted class.
        """
        return self.logits(embeddings, self.directions(self.proxies_for(embeddings)))

    def find(self, x: Tensor, w: Tensor, y: Tensor) -> Tensor | None:
        """Return what the losses of a block need of the whole batch, or None."""
        return None

    def losses(self, logits: Tensor, x: Tensor, w: Tensor, y: Tensor, rows: slice, found: Tensor | None) -> Tensor:
        """Return the (b,) losses of the samples in `rows` from their (b, C) `logits`, 0 for those of unknown class."""
        return self.per_sample(*own_and_others(logits, y[rows]))

    def cosines_of(self, logits: Tensor, x: Tensor, w: Tensor) -> Tensor:
        """Return the (b, C) cosines from the logits of embeddings x (b, d)."""
        return logits / self.scale

    def cosine_sums(self, x: Tensor, proxies: Tensor) -> Tensor:
        """Return the sums of the cosines of embeddings to all classes, (n,), without the (n, C) matrix."""
        return unit(x) @ unit(proxies).sum(0)  # sum_c x . w_c

    def counted(self, y: Tensor) -> Tensor:
        """Return which samples the mean is over."""
        return y != UNKNOWN

    @property
    def reads_two_numbers(self) -> bool:
        """Whether a sample's loss reads its own cosine and the log-sum-exp of the others only, as `per_sample` does."""
        return all(getattr(type(self), name) is getattr(ClassProxyLoss, name) for name in MORE_THAN_TWO_NUMBERS)

    def compare(self, batch: Batch) -> Tensor:
        proxies = self.reference(batch)[0]
        if isinstance(batch.y, LabelSets):
            return self._compare_shares(batch, self.directions(proxies), batch.y.hot.to(batch.x.dtype))
        return self.compare_classes(batch, batch.classes(type(self).__name__), proxies)

    @property
    def can_draw_classes(self) -> bool:
        return type(self).compare is ClassProxyLoss.compare and len(self.proxies) == self.num_classes

    @property
    def can_distribute_classes(self) -> bool:
        return self.can_draw_classes and self.reads_two_numbers

    def class_parameters(self) -> dict[str, nn.Parameter]:
        return {"proxies": self.proxies}

    def own_and_others(self, x: Tensor, y: Tensor, proxies: Tensor) -> tuple[Tensor, Tensor]:
        """Return the two numbers of `per_sample`, (n,) each, without the matrix of logits.

        y, (n,), has the place of each sample's own class among the proxies, -1 if it has none of these classes.
        """
        return own_and_others_of(unit(x, self.scale), proxies, y, cosines=True)

    def compare_here(self, x: Tensor, here: ClassesHere, *parameters: Tensor) -> Tensor:
        own, others = self.own_and_others(x, here.own, *parameters)
        losses = torch.where(here.known, self.per_sample(added_up(own), log_added_up(others)), 0.0)
        return losses.sum() / here.known.sum().clamp_min(1)

    def compare_classes(self, batch: Batch, y: Tensor, *parameters: Tensor) -> Tensor:
        (proxies,) = parameters
        n = batch.anchors.stop - batch.anchors.start
        if self.reads_two_numbers and self.block is None and is_large(n, len(proxies), proxies.device):
            x = batch.x[batch.anchors]
            of_anchors = y[batch.anchors]
            # neither this matrix nor that of its gradient is held: the two numbers of each sample are enough
            own, others = self.own_and_others(x, of_anchors, proxies)
            others = torch.where(of_anchors == UNKNOWN, -torch.inf, others)
            losses = self.per_sample(own, others)
            if self.collects_stats:
                self.collect_from(x, proxies, own, losses, of_anchors != UNKNOWN)
            return losses.sum() / self.counted(y).sum().clamp_min(1)
        w = self.directions(proxies)
        found = self.find(batch.x, w, y)

        def one(x: Tensor, w: Tensor, lo: int, hi: int) -> tuple[Tensor, Tensor | None]:
            rows = slice(lo, hi)
            logits = self.logits(x[rows], w)
            losses = self.losses(logits, x, w, y, rows, found)
            statistics = None
            if self.collects_stats:
                statistics = self.statistics(losses, logits, x[rows], w, y[rows], y[rows] != UNKNOWN)
            return losses.sum(), statistics

        parts = in_blocks(one, self._blocks(batch.anchors, batch.x), batch.x, w)
        self._add_up_statistics([statistics for _, statistics in parts])
        if len(parts) == 1:
            total = parts[0][0]
        else:  # the first term keeps a process without samples, and its proxies, in the graph
            total = sum((losses for losses, _ in parts), batch.x[:0].sum() + w[:0].sum())
        return total / self.counted(y).sum().clamp_min(1)

    @torch.no_grad()
    def collect_from(self, x: Tensor, proxies: Tensor, own: Tensor, losses: Tensor, known: Tensor) -> None:
        """Keep the statistics of samples whose own logits, (n,), are known, but not the matrix of logits."""
        own = own / self.scale
        rest = self.cosine_sums(x, proxies) - own
        self._sums = class_statistics(losses, own, rest, known, self.num_classes)

    @torch.no_grad()
    def statistics(self, losses: Tensor, logits: Tensor, x: Tensor, w: Tensor, y: Tensor, counts: Tensor) -> Tensor:
        """Return the `class_statistics` of a block of samples, of which those that count are marked."""
        cosine = self.cosines_of(logits, x, w)
        own = cosine.gather(1, y.clamp_min(0)[:, None]).squeeze(1)
        return class_statistics(losses, own, cosine.sum(1) - own, counts, cosine.shape[1])

    def _add_up_statistics(self, parts: list[Tensor | None]) -> None:
        """Keep the sums of the blocks for `stats_`, if they were asked for."""
        asked = [part for part in parts if part is not None]
        if asked:
            self._sums = torch.stack(asked).sum(0)

    def _compare_shares(self, batch: Batch, w: Tensor, shares: Tensor) -> Tensor:
        """Return the mean over samples whose classes have shares, (n, C)."""
        return self._losses_of_shares(batch, w, shares).sum() / (shares.sum(1) > 0).sum().clamp_min(1)

    def _losses_of_shares(self, batch: Batch, w: Tensor, shares: Tensor) -> Tensor:
        """Return the losses of this process's samples, (k,), each the mean over its classes with their shares."""
        largest = _largest(shares)
        found = self.find(batch.x, w, largest)
        rows, y = shares[batch.anchors].nonzero(as_tuple=True)  # a sample is there once for each of its classes
        own = rows + batch.anchors.start
        share = shares[own, y]
        found = None if found is None else found[own]
        is_largest = y == largest[own]  # statistics are of one class for each sample

        def one(x: Tensor, w: Tensor, lo: int, hi: int) -> tuple[Tensor, Tensor | None]:
            rows = slice(lo, hi)
            logits = self.logits(x[rows], w)
            losses = self.losses(logits, x, w, y, rows, found)
            statistics = None
            if self.collects_stats:
                statistics = self.statistics(losses, logits, x[rows], w, y[rows], is_largest[rows])
            return share[rows] * losses, statistics

        x = batch.x[own]
        parts = in_blocks(one, self._blocks(slice(0, len(x)), x), x, w)
        self._add_up_statistics([statistics for _, statistics in parts])
        # without samples, the proxies still take part: DistributedDataParallel waits for the gradient of each parameter
        losses = torch.cat([losses for losses, _ in parts]) if parts else x[:, 0] + w[:0, 0]
        return losses.new_zeros(batch.anchors.stop - batch.anchors.start).index_add(0, rows, losses)

    def _blocks(self, rows: slice, x: Tensor) -> list[tuple[int, int]]:
        return spans(rows, self.num_classes, self.block, x.device)

    def compare_samples(self, batch: Batch) -> Tensor:
        proxies = self.reference(batch)[0]
        if isinstance(batch.y, LabelSets):
            shares = batch.y.hot.to(batch.x.dtype)
            # n / (number of samples with a class), so that the mean over all n is that over these
            values = self._losses_of_shares(batch, self.directions(proxies), shares)
            return values * (len(shares) / (shares.sum(1) > 0).sum().clamp_min(1))
        return self.sample_losses_of_classes(batch, batch.classes(type(self).__name__), proxies)

    def sample_losses_of_classes(self, batch: Batch, y: Tensor, *parameters: Tensor) -> Tensor:
        (proxies,) = parameters
        w = self.directions(proxies)
        found = self.find(batch.x, w, y)

        def one(x: Tensor, w: Tensor, lo: int, hi: int) -> Tensor:
            return self.losses(self.logits(x[lo:hi], w), x, w, y, slice(lo, hi), found)

        parts = in_blocks(one, self._blocks(batch.anchors, batch.x), batch.x, w)
        values = torch.cat(parts) if parts else batch.x[:0, 0] + w[:0, 0]
        # n / (number of samples with a class), so that the mean over all n is that over these
        return values * (len(y) / self.counted(y).sum().clamp_min(1))

    @property
    def stats_(self) -> dict[str, float]:
        """The share of samples with a positive loss, and their mean distances (minus the cosine) to proxies.

        Of the samples of this process in the last call that collected them (`collect_stats`); empty if no call has.
        """
        if self._sums is None:
            return {}
        active, own, rest, samples, others = self._sums.tolist()
        return {
            "active": active / max(samples, 1.0),
            "positive": -own / max(samples, 1.0),
            "negative": -rest / max(others, 1.0),
        }


def _largest(shares: Tensor) -> Tensor:
    """Return the class of the largest share of each sample, (n,), or -1 if it is of unknown class."""
    return torch.where(shares.sum(1) > 0, shares.argmax(1), UNKNOWN)


def check_shares(who: str, shares: Tensor, num_classes: int) -> None:
    """Raise unless rows are shares of classes that sum to 1, or are empty; numbers are read on the CPU only."""
    if shares.shape[1] != num_classes:
        raise ValueError(f"{who}: labels need one column per class, {num_classes}, got {shares.shape[1]}")
    if not on_host(shares) or not len(shares):
        return
    sums = shares.double().sum(1)
    wrong = (sums - 1).abs().minimum(sums.abs()) > SUM_TO_ONE
    wrong = wrong | (shares < 0).any(1) | ~sums.isfinite()
    if bool(wrong.any()):
        least = float(shares[wrong][0].min())
        bad = float(sums[wrong][0])
        detail = (
            f"shares of classes must be at least 0 and sum to 1 in each row, got a sum of {bad:.4g}, least {least:.4g}"
        )
        raise ValueError(f"{who}: labels: {detail}; an empty row is a sample of unknown class")


@torch.no_grad()
def nearest(x: Tensor, w: Tensor) -> Tensor:
    """Return for each row of x (n, d) the row of w (C, d) at the smallest angle, (n,)."""
    return torch.cat([cosines(rows, w).argmax(1) for rows in x.split(max(1, FULL // len(w)))])


@torch.no_grad()
def class_statistics(losses: Tensor, own: Tensor, rest: Tensor, counts: Tensor, num_classes: int) -> Tensor:
    """Return the five sums from which `stats_` is divided, over the samples that count.

    From the losses, the cosines to the own class, and the sums of those to the others, (n,) each: active samples, the
    sum of the cosines to the own classes, that to the others, and how many cosines of both kinds there are.
    """
    sums = [torch.where(counts, part, 0.0).sum() for part in ((losses > 0).to(own.dtype), own, rest)]
    samples = counts.sum(dtype=own.dtype)
    return torch.stack([*sums, samples, samples * (num_classes - 1)])


def class_means(x: Tensor, y: Tensor, fallback: Tensor) -> Tensor:
    """Return the (C, d) means of the rows of x by class; a class without rows keeps its row of `fallback`."""
    # (C, d) sums in the precision of the proxies: a sum in half precision soon stops growing
    sums = torch.zeros_like(fallback).index_add_(0, y, x.to(fallback.dtype))
    counts = torch.bincount(y, minlength=len(fallback))
    return torch.where(counts[:, None] > 0, sums / counts.clamp_min(1)[:, None], fallback)


def kmeans(x: Tensor, centers: Tensor) -> Tensor:
    """Return the centers of Lloyd's k-means from the given start; center c is the one that began as row c."""
    found = lloyd(x.cpu().numpy(), centers.cpu().numpy(), KMEANS_ROUNDS, partial(nearest_on, x.device), keep_empty=True)
    return torch.from_numpy(found.centers).to(centers)


def nearest_on(device: torch.device, rows: AnyArray, centers: AnyArray) -> tuple[AnyArray, Ints]:
    """Return the squared distance to, and the number of the nearest center of each row, found on a device."""
    target = torch.from_numpy(centers).to(device)
    found = [torch.cdist(block.to(device), target).min(1) for block in torch.from_numpy(rows).split(4096)]
    distances = torch.cat([nearest.values for nearest in found])
    numbers = torch.cat([nearest.indices for nearest in found])
    return distances.square().cpu().numpy(), numbers.cpu().numpy()


class NeighborProxyLoss(ClassProxyLoss):
    """Base class of losses of squared distances over a temperature to proxies; see ``ProxyNCALoss`` for its parameters.

    The proxies are learned, class means, or k-means centers. Between unit vectors, -||z - p||^2 / T is 2 z.p / T up to
    a constant, which cancels.
    """

    sums: Tensor
    counts: Tensor

    def __init__(
        self, num_classes: int, embedding_dim: int, *, temperature: float, proxies: str, block: int | None
    ) -> None:
        super().__init__(num_classes, embedding_dim, block=block)
        check_options(self, SOURCES, proxies=proxies)
        self.temperature = temperature
        self.scale = 2 / temperature
        self.source = proxies
        torch.nn.init.normal_(self.proxies, std=1 / 8)
        if proxies != "learned":
            self.proxies.requires_grad_(False)
        if proxies == "class_mean":
            self.register_buffer("sums", torch.zeros(num_classes, embedding_dim))
            self.register_buffer("counts", torch.zeros(num_classes, dtype=torch.int64))

    @property
    def can_draw_classes(self) -> bool:
        return super().can_draw_classes and self.source == "learned"

    def reference(self, batch: Batch) -> tuple[Tensor, Labels]:
        w, y = super().reference(batch)
        # blocks are computed again in the backward pass, after the parameter has moved on to new means
        return (w.detach(), y) if self.source == "class_mean" else (w, y)

    def local_value(self, batch: Batch) -> Tensor:
        value = super().local_value(batch)
        if self.source == "class_mean" and self.training:
            self._follow(batch)
        return value

    def local_sample_losses(self, batch: Batch) -> Tensor:
        losses = super().local_sample_losses(batch)
        if self.source == "class_mean" and self.training:
            self._follow(batch)
        return losses

    @torch.no_grad()
    def _follow(self, batch: Batch) -> None:
        """Move the proxies to the means of all embeddings seen so far; this batch counts from the next call on."""
        y = batch.classes(type(self).__name__)
        x = unit(batch.x[y != UNKNOWN]).to(self.sums.dtype)
        y = y[y != UNKNOWN]
        self.sums.index_add_(0, y, x)
        self.counts.index_add_(0, y, torch.ones_like(y))
        means = self.sums / self.counts.clamp_min(1)[:, None]
        # a copy: the loss just computed still needs the old proxies for its gradient
        self.proxies.data = torch.where(self.counts[:, None] > 0, means.to(self.proxies.dtype), self.proxies)

    @torch.no_grad()
    def refit(self, embeddings: Tensor, labels: Tensor) -> None:
        """Set the proxies from the embeddings of a whole training set.

        Parameters
        ----------
        embeddings : (n, d) float tensor
            Embeddings of all training samples.
        labels : (n,) integers
            Class of each sample. Samples of unknown class (-1) are left out.

        Notes
        -----
        "class_mean" takes the means of the unit embeddings, from which its running means continue. "kmeans" starts
        k-means from these means, so that each center remains tied to the class where it started.
        """
        if self.source == "learned":
            raise ValueError(f"{type(self).__name__}: learned proxies are not refitted; choose class_mean or kmeans")
        y = torch.as_tensor(labels, device=self.proxies.device)
        start = self.proxies.data
        start = start if start.dtype == torch.float64 else start.float()  # a sum in half precision is no sum
        x = unit(embeddings.to(start))[y != UNKNOWN]
        y = y[y != UNKNOWN]
        means = class_means(x, y, start)
        if self.source == "class_mean":
            self.counts.copy_(torch.bincount(y, minlength=self.num_classes))
            self.sums.copy_(means * self.counts[:, None])
        found = means if self.source == "class_mean" else kmeans(x, means)
        self.proxies.data = found.to(self.proxies.dtype)
