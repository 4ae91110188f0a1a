"""The network of a training: its embedder, built from a config, and the objective that is trained with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn

from ..data.open import resolve_source
from ..deep import distributed
from ..deep.networks.adapters import add_adapters
from ..deep.networks.depth import last_stage
from ..deep.networks.embedder import Embedder, Features
from ..deep.networks.folding import fold_norms, unfold_norms
from ..deep.networks.normalize import Normalize
from ..deep.networks.pair_terms import PairTerm
from ..deep.networks.preprocessing import FROM_HEADER
from ..deep.networks.recomputing import checkpoint_gradients
from ..deep.networks.standardize import Standardize
from ..deep.networks.transformers_text_trunk import TransformersTextTrunk
from ..deep.networks.trunks import make_trunk
from ..deep.networks.weights import NETWORK, Trunk, load_weights
from ..deep.objective.network_layers import lend, watch_layers
from ..deep.objective.parser import parse_objective
from ..deep.objective.terms import Sum, Term
from ..trust import named_by
from .config import TrainConfig, TrainError
from .pairs import PairBatch, PairFeatures, are_one_model, start_in_shared_space, value_both_ways
from .papers.episodic import Episodes
from .scale.many_classes import with_many_classes
from .task import with_resolved_folder


class Trainable(nn.Module):
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
        self.levels: list[Tensor] = []  # (classes,) each: what every class belongs to, the finest level first

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
        parts = self.objective.parts_
        for level, of_class in enumerate(self.levels, start=1):
            at_level = of_class.to(labels.device)[labels]
            coarser: Tensor = self.objective(features.embedding, at_level, pooled=features.pooled, ids=ids)
            value = value + 0.5**level * coarser
        self.objective.parts_ = parts  # those of the finest level
        return value


def make_trainable(
    config: TrainConfig,
    shape: tuple[int, ...],
    num_classes: int,
    start: Path | None = None,
    *,
    class_counts: Sequence[int] | None = None,
    class_sizes: Sequence[int] | None = None,
    **towers: Any,
) -> Trainable:
    """Build the network and the objective; relative paths of weights refer to the current folder, or to `start`.

    `towers` are further arguments of `make_embedder`.
    """
    embedder = make_embedder(config, shape, start, **towers)
    sizes: dict[str, Any] = {"num_classes": num_classes, "embedding_dim": config.embedding_dim}
    with named_by(config.origin):
        term = parse_objective(config.objective, **sizes, class_counts=class_counts, class_sizes=class_sizes)
    objective = with_many_classes(as_sum(term), config)
    episodes = None if config.episodes == "none" else Episodes.of(config)
    return Trainable(embedder, objective, from_features=config.freeze_trunk, episodes=episodes)


def make_embedder(
    config: TrainConfig,
    shape: tuple[int, ...],
    start: Path | None = None,
    *,
    architecture: Mapping[str, Any] | None = None,
    text_length: int | None = None,
    text_architecture: Mapping[str, Any] | None = None,
    embedding_layer: bool = True,
    with_weights: bool = True,
    freeze_trunk: bool = False,
) -> Embedder:
    """Build the embedder, as `make_trainable` does.

    Parameters
    ----------
    config, shape, start
        As in `make_trainable`.
    architecture, text_architecture : mapping, optional
        Settings of the trunk and the text trunk in a checkpoint.
    text_length : int, optional
        Number of tokens of a text, if there are texts.
    embedding_layer : bool
        Whether features pass an embedding layer.
    with_weights : bool
        Whether the network starts from the weights of the config; otherwise those of a checkpoint follow.
    freeze_trunk : bool
        Whether the trunk is frozen, also where the config trains it.
    """
    if config.weights_file is None or not with_weights:
        weights = None
    else:
        weights = resolve_source(config.weights_file, start)
    with named_by(config.origin):
        trunk = make_trunk(
            with_resolved_folder(config.trunk, start),
            shape,
            weights=weights,
            pretrained=with_weights and config.pretrained is True,
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
        freeze_trunk=freeze_trunk or config.freeze_trunk,
        scale=_scale(config, shape),
        text=_text_tower(config, text_length, text_architecture, start),
    )
    if embedder.text is not None and text_architecture is None and are_one_model(config):
        start_in_shared_space(embedder)
    if with_weights and config.network_weights is not None:
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


def as_sum(term: Term) -> Sum:
    """Return an objective of one term as a sum, too, so that its parts are always logged."""
    return term if isinstance(term, Sum) else Sum(term.parts())
