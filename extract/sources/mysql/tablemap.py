"""TABLE_MAP: a table's shape at its place in the log, with FULL metadata.

    table id u48, flags u16
    schema, table: length u8, text, zero byte each
    number of columns; a type byte each; length of metadata; metadata of each; bitmap of those that may be NULL
    fields of type u8, length, value, up to the end: signs, collations, names, labels, keys, ...

Rule: this is the truth of that place for names, order and types. What a field can't say (native types, defaults, which
columns are generated) is for shapes.py. A field of an unknown type is passed over, as servers say it may be; a known
one is read to its last byte.

Numbers written `packed` are length-encoded. Bits of a field stand with the first column's in the highest bit.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from extract.sources.mysql.events import CUT, BinlogError, UncapturedError, packed
from extract.sources.mysql.flavour import Flavour

TINY, SHORT, LONG, FLOAT, DOUBLE, TIMESTAMP, LONGLONG, INT24, DATE, TIME, DATETIME, YEAR = (
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    9,
    10,
    11,
    12,
    13,
)
NEWDATE, VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2 = 14, 15, 16, 17, 18, 19
BLOB_COMPRESSED, VARCHAR_COMPRESSED = 140, 141
VECTOR, JSON, NEWDECIMAL, ENUM, SET = 242, 245, 246, 247, 248
TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB, VAR_STRING, STRING, GEOMETRY = range(249, 256)

_BARE: Final = frozenset((0, TINY, SHORT, LONG, 6, TIMESTAMP, LONGLONG, INT24, DATE, TIME, DATETIME, YEAR, NEWDATE))
_ONE: Final = frozenset(
    (FLOAT, DOUBLE, TIMESTAMP2, DATETIME2, TIME2, BLOB, TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, GEOMETRY, JSON, VECTOR,
     BLOB_COMPRESSED)
)  # fmt: skip
_TWO: Final = frozenset((VARCHAR, VAR_STRING, BIT, NEWDECIMAL, ENUM, SET, STRING, VARCHAR_COMPRESSED))
_NUMERIC: Final = frozenset((TINY, SHORT, INT24, LONG, LONGLONG, NEWDECIMAL, FLOAT, DOUBLE))
_CHARACTER: Final = frozenset(
    (STRING, VAR_STRING, VARCHAR, BLOB, TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB_COMPRESSED, VARCHAR_COMPRESSED)
)
_LABELLED: Final = frozenset((ENUM, SET))

_SIGNS, _COLLATION, _COLLATIONS, _NAMES, _SETS, _ENUMS, _GEOMETRIES, _KEY, _PREFIXES = range(1, 10)
_LABEL_COLLATION, _LABEL_COLLATIONS, _VISIBLE = range(10, 13)

_IDS = struct.Struct("<IHH")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class MapColumn:
    """One column.

    `type`: its real type: an ENUM, SET or CHAR stands in the log as STRING, and here as what it is. `meta`: of STRING,
    ENUM and SET the bytes of a value at most; else the bytes of metadata as one number, the first one lowest: so of
    NEWDECIMAL precision and then scale, of BIT bits and then bytes. `collation`: its number, of columns with text
    (63: bytes). `labels`: of an ENUM or SET, in `label_collation` if the server tells it. `geometry`: which kind.
    """

    name: str
    type: int
    meta: int
    nullable: bool
    unsigned: bool = False
    collation: int | None = None
    labels: tuple[bytes, ...] = ()
    label_collation: int | None = None
    geometry: int | None = None
    visible: bool = True


@dataclass(frozen=True, slots=True)
class TableMap:
    """A table. `key`: the columns of its primary key, by index, in the key's order."""

    schema: str
    name: str
    columns: tuple[MapColumn, ...]
    key: tuple[int, ...] = ()

    @property
    def full_name(self) -> str:
        """`schema.name`, for people."""
        return f"{self.schema}.{self.name}"


class Head(NamedTuple):
    """How a TABLE_MAP begins. `at`: where the columns begin."""

    table_id: int
    schema: str
    name: str
    at: int


def head(data: bytes, at: int, upto: int) -> Head:
    """The table's id and name: enough to tell if anybody wants it."""
    low, high, _flags = _IDS.unpack_from(data, at)
    schema, at = _text(data, at + 8, upto)
    name, at = _text(data, at, upto)
    return Head(high << 32 | low, schema, name, at)


def parse(data: bytes, at: int, upto: int, flavour: Flavour) -> tuple[int, TableMap]:
    """(table id, the table). Raises BinlogError, and UncapturedError where the metadata is not FULL."""
    try:
        begin = head(data, at, upto)
        return begin.table_id, _Parser(data, upto, begin, flavour).table()
    except CUT as error:
        raise BinlogError(f"TABLE_MAP: expected a whole one in {upto - at} bytes ({error})") from error


class _Parser:
    """Reads what stands behind the head."""

    def __init__(self, data: bytes, upto: int, begin: Head, flavour: Flavour) -> None:
        self._data = data
        self._upto = upto
        self._at = begin.at
        self._head = begin
        # To MariaDB a geometry is a blob, with a collation, and a year is a number, with a sign.
        maria = flavour is Flavour.MARIADB
        self._character = _CHARACTER | {GEOMETRY} if maria else _CHARACTER
        self._numeric = _NUMERIC | {YEAR} if maria else _NUMERIC

    def table(self) -> TableMap:
        """All of it."""
        width = self._number()
        raw = self._take(width)
        size = self._number()
        end = self._at + size
        kinds = [self._kind(i, kind) for i, kind in enumerate(raw)]
        if self._at != end:
            raise self._broken(f"{size} bytes of metadata for {width} columns", f"{self._at - end + size}")
        bits = self._take((width + 7) // 8)
        nullable = [bool(bits[i >> 3] >> (i & 7) & 1) for i in range(width)]
        return self._described(kinds, nullable, self._fields())

    def _kind(self, index: int, kind: int) -> tuple[int, int]:
        """(real type, meta) of a column."""
        if kind in _BARE:
            return kind, 0
        if kind in _ONE:
            return kind, self._take(1)[0]
        if kind not in _TWO:
            raise UncapturedError(
                f"table {self._name}: column {index + 1} is of type {kind}, which this release can't read",
                hint="Change the column's type, or leave the table out (TABLEEXCLUDE)",
            )
        first, second = self._take(2)
        if kind != STRING:
            return kind, first | second << 8
        if first in _LABELLED:
            return first, second
        # CHAR of more than 255 bytes: two bits of its length stand in the type, turned over.
        if first | 0x30 not in (STRING, VAR_STRING):
            raise self._broken(f"column {index + 1} to be a CHAR, ENUM or SET", f"type {first}")
        return STRING, second | ((first & 0x30) ^ 0x30) << 4

    def _fields(self) -> dict[int, tuple[int, int]]:
        """Where each field stands: type -> (from, up to)."""
        fields = {}
        while self._at < self._upto:
            kind = self._take(1)[0]
            size = self._number()
            if kind in fields:
                raise self._broken("each field once", f"field {kind} twice")
            fields[kind] = (self._at, self._at + size)
            self._take(size)
        return fields

    def _described(
        self, kinds: list[tuple[int, int]], nullable: list[bool], fields: dict[int, tuple[int, int]]
    ) -> TableMap:
        types = [kind for kind, _ in kinds]
        names = [self._decoded(name) for name in self._read(fields, _NAMES, self._label)]
        if types and not names:
            raise UncapturedError(
                f"table {self._name}: the log does not name its columns, as binlog_row_metadata was not FULL",
                hint="SET GLOBAL binlog_row_metadata = FULL, and in the server's settings file too. ALTER EXTRACT past "
                "the changes from here up to then, and load the table again",
            )
        if len(names) != len(types):
            raise self._broken(f"{len(types)} names of columns", str(len(names)))
        character = [i for i, kind in enumerate(types) if kind in self._character]
        labelled = [i for i, kind in enumerate(types) if kind in _LABELLED]
        unsigned = self._bits(fields, _SIGNS, [i for i, kind in enumerate(types) if kind in self._numeric])
        visible = self._bits(fields, _VISIBLE, list(range(len(types)))) if _VISIBLE in fields else None
        collations = self._collations(fields, character, _COLLATION, _COLLATIONS)
        label_collations = self._collations(fields, labelled, _LABEL_COLLATION, _LABEL_COLLATIONS)
        labels = {**self._labels(fields, _SETS, SET, types), **self._labels(fields, _ENUMS, ENUM, types)}
        geometric = [i for i, kind in enumerate(types) if kind == GEOMETRY]
        kinds_of_geometry = list(self._read(fields, _GEOMETRIES, self._number))
        geometries = dict(zip(geometric, kinds_of_geometry, strict=False))
        key = self._key(fields, len(types))
        columns = tuple(
            MapColumn(
                name,
                kind,
                meta,
                nullable[i],
                i in unsigned,
                collations.get(i),
                labels.get(i, ()),
                label_collations.get(i),
                geometries.get(i),
                visible is None or i in visible,
            )
            for i, (name, (kind, meta)) in enumerate(zip(names, kinds, strict=True))
        )
        return TableMap(self._head.schema, self._head.name, columns, key)

    def _bits(self, fields: dict[int, tuple[int, int]], field: int, among: list[int]) -> set[int]:
        """Those of `among` whose bits are set."""
        at, upto = fields.get(field, (0, 0))
        if upto - at != (len(among) + 7) // 8:
            raise self._broken(f"a bit for each of {len(among)} columns in field {field}", f"{upto - at} bytes")
        return {column for i, column in enumerate(among) if self._data[at + (i >> 3)] << (i & 7) & 0x80}

    def _collations(
        self, fields: dict[int, tuple[int, int]], among: list[int], default: int, each: int
    ) -> dict[int, int]:
        """Collations of the columns `among`: one for each, or a default and those that differ from it."""
        if each in fields:
            found = list(self._read(fields, each, self._number))
            if len(found) != len(among):
                raise self._broken(f"{len(among)} collations in field {each}", str(len(found)))
            return dict(zip(among, found, strict=True))
        if default not in fields:
            return {}
        found = list(self._read(fields, default, self._number))
        if not found:
            raise self._broken(f"a collation in field {default}", "none")
        usual, *others = found
        collations = dict.fromkeys(among, usual)
        for index, collation in self._pairs(others, len(among)):
            collations[among[index]] = collation
        return collations

    def _labels(
        self, fields: dict[int, tuple[int, int]], field: int, kind: int, types: list[int]
    ) -> dict[int, tuple[bytes, ...]]:
        columns = [i for i, found in enumerate(types) if found == kind]
        labels = [tuple(found) for found in self._read(fields, field, self._label_list)]
        if len(labels) != len(columns):
            raise self._broken(f"the labels of {len(columns)} columns in field {field}", str(len(labels)))
        return dict(zip(columns, labels, strict=True))

    def _key(self, fields: dict[int, tuple[int, int]], width: int) -> tuple[int, ...]:
        """Of a key of prefixes, the same: how long each prefix is makes no difference to a change's row."""
        if _PREFIXES in fields:
            columns = [column for column, _ in self._pairs(list(self._read(fields, _PREFIXES, self._number)), width)]
        else:
            columns = list(self._read(fields, _KEY, self._number))
        if any(column >= width for column in columns):
            raise self._broken(f"a key of {width} columns", f"its columns {columns}")
        return tuple(columns)

    def _pairs(self, numbers: list[int], below: int) -> Iterator[tuple[int, int]]:
        """Numbers two by two; the first of each is below a bound."""
        if len(numbers) % 2 or any(first >= below for first in numbers[::2]):
            raise self._broken(f"pairs of a column below {below} and a number", str(numbers[:20]))
        return zip(numbers[::2], numbers[1::2], strict=True)

    def _read(self, fields: dict[int, tuple[int, int]], field: int, item: Callable[[], _T]) -> Iterator[_T]:
        """The items of a field, which end where it ends."""
        self._at, upto = fields.get(field, (0, 0))
        while self._at < upto:
            yield item()
        if self._at != upto:
            raise self._broken(f"field {field} to end at byte {upto}", f"its last item ends at {self._at}")

    def _number(self) -> int:
        number, self._at = packed(self._data, self._at)
        return number

    def _label(self) -> bytes:
        return self._take(self._number())

    def _label_list(self) -> list[bytes]:
        return [self._label() for _ in range(self._number())]

    def _take(self, size: int) -> bytes:
        at, self._at = self._at, self._at + size
        if self._at > self._upto:
            raise self._broken(f"{size} bytes at {at}", f"the end at {self._upto}")
        return self._data[at : self._at]

    def _decoded(self, name: bytes) -> str:
        return name.decode("utf-8")

    @property
    def _name(self) -> str:
        return f"{self._head.schema}.{self._head.name}"

    def _broken(self, expected: str, found: str) -> BinlogError:
        return BinlogError(f"TABLE_MAP of {self._name}: expected {expected}, found {found}")


def _text(data: bytes, at: int, upto: int) -> tuple[str, int]:
    """A name with its length before it and a zero byte behind it."""
    end = at + 1 + data[at]
    if end >= upto or data[end]:
        raise BinlogError(
            f"TABLE_MAP: expected a name of {data[at]} bytes and a zero byte, found {data[at : end + 1]!r}"
        )
    return data[at + 1 : end].decode("utf-8"), end + 1
