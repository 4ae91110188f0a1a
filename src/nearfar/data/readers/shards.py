"""Tar shards in the layout of webdataset: the files of an item have the same name and different endings.

    000017.jpg  000017.cls      the class in a text
    000018.jpg  000018.json     the class in a field of a JSON object

Nothing in them is run as code: members with other endings, such as pickles, are not read, and a source is a file or a
folder, never a command.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ...io.untrusted import parse_json
from ...progress import counted
from ...quoting import PATH, count_of, quoted, shorten
from ..dataset import DataError, Source, some
from ..decode import ImageReader, guess_channels, image_source
from ..image_formats import suffixes
from .files import Files, stem_of
from .left_out import unread

CLASS = "cls"
FIELDS = ("label", "class", "cls")
"""Fields of a JSON object that may contain the class; the first one that exists is used."""


def is_sharded(names: Sequence[str]) -> bool:
    """Return whether there are files with the classes of images, under the names of the images."""
    classes = {key_of(name)[0] for name in names if key_of(name)[1] in (CLASS, "json")}
    return any(key_of(name)[0] in classes for name in names if name.lower().endswith(suffixes()))


def key_of(name: str) -> tuple[str, str]:
    """Return the name of an item and the ending, which begins at the first dot of the file's name."""
    folder, slash, file = name.rpartition("/")
    key, _, ending = file.partition(".")
    return f"{folder}{slash}{key}", ending.lower()


def read_shards(
    path: str | Path,
    files: Files,
    names: Sequence[str],
    *,
    image_size: int | None = None,
    skip_bad: bool = False,
    unlabeled: str | None = None,
) -> Source:
    """Read images from tar archives in which the class is in a file next to each image.

    Parameters
    ----------
    path : str or Path
        The archive, or the folder of archives.
    files : Files
        Their contents.
    names : sequence of str
        Names of all files.
    image_size : int, optional
        Side in pixels to which every image is made square: the shorter side is resized, and the center is cropped. By
        default, images are kept as they are.
    skip_bad : bool
        Leave out images that cannot be decoded, instead of raising an error.
    unlabeled : str, optional
        Class of images without one. By default, such images are left out, with a note.

    Returns
    -------
    Source
        The images.

    Raises
    ------
    DataError
        If a class cannot be read, or no image has one.
    """
    beside = {key_of(name): name for name in names if key_of(name)[1] in (CLASS, "json")}
    images = [name for name in names if name.lower().endswith(suffixes())]
    found: dict[str, str] = {}
    classes: dict[str, str] = {}
    for image in counted(images, "reading classes", len(images)):
        key = key_of(image)[0]
        if key not in classes:
            classes[key] = _class_of(files, key, beside)
        found[image] = classes[key]
    left_out = [image for image in images if not found[image]]
    if unlabeled is None:
        images = [image for image in images if found[image]]
    if not images:
        raise DataError(
            f"{path}: none of its {len(found):,} images has a class; expected KEY.cls or KEY.json next to KEY.jpg"
        )
    labels = [found[image] or unlabeled for image in images]
    reader = ImageReader(files, tuple(images), guess_channels(files, images), size=image_size)
    source = image_source(stem_of(path), reader, labels, skip_bad=skip_bad)
    notes = [*source.items.notes]
    if left_out and unlabeled is None:
        notes.append(f"{count_of(len(left_out), 'image')} without a class left out ({some(left_out, 3)})")
    notes += unread(names, [*found, *beside.values()])
    return replace(source, items=replace(source.items, notes=tuple(notes)))


def _class_of(files: Files, key: str, beside: dict[tuple[str, str], str]) -> str:
    """Return the class of an item, or "" if it has none."""
    plain = beside.get((key, CLASS))
    if plain is not None:
        return _text(files, plain)
    sidecar = beside.get((key, "json"))
    if sidecar is None:
        return ""
    where = shorten(f"{files.root}/{sidecar}", PATH)
    try:
        content = parse_json(files.read(sidecar))
    except ValueError as error:
        raise DataError(f"{where}: not readable as JSON ({error})") from error
    if not isinstance(content, dict):
        raise DataError(
            f"{where}: expected a JSON object with the class as {' or '.join(FIELDS)}, got {quoted(content)}"
        )
    value = next((content[name] for name in FIELDS if name in content), None)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise DataError(f"{where}: expected a text or an integer as the class, got {quoted(value)}")
    return str(value)


def _text(files: Files, name: str) -> str:
    content = files.read(name)
    try:
        text = content.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{shorten(f'{files.root}/{name}', PATH)}: the class is not UTF-8 text ({error.reason})"
        ) from error
    if "\n" in text or len(text) > 1000:
        where = shorten(f"{files.root}/{name}", PATH)
        raise DataError(f"{where}: expected one line with the class, got {quoted(text)}")
    return text
