"""Conv4 (Vinyals et al., 2016): four blocks of convolution, batch normalization, ReLU and 2x2 max pooling.

    28x28 -> 14x14 -> 7x7 -> 3x3 -> 1x1, 64 filters of 3x3 in every block

The usual small network for 28x28 characters.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from ...settings import Checked


class Conv4(Checked, nn.Module):
    """Four convolutional blocks, pooled to a feature vector of length `width`.

    Parameters
    ----------
    in_channels : int
        Number of channels of the images.
    width : int
        Number of filters of every convolution.

    Notes
    -----
    Images need at least 16 pixels on each side. For larger images, the output of the last block is averaged over space,
    so that the feature has `width` entries for every size. `maps` is the output before the last pooling (3x3 for 28x28
    images).
    """

    def __init__(self, in_channels: int = 1, width: int = 64) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.num_features = width
        self.blocks = nn.ModuleList(_block(in_channels if k == 0 else width, width) for k in range(4))

    def maps(self, images: Tensor) -> Tensor:
        """Return the (n, width, H // 8, W // 8) output of the last convolution."""
        return relu(self._last(images))

    def _last(self, images: Tensor) -> Tensor:
        *firsts, last = self.blocks
        for block in firsts:
            images = relu(max_pool2d(block(images), 2))  # ReLU after pooling is the same, on a quarter of the values
        maps: Tensor = last(images)
        return maps

    def forward(self, images: Tensor) -> Tensor:
        """Return the (n, width) features of (n, C, H, W) images in [0, 1]."""
        if min(images.shape[2:]) < 16:
            raise ValueError(f"conv4 needs images of 16x16 pixels or more, got {images.shape[2]}x{images.shape[3]}")
        return relu(max_pool2d(self._last(images), 2)).mean((2, 3))


def _block(in_channels: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(in_channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width))
