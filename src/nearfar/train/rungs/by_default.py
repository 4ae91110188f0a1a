"""Whether a training begins with the ladder without being asked to."""

from __future__ import annotations

from typing import NamedTuple

from ..config import TrainConfig
from ..defaults import default_recipe, hub_is_cached
from ..task import items_of
from .ladder import FEWEST_CLASSES, TRAINED_SPLITS, held_out_classes, without_pairs
from .rung_settings import are_few, plan_of_ladder, trains_all_weights

FEW_SPLITS = 3  # number of splits for the rungs that train if many photos are compared, which takes a minute or a few


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
    """Decide whether the ladder is run without being requested: for images and a pretrained trunk.

    It is not run if the config sets which weights are trained, or if there are too few classes.
    """
    if not _may_run(config):
        return DefaultLadder(False)
    plan = plan_of_ladder(config)
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
    found = DefaultLadder(True, few=trains_all_weights(plan) and are_few(task.train))
    held = held_out_classes(task.train, found.splits, plan.config.seed)
    if why := without_pairs(task.train, held, plan.config):
        return DefaultLadder(False, f"{without} {why}.")
    return found


def _may_run(config: TrainConfig) -> bool:
    """Return whether the settings, without the data, allow the ladder to be run by default."""
    if config.freeze_trunk or config.last_stage or config.lora is not None or config.network_weights is not None:
        return False
    if config.text_trunk is not None:
        return False
    if config.trunk == "auto":
        return config.pretrained is True or hub_is_cached()
    return config.starts_pretrained and ":" in config.trunk
