"""An SQLite file read in chunks: canonical text as extract/sources/sqlite/values.py makes it, and the same refusals.

What a snapshot sees. The trail's transactions are ticks, each named by the last row of the queue that it has. The
queue's last row inside the read transaction names the tick up to which the transaction sees all; a later one may begin
before that row.

Ranges. Integers, text by its bytes and blobs sort in the file as they do in Python. Of any other column the canonical
text is compared, which a function of ours makes: then each range scans the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from replicat.model.loading import BYTES, INT
from replicat.reading.contract import (
    MOST_SCANS,
    WHOLE,
    KeyBounds,
    OtherShapeError,
    Range,
    Snapshot,
    ascending,
    no_columns,
)
from replicat.reading.hashing import Hashes
from replicat.targets.sql.quoting import ident
from replicat.targets.sqlite.link import connect, mapped
from trails.controlflow import ControlFlowError
from trails.errors import OperatorError
from trails.floats import double_text
from trails.position import Position
from trails.record import Image, TableDef, Value

KIND: Final = "sqlite"
_CLASSES: Final = {int: "integer", float: "real", str: "text", bytes: "blob", type(None): "null"}
_EXPECTED: Final = {"bigint": "integer", "double": "real", "decimal": "integer or real", "bytes": "blob"}
_CANONICAL: Final = "trailgate_canonical"


class UnfitClassError(ControlFlowError):
    """The value's storage class is none that the column's type takes."""


def _decimal(value: Any) -> str:
    if type(value) is int:
        return str(value)
    text = double_text(value)
    return f"{Decimal(text):f}" if "e" in text else text


def _literal(value: Any) -> str:
    if type(value) is int:
        return str(value)
    if type(value) is float:
        made = double_text(value)
        return made if not made.lstrip("-").isdigit() else made + ".0"
    if type(value) is bytes:
        return f"x'{value.hex()}'"
    return "'" + str(value).replace("'", "''") + "'"


_TAKES: Final[dict[str, tuple[tuple[type, ...], Callable[[Any], Value]]]] = {
    "bigint": ((int,), str),
    "double": ((float,), double_text),
    "decimal": ((int, float), _decimal),
    "text": ((str,), lambda value: value),
    "bytes": ((bytes,), lambda value: value),
    "any": ((int, float, str, bytes), _literal),
}
"""By logical type: the storage classes, and how a value of them is written."""
_ORDERS: Final = {"bigint": INT, "text": BYTES, "bytes": BYTES}
"""Logical types that sort in the file as they do in Python."""


def canonical(kind: str, value: Any) -> Value:
    """A value as the trail has it. Raises UnfitClassError."""
    if value is None:
        return None
    classes, written = _TAKES[kind]
    if type(value) not in classes:
        raise UnfitClassError
    return written(value)


@dataclass(frozen=True)
class ReadKey:
    """A table's key. `compared`: each column as ranges compare it; `indexed`: of so many columns an index finds one."""

    compared: tuple[str, ...]
    orders: tuple[str, ...]
    indexed: int


class SqliteReader:
    """One connection; replicat.reading.contract.Reader says what each method does."""

    def __init__(self, url: str, home: str = "") -> None:
        self._conn = connect(url, home, create=False, side="source")
        # Text may be no UTF-8; its bytes are kept.
        self._conn.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        with mapped("source"):
            self._conn.create_function(_CANONICAL, 2, _canonical_bytes, deterministic=True)

    def identity(self) -> dict[str, str]:
        with mapped("source"):
            self._has_queue()
            (made,) = self._conn.execute("SELECT id FROM trailgate_install").fetchone()
        return {"kind": KIND, "system": made}

    def _has_queue(self) -> None:
        if not self._conn.execute("SELECT 1 FROM sqlite_schema WHERE name = 'trailgate_install'").fetchone():
            raise OperatorError("the source file has no queue", hint="DBLOGIN, then REGISTER EXTRACT")

    # --- chunks -----------------------------------------------------------------------------------------------------

    def bound_waits(self, seconds: float) -> None:
        with mapped("source"):
            self._conn.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")

    def bounds(self, table: TableDef, rows: int) -> KeyBounds:
        with mapped("source"):
            key = self._key(table)
            name = ident(table.name)
            (estimate,) = self._conn.execute(f"SELECT count(*) FROM {name}").fetchone()
            count = max(1, key.indexed)
            if not key.indexed:
                rows = max(rows, -(-estimate // MOST_SCANS))
            columns = [table.columns[i] for i in table.key[:count]]
            if not columns or estimate <= rows:
                return KeyBounds(estimate=estimate)
            found = self._conn.execute(
                f"SELECT {', '.join(f'k{n}' for n in range(count))} FROM (SELECT "
                f"{', '.join(f'{ident(c.name)} AS k{n}' for n, c in enumerate(columns))}, "
                f"row_number() OVER (ORDER BY {', '.join(key.compared[:count])}) - 1 AS n FROM {name}) "
                "WHERE n > 0 AND n % ? = 0",
                [max(1, rows)],
            ).fetchall()
        try:
            lows = [tuple(_text(canonical(c.type, value)) for c, value in zip(columns, row, strict=True))
                    for row in found]  # fmt: skip
        except UnfitClassError:
            return KeyBounds(estimate=estimate)  # whoever reads the row refuses it, by its name
        return KeyBounds(key.orders[:count], ascending(key.orders[:count], lows), estimate)

    def splits(self, _table: TableDef, _part: Range, _rows: int) -> tuple[tuple[str, ...], ...]:
        return ()

    def hashing(self, _table: TableDef, _columns: Sequence[str]) -> str:
        return ""

    def hashes(
        self, _table: TableDef, _columns: Sequence[str], _part: Range, lows: Sequence[tuple[str, ...]], _secret: str
    ) -> Hashes:
        """A file has no server: who reads it hashes here what he could compare here."""
        return [None] * (len(lows) + 1)

    def _key(self, table: TableDef) -> ReadKey:
        there = {
            name: (place, declared)
            for place, name, declared in self._conn.execute(
                "SELECT cid, name, type FROM pragma_table_xinfo(?) WHERE hidden <> 1", [table.name]
            )
        }
        if not there:
            raise OperatorError(f"the source file has no table {table.full_name}", hint="Mend SOURCEDB, or the MAP")
        if missing := [c.name for c in table.columns if c.type != "token" and c.name not in there]:
            raise no_columns(table, missing)
        columns = [table.columns[i] for i in table.key]
        orders = tuple(_ORDERS.get(c.type, BYTES) for c in columns)
        compared = tuple(
            f"{ident(c.name)}{' COLLATE BINARY' if c.type == 'text' else ''}"
            if c.type in _ORDERS else f"{_CANONICAL}({ident(c.name)}, '{c.type}')"
            for c in columns
        )  # fmt: skip
        names = [c.name for c in columns]
        indexed = 0
        for index in self._indexes(table, names):
            same = 0
            while same < len(names) and index[same : same + 1] == [names[same]] and columns[same].type in _ORDERS:
                same += 1
            indexed = max(indexed, same)
        return ReadKey(compared, orders, indexed)

    def _indexes(self, table: TableDef, key: Sequence[str]) -> Iterator[list[str]]:
        """The columns of each index that sorts by bytes. An INTEGER PRIMARY KEY has none: it is the row's number."""
        found = self._conn.execute("SELECT name, origin FROM pragma_index_list(?) WHERE NOT partial", [table.name])
        rows = found.fetchall()
        if len(key) == 1 and not any(origin == "pk" for _, origin in rows):
            yield list(key)
        for name, _ in rows:
            parts = self._conn.execute(
                "SELECT name, coll FROM pragma_index_xinfo(?) WHERE key ORDER BY seqno", [name]
            ).fetchall()
            if all(column is not None and how.upper() == "BINARY" for column, how in parts):
                yield [column for column, _ in parts]

    # --- the snapshot -----------------------------------------------------------------------------------------------

    def begin(self, table: TableDef, csn: str = "") -> Snapshot:  # noqa: ARG002  -- the number says all
        self.end()
        with mapped("source"):
            self._conn.execute("BEGIN")
            self._has_queue()
            (last,) = self._conn.execute("SELECT max(id) FROM trailgate_log").fetchone()
        return Snapshot(f"tick {last or 0:020d}", Position(0, last or 0))

    # --- rows -------------------------------------------------------------------------------------------------------

    def rows(self, table: TableDef, columns: Sequence[str], part: Range = WHOLE) -> Iterator[Image]:
        """The key's columns are read too, as what is refused is named by them."""
        with mapped("source"):
            key = self._key(table)
            if key.orders[: len(part.orders)] != part.orders:
                raise OtherShapeError(
                    f"table {table.full_name} has a key of {', '.join(key.orders)}, expected {', '.join(part.orders)}, "
                    "by which its chunks were made",
                    hint="Its shape has changed since: begin its load anew",
                )
            condition, values = _condition(table, key, part)
            if not part.low:
                self._refuse_nulls(table)
            places = {c.name: (i, c.type) for i, c in enumerate(table.columns)}
            wanted = [places[name] for name in columns]
            every = ", ".join(ident(c.name) if c.type != "token" else "NULL" for c in table.columns)
            cursor = self._conn.execute(f"SELECT {every} FROM {ident(table.name)} WHERE {condition}", values)
            for row in cursor:
                try:
                    image = [canonical(kind, row[i]) for i, kind in wanted]
                except UnfitClassError:
                    raise _refused(table, row) from None
                if any(row[i] is None for i in table.key):
                    raise _refused(table, row)
                yield image

    def _refuse_nulls(self, table: TableDef) -> None:
        """No range finds a row whose key has a NULL; so the first one looks for them."""
        if not table.key:
            return
        every = ", ".join(ident(c.name) if c.type != "token" else "NULL" for c in table.columns)
        null = " OR ".join(f"{ident(table.columns[i].name)} IS NULL" for i in table.key)
        row = self._conn.execute(f"SELECT {every} FROM {ident(table.name)} WHERE {null} LIMIT 1").fetchone()
        if row is not None:
            raise _refused(table, row)

    # --- ends -------------------------------------------------------------------------------------------------------

    def shape(self, schema: str, name: str) -> list[list[str]]:  # noqa: ARG002  -- a file has one schema
        with mapped("source"):
            found = self._conn.execute("SELECT name, type FROM pragma_table_xinfo(?) ORDER BY cid", [name])
            return [list(row) for row in found]

    def check(self, table: TableDef) -> None:
        with mapped("source"):
            self._key(table)

    def newest(self) -> None:
        """Snapshots are told by their CSN."""

    def settle(self) -> None:
        """What a snapshot sees outlives any process; what a power cut takes back, the file's own settings say."""

    def end(self) -> None:
        with mapped("source"):
            if self._conn.in_transaction:
                self._conn.execute("ROLLBACK")

    def close(self) -> None:
        self._conn.close()


def _text(value: Value) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _canonical_bytes(value: Any, kind: str) -> bytes | None:
    """A value of another class sorts first: whoever reads the first range refuses it."""
    try:
        made = canonical(kind, value)
    except UnfitClassError:
        return b""
    return made.encode("utf-8", "surrogateescape") if isinstance(made, str) else None


def _condition(table: TableDef, key: ReadKey, part: Range) -> tuple[str, list[Any]]:
    """A range as a condition, and its values."""
    kinds = [table.columns[i].type for i in table.key[: len(part.orders)]]
    found, values = [], list[Any]()
    for sign, border in ((">=", part.low), ("<", part.high or ())):
        if border:
            marks = ", ".join("CAST(? AS TEXT)" if kind == "text" else "?" for kind in kinds)
            found.append(f"({', '.join(key.compared[: len(kinds)])}) {sign} ({marks})")
            values += [_bound(kind, text) for kind, text in zip(kinds, border, strict=True)]
    return " AND ".join(found) or "true", values


def _bound(kind: str, text: str) -> Any:
    if kind == "bigint":
        return int(text)
    return bytes.fromhex(text) if kind == "bytes" else text.encode("utf-8", "surrogateescape")


def _refused(table: TableDef, row: Sequence[Any]) -> OperatorError:
    """What the capture would say of the row, in its words."""
    nulls = [table.columns[i].name for i in table.key if row[i] is None]
    if nulls:
        return OperatorError(
            f"table {table.full_name}: column {nulls[0]} of the key is NULL, so nothing tells this row from others "
            "like it",
            hint="Declare it NOT NULL",
        )
    key = ", ".join(repr(row[i])[:60] for i in table.key)
    for column, value in zip(table.columns, row, strict=True):
        try:
            canonical(column.type if column.type != "token" else "any", value)
        except UnfitClassError:
            declared = f"declared {column.native}" if column.native else "declared without a type"
            return OperatorError(
                f"table {table.full_name}, row ({key}): column {column.name} holds {_CLASSES[type(value)]} "
                f"{repr(value)[:60]}, expected {_EXPECTED.get(column.type, 'text')}, as it is {declared}",
                hint=f"TABLE {table.full_name}, ANY ({column.name}); captures it as it is",
            )
    raise AssertionError(f"table {table.full_name}, row ({key}): nothing to refuse")
