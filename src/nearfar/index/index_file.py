"""An index on disk: one file, and beside it a journal of the changes since that file was written; see `journal`."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..io import tensor_file
from ..numerics.distances import check_distance
from ..numerics.types import AnyArray, Bools, Ints
from ..quoting import PATH, shorten
from .approximate import check_recipe
from .journal import (
    BEGINNING,
    ID,
    Change,
    about_of,
    changes_in,
    check_replaceable,
    columns_in,
    described,
    index_of,
    journal_of,
    open_journal,
    unpacked_change,
    words,
    words_or_numbers,
)
from .records import (
    Columns,
    check_different,
    check_new,
    checked_about,
    checked_columns,
    checked_labels,
    checked_names,
    checked_rows,
    column_kinds,
    isin_few,
    joined_labels,
    missing,
)

FORMAT = "nearfar index 1"
PART_BYTES = 2**24  # of embeddings that are copied from a file at a time: 16 MB


@dataclass
class Kept:
    """Everything in an index except its embeddings; see `Index`."""

    names: AnyArray
    labels: AnyArray | None
    columns: dict[str, AnyArray]
    distance: str
    engine: str
    about: dict[str, str]

    def all_columns(self) -> dict[str, AnyArray]:
        """Return the columns that filters and groups can use: those of the index, the names and the labels."""
        columns = {**self.columns, "name": self.names}
        if self.labels is not None:
            columns["label"] = self.labels
        return columns


def checked_kept(
    n: int,
    *,
    names: Any,
    labels: Any,
    distance: str,
    engine: str,
    about: dict[str, str] | None,
    columns: Columns | None,
) -> Kept:
    """Check everything of an index of n items except its embeddings; raise a ValueError for what does not fit."""
    kept = Kept(
        names=checked_names(names, n),
        labels=checked_labels(labels, n),
        columns=checked_columns(columns, n),
        distance=check_distance(distance),
        engine=engine,
        about=checked_about(about),
    )
    if engine != "exact":
        check_recipe(engine)
    check_different(kept.names)
    return kept


@dataclass
class Stored:
    """What the two files of an index hold.

    Attributes
    ----------
    kept, rows : Kept, ndarray of float32, shape (n, d)
        What the first file holds.
    identity : str
        Id of the first file; "" if it was written before there were journals.
    changes : list of Change
        What the journal holds.
    end : int
        Where the last change ends in the journal; 0 if there is no journal of this file.
    kinds, about, engine
        Kinds of the columns, `about` and engine after all changes.
    """

    kept: Kept
    rows: AnyArray
    identity: str
    changes: list[Change] = field(default_factory=list)
    end: int = 0

    def __post_init__(self) -> None:
        self.kinds = column_kinds(self.kept.columns)
        self.about = self.kept.about
        self.engine = self.kept.engine

    def check(self, change: Change) -> None:
        """Raise a ValueError if a change does not fit what is stored."""
        records = change.records
        if records is None:
            return
        labels = self.kept.labels
        check_new(records, dimensions=self.rows.shape[1], labels=labels, columns=self.kinds)
        if labels is not None and records.labels is not None:
            joined_labels(labels[:0], records.labels[:0])  # raises if one has numbers and the other text

    def take(self, change: Change, end: int) -> None:
        """Add a change of the journal, which ends there; raise a ValueError if it does not fit."""
        self.check(change)
        self.changes.append(change)
        self.end = end
        self.about = {**self.about, **change.about}
        self.engine = change.engine or self.engine
        if change.records is not None:
            self.kinds = column_kinds(change.records.columns) | self.kinds

    def followed_by(self, change: Change) -> Stored:
        """Return the same with one more change, which is not in the journal yet."""
        after = copy(self)
        after.changes = [*self.changes]
        after.take(change, self.end)
        return after


@dataclass
class Content:
    """An index whose embeddings lie in two places: rows of the file, of which some are kept, and later ones.

    Attributes
    ----------
    kept : Kept
        Everything else, of the rows that are kept and then of the later ones.
    rows, keep : ndarray of float32, shape (n, d), and of bool, shape (n,)
        Rows of the file, and which of them are kept.
    later : ndarray of float32, shape (m, d)
        Rows that were added later.
    """

    kept: Kept
    rows: AnyArray
    keep: Bools
    later: AnyArray

    def __len__(self) -> int:
        return len(self.kept.names)

    def stacked(self) -> tensor_file.Stacked:
        """Return the embeddings to write; they are read while they are written, so that they need no memory."""
        return tensor_file.Stacked((len(self), self.rows.shape[1]), np.dtype(np.float32), self._parts())

    def embeddings(self) -> AnyArray:
        """Return the embeddings in one array, (len(self), d)."""
        if len(self.later) == 0 and self.keep.all():
            return self.rows
        whole = np.empty((len(self), self.rows.shape[1]), dtype=np.float32)
        start = 0
        for part in self._parts():
            whole[start : start + len(part)] = part
            start += len(part)
        return whole

    def joined(self) -> Content:
        """Return the same content with all embeddings in one array."""
        rows = self.embeddings()
        return Content(self.kept, rows, np.ones(len(rows), dtype=bool), self.later[:0])

    def pick(self, places: Sequence[int]) -> AnyArray:
        """Return the embeddings of some items."""
        chosen: Ints = np.asarray(places, dtype=np.int64)
        left = np.flatnonzero(self.keep)
        in_file = chosen < len(left)
        found = np.empty((len(chosen), self.rows.shape[1]), dtype=np.float32)
        found[in_file] = self.rows[left[chosen[in_file]]]
        found[~in_file] = self.later[chosen[~in_file] - len(left)]
        return found

    def _parts(self) -> Iterator[AnyArray]:
        rows = max(1, PART_BYTES // (4 * self.rows.shape[1]))
        for start in range(0, len(self.rows), rows):
            yield self.rows[start : start + rows][self.keep[start : start + rows]]
        yield self.later


def merged(stored: Stored) -> Content:
    """Return what an index holds after all changes, in the order of a file that was rewritten at each of them."""
    base = stored.kept
    d = stored.rows.shape[1]
    if not stored.changes:
        return Content(base, stored.rows, np.ones(len(base.names), dtype=bool), np.empty((0, d), dtype=np.float32))
    # an item is gone if a later change removes or replaces it
    touched: set[str] = set()
    added = []
    for change in reversed(stored.changes):
        if change.records is not None:
            added.append(change.records.pick(~isin_few(change.records.names, touched)))
        touched |= change.touched()
    added.reverse()
    keep = ~isin_few(base.names, touched)
    n = int(keep.sum())
    labels = None
    if base.labels is not None:
        labels = np.concatenate([base.labels[keep], *(part.labels for part in added if part.labels is not None)])
    columns = {}
    for name, kind in stored.kinds.items():
        column = [base.columns[name][keep] if name in base.columns else missing(kind, n)]
        column += [part.columns[name] if name in part.columns else missing(kind, len(part)) for part in added]
        columns[name] = np.concatenate(column)
    kept = Kept(
        names=np.concatenate([base.names[keep], *(part.names for part in added)]),
        labels=labels,
        columns=columns,
        distance=base.distance,
        engine=stored.engine,
        about=stored.about,
    )
    later = np.concatenate([np.empty((0, d), dtype=np.float32), *(part.embeddings for part in added)])
    return Content(kept, stored.rows, keep, later)


def read_content(path: str | os.PathLike[str], *, mapped: bool) -> tuple[Stored, Content]:
    """Read both files of an index, and what it holds after all changes; nothing in them is executed.

    Parameters
    ----------
    path : path
        The first file.
    mapped : bool
        Leave its embeddings in the file. If it has a journal, they are left there in any case.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    ValueError
        If one of the files is not what it should be, or is damaged.
    """
    # the journal is opened first: if a writer replaces both files meanwhile, the journal is stale, and the file has all
    journal = open_journal(path)
    if journal is None:
        stored = _read_file(path, mapped=mapped)
        return stored, merged(stored)
    with journal:
        identity = index_of(journal, path)
        stored = _read_file(path, mapped=True)
        if stored.identity == identity:
            stored.end = BEGINNING
            try:
                for data, end in changes_in(journal):
                    stored.take(unpacked_change(data), end)
                content = merged(stored)
                if len(content) == 0:
                    raise ValueError("nothing would be left in the index")
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(
                    f"{journal_of(path)} holds no whole changes: {shorten(str(error), 2 * PATH)}"
                ) from error
        else:
            content = merged(stored)
    if not mapped:
        content = content.joined()
        if content.rows is stored.rows:
            content.rows = np.array(stored.rows)
    return stored, content


def _read_file(path: str | os.PathLike[str], *, mapped: bool) -> Stored:
    arrays, text = tensor_file.read(path, mapped=("embeddings",) if mapped else ())
    if text.get("format") != FORMAT:
        raise ValueError(f"{os.fspath(path)} is not an index (expected one that `nearfar index` wrote)")
    try:
        rows = checked_rows(arrays["embeddings"], "embeddings")  # read just now, so that no copy is needed
        kept = checked_kept(
            len(rows),
            names=words(arrays["names"]),
            labels=words_or_numbers(arrays.get("labels")),
            distance=text["distance"],
            engine=text["engine"],
            about=about_of(text["about"]),
            columns=columns_in(arrays),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{os.fspath(path)} holds no whole index: {shorten(str(error), 2 * PATH)}") from error
    identity = text.get("id", "")
    return Stored(kept, rows, identity if ID.fullmatch(identity) else "")


def write_index(path: str | os.PathLike[str], kept: Kept, embeddings: AnyArray | tensor_file.Stacked) -> str:
    """Write a file that `read_content` reads, and return its id. A journal that is there is stale afterwards."""
    about = checked_about(kept.about)
    check_replaceable(path)
    identity = secrets.token_hex(16)
    arrays = {"embeddings": embeddings, **described(kept.names, kept.labels, kept.columns)}
    text = {
        "format": FORMAT,
        "distance": kept.distance,
        "engine": kept.engine,
        "about": json.dumps(about),
        "id": identity,
    }
    tensor_file.write(path, arrays, text)
    return identity
