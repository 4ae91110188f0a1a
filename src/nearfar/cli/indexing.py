"""``nearfar index``: save embeddings in an index that can be searched, extended and reduced."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ..io.formats import accepted
from ..io.untrusted import images_from
from ..io.uris import is_address, is_folder, shown
from ..quoting import quoted
from ..trust import trusting
from .encoding import say
from .options import CHANGES, DATA, INDEX, RUN, UPGRADE, DistanceName, ItemOptions, Trust
from .outputs import check_out


def index(
    source: Path | None = None,
    data: Annotated[
        str | None,
        Parameter(help=f"Items: {accepted()}; or single images. Leave it out if SOURCE has embeddings."),
    ] = None,
    *,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"], group=RUN)] = None,
    add: Annotated[bool, Parameter(group=CHANGES)] = False,
    new: Annotated[bool, Parameter(group=CHANGES)] = False,
    remove: Annotated[tuple[str, ...], Parameter(show_default=False, group=CHANGES)] = (),
    engine: Annotated[str | None, Parameter(group=INDEX)] = None,
    columns: Annotated[Path | None, Parameter(group=DATA)] = None,
    threshold: Annotated[float | None, Parameter(group=INDEX)] = None,
    graph: Annotated[bool, Parameter(name="--build", group=INDEX)] = False,
    check: Annotated[bool, Parameter(group=INDEX)] = False,
    upgrade: Annotated[Path | None, Parameter(group=UPGRADE)] = None,
    status: Annotated[bool, Parameter(group=UPGRADE)] = False,
    undo: Annotated[bool, Parameter(group=UPGRADE)] = False,
    finish: Annotated[bool, Parameter(group=UPGRADE)] = False,
    distance: Annotated[DistanceName | None, Parameter(group=INDEX)] = None,
    dims: Annotated[int | None, Parameter(group=INDEX)] = None,
    items: ItemOptions = ItemOptions(),
    overwrite: Annotated[bool, Parameter(group=RUN)] = False,
    trust: Trust = (),
) -> None:
    """Embed data with a run or a learner, and save the embeddings as an index for `nearfar search`.

    After a kill, the same command continues with what it has embedded, if there are more than 10,000 items.

    Example: nearfar index runs/glyphs photos/ -o photos.index

    Parameters
    ----------
    source
        The folder of a run, a learner saved as .safetensors, a pretrained encoder such as timm:NAME or
        transformers:FOLDER, or an .npz, .npy, .parquet, .csv or a folder of embeddings; or an index, which is copied to
        OUT, for example from a file to a LanceDB folder, or to a .parquet for other programs. Not needed if items are
        only removed.
    out
        Where to save the index: a file such as photos.index, for exact search; a folder such as photos.lance, a LanceDB
        table with an approximate index for many items (needs the extra lance); http://HOST:19530/photos, a collection
        of a Milvus server (needs the extra store; the environment variable MILVUS_TOKEN holds its token); or
        'postgresql://USER@HOST/DATABASE#photos', a table of PostgreSQL with pgvector (needs the extra postgres; the
        password is taken from PGPASSWORD or ~/.pgpass). A table that is there already is used, too:
        'postgresql://HOST/DATABASE#products?id=sku&vector=embedding'.
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
        or ivf. For Milvus: exact or auto. For PostgreSQL: exact or hnsw. The default of these three is exact below
        100,000 items, and ivf, auto or hnsw from there on. With --add, the default is the engine of the index. SOURCE
        is not needed to change it.
    columns
        Table with further columns, such as price and shop, for --where and --group-by of `nearfar search`. Its column
        `name`, or `path`, or --name, says which item a row describes. Without SOURCE, it updates the columns of items
        that are in the index.
    threshold
        Maximum distance of a match, which is stored with the index; `nearfar evaluate --protocol identification`
        measures it. SOURCE is not needed to set it.
    graph
        Build a graph beside the file in OUT (photos.index.graph), by which `nearfar search` finds the nearest of many
        items approximately and soon (needs the extra ann). It stays as it is while items are added and removed; build
        it again after many changes. A file of which a tenth or more is of removed items is also written again without
        them. SOURCE is not needed. Delete the graph to search exactly.
    check
        Read all of the index in SOURCE (or in OUT), and report whether a part of it is damaged. Nothing is changed.
    upgrade
        A new run, learner or encoder, or embeddings by one, for the index in SOURCE: nearfar index photos.index
        --upgrade runs/new. At first, old vectors are mapped to those of the new model, so that queries are embedded by
        it at once; then all items are embedded again. Searches and changes go on meanwhile. After a kill, the same
        command continues. DATA names the items, if they are not where the index was made of them. Not for servers.
    status
        Print how far the upgrade of the index in SOURCE is.
    undo
        Go back to the model from which the index in SOURCE was upgraded; items that came since are embedded by it.
    finish
        Remove what only --undo needs: photos.index.before, and the column `mapped`.
    distance
        Compare embeddings by this distance: cosine or euclidean. By default, that of the learner, cosine for runs and
        embeddings, and euclidean for tables with one column per measurement. With --add, that of the index.
    dims
        Keep only this many leading dimensions, such as one of the lengths of Matryoshka; queries are truncated, too.
    overwrite
        Replace an existing index in OUT. It stays complete until the new one is written.
    """
    from ..index import building

    ways = {"--upgrade": upgrade is not None, "--status": status, "--undo": undo, "--finish": finish}
    asked = [way for way, is_asked in ways.items() if is_asked]
    if asked:
        changes = {"--add": add, "--new": new, "--remove": remove, "--engine": engine, "--columns": columns}
        changes |= {"--threshold": threshold, "--build": graph, "--check": check, "--overwrite": overwrite}
        given = next((name for name, value in changes.items() if value not in (None, False, ())), None)
        if given is not None:
            raise ValueError(f"{given}: does not work with --upgrade, --status, --undo and --finish; give it alone")
        with images_from(*items.images), trusting(*trust):
            say(upgraded(asked, source, data, out, upgrade, distance=distance, dims=dims, items=items))
        return
    if check:
        file = source or out
        if file is None or data is not None or None not in (source, out):
            raise ValueError("--check: expected one index, as in `nearfar index photos.index --check`")
        say(building.check_index(file))
        return
    if out is None:
        raise ValueError("--out: expected the index to write, such as -o photos.index")
    if source is not None and not is_folder(out) and not is_address(out):
        check_out(out, overwrite=True)  # `build` refuses an existing index, except for --add, --remove and --overwrite
    with images_from(*items.images), trusting(*trust):
        line = building.build(
            source,
            data,
            out,
            add=add,
            new=new,
            remove=remove,
            overwrite=overwrite,
            engine=engine,
            columns=columns,
            threshold=threshold,
            graph=graph,
            distance=distance,
            dims=dims,
            label=items.label,
            name=items.name,
            skip_bad=items.skip_bad,
            waiting=partial(say_waiting, out),
        )
    say(line)


def upgraded(
    asked: Sequence[str],
    source: Path | None,
    data: str | None,
    out: Path | None,
    model: Path | None,
    *,
    distance: DistanceName | None,
    dims: int | None,
    items: ItemOptions,
) -> str:
    """Begin or continue an upgrade to a model, or do what else the option that is asked for does. Return one line."""
    from ..index import finish_upgrade, undo_upgrade, upgrade, upgrade_status

    way, *others = asked
    if others:
        raise ValueError(f"{others[0]}: does not work with {way}; give one of them")
    if (source is None) == (out is None):
        raise ValueError(f"{way}: expected one index, as in `nearfar index photos.index {way}`")
    file = source or out
    assert file is not None  # one of the two is given
    waiting = partial(say_waiting, file)
    if model is not None:
        return upgrade(
            file,
            model,
            data,
            distance=distance,
            dims=dims,
            label=items.label,
            name=items.name,
            skip_bad=items.skip_bad,
            waiting=waiting,
        )
    if data is not None:
        raise ValueError(f"DATA: {way} takes only the index, got also {quoted(data)}")
    if way == "--status":
        return upgrade_status(file)
    if way == "--undo":
        return undo_upgrade(file, waiting=waiting)
    return finish_upgrade(file, waiting=waiting)


def say_waiting(file: Path) -> None:
    """Print a line if another process has the lock of an index."""
    if sys.stderr is not None:
        say(f"nearfar: {shown(file)}: waiting for another process that is changing it", file=sys.stderr)
