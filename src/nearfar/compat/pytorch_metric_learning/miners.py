"""Miners, called ``miner(embeddings, labels, ref_emb, ref_labels)``; they return indices of pairs or triplets."""

from __future__ import annotations

from math import ceil, radians, tan
from typing import Any

import torch
from torch import Tensor, nn

from ...deep.miners.distance_weighted import inverse_density
from ...deep.miners.easy_hard import easy_hard
from ...deep.miners.pair_margins import pair_margins
from ...deep.miners.wide_angles import wide_angles
from ...deep.pairwise.comparison import Rows
from .distances import BaseDistance, CosineSimilarity, LpDistance
from .losses.base import another_set, check_labels
from .mismatch import Mismatch
from .utils import common_functions
from .utils.loss_and_miner_utils import get_matches_and_diffs, get_random_triplet_indices

STRATEGIES = ("hard", "semihard", "easy", "all")
OURS = {"semihard": "semi_hard"}


class BaseMiner(nn.Module):
    """The base of miners, also of your own, which state `mine`; those of this module state `choose` or `pick`.

    Attributes
    ----------
    num_triplets, num_pos_pairs, num_neg_pairs : int
        Number of triplets, or of positive and negative pairs, that the last call has found.
    """

    def __init__(
        self, *, distance: BaseDistance | None = None, collect_stats: bool | None = None, **settings: Any
    ) -> None:
        super().__init__()
        if settings:
            raise TypeError(f"{type(self).__name__}: unknown settings {sorted(settings)}")
        self.collect_stats = common_functions.collects_stats(collect_stats)
        self.distance = self.get_default_distance() if distance is None else distance
        self.num_triplets = 0
        self.num_pos_pairs = 0
        self.num_neg_pairs = 0

    def get_default_distance(self) -> BaseDistance:
        return LpDistance()

    @torch.no_grad()
    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Return indices of pairs or triplets of samples, or of samples and references.

        Parameters
        ----------
        embeddings, labels : (n, d) float tensor, (n,) integers
        ref_emb, ref_labels : (m, d) float tensor, (m,) integers, optional
        """
        own = check_labels(embeddings, labels)
        assert own is not None
        itself = ref_emb is embeddings and (ref_labels is None or ref_labels is labels)
        if ref_emb is None or itself:
            found = self.mine(embeddings, own, embeddings, own)
        else:
            given = ref_labels is not None and ref_labels is not labels
            others = check_labels(ref_emb, ref_labels) if given else own
            references, of_references = another_set(ref_emb, others)
            assert of_references is not None
            found = self.mine(embeddings, own, references, of_references)
        self._count(found)
        return found

    def _count(self, found: tuple[Tensor, ...]) -> None:
        """Set the numbers of what was found: triplets are three tensors of indices, pairs are twice two."""
        triplets = len(found) == 3
        self.num_triplets = len(found[0]) if triplets else 0
        self.num_pos_pairs = 0 if triplets else len(found[0])
        self.num_neg_pairs = 0 if triplets else len(found[2])

    def mine(self, embeddings: Tensor, labels: Tensor, ref_emb: Tensor, ref_labels: Tensor) -> tuple[Tensor, ...]:
        """Return indices; without references, `ref_emb` and `ref_labels` are the very tensors of the samples."""
        d = self.distance(embeddings, ref_emb)
        if self.distance.is_inverted:
            d = -d
        itself = ref_emb is embeddings
        pos, neg = get_matches_and_diffs(labels, None if itself else ref_labels.clone())
        return self.choose(Rows(d, pos, neg, "dot", embeddings.shape[1], x=embeddings, ref=ref_emb))

    def choose(self, rows: Rows) -> tuple[Tensor, ...]:
        """Return indices from all that is known of the batch."""
        return self.pick(rows.d, rows.pos, rows.neg)

    def pick(self, d: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, ...]:
        """Return indices from (n, m) dissimilarities and the masks of similar and dissimilar references."""
        raise NotImplementedError

    def level(self, value: float) -> float:
        """Convert a value of the distance to a dissimilarity."""
        return -value if self.distance.is_inverted else value


class BatchHardMiner(BaseMiner):
    """The farthest positive and the nearest negative of each anchor, as triplets."""

    def pick(self, d: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, ...]:
        anchors = (pos.any(1) & neg.any(1)).nonzero()[:, 0]
        far = d.masked_fill(~pos, -torch.inf).argmax(1)
        near = d.masked_fill(~neg, torch.inf).argmin(1)
        return anchors, far[anchors], near[anchors]


class BatchEasyHardMiner(BaseMiner):
    """One positive and one negative of each anchor, or all of either, as pairs.

    Parameters
    ----------
    pos_strategy, neg_strategy : {"hard", "semihard", "easy", "all"}
        "semihard" is hard among those on the right side of the other one.
    allowed_pos_range, allowed_neg_range : (float, float), optional
        Values of the distance outside which no pair counts.
    """

    EASY = "easy"
    HARD = "hard"
    SEMIHARD = "semihard"
    ALL = "all"

    def __init__(
        self,
        pos_strategy: str = "easy",
        neg_strategy: str = "semihard",
        allowed_pos_range: tuple[float, float] | None = None,
        allowed_neg_range: tuple[float, float] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        for name, strategy in (("pos_strategy", pos_strategy), ("neg_strategy", neg_strategy)):
            if strategy not in STRATEGIES:
                raise Mismatch(f"{name} must be one of {', '.join(STRATEGIES)}, got {strategy!r}")
        if pos_strategy == neg_strategy == "semihard":
            raise Mismatch('pos_strategy and neg_strategy cannot both be "semihard"')
        if {pos_strategy, neg_strategy} == {"all", "semihard"}:
            raise Mismatch('"semihard" cannot be used in combination with "all"')
        self.pos_strategy = pos_strategy
        self.neg_strategy = neg_strategy
        self.allowed_pos_range = allowed_pos_range
        self.allowed_neg_range = allowed_neg_range

    def choose(self, rows: Rows) -> tuple[Tensor, ...]:
        found = easy_hard(
            rows,
            OURS.get(self.pos_strategy, self.pos_strategy),
            OURS.get(self.neg_strategy, self.neg_strategy),
            self._limits(self.pos_strategy, self.allowed_pos_range),
            self._limits(self.neg_strategy, self.allowed_neg_range),
        )
        return (*found.pos.nonzero(as_tuple=True), *found.neg.nonzero(as_tuple=True))  # (a1, p, a2, n)

    def _limits(self, strategy: str, limits: tuple[float, float] | None) -> tuple[float, float] | None:
        """Return the dissimilarities within which pairs count; there "all" is without limits."""
        if limits is None or strategy == "all":
            return None
        low, high = sorted(self.level(limit) for limit in limits)
        return low, high


class MultiSimilarityMiner(BaseMiner):
    """Positives beyond the nearest negative, and negatives within the farthest positive, give or take `epsilon`."""

    def __init__(self, epsilon: float = 0.1, **settings: Any) -> None:
        super().__init__(**settings)
        self.epsilon = epsilon

    def get_default_distance(self) -> BaseDistance:
        return CosineSimilarity()

    def pick(self, d: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, ...]:
        if not d.shape[1]:  # without references there is no farthest or nearest one
            return (*pos.nonzero(as_tuple=True), *neg.nonzero(as_tuple=True))
        far = d.masked_fill(~pos, -torch.inf).amax(1, keepdim=True)
        near = d.masked_fill(~neg, torch.inf).amin(1, keepdim=True)
        some = pos.any(1, keepdim=True) & neg.any(1, keepdim=True)
        pairs = pos & (d + self.epsilon > near) & some
        rivals = neg & (d - self.epsilon < far) & some
        return (*pairs.nonzero(as_tuple=True), *rivals.nonzero(as_tuple=True))


class PairMarginMiner(BaseMiner):
    """Positives farther than one margin, and negatives nearer than the other."""

    def __init__(self, pos_margin: float = 0.2, neg_margin: float = 0.8, **settings: Any) -> None:
        super().__init__(**settings)
        self.pos_margin = pos_margin
        self.neg_margin = neg_margin

    def choose(self, rows: Rows) -> tuple[Tensor, ...]:
        found = pair_margins(rows, self.level(self.pos_margin), self.level(self.neg_margin))
        return (*found.pos.nonzero(as_tuple=True), *found.neg.nonzero(as_tuple=True))


class AngularMiner(BaseMiner):
    """Triplets whose angle at the negative, of the vectors as they are, is above `angle` degrees."""

    def __init__(self, angle: float = 20, **settings: Any) -> None:
        super().__init__(**settings)
        self.angle = angle

    def choose(self, rows: Rows) -> tuple[Tensor, ...]:
        triplets = wide_angles(rows, tan(radians(self.angle))).triplets
        assert triplets is not None
        anchor, place = triplets.keep.nonzero(as_tuple=True)
        return anchor, triplets.positive[anchor, place], triplets.negative[anchor, place]


class HDCMiner(BaseMiner):
    """The hardest share of all positive pairs, and of all negative pairs."""

    def __init__(self, filter_percentage: float = 0.5, **settings: Any) -> None:
        super().__init__(**settings)
        self.filter_percentage = filter_percentage

    def pick(self, d: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, ...]:
        return (*self._hardest(d, pos, farthest=True), *self._hardest(d, neg, farthest=False))

    def _hardest(self, d: Tensor, mask: Tensor, farthest: bool) -> tuple[Tensor, Tensor]:
        one, other = mask.nonzero(as_tuple=True)
        chosen = d[one, other].topk(ceil(self.filter_percentage * len(one)), largest=farthest).indices
        return one[chosen], other[chosen]


class UniformHistogramMiner(BaseMiner):
    """Pairs drawn with replacement, as many of each bin of the distances of all pairs of their kind."""

    def __init__(self, num_bins: int = 100, pos_per_bin: int = 10, neg_per_bin: int = 10, **settings: Any) -> None:
        super().__init__(**settings)
        self.num_bins = num_bins
        self.pos_per_bin = pos_per_bin
        self.neg_per_bin = neg_per_bin

    def pick(self, d: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, ...]:
        return (*self._drawn(d, pos, self.pos_per_bin), *self._drawn(d, neg, self.neg_per_bin))

    def _drawn(self, d: Tensor, mask: Tensor, number: int) -> tuple[Tensor, Tensor]:
        one, other = mask.nonzero(as_tuple=True)
        if not len(one):
            return one, other
        values = d[one, other]
        width = (values.max() - values.min()).clamp_min(torch.finfo(values.dtype).tiny)
        # which of `num_bins` equal parts of the range of distances each pair falls into
        bins = ((values - values.min()) / width * self.num_bins).long().clamp_max(self.num_bins - 1)
        order = bins.argsort(stable=True)
        counts = torch.bincount(bins)
        starts = counts.cumsum(0) - counts
        some = counts > 0
        # for each bin with pairs, the places of `number` random ones among its pairs; with repetition
        place = (torch.rand(int(some.sum()), number, device=d.device) * counts[some, None]).long()
        chosen = order[(starts[some, None] + place).flatten()]
        return one[chosen], other[chosen]


class TripletMarginMiner(BaseMiner):
    """Triplets by their margin d_an - d_ap: "all" within it, of these "hard" below 0 or "semihard" above, or "easy"."""

    def __init__(self, margin: float = 0.2, type_of_triplets: str = "all", **settings: Any) -> None:
        super().__init__(**settings)
        if type_of_triplets not in STRATEGIES:
            raise Mismatch(f"type_of_triplets must be one of {', '.join(STRATEGIES)}, got {type_of_triplets!r}")
        self.margin = margin
        self.type_of_triplets = type_of_triplets

    def pick(self, d: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, ...]:
        anchor, positive = pos.nonzero(as_tuple=True)
        found = []
        rows_at_once = max(1, PAIRS_AT_ONCE // max(d.shape[1], 1))
        for part in torch.arange(len(anchor), device=d.device).split(rows_at_once):
            a = anchor[part]
            gap = d[a] - d[a, positive[part]][:, None]  # (k, m)
            row, negative = (neg[a] & self._wanted(gap)).nonzero(as_tuple=True)
            found.append((a[row], positive[part][row], negative))
        if not found:
            return anchor, positive, anchor.clone()
        return tuple(torch.cat(parts) for parts in zip(*found, strict=True))

    def _wanted(self, gap: Tensor) -> Tensor:
        if self.type_of_triplets == "easy":
            return gap > self.margin
        within = gap <= self.margin
        if self.type_of_triplets == "hard":
            return within & (gap <= 0)
        if self.type_of_triplets == "semihard":
            return within & (gap > 0)
        return within


PAIRS_AT_ONCE = 1 << 22  # comparisons of positives with negatives that are held at once


class DistanceWeightedMiner(BaseMiner):
    """A negative for each positive pair, drawn so that all distances come about equally often (Wu et al., 2017).

    Parameters
    ----------
    cutoff : float
        Smaller distances count as this one.
    nonzero_loss_cutoff : float
        Negatives that are farther are not drawn; an anchor without nearer ones has no triplet.
    """

    def __init__(self, cutoff: float = 0.5, nonzero_loss_cutoff: float = 1.4, **settings: Any) -> None:
        super().__init__(**settings)
        if type(self.distance) is not LpDistance or self.distance.p != 2 or not self.distance.normalize_embeddings:
            raise Mismatch("DistanceWeightedMiner: distance must be an LpDistance with p=2 of normalized embeddings")
        self.cutoff = cutoff
        self.nonzero_loss_cutoff = nonzero_loss_cutoff

    def mine(self, embeddings: Tensor, labels: Tensor, ref_emb: Tensor, ref_labels: Tensor) -> tuple[Tensor, ...]:
        d = LpDistance()(embeddings, ref_emb)
        others = None if ref_emb is embeddings else ref_labels.clone()
        pos, neg = get_matches_and_diffs(labels, others)
        near = neg & (d < self.nonzero_loss_cutoff)
        rows = Rows(d, pos, near, "euclidean", embeddings.shape[1], x=embeddings, ref=ref_emb)
        weights = torch.where(near, inverse_density(rows, self.cutoff, self.nonzero_loss_cutoff), 0.0)
        return get_random_triplet_indices(labels, others, weights=weights)


class EmbeddingsAlreadyPackagedAsTriplets(BaseMiner):
    """Rows that are anchor, positive, negative, and so on."""

    def pick(self, d: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, ...]:
        every = torch.arange(len(d) - len(d) % 3, device=d.device)
        return every[0::3], every[1::3], every[2::3]


__all__ = [
    "AngularMiner",
    "BaseMiner",
    "BatchEasyHardMiner",
    "BatchHardMiner",
    "DistanceWeightedMiner",
    "EmbeddingsAlreadyPackagedAsTriplets",
    "HDCMiner",
    "MultiSimilarityMiner",
    "PairMarginMiner",
    "TripletMarginMiner",
    "UniformHistogramMiner",
]
