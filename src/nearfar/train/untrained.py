"""Models that are not trained: raw items or features of a trunk as it is, and a closed form on them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ..data import Dataset
from ..deep.networks.embedder import Embedder
from ..deep.networks.identity import Identity
from ..deep.networks.standardize import Standardize
from ..deep.networks.whiten import Whiten
from .closed_forms import fitted
from .config import TrainConfig
from .features import Floats, all_rows, cached_features, embed, sizes_of
from .frozen import untrained_network
from .scoring import MAX_BASELINE_PIXELS, RAW_SIDE
from .task import item_shape

MAX_FITTED = 20_000  # maximum number of items, enough to estimate covariances of a few thousand features


@dataclass(frozen=True)
class UntrainedModel:
    """A network that only passes items through, or a trunk as it is, perhaps followed by a closed form.

    Attributes
    ----------
    embedder : Embedder
        The network, without an embedding layer.
    config : TrainConfig
        Settings with which its items are read.
    title : str
        What it is, for tables.
    shape : tuple of int
        Shape of the items that it takes.
    settings : dict
        Settings that differ from those of the run.
    form : str
        Name of the closed form in `FORMS`.
    """

    embedder: Embedder
    config: TrainConfig
    title: str
    shape: tuple[int, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    form: str = "none"

    @classmethod
    def raw(cls, items: Dataset, config: TrainConfig, scale: nn.Module) -> UntrainedModel:
        """Return the items themselves: rows, standardized by `scale` if the run does so, or pixels.

        Large images are reduced to 32 x 32 pixels, as in the baseline of an evaluation.
        """
        settings: dict[str, Any] = {"trunk": "identity"}
        if items.kind == "image" and (items.array is None or items.array[0].size > MAX_BASELINE_PIXELS):
            settings |= {"image_size": RAW_SIDE, "resize": RAW_SIDE, "squash": False}
        config = config.replace(**settings)
        shape = item_shape(items, config)
        embedder = Embedder(Identity(prod(shape)), None, scale=scale if isinstance(scale, Standardize) else None)
        title = "raw pixels" if items.kind == "image" else "raw rows"
        return cls(embedder.eval(), config, title, shape, settings)

    @classmethod
    def frozen(cls, items: Dataset, config: TrainConfig, start: Path | None) -> UntrainedModel:
        """Return the trunk of a run as it was before the training."""
        shape = item_shape(items, config)
        embedder = untrained_network(config, shape, start)
        embedder.layer = nn.Identity()
        embedder.embedding_dim = int(embedder.trunk.num_features)
        return cls(embedder.eval(), config, "frozen features", shape)

    def with_form(self, form: str) -> UntrainedModel:
        """Return the same followed by a closed form, which is not fitted yet."""
        return replace(self, form=form)

    @property
    def about(self) -> dict[str, Any]:
        """Metadata of its checkpoint, from which the network is built again."""
        return {"shape": list(self.shape), "settings": self.settings, "embedding_layer": False, "form": self.form}

    def features(self, items: Dataset) -> Floats:
        """Embed items without the closed form, (n, d)."""
        sizes = sizes_of(self.config)
        if isinstance(self.embedder.trunk, Identity):
            return embed(self.embedder, items, layer="pooled", **sizes)
        return all_rows(cached_features(self.embedder, items, **sizes))

    def learn(self, *parts: Dataset) -> None:
        """Fit the closed form to the items of several sets, whose classes differ."""
        if self.form == "none":
            return
        rows = []
        labels = []
        for part in parts:
            kept = np.linspace(0, len(part) - 1, min(len(part), MAX_FITTED)).astype(int)
            chosen = part.subset(kept) if len(kept) < len(part) else part
            rows.append(self.features(chosen))
            labels.append(chosen.labels + sum(len(other.classes) for other in parts[: len(labels)]))
        found = fitted(self.form, np.concatenate(rows), np.concatenate(labels))
        k, d = found.components.shape
        whiten = Whiten(d)
        weight = np.zeros((d, d))  # closed forms in the span of few rows have fewer components than features
        weight[:k] = found.components
        whiten.mean.copy_(torch.from_numpy(found.mean))
        whiten.weight.copy_(torch.from_numpy(weight))
        self.embedder.metric = whiten.to(next(self.embedder.buffers(), torch.zeros(())).device)
