"""``nearfar embed``: the embeddings of items in a file, or in a folder of parts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ..io.untrusted import images_from
from ..trust import trusting
from .encoding import say
from .options import ABOUT_ITEMS, PARTS, RUN, ItemOptions, Out, Overwrite, Trust
from .outputs import check_out


def embed(
    run: Path,
    data: Annotated[str, ABOUT_ITEMS],
    *,
    out: Out,
    shard: Annotated[str, Parameter(show_default=False, group=PARTS)] = "",
    devices: Annotated[int, Parameter(group=PARTS)] = 1,
    part_size: Annotated[int, Parameter(group=PARTS)] = 10_000,
    texts: Annotated[bool, Parameter(negative=(), group=RUN)] = False,
    dims: Annotated[int | None, Parameter(group=RUN)] = None,
    items: ItemOptions = ItemOptions(),
    overwrite: Overwrite = False,
    trust: Trust = (),
) -> None:
    """Embed data with the network of a run, a saved learner or a pretrained encoder.

    A folder takes any number of items, and after a kill the same command continues.

    Example: nearfar embed runs/glyphs photos/ -o photos.npz

    Example: nearfar embed runs/glyphs photos/ -o embedded/ --shard 3/16

    Parameters
    ----------
    run
        The folder of a run, a learner saved as .safetensors, or a pretrained encoder such as timm:NAME or
        transformers:FOLDER.
    out
        An .npz to write: embeddings (n, d), labels (n,), classes, names, and the distance for comparing them; a
        .parquet with the same; or a .faiss, with names and labels in a .csv next to it. Or a
        folder: parts in Parquet (needs the extra tables), each of which is complete or not there.
    shard
        Write only these parts: 3/16 is every sixteenth, from the third on. Start such a command for each of 1/16 to
        16/16, on any machines, with the same OUT; none waits for another.
    devices
        Start this many processes, which write the folder together: each has a GPU of its own, or without GPUs its share
        of the processor.
    part_size
        Number of items in each part of a folder, which is the most that a kill loses.
    texts
        Embed the texts of a table with the columns path and text. By default, its photos are embedded. Both files have
        the same rows in the same order. A table with a column text and no column path does not need this option.
    dims
        Keep only this many leading dimensions, such as one of the lengths of Matryoshka.
    """
    from ..workflows.embedding import embed as embed_into

    if out.suffix in (".npz", ".parquet", ".faiss"):
        check_out(out, overwrite=overwrite)
    if dims is not None and dims < 1:
        raise ValueError(f"--dims: expected 1 or more, got {dims}")
    with images_from(*items.images), trusting(*trust):
        line = embed_into(
            run,
            data,
            out,
            shard=shard,
            devices=devices,
            part_size=part_size,
            overwrite=overwrite,
            label=items.label,
            name=items.name,
            dims=dims,
            texts=texts,
            skip_bad=items.skip_bad,
        )
    say(line)
