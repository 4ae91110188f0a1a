"""Where the items of a source are on this machine: addresses are copied, and data sets in memory are saved."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable
from uuid import uuid4

from ..io.cache import private_folder
from ..io.remote import NotCopiedError, NothingThereError, is_remote, local_copy, shown_address
from ..io.sources import SourceKind, kind_by_name
from .dataset import DataError, DataNotFoundError

CHARACTERS_OF_NAMES = re.compile(r"[^\w-]")


@runtime_checkable
class SavedToDisk(Protocol):
    """A `Dataset` or a `DatasetDict` of Hugging Face's `datasets`."""

    def save_to_disk(self, dataset_dict_path: Any, /) -> None: ...


Named: TypeAlias = str | os.PathLike[str] | SavedToDisk
"""A source of data as a user names it: a path, an address, a name such as "digits", or a data set of Hugging Face."""


def local_source(source: Named) -> str:
    """Return the name or the local path of a source as text.

    What is at an address is copied into the folder `remote` of the cache, and a data set of Hugging Face is saved into
    its folder `datasets`: once, and again only if it has changed. All that reads the source, names it or opens
    it again then has files.

    Raises
    ------
    TypeError
        For anything else, such as an array.
    DataError
        If it cannot be copied or saved; the message is one line.
    """
    if isinstance(source, str | os.PathLike):
        if not is_remote(source):
            return os.fspath(source)
        try:
            return str(local_copy(source))
        except NothingThereError as error:
            raise DataNotFoundError(str(error)) from None
        except NotCopiedError as error:
            raise DataError(str(error)) from None
    if isinstance(source, SavedToDisk):
        return str(_saved(source))
    kind = type(source).__name__
    if hasattr(source, "features") and hasattr(source, "__iter__"):  # a stream of Hugging Face
        raise DataError(f"source: {kind} is a stream; write it into files first, as with to_parquet")
    raise TypeError(
        f"source: expected a path or a name, got {kind}; Dataset.from_array(name, array, labels) takes arrays"
    )


def local_embeddings(source: str | os.PathLike[str]) -> Path:
    """Return the path of the copy of embeddings at an address; any other source is returned as it is."""
    there = is_remote(source) and kind_by_name(source) is SourceKind.EMBEDDINGS
    return Path(local_source(source) if there else source)


def is_elsewhere(source: Any) -> bool:
    """Return whether a source has no local path yet: an address, or a data set in memory."""
    return isinstance(source, SavedToDisk) or (isinstance(source, str | os.PathLike) and is_remote(source))


def refuse_remote(source: str) -> None:
    """Raise a DataError if the file of a run or an index names an address: it may be a stranger's."""
    if is_remote(source):
        raise DataError(f"{shown_address(source)}: is recorded as an address; only one that you give is read")


def _saved(dataset: Any) -> Path:
    """Save a data set of Hugging Face into the cache, unless it is there, and return its folder."""
    parts = dict(dataset) if isinstance(dataset, Mapping) else {"": dataset}
    for part in parts.values():
        if getattr(part, "format", {}).get("type") == "custom":
            raise DataError("source: the data set has a transform, which is not saved; apply it with its method map")
    prints = [(name, str(getattr(part, "_fingerprint", "") or uuid4())) for name, part in parts.items()]
    folder = private_folder("datasets") / sha256(repr(prints).encode()).hexdigest()[:16]
    info = getattr(next(iter(parts.values()), None), "info", None)
    name = CHARACTERS_OF_NAMES.sub("_", str(getattr(info, "dataset_name", "") or ""))[:60] or "dataset"
    found = folder / name
    if found.exists():
        return found
    folder.mkdir(mode=0o700, exist_ok=True)
    begun = folder / f"{name}.{uuid4().hex}"
    try:
        dataset.save_to_disk(str(begun))
        os.replace(begun, found)
    except OSError as error:
        if not found.exists():  # another process may have saved it
            raise DataError(f"source: the data set cannot be saved to {folder} ({error.strerror or error})") from error
    finally:
        shutil.rmtree(begun, ignore_errors=True)
    return found
