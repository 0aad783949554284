"""A connection that no silent server holds for ever: its system acknowledges what is sent, and nobody answers.

Rule: a short statement has a time in which it is answered. One that works on rows may take any time, but after each
SILENT_SECONDS without an answer another connection asks if the server works on it. If it does not, or if nobody
answers there either, this connection is lost: its socket is cut.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from typing import Any, Self, TypeVar

import psycopg
from psycopg import pq
from psycopg.abc import PQGen

T = TypeVar("T")

ANSWER_SECONDS = 60.0
"""For statements while a connection is made."""
SILENT_SECONDS = 60.0
PROBE_SECONDS = 10.0
_LAST_SECONDS = 0.5
"""For an answer that came while the other connection was made."""
_LOOK_SECONDS = 0.1
_FULL = ("too many", "remaining connection slots")
"""A server that says so is there; whether it works for us can't be known then."""
_WORKS = """
SELECT coalesce(state NOT LIKE 'idle%%' AND wait_event_type IS DISTINCT FROM 'Client', true)
FROM pg_catalog.pg_stat_activity WHERE pid = %s
"""


class BoundLink(psycopg.Connection[Any]):
    """The driver's connection. `answer_seconds`: the time for an answer; None: as the rule says of what takes long."""

    answer_seconds: float | None = None
    silent_seconds = SILENT_SECONDS
    _options: dict[str, Any] | None = None
    _pid = 0

    @classmethod
    def open(cls, options: dict[str, Any], application: str, seconds: float = ANSWER_SECONDS) -> Self:
        """In autocommit. Raises psycopg.Error."""
        made = cls.connect(**options, autocommit=True, application_name=application)
        with made.within(seconds):
            made.execute("SET search_path = pg_catalog, pg_temp")
            made.remember(options)
        return made

    def remember(self, options: dict[str, Any]) -> None:
        """How to make another connection, and what the server calls this one."""
        found = self.execute("SELECT pg_backend_pid()").fetchone()
        self._options, self._pid = options, found[0] if found else 0

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Each statement in here must be answered within so long."""
        before, self.answer_seconds = self.answer_seconds, seconds
        try:
            yield
        finally:
            self.answer_seconds = before

    def wait(self, gen: PQGen[T], interval: float = _LOOK_SECONDS, timeout: float | None = None) -> T:
        """As the driver's; a server that is silent for too long is lost."""
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        last = False
        while True:
            bound = self.answer_seconds
            patience = (_LAST_SECONDS if last else self.silent_seconds) if bound is None else bound
            began = time.monotonic()
            try:
                return super().wait(gen, interval, patience)
            except psycopg.OperationalError:
                if time.monotonic() - began < patience:
                    raise
                if bound is None and not last:
                    last = not self._is_worked_on()
                    continue
                self.sever()
                told = bound or self.silent_seconds
                raise psycopg.OperationalError(f"it has not answered for {told:g} s") from None

    def _is_worked_on(self) -> bool:
        """Whether the server works on our statement, and waits neither for us nor for the next one."""
        if self._options is None:
            return False
        try:
            other = BoundLink.open(self._options, "trailgate looks", PROBE_SECONDS)
            with contextlib.closing(other), other.within(PROBE_SECONDS):
                found = other.execute(_WORKS, [self._pid]).fetchone()
        except psycopg.Error as error:
            return any(words in str(error) for words in _FULL)
        return bool(found and found[0])

    def sever(self) -> None:
        """Cut the socket, and let go of the connection: nothing is waited for any more."""
        if self.pgconn.status == pq.ConnStatus.OK:
            with socket.socket(fileno=os.dup(self.pgconn.socket)) as sock, contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self.pgconn.finish()
