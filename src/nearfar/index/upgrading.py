"""A new model for an index that is searched and changed meanwhile.

An upgrade has two parts. It first embeds some items by the new model, fits a map from the old vectors to the new ones
(`vector_map.py`), and replaces the index by one in which all vectors are in the space of the new model: those of the
items that were embedded, and mapped ones of all others. From then on, queries are embedded by the new model. All
distances are of one kind, so that embedded and mapped items are ranked together, and every way to search works as
always. Then the items with mapped vectors are embedded, one block after another; each block is one change of the index.

The column `mapped` tells which items these are: 1 for a mapped vector, 0 for one that the upgrade has embedded, and
missing for items that were added or replaced by others since. So a killed upgrade continues where it was, and other
processes may change the index between two blocks.

The former index stays beside it (``photos.index.before``), until `finish_upgrade` removes it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..data import Dataset
from ..data.dataset import some
from ..data.located import Named, local_source
from ..data.open import resolve_source
from ..data.readers.files import FolderFiles
from ..io.atomic_files import atomic_path, locked
from ..io.formats import ARCHIVES
from ..io.sources import MODELS, SourceKind, absolute, kind_of
from ..io.uris import is_address, shown
from ..models import Model, load
from ..models.embedded import distance_of, refuse_data
from ..models.model import open_for
from ..numerics.types import AnyArray, Ints
from ..progress import Portion, listening, stage
from ..quoting import count_of, quoted
from . import index_lock
from .blob_file import reading
from .building import about_data, store_summary
from .collection_file import new_file
from .file_store import FileStore
from .paths import base_folder_of, columns_by_source, data_relative_to, source_archives
from .records import Records
from .searching import embedded_by, first_dims, model_of, names_relative_to_index
from .stores import DIMS, MAPPED, THRESHOLD, UPGRADED, Store, create, open_store
from .vector_map import FEWEST_ROWS, fit_map

WAITING = f"{MAPPED} == 1"
SAMPLE = 2000  # items that are embedded first, to which the map is fitted
ITEMS_OF_A_BLOCK = 1000  # items that are embedded between two changes of the index, and what a kill loses at most
MOST_BLOCKS = 200  # a server reads a file again after each change, so that there are fewer in a large index


def upgrade(
    path: str | os.PathLike[str],
    source: str | os.PathLike[str],
    data: Named | None = None,
    *,
    distance: str | None = None,
    dims: int | None = None,
    label: str | None = None,
    name: str | None = None,
    skip_bad: bool = False,
    waiting: Callable[[], None] | None = None,
) -> str:
    """Embed the items of an index by a new model, while it is searched and changed; a killed call continues.

    Parameters
    ----------
    path : path
        The index: a file, or a folder of LanceDB.
    source : path
        The new model, as for `nearfar.load`, or a file or a folder with embeddings of the items.
    data : str, optional
        The items, as for `nearfar.data.open_items`. By default, the data from which the index was made, as far as they
        are below its folder.
    distance, dims, label, name, skip_bad
        As for `build`.
    waiting : callable, optional
        Called once if another process is changing the index.

    Returns
    -------
    str
        One line on what was done.

    Raises
    ------
    ValueError
        If the index is in a server, another upgrade of it is not finished, or too few of its items are in the data.
    FileNotFoundError
        If the index or the model does not exist.
    TimeoutError
        If another process upgrades the index.

    Examples
    --------
    >>> upgrade("http://localhost:19530/photos", "runs/new")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: upgrade: http://localhost:19530/photos is in a server; copy it to a file (nearfar index ...
    """
    data = None if data is None else local_source(data)
    out = Path(path)
    source = Path(source)
    with _alone(out):
        store = open_store(out, lock=False)
        model = None
        if kind_of(source, *MODELS, SourceKind.EMBEDDINGS) is SourceKind.EMBEDDINGS:
            refuse_data(source, data)
            data = str(source)
        else:
            model = load(source)
        _check_upgrade(store, source, model)
        items = _items_of(store, out, model, data, label=label, name=name, skip_bad=skip_bad)
        line = ""
        if UPGRADED not in store.about:
            columns = {"label": label, "name": name}
            line = _begin(
                store, out, source, model, items, data, columns, distance=distance, dims=dims, waiting=waiting
            )
        _embed_waiting(out, model, items, waiting)
        # where nothing was left to do, this removes the lock of a process that was killed at its very end
        with index_lock.index_lock(out, wait=index_lock.WAIT, waiting=waiting):
            store = open_store(out, lock=False)
            return f"{shown(out)}: {store_summary(store)}; {line}{_progress_of(store, out)}"


def upgrade_status(path: str | os.PathLike[str]) -> str:
    """Return one line on the upgrade of an index."""
    out = Path(path)
    store = open_store(out, lock=False)
    if UPGRADED not in store.about:
        return f"{shown(out)}: no upgrade was begun; made by {store.about.get('source') or 'embeddings'}"
    return f"{shown(out)}: {_progress_of(store, out)}"


def undo_upgrade(path: str | os.PathLike[str], *, waiting: Callable[[], None] | None = None) -> str:
    """Go back to the model from which an index was upgraded; changes of items since then are kept.

    Items that were added or replaced since are embedded by that model. Return one line on what was done.

    Raises
    ------
    ValueError
        If the index was not upgraded, or items that were added since are not in its data.
    """
    out = Path(path)
    with _alone(out), index_lock.index_lock(out, wait=index_lock.WAIT, waiting=waiting):
        store = open_store(out, "w", lock=False)
        former = _former_of(store, out)
        now = store.in_memory().records()
        then = former.in_memory().records()
        place = {name: row for row, name in enumerate(then.names.tolist())}
        given = np.isnan(now.columns[MAPPED]) if MAPPED in now.columns else np.ones(len(now), dtype=bool)
        added = [name for name, new in zip(now.names.tolist(), given, strict=True) if new or name not in place]
        line = f"back to {former.about.get('source') or 'the embeddings from which it was made'}"
        if not added and isinstance(store, FileStore) and _same_items(now, then):
            with atomic_path(out) as partial:
                shutil.copyfile(before_of(out), partial)
        else:
            records = _in_order(_without(now), place)
            rows = np.empty((len(records), former.dimensions), dtype=np.float32)
            names = records.names.tolist()
            kept = [row for row, name in enumerate(names) if name not in {*added}]
            rows[kept] = then.embeddings[[place[names[row]] for row in kept]]
            if added:
                new = [row for row, name in enumerate(names) if name in {*added}]
                rows[new] = _embedded_as_before(store, former, out, [names[row] for row in new])
                line += f"; {count_of(len(added), 'item')} embedded that came since"
            _replace(out, replace(records, embeddings=rows), former, former.about)
        before_of(out).unlink()
        return f"{shown(out)}: {store_summary(open_store(out, lock=False))}; {line}"


def finish_upgrade(path: str | os.PathLike[str], *, waiting: Callable[[], None] | None = None) -> str:
    """Remove what only `undo_upgrade` needs: the former index, and the column `mapped`. Return one line.

    Raises
    ------
    ValueError
        If items still have mapped vectors, or there is no upgrade.
    """
    out = Path(path)
    with _alone(out), index_lock.index_lock(out, wait=index_lock.WAIT, waiting=waiting):
        store = open_store(out, "w", lock=False)
        before = before_of(out)
        if UPGRADED not in store.about:
            if before.exists():  # a kill came right before it was removed
                before.unlink()
                return f"{shown(out)}: the upgrade is finished"
            raise ValueError(f"finish: {shown(out)} was not upgraded")
        left = store.column("name", WAITING).tolist()
        if left:
            still = f"{count_of(len(left), 'item')} with mapped vectors ({some(left, 3)})"
            raise ValueError(f"finish: {shown(out)} has {still}; first let the upgrade end, or remove them")
        order: dict[str, int] = {}
        if before.exists():
            with open_store(before, lock=False) as former:
                order = {name: row for row, name in enumerate(former.column("name").tolist())}
        records = _in_order(_without(store.in_memory().records()), order)
        _replace(out, records, store, {key: text for key, text in store.about.items() if key != UPGRADED})
        before.unlink(missing_ok=True)
        return f"{shown(out)}: {store_summary(open_store(out, lock=False))}; the upgrade is finished"


def before_of(out: Path) -> Path:
    """Return where the former index of an upgrade is.

    >>> before_of(Path("photos.index")).name
    'photos.index.before'
    """
    return out.with_name(f"{out.name}.before")


@dataclass(frozen=True)
class _Items:
    """The data of the items of an index.

    Attributes
    ----------
    sources : list of (Dataset, str)
        Data sets, and the texts that name them.
    places : mapping of str to (int, int)
        For each item, by its name in the index: its data set, and its number there.
    """

    sources: list[tuple[Dataset, str]]
    places: Mapping[str, tuple[int, int]]

    def embedded(self, model: Model | None, names: Sequence[str], about: Mapping[str, str]) -> AnyArray:
        """Embed items (n, d), with the leading dimensions that the index keeps."""
        at = np.array([self.places[name] for name in names]).reshape(-1, 2)
        parts = []
        order = []
        for number in np.unique(at[:, 0]).tolist():
            rows = np.flatnonzero(at[:, 0] == number)
            (items, data) = self.sources[number]
            parts.append(np.asarray(embedded_by(model, items.subset(at[rows, 1]), data), dtype=np.float32))
            order.append(rows)
        return first_dims(np.concatenate(parts)[np.argsort(np.concatenate(order))], about)


def _items_of(
    store: Store,
    out: Path,
    model: Model | None,
    data: str | None,
    *,
    label: str | None = None,
    name: str | None = None,
    skip_bad: bool = False,
) -> _Items:
    """Open the data of an index, and find its items there by their names."""
    about = store.about
    home = base_folder_of(about, out)
    known = store.column("name").tolist()
    if data is None and not about.get("source"):
        raise ValueError(f"DATA: {shown(out)} was made of embeddings; name the items that {_called(model)} can embed")
    recorded = {} if data is not None else columns_by_source(about)
    sources = [data] if data is not None else _recorded_sources(about, out, home)
    found: list[tuple[Dataset, str]] = []
    places: dict[str, tuple[int, int]] = {}
    there = set(known)
    for source in sources:
        known_by = recorded.get(data_relative_to(source, home), {})
        columns = {"label": label or known_by.get("label"), "name": name or known_by.get("name")}
        if model is not None:
            columns = model.table_columns.read(source, **columns)
        items = open_for(model, source, **columns, skip_bad=skip_bad)
        called = names_relative_to_index(known, home, items, source)
        places |= {one: (len(found), row) for row, one in enumerate(called) if one in there}
        found.append((items, source))
    return _Items(found, places)


def _called(model: Model | None) -> str:
    return "nothing" if model is None else f"a model of {', '.join(model.takes)}"


def _recorded_sources(about: Mapping[str, str], out: Path, home: Path) -> list[str]:
    """Return the data from which an index was made.

    Whoever made the index chose them, so that only those below its folder and those of `images_from` are read.
    """
    below = FolderFiles(os.path.abspath(out.parent))
    found = []
    for source in source_archives(about):
        resolved = resolve_source(source, home)
        kind, _, inside = resolved.partition(":")
        place = inside if kind in ARCHIVES else resolved
        if os.path.lexists(place):  # a built-in set has no place
            try:
                below.path(os.path.abspath(place))
            except ValueError as error:
                name_it = f"name the data, as in `nearfar index {shown(out)} {quoted(place)[1:-1]} --upgrade RUN`"
                raise ValueError(f"DATA: {error}; {name_it}") from error
        found.append(resolved)
    return found


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Refuse what cannot be upgraded, and other processes that upgrade the same index."""
    if is_address(out):
        copied = f"copy it to a file (nearfar index {shown(out)!r} -o copy.index), upgrade that, and copy it back"
        raise ValueError(f"upgrade: {shown(out)} is in a server; {copied} with --overwrite")
    real = Path(os.path.realpath(out))
    if not real.exists():
        open_store(out)  # raises the error
    with ExitStack() as held:
        try:
            held.enter_context(locked(real.with_name(f".{real.name}.upgrade.lock")))
        except TimeoutError as error:
            raise TimeoutError(f"{shown(out)}: another process is upgrading it; stop that first") from error
        except OSError as error:
            raise OSError(f"{shown(out)}: cannot be written ({error.strerror or error})") from error
        yield


def _check_upgrade(store: Store, source: Path, model: Model | None) -> None:
    """Refuse to begin an upgrade during another one, and to continue it with another model."""
    about = store.about
    weights = "" if model is None else model.fingerprint
    same = about.get("weights") == weights and (model is not None or about.get("source") == "")
    if UPGRADED in about and not same:
        to = about.get("source") or "embeddings"
        raise ValueError(
            f"upgrade: {shown(store.uri)} was upgraded to {to}, with other weights than {source}; first end that with "
            "--finish, or go back with --undo"
        )
    if UPGRADED not in about and model is not None and same:
        raise ValueError(f"upgrade: {shown(store.uri)} was made by the model in {source}; there is nothing to upgrade")
    if UPGRADED not in about and MAPPED in store.columns():
        raise ValueError(f"upgrade: {shown(store.uri)} has a column {MAPPED!r}, which an upgrade needs; rename it")
    if store.count() == 0:
        raise ValueError(f"upgrade: {shown(store.uri)} has no items; make it again by the new model")


def _begin(
    store: Store,
    out: Path,
    source: Path,
    model: Model | None,
    items: _Items,
    data: str | None,
    columns: Mapping[str, str | None],
    *,
    distance: str | None,
    dims: int | None,
    waiting: Callable[[], None] | None,
) -> str:
    """Replace an index by one of a new model, in which most vectors are mapped; return what there is to say on it."""
    names = [name for name in store.column("name").tolist() if name in items.places]
    if len(names) > SAMPLE:
        chosen = np.sort(np.random.default_rng(0).choice(len(names), SAMPLE, replace=False))
        names = [names[row] for row in chosen.tolist()]
    missing = store.count() - len(items.places)
    if len(names) < FEWEST_ROWS and missing:
        few = f"only {len(names)} of {count_of(store.count(), 'item')} are in the data"
        raise ValueError(f"upgrade: {few}, and at least {FEWEST_ROWS} are needed; name the data that has them (DATA)")
    seen = store.get(names).embeddings
    kept_dims = {} if dims is None else {DIMS: str(dims)}
    with stage("embedding", len(names)) as done, Portion(done, len(names)) as portion, listening(portion):
        rows = items.embedded(model, names, kept_dims)
    # the dimensions and the threshold of the old model are not those of the new one
    about = {key: text for key, text in store.about.items() if key not in (DIMS, THRESHOLD)} | kept_dims
    if model is not None and data is not None:
        about |= about_data(about, data_relative_to(data, base_folder_of(about, out)), columns)
    about["source"] = "" if model is None else absolute(os.fspath(source))
    about["weights"] = "" if model is None else model.fingerprint
    about[UPGRADED] = store.about.get("source") or "embeddings"
    compared = distance_of(source, items.sources[0][0], distance, model)
    with index_lock.index_lock(out, wait=index_lock.WAIT, waiting=waiting):
        now = open_store(out, "w", lock=False)
        records = now.in_memory().records()
        changed, line = _with_new_vectors(records, now.distance, EmbeddedTwice(names, seen, rows), compared)
        _keep(now, out, records)
        _replace(out, changed, now, about, distance=compared)
    if THRESHOLD in store.about:
        line += "its threshold was for the old model, set another one; "
    return line


class EmbeddedTwice(NamedTuple):
    """Items by their names, as an index has embedded them (n, d), and as a new model does (n, e)."""

    names: Sequence[str]
    before: AnyArray
    after: AnyArray


def _with_new_vectors(records: Records, distance: str, sample: EmbeddedTwice, new_distance: str) -> tuple[Records, str]:
    """Return an index with vectors of a new model: those of a sample, and mapped ones. Also return a line on these."""
    place = {name: row for row, name in enumerate(records.names.tolist())}
    # items that others have removed or replaced meanwhile are left to the second part
    there: Ints = np.array([place.get(name, -1) for name in sample.names], dtype=np.int64)
    same = there >= 0
    same[same] = (records.embeddings[there[same]] == sample.before[same]).all(axis=1)
    line = ""
    if same.sum() == len(records):
        vectors = np.empty((len(records), sample.after.shape[1]), dtype=np.float32)
    else:
        found = fit_map(sample.before, sample.after, old_distance=distance, new_distance=new_distance)
        vectors = found.mapped(records.embeddings)
        line = f"mapped vectors have cosine {found.similarity:.3f} to those of the new model; "
    vectors[there[same]] = sample.after[same]
    mapped = np.ones(len(records))
    mapped[there[same]] = 0
    return replace(records, embeddings=vectors, columns={**records.columns, MAPPED: mapped}), line


def _keep(store: Store, out: Path, records: Records) -> None:
    """Write the former index beside it."""
    before = before_of(out)
    if isinstance(store, FileStore):
        with reading(store.path), atomic_path(before) as partial:
            shutil.copyfile(store.path, partial)
    else:
        new_file(before, records, distance=store.distance, engine="exact", about=store.about)


def _replace(out: Path, records: Records, store: Store, about: Mapping[str, str], *, distance: str = "") -> None:
    """Write an index in the place of another, wholly or not at all."""
    engine = store.engine() if isinstance(store, FileStore) else ""
    if engine == "graph":
        engine = "exact"
    create(out, records, distance=distance or store.distance, engine=engine, about=about, lock=False).close()


def _embed_waiting(out: Path, model: Model | None, items: _Items, waiting: Callable[[], None] | None) -> None:
    """Embed the items that have mapped vectors, block by block."""
    with open_store(out, lock=False) as store:
        about = store.about
        names = [name for name in store.column("name", WAITING).tolist() if name in items.places]
        size = max(ITEMS_OF_A_BLOCK, store.count() // MOST_BLOCKS)
    with stage("embedding", len(names)) as done:
        for start in range(0, len(names), size):
            block = names[start : start + size]
            with Portion(done, len(block)) as portion, listening(portion):
                rows = items.embedded(model, block, about)
            with index_lock.index_lock(out, wait=index_lock.WAIT, waiting=waiting):
                _write_block(out, about, block, rows)


def _write_block(out: Path, about: Mapping[str, str], names: Sequence[str], rows: AnyArray) -> None:
    """Replace the mapped vectors of some items; those that others have removed or replaced meanwhile stay so."""
    with open_store(out, "w", lock=False) as store:
        if any(store.about.get(key) != about[key] for key in ("weights", UPGRADED)):
            raise ValueError(f"upgrade: {shown(out)} was made again by another process meanwhile")
        records = store.get(names)
        rows_of = {name: row for row, name in enumerate(names)}
        vectors = rows[[rows_of[name] for name in records.names.tolist()]]
        left = np.flatnonzero(records.columns[MAPPED] == 1)
        if len(left):
            columns = {**records.columns, MAPPED: np.zeros(len(records))}
            store.add(replace(records, embeddings=vectors, columns=columns).pick(left))


def _progress_of(store: Store, out: Path) -> str:
    """Return how far an upgrade is."""
    count = store.count()
    left = store.column("name", WAITING).tolist()
    made = f"upgraded from {store.about[UPGRADED]} to {store.about.get('source') or 'embeddings'}"
    if not left:
        return (
            f"{made}: all {count_of(count, 'item')} embedded; --finish removes {before_of(out).name}, --undo goes back"
        )
    ways = "repeat the command with their data, or remove them; --undo goes back"
    return f"{made}: {count - len(left):,} of {count_of(count, 'item')} embedded, {_mapped(left)}; {ways}"


def _mapped(names: Collection[str]) -> str:
    return f"{len(names):,} with mapped vectors ({some([*names], 3)})"


def _former_of(store: Store, out: Path) -> Store:
    """Open the index from which an index was upgraded."""
    before = before_of(out)
    if UPGRADED not in store.about:
        raise ValueError(f"undo: {shown(out)} was not upgraded, or the upgrade is finished")
    if not before.exists():
        raise ValueError(f"undo: {before} is missing, which has the vectors of the old model")
    return open_store(before, lock=False)


def _embedded_as_before(store: Store, former: Store, out: Path, names: Sequence[str]) -> AnyArray:
    """Embed items that came since an upgrade by the model from which it was."""
    model = model_of(former)
    items = _items_of(store, out, model, None)
    missing = [name for name in names if name not in items.places]
    if missing or not former.about.get("source"):
        came = f"{count_of(len(names), 'item')} came since the upgrade"
        raise ValueError(f"undo: {came}, and {some(missing or [*names], 3)} cannot be embedded; remove them first")
    return items.embedded(model, names, former.about)


def _without(records: Records) -> Records:
    """Return records without the column of an upgrade."""
    return replace(records, columns={name: values for name, values in records.columns.items() if name != MAPPED})


def _in_order(records: Records, order: Mapping[str, int]) -> Records:
    """Return records in the order of the former index; later ones follow."""
    key = np.array([order.get(name, len(order)) for name in records.names.tolist()])
    return records.pick(np.argsort(key, kind="stable"))


def _same_items(now: Records, then: Records) -> bool:
    """Return whether an index has the items of the former one, with the same classes and columns."""
    order = {name: row for row, name in enumerate(then.names.tolist())}
    ordered = _in_order(_without(now), order)
    if ordered.names.tolist() != then.names.tolist() or ordered.columns.keys() != then.columns.keys():
        return False
    pairs: list[tuple[Any, Any]] = [(ordered.columns[name], values) for name, values in then.columns.items()]
    if then.labels is not None:
        pairs.append((ordered.labels, then.labels))
    return all(np.array_equal(left, right, equal_nan=left.dtype.kind == "f") for left, right in pairs)
