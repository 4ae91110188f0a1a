"""Items to embed or to look up: any data set, also without classes, such as a single image or rows without labels."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..io.formats import ARCHIVES, TARS, function_at, has_columns, reader_of
from ..io.remote import address_of_copy, is_remote
from ..numerics.mel import log_mel_statistics
from ..progress import counted
from ..quoting import PATH, count_of, quoted
from .cells import Cells, as_cells
from .checks.columns import remarks_on_embeddings
from .checks.training_items import FINAL, IN_TRAINING, NO_LIST
from .dataset import (
    UNKNOWN_CLASS,
    DataError,
    DataNotFoundError,
    Dataset,
    NoNumbers,
    Source,
    check_column,
    numbers_only,
    some,
)
from .decode import (
    Resizing,
    decode,
    decode_small,
    decode_square,
    read_shape,
    read_small,
    read_square,
    upright_shape,
)
from .image_formats import EXPECTED, advice_on, suffixes
from .located import Named, SavedToDisk, local_source
from .open import open_dataset, resolve_source
from .readers.arrays import (
    DATA,
    LABELS,
    UNNAMED,
    finite_singles,
    load_npz,
    names_in,
    read_array,
    repeated_ids,
    without_bad_rows,
)
from .readers.files import Files, FolderFiles, OutsideError, is_archive, open_files, stem_of
from .readers.folder import read_folder
from .readers.ids import NO_NAMES
from .readers.in_memory import are_paths, are_pictures, are_rows, as_column, even, files_given, images
from .readers.left_out import unread
from .readers.media import ENDINGS, FileKind, files_of_a_kind, is_sound, source_of_files
from .readers.shard_files import ShardFiles
from .readers.shards import is_sharded
from .readers.tar_files import TarFiles
from .readers.texts import text_items
from .sounds import decode_sound, picture_of

OTHERS = (".dng", ".jxl", ".raw", ".svg")
"""Endings of images that Pillow does not open."""


def open_items(
    source: Named,
    *,
    label: str | None = None,
    name: str | None = None,
    skip_bad: bool = False,
    takes: Collection[str] = (),
) -> Dataset:
    """Open items of any source that `open_dataset` opens, and tables, arrays and images without labels.

    It also opens a single image file or a folder of loose images. Items without a class, such as images next to class
    folders, have the class "".

    Parameters
    ----------
    source : str or path
        As for `open_task`.
    label : str, optional
        Column of a table that holds the classes. By default, `label`; in a table of rows also `class`, `target` or `y`.
    name : str, optional
        Column of a table that holds the names of its rows. By default, `name`, or a column such as `id`, `sku`,
        `item_id` or `uid` whose cells are different.
    skip_bad : bool
        Leave out images that cannot be decoded; their names are in `bad`.
    takes : collection of str
        Kinds of items that the model embeds, `Model.takes`. If "table" is one of them, a table may have columns that
        are not numbers.

    Returns
    -------
    Dataset
        The items.

    Raises
    ------
    DataError
        If the data cannot be used; the message is one line.
    """
    source = local_source(source)
    path = Path(source)
    check_column(source, "label", label)
    check_column(source, "name", name)
    found: Dataset | None = None
    reader = reader_of(path) if path.is_file() or path.is_dir() else None  # others are refused below
    if path.is_file() and path.suffix.lower() in (*ENDINGS, *OTHERS):
        found = _single_file(path, skip_bad)
    elif reader is not None and reader.items:
        found = function_at(reader.items)(path, label=label, name=name, skip_bad=skip_bad)
    if found is not None:
        return found if "table" in takes else numbers_only(Source(found)).items
    # every item has a class, or the source is a built-in set, or `open_dataset` raises an error
    return open_dataset(source, skip_bad=skip_bad)


def as_items(
    given: Any,
    takes: Collection[str] = ("row", "image"),
    *,
    label: str | None = None,
    name: str | None = None,
    skip_bad: bool = False,
) -> Dataset:
    """Return items to embed as a data set, whether they are in memory, in files or words.

    Parameters
    ----------
    given : Dataset, array-like, str or path
        A data set, which is returned unchanged; rows (n, d), or a table of them; uint8 images (n, H, W) or
        (n, H, W, C), or a list of pictures; a list of paths of image files, or of texts; or one source that
        `open_items` opens, or one text. If a model takes texts, words that name no file are a text.
    takes : collection of str
        Kinds of items that the model embeds.
    label, name, skip_bad
        As for `open_items`, for a source.

    Returns
    -------
    Dataset
        The items.

    Raises
    ------
    DataError
        If they cannot be used; the message is one line.
    """
    if isinstance(given, Dataset):
        return given
    if isinstance(given, str | os.PathLike | SavedToDisk):
        if not (isinstance(given, str) and "text" in takes and not is_remote(given) and are_words(given)):
            return open_items(given, label=label, name=name, skip_bad=skip_bad, takes=takes)
        given = [given]
    X = as_column(given)
    no_classes = [UNKNOWN_CLASS] * len(X)
    if are_paths(X):
        words = "text" in takes and all(isinstance(path, str) for path in X)
        if words and ("image" not in takes or all(map(are_words, X))):
            return text_items("texts", list(X), no_classes)
        return files_given(X, no_classes, "paths")
    if are_rows(X):
        columns = [str(column) for column in getattr(X, "columns", ())]
        if columns and "table" in takes:
            return rows_of_cells(X, columns)
        return Dataset.from_array("rows", np.asarray(even(X)), None, columns=columns)
    return images(X, no_classes, "images")


def rows_of_cells(frame: Any, columns: Sequence[str]) -> Dataset:
    """Return the rows of a data frame as a data set of cells, without classes."""
    why = "X: expected rows of numbers, got a data frame of cells"
    cells = {name: as_cells(frame[column]) for name, column in zip(columns, frame.columns, strict=True)}
    n = len(frame)
    names = tuple(f"rows[{i}]" for i in range(n))
    labels = np.zeros(n, dtype=np.int64)
    read = NoNumbers(why)
    about: dict[str, Any] = {"unnamed": True, "cells": Cells(cells, why)}
    return Dataset(name="rows", labels=labels, classes=(UNKNOWN_CLASS,), kind="row", read=read, names=names, **about)


def are_words(text: str) -> bool:
    """Return whether a text names no file; raise a DataNotFoundError if it looks like the name of one."""
    if os.path.exists(text):
        return False
    if names_file(text):
        raise DataNotFoundError(f"{quoted(text, PATH)}: no such file")
    return True


def names_file(text: str) -> bool:
    """Return whether a text ends like the name of an image, a sound or an array, and is not meant as words."""
    return text.lower().endswith((*ENDINGS, ".npy", ".npz"))


def is_numeric(given: Any) -> bool:
    """Return whether items are numbers in memory, such as rows or matrices, which a learner takes as they are."""
    one = isinstance(given, Dataset | str | os.PathLike)
    return not one and not are_paths(as_column(given)) and not are_pictures(given)


def flat_rows(items: Dataset, columns: Sequence[str] = ()) -> NDArray[Any]:
    """Return (n, d) rows of numbers: the items, the pixels of images in [0, 1], or statistics of sounds over time.

    If both have names, the columns are in the order of those of a learner's training rows.

    Raises
    ------
    DataError
        If the images differ in size, the items are texts, or rows have other columns.
    """
    items = items.in_columns(columns, "the learner")
    if items.kind == "sound":
        return np.stack([log_mel_statistics(items.read(i)) for i in counted(range(len(items)), "reading", len(items))])
    if items.kind == "row":
        return items.array if items.array is not None else np.stack([items.read(i) for i in range(len(items))])
    array = items.array
    if array is None:
        read = [items.read(i) for i in counted(range(len(items)), "reading", len(items))]
        other = next((item for item in read if item.shape != read[0].shape), None)
        if other is not None:
            sizes = " and ".join(f"{width} x {height}" for height, width, *_ in (read[0].shape, other.shape))
            detail = f"expected images of one size, which a learner needs, got {sizes} pixels"
            raise DataError(f"{items.name}: {detail}; resize them first, or train a network (`nearfar train`)")
        array = np.stack(read)
    return array.reshape(len(array), -1).astype(np.float32) / 255


def embedding_rows(dataset: Dataset, source: Path) -> NDArray[Any]:
    """Return the rows of a data set of rows, and warn about columns that are probably not part of an embedding."""
    if dataset.kind != "row" or dataset.array is None:
        raise ValueError(f"{source}: expected embeddings or rows, got {dataset.kind}s; give a run that embeds them")
    if dataset.columns:  # only tables have names of columns
        for warning in remarks_on_embeddings(dataset):
            warnings.warn(f"{source}: {warning}", stacklevel=2)
    return dataset.array


def left_out(dataset: Dataset) -> str:
    """Return the end of a line on which files and images were left out."""
    # the other notes may be about all classes of the data, not only about these items
    shown = ("left out (", NO_NAMES, IN_TRAINING, NO_LIST, FINAL)
    notes = [note for note in dataset.notes if any(words in note for words in shown)]
    if dataset.bad:
        notes.append(f"{count_of(len(dataset.bad), f'undecodable {dataset.kind}')} left out ({some(dataset.bad, 3)})")
    return "".join(f"; {note}" for note in notes)


def names_from(items: Dataset, data: str) -> list[str]:
    """Return the names of items in an index: their paths, which for a table include its folder, or their addresses."""
    if not named_by_paths(items, data):
        return list(items.names)
    root = root_of(data)
    address = address_of_root(data)
    if address is not None:
        return [f"{address}/{name}" for name in items.names]
    return [(root / name).as_posix() for name in items.names]


def address_of_root(data: str) -> str | None:
    """Return the address of which `root_of` is the copy; None if the data are no copy."""
    address = address_of_copy(data)
    if address is None or root_of(data) == Path(data):
        return address
    return address.rpartition("/")[0]


def root_of(data: str) -> Path:
    """Return the folder or the archive to which the names of items are relative."""
    path = Path(data)
    return path if path.is_dir() or is_archive(path) else path.parent


def named_by_paths(items: Dataset, data: str) -> bool:
    """Return whether items are named by their paths, unlike rows, texts and the items of built-in data sets."""
    return items.kind in ("image", "sound") and Path(data).exists()


def items_in_array(path: Path, **how: Any) -> Dataset:
    """Open the rows of an .npy; arguments as for `open_items`."""
    return _unlabeled_rows(path, {DATA[0]: _array_in(path)}, how["skip_bad"])


def items_in_arrays(path: Path, **how: Any) -> Dataset | None:
    """Open the rows of an .npz without labels; None if it has labels. Arguments are as for `open_items`."""
    arrays = load_npz(path)
    if any(key in arrays for key in LABELS):
        return None
    return _unlabeled_rows(path, arrays, how["skip_bad"])


def items_in_table(path: Path, **how: Any) -> Dataset:
    """Open the items of a table, or of a saved data set of Hugging Face; arguments as for `open_items`."""
    from .readers.manifest import read_manifest

    return read_manifest(path, **how, unlabeled=UNKNOWN_CLASS).items


def _single_file(path: Path, skip_bad: bool) -> Dataset:
    """Open an image or a sound; raise a DataError if images of its format are not read."""
    ending = path.suffix.lower()
    kind: FileKind = "sound" if is_sound(path.name) else "image"
    if kind == "image" and ending not in suffixes():
        advice = advice_on(ending) or f"save it as {EXPECTED}"
        raise DataError(f"{path}: images of this format are not supported; {advice}")
    folder = FolderFiles(str(path.parent), also=(str(path.resolve().parent),))  # a link that was given is followed
    return _loose(path.name, kind, folder, [path.name], skip_bad)


def items_in_folder(path: Path, **how: Any) -> Dataset | None:
    """Open images or sounds, some of which may be in no class folder; None if all are in one.

    Arguments are as for `open_items`.
    """
    skip_bad = how["skip_bad"]
    files = open_files(path)
    every = files.names()
    kind, names = files_of_a_kind(every)
    alone = ["/" not in name for name in names]
    sharded = isinstance(files, TarFiles | ShardFiles) and is_sharded(every)
    if sharded or (any(alone) and not all(alone)):
        return read_folder(path, skip_bad=skip_bad, unlabeled=UNKNOWN_CLASS).items
    if not any(alone):
        return None
    found = _loose(stem_of(path), kind, files, names, skip_bad)
    return replace(found, notes=(*found.notes, *unread(every, names, files.folders(), kind)))


class NamedReader:
    """Reads items by their names in an index: paths of images, also inside a zip, or names within a source.

    Parameters
    ----------
    names : sequence of str
        Name of each item.
    sources : sequence of str
        Sources from which `open_items` opened the items; opened again if a name is not a path.
    columns : mapping of str to mapping
        Columns `label` and `name` of tables among the sources, if they were named.
    folder : path
        Folder to which relative paths refer. By default, the current one.
    below : path, optional
        Only files below this folder and those of `images_from` are read, after all links: names and sources may be
        those of a stranger. By default, `folder`.
    """

    def __init__(
        self,
        names: Sequence[str],
        sources: Sequence[str] = (),
        columns: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
        folder: str | Path = "",
        below: str | Path | None = None,
    ) -> None:
        self.names = names
        self.sources = sources
        self.columns = columns
        self.folder = Path(folder)
        self._files = FolderFiles(os.path.abspath(folder if below is None else below))
        self._archives: dict[str, Files] = {}

    def __call__(self, i: int) -> NDArray[Any]:
        """Item i.

        Raises
        ------
        DataError
            If it no longer exists, cannot be decoded, or lies outside of the folder.
        """
        data = self._data(i)
        if data is None:
            items, at = self._other(i)
            return items.read(at)
        if is_sound(self.names[i]):
            return decode_sound(data, self.names[i])
        return decode(data, self.names[i])

    def small(self, i: int, side: int) -> NDArray[Any]:
        """Return item i for display; a large JPEG is decoded to at least `side` pixels only, a sound is drawn."""
        data = self._data(i)
        if data is None:
            items, at = self._other(i)
            return read_small(items.read, at, side)
        if is_sound(self.names[i]):
            return picture_of(decode_sound(data, self.names[i]))
        return decode_small(data, self.names[i], side)

    def square(
        self, i: int, resize: int, size: int | None = None, resizing: Resizing | None = None
    ) -> NDArray[np.uint8]:
        """Return image i as `nearfar.data.decode.read_square` does: a large JPEG is decoded at a reduced size."""
        data = self._data(i)
        if data is None:
            items, at = self._other(i)
            return read_square(items.read, at, resize, size, resizing)
        return decode_square(data, self.names[i], resize, size, resizing)

    def shape(self, i: int) -> tuple[int, ...]:
        """Return height and width of image i, of which only the head is decoded."""
        data = self._data(i)
        if data is None:
            items, at = self._other(i)
            return read_shape(items.read, at)
        return upright_shape(data, self.names[i])

    def _data(self, i: int) -> bytes | None:
        """Return the content of the file of item i; None if its name is not a path."""
        path = self._path(i)
        archive, inside = _inside(path.as_posix())
        if archive:
            if archive not in self._archives:
                self._archives[archive] = open_files(self._files.path(os.path.abspath(archive)))
            return self._archives[archive].read(inside)
        if path.is_file():
            return self._files.read(os.path.abspath(path))
        return None

    def _path(self, i: int) -> Path:
        """Return where the file of item i is, or that of its address is copied."""
        name = self.names[i]
        found = next((address for address in self._copies if name.startswith(f"{address}/")), None)
        return self.folder / name if found is None else self._copies[found] / name[len(found) + 1 :]

    @cached_property
    def _copies(self) -> dict[str, Path]:
        """The copies of addresses among the sources."""
        copies = {}
        for source in self.sources:
            place = str(self.folder / source)
            address = address_of_root(place)
            if address is not None:
                copies[address] = root_of(place)
        return copies

    def _other(self, i: int) -> tuple[Dataset, int]:
        name = self.names[i]
        if name not in self._others:
            raise DataError(f"{name}: no longer exists")
        return self._others[name]

    def leads(self, i: int) -> bool:
        """Return whether the name of item i is the path of a file, or of a member of an archive."""
        path = self._path(i)
        return path.is_file() or bool(_inside(path.as_posix())[0])

    def why_outside(self, i: int) -> str:
        """Return why item i is not read if its file lies outside of the folder, or else ""."""
        path = self._path(i)
        file = _inside(path.as_posix())[0] or path
        if not os.path.lexists(file):  # a text, or a row
            return ""
        try:
            self._files.path(os.path.abspath(file))
        except OutsideError as error:
            return str(error)
        return ""

    @cached_property
    def _others(self) -> dict[str, tuple[Dataset, int]]:
        """Items whose names are not paths: those of built-in data sets, and rows."""
        found: dict[str, tuple[Dataset, int]] = {}
        for source in self.sources:
            path = self.folder / source
            if (path.is_dir() and not has_columns(path)) or is_archive(path):
                continue
            try:
                there = str(path) if path.is_file() else resolve_source(source, self.folder)
                kind, _, inside = there.partition(":")
                place = inside if kind in ARCHIVES else there
                if os.path.exists(place):  # a built-in set has no place
                    self._files.path(os.path.abspath(place))
                columns: dict[str, Any] = {**self.columns.get(source, {})}
                items = open_items(there, **columns)
            except DataError:
                continue
            below = path.is_file() and items.kind in ("image", "sound")  # in an index, these names include the folder
            names = [(Path(source).parent / name).as_posix() for name in items.names] if below else items.names
            found |= {name: (items, at) for at, name in enumerate(names)}
        return found


def _inside(name: str) -> tuple[str, str]:
    """Return the archive that a path leads into, and the rest of the path; None if it leads into none."""
    for ending in (".zip", *TARS):
        stem, mark, inside = name.partition(f"{ending}/")
        if mark and Path(stem + ending).is_file():
            return stem + ending, inside
    return "", ""


def _loose(name: str, kind: FileKind, files: Files, paths: Sequence[str], skip_bad: bool) -> Dataset:
    return source_of_files(kind, name, files, paths, [UNKNOWN_CLASS] * len(paths), skip_bad=skip_bad).items


def _unlabeled_rows(path: Path, arrays: Mapping[str, NDArray[Any]], skip_bad: bool) -> Dataset:
    """Return rows of shape (n, d) as a data set without classes; other arrays may name the rows."""
    key = next((key for key in DATA if key in arrays), None)
    if key is None:
        raise DataError(f"{path}: has no array {' or '.join(DATA)}; it has {some([*arrays]) or 'none'}")
    notes: list[str] = []
    if skip_bad:
        arrays, notes = without_bad_rows(path, arrays)
    rows = arrays[key]
    if rows.ndim != 2 or rows.dtype.kind not in "fiub" or rows.shape[1] == 0:
        raise DataError(f"{path}: expected (n, d) numbers, got shape {rows.shape} of type {rows.dtype}")
    singles = finite_singles(rows, f"{path}:")
    notes += repeated_ids(arrays, len(rows))
    names = names_in(arrays, len(rows))
    found = Dataset.from_array(path.stem, singles, None, names=names, notes=notes)
    return replace(found, unnamed=found.unnamed or UNNAMED in arrays)


def _array_in(path: Path) -> NDArray[Any]:
    """Read an .npy file, or raise a DataError."""
    try:
        return read_array(path)
    except ValueError as error:
        raise DataError(f"{path}: not a readable .npy file ({error})") from error
