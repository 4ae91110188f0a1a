"""Scores by what is relevant besides the class: what each level names, labels in common, and listed pairs."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array

from ..data import Dataset
from ..evaluation import Scores
from ..evaluation.graded import label_set_scores, ndcg_at_k
from ..evaluation.protocol import evaluate
from ..evaluation.verification import verify_pairs
from ..numerics.types import AnyArray

IN_COMMON = "labels in common"
LEVELS_IN_COMMON = "levels in common"
LISTED = "listed pairs"


class Searched(NamedTuple):
    """Embedded items, (n, d), that queries search."""

    items: Dataset
    rows: AnyArray


def with_relevance(scores: Scores, queries: Dataset, rows: AnyArray, gallery: Searched | None = None) -> Scores:
    """Return scores with those by labels in common or by level, if items have such labels, and of listed pairs.

    Parameters
    ----------
    scores : Scores
        Scores by class.
    queries : Dataset
        The items that were scored.
    rows : ndarray, shape (n, d)
        Their embeddings.
    gallery : Searched, optional
        What they search; each other by default.
    """
    by: dict[str, dict[str, float]] = {}
    chance: dict[str, dict[str, float]] = {}
    if queries.class_labels is not None and (gallery is None or gallery.items.class_labels is not None):
        for level in range(1, len(queries.class_labels.levels)):
            name = queries.class_labels.levels[level]
            found = _at_level(level, scores.distance, queries, rows, gallery)
            by[name] = {"recall_at_1": found.recall_at[1], "map_at_r": found.map_at_r}
            chance[name] = {"recall_at_1": found.chance["recall_at"][1], "map_at_r": found.chance["map_at_r"]}
        by |= _in_common(queries, rows, gallery)
    by |= _of_listed(queries, rows, gallery)
    if not by:
        return scores
    return replace(scores, by=by, chance=scores.chance | {"by": chance})


def _at_level(level: int, distance: str, queries: Dataset, rows: AnyArray, gallery: Searched | None) -> Scores:
    """Return the scores of queries that search for what belongs to the same at a level."""
    labels = queries.class_labels
    assert labels is not None
    if gallery is None:
        numbers = labels.at_level(level, queries.classes)[queries.labels]
        return evaluate(rows, numbers, distance=distance, clustering=False, groups=queries.groups)
    numbers = labels.joined(gallery.items.class_labels).at_level(level, (*queries.classes, *gallery.items.classes))
    return evaluate(
        rows,
        numbers[queries.labels],
        distance=distance,
        clustering=False,
        groups=queries.groups,
        gallery=gallery.rows,
        gallery_labels=numbers[len(queries.classes) :][gallery.items.labels],
        gallery_groups=gallery.items.groups,
    )


def _in_common(queries: Dataset, rows: AnyArray, gallery: Searched | None) -> dict[str, dict[str, float]]:
    """Return the scores by the number of labels, or levels, that a query and an item have in common."""
    labels = queries.class_labels
    assert labels is not None
    if gallery is None:
        found = label_set_scores(rows, labels.hot(queries.classes)[queries.labels], groups=queries.groups)
    else:
        hot = labels.joined(gallery.items.class_labels).hot((*queries.classes, *gallery.items.classes))
        searched = hot[len(queries.classes) :][gallery.items.labels]
        found = label_set_scores(
            rows,
            hot[queries.labels],
            gallery=gallery.rows,
            gallery_hot=searched,
            groups=queries.groups,
            gallery_groups=gallery.items.groups,
        )
    if not found.queries:
        return {}
    ndcg = {f"ndcg_at_{found.k}": found.ndcg}
    if labels.levels:  # the coarsest level is relevant, of which there are the other scores
        return {LEVELS_IN_COMMON: ndcg}
    return {IN_COMMON: {"recall_at_1": found.recall_at_1, "map_at_r": found.map_at_r} | ndcg}


def _of_listed(queries: Dataset, rows: AnyArray, gallery: Searched | None) -> dict[str, dict[str, float]]:
    """Return how well cosines separate the pairs that are listed; without both kinds there is nothing to separate."""
    listed = queries.listed
    if listed is None or not {0.0, 1.0} <= set(np.ceil(listed.degree).tolist()):
        return {}
    n = len(rows)
    documents = None
    if listed.searched:
        assert gallery is not None
        documents = gallery.rows
    every = rows if documents is None else np.concatenate([rows, documents])
    sure = listed.degree >= 0
    pairs = np.stack([listed.i, listed.j], axis=1)[sure]
    found = {"auc": verify_pairs(every, pairs, listed.degree[sure] > 0).auc}
    degree = np.maximum(listed.degree, 0)
    if ((degree > 0) & (degree < 1)).any():
        ends = (np.append(listed.i, listed.j), np.append(listed.j, listed.i))
        gains = coo_array((np.tile(degree, 2), ends), shape=(len(every), len(every))).tocsr()
        if documents is not None:
            gains = gains[:n, n:]  # (queries, documents)
        found["ndcg_at_10"] = ndcg_at_k(rows, gains, gallery=documents)
    return {LISTED: found}
