"""Models that are not trained: raw inputs or features of a trunk as it is, and a closed form on them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from ..data import Dataset
from ..deep.networks.embedder import Embedder
from ..deep.networks.identity import Identity
from ..deep.networks.standardize import Standardize
from ..deep.networks.weights import NETWORK
from ..deep.networks.whiten import Whiten
from .checkpoint import preserve_random_state, save_tensors
from .closed_forms import FORMS, fitted
from .config import TrainConfig
from .features import Floats, all_rows, cached_features, embed, sizes_of
from .frozen import untrained_network
from .run import Run, RunFolder
from .scoring import RAW_SIDE, are_reduced
from .setup import build
from .task import item_shape, training_items

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
        if are_reduced(items):
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
        embedder.embedding_dim = int(cast(int, embedder.trunk.num_features))
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
        classes = 0
        for part in parts:
            kept = np.linspace(0, len(part) - 1, min(len(part), MAX_FITTED)).astype(int)
            chosen = part.subset(kept) if len(kept) < len(part) else part
            rows.append(self.features(chosen))
            labels.append(chosen.labels + classes)
            classes += len(part.classes)
        found = fitted(self.form, np.concatenate(rows), np.concatenate(labels))
        k, d = found.components.shape
        whiten = Whiten(d)
        weight = np.zeros((d, d))  # closed forms in the span of few rows have fewer components than features
        weight[:k] = found.components
        whiten.mean.copy_(torch.from_numpy(found.mean))
        whiten.weight.copy_(torch.from_numpy(weight))
        self.embedder.metric = whiten.to(next(self.embedder.buffers(), torch.zeros(())).device)


def save_untrained(config: TrainConfig, kind: str, form: str, out: str | Path) -> Run:
    """Write a run whose network is not trained, with a closed form that is fitted to all training items.

    Parameters
    ----------
    config : TrainConfig
        Settings of the run.
    kind : {"raw", "frozen"}
        Items themselves, or features of the trunk as it is.
    form : str
        Name of the closed form in `FORMS`.
    out : str or Path
        Folder of the run, new or empty.

    Raises
    ------
    TrainError
        If the folder exists and is not empty.
    """
    folder = RunFolder(out)
    folder.create()
    try:
        with preserve_random_state():
            return _write_untrained(config, kind, form, folder)
    except BaseException:
        folder.discard()
        folder.remove_if_empty()
        raise


def _write_untrained(config: TrainConfig, kind: str, form: str, folder: RunFolder) -> Run:
    parts = build(config, folder.start, trains=False)
    train = parts.task.train
    if kind == "raw":
        model = UntrainedModel.raw(train, parts.config, parts.step.embedder.scale)
    else:
        model = UntrainedModel.frozen(train, parts.config, folder.start)
    model = model.with_form(form)
    model.embedder.to(parts.accelerator.device)
    model.learn(train)
    title = model.title if form == "none" else f"{model.title}, {FORMS[form].title}"
    kept = {"kept": kind if form == "none" else f"{kind}-form", "kept_title": title}
    about = {"step": 0, "epoch": 0, "best": None, "config": parts.config.digest, **parts.about, **model.about, **kept}
    tensors = {NETWORK + name: value for name, value in model.embedder.state_dict().items()}
    save_tensors(folder.best, tensors, about)
    save_tensors(folder.last, tensors, about)
    training_items(parts.config, parts.task, folder.start).write(folder.training_items)
    folder.describe(parts.config, str(parts.accelerator.device), weights=parts.weights)
    return Run(
        folder=folder.path,
        config=parts.config,
        epoch=0,
        step=0,
        best_epoch=0,
        best=None,
        task=parts.task,
        embedder=model.embedder.eval(),
    )
