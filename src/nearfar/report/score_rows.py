"""Scores with their meaning, baseline, chance level and interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from numbers import Real
from typing import Any

from .content import HasScores, ReportContent

# Score -> (name, meaning). "{k}" is filled in for the scores at several k.
MEANINGS = {
    "recall_at": ("Recall@{k}", "share of queries with a relevant item among the {k} nearest"),
    "precision_at": ("Precision@{k}", "share of relevant items among the {k} nearest"),
    "map_at_r": ("MAP@R", "mean average precision of the R nearest, for R relevant items"),
    "r_precision": ("R-precision", "share of relevant items among the R nearest"),
    "mrr": ("MRR", "mean of 1 / rank of the first relevant item"),
    "ndcg_at": ("nDCG@{k}", "order of the {k} nearest by their relevance, relative to the best order"),
    "auc": ("AUC", "share of pairs of a similar and a dissimilar pair of which the similar one is nearer"),
    "nmi": ("NMI, arithmetic", "k-means and classes: mutual information / arithmetic mean of the entropies"),
    "nmi_geometric": ("NMI, geometric", "mutual information / geometric mean of the entropies"),
    "ami": ("AMI", "mutual information adjusted for chance"),
    "f1": ("Pairwise F1", "agreement of the pairs in one cluster of k-means with the pairs of one class"),
}
FIRST = {
    "recall_at_1": "share of queries whose nearest neighbor is relevant",
    "precision_at_1": "share of relevant nearest neighbors",
}
FACTS = {
    "n_queries": "queries",
    "n_gallery": "items that each query searches",
    "n_classes": "classes of queries",
    "n_in_gallery": "queries that the gallery contains, too",
    "n_lone": "queries without a relevant item",
    "clusterer": "clusters",
    "inertia": "inertia of the clusters",
}
RULES = {"exclude": "left out of the means", "miss": "counted as misses"}  # of queries without a relevant item
EXTRAS = ("chance", "interval", "intervals")
BY = " by "
"""Between a score and what is relevant to it instead of the class, such as a level."""


@dataclass(frozen=True)
class ScoreRow:
    """One score with the values to compare it with; None if they are unknown."""

    key: str
    name: str
    meaning: str
    value: float
    baseline: float | None
    chance: float | None
    interval: tuple[float, float] | None

    @property
    def bounded(self) -> bool:
        """Whether the score lies in [0, 1], so that it can be drawn on a common scale."""
        return 0 <= self.value <= 1


def flat_scores(scores: HasScores | Mapping[str, Any] | None) -> dict[str, float]:
    """Numbers by name; those at several k are named like `recall_at_1`.

    Examples
    --------
    >>> flat_scores({"map_at_r": 0.5, "recall_at": {1: 0.8, "2": 0.9}})
    {'map_at_r': 0.5, 'recall_at_1': 0.8, 'recall_at_2': 0.9}
    >>> flat_scores({"by": {"genus": {"map_at_r": 0.7}}})
    {'map_at_r by genus': 0.7}
    """
    flat: dict[str, float] = {}
    for key, value in as_mapping(scores).items():
        if key == "by" and isinstance(value, Mapping):
            for name, found in value.items():
                flat.update({f"{score}{BY}{name}": number for score, number in flat_scores(found).items()})
        elif isinstance(value, Mapping) and key not in EXTRAS:
            flat.update({f"{key}_{k}": float(v) for k, v in value.items() if _is_number(v)})
        elif _is_number(value):
            flat[key] = float(value)
    return flat


def as_mapping(scores: HasScores | Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return scores of any form as a mapping."""
    if scores is None:
        return {}
    return scores if isinstance(scores, Mapping) else scores.to_dict()


def score_rows(content: ReportContent) -> list[ScoreRow]:
    """List the known scores in the order of `MEANINGS`, with those at several k by ascending k."""
    scores = flat_scores(content.scores)
    baseline = flat_scores(content.baseline)
    chance = flat_scores(content.chance or as_mapping(content.scores).get("chance"))
    intervals = score_intervals_of(content)
    rows = []
    for key, value in scores.items():
        described = describe(key)
        if described is None or not isfinite(value) or key == "precision_at_1":  # the last is the same as Recall@1
            continue
        rows.append(ScoreRow(key, *described, value, baseline.get(key), chance.get(key), intervals.get(key)))
    return sorted(rows, key=lambda row: _order(row.key))


def score_intervals_of(content: ReportContent) -> Mapping[str, tuple[float, float]]:
    """Return the 95% intervals by the names of the scores."""
    return content.intervals or as_mapping(content.scores).get("intervals") or {}


def describe(key: str) -> tuple[str, str] | None:
    """Return name and meaning of a score, or None if it is not a score of this library."""
    score, by, relevance = key.partition(BY)
    stem, k = split_key(score)
    if stem not in MEANINGS or (k is None) == stem.endswith("_at"):
        return None
    name, meaning = MEANINGS[stem]
    name = name.format(k=k)
    meaning = FIRST.get(score, meaning).format(k=k)
    if not by:
        return name, meaning
    return f"{name}, {relevance}", f"{meaning}; by {relevance}"


def split_key(key: str) -> tuple[str, int | None]:
    """Split `recall_at_2` into its score and its k."""
    stem, _, k = key.rpartition("_")
    return (stem, int(k)) if k.isdigit() else (key, None)


def facts(content: ReportContent) -> dict[str, str]:
    """Return the other facts about the scores, such as counts and rules, as text."""
    texts = {}
    scores = as_mapping(content.scores)
    rule = RULES.get(str(scores.get("lone")))
    for key, value in scores.items():
        text = _format_value(value)
        if key == "lone" or describe(key) is not None or not text:
            continue
        if key == "n_in_gallery" and not value:
            continue
        if key == "n_lone" and value and rule is not None:
            text += f" ({rule})"
        texts[FACTS.get(key, key.replace("_", " "))] = text
    return texts


def _order(key: str) -> tuple[bool, int, int]:
    score, by, _ = key.partition(BY)
    stem, k = split_key(score)
    return bool(by), list(MEANINGS).index(stem), k or 0


def _format_value(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.6g}" if _is_number(value) and isfinite(value) else ""


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
