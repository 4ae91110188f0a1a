"""Pooling of the last map or the last tokens of a trunk to one vector of features."""

from __future__ import annotations

from torch import Tensor

from .weights import TrunkError

GEM_POWER = 3.0  # p of GeM in the paper's experiments with a fixed p
GEM_EPS = 1e-6  # smaller values are raised to this in GeM, whose powers are of positive numbers


def pool_features(features: Tensor, pool: str, prefix: int, name: str) -> Tensor:
    """Pool an (n, C, H, W) map, or (n, T, C) tokens of which the first `prefix` are not patches.

    Parameters
    ----------
    features : Tensor
        Last map or tokens of the trunk.
    pool : {"cls", "avg", "gem"}
        "cls": the class token. "avg": the average of all patches or places. "gem": their generalized mean
        ``(mean x^p)^(1/p)`` with p = 3 (Radenović, Tolias and Chum, 2019), where values below 1e-6 are replaced by
        1e-6.
    prefix : int
        Number of class and register tokens, which are left out of averages.
    name : str
        Name of the model in error messages.

    Returns
    -------
    Tensor of shape (n, C)
        Pooled features.
    """
    if features.ndim == 4:
        patches = features.flatten(2).transpose(1, 2)  # (n, HW, C)
    elif features.ndim == 3:
        patches = features[:, prefix:]  # (n, T - prefix, C)
    else:
        raise TrunkError(
            f"{name}: pool={pool!r} needs an (n, C, H, W) map or (n, T, C) tokens, got {tuple(features.shape)}"
        )
    if pool == "cls":
        if features.ndim == 4 or prefix == 0:
            raise TrunkError(f"{name}: pool='cls' needs a class token, which the model lacks; use avg, gem or model")
        return features[:, 0]
    if pool == "gem":
        return patches.clamp(min=GEM_EPS).pow(GEM_POWER).mean(1).pow(1 / GEM_POWER)
    return patches.mean(1)
