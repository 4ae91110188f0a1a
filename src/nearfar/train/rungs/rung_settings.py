"""Settings of the trainings of a ladder: of each rung on some of the classes, and of the one that is chosen on all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...data import Dataset
from ..config import TrainConfig
from ..defaults import default_recipe
from ..recipes import recipe
from ..settle import Plan, sampler_of, settle

HEAD_STEPS = 150  # number of batches; a linear layer on cached features trains in seconds
STAGE_STEPS = 40  # number of batches; the last stage on cached activations takes ten seconds on a CPU
FEW_PHOTOS = 1000  # number of training photos below which there are more splits, with fewer batches
TRIED_BATCHES = 4  # of a training of all weights on few photos
TRIED_OF_MORE = 16  # of the same on more photos, which then are trained for many more batches than a linear layer needs
FINAL_BATCHES = 64  # minimum number of the same on all training classes, if all weights win
MAX_ITEMS = 3000  # maximum number of items, so that the table takes a few minutes at most
UNCHECKED: dict[str, Any] = {"validation": 0.0, "eval_every": 1_000_000, "metric": "none"}
"""Settings of a training that holds nothing out, so that no class chooses its epoch or a whitening."""


def plan_of_ladder(config: TrainConfig, start: Path | None = None) -> Plan:
    """Settle a config with all of its training classes, and with no classes of turned images."""
    return settle(config.replace(validation=0.0, symmetries="none"), start)


def are_few(photos: Dataset) -> bool:
    """Return whether training photos are so few that more splits with fewer batches compare them better."""
    return len(photos) < FEW_PHOTOS


def trains_all_weights(plan: Plan) -> bool:
    """Return whether all weights of a pretrained trunk are trained on photos, for a few batches in the ladder."""
    return default_recipe(plan.config, plan.task) == "photos/finetune" and not plan.config.last_stage


def whole_config(config: TrainConfig, batches: int | None = None) -> TrainConfig:
    """Return the settings that train all weights on some of the classes, perhaps for a number of batches."""
    steps = config.steps if batches is None else batches
    return config.replace(**UNCHECKED, steps=steps, patience=None, track=())


def tried_config(config: TrainConfig, train: Dataset) -> TrainConfig:
    """Return the settings that train all weights on some of the classes for a few batches."""
    return whole_config(config, batches=TRIED_BATCHES if are_few(train) else TRIED_OF_MORE)


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
    return config.replace(**UNCHECKED, steps=steps, **sizes)


def head_config(config: TrainConfig) -> TrainConfig:
    """Return the settings that train a linear layer on features, which are rows, for a short time."""
    frozen = recipe("photos/frozen")
    changes: dict[str, Any] = {}
    if config.starts_pretrained:  # the learning rate of a pretrained trunk is too low for a layer alone
        changes["lr"] = frozen["lr"]
        changes["embedding_start"] = frozen["embedding_start"]
    if "Distill(" in config.objective:  # the teacher takes images, not features
        changes["objective"] = frozen["objective"]
    return config.replace(
        **changes,
        trunk="identity",
        network_weights=None,
        pretrained=False,
        preprocessing=None,
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


def stage_config(config: TrainConfig) -> TrainConfig:
    """Return the settings that train the last stage of a trunk, and a layer behind it, on activations as rows."""
    return head_config(config).replace(lr=config.lr, steps=STAGE_STEPS, embedding_start="random")


def config_for(rung: str, config: TrainConfig) -> TrainConfig:
    """Return the settings of a run that trains a rung of the ladder.

    "frozen" and "whitened" are written by `save_untrained`. A linear layer on items without a pretrained trunk is a
    network of its own. "raw", which no network gives, trains with the settings of the config.
    """
    if rung == "head" and not _starts_pretrained(config):
        return config.replace(trunk="identity")
    if rung in ("frozen", "whitened", "head"):
        return config.replace(freeze_trunk=True, freeze_epochs=None, augment="", episodes="none")
    if rung == "last-stage":
        return config.replace(last_stage=True)
    return config


def _starts_pretrained(config: TrainConfig) -> bool:
    """Return whether the trunk of a config starts from pretrained weights; "auto" depends on the data."""
    if config.trunk == "auto":
        config = settle(config).config
    return config.starts_pretrained
