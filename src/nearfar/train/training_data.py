"""The data of a training: what it trains on, what chooses the checkpoint, and the batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from ..data import Dataset, Task
from ..data.augment import Augment, transforms_of
from ..data.loader import Loader, TaggedBatches, make_loader
from ..data.transforms.geometry import Crop, ResizedCrop
from ..deep import distributed
from ..deep.networks.embedder import Embedder
from ..deep.samplers.base import BatchSampler
from .config import TrainConfig
from .features import as_floats, cached_features, image_sizes_of, resizing_of, sizes_of
from .pairs import PairBatch
from .settle import Plan, sampler_of
from .task import whole_crop


@dataclass(frozen=True)
class TrainingData:
    """The items of a training and the batches that are drawn of them.

    Attributes
    ----------
    plan : Plan
        Settings and data of the training.
    train : Dataset
        Items to train on; for a frozen trunk, their features.
    unseen : Dataset or None
        The validation classes.
    seen : Dataset
        Training items for evaluation, of about the same number as the validation items.
    sampler : BatchSampler
        Which items are in which batch.
    loader : Loader
        Reads the batches.
    augment : Augment
        Random transforms of a batch, with the generator of their random numbers.
    """

    plan: Plan
    train: Dataset
    unseen: Dataset | None
    seen: Dataset
    sampler: BatchSampler
    loader: Loader
    augment: Augment

    @classmethod
    def of(cls, plan: Plan, embedder: Embedder, accelerator: Accelerator) -> TrainingData:
        """Make the sets and the batches of a plan; the `embedder` gives the features of a frozen trunk."""
        config = plan.config
        train, unseen = _features_if_frozen(plan, embedder, accelerator)
        size = min(len(train), 1000) if unseen is None else len(unseen)
        seen = replace(seen_sample(train, size, config.seed), name=f"{train.name}, seen classes")
        sampler = sampler_of(config, train, plan.known)
        return cls(
            plan=plan,
            train=train,
            unseen=unseen,
            seen=seen,
            sampler=sampler,
            loader=_loader(config, train, sampler, pin_memory=accelerator.device.type == "cuda"),
            augment=_augment(config),
        )

    @property
    def config(self) -> TrainConfig:
        """Settings of the training."""
        return self.plan.config

    @property
    def task(self) -> Task:
        """All data, with those of the test."""
        return self.plan.task

    @property
    def steps(self) -> int:
        """Number of batches of the whole training."""
        return self.config.steps or self.config.epochs * len(self.sampler)

    def batches(
        self, epoch: int, done: int, device: torch.device
    ) -> Iterator[tuple[Tensor | PairBatch, Tensor, Tensor]]:
        """Yield the batches of an epoch after the first `done` ones, on a device.

        They are items, changed at random, perhaps with their texts; their classes; and their numbers in `train`.
        """
        self.sampler.load_state_dict(self.sampler.state_dict() | {"epoch": epoch, "batch": done})
        known = self.plan.known
        of_texts = self.plan.texts
        first = epoch * len(self.sampler) + done
        for step, (items, labels, ids) in enumerate(self.loader, first):
            known_labels: Any = labels if known is None else known.relation(ids)
            texts = None if of_texts is None else of_texts.rows[ids].to(device, non_blocking=True)
            items, ids = (part.to(device, non_blocking=True) for part in (items, ids))
            labels = known_labels.to(device, non_blocking=True)
            items = as_floats(items)
            if self.augment.parts:
                # seeded for every batch and process, so that a resumed run draws the numbers of an uninterrupted one
                seed = np.random.SeedSequence((self.config.seed, step, distributed.rank())).generate_state(1)[0]
                assert self.augment.generator is not None
                self.augment.generator.manual_seed(int(seed))
                items = self.augment(items)
            yield items if texts is None else PairBatch(items, texts), labels, ids


def seen_sample(train: Dataset, size: int, seed: int, fewest: int = 2) -> Dataset:
    """Draw training classes with about `size` items in total, and not fewer than `fewest` of them."""
    order = np.random.default_rng(seed).permutation(len(train.classes))
    enough = int(np.searchsorted(train.class_counts[order].cumsum(), size)) + 1
    return train.subset(np.isin(train.labels, order[: max(fewest, enough)]))


def _features_if_frozen(plan: Plan, embedder: Embedder, accelerator: Accelerator) -> tuple[Dataset, Dataset | None]:
    """Return the items to train on and those of the validation, as features if the trunk is frozen."""
    train = plan.task.train
    unseen = plan.task.validation
    if not plan.config.freeze_trunk:
        return train, unseen
    embedder.to(accelerator.device)
    sizes = sizes_of(plan.config)
    with accelerator.main_process_first():  # the others find the features in the cache
        train = cached_features(embedder, train, **sizes)
        if unseen is not None:
            unseen = cached_features(embedder, unseen, **sizes)
    return train, unseen


def _loader(config: TrainConfig, train: Dataset, sampler: BatchSampler, *, pin_memory: bool) -> Loader:
    sizes: dict[str, Any] = {}
    crop = whole_crop(config)
    if train.kind == "image" and crop is not None:
        sizes = {"image_size": crop.size or config.image_size, "crop": crop}
    elif train.kind == "image" and (config.preprocessing is None or _crops(config)):
        sizes = {"image_size": config.resize or config.image_size, "resizing": resizing_of(config)}
    elif train.kind == "image":
        sizes = image_sizes_of(config)
    how: dict[str, Any] = {"workers": config.workers, "pin_memory": pin_memory, "seed": config.seed}
    drawn = crop is not None or train.kind == "sound"  # pieces are drawn when they are read
    batches: Any = sampler if not drawn else TaggedBatches(sampler, (config.seed, distributed.rank()))
    return make_loader(train, batch_sampler=batches, **how, **sizes)


def _crops(config: TrainConfig) -> bool:
    """Return whether images are cropped at random."""
    return any(isinstance(transform, Crop | ResizedCrop) for transform in transforms_of(config.augment))


def _augment(config: TrainConfig) -> Augment:
    """Return the random transforms of a batch; crops without a size get the size that the trunk requires."""
    augment = Augment(generator=torch.Generator()).train()
    when_read = whole_crop(config)
    for transform in transforms_of(config.augment):
        if transform == when_read:
            continue
        if config.preprocessing is not None and isinstance(transform, Crop | ResizedCrop) and not transform.size:
            transform = replace(transform, size=config.image_size or transform.size)
        augment.parts.append(transform)
    return augment
