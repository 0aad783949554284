"""The one writer of a trail: recovers what a crash left, appends blocks, syncs, rolls over.

Rule: nobody is told of a block before `durable` has passed it. FORMAT.md says what each crash leaves and
how it is mended. A failed write or sync makes the writer dead for good: what the disk holds is then known only
to a new start's recovery. Encrypting (ENCRYPTTRAIL) is the last thing done to a block, in `_seal`: all else here sees
blocks as they were given.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from trails.codec import EMPTY, Payload, decode_defs, encode_data, encode_defs
from trails.crypt import FileKey, need_master_key, new_file_key
from trails.errors import DamageError, GateError, MismatchError, OperatorError
from trails.format import (
    BLOCK_HEADER_SIZE,
    DURABLE_OFFSET,
    FLAG_DDL,
    FLAG_HEARTBEAT,
    SEAL_SIZE,
    BlockHeader,
    FileHeader,
    Indicator,
    Kind,
    make_block_header,
    make_durable_end,
    make_file_header,
)
from trails.fs import File, Fs
from trails.position import Position, TrailName
from trails.record import Record, TableDef
from trails.segment import Segment, open_segment

DEFAULT_MEGABYTES = 100
Definitions = dict[tuple[str, str], TableDef]


@dataclass(frozen=True, slots=True)
class WriterIdentity:
    """Who writes, and from where: goes into each file's header."""

    home_id: str
    group: str
    host: str
    source: dict[str, str]
    copies: bytes = b""


@dataclass(frozen=True, slots=True)
class Mark:
    """What stands in the trail up to its end: all that a restart needs to know."""

    csn: str = ""
    origin: Position = field(default=Position(0, 0))
    open: bool = False
    alter: int = 0
    trail_id: bytes = b""
    home_id: str = ""
    group: str = ""
    source: dict[str, str] = field(default_factory=dict)
    copies: bytes = b""


class TrailWriter:
    """Appends to one trail, under its lock, until close. Made by TrailWriter.open only."""

    def __init__(
        self, fs: Fs, trail: TrailName, identity: WriterIdentity, max_bytes: int, encrypt: bool | None = False
    ) -> None:
        self._fs = fs
        self._trail = trail
        self._identity = identity
        self._max_bytes = max_bytes
        self._encrypt = encrypt
        self._key: FileKey | None = None
        self._lock = fs.lock(trail.lock_path())
        self._mark = Mark()
        self._file: File | None = None
        self._header: FileHeader | None = None
        self._first_rba = 0
        self._end = Position(0, 0)
        self._durable = Position(0, 0)
        self._last: tuple[int, BlockHeader] | None = None  # found by recovery
        self._dead: GateError | None = None
        self._syncer: _Syncer | None = None
        self.written_bytes = 0
        """Of blocks appended since it was opened, their headers with them."""
        self.definitions: Definitions = {}

    @classmethod
    def open(
        cls,
        fs: Fs,
        trail: TrailName,
        identity: WriterIdentity,
        *,
        max_bytes: int = DEFAULT_MEGABYTES << 20,
        alter: int = 0,
        start: Mark | None = None,
        restart_open: bool,
        encrypt: bool | None = False,
    ) -> TrailWriter:
        """Take the lock, mend what a crash left, and go on in a new file.

        `start` is what a trail without files begins from (csn, origin). `alter` above the trail's own number is spent
        by the new file's header; then `start`, if given, replaces the recovered place too. `restart_open`: drop a
        transaction left open (Extract), or go on inside it (Collector). `encrypt`: new files, under the current master
        key; None: if the trail's last file is. Raises DamageError, VersionError, MismatchError (the trail belongs to
        another source), LockedError, KeyMissingError, OperatorError.
        """
        writer = cls(fs, trail, identity, max_bytes, encrypt)
        try:
            writer._recover(alter, start, restart_open)
        except BaseException:
            writer._lock.release()
            raise
        return writer

    @property
    def last(self) -> Mark:
        """What stands in the trail, durable or not yet; just after open() all of it is durable."""
        return self._mark

    @property
    def position(self) -> Position:
        """Where the next block will stand, but for a rollover."""
        return self._end

    @property
    def durable(self) -> Position:
        """Everything before it is synced."""
        return self._durable

    @property
    def seqno(self) -> int:
        """The file being written."""
        return self._end.seqno

    def define(self, defs: Sequence[TableDef], origin: Position | None = None) -> None:
        """Append a METADATA block with those of `defs` that are not in force yet; none, no block."""
        new = [d for d in defs if self.definitions.get((d.schema, d.name)) != d]
        if not new:
            return
        self.definitions.update({(d.schema, d.name): d for d in new})
        self._append(self._block(Kind.METADATA, encode_defs(new), origin=origin))

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
    ) -> None:
        """Append one DATA block. `origin` and `csn` are those of the last transaction complete at the block's end.

        `ddl`: it holds a DDL record, and beside it at most its transaction's begin and commit. `heartbeat`: it holds
        one transaction of heartbeats and nothing else.
        """
        payload = encode_data(tables, records)
        block = self._block(Kind.DATA, payload, origin=origin, csn=csn, time_us=time_us)
        flags = payload.flags | (FLAG_DDL if ddl else 0) | (FLAG_HEARTBEAT if heartbeat else 0)
        header = replace(block[0], indicator=indicator, flags=flags, changes=changes, transactions=transactions)
        self._append((header, block[1]))

    def append_block(self, header: BlockHeader, payload: bytes | memoryview, origin: Position) -> None:
        """Pass on a block of another trail, as before encryption: same payload and facts, our place and `origin`."""
        if header.kind == Kind.METADATA:
            for definition in decode_defs(header, bytes(payload)):
                self.definitions[definition.schema, definition.name] = definition
        self._append((replace(header, origin=origin), payload))

    def append_place(self, origin: Position, time_us: int | None = None) -> None:
        """Append an empty block that only says how far the source was read."""
        self._append(self._block(Kind.PLACE, EMPTY, origin=origin, time_us=time_us))

    def append_restart(self) -> None:
        """Tell readers to drop the open transaction: its source will give it again, whole."""
        self._append(self._block(Kind.RESTART, EMPTY))

    def sync(self) -> Position:
        """Make all that was appended durable, then say so in the file's header. Returns the durable position."""
        self.wait_sync()
        if self._durable != self._end:
            self._sync_to(self._end)
            self._durable = self._end
        return self._durable

    def sync_soon(self) -> bool:
        """Begin a sync of all appended so far on a second thread; False if one is in flight or nothing is to do."""
        self._alive()
        if self._durable == self._end or self.syncing:
            return False
        if self._syncer is None:
            self._syncer = _Syncer()
        end = self._end
        self._syncer.start(end, lambda: self._sync_to(end))
        return True

    @property
    def syncing(self) -> bool:
        """Whether a background sync is in flight or not yet collected by sync_done()."""
        return self._syncer is not None and self._syncer.target is not None

    def sync_done(self) -> bool:
        """True if a background sync has ended (durable has moved); raises its error. Never blocks."""
        if self._syncer is None:
            return False
        self._syncer.clear()  # before looking: what ends after the look signals again
        if not self._syncer.ended():
            return False
        self._collect()
        return True

    def wait_sync(self) -> None:
        """Wait for a background sync, if there is one."""
        self._alive()
        if self.syncing:
            self._collect()

    def fileno(self) -> int:
        """A descriptor that is readable when a background sync has ended and sync_done() is due."""
        if self._syncer is None:
            self._syncer = _Syncer()
        return self._syncer.event

    def room(self, header: BlockHeader) -> int:
        """Bytes that a block takes in the current file, with the END behind it."""
        return header.size + BLOCK_HEADER_SIZE + (2 * SEAL_SIZE if self._key is not None else 0)

    def encrypt(self, wanted: bool) -> None:
        """Encrypt what comes from here on, or no longer: in a new file, if that is a change."""
        if wanted != bool(self._encrypt):
            self._encrypt = wanted
            self.roll()

    def roll(self) -> None:
        """Close the current file and go on in the next."""
        self._finish_file()
        self._begin_file(self._end.seqno + 1)

    def close(self) -> None:
        """Sync if the writer is alive, and let the lock go. The file stays open-ended: the next start ends it."""
        try:
            if self._dead is None:
                self.sync()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of file and lock without any further write, as a crash would."""
        self._dead = self._dead or OperatorError(f"trail {self._trail}: the writer was closed")
        if self._syncer is not None:
            self._syncer.close()
        if self._file is not None:
            self._file.close()
        self._lock.release()

    # Recovery

    def _recover(self, alter: int, start: Mark | None, restart_open: bool) -> None:
        names = self._fs.listdir(self._trail.folder)
        for name in names:
            if name.startswith(self._trail.prefix) and name.endswith(".tmp"):
                self._fs.remove(os.path.join(self._trail.folder, name))
        seqnos = self._trail.seqnos(names)
        if not seqnos:
            begin = start or Mark()
            self._mark = replace(begin, alter=max(alter, begin.alter), trail_id=uuid.uuid4().bytes, open=False)
            self._begin_file(0)
            return
        self._mend(seqnos[-1])
        if alter > self._mark.alter:
            self._mark = replace(self._mark, alter=alter)
            if start is not None:
                self._mark = replace(self._mark, csn=start.csn, origin=start.origin)
        # In the new file, as the old one may be ended already: the crash may have come in the middle of a rollover.
        self._begin_file(self._end.seqno + 1, restart=self._mark.open and restart_open)

    def _mend(self, seqno: int) -> None:
        segment = open_segment(self._fs, self._trail, seqno, write=True)
        self._adopt(segment)
        durable = segment.read_durable_end()
        self._scan(segment, durable)
        tail_end = self._scan_tail(segment, max(durable, segment.first_rba))
        if self._last is not None and segment.header.key_id:
            segment.plain(*self._last)  # the mark is taken from it
        # A reader may have seen the tail before the power went, and a failed fsync may have left its pages looking
        # clean: writing the same bytes again is the only way to be sure that they reach the disk.
        segment.rewrite(max(durable, segment.first_rba), tail_end)
        self._end = Position(seqno, tail_end)
        self._durable = Position(seqno, 0)
        if segment.ended:
            self._sync_to(self._end, twice=True)
            return
        self._finish_file()

    def _adopt(self, segment: Segment) -> None:
        header = segment.header
        if header.copies != self._identity.copies:
            raise MismatchError(
                f"{segment.path}: this trail copies trail {header.copies.hex() or '(none)'}, "
                f"not {self._identity.copies.hex() or '(none)'}: the source trail was made anew",
                hint="Give the new source a trail of its own (DELETE and ADD RMTTRAIL with another name)",
            )
        self._file, self._header, self._first_rba = segment.file, header, segment.first_rba
        self._key = segment.key if header.key_id else None  # its END is sealed as all before it
        if self._encrypt is None:
            self._encrypt = bool(header.key_id)
        self._mark = Mark(
            header.last_csn, header.last_origin, header.open, header.alter, header.trail_id,
            header.home_id, header.group, dict(header.source), header.copies,
        )  # fmt: skip

    def _scan(self, segment: Segment, durable: int) -> None:
        rba = segment.first_rba
        while rba < durable:
            rba = self._take(segment, rba, segment.block_header(rba, durable))

    def _scan_tail(self, segment: Segment, rba: int) -> int:
        size = segment.file.size()
        while rba < size and not segment.ended:
            try:
                header = segment.block_header(rba, size)
                segment.payload(rba, header)
            except DamageError:
                return rba  # beyond the durable end this is what a crash leaves, and nobody was told of it
            rba = self._take(segment, rba, header)
        return rba

    def _take(self, segment: Segment, rba: int, header: BlockHeader) -> int:
        if header.kind == Kind.END:
            segment.ended = True
        elif header.kind == Kind.METADATA:
            self.definitions.update({(d.schema, d.name): d for d in decode_defs(*segment.plain(rba, header))})
        self._note(header)
        self._last = rba, header
        return rba + header.size

    def _note(self, header: BlockHeader) -> None:
        """Keep the mark true to the block just appended (or found)."""
        opened = self._mark.open
        if header.kind == Kind.RESTART or header.indicator in (Indicator.END, Indicator.WHOLE):
            opened = False
        elif header.indicator == Indicator.BEGIN:
            opened = True
        self._mark = replace(self._mark, csn=header.csn, origin=header.origin, open=opened)

    # Appending

    def _block(
        self,
        kind: Kind,
        payload: Payload,
        *,
        origin: Position | None = None,
        csn: str | None = None,
        time_us: int | None = None,
    ) -> tuple[BlockHeader, bytes]:
        header = BlockHeader(
            kind=kind,
            flags=payload.flags,
            payload_len=len(payload.data),
            raw_len=payload.raw_len,
            origin=self._mark.origin if origin is None else origin,
            time_us=time.time_ns() // 1000 if time_us is None else time_us,
            csn=self._mark.csn if csn is None else csn,
            payload_crc=payload.crc,
        )
        return header, payload.data

    def _append(self, block: tuple[BlockHeader, bytes | memoryview]) -> None:
        self._alive()
        # So a file never grows past its bound but for one oversized block.
        full = self._end.rba + self.room(block[0]) > self._max_bytes
        if full and self._end.rba > self._first_rba:
            self.roll()
        self._write(block)

    def _write(self, block: tuple[BlockHeader, bytes | memoryview]) -> None:
        file, seed = self._current()
        rba = self._end.rba
        header, payload = self._seal(block, rba)
        made = make_block_header(header, seed, rba)
        try:
            if len(payload) < 1 << 16:
                file.write_at(rba, made + bytes(payload))
            else:
                file.write_at(rba, made)
                file.write_at(rba + BLOCK_HEADER_SIZE, payload)
        except GateError as error:
            self._dead = error
            raise
        self._end = Position(self._end.seqno, rba + header.size)
        self.written_bytes += header.size
        self._note(header)

    def _seal(self, block: tuple[BlockHeader, bytes | memoryview], rba: int) -> tuple[BlockHeader, bytes | memoryview]:
        """The block as it is to stand at `rba`."""
        return block if self._key is None else self._key.seal(*block, rba)

    def _finish_file(self) -> None:
        self.wait_sync()
        self._write(self._block(Kind.END, EMPTY))
        self._sync_to(self._end, twice=True)
        self._durable = self._end

    def _begin_file(self, seqno: int, *, restart: bool = False) -> None:
        """Make the next file. `restart` is part of its opening: what spends an ALTER also drops the open part."""
        mark, who = self._mark, self._identity
        header = FileHeader(
            trail_id=mark.trail_id, prefix=self._trail.prefix, seqno=seqno, created_us=time.time_ns() // 1000,
            home_id=who.home_id, group=who.group, host=who.host, source=who.source, copies=who.copies,
            last_csn=mark.csn, last_origin=mark.origin, open=mark.open, alter=mark.alter,
        )  # fmt: skip
        self._key = None
        if self._encrypt:
            header, self._key = self._new_key(header)
        data = make_file_header(header)
        if self.definitions:
            opening = self._block(Kind.METADATA, encode_defs(list(self.definitions.values())))
            block, payload = self._seal(opening, len(data))
            data += make_block_header(block, header.seed, len(data)) + payload
        if restart:
            block, payload = self._seal(self._block(Kind.RESTART, EMPTY), len(data))
            data += make_block_header(block, header.seed, len(data)) + payload
            mark = replace(mark, open=False)
        file = self._publish(header, data)
        if self._file is not None:
            self._file.close()
        self._file, self._header = file, header
        self._first_rba = len(data)
        self._end = Position(seqno, self._first_rba)
        self._sync_to(self._end)
        self._durable = self._end
        self._mark = replace(mark, home_id=who.home_id, group=who.group, source=dict(who.source), copies=who.copies)

    def _new_key(self, header: FileHeader) -> tuple[FileHeader, FileKey]:
        try:
            return new_file_key(self._fs, self._trail, header)
        except GateError as error:
            self._dead = error
            raise

    def _publish(self, header: FileHeader, data: bytes) -> File:
        """Give the next file its name only when its opening is on disk; readers enter it after sync_dir only."""
        temp, path = self._trail.temp_path(header.seqno), self._trail.path(header.seqno)
        try:
            file = self._fs.create(temp)
            file.write_at(0, data)
            file.datasync()
            need_master_key(self._fs, self._trail, header, temp)
            self._fs.rename(temp, path)
            self._fs.sync_dir(self._trail.folder)
        except GateError as error:
            self._dead = error
            raise
        return file

    # Durability

    def _sync_to(self, end: Position, *, twice: bool = False) -> None:
        """fdatasync, then the durable end; `twice` syncs that too (before a file is left for good)."""
        file, seed = self._current()
        try:
            file.datasync()
            file.write_at(DURABLE_OFFSET, make_durable_end(end.rba, seed))
            if twice:
                file.datasync()
        except GateError as error:
            self._dead = error
            raise

    def _collect(self) -> None:
        assert self._syncer is not None
        self._durable = self._syncer.result()

    def _current(self) -> tuple[File, int]:
        assert self._file is not None and self._header is not None
        return self._file, self._header.seed

    def _alive(self) -> None:
        if self._dead is not None:
            raise self._dead


class _Syncer:
    """One sync at a time on a thread of its own, with a descriptor that tells a select loop of its end."""

    def __init__(self) -> None:
        self.event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.target: Position | None = None
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="trail-sync")
        self._future: Future[None] | None = None
        self._lock = threading.Lock()

    def start(self, target: Position, work) -> None:  # type: ignore[no-untyped-def]  # a thunk
        self.target = target
        self._future = self._pool.submit(work)
        self._future.add_done_callback(self._wake)

    def ended(self) -> bool:
        return self._future is not None and self._future.done()

    def result(self) -> Position:
        assert self._future is not None and self.target is not None
        future, target = self._future, self.target
        self._future = self.target = None
        future.result()
        return target

    def clear(self) -> None:
        """Take back the signal."""
        try:
            os.eventfd_read(self.event)
        except BlockingIOError:
            return

    def close(self) -> None:
        self._pool.shutdown(wait=True)
        with self._lock:
            event, self.event = self.event, -1
        if event >= 0:
            os.close(event)

    def _wake(self, _: Future[None]) -> None:
        with self._lock:
            if self.event >= 0:
                os.eventfd_write(self.event, 1)
