"""Losses of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from math import radians
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

import nearfar

from ....deep import distributed
from ....deep.objective.relations import UNKNOWN
from ....deep.proxies.angular_margins import turned
from ..distances import BaseDistance, CosineSimilarity, LpDistance, SNRDistance
from ..indices import Indices, Labels, listed_pairs, pair_counts, pair_masks
from ..mismatch import Mismatch
from ..reducers import AvgNonZeroReducer, BaseReducer
from ..utils.loss_and_miner_utils import logsumexp
from .base import AsDissimilarity, BaseMetricLossFunction, LossDict, NeedsLabels, elements, reduced, weighted_value

EACH = {"mean": "mean"}  # losses that take the mean over samples
COSINES = ("cosine",)


class GenericPairLoss(BaseMetricLossFunction):
    """The base of losses of pairs, also of your own, which state `_compute_loss`.

    Parameters
    ----------
    mat_based_loss : bool
        `_compute_loss` takes the (n, m) matrix of distances and two masks of its shape, of similar and of dissimilar
        pairs, as numbers 0 and 1. Otherwise it takes the distances of similar pairs, those of dissimilar pairs, and the
        four tensors of indices, in which a pair may be listed several times.
    """

    def __init__(self, mat_based_loss: bool, **settings: Any) -> None:
        super().__init__(**settings)
        self.mat_based_loss = mat_based_loss

    def compute_loss(
        self, embeddings: Tensor, labels: Labels, indices_tuple: Indices | None, ref_emb: Tensor, ref_labels: Labels
    ) -> LossDict:
        mat = self.distance(embeddings, ref_emb)
        if self.mat_based_loss:
            masks = pair_counts if self.counts_repeats else pair_masks
            pos, neg = masks(embeddings, labels, indices_tuple, ref_emb, ref_labels)
            return self._compute_loss(mat, pos.to(mat.dtype), neg.to(mat.dtype))
        pairs = listed_pairs(embeddings, labels, indices_tuple, ref_emb, ref_labels)
        if not len(pairs[0]) and not len(pairs[2]):
            return self.zero_losses()
        # (p,) distances of the listed similar pairs, and those of the dissimilar ones
        return self._compute_loss(mat[pairs[0], pairs[1]], mat[pairs[2], pairs[3]], pairs)

    def _compute_loss(self, *args: Any) -> LossDict:
        raise NotImplementedError(f"{type(self).__name__}: this distance or reducer is not supported")


class ContrastiveLoss(GenericPairLoss):
    """Pairs, by plain distances."""

    counts_repeats = True

    def __init__(self, pos_margin: float = 0, neg_margin: float = 1, **settings: Any) -> None:
        super().__init__(mat_based_loss=False, **settings)
        self.pos_margin = pos_margin
        self.neg_margin = neg_margin
        how = any_distance(self, {"nonzero": "active", "mean": "balanced", "sum": "sum"})
        if how is None:
            return
        near = float(pos_margin)
        far = float(neg_margin)
        if how["distance"] == "cosine":  # margins of similarities
            near = 1 - near
            far = 1 - far
        # our distances are minus inner products, and so are the margins
        elif self.distance.is_inverted:
            near = -near
            far = -far
        self.term = nearfar.ContrastiveLoss(far, form="plain", pos_margin=near, **how)

    def get_default_reducer(self) -> BaseReducer:
        return AvgNonZeroReducer()

    def _sub_loss_names(self) -> list[str]:
        return ["pos_loss", "neg_loss"]

    def _compute_loss(self, pos_pair_dist: Tensor, neg_pair_dist: Tensor, indices_tuple: Sequence[Tensor]) -> LossDict:
        a1, p, a2, n = indices_tuple
        pulled = torch.relu(self.distance.margin(pos_pair_dist, self.pos_margin))
        pushed = torch.relu(self.distance.margin(self.neg_margin, neg_pair_dist))
        return {
            "pos_loss": {"losses": pulled, "indices": (a1, p), "reduction_type": "pos_pair"},
            "neg_loss": {"losses": pushed, "indices": (a2, n), "reduction_type": "neg_pair"},
        }


class SignalToNoiseRatioContrastiveLoss(ContrastiveLoss):
    """Pairs, by signal-to-noise ratios."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.require_distance(SNRDistance)

    def get_default_distance(self) -> BaseDistance:
        return SNRDistance()


def any_distance(loss: BaseMetricLossFunction, kinds: dict[str, str]) -> dict[str, Any] | None:
    """Return the settings of a term of nearfar that takes any distance; None for a reducer that it does not know."""
    how = loss.on_engine(("euclidean", "sq_euclidean", "cosine", "dot"), kinds, raw=True)
    if how is None and loss.kind in kinds:
        how = {"distance": AsDissimilarity(loss.distance), "normalize": False, "reduction": kinds[loss.kind]}
    return how


class _Cosines(GenericPairLoss):
    """A loss of pairs by cosines, unless another distance is given."""

    def get_default_distance(self) -> BaseDistance:
        return CosineSimilarity()


def listed(counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows and the columns of pairs, each as often as its number in a matrix of counts."""
    rows, columns = counts.nonzero(as_tuple=True)
    times = counts[rows, columns].long()
    return rows.repeat_interleave(times), columns.repeat_interleave(times)


def counted_logsumexp(x: Tensor, counts: Tensor, dim: int = 1) -> Tensor:
    """Return log sum_j c_j e^{x_j}, with `dim` kept; 0 where all counts are 0."""
    # log sum_j k_j e^{x_j} for entries that are listed k_j times
    return logsumexp(x + counts.clamp_min(1).log(), counts, add_one=False, dim=dim)


class NTXentLoss(_Cosines):
    """InfoNCE for each positive pair."""

    counts_repeats = True

    def __init__(self, temperature: float = 0.07, **settings: Any) -> None:
        super().__init__(mat_based_loss=True, **settings)
        self.temperature = temperature
        if self.on_engine(COSINES, EACH):
            self.term = nearfar.NTXentLoss(temperature)

    def _compute_loss(self, mat: Tensor, pos_mask: Tensor, neg_mask: Tensor) -> LossDict:
        # -log e^{s_ap / t} / (e^{s_ap / t} + sum_n e^{s_an / t}) = log(1 + e^{log sum_n e^{s_an / t} - s_ap / t})
        s = self.distance.margin(0, mat) / self.temperature
        a, p = listed(pos_mask)
        rivals = neg_mask.bool().any(1)
        losses = softplus(counted_logsumexp(s, neg_mask)[a, 0] - s[a, p])
        losses = torch.where(rivals[a], losses, 0.0)
        return {"loss": {"losses": losses, "indices": (a, p), "reduction_type": "pos_pair"}}


class SupConLoss(_Cosines):
    """Supervised contrastive loss; 0 for a batch of one class, or without similar pairs."""

    def __init__(self, temperature: float = 0.1, **settings: Any) -> None:
        super().__init__(mat_based_loss=True, **settings)
        self.temperature = temperature
        if self.on_engine(COSINES, {"nonzero": "mean"}):
            self.term = nearfar.SupConLoss(temperature)

    def get_default_reducer(self) -> BaseReducer:
        return AvgNonZeroReducer()

    def value(
        self, x: Tensor, y: Tensor | None, indices: Indices | None, ref: Tensor | None, ref_y: Tensor | None
    ) -> Any:
        """With indices or references, an anchor with one pair has the loss 0, which does not count in the mean."""
        if indices is None and ref is None:
            return super().value(x, y, None, None, None)
        return self.reduced_value(x, y, indices, ref, ref_y)

    def term_value(
        self, x: Tensor, y: Tensor | None, indices: Indices | None, ref: Tensor | None, ref_y: Tensor | None
    ) -> Tensor:
        found = super().term_value(x, y, indices, ref, ref_y)
        assert y is not None
        return torch.where(has_two_classes(y), found, found * 0)

    def _compute_loss(self, mat: Tensor, pos_mask: Tensor, neg_mask: Tensor) -> LossDict:
        pos = pos_mask.bool()
        if not pos.any() or not neg_mask.bool().any():
            return self.zero_losses()
        s = self.distance.margin(0, mat) / self.temperature
        # log of e^{s_ij} over the sum of all samples of known relation
        log_prob = s - logsumexp(s, pos | neg_mask.bool(), add_one=False)
        losses = -torch.where(pos, log_prob, 0.0).sum(1) / pos.sum(1).clamp_min(1)
        return {"loss": elements(losses)}


def has_two_classes(y: Tensor) -> Tensor:
    """Return whether the (n,) labels of all processes are of more than one class, a boolean ()."""
    limits = torch.iinfo(y.dtype)
    least = torch.cat([y, y.new_tensor([limits.max])]).amin()  # also of no labels
    most = torch.cat([y, y.new_tensor([limits.min])]).amax()
    ends = distributed.gather_numbers(torch.stack([least, most])[None])
    return ends[:, 0].amin() < ends[:, 1].amax()


class MultiSimilarityLoss(_Cosines):
    """Soft weights of similar and dissimilar pairs."""

    def __init__(self, alpha: float = 2, beta: float = 50, base: float = 0.5, **settings: Any) -> None:
        super().__init__(mat_based_loss=True, **settings)
        self.alpha = alpha
        self.beta = beta
        self.base = base
        if self.on_engine(COSINES, EACH):
            self.term = nearfar.MultiSimilarityLoss(alpha=alpha, beta=beta, base=base)
            self.term.reduction = "sum"

    def term_value(
        self, x: Tensor, y: Tensor | None, indices: Indices | None, ref: Tensor | None, ref_y: Tensor | None
    ) -> Tensor:
        """Divide by the number of samples of all processes, also of those that are in no pair."""
        number = distributed.total(torch.tensor(len(x), device=x.device))
        return super().term_value(x, y, indices, ref, ref_y) / number.clamp_min(1)

    def _compute_loss(self, mat: Tensor, pos_mask: Tensor, neg_mask: Tensor) -> LossDict:
        # 1/a log(1 + sum_p e^{-a (s - b)}) + 1/b log(1 + sum_n e^{b (s - base)}); `margin` has the sign for
        # similarities
        pulled = logsumexp(self.alpha * self.distance.margin(mat, self.base), pos_mask, add_one=True) / self.alpha
        pushed = logsumexp(self.beta * self.distance.margin(self.base, mat), neg_mask, add_one=True) / self.beta
        return {"loss": elements((pulled + pushed)[:, 0])}


class CircleLoss(_Cosines):
    """Weights by the distance from the optimum."""

    def __init__(self, m: float = 0.4, gamma: float = 80, **settings: Any) -> None:
        super().__init__(mat_based_loss=True, **settings)
        self.require_distance(CosineSimilarity)
        self.m = m
        self.gamma = gamma
        if self.on_engine(COSINES, {"nonzero": "mean"}):
            self.term = nearfar.CircleLoss(margin=m, scale=gamma)

    def get_default_reducer(self) -> BaseReducer:
        return AvgNonZeroReducer()

    def _compute_loss(self, mat: Tensor, pos_mask: Tensor, neg_mask: Tensor) -> LossDict:
        # the weights relu(1 + m - s_p) and relu(s_n + m) are constants
        pull = -self.gamma * torch.relu(1 + self.m - mat.detach()) * (mat - (1 - self.m))
        push = self.gamma * torch.relu(mat.detach() + self.m) * (mat - self.m)
        exponent = logsumexp(pull, pos_mask, add_one=False) + logsumexp(push, neg_mask, add_one=False)
        both = pos_mask.bool().any(1) & neg_mask.bool().any(1)
        return {"loss": elements(torch.where(both, softplus(exponent[:, 0]), 0.0))}


class LiftedStructureLoss(GenericPairLoss):
    """Each positive pair against the negatives of both.

    With references, the negatives of a reference are the samples; the other library takes those of the sample that has
    the number of the reference.
    """

    counts_repeats = True

    def __init__(self, neg_margin: float = 1, pos_margin: float = 0, **settings: Any) -> None:
        super().__init__(mat_based_loss=True, **settings)
        self.neg_margin = neg_margin
        self.pos_margin = pos_margin
        if not pos_margin and self.on_engine(("euclidean",), EACH):
            self.term = nearfar.LiftedLoss(margin=neg_margin, normalize=True)

    def value(
        self, x: Tensor, y: Tensor | None, indices: Indices | None, ref: Tensor | None, ref_y: Tensor | None
    ) -> Any:
        if ref is None and indices is None:
            return super().value(x, y, indices, ref, ref_y)
        return self.reduced_value(x, y, indices, ref, ref_y)

    def compute_loss(
        self, embeddings: Tensor, labels: Labels, indices_tuple: Indices | None, ref_emb: Tensor, ref_labels: Labels
    ) -> LossDict:
        pos, neg = pair_counts(embeddings, labels, indices_tuple, ref_emb, ref_labels)
        if not pos.any() or not neg.any():
            return self.zero_losses()
        mat = self.distance(embeddings, ref_emb)
        a, p = listed(pos)
        push = self.distance.margin(self.neg_margin, mat)
        of_anchor = masked(counted_logsumexp(push, neg)[:, 0], neg.any(1))
        if ref_emb is embeddings:
            of_positive = of_anchor
        else:
            # down the columns: the samples that are negatives of a reference
            of_positive = masked(counted_logsumexp(push, neg, dim=0)[0], neg.any(0))
        pull = self.distance.margin(mat[a, p], self.pos_margin)
        exponent = torch.logaddexp(of_anchor[a], of_positive[p])
        some = neg.any(1)[a] | (neg.any(1) if ref_emb is embeddings else neg.any(0))[p]
        losses = torch.relu(torch.where(some, exponent, 0.0) + pull).square() / 2  # the log of an empty sum counts as 0
        return {"loss": {"losses": losses, "indices": (a, p), "reduction_type": "pos_pair"}}


def masked(values: Tensor, keep: Tensor) -> Tensor:
    """Return values whose exponential counts nothing where they are not kept; finite, so that gradients are."""
    return torch.where(keep, values, torch.finfo(values.dtype).min / 4)


class GeneralizedLiftedStructureLoss(GenericPairLoss):
    """All positives of an anchor against all its negatives; the logarithm of an empty sum counts as 0."""

    def __init__(self, neg_margin: float = 1, pos_margin: float = 0, **settings: Any) -> None:
        super().__init__(mat_based_loss=True, **settings)
        self.neg_margin = neg_margin
        self.pos_margin = pos_margin

    def _compute_loss(self, mat: Tensor, pos_mask: Tensor, neg_mask: Tensor) -> LossDict:
        pull = logsumexp(self.distance.margin(mat, self.pos_margin), pos_mask, add_one=False)
        push = logsumexp(self.distance.margin(self.neg_margin, mat), neg_mask, add_one=False)
        return {"loss": elements(torch.relu(pull + push)[:, 0])}


class TupletMarginLoss(_Cosines):
    """Tuplets with a margin in degrees."""

    counts_repeats = True

    def __init__(self, margin: float = 5.73, scale: float = 64, **settings: Any) -> None:
        super().__init__(mat_based_loss=True, **settings)
        self.require_distance(CosineSimilarity)
        self.margin = radians(margin)
        self.scale = scale
        if self.on_engine(COSINES, EACH):
            self.term = nearfar.TupletMarginLoss(margin=self.margin, scale=scale)

    def _compute_loss(self, mat: Tensor, pos_mask: Tensor, neg_mask: Tensor) -> LossDict:
        a, p = listed(pos_mask)
        # cos(theta_ap - m)
        own = turned(mat[a, p], -self.margin)
        rivals = neg_mask.bool().any(1)
        exponent = counted_logsumexp(self.scale * mat, neg_mask)[a, 0] - self.scale * own
        losses = torch.where(rivals[a], softplus(exponent), 0.0)
        return {"loss": {"losses": losses, "indices": (a, p), "reduction_type": "pos_pair"}}


class IntraPairVarianceLoss(_Cosines):
    """The variance of the similarities of pairs."""

    counts_repeats = True

    def __init__(self, pos_eps: float = 0.01, neg_eps: float = 0.01, **settings: Any) -> None:
        super().__init__(mat_based_loss=False, **settings)
        self.pos_eps = pos_eps
        self.neg_eps = neg_eps
        if self.on_engine(COSINES, EACH):
            self.term = nearfar.IntraPairVarianceLoss(pos_eps=pos_eps, neg_eps=neg_eps)

    def _sub_loss_names(self) -> list[str]:
        return ["pos_loss", "neg_loss"]

    def _compute_loss(self, pos_pair_dist: Tensor, neg_pair_dist: Tensor, indices_tuple: Sequence[Tensor]) -> LossDict:
        a1, p, a2, n = indices_tuple
        # bounds around the mean of each kind, whose gradient counts, too
        low = (1 - self.pos_eps) * mean(pos_pair_dist)
        high = (1 + self.neg_eps) * mean(neg_pair_dist)
        if self.distance.is_inverted:
            pulled = torch.relu(low - pos_pair_dist).square()
            pushed = torch.relu(neg_pair_dist - high).square()
        else:
            pulled = torch.relu(pos_pair_dist - (1 + self.pos_eps) * mean(pos_pair_dist)).square()
            pushed = torch.relu((1 - self.neg_eps) * mean(neg_pair_dist) - neg_pair_dist).square()
        return {
            "pos_loss": {"losses": pulled, "indices": (a1, p), "reduction_type": "pos_pair"},
            "neg_loss": {"losses": pushed, "indices": (a2, n), "reduction_type": "neg_pair"},
        }


def mean(x: Tensor) -> Tensor:
    """Return the mean, 0 of no numbers."""
    return x.sum() / max(len(x), 1)


class ThresholdConsistentMarginLoss(_Cosines):
    """How far similar and dissimilar pairs are beyond two thresholds.

    With references, pairs are of samples and references; the other library takes the samples that have their numbers.
    """

    counts_repeats = True

    def __init__(
        self,
        lambda_plus: float = 1.0,
        lambda_minus: float = 1.0,
        margin_plus: float = 0.9,
        margin_minus: float = 0.5,
        **settings: Any,
    ) -> None:
        super().__init__(mat_based_loss=False, **settings)
        self.require_cosines()
        self.require_reducer("mean")
        self.lambda_plus = lambda_plus
        self.lambda_minus = lambda_minus
        self.margin_plus = margin_plus
        self.margin_minus = margin_minus
        if lambda_plus == lambda_minus == 1:
            self.term = nearfar.ThresholdConsistentMarginLoss(pos_margin=margin_plus, neg_margin=margin_minus)

    def _compute_loss(self, pos_pair_dist: Tensor, neg_pair_dist: Tensor, indices_tuple: Sequence[Tensor]) -> LossDict:
        below = torch.relu(self.margin_plus - pos_pair_dist)
        above = torch.relu(neg_pair_dist - self.margin_minus)
        # means over the pairs on the wrong side of their threshold
        plus = below.sum() / (pos_pair_dist <= self.margin_plus).sum().clamp_min(1)
        minus = above.sum() / (neg_pair_dist >= self.margin_minus).sum().clamp_min(1)
        loss = self.lambda_plus * plus + self.lambda_minus * minus
        return {"loss": {"losses": loss, "indices": None, "reduction_type": "already_reduced"}}


class HistogramLoss(_Cosines):
    """The overlap of the histograms of similar and of dissimilar pairs."""

    def __init__(self, n_bins: int | None = None, delta: float | None = None, **settings: Any) -> None:
        if delta is not None and n_bins is not None and abs(delta * n_bins - 2) > 1e-6:
            raise Mismatch(f"HistogramLoss: delta must be 2 / n_bins, got {delta} and {n_bins}")
        if n_bins is None:
            n_bins = 100 if delta is None else round(2 / delta)
        super().__init__(mat_based_loss=True, **settings)
        self.support_distance(CosineSimilarity, power=1)
        self.require_reducer("mean")
        self.histograms = nearfar.HistogramLoss(num_bins=n_bins)

    def check_inputs(
        self, embeddings: Tensor, labels: Tensor | None, indices_tuple: Indices | None, ref_emb: Tensor | None
    ) -> None:
        super().check_inputs(embeddings, labels, indices_tuple, ref_emb)
        if ref_emb is not None:
            raise Mismatch("HistogramLoss: ref_emb is not supported")

    def compute_loss(
        self, embeddings: Tensor, labels: Labels, indices_tuple: Indices | None, ref_emb: Tensor, ref_labels: Labels
    ) -> LossDict:
        """Take the pairs that are in triplets, each once, no matter which sample is the anchor."""
        pos, neg = pair_masks(embeddings, labels, indices_tuple, ref_emb, ref_labels)
        # only pairs of anchors that have both kinds, as in the triplets of the other library
        in_triplets = (pos.any(1) & neg.any(1))[:, None]
        pos = pos & in_triplets
        neg = neg & in_triplets
        relation = torch.full_like(pos, UNKNOWN, dtype=torch.long)
        # a relation matrix is symmetric, and indices may list a pair in one order only
        relation[neg | neg.T] = 0
        relation[pos | pos.T] = 1
        return {"loss": reduced(self.histograms(embeddings, relation))}


class FastAPLoss(NeedsLabels):
    """Average precision by histograms."""

    def __init__(self, num_bins: int = 10, **settings: Any) -> None:
        super().__init__(**settings)
        self.require_distance(LpDistance, normalize_embeddings=True, p=2)
        self.support_distance(LpDistance, power=2)
        self.require_reducer("mean")
        self.num_bins = num_bins
        self.term = nearfar.FastAPLoss(num_bins=num_bins)

    def get_default_distance(self) -> BaseDistance:
        return LpDistance(power=2)

    def term_value(
        self, x: Tensor, y: Tensor | None, indices: Indices | None, ref: Tensor | None, ref_y: Tensor | None
    ) -> Tensor:
        """With indices, a sample counts by how often it was mined."""
        if indices is None:
            return super().term_value(x, y, None, ref, ref_y)
        assert y is not None
        return weighted_value(self.term, x, y, indices)
