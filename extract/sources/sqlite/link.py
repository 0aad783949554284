"""A connection to the SQLite file that is the source: its URL, its session, and its errors as ours.

Rule: a file is never made here, and its journal mode is left as it is. A wait for somebody's lock is bounded.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote, unquote

from trails.errors import AwayError, OperatorError

SCHEME: Final = "sqlite:///"
SCHEMA: Final = "main"
OLDEST: Final = (3, 37, 0)  # the pragma that names STRICT and WITHOUT ROWID tables
BUSY_SECONDS: Final = 5.0

_AWAY: Final = (
    "SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_PROTOCOL", "SQLITE_NOMEM",
    "SQLITE_INTERRUPT", "SQLITE_SCHEMA",
)  # fmt: skip


def path_of(url: str) -> str:
    """The file of `sqlite:////absolute/path`. Several programs open it, from any folder: so it must be absolute."""
    path = unquote(url.removeprefix(SCHEME))
    if not os.path.isabs(path):
        raise OperatorError(
            f"SOURCEDB: expected an absolute path, found {path}", hint=f"Write four slashes: {SCHEME}/var/lib/shop.db"
        )
    return path


def connect(url: str, busy_seconds: float = BUSY_SECONDS) -> sqlite3.Connection:
    """A connection in autocommit. Raises OperatorError if there is no such file."""
    path = path_of(url)
    if sqlite3.sqlite_version_info < OLDEST:
        raise OperatorError(
            f"SQLite {sqlite3.sqlite_version} is too old: expected {'.'.join(map(str, OLDEST))} or newer",
            hint="Use a Python with a newer SQLite",
        )
    if not os.path.isfile(path):
        raise OperatorError(
            f"SOURCEDB: there is no file {path}",
            hint=f"Mend SOURCEDB; an absolute path has four slashes ({SCHEME}/var/lib/shop.db)",
        )
    conn: sqlite3.Connection | None = None
    try:
        conn = sqlite3.connect(
            f"file:{quote(path)}?mode=rw", uri=True, isolation_level=None, timeout=busy_seconds, check_same_thread=False
        )
        conn.execute("PRAGMA schema_version").fetchone()  # opens the file
        (encoding,) = conn.execute("PRAGMA encoding").fetchone()
        # What is deleted from the queue twice does no harm: in WAL mode no commit of ours needs to wait for the disk.
        conn.execute("PRAGMA synchronous = NORMAL")
    except sqlite3.Error as error:
        if conn is not None:
            conn.close()
        if _name(error).startswith(_AWAY):
            raise AwayError(f"the source database {path} can't be opened: {error}") from None
        raise OperatorError(f"the source database {path} can't be opened: {error}", hint="Mend SOURCEDB") from None
    if encoding != "UTF-8":
        conn.close()
        raise OperatorError(
            f"the source database {path} keeps text as {encoding}, expected UTF-8",
            hint="Copy it into a new file whose PRAGMA encoding is 'UTF-8'",
        )
    return conn


@contextlib.contextmanager
def session(url: str) -> Iterator[sqlite3.Connection]:
    """A connection for a moment, with its errors as ours."""
    conn = connect(url)
    try:
        with mapped():
            yield conn
    finally:
        conn.close()


@contextlib.contextmanager
def mapped() -> Iterator[None]:
    """The driver's errors as ours, by who must act."""
    try:
        yield
    except sqlite3.Error as error:
        name = _name(error)
        if name.startswith(_AWAY):
            raise AwayError(f"the source database did not answer: {error} ({name})") from error
        hint = "The file is damaged: restore it" if name in ("SQLITE_CORRUPT", "SQLITE_NOTADB") else ""
        raise OperatorError(
            f"the source database refused a statement: {error}" + (f" ({name})" if name else ""), hint=hint
        ) from error


@contextlib.contextmanager
def writing(conn: sqlite3.Connection) -> Iterator[None]:
    """One transaction that holds the file's one write lock: all of it, or nothing."""
    conn.execute("BEGIN IMMEDIATE")
    try:
        yield
        conn.execute("COMMIT")
    except BaseException:
        if conn.in_transaction:
            conn.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def reading(conn: sqlite3.Connection) -> Iterator[None]:
    """One state of the file for all that is read inside."""
    conn.execute("BEGIN")
    try:
        yield
    finally:
        if conn.in_transaction:
            conn.execute("ROLLBACK")


def number(conn: sqlite3.Connection, statement: str, params: tuple[Any, ...] = ()) -> int:
    """The one number that a statement gives; 0 for none."""
    found = conn.execute(statement, params).fetchone()
    value = found[0] if found else None
    if not isinstance(value, int | None):
        raise OperatorError(
            f"the source database gave {value!r:.40}, expected a number: {statement:.80}",
            hint="Somebody has changed the queue: see docs/recovery.md#lost-queue",
        )
    return value or 0


def ident(name: str) -> str:
    """A quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def identity(url: str) -> tuple[int, int] | None:
    """Which file the path names now; None if none."""
    try:
        found = os.stat(path_of(url))
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _name(error: Exception) -> str:
    return getattr(error, "sqlite_errorname", "") or ""
