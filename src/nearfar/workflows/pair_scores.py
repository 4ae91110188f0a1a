"""Few-shot accuracies by the scores of a network of pairs, for runs whose objective has one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data import Dataset
from ..data.loader import make_loader
from ..deep.episodes import split_episode
from ..deep.networks.pair_terms import PairTerm
from ..deep.samplers.episodes import EpisodeSampler
from ..evaluation.few_shot import FewShot
from ..evaluation.intervals import interval
from ..io.sources import SourceKind, kind_of
from ..progress import counted
from ..train import TrainConfig
from ..train.features import as_floats, image_sizes_of
from ..train.loading import load_trainable


def few_shot_by_scores(
    source: Path, dataset: Dataset, *, ways: int, shots: int, queries: int, episodes: int
) -> FewShot:
    """Return the mean accuracy of random episodes, where a query's class is that with the highest pair score.

    Raises
    ------
    ValueError
        If the source is not a run, or its objective has no network of pairs.
    """
    term, parts = _scored_items(source, dataset)
    sampler = EpisodeSampler(dataset.labels, ways, shots, queries, episodes)
    labels = torch.from_numpy(dataset.labels)
    accuracies = []
    with torch.inference_mode():
        for rows in map(torch.tensor, counted(sampler, "episodes", episodes)):
            episode = split_episode(rows, labels[rows], ways, shots)
            query, support = ([part[at] for part in parts] for at in (episode.query, episode.support))
            scores = term.score(query, support, episode.support_labels, ways)
            accuracies.append(float((scores.argmax(1) == episode.query_labels).float().mean()))
    accuracy = interval(accuracies, "normal")
    drawn = len(sampler.classes.counts)
    return FewShot(
        accuracy=accuracy,
        ways=ways,
        shots=shots,
        queries=queries,
        episodes=episodes,
        classifier="scores",
        distance=term.title,
        classes=drawn,
        left_out=sampler.left_out,
    )


def _scored_items(source: Path, dataset: Dataset) -> tuple[PairTerm, list[Tensor]]:
    """Return the network of pairs of a run, and the features of items that it compares."""
    if kind_of(source) is not SourceKind.RUN:
        raise ValueError("classifier=scores: expected a run whose network scores pairs")
    config = TrainConfig.from_json(source / "config.json")
    trainable = load_trainable(source)
    term = next((term for term in trainable.objective.terms if isinstance(term, PairTerm)), None)
    if term is None:
        raise ValueError(f"classifier=scores: {source} has no network of pairs in its objective, {config.objective}")
    sizes: dict[str, Any] = {}
    if dataset.kind == "image":
        sizes = image_sizes_of(config)
    device = next(trainable.embedder.parameters()).device
    with torch.inference_mode():
        loader = make_loader(dataset, batch_size=256, **sizes)
        batches = counted(loader, "embedding", len(loader))
        parts = [term.features(trainable.embedder, as_floats(items.to(device))) for items, _, _ in batches]
    return term, [torch.cat(part) for part in zip(*parts, strict=True)]
