"""A table of an SQLite file without the key that it was made with: SQLite has no statement for it.

Rule: the table is made anew inside the target's transaction, by SQLite's own procedure for such changes, and only where
all of it is known: plain columns with their types, NOT NULL and defaults. Anything else refuses it, and nothing is done
then. A key that comes in its place is a unique index (ddl.py), as in a table that had none.

    state                      statements that lead to the next one
    old                        CREATE TABLE new, under a free name
    old, new empty             INSERT INTO new SELECT FROM old, with the rowids
    old, new full              DROP TABLE old: its indexes and triggers go too; views stay, as text
    new                        ALTER TABLE new RENAME TO old, in the old manner, which reads no view
    renamed, bare              CREATE INDEX and CREATE TRIGGER as the schema had them
    done

The rows, the checkpoint row and all of this are one transaction. A crash at any state leaves the old table when the
file is opened again; an error leaves it by the savepoint of SqliteTarget.ddl(). Foreign keys are off in our session,
so DROP TABLE deletes no row of another table.
"""

from __future__ import annotations

import re
import sqlite3
from typing import Any

from replicat.model.target import RefusedError
from replicat.targets.sql.quoting import ident
from replicat.targets.sqlite.link import rowid_name

OLD_MANNER = "PRAGMA legacy_alter_table = "
"""The session's setting while a table is renamed; no transaction holds it, so whoever sets it sets it back."""

_DROP_KEY = re.compile(r'ALTER TABLE "main"\."((?:[^"]|"")+)" DROP PRIMARY KEY')
_QUOTED = re.compile(
    r"""--[^\n]*|/\*.*?(?:\*/|\Z)|'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]""", re.DOTALL
)
_TYPE = re.compile(r"[A-Za-z0-9_ ]*(?:\([-+A-Za-z0-9_., ]*\))?\Z", re.ASCII)
_UNKNOWN = frozenset({
    "CHECK", "UNIQUE", "REFERENCES", "FOREIGN", "COLLATE", "GENERATED", "AS", "AUTOINCREMENT", "CONFLICT", "WITHOUT",
    "STRICT",
})  # fmt: skip
_CLAUSES = frozenset({"CONSTRAINT", "PRIMARY", "NOT", "NULL", "DEFAULT"})


def drops_key(statement: str) -> str | None:
    """The table whose key the statement drops, a statement that other databases have; None for any other."""
    found = _DROP_KEY.fullmatch(statement)
    return found[1].replace('""', '"') if found else None


def drop_key(conn: sqlite3.Connection, table: str) -> None:
    """Make the table anew without its key; RefusedError, with nothing done, if something of it can't be carried."""
    found = conn.execute(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name = ? COLLATE NOCASE", [table]
    ).fetchone()
    name, made = found or (table, "")
    columns = conn.execute('SELECT name, type, "notnull", dflt_value, hidden FROM pragma_table_xinfo(?)', [name])
    rows = columns.fetchall()
    if reason := _hindered(conn, name, made, rows):
        raise RefusedError(table, f"it has {reason}, so it can't be made anew without its key")
    hanging = conn.execute(
        "SELECT sql FROM sqlite_schema WHERE type IN ('index', 'trigger') AND tbl_name = ? COLLATE NOCASE"
        " AND sql IS NOT NULL ORDER BY type, rowid",
        [name],
    ).fetchall()
    new = _free(conn, name)
    names = ", ".join([rowid_name(tuple(row[0] for row in rows)), *(ident(row[0]) for row in rows)])
    for each in (
        f"CREATE TABLE main.{ident(new)} ({', '.join(map(_column, rows))})",
        f"INSERT INTO main.{ident(new)} ({names}) SELECT {names} FROM main.{ident(name)}",
        f"DROP TABLE main.{ident(name)}",
        f"{OLD_MANNER}ON",
        f"ALTER TABLE main.{ident(new)} RENAME TO {ident(name)}",
        f"{OLD_MANNER}OFF",
        *(sql for (sql,) in hanging),
    ):
        conn.execute(each)


def _hindered(conn: sqlite3.Connection, name: str, made: str, rows: list[tuple[Any, ...]]) -> str:
    """What of the table is not known for sure; empty if all is."""
    if not made or not rows:
        return "no definition"
    if others := sorted(_words(made) & _UNKNOWN):
        return f"a clause {others[0]}"
    for column, declared, _, _, hidden in rows:
        if hidden or not _TYPE.match(declared) or _words(declared) & (_UNKNOWN | _CLAUSES):
            return f"column {column}, which is no plain one"
    if {"rowid", "oid", "_rowid_"} <= {row[0].lower() for row in rows}:
        return "columns by all names of the rowid"
    child = conn.execute(
        "SELECT s.name FROM sqlite_schema AS s, pragma_foreign_key_list(s.name) AS f"
        """ WHERE s.type = 'table' AND f."table" = ? COLLATE NOCASE""",
        [name],
    ).fetchone()
    return f"a foreign key of table {child[0]} to it" if child else ""


def _words(sql: str) -> set[str]:
    """Its bare words: keywords are never quoted."""
    return set(re.findall(r"\w+", _QUOTED.sub(" ", sql).upper()))


def _column(row: tuple[Any, ...]) -> str:
    name, declared, not_null, default, _ = row
    null = " NOT NULL" if not_null else ""
    return f"{ident(name)} {declared}{null}" + (f" DEFAULT ({default})" if default is not None else "")


def _free(conn: sqlite3.Connection, name: str) -> str:
    """A name that nothing has."""
    taken = {found.lower() for (found,) in conn.execute("SELECT name FROM sqlite_schema")}
    new = f"tg_anew_{name}"
    while new.lower() in taken:
        new += "_"
    return new
