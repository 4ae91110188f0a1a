"""Access control: Host, Origin and token of requests are checked, and times are limited.

A server on loopback can be reached by every page in the user's browser. Such a page cannot read responses of another
origin, but it can send requests, or let its own domain name resolve to 127.0.0.1 (DNS rebinding). So the Host must be a
name of this server, and requests that the browser marks as coming from another site are refused.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .metrics import Metrics

LOOPBACK = ("127.0.0.1", "localhost", "::1")
COOKIE = "nearfar_token"
OPEN = ("/health",)  # needs no token, because it tells only that the server runs
RETRY_SECONDS = "1"  # after which a client may ask again that came at a busy moment
WRITE_SECONDS = 30.0  # maximum time that a part of a response waits for a client that does not read

POLICY = "; ".join(
    (
        "default-src 'none'",
        "img-src 'self' blob:",
        "style-src 'self'",
        "script-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
ENCODED = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
CACHE = (b"cache-control", b"no-store")  # unless the response allows more


@dataclass(frozen=True)
class Limits:
    """Limits of a request, and of all requests to a process together.

    Attributes
    ----------
    upload_bytes : maximum number of bytes of an image
    upload_pixels : maximum number of pixels of an image; 10,000 x 10,000 are too many
    upload_seconds : maximum time to receive a body
    text_bytes : maximum number of bytes of a JSON body
    vector_bytes : maximum number of bytes of a JSON body with a vector or a row
    waiting_bytes : maximum number of bytes of all bodies that are in memory at a time
    embeddings : maximum number of requests that wait for the model; further ones get status 429
    rerank_seconds : maximum time to compare the first hits with an image, waiting included
    """

    upload_bytes: int = 20_000_000
    upload_pixels: int = 50_000_000
    upload_seconds: float = 20.0
    text_bytes: int = 10_000
    vector_bytes: int = 200_000  # 8,192 numbers with all of their digits
    waiting_bytes: int = 200_000_000
    embeddings: int = 64
    rerank_seconds: float = 30.0


LIMITS = Limits()


class Guard:
    """Middleware around the whole application.

    Parameters
    ----------
    app : ASGI application
    hosts : collection of str
        Names under which this server can be reached, without ports.
    token : str
        Secret of requests, as `Authorization: Bearer ...` or as the cookie that the page sets; "" for none.
    metrics : Metrics
    paths : collection of str
        Paths that are counted separately; all others are counted together.
    """

    def __init__(
        self, app: ASGIApp, *, hosts: Collection[str], token: str, metrics: Metrics, paths: Collection[str]
    ) -> None:
        self.app = app
        self.paths = frozenset(paths)
        self.hosts = frozenset(host.lower() for host in hosts)
        self.token = token
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 500
        head: Message | None = None

        async def guarded(message: Message) -> None:
            nonlocal status, head
            if message["type"] == "http.response.start":
                status = message["status"]
                given = message["headers"]
                stored = any(name == CACHE[0] for name, _ in given)
                message["headers"] = [*given, *ENCODED, *([] if stored else [CACHE])]
                head = message  # sent with the first part of the body, under the same timeout
                return
            async with asyncio.timeout(WRITE_SECONDS):
                if head is not None:
                    await send(head)
                    head = None
                await send(message)

        try:
            refused = self._refused(scope)
            if refused is None:
                await self.app(scope, receive, guarded)
            else:
                await refused(scope, receive, guarded)
        except TimeoutError:
            status = 499  # the client did not read
        finally:
            path = scope["path"] if scope["path"] in self.paths else "other"
            self.metrics.answered(path, status, time.perf_counter() - began)

    def _refused(self, scope: Scope) -> JSONResponse | None:
        # of a header that is there twice, the first counts
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}
        host = headers.get("host", "")
        if host_name(host) not in self.hosts:
            return error_response(400, "unknown name of this server (Host); allow it with hosts= (--name)")
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return error_response(403, "requests from other sites are refused (Origin)")
        site = headers.get("sec-fetch-site", "same-origin")
        typed = scope["path"] == "/" and scope["method"] == "GET" and headers.get("sec-fetch-mode") == "navigate"
        if site not in ("same-origin", "none") and not typed:
            return error_response(403, "requests from other sites are refused (Sec-Fetch-Site)")
        if self.token and scope["path"] not in OPEN and not self._knows_token(scope, headers):
            return error_response(401, "a token is required: open /?token=TOKEN, or send Authorization: Bearer TOKEN")
        return None

    def _knows_token(self, scope: Scope, headers: Mapping[str, str]) -> bool:
        tokens = [headers.get("authorization", "").removeprefix("Bearer "), cookie_of(headers.get("cookie", ""))]
        if scope["path"] == "/":
            query = dict(
                part.split("=", 1) for part in scope["query_string"].decode("latin-1").split("&") if "=" in part
            )
            tokens.append(query.get("token", ""))
        expected = self.token.encode()
        return any(hmac.compare_digest(one.encode("utf-8", "replace"), expected) for one in tokens if one)


def error_response(status: int, message: str) -> JSONResponse:
    """Return a response with an error message of one line."""
    headers = {"Retry-After": RETRY_SECONDS} if status in (429, 503) else None
    return JSONResponse({"error": message}, status_code=status, headers=headers)


def host_name(host: str) -> str:
    """Return the name in a Host header, without the port and the brackets of IPv6.

    >>> host_name("localhost:8000"), host_name("[::1]:8000"), host_name("127.0.0.1")
    ('localhost', '::1', '127.0.0.1')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def cookie_of(header: str) -> str:
    """Return the token in a Cookie header, or ""."""
    try:
        cookie = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return "" if cookie is None else cookie.value
