"""Losses, samplers and trunks of the user: where they are imported from, and which line of their code failed."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from ..quoting import PATH, shorten
from ..trust import installed_folders

HERE = Path(__file__).resolve().parent.parent
PACKAGES = ("torch", "torchvision", "timm", "transformers", "peft", "accelerate")
"""Packages that run between our code and that of the user, wherever they are installed (PYTHONPATH, a clone)."""
OWN_MODULE = re.compile(r"(?<![\w.])([A-Za-z_]\w*)(?:\.\w+)*:[A-Za-z_]")  # matches the package in package.module:Name
HUBS = ("timm", "transformers")  # prefixes of trunks, which look like modules but are not


def folder_of_own_modules(words: Sequence[str]) -> str:
    """Return the working directory if it is on the import path or words name a module in it, and otherwise ""."""
    here = os.getcwd()
    packages = {name for word in words for name in OWN_MODULE.findall(word)}.difference(HUBS)
    trusted = [after.partition("=")[2] for after in words if after.startswith("--trust=")]
    trusted += [after for before, after in pairwise(words) if before == "--trust"]
    packages |= {name.strip().partition(".")[0] for names in trusted for name in names.split(",")}
    named = any(Path(f"{name}.py").is_file() or Path(name, "__init__.py").is_file() for name in packages if name)
    return here if named or here in sys.path else ""


@contextmanager
def importing_own_modules(words: Sequence[str]) -> Iterator[None]:
    """Let modules of the working directory be imported, after all others, if a command names one of them."""
    folder = folder_of_own_modules(words)
    added = bool(folder) and folder not in sys.path
    if added:
        sys.path.append(folder)
    try:
        yield
    finally:
        if added:
            sys.path.remove(folder)


def message_on_own_code(error: Exception) -> str | None:
    """Return which line of the user's module failed, and how; None if the error did not arise there.

    It arose there if the innermost frame is in that module, not counting frames of other libraries.
    """
    place = line_in_own_code(error)
    if place is None:
        return None
    what = shorten(" ".join(str(error).split()), 4 * PATH)
    kind = type(error).__name__
    description = f"{kind}: {what}" if what else kind
    return f"{place}: {description}; set NEARFAR_DEBUG=1 to see the whole traceback"


def cause_in_own_code(error: Exception) -> str:
    """Return the line of the user's module whose exception caused an error of nearfar, or ""."""
    seen: set[int] = {id(error)}
    cause = error.__cause__
    while cause is not None and id(cause) not in seen:  # `raise e from e` makes an error its own cause
        place = line_in_own_code(cause)
        if place is not None:
            return f" ({place})"
        seen.add(id(cause))
        cause = cause.__cause__
    return ""


def line_in_own_code(error: BaseException) -> str | None:
    """Return the file, line and function of the user's module in which an error arose; None if it arose elsewhere."""
    if isinstance(error, SyntaxError) and error.filename and not _within(error.filename, (HERE, *installed_folders())):
        return f"{shorten(error.filename, PATH)}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    ours = [at for at, frame in enumerate(frames) if _within(frame.filename, (HERE,))]
    last = max(ours, default=len(frames))
    others = (*installed_folders(), *_folders_of_packages())
    theirs = [frame for frame in frames[last + 1 :] if not _within(frame.filename, others)]
    if theirs:
        return f"{shorten(theirs[-1].filename, PATH)}:{theirs[-1].lineno}: in {theirs[-1].name}"
    return None


def _folders_of_packages() -> list[Path]:
    """Return the folders of those packages that are imported."""
    imported = [sys.modules[name] for name in PACKAGES if name in sys.modules]
    return [Path(folder).resolve() for package in imported for folder in getattr(package, "__path__", ())]


def _within(file: str, folders: tuple[Path, ...]) -> bool:
    if file.startswith("<"):  # <frozen importlib._bootstrap>, <string>: made by a library
        return folders != (HERE,)
    path = Path(file).resolve()
    if not path.is_file():  # compiled code names sources that are not on this machine
        return folders != (HERE,)
    return any(path.is_relative_to(folder) for folder in folders)
