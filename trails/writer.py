"""The one writer of a trail: goes on where recovery found its end, appends blocks, syncs, rolls over.

Rule: nobody is told of a block before `durable` has passed it. FORMAT.md says what each crash leaves and how it is
mended (trails/recovery.py). A failed write or sync makes the writer dead for good: what the disk holds is then known
only to a new start's recovery.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ParamSpec, TypeVar

from trails.codec import EMPTY, Payload, decode_defs, encode_data, encode_defs, encode_hole, portions, with_state
from trails.errors import GateError, OperatorError
from trails.format import (
    COMPLETE,
    FILE_MEGABYTES,
    FLAG_DDL,
    FLAG_HEARTBEAT,
    BlockHeader,
    BlockKind,
    FileHeader,
    Indicator,
    bounded,
)
from trails.fs import Fs
from trails.hole import Hole
from trails.position import Position, TrailName
from trails.record import Record, TableDef
from trails.recovery import InForce, Mark, recover
from trails.syncing import Syncer
from trails.trailfile import PlainBlock, TrailFile, begin

LITTLE = 64 << 10
QUICK_SECONDS = 0.002
"""A sync of so little, where the last one was so quick, is not worth a second thread: to hand it over and to be woken
at its end costs more than the sync. On a slow disk, and where much comes, the loop goes on beside it."""

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WriterIdentity:
    """Who writes, and from where: goes into each file's header."""

    home_id: str
    group: str
    host: str
    source: dict[str, str]
    copies: bytes = b""


FindHole = Callable[[Mark], Hole | None]


class TrailWriter:
    """Appends to one trail, under its lock, until close. Made by TrailWriter.open only."""

    def __init__(
        self, fs: Fs, trail: TrailName, identity: WriterIdentity, max_bytes: int, encrypt: bool | None = False
    ) -> None:
        self._fs = fs
        self._trail = trail
        self._identity = identity
        self._encrypt = encrypt
        self._lock = fs.lock(trail.lock_path())
        self._in_force = InForce()
        self._file: TrailFile
        """The one that is written, from `open` on."""
        self._dead: GateError | None = None
        self._syncer = Syncer(fs.host)
        self._took = QUICK_SECONDS  # seconds of the last sync; the first one is none to wait for
        self.max_bytes = max_bytes
        """A block that would make a file larger begins the next one."""
        self.last = Mark()
        """What stands in the trail, durable or not yet; just after open() all of it is durable."""
        self.durable = Position(0, 0)
        """Everything before it is synced."""
        self.syncing: Position | None = None
        """What a background sync will make durable that is in flight, or not yet collected by sync_done()."""
        self.lost: tuple[int, int] | None = None
        """Files (first, last) that were begun and are gone, found when it was opened: what only they held is lost."""
        self.hole: Hole | None = None
        """The one that opening it made."""
        self.written_bytes = 0
        """Of blocks appended since it was opened, their headers with them."""
        self.before_file: Callable[[], None] = lambda: None
        """Called before each file that it begins once it is open."""

    @classmethod
    def open(
        cls,
        fs: Fs,
        trail: TrailName,
        identity: WriterIdentity,
        *,
        max_bytes: int = FILE_MEGABYTES << 20,
        alter: int = 0,
        start: Mark | None = None,
        restart_open: bool,
        encrypt: bool | None = False,
        hole: FindHole = lambda _found: None,
    ) -> TrailWriter:
        """Take the lock, mend what a crash left, and go on in a new file.

        `start` is what a trail without files begins from (csn, origin, state). `alter` above the trail's own number is
        spent by the new file's header; then `start`, if given, replaces the recovered place too. `restart_open`: drop a
        transaction left open (Extract), or go on inside it (Collector). `encrypt`: new files, under the current master
        key; None: if the trail's last file is. `hole`: given the place found, the hole that obeying `alter` makes; the
        new file opens with it. Raises DamageError, VersionError, MismatchError (the trail belongs to
        another source), LockedError, KeyMissingError, OperatorError.
        """
        writer = cls(fs, trail, identity, max_bytes, encrypt)
        try:
            writer._recover(alter, start, restart_open, hole)
        except BaseException:
            writer._syncer.close()
            writer._lock.release()
            raise
        return writer

    @property
    def position(self) -> Position:
        """Where the next block will stand, but for a rollover."""
        return Position(self._file.header.seqno, self._file.end)

    @property
    def seqno(self) -> int:
        """The file being written."""
        return self._file.header.seqno

    def define(self, defs: Sequence[TableDef], origin: Position | None = None) -> list[tuple[TableDef, TableDef]]:
        """Append a METADATA block with those of `defs` that are not in force yet; none, no block.

        Returns those that another of their name makes way for, each with the new one.
        """
        known = self._in_force.known
        new = [one for one in defs if known.get((one.schema, one.name)) != one]
        if not new:
            return []
        replaced = [(known[name], one) for one in new if (name := (one.schema, one.name)) in known]
        self._in_force.learn(new, str(self._trail))
        for part in portions(new):
            self._append(self._block(BlockKind.METADATA, encode_defs(part), origin=origin))
        return replaced

    def append_data(
        self,
        indicator: Indicator,
        tables: Sequence[bytes],
        records: Sequence[Record],
        *,
        changes: int,
        transactions: int,
        origin: Position,
        csn: str,
        time_us: int,
        ddl: bool = False,
        heartbeat: bool = False,
        state: str = "",
    ) -> None:
        """Append one DATA block. `origin`, `csn` and `state` belong to the last transaction complete at its end.

        `ddl`: it holds a DDL record, and beside it at most its transaction's begin and commit. `heartbeat`: it holds
        one transaction of heartbeats and nothing else.
        """
        given = state if indicator in COMPLETE else None  # inside a transaction nothing is said of it
        block = self._block(
            BlockKind.DATA, encode_data(tables, records), indicator, origin=origin, csn=csn, time_us=time_us,
            state=given, flags=(FLAG_DDL if ddl else 0) | (FLAG_HEARTBEAT if heartbeat else 0), changes=changes,
            transactions=transactions,
        )  # fmt: skip
        self._append(block, given)

    def append_block(self, header: BlockHeader, payload: bytes | memoryview, origin: Position) -> None:
        """Pass on a block of another trail, as before encryption: same payload and facts, our place and `origin`."""
        if header.kind == BlockKind.METADATA:
            self._in_force.learn(decode_defs(header, bytes(payload)), str(self._trail))
        self._append((replace(header, origin=origin), payload))

    def append_place(self, origin: Position, time_us: int | None = None, state: str = "") -> None:
        """Append an empty block that only says how far the source was read."""
        self._append(self._block(BlockKind.PLACE, EMPTY, origin=origin, time_us=time_us, state=state), state)

    def append_restart(self) -> None:
        """Tell readers to drop the open transaction: its source will give it again, whole."""
        self._append(self._block(BlockKind.RESTART, EMPTY))

    def sync(self) -> Position:
        """Make all that was appended durable, then say so in the file's header. Returns the durable position."""
        self.sync_done(wait=True)
        if self.durable != self.position:
            self._sync_all()
        return self.durable

    def sync_soon(self) -> bool:
        """Begin a sync of all appended so far on a second thread; False if one is in flight or nothing is to do.

        Of little, on a quick disk, it is done at once: then nothing is `syncing` behind it.
        """
        if self._dead is not None:
            raise self._dead
        end = Position(self._file.header.seqno, self._file.end)
        if self.syncing is not None or self.durable == end:
            return False
        if self._took < QUICK_SECONDS and end.rba - self.durable.rba <= LITTLE:
            self._or_die(self._sync_timed, self._file, end.rba)
            self.durable = end
        else:
            self.syncing = end
            self._syncer.start(self._sync_timed, self._file, end.rba)
        return True

    def _sync_timed(self, file: TrailFile, end: int) -> None:
        began = self._fs.host.monotonic()
        file.sync(end)
        self._took = self._fs.host.monotonic() - began

    def sync_done(self, *, wait: bool = False) -> bool:
        """True if a background sync has ended (durable has moved); raises its error. Blocks only if it is to `wait`."""
        if self._dead is not None:
            raise self._dead
        try:
            if not self._syncer.ended(wait=wait):
                return False
        except GateError as error:
            self._dead = error
            raise
        assert self.syncing is not None
        self.durable, self.syncing = self.syncing, None
        return True

    def fileno(self) -> int:
        """A descriptor that is readable when a background sync has ended and sync_done() is due."""
        return self._syncer.fileno()

    def encrypt(self, wanted: bool) -> None:
        """Encrypt what comes from here on, or no longer: in a new file, if that is a change."""
        if wanted != bool(self._encrypt):
            self._encrypt = wanted
            self.roll()

    def fresh_file(self) -> None:
        """What is appended next is to stand at a file's beginning: go on in the next one, if this has blocks."""
        if not self._file.is_empty:
            self.roll()

    def roll(self) -> None:
        """Close the current file and go on in the next."""
        self.before_file()
        self._finish_file()
        self._begin_file(self.seqno + 1, self._file)

    def finish(self) -> None:
        """Close the file for good, durably, as before a rollover, and begin no other; then let the lock go."""
        self._finish_file()
        self.abandon()

    def close(self) -> None:
        """Sync and look if the writer is alive, and let the lock go. The file stays open-ended: the next start ends it.

        With the descriptor the last of a deleted file would go, so this is the last time that it can be written anew.
        """
        try:
            if self._dead is None:
                self.sync()
                self.look()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of file and lock without any further write, as a crash would."""
        self._dead = self._dead or OperatorError(
            f"trail {self._trail}: the writer was closed", hint="START the process anew"
        )
        self._syncer.close()
        self._file.close()
        self._lock.release()

    def look(self) -> None:
        """Now and then: raise, as a sync would, if the file was removed or replaced; and is the lock still ours?"""
        if self._dead is not None:
            raise self._dead
        self._or_die(self._lock.keep)
        if self.syncing is None:
            self._or_die(self._file.look)

    # Opening

    def _recover(self, alter: int, start: Mark | None, restart_open: bool, find: FindHole) -> None:
        found = recover(self._fs, self._trail, self._identity.copies)
        newest = -1 if found.noted is None else found.noted.seqno
        if found.file is None:
            self.lost = (0, newest) if newest >= 0 else None
            mark = start or Mark()
            self.hole = find(Mark()) if self.lost else None
            self.last = replace(mark, alter=max(alter, mark.alter), trail_id=self._fs.host.random_bytes(16), open=False)
            self._begin_file(0, None, hole=self.hole)
            return
        self._file, self.last, self._in_force = found.file, found.mark, found.in_force
        if self._encrypt is None:
            self._encrypt = bool(found.file.header.key_id)
        if found.ended:
            self._sync_all(twice=True)
        else:
            self._finish_file()
        if alter > self.last.alter:
            self.last = replace(self.last, alter=alter)
            self.hole = find(self.last)
            if start is not None:
                self.last = replace(self.last, csn=start.csn, origin=start.origin, state=start.state)
        if newest > self.seqno:
            self.lost = (self.seqno + 1, newest)
        # In the new file, as the old one may be ended already: the crash may have come in the middle of a rollover.
        restart = self.last.open and restart_open
        self._begin_file(max(self.seqno, newest) + 1, self._file, restart=restart, hole=self.hole)

    # Appending

    def _block(
        self,
        kind: BlockKind,
        payload: Payload,
        indicator: Indicator = Indicator.NONE,
        *,
        origin: Position | None = None,
        csn: str | None = None,
        time_us: int | None = None,
        state: str | None = None,
        flags: int = 0,
        changes: int = 0,
        transactions: int = 0,
    ) -> tuple[BlockHeader, bytes]:
        """A block, with the source's state behind its payload if that is news."""
        if state is not None and state != self.last.state:
            payload = with_state(payload, state)
        header = BlockHeader(
            kind=kind,
            indicator=indicator,
            flags=payload.flags | flags,
            payload_len=len(payload.data),
            raw_len=payload.raw_len,
            changes=changes,
            transactions=transactions,
            origin=self.last.origin if origin is None else origin,
            time_us=bounded(self._fs.host.now_us() if time_us is None else time_us),
            csn=self.last.csn if csn is None else csn,
            payload_crc=payload.crc,
        )
        return header, payload.data

    def _append(self, block: PlainBlock, state: str | None = None) -> None:
        """`state`: the source's from this block on; None: as it was."""
        if self._dead is not None:
            raise self._dead
        header, file = block[0], self._file
        if header.origin < self.last.origin:
            raise ValueError(f"{self._trail}: origin {header.origin} lies before {self.last.origin}: a place goes back")
        # So a file never grows past its bound but for one oversized block. END has its place kept free.
        is_full = file.end + header.size + file.reserve > self.max_bytes
        if is_full and not file.is_empty and header.kind != BlockKind.END:
            self.roll()
        try:
            stored = self._file.append(block)
        except GateError as error:
            self._dead = error
            raise
        self.written_bytes += stored.size
        self.last = self.last.after(stored)
        if state is not None and state != self.last.state:
            self.last = replace(self.last, state=state)

    # Files

    def _finish_file(self) -> None:
        self.sync_done(wait=True)
        self._append(self._block(BlockKind.END, EMPTY))
        self._sync_all(twice=True)

    def _begin_file(
        self, seqno: int, last: TrailFile | None, *, restart: bool = False, hole: Hole | None = None
    ) -> None:
        """Make the next file. What spends an ALTER also drops the open part and tells of the hole: in its opening."""
        mark, who = self.last, self._identity
        header = FileHeader(
            trail_id=mark.trail_id, prefix=self._trail.prefix, seqno=seqno, created_us=self._fs.host.now_us(),
            home_id=who.home_id, group=who.group, host=who.host, source=who.source, copies=who.copies,
            last_csn=mark.csn, last_origin=mark.origin, last_state=mark.state, open=mark.open, alter=mark.alter,
            follows=None if last is None or seqno == last.header.seqno + 1 else last.header.seqno,
        )  # fmt: skip
        opening = [(BlockKind.METADATA, encode_defs(part)) for part in portions(list(self._in_force.known.values()))]
        opening += [(BlockKind.RESTART, EMPTY)] if restart else []
        opening += [(BlockKind.HOLE, encode_hole(hole))] if hole is not None else []
        blocks = [self._block(kind, content) for kind, content in opening]
        encrypt = bool(self._encrypt)
        self._file = self._or_die(begin, self._fs, self._trail, header, blocks, encrypt)
        if last is not None:
            last.close()
        self._sync_all()
        self.last = replace(
            mark, open=mark.open and not restart, home_id=who.home_id, group=who.group, source=dict(who.source),
            copies=who.copies,
        )  # fmt: skip

    # Durability

    def _sync_all(self, *, twice: bool = False) -> None:
        self._or_die(self._file.sync, self._file.end, twice)
        self.durable = self.position

    def _or_die(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do what leaves nobody knowing what the disk holds if it fails: then this writer writes nothing more."""
        try:
            return work(*args, **kwargs)
        except GateError as error:
            self._dead = error
            raise
