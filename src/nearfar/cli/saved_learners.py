"""The rows that saved learners take, and what they make of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..progress import counted

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
        other = next((item for item in read if item.shape != read[0].shape), None)
        if other is not None:
            sizes = " and ".join(f"{width} x {height}" for height, width, *_ in (read[0].shape, other.shape))
            detail = f"expected images of one size, which a learner needs, got {sizes} pixels"
            raise ValueError(f"{dataset.name}: {detail}; resize them first, or train a network (`nearfar train`)")
        items = np.stack(read)
    if dataset.kind == "row":
        return items
    return items.reshape(len(items), -1).astype(np.float32) / 255


def known_columns(learner: Any, dataset: Dataset) -> Dataset:
    """Return rows with the columns in the order of the learner's training rows, if both have names of columns."""
    return dataset.in_columns([str(name) for name in getattr(learner, "feature_names_in_", ())], "the learner")


def transformed(learner: Any, dataset: Dataset) -> AnyArray:
    """Embed items with a learner."""
    import numpy as np

    with columns_compared():
        return np.asarray(learner.transform(items_of(known_columns(learner, dataset))))


@contextmanager
def columns_compared() -> Iterator[None]:
    """Silence the warning of scikit-learn that an array has no names of columns."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        yield


def remark(learner: Any, dataset: Dataset, what: str) -> str:
    """Return a sentence on the reconstruction error, or "" if the learner does not reconstruct rows."""
    if not hasattr(learner, "reconstruction_error"):
        return ""
    with columns_compared():
        error = learner.reconstruction_error(items_of(known_columns(learner, dataset)))
    return f" Reconstruction error of {what}: {error.mean():.4g}."
