"""The pairs of a batch, and their continuous labels between dissimilar and similar."""

from __future__ import annotations

import torch
from torch import Tensor

from ...objective.relations import UNKNOWN


def known_pairs(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return i < j of all pairs of samples whose (n,) classes are known."""
    known = torch.nonzero(labels != UNKNOWN).flatten()
    i, j = torch.triu_indices(len(known), len(known), offset=1, device=labels.device)
    return known[i], known[j]


def continuous_labels(d: Tensor, same: Tensor, alpha: float, beta: float) -> Tensor:
    """Return y' of pairs with distances d in [0, 1]."""
    return torch.where(same, 1 - (1 - beta) * d, alpha * (1 - d))


def interval_labels(s: Tensor, same: Tensor, lam: float, alpha: float, beta: float) -> Tensor:
    """Return the y' in [beta, 1] or [0, alpha] that minimize (s - y')^2 + lam (y' - y)^2."""
    y = (s + lam * same.to(s.dtype)) / (1 + lam)
    return torch.where(same, y.clamp(beta, 1.0), y.clamp(0.0, alpha))


def unit_range(d: Tensor) -> Tensor:
    """Return values scaled to [0, 1]; zeros where all are equal."""
    low, high = d.aminmax() if d.numel() else (0.0, 0.0)
    return (d - low) / (high - low) if high > low else torch.zeros_like(d)
