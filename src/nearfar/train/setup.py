"""The parts of a run, built from its config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.optim import Optimizer

from ..data import Dataset, Task
from ..data.augment import Augment
from ..data.loader import Loader, TaggedBatches, make_loader
from ..data.open import resolve_source
from ..data.transforms.geometry import Crop, ResizedCrop
from ..deep import distributed
from ..deep.compositions.divide_and_conquer import DivideAndConquer
from ..deep.networks.adapters import add_adapters
from ..deep.networks.depth import last_stage
from ..deep.networks.embedder import Embedder, Features
from ..deep.networks.folding import fold_norms, unfold_norms
from ..deep.networks.normalize import Normalize
from ..deep.networks.pair_terms import PairTerm
from ..deep.networks.preprocessing import FROM_HEADER
from ..deep.networks.recomputing import checkpoint_gradients
from ..deep.networks.standardize import Standardize
from ..deep.networks.tokens import Tokens
from ..deep.networks.transformers_text_trunk import TransformersTextTrunk
from ..deep.networks.transformers_trunk import TransformersTrunk, architecture_of
from ..deep.networks.trunks import make_trunk
from ..deep.networks.weights import NETWORK, Trunk, load_weights
from ..deep.objective.network_layers import lend, watch_layers
from ..deep.objective.parser import parse_objective
from ..deep.objective.terms import Sum, Term
from ..deep.samplers.base import BatchSampler
from ..deep.samplers.clusters import ClusterSampler
from ..deep.samplers.resolve import make_sampler
from ..trust import TrustError, named_by
from .checkpoint import seed_random_state
from .chunks import check_chunks
from .config import TrainConfig, TrainError
from .defaults import defaults_note, settle
from .devices import make_accelerator
from .episodic import Episodes
from .features import all_rows, as_floats, cached_features, image_sizes_of, resizing_of, sizes_of
from .listed_pairs import KnownPairBatches, KnownPairs
from .many_classes import check_many_classes, exclude_from_averaging, with_many_classes
from .optim import make_optimizer, param_groups
from .pairs import (
    PairBatch,
    PairFeatures,
    TextRows,
    are_one_model,
    check_objective,
    start_in_shared_space,
    value_both_ways,
)
from .positives import check_batch_size, check_positives
from .start import start_embedding
from .task import class_mark, item_shape, text_tokens, whole_crop, with_resolved_folder
from .teachers import ask_teachers
from .weight_averages import Averages


class Step(nn.Module):
    """Embedder and objective as one module, so that one wrapper averages the gradients of both over processes."""

    def __init__(
        self, embedder: Embedder, objective: Sum, *, from_features: bool = False, episodes: Episodes | None = None
    ) -> None:
        super().__init__()
        self.embedder = embedder
        self.objective = objective
        lend(embedder.layer, objective)
        watch_layers(embedder.trunk, objective)
        self.from_features = from_features
        self.episodes = episodes

    def forward(
        self, items: Tensor | PairBatch, labels: Tensor | None = None, ids: Tensor | None = None
    ) -> Tensor | Features | PairFeatures:
        """Return the value of the objective; without labels, the features. `ids` are the numbers of the items."""
        if isinstance(items, PairBatch):
            return self._of_pairs(items, labels, ids)
        if labels is not None and self.episodes is not None:
            return self.episodes.loss(self.embedder, self.objective, items, labels, ids)
        features: Features = self.embedder.head(items) if self.from_features else self.embedder(items)
        if labels is None:
            return features
        value = self.value(features, items, labels, ids)
        if distributed.world() == 1:
            return value
        # DistributedDataParallel waits for the gradients of all layers, including an embedding layer that no term uses
        return value + (0 * features.embedding).sum()

    def _of_pairs(self, pairs: PairBatch, labels: Tensor | None, ids: Tensor | None) -> Tensor | PairFeatures:
        """Do what `forward` does for images with their texts."""
        assert self.embedder.text is not None
        images: Features = self.embedder.head(pairs.items) if self.from_features else self.embedder(pairs.items)
        features = PairFeatures.of(images, self.embedder.text(pairs.texts))
        if labels is None:
            return features
        value = self.value(features, pairs, labels, ids)
        if distributed.world() == 1:
            return value
        return value + (0 * features.embedding).sum() + (0 * features.text_embedding).sum()

    def value(
        self, features: Features | PairFeatures, items: Tensor | PairBatch, labels: Tensor, ids: Tensor | None
    ) -> Tensor:
        """Return the value of the objective for the features of a batch."""
        if isinstance(features, PairFeatures):
            return value_both_ways(self.objective, features, labels, ids)
        assert isinstance(items, Tensor)
        for term in self.objective.terms:
            if isinstance(term, PairTerm):
                term.see(self.embedder, items)
        value: Tensor = self.objective(features.embedding, labels, pooled=features.pooled, ids=ids)
        return value


@dataclass
class Parts:
    """The parts of a run: data, network, objective and optimizer.

    Attributes
    ----------
    config : TrainConfig
        Settings, resolved.
    task : Task
        The data.
    train : Dataset
        Items to train on.
    unseen : Dataset or None
        The validation classes.
    seen : Dataset
        Training items for evaluation, of about the same number as the validation items.
    step : Step
        Network and objective.
    augment : Augment
        Random transforms.
    generator : torch.Generator
        Generator of their random numbers.
    averages : Averages
        Moving averages of the weights, which are used in evaluation.
    weights : str
        One sentence on the origin of the trunk's weights.
    note : str
        One sentence on the values of settings that were not given; empty if there is nothing to say.
    known : KnownPairs or None
        Pairs of training items that are used instead of classes.
    start : Path or None
        Folder in which a resumed run was started.
    texts : TextRows or None
        Texts of the training items, if these are pairs of an image and a text.
    model : nn.Module or None
        The step as `accelerator` has prepared it; None before `prepare`.
    optimizer : Optimizer or None
        Its optimizer; None before `prepare`.
    """

    config: TrainConfig
    accelerator: Accelerator
    task: Task
    train: Dataset
    unseen: Dataset | None
    seen: Dataset
    step: Step
    sampler: BatchSampler
    loader: Loader
    augment: Augment
    generator: torch.Generator
    averages: Averages
    weights: str = ""
    note: str = ""
    known: KnownPairs | None = None
    model: nn.Module | None = None
    optimizer: Optimizer | None = None
    start: Path | None = None
    texts: TextRows | None = None

    @property
    def steps(self) -> int:
        return self.config.steps or self.config.epochs * len(self.sampler)

    @property
    def about(self) -> dict[str, Any]:
        """Metadata of a checkpoint, from which the network can be built again, with its training items."""
        train = self.task.train
        about: dict[str, Any] = {
            "shape": item_shape(train, self.config),
            "num_classes": len(train.classes),
            "columns": train.columns,
            "classes": class_mark(self.task),
            "weights": self.weights,
            "steps_per_epoch": len(self.sampler),
        }
        if self.config.final is not None:
            about["final"] = self.config.final
        if self.texts is not None:
            about |= text_metadata(self.texts.tokens)
            about["text_length"] = self.texts.length
        elif train.texts is not None:
            about |= text_metadata(text_tokens(self.config, self.start))
        for name, tower in (("architecture", self.step.embedder), ("text_architecture", self.step.embedder.text)):
            module = None if tower is None else getattr(tower.trunk, "module", None)
            if isinstance(module, TransformersTrunk):
                about[name] = architecture_of(module)
        return about

    def prepare(self) -> None:
        """Move the parts to the device, and wrap them for several processes. Load weights before this."""
        if self.train.kind == "image":
            self.step.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # declared too narrowly
        groups = param_groups(self.step.embedder, self.step.objective, self.config)
        if not groups:
            raise TrainError(
                "nothing to train: the trunk is frozen, and neither embedding layer nor objective has parameters"
            )
        exclude_from_averaging(self.step)
        self.model, self.optimizer = self.accelerator.prepare(self.step, make_optimizer(groups, self.config))
        self.averages.begin()

    def batches(self, epoch: int, done: int) -> Iterator[tuple[Tensor | PairBatch, Tensor, Tensor]]:
        """Yield the batches of an epoch after the first `done` ones, on the device.

        They are items, changed at random, perhaps with their texts; their classes; and their numbers in `train`.
        """
        self.sampler.load_state_dict(self.sampler.state_dict() | {"epoch": epoch, "batch": done})
        device = self.accelerator.device
        first = epoch * len(self.sampler) + done
        for step, (items, labels, ids) in enumerate(self.loader, first):
            labels = labels if self.known is None else self.known.relation(ids)
            texts = None if self.texts is None else self.texts.rows[ids].to(device, non_blocking=True)
            items, labels, ids = (part.to(device, non_blocking=True) for part in (items, labels, ids))
            items = as_floats(items)
            if self.augment.parts:
                # seeded for every batch and process, so that a resumed run draws the numbers of an uninterrupted one
                seed = np.random.SeedSequence((self.config.seed, step, distributed.rank())).generate_state(1)[0]
                self.generator.manual_seed(int(seed))
                items = self.augment(items)
            yield items if texts is None else PairBatch(items, texts), labels, ids


def build(
    config: TrainConfig,
    start: Path | None = None,
    *,
    resumed: bool = False,
    given: Task | None = None,
    known: KnownPairs | None = None,
    trains: bool = True,
) -> Parts:
    """Open the data, or use those that are `given`, and build the network, the objective and the batches.

    A resumed run has a folder in which it was started, `start`, and with a checkpoint, `resumed`, also its weights. If
    pairs of the given items are `known`, batches are made of these, whatever the classes. A run that `trains` nothing
    needs no positive pairs.

    Raises
    ------
    TrainError or ValueError
        If a part is not valid; the message is one line.
    """
    accelerator = make_accelerator(config)
    seed_random_state(config.seed)
    task, resolved = settle(config, start, given)
    note = defaults_note(config, resolved, task)
    config = resolved
    if config.precision != accelerator.mixed_precision:  # set by a recipe or "auto"
        accelerator = make_accelerator(config)
        config = config.replace(precision=accelerator.mixed_precision)
    if config.freeze_bn is None:
        config = config.replace(freeze_bn=config.starts_pretrained or config.lora is not None)
    texts = None if config.text_trunk is None else TextRows.of(task.train, config, start)
    step = _new_step(config, task, start, resumed, text_length=None if texts is None else texts.length)
    if trains and texts is None:
        check_positives(task.train, step.objective, config)
    if trains and texts is None and known is None:
        check_batch_size(step.objective, config)
    check_chunks(config, step.objective, accelerator)
    check_many_classes(config, accelerator)
    config = _with_pool(config, step.embedder)
    on_gpu = accelerator.device.type == "cuda"
    if accelerator.num_processes > 1 and on_gpu and not config.freeze_bn:
        step = nn.SyncBatchNorm.convert_sync_batchnorm(step)
    train, unseen, seen = _sets(task, step.embedder, config, accelerator)
    if config.embedding_start == "whitening" and not resumed:
        with accelerator.main_process_first():
            start_embedding(step.embedder.to(accelerator.device), train, config)
    ask_teachers(step.objective, task.train, config, start)
    if config.patience is not None and unseen is None:
        raise TrainError("config: patience needs validation classes, and there are none; leave it out")
    sampler = _sampler(config, train, known)
    check_clusters(step.objective, sampler)
    if config.steps is not None:
        config = config.replace(epochs=ceil(config.steps / len(sampler)))
    generator = torch.Generator()
    return Parts(
        config=config,
        accelerator=accelerator,
        task=task,
        train=train,
        unseen=unseen,
        seen=seen,
        step=step,
        sampler=sampler,
        loader=_loader(config, train, sampler, pin_memory=on_gpu),
        augment=_augment(config, generator),
        generator=generator,
        averages=Averages(step.embedder, step.objective, config.ema),
        weights=weights_note(config, step.embedder),
        note=note,
        known=known,
        start=start,
        texts=texts,
    )


def _new_step(
    config: TrainConfig, task: Task, start: Path | None, resumed: bool, text_length: int | None = None
) -> Step:
    """Build embedder and objective for a task.

    A `resumed` run reads its weights from the checkpoint later; those of a frozen trunk give the features at once.
    """
    later = resumed and not config.freeze_trunk and not config.trunk.startswith("transformers:")
    if later:
        bare = config.without_weights()
    else:
        bare = config
    # samplers of classes draw all classes equally often
    if config.sampler.strip() == "random":
        counts = np.maximum(task.train.class_counts, 1).tolist()
    else:
        counts = None
    step = make_step(
        bare,
        item_shape(task.train, config),
        len(task.train.classes),
        start,
        class_counts=counts,
        text_length=text_length,
    )
    scale = step.embedder.scale
    if (
        isinstance(scale, Standardize) and config.network_weights is None
    ):  # a trained network keeps the standardization of its own rows
        scale.learn(all_rows(task.train))
    choose_trained(step.embedder, config, item_shape(task.train, config))
    if text_length is not None:
        check_objective(step.objective)
    if step.episodes is not None:
        step.episodes.refuse(step.objective)
    return step


def choose_trained(embedder: Embedder, config: TrainConfig, shape: tuple[int, ...]) -> None:
    """Set which weights of the trunk are trained, and whether activations are stored for the backward pass."""
    if config.gradient_checkpointing:
        checkpoint_gradients(embedder.trunk)
        if embedder.text is not None:
            checkpoint_gradients(embedder.text.trunk)
    if config.last_stage:
        embedder.train_only(last_stage(embedder.trunk))
    if config.lora is not None:
        # an adapter changes the convolution, so its normalization must not be folded into it
        unfold_norms(embedder.trunk)
        add_adapters(embedder.trunk, config.lora, config.adapter_scale * config.lora)
        fold(embedder.trunk, shape)


def fold(trunk: nn.Module, shape: tuple[int, ...]) -> None:
    """Fold frozen batch normalizations of a trunk of images into its convolutions."""
    if len(shape) == 3:
        fold_norms(trunk, (getattr(trunk, "in_channels", shape[0]), *shape[1:]))


def unfold(embedder: Embedder) -> None:
    """Undo what `fold` has done to the trunk of a network."""
    unfold_norms(embedder.trunk)


def _sampler(config: TrainConfig, train: Dataset, known: KnownPairs | None) -> BatchSampler:
    try:
        if known is not None:
            return KnownPairBatches(known, config.batch_size, config.seed)
        with named_by(config.origin):
            return make_sampler(config.sampler, train.labels, config.batch_size, config.seed)
    except TrustError:
        raise
    except ValueError as error:
        raise TrainError(str(error)) from error


def steps_of_epochs(config: TrainConfig, epochs: float) -> int:
    """Return the number of batches that a number of epochs takes on the data of a config; this opens them."""
    task, config = settle(config)
    return max(1, round(epochs * len(_sampler(config, task.train, None))))


def check_clusters(objective: nn.Module, sampler: BatchSampler) -> None:
    """Raise a TrainError if an objective trains a group of dimensions for each cluster, and batches have no clusters.

    Raises
    ------
    TrainError
        If the sampler has no clusters, or not one for each group; the message is one line.
    """
    for term in objective.modules():
        if not isinstance(term, DivideAndConquer):
            continue
        if not isinstance(sampler, ClusterSampler):
            expected = f"ClusterSampler(clusters={term.number})"
            raise TrainError(f"config: sampler: DivideAndConquer needs {expected}, got {type(sampler).__name__}")
        if sampler.number != term.number:
            got = f"{sampler.number} clusters and {term.number} groups"
            raise TrainError(f"config: sampler: DivideAndConquer needs one cluster for each group, got {got}")


def _loader(config: TrainConfig, train: Dataset, sampler: BatchSampler, *, pin_memory: bool) -> Loader:
    sizes: dict[str, Any] = {}
    crop = whole_crop(config)
    if train.kind == "image" and crop is not None:
        sizes = {"image_size": crop.size or config.image_size, "crop": crop}
    elif train.kind == "image" and (config.preprocessing is None or _crops(Augment.parse(config.augment))):
        sizes = {"image_size": config.resize or config.image_size, "resizing": resizing_of(config)}
    elif train.kind == "image":
        sizes = image_sizes_of(config)
    how: dict[str, Any] = {"workers": config.workers, "pin_memory": pin_memory, "seed": config.seed}
    batches: Any = sampler if crop is None else TaggedBatches(sampler, (config.seed, distributed.rank()))
    return make_loader(train, batch_sampler=batches, **how, **sizes)


def make_step(
    config: TrainConfig,
    shape: tuple[int, ...],
    num_classes: int,
    start: Path | None = None,
    *,
    class_counts: Sequence[int] | None = None,
    **towers: Any,
) -> Step:
    """Build the network and the objective; relative paths of weights refer to the current folder, or to `start`.

    `towers` are further arguments of `make_embedder`.
    """
    embedder = make_embedder(config, shape, start, **towers)
    sizes: dict[str, Any] = {"num_classes": num_classes, "embedding_dim": config.embedding_dim}
    with named_by(config.origin):
        term = parse_objective(config.objective, **sizes, class_counts=class_counts)
    objective = with_many_classes(as_sum(term), config)
    return Step(embedder, objective, from_features=config.freeze_trunk, episodes=Episodes.of(config))


def make_embedder(
    config: TrainConfig,
    shape: tuple[int, ...],
    start: Path | None = None,
    *,
    architecture: Mapping[str, Any] | None = None,
    text_length: int | None = None,
    text_architecture: Mapping[str, Any] | None = None,
    embedding_layer: bool = True,
) -> Embedder:
    """Build the embedder, as `make_step` does.

    Parameters
    ----------
    config, shape, start
        As in `make_step`.
    architecture, text_architecture : mapping, optional
        Settings of the trunk and the text trunk in a checkpoint.
    text_length : int, optional
        Number of tokens of a text, if there are texts.
    embedding_layer : bool
        Whether features pass an embedding layer.
    """
    if config.weights_file is None:
        weights = None
    else:
        weights = resolve_source(config.weights_file, start)
    with named_by(config.origin):
        trunk = make_trunk(
            with_resolved_folder(config.trunk, start),
            shape,
            weights=weights,
            pretrained=config.pretrained is True,
            preprocessing=config.preprocessing,
            architecture=architecture,
        )
    if ":" in config.trunk:
        fold(trunk, shape)
    embedder = Embedder(
        trunk,
        config.embedding_dim if embedding_layer else None,
        dropout=config.dropout,
        freeze_bn=config.freeze_bn or False,
        freeze_trunk=config.freeze_trunk,
        scale=_scale(config, shape),
        text=_text_tower(config, text_length, text_architecture, start),
    )
    if are_one_model(config) and text_architecture is None:
        start_in_shared_space(embedder)
    if config.network_weights is not None:
        trunk.provenance = load_weights(embedder, resolve_source(config.network_weights, start), NETWORK)
    return embedder


def _text_tower(
    config: TrainConfig, length: int | None, architecture: Mapping[str, Any] | None, start: Path | None
) -> Embedder | None:
    """Build the tower of texts; None without a text trunk."""
    if config.text_trunk is None:
        return None
    if length is None:
        raise TrainError("checkpoint: damaged; it lacks text_length, the length of the texts of its second tower")
    with named_by(config.origin):
        trunk = make_trunk(with_resolved_folder(config.text_trunk, start), (length,), architecture=architecture)
    return Embedder(trunk, config.embedding_dim, dropout=config.dropout)


def _scale(config: TrainConfig, shape: tuple[int, ...]) -> nn.Module | None:
    """Return the module that scales items before the trunk, or None."""
    record = config.preprocessing
    if record is not None and len(shape) == 3:
        return Normalize(record.mean, record.std)
    return Standardize(*shape) if config.standardize else None


def _with_pool(config: TrainConfig, embedder: Embedder) -> TrainConfig:
    """Return the config with the pooling of the trunk, which depends on its weights."""
    module = getattr(embedder.trunk, "module", None)
    if config.preprocessing is None or not isinstance(module, TransformersTrunk):
        return config
    return config.replace(preprocessing=msgspec.structs.replace(config.preprocessing, pool=module.pool))


def weights_note(config: TrainConfig, embedder: Embedder) -> str:
    """Return a sentence on the origin of the trunk's weights, and one on images if the header of the file has one."""
    parameters = sum(parameter.numel() for parameter in embedder.trunk.parameters())
    note = cast(Trunk, embedder.trunk).provenance.sentence(config.trunk, parameters)
    for tower in filter(None, (embedder, embedder.text)):
        module = getattr(tower.trunk, "module", None)
        if isinstance(module, TransformersTextTrunk):
            note += f" Texts are pooled by {module.pooling}."
    if config.preprocessing is not None and FROM_HEADER in config.preprocessing.source:
        note += f" Images are prepared as in {config.preprocessing.source}."
    return note


def _crops(augment: Augment) -> bool:
    return any(isinstance(part, Crop | ResizedCrop) for part in augment.parts)


def _augment(config: TrainConfig, generator: torch.Generator) -> Augment:
    """Return the random transforms; crops without a size get the size that the trunk requires."""
    augment = Augment.parse(config.augment, generator).train()
    # this crop is applied when items are read
    augment.parts = [part for part in augment.parts if part != whole_crop(config)]
    if config.preprocessing is not None and config.image_size is not None:
        augment.parts = [
            replace(part, size=config.image_size) if isinstance(part, Crop | ResizedCrop) and not part.size else part
            for part in augment.parts
        ]
    return augment


def as_sum(term: Term) -> Sum:
    """Return an objective of one term as a sum, too, so that its parts are always logged."""
    return term if isinstance(term, Sum) else Sum(term.parts())


def seen_sample(train: Dataset, size: int, seed: int, fewest: int = 2) -> Dataset:
    """Draw training classes with about `size` items in total, and not fewer than `fewest` of them."""
    order = np.random.default_rng(seed).permutation(len(train.classes))
    enough = int(np.searchsorted(train.class_counts[order].cumsum(), size)) + 1
    return train.subset(np.isin(train.labels, order[: max(fewest, enough)]))


def _sets(
    task: Task, embedder: Embedder, config: TrainConfig, accelerator: Accelerator
) -> tuple[Dataset, Dataset | None, Dataset]:
    train = task.train
    unseen = task.validation
    if config.freeze_trunk:
        embedder.to(accelerator.device)
        sizes = sizes_of(config)
        with accelerator.main_process_first():
            train = cached_features(embedder, train, **sizes)
            if unseen is not None:
                unseen = cached_features(embedder, unseen, **sizes)
    size = min(len(train), 1000) if unseen is None else len(unseen)
    return train, unseen, replace(seen_sample(train, size, config.seed), name=f"{train.name}, seen classes")


def text_metadata(tokens: Tokens) -> dict[str, str]:
    """Return the metadata of a checkpoint from which its texts are tokenized."""
    return {"tokenizer": tokens.content, "prompt": tokens.prompt}


def checked(config: TrainConfig) -> TrainConfig:
    """Return the config, or raise a TypeError if it is not one."""
    if not isinstance(config, TrainConfig):
        raise TypeError(
            f"config: expected a TrainConfig, as TrainConfig.of(data=...) makes, got {type(config).__name__}"
        )
    return config
