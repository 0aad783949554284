"""In which form rows are handed to a target: bytes that a worker makes, ready for what the target does with them.

Rule: a form is two functions that a Kind names (targets/contract.py), and that the layout of each table carries to the
workers. ROWS is for every target whose database has no text of its own for many rows.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from trails.record import MISSING, Image, Value

CHUNK = 512
Pick = Callable[[Image], Image]
Rendered = tuple[bytes, int, list[Image]]
"""The bytes, how many rows are in them, and the rows that were left out because a column is missing."""


@dataclass(frozen=True, slots=True)
class Form:
    """`render`: rows as bytes, of each what the function picks; `rows`: the bytes as rows again.

    `lines`: the bytes are lines of text, as COPY reads them: a kernel writes them too.
    """

    render: Callable[[Iterable[Image], Pick | None], Rendered]
    rows: Callable[[bytes], Sequence[Image]]
    lines: bool = False


def text_of(value: Value) -> str | None:
    """A value as text: bytes as a database's input functions take them, NULL as None."""
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if value is MISSING:
        raise ValueError("a missing column has no text")
    return value


def render_columns(rows: Iterable[Image], pick: Pick | None = None) -> Rendered:
    """Rows as columns of values, in Python's own fastest bytes: who reads them is a Python of the same version."""
    source, partial, count = iter(rows), list[Image](), 0
    columns: list[list[Value]] = []
    while raw := list(islice(source, CHUNK)):
        chunk = raw if pick is None else list(map(pick, raw))
        turned = list(zip(*chunk, strict=True))
        if any(map(_lacks, turned)):
            partial += [row for row, picked in zip(raw, chunk, strict=True) if MISSING in picked]
            chunk = [picked for picked in chunk if MISSING not in picked]
            turned = list(zip(*chunk, strict=True))
        count += len(chunk)
        columns = columns or [[] for _ in turned]
        for column, values in zip(columns, turned, strict=bool(turned)):
            column.extend(values)
    return marshal.dumps(columns), count, partial


def _lacks(values: Sequence[Value]) -> bool:
    """Whether one is missing. Joining is the fastest test of the usual case: all are text."""
    try:
        "".join(values)  # type: ignore[arg-type]  # what is no text is what it is here to find
    except TypeError:
        return MISSING in values
    return False


def columns_of(data: bytes) -> list[list[Value]]:
    """Rows of the form ROWS, column by column."""
    found: list[list[Value]] = marshal.loads(data) if data else []
    return found


def _rows(data: bytes) -> Sequence[Image]:
    return list(zip(*columns_of(data), strict=True))


ROWS = Form(render_columns, _rows)
"""Plain values: text, bytes, None."""
