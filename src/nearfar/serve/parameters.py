"""The query string of a request: the options of a search, the name of an item, and numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import isfinite

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request

from ..index.places import METHOD, places_in
from ..index.stores import THRESHOLD, Store
from ..quoting import quoted

MAX_NEIGHBORS = 200
MAX_NAME = 4096  # maximum number of characters of the name of an item
KEPT_OPTIONS = 256  # query strings of searches whose options are known
MAX_COMPARED = 100  # maximum number of hits whose pictures are read for one request, and compared with the query
RERANK = "rerank"


@dataclass(frozen=True)
class SearchQuery:
    """Options of a search for neighbors."""

    k: int
    within: float | None
    where: str
    group_by: str
    words: str
    rerank: str = ""

    @classmethod
    def of(cls, request: Request, *others: str) -> SearchQuery:
        """Read the options from the query string of a request, which may also have others, such as `rerank`."""
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
        where, group_by, words, rerank = (parameters.get(name, "") for name in ("where", "group_by", "words", RERANK))
        if rerank:
            check_rerank(rerank, k)
            for name, value in (("within", within), ("words", words)):
                if value not in (None, ""):
                    raise HTTPException(400, f"{name}: does not work with rerank; give only one")
        return cls(k, within, where, group_by, words, rerank)

    def threshold(self, store: Store) -> float | None:
        """Return the maximum distance of a match: as asked for, or as it is stored with the index."""
        return stored_threshold(store) if self.within is None else self.within


def check_rerank(rerank: str, k: int) -> None:
    """Refuse other methods than places, which read the whole index, and comparisons with too many hits."""
    if rerank.partition("(")[0].strip() != METHOD:
        expected = "expected places, or with settings places(first=20)"
        raise HTTPException(400, f"rerank: {expected}, got {quoted(rerank)}; `nearfar search` has the other methods")
    try:
        how = places_in(rerank)
    except ValueError as error:
        raise HTTPException(400, str(error)) from None
    assert how is not None
    for name, number in (("k", k), ("rerank: places: first", how.first)):
        if number > MAX_COMPARED:
            raise HTTPException(400, f"{name}: expected up to {MAX_COMPARED} hits that are compared, got {number}")


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
