"""Divide and conquer the embedding space (Sanakoyeu, Tschernezki, Büchler & Ommer, 2019).

L = L_k(x_k, y),   x_k: the k-th group of the embedding's dimensions, for a batch from cluster k

The samples are divided into K clusters, and the dimensions into K groups. A batch from one cluster trains one group
with a separate objective, so that each group learns what tells similar samples apart. A batch from all clusters
trains the whole embedding, all groups together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from itertools import accumulate
from typing import cast

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from ..objective.batch import Batch
from ..objective.parser import parse_objective
from ..objective.terms import Term
from ..pairwise.groups import checked_groups, lengths_of


class DivideAndConquer(Term):
    """Train a group of an embedding's dimensions with the samples of one cluster, and the other groups with the others.

    Use it with `ClusterSampler`, whose batches come from one cluster each. ``nearfar train`` and `DeepMetric` pass the
    clusters to this objective; in your own loop, call ``assign(sampler.clusters)`` at the start of an epoch, and pass
    the numbers of the samples: ``loss(embeddings, labels, ids=ids)``. Until then, batches train the whole embedding.

    Parameters
    ----------
    objective : Term or str
        Objective of each group, and of the whole embedding. As text, such as ``"MarginLoss()"``, it is built for every
        group with proxies of that length; as a term, it is copied for every group.
    groups : int or sequence of int
        Number of groups, of nearly equal length, or the length of each group. There is one for each cluster.
    num_classes : int, optional
        Number of classes, for objectives with proxies that are given as text.
    embedding_dim : int, optional
        Number of dimensions of the embedding, for objectives with proxies that are given as text.
    class_counts : sequence of int, optional
        Number of items of each class, for objectives given as text that need it.

    Attributes
    ----------
    clusters : (n,) tensor or None
        Cluster of each sample; None before `assign`.

    Raises
    ------
    ValueError
        If `groups` is neither a number nor lengths; in a call, if the groups do not fit the embedding, `ids` are
        missing, or the samples of a batch come from several clusters.
    TypeError
        If `objective` is neither a term nor text.

    Notes
    -----
    The paper divides 128 dimensions into 4 or 8 groups, trains them with `MarginLoss` and `DistanceWeighted`, and
    trains the whole embedding in the last epochs (``until=`` of the sampler). Its code uses the objective of the first
    group for that; here, the whole embedding has a separate one. For search, the groups are one embedding, as in the
    paper.

    Examples
    --------
    >>> from nearfar import TripletLoss
    >>> x = torch.tensor([[1.0, 0.0, 0.0, 1.0], [1.0, 0.0, 2.0, 0.0], [0.0, 1.0, 0.0, 3.0], [0.0, 1.0, 2.0, 0.0]])
    >>> y = torch.tensor([0, 0, 1, 1])
    >>> divided = DivideAndConquer(TripletLoss(), groups=2)
    >>> divided.assign([0, 1, 0, 1, 1, 1])
    >>> bool(divided(x, y, ids=[1, 3, 4, 5]) == TripletLoss()(x[:, 2:], y))
    True
    """

    inner_text = "objective"  # the text of an objective passes this setting as text, for terms of several lengths

    def __init__(
        self,
        objective: Term | str,
        groups: int | Sequence[int] = 4,
        *,
        num_classes: int | None = None,
        embedding_dim: int | None = None,
        class_counts: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.groups = checked_groups(name, groups)
        number = self.groups if isinstance(self.groups, int) else len(self.groups)
        dims: list[int | None] = [None] * (number + 1)
        if embedding_dim is not None:
            dims = [*lengths_of(name, self.groups, embedding_dim), embedding_dim]
        if isinstance(objective, str):
            terms = [
                parse_objective(objective, num_classes=num_classes, embedding_dim=dim, class_counts=class_counts)
                for dim in dims
            ]
        elif isinstance(objective, Term):
            terms = [deepcopy(objective) for _ in dims]
        else:
            raise TypeError(f"{name}: objective must be a loss such as MarginLoss(), got {objective!r}")
        self.terms = nn.ModuleList(terms)  # of the groups, and of the whole embedding at the end
        self.clusters: Tensor | None = None

    @property
    def number(self) -> int:
        """Number of groups."""
        return len(self.terms) - 1

    def assign(self, clusters: ArrayLike | Tensor) -> None:
        """Set the cluster of each sample, whose batches train the group of that number.

        Parameters
        ----------
        clusters : (n,) integers
            Cluster of each sample, from 0 on; -1 for samples that train the whole embedding.

        Raises
        ------
        ValueError
            If these are not integers from -1 to the number of groups minus one.
        """
        found = torch.as_tensor(clusters).cpu()
        if found.ndim != 1 or found.is_floating_point() or not len(found):
            got = f"{found.dtype} of shape {tuple(found.shape)}"
            raise ValueError(f"DivideAndConquer: clusters: expected (n,) integers, got {got}")
        if found.min() < -1 or found.max() >= self.number:
            expected = f"numbers in -1..{self.number - 1}, one for each group"
            got = f"{int(found.min())}..{int(found.max())}"
            raise ValueError(f"DivideAndConquer: clusters: expected {expected}, got {got}")
        self.clusters = found.long()

    def local_value(self, batch: Batch) -> Tensor:
        lengths = lengths_of(type(self).__name__, self.groups, batch.x.shape[1])
        cluster = self._cluster_of(batch)
        if cluster < 0:
            part = batch
        else:
            end = list(accumulate(lengths))[cluster]
            part = _dimensions(batch, slice(end - lengths[cluster], end))
        terms = list(cast(Iterable[Term], self.terms))
        value = terms[cluster].local_value(part)  # -1 is that of the whole embedding
        # every parameter has a gradient in every step, as DistributedDataParallel expects
        for term in terms:
            if term is not terms[cluster]:
                idle = [parameter.sum() for parameter in term.parameters()]
                value = value + 0 * sum(idle, value.new_zeros(()))
        return value

    def _cluster_of(self, batch: Batch) -> int:
        """Return the cluster from which all samples of a batch come; -1 for the whole embedding."""
        if self.clusters is None or not len(batch.x):
            return -1
        if batch.ids is None:
            raise ValueError("DivideAndConquer: ids: expected the numbers of the samples, whose clusters are assigned")
        ids = batch.ids.cpu()
        if ids.min() < 0 or ids.max() >= len(self.clusters):
            got = f"{int(ids.min())}..{int(ids.max())}"
            raise ValueError(f"DivideAndConquer: ids: expected numbers in 0..{len(self.clusters) - 1}, got {got}")
        found = self.clusters[ids].unique().tolist()
        if len(found) > 1:
            listed = ", ".join(map(str, found))
            detail = f"expected samples of one cluster, as in batches of ClusterSampler, got clusters {listed}"
            raise ValueError(f"DivideAndConquer: ids: {detail}")
        return int(found[0])


def _dimensions(batch: Batch, dims: slice) -> Batch:
    """Return the batch with some dimensions of its embeddings, and without class scores and centers of others."""
    ref = None if batch.ref is None else batch.ref[:, dims]
    return batch._replace(x=batch.x[:, dims], ref=ref, scores=None, centers=None)
