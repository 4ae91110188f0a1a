"""Whether mirrored images still are of their class, by features of the pretrained trunk before the training.

A mirrored face or product is one; a mirrored letter may be another letter, or none. Each image and its mirror image
search all other images: if the mirror images find clearly less of their class, they are no examples of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..data import Dataset
from ..data.augment import transforms_of
from ..data.transforms.geometry import Mirror
from ..deep.networks.embedder import Embedder, device_of
from ..expressions import parse_list
from .config import TrainConfig
from .features import encode, sizes_of
from .rungs.class_scores import ClassScores, search
from .settle import Plan

MOST_IMAGES = 300  # images that are searched, of whole classes
LOST_SHARE = 0.05  # of MAP@R; measured: 0.01 to 0.03 on photos of products and faces, 0.1 on digits and characters


class Mirroring(NamedTuple):
    """MAP@R of images and of their mirror images, and the standard error of the difference over the classes."""

    straight: float
    mirrored: float
    error: float

    @property
    def is_harmful(self) -> bool:
        """Whether mirror images find less of their class, by a share that is larger than chance."""
        lost = self.straight - self.mirrored
        return lost > max(LOST_SHARE * self.straight, self.error)

    def __str__(self) -> str:
        """Return a sentence on what is done with mirrored images."""
        scores = f"MAP@R of frozen features {self.mirrored:.3f}, of images as they are {self.straight:.3f}"
        if self.is_harmful:
            return f"Images are not mirrored, because mirrored ones are less like their class ({scores})."
        return f"Images are also mirrored, because mirrored ones are like their class ({scores})."


def with_or_without_mirror(plan: Plan, embedder: Embedder, device: torch.device) -> Plan:
    """Return a plan that mirrors images only if mirrored ones are like their class, with a sentence on it.

    The held-out classes decide, or the training items if none are held out. A plan that does not mirror is returned as
    it is.
    """
    if not mirrors(plan.config):
        return plan
    found = compare_mirrored(embedder.to(device), plan.task.validation or plan.task.train, plan.config)
    if found is None:
        return plan
    augment = without_mirror(plan.config.augment) if found.is_harmful else plan.config.augment
    note = f"{plan.note} {found}".strip()
    return replace(plan, config=plan.config.replace(augment=augment), note=note)


def mirrors(config: TrainConfig) -> bool:
    """Return whether images are mirrored at random."""
    return any(isinstance(part, Mirror) for part in transforms_of(config.augment))


def without_mirror(augment: str) -> str:
    """Return a list of transforms without the mirror.

    >>> without_mirror("resized_crop(area=(0.6, 1)), mirror, erasing")
    'resized_crop(area=(0.6, 1)), erasing'
    """
    kept = [str(part).removesuffix("()") for part in parse_list(augment, "transforms")]
    return ", ".join(part for part in kept if not part.startswith("mirror"))


def compare_mirrored(embedder: Embedder, items: Dataset, config: TrainConfig) -> Mirroring | None:
    """Compare images with mirror images by the features of the trunk, as queries among the other images.

    Returns
    -------
    Mirroring or None
        None if there are fewer than two classes with two images.
    """
    kept = np.cumsum(items.class_counts) <= max(MOST_IMAGES, int(items.class_counts[:2].sum()))
    items = items.subset(np.isin(items.labels, np.flatnonzero(kept)))
    if int((items.class_counts > 1).sum()) < 2:
        return None
    was_training = embedder.training
    embedder.eval()
    device = device_of(embedder)

    def both(images: Tensor) -> Tensor:
        return torch.stack([embedder.features(side) for side in (images, images.flip(3))], dim=1)  # (b, 2, D)

    found = encode(lambda images: both(images).flatten(1), items, device=device, **sizes_of(config))
    embedder.train(was_training)
    straight, mirrored = np.split(found, 2, axis=1)
    scores = [
        ClassScores.of(*search(rows, items.labels, groups=items.groups, asks=items.asks, searched=straight))
        for rows in (straight, mirrored)
    ]
    gains = scores[0].map_at_r - scores[1].map_at_r
    error = float(np.std(gains, ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else 0.0
    return Mirroring(float(scores[0].map_at_r.mean()), float(scores[1].map_at_r.mean()), error)
