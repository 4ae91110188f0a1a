"""The application that serves an index: its collection, the model that made it, and its marks."""

from __future__ import annotations

import sys
from collections.abc import Collection as Names
from collections.abc import Mapping, Sequence
from contextvars import copy_context
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from uvicorn.config import STARTUP_FAILURE

from .. import models
from ..index import QueryAdapter, Store, open_store
from ..index.paths import pictures_of
from ..index.searching import model_of
from ..io.uris import collection_name, is_address
from ..models import Model
from ..trust import trusting
from .app import make_app
from .collection import Collection
from .guard import LIMITS, LOOPBACK, Limits
from .marks import WrongLabels


def open_app(
    file: str | PathLike[str],
    *,
    run: str | PathLike[str] | None = None,
    adapter: str | PathLike[str] | None = None,
    wrong: str | PathLike[str] | None = None,
    hosts: Names[str] = LOOPBACK,
    token: str = "",
    allow_writes: bool = False,
    limits: Limits = LIMITS,
) -> Starlette:
    """Open an index and return the ASGI application that `nearfar serve` runs.

    Parameters
    ----------
    file : str or path
        The index: a file, a folder, or the address of a collection.
    run : str or path, optional
        Model that embeds the queries. By default, the one that made the index.
    adapter : str or path, optional
        Adapter of `nearfar.workflows.adapt`, from `run`, a new model, to the one that made the index.
    wrong : str or path, optional
        The .csv for labels that users mark as wrong. By default beside the index, such as photos.wrong.csv.
    hosts : collection of str
        Names under which the server can be reached.
    token : str
        Secret that every request must carry; "" for none, which is safe on loopback only.
    allow_writes : bool
        Whether requests may add, replace and remove items, which needs a token.
    limits : Limits
        Limits of requests.

    Raises
    ------
    ValueError
        If an adapter is given without `run`, or the model has other weights than the one that made the index.
    FileNotFoundError
        If the index, its model or the adapter does not exist.
    """
    path = Path(file)
    if wrong is None:
        place = Path() if is_address(file) else path.parent
        wrong = place / f"{collection_name(file)}.wrong.csv"
    if adapter is not None and run is None:
        raise ValueError("adapter: also give run=, the new model that embeds the queries")
    first = open_store(path, lock=False)
    model = model_of(first, run) if adapter is None else models.load(str(run))
    mapped = None if adapter is None else QueryAdapter.load(Path(adapter))
    made_by = first.about.get("weights")

    def load_model(store: Store) -> tuple[Model | None, QueryAdapter | None]:
        weights = store.about.get("weights")
        if weights == made_by:
            return model, mapped
        if model is not None and weights == model.fingerprint:  # the new model that an adapter was for
            return model, None
        return model_of(store), None

    context = copy_context()
    collection = Collection(
        path,
        partial(open_store, path, lock=False),
        read_pictures=partial(pictures_of, file=path),
        model=model,
        adapter=mapped,
        load_model=lambda store: context.run(load_model, store),  # with what is trusted now
    )
    return make_app(collection, WrongLabels(Path(wrong)), hosts=hosts, token=token, writes=allow_writes, limits=limits)


def app_of_worker(trust: Sequence[str], how: Mapping[str, Any]) -> Starlette:
    """Return the application in a process that serves it together with others; arguments as for `open_app`."""
    try:
        with trusting(*trust):
            return open_app(**how)
    except (OSError, ValueError, ImportError) as error:
        if sys.stderr is not None:
            print(f"nearfar: {error}", file=sys.stderr, flush=True)
        sys.exit(STARTUP_FAILURE)  # with which the others are stopped, too
