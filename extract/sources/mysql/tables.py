"""The tables of a server as they are today: what ADD TRANDATA, LIST TABLES and the checks must know of them.

Rule: nothing here describes a row of the log. Rows are described by what stands before them in the log (tablemap.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from extract.sources.mysql.link import MysqlSession
from extract.sources.mysql.server import IS_SYSTEM

_NAMES: Final = f"""
SELECT table_schema, table_name, engine FROM information_schema.tables
WHERE table_type = 'BASE TABLE' AND table_schema NOT IN {IS_SYSTEM} ORDER BY 1, 2
"""
_COLUMNS: Final = f"""
SELECT table_schema, table_name, column_name, column_key, column_type, privileges FROM information_schema.columns
WHERE table_schema NOT IN {IS_SYSTEM} ORDER BY table_schema, table_name, ordinal_position
"""
_ENGINES: Final = "SELECT engine FROM information_schema.engines WHERE transactions = 'YES'"
_OLD: Final = "/* mariadb-5.3 */"


@dataclass(frozen=True, slots=True)
class ServerTable:
    """A table as it is today.

    `key`: the columns of its primary key. `old_times`: those that MariaDB keeps in its old form with fractions of a
    second. `hidden`: this user may not see its columns.
    """

    schema: str
    name: str
    transactional: bool = True
    columns: list[str] = field(default_factory=list)
    key: list[str] = field(default_factory=list)
    old_times: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)

    @property
    def full_name(self) -> str:
        """Its name for people."""
        return f"{self.schema}.{self.name}"

    @property
    def hidden(self) -> bool:
        """Whether this user may not read it, or not all of it."""
        return not self.columns or bool(self.unseen)


def names(session: MysqlSession) -> list[tuple[str, str]]:
    """Schema and name of every table that could be captured."""
    return [(str(schema), str(name)) for schema, name, _ in session.query(_NAMES)]


def captured(session: MysqlSession, wants: Callable[[str, str], bool]) -> list[ServerTable]:
    """Those that a rule takes, with their columns."""
    safe = {str(engine) for (engine,) in session.query(_ENGINES)}
    found = {
        (str(schema), str(name)): ServerTable(str(schema), str(name), str(engine) in safe)
        for schema, name, engine in session.query(_NAMES)
        if wants(str(schema), str(name))
    }
    for schema, name, column, key, kind, privileges in session.query(_COLUMNS) if found else ():
        table = found.get((str(schema), str(name)))
        if table is not None:
            _add(table, str(column), str(key), str(kind), str(privileges))
    return list(found.values())


def _add(table: ServerTable, column: str, key: str, kind: str, privileges: str) -> None:
    table.columns.append(column)
    if key == "PRI":
        table.key.append(column)
    if _OLD in kind and "(" in kind.partition("/*")[0]:
        table.old_times.append(column)
    if "select" not in privileges.lower():
        table.unseen.append(column)
