"""What a call of `fit` is told when its arguments do not fit."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any


def with_signature_hint(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `fit` so that its error for arguments that do not fit names the learner and all arguments that it takes."""
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
            images = str(getattr(X, "dtype", "")).endswith("uint8")  # with another fault, perhaps
            if hint and (not images or "dim 3" in str(error) or "requires y" in str(error)):
                raise ValueError(f"{type(self).__name__}: {hint}") from error
            raise

    return told


def as_rows_and_numbers(X: Any, takes: list[str]) -> str:
    """Say how points given as pairs (m, 2, d), triplets or quadruplets are told to a `fit` that takes such lists."""
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
