"""Running Gaussians, one per class: counts, means and scatters that batches update, and draws from them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...autograd import applied, in_transform
from ...precision import PreciseBuffers, precise
from ...rng import to_device

SAMPLES_PER_CHUNK = 64  # samples whose outer products are held at once
DRAWS_IN_CACHE = 1 << 20  # number of values of draws that are processed at a time on a CPU
HELD = 1 << 26  # the same on an accelerator
JITTER = 1e-6  # share of the mean variance, added to each variance


class Gaussians(PreciseBuffers):
    """Count, mean and raw scatter of every class, in buffers.

    Parameters
    ----------
    num_classes : int
        Number of classes C.
    dim : int
        Number of dimensions d.
    decay : float
        Factor, in (0, 1], on the counts and scatters of earlier batches before each update.
    shrinkage : float
        Share of its diagonal, in [0, 1], in the covariance of a class with at most d + 1 samples, which is singular.
    literal : bool
        Whether to use the published recursion: the covariance after each update is the inverse of the summed scatter
        divided by n - d - 1 (by n, without inverse, if n <= d + 1), and n times it is used as the scatter of the next
        update.
    """

    counts: Tensor
    means: Tensor
    scatters: Tensor

    def __init__(
        self, num_classes: int, dim: int, *, decay: float = 1.0, shrinkage: float = 0.0, literal: bool = False
    ) -> None:
        super().__init__()
        self.decay = decay
        self.shrinkage = shrinkage
        self.literal = literal
        self.register_buffer("counts", torch.zeros(num_classes))
        self.register_buffer("means", torch.zeros(num_classes, dim))
        self.register_buffer("scatters", torch.zeros(num_classes, dim, dim))

    @torch.no_grad()
    def update(self, x: Tensor, y: Tensor) -> None:
        """Take in (n, d) samples of classes y; negative classes are left out."""
        x = x.detach().to(self.means.dtype)
        known = (y >= 0).to(x.dtype)
        y = y.clamp_min(0)
        new = torch.zeros_like(self.counts).index_add_(0, y, known)
        mean = torch.zeros_like(self.means).index_add_(0, y, x * known[:, None]) / new.clamp_min(1)[:, None]
        n0 = self.decay * self.counts
        n = n0 + new
        # mean <- mean + new / n (batch mean - mean), with n = decay n0 + new
        share = new / n.clamp_min(torch.finfo(n.dtype).tiny)
        step = (mean - self.means) * (new > 0)[:, None]
        # a batch holds few of many classes: the state of the others is not moved in memory
        if self.literal or in_transform():
            scatters = self.scatters.clone()
        else:
            scatters = self.scatters
        if self.decay < 1:
            scatters.mul_(self.decay)
        # scatter <- decay scatter + sum (x - m)(x - m)' + n0 new / n (m - mean)(m - mean)', whose last term is divided
        # among the samples of the class, so that one pass over them adds both
        weight = (n0 * share / new.clamp_min(1))[y] * known  # each sample takes a share of its class's step
        for part in torch.arange(len(x), device=x.device).split(SAMPLES_PER_CHUNK):
            own = y[part]
            apart = (x[part] - mean[own]) * known[part, None]
            moved = step[own]
            added = apart[:, :, None] * apart[:, None, :]
            scatters.index_add_(0, own, added.addcmul_((weight[part, None] * moved)[:, :, None], moved[:, None, :]))
        self.means = self.means + share[:, None] * step
        self.counts = n
        if self.literal:
            self.scatters = self._published(scatters, new > 0)
        else:
            self.scatters = scatters

    def _published(self, scatters: Tensor, changed: Tensor) -> Tensor:
        n = self.counts[:, None, None]
        d = scatters.shape[1]
        inverse = torch.linalg.inv(_with_jitter(scatters.to(precise(scatters.device)))).to(scatters.dtype)
        scatter = torch.where(n > d + 1, n * inverse / (n - d - 1).clamp_min(1e-6), scatters)
        return torch.where(changed[:, None, None], scatter, self.decay * self.scatters)

    @torch.no_grad()
    def covariances(self, classes: Tensor) -> Tensor:
        """Return the (k, d, d) covariances of some classes."""
        n = self.counts[classes, None, None]
        d = self.means.shape[1]
        if self.literal:
            return self.scatters[classes] / n.clamp_min(1)
        # the mean of an inverse Wishart distribution of n degrees of freedom, which exists for n > d + 1
        return self.scatters[classes] / torch.where(n > d + 1, n - d - 1, n.clamp_min(1))

    @torch.no_grad()
    def roots(self, classes: Tensor) -> Tensor:
        """Return the (k, d, d) Cholesky factors of the covariances, with a jitter that keeps them regular."""
        covariances = self.covariances(classes)
        covariances = covariances.to(precise(covariances.device))
        spread = covariances.diagonal(dim1=1, dim2=2).clamp_min(0).diag_embed()
        few = self.counts[classes, None, None] <= self.means.shape[1] + 1
        # classes with too few samples for their covariance shrink toward its diagonal
        covariances = torch.where(few, covariances.lerp(spread, self.shrinkage), covariances)
        root, failed = torch.linalg.cholesky_ex(_with_jitter(covariances))
        return torch.where(failed[:, None, None] > 0, spread.sqrt(), root).to(self.means.dtype)

    @torch.no_grad()
    def draw(self, classes: Tensor, noise: Tensor) -> Tensor:
        """Turn (k, s, d) standard normal noise into s draws from each of k classes, where the noise was."""
        draws = noise.to(self.means.dtype)
        for part in parts(draws):
            own = classes[part]
            # mean + L e with L L' the covariance
            draws[part] = self.means[own][:, None] + draws[part] @ self.roots(own).mT
        return draws

    @torch.no_grad()
    def choose(self, y: Tensor, most: int, generator: torch.Generator) -> Tensor:
        """Return all classes or, if there are more than `most`, those of the labels y and a random rest of the seen."""
        C = len(self.counts)
        size = min(C, max(most, len(y)))
        if size == C:
            return torch.arange(C, device=y.device)
        # classes of the batch first, then those seen, then the others; within each, at random
        wish = to_device(torch.rand(C, generator=generator), y.device) + (self.counts > 0)
        present = torch.zeros(C, device=y.device).index_add_(0, y.clamp_min(0), (y >= 0).float())
        return (wish + 2 * (present > 0)).topk(size).indices


def _with_jitter(covariances: Tensor) -> Tensor:
    d = covariances.shape[1]
    mean = covariances.diagonal(dim1=1, dim2=2).mean(1)
    add = JITTER * mean + torch.finfo(torch.float32).tiny
    return covariances + add[:, None, None] * torch.eye(d, dtype=covariances.dtype, device=covariances.device)


def parts(draws: Tensor) -> list[slice]:
    """Cut (k, s, d) draws along k so that neither the draws nor the covariances of a part take much memory."""
    k, s, d = draws.shape
    size = max(1, (DRAWS_IN_CACHE if draws.device.type == "cpu" else HELD) // max(s * d, d * d))
    return [slice(lo, min(lo + size, k)) for lo in range(0, k, size)]


class _Squares(torch.autograd.Function):
    """See `squares`; keeps the draws, and no differences from them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, draws: Tensor) -> Tensor:
        ctx.save_for_backward(x, draws)
        return torch.cat([(x - draws[part]).square_().sum(2) for part in parts(draws)]).T

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        x, draws = ctx.saved_tensors
        # d |x - z|^2 / dx = 2 (x - z), summed over the k draws; g (k, s, 1)
        g = 2 * grads[0].T[:, :, None]
        pulled = torch.zeros_like(x)
        for part in parts(draws):
            pulled = pulled + ((x - draws[part]) * g[part]).sum(0)
        return pulled, None


def squares(x: Tensor, draws: Tensor) -> Tensor:
    """Return the (s, k) squared distances of rows x (s, d), each to its k draws, (k, s, d), without gradient."""
    distances: Tensor = applied(_Squares, x, draws.to(x.dtype))
    return distances
