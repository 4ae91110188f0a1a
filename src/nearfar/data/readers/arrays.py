"""Arrays in .npy and .npz files: rows, embeddings or images, with their labels in an .npz.

The size of an array in its header is compared with the size of the file before memory is allocated.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from ...io.other_formats import mistaken
from ...io.untrusted import check_expansion, check_regular
from ...labels import class_name, narrow_texts, without_spellings_of_numbers
from ...quoting import PATH, count_of, quoted, shorten
from ..class_labels import ClassLabels, levels_in
from ..dataset import DataError, Dataset, Source, some
from .files import BROKEN
from .folder import ROLES
from .ids import ids_of, is_id, not_ids

DATA = ("X", "x", "embeddings")
LABELS = ("y", "labels")
GALLERY = "gallery_"
UNNAMED = "unnamed"
"""An array of this name marks `names` as positions, in a file that `nearfar embed` wrote."""
TOO_LARGE = "values above 3.4e38, the largest float32"

DAMAGED = (*BROKEN, MemoryError, OverflowError, RecursionError, SyntaxError, TokenError, TypeError, LookupError)
"""Exceptions of NumPy for damaged files, whose headers it parses as Python literals."""

HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read_npz(path: str | Path, *, image_size: int | None = None, skip_bad: bool = False) -> Source:
    """Read `X` (or `embeddings`) with `y` (or `labels`), and `split`, `classes`, `names` and `groups` if they exist.

    Parameters
    ----------
    path : str or Path
        An .npz file. `X` are rows of shape (n, d), converted to float32, or uint8 images of shape (n, H, W) or (n, H,
        W, C); `y` (n,) are integers or strings; `split` (n,) are strings such as "train" and "test"; `classes` are the
        names of the classes that integers in `y` number from 0; `names` (n,) are names of the items, text or integers,
        as `nearfar embed` writes them, or different ones in `ids`, `sku` or the like; `groups` (n,) are the camera,
        video or the like of each item; `class_labels` (classes, k) are the labels of each class, with "" after the last
        one, or what it belongs to at each of `levels` (k,), names such as "species" and "genus".
    image_size : int, optional
        Side in pixels to which every image is made square; rows are not changed. By default, images are kept as they
        are.
    skip_bad : bool
        Leave out rows with NaN or infinity, or without a label, instead of raising an error.

    Returns
    -------
    Source
        The items, with the role of each if there is a split.

    Raises
    ------
    DataError
        If an array is missing, has a wrong shape or type, or contains Python objects, NaN or infinity.
    """
    arrays = load_npz(Path(path))
    notes: list[str] = []
    if skip_bad:
        arrays, notes = without_bad_rows(Path(path), arrays)
    items = _dataset(path, arrays, image_size)
    items = replace(items, notes=(*items.notes, *notes))
    if "split" not in arrays:
        return Source(items)
    return Source(items, _roles(path, arrays["split"], len(items)), "split by the array split")


def refuse_npy(path: str | Path) -> Source:
    """Raise a DataError: rows without labels are no data to learn from."""
    raise DataError(f"{path}: has rows without labels; save both with np.savez('rows.npz', X=X, y=y)")


def read_gallery(path: str | Path, *, skip_bad: bool = False) -> Dataset | None:
    """Read the gallery of an .npz, from the arrays `gallery_embeddings`, `gallery_labels` and so on.

    Parameters
    ----------
    path : str or Path
        An .npz file.
    skip_bad : bool
        Leave out rows with NaN or infinity, or without a label, instead of raising an error.

    Returns
    -------
    Dataset or None
        The gallery; None if the file has none, and its items search each other.
    """
    arrays = load_npz(Path(path))
    if not any(GALLERY + key in arrays for key in DATA):
        return None
    notes: list[str] = []
    if skip_bad:
        arrays, notes = without_bad_rows(Path(path), arrays, GALLERY)
    items = _dataset(path, arrays, None, GALLERY)
    return replace(items, notes=(*items.notes, *notes))


def _dataset(path: str | Path, arrays: dict[str, NDArray[Any]], image_size: int | None, prefix: str = "") -> Dataset:
    key, label_key = (_first(path, arrays, [prefix + name for name in names]) for names in (DATA, LABELS))
    array = _items(path, key, arrays[key])
    labels = arrays[label_key]
    if labels.shape != (len(array),):
        raise DataError(f"{path}: {label_key} has shape {labels.shape}; expected ({len(array)},), one per row of {key}")
    if len(array) == 0:
        raise DataError(f"{path}: {key} is empty")
    if labels.dtype.kind == "f":
        missing = np.flatnonzero(np.isnan(labels))
        if len(missing):
            raise DataError(
                f"{path}: {label_key} is NaN in {count_of(len(missing), 'row')}, first in row {missing[0]}; expected a "
                "label for every row"
            )
    if image_size is not None and array.ndim == 4 and array.shape[1:3] != (image_size, image_size):
        from ..decode import fit

        array = np.stack([fit(image, image_size) for image in array])
    written = without_spellings_of_numbers(labels.tolist()) if labels.dtype.kind == "U" else labels
    items = Dataset.from_array(Path(path).stem, array, written, names=names_in(arrays, len(array), prefix))
    items = replace(items, unnamed=items.unnamed or UNNAMED in arrays)
    if not prefix:
        items = replace(items, notes=(*items.notes, *repeated_ids(arrays, len(array))))
    groups = arrays.get(f"{prefix}groups")
    if groups is not None and groups.shape != labels.shape:
        raise DataError(
            f"{path}: {prefix}groups has shape {groups.shape}; expected {labels.shape}, one per row of {key}"
        )
    classes = _classes(path, items, labels, arrays.get(f"{prefix}classes"))
    return replace(
        items,
        classes=classes,
        groups=None if groups is None else np.array(list(map(class_name, groups.tolist()))),
        class_labels=_class_labels(Path(path), arrays, prefix),
    )


def arrays_of_class_labels(items: Dataset) -> dict[str, NDArray[np.str_]]:
    """Return the labels of the classes of items as arrays of an .npz; {} if each class is one label."""
    labels = items.class_labels
    if labels is None:
        return {}
    of = [labels.of[name] for name in items.classes]
    table = np.array([*zip_longest(*of, fillvalue="")], dtype=np.str_).T
    levels = {"levels": narrow_texts(labels.levels, "levels")} if labels.levels else {}
    return {"class_labels": narrow_texts(table.ravel().tolist(), "class_labels").reshape(table.shape), **levels}


def _class_labels(path: Path, arrays: Mapping[str, NDArray[Any]], prefix: str) -> ClassLabels | None:
    """Return the labels of the classes, as `arrays_of_class_labels` gives them; None if the file has none."""
    table = arrays.get(f"{prefix}class_labels")
    classes = arrays.get(f"{prefix}classes")
    if table is None or classes is None:
        return None
    if table.ndim != 2 or len(table) != len(classes) or table.dtype.kind != "U":
        raise DataError(
            f"{path}: {prefix}class_labels has shape {table.shape} and type {table.dtype}; expected texts of shape "
            f"({len(classes)}, k), the labels of each of the {prefix}classes"
        )
    levels = arrays.get(f"{prefix}levels")
    if levels is None:
        sets = [tuple(filter(None, of)) for of in table.tolist()]
        return ClassLabels(dict(zip(classes.tolist(), sets, strict=True)))
    if levels.shape != table.shape[1:] or levels.dtype.kind != "U" or len(levels) == 0:
        raise DataError(
            f"{path}: {prefix}levels has shape {levels.shape} and type {levels.dtype}; expected {table.shape[1]} "
            f"names, one for each column of {prefix}class_labels"
        )
    columns = dict(zip(levels.tolist(), table.T.tolist(), strict=True))
    finest, *above = columns
    try:
        return levels_in(path, columns, finest, above)
    except ValueError as error:
        raise DataError(str(error)) from error


def names_in(arrays: Mapping[str, NDArray[Any]], n: int, prefix: str = "") -> list[str] | None:
    """Return the names of the items: n texts or integers in `names`, or different ones in `ids` or the like."""
    names = arrays.get(f"{prefix}names")
    if names is not None and names.shape == (n,) and names.dtype.kind in "iuU":
        return names.astype(np.str_).tolist()
    for key, ids in arrays.items():
        if ids.shape != (n,) or ids.dtype.kind not in "iuU":
            continue
        if key.startswith(prefix) and is_id(key.removeprefix(prefix)):
            found: list[str] = ids.astype(np.str_).tolist()
            if len(set(found)) == n:
                return found
    return None


def repeated_ids(arrays: Mapping[str, NDArray[Any]], n: int) -> list[str]:
    """Return a note if an array such as `ids` does not name the items because its n entries are not different."""
    if "names" in arrays:
        return []
    found = next((key for key, ids in arrays.items() if ids.shape == (n,) and is_id(key)), None)
    if found is None or ids_of(arrays[found].tolist()) is not None:
        return []
    return [not_ids(f"array {found!r}", arrays[found].tolist(), start=0)]


def without_bad_rows(
    path: Path, arrays: Mapping[str, NDArray[Any]], prefix: str = ""
) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Return the arrays without rows that are not finite or have no label, and notes on them; names are kept."""
    key = next((prefix + name for name in DATA if prefix + name in arrays), "")
    rows = arrays.get(key)
    if rows is None or rows.ndim != 2 or rows.dtype.kind not in "fiub":
        return dict(arrays), []
    labels = next((arrays[prefix + name] for name in LABELS if prefix + name in arrays), None)
    finite = np.isfinite(as_singles(rows)).all(axis=1)
    labeled = np.ones(len(rows), dtype=bool)
    if labels is not None and labels.shape == (len(rows),) and labels.dtype.kind == "f":
        labeled = ~np.isnan(labels)
    kept = finite & labeled
    if kept.all() or not kept.any():
        return dict(arrays), []
    names = names_in(arrays, len(rows), prefix)
    found = dict(arrays)
    if names is None:
        names = [f"{path.stem}[{i}]" for i in range(len(rows))]
        found[UNNAMED] = np.array(True)
    found[f"{prefix}names"] = np.array(names)
    of_items = (key, *(prefix + name for name in (*LABELS, "names", "groups")))
    if not prefix:
        of_items += ("split",)
    for name in of_items:
        if name in found and found[name].shape[:1] == rows.shape[:1]:
            found[name] = found[name][kept]
    notes = []
    for wrong, what in ((~finite, "with NaN or infinity"), (finite & ~labeled, "without a label")):
        if wrong.any():
            which = some([names[i] for i in np.flatnonzero(wrong)], 3)
            notes.append(f"{count_of(int(wrong.sum()), 'row')} {what} left out ({which})")
    return found, notes


def _classes(path: str | Path, items: Dataset, labels: NDArray[Any], classes: NDArray[Any] | None) -> tuple[str, ...]:
    """Return the names of the classes, from the array `classes` if integer labels number its entries."""
    if classes is None or classes.ndim != 1 or classes.dtype.kind != "U" or labels.dtype.kind not in "iu":
        return items.classes
    numbers = [int(number) for number in items.classes]
    if min(numbers) < 0 or max(numbers) >= len(classes):
        raise DataError(
            f"{path}: labels run from {min(numbers)} to {max(numbers)}, but there are {len(classes)} classes"
        )
    return tuple(str(classes[number]) for number in numbers)


def load_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Read all arrays of a file, or raise a DataError."""
    try:
        arrays = {key: _text(array) for key, array in read_arrays(path).items()}
    except ValueError as error:
        if what := mistaken(path):
            raise DataError(f"{path}: {what}") from error
        raise DataError(f"{path}: not a readable .npz file ({error})") from error
    if not arrays and (what := mistaken(path)):
        raise DataError(f"{path}: {what}")
    return arrays


def _text(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array with bytes decoded as UTF-8, because labels and splits are text."""
    if array.dtype.kind == "S":
        return np.char.decode(array, "utf-8")
    return array


def _first(path: str | Path, arrays: dict[str, NDArray[Any]], names: Sequence[str]) -> str:
    for name in names:
        if name in arrays:
            return name
    raise DataError(f"{path}: has no array {' or '.join(names)}; it has {some(sorted(arrays)) or 'none'}")


def _items(path: str | Path, key: str, array: NDArray[Any]) -> NDArray[Any]:
    if array.ndim == 2 and array.dtype.kind in "fiub":
        return finite_singles(array, f"{path}: {key}")
    images = array
    if array.ndim == 3:  # gray images, (n, H, W)
        images = array[..., None]
    if images.ndim == 4 and images.dtype == np.uint8 and images.shape[3] in (1, 3):
        return images
    expected = "(n, d) numbers, or (n, H, W) or (n, H, W, 1 or 3) uint8"
    raise DataError(f"{path}: {key} has shape {array.shape} and type {array.dtype}; expected {expected}")


def finite_singles(numbers: NDArray[Any], what: str) -> NDArray[np.float32]:
    """Return rows (n, d) in float32; raise a DataError that begins with `what` if they are not finite in float32."""
    rows = as_singles(numbers)
    bad = ~np.isfinite(rows).all(axis=1)
    if bad.any():
        row = int(bad.argmax())
        held = "NaN or infinity"
        if np.isfinite(numbers[row]).all():  # finite before the conversion to float32
            held = TOO_LARGE
        raise DataError(f"{what} holds {held}, first in row {row}")
    return rows


def as_singles(numbers: NDArray[Any]) -> NDArray[np.float32]:
    """Convert numbers to float32, without a copy if they already are; those above 3.4e38 become infinite."""
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32, copy=False)


def _roles(path: str | Path, split: NDArray[Any], n: int) -> NDArray[np.str_]:
    unknown = sorted({str(role) for role in split.ravel()} - ROLES.keys())
    expected = f"expected ({n},) of {', '.join(ROLES)}"
    if unknown:
        raise DataError(f"{path}: split has value {quoted(unknown[0])}; {expected}")
    if split.shape != (n,):
        raise DataError(f"{path}: split has shape {split.shape}; {expected}")
    return np.array([ROLES[str(role)] for role in split])


def read_array(path: Path) -> NDArray[Any]:
    """Return the array of an .npy file; raise a ValueError if it is not valid."""
    try:
        check_regular(path)
        with path.open("rb") as file:
            if file.read(4) == b"PK\x03\x04":
                raise ValueError("it is an archive of several arrays; rename it to .npz")
            file.seek(0)
            _check_header(file, os.fstat(file.fileno()).st_size)
            file.seek(0)
            array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
            return array
    except DAMAGED as error:
        raise ValueError(_why(error)) from error


def mapped_rows(path: Path) -> NDArray[Any]:
    """Map the array of an .npy file into memory; raise a DataError if it is not valid."""
    try:
        check_regular(path)
        with path.open("rb") as file:
            _check_header(file, os.fstat(file.fileno()).st_size)
        mapped: NDArray[Any] = npy.open_memmap(path, mode="r")
        return mapped
    except DAMAGED as error:
        raise DataError(f"{path}: not a readable .npy file ({_why(error)})") from error


def read_arrays(path: Path, names: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz file, or those with the given names; raise a ValueError if the file is not valid."""
    try:
        check_regular(path)
        with zipfile.ZipFile(path) as archive:
            entries = [entry for entry in archive.infolist() if entry.filename.endswith(".npy")]
            members = {entry.filename.removesuffix(".npy"): entry for entry in entries}
            check_expansion(sum(entry.file_size for entry in members.values()), path.stat().st_size)
            if names is not None:
                members = {name: members[name] for name in names if name in members}
            return {name: _member(archive, entry, name) for name, entry in members.items()}
    except zipfile.BadZipFile as error:
        with path.open("rb") as file:
            single = file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX
        if single:
            raise ValueError("it is a single array; rename it to .npy") from error
        raise ValueError(_why(error)) from error
    except DAMAGED as error:
        raise ValueError(_why(error)) from error


def _member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, name: str) -> NDArray[Any]:
    with archive.open(entry) as file:
        _check_header(file, entry.file_size, name)
    with archive.open(entry) as file:
        array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        return array


def _check_header(file: IO[bytes], size: int, name: str = "X") -> None:
    """Raise a ValueError if the array that a header describes needs more bytes than the `size` of its file."""
    version = npy.read_magic(file)
    if version not in HEADERS:
        raise ValueError("it is a structured array; expected numbers or text")
    shape, _, dtype = HEADERS[version](file)
    if dtype.hasobject:
        advice = f"save np.array(list({name}), dtype=str), or np.array({name}, dtype=float) if it has numbers"
        raise ValueError(f"arrays of Python objects are not supported: {advice}")
    count = 1  # a Python integer, which does not overflow
    for length in shape:
        count *= length
    if min(shape, default=0) < 0 or count * dtype.itemsize > size or (dtype.itemsize == 0 and count > size):
        raise ValueError(
            f"its header describes an array of shape {quoted(shape)}, which does not fit into its {size:,} bytes"
        )


def _why(error: BaseException) -> str:
    return shorten(" ".join(str(error).split()), PATH) or type(error).__name__
