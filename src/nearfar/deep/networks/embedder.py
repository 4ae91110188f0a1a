"""A trunk and an embedding layer: images or rows in, pooled features and raw embeddings out."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class Features(NamedTuple):
    """What an embedder returns for n items.

    Attributes
    ----------
    pooled : (n, D) features of the trunk
    embedding : (n, d) raw embedding; losses that compare directions normalize it themselves
    """

    pooled: Tensor
    embedding: Tensor


class Embedder(nn.Module):
    """A trunk followed by one linear embedding layer.

    Parameters
    ----------
    trunk : Module
        (n, C, H, W) images in [0, 1], or (n, d) rows, to (n, D) features. Its attribute `num_features` is D; where it
        has `in_channels`, images are brought to that many channels first; where it has `maps`, `feature_map` works.
    embedding_dim : int or None
        d; None leaves the layer out, so that the embedding is the pooled feature.
    dropout : float
        Share of the pooled features that are dropped before the embedding layer while training.
    freeze_bn : bool or "statistics"
        Keep the running statistics and the scales of all batch normalizations of the trunk as they are; "statistics"
        keeps these alone, and trains scales and shifts.
    freeze_trunk : bool
        Train the embedding layer only; the trunk is always in evaluation mode.
    scale : Module, optional
        What items pass before the trunk, such as `Standardize` for rows and `Normalize` for images; it is not trained.
    text : Embedder, optional
        A second tower, of the same embedding dimension: it embeds the texts that belong to images, as rows of token
        numbers, ``embedder.text(rows)``.

    Attributes
    ----------
    metric : Module
        What embeddings pass last: nothing while training, perhaps a `Whiten` that was fitted after it.
    held : bool
        Freeze the trunk while this is true, from the next call of `train` on.
    still : list of Module
        Further parts of the trunk that are always in evaluation mode.

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
            told = f"{self.embedding_dim} dimensions as those of images, got {text.embedding_dim}"
            raise ValueError(f"text: embeddings of texts need {told}")
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
        if self.freeze_trunk or self.held:
            return [self.trunk]
        norms = [m for m in self.trunk.modules() if self.freeze_bn and isinstance(m, _BatchNorm)]
        return [*norms, *self.still]

    def train_only(self, names: Collection[str]) -> None:
        """Leave of the trunk only the parameters of these names to be trained; normalizations of others stand still."""
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
            autocast = torch.is_autocast_enabled(pooled.device.type)  # autocast brings all but float64 to one precision
            if autocast and pooled.dtype != torch.float64:
                pooled = pooled
            else:
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
            If the trunk has none.
        """
        if not self.has_feature_map:
            raise ValueError(f"{type(self.trunk).__name__} has no convolutional feature map")
        maps = cast(Callable[[Tensor], Tensor], self.trunk.maps)
        return maps(self.scale(as_channels(images, self.trunk)))


def as_channels(items: Tensor, trunk: nn.Module) -> Tensor:
    """Bring images to the channels that a trunk takes: gray is repeated, color is averaged."""
    wanted = getattr(trunk, "in_channels", None)
    if wanted is None or items.ndim != 4 or items.shape[1] == wanted:
        return items
    if items.shape[1] == 1:
        return items.expand(-1, wanted, -1, -1)
    if wanted == 1:
        return items.mean(1, keepdim=True)
    raise ValueError(f"{type(trunk).__name__} takes {wanted} channels, got images with {items.shape[1]}")
