"""``nearfar index``: save embeddings in an index that can be searched, extended and reduced."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from cyclopts import Parameter

from ..io.untrusted import images_from
from ..io.uris import shown
from ..quoting import count_of, quoted
from ..trust import trusting
from .encoding import say
from .image_paths import (
    base_folder_metadata,
    base_folder_of,
    data_relative_to,
    form_in,
    forms_of,
    from_home,
    labels_of,
    source_archives,
)
from .index_files import (
    DIMS,
    GROUP,
    embed_items,
    first_dims,
    has_collection,
    index_lock,
    is_index,
    items_of,
    named_by_paths,
    names_of,
    open_index,
    store_summary,
    weights_of,
)
from .options import CHANGES, DATA, INDEX, RUN, DistanceName, ItemOptions, Out, Trust
from .outputs import check_out

if TYPE_CHECKING:
    from ..data import Dataset
    from ..index import Records, Store
    from ..numerics.types import AnyArray, Bools

SAME_CONTENT = 1e-4
"""Embeddings of one item in other batches, or read from a store, differ by at most this share of their length."""


def index(
    source: Path | None = None,
    data: str | None = None,
    *,
    out: Out,
    add: Annotated[bool, Parameter(group=CHANGES)] = False,
    new: Annotated[bool, Parameter(group=CHANGES)] = False,
    remove: Annotated[tuple[str, ...], Parameter(show_default=False, group=CHANGES)] = (),
    engine: Annotated[str | None, Parameter(group=INDEX)] = None,
    columns: Annotated[Path | None, Parameter(group=DATA)] = None,
    threshold: Annotated[float | None, Parameter(group=INDEX)] = None,
    distance: Annotated[DistanceName | None, Parameter(group=INDEX)] = None,
    dims: Annotated[int | None, Parameter(group=INDEX)] = None,
    items: ItemOptions = ItemOptions(),
    overwrite: Annotated[bool, Parameter(group=RUN)] = False,
    trust: Trust = (),
) -> None:
    """Embed data with a run or a learner, and save the embeddings as an index for `nearfar search`.

    Example: nearfar index runs/glyphs photos/ -o photos.index

    Parameters
    ----------
    source
        The folder of a run, a learner saved as .safetensors, or an .npz, .npy, .parquet or .csv of embeddings; or an
        index, which is copied to OUT, for example from a file to a LanceDB folder. Not needed if items are only
        removed.
    data
        A folder, .zip or .tar of class folders, a .csv, .tsv, .jsonl or .parquet table, an .npz, an Omniglot .zip,
        "digits", "glyphs", or cub:PATH, cars:PATH, sop:PATH, inshop:PATH;
        or single images. Leave it out if SOURCE is a file of embeddings.
    out
        Where to save the index: a file such as photos.index, for exact search; a folder such as photos.lance, a LanceDB
        table with an approximate index for many items (needs the extra lance); or http://HOST:19530/photos, a
        collection of a Milvus server (needs the extra store; the environment variable MILVUS_TOKEN holds its token).
    add
        Add items to the index in OUT. Items with the same name are replaced, unless their names are only their
        positions in a file. If a new item has no class, it keeps the class of the old one.
    new
        With --add, embed and add only items with new names. A changed image with the same name is not new.
    remove
        Remove items from the index in OUT: one item by name, or all items of a folder or of a class. Repeat for
        several. With --add, items are removed before the new ones are added.
    engine
        For a file: exact (the default), or a faiss index such as HNSW32 or "IVF256,Flat;nprobe=16". For a folder: exact
        or ivf. For a server: exact or auto. The default of these two is exact below 100,000 items, and ivf or auto from
        there on. With --add, the default is the engine of the index. SOURCE is not needed to change it.
    columns
        Table with further columns, such as price and shop, for --where and --group-by of `nearfar search`. Its column
        `name`, or `path`, or --name, says which item a row describes. Without SOURCE, it updates the columns of items
        that are in the index.
    threshold
        Maximum distance of a match, which is stored with the index; `nearfar evaluate --protocol identification`
        measures it. SOURCE is not needed to set it.
    distance
        Compare embeddings by this distance: cosine or euclidean. By default, that of the learner, cosine for runs and
        embeddings, and euclidean for tables with one column per measurement. With --add, that of the index.
    dims
        Keep only this many leading dimensions, such as one of the lengths of Matryoshka; queries are truncated, too.
    overwrite
        Replace an existing index in OUT. It stays complete until the new one is written.
    """
    from ..index.stores import THRESHOLD
    from ..io.uris import is_address, is_folder
    from .embedding import is_embeddings

    if threshold is not None and not 0 <= threshold < inf:
        raise ValueError(f"--threshold: expected a distance of at least 0, got {threshold}")
    about: dict[str, str] = {}
    if threshold is not None:
        about[THRESHOLD] = repr(threshold)
    if is_embeddings(out):  # the other commands would read a file of this name as embeddings
        raise ValueError(f"--out: {out}: is the name of a table or an array; expected one such as photos.index")
    if dims is not None:
        check_dims(dims, new_index=source is not None and not add)
        about[DIMS] = str(dims)
    if source is None:
        alone = remove or threshold is not None or engine or columns
        if add or new or items.label or items.skip_bad or distance or not alone:
            alone_too = "only --remove, --threshold, --engine and --columns work without it"
            raise ValueError(f"SOURCE: expected a run, a learner or embeddings; {alone_too}")
        with index_lock(out):
            say(changed(out, remove, about, engine=engine or "", columns=columns, name=items.name))
        return
    check_kind_of_change(add=add, new=new, remove=remove, overwrite=overwrite)
    how: dict[str, Any] = {"add": add, "new": new, "remove": remove, "engine": engine, "skip_bad": items.skip_bad}
    how["distance"] = distance
    if not is_folder(out) and not is_address(out):
        check_out(out)
    with index_lock(out), images_from(*items.images), trusting(*trust):
        if not (add or overwrite) and has_collection(out):
            raise ValueError(f"--out: {shown(out)} exists; add to it with --add, or replace it with --overwrite")
        if is_index(source):
            check_copied_as_it_is(source, [data, add, items.label, items.skip_bad, columns, dims, distance])
            say(copied(source, out, about, engine=engine or ""))
            return
        say(index_to(source, data, out, label=items.label, name=items.name, columns=columns, about=about, **how))


def check_dims(dims: int, *, new_index: bool) -> None:
    """Refuse a number of leading dimensions that is not positive, or for an index that exists."""
    if not new_index:
        raise ValueError("--dims: works only for a new index; with --add, the index determines it")
    if dims < 1:
        raise ValueError(f"--dims: expected 1 or more, got {dims}")


def check_kind_of_change(*, add: bool, new: bool, remove: Sequence[str], overwrite: bool) -> None:
    """Refuse options that only extend an index, or only replace it, where the other is asked for."""
    if remove and not add:
        raise ValueError("--remove: with SOURCE, also give --add; without it, the index is made again from all items")
    if new and not add:
        raise ValueError("--new: works only with --add; without it, the index is made again from all items")
    if overwrite and add:
        raise ValueError("--overwrite: not with --add, which keeps the items of the index")


def check_copied_as_it_is(source: Path, others: Sequence[object]) -> None:
    """Refuse to embed, label or cut the items of an index that is copied."""
    if any(value not in (None, False) for value in others):
        only = "an index is copied as it is; only --engine, --threshold and --overwrite work with it"
        raise ValueError(f"SOURCE: {shown(source)}: {only}")


def index_to(
    source: Path,
    data: str | None,
    out: Path,
    *,
    add: bool,
    new: bool = False,
    remove: Sequence[str] = (),
    engine: str | None,
    skip_bad: bool,
    label: str | None = None,
    name: str | None = None,
    columns: Path | None = None,
    distance: str | None = None,
    about: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Build or extend an index. Return one line on what was written."""
    from ..index import create, records_of
    from .embedding import distance_of, is_embeddings, left_out, refuse_data

    made_by: Path | None
    if is_embeddings(source):
        refuse_data(source, data)
        data = str(source)
        made_by = None
        source_about = {"source": "", "weights": ""}
    else:
        made_by = source
        source_about = {"source": str(source.resolve()), "weights": weights_of(source)}

    # the items of the index, and those of them that are removed
    old: Store | None = None
    home = Path.cwd()
    if add:
        old = index_to_extend(out, source, source_about["weights"], distance)
        home = base_folder_of(old.about, out)
    there = Present.of(old)
    gone = there.named_by(remove, home)
    there = there.without(gone)

    # the items that are added
    items = items_of(data, skip_bad, label, name)
    names = names_relative_to_index(there.names if old is not None else None, home, items, str(data))
    if old is not None and items.unnamed:
        check_same_content(old, items, names, set(there.names), made_by, Path(str(data)))
    known = 0
    if old is not None and new:
        items, names, known = split_off_new(items, names, there.names)
        if not names:
            change_store(old, gone, engine=engine or "", about=about)
            return f"{shown(out)}: {store_summary(old)}; nothing new{counts_text(known, len(gone))}{left_out(items)}"
    old_about = {} if old is None else old.about
    dims_about = about if old is None else old_about
    rows = first_dims(embed_items(made_by, items, Path(str(data))), dims_about)

    new_about = {
        **source_about,
        **base_folder_metadata(home, out),
        **about_data(old_about, data_relative_to(str(data), home), label),
    }
    if DIMS in dims_about:
        new_about[DIMS] = dims_about[DIMS]
    new_about |= about
    # an item that is added again without a class, such as a single image, keeps its old class
    had = dict(zip(there.names, there.classes, strict=True))
    new_classes = [items.classes[number] for number in items.labels]
    classes = [kind or had.get(name, "") for name, kind in zip(names, new_classes, strict=True)]
    records = records_of(rows, names, labels=classes, columns=columns_for(columns, items, old, names, home, name))

    found = f"{count_of(len(rows), 'item')} embedded"
    if old is None:
        store = create(
            out,
            records,
            distance=distance_of(source, items, distance),
            engine=engine or "",
            about=new_about,
            lock=False,
        )
    else:
        store = old
        store.add(records, about=new_about, gone=gone, engine=engine or "")
        replaced = sum(name in had for name in names)
        if replaced:
            found += f", {replaced:,} of them replaced"
        found += without_columns_text(store, records, had)
    return f"{shown(out)}: {store_summary(store)}; {found}{counts_text(known, len(gone))}{left_out(items)}"


def change_store(store: Store, gone: Sequence[str], *, engine: str, about: Mapping[str, str]) -> None:
    """Remove items from an index, and change its engine and metadata; nothing is embedded."""
    if gone:
        store.remove(gone)
    if engine or about:
        store.change(engine=engine, about=about)


def about_data(old: Mapping[str, str], data: str, label: str | None) -> dict[str, str]:
    """Return the metadata of an index on its data, with one more source and the column of that source's labels."""
    sources = dict.fromkeys([*source_archives(old), data])
    labels = labels_of(old)
    if label:
        labels = {**labels, data: label}
    found = {"data": json.dumps([*sources])}
    if labels:
        found["label"] = json.dumps(labels)
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
        found |= kept_columns(old, names, found)
    return found


def without_columns_text(store: Store, records: Records, known: Collection[str]) -> str:
    """Return the end of a line, if items that are new in an index have no value in some of its columns."""
    new = [row for row, name in enumerate(records.names.tolist()) if name not in known]
    lacking = []
    for name in store.columns():
        if name in ("name", "label"):
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
        text += f"; {there:,} were there already"
    if gone:
        text += f"; {gone:,} removed"
    return text


def index_to_extend(file: Path, source: Path, weights: str, asked: str | None) -> Store:
    """Open an index to add embeddings to it; raise a ValueError if other weights, or for another distance, made it."""
    from .embedding import known_distance_of

    store = open_index(file, "w")
    if store.about.get("weights") != weights:
        raise ValueError(
            f"{shown(file)} was not made with the current weights of {source}; "
            "make the index again, with --overwrite instead of --add"
        )
    again = "make the index again, with --overwrite instead of --add"
    if asked is not None and store.distance != asked:
        raise ValueError(f"--distance: {shown(file)} uses the {store.distance} distance, not {asked}; {again}")
    if asked is None and not weights:  # the model that made the index uses the distance that was chosen then
        recorded = known_distance_of(source)
        if recorded not in ("", store.distance):
            both = f"{shown(file)} uses the {store.distance} distance, {source} uses the {recorded} distance"
            raise ValueError(f"{both}; {again}, or pass --distance {store.distance}")
    return store


def names_relative_to_index(known: Sequence[str] | None, home: Path, items: Dataset, data: str) -> list[str]:
    """Return the names of new items; paths are relative to the folder of the index."""
    names = names_of(items, data)
    if known is None or not named_by_paths(items, data):
        return names
    return from_home(names, home, known)


def check_same_content(
    store: Store, items: Dataset, names: Sequence[str], known: Collection[str], made_by: Path | None, data: Path
) -> None:
    """Raise a ValueError if items without names of their own would replace others of an index.

    Items of another file, or of the file of another day, have the same positions.
    """
    places = [place for place, name in enumerate(names) if name in known]
    if not places:
        return
    there = items.subset(places)
    rows = first_dims(embed_items(made_by, there, data), store.about)
    repeated = [names[place] for place in places]
    other = [name for name, same in zip(repeated, has_same_content(store, repeated, rows), strict=True) if not same]
    if other:
        made_of = "first words" if items.kind == "text" else "position in the file"
        raise ValueError(
            f"--add: {count_of(len(other), 'new item')} would replace items with other content, because the names are "
            f"only the {made_of}, such as {quoted(other[0])}; name the items with --name COLUMN, or in a column `name` "
            "or `id` (the array `names` of an .npz)"
        )


def has_same_content(store: Store, names: Sequence[str], rows: AnyArray) -> Bools:
    """Return whether the items of an index with these names have the embeddings (n, d), up to rounding; (n,)."""
    import numpy as np

    there = store.get([*dict.fromkeys(names)])
    if len(there) == 0:
        return np.zeros(len(rows), dtype=bool)
    places = {name: place for place, name in enumerate(there.names.tolist())}
    found = np.array([places.get(name, -1) for name in names])  # (n,)
    difference = np.linalg.norm(rows - there.embeddings[found], axis=1)
    return (found >= 0) & (difference <= SAME_CONTENT * np.linalg.norm(rows, axis=1))


def split_off_new(items: Dataset, names: list[str], there: Sequence[str]) -> tuple[Dataset, list[str], int]:
    """Return the items whose names are not in an index, their names, and how many of the items are in it."""
    known = set(there)
    places = [place for place, name in enumerate(names) if name not in known]
    return items.subset(places), [names[place] for place in places], len(names) - len(places)


def changed(
    out: Path,
    remove: Sequence[str],
    about: Mapping[str, str],
    *,
    engine: str,
    columns: Path | None = None,
    name: str | None = None,
) -> str:
    """Remove items from an index, or change its columns, its threshold or its engine. Return one line on it."""
    store = open_index(out, "w")
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
    return "; ".join([f"{shown(out)}: {store_summary(store)}", *([", ".join(changes)] if changes else [])])


def copied(source: Path, out: Path, about: Mapping[str, str], *, engine: str) -> str:
    """Copy an index to another place or kind of storage; nothing is embedded. Return one line on it."""
    from ..index import create

    index = open_index(source).in_memory()
    new_about = {**index.about, **about}
    if "folder" in index.about:
        new_about |= base_folder_metadata(base_folder_of(index.about, source), out)
    store = create(out, index.records(), distance=index.distance, engine=engine, about=new_about, lock=False)
    return f"{shown(out)}: {store_summary(store)}; copied from {shown(source)}"


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
                raise ValueError(f"--remove: no item, folder or class is called {quoted(word)}; {first}")
            gone.update(dict.fromkeys(found))
        return [*gone]


def kept_columns(old: Store, names: Sequence[str], more: Collection[str]) -> dict[str, AnyArray]:
    """Return the old columns of items that are added again without new values."""
    from ..index.records import missing

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
    from ..index import Records

    left = Present.of(store).without(gone).names
    _, places = rows_for(table, left, home, key)
    described = [name for name, place in zip(left, places, strict=True) if place is not None]
    columns = columns_of(table, described, home, key)
    items = store.get(described)
    return Records(items.names, items.embeddings, items.labels, {**items.columns, **columns})


def columns_of(table: Path, names: Sequence[str], home: Path, key: str | None = None) -> dict[str, AnyArray]:
    """Read columns for items from a table whose column `key` identifies the item of each row, as for `rows_for`.

    Columns with a special meaning in tables of images (label, split, group, crop box) are left out.

    Raises
    ------
    ValueError
        If the table has neither column, none of its rows describes an item, or it has no further column.
    """
    from ..data.readers.manifest import ABOUT, LABELS, PART, SIDES
    from ..index.records import RESERVED, parsed_column

    cells, places = rows_for(table, names, home, key)
    others = (*RESERVED, *ABOUT, *LABELS, *SIDES, "path", "", key)
    found = {}
    for name, values in cells.items():
        if name not in others and not PART.fullmatch(name):
            found[name] = parsed_column([None if place is None else values[place] for place in places])
    if not found:
        raise ValueError(f"--columns: {table}: expected further columns, got only {', '.join(cells)}")
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
    from ..data.dataset import some
    from ..data.readers.ids import ids_of, is_id
    from ..data.readers.manifest import read_columns

    cells = read_columns(table)
    if key is not None and key not in cells:
        raise ValueError(f"--name: {table}: has no column {quoted(key)}; it has {some([*cells])}")
    ids = [name for name, values in cells.items() if is_id(name) and ids_of(values) is not None]
    key = key or next((name for name in ("name", "path", *ids) if name in cells), None)
    if key is None:
        which = "which identifies the item of each row"
        raise ValueError(f"--columns: {table}: expected a column name or path, {which}, or --name COLUMN")
    if key != "path":
        named = ids_of(cells[key]) or [str(name) for name in cells[key]]
        rows = {name: row for row, name in enumerate(named)}
    else:
        here = Path.cwd()
        forms = forms_of(names, home)
        paths = [(table.parent / str(path)).as_posix() for path in cells["path"]]
        rows = {form_in(forms, path, home, here): row for row, path in enumerate(paths)}
    places = [rows.get(name) for name in names]
    if all(place is None for place in places):
        first = f"the first item is {quoted(names[0])}" if names else "there is none"
        raise ValueError(f"--columns: {table}: none of its {len(rows):,} rows is for an item of the index; {first}")
    return cells, places
