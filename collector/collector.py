"""The Collector: what a session's messages do to the remote trail, and what is answered. No socket here.

Rule: a block is checked (header CRC, payload CRC, order, transaction borders) before it touches the trail, and
acknowledged only when the trail's writer calls it durable. At the start an existing trail is recovered as it stands; a
new one is made by HELLO.
"""

from __future__ import annotations

import os
import time

from trails import wire
from trails.codec import decode_defs
from trails.errors import DamageError, GateError, KeyMissingError, MismatchError, ProtocolError, VersionError
from trails.format import BlockHeader, Indicator, Kind, check_payload, file_seed, parse_block_header
from trails.fs import Fs
from trails.position import START, Position, TrailName
from trails.reader import last_header
from trails.writer import Mark, TrailWriter, WriterIdentity

# The writer itself never rolls: the pump's HELLO says how large a file may get, and the writer is open before that.
UNBOUNDED = 1 << 62


def refuse(error: GateError) -> wire.Refuse:
    """How an error is told to the pump: permanent if trying again cannot help."""
    permanent = isinstance(error, (DamageError, VersionError, MismatchError, KeyMissingError))
    return wire.Refuse(permanent, str(error))


class Collector:
    """One trail, one session. Recovers the trail when made; raises what TrailWriter.open raises."""

    def __init__(self, fs: Fs, trail: TrailName, title: str, home: str = "") -> None:
        self._fs = fs
        self._home = home
        self._trail = trail
        self._title = title
        self._hello: wire.Hello | None = None
        self._max_bytes = UNBOUNDED
        self._file_start = START
        self._origin = START  # end of the last block appended
        self._unsynced = False  # something was taken that no sync covers yet
        self._syncing: tuple[Position, Position] | None = None  # (our place, origin) that a sync under way will cover
        self._writer: TrailWriter | None = self._recover()

    def _recover(self) -> TrailWriter | None:
        """Mend an existing trail, in its own name; only then is anybody answered."""
        header = last_header(self._fs, self._trail)
        if header is None:
            return None
        if not header.copies:
            raise MismatchError(
                f"trail {self._title} is written by Extract {header.group} of home {header.home_id}, not by a pump",
                hint="Give the pump another RMTTRAIL",
            )
        identity = WriterIdentity(header.home_id, header.group, header.host, header.source, header.copies)
        # Whether it is to be encrypted is in the HELLO to come; until then it goes on as it is.
        return TrailWriter.open(self._fs, self._trail, identity, max_bytes=UNBOUNDED, restart_open=False, encrypt=None)

    # greeting

    def greet(self, hello: wire.Hello) -> wire.Welcome:
        """Check that this pump and source trail belong to our trail, obey its ALTER, and say where to go on.

        Raises MismatchError and what TrailWriter.open raises: each is a refusal.
        """
        if not self._is_ours(hello.trail):
            raise ProtocolError(f"this Collector serves {self._title}, not {hello.trail}")
        self._hello = hello
        self._max_bytes = max(1, hello.megabytes) << 20
        if self._writer is not None:
            self._check_owner(self._writer.last, hello)
        if self._writer is None or hello.alter > self._writer.last.alter:
            self._open(hello)
        writer = self._alive()
        writer.encrypt(hello.encrypt)
        mark = writer.last
        self._origin = mark.origin
        self._file_start = writer.position
        now_us = time.time_ns() // 1000
        return wire.Welcome(mark.origin, mark.trail_id, mark.open, mark.alter, writer.durable, now_us, self._home)

    def _is_ours(self, named: str) -> bool:
        """Whether the pump's RMTTRAIL means our trail: as the Manager names it, or by its whole path."""
        if os.path.isabs(named):
            return os.path.realpath(named) == os.path.realpath(str(self._trail))
        return os.path.normpath(named) == os.path.normpath(self._title)

    def _check_owner(self, mark: Mark, hello: wire.Hello) -> None:
        if f"{mark.home_id}/{mark.group}" != hello.pump:
            raise MismatchError(
                f"trail {self._title} belongs to pump {mark.group} of home {mark.home_id}, "
                f"not to {hello.group} of home {hello.home}",
                hint="Give each pump a remote trail of its own",
            )
        if mark.copies != hello.trail_id:
            raise MismatchError(
                f"trail {self._title} copies source trail {mark.copies.hex()}, this pump sends {hello.trail_id.hex()}: "
                "the source trail was deleted and made anew",
                hint="Give the new source trail a remote trail of its own",
            )

    def _open(self, hello: wire.Hello) -> None:
        """Make the trail, or begin a new file that bears the ALTER's number and place, synced before we answer."""
        moves = hello.start is not None
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        identity = WriterIdentity(hello.home, hello.group, hello.host, hello.source, hello.trail_id)
        # A jump leaves an open transaction behind for good: readers must drop it. ETROLLOVER goes on inside it.
        self._writer = TrailWriter.open(
            self._fs,
            self._trail,
            identity,
            max_bytes=UNBOUNDED,
            alter=hello.alter,
            start=Mark(origin=hello.start) if hello.start is not None else None,
            restart_open=moves,
            encrypt=hello.encrypt,
        )

    # blocks

    def take(self, block: wire.Block) -> None:
        """Check a block and append it. Raises ProtocolError for a bad one, and the writer's errors."""
        writer, header = self._alive(), self._checked(block)
        if header.kind == Kind.METADATA and block.start == block.end:
            # Not a block of the source trail: the definitions in force at the session's start. New ones are kept.
            writer.define(decode_defs(header, bytes(block.payload)), block.end)
        else:
            self._make_room(writer, header)
            writer.append_block(header, _view(block.payload), block.end)
        self._origin = block.end
        self._unsynced = True

    def _checked(self, block: wire.Block) -> BlockHeader:
        assert self._hello is not None
        where = f"block {block.start} of the source trail, received"
        try:
            seed = file_seed(self._hello.trail_id, block.start.seqno)
            header = parse_block_header(bytes(block.header), seed, block.start.rba, where)
            check_payload(header, _view(block.payload), where, block.start.rba)
        except DamageError as error:
            raise ProtocolError(error.message) from None
        if header.kind == Kind.END or header.is_encrypted:
            raise ProtocolError(f"{where}: END and encrypted blocks are never sent")
        self._check_borders(header, where)
        return header

    def _check_borders(self, header: BlockHeader, where: str) -> None:
        """The rest of a transaction only after its begin, and nothing else before its end."""
        opened = self._alive().last.open
        if header.kind in (Kind.RESTART, Kind.METADATA):
            return
        inside = header.indicator in (Indicator.MIDDLE, Indicator.END)
        if inside != opened:
            expected = "the rest of the open transaction" if opened else "the begin of a transaction"
            raise MismatchError(
                f"{where}: expected {expected}, found indicator {header.indicator.name.lower()}",
                hint="ALTER the pump to a position that is a transaction's border",
            )

    def _make_room(self, writer: TrailWriter, header: BlockHeader) -> None:
        full = writer.position.rba + writer.room(header) > self._max_bytes
        if full and writer.position > self._file_start:
            writer.roll()
            self._file_start = writer.position

    # acknowledging

    @property
    def sync_fileno(self) -> int | None:
        """Readable when a sync in the background has ended; None while there is none."""
        return self._writer.fileno() if self._writer is not None and self._writer.syncing else None

    def sync_soon(self) -> None:
        """Begin a sync of all that was appended, unless one is under way or nothing is new."""
        writer = self._alive()
        if self._syncing is None and self._unsynced:
            self._syncing = (writer.position, self._origin)
            self._unsynced = False
            writer.sync_soon()

    def acknowledge(self) -> wire.Ack | None:
        """An ACK if a sync has ended since the last one. Raises the sync's error: then this process must end."""
        writer = self._alive()
        writer.sync_done()
        if self._syncing is None or writer.durable < self._syncing[0]:
            return None
        origin, self._syncing = self._syncing[1], None
        return wire.Ack(origin, writer.durable)

    def sync(self) -> wire.Ack:
        """Sync all that was appended, now, and acknowledge it."""
        writer = self._alive()
        writer.sync()
        self._syncing, self._unsynced = None, False
        return wire.Ack(self._origin, writer.durable)

    def close(self) -> None:
        """Sync what was appended if that still can be, and let the trail go."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()

    def _alive(self) -> TrailWriter:
        if self._writer is None:
            raise ProtocolError("the session has no trail before its HELLO")
        return self._writer


def _view(payload: wire.Buffer) -> bytes | memoryview:
    return memoryview(payload) if isinstance(payload, bytearray) else payload
