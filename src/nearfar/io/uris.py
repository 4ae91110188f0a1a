"""URIs of collections: a file, a folder of LanceDB, or a collection of a server."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from ..quoting import PATH, shorten

FOLDER = ".lance"
"""Ending of new folders of LanceDB. Such a folder may be renamed."""

COLLECTION = "collection.json"
"""File in a folder of LanceDB that says which table has the items."""

SERVER = re.compile(r"(https?):/{1,2}([^/\s?#@]+)/([A-Za-z_][A-Za-z0-9_]{0,199})/?")
"""Pattern of the address of a collection; as a pathlib.Path, an address has lost one of its slashes."""


class Address(NamedTuple):
    """Address of a collection of a server."""

    server: str
    """Such as "http://localhost:19530"."""
    collection: str

    def __str__(self) -> str:
        return f"{self.server}/{self.collection}"


def is_folder(uri: str | os.PathLike[str]) -> bool:
    """Return whether a URI names a folder of LanceDB: by its ending, or by what it contains."""
    if is_address(uri):
        return False
    return Path(uri).suffix == FOLDER or os.path.isfile(os.path.join(uri, COLLECTION))


def no_such_index(uri: str | os.PathLike[str]) -> FileNotFoundError:
    """Return the error for an index that does not exist."""
    return FileNotFoundError(f"{shown(uri)}: no such index; `nearfar index RUN DATA -o {shown(uri)}` makes one")


def is_address(uri: str | os.PathLike[str]) -> bool:
    """Return whether a URI is the address of a server."""
    return os.fspath(uri).startswith(("http:/", "https:/"))


def shown(uri: str | os.PathLike[str]) -> str:
    """Return a URI as a user types it, with the slash that an address has lost as a pathlib.Path.

    >>> shown(Path("http://localhost:19530/photos"))
    'http://localhost:19530/photos'
    """
    return str(address_of(uri)) if is_address(uri) else os.fspath(uri)


def address_of(uri: str | os.PathLike[str]) -> Address:
    """Return the server and the collection of an address.

    >>> str(address_of("http://localhost:19530/photos"))
    'http://localhost:19530/photos'

    Raises
    ------
    ValueError
        If the address has no collection.
    """
    found = SERVER.fullmatch(os.fspath(uri))
    if found is None:
        shown = shorten(os.fspath(uri), PATH)
        raise ValueError(
            f"{shown}: expected http://HOST:PORT/COLLECTION, with a collection of letters, digits and underscores"
        )
    return Address(f"{found[1]}://{found[2]}", found[3])
