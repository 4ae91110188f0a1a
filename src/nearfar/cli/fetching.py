"""``nearfar data``: public data sets by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from .encoding import say


def data(
    name: str | None = None,
    /,
    *,
    full: bool = False,
    url: str | None = None,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
) -> None:
    """Fetch a public data set into the cache, as a zip of class folders; without a name, list them.

    A fixed version of the archive is downloaded from its authors' own address, and checked. Then `nearfar train
    grocery` and other commands accept the name.

    Example: nearfar data grocery

    Parameters
    ----------
    name
        The data set, such as grocery.
    full
        Keep photos at their published size; by default they are reduced to the size that the documentation uses.
    url
        Download the archive from another address, or read it from a file.
    out
        Write to this .zip instead of the cache.
    """
    from ..data.public import fetch, public_set, summaries

    if name is None:
        say(summaries())
        return
    known = public_set(name)
    if out is not None:
        from .outputs import check_out

        if out.suffix != ".zip":
            raise ValueError(f"--out: {out}: expected a file that ends in .zip")
        check_out(out, overwrite=True)
        if out.exists():  # `fetch` would take it for the data set
            raise ValueError(f"--out: {out} exists; choose another name, or remove it")
    path = fetch(name, full=full, url=url, out=out)
    say(f"{path}\n{known.summary}")
