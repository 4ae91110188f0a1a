"""Multi-layer perceptron: linear layers with ReLU between them, for rows and for small images, flattened."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from ...settings import Checked


class MLP(Checked, nn.Module):
    """Multi-layer perceptron with hidden layers of equal width.

    Parameters
    ----------
    in_features : int
        Number of features of an item; images are flattened.
    width : int
        Number of units of every hidden layer, which is also the number D of output features.
    depth : int
        Number of hidden layers.
    """

    def __init__(self, in_features: int, width: int = 256, depth: int = 2) -> None:
        super().__init__()
        sizes = [in_features] + [width] * depth
        layers = [(nn.Linear(m, n), nn.ReLU()) for m, n in pairwise(sizes)]
        self.num_features = width
        self.layers = nn.Sequential(*(layer for pair in layers for layer in pair))

    def forward(self, items: Tensor) -> Tensor:
        """Return the (n, width) features."""
        features: Tensor = self.layers(items.flatten(1))
        return features
