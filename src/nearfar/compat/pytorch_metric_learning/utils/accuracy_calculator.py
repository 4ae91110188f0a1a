"""Scores by nearest neighbors, under the names of the other library."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from ....evaluation import evaluate, mean_average_precision, mrr

NAMES: dict[str, Callable[[Any], float]] = {
    "precision_at_1": lambda scores: scores.recall_at[1],
    "r_precision": lambda scores: scores.r_precision,
    "mean_average_precision_at_r": lambda scores: scores.map_at_r,
    "NMI": lambda scores: scores.nmi,
    "AMI": lambda scores: scores.ami,
}
SLOWER = ("mean_average_precision", "mean_reciprocal_rank")


class AccuracyCalculator:
    """Scores of embeddings, ties counted by their expectation and labels of any kind.

    Parameters
    ----------
    include, exclude : collections of str
        Names of scores; an empty `include` is all.
    k : int or str, optional
        None and "max_bin_count": scores need no number of neighbors here.
    """

    def __init__(
        self, include: Collection[str] = (), exclude: Collection[str] = (), k: int | str | None = None, **others: Any
    ) -> None:
        if others:
            told = "use nearfar.evaluation.evaluate, which has its own settings"
            raise NotImplementedError(f"AccuracyCalculator: {', '.join(sorted(others))} is not here; {told}")
        if k not in (None, "max_bin_count"):
            raise NotImplementedError(f"AccuracyCalculator: k: scores take all neighbors that they need; got {k!r}")
        known = {*NAMES, *SLOWER}
        unknown = {*include, *exclude} - known
        if unknown:
            raise ValueError(
                f"AccuracyCalculator: no score is called {sorted(unknown)[0]!r}; {', '.join(sorted(known))}"
            )
        self.names = [name for name in (*NAMES, *SLOWER) if (not include or name in include) and name not in exclude]

    def get_accuracy(
        self,
        query: Any,
        query_labels: Any,
        reference: Any = None,
        reference_labels: Any = None,
        ref_includes_query: bool = False,
        include: Collection[str] = (),
        exclude: Collection[str] = (),
    ) -> dict[str, float]:
        """Return the scores of queries, (n, d) with (n,) labels, among references, or among one another."""
        names = [name for name in self.names if (not include or name in include) and name not in exclude]
        given: dict[str, Any] = {}
        if ref_includes_query:
            raise NotImplementedError("ref_includes_query: pass evaluate(..., queries=) of nearfar.evaluation instead")
        if reference is not None:
            given = {"gallery": reference, "gallery_labels": reference_labels}
        found: dict[str, float] = {}
        if any(name in NAMES for name in names):
            clustered = "NMI" in names or "AMI" in names
            scores = evaluate(query, query_labels, distance="euclidean", clustering=clustered, **given)
            found = {name: float(NAMES[name](scores)) for name in names if name in NAMES}
        if "mean_average_precision" in names:
            value = mean_average_precision(query, query_labels, distance="euclidean", **given)
            found["mean_average_precision"] = float(value)
        if "mean_reciprocal_rank" in names:
            found["mean_reciprocal_rank"] = float(mrr(query, query_labels, distance="euclidean", **given))
        return found
