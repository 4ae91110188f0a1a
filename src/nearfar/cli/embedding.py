"""``nearfar embed``: what it checks, and what it prints."""

from __future__ import annotations

from pathlib import Path

from .outputs import check_out


def embed_and_describe(
    source: Path,
    data: str,
    out: Path,
    *,
    label: str | None,
    name: str | None,
    dims: int | None,
    texts: bool,
    skip_bad: bool,
    overwrite: bool,
) -> str:
    """Embed data, or the texts of pairs, and write an .npz. Return one line on what was written."""
    from ..data.items import UNKNOWN_CLASS, left_out
    from ..models.embedded import embed_to

    if out.suffix != ".npz":
        raise ValueError(f"--out: {out}: expected a file that ends in .npz")
    check_out(out, overwrite=overwrite)
    if dims is not None and dims < 1:
        raise ValueError(f"--dims: expected 1 or more, got {dims}")
    written = embed_to(source, data, out, label=label, name=name, dims=dims, texts=texts, skip_bad=skip_bad)
    (n, d) = written.rows.shape
    known = [kind for kind in written.dataset.classes if kind != UNKNOWN_CLASS]
    kinds = f"{len(known)} classes" if known else "without classes"
    return f"{out}: {n} embeddings of {d} dimensions, {kinds}{left_out(written.dataset)}"
