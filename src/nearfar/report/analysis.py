"""All measurements of a report. They are computed once, also if the page is rendered again with smaller pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..evaluation import Verification, verify
from .content import ReportContent
from .pair_distances import PairDistances, measure_pairs
from .paired_models import Against, compare_neighbors
from .per_class import ClassRow, class_rows, score_intervals
from .retrieval import Confusion, QueryNeighbors, class_recall, confusions, query_neighbors, random_rows, worst_rows
from .score_rows import flat_scores
from .spectrum import Spectrum, spectrum
from .tsne import LIMIT, TILES, map_items, map_positions

# rows of the page
WORST = 12
RANDOM = 6
CONFUSED = 8
COLORED = 8  # classes with a color on the map
MAX_VERIFIED_QUERIES = 5_000  # maximum number of queries whose distances to all items are counted


@dataclass(frozen=True, eq=False)
class Failures:
    """Neighbors, the rows of the worst and of some random queries, and the most confused classes."""

    retrieved: QueryNeighbors
    worst: NDArray[np.int64]
    random: NDArray[np.int64]
    confused: list[Confusion]


@dataclass(frozen=True, eq=False)
class FlatMap:
    """Items on the map, their positions in the unit square, and the classes that have a color."""

    index: NDArray[np.int64]
    positions: NDArray[np.float64]
    colored: list[int]


@dataclass(frozen=True, eq=False)
class Analysis:
    """Measurements for a report; None for those that the content does not allow."""

    failures: Failures | None = None
    pairs: PairDistances | None = None
    verification: Verification | None = None
    spectrum: Spectrum | None = None
    map: FlatMap | None = None
    against: Against | None = None
    classes: Sequence[ClassRow] = ()
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def analyze(content: ReportContent) -> Analysis:
    """Compute all measurements that the content allows."""
    queries = content.queries
    if queries is None or len(queries) < 2:
        return Analysis()
    failures = _failures(content)
    pairs = measure_pairs(queries, content.gallery, content.distance, seed=content.seed)
    verification = None
    if pairs is not None:
        verification = _verification(content)
    against = None
    if failures is not None and content.other is not None:
        against = compare_neighbors(failures.retrieved, content.other)
    return Analysis(
        failures=failures,
        pairs=pairs,
        verification=verification,
        spectrum=spectrum(queries.embeddings),
        map=_map(content, failures),
        against=against,
        classes=class_rows(failures.retrieved) if failures is not None else (),
        intervals=score_intervals(failures.retrieved, flat_scores(content.scores)) if failures is not None else {},
    )


def _failures(content: ReportContent) -> Failures | None:
    assert content.queries is not None
    retrieved = query_neighbors(content.queries, content.gallery, content.distance)
    if retrieved is None:
        return None
    bad = worst_rows(retrieved, WORST)
    return Failures(retrieved, bad, random_rows(retrieved, RANDOM, content.seed, bad), confusions(retrieved, CONFUSED))


def _verification(content: ReportContent) -> Verification | None:
    queries = content.queries
    gallery = content.gallery
    assert queries is not None
    settings: dict[str, Any] = {"distance": content.distance, "most": MAX_VERIFIED_QUERIES, "seed": content.seed}
    settings["groups"] = queries.groups
    if gallery is not None:
        settings |= {"gallery": gallery.embeddings, "gallery_labels": gallery.labels, "gallery_groups": gallery.groups}
    try:
        return verify(queries.embeddings, queries.labels, **settings)
    except ValueError:  # the drawn queries have pairs of one kind only
        return None


def _map(content: ReportContent, failures: Failures | None) -> FlatMap | None:
    assert content.queries is not None
    limit = TILES if content.queries.shows_images() else LIMIT
    index = map_items(content.queries.labels, limit, content.seed)
    positions = map_positions(content.queries, index, content.distance, content.seed)
    if positions is None:
        return None
    return FlatMap(index, positions, _colored(content.queries.labels[index], failures))


def _colored(labels: NDArray[np.int64], failures: Failures | None) -> list[int]:
    """Return all classes if there are few, else the hardest ones."""
    present = np.unique(labels)
    if len(present) <= COLORED or failures is None:
        return [int(c) for c in present[:COLORED]]
    classes, recall, counts = class_recall(failures.retrieved)
    shown = np.isin(classes, present)
    order = np.lexsort((-counts[shown], recall[shown]))[:COLORED]
    return [int(c) for c in classes[shown][order]]
