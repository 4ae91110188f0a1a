"""Where the items of an index are: their names are relative to a folder, so that it is found from any other folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..data import Dataset
from ..data.items import NamedReader
from ..data.table_columns import flaw_of_columns
from ..io.formats import ARCHIVES
from ..io.remote import is_remote
from ..io.untrusted import parse_json
from ..io.uris import collection_name, is_address, shown
from ..labels import text_array
from ..numerics.types import AnyArray
from ..quoting import quoted
from .groups import numbered
from .stores import open_store

GROUP = "group"  # column of an index: object, camera or video of each item
PICTURES_TRIED = 20  # first items of an index whose pictures may be outside of its folder

About = Mapping[str, str]
"""Metadata of an index: `about` of an `Index` or of a store."""


def source_archives(about: About) -> list[str]:
    """Return the DATA arguments from which an index was made."""
    sources = recorded(about, "data", "[]")
    if not isinstance(sources, list):
        raise ValueError(
            f"the index is damaged: expected a list of its data, got {quoted(sources)}; make the index again"
        )
    return [str(source) for source in sources]


def columns_by_source(about: About) -> dict[str, dict[str, str]]:
    """Return the columns `label` and `name` by which each table among the data was read, if they were given."""
    found = recorded(about, "columns", "{}")
    if not isinstance(found, dict) or any(map(flaw_of_columns, found.values())):
        raise ValueError(f"the index is damaged: expected columns by data, got {quoted(found)}; make the index again")
    return found


def recorded(about: About, key: str, default: str) -> Any:
    """Read JSON in the metadata of an index."""
    try:
        return parse_json(about.get(key, default))
    except ValueError as error:
        raise ValueError(f"the index is damaged: its {key!r} is not JSON ({error}); make the index again") from error


def base_folder_of(about: About, file: Path) -> Path:
    """Return the folder to which the names of an index are relative.

    It is the recorded path relative to the index, in case both were moved, or else the recorded absolute path. If an
    index has no such record, because it was made in Python, or if its images are gone, it is the current folder.
    """
    here = Path.cwd()
    if "folder" in about and "beside" in about:
        for folder in (file.absolute().parent / about["beside"], Path(about["folder"])):
            if any((folder / source).exists() for source in source_archives(about)):
                return Path(os.path.normpath(folder))
    return here


def base_folder_metadata(home: Path, file: Path) -> dict[str, str]:
    """Return the metadata from which `base_folder_of` finds the folder of an index again."""
    if is_address(file):  # a server has no folder next to it
        return {"folder": str(home), "beside": str(home)}
    return {"folder": str(home), "beside": relative_path(home, file.absolute().parent)}


def relative_path(path: str | Path, folder: str | Path) -> str:
    """Return a path relative to a folder, or the absolute path if both are on different drives of Windows."""
    try:
        return os.path.relpath(path, folder)
    except ValueError:
        return os.path.abspath(path)


def from_home(paths: Iterable[str], home: Path, known: Iterable[str] = ()) -> list[str]:
    """Convert paths from the current folder to paths from `home`, in the form that `known` has them, if any.

    Each form is used once, because a table may list an image under two paths.
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
    """Return names by their absolute paths. This takes seconds for a million names, so do it once."""
    folder = str(home)
    return {os.path.normpath(os.path.join(folder, name)): name for name in known}


def form_in(forms: Mapping[str, str], path: str, home: Path, here: Path) -> str:
    """Return the name in `forms` of a path from the current folder, or else the path from `home`."""
    return forms.get(os.path.normpath(here / path), moved(path, home, here))


def moved(path: str, home: Path, here: Path) -> str:
    """Convert a path from the current folder to a path from `home`."""
    if home == here or os.path.isabs(path) or is_remote(path):
        return path
    return Path(relative_path(os.path.normpath(here / path), home)).as_posix()


def data_relative_to(data: str, home: Path) -> str:
    """Return DATA as a path relative to `home`."""
    kind, _, path = data.partition(":")
    if kind in ARCHIVES and path and home != Path.cwd():
        return f"{kind}:{Path(path).absolute()}"
    return from_home([data], home)[0] if Path(data).exists() else data


def pictures_of(names: Sequence[str], about: About, file: Path) -> NamedReader:
    """Read the items of an index that have these names, from any current folder.

    Whoever made the index chose the names and the recorded folder, so only files below the folder of the index are
    read, and those below the folders of `images_from`; for a server, those below the current folder.
    """
    from ..data.items import NamedReader  # for start-up time

    below = Path.cwd() if is_address(file) else file.absolute().parent
    return NamedReader(names, source_archives(about), columns_by_source(about), base_folder_of(about, file), below)


def why_outside(pictures: NamedReader) -> str:
    """Return why pictures are not shown if the files of the first ones are outside of the folder, or else ""."""
    tried = range(min(len(pictures.names), PICTURES_TRIED))
    return next((why for why in map(pictures.why_outside, tried) if why), "")


def labeled_items(file: Path) -> tuple[Dataset, AnyArray, str]:
    """Return the items of an index that have a class, their embeddings, and the distance of the index."""
    with open_store(file) as store:
        index = store.in_memory()
    labels = np.full(len(index), "") if index.labels is None else text_array(index.labels)
    kept = np.flatnonzero(labels != "")
    groups = None
    if GROUP in index.columns:
        group_of = numbered(index.columns[GROUP])[kept].astype(np.str_)
        groups = np.strings.zfill(group_of, group_of.itemsize)  # in the order of the numbers
    if len(kept) == 0:
        raise ValueError(f"{shown(file)}: its items have no classes; make the index from data with classes")
    classes, numbers = np.unique(labels[kept], return_inverse=True)
    names = index.names[kept].tolist()
    dataset = Dataset(
        name=collection_name(file),
        labels=numbers.astype(np.int64),
        classes=tuple(classes.tolist()),
        kind="image",
        read=pictures_of(names, index.about, file),
        names=tuple(names),
        groups=groups,
    )
    return dataset, index.embeddings[kept], index.distance
