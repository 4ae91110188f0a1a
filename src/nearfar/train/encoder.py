"""A pretrained encoder as it is, which embeds items without a training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from torch import Tensor, nn

from ..data.readers.in_memory import GIVEN
from ..deep.networks.embedder import Embedder
from ..deep.networks.transformers_trunk import TransformersTrunk, architecture_of
from ..deep.networks.trunks import parse_trunk
from .checkpoint import preserve_random_state, seed_random_state
from .config import TrainConfig
from .estimator import DeepMetric
from .loading import laid_out
from .loop import text_metadata
from .network import make_embedder, weights_note
from .pairs import start_in_shared_space
from .scale.devices import make_accelerator
from .task import own_preprocessing, text_tokens

TOKENIZER = "tokenizer.json"


def load_encoder(name: str) -> DeepMetric:
    """Load a pretrained encoder, which embeds images as its weights expect them, or texts.

    Parameters
    ----------
    name : str
        ``timm:NAME``, ``transformers:NAME`` of a model of images, or ``transformers:FOLDER``, also of a model of texts,
        or of images and texts, whose embeddings are in one space. Options in parentheses are as for the trunk of
        `TrainConfig`.

    Returns
    -------
    DeepMetric
        A network that nothing was trained on. Its embeddings are the pooled features of the encoder.

    Raises
    ------
    TrunkError
        If the name is unknown, a package is not installed, or the weights are not available.
    """
    with preserve_random_state():
        config = TrainConfig.of(data=GIVEN, trunk=name, pretrained=True, freeze_trunk=True, keep="trained")
        config = config.replace(**own_preprocessing(config))
        seed_random_state(config.seed)
        if config.preprocessing is None:
            return _of_texts(config)
        return _of_images(config)


def _of_texts(config: TrainConfig) -> DeepMetric:
    tokens = text_tokens(config)
    embedder = make_embedder(config, (tokens.max_tokens,), embedding_layer=False)
    about: dict[str, Any] = {"shape": [tokens.max_tokens], "embedding_layer": False, **text_metadata(tokens)}
    return _ready(config, embedder, about)


def _of_images(config: TrainConfig) -> DeepMetric:
    record = config.preprocessing
    assert record is not None
    side = record.image_size[0]
    config = config.replace(image_size=side, resize=record.resize)
    shape = (record.channels, side, side)
    about: dict[str, Any] = {"shape": [*shape]}
    folder = Path(parse_trunk(config.trunk)[0].partition(":")[2])
    if config.trunk.startswith("transformers:") and (folder / TOKENIZER).is_file():
        config = config.replace(text_trunk=config.trunk, embedding_dim=1)
        tokens = text_tokens(config)
        embedder = make_embedder(config, shape, text_length=tokens.max_tokens)
        project(embedder)
        about |= {"text_length": tokens.max_tokens, **text_metadata(tokens)}
    else:
        embedder = make_embedder(config, shape, embedding_layer=False)
        about["embedding_layer"] = False
    return _ready(with_pool(config, embedder), embedder, about)


def with_pool(config: TrainConfig, embedder: Embedder) -> TrainConfig:
    """Return the config with the pooling of the trunk, which depends on its weights."""
    module = getattr(embedder.trunk, "module", None)
    if config.preprocessing is None or not isinstance(module, TransformersTrunk):
        return config
    return config.replace(preprocessing=msgspec.structs.replace(config.preprocessing, pool=module.pool))


def project(embedder: Embedder) -> None:
    """Give both towers of one model its projections into the space that images and texts share as embedding layers."""
    assert embedder.text is not None
    for tower in (embedder, embedder.text):
        projection: Tensor = tower.trunk.module.projection  # type: ignore[union-attr, assignment]
        k, d = projection.shape
        tower.layer = nn.Linear(d, k)
        tower.embedding_dim = k
    start_in_shared_space(embedder)


def _ready(config: TrainConfig, embedder: Embedder, about: dict[str, Any]) -> DeepMetric:
    """Return the network as an estimator, with the metadata from which its checkpoint is read again."""
    for key, tower in (("architecture", embedder), ("text_architecture", embedder.text)):
        module = None if tower is None else getattr(tower.trunk, "module", None)
        if isinstance(module, TransformersTrunk):
            about[key] = architecture_of(module)
    about |= {"columns": [], "num_classes": 0, "classes": None, "epoch": 0, "step": 0, "best": None}
    about["weights"] = weights_note(config, embedder)
    config = config.replace(embedding_dim=embedder.embedding_dim)
    network = laid_out(embedder, tuple(about["shape"])).to(make_accelerator(config).device).eval()
    return DeepMetric.of_network(network, config, about, owner=config.trunk)
