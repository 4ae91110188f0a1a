"""Shared by the official archives: their images with checked counts, and the split of the classes into two halves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dataset import DataError, Source
from ..decode import ImageReader, image_source
from .files import Files


@dataclass(frozen=True)
class Counts:
    """Expected numbers of images and classes of a part of an archive."""

    images: int
    classes: int


Expected = Mapping[str, Counts]

FIRST_HALF = "official zero-shot split: first half of the classes by id for training, second half for the test"


def official_source(
    name: str,
    files: Files,
    paths: Sequence[str],
    labels: Sequence[Any] | NDArray[Any],
    roles: Sequence[str],
    *,
    split: str,
    expected: Expected | None,
    image_size: int | None,
    skip_bad: bool,
    class_name: Callable[[int], str] = str,
) -> Source:
    """Return the images of an archive with the role of each, after a check of their counts.

    Parameters
    ----------
    name : str
        Name of the archive.
    files : Files
        Its files.
    paths : sequence of str
        Path of every image that the archive lists.
    labels : sequence
        Class of each image: a name, or an id, in whose order the classes are numbered.
    roles : sequence of str
        Role of each image.
    split : str
        How the images were split, as a clause of the protocol sentence.
    expected : mapping or None
        Official number of images and classes of each role. None accepts any, and leaves out images that do not exist.
    image_size, skip_bad
        As for the readers.
    class_name : callable
        Function from the id of a class to its name.

    Raises
    ------
    DataError
        If the counts are others, or no image exists.
    """
    check_counts(name, roles, list(labels), expected)
    kept = present(files, paths, expected)
    ids, indices = np.unique(np.asarray(labels)[kept], return_inverse=True)
    return image_source(
        name,
        ImageReader(files, tuple(paths[i] for i in kept), size=image_size),
        indices,
        classes=[class_name(number) for number in ids],
        roles=[roles[i] for i in kept],
        split=split,
        skip_bad=skip_bad,
    )


def first_half(class_ids: NDArray[np.int64]) -> list[str]:
    """Return "train" for the items of the first half of the class ids in sorted order, "test" for the others."""
    ids = np.unique(class_ids)
    seen = ids[: len(ids) // 2]
    return np.where(np.isin(class_ids, seen), "train", "test").tolist()


def check_counts(name: str, roles: Sequence[str], labels: Sequence[object], expected: Expected | None) -> None:
    """Compare an archive's images and classes per role with the official counts.

    Raises
    ------
    DataError
        If any count differs; the message says what was found and what was expected.
    """
    if expected is None:
        return
    found = {role: Counts(0, 0) for role in expected}
    for role in dict.fromkeys(roles):
        of_role = [label for label, r in zip(labels, roles, strict=True) if r == role]
        found[role] = Counts(len(of_role), len(set(of_role)))
    if found != dict(expected):
        advice = "for a trial with a part of it, give partial=True"
        raise DataError(f"{name}: found {_say(found)}; expected {_say(expected)}; {advice}")


def present(files: Files, paths: Sequence[str], expected: Expected | None) -> NDArray[np.intp]:
    """Return the numbers of the images to read: all, or only the existing ones if any counts are accepted.

    Raises
    ------
    DataError
        If none exists.
    """
    if expected is not None:
        return np.arange(len(paths))
    found = np.array([place for place, path in enumerate(paths) if path in files], dtype=np.intp)
    if not len(found):
        raise DataError(f"{files.root}: none of the {len(paths)} images in its lists exists")
    return found


def _say(counts: Expected) -> str:
    return ", ".join(f"{role} {c.images} images of {c.classes} classes" for role, c in counts.items())
