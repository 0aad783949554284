"""Column types of tables that Replicat itself makes in SQLite and MySQL: by the source's logical and native type.

Rule: a column gets the type that takes every value of the source's exactly (replicat/targets/types.py has the rules by
which values arrive in it); where there is none, text. PostgreSQL takes the source's own type as it is.
"""

from __future__ import annotations

import re

from trails.ddl import DdlColumn

_ARGUMENTS = re.compile(r"\(([0-9, -]+)\)")
# InnoDB's longest key, in characters of four bytes; a key of several columns shares it.
_KEY_CHARACTERS = 768
_KEY_BYTES = 3072
# A row's columns share 65,535 bytes, large objects apart.
_LONGEST_VARCHAR = 1000
_DIGITS, _SCALE = 65, 30

_SQLITE = {
    "smallint": "INTEGER", "integer": "INTEGER", "bigint": "INTEGER", "boolean": "BOOLEAN", "real": "REAL",
    "double": "REAL", "bytes": "BLOB",
}  # fmt: skip
_MYSQL = {
    "smallint": "smallint", "integer": "int", "bigint": "bigint", "boolean": "tinyint(1)", "real": "float",
    "double": "double", "date": "date", "time": "time(6)", "timestamp": "datetime(6)", "timestamptz": "datetime(6)",
    "uuid": "char(36)", "bytes": "longblob",
}  # fmt: skip


def column_type(kind: str, column: DdlColumn, keys: int = 0) -> str:
    """The type for a column; `keys`: of how many columns the key is that it belongs to, 0 for a column of none."""
    if kind == "postgresql":
        return column.native
    if kind == "sqlite":
        return _SQLITE.get(column.type, "TEXT")
    return _mysql(column, keys)


def _mysql(column: DdlColumn, keys: int) -> str:
    if column.type == "bytes" and keys:
        return f"varbinary({_KEY_BYTES // keys})"
    if column.type in _MYSQL:
        return _MYSQL[column.type]
    numbers = _numbers(column.native)
    if column.type == "decimal" and numbers:
        precision, scale = numbers[0], numbers[1] if len(numbers) > 1 else 0
        if precision <= _DIGITS and 0 <= scale <= min(_SCALE, precision):
            return f"decimal({precision},{scale})"
    longest = _KEY_CHARACTERS // keys if keys else _LONGEST_VARCHAR
    if numbers and column.type in ("char", "text") and numbers[0] <= longest:
        # Padding is part of a char(n) value here, and MySQL's own char would lose it.
        return f"varchar({numbers[0]})"
    return f"varchar({longest})" if keys else "longtext"


def _numbers(native: str) -> list[int]:
    found = _ARGUMENTS.search(native)
    return [int(number) for number in found[1].split(",")] if found else []
