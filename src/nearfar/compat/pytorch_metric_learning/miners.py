"""Miners, called ``miner(embeddings, labels, ref_emb, ref_labels)``; they return indices of pairs or triplets."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .absent import Absent, find
from .distances import BaseDistance, CosineSimilarity, LpDistance

ABSENT = {
    "AngularMiner": "nearfar.AngularLoss bounds the angle itself",
    "DistanceWeightedMiner": "nearfar.DistanceWeighted is a part of a loss, and draws for each anchor",
    "HDCMiner": "nearfar.ExtremeDistance takes the hardest of each anchor",
    "UniformHistogramMiner": "nearfar.DistanceWeighted draws evenly by distance",
}
STRATEGIES = ("hard", "semihard", "easy", "all")


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
        return self.mine(d, pos, neg)

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

    def mine(self, d: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, ...]:
        every_pos = pos.nonzero(as_tuple=True)
        every_neg = neg.nonzero(as_tuple=True)
        pos = pos & self._allowed(d, self.allowed_pos_range)
        neg = neg & self._allowed(d, self.allowed_neg_range)
        if self.pos_strategy == "semihard":
            other = d.gather(1, _chosen(d, neg, self.neg_strategy == "easy"))
            pos = pos & (d < other) & neg.any(1, keepdim=True)
        elif self.neg_strategy == "semihard":
            other = d.gather(1, _chosen(d, pos, self.pos_strategy != "easy"))
            neg = neg & (d > other) & pos.any(1, keepdim=True)
        positive = _chosen(d, pos, self.pos_strategy != "easy")[:, 0]
        negative = _chosen(d, neg, self.neg_strategy == "easy")[:, 0]
        some_pos = pos.any(1)
        some_neg = neg.any(1)
        if "all" not in (self.pos_strategy, self.neg_strategy):
            some_pos = some_neg = some_pos & some_neg
        a1 = some_pos.nonzero()[:, 0]
        a2 = some_neg.nonzero()[:, 0]
        of_pos = every_pos if self.pos_strategy == "all" else (a1, positive[a1])
        of_neg = every_neg if self.neg_strategy == "all" else (a2, negative[a2])
        return (*of_pos, *of_neg)

    def _allowed(self, d: Tensor, limits: tuple[float, float] | None) -> Tensor:
        if limits is None:
            return torch.ones_like(d, dtype=torch.bool)
        low, high = sorted(self.level(limit) for limit in limits)
        return (d >= low) & (d <= high)


def _chosen(d: Tensor, keep: Tensor, farthest: bool) -> Tensor:
    """Return the (n, 1) columns of the farthest or the nearest of those that are kept."""
    if farthest:
        return d.masked_fill(~keep, -torch.inf).argmax(1, keepdim=True)
    return d.masked_fill(~keep, torch.inf).argmin(1, keepdim=True)


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

    def mine(self, d: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, ...]:
        pairs = pos & (d > self.level(self.pos_margin))
        rivals = neg & (d < self.level(self.neg_margin))
        return (*pairs.nonzero(as_tuple=True), *rivals.nonzero(as_tuple=True))


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
    "BaseMiner",
    "BatchEasyHardMiner",
    "BatchHardMiner",
    "EmbeddingsAlreadyPackagedAsTriplets",
    "MultiSimilarityMiner",
    "PairMarginMiner",
    "TripletMarginMiner",
]


def __getattr__(name: str) -> type[Absent]:
    return find(__name__, ABSENT, name)
