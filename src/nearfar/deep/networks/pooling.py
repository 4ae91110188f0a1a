"""From the last map or the last tokens of a trunk to one vector of features."""

from __future__ import annotations

from torch import Tensor

from .weights import TrunkError

GEM_POWER = 3.0  # p of GeM in the paper's experiments with a fixed one
GEM_EPS = 1e-6  # what smaller values count as in GeM: its power is of positive numbers


def pool_features(features: Tensor, pool: str, prefix: int, name: str) -> Tensor:
    """Pool an (n, C, H, W) map, or (n, T, C) tokens of which the first `prefix` are no patches.

    Parameters
    ----------
    features : Tensor
        The last map or tokens.
    pool : {"cls", "avg", "gem"}
        The class token, the average of all patches or places, or their generalized mean
        ``(mean x^p)^(1/p)`` with p = 3 (Radenović, Tolias and Chum, 2019), in which values below 1e-6 count as that.
    prefix : int
        Class and register tokens, which are left out of averages.
    name : str
        What an error calls the model.

    Returns
    -------
    Tensor of shape (n, C)
    """
    if features.ndim == 4:
        patches = features.flatten(2).transpose(1, 2)  # (n, HW, C)
    elif features.ndim == 3:
        patches = features[:, prefix:]
    else:
        raise TrunkError(f"{name}: pool={pool!r} needs a map or tokens, and its features are {tuple(features.shape)}")
    if pool == "cls":
        if features.ndim == 4 or prefix == 0:
            raise TrunkError(f"{name}: pool='cls' needs a class token, and the model has none; use avg, gem or model")
        return features[:, 0]
    if pool == "gem":
        return patches.clamp(min=GEM_EPS).pow(GEM_POWER).mean(1).pow(1 / GEM_POWER)
    return patches.mean(1)
