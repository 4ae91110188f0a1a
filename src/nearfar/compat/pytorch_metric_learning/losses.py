"""Losses, called ``loss(embeddings, labels, indices_tuple, ref_emb, ref_labels)``."""

from __future__ import annotations

from collections.abc import Sequence
from math import radians
from typing import Any

import torch
from torch import Tensor, nn

import nearfar

from ...deep.objective.terms import AnchorLoss, Term
from .absent import Absent, find
from .distances import BaseDistance, CosineSimilarity, DotProductSimilarity, LpDistance, SNRDistance
from .indices import GivenTriplets, Indices, checked, relation_of, sample_weights
from .reducers import BaseReducer, DoNothingReducer

ABSENT = {
    "AngularLoss": "nearfar.AngularLoss scales vectors itself",
    "DynamicSoftMarginLoss": "no loss of nearfar has margins by their distribution so far",
    "GenericPairLoss": "nearfar.deep.RowLoss is the base of losses of your own",
    "BaseLossWrapper": "nearfar.deep.Term is the base of terms of your own",
    "InstanceLoss": "nearfar.CrossEntropyHead is what its paper describes",
    "ManifoldLoss": "no loss of nearfar walks on a graph of the batch",
    "MarginLoss": "nearfar.MarginLoss counts each pair once, not once for each triplet",
    "NPairsLoss": "nearfar.NPairLoss takes all positive pairs",
    "P2SGradLoss": "nearfar.P2SGradLoss(C, D) times 2 / C is its value",
    "PNPLoss": "nearfar.PNPLoss does not count a sample as a positive of itself",
    "RankedListLoss": "nearfar.RankedListLoss holds the weights of samples constant",
    "SmoothAPLoss": "nearfar.SmoothAPLoss reads the labels",
    "VICRegLoss": "nearfar.VICRegLoss(variance=12.5) takes the second view as ref=",
}


def distance_settings(who: str, distance: BaseDistance | None, allowed: Sequence[str]) -> dict[str, Any]:
    """Return `distance` and `normalize` of our losses for one of theirs; None is the first that is allowed."""
    found = ("euclidean", True)
    if distance is None:
        found = (allowed[0], True)
    elif type(distance) is LpDistance and distance.p == 2 and distance.power in (1, 2):
        found = ("euclidean" if distance.power == 1 else "sq_euclidean", distance.normalize_embeddings)
    elif type(distance) is CosineSimilarity and distance.power == 1:
        found = ("cosine", True)
    elif type(distance) is DotProductSimilarity and distance.power == 1:
        found = ("dot", distance.normalize_embeddings)
    else:
        raise NotImplementedError(f"{who}: distance: {type(distance).__name__} with these settings is not here")
    if found[0] not in allowed:
        raise NotImplementedError(f"{who}: distance: only {', '.join(allowed)} are here, got {found[0]}")
    return {"distance": found[0], "normalize": found[1]}


class AsDissimilarity:
    """A distance of the other library as one of ours: smaller is nearer.

    Parameters
    ----------
    distance : BaseDistance
        It scales vectors itself.
    """

    def __init__(self, distance: BaseDistance) -> None:
        self.distance = distance

    def __call__(self, x: Tensor, ref: Tensor) -> Tensor:
        d: Tensor = self.distance(x, ref)
        return -d if self.distance.is_inverted else d


def any_distance(who: str, distance: BaseDistance | None) -> dict[str, Any]:
    """Return `distance` and `normalize` of a loss of ours that takes any distance."""
    try:
        return distance_settings(who, distance, ("euclidean", "sq_euclidean", "cosine", "dot"))
    except NotImplementedError:
        if not isinstance(distance, BaseDistance):
            raise
        return {"distance": AsDissimilarity(distance), "normalize": False}


def reduction_of(who: str, reducer: BaseReducer | None, names: dict[str, str]) -> str:
    """Return our name for a reducer; the first of `names`, kinds of reducers, is that of None."""
    kind = next(iter(names)) if reducer is None else getattr(reducer, "kind", "")
    if kind not in names:
        raise NotImplementedError(f"{who}: reducer: only {', '.join(names)} are here, got {type(reducer).__name__}")
    return names[kind]


class BaseMetricLossFunction(nn.Module):
    """A loss of this library, `term`, under the calls of the other.

    Parameters
    ----------
    term : Term
        The loss itself.
    embedding_regularizer : Module, optional
        A penalty of the embeddings, which is added with the weight `embedding_reg_weight`.
    """

    def __init__(
        self,
        term: Term,
        *,
        reducer: BaseReducer | None = None,
        embedding_regularizer: nn.Module | None = None,
        embedding_reg_weight: float = 1,
        weight_regularizer: nn.Module | None = None,
        weight_reg_weight: float = 1,
        collect_stats: bool = False,
        **others: Any,
    ) -> None:
        super().__init__()
        if others:
            raise TypeError(f"{type(self).__name__}: unknown settings {sorted(others)}")
        self.term = term
        self.single = type(reducer) is DoNothingReducer
        self.embedding_regularizer = embedding_regularizer
        self.embedding_reg_weight = embedding_reg_weight
        self.weight_regularizer = weight_regularizer
        self.weight_reg_weight = weight_reg_weight

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor | None = None,
        indices_tuple: Indices | None = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of a batch.

        Parameters
        ----------
        embeddings : (n, d) float tensor
        labels : (n,) integers; None where there are indices
        indices_tuple : 3 or 4 tensors, optional
            Triplets or pairs of samples, or of samples and references.
        ref_emb, ref_labels : (m, d) float tensor, (m,) integers, optional
        """
        if labels is None and indices_tuple is None:
            raise ValueError("labels: needed where there is no indices_tuple")
        if labels is not None and len(labels) != len(embeddings):
            raise ValueError("Number of embeddings must equal number of labels")
        if ref_emb is None:
            ref_labels = None
        elif ref_labels is None and labels is not None:
            ref_labels = labels
        value = self.value(embeddings, labels, indices_tuple, ref_emb, ref_labels)
        if self.embedding_regularizer is not None:
            value = value + self.embedding_reg_weight * self.embedding_regularizer(embeddings)
        if self.weight_regularizer is not None:
            value = value + self.weight_reg_weight * self.weight_regularizer(self.term.proxies)
        return value

    def value(
        self, x: Tensor, y: Tensor | None, indices: Indices | None, ref: Tensor | None, ref_y: Tensor | None
    ) -> Tensor:
        term = self.term
        if indices is not None:
            y = relation_of(indices, len(x), len(x) if ref is None else len(ref))
            ref_y = None
        assert y is not None
        if self.single and isinstance(term, AnchorLoss):
            return term.sample_losses(x, y, ref=ref, ref_labels=ref_y)
        value: Tensor = term(x, y, ref=ref, ref_labels=ref_y)
        return value


class WeightRegularizerMixin(BaseMetricLossFunction):
    """A loss with class weights; with indices, a sample counts by how often it was mined."""

    def value(
        self, x: Tensor, y: Tensor | None, indices: Indices | None, ref: Tensor | None, ref_y: Tensor | None
    ) -> Tensor:
        if ref is not None:
            raise ValueError(f"{type(self).__name__}: ref_emb is not supported, the loss has class weights")
        if y is None:
            raise ValueError(f"{type(self).__name__}: labels are needed, the loss has class weights")
        if indices is None and not self.single:
            value: Tensor = self.term(x, y)
            return value
        if not isinstance(self.term, AnchorLoss):
            raise TypeError(f"{type(self).__name__}: indices_tuple is not supported")
        losses = self.term.sample_losses(x, y)
        if indices is not None:
            losses = losses * sample_weights(indices, len(x), anchors_only=self.anchors_only).to(losses)
        return losses if self.single else losses.mean()

    @property
    def W(self) -> Tensor:
        """The class weights as the other library lays them out, (embedding_size, C), in the memory of ours."""
        term: Any = self.term
        weights: Tensor = term.proxies.T
        return weights

    @property
    def proxies(self) -> Tensor:
        term: Any = self.term
        weights: Tensor = term.proxies
        return weights

    anchors_only = False  # of indices, only anchors count a sample

    def get_logits(self, embeddings: Tensor) -> Tensor:
        term: Any = self.term
        logits: Tensor = term.get_logits(embeddings)
        return logits


EACH = {"mean": "mean", "none": "mean"}  # losses that take the mean over samples


class TripletMarginLoss(BaseMetricLossFunction):
    """Triplets; with indices of three tensors, these and no others."""

    def __init__(
        self,
        margin: float = 0.05,
        swap: bool = False,
        smooth_loss: bool = False,
        triplets_per_anchor: str | int = "all",
        *,
        distance: BaseDistance | None = None,
        reducer: BaseReducer | None = None,
        **settings: Any,
    ) -> None:
        name = "TripletMarginLoss"
        if triplets_per_anchor != "all":
            raise NotImplementedError(f"{name}: triplets_per_anchor: only 'all'; nearfar.RandomNegative draws some")
        how = any_distance(name, distance)
        kinds = {"nonzero": "active", "mean": "valid", "sum": "sum", "none": "active"}
        self.how = {**how, "swap": swap, "soft": smooth_loss, "reduction": reduction_of(name, reducer, kinds)}
        self.margin = margin
        super().__init__(nearfar.TripletLoss(margin, **self.how), reducer=reducer, **settings)

    def value(
        self, x: Tensor, y: Tensor | None, indices: Indices | None, ref: Tensor | None, ref_y: Tensor | None
    ) -> Tensor:
        if indices is None or len(checked(indices)) == 4:
            return super().value(x, y, indices, ref, ref_y)
        anchors, positives, negatives = checked(indices)
        miner = GivenTriplets(anchors, positives, negatives, n=len(x))
        term = nearfar.TripletLoss(self.margin, miner=miner, **self.how)
        unknown = torch.zeros(len(x), dtype=torch.int64, device=x.device)
        others = None if ref is None else torch.zeros(len(ref), dtype=torch.int64, device=x.device)
        if self.single:
            return term.sample_losses(x, unknown, ref=ref, ref_labels=others)
        value: Tensor = term(x, unknown, ref=ref, ref_labels=others)
        return value


class ContrastiveLoss(BaseMetricLossFunction):
    """Pairs, by plain distances."""

    def __init__(
        self,
        pos_margin: float = 0,
        neg_margin: float = 1,
        *,
        distance: BaseDistance | None = None,
        reducer: BaseReducer | None = None,
        **settings: Any,
    ) -> None:
        name = "ContrastiveLoss"
        how = any_distance(name, distance)
        kinds = {"nonzero": "active", "mean": "balanced", "sum": "sum", "none": "active"}
        near = float(pos_margin)
        far = float(neg_margin)
        if how["distance"] == "cosine":  # margins of similarities
            near = 1 - near
            far = 1 - far
        elif how["distance"] == "dot" or (distance is not None and distance.is_inverted):
            near = -near
            far = -far
        term = nearfar.ContrastiveLoss(
            far, form="plain", pos_margin=near, reduction=reduction_of(name, reducer, kinds), **how
        )
        super().__init__(term, reducer=reducer, **settings)


class SignalToNoiseRatioContrastiveLoss(ContrastiveLoss):
    """Pairs, by signal-to-noise ratios."""

    def __init__(self, *args: Any, distance: BaseDistance | None = None, **settings: Any) -> None:
        if distance is not None and type(distance) is not SNRDistance:
            raise ValueError("SignalToNoiseRatioContrastiveLoss: distance must be an SNRDistance")
        super().__init__(*args, distance=SNRDistance() if distance is None else distance, **settings)


def check_settings(name: str, distances: Sequence[str], kinds: dict[str, str], settings: dict[str, Any]) -> None:
    """Take the distance out of the settings, and raise where it or the reducer are not those of the method."""
    how = distance_settings(name, settings.pop("distance", None), distances)
    if not how["normalize"] and distances[0] != "dot":
        raise NotImplementedError(f"{name}: distance: normalize_embeddings=False is not here")
    reduction_of(name, settings.get("reducer"), kinds)


class NTXentLoss(BaseMetricLossFunction):
    """InfoNCE for each positive pair."""

    def __init__(self, temperature: float = 0.07, **settings: Any) -> None:
        check_settings("NTXentLoss", ("cosine",), {"mean": "mean"}, settings)
        super().__init__(nearfar.NTXentLoss(temperature), **settings)


class SupConLoss(BaseMetricLossFunction):
    """Supervised contrastive loss."""

    def __init__(self, temperature: float = 0.1, **settings: Any) -> None:
        check_settings("SupConLoss", ("cosine",), {"nonzero": "mean", "none": "mean"}, settings)
        super().__init__(nearfar.SupConLoss(temperature), **settings)


class MultiSimilarityLoss(BaseMetricLossFunction):
    """Soft weights of similar and dissimilar pairs."""

    def __init__(self, alpha: float = 2, beta: float = 50, base: float = 0.5, **settings: Any) -> None:
        check_settings("MultiSimilarityLoss", ("cosine",), EACH, settings)
        term = nearfar.MultiSimilarityLoss(alpha=alpha, beta=beta, base=base)
        term.reduction = "sum"
        super().__init__(term, **settings)

    def value(
        self, x: Tensor, y: Tensor | None, indices: Indices | None, ref: Tensor | None, ref_y: Tensor | None
    ) -> Tensor:
        """Divide by the number of samples, also of those that are in no pair."""
        value = super().value(x, y, indices, ref, ref_y)
        return value / max(len(x), 1)


class CircleLoss(BaseMetricLossFunction):
    """Weights by the distance from the optimum."""

    def __init__(self, m: float = 0.4, gamma: float = 80, **settings: Any) -> None:
        check_settings("CircleLoss", ("cosine",), {"nonzero": "mean", "none": "mean"}, settings)
        super().__init__(nearfar.CircleLoss(margin=m, scale=gamma), **settings)


class NCALoss(BaseMetricLossFunction):
    """Neighborhood components."""

    def __init__(self, softmax_scale: float = 1, **settings: Any) -> None:
        check_settings("NCALoss", ("sq_euclidean",), EACH, settings)
        super().__init__(nearfar.NCALoss(temperature=1 / softmax_scale, normalize=True), **settings)

    def value(
        self, x: Tensor, y: Tensor | None, indices: Indices | None, ref: Tensor | None, ref_y: Tensor | None
    ) -> Tensor:
        """With indices, a sample counts by how often it was mined."""
        if indices is None:
            return super().value(x, y, None, ref, ref_y)
        if y is None:
            raise ValueError("NCALoss: labels are needed, indices only weigh the samples")
        assert isinstance(self.term, AnchorLoss)
        losses = self.term.sample_losses(x, y, ref=ref, ref_labels=ref_y)
        losses = losses * sample_weights(indices, len(x), anchors_only=ref is not None).to(losses)
        return losses if self.single else losses.mean()


class LiftedStructureLoss(BaseMetricLossFunction):
    """Each positive pair against the negatives of both."""

    def __init__(self, neg_margin: float = 1, pos_margin: float = 0, **settings: Any) -> None:
        _margin_of_positives("LiftedStructureLoss", pos_margin)
        check_settings("LiftedStructureLoss", ("euclidean",), {"mean": "mean"}, settings)
        super().__init__(nearfar.LiftedLoss(margin=neg_margin, normalize=True), **settings)

    def value(
        self, x: Tensor, y: Tensor | None, indices: Indices | None, ref: Tensor | None, ref_y: Tensor | None
    ) -> Tensor:
        if ref is not None:
            raise NotImplementedError(
                "LiftedStructureLoss: ref_emb: negatives of both ends are those of one batch here"
            )
        return super().value(x, y, indices, ref, ref_y)


class GeneralizedLiftedStructureLoss(BaseMetricLossFunction):
    """All positives of an anchor against all its negatives."""

    def __init__(self, neg_margin: float = 1, pos_margin: float = 0, **settings: Any) -> None:
        _margin_of_positives("GeneralizedLiftedStructureLoss", pos_margin)
        check_settings("GeneralizedLiftedStructureLoss", ("euclidean",), EACH, settings)
        super().__init__(nearfar.GeneralizedLiftedLoss(margin=neg_margin, normalize=True), **settings)


def _margin_of_positives(name: str, pos_margin: float) -> None:
    if pos_margin:
        raise NotImplementedError(f"{name}: pos_margin: only 0 is here, got {pos_margin}")


class TupletMarginLoss(BaseMetricLossFunction):
    """Tuplets with a margin in degrees."""

    def __init__(self, margin: float = 5.73, scale: float = 64, **settings: Any) -> None:
        check_settings("TupletMarginLoss", ("cosine",), {"mean": "mean"}, settings)
        super().__init__(nearfar.TupletMarginLoss(margin=radians(margin), scale=scale), **settings)


class IntraPairVarianceLoss(BaseMetricLossFunction):
    """The variance of the similarities of pairs."""

    def __init__(self, pos_eps: float = 0.01, neg_eps: float = 0.01, **settings: Any) -> None:
        check_settings("IntraPairVarianceLoss", ("cosine",), {"mean": "mean"}, settings)
        super().__init__(nearfar.IntraPairVarianceLoss(pos_eps=pos_eps, neg_eps=neg_eps), **settings)


class FastAPLoss(BaseMetricLossFunction):
    """Average precision by histograms."""

    def __init__(self, num_bins: int = 10, **settings: Any) -> None:
        check_settings("FastAPLoss", ("sq_euclidean",), EACH, settings)
        super().__init__(nearfar.FastAPLoss(num_bins=num_bins), **settings)


class HistogramLoss(BaseMetricLossFunction):
    """The overlap of the histograms of similar and of dissimilar pairs."""

    def __init__(self, n_bins: int | None = None, delta: float | None = None, **settings: Any) -> None:
        if delta is not None and n_bins is not None and abs(delta * n_bins - 2) > 1e-6:
            raise ValueError(f"HistogramLoss: delta must be 2 / n_bins, got {delta} and {n_bins}")
        if n_bins is None:
            n_bins = 100 if delta is None else round(2 / delta)
        check_settings("HistogramLoss", ("cosine",), {"mean": "mean"}, settings)
        super().__init__(nearfar.HistogramLoss(num_bins=n_bins), **settings)


class ThresholdConsistentMarginLoss(BaseMetricLossFunction):
    """How far similar and dissimilar pairs are beyond two thresholds."""

    def __init__(
        self,
        lambda_plus: float = 1,
        lambda_minus: float = 1,
        margin_plus: float = 0.9,
        margin_minus: float = 0.5,
        **settings: Any,
    ) -> None:
        name = "ThresholdConsistentMarginLoss"
        if lambda_plus != 1 or lambda_minus != 1:
            raise NotImplementedError(f"{name}: lambda_plus and lambda_minus: only 1 is here")
        check_settings(name, ("cosine",), {"mean": "mean"}, settings)
        super().__init__(
            nearfar.ThresholdConsistentMarginLoss(pos_margin=margin_plus, neg_margin=margin_minus), **settings
        )


class SphereFaceLoss(WeightRegularizerMixin):
    """The angle of the own class, multiplied."""

    unit_proxies = True

    def __init__(
        self, num_classes: int, embedding_size: int, margin: int = 4, scale: float = 1, **settings: Any
    ) -> None:
        check_settings(type(self).__name__, ("cosine",), EACH, settings)
        term = nearfar.SphereFaceLoss(
            num_classes, embedding_size, margin=margin, scale=scale, unit_proxies=self.unit_proxies
        )
        super().__init__(term, **settings)


class LargeMarginSoftmaxLoss(SphereFaceLoss):
    """SphereFace with class weights of any length."""

    unit_proxies = False


class ArcFaceLoss(WeightRegularizerMixin):
    """An angle, in degrees, added to that of the own class."""

    def __init__(
        self, num_classes: int, embedding_size: int, margin: float = 28.6, scale: float = 64, **settings: Any
    ) -> None:
        check_settings("ArcFaceLoss", ("cosine",), EACH, settings)
        super().__init__(
            nearfar.ArcFaceLoss(num_classes, embedding_size, margin=radians(margin), scale=scale), **settings
        )


class SubCenterArcFaceLoss(WeightRegularizerMixin):
    """ArcFace with several centers of each class."""

    def __init__(
        self,
        *,
        num_classes: int,
        embedding_size: int,
        margin: float = 28.6,
        scale: float = 64,
        sub_centers: int = 3,
        **settings: Any,
    ) -> None:
        check_settings("SubCenterArcFaceLoss", ("cosine",), EACH, settings)
        term = nearfar.SubCenterArcFaceLoss(
            num_classes, embedding_size, margin=radians(margin), scale=scale, sub_centers=sub_centers
        )
        super().__init__(term, **settings)


class CosFaceLoss(WeightRegularizerMixin):
    """A margin taken from the cosine of the own class."""

    def __init__(
        self, num_classes: int, embedding_size: int, margin: float = 0.35, scale: float = 64, **settings: Any
    ) -> None:
        check_settings("CosFaceLoss", ("cosine",), EACH, settings)
        super().__init__(nearfar.CosFaceLoss(num_classes, embedding_size, margin=margin, scale=scale), **settings)


class NormalizedSoftmaxLoss(WeightRegularizerMixin):
    """Softmax of cosines."""

    def __init__(self, num_classes: int, embedding_size: int, temperature: float = 0.05, **settings: Any) -> None:
        check_settings("NormalizedSoftmaxLoss", ("dot",), EACH, settings)
        super().__init__(
            nearfar.AMSoftmaxLoss(num_classes, embedding_size, scale=1 / temperature, margin=0), **settings
        )


class ProxyNCALoss(WeightRegularizerMixin):
    """Softmax of squared distances to proxies."""

    anchors_only = True

    def __init__(self, num_classes: int, embedding_size: int, softmax_scale: float = 1, **settings: Any) -> None:
        check_settings("ProxyNCALoss", ("sq_euclidean",), EACH, settings)
        super().__init__(
            nearfar.ProxyNCAPlusPlusLoss(num_classes, embedding_size, temperature=1 / softmax_scale), **settings
        )


class ProxyAnchorLoss(WeightRegularizerMixin):
    """Proxies as anchors."""

    def __init__(
        self, num_classes: int, embedding_size: int, margin: float = 0.1, alpha: float = 32, **settings: Any
    ) -> None:
        check_settings("ProxyAnchorLoss", ("cosine",), {"divisor": "mean"}, settings)
        super().__init__(nearfar.ProxyAnchorLoss(num_classes, embedding_size, margin=margin, scale=alpha), **settings)


class SoftTripleLoss(WeightRegularizerMixin):
    """Several soft centers of each class."""

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        centers_per_class: int = 10,
        la: float = 20,
        gamma: float = 0.1,
        margin: float = 0.01,
        **settings: Any,
    ) -> None:
        check_settings("SoftTripleLoss", ("cosine",), EACH, settings)
        term = nearfar.SoftTripleLoss(
            num_classes, embedding_size, centers=centers_per_class, scale=la, gamma=gamma, margin=margin, tau=0
        )
        super().__init__(term, **settings)


class SelfSupervisedLoss(nn.Module):
    """Two views of the same samples, each sample a class of its own."""

    def __init__(self, loss: nn.Module, symmetric: bool = True) -> None:
        super().__init__()
        self.loss = loss
        self.symmetric = symmetric

    def forward(self, embeddings: Tensor, ref_emb: Tensor) -> Tensor:
        labels = torch.arange(len(embeddings), device=embeddings.device)
        if self.symmetric:
            value: Tensor = self.loss(torch.cat([embeddings, ref_emb]), labels.repeat(2))
        else:
            value = self.loss(embeddings, labels, ref_emb=ref_emb, ref_labels=labels.clone())
        return value


class MultipleLosses(nn.Module):
    """A weighted sum of losses, each with a miner of its own."""

    def __init__(
        self,
        losses: Sequence[nn.Module] | dict[str, nn.Module],
        miners: Sequence[Any] | dict[str, Any] | None = None,
        weights: Sequence[float] | dict[str, float] | None = None,
    ) -> None:
        super().__init__()
        if isinstance(losses, dict):
            miners = _by_name(losses, miners)
            weights = _by_name(losses, weights)
            losses = list(losses.values())
        self.losses = nn.ModuleList(losses)
        self.miners = [None] * len(losses) if miners is None else list(miners)
        self.weights = [1.0] * len(losses) if weights is None else list(weights)
        if not len(self.losses) == len(self.miners) == len(self.weights):
            raise ValueError("losses, miners and weights must be of equal length")

    def forward(self, embeddings: Tensor, labels: Tensor, indices_tuple: Indices | None = None) -> Tensor:
        total = embeddings.sum() * 0
        for loss, miner, weight in zip(self.losses, self.miners, self.weights, strict=True):
            found = indices_tuple if miner is None else miner(embeddings, labels)
            total = total + weight * loss(embeddings, labels, found)
        return total


def _by_name(losses: dict[str, nn.Module], others: Any) -> Any:
    """Return what belongs to each of the named losses, in their order; those without a miner have none."""
    if others is None:
        return None
    unknown = set(others) - set(losses)
    if unknown:
        raise ValueError(f"no loss is called {sorted(unknown)[0]!r}; they are {sorted(losses)}")
    return [others.get(name) for name in losses]


class CrossBatchMemory(nn.Module):
    """A loss against a queue of the embeddings of the last batches, of which the present one is a part."""

    embedding_memory: Tensor
    label_memory: Tensor

    def __init__(self, loss: nn.Module, embedding_size: int, memory_size: int = 1024, miner: Any = None) -> None:
        super().__init__()
        if isinstance(loss, WeightRegularizerMixin):
            raise ValueError(f"CrossBatchMemory not supported for {type(loss).__name__}")
        self.loss = loss
        self.miner = miner
        self.memory_size = memory_size
        self.embedding_size = embedding_size
        self.reset_queue()

    def reset_queue(self) -> None:
        self.register_buffer("embedding_memory", torch.zeros(self.memory_size, self.embedding_size))
        self.register_buffer("label_memory", torch.zeros(self.memory_size, dtype=torch.int64))
        self.queue_idx = 0
        self.has_been_filled = False

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        n = len(embeddings)
        if n > self.memory_size:
            raise ValueError(f"CrossBatchMemory: a batch of {n} does not fit into memory_size={self.memory_size}")
        self.embedding_memory = self.embedding_memory.to(embeddings)
        places = (self.queue_idx + torch.arange(n, device=labels.device)) % self.memory_size
        self.embedding_memory[places] = embeddings.detach()
        self.label_memory[places] = labels
        self.has_been_filled = self.has_been_filled or self.queue_idx + n >= self.memory_size
        self.queue_idx = (self.queue_idx + n) % self.memory_size
        size = self.memory_size if self.has_been_filled else self.queue_idx
        memory = self.embedding_memory[:size].clone()
        known = self.label_memory[:size].clone()
        if self.miner is None:
            similar = labels[:, None] == known
            similar[torch.arange(n, device=labels.device), places] = False
            other = labels[:, None] != known
            found = (*similar.nonzero(as_tuple=True), *other.nonzero(as_tuple=True))
        else:
            found = _without_self(self.miner(embeddings, labels, memory, known), places)
        value: Tensor = self.loss(embeddings, labels, found, memory, known)
        return value


def _without_self(indices: Indices, places: Tensor) -> tuple[Tensor, ...]:
    """Leave out pairs and triplets whose positive is the anchor itself, in the memory."""
    parts = checked(indices)
    keep = places[parts[0]] != parts[1]
    if len(parts) == 3:
        return tuple(part[keep] for part in parts)
    return parts[0][keep], parts[1][keep], parts[2], parts[3]


__all__ = [
    "ArcFaceLoss",
    "BaseMetricLossFunction",
    "CircleLoss",
    "ContrastiveLoss",
    "CosFaceLoss",
    "CrossBatchMemory",
    "FastAPLoss",
    "GeneralizedLiftedStructureLoss",
    "HistogramLoss",
    "IntraPairVarianceLoss",
    "LargeMarginSoftmaxLoss",
    "LiftedStructureLoss",
    "MultiSimilarityLoss",
    "MultipleLosses",
    "NCALoss",
    "NTXentLoss",
    "NormalizedSoftmaxLoss",
    "ProxyAnchorLoss",
    "ProxyNCALoss",
    "SelfSupervisedLoss",
    "SignalToNoiseRatioContrastiveLoss",
    "SoftTripleLoss",
    "SphereFaceLoss",
    "SubCenterArcFaceLoss",
    "SupConLoss",
    "ThresholdConsistentMarginLoss",
    "TripletMarginLoss",
    "TupletMarginLoss",
]


def __getattr__(name: str) -> type[Absent]:
    return find(__name__, ABSENT, name)
