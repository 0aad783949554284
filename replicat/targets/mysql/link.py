"""A connection to MySQL or MariaDB: its URL, its session, its errors as ours, and rows sent by LOAD DATA LOCAL.

Rule: only this file and mysql.py know PyMySQL, and import it only when a target of this kind is used. A server that
asks for a file gets the rows it was just told of, never a file: LOAD DATA LOCAL lets a server name any path.
"""

from __future__ import annotations

import contextlib
import io
import re
import select
import socket
import ssl
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

import pymysql
from pymysql.connections import Connection, MySQLResult
from pymysql.constants import CLIENT, FIELD_TYPE
from pymysql.converters import encoders

from replicat.model.again import ShapeChangedError
from replicat.model.target import RefusedError
from trails.errors import AwayError, OperatorError
from trails.runtime.secrets import healing
from trails.runtime.secrets.serverurl import ServerUrl

SCHEME = "mysql://"
ANSWER_SECONDS = 60.0
"""A server that has not answered a short statement for so long is taken for lost."""
SILENT_SECONDS = 60.0
"""After each so long without an answer to any other, another connection asks if the server works on it."""
PROBE_SECONDS = 10.0
_LAST_SECONDS = 0.5
_FULL = frozenset({1040, 1203, 1226})
_WORKS = """
SELECT 1 FROM information_schema.processlist WHERE id = %s AND command <> 'Sleep'
AND coalesce(state, '') NOT IN ('Reading from net', 'Writing to net', 'Sending to client',
    'Receiving from client')
"""
_PACKET = 256 * 1024
_BUFFER = 64 << 10

_WHOLE = (FIELD_TYPE.TINY, FIELD_TYPE.SHORT, FIELD_TYPE.INT24, FIELD_TYPE.LONG, FIELD_TYPE.LONGLONG)
_CONVERSIONS = dict(encoders) | dict.fromkeys(_WHOLE, int)  # all else is read as the server's own text

SESSION = (
    "SET NAMES utf8mb4",
    # Strict: what does not fit is an error, never cut, rounded or zeroed. 0 in an AUTO_INCREMENT column is a 0.
    # A source of the same kind may have zero and impossible dates; types.py lets no other source's through.
    (
        "SET SESSION sql_mode = 'STRICT_ALL_TABLES,STRICT_TRANS_TABLES,ALLOW_INVALID_DATES,"
        "ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO,ANSI_QUOTES,PIPES_AS_CONCAT'"
    ),
    "SET SESSION time_zone = '+00:00'",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    # Cascades don't fire: their effects are in the trail (CW-20). unique_checks stays on.
    "SET SESSION foreign_key_checks = 0",
    "SET SESSION unique_checks = 1",
    "SET SESSION wait_timeout = 28800",
    # A decimal that is rounded, or text that is cut, is told as a note, and notes are refusals here: they must be told.
    "SET SESSION sql_notes = 1",
    "SET SESSION max_error_count = 64",
    # Whatever a server is set to: all rows of a query, and statements over whole tables.
    "SET SESSION sql_select_limit = 18446744073709551615",
    "SET SESSION sql_safe_updates = 0",
    "SET SESSION sql_big_selects = 1",
    "SET SESSION sql_auto_is_null = 0",
)
# What not every server has, or not every user may set; nothing here depends on it.
MAYBE = (
    "SET SESSION default_storage_engine = InnoDB",
    "SET SESSION default_tmp_storage_engine = InnoDB",
    "SET SESSION explicit_defaults_for_timestamp = 1",
    "SET SESSION check_constraint_checks = 1",
    "SET SESSION max_statement_time = 0",
    "SET SESSION binlog_format = 'ROW'",
)

_SHAPE = frozenset({1051, 1054, 1136, 1146, 1356, 1412, 1932})
"""The table is not what it was when it was looked at."""

_AWAY = healing.NUMBERS - _SHAPE
"""The whole transaction is then rolled back with the connection, and the batch done again for RECONNECTSECS."""

_SQLSTATES = {
    1048: "23502", 1364: "23502", 1263: "23502", 1062: "23505", 1022: "23505", 1586: "23505", 1451: "23503",
    1452: "23503", 1216: "23503", 1217: "23503", 4025: "23514", 3819: "23514", 1264: "22003", 1690: "22003",
    1365: "22012", 1265: "22001", 1406: "22001", 1366: "22018", 1292: "22007", 1411: "22007", 1441: "22008",
    1300: "22021", 1644: "45000", 1118: "54000", 1153: "54000", 1301: "54000", 1369: "44000", 1416: "22018",
    1261: "22023", 1262: "22023", 1526: "22023", 4078: "22018", 3140: "22032", 3141: "22032", 3150: "22032",
    3151: "22032", 3157: "22032",
}  # fmt: skip
"""Errors that refuse rows, and their SQLSTATE; those of the standard where there are such, for REPERROR."""


_PACKET_HINT = "; raise max_allowed_packet at the server"
_JSON_HINT = "; or it is JSON that this server reads as another number than it says: LONGTEXT takes both"
_HINTS = {1153: _PACKET_HINT, 1301: _PACKET_HINT, 3140: _JSON_HINT, 3141: _JSON_HINT}

_NO_STAGING = 1787
"""MySQL before 8.0.13 makes no temporary table inside a transaction that has a GTID."""

_STAGE = re.compile(r"`[^`]*`\.`tg_[a-z]\d+`\.")
"""How the server names a staging table in its messages."""


class MysqlUrl(ServerUrl):
    """TARGETDB's: `mysql://user[:password]@host[:port]/database`, or `mysql:///database?unix_socket=path&user=u`."""

    __slots__ = ()

    @classmethod
    def parse(cls, url: str, side: str = "target") -> Self:
        """Raises OperatorError. `side`: target or source; the log of a source is of all databases of a server."""
        return cls.of(url, f"{side.upper()}DB", "mysql", 3306, needs_database=side == "target")


class _Result(MySQLResult):  # type: ignore[misc]  # PyMySQL has no types
    def _read_load_local_packet(self, _packet: Any) -> None:
        """Send what load() was given, whatever file the server names."""
        conn: Any = self.connection
        conn.send_rows()
        answer = conn._read_packet()  # noqa: SLF001  -- the driver's own way
        self._read_ok_packet(answer)


class _Pieces(io.RawIOBase):
    """What the driver reads answers from: each piece is waited for by the link's rule, not the first alone."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._link.await_piece()
        return int(self._link._sock.recv_into(buffer))  # noqa: SLF001  -- the driver's own


class Link(Connection):  # type: ignore[misc]  # as above
    """The driver's connection, with rows from memory for LOAD DATA LOCAL."""

    answer_seconds: float | None = None
    """How long an answer is waited for, and each piece of it; None: as long as the server works on it."""
    silent_seconds = SILENT_SECONDS
    where: MysqlUrl | None = None
    """Where another connection is made; None: there is none yet to ask about."""
    _pieces: Iterable[bytes] | None = None
    _refused: RefusedError | None = None
    _result: Any
    _rfile: Any

    def connect(self, sock: socket.socket | None = None) -> None:
        """As the driver's, whose own timeout bounds the login, and later the rest of a piece that has begun."""
        super().connect(sock)
        self._in_pieces()

    def _in_pieces(self) -> None:
        self._rfile.close()  # nothing is in it: the server says nothing unasked
        self._rfile = io.BufferedReader(_Pieces(self), _BUFFER)

    def load(self, statement: str, pieces: Iterable[bytes]) -> tuple[int, int]:
        """Run a LOAD DATA LOCAL with these pieces as its file; (rows taken, warnings).

        The server works on one while the next is made. Making one may raise RefusedError: those before it are taken.
        """
        self._pieces, self._refused = pieces, None
        try:
            taken = self.query(statement)
        finally:
            self._pieces = None
        if self._refused is not None:
            raise self._refused
        return int(taken), int(self._result.warning_count)

    def send_rows(self) -> None:
        """For the driver's result, when the server asks for the file."""
        pieces, self._pieces = self._pieces, None
        try:
            for piece in pieces or ():
                view = memoryview(piece)
                for start in range(0, len(view), _PACKET):
                    self.write_packet(bytes(view[start : start + _PACKET]))
        except RefusedError as error:  # the server waits for the file's end all the same
            self._refused = error
        except BaseException:
            self._force_close()  # or it would take what it has for all of it
            raise
        self.write_packet(b"")
        if pieces is None:
            self._force_close()
            raise pymysql.err.OperationalError(2014, "the server asked for a file although none was offered")

    def await_piece(self) -> None:
        """Until the next piece of an answer is here. Raises TimeoutError, of which the driver makes its own."""
        bound = self.answer_seconds or self.silent_seconds
        while not self._comes(bound):
            asks = self.where if self.answer_seconds is None else None
            if asks is None or not (self._is_worked_on(asks) or self._comes(_LAST_SECONDS)):
                raise TimeoutError(f"it has not answered for {bound:g} s")

    def _comes(self, seconds: float) -> bool:
        poller = select.poll()
        poller.register(self._sock.fileno(), select.POLLIN)
        return bool(isinstance(self._sock, ssl.SSLSocket) and self._sock.pending()) or bool(poller.poll(seconds * 1000))

    def _is_worked_on(self, where: MysqlUrl) -> bool:
        """Whether the server works on it, and waits neither for us nor for the next statement."""
        other = _made(where, PROBE_SECONDS)
        try:
            other.connect(None if where.unix_socket else _dial(where))
            return bool(query(other, _WORKS, [self.thread_id()]))
        except pymysql.MySQLError as error:
            return number_of(error) in _FULL  # it is there, and what it does can't be known
        finally:
            with contextlib.suppress(pymysql.MySQLError):
                other.close()

    def _read_query_result(self, unbuffered: bool = False) -> Any:
        self._result = None
        result = _Result(self)
        if unbuffered:
            result.init_unbuffered_query()
        else:
            result.read()
        self._result = result
        if result.server_status is not None:
            self.server_status = result.server_status
        return result.affected_rows


def connect(url: str, side: str = "target") -> Link:
    """A connection in autocommit, its session set; AwayError if there is no server, OperatorError if it refuses us.

    `side`: target or source, as messages name it.
    """
    where = MysqlUrl.parse(url, side)
    link = _made(where, ANSWER_SECONDS)
    try:
        link.connect(None if where.unix_socket else _dial(where))
        for statement in SESSION:
            link.query(statement)
        for statement in MAYBE:
            with contextlib.suppress(
                pymysql.err.OperationalError, pymysql.err.InternalError, pymysql.err.ProgrammingError
            ):
                link.query(statement)
    except pymysql.MySQLError as error:
        with contextlib.suppress(pymysql.MySQLError):
            link.close()
        number, text = number_of(error), _text(error)
        if number in _AWAY or isinstance(error, pymysql.err.InterfaceError):
            raise AwayError(f"the {side} database can't be reached: {text}") from None
        raise OperatorError(
            f"the {side} database refuses the connection: {text}", hint=f"Mend {side.upper()}DB"
        ) from None
    link.answer_seconds = None
    link.where = where
    return link


def _made(where: MysqlUrl, seconds: float) -> Link:
    """Not connected yet; everything on it is answered within so many seconds."""
    context = where.context()
    link = Link(
        host=where.host, port=where.port, user=where.user, password=where.password.encode(),
        database=where.database or None,
        unix_socket=where.unix_socket or None, charset="utf8mb4", autocommit=True, local_infile=True, conv=_CONVERSIONS,
        connect_timeout=10, read_timeout=seconds, client_flag=CLIENT.FOUND_ROWS, defer_connect=True,
        ssl=context if where.insists else None, ssl_disabled=not where.insists,
        # By TCP the socket has its own bound (dial): a slow link may take longer for a large packet.
        write_timeout=seconds if where.unix_socket else None,
    )  # fmt: skip
    if not where.insists and context is not None:  # TLS if the server has it; by a context that costs nothing to make
        link.ssl, link.ctx = True, context
    link.answer_seconds = seconds
    return link


def query(link: Link, statement: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    """Run a statement; its rows as the server's text."""
    with link.cursor() as cursor:
        cursor.execute(statement, list(params) or None)
        return list(cursor.fetchall()) if cursor.description else []


def _dial(where: MysqlUrl) -> socket.socket:
    try:
        sock = where.dial()
    except OSError as error:
        raise pymysql.err.OperationalError(2003, f"can't connect to {where.host}:{where.port}: {error}") from None
    sock.settimeout(None)
    return sock


def number_of(error: pymysql.MySQLError) -> int:
    """The server's (or the client library's) error number; 0 if there is none."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def _text(error: pymysql.MySQLError) -> str:
    number, *rest = error.args or (0,)
    return f"{' '.join(str(part) for part in rest) or 'connection closed'} ({number})"


def refusal(number: int, text: str, table: str) -> RefusedError | None:
    """A refusal of rows, if the number stands for one."""
    if number not in _SQLSTATES:
        return None
    hint = _HINTS.get(number, "")
    text = _STAGE.sub("", " ".join(text.split()))
    shown = without_values(number, text) + hint
    return RefusedError(table, text + hint, _SQLSTATES[number], str(number), shown=shown)


# Their quotes hold names only.
_NAMES_ONLY = frozenset((1048, 1364, 1263, 1451, 1452, 1216, 1217, 4025, 3819, 1264, 1265, 1406, 1261, 1262, 1369))
_SIGNAL = 1644
_NAMED_VALUE = re.compile(r"(.*?) ?'.*'( for (?:key|column) .*)", re.DOTALL)


def without_values(number: int, text: str) -> str:
    """The server's message, or as much of it as holds names only."""
    if number in _NAMES_ONLY:
        return text
    if number == _SIGNAL:
        return f"a trigger refuses it ({number})"  # its text can be anything
    found = _NAMED_VALUE.fullmatch(text)
    return f"{found[1]}{found[2]}" if found else re.split(r"['\"]", text, maxsplit=1)[0].rstrip(" :")


@contextlib.contextmanager
def mapped(link: Link | None, table: str = "target", side: str = "target") -> Iterator[None]:
    """PyMySQL's errors as ours, by who must act."""
    try:
        yield
    except pymysql.MySQLError as error:
        raise as_ours(error, link, table, side) from error


def as_ours(error: pymysql.MySQLError, link: Link | None, table: str = "target", side: str = "target") -> Exception:
    """One error of the driver as ours."""
    number, text = number_of(error), _text(error)
    refused = refusal(number, str(error.args[1]) if len(error.args) > 1 else text, table)
    if refused is not None and not (number == 1153 and (link is None or not link.open)):
        return refused
    if link is None or not link.open or number in _AWAY or isinstance(error, pymysql.err.InterfaceError):
        if number == 1153:
            text += ": a value is larger than max_allowed_packet, raise it at the server"
        return AwayError(f"the {side} database went away: {text}")
    if number in _SHAPE:
        return ShapeChangedError(f"the {side} table changed: {text}")
    told = without_values(number, str(error.args[1])) if len(error.args) > 1 else text
    hint = "Take MySQL 8.0.13 or newer, or set enforce_gtid_consistency to OFF" if number == _NO_STAGING else ""
    return OperatorError(f"the {side} database refused a statement: {told} ({number})", hint=hint)
