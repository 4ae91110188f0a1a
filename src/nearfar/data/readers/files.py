"""A folder or an archive, read the same way."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Protocol

from ...io.formats import TARS
from ...io.hidden_files import hidden
from ...io.untrusted import (
    CORRUPT,
    LARGEST_IMAGE,
    PIECE,
    Outside,
    Unreadable,
    check_regular,
    check_size,
    further_folders,
    path_below,
    read_file,
    read_stream,
)
from ...quoting import PATH, quoted, shorten
from ..dataset import BadItemError, DataError, DataNotFoundError
from .saved_datasets import ArrowFiles
from .shard_files import ShardFiles
from .tar_files import TarFiles

BROKEN = (OSError, ValueError, *CORRUPT)
"""Exceptions of a damaged archive."""

PIECE_OF_DENSE_ARCHIVE = 2**12
"""Number of compressed bytes that are read at a time: bzip2 and LZMA may expand one byte to 20,000, 80 MB in all."""


SAYS_UTF8 = 0x800
"""Flag of entries whose names are UTF-8; other names should be in code page 437."""


OTHER_TARS = (".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")
"""Endings of tar archives with compressions that are not supported."""


class OutsideError(DataError):
    """A file is not read, because its path leads out of the folder of the data."""


class Files(Protocol):
    """Named files below one root; names are relative and use forward slashes."""

    @property
    def root(self) -> str: ...

    def names(self) -> list[str]: ...

    def folders(self) -> list[str]: ...

    def top_folders(self) -> list[str]: ...

    def read(self, name: str) -> bytes: ...

    def __contains__(self, name: str) -> bool: ...


@dataclass(frozen=True)
class FolderFiles:
    """The files below a folder, without hidden ones.

    Parameters
    ----------
    root : str
        Path of the folder.
    also : tuple of str
        Further folders to which absolute paths, paths with ".." and links may lead.
    """

    root: str
    also: tuple[str, ...] = field(default_factory=further_folders)

    def __getstate__(self) -> dict[str, object]:
        return {"root": self.root, "also": self.also}  # processes that read files need no list of them

    def names(self) -> list[str]:
        return self._listed[0]

    def folders(self) -> list[str]:
        """Return the names of all folders, also of those without files."""
        return self._listed[1]

    @cached_property
    def _listed(self) -> tuple[list[str], list[str]]:
        """Names of all files, and of all folders."""
        every = sorted(self.walk())
        folders = [name.removesuffix("/") for name in every if name.endswith("/")]
        return [name for name in every if not name.endswith("/")], sorted(folders)

    def walk(self) -> Iterator[str]:
        """Yield the names of all files, and those of folders with a slash at the end, in no order."""
        for folder, inner, files in os.walk(self.root, followlinks=True):
            inner[:] = [name for name in inner if not (hidden(name) or _links_to_parent(folder, name))]
            for name in inner:
                if os.path.islink(os.path.join(folder, name)):
                    self.path(os.path.relpath(os.path.join(folder, name), self.root))
            relative = os.path.relpath(folder, self.root).replace(os.sep, "/")
            above = "" if relative == os.curdir else f"{relative}/"
            yield from (f"{above}{name}" for name in files if not hidden(name))
            yield from (f"{above}{name}/" for name in inner)

    def top_folders(self) -> list[str]:
        return sorted(entry.name for entry in os.scandir(self.root) if entry.is_dir() and not hidden(entry.name))

    def path(self, name: str) -> str:
        """Return the path of a file after all links; raise an OutsideError if it leads out of the folder."""
        try:
            return path_below(self.root, name, self.also)
        except Outside as error:
            where = shorten(str(Path(self.root, name)), PATH)
            raise OutsideError(f"{where}: is not read, because {error}") from error

    def read(self, name: str) -> bytes:
        path = Path(self.root, name)
        try:
            return read_file(self.path(name), LARGEST_IMAGE)
        except DataError:
            raise
        except Unreadable as error:
            raise DataError(f"{shorten(str(path), PATH)}: cannot be read ({error})") from error
        except OSError as error:
            raise DataNotFoundError(f"{shorten(str(path), PATH)}: cannot be read ({error.strerror})") from error
        except ValueError as error:  # a zero byte
            raise DataNotFoundError(f"{quoted(name)}: is not a valid file name ({error})") from error

    def __contains__(self, name: str) -> bool:
        path = os.path.join(self.root, name)
        return os.path.exists(path) and not os.path.isdir(path)  # reading raises an error if it is not a regular file


@dataclass
class ZipFiles:
    """The files of a zip archive. Every process opens the archive for itself."""

    root: str
    _open: dict[int, zipfile.ZipFile] = field(default_factory=dict, repr=False, compare=False)

    @property
    def _zip(self) -> zipfile.ZipFile:
        # forked workers would share the file position of a common handle
        if os.getpid() not in self._open:
            try:
                self._open[os.getpid()] = zipfile.ZipFile(self.root)
            except BROKEN as error:
                raise DataError(f"{self.root}: not a readable zip archive ({error})") from error
        return self._open[os.getpid()]

    def __getstate__(self) -> dict[str, object]:
        return {"root": self.root, "_open": {}}

    def names(self) -> list[str]:
        return self._names

    @cached_property
    def _names(self) -> list[str]:
        entries = (name for name in self._members if not name.endswith("/"))
        return sorted(name for name in entries if not any(map(hidden, name.split("/"))))

    def folders(self) -> list[str]:
        """Return the names of all folders that are listed, also of those without files."""
        listed = (name.removesuffix("/") for name in self._members if name.endswith("/"))
        return sorted(name for name in listed if name and not any(map(hidden, name.split("/"))))

    def top_folders(self) -> list[str]:
        return sorted({name.split("/", 1)[0] for name in self.names() if "/" in name})

    def read(self, name: str) -> bytes:
        if name not in self._members:
            raise DataNotFoundError(f"{self.root}: has no file {quoted(name)}")
        entry = self._members[name]
        dense = entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        try:
            check_size(entry.file_size)
            with self._zip.open(entry) as file:  # the size that the archive states may be wrong
                return read_stream(file, LARGEST_IMAGE, PIECE_OF_DENSE_ARCHIVE if dense else PIECE)
        except BROKEN as error:
            raise DataError(f"{shorten(f'{self.root}/{name}', PATH)}: cannot be read ({error})") from error

    def mark(self, name: str) -> tuple[int, int]:
        """Return the size and checksum of a file, as listed in the archive, without unpacking it."""
        entry = self._members[name]
        return entry.file_size, entry.CRC

    def __contains__(self, name: str) -> bool:
        return name in self._members

    @cached_property
    def _members(self) -> dict[str, zipfile.ZipInfo]:
        # if a name occurs twice, the later file counts
        return {_name_in(entry): entry for entry in self._zip.infolist()}


def open_files(path: str | Path) -> Files:
    """Open a folder, a zip archive, or a tar archive (also as .tar.gz).

    Raises
    ------
    DataError
        If it does not exist, or is another kind of archive (the message then says how to unpack it).
    """
    path = Path(path)
    if path.is_dir():
        return _shards_in(path) or FolderFiles(str(path))
    if not path.exists():
        raise DataNotFoundError(f"{path}: no such file or folder")
    refuse_special(path)
    if path.name.lower().endswith(TARS):
        return TarFiles(str(path))
    if path.name.endswith(OTHER_TARS):
        raise DataError(f"{path}: unpack it first (tar xf {path.name}) and give the folder")
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path}: neither a folder nor a zip or tar archive")
    return ZipFiles(str(path))


@dataclass(frozen=True, eq=False)
class ReadsFiles:
    """A reader whose item i is a file of a folder or an archive, or a part of it."""

    bad: ClassVar[type[BadItemError]]
    """The error that names an item whose file cannot be read."""

    files: Files
    paths: Sequence[str]

    def _name(self, i: int) -> str:
        return (Path(self.files.root) / self.paths[i]).as_posix()

    def _data(self, i: int) -> bytes:
        try:
            return self.files.read(self.paths[i])
        except OutsideError:
            raise
        except DataError as error:
            raise self.bad(str(error)) from error


def file_behind(files: Files, name: str) -> Path:
    """Return the file on disk that contains a file: itself, or its archive.

    Its size and date show whether the content has changed.
    """
    if isinstance(files, FolderFiles):
        return Path(files.root, name)
    if isinstance(files, ArrowFiles):
        return files.newest
    if isinstance(files, ShardFiles):
        return files.archive(name)
    return Path(files.root)


def is_archive(path: Path) -> bool:
    """Return whether the name of a file is that of an archive that `open_files` reads."""
    return path.name.lower().endswith((".zip", *TARS))


def _shards_in(folder: Path) -> ShardFiles | None:
    """Return the tar archives of a folder that contains only these, and lists and descriptions of them."""
    names = sorted(entry.name for entry in os.scandir(folder) if not hidden(entry.name))
    shards = tuple(name for name in names if name.endswith(TARS))
    if shards and all(name.endswith((*TARS, ".json", ".txt", ".md", ".idx")) for name in names):
        files = FolderFiles(str(folder))
        for shard in shards:
            files.path(shard)
        return ShardFiles(str(folder), shards)
    return None


def stem_of(path: str | Path) -> str:
    """Return the name of a folder or an archive without its ending."""
    name = Path(path).name
    packed = next((ending for ending in TARS if name.lower().endswith(ending)), None)
    return Path(path).stem if packed is None else name[: -len(packed)]


def refuse_special(path: Path) -> None:
    """Raise a DataError if a path is neither a folder nor a regular file, but a pipe, a device or a socket."""
    if path.is_dir():
        return
    try:
        check_regular(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error


def locate(files: Files, name: str) -> str:
    """Find the prefix ("" or one top folder with a slash) below which the file `name` lies.

    Raises
    ------
    DataNotFoundError
        If neither the root nor a top folder has it.
    """
    for prefix in ("", *(top + "/" for top in files.top_folders())):
        if prefix + name in files:
            return prefix
    raise DataNotFoundError(f"{files.root}: has no {name}; expected it at the top or in a folder there")


def lines(files: Files, name: str) -> list[str]:
    """Read the non-empty lines of a text file."""
    text = files.read(name).decode("utf-8-sig", errors="replace")
    return [line for line in text.splitlines() if line.strip()]


def _links_to_parent(folder: str, name: str) -> bool:
    """Return whether a link leads to a folder that contains it, which would repeat the contents forever."""
    path = os.path.join(folder, name)
    if not os.path.islink(path):
        return False
    # the path may contain other links
    target = os.path.realpath(path)
    walked = (Path(folder), *Path(folder).parents)
    return any(Path(os.path.realpath(above)).is_relative_to(target) for above in walked)


def _name_in(entry: zipfile.ZipInfo) -> str:
    """Return the name of a file in an archive. Many tools write UTF-8 names without the required flag."""
    if entry.flag_bits & SAYS_UTF8 or entry.filename.isascii():
        return entry.filename
    try:
        return entry.filename.encode("cp437").decode("utf-8")
    except UnicodeError:
        return entry.filename
