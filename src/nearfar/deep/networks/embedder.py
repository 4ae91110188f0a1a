"""A trunk and an embedding layer, which turn images or rows into pooled features and raw embeddings."""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import isqrt
from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class Features(NamedTuple):
    """Output of an embedder for n items.

    Attributes
    ----------
    pooled : (n, D) tensor
        Features of the trunk.
    embedding : (n, d) tensor
        Raw embeddings. Losses that compare directions normalize them themselves.
    """

    pooled: Tensor
    embedding: Tensor


class Embedder(nn.Module):
    """A trunk followed by one linear embedding layer.

    Parameters
    ----------
    trunk : Module
        Network that maps (n, C, H, W) images in [0, 1], or (n, d) rows, to (n, D) features. Its attribute
        `num_features` is D. If it has the attribute `in_channels`, images are converted to that number of channels
        first; if it has the method `maps`, `feature_map` is available.
    embedding_dim : int or None
        Number d of dimensions of the embeddings, at least 1. None omits the layer, so that the embedding is the pooled
        feature.
    dropout : float
        Share of the pooled features that are dropped before the embedding layer during training.
    freeze_bn : bool or "statistics"
        Whether to freeze the running statistics, scales and shifts of all batch normalizations of the trunk.
        "statistics" freezes the running statistics only, and trains scales and shifts.
    freeze_trunk : bool
        Whether to train the embedding layer only. The trunk is then always in evaluation mode.
    scale : Module, optional
        Module that is applied to the items before the trunk, such as `Standardize` for rows and `Normalize` for images;
        it is not trained.
    text : Embedder, optional
        Second tower with the same embedding dimension, which embeds the texts of images, given as rows of token
        numbers: ``embedder.text(rows)``.

    Attributes
    ----------
    metric : Module
        Module that is applied to the embeddings last: the identity during training, afterwards possibly a fitted
        `Whiten`.
    held : bool
        Whether the trunk is frozen from the next call of `train` on.
    still : list of Module
        Further parts of the trunk that are always in evaluation mode.

    Raises
    ------
    ValueError
        If `embedding_dim` is below 1, or the embeddings of `text` have another dimension.

    Examples
    --------
    >>> from nearfar.deep.networks.mlp import MLP
    >>> embedder = Embedder(MLP(8, width=16), embedding_dim=4)
    >>> pooled, embedding = embedder(torch.zeros(2, 8))
    >>> pooled.shape, embedding.shape
    (torch.Size([2, 16]), torch.Size([2, 4]))
    """

    def __init__(
        self,
        trunk: nn.Module,
        embedding_dim: int | None,
        *,
        dropout: float = 0.0,
        freeze_bn: bool | Literal["statistics"] = False,
        freeze_trunk: bool = False,
        scale: nn.Module | None = None,
        text: Embedder | None = None,
    ) -> None:
        super().__init__()
        if embedding_dim is not None and embedding_dim < 1:
            raise ValueError(f"embedding_dim must be at least 1, got {embedding_dim}")
        width = int(cast(int, trunk.num_features))
        self.scale = nn.Identity() if scale is None else scale
        self.trunk = trunk
        self.dropout = nn.Dropout(dropout)
        self.layer: nn.Module = nn.Identity()
        if embedding_dim is not None:
            self.layer = nn.Linear(width, embedding_dim)
        self.embedding_dim = width if embedding_dim is None else embedding_dim
        if text is not None and text.embedding_dim != self.embedding_dim:
            expected = f"{self.embedding_dim} dimensions, like those of images, got {text.embedding_dim}"
            raise ValueError(f"text: expected embeddings with {expected}")
        self.text = text
        self.metric: nn.Module = nn.Identity()
        self.freeze_bn = freeze_bn
        self.freeze_trunk = freeze_trunk
        self.held = False
        self.still: list[nn.Module] = []
        if freeze_bn != "statistics" or freeze_trunk:
            for module in self._frozen():
                module.requires_grad_(False)
        self.train()

    def _frozen(self) -> list[nn.Module]:
        """Return the modules that are always in evaluation mode."""
        if self.freeze_trunk or self.held:
            return [self.trunk]
        norms = [m for m in self.trunk.modules() if self.freeze_bn and isinstance(m, _BatchNorm)]
        return [*norms, *self.still]

    def train_only(self, names: Collection[str]) -> None:
        """Train only the parameters of the trunk with these names, and freeze batch normalizations without them."""
        for name, parameter in self.trunk.named_parameters():
            if name not in names:
                parameter.requires_grad_(False)
        norms = [module for module in self.trunk.modules() if isinstance(module, _BatchNorm)]
        self.still = [norm for norm in norms if not any(p.requires_grad for p in norm.parameters())]
        self.train(self.training)

    def train(self, mode: bool = True) -> Embedder:
        """Set training mode, except for what is frozen."""
        super().train(mode)
        for module in self._frozen():
            module.eval()
        return self

    def forward(self, items: Tensor) -> Features:
        """Embed (n, C, H, W) images in [0, 1] or (n, d) rows."""
        return self.head(self.features(items))

    def features(self, items: Tensor) -> Tensor:
        """Return the (n, D) pooled features of the trunk."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not (self.freeze_trunk or self.held)):
            pooled: Tensor = self.trunk(self.scale(as_channels(items, self.trunk)))
        return pooled.flatten(1)

    def head(self, pooled: Tensor) -> Features:
        """Embed (n, D) features that the trunk returned earlier, perhaps in another precision."""
        weight = getattr(self.layer, "weight", None)
        if weight is not None and pooled.dtype != weight.dtype:
            # autocast casts both to one precision, except float64
            autocast = torch.is_autocast_enabled(pooled.device.type)
            if not autocast or pooled.dtype == torch.float64:
                pooled = pooled.to(weight.dtype)
        return Features(pooled, self.metric(self.layer(self.dropout(pooled))))

    @property
    def has_feature_map(self) -> bool:
        """Whether `feature_map` works: trunks of tokens and of rows have no map."""
        return hasattr(self.trunk, "maps") and getattr(self.trunk, "convolutional", True)

    def feature_map(self, images: Tensor) -> Tensor:
        """Return the (n, C', H', W') output of the last convolution, for attention maps.

        Raises
        ------
        ValueError
            If the trunk has no such output.
        """
        if not self.has_feature_map:
            raise ValueError(f"{type(self.trunk).__name__} has no convolutional feature map")
        maps = cast(Callable[[Tensor], Tensor], self.trunk.maps)
        return maps(self.scale(as_channels(images, self.trunk)))

    def places(self, images: Tensor) -> Tensor:
        """Return (n, h, w, c) descriptors of the places of the last map, or of the patches of a vision transformer.

        They go through the embedding layer, as their mean does, where they have as many channels as it takes.

        Raises
        ------
        NotImplementedError
            If the trunk has neither, as one of rows, texts or sounds, or its patches are no square.
        """
        name = type(getattr(self.trunk, "inner", self.trunk)).__name__
        if images.ndim != 4 or not hasattr(self.trunk, "maps"):
            raise NotImplementedError(f"{name} has no map of images, and no patches")
        found = cast(Callable[[Tensor], Tensor], self.trunk.maps)(self.scale(as_channels(images, self.trunk)))
        if getattr(found, "ndim", 0) not in (3, 4):  # features of the whole image, or of several resolutions
            raise NotImplementedError(f"{name} has no map of images, and no patches")
        if found.ndim == 3:  # tokens (n, T, c), of which those before the patches are classes and registers
            patches = found[:, int(getattr(self.trunk, "prefix", 0)) :]
            side = isqrt(patches.shape[1])
            if side * side != patches.shape[1]:
                raise NotImplementedError(f"{name} has {patches.shape[1]} patches, which are not a square")
            found = patches.unflatten(1, (side, side))
        else:
            found = found.permute(0, 2, 3, 1)
        if found.shape[-1] != self.trunk.num_features:
            return found
        n, h, w, c = found.shape
        return self.head(found.reshape(n * h * w, c)).embedding.reshape(n, h, w, -1)


def device_of(module: nn.Module) -> torch.device:
    """Return the device of the parameters of a module; the CPU if it has none."""
    return next((parameter.device for parameter in module.parameters()), torch.device("cpu"))


def as_channels(items: Tensor, trunk: nn.Module) -> Tensor:
    """Convert images to the number of channels that a trunk takes: gray is repeated, color is averaged."""
    channels = getattr(trunk, "in_channels", None)
    if channels is None or items.ndim != 4 or items.shape[1] == channels:
        return items
    if items.shape[1] == 1:
        return items.expand(-1, channels, -1, -1)
    if channels == 1:
        return items.mean(1, keepdim=True)
    raise ValueError(f"{type(trunk).__name__} takes {channels} channels, got images with {items.shape[1]}")
