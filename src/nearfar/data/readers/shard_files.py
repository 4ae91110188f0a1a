"""A folder of tar archives, read like one archive: the shards of a large data set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..dataset import DataNotFoundError
from .tar_files import TarFiles


@dataclass
class ShardFiles:
    """The files of several tar archives; the name of each begins with that of its archive.

    Parameters
    ----------
    root : str
        Path of the folder.
    shards : tuple of str
        Names of the archives, relative to the folder.
    """

    root: str
    shards: tuple[str, ...]

    def __getstate__(self) -> dict[str, object]:
        return {"root": self.root, "shards": self.shards}  # another process opens the archives again

    def names(self) -> list[str]:
        return [f"{shard}/{name}" for shard in self.shards for name in self._archives[shard].names()]

    def folders(self) -> list[str]:
        return []

    def top_folders(self) -> list[str]:
        return sorted({shard.split("/", 1)[0] for shard in self.shards})

    def read(self, name: str) -> bytes:
        shard, inside = self._place(name)
        return self._archives[shard].read(inside)

    def __contains__(self, name: str) -> bool:
        try:
            shard, inside = self._place(name)
        except DataNotFoundError:
            return False
        return inside in self._archives[shard]

    def archive(self, name: str) -> Path:
        """Return the archive that contains a file."""
        return Path(self.root, self._place(name)[0])

    def inside(self, name: str) -> str:
        """Return the name of a file within its archive."""
        return self._place(name)[1]

    def _place(self, name: str) -> tuple[str, str]:
        for shard in self._leading_to(name):
            return shard, name[len(shard) + 1 :]
        raise DataNotFoundError(f"{self.root}: none of its archives has a file {name!r:.200}")

    def _leading_to(self, name: str) -> Iterator[str]:
        """Yield the archives whose names are prefixes of this path."""
        end = name.find("/")
        while end >= 0:
            if name[:end] in self._archives:
                yield name[:end]
            end = name.find("/", end + 1)

    @cached_property
    def _archives(self) -> dict[str, TarFiles]:
        return {shard: TarFiles(str(Path(self.root, shard))) for shard in self.shards}
