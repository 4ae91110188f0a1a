"""Public data sets by name: downloaded once, checked, and kept in the cache as a zip of class folders."""

from __future__ import annotations

import hashlib
import io
import re
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from ..io.atomic_files import atomic_write, locked
from ..io.cache import cache_folder
from ..io.untrusted import CORRUPT, LARGEST_IMAGE, PIECE
from ..progress import counted, stage
from ..quoting import quoted
from .dataset import DataError, DataNotFoundError, Source
from .readers.folder import read_folder

TIMEOUT = 60.0
"""Timeout of a server in seconds."""

LONGEST_FETCH = 3600.0
"""Seconds to wait for another process that downloads the same data set."""

YEAR = (1980, 1, 1, 0, 0, 0)
"""Date of all members of the zip, so that identical photos give identical archives."""


@dataclass(frozen=True)
class PublicSet:
    """A public data set that can be downloaded as one zip.

    Attributes
    ----------
    name : str
        Name of the data set in this library.
    url : str
        Address of the archive, at a fixed version.
    size : int
        Approximate size of the archive in bytes.
    digest : str
        SHA-256 of the members that are used, as `digest_of` computes it: a host may pack the same files again, which
        changes the archive but not its members.
    members : str
        Pattern of the paths of the photos, below the top folder of the archive, with the groups `part`, `label` and
        `file`.
    others : tuple of str
        Files that are kept with the photos, such as the license.
    side : int
        Length in pixels to which the shorter side of the photos is reduced, unless full size is requested.
    license : str
        License of the data.
    about : str
        Description of the data.
    paper : str
        Paper to cite.
    """

    name: str
    url: str
    size: int
    digest: str
    members: str
    others: tuple[str, ...]
    side: int
    license: str
    about: str
    paper: str

    @property
    def summary(self) -> str:
        """One line on the data set."""
        return f"{self.name}: {self.about}; {self.license} license; {self.paper}"


PUBLIC = {
    "grocery": PublicSet(
        name="grocery",
        url=(
            "https://github.com/marcusklasson/GroceryStoreDataset/archive/fc80ba90f803d79d0383df52c5a4ac5de99ff6fc.zip"
        ),
        size=125_000_000,
        digest="4f54a715c6c21db6ec41e427c67062e5e10c4e0f08d31a4eb0a282731426c5fc",
        members=r"dataset/(?P<part>train|val|test)/(?:[^/]+/)+?(?P<label>[^/]+)/(?P<file>[^/]+\.jpg)",
        others=("LICENSE", "dataset/classes.csv"),
        side=128,
        license="MIT",
        about="5,421 photos of 81 grocery products, taken with a smartphone in shops",
        paper="Klasson, Zhang & Kjellström, WACV 2019, arXiv:1901.00711",
    )
}


def summaries() -> str:
    """Return a line on each public data set."""
    return "\n".join(one.summary for one in PUBLIC.values())


def public_set(name: str) -> PublicSet:
    """Return a public data set by its name.

    Raises
    ------
    DataError
        If there is no data set of this name.
    """
    if name not in PUBLIC:
        raise DataError(f"{quoted(name)}: unknown public data set; expected {', '.join(PUBLIC)}")
    return PUBLIC[name]


def cached_file(name: str, *, full: bool = False) -> Path:
    """Return the path of a data set in the cache, whether it exists or not."""
    return cache_folder() / "data" / f"{name}{'-full' if full else ''}.zip"


def cached_public_file(name: str) -> Path:
    """Return the path of a data set in the cache.

    Raises
    ------
    DataNotFoundError
        If it has not been downloaded.
    """
    path = cached_file(name)
    if not path.is_file():
        megabytes = PUBLIC[name].size / 1e6
        raise DataNotFoundError(f"{name}: not downloaded yet; run `nearfar data {name}` ({megabytes:.0f} MB)")
    return path


def read_grocery(*, image_size: int | None = None, skip_bad: bool = False) -> Source:
    """Read the photos of groceries from the cache; raise a DataNotFoundError if they are not there."""
    return read_folder(cached_public_file("grocery"), image_size=image_size, skip_bad=skip_bad)


def fetch(name: str, *, full: bool = False, url: str | None = None, out: Path | None = None) -> Path:
    """Download a public data set, check it, and write it as a zip of class folders. An existing file is kept.

    Parameters
    ----------
    name : str
        A key of `PUBLIC`.
    full : bool
        Keep photos as they are published. By default, they are reduced to the shorter side that the documentation uses.
    url : str, optional
        Another address of the same archive, or a file.
    out : Path, optional
        The zip to write. By default, a file in the cache.

    Returns
    -------
    Path
        The zip.

    Raises
    ------
    DataError
        If there is no connection, the file is truncated, or its content is not the expected one; the message is one
        line.
    """
    wanted = public_set(name)
    path = cached_file(name, full=full) if out is None else out
    if path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name(f"{path.name}.lock"), wait=LONGEST_FETCH):
        if not path.is_file():  # another process may have written it in the meantime
            _write(wanted, path, url or wanted.url, full=full)
    return path


def _write(wanted: PublicSet, path: Path, url: str, *, full: bool) -> None:
    with tempfile.TemporaryFile() as file:
        if urlsplit(url).scheme in ("http", "https"):
            _download(wanted, url, file)
            archive = _opened(file, url)
        else:
            archive = _opened(Path(url), url)
        with archive:
            members = _members(archive, wanted)
            found = digest_of(archive, members)
            if found != wanted.digest:
                raise DataError(
                    f"{url}: is not the expected version of {wanted.name}: its {len(members):,} files have the SHA-256 "
                    f"{found[:12]}..., expected {wanted.digest[:12]}...; nothing was saved"
                )
            with atomic_write(path) as written:
                _pack(archive, members, wanted, written, full=full)


def _download(wanted: PublicSet, url: str, file: IO[bytes]) -> None:
    """Download an archive into a file; stop if it has more than twice the expected number of bytes."""
    import http.client
    import urllib.error
    import urllib.request

    most = 2 * wanted.size
    how = f"or download it on a connected machine and run `nearfar data {wanted.name} --url FILE`"
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "nearfar"})
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            announced = answer.headers.get("Content-Length")
            total = int(announced) if announced and announced.isdigit() else None
            size = 0
            with stage("fetching", total or wanted.size) as done:
                while piece := answer.read(PIECE):
                    size += len(piece)
                    if size > most:
                        raise DataError(f"{url}: sends more than {most / 1e6:.0f} MB, which is not {wanted.name}")
                    file.write(piece)
                    done(len(piece))
    except http.client.IncompleteRead as error:
        raise DataError(f"{url}: the download is incomplete; try again, {how}") from error
    except (OSError, http.client.HTTPException) as error:
        why: object = error
        if isinstance(error, urllib.error.URLError) and not isinstance(error, urllib.error.HTTPError):
            why = error.reason
        raise DataError(f"{url}: cannot be downloaded ({why or type(error).__name__}); try again, {how}") from error
    if total is not None and size != total:
        raise DataError(f"{url}: the download is incomplete, {size:,} of {total:,} bytes; try again, {how}")


def _opened(file: Path | IO[bytes], url: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except FileNotFoundError as error:
        raise DataNotFoundError(
            f"{url}: expected a file that exists, or an address that begins with https://"
        ) from error
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise DataError(f"{url}: not a readable zip archive ({error})") from error


def _members(archive: zipfile.ZipFile, wanted: PublicSet) -> dict[str, zipfile.ZipInfo]:
    """Return the members that are used, by their paths below the archive's top folder, sorted."""
    pattern = re.compile(wanted.members)
    found = {}
    for entry in archive.infolist():
        inside = entry.filename.partition("/")[2]
        if inside in wanted.others or pattern.fullmatch(inside):
            found[inside] = entry
    return dict(sorted(found.items()))


def digest_of(archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo]) -> str:
    """Return the SHA-256 of paths and contents: of path, a zero byte and the SHA-256 of the content, one by one."""
    digest = hashlib.sha256()
    for path, entry in counted(members.items(), "checking", len(members)):
        digest.update(path.encode() + b"\0" + hashlib.sha256(_content(archive, entry)).digest())
    return digest.hexdigest()


def _content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    if entry.file_size > LARGEST_IMAGE:
        raise DataError(f"{entry.filename}: is too large for a photo")
    try:
        return archive.read(entry)
    except (OSError, ValueError, *CORRUPT) as error:
        raise DataError(f"{entry.filename}: cannot be unpacked ({error})") from error


def _pack(
    archive: zipfile.ZipFile,
    members: dict[str, zipfile.ZipInfo],
    wanted: PublicSet,
    written: IO[bytes],
    *,
    full: bool,
) -> None:
    with zipfile.ZipFile(written, "w") as packed:
        for name, path in counted(_placed(members, wanted), "packing", len(members)):
            content = _content(archive, members[path])
            if path not in wanted.others and not full:
                content = reduced(content, wanted.side)
            packed.writestr(zipfile.ZipInfo(name, YEAR), content)


def _placed(members: dict[str, zipfile.ZipInfo], wanted: PublicSet) -> Iterator[tuple[str, str]]:
    """Yield the name of each file in the zip of class folders, and its path in the archive, sorted by the former."""
    pattern = re.compile(wanted.members)
    names = {}
    for path in members:
        match = pattern.fullmatch(path)
        if match is None:
            names[path.rpartition("/")[2]] = path
        else:
            names[f"{match['label']}/{match['part']}_{match['file']}"] = path
    return iter(sorted(names.items()))


def reduced(content: bytes, side: int) -> bytes:
    """Return a photo with its shorter side reduced to `side` pixels (Lanczos), as JPEG of quality 67."""
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(content)) as image:
        upright = ImageOps.exif_transpose(image).convert("RGB")
    width, height = upright.size
    scale = side / min(width, height)
    if scale < 1:
        upright = upright.resize((round(width * scale), round(height * scale)), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    upright.save(buffer, "JPEG", quality=67, optimize=True)
    return buffer.getvalue()
