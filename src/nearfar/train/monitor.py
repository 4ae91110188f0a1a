"""Scores of seen and unseen classes while training."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate.utils import broadcast_object_list
from torch import Tensor

from ..data import Dataset
from ..data.dataset import images_once
from ..deep import distributed
from ..deep.compositions.divide_and_conquer import DivideAndConquer
from ..deep.proxies.class_proxies import NeighborProxyLoss
from ..evaluation.graded import GradedQueries, label_set_scores_of_queries
from ..evaluation.retrieval import Retrieval
from ..numerics.types import Ints
from .config import TrainError
from .features import Floats, encode, resizing_of
from .loop import Loop
from .pairs import scores_both_ways, text_set
from .rungs.class_scores import ClassScores, search


class EpochScores(NamedTuple):
    """Scores of an epoch: Recall@K and MAP@R by name, and those of each held-out class in the first process, if any.

    The names begin with "unseen_" for the held-out classes, and with "seen_" for as many training items.
    """

    by_name: dict[str, float]
    by_class: ClassScores | None = None


def score_unseen_and_seen(loop: Loop) -> EpochScores:
    """Score the validation classes and as many training items.

    All processes embed their share; the first computes the scores, and all return them.

    Raises
    ------
    TrainError
        If the embeddings are not finite.
    """
    assert loop.model is not None
    loop.model.eval()
    row: dict[str, float] = {}
    by_class = None
    for name, dataset in (("unseen", loop.data.unseen), ("seen", loop.data.seen)):
        if dataset is not None and loop.data.plan.texts is not None:
            row |= {f"{name}_{key}": value for key, value in pair_scores(loop, dataset).items()}
        elif dataset is not None:
            rows = embed_both(loop, dataset)
            if not np.isfinite(rows).all():  # here, where all processes see it
                raise TrainError(
                    f"the network gives embeddings of {dataset.name} that are not finite; lower the learning rate"
                )
            if loop.accelerator.is_main_process and dataset.has_label_sets:
                of_sets = graded(rows, dataset)
                row |= {f"{name}_{key}": value for key, value in set_scores(of_sets).items()}
                if name == "unseen" and len(of_sets.place):
                    by_class = scores_of_sets(of_sets, dataset)
            elif loop.accelerator.is_main_process:
                found, classes = searched(rows, dataset, loop.config.ks)
                row |= {f"{name}_{key}": value for key, value in neighbor_scores(found).items()}
                if name == "unseen" and found.relevant.any():
                    by_class = ClassScores.of(found, classes)
    return EpochScores(from_first(row), by_class)


def pair_scores(loop: Loop, pairs: Dataset) -> dict[str, float]:
    """Return means of the scores of texts that search images, and of images that search texts.

    All processes embed their share; the scores are those of the first, and others return none.

    Raises
    ------
    TrainError
        If the embeddings are not finite.
    """
    assert loop.data.plan.texts is not None
    tower = loop.trainable.embedder.text
    assert tower is not None

    def embed_rows(rows: Tensor) -> Tensor:
        with loop.accelerator.autocast():
            embedding: Tensor = tower(rows).embedding
        return embedding

    images = images_once(pairs)
    of_images = embed_both(loop, images)
    of_texts = embed_both(loop, text_set(pairs, loop.data.plan.texts.tokens), embed_rows)
    if not (np.isfinite(of_images).all() and np.isfinite(of_texts).all()):  # here, where all processes see it
        raise TrainError(f"the network gives embeddings of {pairs.name} that are not finite; lower the learning rate")
    if not loop.accelerator.is_main_process:
        return {}
    how: dict[str, Any] = {"ks": loop.config.ks, "clustering": False}
    both = scores_both_ways(of_images, images.labels, of_texts, pairs.labels, **how)
    found = {f"recall_at_{k}": np.mean([scores.recall_at[k] for scores in both]) for k in loop.config.ks}
    found["map_at_r"] = np.mean([scores.map_at_r for scores in both])
    return {name: float(value) for name, value in found.items() if isfinite(value)}


def searched(rows: Floats, dataset: Dataset, ks: Iterable[int] = (1,)) -> tuple[Retrieval, Ints]:
    """Search some items by their embeddings (n, d), and return the scores of the queries and their classes."""
    return search(rows, dataset.labels, groups=dataset.groups, asks=dataset.asks, ks=ks)


def class_scores(rows: Floats, dataset: Dataset) -> ClassScores:
    """Return the scores of each class, or of each set of labels, by labels in common; of none if nothing can be found.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Embeddings of the items.
    dataset : Dataset
        The items.
    """
    if dataset.has_label_sets:
        return scores_of_sets(graded(rows, dataset), dataset)
    return ClassScores.of(*searched(rows, dataset))


def scores_of_sets(found: GradedQueries, dataset: Dataset) -> ClassScores:
    """Return the means over the items with equal sets of labels."""
    return ClassScores.means(dataset.labels[found.place], found.map_at_r, found.recall_at_1)


def set_scores(found: GradedQueries) -> dict[str, float]:
    """Return Recall@1 and MAP@R of items with sets of labels; empty if no two items share one."""
    if not len(found.place):
        return {}
    return {"recall_at_1": float(found.recall_at_1.mean()), "map_at_r": float(found.map_at_r.mean())}


def graded(rows: Floats, dataset: Dataset) -> GradedQueries:
    """Return the scores of embeddings of items whose classes have several labels."""
    assert dataset.class_labels is not None
    return label_set_scores_of_queries(rows, dataset.class_labels.hot(dataset.classes)[dataset.labels])


def neighbor_scores(found: Retrieval) -> dict[str, float]:
    """Return Recall@K and MAP@R of a search; empty if all items are alone in their class."""
    scored = found.relevant > 0
    if not scored.any():
        return {}
    recalls = {f"recall_at_{k}": float(found.found(k)[scored].mean()) for k in found.ks}
    return {**recalls, "map_at_r": float(found.map_at_r[scored].mean())}


def embed_both(loop: Loop, dataset: Dataset, forward: Callable[[Tensor], Tensor] | None = None) -> Floats:
    """Embed a data set with the current model. Each process embeds a share of the items, and returns all embeddings.

    `forward` is used instead of the model, for the tower of texts.
    """
    world = distributed.world()
    n = len(dataset)
    config = loop.config
    share = -(-n // world)
    # every process has the same number of items
    mine = np.arange(distributed.rank() * share, (distributed.rank() + 1) * share) % n
    model: Any = loop.model

    def by_model(items: Tensor) -> Tensor:
        embedding: Tensor = model(items).embedding
        return embedding

    rows = encode(
        forward or by_model,
        dataset if world == 1 else dataset.subset(mine),
        device=loop.accelerator.device,
        image_size=config.image_size,
        resize=config.resize,
        resizing=resizing_of(config),
        batch_size=max(256, config.batch_size),
        workers=config.workers,
    )
    if world == 1:
        return rows
    gathered: Tensor = loop.accelerator.gather(torch.from_numpy(rows).to(loop.accelerator.device))
    return gathered.cpu().numpy()[:n]


def refit_proxies(loop: Loop) -> None:
    """Set proxies that are class means or k-means centers from the embeddings of all training items."""
    objective = loop.trainable.objective
    losses = [part for part in objective.modules() if isinstance(part, NeighborProxyLoss) and part.source != "learned"]
    # a loss inside HORDE or Matryoshka compares moments or prefixes, and one inside DivideAndConquer groups of
    # dimensions: its class means begin with the batches
    holders = [part for part in objective.modules() if hasattr(part, "inner_dim") or hasattr(part, "inner_text")]
    inner = {id(loss) for part in holders for loss in part.modules()}
    outer = [loss for loss in losses if id(loss) not in inner]
    if any(loss.source == "kmeans" for loss in losses if id(loss) in inner):
        what = "HORDE: a run sets no k-means proxies of moments"
        if not any(hasattr(part, "inner_dim") for part in holders):
            what = "Matryoshka: a run sets no k-means proxies of prefixes"
            if any(isinstance(part, DivideAndConquer) for part in holders):
                what = "DivideAndConquer: a run sets no k-means proxies of groups"
        raise TrainError(f"{what}; choose proxies='learned' or 'class_mean'")
    if not outer:
        return
    assert loop.model is not None
    loop.model.eval()
    rows = torch.from_numpy(embed_both(loop, loop.data.train))
    for loss in outer:
        loss.refit(rows, torch.as_tensor(loop.data.train.labels))


def from_first(row: dict[str, Any]) -> dict[str, Any]:
    """Return the value of the first process in all processes."""
    if distributed.world() == 1:
        return row
    found: dict[str, Any] = broadcast_object_list([row])[0]
    return found
