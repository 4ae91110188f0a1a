"""Texts as items: a table with a column `text` and neither images nor numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ..cells import as_cells
from ..dataset import DataError, Dataset, number_labels

SHOWN = 60  # maximum number of characters of a text in its name


@dataclass(frozen=True)
class TextReader:
    """Reader of a list of texts, which can be read only after a tokenizer has converted them to numbers."""

    texts: tuple[str, ...]

    def __call__(self, i: int) -> NDArray[Any]:
        raise DataError(
            f"item {i} is a text, {self.texts[i][:SHOWN]!r}; texts are for a network with a tokenizer, "
            "such as trunk=transformers:FOLDER"
        )


def text_items(
    name: str,
    texts: list[str],
    labels: list[Any],
    *,
    names: list[str] | None = None,
    groups: NDArray[Any] | None = None,
) -> Dataset:
    """Create a data set of texts. By default, each text is named by its first words."""
    classes, numbers = number_labels(labels)
    if len(numbers) != len(texts):
        raise DataError(f"{name}: {len(texts)} texts but {len(numbers)} labels")
    return Dataset(
        name=name,
        labels=numbers,
        classes=classes,
        kind="text",
        read=TextReader(tuple(texts)),
        names=tuple(first_words(texts) if names is None else names),
        texts=as_cells(texts),
        groups=groups,
        unnamed=names is None,
    )


def first_words(texts: Sequence[str]) -> list[str]:
    """Return a name for each text: its first words, with a number if another text has the same ones.

    >>> first_words(["red shoe", "hat", "red  shoe"])
    ['red shoe', 'hat', 'red shoe (2)']
    """
    names: dict[str, None] = {}
    times: Counter[str] = Counter()
    for text in texts:
        words = " ".join(text.split())[:SHOWN].rstrip()  # tables are read without spaces at the ends of cells
        number = times[words] + 1
        name = words if number == 1 else f"{words} ({number})"
        while name in names:
            number += 1
            name = f"{words} ({number})"
        times[words] = number
        names[name] = None
    return list(names)
