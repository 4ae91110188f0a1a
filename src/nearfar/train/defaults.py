"""Default settings for photographs: a pretrained trunk, and the recipes `photos/...`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..data import Dataset, Task
from .config import TrainConfig
from .pairs import with_two_tower_defaults
from .recipes import recipe
from .task import SMALLEST_PHOTO, open_data, open_resolved, resolve, sizes_in, with_preprocessing

PHOTO_CHANNELS = 3
PHOTO_TRUNKS = ("mobilenetv1_100", "mobilenetv2_100", "resnet50", "resnet18")
"""Models of timm for "auto": the first one whose weights are in the cache; the first two were measured."""


def settle(config: TrainConfig, start: Path | None = None, given: Task | None = None) -> tuple[Task, TrainConfig]:
    """Open the data of a config, unless `given`, and resolve the settings that depend on them."""
    config = with_two_tower_defaults(with_preprocessing(config, start), start)
    task = given or open_data(config, start)
    chosen = with_defaults(with_preprocessing(with_trunk(config, task), start), task)
    if given is not None:
        return given, resolve(chosen, given)
    if chosen.preprocessing != config.preprocessing:
        return open_resolved(chosen, start)  # images are resized as the trunk requires
    return open_resolved(chosen, start, task)


def is_of_photographs(dataset: Dataset) -> bool:
    """Return whether items are color images of the size of photographs."""
    if dataset.kind != "image" or not len(dataset):
        return False
    if dataset.read(0).shape[-1] != PHOTO_CHANNELS:
        return False
    return min(min(size) for size in sizes_in(dataset)) >= SMALLEST_PHOTO


def with_trunk(config: TrainConfig, task: Task) -> TrainConfig:
    """Return the config with "auto" replaced by the name of a trunk.

    That is `mlp` for rows and `conv4` for images; for photographs a model of timm whose pretrained weights are in the
    local cache, or with `pretrained=True` the first of `PHOTO_TRUNKS`, which may be downloaded.
    """
    if config.trunk != "auto":
        return config
    if task.train.kind == "row":
        return config.replace(trunk="mlp")
    if config.weights_file or config.network_weights or not is_of_photographs(task.train):
        return config.replace(trunk="conv4")
    if config.pretrained is True:
        return config.replace(trunk=f"timm:{cached_model() or PHOTO_TRUNKS[0]}")
    if "pretrained" not in config.given:
        found = cached_model()
        if found is not None:
            return config.replace(trunk=f"timm:{found}", pretrained=True)
    return config.replace(trunk="conv4")


def hub_is_cached() -> bool:
    """Return whether the local cache of the hub has a model of timm, without importing timm or the hub."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    return any(cache.glob("models--timm--*"))


def cached_model() -> str | None:
    """Return the first of `PHOTO_TRUNKS` whose weights are in the cache of the hub; None without timm."""
    try:
        import timm
        from huggingface_hub import try_to_load_from_cache
    except (ImportError, RuntimeError):  # torchvision raises a RuntimeError if it was built for another torch
        return None
    for name in PHOTO_TRUNKS:
        pretrained_config = timm.get_pretrained_cfg(name)
        repository = None if pretrained_config is None else pretrained_config.hf_hub_id
        if repository is None:
            continue
        files = [try_to_load_from_cache(repository, file) for file in ("model.safetensors", "pytorch_model.bin")]
        if any(isinstance(file, str) for file in files):
            return name
    return None


def with_defaults(config: TrainConfig, task: Task) -> TrainConfig:
    """Return the config with the settings of a recipe for photographs instead of those that were not given.

    This applies to photographs and a pretrained trunk of another library; other configs are returned unchanged.
    """
    name = default_recipe(config, task)
    if name is None:
        return config
    fields: dict[str, Any] = recipe(name)
    if "steps" in config.given:
        del fields["epochs"]
    if config.network_weights is not None:  # these include an embedding layer
        del fields["embedding_start"]
        del fields["embedding_dim"]
    return config.replace(**{key: value for key, value in fields.items() if key not in config.given})


def default_recipe(config: TrainConfig, task: Task) -> str | None:
    """Return the name of the recipe with the defaults of the settings that were not given, or None."""
    if ":" not in config.trunk or not config.starts_pretrained or config.episodes != "none":
        return None
    if config.text_trunk is not None:
        return None
    if not is_of_photographs(task.train):
        return None
    if config.freeze_trunk:
        return "photos/frozen"
    return "photos/finetune" if config.lora is None else "photos/lora"


def defaults_note(given: TrainConfig, resolved: TrainConfig, task: Task) -> str:
    """Return a sentence on the defaults for photographs; "" if there is nothing to say.

    Parameters
    ----------
    given : TrainConfig
        Config as it was given.
    resolved : TrainConfig
        Config with all settings resolved.
    """
    if not is_of_photographs(task.train):
        return ""
    if given.trunk == "auto" and resolved.trunk == "conv4":
        return (
            "A pretrained network finds photographs much better: "
            f"pip install 'nearfar[vision]', and --trunk timm:{PHOTO_TRUNKS[0]} --pretrained true (or a local file)."
        )
    name = default_recipe(given.replace(trunk=resolved.trunk, pretrained=resolved.pretrained), task)
    if name is None or not set(recipe(name)) - set(given.given):
        return ""
    return f"Settings that were not given have the values of the recipe {name}."
