"""The server process: uvicorn, with timeouts for clients that send slowly."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, ClassVar

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.supervisors import Multiprocess

HEAD_SECONDS = 10.0  # timeout for the first line and the headers of a request
CONNECTIONS = 256  # maximum number of simultaneous connections; further ones get status 503
MAX_IDLE = 200  # maximum number of connections without a complete request
HEAD_BYTES = 16_384
STOP_SECONDS = 10  # maximum time to answer the requests that are there when the server is stopped
WORKER_SECONDS = 60  # maximum time in which a worker has loaded its model


class ImpatientProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection if the head of a request, or what follows its answer, takes too long."""

    idle: ClassVar[dict[ImpatientProtocol, None]] = {}
    """Connections whose requests are not complete, the oldest first."""
    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()
        # clients that send nothing make room for others
        for other in list(self.idle)[: max(0, len(self.idle) - MAX_IDLE)]:
            other._close()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_idle():
            self._wait()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _is_idle(self) -> bool:
        """Whether no request is being answered: its head is incomplete, or its answer did not need all of its body."""
        answered = self.cycle is not None and self.cycle.response_complete
        return answered or self.conn.their_state is h11.IDLE

    def _wait(self) -> None:
        if self._waiting is None:
            self._waiting = self.loop.call_later(HEAD_SECONDS, self._close)
            self.idle[self] = None

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
            self.idle.pop(self, None)

    def _close(self) -> None:
        self._stop_waiting()
        if not self.transport.is_closing() and self._is_idle():
            self.transport.close()


class Server(uvicorn.Server):
    """A server that tells its application when it begins to stop, before it waits for what is being answered."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        app: Any = self.config.app
        await app.state.stop()
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address; port 0 takes a free one.

    Raises
    ------
    OSError
        If the address is in use, or is not one of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=CONNECTIONS)
    except OSError as error:
        reason = (error.strerror or str(error)).split(" (")[0].lower()  # without the address, which follows here
        raise OSError(f"port: cannot listen on {host}, port {port} ({reason}); choose another") from error
    # Connections inherit this. Otherwise the body of an answer waits 40 ms until the client has confirmed the headers.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def serve(app: Any, listener: socket.socket) -> None:
    """Serve requests until the process is stopped."""
    Server(config_of(app)).run(sockets=[listener])


def serve_by_workers(make_app: Callable[[], Any], listener: socket.socket, workers: int) -> None:
    """Serve requests by several processes until this one is stopped.

    A process that ends is started again. SIGHUP replaces them one after another, each when its successor answers.

    Parameters
    ----------
    make_app : callable
        Function that every process calls to make the application; it is pickled.
    listener : socket
        Where they all listen.
    workers : int
        Number of processes.
    """
    config = config_of(make_app, factory=True, workers=workers, timeout_worker_healthcheck=WORKER_SECONDS)
    Multiprocess(config, sockets=[listener]).run()


def config_of(app: Any, **how: Any) -> uvicorn.Config:
    """Return the settings of uvicorn, with some others."""
    return uvicorn.Config(
        app,
        http=ImpatientProtocol,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        h11_max_incomplete_event_size=HEAD_BYTES,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=STOP_SECONDS,
        **how,
    )
