"""Small runs on the embedded digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nearfar.train import TrainConfig


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch) -> None:
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="session")
def small() -> Callable[..., TrainConfig]:
    """A config that trains in about a second."""

    def make(**changes: Any) -> TrainConfig:
        fields = {
            "data": "digits",
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
