"""Losses of triplets."""

from __future__ import annotations

from math import radians, tan
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

import nearfar

from ....deep import distributed
from ..distances import LpDistance
from ..indices import GivenTriplets, Indices, Labels, checked, listed_pairs, lists_twice, of_all_processes, pair_masks
from ..mismatch import Mismatch
from ..reducers import AvgNonZeroReducer, BaseReducer, DivisorReducer
from ..utils.loss_and_miner_utils import convert_to_triplets, logsumexp
from .base import BaseMetricLossFunction, LossDict, NeedsLabels, elements, reduced
from .pairs import any_distance


class TripletMarginLoss(BaseMetricLossFunction):
    """Triplets; with indices of three tensors, these and no others."""

    def __init__(
        self,
        margin: float = 0.05,
        swap: bool = False,
        smooth_loss: bool = False,
        triplets_per_anchor: str | int = "all",
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.margin = margin
        self.swap = swap
        self.smooth_loss = smooth_loss
        self.triplets_per_anchor = triplets_per_anchor
        how = any_distance(self, {"nonzero": "active", "mean": "valid", "sum": "sum"})
        if how is not None and triplets_per_anchor == "all":
            self.how = {**how, "swap": swap, "soft": smooth_loss}
            self.term = nearfar.TripletLoss(margin, **self.how)

    def get_default_reducer(self) -> BaseReducer:
        return AvgNonZeroReducer()

    def term_value(
        self, x: Tensor, y: Tensor | None, indices: Indices | None, ref: Tensor | None, ref_y: Tensor | None
    ) -> Tensor:
        if indices is None:
            return super().term_value(x, y, None, ref, ref_y)
        if len(checked(indices)) == 4:
            if lists_twice(indices):  # each pair is in as many triplets as it is listed
                found = self.reduced_value(x, y, indices, ref, ref_y)
            else:
                found = super().term_value(x, y, indices, ref, ref_y)
            return found
        n = len(x)
        if distributed.world() > 1:
            indices = of_all_processes(indices, n, n if ref is None else len(ref))
            n = sum(distributed.numbers_of_rows(n, x.device))
        anchors, positives, negatives = checked(indices)
        miner = GivenTriplets(anchors, positives, negatives, n=n)
        term = nearfar.TripletLoss(self.margin, miner=miner, **self.how)
        # the miner gives the triplets, whatever the labels are
        unknown = torch.zeros(len(x), dtype=torch.int64, device=x.device)
        others = None if ref is None else torch.zeros(len(ref), dtype=torch.int64, device=x.device)
        value: Tensor = term(x, unknown, ref=ref, ref_labels=others)
        return value

    def compute_loss(
        self, embeddings: Tensor, labels: Labels, indices_tuple: Indices | None, ref_emb: Tensor, ref_labels: Labels
    ) -> LossDict:
        a, p, n = _triplets(embeddings, labels, indices_tuple, ref_emb, ref_labels, self.triplets_per_anchor)
        if not len(a):
            return self.zero_losses()
        mat = self.distance(embeddings, ref_emb)
        far = mat[a, n]
        # anchor swap (Balntas et al., 2016): the negative is compared with the anchor or the positive, the nearer one
        if self.swap:
            nearer = torch.maximum if self.distance.is_inverted else torch.minimum
            far = nearer(far, self.distance(ref_emb, ref_emb)[p, n])
        violation = self.distance.margin(mat[a, p], far) + self.margin
        losses = softplus(violation) if self.smooth_loss else torch.relu(violation)
        return {"loss": {"losses": losses, "indices": (a, p, n), "reduction_type": "triplet"}}


def _triplets(
    x: Tensor,
    labels: Tensor | None,
    indices: Indices | None,
    ref: Tensor,
    ref_labels: Tensor | None,
    per_anchor: str | int,
) -> tuple[Tensor, Tensor, Tensor]:
    if indices is not None:
        return convert_to_triplets(indices, x)
    assert labels is not None
    return convert_to_triplets(None, labels, labels if ref is x else ref_labels, t_per_anchor=per_anchor)


class MarginLoss(BaseMetricLossFunction):
    """A boundary between similar and dissimilar pairs; each pair counts once for every triplet that it is in.

    Parameters
    ----------
    margin, nu, beta : float
        Half the width of the gap, the weight of the penalty of a learned boundary, and the boundary or its start.
    triplets_per_anchor : int or "all"
    learn_beta : bool
    num_classes : int, optional
        A boundary for each class.
    """

    def __init__(
        self,
        margin: float = 0.2,
        nu: float = 0,
        beta: float = 1.2,
        triplets_per_anchor: str | int = "all",
        learn_beta: bool = False,
        num_classes: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.margin = margin
        self.nu = nu
        self.triplets_per_anchor = triplets_per_anchor
        self.learn_beta = learn_beta
        self.num_classes = num_classes
        beta_of_each = torch.full((num_classes or 1,), float(beta))
        if learn_beta:
            self.beta: Tensor = nn.Parameter(beta_of_each)
        else:
            self.register_buffer("beta", beta_of_each, persistent=False)

    def get_default_reducer(self) -> BaseReducer:
        return DivisorReducer()

    def _sub_loss_names(self) -> list[str]:
        return ["margin_loss", "beta_reg_loss"]

    def compute_loss(
        self, embeddings: Tensor, labels: Labels, indices_tuple: Indices | None, ref_emb: Tensor, ref_labels: Labels
    ) -> LossDict:
        if len(self.beta) > 1 and labels is None:
            raise Mismatch("MarginLoss: labels are needed with num_classes")
        beta = self.beta.to(embeddings)
        mat = self.distance(embeddings, ref_emb)
        # the boundary of each anchor, (n,)
        of_row = beta.expand(len(embeddings)) if len(beta) == 1 else beta[labels]
        pull = torch.relu(self.distance.margin(mat, of_row[:, None]) + self.margin)
        push = torch.relu(self.distance.margin(of_row[:, None], mat) + self.margin)
        every = indices_tuple is None and self.triplets_per_anchor == "all"
        if every and self.kind == "divisor":
            return self._of_all_triplets(embeddings, labels, ref_emb, ref_labels, pull, push)
        per_anchor = self.triplets_per_anchor
        a, p, n = _triplets(embeddings, labels, indices_tuple, ref_emb, ref_labels, per_anchor)
        if not len(a):
            return self.zero_losses()
        near = pull[a, p]
        far = push[a, n]
        active = int((near > 0).sum() + (far > 0).sum())
        triplets = {"losses": near + far, "indices": (a, p, n), "reduction_type": "triplet", "divisor": active}
        if len(beta) > 1:
            penalty = elements(beta[labels][a] * self.nu, a, divisor=active)
        else:
            penalty = reduced(beta.sum() * self.nu)
        return {"margin_loss": triplets, "beta_reg_loss": penalty if self.learn_beta else self.zero_loss()}

    def _of_all_triplets(
        self,
        x: Tensor,
        labels: Tensor | None,
        ref: Tensor,
        ref_labels: Tensor | None,
        pull: Tensor,
        push: Tensor,
    ) -> LossDict:
        """Count each pair as often as its anchor has pairs of the other kind, without a list of triplets."""
        pos, neg = pair_masks(x, labels, None, ref, ref_labels)
        # a similar pair is in as many triplets as its anchor has negatives, and a dissimilar one in as many as it has
        # positives: no list of triplets
        near_count = pos * neg.sum(1, keepdim=True)
        far_count = neg * pos.sum(1, keepdim=True)
        if not near_count.any():
            return self.zero_losses()
        active = int(((pull > 0) * near_count).sum() + ((push > 0) * far_count).sum())
        losses = (pull * near_count + push * far_count).sum(1)
        penalty: Any = self.zero_loss()
        if self.learn_beta and len(self.beta) > 1:
            triplets = near_count.sum(1)
            penalty = elements(self.beta.to(x)[labels] * self.nu * triplets, divisor=active)
        elif self.learn_beta:
            penalty = reduced(self.beta.to(x).sum() * self.nu)
        return {"margin_loss": elements(losses, divisor=active), "beta_reg_loss": penalty}


class AngularLoss(NeedsLabels):
    """The angle at the negative of each positive pair (Wang et al., 2017).

    L_ap = log(1 + sum_n e^{4 t (u_a + u_p).x_n - 2 (1 + t) u_a.u_p}),  t = tan^2 alpha,  u = x / |x|

    The negatives x_n are not scaled, as in the other library; `nearfar.AngularLoss` scales them, too.

    Parameters
    ----------
    alpha : float
        The angle in degrees.
    """

    takes_ref = True

    def __init__(self, alpha: float = 40, **settings: Any) -> None:
        super().__init__(**settings)
        self.require_distance(LpDistance, normalize_embeddings=True, p=2, power=1)
        self.tangent = tan(radians(alpha)) ** 2

    def compute_loss(
        self, embeddings: Tensor, labels: Labels, indices_tuple: Indices | None, ref_emb: Tensor, ref_labels: Labels
    ) -> LossDict:
        a, p, rivals, _ = listed_pairs(embeddings, labels, indices_tuple, ref_emb, ref_labels)
        if not len(a) or not len(rivals):
            return self.zero_losses()
        _, neg = pair_masks(embeddings, labels, None, ref_emb, ref_labels)
        t = self.tangent
        anchors = self.distance.normalize(embeddings)
        positives = self.distance.normalize(ref_emb)
        with_anchors = (anchors @ ref_emb.T)[a]  # (pairs, m)
        with_positives = (positives @ ref_emb.T)[p]  # (pairs, m)
        own = (anchors[a] * positives[p]).sum(1, keepdim=True)
        # 4 t (u_a + u_p).x_n - 2 (1 + t) u_a.u_p, (pairs, m)
        exponent = 4 * t * (with_anchors + with_positives) - 2 * (1 + t) * own
        losses = logsumexp(exponent, neg[a], add_one=True)[:, 0]
        return {"loss": {"losses": losses, "indices": (a, p), "reduction_type": "pos_pair"}}


class DynamicSoftMarginLoss(BaseMetricLossFunction):
    """Triplets weighted by how usual their difference of distances is (Zhang & Rusinkiewicz, 2019).

    The histogram of the differences moves with each batch and holds no gradient, so that a second step can follow.

    Parameters
    ----------
    min_val : float
        The histogram is from this to minus this.
    num_bins : int
    momentum : float
        The share of the present batch.
    """

    histogram: Tensor

    def __init__(self, min_val: float = -2.0, num_bins: int = 10, momentum: float = 0.01, **settings: Any) -> None:
        super().__init__(**settings)
        self.require_distance(LpDistance, normalize_embeddings=True, p=2)
        self.require_reducer("mean")
        self.min_val = min_val
        self.num_bins = int(num_bins)
        self.momentum = momentum
        self.register_buffer("histogram", torch.zeros(self.num_bins))

    def check_inputs(
        self, embeddings: Tensor, labels: Tensor | None, indices_tuple: Indices | None, ref_emb: Tensor | None
    ) -> None:
        if labels is None and ref_emb is None:
            raise Mismatch("DynamicSoftMarginLoss: needs labels, or ref_emb whose rows are positives of the embeddings")

    def compute_loss(
        self, embeddings: Tensor, labels: Labels, indices_tuple: Indices | None, ref_emb: Tensor, ref_labels: Labels
    ) -> LossDict:
        mat = self.distance(embeddings, ref_emb)
        if labels is None:
            gap = _gaps_to_nearest(mat)
        else:
            a, p, n = _triplets(embeddings, labels, indices_tuple, ref_emb, ref_labels, "all")
            gap = mat[a, p] - mat[a, n]
        if not len(gap):
            return self.zero_losses()
        # bins of a histogram over [-|min_val|, |min_val|]; `place` is where a gap falls, with a fraction
        width = 2 * abs(self.min_val) / self.num_bins
        place = (gap.detach() - self.min_val) / width
        self._move_histogram(place)
        cumulated = (self.histogram / self.histogram.sum()).cumsum(0)
        weight = cumulated[place.long().clamp(0, self.num_bins - 1)].to(gap)
        return {"loss": reduced((gap * weight).mean())}

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        state_dict.setdefault(f"{prefix}histogram", self.histogram)  # the other library does not save it
        super()._load_from_state_dict(state_dict, prefix, *others)

    def _move_histogram(self, place: Tensor) -> None:
        """Split the weight of each number between its two neighboring bins, in proportion to nearness."""
        # a gap at place p = b + f, 0 <= f < 1, adds 1 - f to bin b and f to bin b + 1
        last = self.num_bins - 1
        low = place.floor()
        share = low + 1 - place
        found = place.new_zeros(self.num_bins)
        found.index_add_(0, low.long().clamp(0, last), share)
        found.index_add_(0, (low.long() + 1).clamp(0, last), 1 - share)
        found = found / (found.sum() + 1e-6)
        histogram = self.histogram.to(found)
        # h <- (1 - momentum) h + momentum h_batch, and h_batch itself at first, as there
        first = not bool(histogram.any())
        self.histogram = found if first else (1 - self.momentum) * histogram + self.momentum * found


def _gaps_to_nearest(mat: Tensor) -> Tensor:
    """Return d_ii - min over the other entries of row and column i; a missing row or column counts as 0."""
    size = max(mat.shape)
    number = min(mat.shape)
    # the matrix need not be square: entry i is 0 where it has no row or no column i
    own = mat.new_zeros(size)
    own[:number] = mat.diagonal()
    diagonal = torch.eye(*mat.shape, dtype=torch.bool, device=mat.device)
    others = mat.masked_fill(diagonal, torch.inf)
    of_columns = mat.new_zeros(size)
    of_columns[: mat.shape[1]] = others.amin(0)
    of_rows = mat.new_zeros(size)
    of_rows[: mat.shape[0]] = others.amin(1)
    return own - torch.minimum(of_columns, of_rows)
