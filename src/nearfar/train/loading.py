"""Loading of the trained parts of a run."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..deep.networks.embedder import Embedder
from ..deep.networks.weights import METRIC, NETWORK
from ..deep.networks.whiten import Whiten
from .checkpoint import classes_of, load_tensors, shape_of, text_length_of, without_adapters
from .config import TrainConfig, TrainError
from .network import Trainable, make_embedder, make_trainable
from .run import Run, RunFolder, open_run

Network = TypeVar("Network", bound=nn.Module)
FLAT_TRUNKS = ("mlp", "identity")  # trunks for which an image is a vector of its pixels
SIZES = ("image_size", "resize")
"""Settings by which a checkpoint of features of larger images than those of the training differs from its run."""
RAW_SETTINGS = ("trunk", *SIZES, "squash", "standardize")
"""Settings by which a checkpoint of raw inputs differs from its run. None names code of a stranger, or a file."""
RAW_TRUNKS = ("identity", "log_mel")
"""Trunks of raw inputs: the items themselves, or statistics of sounds over time."""
LARGEST_ITEM = 2**26
"""Numbers of an item that a network takes, such as those of an image of 4096 x 4096 pixels in 3 colors."""


def folder_and_config(run: Run | str | Path, trust: str | Collection[str] = ()) -> tuple[RunFolder, TrainConfig]:
    """Return the folder and the settings of a run; settings from a file may name trusted modules only."""
    if isinstance(run, Run):
        return open_run(run.folder), run.config
    folder = open_run(run)
    return folder, TrainConfig.from_json(folder.config, trust)


def build_embedder(folder: RunFolder, config: TrainConfig, which: str = "best") -> Embedder:
    """Load the embedder of a run, in evaluation mode, with settings that were read before."""
    tensors, about = load_tensors(folder.checkpoint(which))
    config = network_config(config, about)
    tensors = without_adapters(tensors, config)  # the last checkpoint has the adapters separately
    _check_sizes(folder.path, config, about, tensors)
    # without the objective, which may need a module that does not exist here
    embedder = make_embedder(config, shape_of(about), with_weights=False, **_towers(about))
    make_metric(embedder, tensors)
    _fill(embedder, _of_network(tensors), folder.path)
    return _placed(embedder, config, about)


def with_best_weights(embedder: Embedder, folder: RunFolder, shape: tuple[int, ...]) -> Embedder:
    """Load the weights of the best checkpoint into the trained network, in evaluation mode, and return the network.

    `shape` is that of the items that it takes.
    """
    tensors, _ = load_tensors(folder.checkpoint("trained"))
    embedder.metric = nn.Identity()
    make_metric(embedder, tensors)
    _fill(embedder, _of_network(tensors), folder.path)
    return laid_out(embedder, shape).eval()


def load_trainable(run: Run | str | Path) -> Trainable:
    """Load network and objective of a run's best trained checkpoint, in evaluation mode."""
    folder, config = folder_and_config(run)
    tensors, about = load_tensors(folder.checkpoint("trained"))
    _check_sizes(folder.path, config, about, tensors)
    num_classes = classes_of(about)
    _check_classes(folder.path, config, num_classes, tensors)
    trainable = make_trainable(config, shape_of(about), num_classes, with_weights=False, **_towers(about))
    make_metric(trainable.embedder, tensors)
    _fill(trainable, tensors, folder.path, needed=NETWORK)
    return _placed(trainable, config, about)


def _check_sizes(path: Path, config: TrainConfig, about: dict[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Refuse sizes in settings that the weights cannot have, before memory is allocated for them."""
    values = sum(tensor.numel() for tensor in tensors.values())
    shape = shape_of(about)
    layer = tensors.get(f"{NETWORK}layer.weight")
    wide = layer is not None and len(layer) != config.embedding_dim
    # a network of rows has a weight for each number of an item, which is a text or a sound of any length
    any_length = "tokenizer" in about or about.get("sounds") is True
    flat = config.trunk.startswith(FLAT_TRUNKS) or (len(shape) == 1 and not any_length)
    most = values if flat and values else LARGEST_ITEM
    if wide or prod(shape) > most:
        raise TrainError(f"{path}: weights and config.json do not belong together")


def _check_classes(path: Path, config: TrainConfig, number: int, tensors: Mapping[str, Tensor]) -> None:
    """Refuse a number of classes that the objective cannot have, before memory is allocated for their proxies.

    An objective with weights for each class has a dimension of at least their number, and one without allocates none.
    """
    sizes = [max(tensor.shape, default=0) for name, tensor in tensors.items() if not name.startswith(NETWORK)]
    most = max(sizes, default=LARGEST_ITEM // config.embedding_dim)
    if number > most:
        raise TrainError(f"{path}: {number:,} classes, and weights of its objective for {most:,} at most: damaged")


def make_metric(embedder: Embedder, tensors: Mapping[str, Tensor]) -> None:
    """Add the metric layer to the network whose tensors a checkpoint has."""
    if any(name.startswith(METRIC) for name in tensors):
        embedder.metric = Whiten(embedder.embedding_dim)


def _towers(about: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of the towers in a checkpoint, as keywords of `make_embedder`."""
    return {
        "architecture": _architecture(about, "architecture"),
        "text_length": text_length_of(about),
        "text_architecture": _architecture(about, "text_architecture"),
        "embedding_layer": about.get("embedding_layer") is not False,
    }


def network_config(config: TrainConfig, about: Mapping[str, Any]) -> TrainConfig:
    """Return the settings of the network in a checkpoint: those of its run, unless something untrained was kept."""
    settings = about.get("settings")
    if not settings:
        return config
    if isinstance(settings, dict) and settings.keys() <= {*SIZES}:  # of features of larger images than those trained on
        return config.replace(**settings)
    is_raw = isinstance(settings, dict) and settings.keys() <= {*RAW_SETTINGS} and settings.get("trunk") in RAW_TRUNKS
    if not is_raw:
        raise TrainError(f"checkpoint: the settings of its network must be those of raw inputs, got {settings!r:.60}")
    plain = {"pretrained": False, "network_weights": None, "lora": None, "lora_alpha": None}
    return config.replace(**plain, **settings)


def _architecture(about: dict[str, Any], name: str) -> dict[str, Any] | None:
    """Return the settings of a model of transformers in a checkpoint, or None."""
    architecture = about.get(name)
    if architecture is not None and not (
        isinstance(architecture, dict) and isinstance(architecture.get("model_type"), str)
    ):
        raise TrainError(
            f"checkpoint: the {name.replace('_', ' ')} of the trunk must be a mapping, got {architecture!r:.60}"
        )
    return architecture


def _of_network(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of the embedder in a checkpoint, by their names in the embedder."""
    return {key.removeprefix(NETWORK): value for key, value in tensors.items() if key.startswith(NETWORK)}


def _fill(module: nn.Module, tensors: dict[str, Tensor], path: Path, needed: str = "") -> None:
    try:
        missing, unknown = module.load_state_dict(tensors, strict=False)
    except RuntimeError as error:
        raise TrainError(f"{path}: weights and config.json do not belong together") from error
    if unknown or any(key.startswith(needed) for key in missing):
        raise TrainError(f"{path}: weights and config.json do not belong together")


def _placed(module: Network, config: TrainConfig, about: dict[str, Any]) -> Network:
    return laid_out(module, shape_of(about)).to(device_of(config)).eval()


def laid_out(module: Network, shape: tuple[int, ...]) -> Network:
    """Convert the weights of a network of images to the memory format with the fastest convolutions."""
    if len(shape) == 3:
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch declares it too narrowly
    return module


def device_of(config: TrainConfig) -> torch.device:
    """Return the device of a trained network: that of the process, or the processor if there is no other."""
    if "LOCAL_RANK" not in os.environ and not torch.accelerator.is_available():
        return torch.device("cpu")
    from .scale.devices import make_accelerator  # for start-up time: accelerate takes 0.3 s

    return make_accelerator(config).device
