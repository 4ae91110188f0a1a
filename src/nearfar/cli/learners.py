"""Saved learners of any kind, and the rows that they take."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..progress import counted

if TYPE_CHECKING:
    from ..core.types import AnyArray
    from ..data import Dataset


def load_learner(path: Path) -> Any:
    """Read any learner that was saved, classical or a network; no code of the file is run."""
    from ..catalog import BY_NAME
    from ..core import storage

    _, text = storage.read(path)
    method = BY_NAME.get(text.get("class", ""))
    kind: Any = getattr(import_module(method.module), method.name) if method is not None and method.done else None
    if not hasattr(kind, "load"):
        raise ValueError(f"{path} holds no learner of nearfar")
    return kind.load(path)


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
    return items if dataset.kind == "row" else items.reshape(len(items), -1).astype(np.float32) / 255


def remark(learner: Any, X: AnyArray, what: str) -> str:
    """Return a sentence on how well a learner that reconstructs makes rows again, else nothing."""
    if not hasattr(learner, "reconstruction_error"):
        return ""
    return f" Reconstruction error of {what}: {learner.reconstruction_error(X).mean():.4g}."
