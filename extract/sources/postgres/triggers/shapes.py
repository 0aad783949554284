"""The shape that a row of the queue has, at its place.

Rule: a row's text has no names, so what its fields are follows from the shape that was noted last before it. A change
of shape takes a lock that no writer of the table holds, and whatever notes it takes a number of the queue within that
transaction: so all rows of the old shape have lower numbers, all of the new one higher ones.

Without the event trigger a shape is noted by ADD TRANDATA, later than the change. Where all that the change did is to
add columns behind the others, the number of a row's fields says on which side of it the row was written; a column's
number is never used again, so no other column can have been there between. Any other change is refused while rows that
may be of either side wait in the queue.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from extract.sources.postgres.pgoutput import Fix, fix_bool, fix_bytea
from extract.sources.postgres.tables import logical
from trails.record import Column, TableDef

_FIXES: Final[dict[str, Fix]] = {"boolean": fix_bool, "bytes": fix_bytea}
VIRTUAL: Final = "v"


@dataclass(frozen=True, slots=True)
class NotedShape:
    """A row of `shape`. `shape` is None once the table is dropped; `message` as queue.sql says."""

    id: int
    relid: int
    shape: dict[str, Any] | None
    message: dict[str, Any] | None

    @property
    def full_name(self) -> str:
        """For people."""
        return f"{self.shape['schema']}.{self.shape['name']}" if self.shape else f"with oid {self.relid}"

    @property
    def is_known_late(self) -> bool:
        """Whether rows may wait that nothing but the number of their fields puts on one side of it."""
        return bool(self.message and self.message.get("waiting"))


def of_rows(shape: dict[str, Any]) -> tuple[Any, ...]:
    """What of a shape the rows depend on."""
    columns = tuple((c["number"], c["name"], c["typid"], c["typmod"]) for c in shape["columns"])
    return shape["schema"], shape["name"], columns, tuple(shape["key"])


def only_adds(old: dict[str, Any] | None, new: dict[str, Any] | None) -> bool:
    """Whether `new` is `old` with columns behind it, and nothing else can have been between the two."""
    if old is None or new is None:
        return False
    (*_, before, key), (*_, after, new_key) = of_rows(old), of_rows(new)
    last = max((number for number, *_ in before), default=0)
    added = [number for number, *_ in after[len(before) :]]
    return (
        after[: len(before)] == before and key == new_key and added == list(range(last + 1, last + 1 + len(added)))
        and (old["schema"], old["name"]) == (new["schema"], new["name"])
    )  # fmt: skip


class QueueTable:
    """A table as its rows are read under one shape. `definition` is None where they are passed over."""

    def __init__(
        self, noted: NotedShape, width: int, captures: Callable[[str, str], bool], befores: Callable[[str, str], bool]
    ) -> None:
        """`width`: of so many columns, from the left; the others were added later."""
        assert noted.shape is not None
        self.noted, self.width = noted, width
        schema, name = noted.shape["schema"], noted.shape["name"]
        given = noted.shape["columns"][:width]
        self.definition: TableDef | None = None
        self.befores = befores(schema, name)
        if not captures(schema, name):
            return
        # A virtual column has no value that a trigger would see.
        self.kept = [i for i, c in enumerate(given) if c["generated"] != VIRTUAL]
        self.all = len(self.kept) == width
        key = set(noted.shape["key"])
        columns = tuple(
            Column(c["name"], logical(str(c["base"]), c["kind"], c["category"]), c["native"], c["name"] in key)
            for c in (given[i] for i in self.kept)
        )
        self.definition = TableDef(schema, name, columns)
        self.fixes = tuple((i, _FIXES[c.type]) for i, c in enumerate(columns) if c.type in _FIXES)
        self.key = self.definition.key

    def image(self, fields: list[Any]) -> list[Any]:
        """A row as the trail gets it."""
        row = fields if self.all else [fields[i] for i in self.kept]
        for i, fix in self.fixes:
            if row[i]:
                row[i] = fix(row[i])
        return row


def noted(row: tuple[str | None, ...]) -> NotedShape:
    """From a row (id, relid, shape, message)."""
    number, relid, shape, message = row
    return NotedShape(int(number or 0), int(relid or 0), json.loads(shape or "null"), json.loads(message or "null"))
