"""What is told of a table whose rows have another shape from now on, where no DDL is captured.

The trail's own last definition is what is compared, so it is noticed too when the table changed while nobody captured.

Rule: it is told before the first row of the new shape is in the trail. A key alone is no other shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trails.naming import TOKEN
from trails.record import TableDef

_SHOWN: Final = 3


def text(old: TableDef, new: TableDef, csn: str) -> str:
    """For the operator; empty where columns and their types are the same. `csn`: of the first row of the new shape."""
    found = list(_differences(old, new))
    if not found:
        return ""
    shown = "; ".join(found[:_SHOWN]) + (f"; {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
    return (
        f"{new.full_name} has another shape from CSN {csn} on: {shown}. DDL is not captured: change the targets, "
        "and the rows that they have, by hand"
    )


def _differences(old: TableDef, new: TableDef) -> Iterator[str]:
    before, after = _types(old), _types(new)
    for name, native in after.items():
        if name not in before:
            yield f"{name} is new"
        elif before[name] != native:
            yield f"{name} was {before[name]}, is {native}"
    yield from (f"{name} is gone" for name in before if name not in after)


def _types(table: TableDef) -> dict[str, str]:
    """Of its columns; tokens are the parameter file's."""
    return {column.name: column.native or column.type for column in table.columns if column.type != TOKEN}
