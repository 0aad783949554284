"""The queue in the source file: what ADD TRANDATA puts there, and what UNREGISTER takes away again.

    trailgate_install        one row: the file's random id, the version of all this, who reads
    trailgate_log            one row a change: id (AUTOINCREMENT), table number, op, rows replaced, when
    trailgate_table          the shape that each table number stands for
    trailgate_<n>            the values of the changes of table number n, by the log's id; columns without types
    trailgate_<n>_replaced   rows that are in the way of an insert or update, and those that REPLACE then removed
    trailgate_<n>_...        five triggers on the table itself

Order. SQLite has one writer at a time, and what AUTOINCREMENT counts is part of the transaction. So ids are given in
the order of commits, a rollback leaves no hole, and up to the highest id stand whole transactions (CW-30). The log's
last row is never deleted: by it the next id is found even where a statement failed half way (INSERT OR FAIL) and the
counter in sqlite_sequence was not moved.

REPLACE. It removes the rows in the way of a new one, and unless recursive_triggers is on, it fires no delete trigger
for them. A BEFORE trigger cannot know whether the statement will replace, ignore, update or fail. So it keeps an image
of each row in the way (id NULL). The AFTER trigger, which fires only if the row was written, marks those images with
its id whose rows are gone. An image is thrown away when its row changes, so one that is left over from a statement that
did not replace is true as long as it stands.

A table's number is given anew with each change of its shape, so that the queue never holds two shapes in one table: the
log says where one ends and the next begins (SHAPE, DROPPED).
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from extract.sources.sqlite.link import ident, number, writing
from extract.sources.sqlite.tables import PREFIX, SourceTable, UniqueSet, changed, key_set
from trails.errors import OperatorError
from trails.runtime.home.plain import of as plain_of

VERSION: Final = 1
INSERT, UPDATE, DELETE, REFRESH, SHAPE, DROPPED, BEGUN = 1, 2, 3, 4, 5, 6, 7
"""Ops of the log. REFRESH: the row as it is, after a change of shape. BEGUN: the queue's first row, no change."""

INSTALL, LOG, TABLE = (PREFIX + name for name in ("install", "log", "table"))
NOW: Final = "julianday('now')"
FIRST_DAY, LAST_DAY = 2440587.5, 5373484.5
"""The Julian days of 1970 and of the year 10000."""
TRIGGERS: Final = ("before_insert", "before_update", "insert", "update", "delete")

_TABLES: Final = (
    f"CREATE TABLE {INSTALL} (id TEXT NOT NULL, version INTEGER NOT NULL, reader TEXT NOT NULL)",
    (
        f"CREATE TABLE {LOG} (id INTEGER PRIMARY KEY AUTOINCREMENT, tab INTEGER NOT NULL, op INTEGER NOT NULL, "
        "more INTEGER NOT NULL, at REAL NOT NULL)"
    ),
    (
        f"CREATE TABLE {TABLE} (number INTEGER PRIMARY KEY, name TEXT NOT NULL, shape TEXT NOT NULL, "
        "allcols INTEGER NOT NULL, before INTEGER, rows INTEGER NOT NULL, sql TEXT NOT NULL, state INTEGER NOT NULL)"
    ),
)

ON, OFF, GONE = 1, 0, -1
"""Whether a number's triggers are meant to be there, are not, or the table is dropped."""


@dataclass(frozen=True, slots=True)
class Logged:
    """A table number: the shape that its triggers write. `before`: the number that it follows; `rows`: it had some.

    `sql` is the table's statement, for people; `state` is ON, OFF or GONE.
    """

    number: int
    table: SourceTable
    allcols: bool
    before: int | None
    rows: bool
    sql: str
    state: int = ON

    @property
    def is_on(self) -> bool:
        """Whether its triggers are meant to be there."""
        return self.state == ON


@dataclass(frozen=True, slots=True)
class Install:
    """The row of trailgate_install. `reader`: the home and group that REGISTER EXTRACT noted; empty: none."""

    id: str
    version: int
    reader: str


# --- the file's own tables of ours ----------------------------------------------------------------------------------


def installed(conn: sqlite3.Connection) -> Install | None:
    """What is there; None if nothing is."""
    if not number(conn, "SELECT count(*) FROM sqlite_schema WHERE name = ?", (INSTALL,)):
        return None
    row = conn.execute(f"SELECT id, version, reader FROM {INSTALL}").fetchone()
    if row is None:
        raise OperatorError(
            f"table {INSTALL} of the source is empty", hint="UNREGISTER EXTRACT removes all; then begin anew"
        )
    if row[1] != VERSION:
        raise OperatorError(
            f"the source's queue is of version {row[1]}, expected {VERSION}",
            hint="Run the release that made it, or UNREGISTER EXTRACT, then ADD TRANDATA and REGISTER EXTRACT",
        )
    return Install(*row)


def install(conn: sqlite3.Connection) -> Install:
    """Make the queue where it is not there yet. Inside a transaction."""
    found = installed(conn)
    if found is not None:
        return found
    for statement in _TABLES:
        conn.execute(statement)
    made = Install(secrets.token_hex(16), VERSION, "")
    conn.execute(f"INSERT INTO {INSTALL} VALUES (?, ?, ?)", (made.id, made.version, made.reader))
    conn.execute(f"INSERT INTO {LOG} (tab, op, more, at) VALUES (0, {BEGUN}, 0, {NOW})")
    return made


def uninstall(conn: sqlite3.Connection) -> None:
    """Take triggers and values away. The file's id and the last number stay: a trail of it can go on behind a hole.

    Two numbers are passed over, so that a trail which has everything up to here does not go on as if nothing were
    missed.
    """
    with writing(conn):
        if installed(conn) is None:
            return
        for kind, name in conn.execute(
            "SELECT type, name FROM sqlite_schema WHERE type IN ('trigger', 'table') AND name LIKE ? ESCAPE '\\' "
            "AND name NOT IN (?, ?, ?) ORDER BY type DESC",
            (PREFIX.replace("_", "\\_") + "%", INSTALL, LOG, TABLE),
        ).fetchall():
            conn.execute(f"DROP {kind} {ident(name)}")
        conn.execute(f"DELETE FROM {TABLE}")
        conn.execute(f"UPDATE {INSTALL} SET reader = ''")
        for _ in range(2):
            conn.execute(f"INSERT INTO {LOG} (tab, op, more, at) VALUES (0, {BEGUN}, 0, {NOW})")
        conn.execute(f"DELETE FROM {LOG} WHERE id < ?", (last_id(conn),))


def logged(conn: sqlite3.Connection) -> list[Logged]:
    """The table numbers, in their order."""
    rows = conn.execute(
        f"SELECT number, shape, allcols, before, rows, sql, state FROM {TABLE} ORDER BY number"
    ).fetchall()
    return [_known(*row) for row in rows]


def _known(number: int, shape: str, allcols: int, before: int | None, rows: int, sql: str, state: int) -> Logged:
    table = SourceTable.from_json(shape)
    given = {
        "number": number,
        "allcols": bool(allcols),
        "before": before,
        "rows": bool(rows),
        "sql": sql,
        "state": state,
    }
    try:
        return plain_of(Logged, {**given, "table": table})
    except TypeError as error:
        raise changed(f"has table number {number} with a wrong value ({error})") from None


def log_row(row: tuple[Any, ...]) -> tuple[int, int, int, int]:
    """(id, table number, op, rows replaced) of the log, looked at: SQLite takes any value in any column."""
    change, _, op, _ = row
    if not all(type(value) is int for value in row) or not INSERT <= op <= BEGUN:
        raise changed(f"has change {change} with a wrong value in {LOG}")
    return row


def logged_at(row: tuple[Any, ...] | None, change: int) -> float:
    """When the change was logged, as a Julian day, looked at."""
    at = row[0] if row else None
    if not isinstance(at, int | float) or not FIRST_DAY <= at < LAST_DAY:
        raise changed(f"has change {change} without its time")
    return at


def last_id(conn: sqlite3.Connection) -> int:
    """The queue's highest id."""
    return number(conn, f"SELECT max(id) FROM {LOG}")


# --- the triggers of one table ----------------------------------------------------------------------------------------


def add(
    conn: sqlite3.Connection,
    table: SourceTable,
    *,
    allcols: bool,
    before: Logged | None = None,
    renamed: bool = False,
) -> Logged:
    """Have a table's changes logged from here on, under a new number. Inside a transaction.

    `before`: the number that it follows; its triggers go. `renamed`: they saw every change until now.
    """
    shaped = table.follows(before.table if before else None, renamed=renamed)
    if before is not None:
        remove(conn, before)
    rows = before is None and bool(conn.execute(f"SELECT 1 FROM {ident(table.name)} LIMIT 1").fetchone())
    (sql,) = conn.execute("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?", (table.name,)).fetchone()
    made = number(conn, f"SELECT coalesce(max(number), 0) + 1 FROM {TABLE}")
    conn.execute(
        f"INSERT INTO {TABLE} VALUES (?, ?, ?, ?, ?, ?, ?, 1)",
        (made, table.name, shaped.to_json(), allcols, before.number if before else None, rows, sql),
    )
    for statement in statements(made, shaped, allcols=allcols):
        conn.execute(statement)
    conn.execute(f"INSERT INTO {LOG} (tab, op, more, at) VALUES (?, {SHAPE}, 0, {NOW})", (made,))
    return Logged(made, shaped, allcols, before.number if before else None, rows, sql)


def remove(conn: sqlite3.Connection, one: Logged) -> None:
    """Log a table's changes no more; what is in the queue stays until it was read. Inside a transaction."""
    drop_triggers(conn, one.number)
    conn.execute(f"UPDATE {TABLE} SET state = {OFF} WHERE number = ?", (one.number,))


def dropped(conn: sqlite3.Connection, one: Logged) -> None:
    """Its table is no more. Inside a transaction."""
    conn.execute(f"UPDATE {TABLE} SET state = {GONE} WHERE number = ?", (one.number,))
    conn.execute(f"INSERT INTO {LOG} (tab, op, more, at) VALUES (?, {DROPPED}, 0, {NOW})", (one.number,))


def refresh(conn: sqlite3.Connection, old: Logged, new: Logged, after: int = 0) -> None:
    """Log the rows as they are that `old` has in the queue: it did not see all of their columns. Inside a transaction.

    `after`: only those behind this change; before it the shape was the old one.
    """
    places = [place for place, c in enumerate(old.table.columns) if c.key]
    key = ", ".join(f"t.{ident(new.table.columns[place].name)}" for place in places)
    logged_key = ", ".join(f"c{place + 1}" for place in places)
    columns = ", ".join(f"t.{ident(c.name)}" for c in new.table.columns)
    names = ", ".join(f"c{n}" for n in range(1, len(new.table.columns) + 1))
    first = last_id(conn)
    conn.execute(
        f"INSERT INTO {values_table(new.number)} (id, {names}) "
        f"SELECT ? + row_number() OVER (), {columns} FROM {ident(new.table.name)} AS t "
        f"WHERE ({key}) IN (SELECT {logged_key} FROM {values_table(old.number)} WHERE id > ?)",
        (first, after),
    )
    conn.execute(
        f"INSERT INTO {LOG} (id, tab, op, more, at) SELECT id, ?, {REFRESH}, 0, {NOW} "
        f"FROM {values_table(new.number)} WHERE id > ? ORDER BY id",
        (new.number, first),
    )


def drop_triggers(conn: sqlite3.Connection, table_number: int) -> None:
    """Whichever of a number's triggers are there."""
    for name in TRIGGERS:
        conn.execute(f"DROP TRIGGER IF EXISTS {PREFIX}{table_number}_{name}")


def triggered(conn: sqlite3.Connection) -> dict[int, str]:
    """The table on which all triggers of a number stand now, by number: a table that is renamed takes them along."""
    found: dict[int, list[str]] = {}
    for name, table in conn.execute(
        "SELECT name, tbl_name FROM sqlite_schema WHERE type = 'trigger' AND name LIKE ? ESCAPE '\\'",
        (PREFIX.replace("_", "\\_") + "%",),
    ).fetchall():
        digits, _, kind = name.removeprefix(PREFIX).partition("_")
        if digits.isdecimal() and kind in TRIGGERS:
            found.setdefault(int(digits), []).append(table)
    return {n: tables[0] for n, tables in found.items() if len(tables) == len(TRIGGERS) and len(set(tables)) == 1}


def numbers(conn: sqlite3.Connection) -> list[int]:
    """The table numbers that have their tables still."""
    found = conn.execute(
        f"SELECT substr(name, {len(PREFIX) + 1}) FROM sqlite_schema WHERE type = 'table' AND name GLOB '{PREFIX}[0-9]*'"
    ).fetchall()
    return [int(text) for (text,) in found if text.isdecimal()]


def forget(conn: sqlite3.Connection, tables: Sequence[int], upto: int) -> None:
    """Delete what was read up to an id, but the log's row of that id. Inside a transaction."""
    conn.execute(f"DELETE FROM {LOG} WHERE id < ?", (upto,))
    for n in tables:
        conn.execute(f"DELETE FROM {values_table(n)} WHERE id <= ?", (upto,))
        conn.execute(f"DELETE FROM {replaced_table(n)} WHERE id IS NULL OR id <= ?", (upto,))


def retire(conn: sqlite3.Connection, upto: int) -> None:
    """Drop the tables of numbers that log no more and of which nothing is left to read. Inside a transaction.

    Their shapes stay: what is logged of a table one day follows the last of them.
    """
    there = set(numbers(conn))
    for one in logged(conn):
        left = number(conn, f"SELECT max(id) FROM {LOG} WHERE tab = ? AND id > ?", (one.number, upto))
        if one.number in there and not one.is_on and not left:
            conn.execute(f"DROP TABLE {values_table(one.number)}")
            conn.execute(f"DROP TABLE {replaced_table(one.number)}")


def values_table(table_number: int) -> str:
    """The table with a number's values."""
    return f"{PREFIX}{table_number}"


def replaced_table(table_number: int) -> str:
    """The table with the rows that are in the way, or were."""
    return f"{PREFIX}{table_number}_replaced"


def statements(table_number: int, table: SourceTable, *, allcols: bool) -> list[str]:
    """The tables and triggers of one number."""
    return _Statements(table_number, table, allcols=allcols).all()


class _Statements:
    """SQL for one table. In it `t` is the table, and `c1`... are the columns by place.

    `w` stands for a row in the way: a trigger's UPDATE and DELETE know their table by no other name than its own.
    """

    def __init__(self, table_number: int, table: SourceTable, *, allcols: bool) -> None:
        self._n = table_number
        self._table = table
        self._name = ident(table.name)
        self._values = values_table(table_number)
        self._way = replaced_table(table_number)
        self._place = {c.name: n for n, c in enumerate(table.columns, 1)}
        self._old = list(table.columns) if allcols else list(table.key)
        self._key = key_set(table)

    def all(self) -> list[str]:
        columns = ", ".join(f"c{n}" for n in self._place.values())
        old = "".join(f", o{self._place[c.name]}" for c in self._old)
        indexes = [
            f"CREATE INDEX {PREFIX}{self._n}_way{n} ON {self._way} "
            f"({', '.join(f'c{self._place[name]} COLLATE {how}' for name, how in one.columns)}) WHERE id IS NULL"
            for n, one in enumerate(self._table.unique)
        ]
        return [
            f"CREATE TABLE {self._values} (id INTEGER PRIMARY KEY, {columns}{old})",
            f"CREATE TABLE {self._way} (id, {columns})",
            *indexes,
            f"CREATE INDEX {PREFIX}{self._n}_gone ON {self._way} (id) WHERE id IS NOT NULL",
            self._before_insert(),
            self._before_update(),
            self._after("insert", "NEW", INSERT, self._gone()),
            self._after("update", "NEW", UPDATE, self._gone(), drop=True, old=True),
            self._after("delete", "OLD", DELETE, "", drop=True),
        ]

    # What two rows compare by

    def _same(self, one: UniqueSet, left: str, right: str, equal: str) -> str:
        return " AND ".join(
            f"{self._named(left, name)} COLLATE {how} {equal} {self._named(right, name)}" for name, how in one.columns
        )

    def _named(self, row: str, column: str) -> str:
        return f"{self._way}.c{self._place[column]}" if row == "w" else f"{row}.{ident(column)}"

    def _meets(self, row: str) -> str:
        """Whether a row is in the way of NEW."""
        return " OR ".join(f"({self._same(one, row, 'NEW', '=')})" for one in self._table.unique)

    def _gone(self) -> str:
        """Whether an image of a row in the way is of one that was removed."""
        there = f"EXISTS (SELECT 1 FROM {self._name} AS t WHERE {self._same(self._key, 't', 'w', 'IS')})"
        replaced = self._same(self._key, "w", "NEW", "IS")
        return f"id IS NULL AND ({self._meets('w')}) AND (({replaced}) OR NOT {there})"

    # Triggers

    def _keep_images(self, where: str) -> str:
        columns = ", ".join(f"c{n}" for n in self._place.values())
        values = ", ".join(f"t.{ident(name)}" for name in self._place)
        kept = f"EXISTS (SELECT 1 FROM {self._way} WHERE id IS NULL AND {self._same(self._key, 'w', 't', 'IS')})"
        return (
            f"INSERT INTO {self._way} (id, {columns}) SELECT NULL, {values} FROM {self._name} AS t "
            f"WHERE ({where}) AND NOT {kept};"
        )

    def _before_insert(self) -> str:
        where = self._meets("t")
        return (
            f"CREATE TRIGGER {PREFIX}{self._n}_before_insert BEFORE INSERT ON {self._name} "
            f"WHEN EXISTS (SELECT 1 FROM {self._name} AS t WHERE {where}) BEGIN {self._keep_images(where)} END"
        )

    def _before_update(self) -> str:
        where = f"({self._meets('t')}) AND NOT ({self._same(self._key, 't', 'OLD', 'IS')})"
        names = dict.fromkeys(name for one in self._table.unique for name, _ in one.columns)
        moved = " OR ".join(f"NEW.{ident(name)} IS NOT OLD.{ident(name)}" for name in names)
        return (
            f"CREATE TRIGGER {PREFIX}{self._n}_before_update BEFORE UPDATE ON {self._name} WHEN ({moved}) "
            f"AND EXISTS (SELECT 1 FROM {self._name} AS t WHERE {where}) BEGIN {self._keep_images(where)} END"
        )

    def _after(self, kind: str, row: str, op: int, gone: str, *, drop: bool = False, old: bool = False) -> str:
        forget = f"DELETE FROM {self._way} WHERE id IS NULL AND {self._same(self._key, 'w', 'OLD', 'IS')}; "
        more = f"(SELECT count(*) FROM {self._way} WHERE {gone})" if gone else "0"
        columns = ["id", *(f"c{n}" for n in self._place.values())]
        values = ["last_insert_rowid()", *(f"{row}.{ident(name)}" for name in self._place)]
        if old:
            columns += [f"o{self._place[c.name]}" for c in self._old]
            values += [f"OLD.{ident(c.name)}" for c in self._old]
        mark = f"UPDATE {self._way} SET id = last_insert_rowid() WHERE {gone}; " if gone else ""
        return (
            f"CREATE TRIGGER {PREFIX}{self._n}_{kind} AFTER {kind.upper()} ON {self._name} BEGIN "
            f"{forget if drop else ''}"
            f"INSERT INTO {LOG} (tab, op, more, at) VALUES ({self._n}, {op}, {more}, {NOW}); "
            f"INSERT INTO {self._values} ({', '.join(columns)}) VALUES ({', '.join(values)}); {mark}END"
        )


def mend(table: SourceTable) -> str:
    """What to do about a table that can't be captured."""
    return f"Give it what it lacks, or leave it out: TABLEEXCLUDE {table.full_name};"
