"""Responses of plain data, and of errors in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response

from .collection import NotAnImageError, OtherModelError, TooManyPixelsError

JSON = "application/json"
T = TypeVar("T")
STATUS: tuple[tuple[type[Exception], int], ...] = (
    (TooManyPixelsError, 413),
    (NotAnImageError, 415),
    (KeyError, 404),
    (ValueError, 400),
    (OtherModelError, 503),
    (OSError, 503),
)
"""Status of a response for an error; the first that fits counts."""


async def in_thread(question: Callable[[], T]) -> T:
    """Run a function in another thread; turn its errors into responses of one line."""
    try:
        return await run_in_threadpool(question)
    except (ValueError, KeyError, OtherModelError, OSError) as error:
        raise as_response(error) from None


def as_response(error: Exception) -> HTTPException:
    """Return an error of a question as a response of one line."""
    status = next(status for kind, status in STATUS if isinstance(error, kind))
    if isinstance(error, TimeoutError):
        return HTTPException(status, "another process is changing the index; try again later")
    if isinstance(error, OSError):
        return HTTPException(status, "the index cannot be read at the moment; try again later")
    return HTTPException(status, str(error.args[0]) if isinstance(error, KeyError) else str(error))


def as_json(content: Any) -> bytes:
    """Return plain data as the body of a response; names of files may have bytes that are no text, and are escaped."""
    return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


class Answer(Response):
    """A response of plain data."""

    media_type = JSON

    def render(self, content: Any) -> bytes:
        return as_json(content)
