"""Episodes as tensors: support and query, class means, and classification by the nearest mean.

A batch of an `EpisodeSampler` is one episode: the support class by class, then the queries. `split_episode` splits it
and numbers its classes from 0 to N - 1 in the order of the support.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .unit_vectors import unit


class Episode(NamedTuple):
    """One N-way K-shot episode.

    Attributes
    ----------
    support, query : (N K, ...) and (q, ...) tensors
        Items of the support and of the queries.
    support_labels, query_labels : (N K,) and (q,) tensors
        Classes of these items, from 0 to N - 1.
    support_ids, query_ids : (N K,) and (q,) tensors or None
        Numbers of the samples in the data set, for terms that remember samples.
    """

    support: Tensor
    support_labels: Tensor
    query: Tensor
    query_labels: Tensor
    support_ids: Tensor | None = None
    query_ids: Tensor | None = None

    @property
    def of_support(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Items, classes and ids of the support."""
        return self.support, self.support_labels, self.support_ids

    @property
    def of_query(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Items, classes and ids of the queries."""
        return self.query, self.query_labels, self.query_ids


def split_episode(items: Tensor, labels: Tensor, n_way: int, k_shot: int) -> Episode:
    """Split a batch into support and query, and number its classes from 0 to N - 1.

    Parameters
    ----------
    items : (n, ...) tensor
        Items of the episode, of which the first n_way * k_shot are the support, class by class.
    labels : (n,) tensor
        Class of each item, as any integers.
    n_way : int
        Number N of classes in the episode.
    k_shot : int
        Number K of support items of each class.

    Raises
    ------
    ValueError
        If the support does not consist of `k_shot` samples of each of `n_way` classes, or a query is of none of them.

    Examples
    --------
    >>> split_episode(torch.arange(5), torch.tensor([7, 3, 3, 7, 3]), n_way=2, k_shot=1).query_labels
    tensor([1, 0, 1])
    """
    of_support = labels[: n_way * k_shot]
    classes = of_support[::k_shot]
    whole = len(of_support) == n_way * k_shot and len(classes.unique()) == n_way
    if not whole or bool((of_support.view(n_way, k_shot) != classes[:, None]).any()):
        raise ValueError(f"labels: expected a support of {k_shot} samples of each of {n_way} classes, class by class")
    same = labels[:, None] == classes  # (n, N)
    if not bool(same.any(1).all()):
        raise ValueError("labels: a query is of none of the classes of the support")
    numbers = same.to(torch.uint8).argmax(1)
    cut = n_way * k_shot
    return Episode(items[:cut], numbers[:cut], items[cut:], numbers[cut:])


def prototypes(z: Tensor, labels: Tensor, n_way: int) -> Tensor:
    """Return the (N, ...) class means of (n, ...) embeddings or maps; the gradient reaches every sample."""
    hot = (labels[:, None] == torch.arange(n_way, device=labels.device)).to(z.dtype)
    means: Tensor = (hot / hot.sum(0).clamp_min(1)).T @ z.flatten(1)
    return means.reshape(n_way, *z.shape[1:])


def classify(query: Tensor, support: Tensor, labels: Tensor, n_way: int, *, normalize: bool = True) -> Tensor:
    """Return the (q,) class of the nearest prototype for (q, d) embeddings.

    Parameters
    ----------
    query, support : (q, d) and (s, d) float tensors
        Embeddings of the queries and of the support.
    labels : (s,) integers
        Class of each support embedding, from 0 to n_way - 1.
    n_way : int
        Number of classes in the episode.
    normalize : bool
        Whether to scale the embeddings and the prototypes to unit length first.
    """
    if normalize:
        query = unit(query)
        support = unit(support)
    means = prototypes(support, labels, n_way)
    means = unit(means) if normalize else means
    return (means.square().sum(1) / 2 - query @ means.T).argmin(1)
