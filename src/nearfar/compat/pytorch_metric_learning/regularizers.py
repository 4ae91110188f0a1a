"""Penalties of embeddings, or of class weights: ``embedding_regularizer=`` and ``weight_regularizer=`` of losses."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...deep.regularizers.center_invariance import CenterInvariance
from ...deep.regularizers.center_norms import CenterNorms
from ...deep.regularizers.regular_face import RegularFace
from ...deep.regularizers.sparse_centers import SparseCenters
from .mismatch import Mismatch
from .utils import common_functions


class BaseRegularizer(nn.Module):
    """The base of penalties, also of your own: state ``forward(embeddings)``, which returns one number."""

    def __init__(self, *, collect_stats: bool | None = None, **settings: Any) -> None:
        super().__init__()
        name = type(self).__name__
        for setting in ("reducer", "distance"):
            if settings.pop(setting, None) is not None:
                raise NotImplementedError(f"{name}: {setting}: not supported; only the default works with the penalty")
        if settings:
            raise TypeError(f"{name}: unknown settings {sorted(settings)}")
        self.collect_stats = common_functions.collects_stats(collect_stats)


class LpRegularizer(BaseRegularizer):
    """The mean norm of the rows, to a power."""

    def __init__(self, p: float = 2, power: float = 1, **settings: Any) -> None:
        super().__init__(**settings)
        self.p = p
        self.power = power

    def forward(self, rows: Tensor) -> Tensor:
        return CenterNorms(self.p, self.power).penalty(rows[None], _all(rows))


class ZeroMeanRegularizer(BaseRegularizer):
    """The mean of the absolute sums of the rows."""

    def forward(self, rows: Tensor) -> Tensor:
        return rows.sum(1).abs().sum() / max(len(rows), 1)


class RegularFaceRegularizer(BaseRegularizer):
    """The mean over class weights of the cosine to the nearest other one (Zhao, Xu & Cheng, 2019)."""

    def forward(self, weights: Tensor) -> Tensor:
        return RegularFace().penalty(weights[None], _all(weights))


class CenterInvariantRegularizer(BaseRegularizer):
    """The mean of (|w_c|^2 - mean |w|^2)^2 / 4 over class weights w_c (Wu et al., 2017)."""

    def forward(self, weights: Tensor) -> Tensor:
        return CenterInvariance().penalty(weights[None], _all(weights))


class SparseCentersRegularizer(BaseRegularizer):
    """The distances between the centers of a class, so that those that are not needed merge (Qian et al., 2019).

    Parameters
    ----------
    num_classes : int
    centers_per_class : int
        At least 2; the centers of a class are rows that follow one another.
    """

    def __init__(self, num_classes: int, centers_per_class: int, **settings: Any) -> None:
        super().__init__(**settings)
        if centers_per_class < 2:
            raise Mismatch(f"SparseCentersRegularizer: centers_per_class must be at least 2, got {centers_per_class}")
        self.num_classes = num_classes
        self.centers_per_class = centers_per_class

    def forward(self, weights: Tensor) -> Tensor:
        centers = weights.unflatten(0, (self.num_classes, self.centers_per_class)).transpose(0, 1)
        real = torch.ones(self.num_classes, dtype=torch.bool, device=weights.device)
        return SparseCenters().penalty(centers, real)


def _all(rows: Tensor) -> Tensor:
    """Return that every row counts."""
    return torch.ones(len(rows), dtype=torch.bool, device=rows.device)
