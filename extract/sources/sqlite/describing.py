"""`describe_tables`: tables of an SQLite file as they are now, by shape, definition, indexes and foreign keys.

Rule: numbers of columns are those that the queue gave them, where the table is captured already. A column for which
TABLE says ANY has another type in the trail: only the parameter file of its Extract knows that.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from extract.source import Reply
from extract.sources.sqlite import queue
from extract.sources.sqlite.link import SCHEMA, ident
from extract.sources.sqlite.tables import SourceTable, describe
from trails.described import DescribedTable, ForeignKey, Index


def described(conn: sqlite3.Connection, names: Iterable[str]) -> Reply:
    """These tables."""
    logged = queue.logged(conn) if queue.installed(conn) else []
    known = {one.table.name: one.table for one in logged if one.is_on}
    found = [_described(conn, table, known) for name in names if (table := describe(conn, name)) is not None]
    return {"tables": [one.to_wire() for one in found]}


def _described(conn: sqlite3.Connection, table: SourceTable, known: Mapping[str, SourceTable]) -> DescribedTable:
    shaped = table.follows(known.get(table.name), renamed=True)
    indexes, left = _indexes(conn, shaped)
    return DescribedTable(
        shaped.shape(), shaped.definition(), _rows(conn, table.name), indexes, _keys(conn, table.name), left,
        table.unfit,
    )  # fmt: skip


def _rows(conn: sqlite3.Connection, name: str) -> int:
    """About so many: as ANALYZE counted them, or else by the rowids in use; only a table without these is counted."""
    if conn.execute("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_stat1'").fetchone():
        rows = conn.execute("SELECT stat FROM sqlite_stat1 WHERE tbl = ? AND stat <> ''", [name]).fetchall()
        counted = [int(first) for (stat,) in rows if (first := str(stat).split()[0]).isdecimal()]
        if counted:
            return max(counted)
    (bare,) = conn.execute("SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = ?", [name]).fetchone()
    what = "count(*)" if bare else "coalesce(max(_rowid_) - min(_rowid_) + 1, 0)"
    found = conn.execute(f"SELECT {what} FROM {ident(name)}").fetchone()
    return max(0, int(found[0]))


def _indexes(conn: sqlite3.Connection, table: SourceTable) -> tuple[tuple[Index, ...], tuple[str, ...]]:
    """Those over whole columns in the order of their bytes; and the names of the others."""
    made, left = [], []
    rows: list[Any] = conn.execute(
        "SELECT name, \"unique\", partial FROM pragma_index_list(?) WHERE origin <> 'pk' ORDER BY name", [table.name]
    ).fetchall()
    for name, unique, partial in rows:
        parts = conn.execute("SELECT name, coll FROM pragma_index_xinfo(?) WHERE key ORDER BY seqno", [name]).fetchall()
        if partial or any(column is None or how.upper() != "BINARY" for column, how in parts):
            left.append(f"index {name}")
        else:
            columns = tuple(column for column, _ in parts)
            made.append(Index(_own_name(table.name, name, columns), columns, bool(unique)))
    return tuple(made), tuple(left)


def _own_name(table: str, name: str, columns: tuple[str, ...]) -> str:
    """An index of a constraint has a name that nobody may give."""
    return "_".join((table, *columns)) if name.lower().startswith("sqlite_") else name


def _keys(conn: sqlite3.Connection, name: str) -> tuple[ForeignKey, ...]:
    """They have no names in the file: they are numbered. A key that names no columns means the other table's key."""
    found: dict[int, list[tuple[str, str, str | None]]] = {}
    for number, other, column, theirs in conn.execute(
        'SELECT id, "table", "from", "to" FROM pragma_foreign_key_list(?) ORDER BY id, seq', [name]
    ):
        found.setdefault(number, []).append((other, column, theirs))
    made = []
    for number, parts in sorted(found.items()):
        other = describe(conn, parts[0][0])
        key = tuple(column.name for column in other.key) if other else ()
        named = tuple(theirs for _, _, theirs in parts if theirs is not None)
        others = named if len(named) == len(parts) else key
        if other is not None and len(others) == len(parts):
            made.append(ForeignKey(f"fk_{number}", tuple(c for _, c, _ in parts), SCHEMA, other.name, others))
    return tuple(made)
