"""PostgreSQL's hashes of ranges, as SQL.

A row is hashed as the server sends a record in binary: each value with its length, NULL with a length of its own. Of
the types of _PLAIN equal bytes are equal canonical text. Any other value is in it as the text that its type puts out,
inside a record, so that a NULL is told from a value that is all NULLs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from replicat.reading.hashing import part_number
from replicat.reading.postgres.keys import literal
from replicat.targets.sql.quoting import ident

_PLAIN: Final = {
    16: "boolean", 17: "bytea", 20: "bigint", 21: "bigint", 23: "bigint", 25: "text", 700: "real",
    701: "double precision", 1043: "text", 1082: "date", 1083: "time", 1114: "timestamp", 1184: "timestamptz",
    1700: "numeric", 2950: "uuid",
}  # fmt: skip
"""By the type's number, what is sent. Whole numbers of any length are sent alike, and so are text and varchar."""
_SEEDS: Final = (1, 2)

PROBE: Final = "SELECT hashtextextended(md5(record_send(ROW(1))), 1)"


def sent(types: Mapping[str, int], columns: Sequence[str]) -> list[str]:
    """As what each column is hashed; two ends hash alike where this is the same."""
    return [_PLAIN.get(types[name], "output") for name in columns]


def statement(
    types: Mapping[str, int], columns: Sequence[str], source: str, where: str, below: Sequence[str], secret: str
) -> str:
    """Rows of (part, rows, hashed rows, sum, sum); no row is left unhashed. OFFSET has each MD5 made only once."""
    values = [
        f"ROW({ident(name)})::text" if kind == "output" else f"{ident(name)}::{kind}"
        for name, kind in zip(columns, sent(types, columns), strict=True)
    ]
    made = f"md5(record_send(ROW({literal(secret)}::text, {', '.join(values)})))"
    sums = ", ".join(f"sum(hashtextextended(m, {seed}))::text" for seed in _SEEDS)
    number, grouped = ("n", " GROUP BY n") if below else ("0", "")
    return (
        f"SELECT {number}, count(*), count(*), {sums} FROM "
        f"(SELECT {part_number(below)} AS n, {made} AS m FROM {source} WHERE {where} OFFSET 0) s{grouped}"
    )
