"""Content of each section of the page. A section without content is None, and is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..evaluation import Verification
from ..quoting import significant
from .analysis import MAX_VERIFIED_QUERIES, Analysis, Failures
from .attention import attention_map, center_square, overlay
from .content import Curve, Items, ReportContent
from .pictures import GRAY, Picture, Thumbnails, image_picture, map_canvas
from .plots import PALETTE, Html, Plotter, precision_and_recall
from .retrieval import Confusion, QueryNeighbors
from .score_rows import ScoreRow, facts, score_rows

SHOWN_NEIGHBORS = 8  # neighbors shown for each query
CROSSINGS = 4  # examples shown for each pair of confused classes
SHOWN_FEATURES = 20
MAX_CLASS_ROWS = 2_000  # rows of the table of classes; scores.json has all of them
MAX_COLUMN_NAMES = 48  # names of columns below the pictures of rows
LABELS = {
    "against": "Comparison",
    "confused": "Classes",
    "spectrum": "Directions",
    "ladder": "Ladder",
    "theory": "Seen and unseen",
    "setup": "Settings",
}
"""Names of sections in the menu, where the anchor would not be understood."""
MARKS = ("dot", "square", "up", "diamond", "down", "plus", "cross", "star")
"""Symbols of the map for the colored classes."""
DISTANCES = {
    "cosine": "cosine distance, 0 (same direction) to 2 (opposite)",
    "euclidean": "Euclidean distance, from 0",
    "sqeuclidean": "squared Euclidean distance, from 0",
}


@dataclass(frozen=True)
class Drawings:
    """Pictures of queries and gallery, and charts, for one version of the page."""

    queries: Thumbnails | None
    gallery: Thumbnails | None
    plotter: Plotter


@dataclass(frozen=True)
class Section:
    """A section of the page: its anchor, which is also the name of its template, its heading and its values."""

    id: str
    title: str
    values: Mapping[str, Any]

    @property
    def label(self) -> str:
        """Its name in the menu of the page."""
        return LABELS.get(self.id, self.id.capitalize())


def scores(content: ReportContent) -> Section:
    """All scores, with baseline and chance."""
    rows = score_rows(content)
    values = {
        "rows": rows,
        "has_baseline": any(r.baseline is not None for r in rows),
        "has_chance": any(r.chance is not None for r in rows),
        "has_interval": any(r.interval is not None for r in rows),
        "facts": facts(content),
    }
    return Section("scores", "Scores", values)


def neighbors(failures: Failures | None, drawings: Drawings) -> Section | None:
    """Queries and their neighbors: the worst queries first, then random ones."""
    if failures is None:
        return None
    retrieved = failures.retrieved
    first = failures.retrieved.rank_of_first_relevant()
    shown = min(SHOWN_NEIGHBORS, retrieved.depth)
    values = {
        "n": len(retrieved.kept),
        "left_out": len(retrieved.queries) - len(retrieved.kept),
        "grouped": retrieved.queries.groups is not None,
        "wrong": int((first > 1).sum()),
        "lost": int((first > shown).sum()),
        "shown": shown,
        "columns": list(retrieved.queries.columns[:MAX_COLUMN_NAMES]),
        "n_columns": len(retrieved.queries.columns),
        "worst": [_query(failures, int(row), drawings) for row in failures.worst],
        "random": [_query(failures, int(row), drawings) for row in failures.random],
    }
    return Section("neighbors", "Queries and their nearest neighbors", values)


def _query(failures: Failures, row: int, drawings: Drawings) -> dict[str, Any]:
    retrieved = failures.retrieved
    rank = int(retrieved.rank_of_first_relevant()[row])
    if rank <= retrieved.depth:
        late = f"first correct neighbor at rank {rank}"
    else:
        late = f"no correct neighbor among {retrieved.depth}"
    return {
        **query_values(retrieved, row, drawings),
        "remark": "nearest neighbor correct" if rank == 1 else late,
        "found": [neighbor(retrieved, row, place, drawings) for place in range(min(SHOWN_NEIGHBORS, retrieved.depth))],
    }


def query_values(retrieved: QueryNeighbors, row: int, drawings: Drawings) -> dict[str, Any]:
    """Return the template's values for a query."""
    i = int(retrieved.kept[row])
    return {
        "picture": _picture(drawings.queries, i),
        "class": retrieved.queries.class_name(i),
        "name": retrieved.queries.name(i),
    }


def neighbor(retrieved: QueryNeighbors, row: int, place: int, drawings: Drawings) -> dict[str, Any]:
    """Return the template's values for the neighbor of a query at a rank."""
    j = int(retrieved.index[row, place])
    return {
        "picture": _picture(drawings.gallery, j),
        "right": bool(retrieved.right[row, place]),
        "class": retrieved.gallery.class_name(j),
        "name": retrieved.gallery.name(j),
        "distance": significant(float(retrieved.distances[row, place]), 3),
    }


def confused(analysis: Analysis, drawings: Drawings) -> Section | None:
    """Pairs of confused classes, and the scores of every class."""
    failures = analysis.failures
    if failures is None:
        return None
    rows = analysis.classes
    recall = np.array([row.recall for row in rows])
    mean = float(failures.retrieved.right[:, 0].mean())
    alt = f"Recall@1 of {len(rows):,} classes in ascending order, {recall.min():.3f} to {recall.max():.3f}"
    values = {
        "pairs": [_confused(failures, pair, drawings) for pair in failures.confused],
        "chart": drawings.plotter.class_recall(recall, mean, alt=alt) if len(rows) > 1 else "",
        "n_classes": len(rows),
        "n": sum(row.queries for row in rows),
        "rows": rows[:MAX_CLASS_ROWS],
        "perfect": int((recall == 1).sum()),
    }
    return Section("confused", "Classes", values)


def _confused(failures: Failures, pair: Confusion, drawings: Drawings) -> dict[str, Any]:
    retrieved = failures.retrieved
    names = failures.retrieved.queries.classes
    rows = [int(row) for row in pair.rows[:CROSSINGS]]
    return {
        "first": str(names[pair.first]),
        "second": str(names[pair.second]),
        "rate": pair.rate,
        "forth": pair.forth,
        "back": pair.back,
        "total": pair.total,
        "crossings": [
            (
                _picture(drawings.queries, int(retrieved.kept[row])),
                _picture(drawings.gallery, int(retrieved.index[row, 0])),
            )
            for row in rows
        ],
    }


def flat_map(content: ReportContent, analysis: Analysis, drawings: Drawings) -> Section | None:
    """A map of the embedding, drawn with the images if the items are images."""
    shown = analysis.map
    if shown is None or content.queries is None:
        return None
    items = content.queries
    labels = items.labels[shown.index]
    present = np.unique(labels)
    colors = dict(zip(shown.colored, PALETTE, strict=False))
    marks = dict(zip(shown.colored, MARKS, strict=False))
    images = drawings.queries is not None and items.shows_images()
    values = {
        "n": len(shown.index),
        "all": len(items),
        "n_classes": len(present),
        "legend": [(str(items.classes[c]), color, marks[c]) for c, color in colors.items()],
        "hardest": len(present) > len(colors),
        "gray": GRAY,
        "seed": content.seed,
        "images": images,
        "alt": f"Map of {len(labels):,} items; similar embeddings lie close together.",
        "data": _map_data(content, analysis, present),
    }
    if images:
        assert drawings.queries is not None
        frames = [colors.get(int(c)) for c in labels]
        values["canvas"] = map_canvas(drawings.queries, shown.index, shown.positions, frames)
        values["titles"] = [_title(items, int(i)) for i in shown.index]
    else:
        values["points"] = [
            (
                round(20 + 960 * float(x), 1),
                round(640 - 620 * float(y), 1),
                colors.get(int(c), GRAY),
                marks.get(int(c), "dot"),
                _title(items, int(i)),
            )
            for (x, y), c, i in zip(shown.positions, labels, shown.index, strict=True)
        ]
    return Section("map", "Map of the embedding", values)


def _title(items: Items, i: int) -> str:
    kind = items.class_name(i)
    return f"{items.name(i)}, {kind}" if kind else items.name(i)


def _map_data(content: ReportContent, analysis: Analysis, present: NDArray[np.int64]) -> dict[str, Any]:
    """Return what the script of the map reads: classes, and the name, class and nearest neighbors of each item.

    A neighbor is its place on the map, or its name and class if it is not on the map, and its distance.
    """
    items = content.queries
    assert items is not None
    assert analysis.map is not None
    shown = analysis.map.index
    number = {int(c): k for k, c in enumerate(present)}
    nearest: list[list[list[Any]]] = [[] for _ in shown]
    if analysis.failures is not None:
        retrieved = analysis.failures.retrieved
        row_of = {int(i): row for row, i in enumerate(retrieved.kept)}
        place_of = {int(i): place for place, i in enumerate(shown)} if retrieved.gallery is items else {}
        for place, i in enumerate(shown):
            row = row_of.get(int(i))
            if row is not None:
                nearest[place] = [
                    _near(retrieved, row, k, place_of) for k in range(min(SHOWN_NEIGHBORS, retrieved.depth))
                ]
    return {
        "classes": [str(items.classes[c]) for c in present],
        "items": [
            [items.name(int(i)), number[int(items.labels[i])], near] for i, near in zip(shown, nearest, strict=True)
        ],
    }


def _near(retrieved: QueryNeighbors, row: int, k: int, place_of: Mapping[int, int]) -> list[Any]:
    j = int(retrieved.index[row, k])
    distance = significant(float(retrieved.distances[row, k]), 3)
    if j in place_of:
        return [place_of[j], distance]
    return [retrieved.gallery.name(j), retrieved.gallery.class_name(j), distance]


def distances(content: ReportContent, analysis: Analysis, drawings: Drawings) -> Section | None:
    """Histograms of similar and dissimilar distances, and how well one threshold separates them."""
    pairs = analysis.pairs
    verification = analysis.verification
    if pairs is None or verification is None:
        return None
    threshold = verification.eer_threshold
    rate = verification.eer
    both = f"at {significant(threshold, 3)} both errors are {rate:.1%}"
    alt = f"Histograms of the distances within and across classes; {both}"
    rates = ", ".join(f"{tar:.1%} at {far:.3%}" for far, tar in verification.tar_at.items())
    unit = DISTANCES.get(content.distance, content.distance)
    values = {
        "precision": drawings.plotter.precision_recall(verification, alt=_precision_text(verification)),
        "chart": drawings.plotter.histograms(pairs, alt=alt, unit=unit, threshold=threshold),
        "curve": drawings.plotter.accepts(
            verification, alt=f"Accepted pairs of one class, by the rate of false accepts: {rates}"
        ),
        "verification": verification,
        "overlap": pairs.overlap(),
        "similar": len(pairs.similar),
        "dissimilar": len(pairs.dissimilar),
        "complete": pairs.complete,
        "drawn": MAX_VERIFIED_QUERIES if len(content.queries or ()) > MAX_VERIFIED_QUERIES else 0,
        "seed": content.seed,
    }
    return Section("distances", "Distances within and across classes", values)


def _precision_text(verification: Verification) -> str:
    recall, precision = precision_and_recall(verification)
    points = ", ".join(f"{np.interp(r, recall, precision):.1%} at {r:.0%}" for r in (0.1, 0.5, 0.9))
    return f"Precision of accepted pairs by their recall: {points}"


def directions(analysis: Analysis, drawings: Drawings) -> Section | None:
    """How many directions the embedding uses."""
    spectrum = analysis.spectrum
    if spectrum is None:
        return None
    d = len(spectrum.eigenvalues)
    alt = f"Share of the variance along each of {d} directions; effective dimension {spectrum.effective_dimension:.1f}"
    values = {
        "chart": drawings.plotter.spectrum(spectrum, alt=alt),
        "d": d,
        "effective": spectrum.effective_dimension,
        "most": spectrum.directions_holding(0.9),
        "trace": spectrum.trace,
    }
    return Section("spectrum", "Directions in use", values)


def features(content: ReportContent) -> Section | None:
    """Weights of the features of a table in the learned distance, largest first."""
    features = content.features
    if features is None:
        return None
    order = np.argsort(-features.weights, kind="stable")[:SHOWN_FEATURES]
    rows = []
    for at in order:
        if features.low is None or features.high is None:
            interval = None
        else:
            interval = (float(features.low[at]), float(features.high[at]))
        weight = float(features.weights[at])
        rows.append(
            ScoreRow(
                key=features.names[at],
                name=features.names[at],
                meaning="",
                value=weight,
                baseline=None,
                chance=None,
                interval=interval,
            )
        )
    values = {"rows": rows, "all": len(features.names), "fits": features.fits, "level": features.level}
    return Section("features", "Weights of the features", values)


def ladder(content: ReportContent) -> Section | None:
    """Scores of the rungs from raw inputs to a trained network, on classes held out of the training classes."""
    record = content.ladder
    if not record:
        return None
    rows = [
        {
            "title": str(row["title"]),
            "worth": row["name"] == record["worth"],
            "splits": len(row["map_at_r"]),
            "recall": _with_half(row, "recall_at_1"),
            "mean": _with_half(row, "map_at_r"),
            "seconds": f"{row['seconds']:.1f}",
        }
        for row in record["rows"]
    ]
    values = {"rows": rows, "protocol": str(record["protocol"]), "sentence": str(record["sentence"])}
    return Section("ladder", "What each rung is worth", values)


def theory(content: ReportContent) -> Section | None:
    """How far unseen classes are from the seen ones: H-divergence, joint error, diversity, recalls of parts."""
    record = content.theory
    if not record:
        return None
    rows = [
        {"title": str(title), "value": f"{value:.4f}" if half is None else f"{value:.4f} ± {half:.4f}"}
        for title, value, half in record["rows"]
    ]
    why = str(record.get("why_no_recalls") or "")
    return Section("theory", "Seen and unseen classes", {"rows": rows, "why": why})


def _with_half(row: Mapping[str, Any], name: str) -> str:
    half = row[f"{name}_half_width"]
    mean = f"{row[f'{name}_mean']:.3f}"
    return mean if half is None else f"{mean} ± {half:.3f}"


def training(content: ReportContent, drawings: Drawings) -> Section | None:
    """Curves of the training: the parts of the objective, and MAP@R and Recall@K on seen and unseen classes."""
    if not content.losses and not content.recalls:
        return None
    curves = {"MAP@R": content.map_at_r} if content.map_at_r else {}
    curves |= {f"Recall@{k}": content.recalls[k] for k in sorted(content.recalls)}
    drawn = {name: splits for name, splits in curves.items() if _is_line(splits)}
    scores = [(name, _score_chart(name, splits, content, drawings)) for name, splits in drawn.items()]
    losses = [
        (curve.name, *_ends(curve), _loss_chart(curve, content, drawings))
        for curve in content.losses
        if _is_line([curve])
    ]
    values = {
        "scores": scores,
        "losses": losses,
        "single": [_single(name, splits) for name, splits in curves.items() if name not in drawn],
        "single_losses": [(curve.name, curve.values[0]) for curve in content.losses if len(curve.values) == 1],
        "best": content.best_epoch,
    }
    return Section("training", "Training", values)


def _is_line(curves: Sequence[Curve]) -> bool:
    """Whether there is a curve to draw; a single point is reported as a sentence."""
    return any(len(curve.values) > 1 for curve in curves)


def _single(name: str, curves: Sequence[Curve]) -> str:
    """Return a sentence on the only evaluation of a training."""
    measured = [curve for curve in curves if len(curve.values)]
    detail = ", ".join(f"{curve.values[0]:.3f} on {curve.name} classes" for curve in measured)
    return f"{name} was measured once, after epoch {measured[0].epochs[0]:g}: {detail}."


def _score_chart(name: str, curves: Any, content: ReportContent, drawings: Drawings) -> Html:
    ends = "; ".join(f"{c.name} classes end at {c.values[-1]:.3f}" for c in curves if len(c.values))
    alt = f"{name} over training: {ends}"
    return drawings.plotter.lines(curves, alt=alt, unit=name, best=content.best_epoch, share=True)


def _loss_chart(curve: Curve, content: ReportContent, drawings: Drawings) -> Html:
    start, end = _ends(curve)
    alt = f"{curve.name} over training, from {start:.4g} to {end:.4g}"
    return drawings.plotter.lines([curve], alt=alt, unit="value", best=content.best_epoch)


def _ends(curve: Curve) -> tuple[float, float]:
    if len(curve.values):
        return (float(curve.values[0]), float(curve.values[-1]))
    return (np.nan, np.nan)


def attention(content: ReportContent, analysis: Analysis, drawings: Drawings) -> Section | None:
    """Attention maps of some of the queries that are shown above."""
    if content.attention is None or content.queries is None or drawings.queries is None or analysis.failures is None:
        return None
    failures = analysis.failures
    rows = [*failures.worst[:4], *failures.random[:4]]
    shown = [_attended(content, int(failures.retrieved.kept[row]), drawings.queries) for row in rows]
    pictures = [both for both in shown if both is not None]
    if pictures:
        return Section("attention", "Attention", {"pictures": pictures})
    return None


def _attended(content: ReportContent, i: int, thumbnails: Thumbnails) -> tuple[Picture, Picture] | None:
    image = thumbnails.read(i)
    if image is None or image.ndim != 3 or content.attention is None:
        return None
    square = center_square(image)
    alt = thumbnails(i).alt
    colored = overlay(square, attention_map(content.attention(square), square.shape[:2]))
    plain = image_picture(square, alt, thumbnails.side)
    return plain, image_picture(colored, f"Attention on {alt}", thumbnails.side)


def _picture(thumbnails: Thumbnails | None, i: int) -> Picture:
    return thumbnails(i) if thumbnails else Picture("", f"item {i}")


def setup(content: ReportContent) -> Section | None:
    """Settings, environment and command of the run."""
    values = {
        "command": content.command,
        "settings": _settings(content),
        "marks": bool(content.defaults),
        "environment": [(name, value.removeprefix("Weights: ")) for name, value in _flat(content.environment)],
        "notes": list(content.notes),
    }
    if any(value for name, value in values.items() if name != "marks"):
        return Section("setup", "Settings and environment", values)
    return None


def _settings(content: ReportContent) -> list[tuple[str, str, str | None]]:
    """Return rows of name, value, and the default if the value differs from it, else None."""
    usual = dict(_flat(content.defaults))
    rows = []
    for name, value in _flat(content.settings):
        default = usual.get(name)
        rows.append((name, value, None if default == value else default))
    return rows


def _flat(nested: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in nested.items():
        name = f"{prefix}{key}"
        rows.extend(_flat(value, f"{name}.") if isinstance(value, Mapping) else [(name, _format_value(value))])
    return rows


def _format_value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "–"
    return "–" if value is None or value == "" else str(value)
