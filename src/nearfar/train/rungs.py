"""What a pretrained network is worth step by step, on classes held out of the training classes: the ladder.

raw pixels -> features of the frozen trunk -> these with a closed-form metric -> a linear layer trained on them -> all
weights trained. Every step costs more than the one before; the table says which one is worth it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
from torch import nn

from ..data import Dataset, Task
from ..data.readers.in_memory import GIVEN
from ..deep.networks.embedder import Embedder
from ..deep.networks.weights import NETWORK, Trunk
from ..deep.networks.whiten import Whiten
from ..numerics.types import Ints
from .checkpoint import save_tensors, seed_random_state, undisturbed
from .config import TrainConfig, TrainError
from .devices import make_accelerator
from .features import Floats, cached_features, embed, sizes_of
from .interrupts import Interrupts
from .loading import with_best_weights
from .metric import MetricChoice, fitted_whitening, passed, with_and_without
from .run import Run, RunFolder, write_json
from .scoring import raw_items
from .setup import build, checked, make_embedder, seen_sample
from .task import item_shape, open_data, open_resolved, resolve, training_items, with_preprocessing
from .trainer import Trainer

STEPS = {
    "pixels": "raw pixels",
    "frozen": "frozen features",
    "whitened": "frozen features, whitened",
    "head": "linear layer on frozen features",
    "full": "all weights trained",
}
LADDER = "ladder.json"
HEAD_STEPS = 150  # batches: a linear layer on features that are there learns in seconds
MAX_ITEMS = 5000  # items at most: the table is there to decide by, within a minute
HELD_OUT_CLASSES = 1 / 3  # share of the classes that a split holds out


@dataclass(frozen=True)
class Rung:
    """One step of the ladder.

    Attributes
    ----------
    step : str
        "pixels", "frozen", "whitened", "head" or "full".
    recall_at_1, map_at_r : tuple of float
        On the held-out classes of every split.
    seconds : float
        What the step took beyond the one before: on average over the splits, and of the features once.
    """

    step: str
    recall_at_1: tuple[float, ...]
    map_at_r: tuple[float, ...]
    seconds: float

    @property
    def title(self) -> str:
        return STEPS[self.step]


@dataclass(frozen=True)
class Ladder:
    """The steps, how they were scored, and which of them is worth its time.

    Attributes
    ----------
    protocol : str
        The data, and how classes were held out.
    rows : tuple of Rung
        From the cheapest to the dearest step.
    worth : str
        The last step that was better than all before it by more than chance over the splits.
    """

    protocol: str
    rows: tuple[Rung, ...]
    worth: str

    @property
    def sentence(self) -> str:
        """Say in one sentence which step is worth it."""
        best = self._row(self.worth)
        beside = [row for row in self.rows if row.step != self.worth]
        scores = [f"{row.title} {np.mean(row.map_at_r):.3f}" for row in beside]
        name = best.title[0].upper() + best.title[1:]
        return f"{name}: MAP@R {np.mean(best.map_at_r):.3f} on classes held out ({', '.join(scores)})."

    def _row(self, step: str) -> Rung:
        return next(row for row in self.rows if row.step == step)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: `protocol`, `rows`, `worth` and `sentence`."""
        rows = [
            {
                **asdict(row),
                "title": row.title,
                **{
                    f"{name}_{part}": value
                    for name in ("recall_at_1", "map_at_r")
                    for part, value in zip(("mean", "half_width"), mean_and_half(getattr(row, name)), strict=True)
                },
            }
            for row in self.rows
        ]
        return {"protocol": self.protocol, "rows": rows, "worth": self.worth, "sentence": self.sentence}

    def __str__(self) -> str:
        """Return the table as text."""
        width = max(len(row.title) for row in self.rows)
        lines = [self.protocol, "", f"{'step':<{width}}  {'Recall@1':>15}  {'MAP@R':>15}  {'seconds':>8}"]
        for row in self.rows:
            recall, mean = (with_half(values) for values in (row.recall_at_1, row.map_at_r))
            lines.append(f"{row.title:<{width}}  {recall:>15}  {mean:>15}  {row.seconds:>8.1f}")
        return "\n".join([*lines, "", f"Worth it: {self.sentence}"])


def mean_and_half(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the half-width of its 95% interval over the splits; NaN for one split."""
    from ..evaluation.intervals import interval

    found = interval(values)
    return found.mean, found.half


def with_half(values: Sequence[float]) -> str:
    """Return the mean and the half-width as text.

    >>> with_half([0.5, 0.6, 0.7])
    '0.600 ± 0.248'
    """
    mean, half = mean_and_half(values)
    return f"{mean:.3f} ± {half:.3f}" if np.isfinite(half) else f"{mean:.3f}"


def ladder(
    config: TrainConfig,
    *,
    splits: int = 5,
    full: bool = False,
    start: Path | None = None,
    told: Callable[[str], None] | None = None,
) -> Ladder:
    """Score the steps from raw pixels to a trained network on classes held out of the training classes.

    The test classes are not looked at. Every split holds a third of the training classes out, and metric and layers
    learn from the others.

    Parameters
    ----------
    config : TrainConfig
        Data, trunk and its weights, objective: that of the run that is to be decided on.
    splits : int
        How often classes are held out, at least 1; the interval is over these.
    full : bool
        Also train all weights in every split, as the config says, which takes as long as so many runs.
    start : Path, optional
        The folder from which relative paths lead.
    told : callable, optional
        Called with the name of each step before it begins.

    Returns
    -------
    Ladder
        Its `rows`, `worth` and `sentence`; `str` gives a table, `to_dict` plain data.

    Raises
    ------
    TrainError
        The items are rows; fewer than six training classes; or a setting that does not fit.

    Examples
    --------
    >>> found = ladder(TrainConfig.of(data="photos/", trunk="timm:resnet18"))  # doctest: +SKIP
    >>> print(found)  # doctest: +SKIP
    """
    config = checked(config)
    if splits < 1:
        raise TrainError(f"ladder: splits must be at least 1, got {splits}")
    tell = told or (lambda title: None)
    with undisturbed():
        config = with_preprocessing(config)
        task = open_data(config.replace(validation=0.0, symmetries="none"), start)
        config = resolve(config, task)
        items = _items(task.train, config.seed)
        held = held_out_classes(items, splits, config.seed)
        return Ladder(_protocol(items, task.train, held), *_rows(items, held, config, start, full, tell))


def _items(train: Dataset, seed: int) -> Dataset:
    if train.kind != "image":
        raise TrainError(f"ladder: it is for images and a network that is trained already, got {train.kind}s")
    if len(train.classes) < 6:
        raise TrainError(f"ladder: needs at least 6 training classes, got {len(train.classes)}: a third is held out")
    return train if len(train) <= MAX_ITEMS else seen_sample(train, MAX_ITEMS, seed)


def held_out_classes(items: Dataset, splits: int, seed: int) -> list[Ints]:
    """Return the classes (numbers) that each split holds out: a third, drawn anew for every split."""
    n = len(items.classes)
    count = max(2, round(HELD_OUT_CLASSES * n))
    return [np.sort(np.random.default_rng((seed, split)).permutation(n)[:count]) for split in range(splits)]


def _protocol(items: Dataset, train: Dataset, held: Sequence[Ints]) -> str:
    part = "" if len(items) == len(train) else f", drawn from {len(train):,} of {len(train.classes):,}"
    what = f"{train.name}: {len(items):,} images of {len(items.classes):,} training classes{part}"
    times = "one split" if len(held) == 1 else f"{len(held)} splits"
    return f"{what}; {times}, each holds {len(held[0])} classes out; mean and 95% interval over splits."


def _rows(
    items: Dataset,
    held: Sequence[Ints],
    config: TrainConfig,
    start: Path | None,
    full: bool,
    tell: Callable[[str], None],
) -> tuple[tuple[Rung, ...], str]:
    """Return the steps, and the name of the one that is worth it."""
    rungs = []
    tell(STEPS["pixels"])
    clock = time.perf_counter()
    pixels = raw_items(items, nn.Identity())
    rungs.append(_rung("pixels", [(pixels, classes) for classes in held], items, clock))

    tell(STEPS["frozen"])
    clock = time.perf_counter()
    features = frozen_features(items, config, start)
    rows = np.asarray(features.array)
    rungs.append(_rung("frozen", [(rows, classes) for classes in held], items, clock))

    tell(STEPS["whitened"])
    clock = time.perf_counter()
    found = []
    for classes in held:
        whiten = Whiten(rows.shape[1])
        learned = ~np.isin(items.labels, classes)
        whiten.learn(rows[learned], items.labels[learned])
        found.append((passed(whiten, rows), classes))
    rungs.append(_rung("whitened", found, items, clock, len(held)))

    tell(STEPS["head"])
    clock = time.perf_counter()
    head = head_config(config)
    found = [(_trained(head, features, classes, start), classes) for classes in held]
    rungs.append(_rung("head", found, items, clock, len(held)))

    if full:
        tell(STEPS["full"])
        clock = time.perf_counter()
        whole = config.replace(patience=None, validation=0.0, tensorboard=False, metric="none")
        found = [(_trained(whole, items, classes, start), classes) for classes in held]
        rungs.append(_rung("full", found, items, clock, len(held)))
    return tuple(rungs), worth_it(rungs)


def _rung(step: str, embedded: Sequence[tuple[Floats, Ints]], items: Dataset, clock: float, times: int = 1) -> Rung:
    """Score embeddings of all items on the classes that each split holds out; `clock` is when the step began."""
    from ..evaluation import evaluate

    seconds = (time.perf_counter() - clock) / times
    recalls = []
    means = []
    for rows, classes in embedded:
        out = np.isin(items.labels, classes)
        groups = None if items.groups is None else items.groups[out]
        scores = evaluate(rows[out], items.labels[out], groups=groups, ks=(1,), clustering=False)
        recalls.append(float(scores.recall_at[1]))
        means.append(float(scores.map_at_r))
    return Rung(step, tuple(recalls), tuple(means), seconds)


def worth_it(rungs: Sequence[Rung]) -> str:
    """Return the last step that is better by MAP@R than the best before it, by more than chance over the splits.

    The difference is taken split by split, and must be larger than the half-width of its 95% interval.
    """
    best = rungs[0]
    for rung in rungs[1:]:
        mean, half = mean_and_half(np.subtract(rung.map_at_r, best.map_at_r).tolist())
        if mean > (half if np.isfinite(half) else 0.0):
            best = rung
    return best.step


def frozen_features(items: Dataset, config: TrainConfig, start: Path | None) -> Dataset:
    """Return the items as the features that the trunk gives them before any training, from the cache where they are."""
    embedder = _untrained(config, item_shape(items, config), start)
    embedder.to(make_accelerator(config).device).eval()
    return cached_features(embedder, items, **sizes_of(config))


def _untrained(config: TrainConfig, shape: tuple[int, ...], start: Path | None) -> Embedder:
    seed_random_state(config.seed)
    return make_embedder(
        config.replace(freeze_trunk=True, freeze_epochs=None, augment="", episodes="none"), shape, start
    )


def head_config(config: TrainConfig) -> TrainConfig:
    """Return the settings that train a linear layer on features, which are rows, for a short time."""
    weights = {"trunk_weights": None, "network_weights": None, "pretrained": False, "preprocessing": None}
    known = {name: value for name, value in weights.items() if name in TrainConfig.settings()}
    return config.replace(
        **known,
        trunk="identity",
        freeze_trunk=False,
        freeze_bn=False,
        freeze_epochs=None,
        episodes="none",
        augment="",
        image_size=None,
        resize=None,
        symmetries="none",
        steps=HEAD_STEPS,
        eval_every=1_000_000,
        patience=None,
        metric="none",
        tensorboard=False,
    )


def _trained(config: TrainConfig, items: Dataset, held: Ints, start: Path | None) -> Floats:
    """Train on the classes that are not held out, and embed all items."""
    train = items.subset(~np.isin(items.labels, held))
    task = Task(items.name, train, None, test=train, gallery=None, protocol=GIVEN)
    with TemporaryDirectory(prefix="nearfar-") as path, Interrupts() as interrupts:
        parts = build(config, start, given=task)
        TrainerInMemory(parts, RunFolder(path), interrupts).run()
        with parts.averages.in_place():
            return embed(parts.step.embedder, items, **sizes_of(parts.config))


class TrainerInMemory(Trainer):
    """A training whose network is used at once: it scores nothing and writes no checkpoint."""

    def _finish_epoch(self) -> None:
        self._check_weights()
        self.position.epoch += 1
        self.position.batch = 0
        self.position.sums = {}

    def _checkpoint(self) -> None:
        """Write nothing."""


def config_for(step: str, config: TrainConfig) -> TrainConfig:
    """Return the settings of a run that goes on with a step of the ladder.

    "frozen" and "whitened" are written by `save_frozen`; "pixels", which no network gives, trains as the config says.
    """
    if step in ("frozen", "whitened", "head"):
        metric = {"frozen": "none", "whitened": "whitening"}.get(step, config.metric)
        return config.replace(freeze_trunk=True, freeze_epochs=None, augment="", episodes="none", metric=metric)
    return config


def save_frozen(config: TrainConfig, out: str | Path) -> Run:
    """Write a run whose network is the trunk as it is, with the metric of the config behind it; nothing is trained.

    Parameters
    ----------
    config : TrainConfig
        As `config_for` returns it for "frozen" or "whitened".
    out : str or Path
        The folder of the run, new or empty.

    Raises
    ------
    TrainError
        If something is at that place.
    """
    folder = RunFolder(out)
    folder.create()
    try:
        with undisturbed():
            run = _write_frozen(config, folder)
    except BaseException:
        folder.discard()
        folder.remove_if_empty()
        raise
    return run


def _write_frozen(config: TrainConfig, folder: RunFolder) -> Run:
    config = with_preprocessing(config)
    task, config = open_resolved(config)
    trunk = cast(Trunk, _untrained(config, item_shape(task.train, config), None).trunk)
    width = int(trunk.num_features)
    parts = build(config.replace(embedding_dim=width, epochs=1, steps=None), given=task)
    embedder = parts.step.embedder
    assert isinstance(embedder.layer, nn.Linear)
    nn.init.eye_(embedder.layer.weight)  # embeddings are the features
    nn.init.zeros_(embedder.layer.bias)
    about = {"step": 0, "epoch": 0, "best": None, "config": parts.config.digest, **parts.about}
    if parts.config.metric == "whitening":
        whiten = fitted_whitening(embedder, parts.train, parts.config)
        about["metric"] = MetricChoice(True, *with_and_without(embedder, whiten, parts))._asdict()
        embedder.metric = whiten.to(parts.accelerator.device)
    tensors = {NETWORK + name: value for name, value in embedder.state_dict().items()}
    save_tensors(folder.best, tensors, about)
    save_tensors(folder.last, tensors, about)
    training_items(parts.config, parts.task, folder.start).write(folder.training_items)
    folder.describe(parts.config, str(parts.accelerator.device), weights=parts.weights)
    return Run(
        folder=folder.path,
        config=parts.config,
        epoch=0,
        step=0,
        best_epoch=0,
        best=None,
        task=task,
        embedder=with_best_weights(embedder.to(parts.accelerator.device), folder, parts.about["shape"]),
    )


def write_ladder(found: Ladder, run: str | Path) -> None:
    """Write the table into the folder of a run, whose report shows it."""
    write_json(Path(run) / LADDER, found.to_dict())
