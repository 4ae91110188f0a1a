"""Saved learners of any kind, and the rows that they take."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..hub import load_learner
from ..progress import counted

__all__ = ["load_learner"]

if TYPE_CHECKING:
    from ..data import Dataset
    from ..numerics.types import AnyArray


def items_of(dataset: Dataset) -> AnyArray:
    """Return (n, d) rows: the data set's, or the pixels of its images in [0, 1].

    Raises
    ------
    ValueError
        If the images differ in size.
    """
    import numpy as np

    items = dataset.array
    if items is None:
        read = [dataset.read(i) for i in counted(range(len(dataset)), "reading", len(dataset))]
        if len({item.shape for item in read}) > 1:
            raise ValueError(f"{dataset.name}: a learner needs images of one size")
        items = np.stack(read)
    if dataset.kind == "row":
        return items
    return items.reshape(len(items), -1).astype(np.float32) / 255


def known_columns(learner: Any, dataset: Dataset) -> Dataset:
    """Return rows with their columns in the order in which a learner was fitted on them, where both have names."""
    return dataset.in_columns([str(name) for name in getattr(learner, "feature_names_in_", ())], "the learner")


def transformed(learner: Any, dataset: Dataset) -> AnyArray:
    """Embed items with a learner."""
    import numpy as np

    with columns_compared():
        return np.asarray(learner.transform(items_of(known_columns(learner, dataset))))


@contextmanager
def columns_compared() -> Iterator[None]:
    """Without the warning that an array has no names of columns."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        yield


def remark(learner: Any, dataset: Dataset, what: str) -> str:
    """Return a sentence on how well a learner that reconstructs makes rows again, else nothing."""
    if not hasattr(learner, "reconstruction_error"):
        return ""
    with columns_compared():
        error = learner.reconstruction_error(items_of(known_columns(learner, dataset)))
    return f" Reconstruction error of {what}: {error.mean():.4g}."
