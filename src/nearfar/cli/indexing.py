"""``nearfar index``: embeddings in a file that can be searched, grown and cut."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ..quoting import quoted
from ..trust import trusting
from .image_paths import about_home, data_from_home, form_in, forms_of, from_home, home_of, labels_of, sources_of
from .index_files import (
    embedded_by,
    items_of,
    load_index,
    named_by_paths,
    names_of,
    one_at_a_time,
    weights_of,
)
from .options import Trust, check_out
from .search_results import classes_of

if TYPE_CHECKING:
    from ..data import Dataset
    from ..index import Index


def index(
    source: Path | None = None,
    data: str | None = None,
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    add: bool = False,
    new: bool = False,
    remove: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    engine: str | None = None,
    label: str | None = None,
    skip_bad: bool = False,
    trust: Trust = (),
) -> None:
    """Embed data with a run or a learner, and keep the embeddings in a file that can be searched.

    Example: nearfar index runs/glyphs photos/ -o photos.index

    Parameters
    ----------
    source
        The folder of a run, a learner saved as .safetensors, or an .npz, .npy, .parquet or .csv of embeddings. To
        remove only, none.
    data
        As for train; also loose images. Not with embeddings.
    out
        The file of the index.
    add
        Add to the index in OUT; items that it has already, by name, are replaced, and keep their class where they come
        without one.
    new
        With --add, embed and add only items that the index has not, by name. An image that has changed is not new.
    remove
        Remove from the index in OUT: an item by its name, or all items of a folder or of a class. Repeat for several;
        with SOURCE only beside --add, which comes after it.
    engine
        exact, or a recipe of faiss such as HNSW32 or "IVF256,Flat;nprobe=16"; where not given, exact, or with --add
        that of the index.
    label
        The column of the classes in a table, as for train.
    skip_bad
        Leave out images that cannot be decoded, and count them.
    trust
        Modules of your own that the settings of a run may name, such as mynets: their code runs. Repeat for several.
    """
    if source is None:
        if add or new or engine or label or skip_bad or not remove:
            raise ValueError("SOURCE: give a run, a learner or a file of embeddings; only --remove alone takes none")
        with one_at_a_time(out):
            print(removed_from(out, remove))
        return
    if remove and not add:
        raise ValueError("--remove: with SOURCE also give --add, without which the index is made anew")
    if new and not add:
        raise ValueError("--new: only with --add; without it the index is made anew of all items")
    how: dict[str, Any] = {"add": add, "new": new, "remove": remove, "engine": engine, "skip_bad": skip_bad}
    check_out(out)
    with one_at_a_time(out), trusting(*trust):
        print(index_to(source, data, out, label=label, **how))


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
) -> str:
    """Build or extend an index; returns one line on what was written."""
    from ..index import Index
    from .embedding import distance_of, is_embeddings, left_out, refuse_data

    alone = is_embeddings(source)
    if alone:
        refuse_data(source, data)
        data = str(source)
    about = {"source": "", "weights": ""}
    if not alone:
        about = {"source": str(source.resolve()), "weights": weights_of(source)}
    old = index_to_extend(out, source, about["weights"]) if add else None
    home = Path.cwd() if old is None else home_of(old, out)
    gone = 0 if old is None else shorten(old, remove, home)
    items = items_of(data, skip_bad, label)
    names = names_for(old, home, items, str(data))
    there = 0
    if old is not None and new:
        items, names, there = new_among(items, names, old)
        if not names:
            if engine:
                old.engine = engine
                check_engine(old)
            old.save(out)  # it may have lost items
            return f"{out}: {old!r}; nothing new{told_counts(there, gone)}{left_out(items)}"
    rows = embedded_by(None if alone else source, items, Path(str(data)))
    about |= about_home(home, out)
    told = data_from_home(str(data), home)
    about["data"] = told_sources(old, told)
    labels = ({} if old is None else labels_of(old)) | ({told: label} if label else {})
    about |= {"label": json.dumps(labels)} if labels else {}
    index = Index(
        rows,
        names=names,
        labels=[items.classes[label] for label in items.labels],
        distance=distance_of(source),
        engine=engine or ("exact" if old is None else old.engine),
        about=about,
    )
    replaced = 0
    if old is not None:
        index, replaced = extended(old, index)
    check_engine(index)
    index.save(out)
    found = f"{len(rows):,} items embedded" + (f", {replaced:,} of them replaced" if replaced else "")
    return f"{out}: {index!r}; {found}{told_counts(there, gone)}{left_out(items)}"


def check_engine(index: Index) -> None:
    """Search once: an engine that does not work says so before the file is written."""
    if index.engine != "exact":
        index.search(index.embeddings[:1], k=1)


def told_counts(there: int, gone: int) -> str:
    """Say how many items the index had already, and how many it has lost, as the end of a line."""
    return (f"; {there:,} were there already" if there else "") + (f"; {gone:,} removed" if gone else "")


def index_to_extend(file: Path, source: Path, weights: str) -> Index:
    """Read an index to which embeddings of a source are added, which must have made it with the same weights."""
    index = load_index(file)
    if index.about.get("weights") != weights:
        raise ValueError(f"{file} was not made with the present weights of {source}; index anew, without --add")
    return index


def names_for(old: Index | None, home: Path, items: Dataset, data: str) -> list[str]:
    """Return the names of new items; those that are paths lead from the folder of the index that they join."""
    names = names_of(items, data)
    if old is None or not named_by_paths(items, data):
        return names
    return from_home(names, home, old.names.tolist())


def new_among(items: Dataset, names: list[str], old: Index) -> tuple[Dataset, list[str], int]:
    """Return the items that an index has not, by name, with their names, and the number of those that it has."""
    known = set(old.names.tolist())
    places = [place for place, name in enumerate(names) if name not in known]
    return items.subset(places), [names[place] for place in places], len(names) - len(places)


def told_sources(old: Index | None, data: str) -> str:
    """Return the DATA of an index, each once, as the text in which it remembers them."""
    before = [] if old is None else sources_of(old)
    return json.dumps([*dict.fromkeys([*before, data])])


def removed_from(out: Path, remove: Sequence[str]) -> str:
    """Remove items from an index; returns one line on what was written."""
    index = load_index(out)
    gone = shorten(index, remove, home_of(index, out))
    index.save(out)
    return f"{out}: {index!r}; {gone:,} items removed"


def shorten(index: Index, remove: Sequence[str], home: Path) -> int:
    """Remove what each word names, an item, or else a folder, or else a class; return how many items are gone.

    Names and folders may also be paths from where the command runs; those of the index lead from `home`.

    Raises
    ------
    ValueError
        A word that is none of the three, or nothing would be left.
    """
    names = index.names.tolist()
    labels = classes_of(index)
    known = set(names)
    gone = set[str]()
    here = Path.cwd()
    forms = forms_of(names, home) if remove else {}
    for word in remove:
        path = Path(word).as_posix()  # as names are written: without a slash at the end
        paths = (path, form_in(forms, path, home, here)) if word else (path,)
        found = [name for name in (word, *paths) if name in known][:1]
        found = found or [name for name in names if name.startswith(tuple(f"{path}/" for path in paths))]
        found = found or [name for name, label in zip(names, labels, strict=True) if word and label == word]
        if not found:
            raise ValueError(
                f"--remove: no item, folder or class is called {quoted(word)}; the first item is {quoted(names[0])}"
            )
        gone.update(found)
    if len(gone) == len(index):
        raise ValueError("--remove: nothing would be left in the index")
    if gone:
        index.remove(gone)
    return len(gone)


def extended(old: Index, new: Index) -> tuple[Index, int]:
    """Put the new items into the old index, and return it with the number of items that they replaced by name.

    An item that comes again without a class, as one image or a folder of loose ones does, keeps the class that it had.
    """
    import numpy as np

    again = np.intersect1d(old.names, new.names)
    had = dict(zip(old.names.tolist(), classes_of(old), strict=True))
    new.labels = np.array([label or had.get(name, "") for name, label in zip(new.names, classes_of(new), strict=True)])
    if len(again) == len(old):
        return new, len(again)
    old.engine = new.engine
    old.about = new.about
    if len(again):
        old.remove(again)
    old.add(new.embeddings, names=new.names, labels=new.labels)
    return old, len(again)
