"""``nearfar index``: embeddings in a file that can be searched, grown and cut."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from cyclopts import Parameter

from ..io.uris import shown
from ..quoting import quoted
from ..trust import trusting
from .image_paths import about_home, data_from_home, form_in, forms_of, from_home, home_of, labels_of, sources_of
from .index_files import (
    DIMS,
    embedded_by,
    first_dims,
    items_of,
    named_by_paths,
    names_of,
    one_at_a_time,
    open_index,
    told_store,
    weights_of,
)
from .options import CHANGES, DATA, INDEX, Label, Out, SkipBad, Trust, check_out

if TYPE_CHECKING:
    from ..data import Dataset
    from ..index import Store
    from ..numerics.types import AnyArray


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
    dims: Annotated[int | None, Parameter(group=INDEX)] = None,
    label: Label = None,
    skip_bad: SkipBad = False,
    trust: Trust = (),
) -> None:
    """Embed data with a run or a learner, and save the embeddings as an index for `nearfar search`.

    Example: nearfar index runs/glyphs photos/ -o photos.index

    Parameters
    ----------
    source
        The folder of a run, a learner saved as .safetensors, or an .npz, .npy, .parquet or .csv of embeddings. Not
        needed to remove items only.
    data
        A folder, .zip or .tar of class folders, a .csv, .tsv, .jsonl or .parquet table, an .npz, an Omniglot .zip,
        "digits", "glyphs", or cub:PATH, cars:PATH, sop:PATH, inshop:PATH;
        or single images. Not with embeddings.
    out
        Where the index is kept: a file such as photos.index, for exact search; a folder such as photos.lance, a LanceDB
        table with an approximate index for many items (needs the extra lance); or http://HOST:19530/photos, a
        collection of a Milvus server (needs the extra store; the environment variable MILVUS_TOKEN holds its token).
    add
        Add to the index in OUT. Items whose name it already has are replaced; they keep their class if the new ones
        have none.
    new
        With --add, embed and add only items whose name the index does not have. A changed image is not new.
    remove
        Remove items from the index in OUT: one item by name, or all items of a folder or of a class. Repeat for
        several. With --add, items are removed before the new ones are added.
    engine
        For a file: exact (the default), or a faiss index such as HNSW32 or "IVF256,Flat;nprobe=16". For a folder: exact
        or ivf; for a server: exact or auto; by default exact below 100,000 items, and the other from there on. With
        --add, by default the engine of the index.
    columns
        Table with further columns, such as price and shop, for --where and --group-by of `nearfar search`. Its column
        `name`, or `path`, says which item a row describes.
    threshold
        Distance beyond which nothing is a match, stored with the index; `nearfar evaluate --protocol identification`
        measures it. May be given without SOURCE.
    dims
        Keep only this many leading dimensions, such as one of the lengths of Matryoshka; queries are truncated too.
    label
        Column of a table that holds the classes. By default `label`; in a table of numbers also `class`, `target`
        or `y`.
    skip_bad
        Skip images that cannot be decoded; their number is reported.
    trust
        Allow a run to import this module of yours, such as mynets; its code is executed. Repeat for several modules.
    """
    from ..index.stores import THRESHOLD
    from ..io.uris import is_address, is_folder

    if threshold is not None and not 0 <= threshold < inf:
        raise ValueError(f"--threshold: expected a distance of at least 0, got {threshold}")
    about = {} if threshold is None else {THRESHOLD: repr(threshold)}
    if dims is not None:
        if add or source is None:
            raise ValueError("--dims: only for a new index; with --add it is that of the index")
        about[DIMS] = str(dims)
    if source is None:
        alone = remove or threshold is not None
        if add or new or engine or label or skip_bad or columns or not alone:
            raise ValueError(
                "SOURCE: give a run, a learner or a file of embeddings; only --remove and --threshold take none"
            )
        with one_at_a_time(out):
            print(changed(out, remove, about))
        return
    if remove and not add:
        raise ValueError("--remove: with SOURCE also give --add, without which the whole index is made again")
    if new and not add:
        raise ValueError("--new: only with --add; without it the index is made again, of all items")
    how: dict[str, Any] = {"add": add, "new": new, "remove": remove, "engine": engine, "skip_bad": skip_bad}
    if not is_folder(out) and not is_address(out):
        check_out(out)
    with one_at_a_time(out), trusting(*trust):
        print(index_to(source, data, out, label=label, columns=columns, about=about, **how))


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
    columns: Path | None = None,
    about: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Build or extend an index; returns one line on what was written."""
    from ..index import create, records_of
    from .embedding import distance_of, is_embeddings, known_distance_of, left_out, refuse_data

    alone = is_embeddings(source)
    if alone:
        refuse_data(source, data)
        data = str(source)
    told = {"source": "", "weights": ""}
    if not alone:
        told = {"source": str(source.resolve()), "weights": weights_of(source)}
    old = index_to_extend(out, source, told["weights"], known_distance_of(source)) if add else None
    home = Path.cwd() if old is None else home_of(old.about, out)
    there = Present.of(old)
    gone = there.named_by(remove, home)
    there = there.without(gone)
    items = items_of(data, skip_bad, label)
    names = names_for(there.names if old is not None else None, home, items, str(data))
    known = 0
    if old is not None and new:
        items, names, known = new_among(items, names, there.names)
        if not names:
            if gone:
                old.remove(gone)
            if engine or about:
                old.change(engine=engine or "", about=about)
            return f"{shown(out)}: {told_store(old)}; nothing new{told_counts(known, len(gone))}{left_out(items)}"
    kept = about if old is None else old.about
    rows = first_dims(embedded_by(None if alone else source, items, Path(str(data))), kept)
    if DIMS in kept:
        told[DIMS] = kept[DIMS]
    told |= about_home(home, out)
    where = data_from_home(str(data), home)
    before = {} if old is None else old.about
    told["data"] = json.dumps([*dict.fromkeys([*sources_of(before), where])])
    labels = labels_of(before) | ({where: label} if label else {})
    told |= {"label": json.dumps(labels)} if labels else {}
    told |= about
    classes = [items.classes[label] for label in items.labels]
    more = {} if columns is None else columns_of(columns, names, home)
    if old is not None:
        more |= kept_columns(old, names, more)
    had = dict(zip(there.names, there.classes, strict=True))
    # an item that comes again without a class, as one image or a folder of loose ones does, keeps the one that it had
    records = records_of(
        rows, names, labels=[kind or had.get(name, "") for name, kind in zip(names, classes, strict=True)], columns=more
    )
    replaced = 0
    if old is None:
        store = create(out, records, distance=distance_of(source), engine=engine or "", about=told, lock=False)
    else:
        replaced = sum(name in had for name in names)
        store = old
        store.add(records, about=told, gone=gone, engine=engine or "")
    found = f"{len(rows):,} items embedded" + (f", {replaced:,} of them replaced" if replaced else "")
    return f"{shown(out)}: {told_store(store)}; {found}{told_counts(known, len(gone))}{left_out(items)}"


def told_counts(there: int, gone: int) -> str:
    """Say how many items the index had already, and how many it has lost, as the end of a line."""
    return (f"; {there:,} were there already" if there else "") + (f"; {gone:,} removed" if gone else "")


def index_to_extend(file: Path, source: Path, weights: str, distance: str) -> Store:
    """Open an index to which embeddings of a source are added, which must have made it with the same weights."""
    store = open_index(file, "w")
    if store.about.get("weights") != weights:
        raise ValueError(
            f"{shown(file)} was not made with the present weights of {source}; make the index again, without --add"
        )
    if distance and store.distance != distance:
        told = f"{shown(file)} compares by the {store.distance} distance, {source} by the {distance} one"
        raise ValueError(f"{told}; make the index again, without --add")
    return store


def names_for(known: Sequence[str] | None, home: Path, items: Dataset, data: str) -> list[str]:
    """Return the names of new items; those that are paths lead from the folder of the index that they join."""
    names = names_of(items, data)
    if known is None or not named_by_paths(items, data):
        return names
    return from_home(names, home, known)


def new_among(items: Dataset, names: list[str], there: Sequence[str]) -> tuple[Dataset, list[str], int]:
    """Return the items that an index has not, by name, with their names, and the number of those that it has."""
    known = set(there)
    places = [place for place, name in enumerate(names) if name not in known]
    return items.subset(places), [names[place] for place in places], len(names) - len(places)


def changed(out: Path, remove: Sequence[str], about: Mapping[str, str]) -> str:
    """Remove items from an index, or keep a threshold with it; returns one line on what was written."""
    store = open_index(out, "w")
    gone = Present.of(store).named_by(remove, home_of(store.about, out))
    if gone:
        store.remove(gone)
    if about:
        store.change(about=about)
    done = [f"{len(gone):,} items removed"] if remove else []
    done += [f"{key} {value}" for key, value in about.items()]
    return f"{shown(out)}: {told_store(store)}; {', '.join(done)}"


class Present(NamedTuple):
    """The names and the classes of the items that an index has."""

    names: list[str]
    classes: list[str]

    @classmethod
    def of(cls, store: Store | None) -> Present:
        """Read them; of no index there are none."""
        if store is None:
            return cls([], [])
        names = store.column("name").tolist()
        if "label" not in store.columns():
            return cls(names, [""] * len(names))
        return cls(names, [str(label) for label in store.column("label").tolist()])

    def without(self, gone: Collection[str]) -> Present:
        """Return the items but those of these names."""
        if not gone:
            return self
        left = set(gone)
        pairs = [pair for pair in zip(self.names, self.classes, strict=True) if pair[0] not in left]
        return Present([name for name, _ in pairs], [kind for _, kind in pairs])

    def named_by(self, words: Sequence[str], home: Path) -> list[str]:
        """Return the names of what each word names: an item, or else a folder, or else a class.

        Names and folders may also be paths from where the command runs; those of the index lead from `home`.

        Raises
        ------
        ValueError
            A word that is none of the three, or nothing would be left.
        """
        known = set(self.names)
        gone: dict[str, None] = {}
        here = Path.cwd()
        forms = forms_of(self.names, home) if words else {}
        for word in words:
            path = Path(word).as_posix()  # as names are written: without a slash at the end
            paths = (path, form_in(forms, path, home, here)) if word else (path,)
            found = [name for name in (word, *paths) if name in known][:1]
            found = found or [name for name in self.names if name.startswith(tuple(f"{path}/" for path in paths))]
            found = found or [
                name for name, kind in zip(self.names, self.classes, strict=True) if word and kind == word
            ]
            if not found:
                first = quoted(self.names[0])
                raise ValueError(
                    f"--remove: no item, folder or class is called {quoted(word)}; the first item is {first}"
                )
            gone.update(dict.fromkeys(found))
        if words and len(gone) == len(self.names):
            raise ValueError("--remove: nothing would be left in the index")
        return [*gone]


def kept_columns(old: Store, names: Sequence[str], more: Collection[str]) -> dict[str, AnyArray]:
    """Return the columns of items that come again, where nothing new is said of them."""
    from ..index.records import missing

    kinds = {name: kind for name, kind in old.columns().items() if name not in ("name", "label", *more)}
    there = old.get(names) if kinds else None
    if there is None or len(there) == 0:
        return {}
    rows = {name: row for row, name in enumerate(names)}
    places = [rows[name] for name in there.names.tolist()]
    found = {}
    for name, kind in kinds.items():
        values = missing(kind, len(names)).astype(there.columns[name].dtype)
        values[places] = there.columns[name]
        found[name] = values
    return found


def columns_of(table: Path, names: Sequence[str], home: Path) -> dict[str, AnyArray]:
    """Return more on items, from a table whose column `name`, or else `path`, says which item a row is of.

    Columns that a table of images has for other ends (label, split, group, a box) are left out.

    Raises
    ------
    ValueError
        The table has neither column, none of its rows is of an item, or it has nothing more on them.
    """
    from ..data.readers.manifest import ABOUT, EMBEDDING, LABELS, SIDES, read_columns
    from ..index.records import RESERVED, parsed_column

    cells = read_columns(table)
    key = next((name for name in ("name", "path") if name in cells), None)
    if key is None:
        raise ValueError(f"--columns: {table}: expected a column name or path, which say what item a row is of")
    if key == "name":
        rows = {str(name): row for row, name in enumerate(cells["name"])}
    else:
        here = Path.cwd()
        forms = forms_of(names, home)
        paths = [(table.parent / str(path)).as_posix() for path in cells["path"]]
        rows = {form_in(forms, path, home, here): row for row, path in enumerate(paths)}
    places = [rows.get(name) for name in names]
    if all(place is None for place in places):
        raise ValueError(
            f"--columns: {table}: none of its {len(rows):,} rows is of an item; the first is {quoted(names[0])}"
        )
    others = (*RESERVED, *ABOUT, *LABELS, *SIDES, "path", "")
    found = {
        name: parsed_column([None if place is None else values[place] for place in places])
        for name, values in cells.items()
        if name not in others and not EMBEDDING.fullmatch(name)
    }
    if not found:
        raise ValueError(f"--columns: {table}: has no column besides {', '.join(cells)}")
    return found
