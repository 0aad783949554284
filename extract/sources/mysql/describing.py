"""`describe_tables`: tables of MySQL and MariaDB as they are now, by shape, definition, indexes and foreign keys.

Rule: a shape is what the grammar makes of SHOW CREATE TABLE, as for the rows of the log (ddl/asking.py). Indexes and
foreign keys are asked of information_schema, which says what is a prefix, an expression or no tree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from extract.source import Reply
from extract.sources.mysql import server
from extract.sources.mysql.ddl.asking import ask_server, ask_tables
from extract.sources.mysql.ddl.known import KnownTable
from extract.sources.mysql.ddl.syntax import PRIMARY
from extract.sources.mysql.link import MysqlSession
from extract.sources.mysql.tables import captured
from trails.ddl import TableShape
from trails.described import DescribedTable, ForeignKey, Index
from trails.record import TableDef

_ROWS: Final = f"""
SELECT table_schema, table_name, COALESCE(table_rows, 0) FROM information_schema.tables
WHERE table_schema NOT IN {server.IS_SYSTEM}
"""
_INDEXES: Final = f"""
SELECT table_schema, table_name, index_name, column_name, non_unique, index_type, sub_part
FROM information_schema.statistics WHERE table_schema NOT IN {server.IS_SYSTEM} AND index_name <> '{PRIMARY}'
ORDER BY table_schema, table_name, index_name, seq_in_index
"""
_KEYS: Final = f"""
SELECT table_schema, table_name, constraint_name, column_name, referenced_table_schema, referenced_table_name,
    referenced_column_name
FROM information_schema.key_column_usage
WHERE table_schema NOT IN {server.IS_SYSTEM} AND referenced_table_name IS NOT NULL
ORDER BY table_schema, table_name, constraint_name, ordinal_position
"""
_CHECKS: Final = f"""
SELECT table_schema, table_name, constraint_name FROM information_schema.table_constraints
WHERE table_schema NOT IN {server.IS_SYSTEM} AND constraint_type = 'CHECK' ORDER BY 1, 2, 3
"""
_TREE: Final = "BTREE"
_NO_TRANSACTIONS: Final = "its engine has no transactions, so no snapshot of it is of one moment"

Row = Sequence[str | None]
Name = tuple[str, str]


def described(session: MysqlSession, wants: Callable[[str, str], bool]) -> Reply:
    """The tables that `wants` takes."""
    asked = ask_server(session, session.flavour, server.identity(session))
    known = ask_tables(session, asked, wants).tables
    seen = {(table.schema, table.name): table for table in captured(session, wants)}
    rows = {(str(schema), str(name)): int(count or 0) for schema, name, count in session.query(_ROWS)}
    indexes, keys, checks = (_by_table(session.query(sql)) for sql in (_INDEXES, _KEYS, _CHECKS))
    found = []
    for place, table in seen.items():
        entry = known.get(asked.key(*place))
        if entry is None:
            continue  # dropped since
        if not isinstance(entry, KnownTable):
            shape, definition = TableShape(*place, ()), TableDef(*place, ())
            found.append(DescribedTable(shape, definition, unfit=f"its shape is not understood: {entry}"))
            continue
        parts, left = _indexes(indexes[place], entry.shape)
        left += [f"check constraint {row[2]}" for row in checks[place]]
        unfit = "" if table.transactional else _NO_TRANSACTIONS
        made = DescribedTable(
            entry.shape, entry.definition, rows.get(place, 0), parts, _keys(keys[place]), tuple(left), unfit
        )
        found.append(replace(made, unfit="this user may not read all of its columns") if table.hidden else made)
    return {"tables": [one.to_wire() for one in found]}


def _by_table(rows: Iterable[Row]) -> defaultdict[Name, list[Row]]:
    found: defaultdict[Name, list[Row]] = defaultdict(list)
    for row in rows:
        found[str(row[0]), str(row[1])].append(row)
    return found


def _grouped(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """By the name in the third place."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(str(row[2]), []).append(row)
    return found


def _indexes(rows: Sequence[Row], shape: TableShape) -> tuple[tuple[Index, ...], list[str]]:
    """Those that are whole columns in order; and the names of the others. What serves as the key is the shape's."""
    made, left = [], []
    for name, parts in _grouped(rows).items():
        columns = tuple(str(part[3]) for part in parts)
        unique = str(parts[0][4]) == "0"
        if any(part[3] is None or part[6] is not None or part[5] != _TREE for part in parts):
            left.append(f"index {name}")
        elif not unique or columns != shape.key:
            made.append(Index(name, columns, unique))
    return tuple(made), left


def _keys(rows: Sequence[Row]) -> tuple[ForeignKey, ...]:
    return tuple(
        ForeignKey(
            name, tuple(str(p[3]) for p in parts), str(parts[0][4]), str(parts[0][5]), tuple(str(p[6]) for p in parts)
        )
        for name, parts in _grouped(rows).items()
    )
