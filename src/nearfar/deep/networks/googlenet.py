"""GoogLeNet (Szegedy et al., 2015), the first Inception, as BVLC trained it: pooled feature 1024.

    7x7/2, pool, norm -> 1x1, 3x3, norm, pool -> 3a 3b, pool -> 4a 4b 4c 4d 4e, pool -> 5a 5b -> average

Parameters have the names of Caffe's layers with "_" for "/", so that `bvlc_googlenet.caffemodel` loads unchanged.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import local_response_norm, max_pool2d

from ..precision import PreciseBuffers


class GoogLeNetBlock(NamedTuple):
    """Widths of the four branches of a block: 1x1; reduction and 3x3; reduction and 5x5; projection of the pool."""

    one: int
    three: tuple[int, int]
    five: tuple[int, int]
    pool: int

    @property
    def width(self) -> int:
        """Number of output channels."""
        return self.one + self.three[1] + self.five[1] + self.pool


BLOCKS = {
    "3a": GoogLeNetBlock(64, (96, 128), (16, 32), 32),
    "3b": GoogLeNetBlock(128, (128, 192), (32, 96), 64),
    "4a": GoogLeNetBlock(192, (96, 208), (16, 48), 64),
    "4b": GoogLeNetBlock(160, (112, 224), (24, 64), 64),
    "4c": GoogLeNetBlock(128, (128, 256), (24, 64), 64),
    "4d": GoogLeNetBlock(112, (144, 288), (32, 64), 64),
    "4e": GoogLeNetBlock(256, (160, 320), (32, 128), 128),
    "5a": GoogLeNetBlock(256, (160, 320), (32, 128), 128),
    "5b": GoogLeNetBlock(384, (192, 384), (48, 128), 128),
}
POOLED_AFTER = ("3b", "4e")
CAFFE_MEAN = (104.0, 117.0, 123.0)  # of blue, green and red, in 0..255


class GoogLeNet(PreciseBuffers):
    """GoogLeNet without its three classifiers.

    Notes
    -----
    The network takes RGB images in [0, 1] and converts them to the input of the public weights: channels in the order
    blue, green, red, in 0..255, minus their mean. It has no batch normalization. torchvision's network of this name
    differs: it has batch normalization, and 3x3 instead of 5x5 convolutions.
    """

    in_channels = 3
    num_features = 1024
    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self._add("conv1_7x7_s2", 3, 64, size=7, stride=2)
        self._add("conv2_3x3_reduce", 64, 64, size=1)
        self._add("conv2_3x3", 64, 192, size=3)
        channels = 192
        for name, block in BLOCKS.items():
            at = f"inception_{name}_"
            self._add(f"{at}1x1", channels, block.one, size=1)
            self._add(f"{at}3x3_reduce", channels, block.three[0], size=1)
            self._add(f"{at}3x3", *block.three, size=3)
            self._add(f"{at}5x5_reduce", channels, block.five[0], size=1)
            self._add(f"{at}5x5", *block.five, size=5)
            self._add(f"{at}pool_proj", channels, block.pool, size=1)
            channels = block.width
        self.register_buffer("mean", torch.tensor(CAFFE_MEAN)[:, None, None], persistent=False)

    def _add(self, name: str, channels: int, width: int, *, size: int, stride: int = 1) -> None:
        layer = nn.Conv2d(channels, width, size, stride, padding=size // 2)
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")  # nothing else keeps 22 layers at one scale
        self.add_module(name, layer)

    def _chain(self, x: Tensor, *names: str) -> Tensor:
        for name in names:
            x = getattr(self, name)(x).relu_()
        return x

    def _block(self, at: str, x: Tensor) -> Tensor:
        branches = [
            self._chain(x, f"{at}1x1"),
            self._chain(x, f"{at}3x3_reduce", f"{at}3x3"),
            self._chain(x, f"{at}5x5_reduce", f"{at}5x5"),
            self._chain(max_pool2d(x, 3, 1, padding=1), f"{at}pool_proj"),
        ]
        return torch.cat(branches, 1)

    def maps(self, images: Tensor) -> Tensor:
        """Return the (n, 1024, H', W') output of the last block, 7x7 for 224x224 images."""
        x = images.flip(1) * 255 - self.mean.to(images.dtype)
        x = max_pool2d(self._chain(x, "conv1_7x7_s2"), 3, 2, ceil_mode=True)
        x = local_response_norm(x, 5, alpha=1e-4, beta=0.75)
        x = self._chain(x, "conv2_3x3_reduce", "conv2_3x3")
        x = max_pool2d(local_response_norm(x, 5, alpha=1e-4, beta=0.75), 3, 2, ceil_mode=True)
        for name in BLOCKS:
            x = self._block(f"inception_{name}_", x)
            if name in POOLED_AFTER:
                x = max_pool2d(x, 3, 2, ceil_mode=True)
        return x

    def forward(self, images: Tensor) -> Tensor:
        """Return the (n, 1024) features of (n, 3, H, W) images in [0, 1]."""
        return self.maps(images).mean((2, 3))
