"""The embeddings of items in one file, or in a folder of parts that any number of processes write."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..data.dataset import UNKNOWN_CLASS
from ..data.items import left_out
from ..data.located import Named, local_source
from ..io.part_files import missing_note
from ..io.sources import kind_by_name
from ..models.embedded import Embedded, embed_to
from ..models.embedding_in_parts import PART_SIZE, PartsWritten, embed_in_parts
from ..models.embedding_processes import embed_by_processes
from ..models.written import FILES
from ..quoting import count_of


def embed(
    model: str | os.PathLike[str],
    data: Named,
    out: str | os.PathLike[str],
    *,
    shard: str = "",
    devices: int = 1,
    part_size: int = PART_SIZE,
    overwrite: bool = False,
    label: str | None = None,
    name: str | None = None,
    dims: int | None = None,
    texts: bool = False,
    skip_bad: bool = False,
) -> str:
    """Embed data into a file or a folder, as `nearfar embed` does.

    A folder takes any number of items. It is written part by part: after a kill, the same call continues with the parts
    that are missing, and the folder is the same as without the kill. Several processes or machines write it together if
    each is given another shard; none waits for another.

    Parameters
    ----------
    model : str or path
        What `nearfar.load` loads.
    data : str, path, or datasets.Dataset
        The items, as for `nearfar.data.open_items`. Rows of an `.npy` and folders of embeddings are read part by part;
        of other data, names and labels stay in memory, and so do rows, texts and small images.
    out : str or path
        An .npz, a .parquet or a .faiss (`nearfar.models.written`), or a folder, which is made if it does not exist.
        Everything that reads the .npz also reads the others.
    shard : str
        Which parts are written: "3/16" is every sixteenth, from the third on. By default, all.
    devices : int
        Number of processes of this machine that write the folder together, each with a GPU of its own if there are any.
    part_size : int
        Number of items in each part of a folder.
    overwrite : bool
        Replace an existing file, or embeddings in the folder that were made by another model or of other data.
    label, name : str, optional
        Columns of the classes and of the names of the rows of a table.
    dims : int, optional
        Keep only this many leading dimensions.
    texts : bool
        Embed the texts of a table of photos and texts. Each text has the name of its photo.
    skip_bad : bool
        Leave out images that cannot be decoded.

    Returns
    -------
    str
        One line on what was written, and which parts of the folder are missing.

    Raises
    ------
    ValueError
        If the data cannot be embedded, the file exists, or the folder was begun with another model, other data or
        another `part_size`.
    OSError
        If a file cannot be written. What was complete before stays.
    ModuleNotFoundError
        If a folder is to be written without pyarrow, which ``nearfar[tables]`` brings.

    Notes
    -----
    The folder has a manifest, `embeddings.json`, and parts in Parquet, ``part-00000.parquet`` and so on, with the
    columns `name`, `label`, `group` (if there are groups) and `embedding` (float32). Other programs read them, too.

    Examples
    --------
    Two shards in one folder, as two jobs of a scheduler would write them:

    >>> import tempfile
    >>> import numpy as np
    >>> from nearfar import RCA
    >>> from nearfar.workflows import embed
    >>> home = Path(tempfile.mkdtemp())
    >>> rows = np.random.default_rng(0).normal(size=(40, 3))
    >>> np.save(home / "rows.npy", rows)
    >>> RCA().fit(rows, np.arange(40) % 4).save(home / "rca.safetensors")
    >>> for shard in ("1/2", "2/2"):
    ...     line = embed(home / "rca.safetensors", str(home / "rows.npy"), home / "all", part_size=15, shard=shard)
    ...     print(line.removeprefix(f"{home}/"))
    all: shard 1/2, 2 parts of 3 written; 1 of 3 parts is missing (part-00001.parquet)
    all: shard 2/2, 1 part of 3 written; complete, 40 embeddings of 3 dimensions
    """
    path = Path(out)
    data = local_source(data)
    how: dict[str, Any] = {"label": label, "name": name, "dims": dims, "texts": texts, "skip_bad": skip_bad}
    if path.suffix in FILES:
        if shard or part_size != PART_SIZE:
            raise ValueError(f"out: {path} is one file; shard= and part_size= need a folder, such as {path.stem}/")
        if devices != 1:
            raise ValueError(f"out: {path} is one file; devices= needs a folder, such as {path.stem}/")
        if path.exists() and not overwrite:
            raise ValueError(f"out: {path} exists; replace it with overwrite=True")
        return f"{path}: {_about_file(embed_to(model, data, path, **how))}"
    if kind_by_name(path) is not None:  # commands would take a folder of such a name for something else
        raise ValueError(
            f"out: {path}: expected a file that ends in .npz, .parquet or .faiss, or a folder such as {path.stem}/"
        )
    how |= {"part_size": part_size, "overwrite": overwrite}
    if devices == 1:
        written = embed_in_parts(model, data, path, shard=shard, **how)
    elif shard:
        raise ValueError(f"devices: not with shard={shard}; each of {devices} processes writes a shard")
    else:
        written = embed_by_processes(model, data, path, devices, **how)
    return f"{path}: {_about_parts(written, shard)}"


def _about_file(found: Embedded) -> str:
    """Return what a file of embeddings has."""
    n, d = found.rows.shape
    known = [kind for kind in found.dataset.classes if kind != UNKNOWN_CLASS]
    kinds = f"{len(known)} classes" if known else "without classes"
    return f"{n} embeddings of {d} dimensions, {kinds}{left_out(found.dataset)}"


def _about_parts(written: PartsWritten, shard: str) -> str:
    """Return what was written into a folder of embeddings, and what is missing."""
    manifest = written.manifest
    new = len(written.mine) - len(written.found)
    clauses = [f"{count_of(new, 'part')} of {manifest.parts:,} written"]
    if written.found:
        verb = "was" if len(written.found) == 1 else "were"
        clauses[0] += f", {len(written.found):,} {verb} there already"
    if written.missing:
        clauses.append(missing_note(written.missing, manifest.parts))
    else:
        clauses.append(f"complete, {manifest.count:,} embeddings of {manifest.dimensions} dimensions")
    text = "; ".join(clauses)
    if shard:
        text = f"shard {shard}, {text}"
    return text if written.items is None else text + left_out(written.items)
