"""The input of a report: plain arrays, scores and curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Reader = Callable[[int], NDArray[Any]]
Attention = Callable[[NDArray[np.uint8]], NDArray[Any]]


class HasScores(Protocol):
    """Anything that lists its scores, such as `nearfar.evaluation.Scores`."""

    def to_dict(self) -> dict[str, Any]:
        """Score name -> value."""


@dataclass(frozen=True, eq=False)
class Items:
    """Embedded items with one class each.

    Parameters
    ----------
    embeddings : ndarray, shape (n, d)
        Embeddings.
    labels : ndarray of int, shape (n,)
        Class of each item, as an index into `classes`.
    classes : sequence of str
        Names of the classes.
    names : sequence of str, optional
        Printable name of each item. By default, its number.
    read : callable, optional
        Function from i to item i, a uint8 image (H, W, C) or a row (d,), for the pictures.
    groups : ndarray, shape (n,), optional
        Camera, video or the like of each item, as in `nearfar.evaluation.evaluate`.
    columns : sequence of str, optional
        Names of the columns, if the items are rows of a table.
    """

    embeddings: NDArray[Any]
    labels: NDArray[np.int64]
    classes: Sequence[str]
    names: Sequence[str] = ()
    read: Reader | None = None
    groups: NDArray[Any] | None = None
    columns: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.embeddings.ndim != 2 or len(self.embeddings) != len(self.labels):
            raise ValueError(
                f"embeddings must be (n, d) with one label each, got shape {self.embeddings.shape} "
                f"and {len(self.labels)} labels"
            )
        if len(self.labels) and not 0 <= self.labels.min() <= self.labels.max() < len(self.classes):
            raise ValueError(
                f"labels must index the {len(self.classes)} classes, got {self.labels.min()} to {self.labels.max()}"
            )
        if len(self.names) not in (0, len(self.labels)):
            raise ValueError(f"names must be empty or one per item, got {len(self.names)} for {len(self.labels)} items")

    def __len__(self) -> int:
        return len(self.labels)

    def name(self, i: int) -> str:
        """Return the printable name of item i."""
        return str(self.names[i]) if len(self.names) else f"item {i}"

    def shows_images(self) -> bool:
        """Whether items can be read and are images, judged by the first one that can be read."""
        if self.read is None:
            return False
        for i in range(len(self)):
            try:
                return np.ndim(self.read(i)) > 1
            except (OSError, ValueError):  # the page shows such an item by its name
                continue
        return False

    def class_name(self, i: int) -> str:
        """Return the name of the class of item i."""
        return str(self.classes[self.labels[i]])


@dataclass(frozen=True, eq=False)
class Curve:
    """A line of a plot: `values` (m,) at `epochs` (m,)."""

    name: str
    epochs: NDArray[np.float64]
    values: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Other:
    """Another model to compare with, on the same test items.

    Parameters
    ----------
    name : str
        Name of the model.
    scores : Scores or mapping
        Its scores.
    queries : Items
        The same queries, with its embeddings.
    gallery : Items, optional
        The same gallery, with its embeddings.
    distance : str
        Distance by which its neighbors are compared.
    """

    name: str
    scores: HasScores | Mapping[str, Any]
    queries: Items
    gallery: Items | None = None
    distance: str = "cosine"


@dataclass(frozen=True, eq=False)
class FeatureWeights:
    """Weight of each feature in a linear metric.

    Parameters
    ----------
    names : sequence of str
        Names of the features.
    weights : ndarray, shape (d,)
        Share of each feature in the mean squared distance.
    low : ndarray, shape (d,), optional
        Lower ends of the intervals.
    high : ndarray, shape (d,), optional
        Upper ends of the intervals.
    fits : int
        Number of fits on random halves of the rows, from which the intervals are computed.
    level : float
        Fraction of these fits within the intervals.
    """

    names: Sequence[str]
    weights: NDArray[np.float64]
    low: NDArray[np.float64] | None = None
    high: NDArray[np.float64] | None = None
    fits: int = 0
    level: float = 0.9


@dataclass(frozen=True, eq=False)
class ReportContent:
    """Everything that a report can show; only the first three fields are required.

    Parameters
    ----------
    title : str
        Heading.
    protocol : str
        One sentence on the data set, its classes and items, and how they were split.
    scores : Scores or mapping
        `nearfar.evaluation.Scores`, or the result of its `to_dict`.
    baseline : Scores or mapping, optional
        Scores to compare with.
    baseline_name : str
        Name of the baseline.
    chance : mapping, optional
        Values of a random ranking by the names of the scores. By default, those in `scores`.
    intervals : mapping, optional
        95% confidence intervals (low, high) by the names of the scores.
    queries : Items, optional
        Embedded test items.
    gallery : Items, optional
        Embedded gallery. By default, every query searches the other queries.
    distance : str
        Distance by which neighbors are compared: "cosine", "euclidean" or "sqeuclidean".
    other : Other, optional
        Another model to compare with, query by query.
    chosen_by : str
        How the checkpoint was chosen, as a clause of the protocol line.
    losses : sequence of Curve
        Logged parts of the objective.
    recalls : mapping of int to sequence of Curve
        For each K, Recall@K of each split ("seen", "unseen") during training.
    map_at_r : sequence of Curve
        MAP@R of each split during training.
    best_epoch : float, optional
        Epoch of the checkpoint that was scored.
    attention : callable, optional
        Function from a square uint8 image (S, S, C) to the last convolutional map (C', H, W), or to its mean (H, W).
    settings : mapping
        Settings of the run.
    environment : mapping
        Versions and machine of the run.
    command : str
        Command line of the run.
    remarks : sequence of str
        Remarks on the training.
    notes : sequence of str
        Remarks on the data.
    defaults : mapping
        Default settings; settings that differ from them are marked.
    features : FeatureWeights, optional
        Weight of the features of a table in a learned distance.
    ladder : mapping
        Result of `to_dict` of the ladder: the rungs from raw inputs to this training, on held-out classes.
    theory : mapping
        Contents of `theory.json` of a run: how far its unseen classes are from the seen ones.
    seed : int
        Seed of the generator that draws random queries, the pairs of the histogram and the map.
    """

    title: str
    protocol: str
    scores: HasScores | Mapping[str, Any]
    baseline: HasScores | Mapping[str, Any] | None = None
    baseline_name: str = "raw pixels"
    chance: Mapping[str, float] | None = None
    intervals: Mapping[str, tuple[float, float]] | None = None
    queries: Items | None = None
    gallery: Items | None = None
    distance: str = "cosine"
    other: Other | None = None
    chosen_by: str = ""
    losses: Sequence[Curve] = ()
    recalls: Mapping[int, Sequence[Curve]] = field(default_factory=dict)
    map_at_r: Sequence[Curve] = ()
    best_epoch: float | None = None
    attention: Attention | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    remarks: Sequence[str] = ()
    notes: Sequence[str] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    features: FeatureWeights | None = None
    ladder: Mapping[str, Any] = field(default_factory=dict)
    theory: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
