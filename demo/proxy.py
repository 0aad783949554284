"""A small TCP proxy that cuts, stalls or flips bytes: the bad network of tests and soak.

Each accepted connection is forwarded to `target()`; `limit()` gives the number of bytes (both ways together) after
which it is cut, None for never; `cut` says how. `stall` stops all forwarding while set; `flip` changes one byte at that
offset, once.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from enum import Enum

CLOSED_SECONDS = 0.2
"""How long the next byte is waited for before a connection is closed instead of it."""


class Cut(Enum):
    """How a connection ends: what each of its two ends finds."""

    RESET = "a reset at both ends"
    CLOSED = "the end where the next byte would have come"
    TOGETHER = "the last bytes and the end, in one packet"
    HALF_OPEN = "a reset at the far end, and silence at the near one"
    SILENT = "silence at both: what is said is acknowledged, and nobody hears it; until one gives up"


class Proxy:
    """Listens on `port` until close()."""

    def __init__(
        self,
        target: Callable[[], tuple[str, int]],
        limit: Callable[[], int | None] = lambda: None,
        listen: tuple[str, int] = ("127.0.0.1", 0),
    ) -> None:
        self._target = target
        self._limit = limit
        self.cut = Cut.RESET
        self.stall = threading.Event()
        self.flip: int | None = None
        self.cuts = 0
        self.forwarded = 0
        self._closing = False
        self._listener = socket.create_server(listen)
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """Cut everything and stop listening."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        while not self._closing:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._forward, args=(near,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _forward(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection(self._target(), 5)
        except OSError:
            near.close()
            return
        left = self._limit()
        for end in (near, far):  # else a piece waits for the other side to confirm the one before
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with near, far:
            pairs = {near: far, far: near}
            while not self._closing:
                ready, _, _ = select.select(list(pairs), [], [], 0.05)
                if self.stall.is_set():
                    time.sleep(0.05)
                    continue
                for source in ready:
                    left = self._move(source, pairs[source], left)
                    if left == 0:
                        self.cuts += 1
                        self._end(near, far)
                    if left in (0, -1):
                        return

    def _end(self, near: socket.socket, far: socket.socket) -> None:
        """As `cut` says; both are closed when this returns."""
        if self.cut is Cut.RESET:
            _reset_on_close(near)
        if self.cut in (Cut.RESET, Cut.HALF_OPEN):
            _reset_on_close(far)
            far.close()
        if self.cut is Cut.CLOSED:
            select.select([near, far], [], [], CLOSED_SECONDS)
            for end in (near, far):
                _shut(end)
        if self.cut in (Cut.CLOSED, Cut.HALF_OPEN, Cut.SILENT):
            self._swallow([near] if self.cut is Cut.HALF_OPEN else [near, far])

    def _swallow(self, ends: list[socket.socket]) -> None:
        """Take what still comes, until one of them has given up: keepalives of its system tell the other one."""
        while not self._closing:
            ready, _, _ = select.select(ends, [], [], 0.05)
            for end in ready:
                try:
                    if not end.recv(1 << 16):
                        return
                except OSError:
                    return

    def _move(self, source: socket.socket, target: socket.socket, left: int | None) -> int | None:
        """Forward what is there; the bytes left before the cut, -1 if an end closed."""
        try:
            data = source.recv(1 << 16 if left is None else min(left, 1 << 16))
            if not data:
                return -1
            if self.flip is not None and self.flip < len(data):
                data, self.flip = _flipped(data, self.flip), None
            elif self.flip is not None:
                self.flip -= len(data)
            if self.cut is Cut.TOGETHER and len(data) == left:
                target.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
            target.sendall(data)
        except OSError:
            return -1
        self.forwarded += len(data)
        return None if left is None else left - len(data)


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_WR)


def _reset_on_close(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
