"""Requests that change the index, and those that embed: items added by name, removed, and embeddings as numbers."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..data.readers.texts import text_items
from ..index.records import Records, missing, records_of
from ..index.stores import Store
from ..numerics.types import AnyArray
from ..quoting import quoted
from .bodies import MOST_AT_ONCE, NewItem
from .collection import UPLOAD, Collection, Served

WAYS = ("vector", "row", "text", "image")
"""How an item of a body says what it is."""


def way_of(item: NewItem) -> str:
    """Return how an item is given; raise a ValueError unless it is given in one way."""
    given = [way for way in WAYS if getattr(item, way) is not None]
    if len(given) != 1:
        raise ValueError(f"{quoted(item.name)}: expected one of vector, row, text and image, got {len(given)}")
    return given[0]


def new_records(items: Sequence[NewItem], rows: Sequence[AnyArray], store: Store) -> Records:
    """Return items of a body, whose embeddings have shape (1, d), as records that fit a collection."""
    kinds = store.columns()
    classes = [item.class_ for item in items]
    labels: list[Any] | None = None
    if "label" in kinds or (store.count() == 0 and any(label is not None for label in classes)):
        labels = ["" if label is None and kinds.get("label") != "number" else label for label in classes]
        if None in labels:
            raise ValueError(f"{quoted(items[labels.index(None)].name)}: expected a class, which is a number here")
    elif any(label is not None for label in classes):
        raise ValueError("class: the items of this index have no classes")
    names = dict.fromkeys(name for item in items for name in item.columns)
    if len(names) > MOST_AT_ONCE:
        raise ValueError(f"columns: expected up to {MOST_AT_ONCE:,}, got {len(names):,}")
    columns = {name: _column([item.columns.get(name) for item in items], kinds.get(name)) for name in names}
    return records_of(np.concatenate(rows), [item.name for item in items], labels=labels, columns=columns)


def _column(values: Sequence[float | str | None], kind: Any) -> Any:
    """Return the values of a column; None is a missing one, of the kind that the index has."""
    if kind is not None and all(value is None for value in values):
        return missing(kind, len(values))
    return np.array(values, dtype=object)


def embedded_texts(
    collection: Collection, served: Served, texts: Sequence[str], *, prompt: Any = "document"
) -> AnyArray:
    """Embed texts as the index has its items, (n, d)."""
    if "text" not in collection.takes:
        raise NotImplementedError("the model of this index does not embed texts")
    return collection.embedded(served, text_items(UPLOAD, [*texts], [""] * len(texts)), prompt=prompt)


def as_openai(rows: AnyArray, model: str, form: str) -> dict[str, Any]:
    """Return embeddings as the API of OpenAI does: as numbers, or as float32 in base64.

    >>> as_openai(np.array([[0.5, 1.0]]), "any", "float")["data"]
    [{'object': 'embedding', 'index': 0, 'embedding': [0.5, 1.0]}]
    """
    values: list[Any] = rows.astype("<f4").tolist()
    if form == "base64":
        values = [base64.b64encode(row.tobytes()).decode() for row in rows.astype("<f4")]
    data = [{"object": "embedding", "index": place, "embedding": value} for place, value in enumerate(values)]
    return {"object": "list", "data": data, "model": model, "usage": {"prompt_tokens": 0, "total_tokens": 0}}
