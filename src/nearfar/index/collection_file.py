"""How a collection lies in a file of blobs: blocks of about a thousand items, each with a blob for each of its columns.

Items have numbers that count on and are never given twice; block b has the items from b R on. A block has a blob of
vectors, one of names, and one of each column and of the labels that any of its items has. Of items that were removed, a
block notes the places; it goes when all of its items are removed. Buckets by a hash of the names tell the number of an
item, so that a change reads few blobs. The root has everything else, and is written last.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from ..io.untrusted import parse_json
from ..labels import holds_texts, text_array
from ..numerics.distances import check_distance
from ..numerics.types import AnyArray, Bools, Ints
from ..quoting import quoted
from .approximate import check_recipe
from .blob_file import PER_KIND, Blobs, Unusable, making, parsing
from .filters import Kind
from .records import (
    COLUMN_NAME,
    MAX_COLUMNS,
    Records,
    check_different,
    check_known,
    check_new,
    checked_about,
    checked_columns,
    checked_embeddings,
    checked_labels,
    checked_names,
    column_kinds,
    joined_labels,
    missing,
)
from .stored_column import NUMBER, WHOLE, Blocks, StoredColumn, Texts, encoded_text, packed_texts

FORMAT = "nearfar index 4"
NAMES, LABELS, GONE, BUCKETS, VECTORS, FIRST_COLUMN = 1, 2, 3, 4, 5, 16
"""Kinds of blobs; columns have the numbers from 16 on."""
LAST_COLUMN = 2**20  # columns are numbered from 16 again after a collection has lost its last item
BYTES_OF_A_BLOCK = 2**19
"""Bytes of the vectors of a block: 512 kB, 1,024 items of 128 dimensions. An item that is added rewrites them once."""
MOST_ITEMS = 2**10  # of a block
IN_BUCKET = 512  # items in each bucket of names, when the buckets are made; four times as many when they are doubled
LAST_ITEM = 2**48
PLACE = np.dtype("<u2")
VALUE = np.dtype("<f4")
HASH = np.dtype("<u8")


@dataclass(frozen=True)
class Change:
    """One change of a collection.

    Attributes
    ----------
    gone : sequence of str
        Names of items that are removed, if they are there; before `records` are added.
    records : Records or None
        Items that are added; those with the same names are replaced.
    about : mapping of str to str
        Entries of `about` that are set.
    engine : str
        The engine, or "" to keep it.
    known : bool
        Whether all items that are removed must be there.
    """

    gone: Sequence[str] = ()
    records: Records | None = None
    about: Mapping[str, str] = field(default_factory=dict)
    engine: str = ""
    known: bool = False


def check_engine(engine: str) -> None:
    """Raise a ValueError unless a file can have this engine; the empty name is that of the default, or of no change."""
    if engine not in ("", "exact"):
        check_recipe(engine)


def checked_change(change: Change) -> Change:
    """Return the change as a collection can hold it; raise a ValueError if its parts do not fit each other."""
    check_engine(change.engine)
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
    return replace(change, records=records, about=checked_about(change.about))


@dataclass(frozen=True)
class Root:
    """What a collection has beside its items.

    Attributes
    ----------
    distance, engine, about
        As for `Index`.
    labels : {"number", "text"} or None
        What labels are; None if items have none.
    columns : mapping of str to (int, {"number", "text"})
        Kind of the blobs of each column, and what it holds.
    dimensions, per_block, buckets : int
        Number of dimensions of the vectors, of items in a block, and of buckets of names.
    next, count : int
        Number that the next item gets, and of items that there are.
    origin : str
        32 hexadecimal digits, drawn when the numbers of the items begin: what is kept beside the file names them.
    """

    distance: str
    engine: str
    about: Mapping[str, str]
    labels: Kind | None
    columns: Mapping[str, tuple[int, Kind]]
    dimensions: int
    per_block: int
    buckets: int
    next: int
    count: int
    origin: str

    @property
    def kinds(self) -> dict[str, Kind]:
        """Kinds of the columns."""
        return {name: kind for name, (_, kind) in self.columns.items()}

    def packed(self) -> bytes:
        """Return the root as bytes that `unpacked` reads."""
        return json.dumps({"format": FORMAT, **vars(self)}).encode()

    @classmethod
    def read(cls, blobs: Blobs) -> Root:
        """Read the root of a file; raise `Unusable` if it is none."""
        data = blobs.root()
        with parsing():
            text = parse_json(data.decode())
            if not isinstance(text, dict):
                raise ValueError(f"expected an object, got {quoted(text)}")
            if text.pop("format") != FORMAT:
                other = f"is not of the format {FORMAT!r}; it belongs to another version of nearfar"
                raise Unusable(other)
            root = cls(**text)
            check_distance(root.distance)
            if root.engine != "exact":
                check_recipe(root.engine)
            if not isinstance(root.about, dict):
                raise ValueError(f"about: expected an object of text, got {quoted(root.about)}")
            checked_about(root.about)
            _check_columns(root)
            root = replace(root, columns={name: (number, kind) for name, (number, kind) in root.columns.items()})
            numbers = (root.dimensions, root.per_block, root.buckets, root.next, root.count)
            if not all(type(number) is int and 0 <= number <= LAST_ITEM for number in numbers):
                raise ValueError(f"expected whole numbers, got {quoted(numbers)}")
            if root.dimensions < 1 or not 1 <= root.per_block <= MOST_ITEMS or root.buckets < 1:
                raise ValueError(f"expected dimensions, blocks and buckets, got {numbers}")
            if VALUE.itemsize * root.count * root.dimensions > blobs.size:
                raise ValueError(f"expected the vectors of {root.count:,} items, got a smaller file")
            if root.count > root.next or not isinstance(root.origin, str):
                raise ValueError(f"expected fewer items than numbers, got {root.count:,} of {root.next:,}")
        return root


def _check_columns(root: Root) -> None:
    if root.labels not in (None, "number", "text"):
        raise ValueError(f"labels: expected a kind, got {quoted(root.labels)}")
    if len(root.columns) > MAX_COLUMNS:
        raise ValueError(f"columns: expected up to {MAX_COLUMNS}, got {len(root.columns)}")
    numbers = [number for number, _ in root.columns.values()]
    if len(set(numbers)) < len(numbers):
        raise ValueError("columns: two have the same number")
    for name, (number, kind) in root.columns.items():
        checked_columns({name: []}, 0)
        right = type(number) is int and FIRST_COLUMN <= number < LAST_COLUMN and kind in ("number", "text")
        if not right or not COLUMN_NAME.fullmatch(name):
            raise ValueError(f"columns: expected a number and a kind of {quoted(name)}")


@dataclass
class Snapshot:
    """The items of a collection as they were when the file was read.

    Attributes
    ----------
    root : Root
    numbers : ndarray of int64, shape (n,)
        Number of each item, increasing.
    names : StoredColumn
    labels : StoredColumn or None
    columns : dict of str to StoredColumn
    vectors : ndarray of float32, shape (m, d)
        Vectors of the last m items.
    """

    root: Root
    numbers: Ints
    names: StoredColumn
    labels: StoredColumn | None
    columns: dict[str, StoredColumn]
    vectors: AnyArray

    def __len__(self) -> int:
        return len(self.numbers)


def read_snapshot(blobs: Blobs, *, since: int = 0) -> Snapshot:
    """Read all items of a collection, but vectors only from a number of an item on.

    The columns are checked when their values are asked for.

    Raises
    ------
    Unusable
        If anything is not what was written, or is missing.
    """
    root = Root.read(blobs)
    blobs.check_sum()
    R = root.per_block
    with parsing():
        names = _unchecked(blobs, NAMES)
        sizes = {block: min(R, root.next - block * R) for block in names}
        if any(size < 1 for size in sizes.values()):
            raise ValueError("a block is behind the last item")
        left = {block: np.ones(size, dtype=bool) for block, size in sizes.items()}
        for block, data in blobs.all_of(GONE):
            left[block][np.frombuffer(data, dtype=PLACE)] = False
        numbers = np.concatenate(
            [np.empty(0, dtype=np.int64), *(block * R + np.flatnonzero(mask) for block, mask in left.items())]
        )
        if len(numbers) != root.count:
            raise ValueError(f"it has {len(numbers):,} items, not {root.count:,}")
        vectors = _vectors(blobs, root, left, since)

    def column(there: Blocks, kind: Kind, dtype: Any = NUMBER) -> StoredColumn:
        return StoredColumn(there, kind, dtype, R, sizes, numbers)

    return Snapshot(
        root=root,
        numbers=numbers,
        names=column(names, "text"),
        labels=None if root.labels is None else column(_unchecked(blobs, LABELS), root.labels, WHOLE),
        columns={name: column(_unchecked(blobs, number), kind) for name, (number, kind) in root.columns.items()},
        vectors=vectors,
    )


def _unchecked(blobs: Blobs, kind: int) -> Blocks:
    """Return the blobs of one kind, by their blocks, with what `StoredColumn` checks them by."""
    return {key % PER_KIND: (key, digest, data) for key, digest, data in blobs.unchecked(kind)}


def _vectors(blobs: Blobs, root: Root, left: Mapping[int, Bools], since: int) -> AnyArray:
    """Read the vectors of the items that are left, from a number on."""
    first = since // root.per_block
    later = {block: mask.copy() for block, mask in left.items() if block >= first}
    if first in later:
        later[first][: since % root.per_block] = False
    found = np.empty((int(sum(mask.sum() for mask in later.values())), root.dimensions), dtype=np.float32)
    at = 0
    for block, data in blobs.all_of(VECTORS, first):
        mask = later.pop(block)
        rows = np.frombuffer(data, dtype=VALUE).reshape(len(mask), root.dimensions)[mask]
        found[at : at + len(rows)] = rows
        at += len(rows)
    if later:
        raise ValueError(f"the vectors of {len(later):,} blocks are missing")
    return found


def graph_of(path: Path) -> Path:
    """Return where the graph of a collection is; a link to a collection has the graph of that collection."""
    return Path(f"{os.path.realpath(path)}.graph")


def new_file(
    path: Path,
    records: Records,
    *,
    distance: str,
    engine: str,
    about: Mapping[str, str],
) -> None:
    """Write a file of some items, wholly or not at all, in the place of one that may be there."""
    with making(path) as blobs:
        write_new(blobs, records, distance=distance, engine=engine, about=about)


def write_new(blobs: Blobs, records: Records, *, distance: str, engine: str, about: Mapping[str, str]) -> None:
    """Write a collection into a new file."""
    dimensions = records.embeddings.shape[1]
    root = Root(
        distance=distance,
        engine=engine,
        about=dict(about),
        labels=kind_of(records.labels),
        columns={},
        dimensions=dimensions,
        per_block=max(1, min(MOST_ITEMS, BYTES_OF_A_BLOCK // (VALUE.itemsize * dimensions))),
        buckets=_buckets_for(len(records)),
        next=0,
        count=0,
        origin=secrets.token_hex(16),
    )
    root = replace(root, columns=_numbered(root, column_kinds(records.columns)))
    _put_empty_buckets(blobs, root)
    root = _appended(blobs, root, records)
    blobs.put_root(root.packed())


def kind_of(labels: AnyArray | None) -> Kind | None:
    """Return whether labels are numbers or text; None for no labels."""
    if labels is None:
        return None
    return "number" if labels.dtype.kind == "i" else "text"


def check_fits(root: Root, change: Change) -> None:
    """Raise a ValueError if a change does not fit a collection."""
    records = change.records
    if records is None:
        return
    if root.count == 0:  # the first items decide on labels and columns
        check_new(records, dimensions=root.dimensions, labels=records.labels, columns={})
        return
    check_new(records, dimensions=root.dimensions, labels=root.labels, columns=root.kinds)
    if root.labels is not None and records.labels is not None:
        joined_labels(_no_labels(root.labels), records.labels[:0])  # raises if one has numbers and the other text


def _no_labels(kind: Kind) -> AnyArray:
    return np.empty(0, dtype=np.int64 if kind == "number" else np.str_)


def make_change(blobs: Blobs, change: Change) -> Root:
    """Make a change, which `checked_change` has checked, and return the root after it.

    Raises
    ------
    ValueError
        If it does not fit the collection.
    """
    root = Root.read(blobs)
    check_fits(root, change)
    root = replace(root, about={**root.about, **change.about}, engine=change.engine or root.engine)
    records = change.records
    if records is not None and root.count == 0 and len(records):
        blobs.drop_all()
        kinds = root.kinds | column_kinds(records.columns)
        root = replace(root, labels=kind_of(records.labels), columns={}, next=0, buckets=_buckets_for(len(records)))
        root = replace(root, columns=_numbered(root, kinds), origin=secrets.token_hex(16))
        _put_empty_buckets(blobs, root)
    elif records is not None:
        root = replace(root, columns=_numbered(root, column_kinds(records.columns)))
    names = [*change.gone]
    if records is not None:
        names += records.names.tolist()
    there = numbers_of(blobs, root, names)
    if change.known:
        check_known(change.gone, text_array(there))
    root = _without(blobs, root, there)
    if records is not None and len(records):
        root = _appended(blobs, root, records)
    blobs.put_root(root.packed())
    return root


def _numbered(root: Root, kinds: Mapping[str, Kind]) -> dict[str, tuple[int, Kind]]:
    """Return the columns with those that are new, which get the next numbers."""
    columns = dict(root.columns)
    for name, kind in kinds.items():
        if name not in columns:
            columns[name] = (max([FIRST_COLUMN - 1, *(number for number, _ in columns.values())]) + 1, kind)
    return columns


def numbers_of(blobs: Blobs, root: Root, names: Sequence[str]) -> dict[str, int]:
    """Return the numbers of the items with these names; names that do not exist are left out."""
    R = root.per_block
    hashes = hashes_of(names)
    candidates = [np.empty(0, dtype=np.int64)]
    for bucket, places in _grouped(hashes % np.uint64(root.buckets)):
        known, numbers = _bucket(blobs, bucket)
        candidates.append(numbers[np.isin(known, hashes[places])])
    numbers = np.concatenate(candidates)
    wanted = set(names)
    found: dict[str, int] = {}
    for block, places in _grouped(numbers // R):
        there = _names(blobs, block)
        with parsing():
            texts = there.pick(numbers[places] % R).tolist()
        # two names may have the same hash
        found |= {name: at for name, at in zip(texts, numbers[places].tolist(), strict=True) if name in wanted}
    return found


def records_at(blobs: Blobs, root: Root, numbers: Sequence[int]) -> Records:
    """Return the items with these numbers, in this order."""
    blocks, places_in_block = np.divmod(np.array(numbers, dtype=np.int64), root.per_block)
    vectors = np.empty((len(numbers), root.dimensions), dtype=np.float32)
    names: list[str] = [""] * len(numbers)
    labels = None if root.labels is None else missing_values(LABELS, root.labels, len(numbers))
    columns = {name: missing_values(number, kind, len(numbers)) for name, (number, kind) in root.columns.items()}
    with parsing():
        for block, here in _grouped(blocks):
            places = places_in_block[here]
            data = blobs.get(VECTORS, block)
            if data is None:
                raise ValueError(f"the vectors of block {block} are missing")
            vectors[here] = np.frombuffer(data, dtype=VALUE).reshape(-1, root.dimensions)[places]
            for at, name in zip(here.tolist(), _names(blobs, block).pick(places).tolist(), strict=True):
                names[at] = name
            if labels is not None and root.labels is not None:
                _take(labels, here, blobs.get(LABELS, block), LABELS, root.labels, places)
            for name, (number, kind) in root.columns.items():
                _take(columns[name], here, blobs.get(number, block), number, kind, places)
    return Records(
        names=text_array(names),
        embeddings=vectors,
        labels=None if labels is None else _plain(labels),
        columns={name: _plain(values) for name, values in columns.items()},
    )


def missing_values(number: int, kind: Kind, n: int) -> AnyArray:
    """Return n missing values of a column; those of text as objects, which may become texts of any length."""
    if kind == "text":
        return np.full(n, "", dtype=object)
    if number == LABELS:
        return np.zeros(n, dtype=np.int64)
    return missing("number", n)


def _take(values: AnyArray, here: Ints, data: bytes | None, number: int, kind: Kind, places: Ints) -> None:
    """Put the values at some places of a blob into an array."""
    if data is None:
        return
    if kind == "text":
        values[here] = Texts.joined([data]).pick(places).tolist()
    else:
        values[here] = np.frombuffer(data, dtype=WHOLE if number == LABELS else NUMBER)[places]


def _plain(values: AnyArray) -> AnyArray:
    if values.dtype == object:
        return text_array(values)
    return values


def _names(blobs: Blobs, block: int) -> Texts:
    data = blobs.get(NAMES, block)
    if data is None:
        raise Unusable(f"is damaged: the names of block {block} are missing")
    with parsing():
        return Texts.joined([data])


def hashes_of(names: Sequence[str]) -> AnyArray:
    """Return a hash of each name, (n,), which every process computes in the same way."""
    digests = [blake2b(encoded_text(name), digest_size=HASH.itemsize).digest() for name in names]
    return np.frombuffer(b"".join(digests), dtype=HASH)


def _buckets_for(n: int) -> int:
    return 2 ** max(0, (n // IN_BUCKET).bit_length())


def _bucket(blobs: Blobs, bucket: int) -> tuple[AnyArray, Ints]:
    """Return the hashes and the numbers of the items in a bucket."""
    data = blobs.get(BUCKETS, bucket)
    if data is None:
        raise Unusable(f"is damaged: its bucket {bucket} is missing")
    with parsing():
        both = np.frombuffer(data, dtype=HASH).reshape(2, -1)
    return both[0], both[1].astype(np.int64)


def _put_bucket(blobs: Blobs, bucket: int, hashes: AnyArray, numbers: Ints) -> None:
    blobs.put(BUCKETS, bucket, np.stack([hashes, numbers.astype(HASH)]).astype(HASH).tobytes())


def _put_empty_buckets(blobs: Blobs, root: Root) -> None:
    for bucket in range(root.buckets):
        blobs.put(BUCKETS, bucket, b"")


def _without(blobs: Blobs, root: Root, gone: Mapping[str, int]) -> Root:
    """Remove items, which have these names and numbers."""
    hashes = hashes_of([*gone])
    numbers = np.array([*gone.values()], dtype=np.int64)
    for bucket, places in _grouped(hashes % np.uint64(root.buckets)):
        # first the names, so that the items are found no more
        known, there = _bucket(blobs, bucket)
        left = ~np.isin(there, numbers[places])
        _put_bucket(blobs, bucket, known[left], there[left])
    R = root.per_block
    after = root.next
    for block, places in _grouped(numbers // R):
        size = min(R, root.next - block * R)
        with parsing():
            before = np.frombuffer(blobs.get(GONE, block) or b"", dtype=PLACE)
        # places within the block, (up to R,), which stay taken: numbers of items are never given twice
        all_gone = np.union1d(before, numbers[places] % R).astype(PLACE)
        if len(all_gone) < size:
            blobs.put(GONE, block, all_gone.tobytes())
            continue
        for kind in (NAMES, LABELS, GONE, VECTORS, *(number for number, _ in root.columns.values())):
            blobs.drop(kind, block)
        if block == (root.next - 1) // R:
            after = (block + 1) * R  # the next items begin another block
    return replace(root, count=root.count - len(gone), next=after)


def removed_share(blobs: Blobs) -> float:
    """Return the share of the items in the blocks of a file that were removed, and still take room there."""
    removed = sum(len(data) // PLACE.itemsize for _, data in blobs.all_of(GONE))
    return removed / max(1, removed + Root.read(blobs).count)


def _grouped(keys: AnyArray) -> Iterator[tuple[int, Ints]]:
    """Yield each different key, and the places at which it is."""
    if len(keys) == 0:
        return
    order = np.argsort(keys, kind="stable")
    different, starts = np.unique(keys[order], return_index=True)
    for key, places in zip(different.tolist(), np.split(order, starts[1:]), strict=True):
        yield int(key), places


def _appended(blobs: Blobs, root: Root, records: Records) -> Root:
    """Append items, none of which is there."""
    n = len(records)
    R = root.per_block
    at = 0
    while at < n:
        # as many as fit into the block that has room; then the next block
        block, place = divmod(root.next + at, R)
        part = slice(at, min(n, at + R - place))
        _append_rows(blobs, block, place, records.embeddings[part])
        _append_texts(blobs, NAMES, block, place, records.names[part])
        if records.labels is not None:
            _append(blobs, LABELS, block, place, records.labels[part])
        for name, (number, kind) in root.columns.items():
            if name in records.columns:
                _append(blobs, number, block, place, records.columns[name][part])
            elif blobs.get(number, block) is not None:
                _append(blobs, number, block, place, missing(kind, part.stop - part.start))
        at = part.stop
    numbers = np.arange(root.next, root.next + n)
    root = replace(root, next=root.next + n, count=root.count + n)
    hashes = hashes_of(records.names.tolist())
    # buckets hold 4 IN_BUCKET names on average at most, so that a change rewrites few bytes
    if root.count > 4 * IN_BUCKET * root.buckets:
        hashes, numbers, root = _more_buckets(blobs, root, hashes, numbers)
    for bucket, places in _grouped(hashes % np.uint64(root.buckets)):
        known, there = _bucket(blobs, bucket)
        _put_bucket(blobs, bucket, np.concatenate([known, hashes[places]]), np.concatenate([there, numbers[places]]))
    return root


def _more_buckets(blobs: Blobs, root: Root, hashes: AnyArray, numbers: Ints) -> tuple[AnyArray, Ints, Root]:
    """Remove all buckets, and return what is in them and in the larger number of new ones."""
    all_hashes = [hashes]
    all_numbers = [numbers]
    for bucket in range(root.buckets):
        known, there = _bucket(blobs, bucket)
        all_hashes.append(known)
        all_numbers.append(there)
    root = replace(root, buckets=_buckets_for(root.count))
    _put_empty_buckets(blobs, root)
    return np.concatenate(all_hashes), np.concatenate(all_numbers), root


def _append_rows(blobs: Blobs, block: int, place: int, rows: AnyArray) -> None:
    before = blobs.get(VECTORS, block) or b""
    if len(before) != VALUE.itemsize * rows.shape[1] * place:
        raise Unusable(f"is damaged: block {block} does not have the vectors of {place} items")
    blobs.put(VECTORS, block, before + np.ascontiguousarray(rows, dtype=VALUE).tobytes())


def _append(blobs: Blobs, kind: int, block: int, place: int, values: AnyArray) -> None:
    """Append values of a column to a block; items in front of it that lack the column have missing values."""
    if holds_texts(values):
        _append_texts(blobs, kind, block, place, values)
        return
    dtype = WHOLE if kind == LABELS else NUMBER
    before = blobs.get(kind, block)
    if before is None:
        before = missing("number", place).astype(dtype).tobytes() if place else b""
    if len(before) != dtype.itemsize * place:
        raise Unusable(f"is damaged: block {block} does not have the values of {place} items")
    blobs.put(kind, block, before + values.astype(dtype).tobytes())


def _append_texts(blobs: Blobs, kind: int, block: int, place: int, values: AnyArray) -> None:
    before = blobs.get(kind, block)
    texts = [""] * place
    if before is not None:
        with parsing():
            texts = Texts.joined([before]).tolist()
    if len(texts) != place:
        raise Unusable(f"is damaged: block {block} does not have the texts of {place} items")
    blobs.put(kind, block, packed_texts([*texts, *values.tolist()]))
