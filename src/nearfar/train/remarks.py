"""What the scores, the table of epochs and the log of a run say of its training, in sentences with a remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..evaluation.collapse import COLLAPSED_DIRECTIONS, relative_spread
from .config import TrainConfig
from .features import Floats

if TYPE_CHECKING:
    from ..evaluation.scores import Scores

IDLE = 0.02  # share of active anchors at which nearly nothing is learned
MOVED = 0.02  # change of a score that counts
MIN_COURSE_POINTS = 4  # evaluations, or batches in the log, that show a course
LARGE_TRUNK = 1_000_000  # parameters of a trunk from which random weights are worth a remark
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
    """Return what is conspicuous in a run; nothing for a run without problems.

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
    found = [collapsed(embeddings, config), unlearned(scores, raw, config), course(epochs, config), *idle(log)]
    return tuple(sentence for sentence in found if sentence)


def random_trunk(config: TrainConfig, weights: str, parameters: int) -> str:
    """A large trunk that was trained from random weights; `weights` is what a checkpoint says of them."""
    # versions before there was such a sentence made models of timm with random weights in silence
    random = weights.startswith("Weights: random") or (not weights and config.trunk.startswith("timm:"))
    if not random or config.weights_file or config.network_weights or parameters <= LARGE_TRUNK:
        return ""
    # only hubs have weights by the name of a trunk
    option = "--pretrained true, or a file" if ":" in config.trunk else "--pretrained FILE"
    return (
        f"The trunk {config.trunk} has {parameters / 1e6:.1f} million parameters and began with random weights: "
        f"pretrained ones ({option}) usually find unseen classes far better."
    )


def collapsed(embeddings: Floats, config: TrainConfig) -> str:
    """Embeddings that are one direction, which no hinge loss leaves again."""
    apart = relative_spread(embeddings, "cosine")
    if apart > COLLAPSED_DIRECTIONS:
        return ""
    return (
        f"The embeddings have collapsed: their mean cosine distance is {apart:.1g}. A learning rate below "
        f"{config.lr:g}, or easier negatives than the hardest (BatchSemiHard, BatchAll), may keep them apart."
    )


def unlearned(scores: Scores, raw: Scores, config: TrainConfig) -> str:
    """A network that is worse than none."""
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
    """Validation scores that fell from the beginning, or that still rose at the end."""
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
            f"The first of {len(score)} evaluations was the best (validation {name} {score[0]:.3f}, at the end "
            f"{score[-1]:.3f}): a lower learning rate, augmentation or a regularizer such as JRS() may help."
        )
    if best == len(score) - 1 and score[-1] > score[: late + 1].max() + MOVED:
        return (
            f"The validation {name} still rose at the end ({score[: late + 1].max():.3f} up to epoch "
            f"{points[late][0]:g}, {score[-1]:.3f} at epoch {points[-1][0]:g}): more epochs may help."
        )
    return ""


def idle(log: Sequence[Mapping[str, Any]]) -> list[str]:
    """Losses that hardly any anchor had towards the end; one that has gone below 0 does not end there."""
    shares: dict[str, list[float]] = {}
    below: set[str] = set()
    for record in log[-max(MIN_COURSE_POINTS, len(log) // 4) :]:
        active, parts = (found if isinstance(found := record.get(key), dict) else {} for key in ("active", "parts"))
        below |= {name for name, value in parts.items() if isinstance(value, float) and value < 0}
        for name, share in active.items():
            shares.setdefault(name, []).extend([share] if isinstance(share, float) else [])
    return [
        f"Towards the end hardly any anchor had a {name} above 0 ({np.mean(late):.1%} of them): a larger margin, "
        "harder negatives or larger batches give the others something to learn."
        for name, late in shares.items()
        if name not in below and len(late) >= MIN_COURSE_POINTS and np.mean(late) < IDLE
    ]
