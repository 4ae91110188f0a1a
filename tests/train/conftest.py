"""Small runs on the embedded digits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearfar.train import TrainConfig


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch) -> None:
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="session")
def small(few_digits) -> Callable[..., TrainConfig]:
    """A config that trains in a quarter of a second: an epoch has 5 batches of 3 classes, 2 others are validated."""

    def make(**changes: Any) -> TrainConfig:
        fields = {
            "data": few_digits,
            "objective": "TripletLoss()",
            "trunk": "mlp(width=16, depth=1)",
            "embedding_dim": 8,
            "sampler": "m_per_class:8",
            "batch_size": 24,
            "epochs": 2,
            "device": "cpu",
            "ks": [1, 2],
        }
        return TrainConfig.of(**{**fields, **changes})

    return make


@pytest.fixture
def rows(tmp_path: Path) -> str:
    """A table of ten classes without a split, which is read without scikit-learn: that takes a second to import."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(10), 8)
    np.savez(tmp_path / "rows.npz", X=rng.normal(size=(10, 6))[y] + rng.normal(size=(80, 6)), y=y)
    return str(tmp_path / "rows.npz")
