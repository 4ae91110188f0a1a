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
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from ...data import Dataset
from ...deep.networks.standardize import Standardize
from ...evaluation.protocol import mean_score
from ...numerics.types import Bools, Ints
from ...quoting import count_of
from ..checkpoint import preserve_random_state
from ..config import TrainConfig, TrainError
from ..features import Floats, all_rows
from ..network import weights_note
from ..scoring import raw_items
from ..setup import checked
from ..task import item_shape, items_of
from ..timing.expected_work import ExpectedWork
from ..timing.time_limit import TimeLimit
from ..training_data import seen_sample
from .class_scores import part_of, search
from .closed_forms import FORMS, MAX_WIDTH, OF_FEATURES, choose_form, fitted
from .frozen import Frozen, features_and_stage, untrained_network
from .rung_settings import (
    HEAD_STEPS,
    MAX_ITEMS,
    STAGE_STEPS,
    head_config,
    plan_of_ladder,
    trains_all_weights,
    tried_config,
    whole_config,
)
from .split_training import BatchCounter, stage_embeddings, trained_embeddings
from .table import HELD_OUT_CLASSES, RUNGS, SPLITS_OF_INTERVAL, UNTRAINED, Ladder, Rung, last_worthwhile_rung

FROZEN = "frozen features"
MADE_BEFORE = {"raw": "reading", "frozen": "features"}
"""Work that makes the embeddings of a rung, before its splits."""
UNTRAINED_SPLITS = 20  # number of splits for the rungs that train nothing, if `MAX_WORK` allows it
MAX_WORK = 1e12  # maximum number of multiplications for these splits: about half a minute on one processor core
TRAINED_SPLITS = 5  # of the classes, for the rungs that train
TIMED_ITEMS = 48  # number of items that are read and embedded first where the time is limited
FEATURES_SHARE = 0.4  # share of a limited time for reading all items and for their features
SECONDS_OF_READING = 0.003
"""Seconds of an image, as those below are expected before they are measured, for the progress."""
SECONDS_OF_FEATURES = 0.02
SECONDS_OF_SEARCH = 1e-8  # for each pair of items
SECONDS_OF_HEAD = 0.02  # for each batch
MULTIPLICATIONS_PER_SECOND = 2e10  # of the splits that train nothing, as they are expected for the progress
FORMS_SHARE = 0.3  # share of a limited time for these splits
FORM_SPLITS = 2  # of the classes that are not held out, into halves, which choose a closed form
FEWEST_CLASSES = 6  # minimum number of classes: two to hold out and four to train on


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
    with preserve_random_state():
        plan = plan_of_ladder(config, start)
        config = plan.config
        train = plan.task.train
        tries_all = trains_all_weights(plan)
        whole = None
        if full:
            whole = whole_config(config)
        elif tries_all:
            whole = tried_config(config, train)
        items = _items(train, config.seed)
        if limit is not None:
            items = _items_in_time(items, config, start, limit)
        held = held_out_classes(items, max(splits, untrained_splits), config.seed)
        if why := without_pairs(items, held[:splits], config):
            raise TrainError(f"ladder: {why}; train without the ladder (--ladder no), or on classes of more items")
        rungs = Rungs(
            items=items,
            config=config,
            whole=whole,
            held=held,
            splits=splits,
            start=start,
            work=ExpectedWork(on_progress),
            limit=limit,
            announce=on_rung or (lambda title: None),
        )
        inputs, frozen = rungs.inputs(with_stage=full or not tries_all)
        rows = rungs.scored(inputs, frozen)
        out = len(rungs.held[0])
        return Ladder(
            protocol=_protocol(items, train, rows, out),
            rows=rows,
            worth=last_worthwhile_rung(rows),
            weights=frozen.weights,
            ratio=out / (len(items.classes) - out),
        )


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
        features_and_stage(some, config, start)
    per_item = (before - limit.seconds_left) / len(some)
    count = int(FEATURES_SHARE * limit.seconds_left / max(per_item, 1e-6))
    return items if count >= len(items) else seen_sample(items, count, config.seed, fewest=FEWEST_CLASSES)


def held_out_classes(items: Dataset, splits: int, seed: int) -> list[Ints]:
    """Return the numbers of the classes that each split holds out: a random third for every split."""
    n = len(items.classes)
    count = max(2, round(HELD_OUT_CLASSES * n))
    return [np.sort(np.random.default_rng((seed, split)).permutation(n)[:count]) for split in range(splits)]


def without_pairs(items: Dataset, held: Sequence[Ints], config: TrainConfig) -> str:
    """Return why some split cannot be trained or scored, because classes have one item; "" if all can be."""
    several = items.class_counts > 1
    scored = np.array([np.count_nonzero(several[out]) for out in held])
    learned = np.count_nonzero(several) - scored
    if scored.all() and (learned.all() or config.augment):
        return ""
    count = f"only {np.count_nonzero(several)} of {len(several):,} training classes of {items.name} have"
    return f"{count} two {items_of(items)}, too few to learn from some and to score others in every split"


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


class RungToScore(NamedTuple):
    """A rung that can be scored: `embed_held` returns the embeddings (m, d) of the items that a mask (n,) holds out."""

    name: str
    title: str
    embed_held: Callable[[Bools], Floats]


class Inputs(NamedTuple):
    """Items as rows (n, d) that a closed form may follow, and the name and the title of their rung."""

    name: str
    title: str
    rows: Floats

    def embed_held(self, out: Bools) -> Floats:
        return self.rows[out]


@dataclass(frozen=True)
class Rungs:
    """The rungs of one ladder, and what they have in common.

    Attributes
    ----------
    items : Dataset
        Items of the training classes.
    config : TrainConfig
        Settled settings.
    whole : TrainConfig or None
        Settings that train all weights, if that is a rung.
    held : sequence of ndarray of int
        Numbers of the classes that each split holds out.
    splits : int
        Number of splits for the rungs that train: the first ones.
    start : Path or None
        Folder to which relative paths refer.
    work : ExpectedWork
        Work of all rungs, which each of them advances.
    limit : TimeLimit or None
        Time for all rungs.
    announce : callable
        Function that is called with the title of each rung before it starts.
    """

    items: Dataset
    config: TrainConfig
    whole: TrainConfig | None
    held: Sequence[Ints]
    splits: int
    start: Path | None
    work: ExpectedWork
    limit: TimeLimit | None
    announce: Callable[[str], None]

    def inputs(self, *, with_stage: bool) -> tuple[list[Inputs], Frozen]:
        """Return raw inputs, but no texts, and the features of a pretrained trunk; without one, these are the items."""
        items = self.items
        config = self.config
        n = len(items)
        self.work.expect("reading", n, SECONDS_OF_READING)
        self.work.expect("features", n if config.starts_pretrained else 0, SECONDS_OF_FEATURES)
        self._expect_splits(RUNGS, len(self.held), self.splits, form_seconds=SECONDS_OF_SEARCH * n**2)
        inputs: list[Inputs] = []
        if items.texts is None:
            title = items.title_of_raw
            self.announce(title)
            inputs.append(Inputs("raw", title, raw_items(items, self._scale())))
        self.work.advance("reading", n)
        if not config.starts_pretrained:
            network = untrained_network(config, item_shape(items, config), self.start)
            return inputs, Frozen(items, None, weights_note(config, network))
        self.announce(FROZEN)
        frozen = features_and_stage(items, config, self.start, stage=with_stage)
        inputs.append(Inputs("frozen", FROZEN, np.asarray(frozen.features.array)))
        self.work.advance("features", n)
        return inputs, frozen

    def scored(self, inputs: Sequence[Inputs], frozen: Frozen) -> tuple[Rung, ...]:
        """Score all rungs, but not one that trains if there is no time for one split of it."""
        base = inputs[-1]
        trained = self._trained(frozen, base.title)
        names = {rung.name for rung in inputs} | {rung.name for rung in trained}
        has_form = base.rows.shape[1] <= MAX_WIDTH
        if has_form:
            names.add("whitened")
        untrained_splits, trained_splits = self._splits_in_time(names, [rung.rows.shape[1] for rung in inputs])
        rungs = [self._score(rung, untrained_splits) for rung in inputs]
        if has_form:
            rungs.append(self._score_forms(base, untrained_splits))
        for rung in trained:
            if (
                self.limit is not None
                and self.work.seconds_left_of(rung.name) > trained_splits * self.limit.seconds_left
            ):
                continue
            self.announce(rung.title)
            rungs.append(self._score(rung, trained_splits))
        return tuple(rungs)

    def _scale(self) -> nn.Module:
        """Return the layer that standardizes rows, if the config asks for that; otherwise one that changes nothing."""
        if not self.config.standardize:
            return nn.Identity()
        scale = untrained_network(self.config, item_shape(self.items, self.config), self.start).scale
        assert isinstance(scale, Standardize)
        scale.learn(all_rows(self.items))
        return scale

    def _trained(self, frozen: Frozen, base: str) -> list[RungToScore]:
        """Return the rungs that train: a linear layer, but not on raw pixels, the last stage if there is one, all."""
        config = self.config
        features, stage, _ = frozen
        rungs: list[RungToScore] = []

        def how(rung: str) -> dict[str, Any]:
            return {"start": self.start, "watchers": [BatchCounter(self.work, rung)]}

        if config.starts_pretrained or self.items.kind == "row":
            embed_held = partial(trained_embeddings, head_config(config), features, **how("head"))
            rungs.append(RungToScore("head", f"linear layer on {base}", embed_held))
        if stage is not None:
            embed_held = partial(stage_embeddings, config, stage, features, **how("last-stage"))
            rungs.append(RungToScore("last-stage", "last stage trained", embed_held))
        if self.whole is not None:
            title = "all weights trained"
            if self.whole.steps:
                title += f" for {count_of(self.whole.steps, 'batch')}"
            known = features if config.starts_pretrained else None
            embed_held = partial(trained_embeddings, self.whole, self.items, features=known, **how("full"))
            rungs.append(RungToScore("full", title, embed_held))
        return rungs

    def _splits_in_time(self, names: Collection[str], widths: Sequence[int]) -> tuple[int, int]:
        """Return the numbers of splits for the rungs that train nothing, and for those that train.

        Parameters
        ----------
        names : collection of str
            Names of the rungs.
        widths : sequence of int
            Numbers of columns of the rows that are searched.
        """
        n = len(self.items)
        many = max(self.splits, affordable_splits(len(self.held), n, widths))
        few = self.splits
        form_seconds = work_of_split(n, widths) / MULTIPLICATIONS_PER_SECOND
        if self.limit is not None:
            many = min(many, max(1, int(FORMS_SHARE * self.limit.seconds_left / form_seconds)))
            self._expect_splits(names, many, few, form_seconds)
            free = self.limit.seconds_left - self.work.seconds_left_of(*UNTRAINED)
            needed = self.work.seconds_left_of("head", "last-stage", "full")
            few = min(few, many, max(1, int(few * free / max(needed, 1e-6))))
        self._expect_splits(names, many, few, form_seconds)
        return many, few

    def _expect_splits(self, names: Collection[str], many: int, few: int, form_seconds: float) -> None:
        """Say how long the splits of the named rungs are expected to take, and that there are none of the others.

        Parameters
        ----------
        many, few : int
            Numbers of splits of the rungs that train nothing, and of the others.
        form_seconds : float
            Seconds of a split with a closed form.
        """
        n = len(self.items)
        search_seconds = SECONDS_OF_SEARCH * n**2
        forward = self.work.seconds_per_unit("features")  # of an item in the trunk; with gradients, three times as long
        batch_size = self.config.batch_size
        expected: dict[str, tuple[float, float]] = {
            "raw": (many, search_seconds),
            "frozen": (many, search_seconds),
            "whitened": (many, form_seconds),
            "head": (few * HEAD_STEPS, SECONDS_OF_HEAD),
            "last-stage": (few * STAGE_STEPS, forward * batch_size),  # a half or less of the trunk
        }
        if self.whole is not None:
            learned = (1 - HELD_OUT_CLASSES) * n
            batches = self.whole.steps or self.whole.epochs * max(1, round(learned / batch_size))
            embedded = HELD_OUT_CLASSES * n / batches  # of the items of a split, at its end
            expected["full"] = (few * batches, (3 * batch_size + embedded) * forward)
        for rung, (units, seconds) in expected.items():
            self.work.expect(rung, units if rung in names else 0, seconds)

    def _score(self, rung: RungToScore | Inputs, splits: int) -> Rung:
        """Score a rung on the held-out classes of the first splits, or of fewer if the time is over."""
        items = self.items
        recalls = []
        means = []
        for classes in self.held[:splits]:
            out = np.isin(items.labels, classes)
            found, _ = search(
                rung.embed_held(out),
                items.labels[out],
                groups=part_of(items.groups, out),
                asks=part_of(items.asks, out),
            )
            recalls.append(mean_score(found, found.found(1)))
            means.append(mean_score(found, found.map_at_r))
            self.work.advance(rung.name, 1 if rung.name in UNTRAINED else 0)  # of the others, the batches were counted
            if self.limit is not None and self.limit.seconds_left <= 0:
                break
        seconds = self.work.seconds(rung.name)
        if rung.name in MADE_BEFORE:
            seconds += self.work.seconds(MADE_BEFORE[rung.name])
        return Rung(rung.name, rung.title, recall_at_1=tuple(recalls), map_at_r=tuple(means), seconds=seconds)

    def _score_forms(self, base: Inputs, splits: int) -> Rung:
        """Score closed forms on rows: in each split the one that the classes that are not held out choose."""
        self.announce(f"{base.title}, closed form")
        items = self.items
        # columns of raw rows may have different units, unless the config standardizes them already
        may_standardize = items.kind == "row" and not self.config.starts_pretrained and not self.config.standardize
        offered = tuple(FORMS if may_standardize else OF_FEATURES)
        forms: list[str] = []

        def embed_held(out: Bools) -> Floats:
            rows = base.rows[~out]
            labels = items.labels[~out]
            chosen = choose_form(
                rows,
                labels,
                groups=part_of(items.groups, ~out),
                asks=part_of(items.asks, ~out),
                seed=self.config.seed,
                splits=FORM_SPLITS,
                forms=offered,
            )
            forms.append(chosen.name)
            return fitted(chosen.name, rows, labels)(base.rows[out]).astype(np.float32)

        scored = self._score(RungToScore("whitened", base.title, embed_held), splits)
        return replace(scored, title=with_forms(base.title, forms), forms=tuple(forms))


def with_forms(base: str, forms: Sequence[str]) -> str:
    """Return the title of features with closed forms, the most frequent one first.

    >>> with_forms("raw rows", ["whitening", "none", "whitening"])
    'raw rows, whitened or as they are'
    """
    titles = [FORMS[name].title for name, _ in Counter(forms).most_common()]
    return f"{base}, {' or '.join(titles)}"
