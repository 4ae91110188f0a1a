"""Sources at addresses, such as ``s3://bucket/photos``: they are copied into the cache, and read from there.

The copy lies in the folder `remote` of the cache, which belongs to this user alone. Whoever opens the address again
gets the same copy, of which only the files are copied again that have changed. A copy that was interrupted continues.

Listings come from strangers. A name that leads out of the address is refused, and so are a listing of too many files, a
file without an end, and a web page that comes where a file was asked for. Neither passwords nor signatures in an
address appear in a message, in a file of the cache or in a name.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import shutil
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import unquote, urljoin, urlsplit

from filelock import FileLock

from ..extras import is_installed
from ..progress import stage
from ..quoting import PATH, count_of, quoted, shorten
from .cache import private_folder
from .hidden_files import hidden
from .untrusted import PIECE, in_megabytes

PACKAGES = {
    "http": "aiohttp",
    "https": "aiohttp",
    "s3": "s3fs",
    "hf": "huggingface_hub",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "memory": "fsspec",
}
"""Package of each protocol, besides fsspec."""
IN_EXTRA = ("aiohttp", "s3fs", "huggingface_hub", "fsspec")
"""Packages that the extra `remote` brings."""
WEB = ("http", "https")
ADDRESS = re.compile(rf"({'|'.join(PACKAGES)}):/{{1,2}}(?=[^/])", re.IGNORECASE)
"""How an address begins; as a pathlib.Path, it has lost one of its slashes."""
MARKS = ("ETag", "etag", "Last-Modified", "LastModified", "last_modified", "md5Hash", "blob_id", "created", "updated")
"""What file systems state about the version of a file."""
MOST_FILES = 1_000_000
DEEPEST_FOLDER = 10
"""Maximum depth of the folders in web pages that list files; such pages may link to each other forever."""
NOT_IN_NAMES = '\\:"<>|?*' if os.name == "nt" else "\\"
LONGEST_PART = 255  # bytes of a name of a file or a folder
LARGEST_UNKNOWN = 2**33
"""Maximum number of bytes of a file whose size the server does not state."""
FREE_ON_DISK = 2**28  # bytes that stay free on the disk
LARGEST_PAGE = 2**26  # bytes of a web page that lists files
THREADS = 16
LONGEST_SILENCE = 30.0  # seconds without a byte after which a web server is given up
SLOWEST = 100  # bytes a second, below which it is given up, too: one that sends a byte now and then never ends
WEB_PAGE = (b"<!doctype html", b"<html")
CHARACTERS = re.compile(r"[^\w.,+=@ -]")
LOG = "copied.jsonl"
FILES = "files"
PLACE = "address"
COMPLETE = "complete"


class NotCopiedError(OSError):
    """A source at an address cannot be copied. The message is one line without passwords and signatures."""


class NothingThereError(NotCopiedError, FileNotFoundError):
    """There is nothing at an address."""


class _Connection(Exception):
    """The server of an address does not answer."""


@dataclass(frozen=True)
class Entry:
    """A file of a listing.

    Attributes
    ----------
    place : str
        Its place, as the file system calls it.
    size : int or None
        Number of bytes, if it is known.
    mark : str
        What changes if the file changes; "" if nothing is known.
    """

    place: str
    size: int | None
    mark: str

    def is_of(self, known: Any, file: Path) -> bool:
        """Return whether a file is a copy of this version, by what was logged when it was copied."""
        if not self.mark or known != [self.size, self.mark] or not file.is_file():
            return False
        return self.size is None or file.stat().st_size == self.size


def is_remote(source: str | os.PathLike[str]) -> bool:
    """Return whether a source is the address of data, of which a copy is read.

    >>> is_remote("s3://bucket/photos"), is_remote("photos/"), is_remote("cub:birds")
    (True, False, False)
    """
    return ADDRESS.match(os.fspath(source)) is not None


def shown_address(address: str | os.PathLike[str]) -> str:
    """Return an address as messages show it: without a password, and without a signature after a question mark.

    >>> shown_address("https://me:secret@host/a.csv?X-Amz-Signature=1234")
    'https://host/a.csv'
    """
    return shorten(_without_secrets(_whole(address)), PATH)


def _without_secrets(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def refuse_writing(path: str | os.PathLike[str], name: str) -> None:
    """Raise a ValueError if something is to be written at an address, which would become a folder called ``s3:``."""
    if is_remote(path):
        raise ValueError(
            f"{name}: {shown_address(path)} is an address; name a place on this machine, and copy it there"
        )


def address_of_copy(path: str | os.PathLike[str]) -> str | None:
    """Return the address of which a path is the copy, without secrets; None if it is no copy."""
    files = Path(os.path.abspath(path)).parent
    note = files.parent / PLACE
    if files.name != FILES or not note.is_file() or not files.parent.parent.samefile(private_folder("remote")):
        return None
    return note.read_text(encoding="utf-8")


def local_copy(address: str | os.PathLike[str]) -> Path:
    """Copy what is at an address into the cache, unless it is there, and return the path of the copy.

    Parameters
    ----------
    address : str
        Address of a file, or of a folder; those of folders in web servers end in a slash.

    Returns
    -------
    Path
        A file or a folder with the last name of the address.

    Raises
    ------
    NotCopiedError
        If it cannot be read, is empty, too large, or leads elsewhere.
    """
    whole = _whole(address)
    name = shown_address(whole)
    if "::" in whole:
        raise NotCopiedError(f"{name}: addresses within addresses (::) are not read; give the address of the data")
    kept = _copied.get(whole)
    if kept is not None and kept.exists():
        return kept
    system = _file_system(whole, name)
    digest = sha256(whole.encode(errors="surrogatepass")).hexdigest()[:16]
    folder = private_folder("remote") / digest
    folder.mkdir(mode=0o700, exist_ok=True)
    target = folder / FILES / _last_name(whole)  # which may have any name
    target.parent.mkdir(exist_ok=True)
    with FileLock(folder / "lock"):
        try:
            is_folder, entries = _reported(lambda: _listing(system, whole, name), name)
        except _Connection as error:
            if not (folder / COMPLETE).exists() or not target.exists():
                raise NotCopiedError(str(error)) from None
            warnings.warn(f"{error}; the copy in {target} is read", stacklevel=2)
        else:
            _check_room(entries, folder, name)
            (folder / PLACE).write_text(unquote(_without_secrets(whole)).rstrip("/"), encoding="utf-8")
            (folder / COMPLETE).unlink(missing_ok=True)
            _copy(system, entries, target, folder / LOG, name, is_folder=is_folder)
            (folder / COMPLETE).touch()
    _copied[whole] = target
    return target


_copied: dict[str, Path] = {}
"""Copies that this process has compared with their source."""


def _whole(address: str | os.PathLike[str]) -> str:
    """Return an address with both of its slashes."""
    text = os.fspath(address)
    return ADDRESS.sub(lambda found: f"{found[1].lower()}://", text, count=1)


def _last_name(address: str) -> str:
    """Return the last name of an address as that of a file: the readers recognize files by their endings.

    >>> _last_name("https://host/a%20b/photos%2F..%2F.csv?token=1"), _last_name("s3://bucket/")
    ('photos_.._.csv', 'bucket')
    """
    parts = urlsplit(address)
    path = parts.path if parts.scheme in WEB else address.partition("://")[2]
    last = unquote(path.rstrip("/").rpartition("/")[2]) or parts.netloc.rpartition("@")[2]
    found = CHARACTERS.sub("_", last).strip(" ").lstrip(".")
    return found[-100:] or "data"


def _file_system(address: str, name: str) -> Any:
    """Return the file system of fsspec for an address, which may cache nothing of other addresses."""
    protocol = address.partition(":")[0]
    for package in ("fsspec", PACKAGES[protocol]):
        if not is_installed(package):
            what = "'nearfar[remote]'" if package in IN_EXTRA else package
            raise NotCopiedError(f"{name}: needs {package}, which is not installed; pip install {what}")
    import fsspec

    how: dict[str, Any] = {"skip_instance_cache": True}
    if protocol in WEB:
        from aiohttp import ClientTimeout

        how["client_kwargs"] = {
            "response_class": _answer_in_time(),
            "timeout": ClientTimeout(total=None, sock_connect=LONGEST_SILENCE, sock_read=LONGEST_SILENCE),
            "trust_env": True,  # proxies
        }
        how["headers"] = {"Accept-Encoding": "identity"}  # sizes are those of the files
    if protocol == "s3" and not _has_s3_credentials():
        how["anon"] = True  # public buckets
    try:
        return _reported(lambda: fsspec.filesystem(protocol, **how), name)
    except _Connection as error:
        if protocol not in ("az", "abfs"):
            raise
        raise NotCopiedError(f"{name}: set AZURE_STORAGE_ACCOUNT_NAME, the account that has the container") from error


def _answer_in_time() -> type[Any]:
    """Return the class of the answers of web servers, of which status and headers must come within one silence.

    The time between two bytes, which aiohttp limits, is never long where a server sends a header now and then.
    """
    from aiohttp import ClientResponse

    class AnswerInTime(ClientResponse):
        async def start(self, connection: Any) -> ClientResponse:
            return await asyncio.wait_for(super().start(connection), LONGEST_SILENCE)

    return AnswerInTime


def _has_s3_credentials() -> bool:
    """Return whether botocore finds credentials in the environment or in the files of the user."""
    from botocore.session import Session

    return Session().get_credentials() is not None


def _listing(system: Any, address: str, name: str) -> tuple[bool, dict[str, Entry]]:
    """Return whether an address is that of a folder, and its files by their names in it."""
    web = address.partition(":")[0] in WEB
    if web and urlsplit(address).path.endswith("/"):
        found = _in_web_pages(system, address, name)
        with ThreadPoolExecutor(THREADS) as pool:
            about = pool.map(lambda place: _entry(system.info(place), place), found.values())
            entries = dict(zip(found, about, strict=True))
    else:
        info = system.info(address)
        if info.get("type") != "directory":
            return False, {"": _entry(info, address)}
        root = str(info["name"]).rstrip("/")
        files = system.find(root, detail=True)
        _check_count(len(files), name)
        entries = {}
        for place, facts in files.items():
            if facts.get("type") != "file":
                continue
            inside = _inside(root, place, name)
            if inside:  # it is not hidden
                entries[inside] = _entry(facts)
    entries = _files_only(entries, name)
    if not entries:
        raise NothingThereError(f"{name}: has no files")
    return True, entries


def _files_only(entries: Mapping[str, Entry], name: str) -> dict[str, Entry]:
    """Return the files of a listing without the empty ones that mark a folder in a bucket."""
    folders = {str(parent) for inside in entries for parent in PurePosixPath(inside).parents}
    both = next((inside for inside, entry in entries.items() if inside in folders and entry.size != 0), None)
    if both is not None:
        raise NotCopiedError(f"{name}: lists {quoted(both)}, which is a file and a folder")
    return {inside: entry for inside, entry in entries.items() if inside not in folders}


class _Links(HTMLParser):
    """The links of a web page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for key, value in attrs if tag == "a" and key == "href" and value]


def _in_web_pages(system: Any, address: str, name: str) -> dict[str, str]:
    """Return the places of the files to which the page of a folder and those of folders in it link, by their names."""
    root = address.partition("?")[0].partition("#")[0]
    found: dict[str, str] = {}
    ahead = [root]
    seen = {root}
    while ahead:
        folder = ahead.pop()
        for place in _links_in(system, folder, name):
            if "?" in place or "#" in place or not place.startswith(folder) or place in seen:
                continue  # the order of a listing, its parent, and other pages
            seen.add(place)
            _check_count(len(seen), name)
            inside = _inside(unquote(root), unquote(place), name)
            if not inside:  # it is hidden
                continue
            if not place.endswith("/"):
                found[inside] = place
            elif inside.count("/") < DEEPEST_FOLDER:
                ahead.append(place)
    return found


def _links_in(system: Any, folder: str, name: str) -> list[str]:
    """Return the addresses to which the page of a folder links."""
    page = bytearray()  # bytes would be copied with every piece
    pace = _Pace(name)
    with system.open(folder, "rb", block_size=0) as source:
        while piece := source.read(PIECE):
            pace.check(len(piece))
            page += piece
            if len(page) > LARGEST_PAGE:
                raise NotCopiedError(f"{name}: its list of files is longer than {in_megabytes(LARGEST_PAGE)}")
    links = _Links()
    links.feed(page.decode(errors="replace"))
    found = []
    for link in links.found:
        try:
            found.append(urljoin(folder, link.strip()))
        except ValueError:  # no address at all
            continue
    return found


def _check_count(count: int, name: str) -> None:
    if count > MOST_FILES:
        raise NotCopiedError(f"{name}: lists more than {MOST_FILES:,} files; give a folder with fewer of them")


def _inside(root: str, place: str, name: str) -> str:
    """Return the name of a file relative to its folder; "" if it is hidden.

    Raises
    ------
    NotCopiedError
        If it leads out of the folder, or is not the name of a file on all systems.
    """
    place = place.rstrip("/")
    inside = place.removeprefix(f"{root.rstrip('/')}/")
    parts = inside.split("/")
    wrong = inside == place or any(part in ("", ".", "..") for part in parts)
    wrong = wrong or any(ord(letter) < ord(" ") or letter in NOT_IN_NAMES for letter in inside)
    if wrong or any(len(part.encode(errors="surrogatepass")) > LONGEST_PART for part in parts):
        raise NotCopiedError(f"{name}: lists {quoted(inside)}, which is not the name of a file in the folder")
    return "" if any(map(hidden, parts)) else inside


def _entry(about: Mapping[str, Any], place: str = "") -> Entry:
    size = about.get("size")
    marks = [f"{key}={about[key]}" for key in MARKS if about.get(key)]
    return Entry(place or str(about["name"]), size if isinstance(size, int) and size >= 0 else None, " ".join(marks))


def _check_room(entries: Mapping[str, Entry], folder: Path, name: str) -> None:
    """Raise a NotCopiedError if the files are larger than what is free on the disk, without those that are there."""
    total = sum(entry.size or 0 for entry in entries.values())
    there = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    free = shutil.disk_usage(folder).free + there - FREE_ON_DISK
    if total > free:
        needs = f"needs {in_megabytes(total)}, but {in_megabytes(max(free, 0))} are free in {folder}"
        raise NotCopiedError(f"{name}: {needs}; set NEARFAR_CACHE to a folder on a larger disk")


def _copy(system: Any, entries: Mapping[str, Entry], target: Path, log: Path, name: str, *, is_folder: bool) -> None:
    """Copy those files that are not there in this version, and remove those that the listing no longer has."""
    if target.is_dir() is not is_folder and target.exists():
        shutil.rmtree(target) if target.is_dir() else target.unlink()
    known = _logged(log)
    files = {inside: target / inside if is_folder else target for inside in entries}
    needed = [inside for inside, entry in entries.items() if not entry.is_of(known.get(inside), files[inside])]
    if is_folder:
        target.mkdir(exist_ok=True)
        for path in sorted(target.rglob("*"), reverse=True):  # what is in a folder comes before it
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
            elif path.is_file() and path.relative_to(target).as_posix() not in entries:
                path.unlink()
    with open(log, "a", encoding="utf-8", buffering=1) as lines, stage("copying", len(needed)) as done:
        pool = ThreadPoolExecutor(THREADS)
        try:
            tasks = {
                pool.submit(_reported, partial(_fetch, system, entries[inside], files[inside], name), name): inside
                for inside in needed
            }
            for task in as_completed(tasks):
                inside = tasks[task]
                task.result()
                lines.write(f"{json.dumps([inside, [entries[inside].size, entries[inside].mark]])}\n")
                done(1)
        except _Connection as error:
            missing = f"{count_of(len(needed), 'file')} to copy" if is_folder else "the file is incomplete"
            raise NotCopiedError(f"{error}; {missing}, and the same command continues") from None
        finally:
            pool.shutdown(cancel_futures=True)


def _logged(log: Path) -> dict[str, Any]:
    """Return the version of each file that was copied. The last line may have been cut by a kill."""
    known: dict[str, Any] = {}
    if not log.exists():
        return known
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            inside, version = json.loads(line)
        except ValueError:
            continue
        known[inside] = version
    return known


def _fetch(system: Any, entry: Entry, file: Path, name: str) -> None:
    """Copy one file; it is there when all of it is."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{sha256(file.name.encode(errors='surrogatepass')).hexdigest()[:16]}.part")
    how = {"block_size": 0} if {"http", "hf"} & {*_protocols(system)} else {}  # one request for the whole file
    try:
        with system.open(entry.place, "rb", **how) as source, open(part, "wb") as sink:
            size = _pour(source, sink, entry, file, name)
        if entry.size is not None and size < entry.size:
            raise _Connection(f"{name}: ended after {size:,} of {entry.size:,} bytes")
        os.replace(part, file)
    finally:
        part.unlink(missing_ok=True)


class _Pace:
    """How fast a server sends; too slowly is as if it did not answer."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.size = 0
        self.begun = time.monotonic()

    def check(self, size: int) -> None:
        """Count bytes that have come, and raise a `_Connection` if they are too few for their time."""
        self.size += size
        seconds = time.monotonic() - self.begun
        if seconds > LONGEST_SILENCE and self.size < SLOWEST * seconds:
            raise _Connection(f"{self.name}: the server sends less than {SLOWEST} bytes a second")


def _protocols(system: Any) -> Sequence[str]:
    return (system.protocol,) if isinstance(system.protocol, str) else tuple(system.protocol)


def _pour(source: Any, sink: IO[bytes], entry: Entry, file: Path, name: str) -> int:
    """Write a stream into a file in pieces, and return the number of its bytes."""
    most = LARGEST_UNKNOWN if entry.size is None else entry.size
    size = 0
    pace = _Pace(name)
    while piece := source.read(PIECE):
        pace.check(len(piece))
        if size == 0 and piece.lstrip()[:20].lower().startswith(WEB_PAGE) and file.suffix not in (".html", ".htm"):
            hint = "does it need a login?"
            if not file.suffix:
                hint += f" The address of a folder ends with a slash: {name}/"
            raise NotCopiedError(f"{name}: a web page came where {quoted(file.name)} was expected; {hint}")
        size += len(piece)
        if size > most:
            fault = "does not end" if entry.size is None else f"has more than the {entry.size:,} bytes that it states"
            raise NotCopiedError(f"{name}: {quoted(file.name)} {fault}; it was not copied")
        sink.write(piece)
    return size


def _reported(work: Callable[[], Any], name: str) -> Any:
    """Do some work of a file system; its errors become one line without what they say, which may be a secret.

    Raises
    ------
    NotCopiedError
        If the server refuses, or has nothing there.
    _Connection
        If the server does not answer, or stops.
    """
    try:
        return work()
    except (NotCopiedError, _Connection):
        raise
    except Exception as error:  # each file system has errors of its own
        raise _explained(error, name) from None


def _explained(error: BaseException, name: str) -> Exception:
    causes = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and cause not in causes:
        causes.append(cause)
    kinds = [type(cause).__name__ for cause in causes]
    statuses = [_status(cause) for cause in causes]
    status = next((number for number in statuses if number), 0)
    if status in (401, 403) or isinstance(error, PermissionError) or any("Credential" in kind for kind in kinds):
        where = "in ~/.aws, the environment or `hf auth login`"
        return NotCopiedError(f"{name}: the server refuses; check that it exists, and the credentials {where}")
    if "NonHttpUrlRedirectClientError" in kinds:
        return NotCopiedError(f"{name}: the server refers to an address that is not of the web, which is not read")
    # the file system of the web calls all that fails missing, and says why in the cause
    if status == 404 or (isinstance(error, FileNotFoundError) and len(causes) == 1):
        return NothingThereError(f"{name}: there is nothing")
    if isinstance(error, OSError) and (
        error.filename or error.errno in (errno.ENOSPC, errno.EDQUOT)
    ):  # of this machine
        return NotCopiedError(f"{name}: cannot be copied ({error.strerror})")
    detail = f"status {status}" if status else kinds[-1]
    return _Connection(f"{name}: the server does not answer, or stopped ({detail})")


def _status(error: BaseException) -> int:
    """Return the status of HTTP that an error states; 0 if it states none."""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):  # of botocore
        return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    found = getattr(error, "status", None) or getattr(response, "status_code", None)
    return found if isinstance(found, int) else 0
