"""The folder from which the names in an index lead to its images: commands may run from any other."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..io.untrusted import parse_json
from ..quoting import quoted

if TYPE_CHECKING:
    from ..data.items import NamedReader


About = Mapping[str, str]
"""What an index says of itself: `about` of an `Index` and of a store."""


def sources_of(about: About) -> list[str]:
    """Return the DATA that an index was made of, as they were given."""
    sources = told_of(about, "data", "[]")
    if not isinstance(sources, list):
        raise ValueError(
            f"the index is damaged: expected a list of its data, got {quoted(sources)}; make the index again"
        )
    return [str(source) for source in sources]


def labels_of(about: About) -> dict[str, str]:
    """Return the column of the classes in tables among these, where it was named."""
    labels = told_of(about, "label", "{}")
    if not isinstance(labels, dict) or not all(isinstance(label, str) for label in labels.values()):
        raise ValueError(f"the index is damaged: expected columns by data, got {quoted(labels)}; make the index again")
    return labels


def told_of(about: About, key: str, where_not: str) -> Any:
    """Read a part of what an index says of itself that is JSON."""
    try:
        return parse_json(about.get(key, where_not))
    except ValueError as error:
        raise ValueError(f"the index is damaged: its {key!r} is no JSON ({error}); make the index again") from error


def home_of(about: About, file: Path) -> Path:
    """The folder from which the names of an index lead to its images.

    It lies beside the file of the index as it did, where both were moved, or where it was; older indexes do not tell,
    and of those whose data are gone nobody can: that is the folder where the command runs.
    """
    here = Path.cwd()
    if "folder" in about and "beside" in about:
        for folder in (file.absolute().parent / about["beside"], Path(about["folder"])):
            if any((folder / source).exists() for source in sources_of(about)):
                return Path(os.path.normpath(folder))
    return here


def about_home(home: Path, file: Path) -> dict[str, str]:
    """Return what an index in `file` is to remember of its folder, as a part of what it says of itself."""
    from ..io.uris import is_address

    if is_address(file):  # which lies beside nothing
        return {"folder": str(home), "beside": str(home)}
    return {"folder": str(home), "beside": os.path.relpath(home, file.absolute().parent)}


def from_home(paths: Iterable[str], home: Path, known: Iterable[str] = ()) -> list[str]:
    """Return paths from here as paths from `home`; a path that `known` has in another form is given in that form.

    Each form is given once: a table may list an image under two paths.
    """
    here = Path.cwd()
    forms = forms_of(known, home)
    found = list[str]()
    given = set[str]()
    for path in paths:
        form = form_in(forms, path, home, here)
        found.append(moved(path, home, here) if form in given else form)
        given.add(form)
    return found


def forms_of(known: Iterable[str], home: Path) -> dict[str, str]:
    """Return names by the whole paths that they stand for; it takes seconds for a million, so do it once."""
    folder = str(home)
    return {os.path.normpath(os.path.join(folder, name)): name for name in known}


def form_in(forms: Mapping[str, str], path: str, home: Path, here: Path) -> str:
    """Return the name in `forms` that a path from here stands for, or else the path from `home`."""
    return forms.get(os.path.normpath(here / path), moved(path, home, here))


def moved(path: str, home: Path, here: Path) -> str:
    """Return a path from here as a path from `home`."""
    if home == here or os.path.isabs(path):
        return path
    return Path(os.path.relpath(os.path.normpath(here / path), home)).as_posix()


def data_from_home(data: str, home: Path) -> str:
    """DATA as `home` knows it: a relative path from there."""
    from ..data.open import ARCHIVES

    kind, _, path = data.partition(":")
    if kind in ARCHIVES and path and home != Path.cwd():
        return f"{kind}:{Path(path).absolute()}"
    return from_home([data], home)[0] if Path(data).exists() else data


def pictures_of(names: Sequence[str], about: About, file: Path) -> NamedReader:
    """Read the items of an index that have these names, wherever the command runs."""
    from ..data.items import NamedReader

    return NamedReader(names, sources_of(about), labels_of(about), home_of(about, file))
