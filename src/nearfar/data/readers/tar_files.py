"""A tar archive, read like a folder: members are read from their positions, without unpacking the archive."""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from ...io.hidden_files import hidden
from ...io.untrusted import CORRUPT, LARGEST_IMAGE, PIECE, Unpacking, in_megabytes
from ...quoting import PATH, quoted, shorten
from ..dataset import DataError, DataNotFoundError

BROKEN = (OSError, ValueError, tarfile.TarError, *CORRUPT)
"""Exceptions of a damaged archive; RuntimeError if headers are nested without end."""
TAR_BLOCK = 512
"""Number of bytes of a header; blocks of zeros end an archive."""
TAR_ENDS = 4096
"""Number of bytes at the end of a file that distinguish it from most others."""

_moving = threading.Lock()


class Member(NamedTuple):
    """Position and size of the content of a file in the archive, in bytes."""

    start: int
    size: int


@dataclass
class TarFiles:
    """The files of a tar archive. Its headers are read once, and then each file from its position.

    A compressed archive (.tar.gz) has no fixed positions, so it is decompressed once into a temporary file.
    """

    root: str

    def __getstate__(self) -> dict[str, object]:
        return {"root": self.root}  # another process opens the archive again

    def names(self) -> list[str]:
        return self._names

    @cached_property
    def _names(self) -> list[str]:
        return sorted(name for name in self._members if not any(map(hidden, name.split("/"))))

    def folders(self) -> list[str]:
        return []

    def top_folders(self) -> list[str]:
        return sorted({name.split("/", 1)[0] for name in self.names() if "/" in name})

    def read(self, name: str) -> bytes:
        if name not in self._members:
            raise DataNotFoundError(f"{self.root}: has no file {quoted(name)}")
        member = self._members[name]
        if member.size > LARGEST_IMAGE:
            why = f"it is larger than {in_megabytes(LARGEST_IMAGE)}, the maximum size of a file"
            raise DataError(f"{shorten(f'{self.root}/{name}', PATH)}: cannot be read ({why})")
        try:
            return _read_at(self._file, member.start, member.size)
        except OSError as error:
            raise DataError(f"{shorten(f'{self.root}/{name}', PATH)}: cannot be read ({error})") from error

    def mark(self, name: str) -> tuple[int, bytes]:
        """Return the size and the last bytes of a file, which distinguish most files at little cost."""
        member = self._members[name]
        size = min(member.size, TAR_ENDS)
        return member.size, _read_at(self._file, member.start + member.size - size, size)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    @cached_property
    def _file(self) -> IO[bytes]:
        """The open archive, decompressed if necessary."""
        file = Path(self.root).open("rb")  # noqa: SIM115 - it is closed with this object
        if self.root.lower().endswith(".tar"):
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
        # if a name occurs twice, the later file counts
        return dict(self._listed())

    def _listed(self) -> Iterator[tuple[str, Member]]:
        """Yield the name and the position of every file.

        Raises
        ------
        DataError
            If the archive is damaged, or has a member that leads out of it or is neither a file nor a folder.
        """
        length = self._file.seek(0, os.SEEK_END)
        self._file.seek(0)
        try:
            with tarfile.open(fileobj=self._file, mode="r:") as archive:
                kept: list[tarfile.TarInfo] = vars(archive)["members"]
                while (found := archive.next()) is not None:
                    kept.clear()  # tarfile would keep the headers of all members in memory
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
        # tarfile stops at a damaged header as if it were the end
        if any(_read_at(self._file, end, min(TAR_BLOCK, length - end))):
            raise DataError(f"{self.root}: damaged; the header at byte {end:,} cannot be read")

    def _checked(self, member: tarfile.TarInfo) -> str:
        """Return the name of a member without ./ and the like; refuse links, devices and paths out of the archive."""
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts:
            raise DataError(
                f"{self.root}: its member {quoted(member.name)} leads out of the archive; create the archive again"
            )
        if member.issym() or member.islnk():
            advice = "create the archive again with tar --dereference --hard-dereference"
            raise DataError(f"{self.root}: its member {quoted(member.name)} is a link; {advice}")
        if member.issparse() or not (member.isfile() or member.isdir()):
            advice = "create the archive again with files and folders only"
            raise DataError(f"{self.root}: its member {quoted(member.name)} is a device or the like; {advice}")
        return path.as_posix()


def _read_at(file: IO[bytes], start: int, size: int) -> bytes:
    """Read from a position; safe while other threads and forked processes read from the same open file."""
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
