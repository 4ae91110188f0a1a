"""Arrays and a little text in one file of the safetensors format, written and read without running any code.

The format is eight bytes of length, a JSON header, then the raw little-endian numbers. The header of a file begins with
a checksum of the whole file, so that a damaged file is an error, and not other numbers.

The library `safetensors` reads. It does not write, because it puts texts into the header in random order, has no
checksum, and copies all arrays before it writes them.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any
from zlib import crc32

import numpy as np
from safetensors import SafetensorError, safe_open

from ..numerics.types import AnyArray
from ..quoting import PATH, quoted, shorten
from .atomic_files import atomic_write
from .untrusted import Unreadable, open_regular, parse_json

NAMES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U8": "|u1",
    "BOOL": "|b1",
}
DTYPES = {np.dtype(code): name for name, code in NAMES.items()}
CHECKSUM = "checksum"
"""Name of the text that holds the CRC-32 of a file, in hexadecimal digits; it is made with UNKNOWN in their place."""
UNKNOWN = "00000000"
CHECKED_BYTES = 2**20  # read at a time for a checksum
DAMAGED = (ValueError, LookupError, TypeError, AttributeError)  # raised for numbers of types that NumPy lacks


def write(path: str | os.PathLike[str], arrays: Mapping[str, AnyArray], metadata: dict[str, str]) -> None:
    """Write named arrays and texts, completely or not at all.

    Raises
    ------
    ValueError
        If an array has a type that the format lacks (text, objects, complex numbers).
    """
    header = _header(arrays, {CHECKSUM: UNKNOWN, **metadata})
    with atomic_write(path) as file:
        file.write(header)
        total = crc32(header)
        for array in arrays.values():
            total = _write_array(file, array, total)
        file.seek(header.index(_as_text(UNKNOWN)))
        file.write(_as_text(f"{total:08x}"))


def _header(arrays: Mapping[str, AnyArray], metadata: dict[str, str]) -> bytes:
    """Return the beginning of a file: the length of the JSON header, and the header."""
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, array in arrays.items():
        dtype = array.dtype.newbyteorder("<")
        if dtype not in DTYPES:
            raise ValueError(f"{name}: arrays of dtype {dtype} cannot be saved")
        size = int(np.prod(array.shape, dtype=object)) * dtype.itemsize
        header[name] = {"dtype": DTYPES[dtype], "shape": list(array.shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _as_text(checksum: str) -> bytes:
    """Return a checksum as it is written in a header."""
    return json.dumps({CHECKSUM: checksum}).encode()[1:-1]


def _write_array(file: IO[bytes], array: AnyArray, total: int) -> int:
    """Write an array, and return the checksum of all that was written before, `total`, and of the array."""
    data = np.ascontiguousarray(array)
    data = data.astype(array.dtype.newbyteorder("<"), copy=False)
    view = data.reshape(-1).view(np.uint8).data  # not a copy, which may not fit into memory
    file.write(view)
    return crc32(view, total)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, AnyArray], dict[str, str]]:
    """Return the arrays and the texts of a file that `write` (or any safetensors library) wrote.

    Raises
    ------
    ValueError
        If the file is not of this format, is truncated, or has another checksum than the one in it.
    """
    with opened(path) as (tensors, file):
        metadata = dict(tensors.metadata() or {})
        _check(file, metadata.pop(CHECKSUM, ""))
        try:
            header = _read_header(file)
            header.pop("__metadata__", None)
            arrays = {name: tensors.get_tensor(name) for name in header}
        except DAMAGED as error:
            raise SafetensorError(str(error)) from None
    return arrays, metadata


def read_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the texts of a file, without reading its arrays; raise a ValueError as `read` does."""
    with opened(path) as (tensors, _):
        metadata = dict(tensors.metadata() or {})
    metadata.pop(CHECKSUM, None)
    return metadata


@contextmanager
def opened(path: str | os.PathLike[str], framework: str = "numpy") -> Iterator[tuple[Any, IO[bytes]]]:
    """Open a file, whose header has been checked: as the library reads it, and as a file of bytes.

    Parameters
    ----------
    path : path
    framework : {"numpy", "pt"}
        Whether the library gives arrays of NumPy or tensors of PyTorch.

    Raises
    ------
    ValueError
        If the file is not of this format, or is truncated, or if the library cannot read a part of it.
    """
    try:
        while True:
            with open_regular(path) as file, safe_open(path, framework=framework) as tensors:
                if not os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                    continue  # another process replaced the file after it was opened once
                yield tensors, file
                return
    except (SafetensorError, Unreadable) as error:
        raise ValueError(f"{os.fspath(path)} is not a readable safetensors file: {shorten(str(error), PATH)}") from None


def _check(file: IO[bytes], checksum: str) -> None:
    """Raise an error if a file has another checksum than the one in its header; files of other programs have none."""
    if not checksum:
        return
    file.seek(0)
    length = file.read(8)
    header = length + file.read(int.from_bytes(length, "little"))
    total = crc32(header.replace(_as_text(checksum), _as_text(UNKNOWN), 1))
    while part := file.read(CHECKED_BYTES):
        total = crc32(part, total)
    if f"{total:08x}" != checksum:
        raise SafetensorError("it is damaged: its checksum is not that of the numbers and texts in it")


def _read_header(file: IO[bytes]) -> dict[str, Any]:
    """Return the header, which the library has checked and gives in another order."""
    file.seek(0)
    size = int.from_bytes(file.read(8), "little")
    header: dict[str, Any] = parse_json(file.read(size))
    return header


def digest(arrays: Mapping[str, AnyArray], metadata: Mapping[str, str]) -> str:
    """Return sixteen hexadecimal digits that identify named arrays and texts, in whatever order they are given."""
    found = hashlib.sha256(json.dumps(sorted(metadata.items())).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        found.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        found.update(array.reshape(-1).view(np.uint8).data)
    return found.hexdigest()[:16]


def split(group: str, values: dict[str, Any]) -> tuple[dict[str, AnyArray], dict[str, Any]]:
    """Split named values into numeric arrays (under "group/name", or "group/name/k" for a list) and JSON values."""
    tensors: dict[str, AnyArray] = {}
    plain: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, np.ndarray) and value.dtype != object and value.dtype.kind != "U":
            tensors[f"{group}/{name}"] = value
        elif isinstance(value, list) and value and all(isinstance(item, np.ndarray) for item in value):
            tensors |= {f"{group}/{name}/{k}": item for k, item in enumerate(value)}
        else:
            plain[name] = as_json(name, value)
    return tensors, plain


def as_json(name: str, value: Any) -> Any:
    """Return the value as plain data for JSON; text arrays become {"text": [...]}."""
    if isinstance(value, np.ndarray):
        return {"text": [str(item) for item in value]}
    try:
        return json.loads(json.dumps(value, default=np.generic.item))  # also converts nested numbers of NumPy
    except TypeError:
        raise ValueError(f"{name}={value!r} cannot be saved; only numbers, text and arrays can") from None


def join(group: str, tensors: dict[str, AnyArray], plain: dict[str, Any]) -> dict[str, Any]:
    """Restore the values that `split` converted."""
    values: dict[str, Any] = {name: texts(value["text"]) if is_text(value) else value for name, value in plain.items()}
    for key, tensor in tensors.items():
        its_group, _, path = key.partition("/")
        if its_group != group:
            continue
        name, _, place_in_list = path.partition("/")
        if place_in_list:
            values.setdefault(name, []).append(tensor)
        else:
            values[name] = tensor
    return values


def as_tuple(value: Any) -> Any:
    """Return a list of plain values as a tuple, and any other value unchanged."""
    if isinstance(value, list) and not any(isinstance(v, np.ndarray) for v in value):
        return tuple(value)
    return value


def is_text(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"text"}


def texts(words: Any) -> AnyArray:
    """Return a list of text as an array."""
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"expected a list of text, got {quoted(words)}")
    return np.array(words, dtype=object)


def missing_keys(values: dict[str, Any], needed: Sequence[str]) -> str:
    """Return which required value is missing, not numeric or not finite; "" if all are valid."""
    for name in needed:
        if name not in values:
            return f"it lacks {name}"
        value = values[name]
        for part in value if isinstance(value, (list, tuple)) else [value]:
            numbers = np.asarray(part)
            if numbers.dtype.kind not in "biuf" or not np.isfinite(numbers).all():
                return f"{name} is not finite numbers"
    return ""
