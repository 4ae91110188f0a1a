"""Building of an index from a model and data, and changes of it; each returns one line on what was written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..data import Dataset
from ..data.dataset import some
from ..data.items import left_out
from ..data.located import Named, local_embeddings, local_source
from ..data.open import documents_of
from ..data.readers.crop_boxes import SIDES
from ..data.readers.ids import ids_of, is_id
from ..data.readers.manifest import ABOUT, LABELS, PART, read_columns
from ..extras import require
from ..io.atomic_files import check_folder_of
from ..io.formats import has_columns
from ..io.sources import MODELS, SourceKind, absolute, kind_by_name, kind_of
from ..io.uris import is_address, is_folder, shown
from ..models import Model, load
from ..models.embedded import distance_of, recorded_distance, refuse_data
from ..models.model import open_for, read_by
from ..numerics.types import AnyArray
from ..quoting import count_of, quoted
from . import index_lock
from .file_store import FileStore
from .frames import write_table
from .from_parts import create_from_parts, embedded_beside, is_read_in_blocks, remove_kept
from .paths import (
    GROUP,
    base_folder_metadata,
    base_folder_of,
    columns_by_source,
    data_relative_to,
    form_in,
    forms_of,
    source_archives,
)
from .records import RESERVED, Records, checked_embeddings, missing, parsed_column, records_of
from .searching import embedded_by, first_dims, has_same_content, names_relative_to_index
from .stores import DIMS, MAPPED, THRESHOLD, Store, check_settings, create, exists, open_store

DISPLAY_NAME = "display_name"
"""The column `name` of a table whose items are identified by another column."""


class Writing(NamedTuple):
    """How items are written to an index: arguments of `build`, and what is stored with the index."""

    add: bool
    new: bool
    remove: Sequence[str]
    engine: str
    skip_bad: bool
    label: str | None
    name: str | None
    columns: Path | None
    distance: str | None
    about: Mapping[str, str]


def build(
    source: str | os.PathLike[str] | None,
    data: Named | None,
    out: str | os.PathLike[str],
    *,
    add: bool = False,
    new: bool = False,
    remove: Sequence[str] = (),
    overwrite: bool = False,
    engine: str | None = None,
    columns: str | os.PathLike[str] | None = None,
    threshold: float | None = None,
    graph: bool = False,
    distance: str | None = None,
    dims: int | None = None,
    label: str | None = None,
    name: str | None = None,
    skip_bad: bool = False,
    waiting: Callable[[], None] | None = None,
) -> str:
    """Embed data and make an index of them, or change an index, as `nearfar index` does.

    Parameters
    ----------
    source : path or None
        A model, as for `nearfar.load`; a file of embeddings; an index, which is copied; or None, to change `out` only.
    data : str, path, datasets.Dataset or None
        The items, as for `nearfar.data.open_items`; None for a source that has its embeddings.
    out : path
        The index, as for `nearfar.index.open`.
    add, new, remove
        Add items to an index; only those with new names; and remove items, folders or classes by name.
    overwrite : bool
        Replace an existing index.
    engine : str, optional
        How the index is searched, as for `create`.
    columns : path, optional
        Table with further columns of the items.
    threshold : float, optional
        Maximum distance of a match, which is stored with the index.
    graph : bool
        Build the graph for approximate search of a file, again if there is one.
    distance : str, optional
        Distance by which items are compared. By default, that of the model.
    dims : int, optional
        Keep only this many leading dimensions.
    label, name, skip_bad
        As for `nearfar.data.open_items`. `name` is also the column of the table `columns` that names the items.
    waiting : callable, optional
        Called once if another process is changing the index.

    Returns
    -------
    str
        One line on what was written.

    Raises
    ------
    ValueError
        If arguments contradict each other, the index exists, or it was made by another model.
    FileNotFoundError
        If a source does not exist.
    """
    data = None if data is None else local_source(data)
    out = Path(out)
    columns = None if columns is None else Path(columns)
    engine = engine or ""
    about = stored_settings(threshold, dims, new_index=source is not None and not add)
    of_items: dict[str, object] = {"DATA": data, "add": add, "label": label, "skip_bad": skip_bad, "columns": columns}
    of_items |= {"dims": dims, "distance": distance}
    if out.suffix == ".parquet" and source is not None and kind_of(source) is SourceKind.INDEX:
        copied = Path(source)
        check_copied_as_it_is(copied, {**of_items, "engine": engine, "threshold": threshold}, only="overwrite= works")
        return copy_to_table(copied, out, overwrite=overwrite)
    if kind_by_name(out) is SourceKind.EMBEDDINGS:  # commands would read a file of this name as embeddings
        raise ValueError(f"out: {out}: is the name of a table or an array; expected one such as photos.index")
    if graph and (is_address(out) or is_folder(out)):
        raise ValueError(f"graph: {shown(out)} builds its own structures; it works only for a file")
    if source is None:
        alone = {
            "remove": [*remove] or None,
            "threshold": threshold,
            "engine": engine,
            "columns": columns,
            "graph": graph,
        }
        with_source = {"add": add, "new": new, "label": label, "skip_bad": skip_bad, "distance": distance}
        check_without_source(alone, with_source)
    else:
        source = local_embeddings(source)
        check_kind_of_change(add=add, new=new, remove=remove, overwrite=overwrite)
        check_settings(out, distance=distance, engine=engine)
        if not is_address(out):
            check_folder_of(out)
    with index_lock.index_lock(out, wait=index_lock.WAIT, waiting=waiting):
        if source is None:
            line = change_index(out, remove, about, engine=engine, columns=columns, name=name)
        elif not (add or overwrite) and exists(out):
            raise ValueError(f"out: {shown(out)} exists; add to it with add=True, or replace it with overwrite=True")
        elif kind_of(source) is SourceKind.INDEX:
            check_copied_as_it_is(source, of_items, only="engine=, threshold=, graph= and overwrite= work")
            line = copy_index(source, out, about, engine=engine)
        elif is_read_in_blocks(source, out, engine) and not (data or add or columns or skip_bad):
            line = new_from_parts(source, out, distance, about)
        else:
            how = Writing(add, new, remove, engine, skip_bad, label, name, columns, distance, about)
            line = write_items(source, data, out, how)
            remove_kept(source, out)
        return line + built_graph(out) if graph else line


def check_without_source(alone: Mapping[str, object], with_source: Mapping[str, object]) -> None:
    """Refuse a change without a source that needs one, or that changes nothing."""
    wrong = first_given(with_source)
    if wrong or not first_given(alone):
        what = f" with {wrong}=" if wrong else ""
        alone_too = "only remove=, threshold=, engine=, columns= and graph= work without it"
        raise ValueError(f"SOURCE: expected a run, a learner or embeddings{what}; {alone_too}")


def built_graph(out: Path) -> str:
    """Build the graph of an index in a file, and return the end of a line on it."""
    with open_store(out, "w", lock=False) as store:
        assert isinstance(store, FileStore)
        return f"; graph of {count_of(store.build(), 'item')} built"


def check_index(path: str | os.PathLike[str]) -> str:
    """Read all of an index in a file, as `nearfar index --check` does, and return one line on it.

    Raises
    ------
    ValueError
        If a part of it is not what was written.
    """
    with open_store(path) as store:
        if not isinstance(store, FileStore):
            raise ValueError(f"check: {shown(path)} is no file, and has no checksums of ours")
        return f"{shown(path)}: {store_summary(store)}; all {store.check():,} parts are as they were written"


def check_dims(dims: int, *, new_index: bool) -> None:
    """Refuse a number of leading dimensions that is not positive, or for an index that exists."""
    if not new_index:
        raise ValueError("dims: works only for a new index; with add=True, the index determines it")
    if dims < 1:
        raise ValueError(f"dims: expected 1 or more, got {dims}")


def check_kind_of_change(*, add: bool, new: bool, remove: Sequence[str], overwrite: bool) -> None:
    """Refuse options that only extend an index, or only replace it, where the other is asked for."""
    if remove and not add:
        raise ValueError("remove: with SOURCE, also give add=True; without it, the index is made again from all items")
    if new and not add:
        raise ValueError("new: works only with add=True; without it, the index is made again from all items")
    if overwrite and add:
        raise ValueError("overwrite: not with add=True, which keeps the items of the index")


def stored_settings(threshold: float | None, dims: int | None, *, new_index: bool) -> dict[str, str]:
    """Return what an index keeps of its threshold and its dimensions."""
    about: dict[str, str] = {}
    if threshold is not None:
        if not 0 <= threshold < inf:
            raise ValueError(f"threshold: expected a distance of at least 0, got {threshold}")
        about[THRESHOLD] = repr(threshold)
    if dims is not None:
        check_dims(dims, new_index=new_index)
        about[DIMS] = str(dims)
    return about


def first_given(options: Mapping[str, object]) -> str:
    """Return the name of the first option that is given, or ""."""
    return next((name for name, value in options.items() if value not in (None, "") and value is not False), "")


def check_copied_as_it_is(source: Path, others: Mapping[str, object], *, only: str) -> None:
    """Refuse to embed, label or cut the items of an index that is copied; `only` names the options that work."""
    wrong = first_given(others)
    if wrong:
        raise ValueError(f"{wrong}: {shown(source)}: an index is copied as it is; only {only} with it")


def opened_source(source: Path, data: str | None) -> tuple[Model | None, str, dict[str, str]]:
    """Return a model and its data, or None and a file of embeddings, and what an index keeps of the source."""
    if kind_of(source, *MODELS, SourceKind.EMBEDDINGS) is SourceKind.EMBEDDINGS:
        refuse_data(source, data)
        return None, str(source), {"source": "", "weights": ""}
    if not data:
        raise ValueError("DATA: expected the items to embed, for example a folder of images")
    model = load(source)
    return model, data, {"source": absolute(os.fspath(source)), "weights": model.fingerprint}


def write_items(source: Path, data: str | None, out: Path, how: Writing) -> str:
    """Embed items, and make an index of them or add them to one. Return one line on what was written."""
    model, data, source_about = opened_source(source, data)

    # the items of the index, and those of them that are removed
    old: Store | None = None
    home = Path.cwd()
    if how.add:
        old = index_to_extend(out, source, source_about["weights"], how.distance)
        home = base_folder_of(old.about, out)
    there = Present.of(old)
    gone = there.named_by(how.remove, home)
    there = there.without(gone)

    # the items that are added; beside data without columns, `name` is a column of the table `columns` alone
    name = how.name if how.columns is None or has_columns(data) else None
    read_as = read_by(model, data, how.label, name)
    items = documents_of(open_for(model, data, **read_as, skip_bad=how.skip_bad))
    names = names_relative_to_index(there.names if old is not None else None, home, items, data)
    if old is not None and items.unnamed:
        check_same_content(old, items, names, set(there.names), model, data)
    known = 0
    if old is not None and how.new:
        items, names, known = split_off_new(items, names, there.names)
        if not names:
            change_store(old, gone, engine=how.engine, about=how.about)
            return f"{shown(out)}: {store_summary(old)}; nothing new{counts_text(known, len(gone))}{left_out(items)}"
    # an item that is added again without a class, such as a single image, keeps its old class
    had = dict(zip(there.names, there.classes, strict=True))
    new_classes = [items.classes[number] for number in items.labels]
    classes = [kind or had.get(name, "") for name, kind in zip(names, new_classes, strict=True)]
    columns = columns_for(how.columns, items, old, names, home, how.name)
    # what is wrong with them is said before they are embedded, which may take hours
    described = records_of(np.zeros((len(names), 1)), names, labels=classes, columns=columns)

    old_about = {} if old is None else old.about
    dims_about = how.about if old is None else old_about
    rows = first_dims(embedded_beside(out, model, source, items, data), dims_about)
    records = replace(described, embeddings=checked_embeddings(rows))
    new_about = {
        **source_about,
        **base_folder_metadata(home, out),
        **about_data(old_about, data_relative_to(data, home), read_as),
    }
    if DIMS in dims_about:
        new_about[DIMS] = dims_about[DIMS]
    new_about |= how.about

    found = f"{count_of(len(rows), 'item')} embedded"
    if old is None:
        store = create(
            out,
            records,
            distance=distance_of(source, items, how.distance, model),
            engine=how.engine,
            about=new_about,
            lock=False,
        )
    else:
        store = old
        store.add(records, about=new_about, gone=gone, engine=how.engine)
        replaced = sum(name in had for name in names)
        if replaced:
            found += f", {replaced:,} of them replaced"
        found += without_columns_text(store, records, had)
    return f"{shown(out)}: {store_summary(store)}; {found}{counts_text(known, len(gone))}{left_out(items)}"


def new_from_parts(folder: Path, out: Path, distance: str | None, about: Mapping[str, str]) -> str:
    """Make an index of a folder of embeddings, and return one line on it."""
    home = Path.cwd()
    made = {"source": "", "weights": "", **base_folder_metadata(home, out)}
    about = {**made, **about_data({}, data_relative_to(str(folder), home), {}), **about}
    known = distance or recorded_distance(folder) or "cosine"
    store = create_from_parts(folder, out, distance=known, about=about)
    return f"{shown(out)}: {store_summary(store)}; {count_of(store.count(), 'item')} embedded"


def store_summary(store: Store) -> str:
    """Return one line on how many items an index has, and how they are searched."""
    return f"Index of {store.count():,} x {store.dimensions}, {store.distance}, engine {store.engine()}"


def change_store(store: Store, gone: Sequence[str], *, engine: str, about: Mapping[str, str]) -> None:
    """Remove items from an index, and change its engine and metadata; nothing is embedded."""
    if gone:
        store.remove(gone)
    if engine or about:
        store.change(engine=engine, about=about)


def about_data(old: Mapping[str, str], data: str, read_as: Mapping[str, str | None]) -> dict[str, str]:
    """Return the metadata of an index on its data, with one more source and the columns by which that one is read."""
    sources = dict.fromkeys([*source_archives(old), data])
    columns = columns_by_source(old)
    named = {role: column for role, column in read_as.items() if column}
    if named:
        columns = {**columns, data: named}
    found = {"data": json.dumps([*sources])}
    if columns:
        found["columns"] = json.dumps(columns)
    return found


def columns_for(
    table: Path | None, items: Dataset, old: Store | None, names: Sequence[str], home: Path, key: str | None
) -> dict[str, AnyArray]:
    """Return the columns of items: a table's, their groups, and the other columns of items that are added again."""
    found: dict[str, AnyArray] = {}
    if table is not None:
        found = columns_of(table, names, home, key)
    if items.groups is not None:
        found[GROUP] = items.groups
    if old is not None:
        found |= kept_columns(old, names, (*found, MAPPED))  # what is embedded now is not mapped
    return found


def without_columns_text(store: Store, records: Records, known: Collection[str]) -> str:
    """Return the end of a line, if items that are new in an index have no value in some of its columns."""
    new = [row for row, name in enumerate(records.names.tolist()) if name not in known]
    lacking = []
    for name in store.columns():
        if name in ("name", "label", MAPPED):
            continue
        values = records.columns[name][new].tolist() if name in records.columns else []
        if all(value != value or value == "" for value in values):  # NaN differs from itself
            lacking.append(name)
    if not new or not lacking:
        return ""
    verb = "lacks" if len(new) == 1 else "lack"
    return f"; {count_of(len(new), 'new item')} {verb} {', '.join(lacking)} (--columns adds them)"


def counts_text(there: int, gone: int) -> str:
    """Return the end of a line: how many items the index had already, and how many were removed."""
    text = ""
    if there:
        verb = "was" if there == 1 else "were"
        them = "it" if there == 1 else "them"
        text += f"; {there:,} {verb} there already (leave out --new to embed {them} again)"
    if gone:
        text += f"; {gone:,} removed"
    return text


def index_to_extend(file: Path, source: Path, weights: str, asked: str | None) -> Store:
    """Open an index to add embeddings to it; raise a ValueError if other weights, or for another distance, made it."""
    store = open_store(file, "w", lock=False)
    if store.about.get("weights") != weights:
        raise ValueError(
            f"{shown(file)} was not made with the current weights of {source}; "
            "make the index again, with overwrite=True instead of add=True"
        )
    again = "make the index again, with overwrite=True instead of add=True"
    if asked is not None and store.distance != asked:
        raise ValueError(f"distance: {shown(file)} uses the {store.distance} distance, not {asked}; {again}")
    if asked is None and not weights:  # the model that made the index uses the distance that was chosen then
        recorded = recorded_distance(source)
        if recorded not in ("", store.distance):
            both = f"{shown(file)} uses the {store.distance} distance, {source} uses the {recorded} distance"
            raise ValueError(f"{both}; {again}, or pass distance={store.distance}")
    return store


def check_same_content(
    store: Store, items: Dataset, names: Sequence[str], known: Collection[str], model: Model | None, data: str
) -> None:
    """Raise a ValueError if items without names of their own would replace others of an index.

    Items of another file, or of the file of another day, have the same positions.
    """
    places = [place for place, name in enumerate(names) if name in known]
    if not places:
        return
    there = items.subset(places)
    rows = first_dims(embedded_by(model, there, data), store.about)
    repeated = [names[place] for place in places]
    other = [name for name, same in zip(repeated, has_same_content(store, repeated, rows), strict=True) if not same]
    if other:
        made_of = "first words" if items.kind == "text" else "position in the file"
        raise ValueError(
            f"add: {count_of(len(other), 'new item')} would replace items with other content, because the names are "
            f"only the {made_of}, such as {quoted(other[0])}; name the items with name=COLUMN, or in a column `name` "
            "or `id` (the array `names` of an .npz)"
        )


def split_off_new(items: Dataset, names: list[str], there: Sequence[str]) -> tuple[Dataset, list[str], int]:
    """Return the items whose names are not in an index, their names, and how many of the items are in it."""
    known = set(there)
    places = [place for place, name in enumerate(names) if name not in known]
    return items.subset(places), [names[place] for place in places], len(names) - len(places)


def change_index(
    out: Path,
    remove: Sequence[str],
    about: Mapping[str, str],
    *,
    engine: str,
    columns: Path | None = None,
    name: str | None = None,
) -> str:
    """Remove items from an index, or change its columns, its threshold or its engine. Return one line on it."""
    store = open_store(out, "w", lock=False)
    home = base_folder_of(store.about, out)
    gone = Present.of(store).named_by(remove, home)
    changes = [f"{key} {value}" for key, value in about.items()]
    if columns is not None:
        described = with_columns(store, columns, gone, home, name)
        store.add(described, gone=gone, engine=engine, about=about)  # one change: all of it is written, or nothing
        changes.insert(0, f"columns of {count_of(len(described), 'item')} updated")
    else:
        change_store(store, gone, engine=engine, about=about)
    if remove:
        changes.insert(0, f"{count_of(len(gone), 'item')} removed")
    line = f"{shown(out)}: {store_summary(store)}"
    return f"{line}; {', '.join(changes)}" if changes else line


def copy_index(source: Path, out: Path, about: Mapping[str, str], *, engine: str) -> str:
    """Copy an index to another place or kind of storage; nothing is embedded. Return one line on it."""
    index = open_store(source, lock=False).in_memory()
    new_about = {**index.about, **about}
    if "folder" in index.about:
        new_about |= base_folder_metadata(base_folder_of(index.about, source), out)
    store = create(out, index.records(), distance=index.distance, engine=engine, about=new_about, lock=False)
    return f"{shown(out)}: {store_summary(store)}; copied from {shown(source)}"


def copy_to_table(source: Path, out: Path, *, overwrite: bool) -> str:
    """Copy an index into a Parquet file with its names, classes, columns and embeddings. Return one line on it."""
    if out.exists() and not overwrite:
        raise ValueError(f"out: {out} exists; replace it with overwrite=True")
    require("pyarrow")
    with open_store(source, lock=False) as store:
        count = write_table(store, out)
        columns = some([name for name in store.columns() if name != "name"] or ["no columns"], 10)
    return f"{out}: {count_of(count, 'item')} with {columns}; copied from {shown(source)}"


class Present(NamedTuple):
    """Names and classes of the items of an index."""

    names: list[str]
    classes: list[str]

    @classmethod
    def of(cls, store: Store | None) -> Present:
        """Read them from an index; None means no items."""
        if store is None:
            return cls([], [])
        names = store.column("name").tolist()
        if "label" not in store.columns():
            return cls(names, [""] * len(names))
        return cls(names, [str(label) for label in store.column("label").tolist()])

    def without(self, gone: Collection[str]) -> Present:
        """Return the items without those of these names."""
        if not gone:
            return self
        left = set(gone)
        pairs = [pair for pair in zip(self.names, self.classes, strict=True) if pair[0] not in left]
        return Present([name for name, _ in pairs], [kind for _, kind in pairs])

    def named_by(self, words: Sequence[str], home: Path) -> list[str]:
        """Return the names of the items that words refer to: each is the name of an item, else a folder, else a class.

        Names and folders may also be paths relative to the current folder; those of the index are relative to `home`.

        Raises
        ------
        ValueError
            If a word is none of the three.
        """
        known = set(self.names)
        gone: dict[str, None] = {}
        here = Path.cwd()
        forms = forms_of(self.names, home) if words else {}
        for word in words:
            path = Path(word).as_posix()  # without a slash at the end, as in names
            paths = (path, form_in(forms, path, home, here)) if word else (path,)
            found = [name for name in (word, *paths) if name in known][:1]
            if not found:
                folders = tuple(f"{path}/" for path in paths)
                found = [name for name in self.names if name.startswith(folders)]
            if not found and word:
                found = [name for name, kind in zip(self.names, self.classes, strict=True) if kind == word]
            if not found:
                first = f"the first item is {quoted(self.names[0])}" if self.names else "the index is empty"
                raise ValueError(f"remove: no item, folder or class is called {quoted(word)}; {first}")
            gone.update(dict.fromkeys(found))
        return [*gone]


def kept_columns(old: Store, names: Sequence[str], more: Collection[str]) -> dict[str, AnyArray]:
    """Return the old columns of items that are added again without new values."""
    kinds = {name: kind for name, kind in old.columns().items() if name not in ("name", "label", *more)}
    if not kinds:
        return {}
    there = old.get(names)
    if len(there) == 0:
        return {}
    rows = {name: row for row, name in enumerate(names)}
    places = [rows[name] for name in there.names.tolist()]
    found = {}
    for name, kind in kinds.items():
        values = missing(kind, len(names)).astype(there.columns[name].dtype)
        values[places] = there.columns[name]
        found[name] = values
    return found


def with_columns(store: Store, table: Path, gone: Sequence[str], home: Path, key: str | None) -> Records:
    """Return the items of an index that a table describes, but for some, with the columns of the table."""
    left = Present.of(store).without(gone).names
    _, places = rows_for(table, left, home, key)
    described = [name for name, place in zip(left, places, strict=True) if place is not None]
    columns = columns_of(table, described, home, key)
    items = store.get(described)
    return Records(items.names, items.embeddings, items.labels, {**items.columns, **columns})


def columns_of(table: Path, names: Sequence[str], home: Path, key: str | None = None) -> dict[str, AnyArray]:
    """Read columns for items from a table whose column `key` identifies the item of each row, as for `rows_for`.

    Columns with a special meaning in tables of images (label, split, group, crop box) are left out. Beside another
    `key`, a column `name` is kept as DISPLAY_NAME, because an index calls its items by `name`.

    Raises
    ------
    ValueError
        If the table has neither column, none of its rows describes an item, two different rows describe the same one,
        or it has no further column.
    """
    cells, places = rows_for(table, names, home, key)
    others = (*RESERVED, *ABOUT, *LABELS, *SIDES, "path", "", key)
    found = {}
    for name, values in cells.items():
        kept_as = name
        if name == "name" and key not in (None, "name") and DISPLAY_NAME not in cells:
            kept_as = DISPLAY_NAME
        if kept_as not in others and not PART.fullmatch(name):
            found[kept_as] = parsed_column([None if place is None else values[place] for place in places])
    if not found:
        known = [name for name in cells if not PART.fullmatch(name)]
        there = ", ".join(known) if len(known) == len(cells) else ", ".join([*known, "embedding"])
        raise ValueError(f"columns: {table}: expected further columns, got only {there}")
    return found


def rows_for(
    table: Path, names: Sequence[str], home: Path, key: str | None = None
) -> tuple[Mapping[str, Any], list[int | None]]:
    """Read a table whose column `key` identifies the item of each row.

    By default, that is `name` or `path`, or a column such as `id` whose cells are different.

    Returns
    -------
    cells : mapping of str to sequence
        The columns of the table.
    places : list of int or None
        The row that describes each item (n,), or None.
    """
    cells = read_columns(table)
    if key is not None and key not in cells:
        raise ValueError(f"name: {table}: has no column {quoted(key)}; it has {some([*cells])}")
    ids = [name for name, values in cells.items() if is_id(name) and ids_of(values) is not None]
    key = key or next((name for name in ("name", "path", *ids) if name in cells), None)
    if key is None:
        which = "which identifies the item of each row"
        raise ValueError(f"columns: {table}: expected a column name or path, {which}, or name=COLUMN")
    if key != "path":
        named = ids_of(cells[key]) or [str(name) for name in cells[key]]
    else:
        here = Path.cwd()
        forms = forms_of(names, home)
        paths = [(table.parent / str(path)).as_posix() for path in cells["path"]]
        named = [form_in(forms, path, home, here) for path in paths]
    rows: dict[str, int] = {}
    known = set(names)
    for row, name in enumerate(named):
        first = rows.setdefault(name, row)
        if first != row and name in known and any(str(values[first]) != str(values[row]) for values in cells.values()):
            twice = f"{quoted(name)} has two different rows, {first + 1} and {row + 1}"
            raise ValueError(f"columns: {table}: {twice}; expected one for each item, or another column as name=COLUMN")
    places = [rows.get(name) for name in names]
    if all(place is None for place in places):
        begins = f"its column {quoted(key)} begins with {quoted(named[0])}" if named else "it is empty"
        begin = f"the first item is {quoted(names[0])}" if names else "there is none"
        none = f"none of its {len(named):,} rows is for an item of the index: {begins}, and {begin}"
        raise ValueError(f"columns: {table}: {none}; name=COLUMN takes another column")
    return cells, places
