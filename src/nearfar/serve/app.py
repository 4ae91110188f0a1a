"""The ASGI application: the page, the JSON API, health and metrics."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from collections.abc import Collection as Hosts
from contextlib import asynccontextmanager
from dataclasses import replace
from math import isfinite, nan
from pathlib import Path
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from ..data import Dataset
from ..index.places import places_in
from ..index.records import Hits, Records
from ..index.stores import Store
from ..index.words import search_fused, words_hits
from ..io.untrusted import parse_json
from ..numerics.types import AnyArray
from ..quoting import quoted
from .answers import JSON, Answer, as_json, as_response, in_thread
from .batches import Batches
from .bodies import LARGEST, Body, EmbeddingInput, Names, NewItem, NewItems, Vectors, image_in, read_body
from .collection import Collection, Served, one_item, plain_items, plain_neighbors
from .comparing import ComparedHits, Comparisons
from .decodings import Decodings, StoppingError
from .guard import COOKIE, LIMITS, LOOPBACK, Guard, Limits, error_response
from .marks import WrongLabels
from .metrics import Metrics
from .openapi import specification
from .parameters import (
    MAX_NAME,
    MAX_NEIGHBORS,
    RERANK,
    SearchQuery,
    check_parameters,
    name_in,
    number_in,
    stored_threshold,
)
from .writing import as_openai, embedded_texts, new_records, way_of

STATIC = Path(__file__).parent / "static"
FILES = {"page.css": "text/css", "page.js": "text/javascript", "api.js": "text/javascript", "icon.svg": "image/svg+xml"}
MAX_QUERIES = 100  # maximum number of vectors that are searched at once
MAX_LISTED = 200  # maximum number of items in a response
MAX_SIDE = 1024  # maximum side in pixels of a picture of an item
NOTHING = "not (name == '' or name != '')"
"""A filter that no item meets."""
WHOLE_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")
ROUTING_ERRORS = {
    "Not Found": "there is no such path; /docs describes the API",
    "Method Not Allowed": "this path takes another method, such as POST or GET; /docs describes the API",
}
"""Messages for those of Starlette."""


def make_app(
    collection: Collection,
    marks: WrongLabels,
    *,
    hosts: Hosts[str] = LOOPBACK,
    token: str = "",
    limits: Limits = LIMITS,
    writes: bool = False,
) -> Starlette:
    """Return the ASGI application.

    Parameters
    ----------
    collection : Collection
        Index to search.
    marks : WrongLabels
        Table of the labels that are marked as wrong.
    hosts : collection of str
        Names under which the server can be reached.
    token : str
        Secret that every request must carry; "" for none, which is safe on loopback only.
    limits : Limits
    writes : bool
        Whether requests may add and remove items; it needs a token.

    Raises
    ------
    ValueError
        If there is no token for writes, or the index has items of another model than the one that would embed.
    """
    if writes and not token:
        raise ValueError("allow_writes: also give a token, without which every program of this machine could write")
    if writes and collection.adapter is not None:
        raise ValueError("allow_writes: does not work with an adapter, which is for queries only")
    metrics = Metrics()
    api = Api(collection, marks, limits, metrics, token, writes)
    routes = api.routes()
    paths = [route.path for route in routes]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, hosts=hosts, token=token, metrics=metrics, paths=paths)],
        exception_handlers={HTTPException: api.refused, StoppingError: _stopping, Exception: _unknown_error},
    )
    app.state.stop = api.decodings.stop  # called when the server begins to stop
    app.state.searches = api.searches
    app.state.comparisons = api.comparisons
    return app


class Api:
    """The responses; each public method is a route."""

    def __init__(
        self, collection: Collection, marks: WrongLabels, limits: Limits, metrics: Metrics, token: str, writes: bool
    ) -> None:
        self.collection = collection
        self.marks = marks
        self.limits = limits
        self.metrics = metrics
        self.token = token
        self.writes = writes
        self.decodings = Decodings(limits.upload_pixels)
        self.comparisons = Comparisons(collection, self.decodings, limits.rerank_seconds)
        self.waiting = 0  # bytes of the bodies in memory
        self.embedding = 0  # requests that embed, or wait for their turn
        self.network = asyncio.Lock()  # who waits for the model takes no thread from searches
        self.searches = Batches(self._searched)

    def routes(self) -> list[Route]:
        """Return all routes; `openapi.py` describes those below /api and /v1."""
        changes = [
            Route("/api/add", self.add, methods=["POST"]),
            Route("/api/remove", self.remove, methods=["POST"]),
        ]
        return [
            Route("/api/search", self.search, methods=["POST"]),  # first, because it is asked most
            *(changes if self.writes else []),
            Route("/", self.page),
            Route("/static/{name}", self.static),
            Route("/docs", self.docs),
            Route("/openapi.json", self.openapi),
            Route("/health", self.health),
            Route("/metrics", self.prometheus),
            Route("/api/about", self.about),
            Route("/api/search-text", self.search_text, methods=["POST"]),
            Route("/api/search-words", self.search_words),
            Route("/api/search-batch", self.search_batch, methods=["POST"]),
            Route("/v1/embeddings", self.embeddings, methods=["POST"]),
            Route("/api/neighbors", self.neighbors),
            Route("/api/items", self.items),
            Route("/api/item", self.item),
            Route("/api/classes", self.classes),
            Route("/api/picture", self.picture),
            Route("/api/wrong", self.wrong, methods=["POST"]),
        ]

    async def refused(self, request: Request, error: Exception) -> Response:
        """Answer an error in one line, without the folder or the address of the index."""
        assert isinstance(error, HTTPException)
        detail = ROUTING_ERRORS.get(error.detail, error.detail)
        return error_response(error.status_code, self.collection.without_address(detail))

    async def page(self, request: Request) -> Response:
        if self.token and "token" in request.query_params:  # the Guard has checked it
            response = RedirectResponse("/", status_code=303)
            response.set_cookie(COOKIE, self.token, httponly=True, samesite="strict")
            return response
        return FileResponse(STATIC / "page.html", media_type="text/html")

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in FILES:
            raise HTTPException(404, "no such file")
        return FileResponse(STATIC / name, media_type=FILES[name])

    async def docs(self, request: Request) -> Response:
        return FileResponse(STATIC / "api.html", media_type="text/html")

    async def openapi(self, request: Request) -> Response:
        return Answer(specification(self.limits, bearer=bool(self.token), writes=self.writes))

    async def health(self, request: Request) -> Response:
        return Answer({"status": "ok"})

    async def prometheus(self, request: Request) -> Response:
        def count() -> float:
            try:
                return self.collection.store().count()
            except (OSError, ValueError):  # requests are counted also while the index cannot be read
                return nan

        return PlainTextResponse(self.metrics.text(await run_in_threadpool(count)))

    async def about(self, request: Request) -> Response:
        def read() -> dict[str, Any]:
            store = self.collection.store()
            return {
                "name": self.collection.name,
                "items": store.count(),
                "dimensions": store.dimensions,
                "distance": store.distance,
                "engine": store.engine(),
                "threshold": stored_threshold(store),
                "columns": store.columns(),
                "classes": len(self.collection.classes()),
                "images": "image" in self.collection.takes,
                "sounds": "sound" in self.collection.takes,
                "text": "text" in self.collection.takes,
                "rows": "row" in self.collection.takes,
                "searches_words": store.searches_words,
                "pictures": self.collection.has_pictures(),
                "places": self.collection.has_places(),
                "upload_bytes": self.limits.upload_bytes,
            }

        return Answer(await in_thread(read))

    async def search(self, request: Request) -> Response:
        query = SearchQuery.of(request, RERANK)
        kind = media_type(request)
        if kind.startswith("multipart/"):
            raise HTTPException(415, "expected the file itself as the body (curl --data-binary @query.jpg), got a form")
        if kind == JSON:
            return await self._search_numbers(request, query)
        if query.rerank:
            await in_thread(lambda: self.collection.check_places(self.collection.served()))  # before the upload
        async with self._body(request, self.limits.upload_bytes) as data:
            if not data:
                raise HTTPException(400, "the body is empty; expected an image or a sound")
            pixels = await in_thread(lambda: self.collection.check_image(data, self.limits.upload_pixels))
            async with self._embedding(), self.decodings.turn(pixels):
                if await request.is_disconnected():
                    raise HTTPException(400, "the connection was closed before the image was decoded")
                served = await in_thread(self.collection.served)
                rows = await in_thread(lambda: self.collection.embedded_image(served, data))
            if query.rerank:
                asked = self.collection.uploaded(data)
                found = await self._compared(request, served, rows, asked, query, query.k, pixels=pixels)
                return await self._as_compared(served, lambda: found)
        return await self._nearest(lambda _: rows, query, served)

    async def _search_numbers(self, request: Request, query: SearchQuery) -> Response:
        """Search by an embedding, or by the numbers that the model embeds."""
        if query.rerank:
            raise HTTPException(400, "rerank: places needs an image as the query, got numbers; send one as the body")
        body = await self._json(request, self.limits.vector_bytes)
        key = next((name for name in ("vector", "row") if name in body), "")
        numbers: Any = body.get(key)
        if len(body) != 1 or not is_row(numbers):
            raise HTTPException(400, 'expected {"vector": [0.1, ...]}, an embedding, or {"row": [...]} for the model')
        if key == "vector":
            return await self._nearest(lambda served: self.collection.checked_vector(served, numbers), query)
        if "row" not in self.collection.takes:
            raise HTTPException(501, 'the model of this index does not embed rows; send {"vector": [...]}')
        return await self._nearest_embedded(lambda served: self.collection.embedded_row(served, numbers), query)

    async def search_text(self, request: Request) -> Response:
        query = SearchQuery.of(request)
        body = await self._json(request, self.limits.text_bytes)
        text = body.get("text")
        if "text" not in self.collection.takes:
            raise HTTPException(501, "the model of this index does not embed texts; search by an image or an item")
        if not isinstance(text, str) or not text.strip():
            raise HTTPException(400, 'expected {"text": "red shoes"}, with at least one word')
        return await self._nearest_embedded(lambda served: self.collection.embedded_text(served, text), query)

    async def search_words(self, request: Request) -> Response:
        parameters = request.query_params
        check_parameters(parameters, "words", "k", "where")
        k = number_in(parameters, "k", default=12, least=1, most=MAX_NEIGHBORS)

        def read() -> dict[str, Any]:
            store = self.collection.store()
            found = store.search_words(parameters.get("words", ""), k, where=parameters.get("where", ""))
            return self._plain_hits(store, words_hits(found), threshold=None)

        return Answer(await in_thread(read))

    async def search_batch(self, request: Request) -> Response:
        query = SearchQuery.of(request)
        body = await self._json(request, self.limits.upload_bytes)
        vectors = _read(Vectors, body).vectors
        if not 1 <= len(vectors) <= MAX_QUERIES:
            raise HTTPException(400, f"vectors: expected 1 to {MAX_QUERIES}, got {len(vectors)}")

        def read() -> dict[str, Any]:
            served = self.collection.served()
            store = served.store
            rows = np.concatenate([self.collection.checked_vector(served, vector) for vector in vectors])
            hits = self._found(served, checked_query(store, rows), query)
            threshold = query.threshold(store)
            results = [
                {"neighbors": plain_neighbors(hits, self.marks.right, threshold, place)} for place in range(len(rows))
            ]
            return {"threshold": threshold, "distance": store.distance, "results": results}

        return Answer(await in_thread(read))

    async def add(self, request: Request) -> Response:
        check_parameters(request.query_params)
        body = await self._json(request, self.limits.upload_bytes)
        items = _read(NewItems, body).items
        if not items:
            raise HTTPException(400, "items: expected at least one")
        ways = _checked_ways(items, self.collection.takes)  # of all of them, before the first is embedded
        served = await in_thread(self.collection.served)
        rows = [await self._embedded_item(served, item, way) for item, way in zip(items, ways, strict=True)]

        def write() -> dict[str, Any]:
            with self.collection.writing(served) as store:
                there = len(store.get([item.name for item in items]))
                store.add(new_records(items, rows, store))
                return {"added": len(items) - there, "replaced": there, "items": store.count()}

        return Answer(await in_thread(write))

    async def _embedded_item(self, served: Served, item: NewItem, way: str) -> AnyArray:
        """Return the embedding of an item that is given in this way, (1, d)."""
        collection = self.collection
        if way == "image":
            return await self._embedded_image(served, item.image or "", "document")
        if way == "vector":
            return await in_thread(lambda: collection.checked_vector(served, item.vector or []))
        if way == "text":
            return await self._embedded(lambda: embedded_texts(collection, served, [item.text or ""]))
        return await self._embedded(lambda: collection.embedded_row(served, item.row or [], prompt="document"))

    async def _embedded_image(self, served: Served, url: str, prompt: Any) -> AnyArray:
        """Embed an image in a data URL, in its turn, (1, d)."""
        if "image" not in self.collection.takes:
            raise HTTPException(501, "the model of this index does not embed images")
        data = await in_thread(lambda: image_in(url) or b"")
        pixels = await in_thread(lambda: self.collection.check_image(data, self.limits.upload_pixels))
        async with self._embedding(), self.decodings.turn(pixels):
            return await in_thread(lambda: self.collection.embedded_image(served, data, prompt=prompt))

    async def remove(self, request: Request) -> Response:
        check_parameters(request.query_params)
        body = await self._json(request, self.limits.upload_bytes)
        names = _read(Names, body).names

        def write() -> dict[str, Any]:
            with self.collection.writing(self.collection.served()) as store:
                there = store.get(names).names.tolist()
                if there:
                    store.remove(there)
                return {"removed": len(there), "items": store.count()}

        return Answer(await in_thread(write))

    async def embeddings(self, request: Request) -> Response:
        check_parameters(request.query_params)
        body = await self._json(request, self.limits.upload_bytes)
        if is_tokens(body.get("input")):
            raise HTTPException(400, "input: expected texts, got arrays of tokens; send the texts themselves")
        asked = _read(EmbeddingInput, body)
        served = await in_thread(self.collection.served)
        dimensions = served.store.dimensions
        inputs = [asked.input] if isinstance(asked.input, str) else asked.input
        for name, value, known in (
            ("encoding_format", asked.encoding_format, ("float", "base64")),
            ("input_type", asked.input_type, ("document", "query")),
            ("dimensions", asked.dimensions or dimensions, (dimensions,)),
        ):
            if value not in known:
                raise HTTPException(400, f"{name}: expected {' or '.join(map(str, known))}, got {quoted(value)}")
        if not inputs or not all(text.strip() for text in inputs):
            raise HTTPException(400, "input: expected a text, or a list of texts, each with at least one word")
        prompt = asked.input_type
        are_images = [text.startswith("data:image/") for text in inputs]
        if all(are_images):
            rows = np.concatenate([await self._embedded_image(served, image, prompt) for image in inputs])
        elif any(are_images):
            raise HTTPException(400, "input: expected texts or images, got both; send two requests")
        elif "text" not in self.collection.takes:
            raise HTTPException(501, "the model of this index does not embed texts")
        else:
            rows = await self._embedded(lambda: embedded_texts(self.collection, served, inputs, prompt=prompt))
        return Answer(as_openai(rows, asked.model, asked.encoding_format))

    def _found(self, served: Served, rows: AnyArray, query: SearchQuery) -> Hits:
        """Search the index for the neighbors of embeddings (n, d)."""
        store = served.store
        if query.words:
            if query.group_by:
                raise ValueError("words: does not work with group_by; give only one")
            hits = search_fused(store, rows, query.words, query.k, where=query.where)
        else:
            hits = store.search(rows, query.k, where=query.where, group_by=query.group_by)
        # the store of a server may have noticed only during the search that another model made the index again
        served.check_model()
        return hits

    async def neighbors(self, request: Request) -> Response:
        query = SearchQuery.of(request, "name", RERANK)
        name = name_in(request)
        if query.words:
            raise HTTPException(400, "words: does not work with the neighbors of an item; search by its embedding")

        def of_item(item: Records, hits: Hits) -> Hits:
            """Return the neighbors of the item among hits, without the item itself and its group."""
            values = item.column(query.group_by).tolist() if query.group_by else []
            return hits.without_self([name], query.k, column=query.group_by, values=values)

        def read() -> dict[str, Any]:
            store = self.collection.store()
            item = one_item(store, name)
            hits = store.search(item.embeddings, query.k + 1, where=query.where, group_by=query.group_by)
            return self._plain_hits(store, of_item(item, hits), query.threshold(store))

        if not query.rerank:
            return Answer(await in_thread(read))
        served = await in_thread(self.collection.served)
        item = await in_thread(lambda: one_item(served.store, name))
        await in_thread(lambda: self.collection.check_places(served))
        asked = self.collection.pictures(served, [name])
        found = await self._compared(request, served, item.embeddings, asked, query, query.k + 1)
        return await self._as_compared(served, lambda: found._replace(hits=of_item(item, found.hits)))

    async def _compared(
        self,
        request: Request,
        served: Served,
        rows: AnyArray,
        asked: Dataset,
        query: SearchQuery,
        k: int,
        *,
        pixels: int = 0,
    ) -> ComparedHits:
        """Search for the first hits of an image, whose embedding has shape (1, d), and compare them with it."""
        how = places_in(query.rerank)
        assert how is not None

        def search() -> Hits:
            return self._found(served, checked_query(served.store, rows), replace(query, k=max(k, how.first)))

        hits = await in_thread(search)
        async with self._embedding():
            return await self.comparisons.ranked(
                served, hits, k, how, asked, pixels=pixels, left=request.is_disconnected
            )

    async def _as_compared(self, served: Served, found: Callable[[], ComparedHits]) -> Response:
        """Answer with the neighbors of an image and where they match it, which may be thousands of places."""

        def body() -> bytes:
            compared = found()
            plain = self._plain_hits(served.store, compared.hits, threshold=None)  # one of other distances
            positions = compared.hits.positions[0]
            for neighbor, position in zip(plain["neighbors"], positions[positions >= 0].tolist(), strict=True):
                neighbor["places"] = compared.places[position]
            return as_json(plain)

        return Response(await in_thread(body), media_type=JSON)

    async def items(self, request: Request) -> Response:
        check_parameters(request.query_params, "where", "class", "offset", "limit")
        where = request.query_params.get("where", "")
        label = request.query_params.get("class")
        offset = number_in(request.query_params, "offset", default=0, least=0, most=10**9)
        limit = number_in(request.query_params, "limit", default=60, least=1, most=MAX_LISTED)

        def read() -> dict[str, Any]:
            store = self.collection.store()
            condition = where if label is None else where_of_class(where, label, store)
            total = store.count(condition)
            records = store.get(store.column("name", condition, start=offset, count=limit).tolist())
            items = plain_items(records, np.arange(len(records)), self.marks.right)
            return {"total": total, "offset": offset, "next": next_page(offset, limit, total), "items": items}

        return Answer(await in_thread(read))

    async def item(self, request: Request) -> Response:
        check_parameters(request.query_params, "name")
        name = name_in(request)
        return Answer(await in_thread(lambda: self._plain(one_item(self.collection.store(), name))))

    async def classes(self, request: Request) -> Response:
        check_parameters(request.query_params, "begins", "offset", "limit")
        begins = request.query_params.get("begins", "").lower()
        offset = number_in(request.query_params, "offset", default=0, least=0, most=10**9)
        limit = number_in(request.query_params, "limit", default=MAX_LISTED, least=1, most=MAX_LISTED)
        classes = await in_thread(self.collection.classes)
        matching = [name for name in classes if name.lower().startswith(begins)]
        shown = [{"name": name, "items": classes[name]} for name in matching[offset : offset + limit]]
        following = next_page(offset, limit, len(matching))
        return Answer({"total": len(matching), "offset": offset, "next": following, "classes": shown})

    async def picture(self, request: Request) -> Response:
        check_parameters(request.query_params, "name", "side")
        name = name_in(request)
        side = number_in(request.query_params, "side", default=240, least=16, most=MAX_SIDE)
        async with self.decodings.turn(0):
            data = await in_thread(lambda: self.collection.picture(name, side))
        if data is None:
            raise HTTPException(404, "this item has no picture")
        return Response(data, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=300"})

    async def wrong(self, request: Request) -> Response:
        body = await self._json(request, self.limits.text_bytes)
        name = body.get("name")
        right = body.get("right", "")
        if not isinstance(name, str) or not isinstance(right, str) or len(right) > MAX_NAME:
            raise HTTPException(400, 'expected {"name": "...", "right": "..."}, where right is optional')

        def mark() -> dict[str, Any]:
            records = one_item(self.collection.store(), name)
            label = "" if records.labels is None else str(records.labels[0])
            self.marks.add(name, label, right)
            return self._plain(records)

        return Answer(await in_thread(mark), status_code=201)

    def _plain_hits(self, store: Store, hits: Hits, threshold: float | None, place: int = 0) -> dict[str, Any]:
        """Return the neighbors of one of the queries as plain data."""
        neighbors = plain_neighbors(hits, self.marks.right, threshold, place)
        return {"threshold": threshold, "distance": store.distance, "neighbors": neighbors}

    def _plain(self, item: Records) -> dict[str, Any]:
        return plain_items(item, np.arange(1), self.marks.right)[0]

    async def _nearest_embedded(self, embedding: Callable[[Served], AnyArray], query: SearchQuery) -> Response:
        served = await in_thread(self.collection.served)
        rows = await self._embedded(lambda: embedding(served))
        return await self._nearest(lambda _: rows, query, served)

    async def _embedded(self, embedding: Callable[[], AnyArray]) -> AnyArray:
        """Embed in the turn of a request."""
        async with self._embedding(), self.network:
            return await in_thread(embedding)

    @asynccontextmanager
    async def _embedding(self) -> AsyncIterator[None]:
        """Count a request that embeds; refuse it if too many others wait for the model."""
        if self.embedding >= self.limits.embeddings:
            raise HTTPException(429, "too many requests wait for the model; try again later")
        self.embedding += 1
        try:
            yield
        finally:
            self.embedding -= 1

    async def _nearest(
        self, embedding: Callable[[Served], AnyArray], query: SearchQuery, served: Served | None = None
    ) -> Response:
        """Answer with the neighbors of an embedding, (1, d), of which a model may have been `served`."""
        return Response(await self.searches.ask((query, served), embedding), media_type=JSON)

    async def _searched(
        self, kind: tuple[SearchQuery, Served | None], embeddings: Sequence[Callable[[Served], AnyArray]]
    ) -> Sequence[bytes | Exception]:
        """Search for several embeddings with the same options, and return the bodies of the responses."""
        query, served = kind

        def read() -> Sequence[bytes | Exception]:
            used = served or self.collection.served()  # once, because the index may be opened again at any time
            found = [row_or_error(used, embedding) for embedding in embeddings]
            rows = [row for row in found if not isinstance(row, HTTPException)]
            bodies = iter(self._bodies(used, np.concatenate(rows), query) if rows else ())
            return [row if isinstance(row, HTTPException) else next(bodies) for row in found]

        return await in_thread(read)

    def _bodies(self, served: Served, rows: AnyArray, query: SearchQuery) -> list[bytes]:
        """Search, and return a body for each embedding, (n, d)."""
        threshold = query.threshold(served.store)
        hits = self._found(served, rows, query)
        return [as_json(self._plain_hits(served.store, hits, threshold, place)) for place in range(len(rows))]

    @asynccontextmanager
    async def _body(self, request: Request, most: int) -> AsyncIterator[bytes]:
        """Receive a body; raise an HTTPException if it is too large, takes too long, or too many others are there."""
        length = request.headers.get("content-length", "0")
        too_large = HTTPException(413, f"expected at most {most:,} bytes")
        if not length.isdecimal() or int(length[:20]) > most:
            raise too_large
        parts = bytearray()
        try:
            try:
                async with asyncio.timeout(self.limits.upload_seconds):
                    async for part in request.stream():
                        self.waiting += len(part)
                        parts += part
                        if len(parts) > most:
                            raise too_large
                        if self.waiting > self.limits.waiting_bytes:
                            raise HTTPException(503, "too many uploads at the same time; try again later")
            except TimeoutError:
                seconds = self.limits.upload_seconds
                raise HTTPException(408, f"the request took longer than {seconds:g} s to arrive") from None
            except ClientDisconnect:
                raise HTTPException(400, "the connection was closed during the request") from None
            yield bytes(parts)
        finally:
            self.waiting -= len(parts)

    async def _json(self, request: Request, most: int) -> dict[str, Any]:
        """Receive a JSON object. A page of another site cannot send this content type without permission."""
        if media_type(request) != JSON:
            raise HTTPException(415, f"expected Content-Type: {JSON}")
        async with self._body(request, most) as data:
            try:
                body = parse_json(data.decode())
            except (ValueError, RecursionError):
                raise HTTPException(400, "the body is not JSON; expected a JSON object") from None
            if b"\\u" in data and not is_text(body):
                raise HTTPException(400, "the body has half of a character (\\ud800 to \\udfff), which is no text")
            if not isinstance(body, dict):
                raise HTTPException(400, "expected a JSON object")
            return body


def media_type(request: Request) -> str:
    """Return the type of a body, without its parameters such as the encoding."""
    return request.headers.get("content-type", "").partition(";")[0].strip()


def next_page(offset: int, limit: int, total: int) -> int | None:
    """Return the offset of the next page; None after the last one."""
    return offset + limit if offset + limit < total else None


def where_of_class(where: str, label: str, store: Store) -> str:
    """Return a filter that also keeps only the items of a class; "" are the items without a class."""
    kind = store.columns().get("label")
    if kind is None:
        own = "" if label == "" else NOTHING
    elif kind == "text":
        own = f"label == {json.dumps(label, ensure_ascii=False)}"
    else:
        own = f"label == {label}" if WHOLE_NUMBER.fullmatch(label) else NOTHING
    return " and ".join(f"({part})" for part in (where, own) if part)


def is_text(body: Any) -> bool:
    """Return whether all texts of a JSON body can be encoded."""
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def is_row(numbers: Any) -> bool:
    """Return whether a value of a JSON body is a list of finite numbers.

    >>> is_row([1, 2.5]), is_row([True]), is_row([]), is_row("1"), is_row([1, float("nan"), 2]), is_row([10**400])
    (True, False, False, False, False, False)
    """
    if not isinstance(numbers, list) or not numbers or not {*map(type, numbers)} <= {int, float}:
        return False
    return min(numbers) > -LARGEST and max(numbers) < LARGEST and isfinite(sum(numbers))  # a sum with NaN is NaN


def _read(kind: type[Body], body: dict[str, Any]) -> Body:
    """Return a body as a record."""
    try:
        return read_body(kind, body)
    except ValueError as error:
        raise HTTPException(400, str(error)) from None


def is_tokens(given: Any) -> bool:
    """Return whether the input of a request is an array of tokens, or several, as the API of OpenAI allows.

    >>> is_tokens([15339, 1917]), is_tokens([[15339], [1917]]), is_tokens(["hello"]), is_tokens("hello")
    (True, True, False, False)
    """
    return isinstance(given, list) and bool(given) and isinstance(given[0], int | list)


def checked_query(store: Store, rows: AnyArray) -> AnyArray:
    """Return the embeddings of queries, (n, d); raise a ValueError if the index has no distance to one of them."""
    if store.distance == "cosine" and not rows.any(axis=1).all():
        raise ValueError("the query is all zeros, which has no cosine distance to any item")
    return rows


def row_or_error(served: Served, embedding: Callable[[Served], AnyArray]) -> AnyArray | HTTPException:
    """Return the embedding of a query, (1, d), or why its request is refused; those beside it are answered."""
    try:
        return checked_query(served.store, embedding(served))
    except ValueError as error:
        return as_response(error)


def _checked_ways(items: Sequence[NewItem], takes: Sequence[str]) -> list[str]:
    """Return how each item is given; refuse what cannot be embedded, and two of one name, which would be one item."""
    first: dict[str, int] = {}
    ways = []
    for place, item in enumerate(items):
        if not 0 < len(item.name) <= MAX_NAME:
            got = f"{len(item.name):,}"
            raise HTTPException(400, f"items[{place}].name: expected 1 to {MAX_NAME:,} characters, got {got}")
        before = first.setdefault(item.name, place)
        if before != place:
            message = f"items[{place}].name: {quoted(item.name)} is also the name of items[{before}]"
            raise HTTPException(400, f"{message}; expected different names")
        try:
            way = way_of(item)
        except ValueError as error:
            raise HTTPException(400, str(error)) from None
        if way != "vector" and way not in takes:
            raise HTTPException(501, f"{quoted(item.name)}: the model of this index does not embed {way}s")
        ways.append(way)
    return ways


async def _stopping(request: Request, error: Exception) -> Response:
    return error_response(503, str(error))


async def _unknown_error(request: Request, error: Exception) -> Response:
    return error_response(500, "an error occurred; see the log of the server")
