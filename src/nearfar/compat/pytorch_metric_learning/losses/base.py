"""The base of all losses of this module: their calls, their distance and reducer, and their terms of nearfar.

A loss that nearfar has with the given distance and reducer is a term of nearfar, `term`, which holds no list of pairs
and shares the batch of several processes. With any other distance or reducer, `compute_loss` finds the losses of
samples, pairs or triplets from the matrix of distances, and the reducer makes one number of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from ....deep import distributed
from ....deep.objective.relations import UNKNOWN
from ....deep.objective.terms import Term
from ..distances import BaseDistance, CosineSimilarity, DotProductSimilarity, LpDistance
from ..indices import Indices, Labels, lists_twice, of_all_processes, relation_of, sample_weights
from ..mismatch import Mismatch
from ..reducers import BaseReducer, DoNothingReducer, MeanReducer, MultipleReducers
from ..utils import common_functions

CLASS_OF_UNKNOWN = 1 << 62
LossDict = Mapping[str, Mapping[str, Any]]


class BaseMetricLossFunction(nn.Module):
    """The base of losses, also of your own, which state `compute_loss`.

    Parameters
    ----------
    embedding_regularizer : Module, optional
        A penalty of the embeddings, which is added with the weight `embedding_reg_weight`.
    distance, reducer : BaseDistance, BaseReducer, optional
        The default is that of the loss.

    Attributes
    ----------
    term : Term or None
        The loss as nearfar computes it; None with a distance or a reducer that only `compute_loss` takes.
    counts_repeats : bool
        A pair of the indices counts as often as it is listed; with False, once.
    """

    counts_repeats = False

    def __init__(
        self,
        embedding_regularizer: nn.Module | None = None,
        embedding_reg_weight: float = 1,
        *,
        distance: BaseDistance | None = None,
        reducer: BaseReducer | None = None,
        collect_stats: bool | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        if settings:
            raise TypeError(f"{type(self).__name__}: unknown settings {sorted(settings)}")
        self.collect_stats = common_functions.collects_stats(collect_stats)
        self.term: Any = None
        self.embedding_regularizer = embedding_regularizer
        self.embedding_reg_weight = embedding_reg_weight
        self.distance = self.get_default_distance() if distance is None else distance
        chosen = self.get_default_reducer() if reducer is None else reducer
        self.kind = getattr(chosen, "kind", "")
        names = self._sub_loss_names()
        if len(names) == 1 or isinstance(chosen, MultipleReducers | DoNothingReducer):
            self.reducer = chosen
        else:
            self.reducer = MultipleReducers({name: deepcopy(chosen) for name in names})

    def get_default_distance(self) -> BaseDistance:
        return LpDistance()

    def get_default_reducer(self) -> BaseReducer:
        return MeanReducer()

    def _sub_loss_names(self) -> list[str]:
        """Return the names of the kinds of losses that `compute_loss` returns."""
        return ["loss"]

    @property
    def sub_loss_names(self) -> list[str]:
        return self._sub_loss_names()

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor | None = None,
        indices_tuple: Indices | None = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Any:
        """Return the loss of a batch.

        Parameters
        ----------
        embeddings : (n, d) float tensor
        labels : (n,) integers, also as whole numbers in a tensor of floats; None where there are indices
        indices_tuple : 3 or 4 tensors, optional
            Triplets or pairs of samples, or of samples and references.
        ref_emb, ref_labels : (m, d) float tensor, (m,) integers, optional
        """
        itself = ref_emb is embeddings and (ref_labels is None or ref_labels is labels)
        labels = check_labels(embeddings, labels)
        if ref_emb is None or itself:
            ref_emb = None
            ref_labels = None
        else:
            ref_emb, ref_labels = another_set(ref_emb, labels if ref_labels is None else ref_labels)
        if isinstance(indices_tuple, tuple | list) and all(isinstance(part, Tensor) for part in indices_tuple):
            indices_tuple = [part.to(embeddings.device) for part in indices_tuple]
        self.check_inputs(embeddings, labels, indices_tuple, ref_emb)
        value = self.value(embeddings, labels, indices_tuple, ref_emb, ref_labels)
        if isinstance(value, Tensor) and self.embedding_regularizer is not None:
            every = distributed.gather_rows(embeddings)
            value = value + self.embedding_reg_weight * self.embedding_regularizer(every)
        return value

    def check_inputs(
        self, embeddings: Tensor, labels: Tensor | None, indices_tuple: Indices | None, ref_emb: Tensor | None
    ) -> None:
        """Raise where the loss does not take what is given, or needs what is not."""
        if labels is None and indices_tuple is None:
            raise Mismatch(f"{type(self).__name__}: labels: needed without indices_tuple")

    def value(
        self, x: Tensor, y: Tensor | None, indices: Indices | None, ref: Tensor | None, ref_y: Tensor | None
    ) -> Any:
        """Return the value of the term, or the reduced losses if there is no term."""
        if self.term is not None and x.ndim == 2 and not self.lists_pairs_twice(indices):
            return self.term_value(x, all_known(y), indices, ref, all_known(ref_y))
        return self.reduced_value(x, y, indices, ref, ref_y)

    def lists_pairs_twice(self, indices: Indices | None) -> bool:
        """Return whether the indices list pairs that count several times, which a term of nearfar does not do."""
        return self.counts_repeats and indices is not None and lists_twice(indices)

    def reduced_value(
        self, x: Tensor, y: Tensor | None, indices: Indices | None, ref: Tensor | None, ref_y: Tensor | None
    ) -> Any:
        """Return the reduced losses of the samples, pairs or triplets of all processes."""
        if distributed.world() > 1:
            x, y, indices, ref, ref_y = self._of_all_processes(x, y, indices, ref, ref_y)
        if ref is None:
            ref = x
            ref_y = y
        with distributed.local():  # every process holds the batch of all
            return self.reducer(self.compute_loss(x, y, indices, ref, ref_y), x, y)

    def _of_all_processes(
        self, x: Tensor, y: Tensor | None, indices: Indices | None, ref: Tensor | None, ref_y: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Indices | None, Tensor | None, Tensor | None]:
        """Return the batch, the indices and the references of all processes."""
        if y is None and not isinstance(indices, tuple | list):
            raise NotImplementedError(f"{type(self).__name__}: works in one process only without labels")
        if indices is not None:
            indices = of_all_processes(indices, len(x), len(x) if ref is None else len(ref))
        # in one order in every process, because each gathering waits for the same one of the others
        gathered = [None if part is None else distributed.gather_rows(part) for part in (x, y, ref, ref_y)]
        every, every_y, every_ref, every_ref_y = gathered
        assert every is not None
        return every, every_y, indices, every_ref, every_ref_y

    def term_value(
        self, x: Tensor, y: Tensor | None, indices: Indices | None, ref: Tensor | None, ref_y: Tensor | None
    ) -> Tensor:
        """Return the value of the term; pairs of indices are known relations, and all others are not."""
        if indices is not None:
            y = relation_of(indices, len(x), len(x) if ref is None else len(ref))
            ref_y = None
        found: Tensor = self.term(x, y, ref=ref, ref_labels=ref_y)
        return found

    def compute_loss(
        self, embeddings: Tensor, labels: Labels, indices_tuple: Indices | None, ref_emb: Tensor, ref_labels: Labels
    ) -> LossDict:
        """Return {name: {"losses", "indices", "reduction_type"}}.

        Without references, `ref_emb` and `ref_labels` are the very tensors `embeddings` and `labels`.
        """
        raise NotImplementedError(f"{type(self).__name__}: this distance or reducer is not supported")

    def zero_losses(self) -> LossDict:
        """Return that all kinds of losses are 0."""
        return {name: self.zero_loss() for name in self._sub_loss_names()}

    def zero_loss(self) -> Mapping[str, Any]:
        return {"losses": 0, "indices": None, "reduction_type": "already_reduced"}

    def on_engine(self, distances: Sequence[str], kinds: Mapping[str, str], raw: bool = False) -> dict[str, Any] | None:
        """Return `distance`, `normalize` and `reduction` of a term of nearfar; None where only `compute_loss` will do.

        Parameters
        ----------
        distances : names of distances that the term takes
        kinds : {kind of a reducer: name of the reduction}
        raw : bool
            The term also takes embeddings that are not scaled to unit length.
        """
        found = our_distance(self.distance)
        if found is None or found[0] not in distances or self.kind not in kinds:
            return None
        if not (found[1] or raw):
            return None
        return {"distance": found[0], "normalize": found[1], "reduction": kinds[self.kind]}

    def require_distance(self, *kinds: type[BaseDistance], **attributes: Any) -> None:
        """Raise where the distance is of another kind than the loss is defined for."""
        name = type(self).__name__
        if not isinstance(self.distance, kinds):
            allowed = " or ".join(kind.__name__ for kind in kinds)
            raise Mismatch(f"{name}: distance must be {allowed}, got {type(self.distance).__name__}")
        for attribute, wanted in attributes.items():
            if getattr(self.distance, attribute) != wanted:
                raise Mismatch(f"{name}: distance must have {attribute}={wanted}")

    def support_distance(self, kind: type[BaseDistance], **attributes: Any) -> None:
        """Raise where the distance is one that only the other library takes."""
        differ = [name for name, wanted in {"p": 2, **attributes}.items() if getattr(self.distance, name) != wanted]
        if type(self.distance) is not kind or differ:
            words = [kind.__name__, *(f"{name}={value}" for name, value in attributes.items())]
            detail = f"{', '.join(words)} is supported, got {type(self.distance).__name__}"
            changed = ", ".join(f"{name}={getattr(self.distance, name)}" for name in differ)
            raise NotImplementedError(
                f"{type(self).__name__}: distance: only {detail}{' with ' * bool(differ)}{changed}"
            )

    def require_cosines(self) -> None:
        """Raise where the distance is not the cosine itself, which is all that the term of nearfar takes."""
        self.require_distance(CosineSimilarity)
        self.support_distance(CosineSimilarity, power=1)

    def require_reducer(self, *kinds: str) -> None:
        """Raise where the loss is no mean of losses of samples, pairs or triplets that a reducer could take."""
        if self.kind not in kinds:
            detail = f"expected {', '.join(kinds)}, got {type(self.reducer).__name__}"
            raise NotImplementedError(f"{type(self).__name__}: reducer: {detail}")


class NeedsLabels(BaseMetricLossFunction):
    """A loss that needs labels even with indices."""

    takes_ref = False
    takes_indices = True

    def check_inputs(
        self, embeddings: Tensor, labels: Tensor | None, indices_tuple: Indices | None, ref_emb: Tensor | None
    ) -> None:
        if labels is None:
            raise Mismatch(f"{type(self).__name__}: labels are needed")
        if ref_emb is not None and not self.takes_ref:
            raise Mismatch(f"{type(self).__name__}: ref_emb is not supported")
        if indices_tuple is not None and not self.takes_indices:
            raise Mismatch(f"{type(self).__name__}: indices_tuple is not supported")


def check_labels(embeddings: Tensor, labels: Tensor | None) -> Tensor | None:
    """Return labels as integers on the device of the embeddings, or raise if their number is not that of these."""
    if labels is None:
        return None
    if len(labels) != len(embeddings):
        raise Mismatch("Number of embeddings must equal number of labels")
    if labels.ndim != 1:
        raise Mismatch(f"labels must be a 1D tensor of shape (batch_size,), got {tuple(labels.shape)}")
    return as_classes(labels).to(embeddings.device)


def another_set(ref_emb: Tensor, ref_labels: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return references as tensors of their own: the very tensors of the samples would be these themselves."""
    of_references = None if ref_labels is None else as_classes(ref_labels).to(ref_emb.device).clone()
    return ref_emb.view_as(ref_emb), of_references


def all_known(labels: Tensor | None) -> Tensor | None:
    """Return labels with another number for -1, which is a class like any other here, but unknown in nearfar."""
    return None if labels is None else torch.where(labels == UNKNOWN, CLASS_OF_UNKNOWN, labels)


def as_classes(labels: Tensor) -> Tensor:
    """Return labels of any kind of numbers as int64, the only kind that holds every mark such as CLASS_OF_UNKNOWN.

    Raises
    ------
    Mismatch
        If a label is not a whole number.
    """
    classes = labels.long()
    if labels.is_floating_point() and not torch.equal(classes.to(labels.dtype), labels):
        wrong = labels[classes.to(labels.dtype) != labels][0].item()
        raise Mismatch(f"labels: expected whole numbers, one for each class, got {wrong}")
    return classes


def our_distance(distance: BaseDistance) -> tuple[str, bool] | None:
    """Return our name of a distance and whether it scales embeddings to unit length; None for one without a name."""
    if type(distance) is LpDistance and distance.p == 2 and distance.power in (1, 2):
        return "euclidean" if distance.power == 1 else "sq_euclidean", distance.normalize_embeddings
    if type(distance) is CosineSimilarity and distance.power == 1 and distance.p == 2:
        return "cosine", True
    plain = distance.power == 1 and (distance.p == 2 or not distance.normalize_embeddings)
    if type(distance) is DotProductSimilarity and plain:
        return "dot", distance.normalize_embeddings
    return None


class AsDissimilarity:
    """A distance of the other library as one of nearfar: smaller is nearer.

    Parameters
    ----------
    distance : BaseDistance
        It scales vectors itself.
    """

    def __init__(self, distance: BaseDistance) -> None:
        self.distance = distance

    def __call__(self, x: Tensor, ref: Tensor) -> Tensor:
        d: Tensor = self.distance(x, ref)
        return -d if self.distance.is_inverted else d


def elements(losses: Tensor, indices: Tensor | None = None, **more: Any) -> dict[str, Any]:
    """Return the entry of a dictionary of losses for those of samples, all of them without indices."""
    which = torch.arange(len(losses), device=losses.device) if indices is None else indices
    return {"losses": losses, "indices": which, "reduction_type": "element", **more}


def reduced(loss: Tensor) -> dict[str, Any]:
    """Return the entry of a dictionary of losses for one that is a single number."""
    return {"losses": loss, "indices": None, "reduction_type": "already_reduced"}


def weighted_value(
    term: Term, x: Tensor, y: Tensor, indices: Indices, ref: Tensor | None = None, ref_y: Tensor | None = None
) -> Tensor:
    """Return the mean of the losses of samples, each weighted by how often the indices list it, over all processes."""
    losses = term.sample_losses(x, y, ref=ref, ref_labels=ref_y)
    n = len(x)
    sizes = [n]
    if distributed.world() > 1:
        sizes = distributed.numbers_of_rows(n, x.device)
        indices = of_all_processes(indices, n, n if ref is None else len(ref))
    weights = sample_weights(indices, sum(sizes), anchors_only=ref is not None)[distributed.part_of(sizes)]
    # the mean is over the samples of all processes, also those whose weight is 0
    return distributed.all_reduce_loss((losses * weights.to(losses)).sum() / max(sum(sizes), 1))
