"""Reducers: which of its reductions a loss takes."""

from __future__ import annotations

from typing import Any


class BaseReducer:
    """How the losses of pairs or triplets become one number; `kind` is its name here."""

    kind = ""

    def __init__(self, *, collect_stats: bool = False, **settings: Any) -> None:
        if settings:
            raise TypeError(f"{type(self).__name__}: unknown settings {sorted(settings)}")


class MeanReducer(BaseReducer):
    """The mean."""

    kind = "mean"


class SumReducer(BaseReducer):
    """The sum."""

    kind = "sum"


class ThresholdReducer(BaseReducer):
    """The mean of those that are above `low`; only 0 is here."""

    kind = "nonzero"

    def __init__(self, low: float | None = None, high: float | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        if low != 0 or high is not None:
            told = "only low=0 is here, the mean of nonzero losses; loss.term.sample_losses gives those of samples"
            raise NotImplementedError(f"{type(self).__name__}: {told}")


class AvgNonZeroReducer(ThresholdReducer):
    """The mean of those that are above 0."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(low=0, **settings)


class DoNothingReducer(BaseReducer):
    """The losses of the samples, as they are."""

    kind = "none"
