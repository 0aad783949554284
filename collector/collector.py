"""The Collector: what a session's messages do to the remote trail, and what is answered. No socket here.

Rule: a block is checked (header CRC, payload CRC, order, transaction borders) before it touches the trail, and
acknowledged only when the trail's writer calls it durable. At the start an existing trail is recovered as it stands; a
new one is made by HELLO.

The file of a task (RMTFILE) is another thing: HELLO says where it ends. It is written under a hidden folder, begun anew
by each session, and has its name (trails/wholefile.py) before its end is acknowledged:

    crash before the rename                      the file of the run before stands; the pump sends all of it again
    crash between the rename and the last ACK    HELLO finds the file that it is about to send: WELCOME says its end
"""

from __future__ import annotations

import os
from collections.abc import Callable

from trails import wholefile
from trails.codec import decode_defs
from trails.errors import DamageError, GateError, KeyMissingError, MismatchError, ProtocolError, VersionError
from trails.format import SNAPSHOT, BlockHeader, BlockKind, Indicator, check_payload, file_seed, parse_block_header
from trails.fs import Fs
from trails.hole import Hole
from trails.keeping import lost_text
from trails.link import wire
from trails.position import START, Position, TrailName
from trails.reader import last_header
from trails.recovery import Mark
from trails.writer import TrailWriter, WriterIdentity

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
        self._origin = START  # end of the last block appended
        self._unsynced = False  # something was taken that no sync covers yet
        self._covered: Position | None = None  # the origin up to which a sync under way makes all durable
        self._ask: Callable[[], None] = lambda: None
        self._into = trail  # where blocks are written: of a task's file, under a hidden folder
        self._whole: Position | None = None  # where the file of a task ends
        self._arrived: wire.Ack | None = None  # it has its name, and nothing more is taken
        self._writer: TrailWriter | None = self._recover()

    def _recover(self) -> TrailWriter | None:
        """Mend an existing trail, in its own name; only then is anybody answered."""
        header = last_header(self._fs, self._trail)
        if header is None or wholefile.standing(self._fs, self._trail) is not None:
            return None
        if not header.copies:
            raise MismatchError(
                f"trail {self._title} is written by Extract {header.group} of home {header.home_id}, not by a pump",
                hint="Give the pump another RMTTRAIL",
            )
        identity = WriterIdentity(header.home_id, header.group, header.host, header.source, header.copies)
        # Whether it is to be encrypted is in the HELLO to come; until then it goes on as it is.
        return TrailWriter.open(self._fs, self._trail, identity, max_bytes=UNBOUNDED, restart_open=False, encrypt=None)

    def before_file(self, ask: Callable[[], None], /) -> None:
        """Call `ask` before each new file."""
        self._ask = ask
        if self._writer is not None:
            self._writer.before_file = ask

    @property
    def written_bytes(self) -> int:
        """Of blocks, since the trail was opened."""
        return self._writer.written_bytes if self._writer is not None else 0

    @property
    def lost(self) -> str:
        """Which files of the trail were found deleted by this start; empty if none were."""
        return lost_text(self._trail, self._writer.lost) if self._writer is not None and self._writer.lost else ""

    # greeting

    def greet(self, hello: wire.Hello) -> wire.Welcome:
        """Check that this pump and source trail belong to our trail, obey its ALTER, and say where to go on.

        Raises MismatchError and what TrailWriter.open raises: each is a refusal.
        """
        if not self._is_ours(hello.trail):
            raise ProtocolError(f"this Collector serves {self._title}, not {hello.trail}")
        self._hello = hello
        if hello.whole is not None and self._begin_file(hello, hello.whole):
            return wire.Welcome(hello.whole, hello.trail_id, False, 0, START, self._fs.host.now_us(), self._home)
        if hello.whole is None and wholefile.standing(self._fs, self._trail) is not None:
            raise MismatchError(
                f"{self._title} of the remote home is the file of a task, and no trail", hint="Name another RMTTRAIL"
            )
        if self._writer is not None:
            self._check_owner(self._writer.last, hello)
        if self._writer is None or hello.alter > self._writer.last.alter:
            self._open(hello)
        writer = self._alive()
        writer.max_bytes = max(1, hello.megabytes) << 20
        writer.encrypt(hello.encrypt)
        mark = writer.last
        self._origin = mark.origin
        now_us = self._fs.host.now_us()
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
                hint="Give it a remote trail of its own, or see docs/recovery.md#missing-trail-file",
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
            self._into,
            identity,
            max_bytes=UNBOUNDED,
            alter=hello.alter,
            start=Mark(origin=hello.start) if hello.start is not None else None,
            restart_open=moves,
            encrypt=hello.encrypt,
            hole=lambda found: _hole(hello, found),
        )
        self._writer.before_file = self._ask

    # the file of a task

    def _begin_file(self, hello: wire.Hello, whole: Position) -> bool:
        """Begin anew under the hidden folder; True if the file that is about to be sent stands already."""
        if SNAPSHOT not in hello.source:  # under its name it would be taken for a trail
            raise MismatchError(
                f"{hello.group} of {hello.host} sends a file that is none of SOURCEISTABLE",
                hint="Send a trail to RMTTRAIL",
            )
        found = wholefile.check_replaceable(self._fs, self._trail, f"RMTFILE {self._title}", hello.home, hello.group)
        if found is not None and found.copies == hello.trail_id:
            self._arrived = wire.Ack(whole, START)
            return True
        self._into, self._whole = wholefile.hidden(self._trail, hello.pump.replace("/", ".")), whole
        wholefile.clear(self._fs, self._into)
        return False

    def _arrive(self, ack: wire.Ack) -> None:
        """All of a task's file is synced: it gets its name."""
        hello, writer = self._hello, self._writer
        assert hello is not None and writer is not None
        self._writer = None
        try:
            writer.finish()
            wholefile.check_replaceable(self._fs, self._trail, f"RMTFILE {self._title}", hello.home, hello.group)
            wholefile.publish(self._fs, self._into, self._trail)
        finally:
            writer.abandon()
        self._arrived = ack

    # blocks

    def take(self, block: wire.BlockMessage) -> None:
        """Check a block and append it. Raises ProtocolError for a bad one, and the writer's errors."""
        if self._arrived is not None and block.start == block.end == self._arrived.origin:
            return  # the definitions that every session begins with, also one that has nothing to send
        writer, header = self._alive(), self._checked(block)
        if header.kind == BlockKind.METADATA and block.start == block.end:
            # Not a block of the source trail: the definitions in force at the session's start. New ones are kept.
            where = f"definitions at {block.start} of the source trail, received"
            writer.define(decode_defs(header, bytes(block.payload), where), block.end)
        else:
            if header.kind == BlockKind.HOLE:
                writer.fresh_file()  # whoever begins at a file crosses no hole that lies before it
            writer.append_block(header, memoryview(block.payload), block.end)
        self._origin = block.end
        self._unsynced = True

    def _checked(self, block: wire.BlockMessage) -> BlockHeader:
        assert self._hello is not None
        where = "a block that was received"
        try:
            seed = file_seed(self._hello.trail_id, block.start.seqno)
            header = parse_block_header(bytes(block.header), seed, block.start.rba, where)
            check_payload(header, memoryview(block.payload), where, block.start.rba)
        except DamageError as error:
            raise ProtocolError(f"source trail's file {block.start.seqno}: {error.message}") from None
        if header.kind == BlockKind.END or header.is_encrypted:
            raise ProtocolError(f"block {block.start} of the source trail: END and encrypted blocks are never sent")
        if header.kind in (BlockKind.RESTART, BlockKind.METADATA):
            return header
        opened = self._alive().last.open  # then the rest of it comes, and nothing else
        if (header.indicator in (Indicator.MIDDLE, Indicator.END)) != opened:
            expected = "the rest of the open transaction" if opened else "the begin of a transaction"
            raise MismatchError(
                f"block {block.start} of the source trail: expected {expected}, found indicator "
                f"{header.indicator.name.lower()}",
                hint="ALTER the pump to a position that is a transaction's border",
            )
        return header

    # acknowledging

    def waits(self) -> list[int]:
        """Readable when the sync that is in flight has ended; none where there is none, as it may say so twice."""
        if self._arrived is not None or self._alive().syncing is None:
            return []
        return [self._alive().fileno()]

    def acknowledge(self) -> wire.Ack | None:
        """An ACK if a sync has ended since the last one; begins the next if something new was appended.

        Raises the sync's error: then this process must end.
        """
        if self._arrived is not None:
            return None
        writer = self._alive()
        if writer.syncing is not None:
            writer.sync_done()
        ack = self._settled(writer)
        if self._covered is None and self._unsynced:
            self._unsynced = False
            self._covered = self._origin
            writer.sync_soon()
            ack = self._settled(writer) or ack
        if ack is not None and ack.origin == self._whole:
            self._arrive(ack)
        return ack

    def _settled(self, writer: TrailWriter) -> wire.Ack | None:
        """An ACK where something was to be synced and no sync is in flight: it has ended, or a rollover covered all."""
        if self._covered is None or writer.syncing is not None:
            return None
        ack, self._covered = wire.Ack(self._covered, writer.durable), None
        return ack

    def look(self) -> None:
        """While nothing comes: is the file still there that was acknowledged? Raises as a sync does if it is not."""
        if self._writer is not None:
            self._writer.look()

    def sync(self) -> wire.Ack:
        """Sync all that was appended, now, and acknowledge it."""
        if self._arrived is not None:
            return self._arrived
        writer = self._alive()
        writer.sync()
        self._covered, self._unsynced = None, False
        ack = wire.Ack(self._origin, writer.durable)
        if ack.origin == self._whole:
            self._arrive(ack)
        return ack

    def close(self) -> None:
        """Sync what was appended if that still can be, and let the trail go."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()

    def _alive(self) -> TrailWriter:
        if self._writer is None:
            raise ProtocolError("the session has no trail before its HELLO")
        return self._writer


def _hole(hello: wire.Hello, found: Mark) -> Hole | None:
    """What a pump leaves out that was altered to go on further ahead in its trail."""
    if hello.start is None or hello.start <= found.origin:
        return None
    return Hole(f"ALTER EXTRACT {hello.group}", f"{found.origin} of its trail", f"{hello.start} of its trail")
