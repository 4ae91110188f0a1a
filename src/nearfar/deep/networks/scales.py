"""Maps of several scales, and networks that compare two of them."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import conv2d, max_pool2d, relu

from .conv4 import Conv4

GROUPS = 4  # groups of channels, each normalized together


class Conv4Scales(nn.Module):
    """The outputs of the four blocks of a `Conv4`, such as the trunk of a trained embedder, as maps of four scales.

    Parameters
    ----------
    trunk : Conv4
        Network whose blocks are used.
    skip : int
        Number of the first maps to leave out, from 0 to 3. They are the largest and the most expensive to compare.

    Raises
    ------
    ValueError
        If `skip` is outside 0 to 3.
    """

    def __init__(self, trunk: Conv4, skip: int = 0) -> None:
        super().__init__()
        if not 0 <= skip < 4:
            raise ValueError(f"Conv4Scales: skip must be in 0..3, got {skip}")
        self.trunk = trunk
        self.skip = skip
        self.channels = [trunk.num_features] * (4 - skip)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Return (n, width, H / 2^k, W / 2^k) for k = skip + 1 to 4."""
        maps = []
        for block in self.trunk.blocks:
            images = relu(max_pool2d(block(images), 2))
            maps.append(images)
        return maps[self.skip :]


class Relation(nn.Module):
    """g_s, which maps (q, C, H, W) query maps and (c, C, H, W) class maps to (q, c, width) vectors.

    The first convolution, of the two maps one on top of the other, is the sum of a convolution of each: it runs q + c
    times instead of q c times. Norms are over groups of channels, so a score does not depend on the other pairs.
    """

    def __init__(self, channels: int, width: int, depth: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(2 * channels, width, 3, padding=1)
        self.rest = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth - 1))
        self.norms = nn.ModuleList(nn.GroupNorm(GROUPS, width) for _ in range(depth))

    def forward(self, query: Tensor, classes: Tensor) -> Tensor:
        of_query, of_class = self.first.weight.chunk(2, dim=1)
        a = conv2d(query, of_query, self.first.bias, padding=1)
        b = conv2d(classes, of_class, padding=1)
        x = (a[:, None] + b[None]).flatten(0, 1)  # (q c, width, H, W)
        x = relu(self.norms[0](x))
        for conv, norm in zip(self.rest, list(self.norms)[1:], strict=True):
            x = relu(norm(conv(x)))
        return x.mean((2, 3)).unflatten(0, (len(query), len(classes)))
