"""Discriminant analysis with virtual samples (Kim & Song, 2021).

    L = mean_{s, t} [ (g_s - g_t) |r|_1 / q + m ]_+  -  1e-5 tr(U' S_B U) / tr(U' S_W U)
    g = exp(-h_i.h_j),  s: similar pairs,  t: dissimilar pairs,  c = (mean_s g_s + mean_t g_t) / 2
    r ~ U(c - e lambda, c + e lambda)^q        lambda: mean eigenvalue of S_W^-1 S_B of h

h: features before the last linear layer U; S_W, S_B: their scatters; q: number of similar pairs; r: virtual samples.
Since U'h is the embedding z up to the bias of the layer, tr(U' S U) is the trace of the same scatter of z.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...settings import check_options
from ..autograd import clipped
from ..objective.batch import Batch
from ..objective.terms import SetTerm
from ..pairwise.hinges import hinges
from ..precision import precise
from ..rng import SavedDraws, own_draws
from ..unit_vectors import unit
from ..wholebatch.class_scatter import Deviations, bounded_ratio, deviations, in_range, traces

LAYERS = ("pooled", "embedding")
VARIANCE_RIDGE = 1e-4  # part of the mean variance within classes that is added to each variance
MAX_EXPONENT = 30.0  # largest exponent of g; features of unit length, whose exponents are at most 1, never reach it


def mean_eigenvalue(parts: Deviations) -> Tensor:
    """Return tr((S_W + ridge I)^-1 S_B) / l without gradient, from l x l or n x n matrices, the smaller of the two.

    The deviations A within classes and C between them, (n, l) each, give S_W = A' A and S_B = C' C.
    """
    A = parts.within.detach().to(precise(parts.within.device))
    C = parts.between.detach().to(A.dtype)
    l = A.shape[1]
    ridge = VARIANCE_RIDGE * A.square().sum() / l
    ridge = torch.where(ridge > 0, ridge, 1.0)
    identity = torch.eye(min(A.shape), dtype=A.dtype, device=A.device)
    if l <= len(A):
        # tr((S_W + r I)^-1 S_B)
        total = torch.linalg.solve(A.T @ A + ridge * identity, C.T @ C).trace()
    else:
        # Woodbury: (A' A + r I)^-1 = (I - A' (A A' + r I)^-1 A) / r
        G = A @ C.T
        total = (C.square().sum() - (G * torch.linalg.solve(A @ A.T + ridge * identity, G)).sum()) / ridge
    return torch.where(parts.comparable, total / l, 0.0)


def virtual_sample(s: Tensor, t: Tensor, r: Tensor, margin: float) -> Tensor:
    """Return the mean over all similar s, (q,), and dissimilar t, (k,), of [(s - t) |r|_1 / q + m]_+.

    The virtual samples r, (q,), have no gradient.
    """
    if not len(s) or not len(t):
        return s.sum() * 0 + t.sum() * 0
    size = r.abs().mean()  # |r|_1 / q
    # hinges of q thresholds with k values, as one row: O((q + k) log k), not q k
    value, _ = hinges((size * s + margin)[None], (size * t)[None])
    return value.sum() / (len(s) * len(t))


class VirtualSampleLoss(SavedDraws, SetTerm):
    """Compare similar with dissimilar pairs, weighted by virtual samples around their mean similarity.

    Parameters
    ----------
    margin : float
        Margin m. On features of unit length without negative entries, such as those after a ReLU, only values below
        about 0.4 can be reached.
    eps : float
        Spread e of the virtual samples, at least 0; the paper calls it "a small positive number". With 0, all of them
        lie at the mean.
    layer : {"pooled", "embedding"}
        Features h: the "pooled" features of the trunk, as in the paper, which needs ``pooled=``; or the "embedding".
        With "pooled", the embedding layer learns from the Fisher ratio alone (see Notes).
    normalize : bool
        Whether to scale h to unit length inside g. The paper does not; exponents are then capped at 30.
    above_zero : bool
        Whether to narrow the interval of r so that it stays above 0, as similarities do. The paper does not; if lambda
        is large, as for features that separate the classes or outnumber the samples, ``|r|_1`` then grows with it.
    ratio : float
        Weight of the Fisher ratio of the embedding, at least 0.
    seed : int
        Seed of the generator that draws r. The generator advances in training mode only.

    Raises
    ------
    ValueError
        If `eps` or `ratio` is negative.

    Notes
    -----
    The paper pairs q similar with q dissimilar pairs of a batch; here, all similar are compared with all dissimilar
    pairs, which is the mean over all such pairings. U is not needed: the ratio is that of the scatters of the
    embedding, which is the same number as long as the embedding is linear in the pooled features (no dropout between
    them). r and lambda have no gradient. A ridge of 1e-4 of its mean eigenvalue is added to S_W. The paper states
    neither m nor e. For a batch without similar or without dissimilar pairs, the loss is 0.

    If the margin is out of reach, every pairing is active, and the loss is a difference of means, which a few
    directions satisfy. A single direction maximizes the ratio, and an optimizer that rescales gradients, such as Adam,
    turns its small weight into a full step of the embedding layer. With "pooled", therefore, freeze that layer
    (``lr_embedding=0``) or search with the pooled features.
    """

    def __init__(
        self,
        margin: float = 0.1,
        *,
        eps: float = 0.01,
        layer: str = "pooled",
        normalize: bool = True,
        above_zero: bool = True,
        ratio: float = 1e-5,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_options(self, LAYERS, layer=layer)
        if min(eps, ratio) < 0:
            raise ValueError(f"VirtualSampleLoss: eps and ratio must be at least 0, got {eps} and {ratio}")
        self.margin = margin
        self.eps = eps
        self.layer = layer
        self.ratio = ratio
        self.normalize = normalize
        self.above_zero = above_zero
        self._draws = torch.Generator().manual_seed(int(seed))

    def value(self, batch: Batch) -> Tensor:
        if batch.ref is not None or (self.layer == "pooled" and batch.pooled is None):
            raise ValueError("VirtualSampleLoss: expected pooled=, the features before the last layer, and no ref")
        batch = batch.known("VirtualSampleLoss")
        if self.layer == "embedding":
            h: Tensor | None = batch.x
        else:
            h = batch.pooled
        if h is None or not len(h):
            return batch.x.sum() * 0
        y = batch.classes("VirtualSampleLoss")
        s, t = self._similarities(h, y)
        # U is linear: the traces of U' S_W U and U' S_B U are those of the scatters of z, without U
        of_z = deviations(in_range(batch.x), y)
        W, B = traces(of_z)
        # lambda is of the scatters of h, the features before U
        r = self._virtual(s, t, deviations(in_range(h), y))
        hinge = virtual_sample(s, t, r, self.margin)
        return hinge - self.ratio * bounded_ratio(B, W, 1e-6, of_z.comparable)

    def _similarities(self, h: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return g of the similar and of the dissimilar pairs i < j."""
        if self.normalize:
            h = unit(h)
        # exp(-h_i.h_j), (n, n); features of any length could overflow
        g = clipped(-h @ h.T, -torch.inf, MAX_EXPONENT).exp()
        upper = torch.ones_like(g, dtype=torch.bool).triu(1)
        same = y[:, None] == y
        return g[upper & same], g[upper & ~same]

    @torch.no_grad()
    def _virtual(self, s: Tensor, t: Tensor, of_h: Deviations) -> Tensor:
        """Draw the virtual samples r, (q,), uniformly around the mean similarity c, at most e lambda away."""
        generator = own_draws(self._draws, self.training)
        draws = torch.rand(len(s), generator=generator, dtype=torch.float64).to(s.dtype).to(s.device)
        if not len(s) or not len(t):
            return draws
        center = (s.mean() + t.mean()) / 2
        width = self.eps * mean_eigenvalue(of_h).to(s)
        if self.above_zero:
            width = torch.minimum(width, center)
        # r ~ U(c - e lambda, c + e lambda)
        return center + width * (2 * draws - 1)
