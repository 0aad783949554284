"""Hashes of ranges by MySQL and MariaDB, as SQL.

A row is hashed as its values in quotes, one behind the other: QUOTE escapes what would end a value, and NULL has no
quotes. Text is converted, so that its character set does not count; bytes, bits and shapes are hexadecimal digits, for
which nothing has to be escaped.

Rule: what the server makes NULL as it is too long (max_allowed_packet) must not look like a NULL of the row. So NULL is
asked of the column itself, and CONCAT, unlike CONCAT_WS, becomes NULL with any of its parts, which the count tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from replicat.reading.hashing import part_number
from replicat.reading.mysql.keys import selected
from replicat.targets.sql.quoting import ident
from trails.record import Column

HASHING: Final = "mysql"
_DIGITS: Final = ("bytes", "bits", "geometry")
_FLOATS: Final = ("real", "double")
_HALVES: Final = ("LEFT", "RIGHT")


def _hashed(column: Column) -> str:
    name = ident(column.name)
    if column.type in _DIGITS:
        made = f"HEX({name})"
    elif column.type in _FLOATS:
        made = f"QUOTE({selected(column)})"
    else:
        made = f"QUOTE(CONVERT({name} USING utf8mb4))"
    return f"IF({name} IS NULL, 'n', {made})"


def statement(columns: Sequence[Column], table: str, where: str, below: Sequence[str], secret: str) -> str:
    """Rows of (part, rows, hashed rows, sum, sum). LIMIT keeps the server from making each MD5 more than once."""
    row = ", ',', ".join(_hashed(column) for column in columns)
    sums = ", ".join(f"SUM(CAST(CONV({half}(m, 16), 16, 10) AS UNSIGNED))" for half in _HALVES)
    return (
        f"SELECT n, COUNT(*), COUNT(m), {sums} FROM (SELECT {part_number(below)} AS n, "
        f"MD5(CONCAT('{secret},', {row})) AS m FROM {table} WHERE {where} LIMIT 18446744073709551615) s GROUP BY n"
    )
