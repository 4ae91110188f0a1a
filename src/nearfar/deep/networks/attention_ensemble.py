"""Attention-based ensemble, ABE (Kim, Goyal, Chawla, Lee & Kwon, 2018).

    z = [z_1, ..., z_K]        z_k = W G(S(x) * A_k(S(x))) + b        A_k(s) = sigmoid(C_2k relu(C_1k s))

S: first stages of a network, from items to maps; G: its last stages, from maps to features; *: entrywise product; A_k:
attention of head k, two 1 x 1 convolutions, a number between 0 and 1 for each entry of the maps; W, b: embedding layer.
The heads share S, G, W and b, and differ only in their attention.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...settings import Checked


def attention_ensemble(maps: Tensor, heads: nn.ModuleList) -> Tensor:
    """Return (n, C, h, w) maps times the attention of each head, (n K, C, h, w): the heads of an item are neighbors."""
    return torch.stack([maps * torch.sigmoid(head(maps)) for head in heads], 1).flatten(0, 1)


class AttentionEnsemble(Checked, nn.Module):
    """Embed images by several heads that share one network, and each attend to other parts of its maps.

    Parameters
    ----------
    first : Module
        First stages S, which map (n, ...) items to (n, C, h, w) maps.
    second : Module
        Last stages G, which map such maps to (n, D) features.
    channels : int
        Number of channels C of the maps between them, at least 1.
    features : int
        Number of features D, at least 1.
    heads : int
        Number of heads K, at least 1.
    head_dim : int
        Number of dimensions of the embedding of each head, at least 1.
    hidden : int, optional
        Number of channels between the two convolutions of an attention, at least 1. By default, C.

    Attributes
    ----------
    num_features : int
        Number of dimensions of the whole embedding, ``heads * head_dim``.

    Raises
    ------
    ValueError
        If a number is below 1.

    Notes
    -----
    The embeddings of the heads are the groups of `EnsembleDivergence`, which keeps them different, and of losses of
    groups. The sum of the contrastive losses of the groups, as in the paper, is ``HDCLoss(groups=8, shares=(1.0,))``.

    `second` runs once on all heads, which takes K times its memory and time. Batch normalization in it computes its
    statistics over all heads of a batch.

    The paper cuts GoogLeNet after its second stage, and each attention consists of further inception modules, with a
    sigmoid at the end. Here, 1 x 1 convolutions replace them.

    Examples
    --------
    >>> first = nn.Conv2d(3, 16, 3)
    >>> second = nn.Sequential(nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    >>> AttentionEnsemble(first, second, channels=16, features=16, heads=4, head_dim=8)(torch.rand(2, 3, 12, 12)).shape
    torch.Size([2, 32])
    """

    def __init__(
        self,
        first: nn.Module,
        second: nn.Module,
        *,
        channels: int,
        features: int,
        heads: int = 8,
        head_dim: int = 64,
        hidden: int | None = None,
    ) -> None:
        super().__init__()
        numbers = {"channels": channels, "features": features, "heads": heads, "head_dim": head_dim, "hidden": hidden}
        for name, number in numbers.items():
            if number is not None and number < 1:
                raise ValueError(f"AttentionEnsemble: {name} must be at least 1, got {number}")
        self.first = first
        self.second = second
        between = hidden or channels
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Conv2d(channels, between, 1), nn.ReLU(), nn.Conv2d(between, channels, 1))
            for _ in range(heads)
        )
        self.layer = nn.Linear(features, head_dim)
        self.num_features = heads * head_dim

    def forward(self, items: Tensor) -> Tensor:
        """Return the (n, heads * head_dim) embeddings of n items, the first head's first."""
        maps = self.first(items)
        features = self.second(attention_ensemble(maps, self.heads))  # (n K, D)
        embeddings: Tensor = self.layer(features.flatten(1))  # (n K, d)
        return embeddings.unflatten(0, (len(maps), len(self.heads))).flatten(1)
