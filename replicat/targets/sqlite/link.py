"""A connection to an SQLite file: its URL, its session, its errors as ours, and its tables' shapes.

Rule: every commit waits for the disk (synchronous = EXTRA). A file that this program makes is in WAL mode, so that
readers and Replicat don't wait for each other; another file's journal mode is left as it is.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote

from replicat.model.again import ShapeChangedError
from replicat.model.target import RefusedError, TargetColumn, TargetTable
from replicat.targets.sqlite.sql import KEY_INDEX
from replicat.targets.sqlite.types import sqlite_type
from replicat.targets.sqlite.words import SCHEMA, SCHEME
from trails.errors import AwayError, OperatorError

OLDEST = (3, 37, 0)  # STRICT tables, and the pragma that names them
BUSY_SECONDS = 5.0

_SESSION = (
    "PRAGMA foreign_keys = OFF", "PRAGMA recursive_triggers = OFF", "PRAGMA ignore_check_constraints = OFF",
    "PRAGMA synchronous = EXTRA", "PRAGMA temp_store = MEMORY",
)  # fmt: skip

_SQLSTATES = {
    "SQLITE_CONSTRAINT_UNIQUE": "23505", "SQLITE_CONSTRAINT_PRIMARYKEY": "23505", "SQLITE_CONSTRAINT_ROWID": "23505",
    "SQLITE_CONSTRAINT_NOTNULL": "23502", "SQLITE_CONSTRAINT_CHECK": "23514", "SQLITE_CONSTRAINT_FOREIGNKEY": "23503",
    "SQLITE_CONSTRAINT_TRIGGER": "45000", "SQLITE_CONSTRAINT_DATATYPE": "22018", "SQLITE_MISMATCH": "22018",
    "SQLITE_TOOBIG": "54000", "SQLITE_CONSTRAINT": "23000",
}  # fmt: skip
_AWAY = (
    "SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_PROTOCOL", "SQLITE_NOMEM",
    "SQLITE_INTERRUPT", "SQLITE_SCHEMA",
)  # fmt: skip
_SHAPE = ("no such table", "no such column", "has no column named", "no such index")

TYPE_STRICT = " /* strict */"
"""Stands behind a column's declared type where its table is a STRICT one; no declared type ends so by itself."""


def path_of(url: str, home: str = "") -> str:
    """The file of `sqlite:////absolute/path` or `sqlite:///path/in/the/home`."""
    path = unquote(url.removeprefix(SCHEME))
    return os.path.join(home or os.getcwd(), path)


def connect(url: str, home: str = "", *, create: bool = True, side: str = "target") -> sqlite3.Connection:
    """A connection in autocommit, its session set; a missing file in an existing folder is made.

    `side`: target or source, as messages name it.
    """
    path = path_of(url, home)
    if sqlite3.sqlite_version_info < OLDEST:
        raise OperatorError(
            f"SQLite {sqlite3.sqlite_version} is too old: expected {'.'.join(map(str, OLDEST))} or newer",
            hint="Use a Python with a newer SQLite",
        )
    if not os.path.isdir(os.path.dirname(path)):
        raise OperatorError(
            f"{side.upper()}DB: there is no folder {os.path.dirname(path)}",
            hint=f"Make it; an absolute path has four slashes ({SCHEME}/var/lib/shop.db), another is in the home",
        )
    new = not os.path.exists(path) or os.path.getsize(path) == 0
    mode = "rwc" if create else "rw"
    conn: sqlite3.Connection | None = None
    try:
        conn = sqlite3.connect(
            f"file:{quote(path)}?mode={mode}", uri=True, isolation_level=None, timeout=BUSY_SECONDS,
            check_same_thread=False,
        )  # fmt: skip
        conn.execute("PRAGMA schema_version").fetchone()  # opens the file
        if new and create:
            conn.execute("PRAGMA journal_mode = WAL").fetchone()
        for statement in _SESSION:
            conn.execute(statement)
    except sqlite3.Error as error:
        if conn is not None:
            conn.close()
        if _name(error).startswith(_AWAY):
            raise AwayError(f"the {side} database {path} can't be opened: {error}") from None
        raise OperatorError(
            f"the {side} database {path} can't be opened: {error}", hint=f"Mend {side.upper()}DB"
        ) from None
    return conn


def identity(url: str, home: str) -> tuple[int, int] | None:
    """Which file the path names now; None if none."""
    try:
        found = os.stat(path_of(url, home))
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextlib.contextmanager
def mapped(side: str = "target") -> Iterator[None]:
    """The driver's errors as ours, by who must act."""
    try:
        yield
    except sqlite3.Error as error:
        raise as_ours(error, side=side) from error


def as_ours(error: Exception, table: str = "target", side: str = "target") -> Exception:
    """One error of the driver as ours."""
    if isinstance(error, (UnicodeEncodeError, OverflowError)):
        return RefusedError(table, str(error), "22021", shown="text that is not UTF-8, or a number out of range")
    if not isinstance(error, sqlite3.Error):
        return OperatorError(str(error))
    name, text = _name(error), str(error)
    if name in _SQLSTATES:
        # What a trigger raises is any text; else SQLite names tables and columns only.
        shown = "a trigger refuses it" if name == "SQLITE_CONSTRAINT_TRIGGER" else text
        return RefusedError(table, text, _SQLSTATES[name], name, shown=shown)
    if isinstance(error, sqlite3.IntegrityError):  # Python has no name for a STRICT table's refusal
        return RefusedError(table, text, "22018" if "cannot store" in text else "23000", name)
    if isinstance(error, sqlite3.DataError):  # a value too large
        return RefusedError(table, text, "54000", name or "SQLITE_TOOBIG")
    if name.startswith(_AWAY):
        return AwayError(f"the {side} database is away: {text} ({name})")
    if any(mark in text for mark in _SHAPE) or name == "SQLITE_SCHEMA":
        return ShapeChangedError(f"the {side} table changed: {text}")
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in text:
        return AwayError(f"the {side} connection is closed")
    return OperatorError(
        f"the {side} database refused a statement: {text}" + (f" ({name})" if name else ""),
        hint="Mend that, then try again",
    )


def _name(error: Exception) -> str:
    return getattr(error, "sqlite_errorname", "") or ""


# --- shapes ---------------------------------------------------------------------------------------------------------


def table_of(conn: sqlite3.Connection, schema: str, name: str) -> TargetTable | None:
    """A table's shape; its name compares without case, as SQLite has it. A view or virtual table is none."""
    if schema.lower() != SCHEMA:
        return None
    found = conn.execute(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name = ? COLLATE NOCASE", [name]
    ).fetchone()
    if found is None or found[0].lower().startswith("sqlite_"):
        return None
    name, sql = found
    (kind, strict) = conn.execute(
        "SELECT type, strict FROM pragma_table_list WHERE schema = 'main' AND name = ?", [name]
    ).fetchone()
    if kind != "table":
        return None
    rows = conn.execute("SELECT name, type, pk, hidden FROM pragma_table_xinfo(?) ORDER BY cid", [name]).fetchall()
    folds = "COLLATE" in sql.upper()
    columns = tuple(_column(row, bool(strict), folds=folds) for row in rows if row[3] != 1)
    triggers = conn.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ? COLLATE NOCASE", [name]
    ).fetchall()
    fires = tuple(f"trigger {row[0]}" for row in triggers)
    primary = tuple(row[0] for row in sorted(rows, key=lambda row: row[2]) if row[2])
    sets, more = _unique(conn, name, rows)
    index = "" if primary else _key_index(conn, name)
    if index:
        primary = tuple(row[0] for row in conn.execute("SELECT name FROM pragma_index_info(?)", [index]))
    return TargetTable(SCHEMA, name, columns, sets, fires, primary=primary, primary_name=index, across=more)


def _key_index(conn: sqlite3.Connection, name: str) -> str:
    """The unique index that is the key of a table that was made without one."""
    found = conn.execute(
        'SELECT name FROM pragma_index_list(?) WHERE "unique" AND NOT partial AND name = ? COLLATE NOCASE',
        [name, KEY_INDEX + name],
    ).fetchone()
    return found[0] if found else ""


def _column(row: tuple[Any, ...], strict: bool, *, folds: bool) -> TargetColumn:
    name, declared, _, hidden = row
    native = sqlite_type(declared, strict=strict)
    soft = native.family in ("numeric", "real") or folds
    return TargetColumn(
        name, declared + (TYPE_STRICT if strict else ""), generated=hidden in (2, 3), equal="IS", soft=soft
    )


def _unique(
    conn: sqlite3.Connection, name: str, rows: list[tuple[Any, ...]]
) -> tuple[tuple[frozenset[str], ...], bool]:
    """Column sets of unique indexes; whether there are others, over a part of the rows or over expressions."""
    sets, more = [frozenset(row[0] for row in rows if row[2])], False
    for index, partial in conn.execute('SELECT name, partial FROM pragma_index_list(?) WHERE "unique"', [name]):
        columns = [row[0] for row in conn.execute("SELECT name FROM pragma_index_info(?)", [index])]
        if partial or None in columns:
            more = True
        else:
            sets.append(frozenset(columns))
    return tuple(dict.fromkeys(found for found in sets if found)), more


def rowid_alias(conn: sqlite3.Connection, name: str) -> str | None:
    """The INTEGER PRIMARY KEY column, to which NULL would mean the next number."""
    keys = conn.execute("SELECT name, type FROM pragma_table_xinfo(?) WHERE pk", [name]).fetchall()
    if len(keys) == 1 and keys[0][1].upper() == "INTEGER":
        return str(keys[0][0])
    return None


def primary_key(conn: sqlite3.Connection, name: str) -> tuple[str, ...]:
    """The primary key of a WITHOUT ROWID table; empty for a table with a rowid."""
    found = conn.execute(
        "SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = ? COLLATE NOCASE", [name]
    ).fetchone()
    if found is None or not found[0]:
        return ()
    return tuple(row[0] for row in conn.execute("SELECT name FROM pragma_table_info(?) WHERE pk ORDER BY pk", [name]))


def rowid_name(columns: tuple[str, ...]) -> str:
    """A name of the rowid that no column of the table hides."""
    taken = {column.lower() for column in columns}
    return next(name for name in ("rowid", "oid", "_rowid_") if name not in taken)
