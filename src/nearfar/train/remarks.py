"""Remarks on the training of a run, from its scores, table of epochs and log, with suggestions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np

from ..catalog import BY_NAME
from ..evaluation.collapse import COLLAPSED_DIRECTIONS, relative_spread
from ..evaluation.worse import MOVED, both_scores, is_worse
from ..expressions import Call, ExpressionError, parse, walk
from .config import TrainConfig
from .features import Floats

if TYPE_CHECKING:
    from ..evaluation.scores import Scores

IDLE = 0.02  # share of active anchors below which almost nothing is learned
MIN_COURSE_POINTS = 4  # minimum number of evaluations, or of logged batches, to judge a trend
SHORT_TRAINING = 100  # number of batches after which embeddings may still be as near to each other as at the start
HARDEST = ("BatchHard", "ExtremeDistance")
"""Miners that choose the hardest negatives."""
LARGE_TRUNK = 1_000_000  # number of parameters of a trunk above which random weights are remarked on
NAMES = {"recall_at_1": "Recall@1", "map_at_r": "MAP@R"}

Table = Sequence[Mapping[str, float | None]]


def remarks(
    embeddings: Floats,
    scores: Scores,
    epochs: Table,
    log: Sequence[Mapping[str, Any]],
    config: TrainConfig,
    *,
    raw: Scores | None = None,
    frozen: Scores | None = None,
    steps: int | None = None,
) -> tuple[str, ...]:
    """Return remarks on a run; none for a run without problems.

    Parameters
    ----------
    embeddings : ndarray of shape (n, d)
        Embeddings of the test items.
    scores : Scores
        Scores of the embeddings.
    epochs : sequence of mapping
        Rows of `metrics.csv`.
    log : sequence of mapping
        Lines of `log.jsonl`.
    config : TrainConfig
        Settings of the run.
    raw, frozen : Scores, optional
        Scores of the items themselves, and of the features of the pretrained trunk before the training.
    steps : int, optional
        Number of batches of the training; 0 if nothing was trained.
    """
    found = [
        collapsed(embeddings, config, steps),
        worse_than_frozen(scores, frozen) if steps != 0 else "",
        worse_than_raw(scores, raw, config),
        course(epochs, config),
        always_frozen(config),
        *idle(log, epochs),
    ]
    return tuple(sentence for sentence in found if sentence)


def random_trunk(config: TrainConfig, weights: str, parameters: int) -> str:
    """Return a remark on a large trunk that was trained from random weights; `weights` describes these."""
    random = weights.startswith("Weights: random")
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


def collapsed(embeddings: Floats, config: TrainConfig, steps: int | None = None) -> str:
    """Return a remark on collapsed embeddings, from which hinge losses do not recover."""
    apart = relative_spread(embeddings, "cosine")
    if apart > COLLAPSED_DIRECTIONS:
        return ""
    found = f"their mean cosine distance is {apart:.1g}"
    if steps is not None and steps < SHORT_TRAINING:
        return f"The embeddings are all nearly the same: {found} after {steps} batches. More epochs may spread them."
    others = ""
    if any(name in HARDEST for name in names_in(config.objective)):
        others = ", or easier negatives than the hardest (BatchSemiHard, BatchAll),"
    return f"The embeddings have collapsed: {found}. A learning rate below {config.lr:g}{others} may prevent this."


def names_in(objective: str) -> list[str]:
    """Return the names of the losses, regularizers and miners of an objective."""
    try:
        return [node.name for node in walk(parse(objective)) if isinstance(node, Call)]
    except ExpressionError:
        return []


def worse_than_frozen(scores: Scores, frozen: Scores | None) -> str:
    """Return a remark on a training that is worse than the pretrained trunk that it started with."""
    if frozen is None or not is_worse(scores, frozen):
        return ""
    return (
        f"The features of the pretrained trunk give better neighbors without this training "
        f"({both_scores(scores, frozen)}): --rung whitened adds a closed form to them, --rung frozen uses them as they "
        "are; otherwise, a lower learning rate or fewer epochs may help."
    )


def worse_than_raw(scores: Scores, raw: Scores | None, config: TrainConfig) -> str:
    """Return a remark on a network that is worse than the raw inputs."""
    if raw is None or not is_worse(scores, raw):
        return ""
    if config.trunk.startswith("mlp"):
        linear = ", or a linear network (--trunk identity),"
    else:
        linear = ""
    return (
        f"Raw inputs give better neighbors than the embeddings ({both_scores(scores, raw)}): a lower learning rate or "
        f"more training classes{linear} may help."
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


def idle(log: Sequence[Mapping[str, Any]], epochs: Table = ()) -> list[str]:
    """Return remarks on losses that were 0 for almost all anchors at the end, unless the loss can be negative.

    A few batches in the log are enough for a loss that was exactly 0 in every epoch.
    """
    shares: dict[str, list[float]] = {}
    below: set[str] = set()
    for record in log[-max(MIN_COURSE_POINTS, len(log) // 4) :]:
        below |= {name for name, value in _numbers(record, "parts").items() if value < 0}
        for name, share in _numbers(record, "active").items():
            shares.setdefault(name, []).append(share)
    found = []
    for name, late in shares.items():
        of_epochs = [row.get(f"part_{name}") for row in epochs]
        if of_epochs and late and not any(of_epochs) and None not in of_epochs and not any(late):
            found.append(f"The {name} was 0 in every epoch, so nothing was learned from it: {what_makes_active(name)}.")
        elif name not in below and len(late) >= MIN_COURSE_POINTS and np.mean(late) < IDLE:
            few = f"almost no anchor had a {name} above 0 ({np.mean(late):.1%} of them)"
            found.append(f"At the end, {few}: {what_makes_active(name)}.")
    return found


def _numbers(record: Mapping[str, Any], key: str) -> dict[str, float]:
    """Return the numbers of a line of the log by their names, without what is damaged."""
    found = record.get(key)
    if not isinstance(found, dict):
        return {}
    return {name: value for name, value in found.items() if isinstance(value, float)}


def what_makes_active(name: str) -> str:
    """Return what may make a loss positive again: a larger margin only where the loss has one."""
    margin = "a larger margin, " if _has_margin(name) else ""
    return f"{margin}harder negatives or larger batches may help"


def _has_margin(name: str) -> bool:
    """Return whether a loss of the catalog has a margin."""
    method = BY_NAME.get(name)
    if method is None:
        return False
    return any("margin" in setting for setting in signature(getattr(import_module(method.module), name)).parameters)
