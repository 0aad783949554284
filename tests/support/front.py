"""Stands before a PostgreSQL server as hostssl does: whoever comes without TLS is refused in the server's own words.

The servers of the tests are built without TLS, so this is the end of it; what is inside goes to the server.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from demo.patience import PATIENCE
from tests.support.homes import make_home
from tests.support.secure import certify
from trails.link import tls

TLS, GSS = 80877103, 80877104
_PIECE = 1 << 14


@contextmanager
def tls_only(folder: Path, port: int) -> Iterator[int]:
    """The port of such a server before the one at `port`."""
    home = make_home(folder / "front")
    certify(home, home)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*(os.path.join(tls.folder_of(home.root), name) for name in (tls.CERTIFICATE, tls.KEY)))
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                near = listener.accept()[0]
                threading.Thread(target=_receive, args=(near, context, port), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(PATIENCE)


def asked(peer: socket.socket) -> int:
    """The number in the next packet of somebody who wants in; 0 if he is gone."""
    with peer.makefile("rb", buffering=0) as stream:
        size = struct.unpack("!I", stream.read(4) or bytes(4))[0]
        return int(struct.unpack("!I", stream.read(size - 4)[:4])[0]) if size else 0


def fatal(text: str) -> bytes:
    """What a server says to whom it does not let in."""
    body = b"SFATAL\0VFATAL\0C28000\0M" + text.encode() + b"\0\0"
    return b"E" + struct.pack("!I", len(body) + 4) + body


def _receive(near: socket.socket, context: ssl.SSLContext, port: int) -> None:
    with near, suppress(OSError, struct.error):
        near.settimeout(PATIENCE)
        while (number := asked(near)) == GSS:
            near.sendall(b"N")
        if number != TLS:
            near.sendall(fatal('no pg_hba.conf entry for host "127.0.0.1", user "u", database "d", no encryption'))
            return
        near.sendall(b"S")
        with (
            context.wrap_socket(near, server_side=True) as secure,
            socket.create_connection(("127.0.0.1", port)) as far,
        ):
            _forward(secure, far)


def _forward(secure: ssl.SSLSocket, far: socket.socket) -> None:
    while True:
        ready = [secure] if secure.pending() else select.select([secure, far], [], [])[0]
        for source in ready:
            if not (data := source.recv(_PIECE)):
                return
            (far if source is secure else secure).sendall(data)
