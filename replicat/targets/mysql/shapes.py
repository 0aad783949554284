"""Tables of MySQL and MariaDB as Replicat sees them: columns, unique keys, what would fire by itself.

Rule: read from information_schema, each name compared as the server compares it (lower_case_table_names).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from replicat.model.target import TargetColumn, TargetTable
from trails.errors import OperatorError
from trails.record import TableId

Query = Callable[[str, Sequence[object]], list[tuple[Any, ...]]]

_GRANT = re.compile(r"GRANT (.+?) ON (\S+) TO ")
_EVERYTHING = re.compile(r"\b(SUPER|ALL PRIVILEGES)\b")

_STAGE = re.compile(r"tg_[a-z]\d+\Z", re.IGNORECASE)
"""What staging tables are called (replicat/targets/sql/staged_sql.py)."""

AUTO = "auto_increment"
PRIMARY = "PRIMARY"
"""What the server calls every primary key."""
NOT_NULL = "NOT NULL"
"""Stand behind a column's type where NULL would be another value, or may be."""
_EXACT_TEXT = ("_nopad_bin", "_0900_bin")
"""Collations under which only equal characters are equal; all others fold case, accents or blanks at the end."""
_SOFT_TYPES = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "decimal", "float", "double", "binary")


def tables_of(query: Query, places: Iterable[TableId], *, folds: bool) -> dict[TableId, TargetTable]:
    """The shapes of those tables that exist (a view does not); `folds`: the server ignores case in table names."""
    schemas: dict[str, dict[str, TableId]] = {}
    for schema, name in places:
        fold = str.lower if folds else str
        schemas.setdefault(fold(schema), {})[fold(name)] = (schema, name)
    found = {}
    for schema, names in schemas.items():
        found.update(_tables_in(query, schema, names, folds=folds))
    return found


def _tables_in(query: Query, schema: str, names: dict[str, TableId], *, folds: bool) -> dict[TableId, TargetTable]:
    """One schema's; rows of all its named tables come by one query a kind."""
    marks, values = ", ".join(["%s"] * len(names)), [schema, *names]

    def rows(statement: str) -> dict[str, list[tuple[Any, ...]]]:
        by_table: dict[str, list[tuple[Any, ...]]] = {}
        for name, *rest in query(statement.format(marks=marks), values):
            by_table.setdefault(name.lower() if folds else name, []).append(tuple(rest))
        return by_table

    blind = _blind_to_triggers(query, schema)
    tables, columns, unique, triggers = rows(_TABLES), rows(_COLUMNS), rows(_UNIQUE), rows(_TRIGGERS)
    return {
        place: _table(place, tables[name], columns.get(name, []), unique.get(name, []), triggers.get(name, []) or blind)
        for name, place in names.items()
        if name in tables and tables[name][0][0] in ("BASE TABLE", "SYSTEM VERSIONED")
    }


def check_engine(query: Query, table: TableId) -> None:
    """Refuse a checkpoint table that would not take part in a transaction."""
    engine = query(_ENGINE, table)
    if engine and str(engine[0][0]).lower() != "innodb":
        name = ".".join(table)
        raise OperatorError(
            f"checkpoint table {name} is of engine {engine[0][0]}: it has no transactions",
            hint=f"ALTER TABLE {name} ENGINE = InnoDB",
        )


_Rows = Sequence[tuple[Any, ...]]


def _blind_to_triggers(query: Query, schema: str) -> list[tuple[Any, ...]]:
    """What stands for triggers where this user would not be shown any: that needs a privilege of its own."""
    for grant, *_ in query("SHOW GRANTS", ()):
        found = _GRANT.match(grant)
        if found is None or not re.search(r"\b(TRIGGER|ALL PRIVILEGES)\b", found[1]):
            continue
        scope = found[2].replace('"', "").replace("`", "").removesuffix(".*").replace("\\", "")
        pattern = re.escape(scope).replace("%", ".*").replace("_", ".")
        if scope == "*" or re.fullmatch(pattern, schema, re.IGNORECASE):
            return []
    return [(f"(if there is any: this user is shown none without GRANT TRIGGER ON {schema}.*)",)]


def may_do_anything(query: Query) -> bool:
    """Whether this user has the whole server."""
    for grant, *_ in query("SHOW GRANTS", ()):
        found = _GRANT.match(grant)
        if found and found[2].replace('"', "").replace("`", "") == "*.*" and _EVERYTHING.search(found[1]):
            return True
    return False


def _table(place: TableId, table: _Rows, columns: _Rows, indexes: _Rows, triggers: _Rows) -> TargetTable:
    schema, name = place
    if _STAGE.match(name):
        raise OperatorError(
            f"target table {schema}.{name} has the name of a staging table: a temporary table would hide it",
            hint=f"RENAME TABLE {schema}.{name} to something that does not begin with tg_, and MAP to that",
        )
    engine = table[0][1]
    if str(engine).lower() != "innodb":
        raise OperatorError(
            f"target table {schema}.{name} is of engine {engine}: it has no transactions, so its rows could be applied "
            "twice or in part",
            hint=f"ALTER TABLE {schema}.{name} ENGINE = InnoDB",
        )
    unique: dict[str, set[str]] = {}
    partial = set()
    for index, column, part in indexes:
        unique.setdefault(index, set()).add(column or "")
        if part is not None or not column:  # a prefix, or an expression: not the column itself
            partial.add(index)
    sets = tuple(frozenset(names) for index, names in unique.items() if index not in partial)
    fires = tuple(f"trigger {row[0]}" for row in triggers)
    primary = tuple(column for index, column, _ in indexes if index == PRIMARY)
    return TargetTable(
        schema, name, tuple(_column(row) for row in columns), sets, fires, primary=primary, primary_name=PRIMARY,
        across=bool(partial),
    )  # fmt: skip


def _column(row: tuple[Any, ...]) -> TargetColumn:
    name, kind, charset, collation, extra, data_type, virtual, nullable = row
    text = str(kind)
    if charset:
        text += f" CHARACTER SET {charset} COLLATE {collation}"
    if data_type == "timestamp" and nullable == "NO":
        text += f" {NOT_NULL}"  # older servers make the present time of a NULL
    if AUTO in extra.lower():
        text += f" {AUTO}"
    return TargetColumn(
        str(name), text, generated="GENERATED" in extra.upper() or bool(virtual), equal="<=>",
        soft=data_type in _SOFT_TYPES and not str(collation or "").endswith(_EXACT_TEXT),
    )  # fmt: skip


def stage_type(column_type: str) -> str:
    """A column's type as a staging table has it: nothing happens by itself there, and NULL is allowed."""
    return column_type.removesuffix(f" {AUTO}").removesuffix(f" {NOT_NULL}") + " NULL"


_ENGINE = "SELECT engine FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
_TABLES = """
SELECT table_name, table_type, engine FROM information_schema.tables
WHERE table_schema = %s AND table_name IN ({marks})
"""
_COLUMNS = """
SELECT table_name, column_name, column_type, character_set_name, collation_name, extra, data_type,
generation_expression, is_nullable
FROM information_schema.columns WHERE table_schema = %s AND table_name IN ({marks})
ORDER BY table_name, ordinal_position
"""
_UNIQUE = """
SELECT table_name, index_name, column_name, sub_part FROM information_schema.statistics
WHERE table_schema = %s AND table_name IN ({marks}) AND non_unique = 0
ORDER BY index_name, seq_in_index
"""
_TRIGGERS = """
SELECT event_object_table, trigger_name FROM information_schema.triggers
WHERE event_object_schema = %s AND event_object_table IN ({marks})
"""
