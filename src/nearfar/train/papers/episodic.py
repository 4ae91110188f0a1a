"""Batches as episodes: the objective on the queries, at weights adapted to the support (`EpisodicTrainer`)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...deep import distributed
from ...deep.episodes import Episode
from ...deep.networks.episodic import Weights, adapted, value_of
from ...deep.networks.pair_terms import PairTerm, episode_of
from ...deep.objective.network_layers import BorrowsLayer
from ...deep.objective.terms import Sum
from ...deep.wholebatch.kernel_embeddings import JointTerm
from ..config import TrainConfig, TrainError


class Episodes(NamedTuple):
    """Settings of training on episodes; the fields are those of `TrainConfig`."""

    mode: str
    shots: int
    inner_lr: float
    inner_steps: int

    @classmethod
    def of(cls, config: TrainConfig) -> Episodes:
        """Return the settings of a config whose batches are episodes."""
        return cls(config.episodes, config.shots, config.inner_lr, config.inner_steps)

    def refuse(self, objective: Sum) -> None:
        """Raise for parts of an objective that cannot learn from episodes of this mode.

        Raises
        ------
        TrainError
            One line that names the part.
        """
        for part in objective.modules():
            if isinstance(part, BorrowsLayer) and part.layer is not None:
                name = type(part).__name__
                raise TrainError(
                    f"episodes: {name}(layer='embedding') reads weights that the support has not adapted; leave it out"
                )
            if isinstance(part, PairTerm):
                raise TrainError(f"episodes: {part.title} scores the pairs of a whole batch; train it without episodes")
            laplace = isinstance(part, JointTerm) and any(one.kernel == "laplace" for one in part.settings)
            if self.mode == "maml" and laplace:
                name = type(part).__name__
                raise TrainError(f"episodes: {name}(kernel='laplace') cannot be differentiated twice; use 'fomaml'")

    def cut(self, items: Tensor, labels: Tensor, ids: Tensor | None = None) -> Episode:
        """Use the first `shots` items of each class as the support; classes keep their numbers, for proxies.

        Raises
        ------
        TrainError
            If nothing is left to query, or several processes share the batch.
        """
        if distributed.world() > 1:
            raise TrainError("episodes: work in one process only, because an episode cannot be divided")
        support, _, query, *_ = episode_of(labels, self.shots)
        if not len(query):
            raise TrainError(f"episodes: no class of the batch has more than shots={self.shots} items")
        of_ids = () if ids is None else (ids[support], ids[query])
        return Episode(items[support], labels[support], items[query], labels[query], *of_ids)

    def loss(
        self, embedder: nn.Module, objective: nn.Module, items: Tensor, labels: Tensor, ids: Tensor | None = None
    ) -> Tensor:
        """Return L_Q; its gradient in the weights is the one of the mode."""
        episode = self.cut(items, labels, ids)
        weights: Weights = {name: w for name, w in embedder.named_parameters() if w.requires_grad}
        how = (episode, self.inner_lr, self.inner_steps, self.mode == "maml")
        found = adapted(embedder, weights, objective, *how)
        if self.mode == "sequential":
            with torch.no_grad():
                for name, w in weights.items():
                    w.copy_(found[name])
            found = weights
        elif self.mode == "fomaml":
            found = {name: w + (found[name] - w).detach() for name, w in weights.items()}
        return value_of(embedder, found, objective, episode.of_query)
