"""TLS on a link of the world: the real OpenSSL, with the world's bytes below it.

What OpenSSL draws by itself changes no life: the messages of a handshake, whose lengths are never quite the same, are
each delivered whole, and count neither as bytes that can be cut nor as bytes that fill the link. Behind it all lengths
are those of what was sent.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from ggsci.certificates import files
from ggsci.certificates.folder import Folder
from tests.world.machines import HOME_IDS
from trails.fs import RealFs
from trails.link import tls
from trails.runtime.home.home import Home

if TYPE_CHECKING:
    from tests.world.network import SimSocket

NEVER_ENDS = 36_500
"""Days: machines of the world may believe what they like of the date, OpenSSL asks the real clock."""


@cache
def contexts() -> dict[str, ssl.SSLContext]:
    """One for near, which connects, and one for far, made from files as the product makes them."""
    with tempfile.TemporaryDirectory() as folder:
        made: dict[str, Folder] = {}
        for name in HOME_IDS:
            home = Home(f"{folder}/{name}", RealFs())
            home.create_subdirs()
            made[name] = Folder(home, tls.folder_of(home.root))
        files.ensure_ca(made["far"], HOME_IDS["far"], NEVER_ENDS)
        for name, home_id in HOME_IDS.items():
            files.issue(made["far"], made[name], name, (name,), NEVER_ENDS, home_id)
        return {"near": tls.client_context(made["near"].path), "far": tls.server_context(made["far"].path)}


def answer(sock: Any, _folder: str) -> SimTls:
    """See tls.answer."""
    return SimTls(sock, contexts()["far"], server_side=True)


class ClientContext:
    """What pump.link.secured uses of a context."""

    def wrap_socket(self, sock: Any, *, server_hostname: str, do_handshake_on_connect: bool) -> SimTls:
        """See ssl.SSLContext."""
        assert not do_handshake_on_connect
        return SimTls(sock, contexts()["near"], server_hostname=server_hostname)


class SimTls(ssl.SSLSocket):
    """See ssl.SSLSocket: of that it has the name, and nothing else."""

    def __init__(self, plain: SimSocket, context: ssl.SSLContext, **given: Any) -> None:
        self._plain = plain
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object: ssl.SSLObject | None = context.wrap_bio(self._in, self._out, **given)
        self._unsent = b""
        self._is_written = False
        self._head, self._body = b"", 0

    # what is as the plain socket has it

    def readable(self) -> bool:
        """For a poll."""
        return self._plain.readable()

    def writable(self) -> bool:
        """For an epoll that asks for it."""
        return self._plain.writable()

    def setblocking(self, flag: bool) -> None: ...

    def setsockopt(self, *args: Any) -> None: ...

    def fileno(self) -> int:
        return self._plain.fileno()

    def getpeername(self) -> tuple[str, int]:
        return self._plain.getpeername()

    def close(self) -> None:
        self._plain.close()

    def shutdown(self, how: int) -> None:
        self._object = None  # as SSLSocket does it: no close_notify, and no TLS from here on
        self._plain.shutdown(how)

    # what TLS tells

    def version(self) -> str | None:
        return None if self._object is None else self._object.version()

    def getpeercert(self, binary_form: bool = False) -> Any:
        assert self._object is not None
        return self._object.getpeercert(binary_form)

    def pending(self) -> int:
        return 0 if self._object is None else self._object.pending()

    # bytes

    def do_handshake(self, block: bool = False) -> None:
        assert self._object is not None
        self._run(self._object.do_handshake)

    def send(self, data: Any, flags: int = 0) -> int:
        if self._object is None:
            return self._plain.send(bytes(data))
        self._push()  # what the link did not take before, be it of this very data
        if not self._is_written:
            self._run(lambda: self._object.write(data))  # type: ignore[union-attr]
            self._is_written = True
            self._push()
        self._is_written = False
        return len(data)

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        if self._object is None:
            return self._plain.recv_into(buffer)
        view = memoryview(buffer)
        try:
            return int(self._run(lambda: self._object.read(len(view), view)))  # type: ignore[union-attr,arg-type]
        except ssl.SSLError as error:
            if error.args[0] == ssl.SSL_ERROR_EOF:  # as SSLSocket does it
                return 0
            raise

    def _run(self, call: Callable[[], Any]) -> Any:
        """Until it is done; raises SSLWantReadError where more has to come first."""
        while True:
            greets = self.version() is None
            try:
                return call()
            except ssl.SSLWantReadError:
                self._take_out(greets)
                self._feed()
            finally:
                self._take_out(greets)

    def _take_out(self, greets: bool) -> None:
        """What OpenSSL has for the other end: a message of the handshake goes at once and whole."""
        if data := self._out.read():
            if greets:
                self._plain.greet(data)
            else:
                self._unsent += data

    def _push(self) -> None:
        while self._unsent:
            try:
                sent = self._plain.send(self._unsent)
            except BlockingIOError:
                raise ssl.SSLWantWriteError(ssl.SSL_ERROR_WANT_WRITE, "The operation did not complete") from None
            self._unsent = self._unsent[sent:]

    def _feed(self) -> None:
        """The next piece of a record, as OpenSSL itself reads it: its head, then its body."""
        try:
            data = self._plain.recv(self._body or 5 - len(self._head))
        except BlockingIOError:
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "The operation did not complete") from None
        if not data:
            self._in.write_eof()
            return
        self._in.write(data)
        if self._body:
            self._body -= len(data)
            return
        self._head += data
        if len(self._head) == 5:
            self._body, self._head = int.from_bytes(self._head[3:]), b""
