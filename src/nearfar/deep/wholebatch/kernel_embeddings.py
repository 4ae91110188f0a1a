"""Kernels between the samples of a batch, and their sums over pairs of classes.

The joint kernel of two samples is the product, over layers of the network, of a kernel on each layer's
representation. Statistics of pairs of classes (the joint similarity of JRS, the norms of JMMD and JIntra) then follow
from its block sums over classes, M_IJ = sum of K_ij over i in I and j in J, which take two small matrix products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from math import inf
from numbers import Integral, Real
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...settings import check_options
from ..objective.batch import Batch
from ..objective.network_layers import WatchesLayers
from ..objective.relations import UNKNOWN
from ..objective.terms import SetTerm
from ..pairwise.comparison import sq_euclidean
from ..unit_vectors import unit
from .batch_classes import BatchClasses, batch_classes, of_known_class

LAYERS = ("pooled", "embedding", "class")
OF_TRUNK = "trunk."
"""Prefix of the name of a layer that is a module of the trunk."""
KERNELS = ("gaussian", "laplace", "polynomial", "exponential", "linear")


def squared_distances(x: Tensor) -> Tensor:
    """Return the (n, n) squared distances between the rows of x, exactly 0 on the diagonal."""
    x = x - x.detach().mean(0)  # the distances remain, and less precision is lost to cancellation
    itself = torch.eye(len(x), dtype=torch.bool, device=x.device)
    return sq_euclidean(x, x).masked_fill(itself, 0)


def bandwidth(d: Tensor, floor: Tensor, known: Tensor | None = None) -> Tensor:
    """Return tau, the mean of the off-diagonal distances d, (n, n), without gradient.

    With `known`, (n,) bool, it is the mean between known samples. Below `floor`, the distances are rounding errors of
    equal points: tau is then 1, so that every kernel value is 1, and the gradient remains finite.
    """
    d = d.detach()
    if known is None:
        # the diagonal is 0: the sum over n^2 entries is that of the n^2 - n others
        n = len(d)
        tau = d.sum() / max(n * n - n, 1)
    else:
        number = known.sum()
        # over the ordered pairs of known samples; the diagonal adds 0
        tau = torch.where(known[:, None] & known, d, 0.0).sum() / (number * number - number).clamp_min(1)
    return torch.where(tau > floor, tau, 1.0)


def known_mean(values: Tensor, known: Tensor | None) -> Tensor:
    """Return the mean of (n,) values over the known samples."""
    if known is None:
        return values.mean()
    return torch.where(known, values, 0.0).sum() / known.sum().clamp_min(1)


def mixture(d: Tensor, tau: Tensor, count: int) -> Tensor:
    """Return the mean over k < count of exp(-d / (tau 2^(k - count // 2))).

    The widths double, so each kernel is the square of the next wider one: one exponential serves all.
    """
    kernel = (-d / (tau * 2.0 ** (count - 1 - count // 2))).exp()  # the widest, k = count - 1
    total = kernel
    for _ in range(count - 1):
        kernel = kernel.square()
        total = total + kernel
    return total / count


def mixture_of(d: Tensor, tau: Tensor, widths: Sequence[float]) -> Tensor:
    """Return the mean over the widths w of exp(-d / (tau w)), by squaring if each width is twice the one before."""
    count = len(widths)
    if tuple(widths) == doubling(count):
        return mixture(d, tau, count)
    return torch.stack([(-d / (tau * width)).exp() for width in widths]).mean(0)


def doubling(count: int, multiplier: float = 2.0) -> tuple[float, ...]:
    """Return the multiples of tau of K kernels, multiplier^(k - floor(K / 2)) for k < K.

    >>> doubling(3)
    (0.5, 1.0, 2.0)
    """
    return tuple(multiplier ** (k - count // 2) for k in range(count))


def gaussian(x: Tensor, widths: Sequence[float], known: Tensor | None = None) -> Tensor:
    """Return the (n, n) mixture of Gaussian kernels; the bandwidth is the mean squared distance."""
    eps = 8 * torch.finfo(x.dtype).eps
    floor = eps**2 * known_mean(x.detach().square().sum(1), known)
    d = squared_distances(x)
    return mixture_of(d, bandwidth(d, floor, known), widths)


def laplace(x: Tensor, widths: Sequence[float], known: Tensor | None = None) -> Tensor:
    """Return the (n, n) mixture of Laplace kernels; the bandwidth is the mean L1 distance."""
    eps = 8 * torch.finfo(x.dtype).eps
    floor = eps * known_mean(x.detach().abs().sum(1), known)
    d = torch.cdist(x, x, p=1.0)
    return mixture_of(d, bandwidth(d, floor, known), widths)


def layer_kernel(
    x: Tensor,
    kernel: str,
    count: int | Sequence[float],
    degree: int,
    known: Tensor | None = None,
    *,
    raw: bool = False,
) -> Tensor:
    """Return the (n, n) kernel of one layer; `kernel` is one of `KERNELS`.

    `count` is a number of doubling bandwidths, or the multiples of tau. Samples that are not known do not count for
    tau. Kernels of inner products use unit vectors unless `raw`, since powers and exponentials of other features may
    overflow.
    """
    if isinstance(count, int):
        widths: Sequence[float] = doubling(count)
    else:
        widths = count
    if kernel == "gaussian":
        return gaussian(x, widths, known)
    if kernel == "laplace":
        return laplace(x, widths, known)
    # inner products of unit vectors are in [-1, 1]
    if not raw:
        x = unit(x)
    s = x @ x.T
    if kernel == "linear":
        return s
    if kernel == "polynomial":
        return (s + 1) ** degree
    return s.exp()


class ClassSums(NamedTuple):
    """Sums of a kernel over the pairs of classes of a batch.

    Attributes
    ----------
    blocks : (C, C) tensor
        M_IJ = sum over i in I, j in J of K_ij, including pairs of a sample with itself.
    sizes : (C,) tensor
        Numbers n_I of samples.
    """

    blocks: Tensor
    sizes: Tensor

    def weights(self) -> Tensor:
        """Return (C, C) n_I n_J / number of different-class sample pairs; 0 on the diagonal."""
        pairs = off_diagonal(self.sizes[:, None] * self.sizes)  # n_I n_J, each unordered pair of classes twice
        return pairs / pairs.sum().clamp_min(1)

    def similarities(self) -> Tensor:
        """Return (C, C) <C_I, C_J> = M_IJ / (n_I n_J)."""
        # the inner product of the mean embeddings of two classes
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
    return ClassSums(hot.T @ kernel @ hot, hot.sum(0))  # M = H' K H, (C, C), for the one-hot classes H, (n, C)


class LayerSettings(NamedTuple):
    """How one layer is compared.

    Attributes
    ----------
    layer : str
        "pooled", "embedding", "class" or a module of the trunk, such as "trunk.layer3".
    kernel : str
        One of `KERNELS`.
    widths : sequence of float
        Bandwidths as multiples of tau.
    """

    layer: str
    kernel: str
    widths: tuple[float, ...]


class JointTerm(WatchesLayers, SetTerm):
    """Base class of regularizers that are a function of the joint kernel's class sums; see ``JRS`` for its parameters.

    Raises
    ------
    ValueError
        If a setting is invalid, or there is not one value of it for each layer.
    """

    def __init__(
        self,
        layers: Sequence[str] = LAYERS,
        *,
        kernel: str | Sequence[str] = "gaussian",
        kernels: int | Sequence[int] = 3,
        class_kernels: int = 1,
        degree: int = 2,
        multiplier: float | Sequence[float] = 2.0,
        bandwidths: Sequence[Any] | None = None,
        raw: bool = False,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if isinstance(layers, str) or not isinstance(layers, Sequence):
            layers = (layers,)
        else:
            layers = tuple(layers)
        named = [layer for layer in layers if layer not in LAYERS]
        modules = all(isinstance(layer, str) and layer.startswith(OF_TRUNK) for layer in named)
        if not layers or not modules or len(set(layers)) < len(layers):
            expected = f"some of {', '.join(LAYERS)} or modules such as {OF_TRUNK}layer3, each once"
            raise ValueError(f"{name}: layers must be {expected}, got {layers!r}")
        for argument, number in (("class_kernels", class_kernels), ("degree", degree)):
            if number < 1:
                raise ValueError(f"{name}: {argument} must be at least 1, got {number}")
        self.layers = layers
        self.degree = degree
        self.raw = raw
        chosen = self._for_each("kernel", kernel, str)
        for one in chosen:
            check_options(self, KERNELS, kernel=one)
        counts = [
            class_kernels if layer == "class" and isinstance(kernels, Integral) else count
            for layer, count in zip(layers, self._for_each("kernels", kernels, Integral), strict=True)
        ]
        multipliers = self._for_each("multiplier", multiplier, Real)
        if min(counts) < 1:
            raise ValueError(f"{name}: kernels must be at least 1, got {kernels!r}")
        if not all(0 < one < inf for one in multipliers):
            raise ValueError(f"{name}: multiplier must be positive, got {multiplier!r}")
        widths = [doubling(int(count), float(one)) for count, one in zip(counts, multipliers, strict=True)]
        if bandwidths is not None:
            widths = self._widths(bandwidths)
        self.settings = tuple(map(LayerSettings, layers, chosen, widths))
        self.watch_later([layer.removeprefix(OF_TRUNK) for layer in named])

    def _for_each(self, argument: str, value: Any, kind: type) -> list[Any]:
        """Return the setting of every layer, given one value for all, or one for each."""
        values = value
        if isinstance(value, kind):
            values = [value] * len(self.layers)
        if isinstance(values, str) or not isinstance(values, Sequence) or len(values) != len(self.layers):
            expected = f"{argument} must be one value or one of each of the {len(self.layers)} layers"
            raise ValueError(f"{type(self).__name__}: {expected}, got {value!r}")
        if not all(isinstance(one, kind) and not isinstance(one, bool) for one in values):
            raise ValueError(f"{type(self).__name__}: {argument} must be one value or one of each layer, got {value!r}")
        return list(values)

    def _widths(self, bandwidths: Sequence[Any]) -> list[tuple[float, ...]]:
        """Return the multiples of tau of every layer, given one set for all, or one for each."""
        sets = [bandwidths] * len(self.layers)
        if bandwidths and not isinstance(bandwidths[0], Real):
            sets = list(bandwidths)
        expected = "bandwidths must be positive multiples of tau, one set or one of each layer"
        if len(sets) != len(self.layers) or not all(isinstance(one, Sequence) and len(one) for one in sets):
            raise ValueError(f"{type(self).__name__}: {expected}, got {bandwidths!r}")
        if not all(isinstance(width, Real) and 0 < float(width) < inf for one in sets for width in one):
            raise ValueError(f"{type(self).__name__}: {expected}, got {bandwidths!r}")
        return [tuple(map(float, one)) for one in sets]

    @property
    def reads_scores(self) -> bool:
        return "class" in self.layers

    def of(self, sums: ClassSums) -> Tensor:
        """Return the value of the term from the class sums."""
        raise NotImplementedError

    def value(self, batch: Batch) -> Tensor:
        name = type(self).__name__
        watched = self.watched_outputs(batch.x)
        known = of_known_class(batch, name)
        if len(known.x) < len(batch.x):
            keep = batch.classes(name) != UNKNOWN
            watched = {layer: rows[keep] for layer, rows in watched.items()}
        classes = batch_classes(known.classes(name))
        kernels = [self._kernel(one, known, classes.known, watched) for one in self.settings]
        # the joint kernel is the product of the kernels of the layers
        return self.of(class_sums(reduce(torch.mul, kernels), classes))

    def _kernel(self, one: LayerSettings, batch: Batch, known: Tensor | None, watched: Mapping[str, Tensor]) -> Tensor:
        if one.layer.startswith(OF_TRUNK):
            x = watched[one.layer.removeprefix(OF_TRUNK)]
        else:
            x = self._representation(one.layer, batch)
        return layer_kernel(x, one.kernel, one.widths, self.degree, known, raw=self.raw)

    def _representation(self, layer: str, batch: Batch) -> Tensor:
        if layer == "embedding":
            return unit(batch.x)
        if layer == "pooled":
            x = batch.pooled
        else:
            x = batch.scores
        if x is not None:
            return x
        need = {
            "pooled": "pass the trunk's features as pooled=",
            "class": "add it to a loss with class proxies, such as AMSoftmaxLoss",
        }
        name = type(self).__name__
        raise ValueError(f"{name}: the {layer!r} layer is missing: {need[layer]}, or leave {layer!r} out of layers")


class NormTerm(JointTerm):
    """Base class of regularizers that are a mean of norms, or of squared norms, which the paper does not take."""

    def __init__(
        self,
        layers: Sequence[str] = LAYERS,
        *,
        kernel: str | Sequence[str] = "gaussian",
        kernels: int | Sequence[int] = 3,
        class_kernels: int = 1,
        degree: int = 2,
        multiplier: float | Sequence[float] = 2.0,
        bandwidths: Sequence[Any] | None = None,
        raw: bool = False,
        squared: bool = False,
    ) -> None:
        super().__init__(
            layers,
            kernel=kernel,
            kernels=kernels,
            class_kernels=class_kernels,
            degree=degree,
            multiplier=multiplier,
            bandwidths=bandwidths,
            raw=raw,
        )
        self.squared = squared
