"""Samplers as text, for the command line and recipes: "random", "m_per_class:2", "class_ratio:0.25"."""

from __future__ import annotations

import re

from numpy.typing import ArrayLike

from .base import BatchSampler, RandomBatchSampler
from .class_ratio import ClassRatioSampler
from .m_per_class import MPerClassSampler

KNOWN = '"random", "m_per_class:M" such as m_per_class:2, "class_ratio:R" such as class_ratio:0.25'


def make_sampler(text: str, labels: ArrayLike, batch_size: int, seed: int = 0) -> BatchSampler:
    """Return the batch sampler that `text` names; its epochs are about as long as the data.

    Parameters
    ----------
    text : str
        "random", "m_per_class:M" or "class_ratio:R".
    labels : (n,) array-like
        Class of each sample.
    batch_size : int
        Samples of a global batch.
    seed : int
        Seed of all epochs.

    Raises
    ------
    ValueError
        If the text names no sampler, or its number is missing or wrong.

    Examples
    --------
    >>> make_sampler("random", [0, 0, 1, 1], batch_size=2)
    RandomBatchSampler(samples=4, batch_size=2, seed=0, drop_last=False)
    """
    name, _, number = text.strip().partition(":")
    if name == "random" and not number:
        return RandomBatchSampler(labels, batch_size, seed=seed)
    if name == "m_per_class" and number.isdecimal():
        return MPerClassSampler(labels, int(number), batch_size, seed=seed, rounds=None)
    if name == "class_ratio" and re.fullmatch(r"\d*\.?\d+", number):
        return ClassRatioSampler(labels, batch_size, float(number), seed=seed, rounds=None)
    raise ValueError(f"sampler: expected {KNOWN}, got {text!r}")
