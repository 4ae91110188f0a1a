"""Warnings that name the learner that is fitted and point at the line that called it, however deep they arise."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

LEARNER: ContextVar[str] = ContextVar("learner", default="")
"""The learner whose method runs in this thread; empty where a function was called by itself."""

PASSED_ON = ("nearfar", "sklearn", "joblib")  # packages whose lines tell a user nothing: a warning skips them


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the nearest line outside of the libraries, with the learner's name in front."""
    name = LEARNER.get()
    if not name or message.startswith(name):
        text = message
    else:
        text = f"{name}: {message}"
    level = 2
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in PASSED_ON:
        level = level + 1
        frame = frame.f_back
    warnings.warn(text, category, stacklevel=level)


@contextmanager
def nameless() -> Iterator[None]:
    """Silence scikit-learn's warning about missing feature names: pairs of points are arrays, which have none."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        yield
