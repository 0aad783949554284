"""A source table as it is now, for whoever makes and fills its counterpart: what `describe_tables` answers.

Rule: plain values, by which no statement of the source's travels. What a value here can't say (an index over an
expression, a check) is named in `left`, and nobody makes it by guessing. `definition` is byte for byte what the capture
of that source would write into a trail now, before TABLE's options; `shape` says what a table is made by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trails.ddl import TableShape
from trails.errors import DamageError
from trails.record import TableDef


@dataclass(frozen=True, slots=True)
class Index:
    """An index beside the primary key: whole columns, in order of their values."""

    name: str
    columns: tuple[str, ...]
    unique: bool = False


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """`columns` of this table are `others` of table `schema.table`, or NULL. Actions are in the trail, not here."""

    name: str
    columns: tuple[str, ...]
    schema: str
    table: str
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DescribedTable:
    """A table. `rows`: about so many. `left`: what else it has, by kind and name. `unfit`: why it can't be captured."""

    shape: TableShape
    definition: TableDef
    rows: int = 0
    indexes: tuple[Index, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    left: tuple[str, ...] = ()
    unfit: str = ""

    @property
    def place(self) -> tuple[str, str]:
        """Schema and name."""
        return self.shape.schema, self.shape.name

    @property
    def full_name(self) -> str:
        """`schema.name`, for people."""
        return self.shape.full_name

    def to_wire(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "shape": self.shape.to_wire(),
            "definition": self.definition.to_wire(),
            "rows": self.rows,
            "indexes": [[one.name, list(one.columns), one.unique] for one in self.indexes],
            "foreign_keys": [
                [one.name, list(one.columns), one.schema, one.table, list(one.others)] for one in self.foreign_keys
            ],
            "left": list(self.left),
            "unfit": self.unfit,
        }

    @classmethod
    def from_wire(cls, wire: Any) -> DescribedTable:
        """Inverse of to_wire. Raises DamageError on anything else."""
        try:
            shape, definition = TableShape.from_wire(wire["shape"]), TableDef.from_wire(wire["definition"])
            names = {column.name for column in shape.columns}
            indexes = tuple(
                Index(_text(name), _columns(columns, names), _is(unique)) for name, columns, unique in wire["indexes"]
            )
            keys = tuple(
                ForeignKey(_text(name), _columns(columns, names), _text(schema), _text(table), _columns(others, None))
                for name, columns, schema, table, others in wire["foreign_keys"]
            )
            rows, left = wire["rows"], tuple(map(_text, wire["left"]))
            if type(rows) is not int or rows < 0 or (definition.schema, definition.name) != (shape.schema, shape.name):
                raise ValueError(f"{rows!r} rows of {shape.full_name}, defined as {definition.full_name}")
            return cls(shape, definition, rows, indexes, keys, left, _text(wire["unfit"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DamageError(f"describe_tables: expected a table as it is, found another form: {error}") from None


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"expected text, found {str(value)[:80]}")
    return value


def _is(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError(f"expected true or false, found {str(value)[:80]}")
    return value


def _columns(values: Any, among: set[str] | None) -> tuple[str, ...]:
    """Names of columns; `among`: of the table, where it is known."""
    found = tuple(map(_text, values))
    if not found or (among is not None and not among.issuperset(found)):
        raise ValueError(f"expected names of columns, found {', '.join(found)[:200]}")
    return found
