"""Embeddings whose dimensions form groups, each an embedding by itself: ensembles that share one network."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

from torch import Tensor

from ..unit_vectors import unit


def checked_groups(who: str, groups: int | Sequence[int]) -> int | tuple[int, ...]:
    """Return the number of groups or their lengths, or raise a ValueError if `groups` is neither."""
    if isinstance(groups, Integral) and not isinstance(groups, bool) and int(groups) >= 1:
        return int(groups)
    lengths: tuple[int, ...] = ()
    if isinstance(groups, Sequence) and not isinstance(groups, str):
        lengths = tuple(groups)
    if not lengths or not all(isinstance(one, Integral) and int(one) >= 1 for one in lengths):
        raise ValueError(
            f"{who}: groups must be a number of at least 1, or lengths such as (96, 160, 256); got {groups!r}"
        )
    return tuple(int(one) for one in lengths)


def lengths_of(who: str, groups: int | tuple[int, ...], dim: int) -> tuple[int, ...]:
    """Return the lengths of the groups of an embedding with `dim` dimensions; a remainder goes to the first groups.

    >>> lengths_of("BIERLoss", 3, 8)
    (3, 3, 2)
    """
    if isinstance(groups, int):
        if groups > dim:
            raise ValueError(f"{who}: embeddings: {groups} groups need as many dimensions, got {dim}")
        small, more = divmod(dim, groups)
        return tuple(small + 1 if place < more else small for place in range(groups))
    if sum(groups) != dim:
        raise ValueError(f"{who}: embeddings: groups of {groups} dimensions are {sum(groups)} together, got {dim}")
    return groups


def unit_groups(x: Tensor, lengths: tuple[int, ...]) -> list[Tensor]:
    """Return the groups of the rows of x, (n, length) each, scaled to unit length."""
    return [unit(part) for part in x.split(list(lengths), dim=1)]
