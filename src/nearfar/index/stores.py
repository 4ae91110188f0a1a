"""One URI for a collection of embeddings, from one file to a cluster.

========================  ===========================================================================================
``photos.index``          one file, searched exactly in memory (or by a structure of faiss that is built when needed)
``photos.lance``          a folder of LanceDB: the approximate index stays on disk; needs the extra `lance`
``http://HOST/photos``    a collection of a server or a cluster of Milvus; needs the extra `store`, and the environment
                          variable MILVUS_TOKEN where the server asks for a token
``postgresql://...``      a table of PostgreSQL with pgvector: ``postgresql://USER@HOST/DATABASE#photos``, made by
                          nearfar, or one that is there already, ``#products?id=sku&vector=embedding``; needs the
                          extra `postgres`, and takes the password from PGPASSWORD or ~/.pgpass
========================  ===========================================================================================

>>> import tempfile
>>> from nearfar.index import create, open_store, records_of
>>> uri = tempfile.mkdtemp() + "/points.index"
>>> with create(uri, records_of([[1.0, 0.0], [0.0, 1.0]], ["east", "north"]), distance="cosine") as store:
...     store.add(records_of([[-1.0, 0.0]], ["west"]))
>>> with open_store(uri) as store:
...     hits = store.search([[0.9, 0.1]], k=1)
...     print(hits.names, store.count())
[['east']] 3
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from ..io.remote import is_remote, shown_address
from ..io.sources import SourceKind, kind_by_name
from ..io.uris import is_address, is_database, is_folder, no_such_index
from ..numerics.distances import check_distance
from ..numerics.types import AnyArray
from ..quoting import PATH, quoted, shorten
from .filters import Kind
from .index import Index
from .records import Hits, Records

THRESHOLD = "threshold"
"""Where `about` keeps the distance beyond which nothing is a match."""
DIMS = "dims"
"""Where `about` keeps the number of leading dimensions of the embeddings, if the others are left out."""

UPGRADED = "upgraded"
"""Where `about` keeps the model from which an upgrade began that is not finished."""
MAPPED = "mapped"
"""Column of an index during an upgrade: 1 for a mapped vector, 0 for an embedded one, missing for later items."""


class Store(Protocol):
    """A collection of embeddings in a file, a folder or a server.

    One process writes at a time, and any number can read. A change is kept once the method has returned, whatever
    happens to the process afterwards. If the method raises an error, or the process is killed, nothing is changed,
    unless that happens after the change was written. Errors have one line: ValueError for invalid requests, OSError for
    problems of the storage.

    Attributes
    ----------
    uri : str
        Where the collection is stored.
    distance : {"cosine", "euclidean", "sqeuclidean"}
        Distance by which items are compared.
    about : dict of str to str
        What made the collection, and the no-match threshold.
    searches_words : bool
        Whether `search_words` works.
    """

    uri: str
    searches_words: bool

    @property
    def distance(self) -> str: ...

    @property
    def about(self) -> dict[str, str]: ...

    @property
    def dimensions(self) -> int:
        """Number of dimensions of the embeddings."""
        ...

    def engine(self) -> str:
        """Describe in a few words how the collection is searched, such as "exact"."""
        ...

    def columns(self) -> dict[str, Kind]:
        """Type of each column that filters and groups can use, with `name` and, if there are classes, `label`."""
        ...

    def count(self, where: str = "") -> int:
        """Return the number of items for which a filter holds."""
        ...

    def column(self, name: str, where: str = "", *, start: int = 0, count: int | None = None) -> AnyArray:
        """Return one column, such as `name` or `label`, in the order of the items.

        `start` and `count` choose a part of the values, so that a server sends no more than these.
        """
        ...

    def classes(self) -> dict[str, int]:
        """Return the number of items of each class, sorted by name; items without a class are left out."""
        ...

    def get(self, names: Sequence[str]) -> Records:
        """Return the items with these names (or this name), in this order; names that do not exist are skipped."""
        ...

    def search(self, queries: Any, k: int = 10, *, where: str = "", group_by: str = "") -> Hits:
        """Find the k nearest items of each query; see `Index.search`."""
        ...

    def search_words(self, words: str, k: int = 10, *, where: str = "") -> Records:
        """Find up to k items that have all words in their name, class and columns of text, the best match first.

        A word that ends in an asterisk matches all words that begin so; upper and lower case are the same. A file ranks
        by BM25, PostgreSQL by `ts_rank`. See `search_fused` for words and vectors at once.
        """
        ...

    def add(
        self,
        records: Records,
        *,
        about: Mapping[str, str] | None = None,
        gone: Sequence[str] = (),
        engine: str = "",
    ) -> None:
        """Add items; items with the same names are replaced, and those named in `gone` are removed.

        All of it is one change. The first items of an empty collection decide whether it has labels, and on the kinds
        of its columns. `about` and `engine` are as for `change`.
        """
        ...

    def remove(self, names: Sequence[str]) -> None:
        """Remove items by name; raise a ValueError if a name does not exist."""
        ...

    def change(self, *, about: Mapping[str, str] | None = None, engine: str = "") -> None:
        """Change entries of `about`, or how the collection is searched."""
        ...

    def in_memory(self) -> Index:
        """Return all items as an `Index`, to compare all pairs."""
        ...

    def close(self) -> None:
        """Release the lock, so that other processes can write."""
        ...

    def __enter__(self) -> Store: ...

    def __exit__(self, *error: object) -> None: ...


def open_store(uri: str | os.PathLike[str], mode: Literal["r", "w"] = "r", *, lock: bool = True) -> Store:
    """Open a collection that `create` or `nearfar index` made.

    Parameters
    ----------
    uri : str or path
        A file such as "photos.index", a folder of LanceDB such as "photos.lance", or the address of a collection of
        Milvus such as "http://localhost:19530/photos", or of PostgreSQL such as "postgresql://localhost/shop#photos".
    mode : {"r", "w"}
        "w" also allows to add and remove items, which one process does at a time.
    lock : bool
        Set to False if the caller holds the lock of the collection (`index_lock`).

    Returns
    -------
    Store
        The collection.

    Raises
    ------
    FileNotFoundError
        If the collection does not exist.
    ValueError
        If it is not a collection of this library, or is damaged.
    TimeoutError
        If another process is writing to it.

    Examples
    --------
    >>> open_store("missing.index")
    Traceback (most recent call last):
    FileNotFoundError: missing.index: no such index; `nearfar index RUN DATA -o missing.index` makes one
    """
    if mode not in ("r", "w"):
        raise ValueError(f'mode: expected "r" or "w", got {mode!r}')
    kind, place = _kind_and_place(uri)
    path = place if isinstance(place, Path) else None
    if path is not None and not path.exists():
        raise _why_not(path) or no_such_index(path)
    try:
        opened: Store = kind(place, writes=mode == "w", lock=lock)
    except ValueError as error:
        why = None if path is None else _why_not(path)
        if why is None:
            raise
        raise why from error
    return opened


def _kind_and_place(uri: str | os.PathLike[str]) -> tuple[Any, str | Path]:
    """Return the class of a store, and where it is: an address, or a path. The engines of some are extras."""
    if is_database(uri):
        from .postgres_store import PostgresStore

        return PostgresStore, os.fspath(uri)
    if is_address(uri):
        from .milvus_store import MilvusStore

        return MilvusStore, os.fspath(uri)
    path = Path(_local(uri))
    if is_folder(path):
        from .lance_store import LanceStore

        return LanceStore, path
    from .file_store import FileStore  # for start-up time

    return FileStore, path


def _why_not(path: Path) -> ValueError | None:
    """Return the error for the name of a file of embeddings, which is no collection; None for another name."""
    if kind_by_name(path) is not SourceKind.EMBEDDINGS:
        return None
    return ValueError(f"{path}: is a file of rows, not an index; `nearfar index {path} -o FILE` makes one")


def check_open(collection: Any, argument: str) -> None:
    """Raise a TypeError if a collection is given by its path or address instead of opened."""
    if isinstance(collection, str | os.PathLike):
        where = quoted(os.fspath(collection), PATH)
        raise TypeError(f"{argument}: expected an opened collection, got {where}; open it with nearfar.index.open")


def exists(uri: str | os.PathLike[str]) -> bool:
    """Return whether something is stored under a URI, which a new collection would replace."""
    if not is_address(uri):
        return Path(_local(uri)).exists()
    try:
        open_store(uri, lock=False).close()
    except FileNotFoundError:
        return False
    return True


def create(
    uri: str | os.PathLike[str],
    records: Records,
    *,
    distance: str = "cosine",
    engine: str = "",
    about: Mapping[str, str] | None = None,
    lock: bool = True,
) -> Store:
    """Create or replace a collection, completely or not at all, and open it for writing.

    Parameters
    ----------
    uri : str or path
        As for `open_store`; its parent folder must exist.
    records : Records
        The first items. Embeddings of shape (0, d) make an empty collection.
    distance : {"cosine", "euclidean", "sqeuclidean"}
        Distance by which items are compared.
    engine : str
        For a file, as for `Index`; for LanceDB "exact" or "ivf"; for Milvus "exact" or "auto"; for PostgreSQL "exact"
        or "hnsw". An empty string chooses one by the number of items.
    about : mapping of str to str, optional
        Text that is stored with the collection.
    lock : bool
        As for `open_store`.

    Returns
    -------
    Store
        The collection.

    Raises
    ------
    ValueError
        If the distance or engine is unknown.
    TimeoutError
        If another process is writing to it.
    """
    kind, place = _kind_and_place(uri)
    created: Store = kind.create(place, records, distance=distance, engine=engine, about=about or {}, lock=lock)
    return created


def check_settings(uri: str | os.PathLike[str], *, distance: str | None, engine: str) -> None:
    """Raise the error of `create` on a distance or an engine, before anything is embedded; None is any distance."""
    if distance is not None:
        check_distance(distance)
    kind, _ = _kind_and_place(uri)
    kind.check_engine(engine)


def _local(uri: str | os.PathLike[str]) -> str:
    """Return the path that a URI is; refuse addresses."""
    text = os.fspath(uri)
    if "://" in text or is_remote(text):
        shown = shown_address(text) if is_remote(text) else shorten(text, PATH)
        kinds = "a file such as photos.index, a folder such as photos.lance, http://HOST:PORT/COLLECTION"
        kinds += ", or postgresql://HOST/DATABASE#COLLECTION"
        raise ValueError(f"{shown}: expected {kinds}")
    return text
