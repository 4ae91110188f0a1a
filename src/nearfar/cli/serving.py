"""``nearfar serve``: a web page to search an index by picture, and its API."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from ..io.untrusted import images_from
from ..io.uris import shown
from ..trust import trusting
from .encoding import say
from .options import RUN, SERVER, Trust

LOCAL = ("127.0.0.1", "localhost", "::1")
LEAST_TOKEN = 16  # minimum number of characters


def serve(
    file: Path,
    *,
    host: Annotated[str, Parameter(group=SERVER)] = "127.0.0.1",
    port: Annotated[int, Parameter(group=SERVER)] = 8000,
    token: Annotated[str, Parameter(show_default=False, group=SERVER)] = "",
    name: Annotated[tuple[str, ...], Parameter(show_default=False, group=SERVER)] = (),
    allow_writes: Annotated[bool, Parameter(group=SERVER)] = False,
    workers: Annotated[int, Parameter(group=SERVER)] = 1,
    run: Annotated[Path | None, Parameter(group=RUN)] = None,
    adapter: Annotated[Path | None, Parameter(group=RUN)] = None,
    wrong: Annotated[Path | None, Parameter(group=RUN)] = None,
    images: Annotated[tuple[Path, ...], Parameter(name="--images", show_default=False, group=RUN)] = (),
    trust: Trust = (),
) -> None:
    """Serve a web page and a JSON API to search an index by picture or by words.

    Example: nearfar serve photos.index

    Parameters
    ----------
    file
        An index from `nearfar index`: a file, a folder such as photos.lance, http://HOST:19530/photos, or
        'postgresql://HOST/DATABASE#photos'.
    host
        The address to listen on; any address other than that of this machine (loopback) needs --token.
    port
        The port to listen on; 0 takes a free one.
    token
        Secret that every request must carry, of at least 16 characters: open http://HOST:PORT/?token=TOKEN once.
    name
        Another name of the server, such as search.example.org. Repeat for several.
    allow_writes
        Let requests add, replace and remove items of the index (/api/add and /api/remove). It needs --token.
    workers
        Number of processes that answer requests. Each loads the model. They divide the limit on all bodies in memory.
        SIGHUP replaces them one after another.
    run
        The run or learner that embeds the queries, if the one that made the index was moved.
    adapter
        An adapter made by `nearfar adapt`: queries are embedded by --run, the new model, and mapped into the space of
        the model that made the index.
    wrong
        The .csv for labels that users mark as wrong; by default in the folder of the index, such as photos.wrong.csv.
    images
        Also show pictures from this folder: without it, only those below the folder of the index. Repeat for several.
    """
    check_address(host, port, token)
    if allow_writes and not token:
        raise ValueError(f"--allow-writes: also give a --token of at least {LEAST_TOKEN} characters")
    if workers < 1:
        raise ValueError(f"--workers: expected 1 or more, got {workers}")
    from ..serve.guard import LIMITS
    from ..serve.opening import app_of_worker, open_app
    from ..serve.server import listen, serve_by_workers
    from ..serve.server import serve as run_server

    how: dict[str, Any] = {
        "file": file,
        "run": run,
        "adapter": adapter,
        "wrong": wrong,
        "hosts": (*LOCAL, host, *name),
        "token": token,
        "allow_writes": allow_writes,
        "limits": replace(LIMITS, waiting_bytes=LIMITS.waiting_bytes // workers),
    }
    with images_from(*images):
        with trusting(*trust):
            app = open_app(**how)  # also with several workers, so that an error is printed once
        listener = listen(host, port)
        port = listener.getsockname()[1]  # port 0 takes a free one
        address = f"[{host}]" if ":" in host else host
        say(f"Serving {shown(file)} at http://{address}:{port}/ (stop with Ctrl-C)", file=sys.stderr, flush=True)
        if workers == 1:
            run_server(app, listener)
            return
        del app  # each worker has its own
        serve_by_workers(partial(app_of_worker, trust, how), listener, workers)


def check_address(host: str, port: int, token: str) -> None:
    """Refuse to serve other machines without a token."""
    if not 0 <= port < 65536:
        raise ValueError(f"--port: expected 0 to 65535, got {port}")
    if token and (
        len(token) < LEAST_TOKEN or not token.isascii() or not token.replace("-", "").replace("_", "").isalnum()
    ):
        raise ValueError(f"--token: expected at least {LEAST_TOKEN} letters, digits, - and _")
    if host not in LOCAL and not token:
        raise ValueError(
            f"--host: other machines can reach {host}; give a --token of at least {LEAST_TOKEN} characters"
        )
