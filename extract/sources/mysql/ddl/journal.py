r"""The journal of shapes: one file a group, from which the shapes of any place since its base are made again.

    <crc32 of the JSON, 8 hex digits> <JSON>\n      a line each

    ["shapes", 1, source, [from], [upto], databases, tables]     the base: all that was known at `from`
    [[place], databases, tables]                                  what one statement changed; the place just behind it

    databases: {name: collation, or null if it is gone}
    tables: [[schema, name, table], ...]; as KnownTable.to_json, null if it is gone, or text: why it is not known

The base was asked of the server when its log ended at `upto`, for a group that reads from `from`. Where the two differ,
statements between them stand in the base already.

Rule: a statement's line is synced before the statement's transaction can be committed to the trail. So:

| killed, or without power                   | the trail ends | the file                      | next start             |
| ------------------------------------------ | -------------- | ----------------------------- | ---------------------- |
| before the line is written                 | before it      | without it                    | the line is made again |
| while it is written                        | before it      | a torn last line              | the line is cut off    |
| behind its sync, before the trail's        | before it      | a line of a place not reached | it is cut off          |
| behind the trail's sync                    | behind it      | with it                       | it counts              |
| while the file is replaced                 | anywhere       | the old one, or the new one   | the same again         |

One line is one write, so only the last line can be torn. A wrong line before another is damage, and stops: remove the
file, and shapes are asked again. Places only grow, and whoever goes back (ALTER) cuts off what lies behind.
"""

from __future__ import annotations

import json
import os
import zlib
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

from extract.sources.mysql.ddl.known import KnownTable
from trails.errors import DamageError
from trails.fs import Fs, read_bytes, replace_durably
from trails.position import Position

_NAME: Final = "shapes"
_VERSION: Final = 1
_HEAD: Final = 9
REMOVE: Final = "Remove this file, then START: the shapes of all tables are asked anew"

Key = tuple[str, str]
Entry = KnownTable | str | None
"""A table; why it is not known; None: it is gone."""


@dataclass(frozen=True, slots=True)
class ShapeChange:
    """What a statement, or the base, says: `tables` and `databases` that it names, as they are then."""

    tables: dict[Key, Entry] = field(default_factory=dict)
    databases: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Base:
    """All that was known at `begin`, as of a log that ended at `upto`; `source`: who was asked."""

    source: str
    begin: Position
    upto: Position
    all: ShapeChange


@dataclass(frozen=True, slots=True)
class Content:
    """What a journal holds; `last`: the last place of it."""

    base: Base
    changes: list[tuple[Position, ShapeChange]]

    @property
    def last(self) -> Position:
        """Behind the last statement in it, or where the base begins."""
        return self.changes[-1][0] if self.changes else self.base.begin


class Journal:
    """The file at `path`; without a path nothing is kept, and each start asks anew."""

    def __init__(self, fs: Fs, path: str) -> None:
        self._fs = fs
        self.path = path

    def read(self) -> Content | None:
        """What it holds, without a torn last line; None if there is no file. Raises DamageError."""
        if not self.path:
            return None
        try:
            data = read_bytes(self._fs, self.path)
        except FileNotFoundError:
            return None
        lines = data.split(b"\n")
        found: list[Any] = []
        for number, line in enumerate(lines, 1):
            made = _parsed(line) if number < len(lines) else None
            if made is None:
                if any(_parsed(other) is not None for other in lines[number:]) or not found:
                    raise self._damage(number)
                break
            found.append(made)
        try:
            return Content(_base(found[0]), [_change(line) for line in found[1:]])
        except (TypeError, ValueError, KeyError, IndexError):
            raise self._damage(1) from None

    def begin(self, base: Base) -> None:
        """Put a new file in its place, with nothing but a base."""
        if not self.path:
            return
        places = [_place(base.begin), _place(base.upto)]
        line = _line([_NAME, _VERSION, base.source, *places, *_wire(base.all)])
        replace_durably(self._fs, self.path, line)

    def append(self, place: Position, change: ShapeChange) -> bool:
        """Add what a statement changed; durable when this returns. False if somebody has deleted the file."""
        if not self.path:
            return True
        try:
            file = self._fs.open(self.path, write=True)
        except FileNotFoundError:
            return False
        with closing(file):
            file.write_at(file.size(), _line([_place(place), *_wire(change)]))
            file.datasync()
        return True

    def cut(self, origin: Position) -> None:
        """Take away a torn last line, and what lies behind this place."""
        size, data = 0, read_bytes(self._fs, self.path)
        for line in data.split(b"\n")[:-1]:
            made = _parsed(line)
            if made is None or (made[0] != _NAME and _position(made[0]) > origin):
                break
            size += len(line) + 1
        if size < len(data):
            with closing(self._fs.open(self.path, write=True)) as file:
                file.truncate(size)
                file.datasync()

    def _damage(self, line: int) -> DamageError:
        name = os.path.basename(self.path)
        return DamageError(f"{self.path}: line {line} of {name} is damaged: expected its checksum to fit", hint=REMOVE)


def _line(made: list[Any]) -> bytes:
    text = json.dumps(made, separators=(",", ":"), ensure_ascii=True).encode()
    return b"%08x %b\n" % (zlib.crc32(text), text)


def _parsed(line: bytes) -> Any:
    """The JSON of a line; None if it is torn or wrong."""
    if len(line) <= _HEAD or line[:_HEAD] != b"%08x " % zlib.crc32(line[_HEAD:]):
        return None
    return json.loads(line[_HEAD:])


def _place(position: Position) -> list[int]:
    return [position.seqno, position.rba]


def _position(wire: Any) -> Position:
    seqno, rba = wire
    return Position(int(seqno), int(rba))


def _wire(change: ShapeChange) -> list[Any]:
    tables = [
        [schema, name, entry.to_json() if isinstance(entry, KnownTable) else entry]
        for (schema, name), entry in change.tables.items()
    ]
    return [change.databases, tables]


def _of(databases: Any, tables: Any) -> ShapeChange:
    made: dict[Key, Entry] = {
        (schema, name): entry if entry is None or isinstance(entry, str) else KnownTable.of(entry)
        for schema, name, entry in tables
    }
    return ShapeChange(made, dict(databases))


def _base(wire: Any) -> Base:
    name, version, source, begin, upto, databases, tables = wire
    if name != _NAME or version != _VERSION:
        raise ValueError
    return Base(str(source), _position(begin), _position(upto), _of(databases, tables))


def _change(wire: Any) -> tuple[Position, ShapeChange]:
    place, databases, tables = wire
    return _position(place), _of(databases, tables)
