"""Miners, called ``miner(embeddings, labels, ref_emb, ref_labels)``; they return indices of pairs or triplets."""

from __future__ import annotations

from math import ceil, radians, tan
from typing import Any

import torch
from torch import Tensor, nn

from ...deep.miners.easy_hard import easy_hard
from ...deep.miners.pair_margins import pair_margins
from ...deep.miners.wide_angles import wide_angles
from ...deep.pairwise.comparison import Rows
from .absent import Absent, find
from .distances import BaseDistance, CosineSimilarity, LpDistance

ABSENT = {
    "DistanceWeightedMiner": "nearfar.DistanceWeighted is a part of a loss, and draws for each anchor",
}
STRATEGIES = ("hard", "semihard", "easy", "all")
OURS = {"semihard": "semi_hard"}


class BaseMiner(nn.Module):
    """What all miners share: the distances of a batch and who is similar; a miner states `mine`."""

    def __init__(self, *, distance: BaseDistance | None = None, collect_stats: bool = False) -> None:
        super().__init__()
        self.distance = LpDistance() if distance is None else distance

    @torch.no_grad()
    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        if len(labels) != len(embeddings):
            raise ValueError("Number of embeddings must equal number of labels")
        d = self.distance(embeddings, ref_emb)
        if self.distance.is_inverted:
            d = -d
        labels = labels.to(d.device)
        others = labels if ref_labels is None else ref_labels.to(d.device)
        pos = labels[:, None] == others
        neg = ~pos
        if ref_emb is None or ref_emb is embeddings:
            pos.fill_diagonal_(False)
        ref = embeddings if ref_emb is None else ref_emb
        return self.choose(Rows(d, pos, neg, "dot", embeddings.shape[1], x=embeddings, ref=ref))

    def choose(self, rows: Rows) -> tuple[Tensor, ...]:
        """Return indices from all that is known of the batch."""
        return self.mine(rows.d, rows.pos, rows.neg)

    def mine(self, d: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, ...]:
        """Return indices from (n, m) dissimilarities and the masks of similar and dissimilar references."""
        raise NotImplementedError

    def level(self, value: float) -> float:
        """Return the dissimilarity that a value of the distance stands for."""
        return -value if self.distance.is_inverted else value


class BatchHardMiner(BaseMiner):
    """The farthest positive and the nearest negative of each anchor, as triplets."""

    def mine(self, d: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, ...]:
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
                raise ValueError(f"{name} must be one of {', '.join(STRATEGIES)}, got {strategy!r}")
        if pos_strategy == neg_strategy == "semihard":
            raise ValueError('pos_strategy and neg_strategy cannot both be "semihard"')
        if {pos_strategy, neg_strategy} == {"all", "semihard"}:
            raise ValueError('"semihard" cannot be used in combination with "all"')
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
        return (*found.pos.nonzero(as_tuple=True), *found.neg.nonzero(as_tuple=True))

    def _limits(self, strategy: str, limits: tuple[float, float] | None) -> tuple[float, float] | None:
        """Return the dissimilarities within which pairs count; there "all" is without limits."""
        if limits is None or strategy == "all":
            return None
        low, high = sorted(self.level(limit) for limit in limits)
        return low, high


class MultiSimilarityMiner(BaseMiner):
    """Positives beyond the nearest negative, and negatives within the farthest positive, give or take `epsilon`."""

    def __init__(self, epsilon: float = 0.1, *, distance: BaseDistance | None = None, **settings: Any) -> None:
        super().__init__(distance=CosineSimilarity() if distance is None else distance, **settings)
        self.epsilon = epsilon

    def mine(self, d: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, ...]:
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

    def mine(self, d: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, ...]:
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

    def mine(self, d: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, ...]:
        return (*self._drawn(d, pos, self.pos_per_bin), *self._drawn(d, neg, self.neg_per_bin))

    def _drawn(self, d: Tensor, mask: Tensor, number: int) -> tuple[Tensor, Tensor]:
        one, other = mask.nonzero(as_tuple=True)
        if not len(one):
            return one, other
        values = d[one, other]
        width = (values.max() - values.min()).clamp_min(torch.finfo(values.dtype).tiny)
        bins = ((values - values.min()) / width * self.num_bins).long().clamp_max(self.num_bins - 1)
        order = bins.argsort(stable=True)
        counts = torch.bincount(bins)
        starts = counts.cumsum(0) - counts
        some = counts > 0
        place = (torch.rand(int(some.sum()), number, device=d.device) * counts[some, None]).long()
        chosen = order[(starts[some, None] + place).flatten()]
        return one[chosen], other[chosen]


class TripletMarginMiner(BaseMiner):
    """Triplets by their margin d_an - d_ap: "all" within it, of these "hard" below 0 or "semihard" above, or "easy"."""

    def __init__(self, margin: float = 0.2, type_of_triplets: str = "all", **settings: Any) -> None:
        super().__init__(**settings)
        if type_of_triplets not in STRATEGIES:
            raise ValueError(f"type_of_triplets must be one of {', '.join(STRATEGIES)}, got {type_of_triplets!r}")
        self.margin = margin
        self.type_of_triplets = type_of_triplets

    def mine(self, d: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, ...]:
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


class EmbeddingsAlreadyPackagedAsTriplets(BaseMiner):
    """Rows that are anchor, positive, negative, and so on."""

    def mine(self, d: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, ...]:
        every = torch.arange(len(d) - len(d) % 3, device=d.device)
        return every[0::3], every[1::3], every[2::3]


__all__ = [
    "AngularMiner",
    "BaseMiner",
    "BatchEasyHardMiner",
    "BatchHardMiner",
    "EmbeddingsAlreadyPackagedAsTriplets",
    "HDCMiner",
    "MultiSimilarityMiner",
    "PairMarginMiner",
    "TripletMarginMiner",
    "UniformHistogramMiner",
]


def __getattr__(name: str) -> type[Absent]:
    return find(__name__, ABSENT, name)
