"""Networks that score pairs as terms of an objective: they read the items and the embedder, not only embeddings.

    "MultiScaleRelationNet(width=16)"           relations of the trunk's maps
    "ContinuousSimilarityNet(update='fixed')"   relations of the embeddings
    "SiameseHead()"                             weighted distances of the embeddings

A batch is an episode: the first `shots` samples of a class are its support, the others are queries. Call `see` before
each call of the objective.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from .. import distributed
from ..episodes import Episode, prototypes
from ..objective.batch import Batch
from ..objective.relations import UNKNOWN
from ..objective.terms import Term
from .continuous_similarity import ContinuousSimilarityNet
from .conv4 import Conv4
from .multi_scale_relation import MultiScaleRelationNet, multi_scale_relation
from .scales import Conv4Scales
from .siamese_head import SiameseHead


def episode_of(labels: Tensor, shots: int) -> Episode:
    """Return the rows of a batch as an episode: the first `shots` of each class are the support, the others queries.

    >>> import torch
    >>> episode_of(torch.tensor([7, 3, 3, 7, 3]), 1).query_labels
    tensor([0, 1, 0])
    """
    classes = labels.unique(return_inverse=True)[1]
    before = (classes[:, None] == classes).tril(-1).sum(1)
    support = (before < shots).nonzero()[:, 0]
    query = (before >= shots).nonzero()[:, 0]
    return Episode(support, classes[support], query, classes[query])


class PairTerm(Term):
    """Base class of terms of an objective that score pairs with a network."""

    net: nn.Module
    seen: Any = None

    def see(self, embedder: Any, items: Tensor) -> None:
        """Keep the items, or their features, for the next call."""
        self.seen = items

    def features(self, embedder: Any, items: Tensor) -> list[Tensor]:
        """Return the features from which pairs are scored: tensors with one row per item."""
        raise NotImplementedError

    def score(self, query: Sequence[Tensor], support: Sequence[Tensor], labels: Tensor, n_way: int) -> Tensor:
        """Return the (q, N) scores of the features of queries for the classes 0..N-1, (s,) labels, of support items."""
        raise NotImplementedError

    def value(self, seen: Any, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of a batch: `seen` as `see` kept it, embeddings x (n, d), classes y (n,)."""
        raise NotImplementedError

    @property
    def title(self) -> str:
        return type(self.net).__name__

    def local_value(self, batch: Batch) -> Tensor:
        y = batch.classes(self.title)
        seen = self.seen
        self.seen = None
        if distributed.world() > 1:
            raise ValueError(
                f"{self.title}: runs in one process only, because an episode cannot be divided; use one device"
            )
        if seen is None:
            raise ValueError(f"{self.title}: needs the items; call `see(embedder, items)` before the objective")
        known = batch.known(self.title)
        if known is not batch:
            keep = y != UNKNOWN
            if isinstance(seen, list):
                seen = [part[keep] for part in seen]
            else:
                seen = seen[keep]
        return self.value(seen, known.x, known.classes(self.title))


class MultiScaleRelationTerm(PairTerm):
    """`MultiScaleRelationNet` on the maps of a conv4 trunk.

    Parameters
    ----------
    shots : int
        Number of support samples of each class in a batch.
    channels : sequence of int
        Numbers of channels of the trunk's last maps, one for each scale that is compared. conv4 has four maps, all with
        as many channels as its width.
    scale : float
        As in the network. The default is 10 here, because 1 keeps the cross-entropy of scores in (0, 1) high.
    depths, width, hidden, margin, weight
        As in the network.
    """

    net: MultiScaleRelationNet

    def __init__(
        self,
        shots: int = 1,
        *,
        channels: Sequence[int] = (64, 64, 64),
        depths: Sequence[int] | None = None,
        width: int = 16,
        hidden: int = 32,
        margin: float = 0.2,
        weight: float = 1.0,
        scale: float = 10.0,
    ) -> None:
        super().__init__()
        self.net = MultiScaleRelationNet(
            nn.Identity(),
            channels,
            depths=depths,
            width=width,
            hidden=hidden,
            margin=margin,
            weight=weight,
            scale=scale,
        )
        self.shots = shots
        self.channels = list(channels)

    def see(self, embedder: Any, items: Tensor) -> None:
        self.seen = self.features(embedder, items)

    def features(self, embedder: Any, items: Tensor) -> list[Tensor]:
        trunk = embedder.trunk
        if not isinstance(trunk, Conv4) or items.ndim != 4:
            raise ValueError(f"{self.title}: needs images and the trunk conv4, which gives maps at several scales")
        if len(self.channels) > 4 or set(self.channels) != {trunk.num_features}:
            raise ValueError(f"{self.title}: channels must be up to 4 times {trunk.num_features}, got {self.channels}")
        return [m.float() for m in Conv4Scales(trunk, 4 - len(self.channels))(items)]

    def score(self, query: Sequence[Tensor], support: Sequence[Tensor], labels: Tensor, n_way: int) -> Tensor:
        return self.net.relate(query, [prototypes(m, labels, n_way) for m in support])

    def value(self, seen: Any, x: Tensor, y: Tensor) -> Tensor:
        episode = episode_of(y, self.shots)
        if not len(episode.query):
            raise ValueError(f"{self.title}: no class of the batch has more than shots={self.shots} samples")
        support = [m[episode.support] for m in seen]
        query = [m[episode.query] for m in seen]
        scores = self.score(query, support, episode.support_labels, int(y.unique().numel()))
        net = self.net
        return multi_scale_relation(scores, episode.query_labels, net.margin, net.weight, net.scale)


class ContinuousSimilarityTerm(PairTerm):
    """`ContinuousSimilarityNet` on embeddings, with the distances of the items as continuous labels.

    Parameters
    ----------
    embedding_dim : int
        Number of dimensions of the embeddings.
    balanced : bool
        As in the network. The default is True here, because a batch has many more dissimilar than similar pairs.
    relations, hidden, alpha, beta, lam, update, start
        As in the network.
    """

    net: ContinuousSimilarityNet

    def __init__(
        self,
        embedding_dim: int,
        *,
        relations: int = 16,
        hidden: int = 64,
        alpha: float = 0.4,
        beta: float = 0.6,
        lam: float = 0.5,
        update: str = "fixed",
        start: int = 1,
        balanced: bool = True,
    ) -> None:
        super().__init__()
        self.net = ContinuousSimilarityNet(
            embedding_dim,
            nn.Identity(),
            relations=relations,
            hidden=hidden,
            alpha=alpha,
            beta=beta,
            lam=lam,
            update=update,
            start=start,
            balanced=balanced,
        )

    def features(self, embedder: Any, items: Tensor) -> list[Tensor]:
        return [embedder(items).embedding.float()]

    def score(self, query: Sequence[Tensor], support: Sequence[Tensor], labels: Tensor, n_way: int) -> Tensor:
        pairs = self.net(query[0], support[0])
        return prototypes(pairs.T, labels, n_way).T

    def value(self, seen: Any, x: Tensor, y: Tensor) -> Tensor:
        return self.net.of_scores(self.net(x), seen, y)


class SiameseTerm(PairTerm):
    """`SiameseHead` on embeddings, trained on all pairs of a batch.

    Parameters
    ----------
    embedding_dim : int
        Number of dimensions of the embeddings.
    balanced : bool
        As in `SiameseHead.loss`.
    """

    net: SiameseHead

    def __init__(self, embedding_dim: int, *, balanced: bool = True) -> None:
        super().__init__()
        self.net = SiameseHead(embedding_dim)
        self.balanced = balanced

    def features(self, embedder: Any, items: Tensor) -> list[Tensor]:
        return [embedder(items).embedding.float()]

    def score(self, query: Sequence[Tensor], support: Sequence[Tensor], labels: Tensor, n_way: int) -> Tensor:
        return prototypes(self.net(query[0], support[0]).sigmoid().T, labels, n_way).T

    def value(self, seen: Any, x: Tensor, y: Tensor) -> Tensor:
        return self.net.loss(x, y, balanced=self.balanced)


TERMS = {
    "MultiScaleRelationNet": MultiScaleRelationTerm,
    "ContinuousSimilarityNet": ContinuousSimilarityTerm,
    "SiameseHead": SiameseTerm,
}
