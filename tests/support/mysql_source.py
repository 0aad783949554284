"""A group on a real MySQL or MariaDB server inside the test's process, and pairs of servers that replicate."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from demo.mysqld import Mysqld
from demo.patience import PATIENCE
from demo.proxy import Proxy
from extract.source import Sink, SourceSettings
from extract.sources.mysql import admin
from extract.sources.mysql import server as asked
from extract.sources.mysql.flavour import Flavour
from extract.sources.mysql.link import MysqlSession
from extract.sources.mysql.places import file_number, origin_of
from extract.sources.mysql.source import MysqlSource
from tests.support.capturing import Capture, step_until
from tests.support.hostile import MANY
from trails.errors import AwayError
from trails.position import Position


@dataclass
class MysqlCapture(Capture):
    """See Capture. `own`: parameters of this kind alone, as they are parsed."""

    patterns: tuple[str, ...] = ("shop.*",)
    own: dict[str, Any] = field(default_factory=dict)

    @property
    def journal(self) -> str:
        return str(self.folder / "EXT1.journal")

    @contextmanager
    def session(self) -> Iterator[MysqlSession]:
        """A connection of an application."""
        session = MysqlSession(self.url, "test")
        try:
            yield session
        finally:
            session.close()

    def sql(self, *statements: str) -> list[Any]:
        with self.session() as session:
            rows: list[Any] = []
            for statement in statements:
                rows = session.query(statement)
            return rows

    def register(self, *, trandata: bool = True) -> None:
        with self.session() as session:
            request = {"group": "EXT1", "home_id": "0" * 32, "journal": self.journal}
            self.note(admin.register(session, request))

    def told(self) -> SourceSettings:
        return replace(super().told(), journal=self.journal, scratch=str(self.folder), own=self.own)

    def source(self) -> MysqlSource:  # type: ignore[override]
        return MysqlSource(self.told(), self.said.append)

    def drain(self, extract: Any, seconds: float = PATIENCE) -> None:
        upto, sink = self.end(extract), extract._assembler
        step_until(extract, lambda: sink.origin >= upto and not sink.has_whole, seconds)
        extract.flush()

    def end(self, extract: Any) -> Position:
        """Of all that is committed now."""
        with self.session() as session:
            end = asked.log_end(session)
        assert end is not None
        return origin_of(extract._source._epoch, file_number(end.file), end.pos)

    def keys(self, column: str = "id") -> list[list[str]]:
        """Of each transaction in the trail, the values of a column, as rows came; DDL for a schema change."""
        return [
            ["DDL" if c.ddl else str((c.after or c.before or {})[column]) for c in found]
            for found in self.changes()
            if found
        ]


class HastySource(MysqlSource):
    """Comes back at once, and asks only what it must know of the log: it is lost thousands of times."""

    def _lost(self, error: AwayError, sink: Sink) -> None:
        super()._lost(error, sink)
        self._retry_at = 0.0

    def _identify_again(self, sink: Sink) -> None:
        """Other tests have other servers answer."""

    def _close_session(self) -> None:
        """It is no part of the stream."""


STRIDE = 1 if MANY else 3
"""Odd, as every other stream ends by a reset."""


class StreamCutter(Proxy):
    """A network that carries all but streams of the binary log: each is cut STRIDE bytes later than the last of its
    place: at each byte in `make soak`, at each third one in `make test`.

    The server sends the stream of a place once, up to its log's end: then it is known. `lengths`: after how many bytes
    it was cut, by the command that asks for it. All streams begin alike: only in the first one is that cut too.
    """

    def __init__(self, server: Mysqld) -> None:
        self.lengths: dict[bytes, int] = {}
        self._streams: dict[bytes, bytes] = {}
        super().__init__(lambda: ("127.0.0.1", server.port))

    def _move(self, source: socket.socket, target: socket.socket, left: int | None) -> int | None:
        """Every other stream ends in order, and every other one with a reset."""
        try:
            command = source.recv(1 << 12, socket.MSG_PEEK)
            if command[3:5] != _DUMP:
                return super()._move(source, target, left)
            source.recv(len(command))
            if command not in self._streams:
                self._streams[command] = _whole_stream(target, command)
                self.lengths[command] = _opening(self._streams[command]) if self.lengths else 0
            self.lengths[command] += STRIDE
            source.sendall(self._streams[command][: self.lengths[command]])
        except OSError:
            return -1
        return -(self.lengths[command] % 2)


_DUMP = b"\x00\x12"
"""Number and command of the packet that asks for a stream."""


def _whole_stream(server: socket.socket, command: bytes) -> bytes:
    """What the server answers, told not to wait for more; without the packet that says so."""
    server.sendall(command[:9] + b"\x01" + command[10:])
    answer = server.makefile("rb")
    found = b""
    while True:
        head = answer.read(4)
        packet = answer.read(int.from_bytes(head[:3], "little"))
        if packet[:1] != b"\x00":
            assert packet[:1] == b"\xfe", packet
            return found
        found += head + packet


def _opening(stream: bytes) -> int:
    """Where the two packets end that say what file and what format follow."""
    upto = 0
    for _ in range(2):
        upto += 4 + int.from_bytes(stream[upto : upto + 3], "little")
    return upto


def follow(replica: Mysqld, primary: Mysqld) -> None:
    """Let one server replicate from another, by GTID, from its first transaction on."""
    with_maria = _flavour(replica) is Flavour.MARIADB
    auto = "MASTER_USE_GTID = slave_pos" if with_maria else "MASTER_AUTO_POSITION = 1"
    more = "" if with_maria else ", GET_MASTER_PUBLIC_KEY = 1"
    replica.sql(
        f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {primary.port}, MASTER_USER = 'root', {auto}{more}"
    )
    replica.sql("START SLAVE")


def caught_up(replica: Mysqld, primary: Mysqld, seconds: float = PATIENCE) -> None:
    """Wait until a replica has all that its primary has."""
    if _flavour(replica) is Flavour.MARIADB:
        ((at,),) = primary.sql("SELECT @@GLOBAL.gtid_binlog_pos")
        ((done,),) = replica.sql(f"SELECT MASTER_GTID_WAIT('{at}', {seconds})")
    else:
        ((at,),) = primary.sql("SELECT @@GLOBAL.gtid_executed")
        ((done,),) = replica.sql(f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{at}', {seconds})")
    assert str(done) == "0", replica.sql("SHOW SLAVE STATUS")


def promote(replica: Mysqld) -> None:
    """It replicates no more, and takes writes."""
    replica.sql("STOP SLAVE")
    replica.sql("RESET SLAVE ALL")


def purge(server: Mysqld) -> str:
    """Have it throw away all files of its log but a new one, which is returned: one that is still read stays longer."""
    server.sql("FLUSH BINARY LOGS")
    deadline = time.monotonic() + PATIENCE
    while True:
        last = str(server.sql("SHOW MASTER STATUS")[0][0])
        server.sql(f"PURGE BINARY LOGS TO '{last}'")
        if server.sql("SHOW BINARY LOGS")[0][0] == last:
            return last
        assert time.monotonic() < deadline, server.sql("SHOW BINARY LOGS")


def _flavour(server: Mysqld) -> Flavour:
    return Flavour.of(str(server.sql("SELECT @@version")[0][0]))
