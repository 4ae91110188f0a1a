"""Pairs of images and texts: two towers, whose embeddings are compared with each other and not within one tower.

    L = (L(x, t) + L(t, x)) / 2        x: embeddings of images, t: those of their texts

L(a, b) is the objective with a as samples and b as what they are compared with, ``objective(a, ref=b)``. With NT-Xent
it is the loss of CLIP (Radford et al., 2021).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..data import Dataset
from ..data.readers.texts import first_words
from ..deep.networks.embedder import Embedder, Features
from ..deep.networks.pair_terms import PairTerm
from ..deep.networks.tokens import Tokens
from ..deep.networks.transformers_trunk import projection_dim
from ..deep.networks.trunks import parse_trunk
from ..deep.objective.terms import Sum
from ..deep.proxies.class_proxies import ClassProxyLoss
from ..deep.proxies.heads import HeadLoss
from ..evaluation import evaluate
from ..evaluation.scores import Scores
from ..numerics.types import Ints
from .config import TrainConfig, TrainError
from .features import Floats, embed
from .task import text_tokens, tokenized, tokenizer_folder

KS = (1, 5, 10)
"""Values of K of Recall@K that are commonly reported for images and texts."""
CLIP_LOSS = "NTXentLoss(temperature=0.07)"
"""The loss of CLIP at its initial temperature."""


class PairBatch(NamedTuple):
    """A batch of images with their texts.

    Attributes
    ----------
    items : Tensor
        Images (n, C, H, W), or features (n, D) of a frozen trunk.
    texts : Tensor
        Token numbers (n, L); -1 after the end of a text.
    """

    items: Tensor
    texts: Tensor


class PairFeatures(NamedTuple):
    """Outputs of two towers for n pairs: pooled features and embeddings of the images, and of the texts."""

    pooled: Tensor
    embedding: Tensor
    text_pooled: Tensor
    text_embedding: Tensor

    @classmethod
    def of(cls, images: Features, texts: Features) -> PairFeatures:
        """Combine the outputs of both towers."""
        return cls(images.pooled, images.embedding, texts.pooled, texts.embedding)


class TextRows(NamedTuple):
    """Texts of the training items as rows of token numbers, and their tokenizer.

    Attributes
    ----------
    tokens : Tokens
        The tokenizer.
    rows : Tensor
        Token numbers (n, L), one row per training item.
    """

    tokens: Tokens
    rows: Tensor

    @property
    def length(self) -> int:
        """Number of tokens of a row."""
        return self.rows.shape[1]

    @classmethod
    def of(cls, train: Dataset, config: TrainConfig, start: Path | None) -> TextRows:
        """Tokenize the texts of the training; rows are as long as the longest of them, up to the model's limit."""
        tokens = text_tokens(config, start)
        return cls(tokens, torch.from_numpy(tokens.rows(train.texts_given)))


def value_both_ways(objective: Sum, found: PairFeatures, labels: Tensor, ids: Tensor | None) -> Tensor:
    """Return the mean of the objective from images to texts and from texts to images.

    The parts that the objective keeps are means of both, too.

    Parameters
    ----------
    objective : Sum
        The objective.
    found : PairFeatures
        Outputs for n pairs. With several processes, those of this process.
    labels : Tensor of shape (n,)
        Classes: a text belongs to all images of its class.
    ids : Tensor of shape (n,), optional
        Numbers of the pairs in the training set.

    Returns
    -------
    Tensor
        A scalar.
    """
    images = found.embedding
    texts = found.text_embedding
    shared: dict[str, Any] = {"ref_labels": labels, "ids": ids}
    of_images: Tensor = objective(images, labels, ref=texts, pooled=found.pooled, **shared)
    parts = objective.parts_
    of_texts: Tensor = objective(texts, labels, ref=images, pooled=found.text_pooled, **shared)
    objective.parts_ = {name: (parts[name] + value) / 2 for name, value in objective.parts_.items()}
    return (of_images + of_texts) / 2


def check_objective(objective: Sum, what: str = "pairs") -> None:
    """Raise a TrainError for terms that need one class per sample: not pairs, label sets or several levels.

    Raises
    ------
    TrainError
        With one line that names the term.
    """
    for term in objective.terms:
        name = getattr(term, "title", type(term).__name__)
        if isinstance(term, ClassProxyLoss | HeadLoss):
            detail = f"compares with class proxies, but {what} need a loss that compares samples"
            raise TrainError(f"config: objective: {name} {detail}, such as {CLIP_LOSS}")
        if isinstance(term, PairTerm):
            raise TrainError(
                f"config: objective: {name} scores pairs of images, and does not support texts; leave it out"
            )


def two_tower_defaults(config: TrainConfig, start: Path | None = None) -> dict[str, Any]:
    """Return the usual settings of two towers, without those that were given.

    Models of other libraries begin with small steps, new layers with larger ones. Both halves of one model of images
    and texts begin in the space that they share.
    """
    usual: dict[str, Any] = {"objective": CLIP_LOSS, "sampler": "random", "ks": KS, "lr_text": 1e-5}
    if ":" in config.trunk:
        usual |= {"lr": 1e-5, "lr_embedding": 1e-3, "lr_proxies": 1e-3}
    if are_one_model(config):
        dim = projection_dim(tokenizer_folder(config, start))
        if dim is not None:
            usual |= {"embedding_dim": dim, "lr_embedding": 1e-5}
    return {name: value for name, value in usual.items() if name not in config.given}


def are_one_model(config: TrainConfig) -> bool:
    """Return whether both towers belong to one model."""
    return config.text_trunk is not None and parse_trunk(config.trunk)[0] == parse_trunk(config.text_trunk)[0]


def start_in_shared_space(embedder: Embedder) -> None:
    """Initialize both embedding layers from the projections of the model of both towers, if their sizes fit."""
    assert embedder.text is not None
    towers = (embedder, embedder.text)
    projections = [getattr(getattr(tower.trunk, "module", None), "projection", None) for tower in towers]
    fitting = [
        projection is not None and isinstance(tower.layer, nn.Linear) and projection.shape == tower.layer.weight.shape
        for tower, projection in zip(towers, projections, strict=True)
    ]
    if not all(fitting):
        return
    with torch.no_grad():
        for tower, projection in zip(towers, projections, strict=True):
            assert isinstance(tower.layer, nn.Linear)
            assert projection is not None
            tower.layer.weight.copy_(projection)
            tower.layer.bias.zero_()


def text_set(pairs: Dataset, tokens: Tokens) -> Dataset:
    """Return the texts of pairs as a data set of rows of token numbers, named by their first words."""
    texts = tokenized(replace(pairs, kind="text", stored=None), tokens)
    return replace(texts, names=tuple(first_words(pairs.texts_given)))


def embed_texts(embedder: Embedder, texts: Dataset) -> Floats:
    """Embed rows of token numbers by the text tower, on its device and in evaluation mode, (n, d)."""
    tower = embedder.text
    if tower is None:
        raise TrainError(f"{texts.name}: the network embeds images only; train it with text_trunk to embed texts")
    return embed(tower, texts)


def scores_both_ways(
    images: Floats, image_labels: Ints, texts: Floats, text_labels: Ints, **how: Any
) -> tuple[Scores, Scores]:
    """Return the scores of texts that search images, and of images that search texts."""
    of_texts = evaluate(texts, text_labels, gallery=images, gallery_labels=image_labels, **how)
    of_images = evaluate(images, image_labels, gallery=texts, gallery_labels=text_labels, **how)
    return of_texts, of_images
