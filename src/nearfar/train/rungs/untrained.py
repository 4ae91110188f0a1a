"""Models that are not trained: raw inputs or features of a trunk as it is, and a closed form on them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import nn

from ...data import Dataset
from ...deep.networks.embedder import Embedder
from ...deep.networks.identity import Identity
from ...deep.networks.sound_trunk import LogMel
from ...deep.networks.standardize import Standardize
from ...deep.networks.whiten import Whiten
from ...numerics.types import AnyArray, Bools, Ints
from ..checkpoint import in_checkpoint, preserve_random_state, save_tensors
from ..config import TrainConfig
from ..features import Floats, all_rows, cached_features, embed, sizes_of
from ..run import Run, RunFolder
from ..scoring import RAW_SIDE, are_reduced
from ..setup import build
from ..task import item_shape, training_items
from .closed_forms import FORMS, MAX_WIDTH, OF_FEATURES, ChosenForm, choose_form, fitted
from .frozen import untrained_network

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
        if items.kind == "sound":
            settings = {"trunk": "log_mel"}
        config = config.replace(**settings)
        shape = item_shape(items, config)
        trunk = LogMel(*shape) if items.kind == "sound" else Identity(prod(shape))
        embedder = Embedder(trunk, None, scale=scale if isinstance(scale, Standardize) else None)
        title = items.title_of_raw
        return cls(embedder.eval(), config, title, shape, settings)

    @classmethod
    def frozen(
        cls,
        items: Dataset,
        config: TrainConfig,
        start: Path | None,
        sizes: Mapping[str, int | None] = MappingProxyType({}),
    ) -> UntrainedModel:
        """Return the trunk of a run as it was before the training, perhaps with other sizes of images."""
        config = config.replace(**sizes)
        shape = item_shape(items, config)
        embedder = untrained_network(config, shape, start)
        embedder.layer = nn.Identity()
        embedder.embedding_dim = int(cast(int, embedder.trunk.num_features))
        return cls(embedder.eval(), config, "frozen features", shape, dict(sizes))

    def with_form(self, form: str) -> UntrainedModel:
        """Return the same with a closed form, which is not fitted yet."""
        settings = {name: value for name, value in self.settings.items() if name != "standardize"}
        if FORMS[form].standardized:
            settings["standardize"] = True
        return replace(self, form=form, settings=settings)

    @property
    def forms(self) -> tuple[str, ...]:
        """Names of the closed forms to choose from: rows that are not standardized may also be."""
        is_raw = isinstance(self.embedder.trunk, Identity) and len(self.shape) == 1
        return tuple(FORMS if is_raw and not self.config.standardize else OF_FEATURES)

    def chosen_form(self, items: Dataset) -> str:
        """Return the closed form that the classes of some items choose, for those who want one."""
        if self.embedder.embedding_dim > MAX_WIDTH:
            return "whitening"
        found = self.choice_of(self._together([items]))
        return found.name if found.map_at_r else "whitening"

    @property
    def about(self) -> dict[str, Any]:
        """Metadata of its checkpoint, from which the network is built again."""
        return {"shape": list(self.shape), "settings": self.settings, "embedding_layer": False, "form": self.form}

    def features(self, items: Dataset) -> Floats:
        """Embed items without the closed form, (n, d)."""
        sizes = sizes_of(self.config)
        if isinstance(self.embedder.trunk, Identity | LogMel):
            return embed(self.embedder, items, layer="pooled", **sizes)
        return all_rows(cached_features(self.embedder, items, **sizes))

    def learn(self, *parts: Dataset) -> None:
        """Fit the closed form to the items of several sets."""
        if self.form != "none":
            self._fit(self._together(parts))

    def learned_anew(self, *parts: Dataset) -> UntrainedModel:
        """Return the model with the closed form that the classes of several sets choose, fitted to their items.

        A model without a closed form has none then, either, and one that has a form keeps one.
        """
        if self.form == "none":
            return self
        learned = self._together(parts)
        form = self.choice_of(learned).name
        model = self if form == "none" else self.with_form(form)
        model._fit(learned)
        return model

    def choice_of(self, learned: Learned) -> ChosenForm:
        """Choose a closed form by the classes of some features."""
        return choose_form(
            learned.rows,
            learned.labels,
            groups=learned.groups,
            asks=learned.asks,
            seed=self.config.seed,
            forms=self.forms,
        )

    def _together(self, parts: Sequence[Dataset]) -> Learned:
        """Embed the items of several sets."""
        chosen = [some_of(part) for part in parts]
        return Learned.of(np.concatenate([self.features(part) for part in chosen]), chosen)

    def _fit(self, learned: Learned) -> None:
        found = fitted(self.form, learned.rows, learned.labels)
        device = next(self.embedder.buffers(), torch.zeros(())).device
        if found.columns is not None:
            scale = Standardize(len(found.columns.mean))
            scale.mean.copy_(torch.from_numpy(found.columns.mean))
            scale.deviation.copy_(torch.from_numpy(found.columns.deviation))
            self.embedder.scale = scale.to(device)
        if FORMS[self.form].maps:
            whiten = Whiten(len(found.mean))
            whiten.mean.copy_(torch.from_numpy(found.mean))
            whiten.weight.copy_(torch.from_numpy(found.components))
            self.embedder.metric = whiten.to(device)


class Learned(NamedTuple):
    """Features of the items from which a closed form learns, (n, d), and what belongs to each of them."""

    rows: Floats
    labels: Ints
    groups: AnyArray | None
    asks: Bools | None

    @classmethod
    def of(cls, rows: Floats, parts: Sequence[Dataset]) -> Learned:
        """Join what belongs to the items of several sets, whose features are given one after the other."""
        groups = [part.groups for part in parts if part.groups is not None]
        asks = [part.asks for part in parts if part.asks is not None]
        return cls(
            rows=rows,
            labels=joint_labels(parts),
            groups=np.concatenate(groups) if len(groups) == len(parts) else None,
            asks=np.concatenate(asks) if len(asks) == len(parts) else None,
        )


def joint_labels(parts: Sequence[Dataset]) -> Ints:
    """Number the classes of the items of several sets; classes with equal names are one class."""
    classes = dict.fromkeys(name for part in parts for name in part.classes)
    number = {name: i for i, name in enumerate(classes)}
    return np.concatenate([np.array([number[name] for name in part.classes])[part.labels] for part in parts])


def some_of(items: Dataset) -> Dataset:
    """Return at most `MAX_FITTED` items, evenly chosen."""
    if len(items) <= MAX_FITTED:
        return items
    return items.subset(np.linspace(0, len(items) - 1, MAX_FITTED).astype(int))


def save_untrained(
    config: TrainConfig,
    out: str | Path,
    *,
    kind: str = "auto",
    form: str = "auto",
    why: str = "; nothing was trained, and nothing else was compared.",
    progress: bool = False,
) -> Run:
    """Write a run whose network is not trained, with a closed form that is fitted to all training items.

    Parameters
    ----------
    config : TrainConfig
        Settings of the run.
    out : str or Path
        Folder of the run, new or empty.
    kind : {"auto", "raw", "frozen"}
        Items themselves, or features of the trunk as it is. "auto" takes these if the trunk is pretrained.
    form : str
        Name of the closed form in `FORMS`. "auto" takes the one that the training classes choose; a whitening where
        there are too few of them, or more than `MAX_WIDTH` features.
    why : str
        End of the sentence on what is kept, after its title. A final model has none.
    progress : bool
        Print where the weights of the trunk come from.

    Raises
    ------
    TrainError
        If the folder exists and is not empty.
    """
    folder = RunFolder(out)
    folder.create()
    try:
        with preserve_random_state():
            return _write_untrained(config, folder, kind, form, why, progress=progress)
    except BaseException:
        folder.discard()
        folder.remove_if_empty()
        raise


def _write_untrained(config: TrainConfig, folder: RunFolder, kind: str, form: str, why: str, *, progress: bool) -> Run:
    loop = build(config, folder.start, trains=False)
    config = loop.config
    task = loop.data.task
    if kind == "auto":
        kind = "frozen" if config.starts_pretrained else "raw"
    if progress and kind == "frozen":
        print(loop.weights, file=sys.stderr, flush=True)
    if kind == "raw":
        model = UntrainedModel.raw(task.train, config, loop.trainable.embedder.scale)
    else:
        model = UntrainedModel.frozen(task.train, config, folder.start)
    width = model.embedder.embedding_dim
    config = config.replace(embedding_dim=width, embedding_start="random", metric="none")  # there is no layer
    model.embedder.to(loop.accelerator.device)
    # nothing is trained, so that held-out classes have nothing else to choose
    learned = task.train if task.validation is None else task.train.joined(task.validation)
    if form == "auto":
        form = model.chosen_form(learned)
    model = model.with_form(form)
    model.learn(learned)
    title = model.title if form == "none" else f"{model.title}, {FORMS[form].title}"
    name = kind if form == "none" else f"{kind}-form"
    kept = {"kept": name, "kept_title": title}
    about = {"step": 0, "epoch": 0, "best": None, "config": config.digest, **loop.about, **model.about, **kept}
    tensors = in_checkpoint(model.embedder)
    save_tensors(folder.best, tensors, about)
    save_tensors(folder.last, tensors, about)
    training_items(config, task, folder.start).write(folder.training_items)
    if config.final is None:
        folder.write_kept(name, title, f"Kept: {title}{why}")
    folder.describe(config, str(loop.accelerator.device), weights=loop.weights)
    return Run(
        folder=folder.path,
        config=config,
        epoch=0,
        step=0,
        best_epoch=0,
        best=None,
        task=task,
        embedder=model.embedder.eval(),
    )
