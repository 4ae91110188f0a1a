"""Remarks on the training of a run, from its scores, table of epochs and log, with suggestions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..evaluation.collapse import COLLAPSED_DIRECTIONS, relative_spread
from .config import TrainConfig
from .features import Floats

if TYPE_CHECKING:
    from ..evaluation.scores import Scores

IDLE = 0.02  # share of active anchors below which almost nothing is learned
MOVED = 0.02  # smallest change of a score that is significant
MIN_COURSE_POINTS = 4  # minimum number of evaluations, or of logged batches, to judge a trend
LARGE_TRUNK = 1_000_000  # number of parameters of a trunk above which random weights are remarked on
NAMES = {"recall_at_1": "Recall@1", "map_at_r": "MAP@R"}

Table = Sequence[Mapping[str, float | None]]


def remarks(
    embeddings: Floats,
    scores: Scores,
    raw: Scores,
    epochs: Table,
    log: Sequence[Mapping[str, Any]],
    config: TrainConfig,
) -> tuple[str, ...]:
    """Return remarks on a run; none for a run without problems.

    Parameters
    ----------
    embeddings : ndarray of shape (n, d)
        Embeddings of the test items.
    scores : Scores
        Scores of the embeddings.
    raw : Scores
        Scores of the items themselves.
    epochs : sequence of mapping
        Rows of `metrics.csv`.
    log : sequence of mapping
        Lines of `log.jsonl`.
    config : TrainConfig
        Settings of the run.
    """
    found = [
        collapsed(embeddings, config),
        remark_worse_than_raw(scores, raw, config),
        course(epochs, config),
        always_frozen(config),
        *idle(log),
    ]
    return tuple(sentence for sentence in found if sentence)


def random_trunk(config: TrainConfig, weights: str, parameters: int) -> str:
    """Return a remark on a large trunk that was trained from random weights; `weights` describes these."""
    # earlier versions, which have no such sentence, created models of timm with random weights without a warning
    random = weights.startswith("Weights: random") or (not weights and config.trunk.startswith("timm:"))
    if not random or config.weights_file or config.network_weights or parameters <= LARGE_TRUNK:
        return ""
    # only hubs have weights by the name of a trunk
    option = "--pretrained true, or a file" if ":" in config.trunk else "--pretrained FILE"
    return (
        f"The trunk {config.trunk} has {parameters / 1e6:.1f} million parameters and started with random weights: "
        f"with pretrained ones ({option}), scores on unseen classes are usually much better."
    )


def always_frozen(config: TrainConfig) -> str:
    """Return a remark on a run that ended before its trunk was trained."""
    if config.freeze_epochs is None or config.freeze_epochs < config.epochs:
        return ""
    return (
        f"Only the embedding layer was trained, because the trunk was frozen for all {config.epochs} epochs "
        f"(freeze_epochs={config.freeze_epochs}): more epochs also train the trunk."
    )


def collapsed(embeddings: Floats, config: TrainConfig) -> str:
    """Return a remark on collapsed embeddings, from which hinge losses do not recover."""
    apart = relative_spread(embeddings, "cosine")
    if apart > COLLAPSED_DIRECTIONS:
        return ""
    return (
        f"The embeddings have collapsed: their mean cosine distance is {apart:.1g}. A learning rate below "
        f"{config.lr:g}, or easier negatives than the hardest (BatchSemiHard, BatchAll), may prevent this."
    )


def remark_worse_than_raw(scores: Scores, raw: Scores, config: TrainConfig) -> str:
    """Return a remark on a network that is worse than the raw inputs."""
    k = min(scores.recall_at)
    ours = (scores.recall_at[k], scores.map_at_r)
    theirs = (raw.recall_at[k], raw.map_at_r)
    if not (ours[0] < theirs[0] - MOVED and ours[1] < theirs[1]):
        return ""
    if config.trunk.startswith("mlp"):
        linear = ", or a linear network (--trunk identity),"
    else:
        linear = ""
    return (
        f"Raw inputs give better neighbors than the embeddings (Recall@{k} {theirs[0]:.3f} against "
        f"{ours[0]:.3f}): a lower learning rate or more training classes{linear} may help."
    )


def course(epochs: Table, config: TrainConfig) -> str:
    """Return a remark on validation scores that fell from the beginning, or still rose at the end."""
    column = f"unseen_{config.select}"
    name = NAMES[config.select]
    points = [(row.get("epoch") or 0, row[column]) for row in epochs if row.get(column) is not None]
    if len(points) < MIN_COURSE_POINTS:
        return ""
    score = np.array([value for _, value in points], dtype=float)
    best = int(score.argmax())
    late = len(score) - 1 - len(score) // 4
    if best == 0 and score[-1] < score[0] - MOVED:
        return (
            f"The first of {len(score)} evaluations was the best (validation {name} {score[0]:.3f}; at the end "
            f"{score[-1]:.3f}): a lower learning rate, augmentation or a regularizer such as JRS() may help."
        )
    if best == len(score) - 1 and score[-1] > score[: late + 1].max() + MOVED:
        return (
            f"The validation {name} still rose at the end ({score[: late + 1].max():.3f} up to epoch "
            f"{points[late][0]:g}, {score[-1]:.3f} at epoch {points[-1][0]:g}): more epochs may help."
        )
    return ""


def idle(log: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return remarks on losses that were 0 for almost all anchors at the end, unless the loss can be negative."""
    shares: dict[str, list[float]] = {}
    below: set[str] = set()
    for record in log[-max(MIN_COURSE_POINTS, len(log) // 4) :]:
        active, parts = (found if isinstance(found := record.get(key), dict) else {} for key in ("active", "parts"))
        below |= {name for name, value in parts.items() if isinstance(value, float) and value < 0}
        for name, share in active.items():
            shares.setdefault(name, []).extend([share] if isinstance(share, float) else [])
    return [
        f"At the end, almost no anchor had a {name} above 0 ({np.mean(late):.1%} of them): a larger margin, "
        "harder negatives or larger batches may help."
        for name, late in shares.items()
        if name not in below and len(late) >= MIN_COURSE_POINTS and np.mean(late) < IDLE
    ]
