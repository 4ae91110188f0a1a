"""The query string of a request: the options of a search, the name of an item, and numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import isfinite

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request

from ..index.stores import THRESHOLD, Store
from ..quoting import quoted

MAX_NEIGHBORS = 200
MAX_NAME = 4096  # maximum number of characters of the name of an item
KEPT_OPTIONS = 256  # query strings of searches whose options are known


@dataclass(frozen=True)
class SearchQuery:
    """Options of a search for neighbors."""

    k: int
    within: float | None
    where: str
    group_by: str
    words: str

    @classmethod
    def of(cls, request: Request, *others: str) -> SearchQuery:
        """Read the options from the query string of a request, which may also have other parameters."""
        return cls._read(request.scope["query_string"], others)

    @classmethod
    @lru_cache(KEPT_OPTIONS)
    def _read(cls, text: bytes, others: tuple[str, ...]) -> SearchQuery:
        parameters = QueryParams(text)
        check_parameters(parameters, "k", "within", "where", "group_by", "words", *others)
        within = None
        if parameters.get("within"):
            try:
                within = float(parameters["within"])
            except ValueError:
                within = -1.0
            if not isfinite(within) or within < 0:
                raise HTTPException(400, "within: expected a distance of at least 0")
        k = number_in(parameters, "k", default=12, least=1, most=MAX_NEIGHBORS)
        where, group_by, words = (parameters.get(name, "") for name in ("where", "group_by", "words"))
        return cls(k, within, where, group_by, words)

    def threshold(self, store: Store) -> float | None:
        """Return the maximum distance of a match: as asked for, or as it is stored with the index."""
        return stored_threshold(store) if self.within is None else self.within


def stored_threshold(store: Store) -> float | None:
    """Return the maximum distance of a match if it is stored with the index, else None."""
    try:
        return float(store.about[THRESHOLD])
    except (KeyError, ValueError):
        return None


def check_parameters(parameters: QueryParams, *known: str) -> None:
    """Refuse parameters that do not exist: a misspelled filter would otherwise filter nothing."""
    seen: set[str] = set()
    for name, _ in parameters.multi_items():
        if name not in known:
            raise HTTPException(400, f"there is no parameter {quoted(name)}; there are {', '.join(known)}")
        if name in seen:
            raise HTTPException(400, f"{name}: expected one value, got several")
        seen.add(name)


def name_in(request: Request) -> str:
    """Return the name of an item."""
    name = request.query_params.get("name", "")
    if not 0 < len(name) <= MAX_NAME:
        raise HTTPException(400, "name: expected the name of an item")
    return name


def number_in(parameters: QueryParams, key: str, *, default: int, least: int, most: int) -> int:
    """Return a whole number between two others."""
    text = parameters.get(key, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 12 and least <= int(text) <= most):
        raise HTTPException(400, f"{key}: expected a number from {least} to {most}")
    return int(text)
