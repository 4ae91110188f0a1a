"""Kernels between the samples of a batch, and their sums over pairs of classes.

The joint kernel of two samples is the product, over layers of the network, of a kernel on each layer's
representation. Statistics of class pairs (the joint similarity of JRS, the norms of JMMD and JIntra) then follow from
the class block sums M_IJ = sum over i in I, j in J of K_ij, one small matrix product.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from ...settings import check_options
from ..objective.batch import Batch
from ..objective.terms import SetTerm
from ..pairwise.comparison import sq_euclidean
from ..unit_vectors import unit
from .batch_classes import BatchClasses, batch_classes, of_known_class

LAYERS = ("pooled", "embedding", "class")
KERNELS = ("gaussian", "laplace", "polynomial", "exponential", "linear")


def squared_distances(x: Tensor) -> Tensor:
    """Return the (n, n) squared distances between the rows of x, exactly 0 on the diagonal."""
    x = x - x.detach().mean(0)  # distances do not change, cancellation shrinks
    itself = torch.eye(len(x), dtype=torch.bool, device=x.device)
    return sq_euclidean(x, x).masked_fill(itself, 0)


def bandwidth(d: Tensor, floor: Tensor, known: Tensor | None = None) -> Tensor:
    """Return tau, the mean of the off-diagonal distances, without gradient; between known samples only, (n,) bool.

    Below `floor` the distances are rounding errors of equal points: tau is then 1, so that every kernel value is 1 and
    the gradient stays finite.
    """
    d = d.detach()
    if known is None:
        n = len(d)
        tau = d.sum() / max(n * n - n, 1)
    else:
        number = known.sum()
        tau = torch.where(known[:, None] & known, d, 0.0).sum() / (number * number - number).clamp_min(1)
    return torch.where(tau > floor, tau, 1.0)


def known_mean(values: Tensor, known: Tensor | None) -> Tensor:
    """Return the mean of (n,) values, of known samples only."""
    if known is None:
        return values.mean()
    return torch.where(known, values, 0.0).sum() / known.sum().clamp_min(1)


def mixture(d: Tensor, tau: Tensor, count: int) -> Tensor:
    """Return the mean over k < count of exp(-d / (tau 2^(k - count // 2))).

    The widths double, so each kernel is the square of the next wider one: one exponential serves all.
    """
    kernel = (-d / (tau * 2.0 ** (count - 1 - count // 2))).exp()
    total = kernel
    for _ in range(count - 1):
        kernel = kernel.square()
        total = total + kernel
    return total / count


def gaussian(x: Tensor, count: int, known: Tensor | None = None) -> Tensor:
    """Return the (n, n) mixture of gaussian kernels around the adaptive bandwidth."""
    eps = 8 * torch.finfo(x.dtype).eps
    floor = eps**2 * known_mean(x.detach().square().sum(1), known)
    d = squared_distances(x)
    return mixture(d, bandwidth(d, floor, known), count)


def laplace(x: Tensor, count: int, known: Tensor | None = None) -> Tensor:
    """Return the (n, n) mixture of laplace kernels; the bandwidth is the mean L1 distance."""
    eps = 8 * torch.finfo(x.dtype).eps
    floor = eps * known_mean(x.detach().abs().sum(1), known)
    d = torch.cdist(x, x, p=1.0)
    return mixture(d, bandwidth(d, floor, known), count)


def layer_kernel(x: Tensor, kernel: str, count: int, degree: int, known: Tensor | None = None) -> Tensor:
    """Return the (n, n) kernel of one layer; `kernel` is one of `KERNELS`. Unknown samples set no bandwidth.

    The inner-product kernels act on unit vectors: powers and exponentials of raw features overflow.
    """
    if kernel == "gaussian":
        return gaussian(x, count, known)
    if kernel == "laplace":
        return laplace(x, count, known)
    directions = unit(x)
    s = directions @ directions.T
    if kernel == "linear":
        return s
    return (s + 1) ** degree if kernel == "polynomial" else s.exp()


class ClassSums(NamedTuple):
    """Sums of a kernel over the pairs of classes of a batch.

    Attributes
    ----------
    blocks : (C, C) M_IJ = sum over i in I, j in J of K_ij, self pairs included
    sizes : (C,) n_I
    """

    blocks: Tensor
    sizes: Tensor

    def weights(self) -> Tensor:
        """Return (C, C) n_I n_J / number of different-class sample pairs; 0 on the diagonal."""
        pairs = off_diagonal(self.sizes[:, None] * self.sizes)
        return pairs / pairs.sum().clamp_min(1)

    def similarities(self) -> Tensor:
        """Return (C, C) <C_I, C_J> = M_IJ / (n_I n_J)."""
        return self.blocks / (self.sizes[:, None] * self.sizes).clamp_min(1)


def off_diagonal(m: Tensor) -> Tensor:
    """Return the square matrix m with a zero diagonal."""
    return m.masked_fill(torch.eye(len(m), dtype=torch.bool, device=m.device), 0)


def class_sums(kernel: Tensor, classes: BatchClasses) -> ClassSums:
    """Return the block sums of an (n, n) kernel over the classes of a batch."""
    numbers = torch.arange(len(classes.sizes), device=kernel.device)
    member = classes.member[:, None] == numbers  # (n, C)
    if classes.known is not None:
        member = member & classes.known[:, None]
    hot = member.to(kernel.dtype)
    return ClassSums(hot.T @ kernel @ hot, hot.sum(0))


class JointTerm(SetTerm):
    """A regularizer that is a function of the joint kernel's class sums."""

    def __init__(
        self,
        layers: Sequence[str] = LAYERS,
        *,
        kernel: str = "gaussian",
        kernels: int = 3,
        class_kernels: int = 1,
        degree: int = 2,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if isinstance(layers, str) or not isinstance(layers, Sequence):
            layers = (layers,)
        else:
            layers = tuple(layers)
        if not layers or len(set(layers)) < len(layers) or not set(layers) <= set(LAYERS):
            raise ValueError(f"{name}: layers must be some of {', '.join(LAYERS)}, each once, got {layers!r}")
        check_options(self, KERNELS, kernel=kernel)
        for argument, number in (("kernels", kernels), ("class_kernels", class_kernels), ("degree", degree)):
            if number < 1:
                raise ValueError(f"{name}: {argument} must be at least 1, got {number}")
        self.layers = layers
        self.kernel = kernel
        self.degree = degree
        self.kernels = kernels
        self.class_kernels = class_kernels

    @property
    def reads_scores(self) -> bool:
        return "class" in self.layers

    def of(self, sums: ClassSums) -> Tensor:
        """Return the term's value, a function of the class sums."""
        raise NotImplementedError

    def value(self, batch: Batch) -> Tensor:
        name = type(self).__name__
        batch = of_known_class(batch, name)
        classes = batch_classes(batch.classes(name))
        joint = reduce(torch.mul, [self._kernel(layer, batch, classes.known) for layer in self.layers])
        return self.of(class_sums(joint, classes))

    def _kernel(self, layer: str, batch: Batch, known: Tensor | None) -> Tensor:
        count = self.class_kernels if layer == "class" else self.kernels
        return layer_kernel(self._representation(layer, batch), self.kernel, count, self.degree, known)

    def _representation(self, layer: str, batch: Batch) -> Tensor:
        if layer == "embedding":
            return unit(batch.x)
        x = batch.pooled if layer == "pooled" else batch.scores
        if x is not None:
            return x
        need = {
            "pooled": "pass the trunk's features as pooled=",
            "class": "add it to a loss with class proxies, such as AMSoftmaxLoss",
        }
        name = type(self).__name__
        raise ValueError(f"{name}: the {layer!r} layer is missing: {need[layer]}, or leave {layer!r} out of layers")
