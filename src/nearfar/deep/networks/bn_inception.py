"""BN-Inception (Ioffe & Szegedy, 2015): Inception with batch normalization, pooled feature 1024.

    stem (7x7/2, pool/2, 1x1, 3x3, pool/2) -> 3a 3b 3c/2 -> 4a 4b 4c 4d 4e/2 -> 5a 5b -> average

Parameters have the names of the public state dicts that were converted from Caffe, so that these load unchanged.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, max_pool2d, pad

from ..precision import PreciseBuffers


class InceptionBlock(NamedTuple):
    """Widths of the four branches of an Inception block.

    Attributes
    ----------
    one : int
        Width of the 1x1 branch. If it is 0, the block has stride 2, and neither this branch nor the projection of the
        pooling.
    three : (int, int)
        Widths of the reduction and of the 3x3 convolution.
    double : (int, int)
        Widths of the reduction and of both 3x3 convolutions.
    pool : int
        Width of the projection after pooling.
    average : bool
        Whether the pooling is an average instead of a maximum.
    """

    one: int
    three: tuple[int, int]
    double: tuple[int, int]
    pool: int
    average: bool = True

    @property
    def stride(self) -> int:
        return 1 if self.one else 2

    def width(self, channels: int) -> int:
        """Return the number of output channels of the block for its number of input channels."""
        return self.one + self.three[1] + self.double[1] + (self.pool or channels)


BLOCKS = {
    "3a": InceptionBlock(64, (64, 64), (64, 96), 32),
    "3b": InceptionBlock(64, (64, 96), (64, 96), 64),
    "3c": InceptionBlock(0, (128, 160), (64, 96), 0, average=False),
    "4a": InceptionBlock(224, (64, 96), (96, 128), 128),
    "4b": InceptionBlock(192, (96, 128), (96, 128), 128),
    "4c": InceptionBlock(160, (128, 160), (128, 160), 128),
    "4d": InceptionBlock(96, (128, 192), (160, 192), 128),
    "4e": InceptionBlock(0, (128, 192), (192, 256), 0, average=False),
    "5a": InceptionBlock(352, (192, 320), (160, 224), 128),
    "5b": InceptionBlock(352, (192, 320), (192, 224), 128, average=False),
}
CAFFE_MEAN = (104.0, 117.0, 128.0)  # of blue, green and red, in 0..255


class BNInception(PreciseBuffers):
    """BN-Inception without its classifier.

    Notes
    -----
    The network takes RGB images in [0, 1] and converts them to the input of the public weights: channels in the order
    blue, green, red, in 0..255, minus their mean. Batch normalization updates its running statistics with PyTorch's
    momentum of 0.1.
    """

    in_channels = 3
    num_features = 1024
    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self._add("conv1_7x7_s2", 3, 64, 7, 2)
        self._add("conv2_3x3_reduce", 64, 64, 1)
        self._add("conv2_3x3", 64, 192, 3)
        channels = 192
        for name, block in BLOCKS.items():
            self._add_block(f"inception_{name}_", block, channels)
            channels = block.width(channels)
        self.register_buffer("mean", torch.tensor(CAFFE_MEAN)[:, None, None], persistent=False)

    def _add(self, name: str, channels: int, width: int, size: int, stride: int = 1) -> None:
        self.add_module(name, nn.Conv2d(channels, width, size, stride, padding=size // 2))
        self.add_module(f"{name}_bn", nn.BatchNorm2d(width))

    def _add_block(self, at: str, block: InceptionBlock, channels: int) -> None:
        if block.one:
            self._add(at + "1x1", channels, block.one, 1)
            self._add(at + "pool_proj", channels, block.pool, 1)
        self._add(at + "3x3_reduce", channels, block.three[0], 1)
        self._add(at + "3x3", *block.three, 3, block.stride)
        self._add(at + "double_3x3_reduce", channels, block.double[0], 1)
        self._add(at + "double_3x3_1", *block.double, 3)
        self._add(at + "double_3x3_2", block.double[1], block.double[1], 3, block.stride)

    def _apply_unit(self, name: str, x: Tensor) -> Tensor:
        convolution = getattr(self, name)
        norm = getattr(self, f"{name}_bn")
        return norm(convolution(x)).relu_()

    def _chain(self, x: Tensor, *names: str) -> Tensor:
        for name in names:
            x = self._apply_unit(name, x)
        return x

    def _inception(self, at: str, block: InceptionBlock, x: Tensor) -> Tensor:
        three = self._chain(x, at + "3x3_reduce", at + "3x3")
        double = self._chain(x, at + "double_3x3_reduce", at + "double_3x3_1", at + "double_3x3_2")
        # a block that halves the map has no 1x1 branch; its pooling passes all channels on
        if not block.one:
            return torch.cat([three, double, _halved(x)], 1)
        if block.average:
            pooled = avg_pool2d(x, 3, 1, padding=1)
        else:
            pooled = max_pool2d(x, 3, 1, padding=1)
        return torch.cat([self._chain(x, at + "1x1"), three, double, self._chain(pooled, at + "pool_proj")], 1)

    def maps(self, images: Tensor) -> Tensor:
        """Return the (n, 1024, H', W') output of the last block, 7x7 for 224x224 images and 8x8 for 227x227."""
        x = images.flip(1) * 255 - self.mean.to(images.dtype)
        x = max_pool2d(self._chain(x, "conv1_7x7_s2"), 3, 2, ceil_mode=True)
        x = max_pool2d(self._chain(x, "conv2_3x3_reduce", "conv2_3x3"), 3, 2, ceil_mode=True)
        for name, block in BLOCKS.items():
            x = self._inception(f"inception_{name}_", block, x)
        return x

    def forward(self, images: Tensor) -> Tensor:
        """Return the (n, 1024) features of (n, 3, H, W) images in [0, 1]."""
        return self.maps(images).mean((2, 3))


def _halved(x: Tensor) -> Tensor:
    """Return the maxima of 3x3 windows with stride 2, ceil(n / 2) of them along a side of length n.

    The parallel convolutions have outputs of this size, too. The published network has even sides here, for images of
    224 pixels: its windows begin at 0, 2, ..., and the last one extends over the edge by one. Odd sides, which Caffe
    refuses, get one more window that extends over the edge.
    """
    height, width = x.shape[2:]
    if height % 2 or width % 2:
        x = pad(x, (0, width % 2, 0, height % 2), value=-torch.inf)
    return max_pool2d(x, 3, 2, ceil_mode=True)
