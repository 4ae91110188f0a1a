"""Files that a command writes: whether they can be, before the work."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..io.remote import refuse_writing
from .encoding import say
from .option_names import with_option_names

if TYPE_CHECKING:
    from ..data.items import NamedReader


def check_out(out: Path, name: str = "--out", *, overwrite: bool) -> None:
    """Create the folder of an output file. Raise early, before the work, if the file cannot be written.

    Pages (.html), which only people read, are replaced. All other files are replaced only with --overwrite.

    Parameters
    ----------
    out : Path
        The file.
    name : str
        Name of the option.
    overwrite : bool
        Whether an existing file that is no page may be replaced.

    Raises
    ------
    ValueError
        If there is a folder of that name, its folder cannot be created or is not writable, or it must not be replaced.
    """
    refuse_writing(out, name)
    if out.is_dir():
        raise ValueError(f"{name}: {out} is a folder; expected the name of a file")
    if out.exists() and not overwrite and out.suffix != ".html":
        raise ValueError(f"{name}: {out} exists; pass --overwrite to replace it")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{name}: the folder {out.parent} cannot be created ({error.strerror})") from error
    if not os.access(out.parent, os.W_OK):
        raise ValueError(f"{name}: the folder {out.parent} is not writable")


def check_page_or_table(out: Path, *, overwrite: bool) -> None:
    """Refuse a file that does not end in .csv or .html, or that cannot be written."""
    if out.suffix not in (".csv", ".html"):
        raise ValueError(f"--out: {out}: expected a .csv or an .html file")
    check_out(out, overwrite=overwrite)


TABLES = (".csv", ".tex", ".md")


def check_table(path: Path, *, overwrite: bool) -> None:
    """Raise early, before the trainings, if the file for the table has another ending or cannot be written."""
    if path.suffix not in TABLES:
        raise ValueError(
            f"--table: {path}: expected a file that ends in .csv, .tex or .md; --out is the folder of the runs"
        )
    check_out(path, name="--table", overwrite=overwrite)


def remark_outside(pictures: NamedReader) -> None:
    """Say why pictures are not shown if their files are outside of the folder."""
    from ..index.paths import why_outside

    why = why_outside(pictures)
    if why:
        say(f"nearfar: a picture is not shown: {with_option_names(why, {'images': '--images'})}", file=sys.stderr)
