"""Losses with class weights.

The weights are a parameter with the name and the shape that it has in the other library, so that its checkpoints load
and optimizers of scripts find it; for each call, the term of nearfar is given these weights as its proxies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import cos, radians
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

import nearfar

from ....deep.objective.terms import Term
from ..distances import BaseDistance, CosineSimilarity, DotProductSimilarity, LpDistance
from ..indices import Indices, Labels, sample_weights
from ..mismatch import Mismatch
from ..reducers import BaseReducer, DivisorReducer
from ..utils.loss_and_miner_utils import logsumexp
from .base import LossDict, NeedsLabels, check_labels, elements, our_distance


class WeightRegularizerMixin(NeedsLabels):
    """The base of losses with class weights; with indices, a sample counts by how often it was mined.

    Parameters
    ----------
    num_classes, embedding_size : int
        C and D.
    weight_init_func : callable, optional
        Called with the weights to set their start.
    weight_regularizer : Module, optional
        A penalty of the (C, D) weights, which is added with the weight `weight_reg_weight`.
    """

    weight_name = "W"  # (D, C), or (D, C K) with K centers of each class, those of one class side by side
    anchors_only = False  # of indices, only anchors count a sample

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        *,
        centers: int = 1,
        weight_init_func: Callable[[Tensor], Any] | None = None,
        weight_regularizer: nn.Module | None = None,
        weight_reg_weight: float = 1,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.num_classes = num_classes
        self.embedding_size = embedding_size
        self.centers = centers
        self.weight_regularizer = weight_regularizer
        self.weight_reg_weight = weight_reg_weight
        shape = (num_classes * centers, embedding_size)
        weights = torch.empty(shape if self.weight_name == "proxies" else shape[::-1])
        start = self.get_default_weight_init_func() if weight_init_func is None else weight_init_func
        start(weights)
        self.register_parameter(self.weight_name, nn.Parameter(weights))

    def get_default_distance(self) -> BaseDistance:
        return CosineSimilarity()

    def get_default_weight_init_func(self) -> Callable[[Tensor], Any]:
        return nn.init.normal_

    def hold(self, term: Term) -> None:
        """Keep a term of nearfar without its own proxies."""
        del term.proxies
        self.term = term

    def check_inputs(
        self, embeddings: Tensor, labels: Tensor | None, indices_tuple: Indices | None, ref_emb: Tensor | None
    ) -> None:
        super().check_inputs(embeddings, labels, indices_tuple, ref_emb)
        assert labels is not None
        if labels.device.type == "cpu" and len(labels) and int(labels.min()) < 0:
            expected = f"expected classes from 0 to {self.num_classes - 1}"
            raise Mismatch(f"{type(self).__name__}: labels: {expected}, got {int(labels.min())}")

    def rows(self) -> Tensor:
        """Return the (C K, D) weights, those of one class side by side."""
        weights: Tensor = getattr(self, self.weight_name)
        return weights if self.weight_name == "proxies" else weights.T

    @contextmanager
    def given_weights(self) -> Iterator[Any]:
        """Lend the weights to the term, whose proxies are the first centers of all classes, then the second ones."""
        rows = self.rows()
        if self.centers > 1:
            # row c K + k -> row k C + c: (C K, D) -> (C, K, D) -> (K, C, D) -> (K C, D)
            rows = rows.unflatten(0, (self.num_classes, self.centers)).transpose(0, 1).flatten(0, 1)
        self.term.proxies = rows
        try:
            yield self.term
        finally:
            del self.term.proxies

    def value(
        self, x: Tensor, y: Tensor | None, indices: Indices | None, ref: Tensor | None, ref_y: Tensor | None
    ) -> Any:
        assert y is not None
        if self.computed_by_term(indices):
            with self.given_weights() as term:
                found: Any = term(x, y)
        else:
            found = self.reduced_value(x, y, indices, None, None)
        if isinstance(found, Tensor) and self.weight_regularizer is not None:
            found = found + self.weight_reg_weight * self.weight_regularizer(self.rows())
        return found

    def computed_by_term(self, indices: Indices | None) -> bool:
        """Return whether the value of the term is that of the loss."""
        return self.kind == "mean" and indices is None

    def compute_loss(
        self, embeddings: Tensor, labels: Labels, indices_tuple: Indices | None, ref_emb: Tensor, ref_labels: Labels
    ) -> LossDict:
        assert labels is not None
        losses = self.losses_of_samples(embeddings, labels)
        if indices_tuple is not None:
            counted = sample_weights(indices_tuple, len(embeddings), anchors_only=self.anchors_only)
            losses = losses * counted.to(losses)
        return {"loss": elements(losses)}

    def losses_of_samples(self, x: Tensor, y: Tensor) -> Tensor:
        with self.given_weights() as term:
            losses: Tensor = term.sample_losses(x, y)
        return losses

    def get_logits(self, embeddings: Tensor) -> Tensor:
        """Return the (n, C) logits of embeddings, without margin."""
        with self.given_weights() as term:
            logits: Tensor = term.get_logits(embeddings)
        return logits


class LargeMarginSoftmaxLoss(WeightRegularizerMixin):
    """The angle to the weights of the own class, multiplied; weights of any length."""

    unit_proxies = False

    def __init__(
        self, num_classes: int, embedding_size: int, margin: int = 4, scale: float = 1, **settings: Any
    ) -> None:
        super().__init__(num_classes, embedding_size, **settings)
        self.require_cosines()
        self.margin = margin
        self.scale = scale
        self.hold(
            nearfar.SphereFaceLoss(
                num_classes, embedding_size, margin=margin, scale=scale, unit_proxies=self.unit_proxies
            )
        )


class SphereFaceLoss(LargeMarginSoftmaxLoss):
    """The angle to the weights of the own class, multiplied; weights of unit length."""

    unit_proxies = True


def margin_in_radians(margin: float) -> float:
    """Return an angle of ArcFace, which is given in degrees."""
    if not 0 <= margin <= 180:
        raise ValueError(f"margin is in degrees, from 0 to 180, got {margin}")
    return radians(margin)


class ArcFaceLoss(WeightRegularizerMixin):
    """An angle, in degrees, added to that of the own class."""

    def __init__(
        self, num_classes: int, embedding_size: int, margin: float = 28.6, scale: float = 64, **settings: Any
    ) -> None:
        super().__init__(num_classes, embedding_size, **settings)
        self.require_cosines()
        self.margin = margin_in_radians(margin)
        self.scale = scale
        self.hold(nearfar.ArcFaceLoss(num_classes, embedding_size, margin=self.margin, scale=scale))


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
        super().__init__(num_classes, embedding_size, centers=sub_centers, **settings)
        self.require_cosines()
        self.margin = margin_in_radians(margin)
        self.scale = scale
        self.sub_centers = sub_centers
        self.hold(
            nearfar.SubCenterArcFaceLoss(
                num_classes, embedding_size, margin=self.margin, scale=scale, sub_centers=sub_centers
            )
        )

    @torch.no_grad()
    def get_outliers(
        self, embeddings: Tensor, labels: Tensor, threshold: float = 75, return_dominant_centers: bool = True
    ) -> Any:
        """Return the samples that are far from the center of their class that most samples of it are nearest to.

        Parameters
        ----------
        embeddings, labels : (n, D) float tensor, (n,) integers
        threshold : float
            In degrees.
        return_dominant_centers : bool
            Also return these centers, (D, C); 0 for classes without samples.
        """
        checked = check_labels(embeddings, labels)
        assert checked is not None
        labels = checked
        centers = normalize(self.rows().to(embeddings), dim=1).unflatten(0, (self.num_classes, self.sub_centers))
        x = normalize(embeddings, dim=1)
        # s_ik: the cosine of sample i to center k of its class
        s = torch.stack([(x * centers[labels, k]).sum(1) for k in range(self.sub_centers)], dim=1)
        votes = torch.zeros(self.num_classes, self.sub_centers, device=x.device)
        votes.index_put_((labels, s.argmax(1)), torch.ones(len(labels), device=x.device), accumulate=True)
        dominant = votes.argmax(1)
        outliers = (s.gather(1, dominant[labels][:, None])[:, 0] < cos(radians(threshold))).nonzero()[:, 0]
        if not return_dominant_centers:
            return outliers
        every = self.rows().to(embeddings).unflatten(0, (self.num_classes, self.sub_centers))
        found = every[torch.arange(self.num_classes, device=x.device), dominant]
        return outliers, torch.where(votes.any(1)[:, None], found, 0.0).T


class CosFaceLoss(WeightRegularizerMixin):
    """A margin taken from the cosine of the own class."""

    def __init__(
        self, num_classes: int, embedding_size: int, margin: float = 0.35, scale: float = 64, **settings: Any
    ) -> None:
        super().__init__(num_classes, embedding_size, **settings)
        self.require_cosines()
        self.margin = margin
        self.scale = scale
        self.hold(nearfar.CosFaceLoss(num_classes, embedding_size, margin=margin, scale=scale))


class NormalizedSoftmaxLoss(WeightRegularizerMixin):
    """Softmax of cosines, or of another similarity to class weights of unit length."""

    def __init__(self, num_classes: int, embedding_size: int, temperature: float = 0.05, **settings: Any) -> None:
        super().__init__(num_classes, embedding_size, **settings)
        if not isinstance(self.distance, DotProductSimilarity):
            self.support_distance(DotProductSimilarity)  # raises
        self.temperature = temperature
        self.unit_embeddings = our_distance(self.distance) in (("dot", True), ("cosine", True))
        self.hold(nearfar.AMSoftmaxLoss(num_classes, embedding_size, scale=1 / temperature, margin=0))

    def get_default_distance(self) -> BaseDistance:
        return DotProductSimilarity()

    def computed_by_term(self, indices: Indices | None) -> bool:
        return self.unit_embeddings and super().computed_by_term(indices)

    def losses_of_samples(self, x: Tensor, y: Tensor) -> Tensor:
        if self.unit_embeddings:
            return super().losses_of_samples(x, y)
        return cross_entropy(self.get_logits(x), y, reduction="none")

    def get_logits(self, embeddings: Tensor) -> Tensor:
        if self.unit_embeddings:
            return super().get_logits(embeddings)
        weights = normalize(self.rows().to(embeddings), dim=1)
        logits: Tensor = self.distance(embeddings, weights) / self.temperature
        return logits


class ProxyNCALoss(WeightRegularizerMixin):
    """Softmax of squared distances to proxies."""

    weight_name = "proxies"
    anchors_only = True

    def __init__(self, num_classes: int, embedding_size: int, softmax_scale: float = 1, **settings: Any) -> None:
        super().__init__(num_classes, embedding_size, **settings)
        self.support_distance(LpDistance, normalize_embeddings=True, power=2)
        self.softmax_scale = softmax_scale
        self.hold(nearfar.ProxyNCAPlusPlusLoss(num_classes, embedding_size, temperature=1 / softmax_scale))

    def get_default_distance(self) -> BaseDistance:
        return LpDistance(power=2)

    def get_logits(self, embeddings: Tensor) -> Tensor:
        """Return the (n, C) squared distances to the proxies, as the other library does: the smallest is the class."""
        logits: Tensor = self.distance(embeddings, self.rows().to(embeddings))
        return logits


class ProxyAnchorLoss(WeightRegularizerMixin):
    """Proxies as anchors."""

    weight_name = "proxies"

    def __init__(
        self, num_classes: int, embedding_size: int, margin: float = 0.1, alpha: float = 32, **settings: Any
    ) -> None:
        super().__init__(num_classes, embedding_size, **settings)
        self.support_distance(CosineSimilarity, power=1)
        self.margin = margin
        self.alpha = alpha
        self.hold(nearfar.ProxyAnchorLoss(num_classes, embedding_size, margin=margin, scale=alpha))

    def get_default_reducer(self) -> BaseReducer:
        return DivisorReducer()

    def get_default_weight_init_func(self) -> Callable[[Tensor], Any]:
        return partial(nn.init.kaiming_normal_, mode="fan_out")

    def _sub_loss_names(self) -> list[str]:
        return ["pos_loss", "neg_loss"]

    def computed_by_term(self, indices: Indices | None) -> bool:
        return self.kind == "divisor" and indices is None

    def compute_loss(
        self, embeddings: Tensor, labels: Labels, indices_tuple: Indices | None, ref_emb: Tensor, ref_labels: Labels
    ) -> LossDict:
        """Return the losses of the proxies, to whose exponents a sample adds how often it was mined, minus 1."""
        assert labels is not None
        cosine = self.get_logits(embeddings)  # (n, C)
        own = nn.functional.one_hot(labels, self.num_classes).bool()
        mined = cosine.new_zeros(len(embeddings), 1)
        if indices_tuple is not None:
            mined = sample_weights(indices_tuple, len(embeddings)).to(cosine)[:, None] - 1
        pull = logsumexp(self.alpha * (self.margin - cosine) + mined, own, dim=0)[0]
        push = logsumexp(self.alpha * (self.margin + cosine) + mined, ~own, dim=0)[0]
        present = int(own.any(0).sum())
        return {
            "pos_loss": elements(pull, divisor=present),
            "neg_loss": elements(push, divisor=self.num_classes),
        }

    def get_logits(self, embeddings: Tensor) -> Tensor:
        """Return the (n, C) cosines to the proxies."""
        logits: Tensor = self.distance(embeddings, self.rows().to(embeddings))
        return logits


class SoftTripleLoss(WeightRegularizerMixin):
    """Several soft centers of each class."""

    weight_name = "fc"

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
        super().__init__(num_classes, embedding_size, centers=centers_per_class, **settings)
        self.support_distance(CosineSimilarity, power=1)
        self.la = la
        self.gamma = gamma
        self.margin = margin
        self.hold(
            nearfar.SoftTripleLoss(
                num_classes, embedding_size, centers=centers_per_class, scale=la, gamma=gamma, margin=margin, tau=0
            )
        )

    def get_default_weight_init_func(self) -> Callable[[Tensor], Any]:
        return partial(nn.init.kaiming_uniform_, a=5**0.5)

    def get_logits(self, embeddings: Tensor) -> Tensor:
        """Return the (n, C) similarities to the classes, without the scale `la`."""
        return super().get_logits(embeddings) / self.la


class P2SGradLoss(WeightRegularizerMixin):
    """The mean of the squares of the cosines to class weights, minus 1 for the own class."""

    weight_name = "weight"
    takes_indices = False

    def __init__(self, descriptors_dim: int, num_classes: int, **settings: Any) -> None:
        super().__init__(num_classes, descriptors_dim, **settings)
        self.require_reducer("mean")
        self.hold(nearfar.P2SGradLoss(num_classes, descriptors_dim))

    def get_default_weight_init_func(self) -> Callable[[Tensor], Any]:
        return _uniform_directions

    def value(
        self, x: Tensor, y: Tensor | None, indices: Indices | None, ref: Tensor | None, ref_y: Tensor | None
    ) -> Any:
        return super().value(x, y, None, ref, ref_y) * 2 / self.num_classes


def _uniform_directions(weights: Tensor) -> None:
    """Set columns to uniform numbers from -1 to 1, scaled to unit length."""
    nn.init.uniform_(weights, -1, 1)
    weights /= weights.norm(dim=0)
