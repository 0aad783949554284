"""Events of the binary log: their frame, and those that speak of the log itself. Bytes in, values out, no I/O.

    header (19 bytes): time u32, type u8, server u32, size u32, next place u32, flags u16    little endian
    body
    CRC32 u32, over header and body; with checksums on only: the last FORMAT_DESCRIPTION says so

Strategy: `Frame.event` takes one whole event and checks what every event has: its length, its type, its checksum. What
stands in a body is read by the functions below, each to the very last byte, or by the module of that event. Anything
that is missing, left over or unknown is a BinlogError, because a reader that skips what it doesn't know loses data.

Rule: functions that read bodies may let IndexError, struct.error and UnicodeDecodeError out; who decodes an event makes
a BinlogError with file and place of them (decoder.py). `CUT` names them.
"""

from __future__ import annotations

import re
import struct
import zlib
from typing import Final, NamedTuple, Self

from trails.errors import OperatorError, ProtocolError

HEADER: Final = struct.Struct("<IBIIIH")
HEADER_SIZE: Final = HEADER.size
CHECKSUM_SIZE: Final = 4
CUT: Final = (IndexError, struct.error, UnicodeDecodeError)
"""What reading behind the end of a body raises."""

IN_USE: Final = 0x0001
"""Of a FORMAT_DESCRIPTION whose file is still written. It is not part of what the checksum was made of."""
ARTIFICIAL: Final = 0x0020
"""The server made the event for this connection: it stands in no file."""
IGNORABLE: Final = 0x0080
"""Whoever doesn't know the event may pass it over."""

QUERY, STOP, ROTATE, INTVAR, RAND, USER_VAR, FORMAT_DESCRIPTION, XID = 2, 3, 4, 5, 13, 14, 15, 16
BEGIN_LOAD_QUERY, EXECUTE_LOAD_QUERY, TABLE_MAP = 17, 18, 19
WRITE_ROWS_V1, UPDATE_ROWS_V1, DELETE_ROWS_V1, INCIDENT, HEARTBEAT, IGNORED, ROWS_QUERY = range(23, 30)
WRITE_ROWS_V2, UPDATE_ROWS_V2, DELETE_ROWS_V2, GTID, ANONYMOUS_GTID, PREVIOUS_GTIDS = range(30, 36)
TRANSACTION_CONTEXT, VIEW_CHANGE, XA_PREPARE, PARTIAL_UPDATE_ROWS, TRANSACTION_PAYLOAD = range(36, 41)
HEARTBEAT_V2, GTID_TAGGED = 41, 42
ANNOTATE_ROWS, BINLOG_CHECKPOINT, MARIA_GTID, GTID_LIST, START_ENCRYPTION, QUERY_COMPRESSED = range(160, 166)
WRITE_ROWS_COMPRESSED_V1, UPDATE_ROWS_COMPRESSED_V1, DELETE_ROWS_COMPRESSED_V1 = range(166, 169)
WRITE_ROWS_COMPRESSED, UPDATE_ROWS_COMPRESSED, DELETE_ROWS_COMPRESSED = range(169, 172)

NAMES: Final = {
    1: "START_V3", 2: "QUERY", 3: "STOP", 4: "ROTATE", 5: "INTVAR", 6: "LOAD", 7: "SLAVE", 8: "CREATE_FILE",
    9: "APPEND_BLOCK", 10: "EXEC_LOAD", 11: "DELETE_FILE", 12: "NEW_LOAD", 13: "RAND", 14: "USER_VAR",
    15: "FORMAT_DESCRIPTION", 16: "XID", 17: "BEGIN_LOAD_QUERY", 18: "EXECUTE_LOAD_QUERY", 19: "TABLE_MAP",
    20: "PRE_GA_WRITE_ROWS", 21: "PRE_GA_UPDATE_ROWS", 22: "PRE_GA_DELETE_ROWS", 23: "WRITE_ROWS_V1",
    24: "UPDATE_ROWS_V1", 25: "DELETE_ROWS_V1", 26: "INCIDENT", 27: "HEARTBEAT", 28: "IGNORABLE", 29: "ROWS_QUERY",
    30: "WRITE_ROWS", 31: "UPDATE_ROWS", 32: "DELETE_ROWS", 33: "GTID", 34: "ANONYMOUS_GTID", 35: "PREVIOUS_GTIDS",
    36: "TRANSACTION_CONTEXT", 37: "VIEW_CHANGE", 38: "XA_PREPARE", 39: "PARTIAL_UPDATE_ROWS",
    40: "TRANSACTION_PAYLOAD", 41: "HEARTBEAT_V2", 42: "GTID_TAGGED", 160: "ANNOTATE_ROWS", 161: "BINLOG_CHECKPOINT",
    162: "GTID of MariaDB", 163: "GTID_LIST", 164: "START_ENCRYPTION", 165: "QUERY_COMPRESSED",
    166: "WRITE_ROWS_COMPRESSED_V1", 167: "UPDATE_ROWS_COMPRESSED_V1", 168: "DELETE_ROWS_COMPRESSED_V1",
    169: "WRITE_ROWS_COMPRESSED", 170: "UPDATE_ROWS_COMPRESSED", 171: "DELETE_ROWS_COMPRESSED",
}  # fmt: skip

_FILE = re.compile(rb"[^\x00-\x1f/\\]*\.[0-9]{6,19}\Z")
_CRC = struct.Struct("<I")
_U16 = struct.Struct("<H")
_U64 = struct.Struct("<Q")
_VERSION_SIZE = 50
_DESCRIBED = struct.Struct(f"<H{_VERSION_SIZE}sIB")
_POST_HEADERS = {
    QUERY: 13, ROTATE: 8, TABLE_MAP: 8, WRITE_ROWS_V1: 8, UPDATE_ROWS_V1: 8, DELETE_ROWS_V1: 8, WRITE_ROWS_V2: 10,
    UPDATE_ROWS_V2: 10, DELETE_ROWS_V2: 10,
}  # fmt: skip
"""So long is the fixed part of a body: other numbers are of servers before 5.1."""
_CRC32 = 1

unpack = HEADER.unpack_from
_crc_at = _CRC.unpack_from


class BinlogError(ProtocolError):
    """Bytes of the binary log that are none of its format. `placed` puts the file and the place before the message."""

    def placed(self, where: str) -> Self:
        """The same, with the file and the place."""
        return type(self)(f"{where}: {self.message}", hint=self.hint)


class UncapturedError(OperatorError):
    """Bytes that are right, and changes that can't be captured from them. `placed` as that of BinlogError."""

    def placed(self, where: str) -> Self:
        """The same, with the file and the place."""
        return type(self)(f"{where}: {self.message}", hint=self.hint)


class Event(NamedTuple):
    """One event: its body is `data[at:upto]`, without the checksum. `end`: where the next one begins; 0: in no file.

    `end` has 32 bits, so it begins anew in files of more than 4 GiB.
    """

    type: int
    time: int
    server: int
    end: int
    flags: int
    at: int
    upto: int


def name_of(kind: int) -> str:
    """An event's type, for people."""
    return f"{NAMES[kind]} ({kind})" if kind in NAMES else f"of the unknown type {kind}"


class Frame:
    """The frame of events as they come, one after the other: whether they bear checksums changes on the way."""

    def __init__(self, *, checksums: bool | None) -> None:
        """`checksums`: None where the first event shows it. Each FORMAT_DESCRIPTION says how it is behind it."""
        self.checksums = checksums

    def event(self, data: bytes, at: int, upto: int) -> Event:
        """The event that stands in `data[at:upto]`. Raises BinlogError where it is not one whole event."""
        try:
            time, kind, server, size, end, flags = unpack(data, at)
        except struct.error:
            raise BinlogError(f"expected an event's header of {HEADER_SIZE} bytes, found {upto - at}") from None
        if size != upto - at:
            raise BinlogError(f"event {name_of(kind)}: expected {size} bytes, as its header says, found {upto - at}")
        body = upto
        if kind == FORMAT_DESCRIPTION:
            body = self._described(data, at, upto)
        elif self.checksums is None:
            body = self._first(kind, flags, data, at, upto)
        elif self.checksums:
            body -= CHECKSUM_SIZE
            if body < at + HEADER_SIZE or zlib.crc32(memoryview(data)[at:body]) != _crc_at(data, body)[0]:
                raise _torn(kind)
        elif size < HEADER_SIZE:
            raise BinlogError(f"event {name_of(kind)}: expected {HEADER_SIZE} bytes or more, found {size}")
        return Event(kind, time, server, end, flags, at + HEADER_SIZE, body)

    def _first(self, kind: int, flags: int, data: bytes, at: int, upto: int) -> int:
        """Nobody has said yet if there are checksums: the artificial ROTATE that begins each stream has one or none.

        If it is damaged, it seems to have none, and the name in it ends in bytes that no name has.
        """
        body = upto - CHECKSUM_SIZE
        self.checksums = body >= at + HEADER_SIZE and zlib.crc32(memoryview(data)[at:body]) == _crc_at(data, body)[0]
        if kind != ROTATE or not flags & ARTIFICIAL:
            raise BinlogError(f"expected an artificial ROTATE as the first event, found {name_of(kind)}")
        return body if self.checksums else upto

    def _described(self, data: bytes, at: int, upto: int) -> int:
        """Take a FORMAT_DESCRIPTION: it always has room for a checksum, and says if the others have one."""
        body = upto - CHECKSUM_SIZE - 1
        fixed = at + HEADER_SIZE + _DESCRIBED.size
        if body < fixed:
            raise BinlogError(f"FORMAT_DESCRIPTION: expected {fixed + 5 - at} bytes or more, found {upto - at}")
        algorithm = data[body]
        made_of = bytearray(data[at : body + 1])
        made_of[17] &= ~IN_USE & 0xFF
        # Without checksums servers change this event for a reader and leave the sum as it was. So a wrong one is none
        # of a damaged event then, unless it is right for the event that says that there are checksums.
        made_of[-1] = algorithm or _CRC32
        if (zlib.crc32(made_of) == _crc_at(data, body + 1)[0]) != bool(algorithm):
            raise _torn(FORMAT_DESCRIPTION)
        if algorithm > _CRC32:
            raise BinlogError(
                f"FORMAT_DESCRIPTION: expected checksum algorithm 0 or {_CRC32} (CRC32), found {algorithm}"
            )
        self.checksums = algorithm == _CRC32
        return body


class Format(NamedTuple):
    """What FORMAT_DESCRIPTION tells of a file. `created`: the server started with this file; 0: it went on."""

    server: str
    created: int


def format_of(data: bytes, at: int, upto: int) -> Format:
    """FORMAT_DESCRIPTION: raises BinlogError where events are not laid out as this program reads them."""
    version, server, created, header = _DESCRIBED.unpack_from(data, at)
    if version != 4 or header != HEADER_SIZE:
        raise BinlogError(
            f"expected a binary log of version 4 with headers of {HEADER_SIZE} bytes, "
            f"found version {version} with {header}"
        )
    lengths = data[at + _DESCRIBED.size : upto]
    for kind, expected in _POST_HEADERS.items():
        found = lengths[kind - 1] if kind <= len(lengths) else 0
        if found != expected and (found or kind < WRITE_ROWS_V2):
            raise BinlogError(
                f"FORMAT_DESCRIPTION: expected {name_of(kind)} to begin with {expected} fixed bytes, found {found}"
            )
    return Format(server.rstrip(b"\0").decode("utf-8", "replace"), created)


def rotate_of(data: bytes, at: int, upto: int) -> tuple[str, int]:
    """ROTATE: (the file that follows, the place in it)."""
    (place,) = _U64.unpack_from(data, at)
    return file_of(data, at + 8, upto), place


def file_of(data: bytes, at: int, upto: int) -> str:
    """A log file's name, up to the end."""
    name = data[at:upto]
    if not _FILE.match(name):
        raise BinlogError(f"expected a log file's name, such as binlog.000001, found {name[:60]!r}")
    return name.decode()


def heartbeat_of(event: Event, data: bytes) -> tuple[str, int]:
    """HEARTBEAT of either version: (file, place) up to which everything was sent."""
    at = event.at
    if event.type == HEARTBEAT_V2:
        return _heartbeat_v2(data, at, event.upto)
    if event.end:
        return file_of(data, at, event.upto), event.end
    # Behind 4 GiB the header has no room for the place.
    (place,) = _U64.unpack_from(data, at)
    return file_of(data, at + 8, event.upto), place


def _heartbeat_v2(data: bytes, at: int, upto: int) -> tuple[str, int]:
    """Fields of type, length and value, up to one of type 0; unknown ones are passed over, as they may be."""
    name, place = "", -1
    while at < upto and data[at]:
        kind, at = packed(data, at)
        size, at = packed(data, at)
        if at + size > upto:
            raise BinlogError(f"HEARTBEAT_V2: expected a field of {size} bytes, found {upto - at}")
        if kind == 1:
            name = file_of(data, at, at + size)
        elif kind == 2:
            place, end = packed(data, at)
            if end != at + size:
                raise BinlogError(f"HEARTBEAT_V2: expected a place of {size} bytes, found {end - at}")
        at += size
    if not name or place < 0:
        raise BinlogError("HEARTBEAT_V2: expected a file and a place in it, found no such fields")
    return name, place


def packed(data: bytes, at: int) -> tuple[int, int]:
    """A length-encoded number: (number, place behind it)."""
    first = data[at]
    if first < 251:
        return first, at + 1
    if first == 252:
        return _U16.unpack_from(data, at + 1)[0], at + 3
    if first == 253:
        low, high = struct.unpack_from("<HB", data, at + 1)
        return high << 16 | low, at + 4
    if first == 254:
        return _U64.unpack_from(data, at + 1)[0], at + 9
    raise BinlogError(f"expected a length-encoded number, found the byte {first}")


def _torn(kind: int) -> BinlogError:
    return BinlogError(
        f"event {name_of(kind)}: its bytes are not those that its checksum (CRC32) was made of",
        hint="If this comes again at the same place, the log file is damaged on the server",
    )
