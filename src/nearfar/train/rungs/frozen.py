"""The trunk of a run as it was before the training, and its features."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ...data import Dataset
from ...deep.networks.embedder import Embedder
from ..checkpoint import seed_random_state
from ..config import TrainConfig
from ..features import cached_features, sizes_of
from ..network import make_embedder
from ..scale.devices import make_accelerator
from ..task import item_shape, with_resolved_folder


def untrained_network(config: TrainConfig, shape: tuple[int, ...], start: Path | None = None) -> Embedder:
    """Return the network of a config before its training, whose trunk is frozen; this seeds the random state."""
    seed_random_state(config.seed)
    all_trained = {"freeze_epochs": None, "last_stage": False, "lora": None, "lora_alpha": None, "episodes": "none"}
    frozen = config.replace(freeze_trunk=True, augment="", **all_trained)
    # not by `replace`, which would trust the modules that these settings name
    frozen = msgspec.structs.replace(frozen, trunk=with_resolved_folder(config.trunk, start))
    return make_embedder(frozen, shape, start)


def frozen_features(items: Dataset, config: TrainConfig, start: Path | None = None) -> Dataset:
    """Return the items as features of the untrained trunk, from the cache if possible."""
    embedder = untrained_network(config, item_shape(items, config), start)
    embedder.to(make_accelerator(config).device).eval()
    return cached_features(embedder, items, **sizes_of(config))
