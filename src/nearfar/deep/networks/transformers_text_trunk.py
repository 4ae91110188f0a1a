"""Text models of transformers as trunks, from rows of token numbers to features."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from .text_settings import Dense, LayerNorm, Pooling, TextSettings, UnitLength, read_text_settings
from .tokens import NO_TOKEN, Tokens
from .transformers_trunk import TransformersTrunk
from .weights import TrunkError, load_weights

LAYER_FILES = ("model.safetensors", "pytorch_model.bin")
FEWEST = 1e-9
"""Least sum of the weights of a mean, as in sentence-transformers; it is smaller only without tokens."""
TOKENS_ON_PROCESSOR = 512
"""Number of tokens of a batch of texts on a CPU, with the padding: the activations of more leave its cache."""
TOKENS_ON_ACCELERATOR = 2**15
"""The same on a GPU: enough to use it fully."""


class ToUnitLength(nn.Module):
    """Scales vectors (n, d) to unit length."""

    def forward(self, features: Tensor) -> Tensor:
        return F.normalize(features, dim=-1)


class TransformersTextTrunk(TransformersTrunk):
    """A text model of transformers, or the text tower of a model of images and texts.

    Parameters
    ----------
    inner : Module
        Model of transformers.
    pooling : Pooling
        How the features of a text are computed from those of its tokens, and the layers that follow. "pooler" is the
        model's own pooler, as in the text towers of CLIP and SigLIP.
    """

    def __init__(self, inner: nn.Module, pooling: Pooling) -> None:
        super().__init__(inner, "+".join(pooling.modes))
        self.pooling = pooling
        self.layers = nn.Sequential(*(_layer(layer) for layer in pooling.layers))

    def maps(self, images: Tensor) -> Tensor:
        """Return the last hidden states of the tokens, (n, L, C)."""
        hidden: Tensor = self._outputs(images).last_hidden_state
        return hidden

    def forward(self, images: Tensor) -> Tensor:
        """Return the (n, D) features of rows of token numbers (n, L), padded with -1.

        Texts of similar length are computed together. An exported network computes all of them at once, as they are
        padded.
        """
        if torch.compiler.is_exporting() or not len(images):
            return self._features(images)
        lengths = (images > NO_TOKEN).sum(1).cpu().numpy()
        batches = batches_by_length(lengths, token_budget(images.device))
        # the padding behind the longest text is never computed
        if len(batches) == 1:
            return self._features(images[:, : batches[0][1]])
        order = torch.from_numpy(np.concatenate([places for places, _ in batches])).to(images.device)
        of_batches = order.split([len(places) for places, _ in batches])
        parts = [
            self._features(images[places, :length]) for places, (_, length) in zip(of_batches, batches, strict=True)
        ]
        # back from the order of the lengths to that of the batch
        return torch.cat(parts)[order.argsort()]

    def _features(self, rows: Tensor) -> Tensor:
        outputs = self._outputs(rows)
        parts = [self._pooled(outputs, rows, mode) for mode in self.pooling.modes]
        features: Tensor = self.layers(torch.cat(parts, dim=1))
        return features[:, : self.pooling.truncate_dim]

    def _pooled(self, outputs: Any, rows: Tensor, mode: str) -> Tensor:
        if mode == "pooler":
            pooled: Tensor = outputs.pooler_output
            return pooled
        places = _places(rows)
        counted = places & (torch.arange(rows.shape[1], device=rows.device) >= self.pooling.prompt_tokens)
        counted |= places & ~counted.any(1, keepdim=True)  # texts that are cut off within the prompt
        return pool_tokens(outputs.last_hidden_state, counted, mode)

    def _outputs(self, rows: Tensor) -> Any:
        config: Any = self.inner.config
        filler = getattr(config, "pad_token_id", None) or 0
        ids = torch.where(rows > NO_TOKEN, rows, filler).long()
        return self.inner(input_ids=ids, attention_mask=_places(rows).long())

    def extra_repr(self) -> str:
        """Return the pooling as text, which distinguishes the features of a frozen trunk from others."""
        return f"pooling={self.pooling!r}"


def pool_tokens(tokens: Tensor, counted: Tensor, mode: str) -> Tensor:
    """Pool the features of the tokens of each text to one vector, as sentence-transformers does.

    Parameters
    ----------
    tokens : (n, L, C) tensor
        Features of the tokens, with the padding at the end.
    counted : (n, L) bool tensor
        Which tokens are pooled.
    mode : {"mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"}
        "mean" and "max" are over all tokens; "cls" and "lasttoken" are the first and the last one;
        "mean_sqrt_len_tokens" is the sum divided by the square root of the number of tokens; "weightedmean" weights
        each token by its place, 1, 2, 3, ...

    Returns
    -------
    Tensor of shape (n, C)
        Pooled features.
    """
    if mode == "max":
        return tokens.masked_fill(~counted[:, :, None], -torch.inf).amax(1)
    if mode in ("cls", "lasttoken"):
        place = counted.int().argmax(1)
        if mode == "lasttoken":
            place = counted.shape[1] - 1 - counted.flip(1).int().argmax(1)
        number = torch.arange(tokens.shape[0], device=tokens.device)  # len() would fix the size of an exported batch
        return tokens[number, place]
    weights = counted.to(tokens.dtype)
    if mode == "weightedmean":
        weights = weights * torch.arange(1, counted.shape[1] + 1, device=tokens.device)
    total = (tokens * weights[:, :, None]).sum(1)
    count = weights.sum(1, keepdim=True).clamp(min=FEWEST)
    return total / (count.sqrt() if mode == "mean_sqrt_len_tokens" else count)


def _layer(layer: Dense | LayerNorm | UnitLength) -> nn.Module:
    """Return a layer after the pooling, whose weights have the names that sentence-transformers gives them."""
    if isinstance(layer, UnitLength):
        return ToUnitLength()
    if isinstance(layer, LayerNorm):
        return nn.Sequential(OrderedDict(norm=nn.LayerNorm(layer.dimension)))
    linear = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias)
    return nn.Sequential(OrderedDict(linear=linear, activation=getattr(nn, layer.activation)()))


def token_budget(device: torch.device) -> int:
    """Return the number of tokens of a batch of texts that a device computes fastest."""
    return TOKENS_ON_PROCESSOR if device.type == "cpu" else TOKENS_ON_ACCELERATOR


def batches_by_length(lengths: NDArray[np.integer[Any]], budget: int) -> list[tuple[NDArray[np.intp], int]]:
    """Return the places of texts of similar length, the longest first, and the length of the longest of them.

    A batch has at most `budget` tokens with its padding, or one text.

    >>> [(places.tolist(), length) for places, length in batches_by_length(np.array([1, 5, 2, 4]), 8)]
    [([1], 5), ([3, 2], 4), ([0], 1)]
    """
    order = np.argsort(-lengths, kind="stable")
    batches = []
    begin = 0
    while begin < len(order):
        length = max(int(lengths[order[begin]]), 1)
        end = begin + max(budget // length, 1)
        batches.append((order[begin:end], length))
        begin = end
    return batches


def _places(rows: Tensor) -> Tensor:
    """Return the attention mask of rows, (n, L) bool. The first place counts even if the text is empty."""
    return (rows > NO_TOKEN) | (torch.arange(rows.shape[1], device=rows.device) == 0)


def build_text_trunk(model: nn.Module, folder: Path | None, options: Mapping[str, Any]) -> TransformersTextTrunk:
    """Return the trunk of a text model, with the pooling and the layers that its folder states.

    Parameters
    ----------
    model : Module
        Model of transformers: a text model, or a model of images and texts, whose text tower is taken.
    folder : Path or None
        Folder of the model; None for a model without weights.
    options : mapping
        Options of the user, as in `read_text_settings`.
    """
    inner = text_half(model)
    settings = TextSettings() if folder is None else read_text_settings(folder, options)
    pooling = own_pooling(inner) if settings.pooling is None else settings.pooling
    if folder is not None and settings.prompt and not settings.pools_prompt:
        count = Tokens.of_folder(folder, options).count_prompt(settings.prompt)
        pooling = msgspec.structs.replace(pooling, prompt_tokens=count)
    trunk = TransformersTextTrunk(inner, pooling)
    for layer, place in zip(trunk.layers, settings.folders, strict=True):
        if next(layer.parameters(), None) is not None:
            _load_layer(layer, Path(str(folder)) / place)
    return trunk


def text_half(model: nn.Module) -> nn.Module:
    """Return a text model, the text tower of a model of images and texts, or the encoder of one with a decoder."""
    if hasattr(model, "encoder") and hasattr(model, "decoder"):
        return cast(nn.Module, model.encoder)
    return cast(nn.Module, getattr(model, "text_model", model))


def own_pooling(model: nn.Module) -> Pooling:
    """Return the pooling of a model whose folder states none.

    Towers of models of images and texts have a pooler of their own. Models made to continue texts, whose last token
    alone has seen the whole text, pool that token, and others the mean, as in sentence-transformers.
    """
    config: Any = model.config
    if str(config.model_type).endswith("_text_model"):
        return Pooling(modes=("pooler",))
    names = getattr(config, "architectures", None) or [""]
    continues = names[0].endswith("ForCausalLM") and getattr(config, "is_causal", True)
    return Pooling(modes=("lasttoken" if continues else "mean",))


def _load_layer(layer: nn.Module, folder: Path) -> None:
    file = next((folder / name for name in LAYER_FILES if (folder / name).is_file()), None)
    if file is None:
        raise TrunkError(f"{folder}: has no {LAYER_FILES[0]}, the weights of a layer that modules.json names")
    load_weights(layer, file)
