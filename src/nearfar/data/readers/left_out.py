"""What a folder or an archive contains beside the images or sounds that are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath

from ...quoting import count_of, shorten
from ..dataset import some
from ..image_formats import advice_on


def unread(every: Sequence[str], read: Sequence[str], folders: Sequence[str] = (), kind: str = "image") -> list[str]:
    """Return notes on the files that are left out, by ending, and on the folders in which there is nothing to read.

    Parameters
    ----------
    every, read : sequence of str
        The names of all files, and of those that are read.
    folders : sequence of str
        The names of all folders, also of those without files.
    kind : str
        What is read.
    """
    notes = []
    used = set(read)
    others = [name for name in every if name not in used]
    if others:
        notes.append(f"{count_of(len(others), 'file')} left out ({by_ending(others)})")
    empty = _without_images(every, read, folders)
    if empty:
        notes.append(f"{count_of(len(empty), 'folder')} without {kind}s left out ({some(empty, 3)})")
    return notes


def by_ending(names: Sequence[str]) -> str:
    """Count files by their endings, the most frequent first, with advice on those that could be read.

    >>> by_ending(["a/1.txt", "2.TXT", "README"])
    '2 .txt, 1 without ending'
    """
    endings = Counter(PurePosixPath(name).suffix.lower() for name in names)
    counts = [f"{count:,} {shorten(ending, 20) or 'without ending'}" for ending, count in endings.most_common()]
    advice = "".join(f"; {found}" for found in dict.fromkeys(map(advice_on, endings)) if found)
    return some(counts, 4) + advice


def _without_images(every: Sequence[str], read: Sequence[str], folders: Sequence[str]) -> list[str]:
    """Return the folders below which no image is read, without those inside other such folders."""
    empty = {*folders, *_folders_of(every)} - _folders_of(read)
    return sorted(folder for folder in empty if empty.isdisjoint(_folders_above(folder)))


def _folders_of(names: Sequence[str]) -> set[str]:
    """Return all folders that contain one of the files, directly or in another folder."""
    direct = {name.rpartition("/")[0] for name in names} - {""}
    return direct | {above for folder in direct for above in _folders_above(folder)}


def _folders_above(name: str) -> list[str]:
    """Return the folders that contain a file or a folder.

    >>> _folders_above("a/b/c.png")
    ['a', 'a/b']
    """
    return [name[:at] for at, sign in enumerate(name) if sign == "/"]
