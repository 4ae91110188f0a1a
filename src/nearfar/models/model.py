"""What a model is: anything that turns items into vectors, trained or not, in memory or loaded from a file."""

from __future__ import annotations

import os
from typing import Any, Literal, Protocol

from ..data.dataset import Dataset
from ..data.items import open_items
from ..data.table_columns import TableColumns
from ..io.training_marks import TrainingMarks
from ..numerics.types import AnyArray


def embed_as(model: Model, items: Any, prompt: Literal["query", "document"] | None) -> AnyArray:
    """Embed items (n, d); texts with the prompt of queries or of documents, if the model has different ones."""
    if prompt is None or prompt not in getattr(model, "prompts", {}):
        return model.embed(items)
    with_prompt: Any = model.embed
    found: AnyArray = with_prompt(items, prompt=prompt)
    return found


def open_for(
    model: Model | None, data: str, *, label: str | None = None, name: str | None = None, skip_bad: bool = False
) -> Dataset:
    """Open items to embed by a model; a table by the columns of its training, as the rows that it becomes for it."""
    takes = () if model is None else model.takes
    return encoded_for(model, open_items(data, **read_by(model, data, label, name), skip_bad=skip_bad, takes=takes))


def read_by(model: Model | None, data: Any, label: str | None, name: str | None) -> dict[str, Any]:
    """Return the columns `label` and `name` by which a table is read: those given, else those of the training."""
    return {"label": label, "name": name} if model is None else model.table_columns.read(data, label, name)


def encoded_for(model: Model | None, items: Dataset) -> Dataset:
    """Return items for a model: rows of numbers, if a table had to be encoded for a learner."""
    if model is None or "table" not in model.takes:
        return items
    learner: Any = model
    found: Dataset = learner.rows_of(items)
    return found


class Model(Protocol):
    """What `nearfar.load` returns: a learner, a trained network or a pretrained encoder.

    >>> import numpy as np
    >>> from nearfar import RCA
    >>> model = RCA().fit(np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 4)
    >>> model.takes, model.distance, model.dimensions, model.embed(np.ones((2, 3))).shape
    (('row', 'image'), 'euclidean', 3, (2, 3))
    """

    @property
    def takes(self) -> tuple[str, ...]:
        """Kinds of items that it embeds: some of "row", "table" (rows of any cells), "image" and "text"."""
        ...

    @property
    def distance(self) -> str:
        """Distance by which its embeddings are compared: "cosine", "euclidean" or "sqeuclidean"."""
        ...

    @property
    def dimensions(self) -> int:
        """Number of dimensions of an embedding."""
        ...

    @property
    def trained_on(self) -> TrainingMarks | None:
        """Fingerprints of the items that it was trained on; None if they are not known."""
        ...

    @property
    def table_columns(self) -> TableColumns:
        """Columns of the classes, the names and the levels in the table that it was trained on."""
        ...

    @property
    def fingerprint(self) -> str:
        """Digest of all that determines its embeddings, the same before `save` and after `nearfar.load`."""
        ...

    def embed(self, items: Any, *, prompt: Literal["query", "document"] | None = None) -> AnyArray:
        """Return the embeddings (n, d) of items: a `Dataset`, rows, images, texts, paths of images, or a source.

        If a model of texts puts other words in front of queries than in front of documents, `prompt` chooses them.
        """
        ...

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model, so that `nearfar.load` restores it."""
        ...
