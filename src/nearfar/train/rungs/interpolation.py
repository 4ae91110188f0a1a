"""Weights between those before a training and those after it.

    w = (1 - share) w_before + share w_after

Wortsman et al., Robust fine-tuning of zero-shot models, CVPR 2022.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ...deep.networks.embedder import Embedder
from ..checkpoint import in_checkpoint, load_tensors, preserve_random_state, save_tensors
from ..config import TrainConfig
from ..network import make_embedder
from ..run import RunFolder
from ..start import start_embedding
from ..task import item_shape
from ..training_data import TrainingData

SHARES = (0.25, 0.5, 0.75)  # of the way from the weights before the training to those after it


def interpolates(config: TrainConfig) -> bool:
    """Return whether weights between those before and after the training make sense: both embed into one space."""
    return config.starts_pretrained and config.embedding_start != "random" and not config.freeze_trunk


def interpolate(embedder: Embedder, data: TrainingData, folder: RunFolder) -> None:
    """Put the trained network at the share of the way from the weights before the training that the config sets.

    Its weights become those of the checkpoint `best`; the trained ones are first written into `trained`, where a
    resumed run finds them.
    """
    share = data.config.interpolation
    assert share is not None
    tensors, about = load_tensors(folder.best)
    save_tensors(folder.trained, tensors, about)
    with preserve_random_state():
        before = weights_before(data).state_dict()
    embedder.load_state_dict(between(before, embedder.state_dict(), share))
    kept = {"kept": "interpolated", "kept_title": title_of(share), "share": share}
    save_tensors(folder.best, in_checkpoint(embedder), {**about, **kept})


def title_of(share: float) -> str:
    """Return what weights at a share of the way are called in tables."""
    return f"weights {share:.0%} of the way from the pretrained to the trained"


def weights_before(data: TrainingData) -> Embedder:
    """Return the network of a run before its training."""
    config = data.config
    network = make_embedder(config, item_shape(data.task.train, config), data.plan.start)
    start_embedding(network, data.train, config)
    return network


def between(before: Mapping[str, Tensor], after: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """Return the weights at a share of the way; whole numbers, such as counts of batches, are those after it.

    >>> between({"w": torch.zeros(1)}, {"w": torch.ones(1)}, 0.25)
    {'w': tensor([0.2500])}
    """
    return {
        name: torch.lerp(before[name].to(value.device), value, share) if value.is_floating_point() else value
        for name, value in after.items()
    }
