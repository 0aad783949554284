"""Who must act when a database does not take us, or not now: what passes by itself never ends a process for good.

The messages are those that libpq 18 gives, by itself and through psycopg 3.3.
"""

from __future__ import annotations

import socket
from typing import Any

import psycopg
import pymysql
import pytest
from psycopg import errors, pq

from demo.patience import PATIENCE
from extract.sources.mysql.link import MysqlError
from extract.sources.mysql.link import refused as refused_by_mysql
from extract.sources.postgres import driver
from extract.sources.postgres.driver import SilentError, SqlError, Stream, _refused, heals
from replicat.targets.mysql.link import _AWAY as MYSQL_TARGET_AWAY
from replicat.targets.mysql.link import Link, MysqlUrl, _made
from replicat.targets.postgres import link
from trails.errors import AwayError, OperatorError
from trails.runtime.secrets.attempts import attempts
from trails.testing import FakeClock

AT = 'connection to server at "db1" (10.0.0.1), port 5432 failed: '
CUT = f"{AT}SSL error: unexpected eof while reading"
HBA = f'{AT}FATAL:  no pg_hba.conf entry for host "10.0.0.9", user "u", database "d", no encryption'
PASSWORD = f'{AT}FATAL:  password authentication failed for user "u"'
NOBODY = (
    'connection to server at "db2" (10.0.0.2), port 5432 failed: Connection refused\n'
    "\tIs the server running on that host and accepting TCP/IP connections?"
)
STARTING = 'connection to server at "db2" (10.0.0.2), port 5432 failed: FATAL:  the database system is starting up'
NO_ANSWER = "connection timeout expired"
SLOW = f"{AT}FATAL:  canceling authentication due to timeout"


def several(*texts: str) -> str:
    """As psycopg tells of several hosts."""
    listed = "\n".join(f"- host: 'db{n}', port: '5432', hostaddr: '10.0.0.{n}': {t}" for n, t in enumerate(texts, 1))
    return f"{texts[-1]}\nMultiple connection attempts failed. All failures were:\n{listed}"


FOR_GOOD = {
    "one attempt": f"connection failed: {HBA}",
    "with TLS and without": f"connection failed: {HBA}\n{HBA}",
    "each of two hosts": several(f"connection failed: {HBA}", f"connection failed: {PASSWORD.replace('db1', 'db2')}"),
    "a name that looks like what passes": PASSWORD.replace('"u"', '"disaster_recovery"').replace("db1", "starting up"),
    "no right to log in": f'{AT}FATAL:  role "u" is not permitted to log in',
    "no right to replicate": f"{AT}FATAL:  must be superuser or replication role to start walsender",
}
PASSES = {
    "a handshake that was cut": f"connection failed: {CUT}\n{HBA}",
    "the same with sslmode=allow": f"connection failed: {HBA}\n{CUT}",
    "nobody at the second host": several(f"connection failed: {HBA}", f"connection failed: {NOBODY}"),
    "no answer of the second host": several(f"connection failed: {HBA}", NO_ANSWER),
    "the second host is starting": several(f"connection failed: {HBA}", f"connection failed: {STARTING}"),
    "a slow server": f"connection failed: {SLOW}",
    "a server that is full": f"{AT}FATAL:  number of requested standby connections exceeds max_wal_senders",
    "a database that is closed": f'{AT}FATAL:  database "d" is not currently accepting connections',
    "a pooler": f"{AT}FATAL:  server login has been failing, try again later (server_login_retry)",
    "a pooler's cached error": f"{AT}FATAL:  password authentication failed, try again later (server_login_retry)",
    "words that nobody knows": f'{AT}FATAL:  Passwort-Authentifizierung von "permission denied" misslang',
    "a name that does not resolve": "failed to resolve host 'db1': [Errno -2] Name or service not known",
}


@pytest.mark.parametrize("text", FOR_GOOD.values(), ids=FOR_GOOD)
def test_a_refusal_of_every_attempt_is_for_a_person(text: str) -> None:
    """By the server's own words, at the source and at the target."""
    assert isinstance(_refused(text, "postgresql://u@db1,db2/d", ["db1"]), SqlError)
    assert isinstance(link.not_in(psycopg.OperationalError(text), ["db1"]), OperatorError)


@pytest.mark.parametrize("text", PASSES.values(), ids=PASSES)
def test_an_attempt_that_was_not_refused_is_tried_again(text: str) -> None:
    """Whatever the other attempts were told."""
    assert isinstance(_refused(text, "postgresql://u@db1,db2/d"), AwayError)
    assert isinstance(link.not_in(psycopg.OperationalError(text)), AwayError)


def test_a_host_of_which_nothing_is_said_was_not_asked() -> None:
    """Its name could not be found: psycopg leaves it out where another host can be asked."""
    assert attempts(HBA, ["db1", "db3"]) == [HBA.removeprefix("connection to server "), ""]
    assert isinstance(_refused(HBA, "postgresql://u@db1,db3/d", ["db1", "db3"]), AwayError)
    assert isinstance(link.not_in(psycopg.OperationalError(HBA), ["db1", "db3"]), AwayError)
    only = HBA.replace("db1", "db10")
    assert isinstance(_refused(only, "postgresql://u@db1,db10/d", ["db1", "db10"]), AwayError)
    assert isinstance(_refused(only, "postgresql://u@db10/d", ["db10"]), SqlError)


def test_a_server_that_is_slow_or_full_heals() -> None:
    """Out of time, a lock that was not given, deadlocks, memory, disk; but not a wrong statement."""
    away = ["57014", "55P03", "40001", "40P01", "53100", "53200", "53300", "58030", "58000", "08006", "57P01", "57P03"]
    assert [state for state in away if not heals(state)] == []
    assert [state for state in ("42P01", "42501", "22012", "0A000", "55000", "XX001") if heals(state)] == []
    for number in (
        1205,
        1213,
        1040,
        1203,
        1317,
        1053,
        2006,
        2013,
        3024,
        1969,
        1021,
        3032,
        3,
        20,
        1026,
        1030,
        1047,
        3101,
    ):
        assert isinstance(refused_by_mysql(number, "words"), AwayError), number
        assert number in MYSQL_TARGET_AWAY, number
    assert isinstance(refused_by_mysql(1146, "words"), MysqlError)


@pytest.mark.parametrize(
    "kind", [errors.QueryCanceled, errors.LockNotAvailable, errors.DeadlockDetected, errors.DiskFull]
)
def test_a_slow_postgresql_target_heals(kind: type[psycopg.Error]) -> None:
    """Also under a statement that changes a shape: it is not refused, it was not run."""

    class Open:
        closed = False

    assert isinstance(link.as_ours(kind("words"), Open()), AwayError)  # type: ignore[arg-type]
    assert link.heals(kind("words"), Open())  # type: ignore[arg-type]
    assert not link.heals(errors.UndefinedTable("words"), Open())  # type: ignore[arg-type]


@pytest.mark.parametrize("begun", [b"", b"\x07\x00", b"\x07\x00\x00\x01\x00\x00"], ids=["none", "head", "body"])
def test_an_answer_of_mysql_that_stops_in_its_middle_is_lost(begun: bytes) -> None:
    """The rest of it is waited for as its first byte is, and no longer."""
    near, far = socket.socketpair()
    made = Link(defer_connect=True, read_timeout=PATIENCE)
    made._sock, made._rfile, made._next_seq_id, made._current_timeout = near, near.makefile("rb"), 1, None
    made.silent_seconds = 0.1
    made._in_pieces()
    with near, far:
        far.sendall(begun)
        with pytest.raises(pymysql.err.OperationalError, match=r"has not answered for 0\.1 s"):
            made._read_packet()
        assert not made.open


def test_a_server_at_a_unix_socket_that_reads_nothing_is_lost() -> None:
    """It is stopped: what is written to it fills the socket, and then no write ends by itself."""
    near, far = socket.socketpair()
    made = _made(MysqlUrl.parse("mysql:///d?unix_socket=/none&user=u"), 0.1)
    made._sock, made._rfile, made._next_seq_id, made._current_timeout = near, near.makefile("rb"), 0, PATIENCE
    with near, far:
        near.settimeout(PATIENCE)
        with pytest.raises(pymysql.err.OperationalError, match="gone away"):
            made.write_packet(bytes(8 << 20))
        assert not made.open


class IdleServer:
    """The connection of a stream on which nothing is replicated. `answers`: a keepalive whenever one is asked for."""

    status = pq.ConnStatus.OK

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.socket = self.ours.fileno()
        self.host = b"/tmp"
        self.notice_handler: Any = None
        self.answers = True
        self.asked = 0
        self._messages: list[bytes] = []

    def send_query(self, _: bytes) -> None: ...

    def put_copy_data(self, message: bytes) -> None:
        self.asked += message[-1]
        if message[-1] and self.answers:
            self._messages.append(b"k" + bytes(17))

    def flush(self) -> None: ...

    def consume_input(self) -> None: ...

    def get_copy_data(self, _: int) -> tuple[int, Any]:
        return (len(self._messages[0]), self._messages.pop(0)) if self._messages else (0, None)


def test_a_stream_asks_a_silent_server_before_it_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """At half of the dead time, and it is lost at the whole; also behind a long sleep of our own it is asked first."""
    clock, server = FakeClock(), IdleServer()
    monkeypatch.setattr(driver.time, "monotonic", clock.monotonic)
    monkeypatch.setattr(driver, "connect", lambda *_args, **_more: server)
    monkeypatch.setattr(driver, "_asked", lambda *_: None)
    stream = Stream("", "", "", "", 0)

    def turn(seconds: float) -> int:
        clock.sleep(seconds)
        stream.gulp(lambda _data, _at: None, 1 << 16)
        stream.watch(7)
        return server.asked

    with server.ours, server.theirs:
        assert [turn(29), turn(1), turn(1), turn(29), turn(1)] == [0, 1, 1, 1, 2]  # it was heard at 31
        assert turn(1) == 2
        assert turn(3600) == 3
        turn(1)
        server.answers = False
        assert [turn(30), turn(29)] == [4, 4]
        with pytest.raises(SilentError, match="has sent nothing for 60 s, though it was asked"):
            turn(1)
        assert server.theirs.recv(1) == b""
