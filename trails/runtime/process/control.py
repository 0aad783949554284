"""The control socket: one line of JSON asks, one line of JSON answers, `dirtmp/<GROUP>.s`.

Rule: the server never makes its process wait. It reads and writes only what is ready, takes at most MAX_CLIENTS
clients and MAX_REQUEST bytes a request, and drops a client that has been silent or has not read for PATIENCE seconds.
The socket lies in a 0700 folder, so only the home's user can ask. A socket file left by a killed process is replaced:
the group's lock, held by our process, says that nobody else listens there.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from trails.errors import AwayError, GateError, OperatorError
from trails.fs import identity_at
from trails.runtime.home.home import Home
from trails.runtime.report.limits import EXHAUSTED, PAUSE_SECONDS

MAX_REQUEST = 64 << 10
MAX_REPLY = 64 << 20
MAX_CLIENTS = 32
PATIENCE = 10.0

Answer = Callable[[str, dict[str, Any]], dict[str, Any]]


@contextlib.contextmanager
def _short_path(path: str) -> Iterator[str]:
    """`path` in a form that fits a socket address, whose path may have only 107 bytes."""
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"
    finally:
        os.close(folder)


class _Client:
    """One connection: what it sent so far, and what it has not read yet."""

    def __init__(self, link: socket.socket, now: float) -> None:
        self.link = link
        self.received = bytearray()
        self.unsent = memoryview(b"")
        self.deadline = now + PATIENCE
        self.last = False  # close once everything is sent


class ControlServer:
    """Listens for one group. `interest()` says what to poll for, `handle()` does what is ready."""

    def __init__(self, home: Home, group: str, answer: Answer) -> None:
        self._path = home.control(group)
        self._answer = answer
        self._clients: dict[int, _Client] = {}
        self._pause_until = 0.0
        self._listener = self._listen()

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.setblocking(False)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        with _short_path(self._path) as short:
            listener.bind(short)
        listener.listen(MAX_CLIENTS)
        self._place = identity_at(self._path)
        return listener

    def renew(self) -> bool:
        """Listen anew if the socket's file was removed or replaced; True if that was so. Clients under way stay."""
        if self._place is not None and identity_at(self._path) == self._place:
            return False
        before, self._listener = self._listener, self._listen()
        before.close()
        return True

    def interest(self) -> list[tuple[int, int]]:
        """(file descriptor, poll events) of everything the server waits for."""
        wanted = [(fd, select.POLLOUT if c.unsent else select.POLLIN) for fd, c in self._clients.items()]
        if len(self._clients) < MAX_CLIENTS and time.monotonic() >= self._pause_until:
            wanted.append((self._listener.fileno(), select.POLLIN))
        return wanted

    def handle(self, ready: list[int], now: float) -> None:
        """Serve the descriptors that are ready; drop clients whose time is over."""
        for fd in ready:
            if fd == self._listener.fileno():
                self._accept(now)
            elif client := self._clients.get(fd):
                self._serve(client, now)
        for client in [c for c in self._clients.values() if now > c.deadline]:
            self._drop(client)

    def close(self, seconds: float = 1.0) -> None:
        """Stop listening, let answers under way go out for a moment, remove the socket file."""
        with contextlib.suppress(OSError):
            if identity_at(self._path) == self._place:  # else it is another process's
                os.unlink(self._path)
        self._listener.close()
        end = time.monotonic() + seconds
        while waiting := [c for c in self._clients.values() if c.unsent]:
            left = end - time.monotonic()
            if left <= 0:
                break
            select.select([], [c.link for c in waiting], [], left)
            for client in waiting:
                self._send(client, time.monotonic())
        for client in list(self._clients.values()):
            self._drop(client)

    def _accept(self, now: float) -> None:
        try:
            link, _ = self._listener.accept()
        except OSError as error:
            # Who waits keeps the listener readable: to ask again at once would take a whole core. It is not logged, as
            # without a descriptor no log can be opened either.
            self._pause_until = time.monotonic() + PAUSE_SECONDS if error.errno in EXHAUSTED else 0.0
            return
        link.setblocking(False)
        self._clients[link.fileno()] = _Client(link, now)

    def _serve(self, client: _Client, now: float) -> None:
        if client.unsent:
            self._send(client, now)
        else:
            self._receive(client, now)

    def _receive(self, client: _Client, now: float) -> None:
        try:
            data = client.link.recv(MAX_REQUEST)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(client)
            return
        client.received += data
        line, newline, rest = bytes(client.received).partition(b"\n")
        if len(line) > MAX_REQUEST:
            client.last = True
            self._reply(client, _line(failure(f"a request has at most {MAX_REQUEST} bytes")), now)
        elif newline:
            # What a client sends ahead of its answer is dropped with it: one question at a time.
            client.received = bytearray()
            client.last = bool(rest)
            self._reply(client, self._ask(line), now)

    def _ask(self, line: bytes) -> bytes:
        """The answer to one request. No request can bring the process down, not even by a bug in its answer."""
        try:
            request = json.loads(line)
            verb, args = str(request.pop("verb")), request
        except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
            return _line(failure('a request is one line of JSON such as {"verb": "STATUS"}'))
        try:
            return _line({"ok": True, **self._answer(verb.upper(), args)})
        except GateError as error:
            return _line(failure(str(error)))
        except Exception as error:  # noqa: BLE001  -- looking must not stop replication
            return _line(failure(f"bug in Trailgate: {verb}: {error!r}"))

    def _reply(self, client: _Client, line: bytes, now: float) -> None:
        client.unsent = memoryview(line)
        self._send(client, now)

    def _send(self, client: _Client, now: float) -> None:
        try:
            sent = client.link.send(client.unsent, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return
        except OSError:
            self._drop(client)
            return
        client.unsent = client.unsent[sent:]
        client.deadline = now + PATIENCE
        if client.last and not client.unsent:
            self._drop(client)

    def _drop(self, client: _Client) -> None:
        self._clients.pop(client.link.fileno(), None)
        client.unsent = memoryview(b"")
        client.link.close()


RUNTIME_VERBS = ("FORCESTOP", "GETPARAMINFO", "REPORT", "STATS", "STOP")
"""What startup.py answers for every process, beside what is asked by programs only (PING, METRICS)."""
_ASKED_BY_PROGRAMS = ("METRICS", "PING")


def unknown(program: str, verb: str, known: Iterable[str]) -> OperatorError:
    """A refusal that names the requests a process does know; `known` are its own."""
    from trails.runtime.language.params import did_you_mean

    all_of_them = sorted({*known, *RUNTIME_VERBS} - set(_ASKED_BY_PROGRAMS))
    meant = did_you_mean(verb, all_of_them)
    return OperatorError(f"{program} knows no request {verb}{meant}", hint=f"It knows {', '.join(all_of_them)}")


def failure(text: str) -> dict[str, Any]:
    """An answer that says no."""
    return {"ok": False, "error": text}


def _line(reply: dict[str, Any]) -> bytes:
    return json.dumps(reply, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def ask(home: Home, group: str, verb: str, timeout: float = 5, **args: Any) -> dict[str, Any]:
    """Ask a running process. Raises AwayError if it does not run or does not answer in time."""
    end = time.monotonic() + timeout
    request = json.dumps({"verb": verb, **args}).encode() + b"\n"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            _connect(link, home.control(group), end)
            link.settimeout(_left(end))
            link.sendall(request)
            return _read_reply(link, end)
    except TimeoutError:
        message = f"{group} did not answer {verb} within {timeout:g} seconds"
        raise AwayError(message, hint="It may be busy; try again") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise AwayError(f"{group} can't be asked: {reason}", hint=f"See INFO {group} whether it runs") from None


def _connect(link: socket.socket, path: str, end: float) -> None:
    link.settimeout(_left(end))
    with _short_path(path) as short:
        while True:
            try:
                return link.connect(short)
            except BlockingIOError:  # the listener's queue is full
                _left(end)
                time.sleep(0.01)


def _read_reply(link: socket.socket, end: float) -> dict[str, Any]:
    parts: list[bytes] = []
    size = 0
    while not parts or not parts[-1].endswith(b"\n"):
        link.settimeout(_left(end))
        data = link.recv(1 << 16)
        size += len(data)
        if not data or size > MAX_REPLY:
            raise ValueError("it ended before it had answered" if not data else "its answer is too long")
        parts.append(data)
    try:
        reply = json.loads(b"".join(parts))
    except RecursionError:
        raise ValueError("its answer is nested too deeply") from None
    if not isinstance(reply, dict):
        raise ValueError("its answer is no JSON object")
    return reply


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
