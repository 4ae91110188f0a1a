"""Matryoshka representation learning: embeddings whose first dimensions are embeddings, too (Kusupati et al., 2022).

L = sum_m w_m L_m(x_1..m, y),   m in dims
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from itertools import pairwise
from numbers import Integral
from typing import cast

import torch
from torch import Tensor, nn

from ...numerics.checks import is_finite
from ..objective.batch import Batch
from ..objective.parser import parse_objective
from ..objective.terms import Term


class Matryoshka(Term):
    """Train the first dimensions of an embedding as shorter embeddings, so that you can store fewer dimensions.

    Parameters
    ----------
    objective : Term or str
        Objective of each prefix. As text, such as ``"AMSoftmaxLoss() + JRS()"``, it is built for every prefix with
        proxies of that length; as a term, it is copied for every prefix.
    dims : sequence of int
        Lengths of the prefixes, each at most that of the embedding. Include the full length, or the last dimensions
        learn nothing.
    weights : sequence of float, optional
        Weight w of each prefix. By default, all weights are 1, as in the paper.
    num_classes : int, optional
        Number of classes, for objectives with proxies that are given as text.
    class_counts : sequence of int, optional
        Number of items of each class, for objectives given as text that need it.

    Raises
    ------
    ValueError
        If there is not one finite weight for each prefix.
    TypeError
        If `objective` is neither a term nor text.

    Notes
    -----
    The paper trains a classifier on every prefix, of lengths 8, 16, ..., 2048. To score and search with a prefix, use
    ``dims=`` in `nearfar.evaluation.evaluate` and `nearfar evaluate`.

    Examples
    --------
    >>> from nearfar import TripletLoss
    >>> x = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 2.0], [0.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
    >>> y = torch.tensor([0, 0, 1, 1])
    >>> nested = Matryoshka(TripletLoss(), dims=(2, 3))
    >>> bool(nested(x, y) == TripletLoss()(x[:, :2], y) + TripletLoss()(x, y))
    True
    """

    inner_text = "objective"  # the text of an objective passes this setting as text, for terms of several lengths

    def __init__(
        self,
        objective: Term | str,
        dims: Sequence[int] = (32, 64, 128),
        *,
        weights: Sequence[float] | None = None,
        num_classes: int | None = None,
        class_counts: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.dims = _checked_dims(dims)
        self.weights = [1.0] * len(self.dims) if weights is None else [*weights]
        if len(self.weights) != len(self.dims) or not all(is_finite(weight) for weight in self.weights):
            raise ValueError(f"Matryoshka: weights must be {len(self.dims)} finite numbers, one for each of dims")
        if isinstance(objective, str):
            terms = [
                parse_objective(objective, num_classes=num_classes, embedding_dim=dim, class_counts=class_counts)
                for dim in self.dims
            ]
        elif isinstance(objective, Term):
            terms = [deepcopy(objective) for _ in self.dims]
        else:
            raise TypeError(f"Matryoshka: objective must be a loss such as TripletLoss(), got {objective!r}")
        self.terms = nn.ModuleList(terms)

    def local_value(self, batch: Batch) -> Tensor:
        return torch.stack([weight * term.local_value(prefix) for weight, term, prefix in self._prefixes(batch)]).sum()

    def local_sample_losses(self, batch: Batch) -> Tensor:
        losses = [weight * term.local_sample_losses(prefix) for weight, term, prefix in self._prefixes(batch)]
        return torch.stack(losses).sum(0)

    def _prefixes(self, batch: Batch) -> list[tuple[float, Term, Batch]]:
        """Return the weight and the term of each prefix, and the batch of these first dimensions."""
        if self.dims[-1] > batch.x.shape[1]:
            got = batch.x.shape[1]
            raise ValueError(f"Matryoshka: embeddings: expected at least {self.dims[-1]} dimensions, got {got}")
        terms = cast(Iterable[Term], self.terms)
        batches = [_prefix(batch, dim) for dim in self.dims]
        return list(zip(self.weights, terms, batches, strict=True))


def _prefix(batch: Batch, dim: int) -> Batch:
    """Return the batch with the first dimensions of its embeddings, and without class scores of others."""
    ref = None if batch.ref is None else batch.ref[:, :dim]
    return batch._replace(x=batch.x[:, :dim], ref=ref, scores=None)


def _checked_dims(dims: Sequence[int]) -> tuple[int, ...]:
    """Return lengths of prefixes, or raise unless they are whole numbers from 1 on that rise."""
    lengths = tuple(dims) if isinstance(dims, Iterable) and not isinstance(dims, str) else ()
    whole = all(isinstance(dim, Integral) and dim >= 1 for dim in lengths)
    if not lengths or not whole or any(a >= b for a, b in pairwise(lengths)):
        raise ValueError(f"Matryoshka: dims must be increasing whole numbers such as (32, 64, 128); got {dims!r:.60}")
    return tuple(int(dim) for dim in lengths)
