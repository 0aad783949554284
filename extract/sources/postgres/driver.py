"""Connections to PostgreSQL: ordinary ones for queries, replication ones for the stream. The only file that imports
psycopg.

Rule: nothing here acknowledges anything by itself. `Stream.status` sends exactly the place it is given, and no library
sits between it and the wire (psycopg.pq is libpq, no more). Values come and go as text; nobody converts them on the
way. Errors say who must act: AwayError when waiting can help (refused, starting up, slot still held by a dead
connection, a time or a resource that was used up), SqlError with the server's own words and code otherwise.

A server that says nothing for so long as its caller allows is asked by another connection if it works on the question.
If it does not, or if nobody answers there either, it is taken for lost: the socket is cut, and that is an AwayError. No
wait stops another thread.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, Protocol, cast
from urllib.parse import urlsplit

import psycopg
from psycopg import pq
from psycopg.errors import OperationalError
from psycopg.generators import execute
from psycopg.pq.abc import PGconn, PGresult
from psycopg.waiting import wait

from extract.sources.postgres.kernel import libpq
from extract.sources.postgres.naps import Naps
from extract.sources.postgres.pgoutput import EPOCH_US, PgoutputError, lsn_text, quoted
from trails.errors import AwayError, GateError, OperatorError
from trails.runtime.process import checking
from trails.runtime.secrets import healing
from trails.runtime.secrets.attempts import refused_for_good

Row = tuple[str | None, ...]

# Every value is captured as text in one form, whatever the server's, the database's or the role's settings say. Names
# mean the system's own first: a database's owner may set a path that begins with a schema of his. To compile what is
# asked of the catalogs takes a server a hundred times longer than to answer it.
SETTINGS: Final = (
    "-c DateStyle=ISO -c IntervalStyle=postgres -c TimeZone=UTC -c extra_float_digits=1 -c bytea_output=hex "
    "-c lc_monetary=C -c xmloption=content -c search_path=pg_catalog,pg_temp -c jit=off"
)
ROOM_KIB: Final = 256 << 10
"""Of the server's memory for transactions that have not ended; what is beyond it the server writes to its disk, and
reads again. A row of such a transaction costs it two thirds more."""
_ROOM = f"""
SELECT pg_catalog.set_config(name, '{ROOM_KIB}', false) FROM pg_catalog.pg_settings
WHERE name = 'logical_decoding_work_mem' AND source = 'default'
"""
"""Where nobody has set it; before version 13 there is none."""
ALIVE: Final = {
    b"connect_timeout": 10, b"keepalives_idle": 30, b"keepalives_interval": 10, b"keepalives_count": 3,
    b"tcp_user_timeout": 60_000,
}  # fmt: skip
"""What finds out within a minute that the other host is gone without a word, where the URL says nothing else."""
CLOSE_SECONDS: Final = 1.0
ANSWER_SECONDS: Final = 60.0
"""A server that has not answered a question for so long is taken for lost, unless it can be seen to work on it."""
LONGEST_SECONDS: Final = 600.0
"""And then at the latest; our questions are to be shorter than that everywhere."""
PROBE_SECONDS: Final = 10.0
"""So long another connection may take to find that out."""
DEAD_SECONDS: Final = 60.0
"""And one that has sent nothing on a stream for so long, though it was asked to; as its own wal_receiver_timeout."""
_LOOK_SECONDS: Final = 0.1
"""How often a wait looks if a signal has come."""
_QUIET_SECONDS: Final = 1.0
"""Behind so long without a message the socket is looked at: a long message comes in pieces."""

_WORKS: Final = """
SELECT coalesce(state NOT LIKE 'idle%' AND wait_event_type IS DISTINCT FROM 'Client', true)
FROM pg_stat_activity WHERE pid = $1
"""
_FULL: Final = ("too many", "remaining connection slots")
"""A server that says so is there; whether it works for us can't be known then."""
_NO_PUBLICATION: Final = "42704"
_SKIPPED: Final = b"55000"
_XLOG, _KEEPALIVE = b"wk"
_HEADER = 25
_BUFFER = 8192
_KEEPALIVE_BODY = struct.Struct(">xQqB")
_KEEPALIVE_HEAD = struct.Struct(">xQq")
_XLOG_HEAD = struct.Struct(">xQ8xq")
"""Place and time; between them the log's end."""
_STATUS = struct.Struct(">cQQQqB")


class SqlError(OperatorError):
    """The server refused a statement; `state` is its SQLSTATE."""

    def __init__(self, message: str, state: str = "", *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.state = state


class NoPublicationError(OperatorError):
    """A stream came to a change that was made while its publication did not exist."""


def unverified(url: str) -> str:
    """What to say of a link whose server proves nothing (sslmode, from URL or environment); see trails.runtime."""
    options = [*pq.Conninfo.get_defaults(), *pq.Conninfo.parse(url.encode())]
    return checking.unverified_options(options, "sslmode=verify-full&sslrootcert=/path/ca.crt")


def connect(url: str, application: str, *, replication: bool = False) -> PGconn:
    """A libpq connection with the settings that capturing needs. Raises AwayError or SqlError."""
    try:
        given = {o.keyword: o.val for o in pq.Conninfo.parse(url.encode()) if o.val is not None}
    except OperationalError as error:
        raise OperatorError(
            f"SOURCEDB: {_clean(str(error))}", hint="Write it like postgresql://user:password@host:5432/database"
        ) from None
    given[b"options"] = (given.get(b"options", b"") + b" " + SETTINGS.encode()).strip()
    given[b"client_encoding"] = b"UTF8"
    given.setdefault(b"application_name", application.encode())
    for option, value in ALIVE.items():
        given.setdefault(option, str(value).encode())
    if replication:
        given[b"replication"] = b"database"
        given[b"options"] += b" -c client_min_messages=warning"  # a Stream must hear of what the server leaves out
    try:
        options = {key.decode(): value.decode() for key, value in given.items()}
    except UnicodeDecodeError as error:
        raise OperatorError(
            f"SOURCEDB: {error}", hint="Write it in UTF-8, like %C3%A9 for an e with an accent"
        ) from None
    return _dialled(options, url)


class _Dialled(psycopg.Connection[Any]):
    """Libpq's connection, got as psycopg gets it: host by host, each for connect_timeout, and without Python's lock."""

    def __del__(self, *_: object) -> None:
        """Libpq's own connection lives on, and is what is closed."""


def _dialled(given: dict[str, Any], url: str) -> PGconn:
    try:
        connection = _Dialled.connect(**given).pgconn
    except psycopg.ProgrammingError as error:  # an option's value that nobody can read
        raise OperatorError(f"SOURCEDB: {_clean(str(error))}", hint="Mend the URL") from None
    except UnicodeError as error:  # found where names are looked up
        raise OperatorError(f"SOURCEDB: this is no host's name: {error}", hint="Mend the host in the URL") from None
    except psycopg.Error as error:
        raise _refused(str(error), url, [host for host in given.get("host", "").split(",") if host]) from None
    connection.notice_handler = connection.notify_handler = None
    connection.nonblocking = 0
    return connection


def _refused(text: str, url: str, hosts: Sequence[str] = ()) -> OperatorError | AwayError:
    """Libpq gives no SQLSTATE for a refused connection, only words."""
    words = _clean(text)
    if not refused_for_good(text, hosts):
        return AwayError(f"the source database can't be reached: {words}")
    user = urlsplit(url).username or "the user"
    hint = "Mend SOURCEDB in the parameter file, or the server's pg_hba.conf"
    if "password" in words:
        hint = f"Mend the password in SOURCEDB (or on the server: ALTER ROLE {quoted(user)} PASSWORD '...')"
    elif "permitted to log in" in words:
        hint = f"ALTER ROLE {quoted(user)} LOGIN"
    elif "replication" in words.lower() or "wal sender" in words.lower():
        hint = f"ALTER ROLE {quoted(user)} REPLICATION"
    return SqlError(f"the source database refused the connection: {words}", hint=hint)


def _clean(words: str) -> str:
    return " ".join(words.split()).strip()


def heals(state: str) -> bool:
    """Whether what a SQLSTATE says passes by itself: the same statement can succeed later."""
    return state.startswith(healing.STATES)


class PassingError(AwayError):
    """The server can't do it now, and may later; `state` is its SQLSTATE."""

    def __init__(self, message: str, state: str) -> None:
        super().__init__(message)
        self.state = state


class SilentError(AwayError):
    """The server takes what is sent, and says nothing."""


def sever(connection: PGconn) -> None:
    """Cut the socket of a connection whose other end is silent: whatever is done with it then fails at once."""
    if connection.status == pq.ConnStatus.OK:
        with socket.socket(fileno=os.dup(connection.socket)) as sock, suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def answer(connection: PGconn, seconds: float | None, works: Callable[[], bool] = lambda: False) -> PGresult:
    """The last result of the statement that was sent. Raises AwayError, SilentError after so many seconds.

    `works`: is asked then if the server still works on it; if so, it has as long again, LONGEST_SECONDS in all.
    """
    connection.nonblocking = 1
    waited = 0.0
    while True:
        began = time.monotonic()
        try:
            results: list[PGresult] = wait(execute(connection), connection.socket, _LOOK_SECONDS, seconds)
            break
        except OperationalError as error:
            if seconds is None or time.monotonic() - began < seconds:
                sever(connection)
                raise AwayError(f"the source database went away: {_clean(str(error))}") from error
            waited += seconds
            if waited >= LONGEST_SECONDS or not works():
                sever(connection)
                raise SilentError(f"the source database has not answered for {waited:g} s") from None
    if not results:  # the last message of an answer was waited for
        raise AwayError("the source database went away: half of its answer came")
    return results[-1]


def is_worked_on(connection: PGconn, url: str, application: str) -> bool:
    """Whether the server, asked by another connection, works on what `connection` has sent, and does not wait for us.

    An answer that has come meanwhile is a sign of it too.
    """
    try:
        other = connect(url, f"{application} looks")
        try:
            with away():
                other.send_query_params(_WORKS.encode(), [str(connection.backend_pid).encode()])
            result = answer(other, PROBE_SECONDS)
        finally:
            other.finish()
    except GateError as error:
        return has_come(connection) or any(words in str(error) for words in _FULL)
    return has_come(connection) or (result.ntuples == 1 and result.get_value(0, 0) == b"t")


def has_come(connection: PGconn) -> bool:
    """Whether something of it can be read now."""
    poller = select.poll()
    poller.register(connection.socket, select.POLLIN)
    return bool(poller.poll(0))


def failed(connection: PGconn, result: PGresult | None) -> SqlError | AwayError:
    """The error of a statement or of a stream that ended."""
    state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode() if result else ""
    words = _clean(result.get_error_message() if result else connection.get_error_message())
    if connection.status != pq.ConnStatus.OK or not state:
        return AwayError(f"the source database went away: {words or 'the connection is closed'}")
    if heals(state):
        return PassingError(f"the source database can't do it now: {words} (SQLSTATE {state})", state)
    return SqlError(f"the source database: {words} (SQLSTATE {state})", state)


@contextmanager
def away() -> Iterator[None]:
    """What libpq raises of a lost connection, as AwayError."""
    try:
        yield
    except OperationalError as error:
        raise AwayError(f"the source database went away: {_clean(str(error))}") from error


class Session:
    """An ordinary connection: one statement at a time, each in its own transaction."""

    def __init__(self, url: str, application: str, answer_seconds: float | None = ANSWER_SECONDS) -> None:
        """`answer_seconds`: how long a statement may take; None for a person, who waits as long as he likes."""
        self._url, self._application = url, application
        self._seconds = answer_seconds
        self._connection = connect(url, application)

    def query(self, sql: str, *values: str | int | None) -> list[Row]:
        """The rows of a query; parameters are $1, $2, ..."""
        result = self._done(sql, values)
        return [
            tuple(_text(result.get_value(row, column)) for column in range(result.nfields))
            for row in range(result.ntuples)
        ]

    def _done(self, sql: str, values: Sequence[str | int | None]) -> PGresult:
        given = [None if v is None else str(v).encode("utf-8", "surrogateescape") for v in values]
        with away():
            self._connection.send_query_params(sql.encode("utf-8", "surrogateescape"), given)
        result = answer(self._connection, self._seconds, self._is_worked_on)
        if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
            raise failed(self._connection, result)
        return result

    def _is_worked_on(self) -> bool:
        return is_worked_on(self._connection, self._url, self._application)

    def raw(self, sql: str) -> list[tuple[bytes | None, ...]]:
        """The rows of a query, as the bytes that came."""
        result = self._done(sql, [])
        value, columns = result.get_value, range(result.nfields)
        return [tuple([value(row, column) for column in columns]) for row in range(result.ntuples)]

    def one(self, sql: str, *values: str | int | None) -> Row:
        """The first row; raises SqlError if there is none."""
        rows = self.query(sql, *values)
        if not rows:
            raise SqlError(f"the source database gave no row for: {sql}")
        return rows[0]

    def script(self, statements: Sequence[str]) -> None:
        """Run statements in one transaction: all of them, or none."""
        self.query("BEGIN")
        try:
            for statement in statements:
                self.query(statement)
        except GateError:
            with suppress(GateError):  # of a connection that is lost; the first error is the one to tell
                self.query("ROLLBACK")
            raise
        self.query("COMMIT")

    def setting(self, name: str) -> str:
        """One of the server's settings, in its base unit; empty where this version has none of that name."""
        rows = self.query("SELECT setting FROM pg_settings WHERE name = $1", name)
        return (rows[0][0] or "") if rows else ""

    @property
    def server_version(self) -> int:
        """Such as 160004."""
        return self._connection.server_version

    def close(self) -> None:
        """Disconnect."""
        self._connection.finish()


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "surrogateescape")


def _asked(connection: PGconn, query: str, expected: pq.ExecStatus) -> PGresult:
    """What the server answers to one query. Raises AwayError, SqlError."""
    with away():
        connection.send_query(query.encode())
    result = answer(connection, ANSWER_SECONDS)
    if result.status != expected:
        raise failed(connection, result)
    return result


def timeline_ends(url: str, application: str, timeline: int) -> dict[int, str]:
    """Where each timeline before `timeline` ended, as LSN text."""
    connection = connect(url, application, replication=True)
    try:
        result = _asked(connection, f"TIMELINE_HISTORY {timeline}", pq.ExecStatus.TUPLES_OK)
        lines = [line.split() for line in (_text(result.get_value(0, 1)) or "").splitlines()]
    finally:
        connection.finish()
    return {int(fields[0]): fields[1] for fields in lines if len(fields) > 1 and fields[0].isdecimal()}


Taken = tuple[int, int, bytes]
"""Bytes of the messages that were handed over, libpq's answer when there was none more, and the last one's head."""


class PackedFront(Protocol):
    """What of kernel.capture.PackedDecoder is used here."""

    halt: bool
    asked: bool

    def decode(self, data: bytes, at: int = 0) -> None: ...

    def gulp(self, connection: int, get_copy: int, free_memory: int) -> Taken: ...


def strange(data: bytes) -> PgoutputError:
    """Of a message that is neither of the two; struct.error where it is a part of one."""
    if data[0] == _KEEPALIVE:
        _KEEPALIVE_BODY.unpack(data)
    return PgoutputError(f"replication: expected a message w or k, found {data[:40]!r}")


class Stream:
    """A running START_REPLICATION."""

    def __init__(
        self, url: str, application: str, slot: str, publication: str, start: int, *, messages: bool = False,
        dead_seconds: float = DEAD_SECONDS,
    ) -> None:  # fmt: skip
        """Stream the slot's changes that committed at or behind the LSN `start`. Raises AwayError or SqlError.

        `messages`: with those of pg_logical_emit_message, from server version 14 on. `dead_seconds`: a server that is
        silent for half as long is asked to say something, and is taken for lost at the whole.
        """
        self._connection = connect(url, application, replication=True)
        self._skips = False
        self._front: PackedFront | None = None
        self._direct: Callable[[], Taken] | None = None
        self._connection.notice_handler = self._noticed
        names = quoted(publication).replace("'", "''")
        more = ", messages 'true'" if messages else ""
        begin = (
            f"START_REPLICATION SLOT {quoted(slot)} LOGICAL {start >> 32:X}/{start & 0xFFFFFFFF:X} "
            f"(proto_version '1', publication_names '{names}'{more})"
        )
        try:
            _asked(self._connection, _ROOM, pq.ExecStatus.TUPLES_OK)
            _asked(self._connection, begin, pq.ExecStatus.COPY_BOTH)
        except BaseException:
            self._connection.finish()
            raise
        self.place = 0, 0
        """(LSN, server's time in us) of the last message; (0, 0) before there was one."""
        self.is_idle = False
        """That was a keepalive: nothing before its place is still to come, unless a transaction is open."""
        self.asked = False
        """The server wants a status message soon; taken back by `status`."""
        self.naps = Naps(self._connection.host, self._connection.socket)
        self._dead_seconds = dead_seconds
        self._heard = time.monotonic()
        self._prompted = 0.0  # when it was asked to say something; 0 since it has

    def fileno(self) -> int:
        """The socket."""
        return self._connection.socket

    def _noticed(self, notice: PGresult) -> None:
        """From version 18 on a missing publication is only warned of, and its changes are left out."""
        self._skips = self._skips or notice.error_field(pq.DiagnosticField.SQLSTATE) == _SKIPPED
        if self._front is not None:
            self._front.halt = self._skips

    def direct(self, front: PackedFront) -> Callable[[bytes, int], None]:
        """What to give `gulp` for a decoder that has a packed one in front of it.

        That reads libpq's messages from its buffer; where libpq's functions are not found it is called with each.
        """
        addresses = libpq.functions()
        if addresses is not None:
            self._front = front
            front.halt = self._skips  # a warning may have come with the answer to START_REPLICATION
            self._direct = partial(front.gulp, cast("Any", self._connection).pgconn_ptr, *addresses)
        return front.decode

    def gulp(self, decode: Callable[[bytes, int], None], most: int) -> int:
        """Hand over the messages that are here, up to about `most` bytes. Returns their bytes; raises AwayError."""
        get: Callable[[int], tuple[int, Any]] = self._connection.get_copy_data
        front, direct = self._front, self._direct
        got: tuple[int, Any]
        data, size, last = b"", 0, _BUFFER
        if time.monotonic() - self._heard > min(_QUIET_SECONDS, self._dead_seconds / 4):
            self._listen()
        try:
            while last >= _BUFFER and size < most:
                # One read of the socket into libpq's buffer, and all whole messages that are in it then.
                self._connection.consume_input()
                last = -size
                if front is not None and direct is not None:
                    taken, answered, head = direct()
                    size, data, got = size + taken, head or data, (answered, None)
                    self.asked = self.asked or front.asked
                else:
                    while (got := get(1))[0] > 0 and not self._skips:
                        # psycopg's C library gives bytes, its Python one a memoryview.
                        data = got[1] if type(got[1]) is bytes else bytes(got[1])
                        size += len(data)
                        if data[0] == _XLOG:
                            decode(data, _HEADER)
                        elif data[0] == _KEEPALIVE:
                            self.asked = self.asked or _KEEPALIVE_BODY.unpack(data)[2] > 0
                        else:
                            raise strange(data)
                if self._skips or got[0] < 0:
                    raise self._ended()
                last += size
            if data:
                self.is_idle = data[0] == _KEEPALIVE
                place, time_us = (_KEEPALIVE_HEAD if self.is_idle else _XLOG_HEAD).unpack_from(data)
                self.place = place, time_us + EPOCH_US
                self._heard, self._prompted = time.monotonic(), 0.0
        except OperationalError as error:
            raise AwayError(f"the source database went away: {_clean(str(error))}") from error
        except struct.error as error:
            raise PgoutputError(f"replication: message {data[:40]!r} is cut off") from error
        return size

    def _ended(self) -> OperatorError | AwayError:
        """Why no message follows. What was left out is said before whatever follows it."""
        if self._skips:
            return NoPublicationError("the server warns that it leaves out changes of a missing publication")
        error = failed(self._connection, self._connection.get_result())
        missing = isinstance(error, SqlError) and error.state == _NO_PUBLICATION
        return NoPublicationError(error.message) if missing else error

    def _listen(self) -> None:
        """A part of a message is a sign of life too."""
        if has_come(self._connection):
            self._heard, self._prompted = time.monotonic(), 0.0

    def watch(self, durable: int) -> None:
        """To be called when all that came was read: raises SilentError where the server has been dead for too long."""
        now, half = time.monotonic(), self._dead_seconds / 2
        if not self._prompted:
            if now - self._heard >= half:
                self._prompted = now
                self.status(durable, reply=True)
        elif now - self._prompted >= half:
            sever(self._connection)
            raise SilentError(f"the source database has sent nothing for {self._dead_seconds:g} s, though it was asked")

    def status(self, durable: int, *, reply: bool = False) -> None:
        """Tell the server that everything before the LSN `durable` is safe here: it may forget it.

        `reply`: it is to answer at once.
        """
        self.asked = False
        now = time.time_ns() // 1000 - EPOCH_US
        try:
            self._connection.put_copy_data(_STATUS.pack(b"r", durable, durable, durable, now, reply))
            self._connection.flush()
        except OperationalError as error:
            raise AwayError(f"the source database went away: {_clean(str(error))}") from error

    def close(self) -> None:
        """End in order, so that the server frees the slot at once; never raises."""
        try:
            self._connection.put_copy_end()
            self._connection.flush()
            self._await_end(time.monotonic() + CLOSE_SECONDS)
        except OperationalError:
            pass  # it is gone already
        self._connection.finish()

    def _await_end(self, deadline: float) -> None:
        """Read on until the server has ended the stream too: it holds the slot until then."""
        while (left := deadline - time.monotonic()) > 0:
            n, _ = self._connection.get_copy_data(1)
            if n < 0:
                return
            if n == 0:
                poller = select.poll()
                poller.register(self.fileno(), select.POLLIN)
                poller.poll(int(left * 1000) + 1)
                self._connection.consume_input()

    def __repr__(self) -> str:
        return f"<Stream at {lsn_text(self.place[0])}>"
