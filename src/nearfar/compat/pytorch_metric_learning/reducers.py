"""Reducers: how the losses of samples, pairs or triplets become one number.

A loss that nearfar has with the asked reduction computes it directly. For all others, `compute_loss` returns a
dictionary of losses as in the other library, and the reducer is called with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .mismatch import Mismatch
from .utils import common_functions

PAIRS = ("pos_pair", "neg_pair")


class BaseReducer(nn.Module):
    """The base of reducers, also of your own: state `element_reduction`, and others where pairs or triplets differ.

    `kind` is the name of the reduction that the losses of nearfar know; "" is none.
    """

    kind = ""

    def __init__(self, *, collect_stats: bool | None = None, **settings: Any) -> None:
        super().__init__()
        if settings:
            raise TypeError(f"{type(self).__name__}: unknown settings {sorted(settings)}")
        self.collect_stats = common_functions.collects_stats(collect_stats)

    def forward(self, loss_dict: Mapping[str, Mapping[str, Any]], embeddings: Tensor, labels: Tensor | None) -> Any:
        """Return one number from the losses of one name.

        Parameters
        ----------
        loss_dict : {name: {"losses", "indices", "reduction_type"}}
            "reduction_type" is "element", "pos_pair", "neg_pair", "triplet" or "already_reduced".
        embeddings : (n, d) tensor
        labels : (n,) tensor
        """
        if len(loss_dict) != 1:
            raise Mismatch(f"{type(self).__name__}: expected one kind of losses, got {sorted(loss_dict)}")
        (info,) = loss_dict.values()
        losses = info["losses"]
        if not isinstance(losses, Tensor):
            return self.zero_loss(embeddings) + losses
        if info["reduction_type"] == "already_reduced":
            if losses.numel() > 1:
                raise Mismatch(f"{type(self).__name__}: already reduced losses are one number, got {losses.shape}")
            return losses.reshape(())
        return self.reduce(info, losses, embeddings, labels)

    def reduce(self, info: Mapping[str, Any], losses: Tensor, embeddings: Tensor, labels: Tensor | None) -> Tensor:
        """Return one number from losses that are not reduced."""
        reduction: Callable[..., Tensor] = {
            "element": self.element_reduction,
            "pos_pair": self.pos_pair_reduction,
            "neg_pair": self.neg_pair_reduction,
            "triplet": self.triplet_reduction,
        }[info["reduction_type"]]
        return reduction(losses, info["indices"], embeddings, labels)

    def element_reduction(self, losses: Tensor, loss_indices: Any, embeddings: Tensor, labels: Tensor | None) -> Tensor:
        raise NotImplementedError

    def pos_pair_reduction(
        self, losses: Tensor, loss_indices: Any, embeddings: Tensor, labels: Tensor | None
    ) -> Tensor:
        return self.element_reduction(losses, loss_indices, embeddings, labels)

    def neg_pair_reduction(
        self, losses: Tensor, loss_indices: Any, embeddings: Tensor, labels: Tensor | None
    ) -> Tensor:
        return self.element_reduction(losses, loss_indices, embeddings, labels)

    def triplet_reduction(self, losses: Tensor, loss_indices: Any, embeddings: Tensor, labels: Tensor | None) -> Tensor:
        return self.element_reduction(losses, loss_indices, embeddings, labels)

    def zero_loss(self, embeddings: Tensor) -> Tensor:
        """Return 0 with a gradient of 0."""
        return (embeddings * 0).sum()


class MeanReducer(BaseReducer):
    """The mean."""

    kind = "mean"

    def element_reduction(self, losses: Tensor, loss_indices: Any, embeddings: Tensor, labels: Tensor | None) -> Tensor:
        return losses.mean() if len(losses) else self.zero_loss(embeddings)


class SumReducer(BaseReducer):
    """The sum."""

    kind = "sum"

    def element_reduction(self, losses: Tensor, loss_indices: Any, embeddings: Tensor, labels: Tensor | None) -> Tensor:
        return losses.sum() if len(losses) else self.zero_loss(embeddings)


class ThresholdReducer(BaseReducer):
    """The mean of those that are above `low` and below `high`; 0 where none is."""

    def __init__(self, low: float | None = None, high: float | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        if low is None and high is None:
            raise Mismatch("ThresholdReducer: at least one of low and high must be given")
        self.low = low
        self.high = high
        self.kind = "nonzero" if low == 0 and high is None else ""

    def element_reduction(self, losses: Tensor, loss_indices: Any, embeddings: Tensor, labels: Tensor | None) -> Tensor:
        keep = torch.ones_like(losses, dtype=torch.bool)
        if self.low is not None:
            keep = keep & (losses > self.low)
        if self.high is not None:
            keep = keep & (losses < self.high)
        return losses[keep].mean() if keep.any() else self.zero_loss(embeddings)


class AvgNonZeroReducer(ThresholdReducer):
    """The mean of those that are above 0."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(low=0, **settings)


class ClassWeightedReducer(BaseReducer):
    """The mean, each loss times the weight of the class of its sample, or of its anchor.

    Parameters
    ----------
    weights : (C,) tensor
    """

    def __init__(self, weights: Tensor, **settings: Any) -> None:
        super().__init__(**settings)
        self.weights = weights

    def element_reduction(self, losses: Tensor, loss_indices: Any, embeddings: Tensor, labels: Tensor | None) -> Tensor:
        if labels is None:
            raise Mismatch("ClassWeightedReducer: labels are needed")
        anchors = loss_indices if isinstance(loss_indices, Tensor) else loss_indices[0]
        weights = self.weights.to(losses)[labels.to(losses.device)[anchors]]
        return (losses * weights).mean() if len(losses) else self.zero_loss(embeddings)


class DivisorReducer(BaseReducer):
    """The sum over a divisor that the loss states; 0 where that is 0."""

    kind = "divisor"

    def reduce(self, info: Mapping[str, Any], losses: Tensor, embeddings: Tensor, labels: Tensor | None) -> Tensor:
        if "divisor" not in info:
            raise Mismatch("DivisorReducer: this loss has no divisor; use another reducer")
        divisor = info["divisor"]
        if divisor == 0:
            return self.zero_loss(embeddings)
        return losses.sum() / divisor


class PerAnchorReducer(BaseReducer):
    """The losses of the pairs of an anchor become one, and those of the anchors are reduced by another reducer.

    Parameters
    ----------
    reducer : BaseReducer, optional
        The other one; the default is the mean.
    aggregation_func : callable
        From the (n, k) losses of the pairs, 0 where an anchor has fewer than k, and the (n,) numbers of pairs, to (n,)
        losses; the default is the mean.
    """

    def __init__(
        self,
        reducer: BaseReducer | None = None,
        aggregation_func: Callable[[Tensor, Tensor], Tensor] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.reducer = MeanReducer() if reducer is None else reducer
        self.aggregation_func = mean_of_rows if aggregation_func is None else aggregation_func

    def reduce(self, info: Mapping[str, Any], losses: Tensor, embeddings: Tensor, labels: Tensor | None) -> Tensor:
        if info["reduction_type"] == "triplet":
            raise NotImplementedError("PerAnchorReducer: losses of triplets are not supported; use another reducer")
        indices = info["indices"]
        if info["reduction_type"] in PAIRS:
            losses = self._of_anchors(losses, indices[:2], len(embeddings))
            indices = torch.arange(len(embeddings), device=losses.device)
        elements = {"losses": losses, "indices": indices, "reduction_type": "element"}
        found: Tensor = self.reducer({"loss": elements}, embeddings, labels)
        return found

    def _of_anchors(self, losses: Tensor, pairs: Sequence[Tensor], n: int) -> Tensor:
        """Return one loss for each of n anchors; a pair that is listed several times counts once."""
        (anchors, _), number = torch.unique(torch.stack(list(pairs)), dim=1, return_inverse=True)
        losses = losses.new_zeros(len(anchors)).scatter(0, number, losses)
        # the losses of an anchor as a row of a table (n, most pairs of an anchor), with zeros behind them
        order = anchors.argsort(stable=True)
        counts = torch.bincount(anchors, minlength=n)
        place = torch.arange(len(anchors), device=anchors.device) - (counts.cumsum(0) - counts)[anchors[order]]
        width = int(counts.max()) if n else 0
        table = losses.new_zeros(n, width).index_put((anchors[order], place), losses[order])
        return self.aggregation_func(table, counts)


def mean_of_rows(x: Tensor, num_per_row: Tensor) -> Tensor:
    """Return the means of rows of which only the first numbers count, 0 where none does."""
    return x.sum(1) / num_per_row.clamp_min(1)


class MultipleReducers(BaseReducer):
    """The sum over kinds of losses, each with a reducer of its own.

    Parameters
    ----------
    reducers : {name: BaseReducer}
    default_reducer : BaseReducer, optional
        For names that are not among them; the default is the mean.
    """

    def __init__(
        self, reducers: Mapping[str, BaseReducer], default_reducer: BaseReducer | None = None, **settings: Any
    ) -> None:
        super().__init__(**settings)
        self.reducers = nn.ModuleDict(reducers)
        self.default_reducer = MeanReducer() if default_reducer is None else default_reducer

    def forward(self, loss_dict: Mapping[str, Mapping[str, Any]], embeddings: Tensor, labels: Tensor | None) -> Any:
        total = self.zero_loss(embeddings)
        for name, info in loss_dict.items():
            reducer: nn.Module = self.default_reducer
            if name in self.reducers:
                reducer = self.reducers[name]
            total = total + reducer({name: info}, embeddings, labels)
        return total


class DoNothingReducer(BaseReducer):
    """The dictionary of losses, as it is."""

    kind = "none"

    def forward(self, loss_dict: Mapping[str, Mapping[str, Any]], embeddings: Tensor, labels: Tensor | None) -> Any:
        return loss_dict
