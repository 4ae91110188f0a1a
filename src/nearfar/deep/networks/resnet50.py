"""ResNet-50 (He, Zhang, Ren & Sun, 2016), with the stride in the 3x3 convolution: pooled feature 2048.

    7x7/2, pool/2 -> 3, 4, 6 and 3 bottlenecks of 256, 512, 1024 and 2048 channels -> average

Parameters have the names of torchvision's, so that its public files load unchanged.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d

from ..precision import PreciseBuffers

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""Width of the 3x3 convolutions and number of bottlenecks of every stage."""
EXPANSION = 4
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_DEVIATION = (0.229, 0.224, 0.225)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions around which the input is added: x + f(x)."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = EXPANSION * width
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        inner = self.bn1(self.conv1(x)).relu_()
        inner = self.bn2(self.conv2(inner)).relu_()
        output: Tensor = (self.bn3(self.conv3(inner)) + self.downsample(x)).relu_()
        return output


class ResNet50(PreciseBuffers):
    """ResNet-50 without its classifier.

    Notes
    -----
    The network takes RGB images in [0, 1] and normalizes them with the mean and standard deviation of ImageNet.
    """

    in_channels = 3
    num_features = EXPANSION * STAGES[-1][0]
    mean: Tensor
    deviation: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        channels = 64
        for number, (width, depth) in enumerate(STAGES, start=1):
            blocks = []
            for place in range(depth):
                stride = 2 if place == 0 and number > 1 else 1
                blocks.append(Bottleneck(channels, width, stride))
                channels = EXPANSION * width
            self.add_module(f"layer{number}", nn.Sequential(*blocks))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        self.register_buffer("mean", torch.tensor(IMAGENET_MEAN)[:, None, None], persistent=False)
        self.register_buffer("deviation", torch.tensor(IMAGENET_DEVIATION)[:, None, None], persistent=False)

    def maps(self, images: Tensor) -> Tensor:
        """Return the (n, 2048, H', W') output of the last stage, 7x7 for 224x224 images."""
        x = (images - self.mean.to(images.dtype)) / self.deviation.to(images.dtype)
        x = max_pool2d(self.bn1(self.conv1(x)).relu_(), 3, 2, padding=1)
        for number in range(1, len(STAGES) + 1):
            x = getattr(self, f"layer{number}")(x)
        return x

    def forward(self, images: Tensor) -> Tensor:
        """Return the (n, 2048) features of (n, 3, H, W) images in [0, 1]."""
        return self.maps(images).mean((2, 3))
