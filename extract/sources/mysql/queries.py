"""QUERY: a statement as text, what it was told in, and those texts by which transactions begin and end.

thread u32, seconds u32, length of schema u8, error u16, length of variables u16
variables: type u8 and a value each; schema, zero byte; the text, up to the end
"""

from __future__ import annotations

import re
import struct
from enum import Enum, auto
from typing import Final, NamedTuple

from extract.sources.mysql.ddl.query import QueryText
from extract.sources.mysql.events import BinlogError, Event
from extract.sources.mysql.unwrap import inflated
from extract.sources.mysql.xa import Xid
from trails.position import Position

_HEAD = struct.Struct("<IIBHH")
_CHARSETS = struct.Struct("<HHH")

_SQL_MODE, _CHARSET, _ZONE, _MICROSECONDS = 1, 4, 5, 13
_FIXED: Final = {
    0: 4,
    1: 8,
    3: 4,
    4: 6,
    7: 2,
    8: 2,
    9: 8,
    10: 4,
    13: 3,
    16: 1,
    17: 8,
    18: 2,
    19: 1,
    20: 1,
    128: 3,
    129: 8,
}
"""How long the values of variables are; others have a length before them, or end the reading."""
_CATALOG, _CATALOG_NZ, _INVOKER, _DATABASES = 2, 6, 11, 12
_MANY_DATABASES: Final = 254

_XA = re.compile(
    rb"XA\s+(START|BEGIN|END|COMMIT|ROLLBACK)\s+X'([0-9A-Fa-f]*)',X'([0-9A-Fa-f]*)',(\d+)(\s+ONE\s+PHASE)?\s*\Z"
)
_SAVEPOINT = re.compile(
    rb"(?i)(SAVEPOINT|ROLLBACK\s+(?:WORK\s+)?TO(?:\s+SAVEPOINT)?|RELEASE\s+SAVEPOINT)\s+(.+)\Z", re.DOTALL
)


class QueryVerb(Enum):
    """What a text does to its group."""

    BEGIN = auto()
    COMMIT = auto()
    ROLLBACK = auto()
    SAVEPOINT = auto()
    ROLLBACK_TO = auto()
    RELEASE = auto()
    XA_START = auto()
    XA_END = auto()
    XA_COMMIT = auto()
    XA_ROLLBACK = auto()
    STATEMENT = auto()


_WHOLE: Final = {b"BEGIN": QueryVerb.BEGIN, b"COMMIT": QueryVerb.COMMIT, b"ROLLBACK": QueryVerb.ROLLBACK}
_SAVEPOINT_VERBS: Final = {b"SAV": QueryVerb.SAVEPOINT, b"ROL": QueryVerb.ROLLBACK_TO, b"REL": QueryVerb.RELEASE}
_XA_VERBS: Final = {
    b"START": QueryVerb.XA_START, b"BEGIN": QueryVerb.XA_START, b"END": QueryVerb.XA_END,
    b"COMMIT": QueryVerb.XA_COMMIT, b"ROLLBACK": QueryVerb.XA_ROLLBACK,
}  # fmt: skip


class Query(NamedTuple):
    """One. `name`: of the savepoint; `xid`: of the XA transaction."""

    verb: QueryVerb
    sql: bytes
    name: bytes = b""
    xid: Xid | None = None


def query_of(event: Event, data: bytes, *, packed: bool = False) -> Query:
    """What it says; `packed`: it is MariaDB's QUERY_COMPRESSED."""
    begin = _sql_at(event, data)
    sql = inflated(data, begin, event.upto) if packed else data[begin : event.upto]
    verb = _WHOLE.get(sql)
    if verb is not None:
        return Query(verb, sql)
    first = sql[:3].upper()
    if first == b"XA ":
        return _xa(sql)
    if first in (b"SAV", b"ROL", b"REL") and (found := _SAVEPOINT.match(sql)):
        return Query(_SAVEPOINT_VERBS[first], sql, name=found[2].strip(b"`\"' ").lower())
    return Query(QueryVerb.STATEMENT, sql)


def plain_body(sql: bytes, event: Event, data: bytes) -> bytes:
    """The body of a QUERY with this text, in the place of one that may have been packed."""
    return data[event.at : _sql_at(event, data)] + sql


def _xa(sql: bytes) -> Query:
    found = _XA.match(sql)
    if found is None:
        raise BinlogError(f"QUERY: expected an XA statement as servers write it, found {sql[:100]!r}")
    try:
        xid = Xid(int(found[4]), bytes.fromhex(found[2].decode()), bytes.fromhex(found[3].decode()))
    except ValueError as error:
        raise BinlogError(f"QUERY: the name of an XA transaction in {sql[:100]!r} is none: {error}") from error
    return Query(_XA_VERBS[found[1]], sql, xid=xid)


def text_of(event: Event, data: bytes, sql: bytes, where: str, origin: Position) -> QueryText:
    """A statement with all that it was told in. `where`, `origin`: file and place, and the place behind it."""
    _, _, schema_size, error, size = _HEAD.unpack_from(data, event.at)
    at = event.at + _HEAD.size
    schema = data[at + size : at + size + schema_size].decode("utf-8")
    found = _variables(data, at, at + size)
    client, *_ = _CHARSETS.unpack_from(found.get(_CHARSET, bytes(_CHARSETS.size)))
    return QueryText(
        where,
        origin,
        schema,
        sql,
        sql_mode=int.from_bytes(found.get(_SQL_MODE, b""), "little"),
        charset=client,
        zone=found.get(_ZONE, b"").decode("ascii", "replace"),
        time_us=event.time * 1_000_000 + int.from_bytes(found.get(_MICROSECONDS, b""), "little"),
        error=error,
    )


def _variables(data: bytes, at: int, upto: int) -> dict[int, bytes]:
    """Their values. What stands behind one of an unknown type can't be read; servers put new ones last."""
    found: dict[int, bytes] = {}
    while at < upto:
        kind = data[at]
        at += 1
        size = _FIXED.get(kind)
        if size is None:
            if kind in (_ZONE, _CATALOG, _CATALOG_NZ):
                size, at = data[at], at + 1
            elif kind == _INVOKER:  # two texts; nobody wants them
                at += 1 + data[at]
                size, at = data[at], at + 1
            elif kind == _DATABASES:
                at = _behind_databases(data, at, upto)
                continue
            else:
                break
        found[kind] = data[at : at + size]
        at += size + (kind == _CATALOG)
    if at > upto:
        raise BinlogError(f"QUERY: expected its variables to end at byte {upto}, found {at}")
    return found


def _behind_databases(data: bytes, at: int, upto: int) -> int:
    """Texts that end in a zero byte each, unless there were too many."""
    count = data[at]
    at += 1
    for _ in range(0 if count == _MANY_DATABASES else count):
        end = data.find(b"\0", at, upto)
        if end < 0:
            raise BinlogError(f"QUERY: expected the names of {count} databases, found fewer")
        at = end + 1
    return at


def _sql_at(event: Event, data: bytes) -> int:
    """Where the text begins."""
    _, _, schema_size, _, size = _HEAD.unpack_from(data, event.at)
    at: int = event.at + _HEAD.size + size + schema_size
    if at >= event.upto or data[at]:
        raise BinlogError(f"QUERY: expected a schema of {schema_size} bytes and a zero byte, found no such byte")
    return at + 1
