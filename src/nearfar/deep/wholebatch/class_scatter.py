"""Scatter of a batch within and between its classes, from class sums, without pairs of samples or scatter matrices."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..unit_vectors import LEAST_NORM
from .batch_classes import batch_classes


def in_range(x: Tensor) -> Tensor:
    """Return x divided by its largest absolute value, held constant, so that squares neither overflow nor underflow.

    Ratios of scatters do not change. x must not be empty.
    """
    return x / x.detach().abs().amax().clamp_min(LEAST_NORM)


class Deviations(NamedTuple):
    """Deviations of every sample; the mean of the outer products of their rows is the scatter matrix of each kind.

    Attributes
    ----------
    within : (n, d) tensor
        Difference of each sample to the mean of its class.
    between : (n, d) tensor
        Difference of the mean of its class to the mean of all samples.
    comparable : () bool tensor
        Whether there are two classes, a class of two samples, and any spread at all.
    """

    within: Tensor
    between: Tensor
    comparable: Tensor


def deviations(x: Tensor, y: Tensor) -> Deviations:
    """Split every row of x, (n, d) with n > 0, into its deviations; those of unknown class, (n,) -1 in y, have 0.

    z_i - mean = (z_i - mean of its class) + (mean of its class - mean), with the means over samples of known class.
    """
    classes = batch_classes(y)
    if classes.known is not None:
        x = torch.where(classes.known[:, None], x, 0.0)
        centered = x - x.sum(0) / classes.known.sum().clamp_min(1)
        centered = torch.where(classes.known[:, None], centered, 0.0)
    else:
        centered = x - x.mean(0)
    between = classes.means(centered)[classes.member]
    if classes.known is not None:
        between = torch.where(classes.known[:, None], between, 0.0)
    with torch.no_grad():
        # a smaller sum of squares is the rounding error of equal points
        limits = torch.finfo(x.dtype)
        rounding = (16 * limits.eps) ** 2 * x.square().sum() + limits.tiny / limits.eps
        several = classes.number > 1
        comparable = (classes.sizes > 1).any() & several & (centered.square().sum() > rounding)
    return Deviations(centered - between, between, comparable)


def traces(parts: Deviations) -> tuple[Tensor, Tensor]:
    """Return the traces of the scatters within and between classes, means over samples that add up to the total."""
    return parts.within.square().sum(1).mean(), parts.between.square().sum(1).mean()


def bounded_ratio(top: Tensor, bottom: Tensor, floor: float, comparable: Tensor) -> Tensor:
    """Return top / (bottom + floor (top + bottom)), at most 1 / floor; 0 with zero gradient if not comparable."""
    low = torch.where(comparable, bottom + floor * (top + bottom), 1.0)
    return torch.where(comparable, top / low, top * 0)


class FisherMap(NamedTuple):
    """Fisher coordinates (z - mean) @ components.T of embeddings z.

    Attributes
    ----------
    mean : (d,) tensor
        Mean of the embeddings.
    components : (k, d) tensor
        Directions of the coordinates, k at most C - 1.
    eigenvalues : (k,) tensor
        Eigenvalues gamma of R in descending order: lambda / (1 + lambda) for the eigenvalues lambda of S_W^-1 S_B.
    """

    mean: Tensor
    components: Tensor
    eigenvalues: Tensor

    def __call__(self, embeddings: Tensor) -> Tensor:
        return (embeddings.to(self.mean) - self.mean) @ self.components.T


def fisher_map(z: Tensor, targets: Tensor, within: bool) -> FisherMap:
    """Return the least-squares fit of Fisher's targets to embeddings, rotated to the eigenvectors of R = T' F / n.

    Parameters
    ----------
    z : (n, d) tensor
        Embeddings.
    targets : (n, C) tensor
        Targets, whose columns sum to 0.
    within : bool
        Whether to scale the coordinates to unit variance within classes, which is 1 - gamma of the total, instead of to
        unit total variance.
    """
    z = z.detach().double()
    T = targets.double()
    centered = z - z.mean(0)
    W = torch.linalg.pinv(centered, rtol=1e-10) @ T
    R = T.T @ centered @ W / len(z)
    gamma, V = torch.linalg.eigh((R + R.T) / 2)
    gamma = gamma.flip(0)
    V = V.flip(1)
    keep = gamma > 1e-9
    gamma = gamma[keep]
    V = V[:, keep]
    # the coordinate centered @ W v has the variance v' W' (centered' centered / n) W v = v' R v = gamma
    if within:
        scale = gamma * (1 - gamma).clamp_min(1e-9)
    else:
        scale = gamma
    return FisherMap(z.mean(0), (W @ V / scale.sqrt()).T, gamma)
