"""The trunk of a run as it was before the training, and its features."""

from __future__ import annotations

from pathlib import Path

from ...data import Dataset
from ...deep.networks.embedder import Embedder
from ..checkpoint import seed_random_state
from ..config import TrainConfig
from ..features import cached_features, sizes_of
from ..network import make_embedder
from ..scale.devices import make_accelerator
from ..task import item_shape


def untrained_network(config: TrainConfig, shape: tuple[int, ...], start: Path | None = None) -> Embedder:
    """Return the network of a config before its training, whose trunk is frozen; this seeds the random state."""
    seed_random_state(config.seed)
    return make_embedder(config, shape, start, freeze_trunk=True)


def frozen_features(items: Dataset, config: TrainConfig, start: Path | None = None) -> Dataset:
    """Return the items as features of the untrained trunk, from the cache if possible."""
    embedder = untrained_network(config, item_shape(items, config), start)
    embedder.to(make_accelerator(config).device).eval()
    return cached_features(embedder, items, **sizes_of(config))
