"""The trunk of a run as it was before the training, its features, and the activations before its last stage."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch

from ...data import Dataset
from ...deep.networks.embedder import Embedder, as_channels
from ..checkpoint import seed_random_state
from ..config import TrainConfig
from ..features import cached_features, encode, sizes_of, with_rows
from ..network import make_embedder, weights_note
from ..scale.devices import make_accelerator
from ..task import item_shape
from .last_stage import LastStage, split_off


def untrained_network(config: TrainConfig, shape: tuple[int, ...], start: Path | None = None) -> Embedder:
    """Return the network of a config before its training, whose trunk is frozen; this seeds the random state."""
    seed_random_state(config.seed)
    return make_embedder(config, shape, start, freeze_trunk=True)


def frozen_features(items: Dataset, config: TrainConfig, start: Path | None = None) -> Dataset:
    """Return the items as features of the untrained trunk, from the cache if possible."""
    embedder = untrained_network(config, item_shape(items, config), start)
    embedder.to(make_accelerator(config).device).eval()
    return cached_features(embedder, items, **sizes_of(config))


class KeptStage(NamedTuple):
    """The last stage of a trunk, and the items as activations before it."""

    network: LastStage
    items: Dataset


class Frozen(NamedTuple):
    """Items as features of the untrained trunk, and as activations before its last stage.

    The latter exist only for images, and a trunk whose last stage can be run alone. `weights` is a sentence on
    the origin of the trunk's weights.
    """

    features: Dataset
    stage: KeptStage | None
    weights: str


def features_and_stage(items: Dataset, config: TrainConfig, start: Path | None, *, stage: bool = True) -> Frozen:
    """Return the features of the untrained trunk, with the activations before its last stage if `stage` is true."""
    shape = item_shape(items, config)
    embedder = untrained_network(config, shape, start)
    weights = weights_note(config, embedder)
    embedder.to(make_accelerator(config).device).eval()
    if items.kind != "image" or not stage:
        return Frozen(cached_features(embedder, items, **sizes_of(config)), None, weights)
    if len(shape) == 3:
        embedder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # which torch takes
    channels = getattr(embedder.trunk, "in_channels", shape[0])
    network = split_off(embedder.trunk, (channels, *shape[1:]), len(items))
    if network is None:
        return Frozen(frozen_features(items, config, start), None, weights)
    device = network.blank.device
    rows = encode(
        lambda images: network.before(embedder.scale(as_channels(images, embedder.trunk))),
        items,
        device=device,
        **sizes_of(config),
    )
    kept = with_rows(items, rows)
    features = with_rows(items, encode(network, kept, device=device))
    return Frozen(features, KeptStage(network, kept), weights)
