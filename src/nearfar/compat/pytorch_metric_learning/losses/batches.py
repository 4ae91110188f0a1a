"""Losses of each sample among all others."""

from __future__ import annotations

from math import inf
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy

import nearfar

from ....deep import distributed
from ....deep.objective.relations import UNKNOWN
from ..distances import BaseDistance, CosineSimilarity, DotProductSimilarity, LpDistance
from ..indices import Indices, Labels, pair_masks, sample_weights
from ..mismatch import Mismatch
from ..utils.loss_and_miner_utils import convert_to_pos_pairs_with_unique_labels, logsumexp
from .base import BaseMetricLossFunction, LossDict, NeedsLabels, elements, reduced, weighted_value


class NCALoss(NeedsLabels):
    """Neighborhood components; with indices, a sample counts by how often it was mined."""

    takes_ref = True

    def __init__(self, softmax_scale: float = 1, **settings: Any) -> None:
        super().__init__(**settings)
        self.softmax_scale = softmax_scale
        if self.on_engine(("sq_euclidean",), {"mean": "mean"}):
            self.term = nearfar.NCALoss(temperature=1 / softmax_scale, normalize=True)

    def value(
        self, x: Tensor, y: Tensor | None, indices: Indices | None, ref: Tensor | None, ref_y: Tensor | None
    ) -> Any:
        """Return 0 for a batch of one sample, even if there are references, as the other library does."""
        numbers = [len(x)] if distributed.world() == 1 else distributed.numbers_of_rows(len(x), x.device)
        if sum(numbers) <= 1:
            return self.reducer(self.zero_losses(), x, y)
        return super().value(x, y, indices, ref, ref_y)

    def get_default_distance(self) -> BaseDistance:
        return LpDistance(power=2)

    def term_value(
        self, x: Tensor, y: Tensor | None, indices: Indices | None, ref: Tensor | None, ref_y: Tensor | None
    ) -> Tensor:
        if indices is None:
            return super().term_value(x, y, None, ref, ref_y)
        assert y is not None
        return weighted_value(self.term, x, y, indices, ref, ref_y)

    def compute_loss(
        self, embeddings: Tensor, labels: Labels, indices_tuple: Indices | None, ref_emb: Tensor, ref_labels: Labels
    ) -> LossDict:
        pos, neg = pair_masks(embeddings, labels, None, ref_emb, ref_labels)
        s = self.softmax_scale * self.distance.margin(0, self.distance(embeddings, ref_emb))
        # -log of the share of the own class among all others
        losses = (logsumexp(s, pos | neg, add_one=False) - logsumexp(s, pos, add_one=False))[:, 0]
        if indices_tuple is not None:
            weights = sample_weights(indices_tuple, len(embeddings), anchors_only=ref_emb is not embeddings)
            losses = losses * weights.to(losses)
        rows = pos.any(1).nonzero()[:, 0]
        if not len(rows):
            return self.zero_losses()
        return {"loss": elements(losses[rows], rows)}


class NPairsLoss(NeedsLabels):
    """One pair of each class against the positives of the other classes."""

    def get_default_distance(self) -> BaseDistance:
        return DotProductSimilarity()

    def compute_loss(
        self, embeddings: Tensor, labels: Labels, indices_tuple: Indices | None, ref_emb: Tensor, ref_labels: Labels
    ) -> LossDict:
        assert labels is not None
        a, p = convert_to_pos_pairs_with_unique_labels(indices_tuple, labels)
        if not len(a):
            return self.zero_losses()
        # one positive pair of each class; the positives of the other pairs are the negatives, (a, a)
        logits = self.distance(embeddings[a], embeddings[p])
        if not self.distance.is_inverted:
            # a softmax needs similarities, so that distances change their sign
            logits = -logits
        own = torch.arange(len(a), device=logits.device)
        return {"loss": elements(cross_entropy(logits, own, reduction="none"), a)}


class InstanceLoss(NeedsLabels):
    """Softmax over the similarities of a sample to all samples of the batch, itself included.

    As in the other library and in the code published with the paper, the number of the class of a sample among the
    classes of the batch is taken for the place of its target in the batch. `nearfar.CrossEntropyHead` is what the paper
    describes.
    """

    takes_indices = False

    def __init__(self, gamma: float = 64, **settings: Any) -> None:
        super().__init__(**settings)
        self.require_distance(CosineSimilarity)
        self.gamma = gamma

    def get_default_distance(self) -> BaseDistance:
        return CosineSimilarity()

    def compute_loss(
        self, embeddings: Tensor, labels: Labels, indices_tuple: Indices | None, ref_emb: Tensor, ref_labels: Labels
    ) -> LossDict:
        assert labels is not None
        targets = torch.unique(labels, return_inverse=True)[1]
        losses = cross_entropy(self.distance(embeddings) * self.gamma, targets, reduction="none")
        return {"loss": elements(losses)}


class RankedListLoss(NeedsLabels):
    """Similar samples within a boundary and dissimilar ones beyond another, weighted by their distance from it.

    Parameters
    ----------
    margin : float
        The gap between the boundaries alpha - margin and alpha.
    Tn, Tp : float
        How fast weights of dissimilar and of similar samples grow.
    imbalance : float
        The share of the dissimilar ones.
    alpha : float, optional
        The default is 1 + margin / 2.
    """

    takes_indices = False

    def __init__(
        self,
        margin: float,
        Tn: float,
        imbalance: float = 0.5,
        alpha: float | None = None,
        Tp: float = 0,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.support_distance(LpDistance, normalize_embeddings=True, power=1)
        if not 0 <= imbalance <= 1:
            raise Mismatch(f"RankedListLoss: imbalance must be between 0 and 1, got {imbalance}")
        self.margin = margin
        self.Tn = Tn
        self.Tp = Tp
        self.imbalance = imbalance
        self.alpha = 1 + margin / 2 if alpha is None else alpha

    def compute_loss(
        self, embeddings: Tensor, labels: Labels, indices_tuple: Indices | None, ref_emb: Tensor, ref_labels: Labels
    ) -> LossDict:
        pos, neg = pair_masks(embeddings, labels, None, embeddings, labels)
        d = self.distance(embeddings)
        # [d - (alpha - m)]_+ of similar and [alpha - d]_+ of dissimilar samples, (n, n)
        beyond = d - (self.alpha - self.margin)
        within = self.alpha - d
        near = _weighted_mean(beyond, pos & (beyond > 0), self.Tp)
        far = _weighted_mean(within, neg & (within > 0), self.Tn)
        return {"loss": elements((1 - self.imbalance) * near + self.imbalance * far)}


def _weighted_mean(excess: Tensor, keep: Tensor, temperature: float) -> Tensor:
    """Return the (n,) means of the kept numbers of rows with the weights e^{T x}, which have gradients, too."""
    weights = torch.where(keep, torch.exp(temperature * torch.where(keep, excess, 0.0)), 0.0)
    return (weights * excess).sum(1) / (weights + 1e-5).sum(1)


class PNPLoss(NeedsLabels):
    """How many dissimilar samples rank before each similar one; a sample counts as a positive of itself.

    Parameters
    ----------
    b, alpha : float
        Of the variants "Ib" and "Dq".
    anneal : float
        The temperature.
    variant : {"Ds", "Dq", "Iu", "Ib", "O"}
    """

    VARIANTS = ("Ds", "Dq", "Iu", "Ib", "O")
    takes_indices = False

    def __init__(
        self, b: float = 2, alpha: float = 1, anneal: float = 0.01, variant: str = "O", **settings: Any
    ) -> None:
        super().__init__(**settings)
        self.require_cosines()
        self.require_reducer("mean")
        if variant not in self.VARIANTS:
            raise Mismatch(f"PNPLoss: variant must be one of {', '.join(self.VARIANTS)}, got {variant!r}")
        self.term = nearfar.PNPLoss(variant, temperature=anneal, b=b, alpha=alpha)

    def get_default_distance(self) -> BaseDistance:
        return CosineSimilarity()

    def term_value(
        self, x: Tensor, y: Tensor | None, indices: Indices | None, ref: Tensor | None, ref_y: Tensor | None
    ) -> Tensor:
        assert y is not None
        classes, sizes = torch.unique(distributed.gather_rows(y), return_counts=True)
        alone = torch.isin(y, classes[sizes == 1])  # such a sample has no positive but itself, and does not count
        found: Tensor = self.term(x, torch.where(alone, UNKNOWN, y), ref=x.clone(), ref_labels=y)
        return found


class VICRegLoss(BaseMetricLossFunction):
    """Two views of the same samples, `ref_emb` the second: near to each other, spread out and uncorrelated.

    Parameters
    ----------
    invariance_lambda, variance_mu, covariance_v : float
        The weights of the three parts.
    eps : float
        What is added to variances.
    """

    def __init__(
        self,
        invariance_lambda: float = 25,
        variance_mu: float = 25,
        covariance_v: float = 1,
        eps: float = 1e-4,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.require_reducer("mean")
        # half of it, as in the published code, and not as in the paper
        self.term = nearfar.VICRegLoss(
            invariance=invariance_lambda, variance=variance_mu / 2, covariance=covariance_v, eps=eps
        )

    def check_inputs(
        self, embeddings: Tensor, labels: Tensor | None, indices_tuple: Indices | None, ref_emb: Tensor | None
    ) -> None:
        if labels is not None or indices_tuple is not None:
            raise Mismatch("VICRegLoss: labels and indices_tuple are not supported; ref_emb is the second view")
        if ref_emb is None or ref_emb.shape != embeddings.shape:
            raise Mismatch("VICRegLoss: ref_emb is the second view of each sample, of the shape of embeddings")

    def term_value(
        self, x: Tensor, y: Tensor | None, indices: Indices | None, ref: Tensor | None, ref_y: Tensor | None
    ) -> Tensor:
        numbers = torch.arange(len(x), device=x.device)
        found: Tensor = self.term(x, numbers, ref=ref, ref_labels=numbers)
        return found


class ManifoldLoss(BaseMetricLossFunction):
    """Proxies by a random walk on the graph of the batch (Aziere & Todorovic, 2019); it takes no labels.

    Parameters
    ----------
    l : int
        The number of dimensions of the embeddings.
    K : int
        The number of proxies.
    lambdaC : float
        The weight of the comparison of whole rows; inf leaves the other part out, and is the weight 1 then.
    alpha : float
        How far the walk goes, below 1.
    margin : float

    Notes
    -----
    `indices_tuple` is a tensor with the proxy of each sample here, as in the other library. Without it proxies are
    drawn at random, each at least once: one batch has many values.
    """

    def __init__(
        self,
        l: int,  # the name of their parameter
        K: int = 50,
        lambdaC: float = 1.0,
        alpha: float = 0.8,
        margin: float = 5e-4,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        if lambdaC < 0:
            raise Mismatch(f"ManifoldLoss: lambdaC must not be negative, got {lambdaC}")
        self.require_reducer("mean")
        self.l = l
        self.K = K
        self.lambdaC = lambdaC
        self.alpha = alpha
        self.margin = margin
        self.proxies = nn.Parameter(torch.randn(K, l))

    def get_default_distance(self) -> BaseDistance:
        return CosineSimilarity()

    def check_inputs(
        self, embeddings: Tensor, labels: Tensor | None, indices_tuple: Any, ref_emb: Tensor | None
    ) -> None:
        if labels is not None or ref_emb is not None:
            raise Mismatch(
                "ManifoldLoss: expected embeddings and indices_tuple only, which holds the proxy of each sample"
            )
        if embeddings.shape[1] != self.l:
            raise Mismatch(f"ManifoldLoss: embeddings have {embeddings.shape[1]} dimensions, and l is {self.l}")
        if indices_tuple is None and len(embeddings) < self.K:
            raise Mismatch(f"ManifoldLoss: {len(embeddings)} samples are fewer than the {self.K} proxies")

    def compute_loss(
        self, embeddings: Tensor, labels: Tensor | None, indices_tuple: Any, ref_emb: Tensor, ref_labels: Tensor | None
    ) -> LossDict:
        n = len(embeddings)
        own = self._drawn(n, embeddings.device) if indices_tuple is None else indices_tuple.to(embeddings.device)
        points = torch.cat([embeddings, self.proxies.to(embeddings)])
        every = torch.eye(len(points), device=points.device, dtype=points.dtype)
        # W_ij = e^{2 max(s_ij, 0)} without the diagonal; F = (1 - alpha) (I - alpha D^{-1/2} W D^{-1/2})^{-1}
        weights = torch.exp(self.distance(points, points).clamp_min(0) / 0.5) * (1 - every)
        scale = weights.sum(1).rsqrt()
        walk = (1 - self.alpha) * torch.linalg.inv(every - self.alpha * scale[:, None] * weights * scale)
        of_samples = walk[:n]
        of_proxies = walk[n:]
        context = cosine_similarity(of_samples[:, None], of_proxies[None], dim=2)  # (n, K)
        loss = _softened(context, own, self.margin)
        if self.lambdaC != inf:
            loss = _softened(of_samples[:, n:], own, self.margin) + self.lambdaC * loss
        return {"loss": reduced(loss)}

    def _drawn(self, n: int, device: torch.device) -> Tensor:
        """Return a proxy for each of n samples, each at least once."""
        more = torch.randint(0, self.K, (n - self.K,))
        return torch.cat([torch.arange(self.K), more])[torch.randperm(n)].to(device)


def _softened(similarity: Tensor, own: Tensor, margin: float) -> Tensor:
    """Return mean_i log(1 + sum e^g), g = s_ik - s_i,own + margin, over the other proxies k for which g is positive."""
    gap = similarity - similarity.gather(1, own[:, None]) + margin
    others = torch.ones_like(gap, dtype=torch.bool).scatter(1, own[:, None], False)
    return logsumexp(gap, others & (gap >= 0), add_one=True).mean()
