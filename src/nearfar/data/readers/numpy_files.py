"""Arrays in .npy and .npz files: what a header says of the size is compared with the file before anything is made."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from ...io.untrusted import check_expansion, check_regular
from ...quoting import PATH, in_brief, quoted
from .files import BROKEN

DAMAGED = (*BROKEN, MemoryError, OverflowError, RecursionError, SyntaxError, TokenError, TypeError, LookupError)
"""What NumPy raises for damaged files, whose headers it parses as Python."""

HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read_array(path: Path) -> NDArray[Any]:
    """Return the array of an .npy file; raise a ValueError if it is not valid."""
    try:
        check_regular(path)
        with path.open("rb") as file:
            if file.read(4) == b"PK\x03\x04":
                raise ValueError("it is an archive of several arrays; name it .npz")
            file.seek(0)
            _check_header(file, os.fstat(file.fileno()).st_size)
            file.seek(0)
            array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
            return array
    except DAMAGED as error:
        raise ValueError(_reason(error)) from error


def read_arrays(path: Path, names: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz file, or those with the given names; raise a ValueError if the file is not valid."""
    try:
        check_regular(path)
        with zipfile.ZipFile(path) as archive:
            entries = [entry for entry in archive.infolist() if entry.filename.endswith(".npy")]
            members = {entry.filename.removesuffix(".npy"): entry for entry in entries}
            check_expansion(sum(entry.file_size for entry in members.values()), path.stat().st_size)
            wanted = members if names is None else [name for name in names if name in members]
            return {name: _member(archive, members[name], name) for name in wanted}
    except zipfile.BadZipFile as error:
        with path.open("rb") as file:
            single = file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX
        raise ValueError("it is one array; name it .npy" if single else _reason(error)) from error
    except DAMAGED as error:
        raise ValueError(_reason(error)) from error


def _member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, name: str) -> NDArray[Any]:
    with archive.open(entry) as file:
        _check_header(file, entry.file_size, name)
    with archive.open(entry) as file:
        array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        return array


def _check_header(file: IO[bytes], size: int, name: str = "X") -> None:
    """Raise unless the header of an array fits the `size` in bytes of its file, header and all."""
    version = npy.read_magic(file)
    if version not in HEADERS:
        raise ValueError("its format is of a version for tables of named fields, expected one of numbers or text")
    shape, _, dtype = HEADERS[version](file)
    if dtype.hasobject:
        advice = f"save {name}.astype(str), or of numbers {name}.astype(float)"
        raise ValueError(f"arrays of Python objects are not read: {advice}")
    count = 1
    for sides in shape:
        count *= sides
    if min(shape, default=0) < 0 or count * dtype.itemsize > size or (dtype.itemsize == 0 and count > size):
        raise ValueError(f"its header tells of an array of shape {quoted(shape)}, which its {size:,} bytes do not hold")


def _reason(error: BaseException) -> str:
    return in_brief(" ".join(str(error).split()), PATH) or type(error).__name__
