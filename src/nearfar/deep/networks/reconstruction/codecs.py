"""Networks that reconstruct their inputs: layer sizes, encoder and decoder, errors, penalties and noise."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

Hidden = int | Sequence[int]

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "identity": nn.Identity,
}
PENALTIES = ("weights_l2", "weights_l1", "codes_l2", "codes_l1")
NOISES = ("gaussian", "masking", "salt_pepper")
LEVELS = {"gaussian": 0.1, "masking": 0.2, "salt_pepper": 0.2}


def widths(d: int, p: int, hidden: Hidden) -> list[int]:
    """Return the layer sizes from d to p, with the given hidden sizes or a number of them in geometric steps.

    >>> widths(64, 4, 1), widths(10, 2, (7, 5))
    ([64, 16, 4], [10, 7, 5, 2])
    """
    if not isinstance(hidden, Sequence):
        hidden = int(hidden)
        hidden = [max(1, round(d ** (1 - k / (hidden + 1)) * p ** (k / (hidden + 1)))) for k in range(1, hidden + 1)]
    return [d, *hidden, p]


def stack(sizes: Sequence[int], activation: str) -> nn.Sequential:
    """Return linear layers with the activation between them, but not after the last."""
    layers = [layer for m, n in pairwise(sizes) for layer in (nn.Linear(m, n), ACTIVATIONS[activation]())]
    return nn.Sequential(*layers[:-1])


class Codec(nn.Module):
    """An encoder and the decoder that mirrors it.

    Parameters
    ----------
    sizes : sequence of int
        Sizes of the layers, from the features to the code.
    activation : {"relu", "tanh", "sigmoid", "identity"}
        Activation between layers, a key of `ACTIVATIONS`.
    outputs : int
        Number of codes that the encoder returns, for networks that need several.
    """

    def __init__(self, sizes: Sequence[int], activation: str, outputs: int = 1) -> None:
        super().__init__()
        self.encoder = stack([*sizes[:-1], outputs * sizes[-1]], activation)
        self.decoder = stack(sizes[::-1], activation)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the reconstruction and the code."""
        code = self.encoder(x)
        return self.decoder(code), code


def squared_error(x: Tensor, decoded: Tensor) -> Tensor:
    """Return the squared error of every row, summed over features."""
    return (x - decoded).square().sum(1)


def omega(kind: str, network: nn.Module, code: Tensor) -> Tensor:
    """Return the penalty: a sum over all weight matrices, or a sum over the code's entries, averaged over rows."""
    entries, norm = kind.split("_")
    # sum_l |W_l|, which does not depend on the batch, or (1/n) sum_i |h_i|
    parts = [code]
    if entries == "weights":
        parts = [w for w in network.parameters() if w.ndim == 2]
    size = torch.stack([(part.square() if norm == "l2" else part.abs()).sum() for part in parts]).sum()
    return size / (len(code) if entries == "codes" else 1)


def corrupt(x: Tensor, noise: str, level: float, draws: torch.Generator, low: Tensor, high: Tensor) -> Tensor:
    """Return x with noise.

    Parameters
    ----------
    x : (n, d) tensor
        Rows.
    noise : {"gaussian", "masking", "salt_pepper"}
        "gaussian", "masking" or "salt_pepper".
    level : float
        Standard deviation of "gaussian" noise; otherwise, share of the entries that are changed.
    draws : Generator
        Generator of the random numbers.
    low, high : (d,) tensors
        Smallest and largest value of each feature, for "salt_pepper".
    """
    if noise == "gaussian":
        return x + level * torch.randn(x.shape, generator=draws, dtype=x.dtype).to(x.device)
    hit = torch.rand(x.shape, generator=draws, dtype=x.dtype).to(x.device)
    if noise == "masking":
        return torch.where(hit < level, 0.0, x)
    return torch.where(hit < level, torch.where(hit < level / 2, low, high), x)
