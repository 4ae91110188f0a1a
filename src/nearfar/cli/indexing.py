"""``nearfar index``: save embeddings in an index that can be searched, extended and reduced."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from ..io.sources import SourceKind, kind_by_name, kind_of
from ..io.untrusted import images_from
from ..io.uris import is_address, is_folder, shown
from ..trust import trusting
from .encoding import say
from .options import CHANGES, DATA, INDEX, RUN, DistanceName, ItemOptions, Out, Trust
from .outputs import check_out


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
    from ..index import building
    from ..index.stores import DIMS, THRESHOLD, exists

    if threshold is not None and not 0 <= threshold < inf:
        raise ValueError(f"--threshold: expected a distance of at least 0, got {threshold}")
    about: dict[str, str] = {}
    if threshold is not None:
        about[THRESHOLD] = repr(threshold)
    if kind_by_name(out) is SourceKind.EMBEDDINGS:  # the other commands would read a file of this name as embeddings
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
            say(building.change_index(out, remove, about, engine=engine or "", columns=columns, name=items.name))
        return
    check_kind_of_change(add=add, new=new, remove=remove, overwrite=overwrite)
    how: dict[str, Any] = {"add": add, "new": new, "remove": remove, "engine": engine, "skip_bad": items.skip_bad}
    how["distance"] = distance
    if not is_folder(out) and not is_address(out):
        check_out(out)
    with index_lock(out), images_from(*items.images), trusting(*trust):
        if not (add or overwrite) and exists(out):
            raise ValueError(f"--out: {shown(out)} exists; add to it with --add, or replace it with --overwrite")
        if kind_of(source) is SourceKind.INDEX:
            check_copied_as_it_is(source, [data, add, items.label, items.skip_bad, columns, dims, distance])
            say(building.copy_index(source, out, about, engine=engine or ""))
            return
        say(building.build(source, data, out, label=items.label, name=items.name, columns=columns, about=about, **how))


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


@contextmanager
def index_lock(file: Path) -> Iterator[None]:
    """Lock an index from before it is read until it is written; print a line if another process has the lock."""
    from ..index import index_lock as changes

    def wait() -> None:
        if sys.stderr is not None:
            say(f"nearfar: {shown(file)}: waiting for another process that is changing it", file=sys.stderr)

    with changes.index_lock(file, wait=changes.WAIT, waiting=wait):
        yield
