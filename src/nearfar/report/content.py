"""What a report is made from: plain arrays, scores and curves, whoever computed them."""

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
        Where every item lies.
    labels : ndarray of int, shape (n,)
        Indices into `classes`.
    classes : sequence of str
        The name of every class.
    names : sequence of str, optional
        A printable name for every item; its number where not given.
    read : callable, optional
        Item i -> (H, W, C) uint8 image or (d,) row, for the pictures.
    groups : ndarray, shape (n,), optional
        Camera, video or the like of every item: as in `nearfar.evaluation.evaluate`.
    """

    embeddings: NDArray[Any]
    labels: NDArray[np.int64]
    classes: Sequence[str]
    names: Sequence[str] = ()
    read: Reader | None = None
    groups: NDArray[Any] | None = None

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
        if self.names and len(self.names) != len(self.labels):
            raise ValueError(f"names must be empty or one per item, got {len(self.names)} for {len(self.labels)} items")

    def __len__(self) -> int:
        return len(self.labels)

    def name(self, i: int) -> str:
        """The printable name of item i."""
        return str(self.names[i]) if self.names else f"item {i}"

    def shows_images(self) -> bool:
        """Whether items can be read and are images, as the first one that is still there tells."""
        if self.read is None:
            return False
        for i in range(len(self)):
            try:
                return np.ndim(self.read(i)) > 1
            except (OSError, ValueError):  # as where they are shown
                continue
        return False

    def class_name(self, i: int) -> str:
        """The name of the class of item i."""
        return str(self.classes[self.labels[i]])


@dataclass(frozen=True, eq=False)
class Curve:
    """One line of a plot: `values` (m,) at `epochs` (m,)."""

    name: str
    epochs: NDArray[np.float64]
    values: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Other:
    """Another model on the same test items, to be compared with.

    Parameters
    ----------
    name : str
        What it is called.
    scores : Scores or mapping
        Its scores.
    queries, gallery : Items, optional
        The same items, as it embeds them.
    distance : str
        What its neighbors are compared by.
    """

    name: str
    scores: HasScores | Mapping[str, Any]
    queries: Items
    gallery: Items | None = None
    distance: str = "cosine"


@dataclass(frozen=True, eq=False)
class FeatureWeights:
    """What each feature weighs in a linear metric.

    Parameters
    ----------
    names : sequence of str
        The features.
    weights : ndarray, shape (d,)
        Their shares of the mean squared distance.
    low, high : ndarray, shape (d,), optional
        Ends of the intervals.
    fits : int
        On how many random halves of the rows the learner was fitted again for the intervals.
    level : float
        The share of these fits inside the intervals.
    """

    names: Sequence[str]
    weights: NDArray[np.float64]
    low: NDArray[np.float64] | None = None
    high: NDArray[np.float64] | None = None
    fits: int = 0
    level: float = 0.9


@dataclass(frozen=True, eq=False)
class ReportContent:
    """Everything that a report can show; only the first three fields are needed.

    Parameters
    ----------
    title : str
        The heading.
    protocol : str
        One sentence: dataset, classes, images, how they were split.
    scores : Scores or mapping
        `nearfar.evaluation.Scores`, or what its `to_dict` gave.
    baseline : Scores or mapping, optional
        Scores to compare with.
    baseline_name : str
        What these are of.
    chance : mapping, optional
        Score name -> value of a random ranking; taken from `scores` where they bring it.
    intervals : mapping, optional
        Score name -> (low, high), the 95% interval.
    queries, gallery : Items, optional
        The embedded test items; without a gallery every query searches the other queries.
    distance : str
        What neighbors are compared by: "cosine", "euclidean" or "sqeuclidean".
    other : Other, optional
        A model to compare with, query by query.
    chosen_by : str
        What chose the checkpoint, as a clause of the protocol line.
    losses : sequence of Curve
        Every logged part of the objective.
    recalls : mapping of int to sequence of Curve
        K -> Recall@K of each split ("seen", "unseen") over training.
    map_at_r : sequence of Curve
        MAP@R of each split over training.
    best_epoch : float, optional
        The epoch of the checkpoint that was scored.
    attention : callable, optional
        Square image (S, S, C) uint8 -> last convolutional map (C', H, W), or a map (H, W) already averaged.
    settings, environment : mapping
        What was run, and where.
    command : str
        The command line that did it.
    remarks : sequence of str
        What stands out in the training.
    notes : sequence of str
        Remarks on the data.
    defaults : mapping
        Settings where nothing else is given: those that differ from them are marked.
    features : FeatureWeights, optional
        What the features of a table weigh in a learned distance.
    ladder : mapping
        What `to_dict` of the ladder gave: the steps from raw pixels to this training, on classes held out.
    theory : mapping
        What `theory.json` of a run holds: how far its unseen classes lie from the seen ones.
    seed : int
        Draws the random queries, the pairs of the histogram and the map.
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
