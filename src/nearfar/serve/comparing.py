"""Searches whose first hits are compared with an image place by place, at a cost that many requests do not raise.

One such search at a time reads the pictures of its hits, a few in each turn to decode, so that other requests come in
between. It ends with an error if it takes too long, and soon after its client has left.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import numpy as np
from starlette.exceptions import HTTPException

from ..data import Dataset
from ..data.decode import read_shape
from ..index.places import check_shapes, positions_in, ranked_by_descriptors, relative_boxes
from ..index.records import Hits
from ..numerics.types import AnyArray, Ints
from .answers import in_thread
from .collection import Collection, Served
from .decodings import Decodings

PICTURES_OF_A_TURN = 4  # pictures that are decoded and embedded in a turn, for which other requests wait
DIGITS = 4  # of a coordinate: a tenth of a pixel in a picture of a thousand

Left = Callable[[], Awaitable[bool]]
"""Function that returns whether the client of a request has left."""


class ComparedHits(NamedTuple):
    """Neighbors of one query, and where they match it.

    Attributes
    ----------
    hits : Hits
        The neighbors.
    places : dict
        Plain data on each neighbor, by its position in the records of the hits.
    """

    hits: Hits
    places: dict[int, dict[str, Any]]


class Comparisons:
    """Comparisons of the first hits of a search with the image of the query, one after another.

    Parameters
    ----------
    collection : Collection
        The index, its model and the pictures of its items.
    decodings : Decodings
        Turns to decode.
    seconds : float
        Maximum time of a comparison, from when it is asked for.
    """

    def __init__(self, collection: Collection, decodings: Decodings, seconds: float) -> None:
        self._collection = collection
        self._decodings = decodings
        self._seconds = seconds
        self._running = asyncio.Lock()  # the descriptors of a hundred large maps take hundreds of megabytes

    async def ranked(
        self, served: Served, hits: Hits, k: int, how: Any, asked: Dataset, *, pixels: int, left: Left
    ) -> ComparedHits:
        """Return the k nearest of the first hits of a query by their cosine and the places that match.

        Parameters
        ----------
        served : Served
            Index and model.
        hits : Hits
            The first hits.
        k : int
            Number of neighbors.
        how : Places
            Settings of the method.
        asked : Dataset
            The image of the query.
        pixels : int
            Its number of pixels.
        left : callable
            Whether the client has left.

        Raises
        ------
        HTTPException
            If it takes too long, the client has left, or a picture cannot be read.
        """
        known = positions_in(hits)
        if len(known) == 0:
            return ComparedHits(hits, {})
        pictures = self._collection.pictures(served, hits.records.names[known].tolist())
        end = asyncio.get_running_loop().time() + self._seconds
        async with self._alone(end):
            of_query = await self._described(served, asked, pixels, end, left)
            parts = []
            for start in range(0, len(known), PICTURES_OF_A_TURN):
                part = pictures.subset(np.arange(start, min(start + PICTURES_OF_A_TURN, len(known))))
                parts.append(await self._described(served, part, 0, end, left))

            def rank() -> ComparedHits:
                check_shapes(of_query, *parts)
                found, matches = ranked_by_descriptors(hits, k, how, of_query, np.concatenate(parts))
                sizes = [size_of(pictures, number) for number in range(len(known))]
                size = size_of(asked, 0)
                network: Any = served.model
                plain = {}
                for (_, position), matched in matches.items():
                    of_item = sizes[int(np.searchsorted(known, position))]
                    plain[position] = {
                        "matching": len(matched.query),
                        "of": matched.shape[0] * matched.shape[1],
                        "query": boxes(matched.query, matched.shape, network.seen_part(*size), size),
                        "item": boxes(matched.item, matched.shape, network.seen_part(*of_item), of_item),
                    }
                return ComparedHits(found, plain)

            return await in_thread(rank)

    @asynccontextmanager
    async def _alone(self, end: float) -> AsyncIterator[None]:
        """Wait until no other comparison runs."""
        try:
            async with asyncio.timeout_at(end):
                await self._running.acquire()
        except TimeoutError:
            raise self._too_slow() from None
        try:
            yield
        finally:
            self._running.release()

    async def _described(self, served: Served, images: Dataset, pixels: int, end: float, left: Left) -> AnyArray:
        """Return the descriptors of a few images, which are decoded in their turn."""
        async with self._decodings.turn(pixels):
            if asyncio.get_running_loop().time() > end:
                raise self._too_slow()
            if await left():
                raise HTTPException(400, "the connection was closed before the hits were compared")
            return await in_thread(lambda: self._collection.described(served, images))

    def _too_slow(self) -> HTTPException:
        seconds = f"{self._seconds:g} s"
        return HTTPException(503, f"rerank: took longer than {seconds}; compare fewer hits, such as places(first=10)")


def size_of(images: Dataset, number: int) -> tuple[int, int]:
    """Return the width and the height of an image."""
    height, width = read_shape(images.read, number)
    return width, height


def boxes(places: Ints, shape: tuple[int, int], seen: Sequence[float], size: tuple[int, int]) -> list[list[float]]:
    """Return where places (m, 2) are in an image: left, top, right and bottom in shares of its width and height."""
    found: list[list[float]] = relative_boxes(places, shape, seen, size).round(DIGITS).tolist()
    return found
