"""An ordinary connection to the source server: its URL, its session, and its errors as ours.

Rule: only this file knows the driver. What it gives besides answers is a socket that has logged in, on which the binary
log is read by ourselves (dump.py).
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator, Sequence
from typing import Any, Final, Self

import pymysql
from pymysql.connections import Connection
from pymysql.converters import encoders

from extract.sources.mysql.flavour import Flavour
from trails.errors import AwayError, OperatorError, UntrustedError
from trails.runtime.secrets import healing
from trails.runtime.secrets.serverurl import DIAL_SECONDS, ServerUrl

PORT: Final = 3306
ANSWER_SECONDS: Final = 60.0
"""A server that has not answered a question for so long is taken for lost."""
LOGIN_SECONDS: Final = 20.0

Row = tuple[str | None, ...]

_SESSION: Final = (
    "SET NAMES utf8mb4",
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO'",
    "SET SESSION time_zone = '+00:00', sql_select_limit = 18446744073709551615",
    "SET SESSION wait_timeout = 28800, lock_wait_timeout = 50",
)
_DENIED: Final = frozenset({1044, 1045, 1698, 1227, 1142, 1143, 1370})
_NO_SUCH_PLUGIN: Final = frozenset({2059, 1251})


class MysqlError(OperatorError):
    """The server refuses a statement; `number` is its error number."""

    def __init__(self, message: str, number: int = 0, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.number = number


class SourceUrl(ServerUrl):
    """SOURCEDB's: `mysql://user[:password]@host[:port]/[database]`, or `mysql:///?unix_socket=path&user=u`."""

    __slots__ = ()

    @classmethod
    def parse(cls, url: str) -> Self:
        """Raises OperatorError. A binary log is of all databases of a server, so none need be named."""
        return cls.of(url, "SOURCEDB", "mysql", PORT, needs_database=False)


class MysqlSession:
    """One statement at a time, each in its own transaction. Values come as the server's text."""

    def __init__(self, url: str, application: str) -> None:
        """Raises AwayError if there is no server, OperatorError if it refuses us. `application`: for its own lists."""
        self._connection = _connect(SourceUrl.parse(url), application)
        try:
            for statement in _SESSION:
                self.query(statement)
            ((version,),) = self.query("SELECT @@version")
        except BaseException:
            self.close()
            raise
        self.version = version or ""
        """Such as 10.11.6-MariaDB-0+deb12u1-log."""
        self.flavour = Flavour.of(self.version)

    @property
    def release(self) -> tuple[int, int, int]:
        """The version's numbers."""
        numbers = self.version.partition("-")[0].split(".")[:3]
        major, minor, patch = ([int(n) for n in numbers if n.isdecimal()] + [0, 0, 0])[:3]
        return major, minor, patch

    def query(self, sql: str, *values: str | int | bytes | None) -> list[Row]:
        """The rows of a statement; %s stands for a value, where there are any."""
        with _ours(), self._connection.cursor() as cursor:
            cursor.execute(sql, values or None)
            rows = cursor.fetchall() if cursor.description else ()
        return [tuple(_text(value) for value in row) for row in rows]

    def one(self, sql: str, *values: str | int | bytes | None) -> Row:
        """The first row; raises MysqlError if there is none."""
        rows = self.query(sql, *values)
        if not rows:
            raise MysqlError(f"the source database gave no row for: {sql}")
        return rows[0]

    def rows(self, sql: str, *values: str | int | bytes | None) -> list[dict[str, str | None]]:
        """The rows of a statement such as SHOW, by the names of their columns in lower case."""
        with _ours(), self._connection.cursor() as cursor:
            cursor.execute(sql, values or None)
            names = [column[0].lower() for column in cursor.description or ()]
            return [dict(zip(names, map(_text, row), strict=True)) for row in cursor.fetchall()]

    def setting(self, name: str) -> str:
        """One of the server's global settings; empty where this version has none of that name."""
        rows = self.query("SHOW GLOBAL VARIABLES WHERE variable_name = %s", name)
        return (rows[0][1] or "") if rows else ""

    def script(self, statements: Sequence[str]) -> None:
        """Run statements one after the other. Those that make or drop things commit by themselves on this server."""
        for statement in statements:
            self.query(statement)

    @property
    def thread(self) -> int:
        """The server's number of this connection."""
        return int(self._connection.thread_id())

    def take_socket(self) -> socket.socket:
        """The socket, on which nothing is under way; the session is not used any more."""
        sock: socket.socket = self._connection._sock  # noqa: SLF001  -- the driver has no other way to it
        return sock

    def close(self) -> None:
        """Disconnect."""
        with contextlib.suppress(pymysql.MySQLError, OSError):
            self._connection.close()


def refused(number: int, text: str) -> MysqlError | AwayError:
    """An error that the server told, as ours."""
    words = " ".join(text.split())
    if number in healing.NUMBERS:
        return AwayError(f"the source database went away: {words} ({number})")
    return MysqlError(f"the source database: {words} ({number})", number)


def _connect(where: SourceUrl, application: str) -> Any:
    context = where.context()
    try:
        sock = where.dial()
    except OSError as error:
        at = where.unix_socket or f"{where.host}:{where.port}"
        raise AwayError(f"the source database can't be reached at {at}: {error}") from None
    connection: Any = Connection(
        host=where.host, port=where.port, user=where.user, password=where.password.encode(),
        database=where.database or None, charset="utf8mb4", autocommit=True, conv=dict(encoders),
        program_name=application, connect_timeout=DIAL_SECONDS, read_timeout=LOGIN_SECONDS, write_timeout=LOGIN_SECONDS,
        defer_connect=True, local_infile=False, ssl=context if where.insists else None,
        ssl_disabled=not where.insists,
    )  # fmt: skip
    if not where.insists and context is not None:  # TLS if the server has it; by a context that costs nothing to make
        connection.ssl, connection.ctx = True, context
    if where.unix_socket:
        connection._secure = True  # noqa: SLF001  -- as the driver says of a unix socket that it opens itself
    try:
        connection.connect(sock)
    except pymysql.MySQLError as error:
        sock.close()
        raise _not_in(error, where) from None
    except RuntimeError as error:  # a way to log in for which the driver wants a library that is not here
        sock.close()
        raise OperatorError(
            f"the source database asks for a login that can't be had: {error}",
            hint=f"ALTER USER {where.user} to another authentication plugin",
        ) from None
    except BaseException:
        sock.close()
        raise
    connection._read_timeout = ANSWER_SECONDS  # noqa: SLF001  -- a question may take longer than a login
    return connection


def _not_in(error: pymysql.MySQLError, where: SourceUrl) -> OperatorError | AwayError:
    number, text = _number(error), _words(error)
    if isinstance(getattr(error, "original_exception", None), ssl.SSLCertVerificationError):
        hint = "Name the CA of the server's certificate by ssl_ca in SOURCEDB, and the host as the certificate does"
        return UntrustedError(f"the source database is not trusted: {text}", hint=hint)
    if number in healing.NUMBERS or isinstance(error, pymysql.err.InterfaceError):
        return AwayError(f"the source database can't be reached: {text}")
    hint = "Mend SOURCEDB in the parameter file"
    if number in _DENIED:
        hint = (
            f"Mend the user or the password in SOURCEDB (or on the server: ALTER USER {where.user} IDENTIFIED BY ...)"
        )
    elif number in _NO_SUCH_PLUGIN:
        hint = f"ALTER USER {where.user} to another authentication plugin"
    return MysqlError(f"the source database refused the connection: {text}", number, hint=hint)


@contextlib.contextmanager
def _ours() -> Iterator[None]:
    try:
        yield
    except pymysql.MySQLError as error:
        if isinstance(error, pymysql.err.InterfaceError):
            raise AwayError(f"the source database went away: {_words(error)}") from None
        found = refused(_number(error), _words(error))
        if isinstance(found, MysqlError) and found.number in _DENIED:
            found.hint = "GRANT it to the user of SOURCEDB"
        raise found from None


def _number(error: pymysql.MySQLError) -> int:
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def _words(error: pymysql.MySQLError) -> str:
    rest = [part for part in error.args if not isinstance(part, int)]
    return " ".join(" ".join(str(part) for part in rest).split()) or "the connection is closed"


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
