"""The ladder: scores of the rungs from raw inputs to a trained network, on classes held out of the training classes.

    photos   raw pixels -> frozen features -> a closed form on them -> a linear layer on them -> all weights trained for
             a few batches
    texts    frozen features -> a closed form on them -> a linear layer on them
    rows     raw rows -> a closed form on them -> a linear layer on them
    images without a pretrained trunk    raw pixels -> a closed form on them

and at the end, if that is requested, the last stage of a trunk and all weights trained with the settings of the config.
Every rung costs more than the one before; the table shows which one is worth its cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from ...data import Dataset, Task
from ...data.readers.in_memory import GIVEN
from ...deep.networks.embedder import Embedder, as_channels
from ...deep.networks.standardize import Standardize
from ...evaluation.intervals import interval
from ...evaluation.protocol import mean_score
from ...numerics.types import Ints
from ...quoting import count_of
from ..checkpoint import preserve_random_state
from ..config import TrainConfig, TrainError
from ..defaults import default_recipe, hub_is_cached
from ..features import Floats, all_rows, cached_features, embed, encode, sizes_of, with_rows
from ..interrupts import Interrupts
from ..network import Trainable, weights_note
from ..recipes import recipe
from ..run import RunFolder, write_json
from ..scale.devices import make_accelerator
from ..scoring import raw_items
from ..settle import Plan, sampler_of, settle
from ..setup import build, checked
from ..start import start_from_whitening
from ..task import item_shape, items_of
from ..timing.expected_work import ExpectedWork
from ..timing.time_limit import TimeLimit
from ..trainer import TrainerInMemory
from ..training_data import seen_sample
from ..watchers import Watcher
from ..weight_averages import Averages
from .class_scores import search
from .closed_forms import FORMS, MAX_WIDTH, OF_FEATURES, choose_form, fitted
from .frozen import frozen_features, untrained_network
from .last_stage import LastStage, split_off

RUNGS = ("raw", "frozen", "whitened", "head", "last-stage", "full")
FROZEN = "frozen features"
LADDER = "ladder.json"
UNTRAINED = ("raw", "frozen", "whitened")
"""Rungs that train nothing, and so can be scored on many splits."""
UNTRAINED_SPLITS = 20  # number of splits for these rungs, if `MAX_WORK` allows it
MAX_WORK = 1e12  # maximum number of multiplications for these splits: about half a minute on one processor core
HEAD_STEPS = 150  # number of batches; a linear layer on cached features trains in seconds
STAGE_STEPS = 40  # number of batches; the last stage on cached activations takes ten seconds on a CPU
TRAINED_SPLITS = 5  # of the classes, for the rungs that train
FEW_SPLITS = 3  # the same if many photos are compared by default, which takes a minute or a few
FEW_PHOTOS = 1000  # number of training photos below which there are more splits, with fewer batches
TRIED_BATCHES = 4  # of a training of all weights on few photos
TRIED_OF_MORE = 16  # of the same on more photos, which then are trained for many more batches than a linear layer needs
FINAL_BATCHES = 64  # minimum number of the same on all training classes, if all weights win
MAX_ITEMS = 3000  # maximum number of items, so that the table takes a few minutes at most
TIMED_ITEMS = 48  # number of items that are read and embedded first where the time is limited
FEATURES_SHARE = 0.4  # share of a limited time for reading all items and for their features
SECONDS_OF_READING = 0.003
"""Seconds of an image, as those below are expected before they are measured, for the progress."""
SECONDS_OF_FEATURES = 0.02
SECONDS_OF_SEARCH = 1e-8  # for each pair of items
SECONDS_OF_HEAD = 0.02  # for each batch
MULTIPLICATIONS_PER_SECOND = 2e10  # of these splits, as they are expected for the progress
FORMS_SHARE = 0.3  # share of a limited time for these splits
FORM_SPLITS = 2  # of the classes that are not held out, into halves, which choose a closed form
FEWEST_CLASSES = 6  # minimum number of classes: two to hold out and four to train on
SPLITS_OF_INTERVAL = 5
"""Minimum number of splits for an interval: with 3 splits, which hold out a third of the classes, its half-width is 3.9
standard deviations (with 5 splits 2.3, with 20 splits 1.6)."""
HELD_OUT_CLASSES = 1 / 3  # share of the classes that a split holds out


@dataclass(frozen=True)
class Rung:
    """One rung of the ladder.

    Attributes
    ----------
    name : str
        One of `RUNGS`.
    title : str
        What it is, for tables.
    recall_at_1 : tuple of float
        Recall@1 on the held-out classes of every split that the rung was scored on, which are the first ones.
    map_at_r : tuple of float
        MAP@R on the same.
    seconds : float
        Time of the rung for all of its splits together, without what the rungs before it have computed for it.
    forms : tuple of str
        Closed form of each split, if the rung has one: that which the classes that are not held out have chosen.
    """

    name: str
    title: str
    recall_at_1: tuple[float, ...]
    map_at_r: tuple[float, ...]
    seconds: float
    forms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ladder:
    """Scores of the rungs from raw inputs to fine-tuning, and which rung is worth its time.

    Attributes
    ----------
    protocol : str
        The data, and how classes were held out.
    rows : tuple of Rung
        Rungs, from the cheapest to the most expensive.
    worth : str
        The last rung that was better than all before it, as `last_worthwhile_rung` decides.
    weights : str
        Where the weights of the trunk come from.
    ratio : float
        Number of held-out classes over the number of the others in each split, for the intervals.

    Notes
    -----
    Rungs that train nothing are scored on more splits than the others. So that all means can be compared, the mean of a
    rung with fewer splits is that of the last rung that trains nothing, plus their mean difference on the splits that
    they share: their scores on one split resemble each other more than those of raw inputs. An
    interval is that of the scores on the rung's own splits, see `mean_and_half`. Fewer than five splits give none.
    """

    protocol: str
    rows: tuple[Rung, ...]
    worth: str
    weights: str = ""
    ratio: float = 0.0

    @property
    def sentence(self) -> str:
        """Which rung is worth it, and whether another one has a higher score that may be due to chance."""
        best = self._row(self.worth)
        beside = [row for row in self.rows if row.name != self.worth]
        higher = any(mean_difference(row, best) > 0 for row in beside)
        if beside and self.worth == self.rows[0].name:
            name = f"No rung is better than {best.title} by more than chance"
        else:
            name = best.title[0].upper() + best.title[1:]
        found = f"{name}: {self.scores}."
        if not beside:
            found += " Nothing else was compared."
        other = self._cheaper
        if other is not None:
            mean, half = mean_and_half(differences(best, other), self.ratio)
            if np.isfinite(half) and mean <= half:
                gain = _gain_text(differences(best, other), self.ratio)
                found += f" On new classes, {other.title} may be as good: the gain is {gain}."
        if higher:
            found += " The higher scores of other rungs may be due to chance."
        return found

    @property
    def scores(self) -> str:
        """MAP@R of the rung that is worth it, and of the others."""
        found = f"MAP@R {self.mean(self._row(self.worth)):.3f} on held-out classes"
        others = "; ".join(f"{row.title} {self.mean(row):.3f}" for row in self.rows if row.name != self.worth)
        return f"{found} ({others})" if others else found

    @property
    def gain(self) -> str:
        """By how much the rung that is worth it is better than the best of the cheaper ones; "" if there are none."""
        other = self._cheaper
        if other is None:
            return ""
        gain = _gain_text(differences(self._row(self.worth), other), self.ratio)
        return f"The gain over {other.title} is {gain}."

    @property
    def _cheaper(self) -> Rung | None:
        """The rung that would be worth it without the one that is, and without those that cost more."""
        before = self.rows[: self.rows.index(self._row(self.worth))]
        return self._row(last_worthwhile_rung(before)) if before else None

    def _row(self, rung: str) -> Rung:
        return next(row for row in self.rows if row.name == rung)

    def mean(self, row: Rung, score: str = "map_at_r") -> float:
        """Return the mean over all splits, corrected for splits that the row does not have."""
        most = len(self.rows[0].map_at_r)
        reference = [other for other in self.rows if len(other.map_at_r) == most][-1]
        return float(np.mean(getattr(reference, score))) + mean_difference(row, reference, score)

    def _mean_and_half(self, row: Rung, score: str) -> tuple[float, float]:
        values = getattr(row, score)
        half = mean_and_half(values, self.ratio)[1] if len(values) >= SPLITS_OF_INTERVAL else np.nan
        return self.mean(row, score), half

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: `protocol`, `rows`, `worth`, `weights` and `sentence`.

        Half-widths of intervals are NaN for fewer than five splits.
        """
        rows = [
            {
                **asdict(row),
                "title": row.title,
                "splits": len(row.map_at_r),
                **{
                    f"{name}_{part}": value
                    for name in ("recall_at_1", "map_at_r")
                    for part, value in zip(("mean", "half_width"), self._mean_and_half(row, name), strict=True)
                },
            }
            for row in self.rows
        ]
        return {
            "protocol": self.protocol,
            "rows": rows,
            "worth": self.worth,
            "weights": self.weights,
            "sentence": self.sentence,
        }

    def __str__(self) -> str:
        """Return the table as text."""
        width = max(len(row.title) for row in self.rows)
        lines = [self.weights] if self.weights else []
        head = f"{'rung':<{width}}  {'splits':>6}  {'Recall@1':>15}  {'MAP@R':>15}  {'seconds':>8}"
        lines += [self.protocol, "", head]
        for row in self.rows:
            recall, mean = (as_text(*self._mean_and_half(row, score)) for score in ("recall_at_1", "map_at_r"))
            splits = len(row.map_at_r)
            lines.append(f"{row.title:<{width}}  {splits:>6}  {recall:>15}  {mean:>15}  {row.seconds:>8.1f}")
        return "\n".join([*lines, "", f"Worth it: {self.sentence}"])


def mean_and_half(values: Sequence[float], ratio: float = 0.0) -> tuple[float, float]:
    """Return the mean over the splits and the half-width of its 95% interval; NaN for one split.

    With the ratio of held-out to other classes, the interval allows for the overlap of the splits, which have most of
    their classes in common (Nadeau and Bengio, Inference for the generalization error, 2003).

    >>> mean, half = mean_and_half([0.5, 0.6, 0.7], ratio=0.5)
    >>> round(mean, 3), round(half, 3)
    (0.6, 0.393)
    """
    found = interval(values)
    # t_{0.975, J-1} s sqrt(1/J + ratio); `interval` has the same without the ratio
    return found.mean, found.half * float(np.sqrt(1.0 + len(values) * ratio))


def as_text(mean: float, half: float) -> str:
    """Return a mean and its half-width as text.

    >>> as_text(0.6, 0.248)
    '0.600 ± 0.248'
    """
    return f"{mean:.3f} ± {half:.3f}" if np.isfinite(half) else f"{mean:.3f}"


def _gain_text(gains: Sequence[float], ratio: float) -> str:
    """Return the mean gain with its interval, or with the smallest and the largest gain of a few splits."""
    mean, half = mean_and_half(gains, ratio)
    if len(gains) >= SPLITS_OF_INTERVAL:
        return as_text(mean, half)
    return f"{mean:.3f} on average, and {min(gains):.3f} to {max(gains):.3f} in single splits"


def differences(one: Rung, other: Rung, score: str = "map_at_r") -> list[float]:
    """Return the differences of a score, one minus the other, on the splits that both rungs have."""
    ours = getattr(one, score)
    theirs = getattr(other, score)
    shared = min(len(ours), len(theirs))
    return np.subtract(ours[:shared], theirs[:shared]).tolist()


def mean_difference(one: Rung, other: Rung, score: str = "map_at_r") -> float:
    """Return the mean of `differences`."""
    return float(np.mean(differences(one, other, score)))


def ladder(
    config: TrainConfig,
    *,
    splits: int = TRAINED_SPLITS,
    untrained_splits: int = UNTRAINED_SPLITS,
    full: bool = False,
    start: Path | None = None,
    on_rung: Callable[[str], None] | None = None,
    on_progress: Callable[[float, float], None] | None = None,
    seconds: float | None = None,
) -> Ladder:
    """Compare the rungs from raw inputs to a fine-tuned network, on classes held out of the training classes.

    The test classes are not used. Every split holds out a third of the training classes; closed forms are chosen by and
    fitted to the others, and layers are trained on these. All weights of a trunk of photos are trained for a few
    batches, which takes about as long as its last stage alone for more of them, and learns more.

    Parameters
    ----------
    config : TrainConfig
        Settings of the run to decide on: data, trunk, weights and objective.
    splits : int
        Number of times that classes are held out for the rungs that train, at least 1.
    untrained_splits : int
        Number of times for raw inputs, frozen features and a closed form, which take milliseconds to seconds each.
        The first of them are those of the other rungs. There are fewer, but at least `splits`, if they would take more
        than about half a minute, as for thousands of items with thousands of features.
    full : bool
        Also train all weights in every split with the settings of the config, which takes as long as `splits` runs.
    start : Path, optional
        Folder to which relative paths refer.
    on_rung : callable, optional
        Function that is called with the name of each rung before it starts.
    on_progress : callable, optional
        Function that is called with the share of the work that is done, in [0, 1], and with the seconds that the rest
        is expected to take.
    seconds : float, optional
        Time for the table: there are fewer items and fewer splits if they would take longer, and rungs that train are
        left out if there is not enough time for one split of them.

    Returns
    -------
    Ladder
        Its `rows`, `worth` and `sentence`; `str` gives a table, `to_dict` plain data.

    Raises
    ------
    TrainError
        If there are fewer than six training classes, images are searched by texts, or a setting is not valid.

    Examples
    --------
    >>> found = ladder(TrainConfig.of(data="photos/", trunk="timm:resnet18"))  # doctest: +SKIP
    >>> print(found)  # doctest: +SKIP
    """
    config = checked(config)
    if splits < 1:
        raise TrainError(f"ladder: splits must be at least 1, got {splits}")
    limit = None if seconds is None else TimeLimit(seconds / 60)
    announce = on_rung or (lambda title: None)
    with preserve_random_state():
        plan = _plan_of_ladder(config, start)
        train = plan.task.train
        config = plan.config
        tries_all = trains_all_weights(plan)
        batches = TRIED_BATCHES if len(train) < FEW_PHOTOS else TRIED_OF_MORE
        whole = whole_config(config, None if full else batches) if full or tries_all else None
        items = _items(train, config.seed)
        if limit is not None:
            items = _items_in_time(items, config, start, limit)
        held = held_out_classes(items, max(splits, untrained_splits), config.seed)
        rungs, weights = _rungs(
            items,
            held,
            splits,
            config,
            start,
            whole,
            announce,
            ExpectedWork(on_progress),
            limit,
            stage=full or not tries_all,
        )
        out = len(held[0])
        return Ladder(
            protocol=_protocol(items, train, rungs, out),
            rows=rungs,
            worth=last_worthwhile_rung(rungs),
            weights=weights,
            ratio=out / (len(items.classes) - out),
        )


def _plan_of_ladder(config: TrainConfig, start: Path | None = None) -> Plan:
    """Settle a config with all of its training classes, and with no classes of turned images."""
    return settle(config.replace(validation=0.0, symmetries="none"), start)


def _items(train: Dataset, seed: int) -> Dataset:
    if len(train.classes) < FEWEST_CLASSES:
        detail = f"expected at least {FEWEST_CLASSES} training classes, got {len(train.classes)}"
        raise TrainError(f"ladder: {detail}; a third of them is held out")
    if train.class_counts.max() < 2:
        raise TrainError(
            f"ladder: no training class of {train.name} has two {items_of(train)}, so no rung can be scored"
        )
    return train if len(train) <= MAX_ITEMS else seen_sample(train, MAX_ITEMS, seed)


def _items_in_time(items: Dataset, config: TrainConfig, start: Path | None, limit: TimeLimit) -> Dataset:
    """Return so many of the items, whole classes of them, that their features take a part of the time."""
    before = limit.seconds_left
    some = items.subset(np.linspace(0, len(items) - 1, min(len(items), TIMED_ITEMS)).astype(int))
    raw_items(some, nn.Identity())
    if config.starts_pretrained:
        _features_and_stage(some, config, start)
    per_item = (before - limit.seconds_left) / len(some)
    count = int(FEATURES_SHARE * limit.seconds_left / max(per_item, 1e-6))
    return items if count >= len(items) else seen_sample(items, count, config.seed, fewest=FEWEST_CLASSES)


def trains_all_weights(plan: Plan) -> bool:
    """Return whether all weights of a pretrained trunk are trained on photos, for a few batches in the ladder."""
    return default_recipe(plan.config, plan.task) == "photos/finetune" and not plan.config.last_stage


def whole_config(config: TrainConfig, batches: int | None) -> TrainConfig:
    """Return the settings that train all weights on some of the classes, perhaps for a number of batches."""
    alone = {"validation": 0.0, "eval_every": 1_000_000, "patience": None, "metric": "none", "track": ()}
    return config.replace(**alone, **({} if batches is None else {"steps": batches}))


def on_all_classes(config: TrainConfig, *, timed: bool = False) -> TrainConfig:
    """Return the settings that train all weights of photos on all classes, because the ladder has compared.

    They are trained for the epochs of the config, or if that is longer for `FINAL_BATCHES`. More than `MAX_ITEMS`
    photos, of which the ladder has compared only some, still hold classes out, which compare at the end. A config that
    sets how long it trains, or what it holds out, is as it was.

    A `timed` training keeps the size of the images: smaller ones would fit into less time, but the ladder has not
    compared them.
    """
    if {"epochs", "steps", "validation", "patience", "metric"} & set(config.given):
        return config
    plan = settle(config.replace(validation=0.0))
    if len(plan.task.train) > MAX_ITEMS:
        return config
    batches = plan.config.epochs * len(sampler_of(plan.config, plan.task.train, None))
    steps = max(FINAL_BATCHES, batches)
    sizes = {"image_size": plan.config.image_size, "resize": plan.config.resize} if timed else {}
    return config.replace(steps=steps, **sizes, validation=0.0, eval_every=1_000_000, metric="none")


def runs_ladder_by_default(config: TrainConfig) -> bool:
    """Return whether the ladder is run without being requested: for images and a pretrained trunk.

    It is not run if the config sets which weights are trained, or if there are too few classes.
    """
    return default_ladder(config).runs


class DefaultLadder(NamedTuple):
    """Whether the ladder is run without being requested, a line if only the training data prevent it, and for how many.

    Of few photos, the rungs that train have as many splits as where the ladder is requested: with three, only a gain
    that is nearly the same in all of them is larger than the half-width of its interval. More photos take longer.
    """

    runs: bool
    note: str = ""
    few: bool = False

    @property
    def splits(self) -> int:
        """Number of splits for the rungs that train."""
        return TRAINED_SPLITS if self.few else FEW_SPLITS


def default_ladder(config: TrainConfig) -> DefaultLadder:
    """Decide whether the ladder is run without being requested; see `runs_ladder_by_default`."""
    if config.freeze_trunk or config.last_stage or config.lora is not None or config.network_weights is not None:
        return DefaultLadder(False)
    if config.text_trunk is not None:
        return DefaultLadder(False)
    if config.trunk != "auto" and not (config.starts_pretrained and ":" in config.trunk):
        return DefaultLadder(False)  # decided without opening the data
    if config.trunk == "auto" and config.pretrained is not True and not hub_is_cached():
        return DefaultLadder(False)
    plan = _plan_of_ladder(config)
    task = plan.task
    if items_of(task.train) == "rows" or default_recipe(plan.config, task) is None:
        return DefaultLadder(False)
    if task.train.texts is not None:  # few batches are enough, and what is cheaper is compared after them
        return DefaultLadder(False)
    classes = len(task.train.classes)
    without = "The rungs from frozen features to fine-tuning are not compared before the training:"
    if classes < FEWEST_CLASSES:
        why = f"this needs {FEWEST_CLASSES} training classes, to hold some out, and there are {classes}"
        return DefaultLadder(False, f"{without} {why}.")
    if task.train.class_counts.max() < 2:
        return DefaultLadder(False, f"{without} no training class has two {items_of(task.train)}.")
    return DefaultLadder(True, few=trains_all_weights(plan) and len(task.train) < FEW_PHOTOS)


def held_out_classes(items: Dataset, splits: int, seed: int) -> list[Ints]:
    """Return the numbers of the classes that each split holds out: a random third for every split."""
    n = len(items.classes)
    count = max(2, round(HELD_OUT_CLASSES * n))
    return [np.sort(np.random.default_rng((seed, split)).permutation(n)[:count]) for split in range(splits)]


def _protocol(items: Dataset, train: Dataset, rungs: Sequence[Rung], out: int) -> str:
    """Return a sentence on the data, the splits and the intervals; `out` is the number of held-out classes."""
    part = "" if len(items) == len(train) else f", drawn from {len(train):,} of {len(train.classes):,}"
    what = f"{train.name}: {len(items):,} {items_of(items)} of {len(items.classes):,} training classes{part}"
    most = len(rungs[0].map_at_r)
    fewest = len(rungs[-1].map_at_r)
    if most == 1:
        return f"{what}; one split, which holds {out} classes out."
    times = f"{most} splits"
    if fewest < most:
        times += f" (the first {'one' if fewest == 1 else fewest} for rungs that train)"
    scores = "mean"
    if most >= SPLITS_OF_INTERVAL:
        scores += " and 95% interval, corrected for overlapping splits"
    sentence = f"{what}; {times}, each holds {out} classes out; {scores}."
    if 1 < fewest < SPLITS_OF_INTERVAL:
        sentence += f" {fewest} splits are too few for an interval."
    return sentence


def affordable_splits(splits: int, n: int, widths: Sequence[int]) -> int:
    """Return how many of the splits of n items can be scored without training, for rows of the given widths.

    The number does not depend on the speed of the machine.
    """
    return min(splits, int(MAX_WORK / work_of_split(n, widths)))


def work_of_split(n: int, widths: Sequence[int]) -> float:
    """Return the multiplications of a split of the rungs that train nothing, for n items of the given widths.

    The search takes h^2 d multiplications for h held-out items of d numbers. The closed forms for the last width take
    about n d^2 + 10 d^3 for their covariances and eigenvectors, once for each split of the other classes that chooses
    one and once for the one that is chosen.
    """
    h = HELD_OUT_CLASSES * n
    d = widths[-1]
    work = sum(h * h * width for width in widths)
    if d <= MAX_WIDTH:
        work += (FORM_SPLITS * len(OF_FEATURES) + 1) * h * h * d + (FORM_SPLITS + 1) * (n * d**2 + 10 * min(d, n) ** 3)
    return work


class Inputs(NamedTuple):
    """Items as rows that a closed form may follow: the rung of the ladder, its title, and the rows (n, d)."""

    rung: str
    title: str
    rows: Floats


class TrainedRung(NamedTuple):
    """A rung that trains: it embeds the held-out classes, and tells watchers of its batches."""

    rung: str
    title: str
    embed_held: Callable[[Ints, Sequence[Watcher]], Floats]


def _rungs(
    items: Dataset,
    held: Sequence[Ints],
    splits: int,
    config: TrainConfig,
    start: Path | None,
    whole: TrainConfig | None,
    announce: Callable[[str], None],
    work: ExpectedWork,
    limit: TimeLimit | None = None,
    *,
    stage: bool,
) -> tuple[tuple[Rung, ...], str]:
    """Return the rungs, with the last stage if `stage` is true, and a sentence on the origin of the trunk's weights.

    Rungs that train are scored on the first `splits` of the held-out classes, and the others on as many as they can.
    """
    n = len(items)
    pretrained = config.starts_pretrained
    work.expect("reading", n, SECONDS_OF_READING)
    work.expect("features", n if pretrained else 0, SECONDS_OF_FEATURES)
    _expect_splits(work, len(held), splits, config, n, SECONDS_OF_FEATURES, whole)
    bases, found = _bases(items, config, start, announce, work, stage=stage)
    _, base, rows = bases[-1]
    has_form = rows.shape[1] <= MAX_WIDTH
    trained = _trained_rungs(items, found, base, config, start, whole)
    known = {rung for rung, *_ in (*bases, *trained)} | ({"whitened"} if has_form else set())
    widths = [rows.shape[1] for _, _, rows in bases]
    many = held[: max(splits, affordable_splits(len(held), n, widths))]
    forward = work.seconds("features") / n if pretrained else SECONDS_OF_FEATURES
    per_split = work_of_split(n, widths) / MULTIPLICATIONS_PER_SECOND

    def expect() -> None:
        _expect_splits(work, len(many), splits, config, n, forward, whole)
        work.expect("whitened", len(many), per_split)
        for rung in {*RUNGS[:-1]} - known:
            work.expect(rung, 0, 0.0)

    if limit is not None:
        many = many[: max(1, int(FORMS_SHARE * limit.seconds_left / per_split))]
        expect()
        free = limit.seconds_left - work.seconds_left_of(*UNTRAINED)
        affordable = int(splits * free / max(work.seconds_left_of("head", "last-stage", "full"), 1e-6))
        splits = min(splits, len(many), max(1, affordable))
    expect()
    rungs = [
        _rung(rung, title, ((found, classes) for classes in many), items, work, limit=limit)
        for rung, title, found in bases
    ]
    if has_form:
        announce(f"{base}, closed form")
        forms: list[str] = []
        offered = tuple(FORMS if _may_be_standardized(items, config) else OF_FEATURES)
        embedded = ((_mapped_held(rows, items, classes, config.seed, forms, offered), classes) for classes in many)
        rungs.append(_rung("whitened", base, embedded, items, work, forms, limit))
    for rung, title, embed_held in trained:
        if limit is not None and work.seconds_left_of(rung) > splits * limit.seconds_left:
            continue  # there is not enough time for one split
        announce(title)
        counted = [BatchCounter(work, rung)]
        embedded = ((embed_held(classes, counted), classes) for classes in held[:splits])
        rungs.append(_rung(rung, title, embedded, items, work, limit=limit))
    return tuple(rungs), found.weights


def _bases(
    items: Dataset,
    config: TrainConfig,
    start: Path | None,
    announce: Callable[[str], None],
    work: ExpectedWork,
    *,
    stage: bool,
) -> tuple[list[Inputs], Frozen]:
    """Return raw inputs, but not texts, and the features of a pretrained trunk; without one, these are the items."""
    bases: list[Inputs] = []
    if items.texts is None:
        title = items.title_of_raw
        announce(title)
        bases.append(Inputs("raw", title, raw_items(items, _scale(items, config, start))))
    work.advance("reading", len(items))
    if not config.starts_pretrained:
        network = untrained_network(config, item_shape(items, config), start)
        return bases, Frozen(items, None, weights_note(config, network))
    announce(FROZEN)
    found = _features_and_stage(items, config, start, stage=stage)
    bases.append(Inputs("frozen", FROZEN, np.asarray(found.features.array)))
    work.advance("features", len(items))
    return bases, found


def _trained_rungs(
    items: Dataset, found: Frozen, base: str, config: TrainConfig, start: Path | None, whole: TrainConfig | None
) -> list[TrainedRung]:
    """Return the rungs that train: a linear layer, but not on raw pixels, the last stage if there is one, and all."""
    features, stage, _ = found
    rungs: list[TrainedRung] = []
    if config.starts_pretrained or items.kind == "row":
        head = head_config(config)
        title = f"linear layer on {base}"
        rungs.append(TrainedRung("head", title, lambda out, seen: _trained(head, features, out, start, seen)))
    if stage is not None:
        kept = stage
        rungs.append(
            TrainedRung(
                "last-stage",
                "last stage trained",
                lambda out, seen: _trained_stage(kept, features, out, config, start, seen),
            )
        )
    if whole is not None:
        settings = whole
        title = "all weights trained" + (f" for {count_of(whole.steps, 'batch')}" if whole.steps else "")
        known = features if config.starts_pretrained else None
        rungs.append(TrainedRung("full", title, lambda out, seen: _trained(settings, items, out, start, seen, known)))
    return rungs


def _scale(items: Dataset, config: TrainConfig, start: Path | None) -> nn.Module:
    """Return the layer that standardizes rows, if the config asks for that; otherwise one that changes nothing."""
    if not config.standardize:
        return nn.Identity()
    scale = untrained_network(config, item_shape(items, config), start).scale
    assert isinstance(scale, Standardize)
    scale.learn(all_rows(items))
    return scale


def _expect_splits(
    work: ExpectedWork,
    many: int,
    splits: int,
    config: TrainConfig,
    n: int,
    forward: float,
    whole: TrainConfig | None,
) -> None:
    """Say how long the splits of all rungs are expected to take, of n items of so many seconds through the trunk.

    Parameters
    ----------
    many, splits : int
        Numbers of splits of the rungs that train nothing, and of the others.
    forward : float
        Seconds of an item in the trunk, without gradients; with gradients it takes three times as long.
    """
    for rung in UNTRAINED:
        work.expect(rung, many, SECONDS_OF_SEARCH * n**2)
    work.expect("head", splits * HEAD_STEPS, SECONDS_OF_HEAD)
    work.expect("last-stage", splits * STAGE_STEPS, forward * config.batch_size)  # a half or less of the trunk
    if whole is not None:
        batches = whole.steps or whole.epochs * max(1, round((1 - HELD_OUT_CLASSES) * n / config.batch_size))
        embedded = HELD_OUT_CLASSES * n / batches  # of the items of a split, at its end
        work.expect("full", splits * batches, (3 * config.batch_size + embedded) * forward)


class BatchCounter(Watcher):
    """Counts the batches of a rung that trains as work that is done."""

    def __init__(self, work: ExpectedWork, rung: str) -> None:
        self.work = work
        self.rung = rung

    def on_step(self, step: int, epoch: int, record: Mapping[str, Any] | None) -> None:
        self.work.advance(self.rung)

    def on_epoch(self, row: Mapping[str, Any]) -> None:
        """The batches of an epoch were counted."""
        return

    def close(self) -> None:
        """Nothing is open."""
        return


def _may_be_standardized(items: Dataset, config: TrainConfig) -> bool:
    """Return whether closed forms may standardize: raw rows, unless the config standardizes them already."""
    return items.kind == "row" and not config.starts_pretrained and not config.standardize


def _mapped_held(
    rows: Floats, items: Dataset, held: Ints, seed: int, forms: list[str], offered: Sequence[str]
) -> Floats:
    """Choose and fit a closed form on the classes that are not held out, and return the mapped rows of the others.

    The name of the form, one of those that are offered, is added to `forms`.
    """
    out = np.isin(items.labels, held)
    labels = items.labels[~out]
    groups = None if items.groups is None else items.groups[~out]
    asks = None if items.asks is None else items.asks[~out]
    form = choose_form(rows[~out], labels, groups, asks, seed=seed, splits=FORM_SPLITS, forms=offered).name
    forms.append(form)
    mapped = fitted(form, rows[~out], labels)(rows[out])
    embedded = np.zeros((len(rows), mapped.shape[1]), np.float32)
    embedded[out] = mapped
    return embedded


def with_forms(base: str, forms: Sequence[str]) -> str:
    """Return the title of features with closed forms, the most frequent one first.

    >>> with_forms("raw rows", ["whitening", "none", "whitening"])
    'raw rows, whitened or as they are'
    """
    titles = [FORMS[name].title for name, _ in Counter(forms).most_common()]
    return f"{base}, {' or '.join(titles)}"


def _rung(
    rung: str,
    title: str,
    embedded: Iterable[tuple[Floats, Ints]],
    items: Dataset,
    work: ExpectedWork,
    forms: Sequence[str] = (),
    limit: TimeLimit | None = None,
) -> Rung:
    """Score embeddings of all items on the held-out classes of each split, or of fewer if the time is over.

    A split may add its closed form to `forms`.
    """
    recalls = []
    means = []
    for rows, classes in embedded:
        out = np.isin(items.labels, classes)
        groups = None if items.groups is None else items.groups[out]
        asks = None if items.asks is None else items.asks[out]
        found, _ = search(rows[out], items.labels[out], groups=groups, asks=asks)
        recalls.append(mean_score(found, found.found(1)))
        means.append(mean_score(found, found.map_at_r))
        work.advance(rung, 1 if rung in UNTRAINED else 0)  # of the others, the batches were counted
        if limit is not None and limit.seconds_left <= 0:
            break
    before = {"raw": "reading", "frozen": "features"}.get(rung)
    seconds = work.seconds(rung) + (0.0 if before is None else work.seconds(before))
    return Rung(
        name=rung,
        title=with_forms(title, forms) if forms else title,
        recall_at_1=tuple(recalls),
        map_at_r=tuple(means),
        seconds=seconds,
        forms=tuple(forms),
    )


def last_worthwhile_rung(rungs: Sequence[Rung]) -> str:
    """Return the last rung that is better by MAP@R than the best before it, by more than the chance of the splits.

    The mean difference is taken on the splits that both rungs have. For a layer or a last stage that is trained, it
    must be larger than the half-width of its 95% interval. A rung that trains nothing costs nothing, so that one
    standard error is enough. A closed form is what other classes have preferred to the features as they are, and
    follows them unless it is worse by one standard error that is corrected for the overlap. All weights must be better
    by such an error: as in the choice at the end of a training, which the ladder of few photos replaces, but on several
    splits.

    The others are those of random splits of these classes, and are not corrected for their overlap: for a few classes,
    a corrected interval is so wide that hardly any rung is ever chosen.
    """
    best = rungs[0]
    for rung in rungs[1:]:
        gains = differences(rung, best)
        mean, half = mean_and_half(gains)
        error = float(np.std(gains, ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else 0.0
        corrected = error * float(np.sqrt(1.0 + len(gains) * HELD_OUT_CLASSES / (1.0 - HELD_OUT_CLASSES)))
        if rung.name == "whitened" and best is rungs[rungs.index(rung) - 1]:
            needed = -corrected
        elif rung.name == "full":
            needed = corrected
        elif rung.name in UNTRAINED or len(gains) == 1:
            needed = error
        else:
            needed = half
        if mean > needed:
            best = rung
    return best.name


class KeptStage(NamedTuple):
    """The last stage of a trunk, and the items as activations before it."""

    network: LastStage
    items: Dataset


class Frozen(NamedTuple):
    """Items as features of the untrained trunk, and as activations before its last stage.

    The latter exist only for images, and a trunk whose last stage can be run alone. `weights` is a sentence on
    the origin of the trunk's weights.
    """

    features: Dataset
    stage: KeptStage | None
    weights: str


def _features_and_stage(items: Dataset, config: TrainConfig, start: Path | None, *, stage: bool = True) -> Frozen:
    """Return the features of the untrained trunk, with the activations before its last stage if `stage` is true."""
    shape = item_shape(items, config)
    embedder = untrained_network(config, shape, start)
    weights = weights_note(config, embedder)
    embedder.to(make_accelerator(config).device).eval()
    if items.kind != "image" or not stage:
        return Frozen(cached_features(embedder, items, **sizes_of(config)), None, weights)
    if len(shape) == 3:
        embedder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # which torch takes
    channels = getattr(embedder.trunk, "in_channels", shape[0])
    network = split_off(embedder.trunk, (channels, *shape[1:]), len(items))
    if network is None:
        return Frozen(frozen_features(items, config, start), None, weights)
    device = network.blank.device
    rows = encode(
        lambda images: network.before(embedder.scale(as_channels(images, embedder.trunk))),
        items,
        device=device,
        **sizes_of(config),
    )
    kept = with_rows(items, rows)
    features = with_rows(items, encode(network, kept, device=device))
    return Frozen(features, KeptStage(network, kept), weights)


def _trained_stage(
    stage: KeptStage,
    features: Dataset,
    held: Ints,
    config: TrainConfig,
    start: Path | None,
    watchers: Sequence[Watcher] = (),
) -> Floats:
    """Train a copy of the last stage, and a layer behind it, on classes that are not held out; embed the others."""
    settings = head_config(config).replace(lr=config.lr, steps=STAGE_STEPS, embedding_start="random")
    learned = ~np.isin(features.labels, held)
    train = stage.items.subset(learned)
    task = Task(train.name, train, None, test=train, gallery=None, protocol=GIVEN)
    with TemporaryDirectory(prefix="nearfar-") as path, Interrupts() as interrupts:
        loop = build(settings, start, given=task)
        # `build` creates the layer for activations; here the last stage comes before it
        embedder = Embedder(deepcopy(stage.network), settings.embedding_dim, freeze_bn=True)
        known = features.subset(learned)
        start_from_whitening(embedder, all_rows(known), known.labels)
        objective = loop.trainable.objective
        loop = replace(
            loop,
            trainable=Trainable(embedder, objective),
            averages=Averages(embedder, objective, settings.ema),
        )
        TrainerInMemory(loop, RunFolder(path), interrupts, watchers=watchers).run()
        with loop.averages.in_place():
            return _embedded_held(embedder, stage.items, held)


def _embedded_held(embedder: Embedder, items: Dataset, held: Ints, **sizes: Any) -> Floats:
    """Return embeddings (n, d) of all items, of which only those of the held-out classes are computed."""
    out = np.isin(items.labels, held)
    rows = embed(embedder, items.subset(out), **sizes)
    found = np.zeros((len(items), rows.shape[1]), np.float32)
    found[out] = rows
    return found


def head_config(config: TrainConfig) -> TrainConfig:
    """Return the settings that train a linear layer on features, which are rows, for a short time."""
    weights = {"network_weights": None, "pretrained": False, "preprocessing": None}
    known: dict[str, Any] = {name: value for name, value in weights.items() if name in TrainConfig.settings()}
    if config.starts_pretrained:  # the learning rate of a pretrained trunk is too low for a layer alone
        known["lr"] = recipe("photos/frozen")["lr"]
        known["embedding_start"] = recipe("photos/frozen")["embedding_start"]
    if "Distill(" in config.objective:  # the teacher takes images, not features
        known["objective"] = recipe("photos/frozen")["objective"]
    return config.replace(
        **known,
        trunk="identity",
        freeze_trunk=False,
        freeze_bn=False,
        freeze_epochs=None,
        last_stage=False,
        lora=None,
        lora_alpha=None,
        gradient_checkpointing=False,
        episodes="none",
        augment="",
        image_size=None,
        resize=None,
        symmetries="none",
        steps=HEAD_STEPS,
        eval_every=1_000_000,
        patience=None,
        metric="none",
        track=(),
    )


def _trained(
    config: TrainConfig,
    items: Dataset,
    held: Ints,
    start: Path | None,
    watchers: Sequence[Watcher] = (),
    features: Dataset | None = None,
) -> Floats:
    """Train on the classes that are not held out, and embed the others.

    The embedding layer starts from a whitening of the `features` of all items, if they are given, instead of computing
    them again.
    """
    learned = ~np.isin(items.labels, held)
    train = items.subset(learned)
    task = Task(items.name, train, None, test=train, gallery=None, protocol=GIVEN)
    known = None
    if features is not None and config.embedding_start == "whitening":
        known = features.subset(learned)
        config = config.replace(embedding_start="random")
    with TemporaryDirectory(prefix="nearfar-") as path, Interrupts() as interrupts:
        loop = build(config, start, given=task)
        if known is not None:
            start_from_whitening(loop.trainable.embedder, all_rows(known), known.labels)
        TrainerInMemory(loop, RunFolder(path), interrupts, watchers=watchers).run()
        with loop.averages.in_place():
            return _embedded_held(loop.trainable.embedder, items, held, **sizes_of(loop.config))


def config_for(rung: str, config: TrainConfig) -> TrainConfig:
    """Return the settings of a run that trains a rung of the ladder.

    "frozen" and "whitened" are written by `save_untrained`. A linear layer on items without a pretrained trunk is a
    network of its own. "raw", which no network gives, trains with the settings of the config.
    """
    if rung == "head" and not _starts_pretrained(config):
        return config.replace(trunk="identity")
    if rung in ("frozen", "whitened", "head"):
        return config.replace(freeze_trunk=True, freeze_epochs=None, augment="", episodes="none")
    return config.replace(last_stage=True) if rung == "last-stage" else config


def _starts_pretrained(config: TrainConfig) -> bool:
    """Return whether the trunk of a config starts from pretrained weights; "auto" depends on the data."""
    return (settle(config).config if config.trunk == "auto" else config).starts_pretrained


def write_ladder(found: Ladder, run: str | Path) -> None:
    """Write the table into the folder of a run, whose report shows it."""
    write_json(Path(run) / LADDER, found.to_dict())


def write_ladder_choice(found: Ladder, folder: RunFolder, name: str, title: str, then: str) -> None:
    """Write that a run keeps what the ladder has chosen, with the scores of all rungs.

    Parameters
    ----------
    name, title : str
        Of what is kept, as in its checkpoint; its closed form was fitted to all classes, and may be another one.
    then : str
        What follows in the sentence.
    """
    rows = [
        {
            "name": name if row.name == found.worth else row.name,
            "title": title if row.name == found.worth else row.title,
            "map_at_r": found.mean(row),
            "recall_at_1": found.mean(row, "recall_at_1"),
        }
        for row in found.rows
    ]
    sentences = (f"Kept: {title}, {found.scores}.", found.gain, then)
    folder.write_kept(name, title, " ".join(filter(None, sentences)), candidates=rows)
