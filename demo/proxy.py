"""A small TCP proxy that cuts, stalls or flips bytes: the bad network of tests and soak.

Each accepted connection is forwarded to `target()`; `limit()` gives the number of bytes (both ways together) after
which it is cut with a reset, None for never. `stall` stops all forwarding while set; `flip` changes one byte at that
offset, once.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from collections.abc import Callable


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
            while pairs and not self._closing:
                ready, _, _ = select.select(list(pairs), [], [], 0.05)
                if self.stall.is_set():
                    self.stall.wait(0.05)
                    continue
                for source in ready:
                    left = self._move(source, pairs[source], left)
                    if left == 0:
                        self.cuts += 1
                        for end in (near, far):
                            _reset_on_close(end)
                        return
                    if left == -1:
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
            target.sendall(data)
        except OSError:
            return -1
        self.forwarded += len(data)
        return None if left is None else left - len(data)


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]


def _reset_on_close(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
