"""Scores by nearest neighbors, under the names of the other library."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....evaluation import evaluate, mean_average_precision, mrr
from ..mismatch import Mismatch
from . import common_functions
from .inference import COMPARED_AT_ONCE, FaissKMeans, FaissKNN

NAMES: dict[str, Callable[[Any], float]] = {
    "precision_at_1": lambda scores: scores.recall_at[1],
    "r_precision": lambda scores: scores.r_precision,
    "mean_average_precision_at_r": lambda scores: scores.map_at_r,
    "NMI": lambda scores: scores.nmi,
    "AMI": lambda scores: scores.ami,
}
SLOWER = ("mean_average_precision", "mean_reciprocal_rank")
CLUSTERED = ("NMI", "AMI")


class AccuracyCalculator:
    """Scores of embeddings by Euclidean distances; queries without similar references do not count.

    With only `include` and `exclude`, scores are those of `nearfar.evaluation`, with ties counted by their expectation.
    With any other setting they are found from lists of neighbors, in which equal distances come in any order.

    Parameters
    ----------
    include, exclude : collections of str
        Names of scores; an empty `include` is all.
    avg_of_avgs : bool
        The mean over classes of the means of their queries.
    return_per_class : bool
        Lists of the means of classes, in the order of the labels.
    k : int or "max_bin_count", optional
        How many neighbors are found: all, so many, or as many as the largest class has.
    label_comparison_fn : callable, optional
        From two tensors of labels to whether they are similar.
    device : optional
        Where neighbors are found.
    knn_func : callable, optional
        From queries, k, references, and whether these include the queries, to distances and indices.
    kmeans_func : callable, optional
        From embeddings and a number to the clusters of the rows, for NMI and AMI.
    """

    def __init__(
        self,
        include: Collection[str] = (),
        exclude: Collection[str] = (),
        avg_of_avgs: bool = False,
        return_per_class: bool = False,
        k: int | str | None = None,
        label_comparison_fn: Callable[[Tensor, Tensor], Tensor] | None = None,
        device: Any = None,
        knn_func: Any = None,
        kmeans_func: Callable[[Tensor, int], Any] | None = None,
    ) -> None:
        valid = k is None or k == "max_bin_count" or (isinstance(k, int) and not isinstance(k, bool) and k > 0)
        if not valid:
            raise Mismatch(f"AccuracyCalculator: k must be a positive integer, 'max_bin_count' or None, got {k!r}")
        if avg_of_avgs and return_per_class:
            raise Mismatch("AccuracyCalculator: avg_of_avgs and return_per_class cannot both be True")
        known = {*NAMES, *SLOWER}
        unknown = {*include, *exclude} - known
        if unknown:
            detail = ", ".join(sorted(known))
            raise Mismatch(f"AccuracyCalculator: unknown score {sorted(unknown)[0]!r}; {detail}")
        self.names = [name for name in (*NAMES, *SLOWER) if (not include or name in include) and name not in exclude]
        if label_comparison_fn is not None and any(name in CLUSTERED for name in self.names):
            detail = "NMI and AMI need classes; exclude them where label_comparison_fn is given"
            raise NotImplementedError(f"AccuracyCalculator: {detail}")
        self.avg_of_avgs = avg_of_avgs
        self.return_per_class = return_per_class
        self.k = k
        self.label_comparison_fn = label_comparison_fn
        self.device = device
        self.plain = k is None and knn_func is None and label_comparison_fn is None
        self.plain = self.plain and not avg_of_avgs and not return_per_class
        self.knn_func = FaissKNN() if knn_func is None else knn_func
        self.kmeans_func = kmeans_func

    def get_curr_metrics(self) -> list[str]:
        """Return the names of the scores."""
        return list(self.names)

    def get_accuracy(
        self,
        query: Any,
        query_labels: Any,
        reference: Any = None,
        reference_labels: Any = None,
        ref_includes_query: bool = False,
        include: Collection[str] = (),
        exclude: Collection[str] = (),
    ) -> dict[str, Any]:
        """Return the scores of queries, (n, d) with (n,) labels, among references, or among one another.

        With `ref_includes_query` the queries are the first references, and no query is a neighbor of itself.
        """
        names = [name for name in self.names if (not include or name in include) and name not in exclude]
        query = _tensor(query, self.device)
        if reference is None:
            reference = query
            reference_labels = query_labels
            ref_includes_query = True
        reference = _tensor(reference, self.device)
        n = len(query)
        if ref_includes_query and not (len(reference) >= n and torch.allclose(query.double(), reference[:n].double())):
            raise Mismatch("ref_includes_query: the queries must be the first rows of the references")
        found: dict[str, Any] = {}
        clustered = [name for name in names if name in CLUSTERED]
        if clustered:
            found |= self._clustered(query, query_labels, clustered)
        names = [name for name in names if name not in CLUSTERED]
        # each query searches all others: what `evaluate` does without a gallery
        itself = ref_includes_query and len(reference) == n
        if not names:
            return found
        if self.plain and (itself or not ref_includes_query):
            given = (
                {} if itself else {"gallery": reference.numpy(force=True), "gallery_labels": _array(reference_labels)}
            )
            return found | _expected(query.numpy(force=True), _array(query_labels), names, given)
        return found | self._from_neighbors(
            query, query_labels, reference, reference_labels, ref_includes_query=ref_includes_query, names=names
        )

    def _clustered(self, query: Tensor, labels: Any, names: list[str]) -> dict[str, float]:
        number = len(np.unique(_array(labels)))
        if self.kmeans_func is None and number < len(query):
            scores = evaluate(query.numpy(force=True), _array(labels), distance="euclidean", clustering=True)
            return {name: float(NAMES[name](scores)) for name in names}
        from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score

        known = _array(labels)
        kmeans: Callable[[Tensor, int], Any] = FaissKMeans() if self.kmeans_func is None else self.kmeans_func
        clusters = _array(kmeans(query, number))
        how = {"NMI": normalized_mutual_info_score, "AMI": adjusted_mutual_info_score}
        return {name: float(how[name](known, clusters)) for name in names}

    def _from_neighbors(
        self,
        query: Tensor,
        query_labels: Any,
        reference: Tensor,
        reference_labels: Any,
        *,
        ref_includes_query: bool,
        names: list[str],
    ) -> dict[str, Any]:
        own, others = self._labels(query_labels, reference_labels)
        relevant = self._relevant(own, others)  # (n,) similar references of each query
        if ref_includes_query:
            relevant = relevant - self._similar(own, own).long()  # without each query itself
        k = self._number(relevant, len(reference), ref_includes_query)
        _, indices = self.knn_func(query, k, reference, ref_includes_query)
        counted = relevant > 0
        indices = torch.as_tensor(indices).to(own.device)[counted]
        hits = self._similar(own[counted][:, None], others[indices])  # (q, k), q queries with something to find
        values = _values(hits, relevant[counted], names)
        return {name: self._averaged(values[name], own[counted], own) for name in names}

    def _labels(self, query_labels: Any, reference_labels: Any) -> tuple[Tensor, Tensor]:
        """Return the labels as numbers, whatever they are; a function of the script gets them as they are."""
        if self.label_comparison_fn is not None:
            return _tensor(query_labels, self.device), _tensor(reference_labels, self.device)
        own = _array(query_labels)
        both = np.concatenate([own, _array(reference_labels)])
        numbers = torch.from_numpy(np.unique(both, return_inverse=True)[1].reshape(-1)).to(self.device)
        return numbers[: len(own)], numbers[len(own) :]

    def _similar(self, x: Tensor, y: Tensor) -> Tensor:
        return x == y if self.label_comparison_fn is None else self.label_comparison_fn(x, y)

    def _relevant(self, own: Tensor, others: Tensor) -> Tensor:
        if self.label_comparison_fn is None:
            # (C,) references of each class; a query's class may have none
            counts = torch.bincount(others, minlength=int(own.max()) + 1 if len(own) else 0)
            return counts[own]
        rows = max(1, COMPARED_AT_ONCE // max(len(others), 1))
        return torch.cat([self._similar(part[:, None], others[None]).sum(1) for part in own.split(rows)])

    def _number(self, relevant: Tensor, references: int, ref_includes_query: bool) -> int:
        """Return how many neighbors are found, and log where these are fewer than a query has similar references."""
        largest = int(relevant.max()) if len(relevant) else 0
        most = references - int(ref_includes_query)
        if self.k is None:
            k = most
        elif self.k == "max_bin_count":
            k = max(1, min(largest, most))
        else:
            k = min(int(self.k), most)
        if k < largest:
            detail = "the scores other than precision_at_1 are too low; take k='max_bin_count' or more"
            common_functions.LOGGER.warning(
                f"k={k} is less than {largest}, the largest number of similar references: {detail}"
            )
        else:
            common_functions.LOGGER.info(f"k={k}")
        return k

    def _averaged(self, values: Tensor, labels: Tensor, every: Tensor) -> Any:
        if not (self.avg_of_avgs or self.return_per_class):
            return float(values.mean()) if len(values) else float("nan")
        if not len(values):
            return [float("nan")] * len(torch.unique(every, dim=0)) if self.return_per_class else float("nan")
        # the mean over classes of the mean over each class: every class counts the same
        classes = torch.unique(labels, dim=0, return_inverse=True)[1]
        sums = torch.zeros(int(classes.max()) + 1, dtype=values.dtype, device=values.device).index_add(
            0, classes, values
        )
        means = sums / torch.bincount(classes)
        return means.tolist() if self.return_per_class else float(means.mean())


def _values(hits: Tensor, relevant: Tensor, names: list[str]) -> dict[str, Tensor]:
    """Return the scores of queries from the (n, k) similar neighbors and the (n,) numbers of similar references."""
    k = hits.shape[1]
    place = torch.arange(1, k + 1, device=hits.device)
    within = place <= relevant[:, None]
    correct = hits.double()
    precision = correct.cumsum(1) / place * correct  # at the places of similar neighbors
    found = {}
    if "precision_at_1" in names:
        found["precision_at_1"] = correct[:, 0]
    if "r_precision" in names:
        found["r_precision"] = (correct * within).sum(1) / relevant.clamp_max(k)
    if "mean_average_precision_at_r" in names:
        found["mean_average_precision_at_r"] = (precision * within).sum(1) / relevant
    if "mean_average_precision" in names:
        found["mean_average_precision"] = precision.sum(1) / relevant
    if "mean_reciprocal_rank" in names:
        found["mean_reciprocal_rank"] = (correct / place).amax(1)
    return found


def _expected(query: Any, labels: Any, names: list[str], given: dict[str, Any]) -> dict[str, float]:
    """Return the scores of `nearfar.evaluation`."""
    found: dict[str, float] = {}
    if any(name in NAMES for name in names):
        scores = evaluate(query, labels, distance="euclidean", clustering=False, **given)
        found = {name: float(NAMES[name](scores)) for name in names if name in NAMES}
    if "mean_average_precision" in names:
        found["mean_average_precision"] = float(mean_average_precision(query, labels, distance="euclidean", **given))
    if "mean_reciprocal_rank" in names:
        found["mean_reciprocal_rank"] = float(mrr(query, labels, distance="euclidean", **given))
    return found


def _tensor(x: Any, device: Any) -> Tensor:
    """Return x as a tensor on the device, with integer embeddings (n, d) as floats, and labels (n,) unchanged."""
    found = torch.as_tensor(x).detach().to(device)
    if found.ndim == 2 and not found.is_floating_point():
        return found.float()
    return found


def _array(labels: Any) -> Any:
    return labels.numpy(force=True) if isinstance(labels, Tensor) else np.asarray(labels)
