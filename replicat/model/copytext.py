"""Rows as lines of text: tabs between values, backslash N for NULL, as COPY and LOAD DATA read them. So workers hand
them to every target, whatever it makes of them.

Strategy: join a chunk of rows blindly, then count: if the text holds exactly the tabs, newlines and backslashes that
the joining put there, no value needed escaping. Only a chunk that fails this is looked at row
by row, in the same way; and only a row that fails it is escaped value by value. A kernel writes the same
(replicat/work/kernel).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from trails.record import MISSING, Image, Value

Pick = Callable[[Image], Image]
Rendered = tuple[bytes, int, list[Image]]
"""The bytes, how many rows are in them, and the rows that were left out because a column is missing."""

CHUNK = 512
NULL = "\\N"
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r"}


def render(rows: Iterable[Image], pick: Pick | None = None) -> Rendered:
    """Rows as text. `pick` gives what of a row is written."""
    source, parts, partial, count = iter(rows), [], [], 0
    while raw := list(islice(source, CHUNK)):
        chunk = raw if pick is None else list(map(pick, raw))
        try:
            parts.append(_text(chunk))
        except TypeError:  # there are bytes, or columns are missing
            partial += [row for row, picked in zip(raw, chunk, strict=True) if MISSING in picked]
            chunk = [picked for picked in chunk if MISSING not in picked]
            parts += map(line, chunk)
        count += len(chunk)
    return "".join(parts).encode("utf-8", "surrogateescape"), count, partial


def line(row: Image) -> str:
    """One row, each value escaped; no column may be missing."""
    return "\t".join([_field(value) for value in row]) + "\n"


def fields_of(row: bytes) -> list[str | None]:
    """One row's text, without the end of its line, back to its values; bytes stay hex."""
    fields = row.decode("utf-8", "surrogateescape").split("\t")
    return [None if field == NULL else _unescaped(field) if "\\" in field else field for field in fields]


def _unescaped(field: str) -> str:
    return _ESCAPED.sub(lambda found: _LETTERS.get(found[1], found[1]), field)


def _field(value: Value) -> str:
    if isinstance(value, str) and value.isprintable() and "\\" not in value:  # tabs and ends of lines are not printable
        return value
    text = text_of(value)
    if text is None:
        return NULL
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def _text(chunk: Sequence[Image]) -> str:
    """A chunk's lines. TypeError: a value is neither text nor NULL."""
    nulls = 0
    try:
        lines = ["\t".join(row) for row in chunk]  # type: ignore[arg-type]  # a value that is no text is what fails here
    except TypeError:
        lines, nulls = _with_nulls(chunk)
    tabs, whole = len(chunk[0]) - 1, "".join(lines)
    dirty = [i for i, one in enumerate(lines) if one.count("\t") != tabs]
    for letter in "\n\r":
        if letter in whole:  # to see that it is nowhere is much quicker than to count it
            dirty += [i for i, one in enumerate(lines) if letter in one]
    if "\\" in whole and whole.count("\\") != nulls:
        dirty += [i for i, one in enumerate(lines) if "\\" in one and one.count("\\") != chunk[i].count(None)]
    for i in set(dirty):
        lines[i] = line(chunk[i])[:-1]
    return "\n".join(lines) + "\n"


def _with_nulls(chunk: Sequence[Image]) -> tuple[list[str], int]:
    nulls = 0
    lines = []
    for row in chunk:
        try:
            lines.append("\t".join(row))  # type: ignore[arg-type]  # as above
        except TypeError:
            nulls += row.count(None)
            lines.append("\t".join([NULL if value is None else value for value in row]))  # type: ignore[misc]
    return lines, nulls


def rows_of(data: bytes) -> list[list[str | None]]:
    """The rows of such lines; bytes stay hexadecimal text. A line end inside a value is escaped."""
    return list(map(fields_of, data.split(b"\n")[:-1]))


def text_of(value: Value) -> str | None:
    """A value as text: bytes as a database's input functions take them, NULL as None."""
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if value is MISSING:
        raise ValueError("a missing column has no text")
    return value
