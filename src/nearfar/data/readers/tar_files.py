"""A tar archive, read like a folder: by the places of its members, without unpacking it."""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import tempfile
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from ...io.untrusted import LARGEST_IMAGE, PIECE, Unpacking, in_megabytes
from ...quoting import PATH, in_brief, quoted
from ..dataset import DataError, DataNotFoundError
from .hidden_files import hidden

TARS = (".tar", ".tar.gz", ".tgz")
BROKEN = (OSError, ValueError, EOFError, RuntimeError, tarfile.TarError, zlib.error)
"""What reading a damaged archive raises; RuntimeError where headers lie inside each other without end."""
BLOCK = 512
"""Bytes of a header; blocks of zeros end an archive."""
TAR_ENDS = 4096
"""Bytes at the end of a file that tell it from others."""

_moving = threading.Lock()


class Member(NamedTuple):
    """Where the content of a file lies in the archive, in bytes."""

    start: int
    size: int


@dataclass
class TarFiles:
    """The files of a tar archive. Its headers are read once, and then each file from its place.

    A packed archive (.tar.gz) has no places to go to: it is unpacked once into a temporary file without a name.
    """

    root: str

    def __getstate__(self) -> dict[str, object]:
        return {"root": self.root}  # another process opens the archive for itself

    def names(self) -> list[str]:
        return self._names

    @cached_property
    def _names(self) -> list[str]:
        return sorted(name for name in self._members if not any(map(hidden, name.split("/"))))

    def tops(self) -> list[str]:
        return sorted({name.split("/", 1)[0] for name in self.names() if "/" in name})

    def read(self, name: str) -> bytes:
        if name not in self._members:
            raise DataNotFoundError(f"{self.root}: has no file {quoted(name)}")
        member = self._members[name]
        if member.size > LARGEST_IMAGE:
            why = f"it is larger than the {in_megabytes(LARGEST_IMAGE)} that one file may have"
            raise DataError(f"{in_brief(f'{self.root}/{name}', PATH)}: cannot be read ({why})")
        try:
            return _read_at(self._file, member.start, member.size)
        except OSError as error:
            raise DataError(f"{in_brief(f'{self.root}/{name}', PATH)}: cannot be read ({error})") from error

    def mark(self, name: str) -> tuple[int, bytes]:
        """Size and last bytes of a file, which tell most files apart at little cost."""
        member = self._members[name]
        size = min(member.size, TAR_ENDS)
        return member.size, _read_at(self._file, member.start + member.size - size, size)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    @cached_property
    def _file(self) -> IO[bytes]:
        """The archive, unpacked where it is packed."""
        file = Path(self.root).open("rb")  # noqa: SIM115 - it is closed with this object
        if self.root.endswith(".tar"):
            return file
        unpacked = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed with this object
        try:
            with file, gzip.open(file) as stream:
                shutil.copyfileobj(Unpacking(stream, os.path.getsize(self.root)), unpacked, PIECE)
        except BROKEN as error:
            unpacked.close()
            raise DataError(f"{self.root}: not a readable .tar.gz archive ({error})") from error
        unpacked.flush()
        return unpacked

    @cached_property
    def _members(self) -> dict[str, Member]:
        # a name that was written twice is one file, the later
        return dict(self._listed())

    def _listed(self) -> Iterator[tuple[str, Member]]:
        """Yield the name and the place of every file.

        Raises
        ------
        DataError
            Where the archive is damaged, or has a member that leads out of it or is neither a file nor a folder.
        """
        length = self._file.seek(0, os.SEEK_END)
        self._file.seek(0)
        try:
            with tarfile.open(fileobj=self._file, mode="r:") as archive:
                kept: list[tarfile.TarInfo] = vars(archive)["members"]
                while (found := archive.next()) is not None:
                    kept.clear()  # of millions, it would keep all headers
                    name = self._checked(found)
                    if found.offset_data + found.size > length:
                        raise DataError(f"{self.root}: damaged; it ends within {quoted(name)}")
                    if found.isfile():
                        yield name, Member(found.offset_data, found.size)
                end = archive.offset
        except DataError:
            raise
        except BROKEN as error:
            raise DataError(f"{self.root}: not a readable tar archive ({error})") from error
        # at a damaged header tarfile ends as at the end
        if any(_read_at(self._file, end, min(BLOCK, length - end))):
            raise DataError(f"{self.root}: damaged; the header at byte {end:,} cannot be read")

    def _checked(self, member: tarfile.TarInfo) -> str:
        """The name of a member without ./ and the like, if it is a file or a folder inside of the archive."""
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts:
            raise DataError(f"{self.root}: its member {quoted(member.name)} leads out of the archive; pack it anew")
        if member.issym() or member.islnk():
            advice = "pack it anew with tar --dereference --hard-dereference"
            raise DataError(f"{self.root}: its member {quoted(member.name)} is a link; {advice}")
        if member.issparse() or not (member.isfile() or member.isdir()):
            advice = "expected files and folders only; pack it anew"
            raise DataError(f"{self.root}: its member {quoted(member.name)} is a device or the like; {advice}")
        return path.as_posix()


def _read_at(file: IO[bytes], start: int, size: int) -> bytes:
    """Read from a place, also while other threads and forked processes read from the same open file."""
    if hasattr(os, "pread"):
        content = bytearray()
        while len(content) < size:
            piece = os.pread(file.fileno(), size - len(content), start + len(content))
            if not piece:
                raise OSError("the archive ends within it")
            content += piece
        return bytes(content)
    with _moving:
        file.seek(start)
        return file.read(size)
