"""Search by words in the names, classes and columns of items, alone and fused with a search by vectors."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..numerics.distances import pair_distances
from ..numerics.types import Ints
from ..quoting import quoted
from .records import Hits, Records, check_k
from .stores import Store, check_open

RANK_CONSTANT = 60
"""The k of reciprocal rank fusion, from Cormack, Clarke and Büttcher (SIGIR 2009)."""
FUSED_DEPTH = 100  # first items of each ranking that are fused, at least
WORD = re.compile(r"[^\W_]+\*?")
MOST_WORDS = 100


def words_in(text: str) -> list[str]:
    """Return the words of a search; one that ends in an asterisk matches all words that begin so.

    >>> words_in("Red shoe*, 42")
    ['Red', 'shoe*', '42']

    Raises
    ------
    ValueError
        If there is no word, or there are more than 100.
    """
    found = WORD.findall(text)
    if not 1 <= len(found) <= MOST_WORDS:
        raise ValueError(f"words: expected 1 to {MOST_WORDS} words such as red shoe*, got {quoted(text)}")
    return found


class WordIndex:
    """The texts of items in memory, searched by FTS5 of SQLite: the best match by BM25 comes first.

    Parameters
    ----------
    texts : iterable of str
        The text of each item.

    Examples
    --------
    >>> WordIndex(["shoes/red 1.jpg", "a red hat", "Red shoe"]).search("red shoe*").tolist()
    [2, 0]
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        try:
            self._database.execute(  # without content, it does not keep the texts themselves
                "CREATE VIRTUAL TABLE items USING fts5(words, content='', tokenize='unicode61 remove_diacritics 0')"
            )
        except sqlite3.OperationalError as error:
            raise OSError(f"words: SQLite of this Python cannot search by words ({error})") from error
        with self._database:
            self._database.executemany("INSERT INTO items (rowid, words) VALUES (?, ?)", enumerate(texts))

    def search(self, words: str) -> Ints:
        """Return the items (m,) that have all words, best first; equal ones in their order."""
        parts = [f'"{word[:-1]}"*' if word.endswith("*") else f'"{word}"' for word in words_in(words)]
        found = self._database.execute(
            "SELECT rowid FROM items WHERE items MATCH ? ORDER BY rank, rowid", [" AND ".join(parts)]
        )
        return np.fromiter((row for (row,) in found), dtype=np.int64)


def search_fused(store: Store, queries: Any, words: str, k: int = 10, *, where: str = "") -> Hits:
    """Find items by vectors and by words at once.

    Both searches rank items, and an item's score is the sum over the rankings that have it of 1 / (60 + rank), which is
    called reciprocal rank fusion. Items are returned in the order of their scores, each with its distance.

    Parameters
    ----------
    store : Store
        The collection.
    queries : array-like of shape (n, d)
        Embeddings of the queries.
    words : str
        Words that are searched for every query, as for `Store.search_words`.
    k : int
        Number of items of each query.
    where : str
        Only items that meet this filter.

    Returns
    -------
    Hits
        At most k items of each query, the best first.

    Examples
    --------
    >>> import tempfile
    >>> from nearfar.index import create, records_of
    >>> items = records_of([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]], ["a hat", "a shoe", "another shoe"])
    >>> with create(tempfile.mkdtemp() + "/x.index", items) as store:
    ...     print(search_fused(store, [[1.0, 0.0]], "shoe", k=3).names)
    [['a shoe' 'another shoe' 'a hat']]
    """
    check_open(store, "store")
    check_k(k)
    depth = max(k, FUSED_DEPTH)
    near = store.search(queries, depth, where=where)
    named = store.search_words(words, depth, where=where)
    rows = np.asarray(queries, dtype=np.float32)
    together, places = _together(named, near.records)
    distances = np.full((len(rows), k), np.inf)
    positions = np.full((len(rows), k), -1, dtype=np.intp)
    for query, found in enumerate(near.positions):
        by_vector = places[found[found >= 0]]  # rows of `together`, nearest first
        every = np.unique(np.concatenate([np.arange(len(named)), by_vector]))
        scores = np.zeros(len(together))
        scores[by_vector] += 1 / (RANK_CONSTANT + 1 + np.arange(len(by_vector)))
        scores[: len(named)] += 1 / (RANK_CONSTANT + 1 + np.arange(len(named)))
        far = pair_distances(
            rows, together.embeddings, np.full((len(every), 1), query), every[:, None], store.distance
        )[:, 0]
        order = np.lexsort((far, -scores[every]))[:k]
        distances[query, : len(order)] = far[order]
        positions[query, : len(order)] = every[order]
    width = int((positions >= 0).sum(axis=1).max(initial=0))
    return Hits(together, distances[:, :width], positions[:, :width])


def _together(named: Records, near: Records) -> tuple[Records, Ints]:
    """Return the items of both without repetitions, those found by words first, and the row of each of the others."""
    row_of = {name: row for row, name in enumerate(named.names.tolist())}
    new = [row for row, name in enumerate(near.names.tolist()) if name not in row_of]
    row_of |= {name: len(named) + at for at, name in enumerate(near.names[new].tolist())}
    places = np.array([row_of[name] for name in near.names.tolist()], dtype=np.intp)
    return joined_records([named, near.pick(new)]), places


def joined_records(parts: list[Records]) -> Records:
    """Return the items of all parts, which have the same columns."""
    filled = [part for part in parts if len(part)]
    if len(filled) < 2:
        return (filled or parts)[0]
    labels = [part.labels for part in filled if part.labels is not None]
    return Records(
        names=np.concatenate([part.names for part in filled]),
        embeddings=np.concatenate([part.embeddings for part in filled]),
        labels=np.concatenate(labels) if labels else None,
        columns={name: np.concatenate([part.columns[name] for part in filled]) for name in filled[0].columns},
    )


def words_hits(records: Records) -> Hits:
    """Return items that words found as the neighbors of one query, which has no distance to them."""
    shape = (1, len(records))
    return Hits(records, np.full(shape, np.nan), np.arange(len(records)).reshape(shape))
