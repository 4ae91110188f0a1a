"""Turns to decode an image: a few at a time, so that many uploads cannot fill the memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

AT_ONCE = 2  # one decodes while the network embeds the other


class StoppingError(RuntimeError):
    """The server is stopping, so that nothing more is decoded."""


class Decodings:
    """At most two decodings at a time, of at most so many pixels together; others wait in the order of their requests.

    Parameters
    ----------
    pixels : int
        Maximum number of pixels of all images that are decoded at a time.

    Examples
    --------
    >>> async def decode():
    ...     async with Decodings(50_000_000).turn(12_000_000):
    ...         return "decoded"
    >>> asyncio.run(decode())
    'decoded'
    """

    def __init__(self, pixels: int) -> None:
        self._free = pixels
        self._running = 0
        self._stopping = False
        self._queue = asyncio.Lock()  # the first in the queue waits for room, and others for the first
        self._room = asyncio.Condition()

    @asynccontextmanager
    async def turn(self, pixels: int) -> AsyncIterator[None]:
        """Wait for the turn of an image with this number of pixels; raise a StoppingError if `stop` comes first."""
        async with self._queue, self._room:
            await self._room.wait_for(
                lambda: self._stopping or (self._running < AT_ONCE and pixels <= self._free),
            )
            if self._stopping:
                raise StoppingError("the server is stopping")
            self._running += 1
            self._free -= pixels
        try:
            yield
        finally:
            self._running -= 1
            self._free += pixels
            async with self._room:
                self._room.notify_all()

    async def stop(self) -> None:
        """Decode nothing more, so that the server ends as soon as what is being decoded is."""
        self._stopping = True
        async with self._room:
            self._room.notify_all()
