"""What a training does, settled once before it begins: its settings, the texts in them, and its data."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from ..data import Dataset, Task
from ..deep.samplers.base import BatchSampler
from ..deep.samplers.resolve import make_sampler
from ..trust import TrustError, named_by
from .checkpoint import seed_random_state
from .config import TrainConfig, TrainError
from .defaults import chosen_trunk, recipe_defaults
from .listed_pairs import KnownPairBatches, KnownPairs, KnownSets
from .pairs import TextRows, two_tower_defaults
from .scale.devices import precision_of
from .task import (
    check_data,
    chosen_seconds,
    chosen_sizes,
    open_data,
    own_preprocessing,
    size_when_opened,
    with_pieces,
)

LEARNS_DEGREES = "GeneralizedContrastiveLoss"
"""The loss that learns from degrees of similarity; for the others, a pair is similar or not."""
OF_PAIRS = "MultiSimilarityLoss()"
"""The default objective where only listed pairs are known: it learns from an anchor with one pair, too."""
OF_DEGREES = f"{LEARNS_DEGREES}(margin=1.4, normalize=True)"
"""The same if pairs have degrees of similarity."""


@dataclass(frozen=True)
class Plan:
    """A training whose settings and data are settled: nothing of it changes afterwards.

    Only whether images are mirrored is decided later, by the features of a pretrained trunk.

    Attributes
    ----------
    asked : TrainConfig
        Settings as they were given.
    config : TrainConfig
        All settings, resolved.
    task : Task
        The data.
    start : Path or None
        Folder in which a resumed run was started, to which relative paths refer.
    known : KnownPairs, KnownSets or None
        Pairs of training items, or sets of labels, that are used instead of classes.
    texts : TextRows or None
        Texts of the training items, if these are pairs of an image and a text.
    note : str
        One sentence on what the features of a pretrained trunk have decided; empty if there is nothing to say.
    """

    asked: TrainConfig
    config: TrainConfig
    task: Task
    start: Path | None = None
    known: KnownPairs | KnownSets | None = None
    texts: TextRows | None = None
    note: str = ""


def settle(
    config: TrainConfig,
    start: Path | None = None,
    given: Task | None = None,
    known: KnownPairs | KnownSets | None = None,
) -> Plan:
    """Open the data of a config, unless they are `given`, and resolve all of its settings.

    The data decide on the trunk, the trunk on the recipe, and all of them on the size of the images. So the data are
    opened once, and again only where images are to be read at another size than that at which they were opened.

    Parameters
    ----------
    config : TrainConfig
        Settings as they were given.
    start : Path, optional
        Folder to which relative paths refer that do not exist in the current one.
    given : Task, optional
        Data that are used as they are.
    known : KnownPairs, optional
        Pairs of the given items, of which batches are made.

    Raises
    ------
    TrainError or DataError
        If a setting is not valid, or the data cannot be used; the message is one line.
    """
    seed_random_state(config.seed)  # a trunk of the user may draw numbers already where its preprocessing is found
    begun = config.replace(**_before_the_data(config, start))
    task = given or open_data(begun, start)
    chosen = begun.replace(**chosen_trunk(begun, task))
    found = own_preprocessing(chosen, start) | recipe_defaults(chosen, task, start)
    if known is None and "objective" not in config.given:
        found |= _objective_of_pairs(task.train)
    chosen = chosen.replace(**found)
    check_data(chosen, task)
    if known is None:
        known = _known_of(task.train, chosen.objective)
    settled = chosen.replace(**_of_the_data(chosen, task, known))
    if given is None and size_when_opened(settled) != size_when_opened(begun):
        task = open_data(settled, start)
    if task.train.kind == "sound" and (given is not None or begun.seconds is None):
        task = with_pieces(task, settled)
    return Plan(
        asked=config, config=settled, task=task, start=start, known=known, texts=_texts_of(task, settled, start)
    )


def of_other_items(plan: Plan, task: Task, **settings: Any) -> Plan:
    """Return the plan of another training: on other items, with the settings of a plan but for those that are given."""
    config = plan.config.replace(**settings)
    known = _known_of(task.train, config.objective)
    texts = _texts_of(task, config, plan.start)
    return Plan(asked=config, config=config, task=task, start=plan.start, known=known, texts=texts)


def _texts_of(task: Task, config: TrainConfig, start: Path | None) -> TextRows | None:
    """Return the texts of the training items, if these are pairs of an image and a text."""
    return None if config.text_trunk is None else TextRows.of(task.train, config, start)


def _before_the_data(config: TrainConfig, start: Path | None) -> dict[str, Any]:
    """Return the settings that follow from others alone."""
    found: dict[str, Any] = {}
    if config.keep == "auto":  # before a recipe sets the objective
        found["keep"] = "trained" if "objective" in config.given else "best"
    found |= own_preprocessing(config, start)
    if config.text_trunk is not None:
        found |= two_tower_defaults(config, start)
    return found


def _known_of(train: Dataset, objective: str) -> KnownPairs | KnownSets | None:
    """Return the listed pairs of training items, or their sets of labels; None if they have one class each."""
    if train.listed is not None:
        return KnownPairs.among(train, degrees=LEARNS_DEGREES in objective)
    return KnownSets.among(train) if train.has_label_sets else None


def _objective_of_pairs(train: Dataset) -> dict[str, Any]:
    """Return the objective for items of which only listed pairs are known; none for others."""
    if train.listed is None or train.listed.by_class:
        return {}
    degree = train.listed.degree
    return {"objective": OF_DEGREES if bool(((degree > 0) & (degree < 1)).any()) else OF_PAIRS}


def _of_the_data(config: TrainConfig, task: Task, known: KnownPairs | KnownSets | None) -> dict[str, Any]:
    """Return the settings that depend on the items, the trunk or the device."""
    found: dict[str, Any] = {**chosen_sizes(config, task), **chosen_seconds(config, task)}
    found["precision"] = precision_of(config)
    if config.freeze_bn is None:
        found["freeze_bn"] = config.starts_pretrained or config.lora is not None
    if "batch_size" not in config.given and _draws_each_once(config, task.train):
        found["batch_size"] = min(config.batch_size, len(task.train))
        config = config.replace(batch_size=found["batch_size"])
    if config.steps is not None:
        found["epochs"] = ceil(config.steps / len(sampler_of(config, task.train, known)))
    return found


def _draws_each_once(config: TrainConfig, train: Dataset) -> bool:
    """Return whether a batch holds no item twice, so that it cannot be larger than the training items."""
    return config.sampler == "random" or (config.sampler == "auto" and train.has_label_sets)


def resumed_settings(config: TrainConfig, begun: TrainConfig) -> TrainConfig:
    """Return the config of a resumed run, with the trunk, preprocessing and mirroring with which it was begun."""
    found: dict[str, Any] = {}
    if config.trunk == "auto":  # with another cache of weights, it would be another trunk
        found = {"trunk": begun.to_dict()["trunk"], "pretrained": begun.pretrained}
    if "augment" not in config.given:  # features before the training have decided on mirrored images
        found["augment"] = begun.augment
    if config.preprocessing is None and found.get("trunk", config.trunk) == begun.trunk:
        found["preprocessing"] = begun.preprocessing
    return config.replace(**found)


def sampler_of(config: TrainConfig, train: Dataset, known: KnownPairs | KnownSets | None) -> BatchSampler:
    """Return what draws the batches of a config.

    Raises
    ------
    TrainError
        If the sampler does not exist, or does not fit the items.
    """
    try:
        if isinstance(known, KnownPairs) and (train.listed is None or config.sampler == "auto"):
            return KnownPairBatches(known, config.batch_size, config.seed)
        sampler = config.sampler
        if sampler == "auto" and train.has_label_sets:
            sampler = "random"
        with named_by(config.origin):
            return make_sampler(sampler, train.labels, config.batch_size, config.seed)
    except TrustError:
        raise
    except ValueError as error:
        raise TrainError(str(error)) from error
