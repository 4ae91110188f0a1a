"""From a config to everything that a run works with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from ..data import DataNotFoundError, Dataset, Task, open_task
from ..data.augment import Augment
from ..data.given import GIVEN
from ..data.loader import make_loader
from ..data.open import located
from ..data.symmetries import with_more_classes
from ..deep import processes
from ..deep.networks.embedder import Embedder, Features
from ..deep.networks.trunks import make_trunk
from ..deep.networks.weights import NETWORK, load_weights
from ..deep.objective import parse_objective
from ..deep.pair_networks import PairTerm
from ..deep.samplers.base import BatchSampler
from ..deep.samplers.resolve import make_sampler
from ..deep.terms import Sum, Term
from .averages import Averages
from .checkpoint import seed_random_state
from .config import TrainConfig, TrainError
from .devices import make_accelerator
from .episodic import Episodes
from .features import as_floats, cached_features, sizes_of
from .optim import make_optimizer, param_groups
from .positives import check_positives

SMALL = ("conv4", "mlp", "identity", "spd")  # trunks that the field feeds with 84x84 images of photographs
LOOKED_AT = 16


class Step(nn.Module):
    """Embedder and objective as one module, so that one wrapper averages the gradients of both over processes."""

    def __init__(
        self, embedder: Embedder, objective: Sum, *, from_features: bool = False, episodes: Episodes | None = None
    ) -> None:
        super().__init__()
        self.embedder, self.objective = embedder, objective
        self.from_features, self.episodes = from_features, episodes

    def forward(self, items: Tensor, labels: Tensor | None = None) -> Tensor | Features:
        """Return the value of the objective; without labels, the features."""
        if labels is not None and self.episodes is not None:
            return self.episodes.loss(self.embedder, self.objective, items, labels)
        features: Features = self.embedder.head(items) if self.from_features else self.embedder(items)
        if labels is None:
            return features
        for term in self.objective.terms:
            if isinstance(term, PairTerm):
                term.see(self.embedder, items)
        return self.objective(features.embedding, labels, pooled=features.pooled)


@dataclass
class Parts:
    """What a run works with.

    Attributes
    ----------
    config : resolved
    task : the data
    train, unseen, seen : what is learnt from; the validation classes; as many training items, both for evaluation
    step : embedder and objective
    augment, generator : the random changes, and what they draw from
    averages : of the weights, which take their place in evaluation
    model, optimizer : the step and its optimiser as `accelerator` has prepared them; None before `prepare`
    """

    config: TrainConfig
    accelerator: Accelerator
    task: Task
    train: Dataset
    unseen: Dataset | None
    seen: Dataset
    step: Step
    sampler: BatchSampler
    loader: DataLoader
    augment: Augment
    generator: torch.Generator
    averages: Averages
    model: nn.Module | None = None
    optimizer: Optimizer | None = None

    @property
    def steps(self) -> int:
        return self.config.steps or self.config.epochs * len(self.sampler)

    @property
    def about(self) -> dict[str, Any]:
        """What a reader of the weights needs to build the network again, and to know what it has learnt from."""
        train = self.task.train
        shape, n = item_shape(train, self.config), len(train.classes)
        return {"shape": shape, "num_classes": n, "columns": train.columns, "classes": class_mark(self.task)}

    def prepare(self) -> None:
        """Move to the device and wrap for several processes. Loads of weights come before this."""
        if self.train.kind == "image":
            self.step.to(memory_format=torch.channels_last)
        groups = param_groups(self.step.embedder, self.step.objective, self.config)
        if not groups:
            raise TrainError("nothing to train: the trunk is frozen and neither embedding nor objective has parameters")
        self.model, self.optimizer = self.accelerator.prepare(self.step, make_optimizer(groups, self.config))
        self.averages.begin()

    def batches(self, epoch: int, done: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Give the rest of an epoch of which `done` batches are done: items on the device, changed at random."""
        self.sampler.load_state_dict(self.sampler.state_dict() | {"epoch": epoch, "batch": done})
        device, first = self.accelerator.device, epoch * len(self.sampler) + done
        for step, (items, labels, _) in enumerate(self.loader, first):
            items, labels = as_floats(items.to(device, non_blocking=True)), labels.to(device, non_blocking=True)
            if self.augment.parts:
                # Seeded anew for every batch and process: a resumed run draws what an unbroken one does.
                seed = np.random.SeedSequence((self.config.seed, step, processes.rank())).generate_state(1)[0]
                self.generator.manual_seed(int(seed))
                items = self.augment(items)
            yield items, labels


def build(config: TrainConfig, start: Path | None = None, *, resumed: bool = False, given: Task | None = None) -> Parts:
    """Open the data, or take what is `given`, and make the network, the objective and the batches.

    A run that goes on has a folder in which it was started, `start`; with a checkpoint, `resumed`, also its weights.

    Raises
    ------
    TrainError, or the ValueError of the part that is wrong
        With one line that says what.
    """
    accelerator = make_accelerator(config)
    seed_random_state(config.seed)
    task = given or open_data(config, start)
    asked, config = config, resolve(config, task)
    if config.symmetries != "none" and config.image_size != asked.image_size:
        task = open_data(config, start)  # with images turned at that size, as a resumed run reads them
    bare = config.replace(trunk_weights=None, network_weights=None) if resumed and not config.freeze_trunk else config
    step = make_step(bare, item_shape(task.train, config), len(task.train.classes), start)
    check_positives(task.train, step.objective, config)
    if accelerator.num_processes > 1 and accelerator.device.type == "cuda" and not config.freeze_bn:
        step = nn.SyncBatchNorm.convert_sync_batchnorm(step)
    train, unseen, seen = _sets(task, step.embedder, config, accelerator)
    if config.patience is not None and unseen is None:
        raise TrainError("config: patience looks at validation classes, and there are none")
    sampler = _sampler(config, train)
    config = config if config.steps is None else config.replace(epochs=ceil(config.steps / len(sampler)))
    sizes: dict[str, Any] = {"image_size": config.resize or config.image_size} if train.kind == "image" else {}
    on_gpu, generator = accelerator.device.type == "cuda", torch.Generator()
    loader = make_loader(
        train, batch_sampler=sampler, workers=config.workers, pin_memory=on_gpu, seed=config.seed, **sizes
    )
    augment = Augment.parse(config.augment, generator).train()
    averages = Averages(step.embedder, step.objective, config.ema)
    return Parts(config, accelerator, task, train, unseen, seen, step, sampler, loader, augment, generator, averages)


def _sampler(config: TrainConfig, train: Dataset) -> BatchSampler:
    try:
        return make_sampler(config.sampler, train.labels, config.batch_size, config.seed)
    except ValueError as error:
        raise TrainError(str(error)) from error


def open_data(config: TrainConfig, start: Path | None = None) -> Task:
    """Open the task of a config; relative paths that lead to nothing from here begin in `start`."""
    if config.data == GIVEN:
        raise TrainError("the network was fitted on items given in Python, which are not kept; name the data to score")
    try:
        task = open_task(
            located(config.data, start),
            test=None if config.test is None else located(config.test, start),
            test_classes=config.test_classes,
            validation=config.validation,
            seed=config.seed,
            image_size=config.resize or config.image_size,
            skip_bad=config.skip_bad,
        )
    except DataNotFoundError as error:
        nor = f"; nor is it in {start}, where the run was started" if start else ""
        raise DataNotFoundError(f"{error}{nor}") from None
    return task if config.symmetries == "none" else with_more_classes(task, config.symmetries)


def class_mark(task: Task) -> str:
    """Return what tells the training classes of a task from others."""
    return sha256("\0".join(task.train.classes).encode(errors="surrogateescape")).hexdigest()[:16]


def resolve(config: TrainConfig, task: Task) -> TrainConfig:
    """Fill in what depends on the data.

    Raises
    ------
    TrainError
        If what is trained on and what is tested are not both images, or both rows of one length.
    """
    parts = [part for part in (task.train, task.validation, task.test, task.gallery) if part is not None]
    _check_alike(parts)
    if config.trunk == "auto":
        config = config.replace(trunk="mlp" if task.train.kind == "row" else "conv4")
    if config.image_size is None and config.resize is None and task.train.kind == "image":
        of_train, *others = [sizes_in(part) for part in parts]
        small, (height, width) = config.trunk.startswith(SMALL), next(iter(of_train))
        tiny = config.trunk.startswith("conv4") and min(height, width) < 16  # it halves the size four times
        if len(of_train) == 1 and all(sizes == of_train for sizes in others):
            return config.replace(image_size=28) if tiny else config
        size, resize = (84, None) if small else (224, 256)
        if len(of_train) == 1 and height == width:
            size, resize = 28 if tiny else height, None  # only evaluated images differ: they are seen at that size too
        config = config.replace(image_size=size, resize=resize)
    return config


def _check_alike(parts: list[Dataset]) -> None:
    """Refuse at the start what could only fail when the run is scored."""
    kinds = ["an image" if part.kind == "image" else f"a row of {part.read(0).size} numbers" for part in parts]
    for part, kind in zip(parts, kinds, strict=True):
        if kind != kinds[0]:
            raise TrainError(f"{part.name}: an item is {kind}, in training it is {kinds[0]}")


def sizes_in(dataset: Dataset) -> set[tuple[int, ...]]:
    """Return the heights and widths of some of the images, evenly chosen."""
    if dataset.array is not None:
        return {dataset.array.shape[1:3]}
    chosen = np.unique(np.linspace(0, len(dataset) - 1, LOOKED_AT).astype(int))
    return {dataset.read(int(i)).shape[:2] for i in chosen}


def item_shape(dataset: Dataset, config: TrainConfig) -> tuple[int, ...]:
    """Return the shape of what the network gets: (C, H, W) or (d,)."""
    item = dataset.read(0)
    if item.ndim == 1:
        return item.shape
    height, width, channels = item.shape
    size = config.image_size
    return (channels, height, width) if size is None else (channels, size, size)


def make_step(config: TrainConfig, shape: tuple[int, ...], num_classes: int, start: Path | None = None) -> Step:
    """Build the embedder and the objective; a relative path of weights leads from here, or from `start`."""
    weights = None if config.trunk_weights is None else located(config.trunk_weights, start)
    trunk = make_trunk(config.trunk, shape, weights=weights)
    frozen = {"freeze_bn": config.freeze_bn, "freeze_trunk": config.freeze_trunk}
    embedder = Embedder(trunk, config.embedding_dim, dropout=config.dropout, **frozen)
    if config.network_weights is not None:
        load_weights(embedder, located(config.network_weights, start), NETWORK)
    term = parse_objective(config.objective, num_classes=num_classes, embedding_dim=config.embedding_dim)
    return Step(embedder, as_sum(term), from_features=config.freeze_trunk, episodes=Episodes.of(config))


def as_sum(term: Term) -> Sum:
    """Make an objective of one term a sum too, so that its parts are always kept."""
    return term if isinstance(term, Sum) else Sum(term.parts())


def seen_sample(train: Dataset, size: int, seed: int) -> Dataset:
    """Draw training classes until they hold about `size` items: what the unseen classes are compared with."""
    order = np.random.default_rng(seed).permutation(len(train.classes))
    enough = int(np.searchsorted(train.class_counts[order].cumsum(), size)) + 1
    return train.subset(np.isin(train.labels, order[: max(2, enough)]))


def _sets(
    task: Task, embedder: Embedder, config: TrainConfig, accelerator: Accelerator
) -> tuple[Dataset, Dataset | None, Dataset]:
    train, unseen = task.train, task.validation
    if config.freeze_trunk:
        embedder.to(accelerator.device)
        sizes = sizes_of(config)
        with accelerator.main_process_first():
            train = cached_features(embedder, train, **sizes)
            unseen = None if unseen is None else cached_features(embedder, unseen, **sizes)
    size = min(len(train), 1000) if unseen is None else len(unseen)
    return train, unseen, replace(seen_sample(train, size, config.seed), name=f"{train.name}, seen classes")
