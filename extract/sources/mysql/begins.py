"""How a group of events begins: the GTID events of both servers, and XA_PREPARE, which ends one. Bytes in, values out.

MySQL     GTID            flags u8, uuid, number u64, 2, two numbers of the log's own u64; from 8.0.1 on: time of the
                          commit in us, u56, whose highest bit says that the original server's follows; ...
          ANONYMOUS_GTID  the same as GTID, where GTIDs are off
MariaDB   GTID            sequence u64, domain u32, flags u8; then by flags: group commit u64; an XA transaction's
                          name; more flags u8 ...; at least 19 bytes
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from extract.sources.mysql.events import ANONYMOUS_GTID, BinlogError, Event
from extract.sources.mysql.gtid import DomainGtid, Gtid, UuidGtid, source_text
from extract.sources.mysql.xa import Xid

_GTID = struct.Struct("<B16sqBqq")
_LOGICAL: Final = 2
_TIME = 7
_HAS_ORIGINAL: Final = 1 << 55

_DOMAIN = struct.Struct("<QIB")
_STANDALONE, _GROUP_COMMIT, _PREPARES, _COMPLETES = 1, 2, 64, 128
_STARTS_ALTER, _UNDOES_ALTER = 2, 8
_XID = struct.Struct("<IBB")
_PREPARED = struct.Struct("<BIII")


class GroupBegin(NamedTuple):
    """A group begins. `gtid`: None where GTIDs are off.

    `started`: it goes up to its end without a BEGIN; else a BEGIN follows, or the one statement that is all of it.
    `prepares`: it ends in XA_PREPARE. `void`: the statement is that half of an ALTER which changes nothing.
    """

    gtid: Gtid | None
    commit_us: int
    started: bool = False
    prepares: bool = False
    void: bool = False


def of_mysql(event: Event, data: bytes) -> GroupBegin:
    """GTID or ANONYMOUS_GTID."""
    _, uuid, number, kind, _, _ = _GTID.unpack_from(data, event.at)
    at = event.at + _GTID.size
    if kind != _LOGICAL or at > event.upto:
        raise BinlogError(f"GTID: expected {_GTID.size} bytes or more, of kind {_LOGICAL}, found kind {kind}")
    time_us = event.time * 1_000_000
    if at + _TIME <= event.upto:
        time_us = int.from_bytes(data[at : at + _TIME], "little") & ~_HAS_ORIGINAL or time_us
    if event.type == ANONYMOUS_GTID:
        return GroupBegin(None, time_us)
    if number < 1:
        raise BinlogError(f"GTID: expected a number from 1 up, found {number}")
    return GroupBegin(UuidGtid(source_text(uuid), number), time_us)


def of_tagged(event: Event, data: bytes) -> GroupBegin:
    """GTID_TAGGED: of a transaction whose GTID has a tag, from MySQL 8.3 on."""
    (version, size, _), at = _varied(data, event.at, 3)
    if version != 1 or size != event.upto - event.at:
        raise BinlogError(
            f"GTID_TAGGED: expected version 1 in {event.upto - event.at} bytes, found {version} in {size}"
        )
    (flags, _, uuid), at = _varied(data, at, 3)
    source, at = _varied(data, at, 16)
    (number, doubled, tag, length), at = _varied(data, at, 4)
    name, at = data[at : at + length].decode("ascii"), at + length
    (committed, _, sequence, _, commit, time_us), at = _varied(data, at, 6)
    # Of a number that may be negative the lowest bit says so.
    if (
        [flags, uuid, number, tag, committed, sequence, commit] != [*range(7)]
        or at > event.upto
        or doubled & 1
        or max(source) > 255
    ):
        raise BinlogError("GTID_TAGGED: expected its first seven fields one behind the other, found others")
    return GroupBegin(UuidGtid(source_text(bytes(source), name), doubled >> 1), time_us)


def _varied(data: bytes, at: int, count: int) -> tuple[list[int], int]:
    """Numbers of varying length, and the place behind them: as many bytes follow the first as its low end has ones."""
    found = []
    for _ in range(count):
        more = (~data[at] & data[at] + 1).bit_length() - 1
        number = int.from_bytes(data[at : at + 1 + more], "little")
        found.append(number >> min(more + 1, 8))
        at += 1 + more
    return found, at


def of_mariadb(event: Event, data: bytes) -> GroupBegin:
    """GTID."""
    sequence, domain, flags = _DOMAIN.unpack_from(data, event.at)
    at = event.at + _DOMAIN.size
    gtid = DomainGtid(domain, event.server, sequence)
    time_us = event.time * 1_000_000
    if flags & _GROUP_COMMIT:
        at += 8
    if flags & (_PREPARES | _COMPLETES):
        _, gtrid, bqual = _XID.unpack_from(data, at)
        at += _XID.size + gtrid + bqual
    if at > event.upto:
        raise BinlogError(f"GTID: expected {at - event.at} bytes or more, found {event.upto - event.at}")
    more = data[at] if at < event.upto else 0
    alone = bool(flags & _STANDALONE)
    void = alone and bool(more & (_STARTS_ALTER | _UNDOES_ALTER))
    return GroupBegin(gtid, time_us, not alone, bool(flags & _PREPARES), void)


def prepared_of(event: Event, data: bytes) -> tuple[Xid, bool]:
    """XA_PREPARE: (the transaction, whether it commits right here)."""
    one_phase, kind, gtrid, bqual = _PREPARED.unpack_from(data, event.at)
    at = event.at + _PREPARED.size
    end = at + gtrid + bqual
    if one_phase > 1 or end != event.upto:
        raise BinlogError(
            f"XA_PREPARE: expected a name of {gtrid} and {bqual} bytes, found {event.upto - at}, one phase {one_phase}"
        )
    return Xid(kind, data[at : at + gtrid], data[at + gtrid : end]), bool(one_phase)
