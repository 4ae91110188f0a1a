"""One SQLite file of blobs, each with a digest that is checked whenever the blob is read.

SQLite makes a change complete or undoes it, also after a kill; it has no checksums, so that it would give wrong content
after a bit of the file has flipped. Therefore every blob has a digest of its key and its bytes, and the blob 0 has the
number of all the others and the sum of their digests. A blob is found by its kind and its number within the kind.

A file may come from a stranger. It must have exactly one table, without views, triggers or generated columns, and
SQLite trusts nothing in its schema. What is read from it is never larger than the file itself.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import struct
import sys
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from ..io.atomic_files import atomic_path
from ..io.untrusted import Unreadable, check_regular
from ..quoting import PATH, shorten

APPLICATION = 0x6E666978
"""SQLite's `application_id` of our files, "nfix"."""
TABLE = "CREATE TABLE blobs (id INTEGER PRIMARY KEY, digest BLOB NOT NULL, data BLOB NOT NULL)"
PAGE = 2**14
"""Bytes of a page: large enough that a blob of vectors has few, and small enough that a small change copies little."""
PER_KIND = 2**32  # blobs of one kind
DIGEST = 16  # bytes
MODULUS = 2 ** (8 * DIGEST)  # of the sum of the digests
SPREAD = 0x9E3779B97F4A7C15F39CC0605CEDC835  # odd, so that another key makes another term
LARGEST_BLOB = 2**28  # bytes: 256 MB, far above what `collection_file` writes
LONGEST_SQL = 2000  # characters, more than our table and our statements have
SECONDS_TO_WAIT = 60.0
"""Seconds to wait while another process writes its change to the file, which takes a part of a second."""
GROUP_MARK = bytes.fromhex("d9d505f920a163d7")
"""End of a journal of SQLite that is part of a change of several files. SQLite deletes the file that such a journal
names, so that a stranger could have any file deleted; ours never end so."""
INTERRUPTED = 776  # SQLITE_READONLY_ROLLBACK: a change must be undone before the file can be read
FULL = (sqlite3.SQLITE_FULL,)
DAMAGED = (
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_FORMAT,
    sqlite3.SQLITE_MISMATCH,
)

Connection = sqlite3.Connection  # tests put one in its place whose writes fail


class Unusable(ValueError):
    """A file is not what it should be. The message goes on after its name."""


@contextmanager
def parsing() -> Iterator[None]:
    """Raise `Unusable` for content that cannot be understood."""
    try:
        yield
    except Unusable:
        raise
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        raise Unusable(f"is damaged: {shorten(str(error), 2 * PATH)}") from error


class Blobs:
    """The blobs of an open file, within one transaction.

    Attributes
    ----------
    size : int
        Bytes of the file when the transaction began, which bound what it may hold.
    """

    def __init__(self, connection: sqlite3.Connection, size: int) -> None:
        self._connection = connection
        self.size = size
        self.count = 0
        self.sum = 0
        # keys of all blobs, in order: after `check_sum` has read them, until a blob changes
        self._keys: list[int] | None = None

    def get(self, kind: int, number: int) -> bytes | None:
        """Return a blob; None if there is none.

        Raises
        ------
        ValueError
            If it is not what was written.
        """
        key = kind * PER_KIND + number
        row = self._connection.execute("SELECT digest, data FROM blobs WHERE id = ?", (key,)).fetchone()
        if row is None:
            self._check_found(0, key, key + 1)
            return None
        return self._checked(key, *row)

    def all_of(self, kind: int, first: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield the numbers and the blobs of one kind, from a number on, in order."""
        for key, digest, data in self.unchecked(kind, first):
            check_blob(key, digest, data)
            yield key % PER_KIND, data

    def unchecked(self, kind: int, first: int = 0) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield key, digest and content of what `all_of` yields, for `check_blob`, which is left to do."""
        last = -1
        read = 0
        found = 0
        begin = kind * PER_KIND + first
        end = (kind + 1) * PER_KIND
        asked = "SELECT id, digest, data FROM blobs WHERE id >= ? AND id < ? ORDER BY id"
        for key, digest, data in self._connection.execute(asked, (begin, end)):
            read += len(data) if isinstance(data, bytes) else self.size + 1
            if key <= last or read > self.size:  # pages that refer to each other in a circle
                raise Unusable("is damaged: its pages are not in order")
            last = key
            found += 1
            yield key, digest, data
        self._check_found(found, begin, end)

    def put(self, kind: int, number: int, data: bytes) -> None:
        """Write a blob, in the place of one that may be there."""
        self.drop(kind, number)
        key = kind * PER_KIND + number
        digest = digest_of(key, data)
        self._connection.execute("INSERT INTO blobs VALUES (?, ?, ?)", (key, digest, data))
        self.count += 1
        self._add(term_of(key, digest))

    def drop(self, kind: int, number: int) -> None:
        """Remove a blob, if it is there."""
        self._keys = None
        key = kind * PER_KIND + number
        found = self._connection.execute("SELECT digest FROM blobs WHERE id = ?", (key,)).fetchone()
        if found is None:
            return
        self._connection.execute("DELETE FROM blobs WHERE id = ?", (key,))
        self.count -= 1
        self._add(-term_of(key, found[0]))

    def drop_all(self) -> None:
        """Remove all blobs but the first."""
        self._keys = None
        self._connection.execute("DELETE FROM blobs WHERE id > 0")
        self.count = 0
        self.sum = 0

    def root(self) -> bytes:
        """Return the blob 0, which has what is needed to read the others."""
        row = self._connection.execute("SELECT digest, data FROM blobs WHERE id = 0").fetchone()
        if row is None:
            raise Unusable("is damaged: it has no beginning")
        data = self._checked(0, *row)
        if len(data) < ROOT.size:
            raise Unusable("is damaged: its beginning is too short")
        self.count, total = ROOT.unpack_from(data)
        self.sum = int.from_bytes(total, "little")
        return data[ROOT.size :]

    def put_root(self, data: bytes) -> None:
        """Write the blob 0, after all others of a change."""
        data = ROOT.pack(self.count, self.sum.to_bytes(DIGEST, "little")) + data
        self._connection.execute("REPLACE INTO blobs VALUES (0, ?, ?)", (digest_of(0, data), data))

    def check_sum(self) -> None:
        """Raise a ValueError unless all blobs are there whose digests were added up; their content is not read."""
        count = 0
        total = 0
        size = 0
        last = 0
        keys = []
        asked = "SELECT id, digest, length(data) FROM blobs WHERE id > 0 ORDER BY id"
        for key, digest, length in self._connection.execute(asked):
            size += length if isinstance(length, int) else self.size + 1
            if key <= last or size > self.size or not isinstance(digest, bytes):
                raise Unusable("is damaged: its pages are not in order")
            last = key
            keys.append(key)
            count += 1
            total += term_of(key, digest)
        total %= MODULUS
        if (count, total) != (self.count, self.sum):
            raise Unusable(f"is damaged: it has {count:,} parts, not the {self.count:,} that were written")
        self._keys = keys

    def _check_found(self, found: int, begin: int, end: int) -> None:
        """Raise `Unusable` if SQLite has not found all blobs from a key to another one.

        It looks for a key by the pages above those with the blobs. If one of these is damaged, it may miss a blob that
        it finds when it reads all pages one after another.
        """
        if self._keys is not None and bisect_left(self._keys, end) - bisect_left(self._keys, begin) != found:
            raise Unusable("is damaged: a part is not found where it should be")

    def check_all(self) -> int:
        """Read every blob, and return how many there are; raise a ValueError if one is not what was written."""
        self.check_sum()
        read = self._connection.execute("SELECT id, digest, data FROM blobs ORDER BY id")
        return sum(self._checked(*row) is not None for row in read)

    def _checked(self, key: int, digest: object, data: object) -> bytes:
        if not isinstance(data, bytes) or len(data) > self.size:
            raise damaged(key)
        check_blob(key, digest, data)
        return data

    def _add(self, term: int) -> None:
        self.sum = (self.sum + term) % MODULUS


ROOT = struct.Struct(f"<Q{DIGEST}s")  # number of the other blobs, and the sum of their digests


def check_blob(key: int, digest: object, data: bytes) -> None:
    """Raise `Unusable` if a blob is not what was written."""
    if digest != digest_of(key, data):
        raise damaged(key)


def damaged(key: int) -> Unusable:
    """Return the error on a blob that is not what was written."""
    return Unusable(f"is damaged: its part {key // PER_KIND}-{key % PER_KIND} is not the one that was written")


def digest_of(key: int, data: bytes) -> bytes:
    """Return the digest of a blob, which also depends on its key, so that no blob is taken for another."""
    digest = sha256(key.to_bytes(8, "little"))
    digest.update(data)
    return digest.digest()[:DIGEST]


def term_of(key: int, digest: bytes) -> int:
    """Return what a blob adds to the sum; with its key, because the sum is also checked without reading blobs."""
    return int.from_bytes(digest, "little") + SPREAD * key


@contextmanager
def reading(path: Path) -> Iterator[Blobs]:
    """Read a file as it is after the last change that is complete.

    Raises
    ------
    FileNotFoundError
        If it does not exist.
    ValueError
        If it is no file of blobs, or is damaged.
    OSError
        If it cannot be read.
    """
    with naming(path), _opened(path, "ro") as connection:
        connection.execute("BEGIN")
        yield _blobs_of(connection)


@contextmanager
def changing(path: Path) -> Iterator[Blobs]:
    """Change a file, wholly or not at all; raises as `reading` does."""
    with naming(path), _opened(path, "rw") as connection:
        connection.execute("PRAGMA synchronous=EXTRA")  # a change is kept also if the power fails right after it
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield _blobs_of(connection)
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise


@contextmanager
def making(path: Path) -> Iterator[Blobs]:
    """Write a new file, which takes the place of one that may be there when it is complete."""
    if path.exists() and journal_of(path).exists():
        with suppress(ValueError), reading(path):  # undoes what was interrupted, so that its journal goes
            pass
    with naming(path), atomic_path(path) as partial:
        with closing(_connected(partial, "rw")) as connection:
            connection.execute(f"PRAGMA page_size={PAGE}")
            connection.execute(f"PRAGMA application_id={APPLICATION}")
            connection.execute("PRAGMA journal_mode=OFF")
            connection.execute("PRAGMA synchronous=OFF")  # `atomic_path` writes it to the disk in the end
            connection.execute("BEGIN")
            connection.execute(TABLE)
            yield Blobs(connection, sys.maxsize)  # it grows, and nobody else has written to it
            connection.execute("COMMIT")
        with suppress(FileNotFoundError):  # the journal of another file, which would be applied to this one
            Path(f"{os.path.abspath(path)}-journal").unlink()


def journal_of(path: Path) -> Path:
    """Return where SQLite keeps what a change under way has replaced; it is removed when the change is complete."""
    return Path(f"{os.path.realpath(path)}-journal")


@contextmanager
def _opened(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    """Open a file, after what another process was killed in is undone."""
    if os.path.isdir(path):
        raise Unusable("is a folder, but no collection of nearfar; `nearfar index` makes one")
    try:
        check_regular(path)
    except Unreadable as error:
        raise Unusable(f"is not a readable index: {error}") from None
    _check_journal(path)
    connection = _connected(path, mode)
    try:
        try:
            connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
        except sqlite3.OperationalError as error:
            if mode != "ro" or error.sqlite_errorcode != INTERRUPTED:
                raise
            with closing(_connected(path, "rw")) as undoing:
                undoing.execute("SELECT 1 FROM sqlite_schema").fetchone()
        yield connection
    finally:
        connection.close()


def _connected(path: Path, mode: str) -> sqlite3.Connection:
    address = f"{Path(os.path.realpath(path)).as_uri()}?mode={mode}"
    connection = sqlite3.connect(
        address, uri=True, timeout=SECONDS_TO_WAIT, isolation_level=None, check_same_thread=False, factory=Connection
    )
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_BLOB)
    connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, LONGEST_SQL)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    for setting in ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0"):
        connection.execute(f"PRAGMA {setting}")
    return connection


def _blobs_of(connection: sqlite3.Connection) -> Blobs:
    """Check that an open file is one of ours, and return its blobs."""
    schema = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema").fetchmany(2)
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
    if application != APPLICATION or journal != "delete" or schema != [("table", "blobs", "blobs", TABLE)]:
        raise Unusable("is not an index (expected one that `nearfar index` wrote)")
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    return Blobs(connection, pages * size)


def _check_journal(path: Path) -> None:
    """Refuse a journal that could make SQLite delete another file."""
    try:
        with open(journal_of(path), "rb") as journal:
            journal.seek(-len(GROUP_MARK), os.SEEK_END)
            end = journal.read()
    except OSError:  # there is none, or it is empty
        return
    if end == GROUP_MARK:
        raise Unusable(f"has a journal that is not ours; move {journal_of(path).name} elsewhere")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Raise errors of SQLite, and ours on the content, in one line with the name of the file."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translated(error, path) from error
    except UnicodeDecodeError as error:  # of a message of SQLite on a damaged schema
        raise ValueError(f"{path} is damaged: its schema is not text") from error
    except Unusable as error:
        raise ValueError(f"{path} {error}") from error


def _translated(error: sqlite3.Error, path: Path) -> Exception:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in FULL:
        return OSError(errno.ENOSPC, f"{path}: cannot be written ({os.strerror(errno.ENOSPC)})")
    if code == sqlite3.SQLITE_NOTADB:
        return ValueError(f"{path} is not a readable index (expected one that `nearfar index` wrote)")
    if code in DAMAGED:
        return ValueError(f"{path} is damaged: SQLite cannot read it")  # its message quotes the file
    if code == sqlite3.SQLITE_BUSY:
        return TimeoutError(f"{path}: another process is changing it; try again when that has ended")
    return OSError(f"{path}: cannot be read or written ({shorten(str(error), PATH)})")
