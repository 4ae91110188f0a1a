"""A pretrained encoder as it is, which embeds items without a training."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec
import torch
from torch import Tensor, nn

from ..data.readers.in_memory import GIVEN
from ..deep.networks.embedder import Embedder
from ..deep.networks.ge2e import WINDOW_SECONDS
from ..deep.networks.transformers_sound_trunk import is_of_sounds, longest_of
from ..deep.networks.transformers_trunk import TransformersTrunk, architecture_of
from ..deep.networks.trunks import parse_trunk
from ..deep.networks.weights import TrunkError
from ..io.sources import PIXELS
from ..numerics.mel import SOUND_RATE
from .checkpoint import preserve_random_state, seed_random_state
from .config import TrainConfig
from .estimator import DeepMetric
from .loading import laid_out
from .loop import text_metadata
from .network import make_embedder, weights_note
from .pairs import start_in_shared_space
from .scale.devices import make_accelerator
from .task import MOST_SECONDS, own_preprocessing, text_tokens

TOKENIZER = "tokenizer.json"
GE2E_FILE = "ge2e:"
THUMBNAIL = 24
"""Side of the thumbnails of `pixels`. Larger ones differ more between two copies of a photo, after a crop, for
example."""
BLANK = 1 / 255
"""Standard deviation of the shades of an image that counts as blank. It keeps the embeddings of blank images finite."""


def load_encoder(name: str) -> DeepMetric:
    """Load a pretrained encoder, which embeds images as its weights expect them, or texts.

    Parameters
    ----------
    name : str
        ``timm:NAME``, ``transformers:NAME`` of a model of images, or ``transformers:FOLDER``, also of a model of texts,
        of sounds, or of images and texts, whose embeddings are in one space; ``ge2e:FILE``, the encoder of speakers
        with its file of weights. Options in parentheses are as for the trunk of `TrainConfig`; the option
        ``pretrained`` is a local file of weights. Or ``pixels``: thumbnails of images, of 24 x 24 shades of gray, whose
        cosine is their correlation.

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
        if name == PIXELS:
            return _of_pixels()
        weights: str | bool = True
        if name.startswith(GE2E_FILE):  # an encoder of this library, whose weights are in a file
            weights = name.removeprefix(GE2E_FILE)
            name = "ge2e"
        else:
            name, weights = with_own_weights(name)
        config = TrainConfig.of(data=GIVEN, trunk=name, pretrained=weights, freeze_trunk=True, keep="trained")
        config = config.replace(**own_preprocessing(config))
        seed_random_state(config.seed)
        if config.trunk == "ge2e" or is_of_sounds(folder_of(config)):
            return _of_sounds(config)
        if config.preprocessing is None:
            return _of_texts(config)
        return _of_images(config)


def folder_of(config: TrainConfig) -> Path:
    """Return the folder of a model of transformers, whether it exists or not."""
    return Path(parse_trunk(config.trunk)[0].partition(":")[2])


def _of_sounds(config: TrainConfig) -> DeepMetric:
    seconds = WINDOW_SECONDS if config.trunk == "ge2e" else longest_of(folder_of(config), MOST_SECONDS)
    shape = (round(seconds * SOUND_RATE),)
    embedder = make_embedder(config, shape, embedding_layer=False)
    about: dict[str, Any] = {"shape": [*shape], "sounds": True, "embedding_layer": False}
    return _ready(config, embedder, about, seconds=seconds)


def with_own_weights(name: str) -> tuple[str, str | bool]:
    """Return the trunk of an encoder without the option `pretrained`, and its value: a file; True means the hub's.

    >>> with_own_weights("timm:resnet18(pretrained='weights.safetensors', drop_rate=0.1)")
    ('timm:resnet18(drop_rate=0.1)', 'weights.safetensors')
    """
    trunk, options = parse_trunk(name)
    weights = options.pop("pretrained", True)
    if not isinstance(weights, str | bool) or weights is False:
        raise TrunkError(f"trunk {trunk}: pretrained: expected a file of weights, got {weights!r}")
    settings = ", ".join(f"{option}={value!r}" for option, value in options.items())
    return f"{trunk}({settings})" if settings else trunk, weights


def _of_pixels() -> DeepMetric:
    """Return thumbnails x of n shades as (x - mean(x), BLANK sqrt(n)), whose cosine is their correlation.

    For images that are not blank, the last number is negligible. Two blank images have a cosine of 1.
    """
    n = THUMBNAIL**2
    shape = (1, THUMBNAIL, THUMBNAIL)
    sizes: dict[str, Any] = {"image_size": THUMBNAIL, "resize": THUMBNAIL, "squash": True}
    config = TrainConfig.of(data=GIVEN, trunk="identity", keep="trained", embedding_dim=n + 1, **sizes)
    embedder = make_embedder(config, shape)
    layer = cast(nn.Linear, embedder.layer)
    with torch.no_grad():
        layer.weight[:n] = torch.eye(n) - 1 / n
        layer.weight[n] = 0.0
        layer.bias.zero_()
        layer.bias[n] = BLANK * n**0.5
    return _ready(config, embedder, {"shape": [*shape]}, owner=PIXELS)


def _of_texts(config: TrainConfig) -> DeepMetric:
    tokens = text_tokens(config)
    embedder = make_embedder(config, (tokens.max_tokens,), embedding_layer=False)
    about: dict[str, Any] = {"shape": [tokens.max_tokens], "embedding_layer": False, **text_metadata(tokens)}
    return _ready(config, embedder, about)


def _of_images(config: TrainConfig) -> DeepMetric:
    record = config.preprocessing
    assert record is not None
    side = record.image_size[0]
    shape = (record.channels, side, side)
    about: dict[str, Any] = {"shape": [*shape]}
    folder = folder_of(config)
    if config.trunk.startswith("transformers:") and (folder / TOKENIZER).is_file():
        config = config.replace(text_trunk=config.trunk, embedding_dim=1)
        tokens = text_tokens(config)
        embedder = make_embedder(config, shape, text_length=tokens.max_tokens)
        project(embedder)
        about |= {"text_length": tokens.max_tokens, **text_metadata(tokens)}
    else:
        embedder = make_embedder(config, shape, embedding_layer=False)
        about["embedding_layer"] = False
    module = getattr(embedder.trunk, "module", None)
    if isinstance(module, TransformersTrunk):  # whose pooling depends on its weights
        record = msgspec.structs.replace(record, pool=module.pool)
    return _ready(config, embedder, about, image_size=side, resize=record.resize, preprocessing=record)


def project(embedder: Embedder) -> None:
    """Give both towers of one model its projections into the space that images and texts share as embedding layers."""
    assert embedder.text is not None
    for tower in (embedder, embedder.text):
        projection: Tensor = tower.trunk.module.projection  # type: ignore[union-attr, assignment]  # as CLIP has
        k, d = projection.shape
        tower.layer = nn.Linear(d, k)
        tower.embedding_dim = k
    start_in_shared_space(embedder)


def _ready(config: TrainConfig, embedder: Embedder, about: dict[str, Any], owner: str = "", **found: Any) -> DeepMetric:
    """Return the network as an estimator, with the metadata from which its checkpoint is read again.

    `owner` is its name in messages, by default that of its trunk, and `found` are further settings, which the weights
    decide.
    """
    for key, tower in (("architecture", embedder), ("text_architecture", embedder.text)):
        module = None if tower is None else getattr(tower.trunk, "module", tower.trunk)
        if isinstance(module, TransformersTrunk):
            about[key] = architecture_of(module)
    about |= {"columns": [], "num_classes": 0, "classes": None, "epoch": 0, "step": 0, "best": None}
    about["weights"] = weights_note(config, embedder)
    config = config.replace(embedding_dim=embedder.embedding_dim, **found)
    network = laid_out(embedder, tuple(about["shape"])).to(make_accelerator(config).device).eval()
    return DeepMetric.of_network(network, config, about, owner=owner or config.trunk)
