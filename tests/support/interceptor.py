"""Somebody on the way between two hosts, who can put in what he likes, and has no certificate."""

from __future__ import annotations

import contextlib
import os
import socket
import threading

ALERT = b"\x15\x03\x03\x00\x02\x02"
JUNK = {
    "an alert: certificate expired": ALERT + b"\x2d",
    "an alert: unknown CA": ALERT + b"\x30",
    "an alert: certificate required": ALERT + b"\x74",
    "an alert: protocol version": ALERT + b"\x46",
    "plain text": b"HTTP/1.1 403 Forbidden\r\n\r\n",
    "a yes": b'{"ok": true, "port": 1}\n',
    "a record of random bytes": b"\x17\x03\x03\x00\x40" + os.urandom(64),
    "a record of no type": b"\x63\x03\x03\x00\x02\x01\x01",
    "a record longer than any": b"\x17\x03\x03\xff\xff" + os.urandom(64),
    "noise": b"\x8f" * 200,
}


class Interceptor:
    """Passes on all bytes to a port and back; puts `junk` in, and ends, once the peer has said `after` of them.

    With `junk` empty it passes on everything.
    """

    def __init__(self, port: int, junk: bytes, after: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._target, self._after = port, after
        self.junk = junk
        self.socks: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near = self._listener.accept()[0]
                self.socks.append(near)
                try:
                    far = socket.create_connection(("127.0.0.1", self._target))
                except OSError:  # nobody listens there yet
                    near.close()
                    continue
                self.socks.append(far)
                threading.Thread(target=self._pass_on, args=(near, far, None), daemon=True).start()
                threading.Thread(target=self._pass_on, args=(far, near, self._after), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, left: int | None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if self.junk and left is not None and len(data) >= left:
                    target.sendall(data[:left] + self.junk)
                    target.shutdown(socket.SHUT_WR)
                    return
                target.sendall(data)
                left = None if left is None else max(0, left - len(data))
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Cut all."""
        for sock in (self._listener, *self.socks):
            sock.close()
