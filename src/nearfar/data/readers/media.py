"""The kinds of files that are one item each: images and sounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from numpy.typing import NDArray

from ..dataset import Source
from ..decode import ImageReader, guess_channels, image_source
from ..image_formats import EXPECTED, KNOWN, suffixes
from ..sounds import EXPECTED_SOUNDS, SOUNDS, SoundReader, sound_source
from .files import Files

FileKind = Literal["image", "sound"]
ENDINGS = (*KNOWN, *SOUNDS)
"""Endings of all files that are one item, also of images that cannot be read here."""
EXPECTED_FILES = f"{EXPECTED}; sounds as {EXPECTED_SOUNDS}"


def files_of_a_kind(every: Sequence[str]) -> tuple[FileKind, list[str]]:
    """Return the kind of items among the names of files that is more frequent, images or sounds, and their names.

    >>> files_of_a_kind(["a/cover.jpg", "a/1.mp3", "a/2.MP3", "a/notes.txt"])
    ('sound', ['a/1.mp3', 'a/2.MP3'])
    """
    images = [name for name in every if name.lower().endswith(suffixes())]
    sounds = [name for name in every if is_sound(name)]
    return ("sound", sounds) if len(sounds) > len(images) else ("image", images)


def is_sound(name: str) -> bool:
    """Return whether the name of a file is that of a sound."""
    return name.lower().endswith(SOUNDS)


def source_of_files(
    kind: FileKind,
    name: str,
    files: Files,
    paths: Sequence[str],
    labels: Sequence[Any] | NDArray[Any],
    *,
    image_size: int | None = None,
    boxes: Any = None,
    texts: Any = None,
    names: Sequence[str] | None = None,
    unnamed: bool = False,
    **how: Any,
) -> Source:
    """Make a source of files of one kind; `how` are further arguments of `image_source` and `sound_source`."""
    if kind == "sound":
        return sound_source(name, SoundReader(files, tuple(paths)), labels, **how)
    reader = ImageReader(files, tuple(paths), guess_channels(files, paths), boxes, image_size)
    return image_source(name, reader, labels, texts=texts, names=names, unnamed=unnamed, **how)
