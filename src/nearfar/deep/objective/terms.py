"""The terms of an objective, which add and scale as in the papers: ``TripletLoss(0.1) + 0.3 * EnergyConfusion()``.

There are four kinds of terms. A method is a final class of one of them, and implements one function:

- `RowLoss` (in `deep.pairwise.row_loss`): compares each anchor with a reference; implements ``rows(rows) -> (numerator,
  denominator)`` per anchor;
- `ClassProxyLoss` (in `deep.proxies`): compares each sample with learnable class proxies of its own; implements
  ``per_sample(own, others) -> loss`` per sample;
- `SetTerm`: a number of the whole batch; implements ``value(batch) -> scalar``;
- `Sum`: weighted terms, which keeps each part's value for the log.

The first two are both an `AnchorLoss`: samples, the anchors, are compared with a reference, in blocks.

Every term is called in the same way, ``term(embeddings, labels)``; `Term.forward` describes its other arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from math import isfinite
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from ...quoting import quoted
from ...settings import checked, suggest_name
from .. import distributed
from ..autograd import in_transform, keep_plain_tensors, traced
from ..precision import PreciseBuffers, outside_inference_mode, under_autocast, without_autocast
from .batch import NO_TUPLES, AnyLabels, Batch, check_distances, check_tensor, stand_in
from .gathering import global_batch, refused
from .relations import Labels
from .term_text import sum_text

Self = TypeVar("Self", bound="Term")
CALLED_WITH = ("embeddings", "labels", "ref", "ref_labels", "ref_replicated", "pooled", "ids", "group")


class Term(PreciseBuffers):
    """Base class of the terms of an objective; the `repr` of a term is the expression that constructs it."""

    _given: dict[str, Any]
    collects_stats = False

    def __new__(cls: type[Self], *args: Any, **kwargs: Any) -> Self:
        term = super().__new__(cls)
        object.__setattr__(term, "_given", checked(cls, args, kwargs))
        return term

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self._given.items())
        return f"{type(self).__name__}({settings})"

    def forward(
        self,
        embeddings: Tensor,
        labels: AnyLabels,
        *others: Any,
        ref: Tensor | None = None,
        ref_labels: AnyLabels | None = None,
        ref_replicated: bool = False,
        pooled: Tensor | None = None,
        ids: Tensor | Sequence[int] | None = None,
        group: Any = None,
        **unknown: Any,
    ) -> Tensor:
        """Return the value of the term, a scalar.

        With several processes, each passes its part of every argument, and the value is that of a single process with
        all parts. The same holds for every gradient once it is averaged over the processes, as DistributedDataParallel
        does.

        Parameters
        ----------
        embeddings : (n, d) float tensor
            Embeddings before any normalization. Half precision is computed in float32.
        labels : (n,) integers, (n, m) relation matrix, or LabelSets
            Class of each sample (-1 if unknown), or which samples are similar (1), dissimilar (0) or of unknown
            relation (-1). With several processes, a relation matrix has a column for each reference of all processes,
            or only for those of its own process; the relations to the others are then unknown.
        ref : (m, d) float tensor, optional
            Reference that the embeddings are compared with. By default, the batch itself.
        ref_labels : (m,) integers, optional
            Class of each reference. It is not needed if `labels` is a relation matrix.
        ref_replicated : bool
            Whether all processes pass the same `ref`, such as prototypes, instead of their part of it.
        pooled : (n, D) float tensor, optional
            Features of the trunk, for terms that act on them.
        ids : (n,) integers, optional
            Number of each embedding's sample in the data set, for terms that remember samples.
        group : ProcessGroup, optional
            Processes that share the batch, as in `distributed.use_group`. By default, all processes, or those of the
            context.

        Raises
        ------
        TypeError
            If `embeddings`, `ref` or `pooled` is not a tensor, another argument is passed without its name, or a name
            is unknown.
        ValueError
            If shapes or lengths disagree, embeddings are not finite (checked on the CPU), or this process is not in the
            group. With several processes, all of them raise the error that one of them finds, and the message names
            that process.
        """
        if others:
            raise TypeError(f"{type(self).__name__}: {NO_TUPLES}")
        for name in unknown:
            suggestion = suggest_name(name, CALLED_WITH)
            raise TypeError(f"{type(self).__name__}: got an unexpected argument {quoted(name)}{suggestion}")
        self._refuse_shards("forward")
        if group is not None:
            scope: AbstractContextManager[None] = distributed.use_group(group)
        elif not traced() and torch.is_inference_mode_enabled():
            scope = outside_inference_mode()
        elif isinstance(embeddings, Tensor) and under_autocast(embeddings.device):
            scope = without_autocast(embeddings.device)
        else:
            batch = global_batch(embeddings, labels, ref, ref_labels, pooled, ids, ref_replicated=ref_replicated)
            value = self._whole(batch)
            if in_transform():
                keep_plain_tensors(self)
            return value
        with scope:
            # not `self.forward`, which accelerate replaces by a function that turns autocast on again
            return Term.forward(
                self,
                embeddings,
                labels,
                ref=ref,
                ref_labels=ref_labels,
                ref_replicated=ref_replicated,
                pooled=pooled,
                ids=ids,
            )

    def _refuse_shards(self, method: str) -> None:
        """Raise if FSDP2 has not gathered the parameters, whose gradients would silently be wrong."""
        if traced() or not any(distributed.is_shard(part) for part in self.parameters()):
            return
        if method == "forward":
            advice = "call it in the forward of the module that fully_shard was called on"
        else:
            advice = f'call register_fsdp_forward_method(objective, "{method}") of torch.distributed.fsdp first'
        raise ValueError(f"{type(self).__name__}: {method}: this process has only shards of the parameters; {advice}")

    def _whole(self, batch: Batch) -> Tensor:
        """Return the value: the sum of the shares of all processes."""
        if distributed.world() == 1:
            return self.local_value(batch)
        # adding 0 x makes every process take part in the backward pass of the gathering, even if its share reads no row
        return distributed.all_reduce_loss(self.local_value(batch) + 0 * batch.x[:0].sum())

    def local_value(self, batch: Batch) -> Tensor:
        """Return this process's share of the value; the shares of all processes add up to it."""
        raise NotImplementedError

    def local_sample_losses(self, batch: Batch) -> Tensor:
        """Return the losses of this process's samples, (k,); the mean over all samples is the value."""
        detail = "its value is not a mean over samples, so samples have no losses of their own"
        raise TypeError(f"{type(self).__name__}: {detail}")

    def from_distances(self, distances: Tensor, labels: AnyLabels, *, ref_labels: AnyLabels | None = None) -> Tensor:
        """Return the value of the term from distances that are computed already, such as those of another metric.

        Parameters
        ----------
        distances : (n, m) float tensor
            Dissimilarities of n samples to m references, smaller for nearer ones, in the form that the loss compares
            (its attribute `distance`): "euclidean", "sq_euclidean", "cosine", which is one minus the similarity, or
            "dot", which is minus the inner product. They may have a graph.
        labels : (n,) integers, (n, m) relation matrix, or LabelSets
            As in a call of the term.
        ref_labels : (m,) integers, optional
            Class of each reference. By default, the batch is compared with itself: the matrix is square, and its
            diagonal, which must be finite, too, does not change the value.

        Returns
        -------
        Tensor
            Scalar. With several processes, each passes the rows of its samples, with a column for each reference of all
            processes, and the labels of all references.

        Raises
        ------
        TypeError
            If the term, a part of it or its miner needs the embeddings themselves, or the parts of a sum compare
            different distances.
        ValueError
            If shapes disagree, or distances are not finite (checked on the CPU).

        Examples
        --------
        >>> from nearfar import SupConLoss
        >>> loss = SupConLoss()
        >>> x = torch.nn.functional.normalize(torch.randn(8, 4, generator=torch.Generator().manual_seed(0)))
        >>> y = torch.arange(8) // 2
        >>> torch.testing.assert_close(loss.from_distances(1 - x @ x.T, y), loss(x, y))
        """
        reason = self.distances_refused()
        if reason is not None:
            raise TypeError(f"from_distances: {reason}")
        self._refuse_shards("from_distances")
        ref: Tensor | None = None
        try:
            check_distances(distances)
            if ref_labels is not None:
                ref = stand_in(distances)
        except (TypeError, ValueError) as error:
            if distributed.world() == 1:
                raise
            raise refused(error) from error
        replicated = ref is not None
        batch = global_batch(distances, labels, ref, ref_labels, None, None, ref_replicated=replicated)
        n, m = batch.x.shape
        if ref is None and n != m:
            got = f"({n}, {m}) compares {n} samples with {m} references"
            raise ValueError(f"distances: {got}, which need ref_labels=, one label per column")
        with without_autocast(batch.x.device):
            return self._whole(batch._replace(given=True))

    def distances_refused(self) -> str | None:
        """Return why the term cannot be computed by `from_distances`, or None if it can."""
        return needs_embeddings(type(self).__name__)

    def sample_losses(
        self,
        embeddings: Tensor,
        labels: AnyLabels,
        *,
        ref: Tensor | None = None,
        ref_labels: AnyLabels | None = None,
        ids: Tensor | Sequence[int] | None = None,
    ) -> Tensor:
        """Return the loss of each sample of this process; the mean over the samples of all processes is the value.

        In training mode, this counts as a call: a term that remembers batches, such as `CrossBatchMemory`, stores this
        one.

        Parameters
        ----------
        embeddings, labels, ref, ref_labels, ids
            As in a call of the term.

        Returns
        -------
        (n,) tensor
            Losses, 0 for samples that do not contribute to the value. What a loss adds once per call, such as a
            penalty on its centers, is in every one of them, and so once in their mean, also in a weighted one.

        Raises
        ------
        TypeError
            If the value of the term, or of a part of it, is not a mean over samples.

        Examples
        --------
        >>> from nearfar import NTXentLoss
        >>> loss = NTXentLoss()
        >>> x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
        >>> y = torch.arange(8) // 2
        >>> torch.testing.assert_close(loss.sample_losses(x, y).mean(), loss(x, y))
        """
        self._refuse_shards("sample_losses")
        if not traced() and torch.is_inference_mode_enabled():
            with outside_inference_mode():
                return self.sample_losses(embeddings, labels, ref=ref, ref_labels=ref_labels, ids=ids)
        batch = global_batch(embeddings, labels, ref, ref_labels, None, ids)
        with without_autocast(batch.x.device):
            losses = self.local_sample_losses(batch)
        if in_transform():
            keep_plain_tensors(self)
        return losses

    def weighted(
        self,
        embeddings: Tensor,
        labels: AnyLabels,
        weights: Tensor,
        *,
        ref: Tensor | None = None,
        ref_labels: AnyLabels | None = None,
        ids: Tensor | Sequence[int] | None = None,
    ) -> Tensor:
        """Return the weighted mean of `sample_losses`, sum_i w_i l_i / sum_i w_i.

        To weight classes, pass ``weights=class_weights[labels]``.

        Parameters
        ----------
        embeddings, labels, ref, ref_labels, ids
            As in a call of the term.
        weights : (n,) tensor
            Weight w_i of each sample, at least 0.

        Raises
        ------
        TypeError
            If the value of the term, or of a part of it, is not a mean over samples.
        ValueError
            If there is not one weight for each embedding, or a weight is negative or not a number (checked on the CPU).
        """
        self._refuse_shards("weighted")
        try:
            check_tensor("embeddings", embeddings)
            w = _checked_weights(weights, len(embeddings)).to(embeddings.device)
        except (TypeError, ValueError, RuntimeError) as error:
            if distributed.world() == 1:
                raise
            raise refused(error) from error
        losses = self.sample_losses(embeddings, labels, ref=ref, ref_labels=ref_labels, ids=ids)
        # sum_i w_i l_i / sum_i w_i over the samples of all processes
        w = w.to(losses.dtype)
        share = (w * losses).sum() / distributed.total(w.sum()).clamp_min(torch.finfo(w.dtype).tiny)
        return distributed.all_reduce_loss(share)

    @property
    def reads_scores(self) -> bool:
        """Whether the term reads the class scores of another loss in the objective."""
        return False

    @property
    def reads_centers(self) -> bool:
        """Whether the term reads the class centers of another loss in the objective."""
        return False

    def publish(self, batch: Batch) -> Batch:
        """Return the batch with the class scores, if this term has them."""
        return batch

    def class_centers(self) -> Tensor | None:
        """Return the class centers that this term learns, (K, C, d) for K of each of C classes, or None."""
        return None

    def learned_values(self) -> dict[str, float]:
        """Return numbers that the term learns and a log should show, by name, such as a temperature."""
        return {}

    def collect_stats(self: Self, on: bool = True) -> Self:
        """Let each call compute the statistics that `stats_` returns, or no longer.

        They take up to a third of the time of a call, so no call computes them unless asked. The value and its gradient
        remain the same.

        Parameters
        ----------
        on : bool
            Whether the next calls compute statistics. If not, `stats_` remains that of the last call that did.

        Returns
        -------
        Term
            The term itself.

        Examples
        --------
        >>> from nearfar import TripletLoss
        >>> loss = TripletLoss(margin=0.2).collect_stats()
        >>> value = loss(torch.eye(4), torch.tensor([0, 0, 1, 1]))
        >>> loss.stats_["active"]
        1.0
        """
        for module in self.modules():
            if isinstance(module, Term):
                module.collects_stats = on
        return self

    def parts(self) -> list[tuple[float, Term]]:
        """Return the weighted terms that the term is a sum of: by default, itself."""
        return [(1.0, self)]

    def _check_miner(self, miner: Any) -> None:
        if miner is not None and (not callable(miner) or isinstance(miner, (type, Term))):
            raise TypeError(f"{type(self).__name__}: miner must be a miner such as BatchHard(), got {miner!r}")
        if hasattr(miner, "mine"):  # as those of pytorch-metric-learning have
            detail = f"{type(miner).__name__} makes tuples of indices; pass a miner of nearfar, such as BatchHard()"
            raise TypeError(f"{type(self).__name__}: miner: {detail}")

    def __add__(self, other: Term) -> Sum:
        if not isinstance(other, Term):
            return NotImplemented
        return Sum([*self.parts(), *other.parts()])

    def __radd__(self, other: int) -> Sum:
        if other != 0:  # Python's `sum` begins with 0
            return NotImplemented
        return Sum(self.parts())

    def __mul__(self, weight: float) -> Sum:
        if isinstance(weight, Term):
            raise TypeError("an objective is a weighted sum: multiply a term by a number, not by a term")
        number = _constant(weight)
        return Sum([(number * own, term) for own, term in self.parts()])

    __rmul__ = __mul__

    def __truediv__(self, number: float) -> Sum:
        if isinstance(number, Term) or not number:
            raise TypeError("an objective is a weighted sum: divide a term by a number that is not 0")
        divisor = _constant(number)
        return Sum([(own / divisor, term) for own, term in self.parts()])

    def __neg__(self) -> Sum:
        return self * -1

    def __sub__(self, other: Term) -> Sum:
        if not isinstance(other, Term):
            return NotImplemented
        return self + -other


class Sum(Term):
    """A weighted sum of terms.

    Parameters
    ----------
    parts : sequence of (float, Term)
        Weights, which must be finite, and terms.

    Attributes
    ----------
    weights : list of float
        Weights of the terms.
    terms : ModuleList
        Terms of the sum.
    parts_ : dict of str to Tensor
        Unweighted value of every term in the last call, without gradient.

    Raises
    ------
    ValueError
        If a weight is not finite.
    """

    def __init__(self, parts: Sequence[tuple[float, Term]]) -> None:
        super().__init__()
        self.weights = [_constant(weight) for weight, _ in parts]
        if not all(isfinite(weight) for weight in self.weights):
            raise ValueError(f"the weights of an objective must be finite, got {self.weights}")
        self.terms = nn.ModuleList(term for _, term in parts)
        self.parts_: dict[str, Tensor] = {}

    def parts(self) -> list[tuple[float, Term]]:
        terms = cast(Iterable[Term], self.terms)  # a ModuleList declares modules of any kind
        return list(zip(self.weights, terms, strict=True))

    def names(self) -> list[str]:
        """Return one name per part: its class, numbered when it occurs again."""
        names: list[str] = []
        times: dict[str, int] = {}
        for term in self.terms:
            name = getattr(term, "title", type(term).__name__)
            times[name] = times.get(name, 0) + 1
            if times[name] > 1:
                name = f"{name}_{times[name]}"
            names.append(name)
        return names

    def learned_values(self) -> dict[str, float]:
        rows = zip(self.names(), self.parts(), strict=True)
        return {f"{name}_{key}": value for name, (_, term) in rows for key, value in term.learned_values().items()}

    def distances_refused(self) -> str | None:
        compared: dict[str, str] = {}
        for _, term in self.parts():
            reason = term.distances_refused()
            if reason is not None:
                return reason
            compared.setdefault(repr(getattr(term, "distance", None)), type(term).__name__)
        if len(compared) > 1:
            kinds = ", ".join(f"{kind} in {name}" for kind, name in compared.items())
            return f"the terms compare different distances, {kinds}; call each of them with its own"
        return None

    def local_value(self, batch: Batch) -> Tensor:
        batch = self._shared(batch)
        # unweighted, for the log; what trains is their weighted sum
        shares = [term.local_value(batch) for _, term in self.parts()]
        values = distributed.total(torch.stack([share.detach() for share in shares]))
        self.parts_ = dict(zip(self.names(), values, strict=True))
        return torch.stack([w * share for w, share in zip(self.weights, shares, strict=True)]).sum()

    def local_sample_losses(self, batch: Batch) -> Tensor:
        batch = self._shared(batch)
        return torch.stack([w * term.local_sample_losses(batch) for w, term in self.parts()]).sum(0)

    def _shared(self, batch: Batch) -> Batch:
        """Return the batch with the class scores and centers of one term, which others read."""
        if any(term.reads_scores for _, term in self.parts()):
            for _, term in self.parts():
                batch = term.publish(batch)
        if any(term.reads_centers for _, term in self.parts()):
            centers = None
            for _, term in self.parts():
                if centers is None:
                    centers = term.class_centers()
            if centers is not None:
                centers = centers.to(batch.x.dtype)
            batch = batch._replace(centers=centers)
        return batch

    @property
    def stats_(self) -> dict[str, dict[str, float]]:
        """Statistics of every part that has them (see `RowLoss.stats_`), once `collect_stats` has asked for them."""
        rows = zip(self.names(), self.terms, strict=True)
        found = {name: getattr(term, "stats_", None) for name, term in rows}
        return {name: stats for name, stats in found.items() if stats is not None}

    def __repr__(self) -> str:
        if type(self) is Sum:
            return sum_text(self.parts())
        return super().__repr__()


class AnchorLoss(Term):
    """Base class of losses that are a sum over anchors, each compared with a reference, in blocks of anchors.

    Parameters
    ----------
    block : int, optional
        Number of anchors processed at a time. Memory is proportional to block x references, and the value is the same
        for any block. By default, it is chosen automatically.

    Attributes
    ----------
    stats_ : dict of str to float
        Statistics of the last call that collected them (`collect_stats`), of the anchors of this process: "active", the
        share of anchors with a positive loss, and "positive" and "negative", the mean distances of the positive and
        negative pairs. Empty if no call has.
    """

    def __init__(self, *, block: int | None = None) -> None:
        super().__init__()
        self.block = block
        self._sums: Tensor | None = None  # a few sums without a graph, from which `stats_` is divided

    def reference(self, batch: Batch) -> tuple[Tensor, Labels]:
        """Return what the batch is compared with, and its labels."""
        raise NotImplementedError

    def compare(self, batch: Batch) -> Tensor:
        """Return this process's share of the sum over the anchors of a batch, divided.

        A memory calls it, too, with samples of earlier batches as the reference. It changes nothing but the statistics
        of the last call.
        """
        raise NotImplementedError

    def penalty(self, batch: Batch) -> Tensor | None:
        """Return what the method adds to the value once per call, such as a penalty on its centers, or None."""
        return None

    def local_value(self, batch: Batch) -> Tensor:
        """Return this process's share of the value: `compare`, and an equal share of the penalty."""
        value = self.compare(batch)
        penalty = self.penalty(batch)
        return value if penalty is None else value + penalty / distributed.world()

    def compare_samples(self, batch: Batch) -> Tensor:
        """Return the losses of this process's samples without the penalty, (k,); their mean is that of `compare`."""
        return super().local_sample_losses(batch)  # raises

    def local_sample_losses(self, batch: Batch) -> Tensor:
        losses = self.compare_samples(batch)
        penalty = self.penalty(batch)
        return losses if penalty is None else losses + penalty  # in each, so that any weighted mean has it once

    @property
    def stats_(self) -> dict[str, float]:
        raise NotImplementedError


def needs_embeddings(what: str) -> str:
    """Return why something is refused by `Term.from_distances`."""
    return f"{what} needs the embeddings, not only their distances"


def _constant(weight: Any) -> float:
    """Return the weight of a term as a number, or raise; a tensor with a gradient would no longer learn, unseen."""
    if isinstance(weight, Tensor) and weight.requires_grad:
        advice = "multiply the value instead, weight * loss(embeddings, labels)"
        raise TypeError(f"the weights of an objective are constants, got a tensor with a gradient; {advice}")
    try:
        return float(weight)
    except (TypeError, ValueError, RuntimeError) as error:
        expected = "an objective is a weighted sum: multiply a term by a number"
        raise TypeError(f"{expected}, got {weight!r:.40}") from error


def _checked_weights(weights: Any, n: int) -> Tensor:
    """Return the weights of n samples, or raise; their numbers are read on the CPU only, to make no device wait."""
    w = torch.as_tensor(weights)
    if w.shape != (n,):
        raise ValueError(f"weights: expected one per embedding, {n}, got shape {tuple(w.shape)}")
    if w.device.type == "cpu" and not bool(((w >= 0) & w.isfinite()).all()):
        raise ValueError(f"weights: must be finite and not negative, got {w.tolist()!r:.60}")
    return w


class SetTerm(Term):
    """Base class of terms that are a function of the whole batch.

    With several processes, each computes the value and contributes an equal share of it. A subclass implements
    ``value(batch)``.
    """

    def value(self, batch: Batch) -> Tensor:
        """Return the scalar value."""
        raise NotImplementedError

    def local_value(self, batch: Batch) -> Tensor:
        if not len(batch.x):
            return batch.x.sum() * 0
        return self.value(batch) / distributed.world()
