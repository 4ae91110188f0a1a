"""``nearfar embed``: the embeddings of items in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ..io.untrusted import images_from
from ..trust import trusting
from .encoding import say
from .options import ABOUT_ITEMS, RUN, ItemOptions, Out, Overwrite, Trust
from .outputs import check_out

if TYPE_CHECKING:
    from ..models.embedded import Embedded


def embed(
    run: Path,
    data: Annotated[str, ABOUT_ITEMS],
    *,
    out: Out,
    texts: Annotated[bool, Parameter(negative=(), group=RUN)] = False,
    dims: Annotated[int | None, Parameter(group=RUN)] = None,
    items: ItemOptions = ItemOptions(),
    overwrite: Overwrite = False,
    trust: Trust = (),
) -> None:
    """Embed data with the network of a run, a saved learner or a pretrained encoder.

    Example: nearfar embed runs/glyphs photos/ -o photos.npz

    Parameters
    ----------
    run
        The folder of a run, a learner saved as .safetensors, or a pretrained encoder such as timm:NAME or
        transformers:FOLDER.
    out
        The .npz to write: embeddings (n, d), labels (n,), classes, names, and the distance for comparing them.
    texts
        Embed the texts of a table with the columns path and text. By default, its photos are embedded. Both files have
        the same rows in the same order. A table with a column text and no column path does not need this option.
    dims
        Keep only this many leading dimensions, such as one of the lengths of Matryoshka.
    """
    from ..models.embedded import embed_to

    if out.suffix != ".npz":
        raise ValueError(f"--out: {out}: expected a file that ends in .npz")
    check_out(out, overwrite=overwrite)
    if dims is not None and dims < 1:
        raise ValueError(f"--dims: expected 1 or more, got {dims}")
    how: dict[str, Any] = {"label": items.label, "name": items.name, "skip_bad": items.skip_bad}
    with images_from(*items.images), trusting(*trust):
        say(written(out, embed_to(run, data, out, dims=dims, texts=texts, **how)))


def written(out: Path, found: Embedded) -> str:
    """Return one line on the embeddings in a file."""
    from ..data.dataset import UNKNOWN_CLASS
    from ..data.items import left_out

    n, d = found.rows.shape
    known = [kind for kind in found.dataset.classes if kind != UNKNOWN_CLASS]
    kinds = f"{len(known)} classes" if known else "without classes"
    return f"{out}: {n} embeddings of {d} dimensions, {kinds}{left_out(found.dataset)}"
