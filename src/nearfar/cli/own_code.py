"""Errors of a user's own losses, samplers and trunks: which of their lines failed."""

from __future__ import annotations

import sysconfig
import traceback
from functools import cache
from pathlib import Path

from ..quoting import PATH, in_brief

HERE = Path(__file__).resolve().parent.parent


def of_own_code(error: Exception) -> str | None:
    """Say which line of a user's own module failed, and how; None where the error arose elsewhere.

    It arose in their code where that is the last to be called, but for other libraries.
    """
    place = place_in_own_code(error)
    if place is None:
        return None
    what = in_brief(" ".join(str(error).split()), 4 * PATH)
    said = f"{type(error).__name__}: {what}" if what else type(error).__name__
    return f"{place}: {said}; with NEARFAR_DEBUG=1 the whole traceback is shown"


def caused_by_own_code(error: Exception) -> str:
    """Name the line of a user's own module where what was raised there has led to an error of ours, else nothing."""
    seen: set[int] = {id(error)}
    cause = error.__cause__
    while cause is not None and id(cause) not in seen:  # `raise e from e` makes an error its own cause
        place = place_in_own_code(cause)
        if place is not None:
            return f" ({place})"
        seen.add(id(cause))
        cause = cause.__cause__
    return ""


def place_in_own_code(error: BaseException) -> str | None:
    """Return file, line and function of a user's own module in which an error arose; None where it was elsewhere."""
    if isinstance(error, SyntaxError) and error.filename and not _within(error.filename, (HERE, *_libraries())):
        return f"{in_brief(error.filename, PATH)}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    ours = [at for at, frame in enumerate(frames) if _within(frame.filename, (HERE,))]
    last = max(ours, default=len(frames))
    theirs = [frame for frame in frames[last + 1 :] if not _within(frame.filename, _libraries())]
    if theirs:
        return f"{in_brief(theirs[-1].filename, PATH)}:{theirs[-1].lineno}: in {theirs[-1].name}"
    return None


@cache
def _libraries() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    return tuple({Path(paths[name]).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def _within(file: str, folders: tuple[Path, ...]) -> bool:
    if file.startswith("<"):  # <frozen importlib._bootstrap>, <string>: made by a library
        return folders != (HERE,)
    path = Path(file).resolve()
    if not path.is_file():  # compiled code tells of sources that are not here
        return folders != (HERE,)
    return any(path.is_relative_to(folder) for folder in folders)
