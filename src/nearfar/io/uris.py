"""URIs of collections: a file, a folder of LanceDB, or a collection of a server."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode

from ..quoting import PATH, quoted, shorten

FOLDER = ".lance"
"""Ending of new folders of LanceDB. Such a folder may be renamed."""

COLLECTION = "collection.json"
"""File in a folder of LanceDB that says which table has the items."""

SERVER = re.compile(r"(https?):/{1,2}([^/\s?#@]+)/([A-Za-z_][A-Za-z0-9_]{0,199})/?")
"""Pattern of the address of a collection; as a pathlib.Path, an address has lost one of its slashes."""

DATABASE = re.compile(r"(?:postgresql|postgres):/{1,3}(?P<server>[^#]*)#(?P<table>[^?]*)(?:\?(?P<columns>.*))?")
"""Pattern of the address of a collection in PostgreSQL, whose columns may follow."""
TABLE = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}")
"""Pattern of the name of a table, with its schema or without. PostgreSQL cuts longer names."""
COLUMNS_OF_A_TABLE = ("id", "vector", "label")
"""Columns of an existing table that an address may name."""
SECRETS = ("password", "sslpassword", "oauth_client_secret")


class Address(NamedTuple):
    """Address of a collection of a server of Milvus."""

    server: str
    """Such as "http://localhost:19530"."""
    collection: str

    def __str__(self) -> str:
        return f"{self.server}/{self.collection}"


class DatabaseAddress(NamedTuple):
    """Address of a collection in a database of PostgreSQL.

    Attributes
    ----------
    parameters : dict of str to str
        What psycopg connects to: host, port, user, password, dbname, and what follows the question mark.
    collection : str
        Name of the table, with its schema if one is given.
    columns : dict of str to str
        Which columns of an existing table hold the `id`, the `vector` and the `label` of an item.
    """

    parameters: dict[str, str]
    collection: str
    columns: dict[str, str]

    def __str__(self) -> str:
        """Return the address without passwords, which never appear in a message.

        >>> str(database_of("postgresql://me:secret@host/shop#photos"))
        'postgresql://me@host/shop#photos'
        """
        given = {name: value for name, value in self.parameters.items() if name not in SECRETS}
        user = f"{quote(given.pop('user'))}@" if given.get("user") else ""
        host = given.pop("host", "")
        port = f":{given.pop('port')}" if given.get("port") else ""
        database = quote(given.pop("dbname"))
        if host.startswith("/"):  # the folder of a socket
            given["host"] = host
            host = ""
        options = f"?{urlencode(given, safe='/')}" if given else ""
        columns = f"?{urlencode(self.columns)}" if self.columns else ""
        return f"postgresql://{user}{host}{port}/{database}{options}#{self.collection}{columns}"


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
    return os.fspath(uri).startswith(("http:/", "https:/")) or is_database(uri)


def is_database(uri: str | os.PathLike[str]) -> bool:
    """Return whether a URI is the address of a collection in PostgreSQL."""
    return os.fspath(uri).startswith(("postgresql:/", "postgres:/"))


def shown(uri: str | os.PathLike[str]) -> str:
    """Return a URI as messages show it: without a password, and with the slash that a pathlib.Path has lost.

    >>> shown(Path("http://localhost:19530/photos"))
    'http://localhost:19530/photos'
    """
    if is_database(uri):
        return str(database_of(uri))
    return str(address_of(uri)) if is_address(uri) else os.fspath(uri)


def collection_name(uri: str | os.PathLike[str]) -> str:
    """Return the name of a collection for a file beside it or a title: that of its file, or in its database.

    >>> collection_name("photos/birds.index"), collection_name("postgresql://me:secret@host/shop#birds")
    ('birds', 'birds')
    """
    if is_database(uri):
        return database_of(uri).collection
    return Path(uri).stem


def address_of(uri: str | os.PathLike[str]) -> Address:
    """Return the server and the collection of an address of Milvus.

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


def database_of(uri: str | os.PathLike[str]) -> DatabaseAddress:
    """Return the parts of the address of a collection in PostgreSQL.

    The part before the number sign is an address as libpq reads it.

    >>> database_of("postgresql://me@host:5433/shop?sslmode=require#photos").parameters
    {'dbname': 'shop', 'user': 'me', 'host': 'host', 'port': '5433', 'sslmode': 'require'}
    >>> database_of("postgresql:///shop#products?id=sku&vector=embedding").columns
    {'id': 'sku', 'vector': 'embedding'}

    Raises
    ------
    ValueError
        If the address has no database or no table. The message does not show the address, which may hold a password.
    """
    expected = "expected postgresql://USER@HOST:PORT/DATABASE#COLLECTION"
    found = DATABASE.fullmatch(os.fspath(uri))
    if found is None:
        raise ValueError(f"address of PostgreSQL: {expected}, got none with a collection after #")
    where, _, options = found["server"].partition("?")
    server, _, database = where.rpartition("/")
    if not database or set("@:") & set(database) or "/" in server:
        raise ValueError(f"address of PostgreSQL: {expected}, got none with a database")
    if "@" in found["table"]:  # what precedes it may be the end of a password
        raise ValueError(f"address of PostgreSQL: {expected}, got an @ after the #; write %23 for # in a password")
    if not TABLE.fullmatch(found["table"]):
        raise ValueError(
            f"address of PostgreSQL: expected a collection of up to 63 letters, digits and underscores, which may "
            f"follow SCHEMA. , got {quoted(found['table'])}"
        )
    user, _, host = server.rpartition("@")
    user, _, password = user.partition(":")
    host, _, port = host.rpartition(":") if re.search(r":\d*$", host) else (host, "", "")
    if ":" in host and not host.startswith("["):  # with what may be the beginning of a password
        raise ValueError(f"address of PostgreSQL: {expected}, got a host with a colon; write %3F for ? in a password")
    parts = {"dbname": database, "user": user, "password": password, "host": host.strip("[]"), "port": port}
    parameters = {name: unquote(value) for name, value in parts.items() if value}
    parameters |= dict(parse_qsl(options))
    columns = dict(parse_qsl(found["columns"] or ""))
    unknown = next((name for name in columns if name not in COLUMNS_OF_A_TABLE), None)
    if unknown is not None:
        raise ValueError(
            f"address of PostgreSQL: expected id=, vector= or label= after the collection, got {quoted(unknown)}"
        )
    return DatabaseAddress(parameters, found["table"], columns)
