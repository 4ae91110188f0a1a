"""SPDNet (Huang & Van Gool, 2017) as a trunk of images, by their covariance descriptors (Tuzel et al., 2006).

z(p) = [x, y, xx, xy, yy; I, dI/dx, dI/dy, |dI/dx|, |dI/dy|, d2I/dx2, d2I/dxdy, d2I/dy2 of every channel]
X = cov_p z / sigma + eps 1,    X <- ReEig(W^T X W) for every size,    feature = LogEig(X)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.utils.parametrizations import orthogonal

from ...settings import Checked
from .bi_map import bi_map
from .log_eig import LogEig
from .re_eig import ReEig
from .spd import orthonormal_columns

PLACES = 5
NUMBERS_PER_PIXEL = 8
"""Numbers per pixel: 5 of its position, and 8 of each channel."""


def pixel_numbers(images: Tensor) -> Tensor:
    """Return the (n, 5 + 8 C, H, W) numbers per pixel of (n, C, H, W) images.

    These are the position, from -1 to 1, and its products; then intensity, differences, their absolute values and
    second differences, each for all channels. Beyond the edge, images are 0.
    """
    n, _, height, width = images.shape
    around = pad(images, (1, 1, 1, 1))

    def moved(down: int, right: int) -> Tensor:
        return around[:, :, 1 + down : 1 + down + height, 1 + right : 1 + right + width]

    y, x = torch.meshgrid(
        *(torch.linspace(-1, 1, side, dtype=images.dtype, device=images.device) for side in (height, width)),
        indexing="ij",
    )
    places = torch.stack([x, y, x * x, x * y, y * y]).expand(n, -1, -1, -1)
    # central differences, without the factors 1/2 and 1/4: the next layer scales them
    dx = moved(0, 1) - moved(0, -1)
    dy = moved(1, 0) - moved(-1, 0)
    dxx = moved(0, 1) + moved(0, -1) - 2 * images
    dyy = moved(1, 0) + moved(-1, 0) - 2 * images
    dxy = moved(1, 1) - moved(1, -1) - moved(-1, 1) + moved(-1, -1)
    return torch.cat([places, images, dx, dy, dx.abs(), dy.abs(), dxx, dxy, dyy], 1)


def covariances(numbers: Tensor, eps: float) -> Tensor:
    """Return the (n, D, D) covariances over the pixels of (n, D, H, W) numbers, plus eps times the identity."""
    z = numbers.flatten(2)
    z = z - z.mean(2, keepdim=True)
    return z @ z.mT / z.shape[2] + eps * torch.eye(z.shape[1], dtype=z.dtype, device=z.device)


class SPDTrunk(Checked, nn.Module):
    """Covariance descriptors of images, followed by pairs of `BiMap` and `ReEig`, and by `LogEig`.

    Parameters
    ----------
    in_channels : int
        Number C of channels of the images. The descriptors are D x D matrices with D = 5 + 8 C.
    sizes : sequence of int
        Sizes of the matrices after each pair, non-increasing, the first at most D. If it is empty, the features are the
        logarithms of the descriptors and nothing is trained.
    eps : float
        Number that is added to the diagonal of the descriptors, whose entries are about 1.
    floor : float
        Smallest eigenvalue after each pair. If it is at most `eps`, it has no effect, and the pairs are one bilinear
        map.

    Attributes
    ----------
    num_features : int
        Number of features, d (d + 1) / 2 for the last size d. Distances between features are log-Euclidean distances
        between matrices.

    Notes
    -----
    Unlike in the paper, any optimizer can train the bilinear weights: they are the first columns of B exp(A) with an
    orthogonal B and an unconstrained skew-symmetric A, so `stiefel_parameters` does not list them. The numbers of each
    pixel are divided by their running standard deviations over all training pixels. Mixed precision is disabled in this
    module.

    Examples
    --------
    >>> SPDTrunk(1, sizes=(11, 9))(torch.rand(2, 1, 28, 28)).shape
    torch.Size([2, 45])
    """

    def __init__(
        self, in_channels: int = 1, sizes: Sequence[int] = (11, 9), eps: float = 1e-3, floor: float = 1e-2
    ) -> None:
        super().__init__()
        D = PLACES + NUMBERS_PER_PIXEL * in_channels
        _check(D, sizes, eps)
        self.in_channels = in_channels
        self.eps = eps
        self.scale = nn.BatchNorm2d(D, affine=False)
        self.layers = nn.Sequential(*(_pair(n, m, floor) for n, m in pairwise([D, *sizes])))
        self.logarithm = LogEig()
        last = [D, *sizes][-1]
        self.num_features = last * (last + 1) // 2

    def descriptors(self, images: Tensor) -> Tensor:
        """Return the (n, D, D) covariance descriptors."""
        return covariances(self.scale(pixel_numbers(images.float())), self.eps)

    def forward(self, images: Tensor) -> Tensor:
        """Return the (n, d (d + 1) / 2) features of (n, C, H, W) images in [0, 1]."""
        with torch.autocast(images.device.type, enabled=False):
            features: Tensor = self.logarithm(self.layers(self.descriptors(images)))
        return features


class Bilinear(nn.Module):
    """Map of `BiMap`, whose weight `torch.nn.utils.parametrizations.orthogonal` can parametrize."""

    def __init__(self, in_size: int, out_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(orthonormal_columns(torch.randn(in_size, out_size)))

    def forward(self, X: Tensor) -> Tensor:
        """Map (..., n, n) matrices to (..., m, m)."""
        return bi_map(X, self.weight)


def _pair(n: int, m: int, floor: float) -> nn.Sequential:
    # Householder products, the default, lose the weight when weight decay reaches the signs on their diagonal.
    return nn.Sequential(orthogonal(Bilinear(n, m), orthogonal_map="matrix_exp"), ReEig(floor))


def _check(D: int, sizes: Sequence[int], eps: float) -> None:
    if not isinstance(sizes, Sequence) or not all(isinstance(m, int) and m >= 1 for m in sizes):
        raise ValueError(f"spd: sizes must be integers of at least 1, such as (11, 9), got {sizes!r}")
    if any(m > n for n, m in pairwise([D, *sizes])):
        raise ValueError(f"spd: sizes must be non-increasing, from {D} or less, got {tuple(sizes)}")
    if eps < 0:
        raise ValueError(f"spd: eps must be at least 0, got {eps}")
