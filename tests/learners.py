"""Data and helpers for the laws of learners."""

from __future__ import annotations

import importlib
import warnings
from types import ModuleType
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.neighbors import KNeighborsClassifier

import nearfar
from nearfar.catalog import METHODS, Method

LEARNERS = [method for method in METHODS if method.kind == "learner"]


def reference(method: Method) -> ModuleType | None:
    """tests/references/<folder>_<file>.py, or <file>.py; None where neither is there."""
    folder, file = method.at.split("/")[-2:]
    for name in (f"{folder}_{file}", file):
        try:
            return importlib.import_module(f"tests.references.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"tests.references.{name}":
                raise
    return None


def told(method: Method, what: str, default: Any) -> Any:
    """A constant of the method's reference file."""
    return getattr(reference(method), what, default)


def make(method: Method, **settings: Any) -> Any:
    """The learner with its small settings."""
    learner = getattr(nearfar, method.name)(**{**method.small, **settings})
    if "random_state" in learner.get_params():
        learner.set_params(random_state=0)
    return learner


def fit(learner: Any, *args: Any, **kwargs: Any) -> Any:
    """Fit without the warnings that small settings bring."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return learner.fit(*args, **kwargs)


FITTED: dict[str, Any] = {}


def fitted(method: Method) -> Any:
    """The learner with its small settings, fitted once to `data()`, for tests that do not change it."""
    if method.name not in FITTED:
        FITTED[method.name] = fit(make(method), *data())
    return FITTED[method.name]


def data(n: int = 60, d: int = 4, classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Overlapping classes of different sizes, correlated features of different scale."""
    rng = np.random.default_rng(seed)
    y = np.sort(rng.permutation(np.arange(n) % classes * (rng.random(n) < 0.8)))
    y = rng.permutation(y)
    centers = rng.normal(size=(classes, d)) * 2
    mix = rng.normal(size=(d, d)) / 2 + np.eye(d)
    return (centers[y] + rng.normal(size=(n, d))) @ mix, y


def toy(n: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two features tell three classes apart; six louder ones are noise."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    angle = 2 * np.pi * y / 3
    signal = 2.2 * np.stack([np.cos(angle), np.sin(angle)], axis=1) + rng.normal(size=(n, 2))
    return np.concatenate([signal, 3 * rng.normal(size=(n, 6))], axis=1), y


def distances(learner: Any, X: np.ndarray) -> np.ndarray:
    """All learned distances between rows of X."""
    return pdist(np.asarray(learner.transform(X), dtype=np.float64))


def accuracy(A: np.ndarray, a: np.ndarray, B: np.ndarray, b: np.ndarray) -> float:
    """3-NN accuracy on (B, b) with (A, a) as memory."""
    return KNeighborsClassifier(3).fit(A, a).score(B, b)


def all_pairs(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every pair of rows, and +1 or -1."""
    i, j = np.triu_indices(len(y), 1)
    return np.stack([i, j], axis=1), np.where(y[i] == y[j], 1, -1)
