"""The plan of a training that ends in time: its number of batches and its image size, after some timed batches.

Of the minutes that are left, the start of the run and the scoring at its end take their part. What remains is for
batches, and for an evaluation after every few epochs. Images are as large as the trunk wants them if half of the usual
number of passes over the items fits in, and smaller otherwise. Then the features before the training are still those of
large images, if there is time for these: they are computed first, because the training has to be better than them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, cast

import numpy as np
from torch import nn

from ...data import Dataset, Task
from ...data.checks.training_items import marks_of
from ...deep import distributed
from ...deep.networks.embedder import Embedder
from ..checkpoint import preserve_random_state
from ..config import TrainConfig, TrainError
from ..features import embed, sizes_of
from ..interrupts import Interrupts
from ..mirroring import MOST_IMAGES, mirrors
from ..run import RunFolder
from ..rungs.choice import can_compare
from ..rungs.closed_forms import CHOOSING_SPLITS, MAX_ROWS, MAX_WIDTH, OF_FEATURES
from ..rungs.untrained import UntrainedModel
from ..scale.devices import make_accelerator
from ..settle import Plan, of_other_items, settle
from ..setup import build_loop
from ..start import START_ITEMS
from ..trainer import TrainerInMemory, length_again
from ..training_data import seen_sample
from ..watchers import Watcher
from .duration import duration, items_after
from .forecast import EnoughTimed
from .time_limit import TimeLimit, TimePlan, TooFewMinutes

TRIAL_ITEMS = 512  # number of items, or eight batches if these are more, for the batches that are timed
ENOUGH_TIMED = 50
MOST_MEASURING = 0.1  # share of the time above which batches, or a smaller image size, are not timed, but computed
FORWARDS_OF_BATCH = 3.0  # forward passes that take as long as one forward and one backward pass
CHECK_SHARE = 0.6  # most time of features of large images, where the training sees smaller ones
UNTRAINED_SHARE = 0.8  # the same, where nothing is trained
TIMED_SHARE = 0.03  # share of the time that is left, for the timed batches
EMBEDDED_ITEMS = 64  # number of items that are embedded for their time
FIRST_ITEMS = 8  # the same, which are embedded first
ENOUGH_PASSES = 0.5  # share of the usual passes for which larger images, or a second training, are not given up
SIDES = (1, 6 / 7, 5 / 7, 4 / 7, 3 / 7)  # of images: 224, 192, 160, 128 and 96 pixels for most trunks
SMALLEST_SIDE = 96  # pixels
EVALUATION_SHARE = 0.25  # most time that evaluations take, relative to that of the batches
FEWEST_STEPS = 10  # number of batches below which a training makes no sense
RESERVE = 0.1  # share of the time that is left, because the machine may become slower
SECONDS_AT_LEAST = 2.0  # reserve for imports, files and tables
SECONDS_OF_PRODUCT = 5e-11  # of a multiplication in a search or in a closed form
BYTES_PER_SECOND = 2e8  # of checkpoints


class Speed(NamedTuple):
    """What a training takes on this machine, in seconds.

    Attributes
    ----------
    batch : float
        A batch, forward and backward.
    item : float
        An item that is read and embedded.
    mark : float
        The fingerprint of an item.
    start : float
        Building the network and the batches, without what depends on the number of items.
    checkpoint : float
        Writing a checkpoint.
    features : int
        Number of features of the trunk, not a time: closed forms of them are chosen at the end.
    """

    batch: float
    item: float
    mark: float
    start: float
    checkpoint: float
    features: int = 0


class Amounts(NamedTuple):
    """Numbers of items of the parts of a task, of batches in a pass over the training items, and the kind of items."""

    train: int
    unseen: int
    test: int
    batches: int
    kind: str

    @classmethod
    def of(cls, task: Task, batches: int) -> Amounts:
        unseen = 0 if task.validation is None else len(task.validation)
        test = len(task.test) + (0 if task.gallery is None else len(task.gallery))
        return cls(len(task.train), unseen, test, batches, task.train.kind)

    @property
    def items(self) -> int:
        return self.train + self.unseen + self.test


class Measured(NamedTuple):
    """What a plan follows from.

    Attributes
    ----------
    settled : TrainConfig
        Settings with all that depends on the data.
    speed : Speed
        What the training takes.
    amounts : Amounts
        Of how much it is.
    opening : float
        Seconds of settling, which is done again for the new settings; data are then read already, so it takes less.
    again : float
        Length of another training on all training classes, relative to this one. It is planned if there is time for
        half of the usual batches and for it.
    """

    settled: TrainConfig
    speed: Speed
    amounts: Amounts
    opening: float
    again: float = 0.0


def plan_training(config: TrainConfig, limit: TimeLimit, start: Path | None = None) -> TimePlan:
    """Choose the number of batches and the image size of a training so that it ends in time, with its scores.

    Parameters
    ----------
    config : TrainConfig
        Settings. Their `epochs` or `steps` are not exceeded. An `image_size` that was given stays.
    limit : TimeLimit
        The time for everything from now on.
    start : Path, optional
        Folder to which relative paths refer.

    Raises
    ------
    TrainError
        If not even a few batches and the scores fit into the time; the message says which time would do. As
        `train` does, if a setting is not valid.
    """
    if distributed.world() > 1:
        raise TrainError("minutes: works on one device, because the processes of several would plan differently")
    before = limit.seconds_left
    plan = settle(config, start)
    task = plan.task
    settled = plan.config
    opening = before - limit.seconds_left
    sides = _sides(config, settled, task)
    left = limit.seconds_left
    speed, batches = measure(plan, limit)
    measuring = left - limit.seconds_left
    amounts = Amounts.of(task, batches)
    again = length_again(settled, task, _usual_steps(settled, amounts))
    side = _largest_side(sides, settled, speed, amounts, limit.seconds_left - opening)
    if side == sides[0]:
        return planned(config, Measured(settled, speed, amounts, opening, again), limit)
    quick = measuring <= MOST_MEASURING * left
    sizes: dict[str, int | None] = {}
    if _has_time_for_features(settled, task, speed, amounts, limit.seconds_left - opening):
        sizes = {"image_size": settled.image_size, "resize": settled.resize}
        model = UntrainedModel.frozen(task.train, settled, start)
        model.embedder.to(make_accelerator(settled).device)
        for part in task.parts.values():
            model.features(part)  # which the cache keeps for the choice and for the scores
    small = _with_side(config, settled, side)
    large = speed
    speed = _at_side(large, side, sides[0])
    if quick:
        speed, _ = measure(plan, limit, **_sizes_at(settled, side))
    try:
        found = planned(small, Measured(settled, speed, amounts, opening, again), limit)
    except TooFewMinutes as error:
        if error.untrained is None and not sizes:
            raise
        left = UNTRAINED_SHARE * limit.seconds_left
        fitting = (other for other in sides if seconds_untrained(_at_side(large, other, sides[0]), amounts) <= left)
        largest = sides[0] if sizes else next(fitting, side)
        raise TooFewMinutes(str(error), untrained=_with_side(config, settled, largest)) from None
    return replace(found, frozen_sizes=sizes)


def plan_untrained(config: TrainConfig, limit: TimeLimit, start: Path | None = None) -> TrainConfig:
    """Return the settings with which a model that is not trained is written and scored in time.

    A few items are read and embedded first. Images are smaller if this makes the features fit into the time.

    Parameters
    ----------
    config : TrainConfig
        Settings. An `image_size` that was given stays.
    limit : TimeLimit
        The time for everything from now on.
    start : Path, optional
        Folder to which relative paths refer.

    Raises
    ------
    TooFewMinutes
        If they do not fit; the message says which time would do.
    """
    before = limit.seconds_left
    plan = settle(config, start)
    task = plan.task
    settled = plan.config
    with preserve_random_state():
        if settled.starts_pretrained:
            model = UntrainedModel.frozen(task.train, settled, start)
        else:
            model = UntrainedModel.raw(task.train, settled, nn.Identity())
        model.embedder.to(make_accelerator(settled).device)
    opening = before - limit.seconds_left  # which is done again, from memory
    some = task.train.subset(np.arange(min(len(task.train), EMBEDDED_ITEMS)))
    speed = Speed(
        batch=0.0,
        item=_seconds_of_item(model.embedder, task.train, model.config, limit),
        mark=_seconds(limit, lambda: marks_of(some)) / len(some),
        start=0.0,
        checkpoint=0.0,
        features=model.embedder.embedding_dim,
    )
    amounts = Amounts.of(task, batches=0)
    sides = _sides(config, settled, task) if settled.starts_pretrained else (0,)
    free = UNTRAINED_SHARE * limit.seconds_left - opening
    for side in sides:
        needed = seconds_untrained(_at_side(speed, side, sides[0]), amounts)
        if needed <= free:
            return _with_side(config, settled, side)
    needed = (60 * limit.minutes - limit.seconds_left) + (opening + needed) / UNTRAINED_SHARE
    items = f"{amounts.items:,} {amounts.kind}s"
    raise TooFewMinutes(
        f"minutes: {limit.minutes:g} are too few for {items}: reading them and the scores take about "
        f"{duration(needed)}; give at least {ceil(needed / 60)}, or fewer {amounts.kind}s",
        untrained=None,
    )


def _has_time_for_features(config: TrainConfig, task: Task, speed: Speed, amounts: Amounts, left: float) -> bool:
    """Return whether the features of large images are computed, although the training will see smaller ones."""
    if not (config.starts_pretrained and config.keep == "best" and can_compare(task)):
        return False
    return seconds_untrained(speed, amounts) <= CHECK_SHARE * left


def _largest_side(sides: Sequence[int], config: TrainConfig, speed: Speed, amounts: Amounts, left: float) -> int:
    """Return the largest side with which half of the usual passes fit into the seconds that are left, or the smallest.

    There are at least `FEWEST_STEPS` batches. The network takes a time proportional to the number of pixels, of which
    decoding is taken for a small part.
    """
    fewest = min(FEWEST_STEPS, config.steps or FEWEST_STEPS)
    needed = max(fewest, ENOUGH_PASSES * _usual_steps(config, amounts))
    for side in sides:
        if steps_in_time(config, _at_side(speed, side, sides[0]), amounts, left) >= needed:
            return side
    return sides[-1]


def _at_side(speed: Speed, side: int, measured: int) -> Speed:
    """Return the speed with images of another side than those that were measured."""
    share = (side / measured) ** 2 if side else 1.0
    return speed._replace(batch=share * speed.batch, item=share * speed.item)


def planned(given: TrainConfig, measured: Measured, limit: TimeLimit) -> TimePlan:
    """Return the plan for settings as they were given, with the image size, and a speed that was measured.

    Raises
    ------
    TrainError
        If not even a few batches and the scores fit into the time.
    """
    settled, speed, amounts, opening, again = measured
    kind = amounts.kind
    usual = _usual_steps(settled, amounts)
    left = limit.seconds_left
    fitting = steps_in_time(settled, speed, amounts, left - opening)
    if fitting < min(FEWEST_STEPS, usual):
        spent = 60 * limit.minutes - left
        fixed = opening + _fixed_seconds(settled, speed, amounts)
        needed = spent + (fixed + _seconds_of(FEWEST_STEPS, settled, speed, amounts)) / (1 - RESERVE)
        items = f"{amounts.items:,} {kind}s"
        seconds = opening + speed.start + seconds_untrained(speed, amounts)
        has_inputs = settled.starts_pretrained or not settled.trunk.startswith("transformers:")
        fits = settled.keep == "best" and has_inputs and seconds < left
        advice = "; rung=whitened trains nothing" if settled.starts_pretrained else ""
        raise TooFewMinutes(
            f"minutes: {limit.minutes:g} are too few for {items}: reading them, {FEWEST_STEPS} batches and the scores "
            f"take about {duration(needed)}; give at least {ceil(needed / 60)}, or fewer {kind}s{advice}",
            untrained=given if fits else None,
        )
    with_another = int(fitting / (1 + again))
    if with_another < ENOUGH_PASSES * usual:
        again = 0.0
    else:
        fitting = with_another
    steps = min(fitting, usual)
    config = given.replace(**_schedule(settled, steps, usual, speed, amounts))
    length = f"{steps:,} batches, {steps / amounts.batches:.1f} passes over the {kind}s"
    if config.image_size not in (None, settled.image_size):
        length += f" at {config.image_size} pixels"
    after = seconds_after(settled, speed, amounts)
    if again:
        length += ", and as many of all training classes"
    taken = duration((1 + again) * _seconds_of(steps, settled, speed, amounts))
    sentence = f"Planned for {limit}: {length}, in about {taken}; about {duration(after)} are kept for the scores."
    return TimePlan(config, after + _evaluation(speed, amounts), sentence, limit, batch=speed.batch)


def steps_in_time(config: TrainConfig, speed: Speed, amounts: Amounts, left: float) -> int:
    """Return how many batches fit into the seconds that are left, with evaluations, the start and the scores."""
    free = (1 - RESERVE) * left - _fixed_seconds(config, speed, amounts)
    per_batch = _seconds_of(1, config, speed, amounts)
    return max(0, int(free / per_batch))


def seconds_after(config: TrainConfig, speed: Speed, amounts: Amounts) -> float:
    """Return the seconds of what follows after the last evaluation: comparing with what is cheaper, and scoring."""
    embedded = items_after(config, amounts.train, amounts.unseen, amounts.test)
    d = config.embedding_dim
    search = SECONDS_OF_PRODUCT * 2 * d * (amounts.test**2 + 6 * amounts.unseen**2)
    return SECONDS_AT_LEAST + speed.item * embedded + search + _seconds_of_forms(speed.features, amounts.train)


def seconds_untrained(speed: Speed, amounts: Amounts) -> float:
    """Return the seconds of the features of all items, before a training, and of their closed form and scores."""
    return (
        SECONDS_AT_LEAST + amounts.items * (speed.item + speed.mark) + _seconds_of_forms(speed.features, amounts.train)
    )


def _seconds_of_forms(d: int, n: int) -> float:
    """Return the seconds in which closed forms are chosen for n features (n, d) and one is fitted.

    Each of the splits fits three decompositions to half of the rows, and searches the other half with all forms.
    """
    if d > MAX_WIDTH:
        return 0.0
    half = min(n, MAX_ROWS) / 2
    fit = half * d**2 + 10 * min(d, half) ** 3
    return SECONDS_OF_PRODUCT * ((CHOOSING_SPLITS * 3 + 1) * fit + CHOOSING_SPLITS * len(OF_FEATURES) * half**2 * d)


def measure(plan: Plan, limit: TimeLimit, **sizes: int | None) -> tuple[Speed, int]:
    """Time a few batches of a temporary run on some of the training items, perhaps at other sizes of images.

    Returns
    -------
    Speed
        What the training takes.
    int
        Number of batches of a pass over all training items.
    """
    config = plan.config
    task = plan.task
    size = max(TRIAL_ITEMS, 8 * config.batch_size)
    train = task.train
    if train.kind == "image" and len(train) > size:
        train = seen_sample(train, size, config.seed)
    trial = Task(task.name, train, None, test=train, gallery=None, protocol=task.protocol)
    settings: dict[str, Any] = {"patience": None, "freeze_epochs": None, "track": (), "steps": None}
    settings |= {"epochs": 1_000_000, "embedding_start": "random", **sizes}
    settings["augment"] = config.augment  # as given: whether to mirror is decided in the training
    if config.metric == "auto":
        settings["metric"] = "none"
    with preserve_random_state(), TemporaryDirectory(prefix="nearfar-") as path, Interrupts() as interrupts:
        times = BatchTimes(limit.clock, TIMED_SHARE * limit.seconds_left, whole=len(train) == len(task.train))
        before = limit.clock()
        loop = build_loop(of_other_items(plan, trial, **settings))
        trainer = TrainerInMemory(loop, RunFolder(path), interrupts, watchers=[times])
        built = limit.clock() - before
        parameters = sum(parameter.numel() for parameter in loop.trainable.parameters())
        embedder = loop.trainable.embedder
        item = _seconds_of_item(embedder, train, loop.config, limit)
        some = train.subset(np.arange(min(len(train), EMBEDDED_ITEMS)))
        mark = _seconds(limit, lambda: marks_of(some)) / len(some)
        batch = FORWARDS_OF_BATCH * item * config.batch_size
        if config.freeze_trunk or 2 * batch <= MOST_MEASURING * limit.seconds_left:
            with suppress(EnoughTimed):
                trainer.run()
            batch = times.seconds
    towers = 1 if config.text_trunk is None else 2
    speed = Speed(
        batch=batch,
        item=towers * item,
        mark=mark,
        start=built / 2,  # the training finds modules and weights in memory
        checkpoint=4 * 4 * parameters / BYTES_PER_SECOND,  # weights, twice, and two averages of the optimizer
        features=int(cast(int, embedder.trunk.num_features)) if loop.config.starts_pretrained else 0,
    )
    return speed, max(1, round(len(loop.data.sampler) * len(task.train) / len(train)))


class BatchTimes(Watcher):
    """Times batches, without the first, and ends the run when there are enough.

    Parameters
    ----------
    clock : callable
        Function that returns the time in seconds.
    enough : float
        Seconds of timed batches that are enough.
    whole : bool
        Whether epochs are as long as in the training, so that the time between two of them counts.
    """

    def __init__(self, clock: Callable[[], float], enough: float, *, whole: bool) -> None:
        self.clock = clock
        self.enough = enough
        self.whole = whole
        self.timed = 0
        self.total = 0.0
        self._last: float | None = None

    @property
    def seconds(self) -> float:
        """Mean seconds of a batch."""
        return self.total / max(1, self.timed)

    def on_step(self, step: int, epoch: int, record: Mapping[str, Any] | None) -> None:
        now = self.clock()
        if self._last is not None:
            self.timed += 1
            self.total += now - self._last
        self._last = now
        if self.timed >= ENOUGH_TIMED or (self.timed > 0 and self.total >= self.enough):
            raise EnoughTimed

    def on_epoch(self, row: Mapping[str, Any]) -> None:
        if not self.whole:
            self._last = None


def _seconds(limit: TimeLimit, work: Callable[[], object]) -> float:
    before = limit.clock()
    work()
    return limit.clock() - before


def _seconds_of_item(embedder: Embedder, items: Dataset, config: TrainConfig, limit: TimeLimit) -> float:
    """Return the seconds of an item that is read and embedded: of few items where these are slow already."""

    def seconds(count: int) -> float:
        some = items.subset(np.arange(min(len(items), count)))
        return _seconds(limit, lambda: embed(embedder, some, layer="pooled", **sizes_of(config))) / len(some)

    seconds(FIRST_ITEMS)  # which wait for memory and threads
    found = seconds(FIRST_ITEMS)
    return found if EMBEDDED_ITEMS * found > TIMED_SHARE * limit.seconds_left else seconds(EMBEDDED_ITEMS)


def _usual_steps(config: TrainConfig, amounts: Amounts) -> int:
    return config.steps or config.epochs * amounts.batches


def _evaluation(speed: Speed, amounts: Amounts) -> float:
    """Return the seconds of an evaluation, of as many seen as unseen items, with its checkpoint."""
    unseen = amounts.unseen or min(amounts.train, 1000) / 2
    return 2 * unseen * speed.item + speed.checkpoint


def _eval_every(config: TrainConfig, speed: Speed, amounts: Amounts) -> int:
    """Return after how many epochs to evaluate, so that it takes a quarter of the time of the batches or less."""
    if "eval_every" in config.given:
        return config.eval_every
    epoch = max(speed.batch * amounts.batches, 1e-9)
    return max(1, ceil(_evaluation(speed, amounts) / (EVALUATION_SHARE * epoch)))


def _seconds_of(steps: int, config: TrainConfig, speed: Speed, amounts: Amounts) -> float:
    """Return the seconds of a number of batches, with their share of the evaluations and checkpoints."""
    epochs = steps / amounts.batches
    evaluations = epochs / _eval_every(config, speed, amounts)
    return max(steps * speed.batch + evaluations * _evaluation(speed, amounts) + epochs * speed.checkpoint, 1e-6)


def _fixed_seconds(config: TrainConfig, speed: Speed, amounts: Amounts) -> float:
    """Return the seconds of all but the batches: the start of the run, the last evaluation, and what follows."""
    if config.freeze_trunk:
        features = amounts.train + amounts.unseen
    elif config.embedding_start != "random":
        features = min(amounts.train, START_ITEMS)
    else:
        features = 0
    if config.starts_pretrained and mirrors(config):
        features += 2 * min(amounts.unseen or amounts.train, MOST_IMAGES)
    begins = speed.start + features * speed.item + (amounts.train + amounts.unseen) * speed.mark
    return begins + _evaluation(speed, amounts) + seconds_after(config, speed, amounts)


def _schedule(config: TrainConfig, steps: int, usual: int, speed: Speed, amounts: Amounts) -> dict[str, Any]:
    """Return the settings of the length, with a schedule that ends where the training does."""
    ratio = steps / usual
    found: dict[str, Any] = {"steps": steps, "eval_every": _eval_every(config, speed, amounts)}
    if config.warmup:
        found["warmup"] = config.warmup * min(1.0, ratio)
    if config.schedule == "step":
        found["lr_step"] = max(1, round(config.lr_step * ratio))
    if config.freeze_epochs is not None:
        found["freeze_epochs"] = int(config.freeze_epochs * min(1.0, ratio)) or None
    return found


def _sides(given: TrainConfig, settled: TrainConfig, task: Task) -> Sequence[int]:
    """Return the sides of images to choose from, largest first: a single one where it is given or cannot be changed."""
    side = settled.image_size
    if side is None:
        return (0,)
    record = settled.preprocessing
    fixed = record is not None and record.fixed_size
    if fixed or {"image_size", "resize"} & set(given.given) or task.train.kind != "image":
        return (side,)
    smaller = [32 * round(share * side / 32) for share in SIDES[1:]]
    return (side, *(other for other in smaller if SMALLEST_SIDE <= other < side))


def _with_side(config: TrainConfig, settled: TrainConfig, side: int) -> TrainConfig:
    """Return the given settings with a smaller image size."""
    return config if side in (0, settled.image_size) else config.replace(**_sizes_at(settled, side))


def _sizes_at(settled: TrainConfig, side: int) -> dict[str, int | None]:
    """Return the settings of a smaller image size, which is resized to in the same proportion."""
    assert settled.image_size is not None
    resize = None if settled.resize is None else max(side, round(settled.resize * side / settled.image_size))
    return {"image_size": side, "resize": resize}
