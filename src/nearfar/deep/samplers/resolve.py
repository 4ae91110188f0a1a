"""Samplers as text, for the command line and recipes: "auto", "random", "m_per_class:2", "class_ratio:0.25", a sampler
by its name, "SmartMiningSampler(neighbors=20)", or your own, "package.module:Name(option=value)"."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from inspect import signature
from typing import Any

from numpy.typing import ArrayLike

from ...catalog import BY_NAME, METHODS
from ...expressions import Call, ExpressionError, parse, settings_of, shown
from ...trust import OwnCodeError, TrustError, import_own
from .base import BatchSampler, by_class
from .class_ratio import ClassRatioSampler
from .m_per_class import MPerClassSampler
from .random import RandomBatchSampler

SAMPLES_PER_CLASS = 4  # samples of a class in a batch of the "auto" sampler, where the data has the classes for it
NAMES = ("auto", "random", "m_per_class", "class_ratio")
KNOWN = (
    '"auto", "random", "m_per_class:M" such as m_per_class:2, "class_ratio:R" such as class_ratio:0.25, '
    "SmartMiningSampler(), ClusterSampler()"
)
BY_NAMES = [method.name for method in METHODS if method.kind == "sampler"]
FROM_RUN = ("labels", "batch_size", "seed")  # arguments that a run gives
OWN = f"a subclass of {BatchSampler.__module__}.BatchSampler"


def make_sampler(text: str, labels: ArrayLike, batch_size: int, seed: int = 0) -> BatchSampler:
    """Return the batch sampler that a text describes, whose epochs are about as long as the data.

    Parameters
    ----------
    text : str
        Description of the sampler:

        - "random": every sample once per epoch;
        - "m_per_class:M": M samples of each class in a batch;
        - "class_ratio:R": R classes per sample of a batch;
        - "SmartMiningSampler(neighbors=20)": a sampler of nearfar by its name, with its settings;
        - "auto": "m_per_class" with the smallest M from 4 on for which a batch needs no more classes than there are;
        - "package.module:Name(option=value)": your own subclass of `BatchSampler`, which is called with the labels,
          `batch_size`, `seed` and the options.
    labels : (n,) array-like
        Class of each sample.
    batch_size : int
        Number of samples in a global batch, across all processes.
    seed : int
        Seed of the random order of all epochs.

    Raises
    ------
    ValueError
        If the text describes no sampler, or its number is missing or invalid.

    Examples
    --------
    >>> make_sampler("random", [0, 0, 1, 1], batch_size=2)
    RandomBatchSampler(samples=4, batch_size=2, seed=0, drop_last=False)
    """
    try:
        call = parse(text, f"a sampler: {KNOWN} or package.module:Name(option=value)")
    except ExpressionError as error:
        raise ValueError(f"sampler: {error}") from error
    if not isinstance(call, Call):
        raise ValueError(f"sampler: expected {KNOWN}, got {shown(text)}")
    name, _, number = call.name.partition(":")
    if call.module and name not in NAMES:
        return _own(call, labels, batch_size, seed)
    if call.name in BY_NAMES:
        return _named(call, labels, batch_size, seed)
    if name == "auto" and not number and not call.arguments:
        return MPerClassSampler(labels, fitting_m(labels, batch_size), batch_size, seed=seed, rounds=None)
    if name == "random" and not number and not call.arguments:
        return RandomBatchSampler(labels, batch_size, seed=seed)
    if name == "m_per_class" and number.isdecimal() and not call.arguments:
        return MPerClassSampler(labels, int(number), batch_size, seed=seed, rounds=None)
    if name == "class_ratio" and number and not call.module and not call.arguments:
        return ClassRatioSampler(labels, batch_size, float(number), seed=seed, rounds=None)
    near = get_close_matches(call.name, BY_NAMES, n=1)
    suggestion = f"; did you mean {near[0]}?" if near else ""
    raise ValueError(f"sampler: expected {KNOWN}, got {shown(text)}{suggestion}")


def _named(call: Call, labels: ArrayLike, batch_size: int, seed: int) -> BatchSampler:
    """Build a sampler of nearfar from its name and settings."""
    make: Any = getattr(import_module(BY_NAME[call.name].module), call.name)
    takes = signature(make).parameters
    missing = set(FROM_RUN) - set(takes)
    if missing:  # a sampler of episodes
        raise ValueError(f"sampler: {call.name} does not make batches for a run; use it in your own loop")
    try:
        options = settings_of(call, {name: one for name, one in takes.items() if name not in FROM_RUN})
        if "rounds" in takes:
            options = {"rounds": None, **options}  # as long as the data
        made: BatchSampler = make(labels, batch_size=batch_size, seed=seed, **options)
    except (ExpressionError, TypeError, ValueError) as error:
        raise ValueError(f"sampler {shown(str(call))}: {error}") from error
    return made


def _own(call: Call, labels: ArrayLike, batch_size: int, seed: int) -> BatchSampler:
    """Build a sampler from a class of the user."""
    try:
        make: Any = import_own(call.name, _is_sampler, OWN)
        options = settings_of(call, {}, hands_on=True)
        made: BatchSampler = make(labels, batch_size=batch_size, seed=seed, **options)
    except TrustError:
        raise
    except (ExpressionError, OwnCodeError, TypeError, ValueError) as error:
        raise ValueError(f"sampler {shown(str(call))}: {error}") from error
    return made


def _is_sampler(found: Any, module: str) -> bool:
    return isinstance(found, type) and issubclass(found, BatchSampler)


def fitting_m(labels: ArrayLike, batch_size: int) -> int:
    """Return the smallest divisor of the batch size, from 4 on, for which a batch needs no more classes than exist."""
    classes = len(by_class(labels).counts)
    divisors = [m for m in range(min(SAMPLES_PER_CLASS, batch_size), batch_size + 1) if batch_size % m == 0]
    return next((m for m in divisors if batch_size // m <= classes), batch_size)
