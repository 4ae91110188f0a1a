"""A folder (or archive) with one folder per class, or with train/ and test/ folders of such class folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...io.formats import TABLES
from ...quoting import count_of
from ..dataset import NEED_NONE, DataError, NoClassesError, Source, some
from .files import Files, open_files, stem_of
from .left_out import by_ending, unread
from .media import EXPECTED_FILES, files_of_a_kind, source_of_files
from .shard_files import ShardFiles
from .shards import is_sharded, read_shards
from .tar_files import TarFiles

ROLES = {
    "train": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "test": "test",
    "query": "query",
    "gallery": "gallery",
}


def read_folder(
    path: str | Path, *, image_size: int | None = None, skip_bad: bool = False, unlabeled: str | None = None
) -> Source:
    """Read images or sounds whose class is the folder that contains them.

    Parameters
    ----------
    path : str or Path
        A folder, a zip or a tar archive (also as .tar.gz), or a folder of tar archives. If it has images and sounds,
        the more frequent ones are read. A class is a folder with images; nested folders give names such as
        "Sanskrit/character01". Top folders named train and test (or train, query and gallery; also validation), in
        upper or lower case, define the split; if there are only train and validation, the validation is the test. In
        tar archives, the class may also be in a file next to the image: see `read_shards`.
    image_size : int, optional
        Side in pixels to which every image is made square: the shorter side is resized, and the center is cropped. By
        default, images are kept as they are.
    skip_bad : bool
        Leave out images that cannot be decoded, instead of raising an error.
    unlabeled : str, optional
        Class of images that are next to the class folders; no item has a role then. By default, such images are left
        out, with a note.

    Returns
    -------
    Source
        The images, with the role of each if there is a split.

    Raises
    ------
    DataError
        If the folder does not exist, contains no image, or contains images outside of class folders only.
    """
    files = open_files(path)
    how: dict[str, Any] = {"image_size": image_size, "skip_bad": skip_bad, "unlabeled": unlabeled}
    if isinstance(files, TarFiles | ShardFiles):
        names = files.names()
        if is_sharded(names):
            return read_shards(path, files, names, **how)
    return _read_class_folders(path, files, **how)


def _read_class_folders(
    path: str | Path, files: Files, *, image_size: int | None, skip_bad: bool, unlabeled: str | None
) -> Source:
    """Read files whose class is the folder that contains them; arguments as for `read_folder`."""
    every = files.names()
    kind, found = files_of_a_kind(every)
    names = found
    if not names:
        raise DataError(
            f"{path}: has no images (expected {EXPECTED_FILES}{_others_in(every)}){_tables_in(path, files)}"
        )
    parts = _strip_common([tuple(place.split("/")[:-1]) for place in _places(files, names)])
    loose = [name for name, part in zip(names, parts, strict=True) if not part]
    if len(loose) == len(names):
        raise NoClassesError(
            f"{path}: its {count_of(len(names), kind)} must be in class folders; expected {path}/CLASS/{kind.upper()} "
            f"({NEED_NONE})"
        )
    if loose and unlabeled is None:
        kept = [i for i, part in enumerate(parts) if part]
        names = [names[i] for i in kept]
        parts = [parts[i] for i in kept]
    roles = _roles(parts)
    labels = ["/".join(part if roles is None else part[1:]) for part in parts]
    if unlabeled is not None:
        labels = [label or unlabeled for label in labels]
        roles = None
        loose = []
    elif "" in labels:
        raise DataError(
            f"{path}: {names[labels.index('')]} is not in a class folder; expected SPLIT/CLASS/{kind.upper()}"
        )
    if roles is None:
        split = ""
    else:
        split = "split by the folders " + ", ".join(sorted({part[0] for part in parts}))
    how: dict[str, Any] = {"roles": roles, "split": split, "skip_bad": skip_bad, "image_size": image_size}
    source = source_of_files(kind, stem_of(path), files, names, labels, **how)
    notes = [*source.items.notes]
    if loose:
        notes.append(f"{count_of(len(loose), kind)} outside of class folders left out ({some(loose, 3)})")
    notes += [*unread(every, found, files.folders(), kind), *_nested(parts), *_innermost(labels)]
    beside = [] if roles is not None else _folders_beside_split(parts)
    if beside:
        notes.append(f"folders such as train are read as classes, not as a split, because of {some(beside, 3)}")
    return replace(source, items=replace(source.items, notes=tuple(notes)))


def _places(files: Files, names: list[str]) -> list[str]:
    """Return the paths of images; in a folder of archives, those inside their archive, which may share classes."""
    return [files.inside(name) for name in names] if isinstance(files, ShardFiles) else names


def _tables_in(path: str | Path, files: Files) -> str:
    """Return advice for a folder that contains tables: one of them was probably meant."""
    tables = [name for name in files.names() if name.lower().endswith(TABLES)]
    if not tables or not Path(path).is_dir():
        return ""
    return f"; to read a table in it, give the path of the table, such as {path}/{tables[0]}"


def _others_in(every: Sequence[str]) -> str:
    """Return which files a folder without images contains, by ending."""
    return f"; found {by_ending(every)}" if every else ""


def _nested(parts: Sequence[tuple[str, ...]]) -> list[str]:
    """Return a note on class folders inside other class folders, which are separate classes."""
    classes = {part for part in parts if part}
    inside = sorted("/".join(part) for part in classes if not classes.isdisjoint(_above(part)))
    if not inside:
        return []
    each = "is a class of its own" if len(inside) == 1 else "are classes of their own"
    return [f"{count_of(len(inside), 'folder')} inside class folders {each} ({some(inside, 3)})"]


def _above(parts: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the folders that contain a folder."""
    return [parts[:end] for end in range(1, len(parts))]


def _innermost(labels: Sequence[str]) -> list[str]:
    """Return a note on classes of several folders with an inner folder of the same name, which may be one class."""
    alike: dict[str, list[str]] = {}
    for label in sorted(set(labels)):
        alike.setdefault(label.rpartition("/")[2], []).append(label)
    recurring = [label for same in alike.values() if len(same) > 1 for label in same]
    if not recurring:
        return []
    shown = some(recurring, 3)
    return [f"each innermost folder is a class ({shown}); to make one of an outer folder, move its files up to it"]


def _strip_common(parts: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Drop the top folders that all paths share, which zip archives often have, but never a class folder."""
    while len({part[:1] for part in parts}) == 1 and all(len(part) > 1 for part in parts):
        parts = [part[1:] for part in parts]
    return parts


def _roles(parts: list[tuple[str, ...]]) -> list[str] | None:
    top_folders = {part[0].lower() for part in parts if part}
    if not (top_folders <= ROLES.keys() and _split(top_folders)):
        return None
    return [ROLES[part[0].lower()] if part else "" for part in parts]


def _split(top_folders: set[str]) -> bool:
    """Return whether folders of these names, in lower case, split the images."""
    return "train" in top_folders and any(ROLES.get(top) in ("validation", "test", "query") for top in top_folders)


def _folders_beside_split(parts: list[tuple[str, ...]]) -> list[str]:
    """Return the top folders because of which folders such as train are not read as a split."""
    top_folders = sorted({part[0] for part in parts if part})
    if _split({top.lower() for top in top_folders}):
        return [top for top in top_folders if top.lower() not in ROLES]
    return []
