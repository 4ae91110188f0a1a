"""``nearfar export`` and ``store``: networks, learners and embeddings for servers and devices without this library."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from .options import Trust, check_out


def export(
    source: Path, *, out: Annotated[Path, Parameter(name=["--out", "-o"])], int8: bool = False, trust: Trust = ()
) -> None:
    """Write the network of a run, or a saved linear learner, as an ONNX file that was tried and gives the same.

    Example: nearfar export runs/photos -o photos.onnx

    Parameters
    ----------
    source
        The folder of a run (uint8 images in, embeddings out), or a learner saved as .safetensors (rows in).
    out
        The .onnx file.
    int8
        Keep the weights of a network as numbers of 8 bits: a quarter of the size, and nearly the same embeddings.
    trust
        Modules of your own that the settings of a run may name, such as mynets: their code runs. Repeat for several.
    """
    from ..export import export_learner, export_run
    from .embedding import check_there, is_embeddings, is_run
    from .saved_learners import load_learner

    check_there(source)
    if is_embeddings(source):
        raise ValueError(f"{source}: holds rows; expected a run or a saved linear learner")
    check_out(out)
    if is_run(source):
        cosine = export_run(source, out, int8=int8, trust=trust)
    elif int8:
        raise ValueError("--int8: only for the network of a run; a linear learner is one small matrix")
    else:
        export_learner(load_learner(source), out)
    size = out.stat().st_size
    told = f"{size / 1000:,.0f} kB" if size >= 1000 else f"{size} bytes"
    if int8:
        print(f"{out}: {told}; embeddings have a mean cosine of {cosine:.4f} to those that {source} gives")
        return
    print(f"{out}: {told}; ONNX Runtime gives the embeddings that {source} gives")


def store(file: Path, uri: str, *, collection: str, token: str = "", add: bool = False) -> None:
    """Write the items of an index into a Milvus collection, to be searched by a server or a cluster.

    Example: nearfar store photos.index http://localhost:19530 --collection photos

    Parameters
    ----------
    file
        What `nearfar index` wrote.
    uri
        The address of a server, or a file such as photos.db, which Milvus Lite keeps.
    collection
        Its name: letters, digits and underscores.
    token
        What the server asks for, such as user:password.
    add
        Write into a collection that is there; items of the same names are replaced.
    """
    from ..index.store import to_milvus
    from .index_files import open_index

    count = to_milvus(open_index(file).in_memory(), uri, collection, token=token, add=add)
    print(f"{uri}: collection {collection} holds {count:,} items")
