"""Default settings of a pretrained trunk, and which trunk images get.

A trunk of another library that starts from pretrained weights gets the settings of the recipes `photos/...` for images,
whatever their size and color, and those of `texts/...` otherwise. "auto" chooses such a trunk for photographs.
"""

from __future__ import annotations

import os
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..data import Dataset, Task
from ..deep.networks.text_settings import text_width
from ..deep.networks.trunks import parse_trunk
from .config import TrainConfig, TrainError
from .recipes import recipe
from .task import sampled_sizes, tokenizer_folder
from .text_trunks import cached_text_trunk

PHOTO_SIDE = 64  # smallest shorter side of a photograph in pixels
PHOTO_SHARE = 0.9  # smallest share of the images with such a side, so that single thumbnails change nothing
DECODED_SAMPLE = 16  # number of images that are decoded to tell shades of gray from black and white
TEXT_PASSES = 2  # passes over the texts of a training
TEXT_BATCHES = 24  # batches of a training on few texts, which then has more passes
PAIR_BATCHES = 60  # the same on few queries and their documents, which are many classes of two
TEXT_WIDTH = 384  # dimensions of embeddings of texts if the model does not state how many features it has
PHOTO_TRUNKS = (
    "mobilenetv1_100",
    "mobilenetv2_100",
    "resnet50",
    "resnet18",
    "vit_small_patch14_dinov2.lvd142m",
    "vit_base_patch16_clip_224.openai",
    "vit_small_patch16_224",
)
"""Models of timm for "auto": the first one whose weights are in the cache. The first two were measured. Vision
transformers come last, because they were not, and have several times the operations."""


class Looks(NamedTuple):
    """Whether images are photographs, and a phrase that says why."""

    photographs: bool
    why: str


def looks_of(dataset: Dataset) -> Looks:
    """Decide whether images are photographs, in color or in shades of gray: nine of ten have sides of 64 pixels.

    Sizes are those of `sampled_sizes`. Images of two gray values, such as scanned characters, are no photographs.
    """
    large = np.mean([min(size) >= PHOTO_SIDE for size in sampled_sizes(dataset)])
    if large < PHOTO_SHARE:
        found = "all" if large == 0 else f"{1 - large:.0%} of them"
        return Looks(False, f"{found} have a side below {PHOTO_SIDE} pixels")
    if _is_black_and_white(dataset):
        return Looks(False, "they are black and white, without shades")
    return Looks(True, f"their sides have at least {PHOTO_SIDE} pixels")


def is_of_photographs(dataset: Dataset) -> bool:
    """Return whether items are images that are taken for photographs, as `looks_of` decides."""
    return dataset.kind == "image" and len(dataset) > 0 and looks_of(dataset).photographs


def _is_black_and_white(dataset: Dataset) -> bool:
    """Return whether none of some images, evenly chosen, has more than two gray values."""
    chosen = np.unique(np.linspace(0, len(dataset) - 1, DECODED_SAMPLE).astype(int))
    images = (dataset.read(int(i)) for i in chosen)
    return all(image.shape[-1] == 1 and len(np.unique(image)) <= 2 for image in images)


def chosen_trunk(config: TrainConfig, task: Task) -> dict[str, Any]:
    """Return the trunk for "auto", and whether it is pretrained, as settings; none if a trunk is named.

    That is `mlp` for rows, `mel_cnn` for sounds, and `conv4` for images; for photographs a model of timm whose
    pretrained weights are in the local cache, and for texts the first of `TEXT_TRUNKS` there. With `pretrained=True`,
    images of any kind get the first of `PHOTO_TRUNKS`, which may be downloaded.

    Raises
    ------
    TrainError
        If rows are to have pretrained weights, and no trunk is named.
    """
    if config.trunk != "auto":
        return {}
    if task.train.kind == "row" and task.train.texts is not None:
        found = cached_text_trunk()
        return {} if found is None else {"trunk": found}
    if task.train.kind == "row":
        if config.pretrained is True:
            detail = "there is no pretrained network for any rows; leave it out, or name a trunk"
            raise TrainError(f"config: pretrained: {detail} (trunk=)")
        return {"trunk": "mlp"}
    if task.train.kind == "sound":
        return _trunk_of_sounds(config)
    if config.weights_file or config.network_weights:
        return {"trunk": "conv4"}
    if config.pretrained is True:
        return {"trunk": f"timm:{cached_model() or PHOTO_TRUNKS[0]}"}
    if "pretrained" not in config.given and is_of_photographs(task.train):
        found = cached_model()
        if found is not None:
            return {"trunk": f"timm:{found}", "pretrained": True}
    return {"trunk": "conv4"}


def _trunk_of_sounds(config: TrainConfig) -> dict[str, Any]:
    """Return the trunk of sounds for "auto": with a file of weights, the encoder that has one."""
    if config.pretrained is True:
        detail = "no encoder of sounds has weights by this name; name a trunk, such as ge2e with a file of weights"
        raise TrainError(f"config: pretrained: {detail} (trunk=)")
    return {"trunk": "ge2e" if config.weights_file else "mel_cnn"}


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


def recipe_defaults(config: TrainConfig, task: Task, start: Path | None = None) -> dict[str, Any]:
    """Return the settings of a recipe for pretrained trunks, without those that were given.

    There are none for trunks of this library, and for those that start from random weights. Relative paths refer to the
    current folder, or to `start`.
    """
    name = default_recipe(config, task)
    if name is None:
        return {}
    fields: dict[str, Any] = recipe(name)
    if name.startswith("texts/"):
        fields = _of_texts(config, task, start) | fields
    if "steps" in config.given:
        del fields["epochs"]
    if config.network_weights is not None:  # these include an embedding layer
        del fields["embedding_start"]
        del fields["embedding_dim"]
    return {key: value for key, value in fields.items() if key not in config.given}


def _of_texts(config: TrainConfig, task: Task, start: Path | None) -> dict[str, Any]:
    """Return the settings of a text model that depend on its width and on the number of texts."""
    batch_size = config.batch_size if "batch_size" in config.given else recipe("texts/finetune")["batch_size"]
    batches = max(1, len(task.train) // batch_size)  # of an epoch
    fewest = TEXT_BATCHES if task.train.asks is None else PAIR_BATCHES
    epochs = max(TEXT_PASSES, ceil(fewest / batches))
    options = parse_trunk(config.trunk)[1]
    width = text_width(tokenizer_folder(config, start), options) if config.trunk.startswith("transformers:") else None
    # few classes would choose an epoch by chance
    eval_every = 1 if epochs == TEXT_PASSES else epochs
    return {"epochs": epochs, "eval_every": eval_every, "embedding_dim": width or TEXT_WIDTH}


def default_recipe(config: TrainConfig, task: Task) -> str | None:
    """Return the name of the recipe with the defaults of the settings that were not given, or None."""
    of_others = ":" in config.trunk or config.trunk == "ge2e"
    if not of_others or not config.starts_pretrained or config.episodes != "none":
        return None
    if config.text_trunk is not None:
        return None
    kind = {"image": "photos", "sound": "sounds"}.get(task.train.kind, "texts")
    if config.freeze_trunk:
        return f"{kind}/frozen"
    return f"{kind}/finetune" if config.lora is None else f"{kind}/lora"


def defaults_note(given: TrainConfig, resolved: TrainConfig, task: Task) -> str:
    """Return a sentence on what the items were taken for and how to change it; "" if there is nothing to say.

    Parameters
    ----------
    given : TrainConfig
        Config as it was given.
    resolved : TrainConfig
        Config with all settings resolved.
    """
    if given.trunk == "auto" and resolved.trunk == "conv4" and not resolved.starts_pretrained:
        return _note_on_small_trunk(task.train)
    sentences = []
    if given.trunk == "auto" and ":" in resolved.trunk and not given.pretrained:
        other = "--trunk names another one, conv4 a small one without pretrained weights"
        sentences.append(f"The images are taken for photographs, for which the trunk is {resolved.trunk} ({other}).")
    name = default_recipe(resolved, task)
    if name is not None and set(recipe(name)) - set(given.given):
        why = "because the trunk is pretrained; --recipe names other settings, --set changes one"
        sentences.append(f"Settings that were not given have the values of the recipe {name}, {why}.")
    return " ".join(sentences)


def _note_on_small_trunk(train: Dataset) -> str:
    """Return a sentence on why images get a small network, and how to get a pretrained one."""
    if train.kind != "image":
        return ""
    looks = looks_of(train)
    pretrained = f"--trunk timm:{PHOTO_TRUNKS[0]} --pretrained true (or a local file)"
    if looks.photographs:
        return f"A pretrained network finds photographs much better: pip install 'nearfar[vision]', and {pretrained}."
    return (
        f"The images are taken for characters or drawings, because {looks.why}, and train the small network conv4 "
        f"from random weights; for photographs, {pretrained} is much better."
    )
