"""Penalties of embeddings, or of class weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...deep.regularizers.center_invariance import CenterInvariance
from ...deep.regularizers.center_norms import CenterNorms
from ...deep.regularizers.regular_face import RegularFace


class LpRegularizer(nn.Module):
    """The mean norm of the rows, to a power."""

    def __init__(self, p: float = 2, power: float = 1, normalize_weights: bool = False, **_: Any) -> None:
        super().__init__()
        self.p = p
        self.power = power

    def forward(self, rows: Tensor) -> Tensor:
        return CenterNorms(self.p, self.power).penalty(rows[None], _all(rows))


class ZeroMeanRegularizer(nn.Module):
    """The mean of the absolute sums of the rows."""

    def __init__(self, **_: Any) -> None:
        super().__init__()

    def forward(self, rows: Tensor) -> Tensor:
        return rows.sum(1).abs().mean()


class RegularFaceRegularizer(nn.Module):
    """The mean over class weights of the cosine to the nearest other one (Zhao, Xu & Cheng, 2019)."""

    def __init__(self, **_: Any) -> None:
        super().__init__()

    def forward(self, weights: Tensor) -> Tensor:
        return RegularFace().penalty(weights[None], _all(weights))


class CenterInvariantRegularizer(nn.Module):
    """The mean of (|w_c|^2 - mean |w|^2)^2 / 4 over class weights w_c (Wu et al., 2017)."""

    def __init__(self, **_: Any) -> None:
        super().__init__()

    def forward(self, weights: Tensor) -> Tensor:
        return CenterInvariance().penalty(weights[None], _all(weights))


def _all(rows: Tensor) -> Tensor:
    """Return that every row counts."""
    return torch.ones(len(rows), dtype=torch.bool, device=rows.device)
