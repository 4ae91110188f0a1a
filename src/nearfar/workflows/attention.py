"""Where the network of a run looks: the maps of its last convolution, for pictures of reports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..data.augment import to_float
from ..data.decode import fit
from ..deep.networks.embedder import device_of
from ..models import load_embedder
from ..train import TrainConfig
from ..train.checkpoint import read_about
from ..train.features import resizing_of
from ..train.loading import network_config


def attention_of(run: Path) -> Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]] | None:
    """Return a function from an (S, S, C) image to the last convolution (C', H, W) of a run's network, if any."""
    config = network_config(TrainConfig.from_json(run / "config.json"), read_about(run / "best.safetensors"))
    embedder = load_embedder(run)
    device = device_of(embedder)

    def maps(image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        side = config.image_size or image.shape[0]
        pixels = fit(image, side, resizing=resizing_of(config)).transpose(2, 0, 1)
        batch = to_float(torch.from_numpy(pixels[None].copy()))
        with torch.inference_mode():
            return np.asarray(embedder.feature_map(batch.to(device))[0].cpu())

    return maps if embedder.has_feature_map else None
