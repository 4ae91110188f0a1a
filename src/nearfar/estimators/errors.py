"""Errors of learners: each names the learner and, for unexpected arguments, the arguments that the call takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from typing import Any

from sklearn.exceptions import NotFittedError

from ..fit_warnings import LEARNER

WIDE_FEATURES = 3000  # so many features that a square matrix of them may not fit into memory
# messages of SciPy and Python about overflows inside a computation, which name nothing that a user knows
OVERFLOWS = ("array must not contain infs or NaNs", "Numerical result out of range")


@contextmanager
def error_context(estimator: object) -> Iterator[None]:
    """Prefix every ValueError, warning, overflow and MemoryError raised inside with the name of the estimator."""
    name = type(estimator).__name__
    before = LEARNER.set(name)
    try:
        yield
    except NotFittedError:
        raise
    except MemoryError as error:
        d = getattr(estimator, "n_features_in_", 0)
        if d < WIDE_FEATURES or str(error).startswith(name):
            raise
        told = f"a matrix of {d} x {d} features takes {8e-9 * d * d:.2g} GB, and {name} may need several"
        hint = "take fewer features; PCA(len(X) - 1) keeps all that fewer rows than features say"
        raise MemoryError(f"{name}: {str(error) or 'out of memory'}; {told}: {hint}") from error
    except (ValueError, OverflowError) as error:
        text = str(error)
        if text.startswith(name):
            raise
        if any(words in text for words in OVERFLOWS):
            text = "numbers became infinite or vanished on the way; scale the features of X (or the weights)"
        elif isinstance(error, OverflowError):
            raise
        raise ValueError(f"{name}: {text}") from error
    finally:
        LEARNER.reset(before)


def with_signature_hint(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `fit` so that its error for unexpected arguments names the learner and all arguments that it takes."""
    form = signature(fit)
    takes = list(form.parameters)[1:]

    @wraps(fit)
    def told(self: Any, *args: Any, **named_ones: Any) -> Any:
        try:
            form.bind(self, *args, **named_ones)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}.{fit.__name__} takes {', '.join(takes)}; {error}") from None
        try:
            return fit(self, *args, **named_ones)
        except ValueError as error:
            X = args[0] if args else named_ones.get("X")
            hint = "" if self._matrices else as_rows_and_numbers(X, takes)
            if hint and "dim 3" in str(error):  # else they were taken, and something else is wrong
                raise ValueError(f"{type(self).__name__}: {hint}") from error
            raise

    return told


def as_rows_and_numbers(X: Any, takes: list[str]) -> str:
    """Return a hint on how to pass pairs or larger tuples of points to a `fit` that takes lists of row numbers."""
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if len(shape) == 3:
        word = {2: "pairs", 3: "triplets", 4: "quadruplets"}.get(shape[1])
    else:
        word = None
    if word not in takes:
        return ""
    m, size, d = shape
    also = " and their labels as pair_labels=" if word == "pairs" else ""
    numbers = f"{word}=np.arange({m * size}).reshape(-1, {size})"
    return f"X must be rows, got {word} of points, shape {shape}; give X.reshape(-1, {d}), {numbers}{also}"
