"""The binary log as the server sends it to a replica: one packet an event, read from the socket by ourselves.

    packet   length u24, number u8, then 00 and an event, FF and an error, or FE: the log's end
             an event of 16 MB or more comes in several, all of 16 MB but the last one

Strategy: what the socket holds goes into one large buffer, becomes one `bytes`, and each event in it is handed over by
its place there: nothing is copied or made for an event. A packet that is larger than the buffer gets a larger one for
as long as it takes. A server that has nothing to say sends a heartbeat each second, so silence means a dead link.

Rule: nothing here decides what is durable. `acknowledge` is for semi-synchronous servers, which then let a commit
return: it says only what it was told.
"""

from __future__ import annotations

import re
import socket
import ssl
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from extract.sources.mysql.flavour import Flavour
from extract.sources.mysql.gtid import GtidSet, UuidSet
from extract.sources.mysql.link import LOGIN_SECONDS, MysqlError, MysqlSession, refused
from trails.errors import AwayError, DamageError, MismatchError, OperatorError, ProtocolError

BUFFER: Final = 1 << 18
HEARTBEAT_SECONDS: Final = 1
SILENCE_SECONDS: Final = 30.0
"""Longer than any server needs between two heartbeats, also while it looks for a place in a large file."""
MOST_POS: Final = (1 << 32) - 1
"""A dump by place can't begin further on: then it is by GTIDs."""

_REGISTER, _DUMP, _DUMP_GTID = 0x15, 0x12, 0x1E
_NON_BLOCKING, _BY_GTID = 0x01, 0x04
_PACKET_MOST: Final = 0xFFFFFF
_EVENT, _ERROR, _EOF = 0x00, 0xFF, 0xFE
_SEMI: Final = 0xEF
_FATAL: Final = 1236
_HEAD = struct.Struct("<I")
_head = _HEAD.unpack_from

LOST: Final = "Else see docs/recovery.md#lost-log"

Decode = Callable[[bytes, int, int], None]
"""Takes one event: the bytes, and where it begins and ends in them."""


class PurgedError(MismatchError):
    """The server has purged log that is still needed."""


@dataclass(frozen=True, slots=True)
class DumpBegin:
    """Where a dump begins: at a place, or, where `gtids` is given, with all that is not in that set."""

    file: str = ""
    pos: int = 4
    gtids: GtidSet | None = None


@dataclass(frozen=True, slots=True)
class LogReader:
    """Who reads, for the server's list of replicas: of two with one id it throws out the older one.

    `server_id`: a group's own, and the same at each start; 0 is no replica, and throws out nobody.
    """

    server_id: int
    name: str

    @property
    def uuid(self) -> str:
        """MySQL's replicas have one too."""
        return f"7261696c-6761-7465-0000-0000{self.server_id:08x}"


class BinlogStream:
    """A running dump. Everything raises AwayError where the connection is lost."""

    def __init__(
        self, url: str, reader: LogReader, begin: DumpBegin, *, semi_sync: bool = False, to_end: bool = False
    ) -> None:
        """`to_end`: it ends where the log does now, and does not wait for more.

        `semi_sync`: as a semi-synchronous replica, whose `acknowledge` commits wait for.
        """
        session = MysqlSession(url, reader.name)
        try:
            self._prepare(session, reader, begin, semi_sync)
            self.flavour, self._user = session.flavour, session.one("SELECT current_user()")[0]
            self._sock = session.take_socket()
            self._sock.settimeout(LOGIN_SECONDS)
            self._reader = reader
            self._semi_sync = semi_sync
            self._head_size = 3 if semi_sync else 1
            self._number = 0
            self._buffer = bytearray(BUFFER)
            self._view = memoryview(self._buffer)
            self._end = 0  # so much of it is filled
            self._parts: list[bytes] = []  # of an event that comes in several packets
            self._ended = False
            if reader.server_id:
                self._register(reader)
            self._send(_dump(self.flavour, reader, begin, _NON_BLOCKING if to_end else 0))
            self._sock.setblocking(False)
        except BaseException:
            session.close()
            raise
        self._session = session
        self._secure = isinstance(self._sock, ssl.SSLSocket)
        self.heard = time.monotonic()
        """When something came last."""

    def _prepare(self, session: MysqlSession, reader: LogReader, begin: DumpBegin, semi_sync: bool) -> None:
        """Say by variables of the session what the dump is to be like; servers know each by one name or two."""
        old = ["@master_binlog_checksum = @@GLOBAL.binlog_checksum"]
        old.append(f"@master_heartbeat_period = {HEARTBEAT_SECONDS * 10**9}")
        new = [one.replace("@master_", "@source_") for one in old]
        if session.flavour is Flavour.MYSQL and reader.server_id:
            new.append(f"@slave_uuid = '{reader.uuid}', @replica_uuid = '{reader.uuid}'")
        elif session.flavour is Flavour.MARIADB:
            new.append("@mariadb_slave_capability = 4")
            if begin.gtids is not None:
                new.append(f"@slave_connect_state = '{begin.gtids}', @slave_gtid_strict_mode = 1")
        if semi_sync:
            known = ("rpl_semi_sync_master_enabled", "rpl_semi_sync_source_enabled")
            if not any(session.setting(name) for name in known):
                raise OperatorError(
                    "the source has no semi-synchronous replication to take part in",
                    hint="INSTALL PLUGIN rpl_semi_sync_master SONAME 'semisync_master.so' (from MySQL 8.0.26 on "
                    "rpl_semi_sync_source and semisync_source.so), or take SEMISYNC out",
                )
            new.append("@rpl_semi_sync_slave = 1, @rpl_semi_sync_replica = 1")
        session.query(f"SET {', '.join(old + new)}")

    def _register(self, reader: LogReader) -> None:
        """Appear in SHOW REPLICAS."""
        name = reader.name.encode()[:60]
        self._send(
            struct.pack("<BIB", _REGISTER, reader.server_id, len(name)) + name + struct.pack("<BBHII", 0, 0, 0, 0, 0)
        )
        answer = self._answer()
        if answer[0] == _ERROR:
            raise self._failed(answer)

    # --- packets ------------------------------------------------------------------------------------------------------

    def _send(self, payload: bytes, number: int = 0) -> None:
        try:
            self._sock.sendall(struct.pack("<I", len(payload) | number << 24) + payload)
        except OSError as error:
            raise AwayError(f"the source database went away: {error}") from None
        self._number = number + 1

    def _answer(self) -> bytes:
        """One packet, waited for."""
        head = self._exactly(4)
        self._number += 1
        return self._exactly(_head(head)[0] & _PACKET_MOST)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                found = self._sock.recv(size - len(data))
            except OSError as error:
                raise AwayError(f"the source database went away: {error}") from None
            if not found:
                raise AwayError("the source database went away: it closed the connection")
            data += found
        return data

    def fileno(self) -> int:
        """The socket."""
        return self._sock.fileno()

    @property
    def ended(self) -> bool:
        """Whether the log's end was reached, where `to_end` asks for that."""
        return self._ended

    def gulp(self, decode: Decode) -> tuple[int, bool]:
        """Hand over the events that are here, up to a buffer of them. Returns (bytes taken in, if more may be here)."""
        came = self._fill()
        end = self._end
        full = end == len(self._buffer)
        if end < 4 or end < 4 + (_head(self._buffer)[0] & _PACKET_MOST):
            self._make_room()
            return came, full
        data = bytes(self._view[:end])
        at = self._hand_over(data, end, decode)
        if len(self._buffer) > BUFFER:
            self._buffer = bytearray(BUFFER)
            self._view = memoryview(self._buffer)
        self._end = end - at
        self._view[: end - at] = data[at:end]
        self._make_room()
        return came, full

    def _fill(self) -> int:
        """Take from the socket what is there and has room."""
        begin = self._end
        room = len(self._buffer)
        try:
            while self._end < room:
                size = self._sock.recv_into(self._view[self._end :])
                if not size:
                    raise ConnectionError("it closed the connection")
                self._end += size
                if not self._secure:
                    break  # TLS gives a record at a time, and keeps the next one where no poll sees it
        except (BlockingIOError, ssl.SSLWantReadError):
            pass  # that was all
        except OSError as error:
            if self._end == begin:  # else what came before the end is handed over first, and the end met again
                raise AwayError(f"the source database went away: {error}") from None
        if self._end > begin:
            self.heard = time.monotonic()
        return self._end - begin

    def _make_room(self) -> None:
        """For the packet that has begun to come, if it is larger than the buffer."""
        if self._end < 4:
            return
        needed = 4 + (_head(self._buffer)[0] & _PACKET_MOST)
        if needed > len(self._buffer):
            larger = bytearray(needed)
            larger[: self._end] = self._view[: self._end]
            self._buffer, self._view = larger, memoryview(larger)

    def _hand_over(self, data: bytes, end: int, decode: Decode) -> int:
        """Every whole packet. Returns where the first one stands that is not."""
        at = 0
        number = self._number
        head_size = self._head_size
        while end - at >= 4:
            (head,) = _head(data, at)
            upto = at + 4 + (head & _PACKET_MOST)
            if upto > end:
                break
            if head >> 24 != number and not self._semi_sync:  # reading an acknowledgement, a server numbers anew
                raise ProtocolError(f"the source's stream: expected packet {number}, found {head >> 24}")
            number = number + 1 & 0xFF
            if head & _PACKET_MOST == _PACKET_MOST or self._parts:
                self._part(data[at + 4 : upto], decode)
            elif data[at + 4] == _EVENT and upto > at + 4:
                decode(data, at + 4 + head_size, upto)
            else:
                self._other(data[at + 4 : upto])
            at = upto
        self._number = number
        return at

    def _part(self, part: bytes, decode: Decode) -> None:
        self._parts.append(part)
        if len(part) == _PACKET_MOST:
            return
        whole = b"".join(self._parts)
        self._parts.clear()
        if whole[0] != _EVENT:
            raise self._failed(whole)
        decode(whole, self._head_size, len(whole))

    def _other(self, packet: bytes) -> None:
        """What is no event: the log's end, or an error."""
        if packet[:1] == b"\xfe" and len(packet) < 9:
            self._ended = True
            return
        raise self._failed(packet)

    # --- the server's errors ------------------------------------------------------------------------------------------

    def _failed(self, packet: bytes) -> Exception:
        if packet[:1] != b"\xff" or len(packet) < 3:
            return ProtocolError(f"the source's stream: expected an event, an error or an end, found {packet[:40]!r}")
        number = int.from_bytes(packet[1:3], "little")
        text = packet[9:] if packet[3:4] == b"#" else packet[3:]
        return stream_error(number, " ".join(text.decode("utf-8", "replace").split()), self._reader, self._user or "")

    # --- what the reader tells the server -----------------------------------------------------------------------------

    def acknowledge(self, file: str, pos: int) -> None:
        """Everything up to there is durable elsewhere: commits that wait for it may return."""
        self._sock.settimeout(LOGIN_SECONDS)
        number = self._number
        try:
            self._send(struct.pack("<BQ", _SEMI, pos) + file.encode())
        finally:
            self._number = number
            self._sock.setblocking(False)

    def close(self) -> None:
        """Cut the connection: a server knows no other end of a dump. Never raises."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is gone already
        self._session.close()


def _dump(flavour: Flavour, reader: LogReader, begin: DumpBegin, flags: int) -> bytes:
    """The command that begins it."""
    if begin.gtids is None:
        file = begin.file.encode()
        return struct.pack("<BIHI", _DUMP, begin.pos, flags, reader.server_id) + file
    if flavour is Flavour.MARIADB:  # the session's variable has the set
        return struct.pack("<BIHI", _DUMP, 4, flags, reader.server_id)
    assert isinstance(begin.gtids, UuidSet)
    data = begin.gtids.encode()
    fixed = struct.pack("<BHIIQI", _DUMP_GTID, flags | _BY_GTID, reader.server_id, 0, 4, len(data))
    return fixed + data


_PURGED = re.compile(r"(?i)could not find first log|purged|could not find gtid state requested")
_DIVERGED = re.compile(r"(?i)which is not in the (?:master|source)'s binlog|has more gtids than|position > file size")
_SAME_ID = re.compile(r"(?i)a (?:slave|replica) with the same server_uuid/server_id")
_DAMAGED = re.compile(r"(?i)truncated in the middle|bogus data|crc check|checksum|corrupt|event too small|i/o error")


def stream_error(number: int, text: str, reader: LogReader, user: str) -> Exception:
    """The error by which a server ends a dump, by who must act."""
    said = f"the source ended the stream of its binary log: {text} ({number})"
    if _SAME_ID.search(text):
        return OperatorError(
            f"{said}: another reader with server id {reader.server_id} has come",
            hint="Two replicas never share an id: stop the other one, or give one of them another (SERVERID n)",
        )
    if number != _FATAL:
        found = refused(number, text)
        if isinstance(found, MysqlError) and number in (1045, 1227):
            who = "@".join(f"'{part}'" for part in user.split("@", 1))
            found.hint = f"GRANT REPLICATION SLAVE ON *.* TO {who}"
        return found
    if _PURGED.search(text):
        return PurgedError(said, hint=LOST)
    if _DIVERGED.search(text):
        return MismatchError(said, hint=LOST)
    if "max_allowed_packet" in text:
        return OperatorError(said, hint="SET GLOBAL max_allowed_packet = 1073741824 at the source")
    if _DAMAGED.search(text):
        return DamageError(said, hint=f"Look into the server's error log. If that file is damaged: {LOST}")
    return OperatorError(said, hint="Mend it at the source server, then START again")
