"""The journal beside an index in one file: each change is appended to it, so that the index is not rewritten.

``photos.index.journal`` belongs to ``photos.index``. It begins with 16 bytes that mark a journal, the id of the index
(32 hexadecimal digits), and a checksum of both. Each record is the length of a change (8 bytes), a checksum of the
change, a checksum of these two, the change itself, in the safetensors format, and the mark "done", which is written
when the rest is on the disk. Checksums are CRC-32 (4 bytes), and numbers are little-endian. A record at the end that
was not written completely is not a change. Anything else that is damaged is an error.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from zlib import crc32

import numpy as np

from ..io import tensor_file
from ..io.atomic_files import atomic_write, make_like
from ..io.untrusted import Unreadable, open_regular
from ..numerics.types import AnyArray
from .approximate import check_recipe
from .records import (
    Records,
    about_of,
    check_different,
    checked_about,
    checked_columns,
    checked_embeddings,
    checked_labels,
    checked_names,
    columns_in,
    described,
    text_as_bytes,
    words,
    words_or_numbers,
)

JOURNAL_MARK = b"nearfar journal\n"
ID = re.compile(r"[0-9a-f]{32}")
BEGINNING = len(JOURNAL_MARK) + 32 + 4  # bytes before the first record
HEAD = struct.Struct("<QII")  # length and checksum of a change, and a checksum of these
DONE = b"done"
AROUND = HEAD.size + 2 * len(DONE)  # bytes that a change takes beside its own, at most


@dataclass(frozen=True)
class Change:
    """One change of an index.

    Attributes
    ----------
    gone : ndarray of str
        Names of items that are removed, if they are there; before `records` are added.
    records : Records or None
        Items that are added; those with the same names are replaced.
    about : mapping of str to str
        Entries of `about` that are set.
    engine : str
        The engine, or "" to keep it.
    """

    gone: AnyArray
    records: Records | None
    about: Mapping[str, str]
    engine: str

    def touched(self) -> set[str]:
        """Return the names of the items that were there before, and are not afterwards, or are new."""
        names = set(self.gone.tolist())
        if self.records is not None:
            names.update(self.records.names.tolist())
        return names


def checked_change(change: Change) -> Change:
    """Return the change as an index can hold it; raise a ValueError if its parts do not fit each other."""
    gone = np.asarray(change.gone, dtype=np.str_)
    if gone.ndim != 1:
        raise ValueError(f"gone: expected a list of names, got shape {gone.shape}")
    if change.engine not in ("", "exact"):
        check_recipe(change.engine)
    records = change.records
    if records is not None:
        n = len(records.embeddings)
        records = Records(
            names=checked_names(records.names, n),
            embeddings=checked_embeddings(records.embeddings),
            labels=checked_labels(records.labels, n),
            columns=checked_columns(records.columns, n),
        )
        check_different(records.names)
    return Change(gone, records, checked_about(change.about), change.engine)


def packed_change(change: Change) -> bytes:
    """Return a change as bytes of the safetensors format."""
    arrays: dict[str, AnyArray] = {"gone": text_as_bytes(change.gone)}
    if change.records is not None:
        arrays["embeddings"] = change.records.embeddings
        arrays |= described(change.records.names, change.records.labels, change.records.columns)
    return tensor_file.packed(arrays, {"about": json.dumps(dict(change.about)), "engine": change.engine})


def size_of(change: Change) -> int:
    """Return the number of bytes of the embeddings in a change."""
    return 0 if change.records is None else change.records.embeddings.nbytes


def unpacked_change(data: bytes) -> Change:
    """Return the change that `packed_change` made bytes of; raise a ValueError if it is none."""
    arrays, text = tensor_file.unpacked(data)
    records = None
    if "embeddings" in arrays:
        rows = arrays["embeddings"]
        if rows.ndim != 2:
            raise ValueError(f"embeddings: expected two dimensions, got shape {rows.shape}")
        records = Records(words(arrays["names"]), rows, words_or_numbers(arrays.get("labels")), columns_in(arrays))
    return checked_change(Change(words(arrays["gone"]), records, about_of(text["about"]), text["engine"]))


def journal_of(path: str | os.PathLike[str]) -> Path:
    """Return the journal of an index; a link to an index has the journal of that index."""
    return Path(f"{os.path.realpath(path)}.journal")


def open_journal(path: str | os.PathLike[str]) -> IO[bytes] | None:
    """Open the journal of an index to read it; None if there is none."""
    journal = journal_of(path)
    try:
        return open_regular(journal)
    except FileNotFoundError:
        return None
    except Unreadable as error:
        raise ValueError(f"{journal} is not a journal of an index: {error}") from None


def index_of(journal: IO[bytes], path: str | os.PathLike[str]) -> str:
    """Return the id of the index to which a journal belongs; raise a ValueError if the file is no journal."""
    journal.seek(0)
    beginning = journal.read(BEGINNING)
    identity = beginning[len(JOURNAL_MARK) : -4].decode("ascii", "replace")
    if not ID.fullmatch(identity) or beginning != _beginning(identity):
        raise ValueError(f"{journal_of(path)} is not a journal of an index, or is damaged; move it elsewhere")
    return identity


def _beginning(index: str) -> bytes:
    """Return the first bytes of the journal of an index, with their checksum."""
    head = JOURNAL_MARK + index.encode()
    return head + crc32(head).to_bytes(4, "little")


def changes_in(journal: IO[bytes]) -> Iterator[tuple[bytes, int]]:
    """Yield each whole change of a journal, and where it ends, up to an unfinished one at the end.

    Raises
    ------
    ValueError
        If a record is damaged that was complete once: a killed process, or a computer that stops, does not leave that.
    """
    size = os.fstat(journal.fileno()).st_size
    start = BEGINNING
    while start < size:
        journal.seek(start)
        head = journal.read(HEAD.size)
        length, checksum, checksum_of_head = HEAD.unpack(head.ljust(HEAD.size, b"\0"))
        end = start + HEAD.size + length
        known = crc32(head[:-4]) == checksum_of_head  # else the length cannot be trusted
        if known and end <= size:
            data = journal.read(length)
            if crc32(data) == checksum:
                yield data, end
                start = end + len(DONE)
                continue
        if not _is_unfinished(journal, start, end if known else None, size):
            remedy = "restore the journal, or move it elsewhere to do without its changes"
            raise ValueError(f"the change at byte {start:,} is not the one that was written; {remedy}")
        return


def _is_unfinished(journal: IO[bytes], start: int, end: int | None, size: int) -> bool:
    """Return whether a record that is not whole may be one that was being written when the process was stopped.

    What was not written is either missing, or zeros, and there is no mark of a complete record behind it.

    Parameters
    ----------
    journal : file
    start, end : int
        Where the record begins, and where it ends, if its length is known.
    size : int
        Number of bytes of the journal.
    """
    if size - start < HEAD.size:
        return True
    journal.seek(max(start, size - len(DONE)))
    if journal.read() == DONE:
        return False
    if end is not None:
        journal.seek(end)
        return journal.read(len(DONE)) != DONE
    journal.seek(start)
    head = journal.read(HEAD.size)
    return not any(head) or not any(map(any, iter(lambda: journal.read(2**20), b"")))


def append(path: str | os.PathLike[str], index: str, end: int, data: bytes) -> int:
    """Append a change to the journal of an index, completely or not at all, and return where the journal ends now.

    Parameters
    ----------
    path : path
        The index.
    index : str
        Id of the index.
    end : int
        Where the last change ends; an unfinished one after it is cut off. 0 makes a new journal.
    data : bytes
        The change.

    Raises
    ------
    OSError
        If it cannot be written, for example because the disk is full; the journal is then as it was.
    """
    journal = journal_of(path)
    record = record_of(data)
    if end == 0:
        with suppress(FileNotFoundError):
            journal.unlink()  # that of another index, which was here before
        with atomic_write(journal) as file:
            make_like(file.fileno(), os.stat(path))  # what is private in the index is so in the journal
            file.write(_beginning(index) + record + DONE)
        _keep_name(journal.parent)
        return BEGINNING + len(record)
    try:
        with open(journal, "r+b", buffering=0) as file:
            kept = end
            if end > BEGINNING:  # the mark of the change before is written again, in case that it is not there
                kept += len(DONE)
                record = DONE + record
            try:
                file.truncate(kept)
                file.seek(end)
                left = memoryview(record)
                while left:
                    left = left[file.write(left) :]
                os.fsync(file.fileno())
                with suppress(OSError):  # a whole change without its mark is valid, too
                    file.write(DONE)
            except BaseException:
                with suppress(OSError):  # an unfinished record is no change, so that it may stay
                    file.truncate(kept)
                raise
    except OSError as error:
        raise type(error)(f"{journal}: cannot be written ({error.strerror or error})") from error
    return end + len(record)


def record_of(data: bytes) -> bytes:
    """Return the record of a change, without the mark at its end."""
    head = struct.pack("<QI", len(data), crc32(data))
    return head + crc32(head).to_bytes(4, "little") + data


def can_grow(path: str | os.PathLike[str], end: int) -> bool:
    """Return whether a journal that a writer has read is still there, and may be changed."""
    journal = journal_of(path)
    try:
        return os.access(journal, os.R_OK | os.W_OK) and journal.stat().st_size >= end
    except OSError:
        return False


def check_replaceable(path: str | os.PathLike[str]) -> None:
    """Raise a ValueError if a file is in the place of the journal, but is not one."""
    journal = open_journal(path)
    if journal is not None:
        with journal:
            index_of(journal, path)


def remove_stale(path: str | os.PathLike[str], index: str) -> None:
    """Remove the journal of an index that was replaced by another one. Only a process with the lock may do so."""
    with suppress(OSError, ValueError):  # it is ignored while it is there
        journal = open_journal(path)
        if journal is None:
            return
        with journal:
            stale = index_of(journal, path) != index
        if stale:
            _keep_name(journal_of(path).parent)  # the file that replaced the index must stay before its journal goes
            journal_of(path).unlink()


def _keep_name(folder: Path) -> None:
    """Write the names of the files in a folder to the disk, where the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
