"""Serves the site: binds the port, speaks TLS where it must, ends when the Manager does.

Rule: connections are bounded in number, in all and for each address, from the moment they are accepted, and in time:
one that has not ended its TLS handshake or not asked anything within FIRST_SECONDS is closed, and none lives longer
than LIFE_SECONDS. The certificate is read again when its file changes. What goes wrong is told so many times, not for
ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
import os
import socket
import ssl
import time
import weakref
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ggsci.manager.webparams import WebParams
from ggsci.web import app
from ggsci.web.watch import HomesWatch
from trails.errors import AwayError, OperatorError
from trails.link import tls
from trails.runtime.home.home import Home

MAX_CONNECTIONS = 64
MAX_OF_ADDRESS = 32
MAX_HEAD = 16 << 10
FIRST_SECONDS = 10.0
LIFE_SECONDS = 120.0
BIND_SECONDS = 10.0
TICK_SECONDS = 0.25
MAX_TOLD = 100


class _Listener(socket.socket):
    """Accepts connections up to the bounds and drops those beyond; one in its TLS handshake counts as any other."""

    def __init__(self, family: socket.AddressFamily) -> None:
        super().__init__(family, socket.SOCK_STREAM)
        self._open: list[tuple[str, weakref.ref[socket.socket]]] = []

    def accept(self) -> tuple[socket.socket, Any]:
        """The next one that there is room for. Raises BlockingIOError, as every socket does, if there is none."""
        while True:
            link, address = super().accept()
            self._open = [(host, other) for host, other in self._open if _is_open(other())]
            of_address = sum(host == address[0] for host, _ in self._open)
            if len(self._open) < MAX_CONNECTIONS and of_address < MAX_OF_ADDRESS:
                self._open.append((address[0], weakref.ref(link)))
                return link, address
            link.close()


def _is_open(link: socket.socket | None) -> bool:
    return link is not None and link.fileno() >= 0


class _Connection(H11Protocol):
    """One connection, held to its bounds in time."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._until = self.loop.time() + LIFE_SECONDS
        self._timer = self.loop.call_later(FIRST_SECONDS, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer:
            self._timer.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        """Close it if it has asked nothing yet, or has been here long enough."""
        if self.cycle is None or self.loop.time() >= self._until:
            self.transport.abort()
            return
        self._timer = self.loop.call_later(FIRST_SECONDS, self._look)


class _Few(logging.Filter):
    """Lets MAX_TOLD records by: what anybody can set off must not fill a disk."""

    def __init__(self) -> None:
        super().__init__()
        self._told = 0

    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002  -- the signature of Filter
        """Is this one still to be told?"""
        self._told += 1
        return self._told <= MAX_TOLD


class _Certificate:
    """This home's certificate as a server shows it, read again once the file has changed."""

    def __init__(self, home: Home) -> None:
        self._folder = tls.folder_of(home.root)
        self.context = self._read()
        self._seen = self._stamp()

    def _read(self) -> ssl.SSLContext:
        context = tls.server_context(self._folder)
        context.verify_mode = ssl.CERT_NONE  # browsers show the token, not a certificate
        return context

    def _stamp(self) -> int:
        return os.stat(os.path.join(self._folder, tls.CERTIFICATE)).st_mtime_ns

    def renew(self) -> None:
        """New connections get what the files say now; while they can't be read, the old certificate stays."""
        with contextlib.suppress(OSError, OperatorError, ssl.SSLError):
            if self._stamp() == self._seen:
                return
            self._read()  # tells whether all files fit
            names = (tls.CERTIFICATE, tls.KEY)
            self.context.load_cert_chain(*(os.path.join(self._folder, name) for name in names))
            self._seen = self._stamp()


def bind(params: WebParams) -> socket.socket:
    """The listening socket. A page of a Manager killed just now may hold the port for a moment."""
    family = socket.AF_INET6 if ":" in params.bind else socket.AF_INET
    end = time.monotonic() + BIND_SECONDS
    while True:
        link = _Listener(family)
        try:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            link.bind((params.bind, params.port))
        except OSError as error:
            link.close()
            if error.errno != errno.EADDRINUSE or time.monotonic() > end:
                raise _cant_bind(params, error) from None
            time.sleep(0.1)
        else:
            return link


def _cant_bind(params: WebParams, error: OSError) -> OperatorError:
    hint = "Choose another WEBPORT or WEBBIND in mgr.prm, then REFRESH MANAGER"
    return OperatorError(f"WEBPORT {params.port} at {params.bind} can't be had: {error.strerror}", hint=hint)


def serve(
    home: Home, params: WebParams, watch: HomesWatch, ended: Any, bound: Callable[[], None] = lambda: None,
    tell: Callable[[str], None] = lambda _: None,
) -> None:  # fmt: skip
    """Serve until `ended` (an Event) is set or the process is told to stop. Raises AwayError if the watch has died.

    `bound` is called once the port is had; `tell` takes a line about whoever shows a wrong token, and never waits.
    """
    certificate = _Certificate(home) if params.tls else None
    listener = bind(params)
    bound()
    config = uvicorn.Config(
        app.make(home, params, watch, tell), http=_Connection, ws="none", lifespan="off", loop="asyncio",
        log_config=None, access_log=False, proxy_headers=False, server_header=False,
        timeout_keep_alive=15, timeout_graceful_shutdown=2,
        h11_max_incomplete_event_size=MAX_HEAD, backlog=MAX_CONNECTIONS,
        ssl_context_factory=(lambda *_: certificate.context) if certificate else None,
    )  # fmt: skip
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    few = _Few()
    for name in ("uvicorn.error", "asyncio", "ggsci.web"):
        logging.getLogger(name).addFilter(few)
    server = uvicorn.Server(config)

    async def run() -> None:
        if certificate:  # which uvicorn has no setting for
            loop = asyncio.get_running_loop()
            make = functools.partial(loop.create_server, ssl_handshake_timeout=FIRST_SECONDS)
            loop.create_server = make  # type: ignore[method-assign]
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        while not serving.done():
            await asyncio.wait([serving], timeout=TICK_SECONDS)
            if ended.is_set() or watch.failure is not None:
                server.should_exit = True
            if certificate:
                certificate.renew()
        await serving

    watch.start()
    try:
        asyncio.run(run())
    finally:
        watch.close()
    if watch.failure is not None:
        raise AwayError(f"the watch ended: {watch.failure!r}") from watch.failure
