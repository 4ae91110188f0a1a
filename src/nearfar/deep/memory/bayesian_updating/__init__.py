"""Bayesian updating of class distributions, BUT and BUNCA (Sikaroudi et al., 2021).

    n <- n0 + n1,   mu <- (n0 mu0 + n1 mu1) / n,   Y <- Y0 + Y1 + n0 n1 / n (mu1 - mu0)(mu1 - mu0)'
    Sigma = Y / (n - d - 1), the mean of the inverse Wishart, if n > d + 1, else Y / n
    p ~ N(mu_y, Sigma_y),   n_c ~ N(mu_c, Sigma_c) for every other class c
    BUT:  mean_{a, c} [d(a, p) - d(a, n_c) + m]_+          BUNCA:  mean_a -log( e^{-d(a,p)} / sum_c e^{-d(a,n_c)} )

n0, mu0, Y0: number, mean and scatter of a class so far; n1, mu1, Y1: in the batch; a: anchors; d: squared distance.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ....settings import check_options
from ... import distributed
from ...objective.batch import Batch
from ...objective.terms import Term
from ...pairwise.reductions import finite, masked_logsumexp
from ...proxies.logits import softmax_loss
from ...rng import SavedDraws, own_draws, to_device
from ...unit_vectors import unit
from .gaussians import Gaussians, squares


def bayesian_updating(near: Tensor, far: Tensor, loss: str, margin: float) -> tuple[Tensor, Tensor]:
    """Return per anchor the loss of its draws and the number of terms in it.

    Parameters
    ----------
    near : (b, S) or (b, 1) tensor
        Distances to draws of the anchor's own class; +inf if there is none.
    far : (b, S) tensor
        Distances to one draw of each other class; +inf for the anchor's own class and for unseen ones.
    loss : {"triplet", "nca", "nca_all"}
        "triplet", the sum of hinges over the classes; "nca"; or "nca_all", with the positive in the denominator too.
    margin : float
        Margin m of "triplet".
    """
    keep = near.isfinite() & far.isfinite()
    if loss == "triplet":
        gap = finite(near) - finite(far) + margin
        return torch.where(keep, gap.clamp_min(0), 0.0).sum(1), keep.sum(1)
    # log sum_c e^{-d(a, n_c)}; infinities are replaced first, because 0 * inf would be NaN in the gradient
    rivals = finite(masked_logsumexp(finite(far), far.isfinite(), -1.0))
    own = -finite(near).mean(1)
    value = softmax_loss(own, rivals) if loss == "nca_all" else rivals - own
    valid = keep.any(1)
    return torch.where(valid, value, 0.0), valid


class BayesianUpdating(SavedDraws, Term):
    """Triplets of anchors with positives and negatives drawn from a Gaussian per class, which every batch updates.

    Parameters
    ----------
    num_classes : int
        Number of classes C. Labels run from 0 to ``num_classes - 1``; -1 means an unknown class.
    embedding_dim : int
        Number of dimensions of the embeddings.
    loss : {"triplet", "nca", "nca_all"}
        Loss of the draws: "triplet" (BUT); "nca" (BUNCA), which has no lower bound; or "nca_all", with the positive in
        the denominator too.
    margin : float
        Margin m of the "triplet" loss.
    positives : {"one", "each"}
        "one" draws one sample of the anchor's own class, as in the paper; "each" draws one for every negative of the
        "triplet" loss, as in the published code.
    decay : float
        Factor, in (0, 1], on counts and scatters before each update. Below 1, old embeddings are forgotten.
    shrinkage : float
        Share of the diagonal, in [0, 1], in the covariances of classes with at most d + 1 samples, which are singular.
    max_classes : int
        Maximum number of classes in a step, at least 1. If there are more, only those of the batch and a random
        selection of the others are used.
    normalize : bool
        Whether to scale the embeddings to unit length first; the paper does not.
    paper_literal : bool
        Whether to update as published, for comparison only (see Notes).
    seed : int
        Seed of the generator of the draws, which advances in training mode only.

    Attributes
    ----------
    gaussians : Gaussians
        State of the distributions: counts, means and raw scatters, updated in training mode before the draws.

    Raises
    ------
    ValueError
        If `max_classes` is below 1, `decay` is outside (0, 1], or `shrinkage` is outside [0, 1].

    Notes
    -----
    Only the anchors have a gradient. The state has C d^2 numbers, which is 1.3 GB for 20,000 classes in 128 dimensions.

    The printed formula and the published code use the inverse of Y as the covariance, which has the wrong units, and
    pass n Sigma on as the next scatter, which multiplies it by n / (n - d - 1) each time. This implementation keeps the
    raw scatter instead. All processes update with the global batch and draw the same numbers.
    """

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        *,
        loss: str = "triplet",
        margin: float = 0.25,
        positives: str = "one",
        decay: float = 1.0,
        shrinkage: float = 0.1,
        max_classes: int = 64,
        normalize: bool = False,
        paper_literal: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_options(self, ("triplet", "nca", "nca_all"), loss=loss)
        check_options(self, ("one", "each"), positives=positives)
        if max_classes < 1:
            raise ValueError(f"BayesianUpdating: max_classes must be at least 1, got {max_classes}")
        if not (0 < decay <= 1 and 0 <= shrinkage <= 1):
            got = f"{decay} and {shrinkage}"
            raise ValueError(f"BayesianUpdating: decay must be in (0, 1], shrinkage in [0, 1], got {got}")
        self.loss = loss
        self.margin = margin
        self.positives = positives
        self.normalize = normalize
        self.num_classes = num_classes
        self.max_classes = max_classes
        self.gaussians = Gaussians(num_classes, embedding_dim, decay=decay, shrinkage=shrinkage, literal=paper_literal)
        self._draws = torch.Generator().manual_seed(int(seed))

    def local_value(self, batch: Batch) -> Tensor:
        y = batch.class_numbers("BayesianUpdating", self.num_classes)
        d = self.gaussians.means.shape[1]
        if batch.ref is not None or batch.x.shape[1] != d:
            raise ValueError(
                f"BayesianUpdating: embeddings: expected {d} dimensions and no ref, got {batch.x.shape[1]}"
            )
        x = unit(batch.x) if self.normalize else batch.x
        if self.training:  # before the draws, so that new classes have a distribution
            self.gaussians.update(x, y)
        near, far = self._distances(x, y, batch.anchors)
        value, number = bayesian_updating(near, far, self.loss, self.margin)
        return value.sum() / distributed.total(number.sum()).clamp_min(1)

    def _distances(self, x: Tensor, y: Tensor, anchors: slice) -> tuple[Tensor, Tensor]:
        """Return the anchors' distances to draws of their own and of each other class, infinite where there is none."""
        generator = own_draws(self._draws, self.training)
        n = len(x)
        classes = self.gaussians.choose(y, self.max_classes, generator)
        noise = torch.randn(len(classes), n, x.shape[1], generator=generator)
        noise = to_device(noise, x.device)
        x = x[anchors]
        y = y[anchors]
        d = squares(x, self.gaussians.draw(classes, noise[:, anchors]))  # (b, S), to one draw of each class per anchor
        own = y[:, None] == classes
        drawn = (self.gaussians.counts[classes] > 0) & (y >= 0)[:, None]
        far = torch.where(drawn & ~own, d, torch.inf)
        near = torch.where(drawn & own, d, torch.inf).amin(1, keepdim=True)
        if self.positives == "each" and self.loss == "triplet":
            noise = torch.randn(n, len(classes), x.shape[1], generator=generator)
            noise = to_device(noise, x.device)[anchors]
            mates = self.gaussians.draw(y.clamp_min(0), noise)  # (b, S, d)
            near = torch.where(near.isfinite(), squares(x, mates.transpose(0, 1)), torch.inf)
        return near, far
