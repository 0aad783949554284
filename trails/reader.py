"""Reading a trail by position: checked blocks, up to the durable end and never past it.

Strategy: `read()` gives a block, or None for "nothing durable yet", or raises. It never blocks, skips or resyncs.
At END it goes on in the next file once that is in use; END itself is not given to the caller. Where files between the
two are missing it goes on only if the later one says that it follows this one: its writer has lost the same files, and
began again where this one ends. A file that was removed or replaced while it is read is looked for under its name
again, for a moment, as its writer may put it back; then it is named.
A block comes as its writer was given it: decrypted, with the header that fits it. Headers alone, and blocks as they
stand in the file (`sealed`), need no key; who then asks for the definitions is told that it is missing. Where the key
is there, whatever the caller will not open is opened here: so nothing can stand in for a block that was taken out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from trails.codec import check_defined, decode_defs
from trails.errors import MEND, DamageError, GateError, KeyMissingError, MismatchError
from trails.format import BlockHeader, BlockKind, FileHeader
from trails.fs import Fs
from trails.position import Position, TrailName
from trails.record import TableDef
from trails.segment import Segment, open_segment
from trails.wellformed import Widths

T = TypeVar("T")
# So long a file that was removed may take to come back before it is called gone.
BACK_SECONDS = 5.0
LIST_SECONDS = 1.0
# A reader remembers a table's older shapes too: so many times what a writer may have in force.
SHAPES = 2


@dataclass(frozen=True, slots=True)
class Block:
    """A block with its place. `payload` is empty if only the header was asked for.

    Of its file: `seed` is that of its CRCs, `copied` says whether a Collector wrote it.
    """

    start: Position
    end: Position
    header: BlockHeader
    payload: bytes
    seed: int
    copied: bool


class BlockReader:
    """Follows one trail from a position. Not for two threads at once."""

    def __init__(
        self, fs: Fs, trail: TrailName, position: Position | None = None, trail_id: bytes | None = None
    ) -> None:
        """Start at `position` (None: the first file there is). `trail_id`: refuse another trail.

        Opening is lazy: a trail that has no file yet reads as "nothing durable yet". Errors come from read().
        """
        self._fs = fs
        self._trail = trail
        self._trail_id = trail_id
        self._position = position
        self._segment: Segment | None = None
        self._durable = 0
        self._definitions: dict[bytes, TableDef] = {}
        self._defined = 0
        self._keyless: KeyMissingError | None = None
        self._created_us = 0  # of the file that was left because it had lost its name
        self._missing_since: float | None = None
        self._list_again = 0.0
        self.closed = False
        """The last look found nothing more because the writer has closed the file, and begun no other."""

    @property
    def position(self) -> Position | None:
        """Next byte to read; None until the first file was found."""
        return self._position

    @property
    def header(self) -> FileHeader | None:
        """Header of the file being read; None until it was opened."""
        return self._segment.header if self._segment else None

    @property
    def definitions(self) -> dict[bytes, TableDef]:
        """All definitions met so far by id, the latest last: enough to decode any block given.

        Raises KeyMissingError if they are encrypted and the key is not here.
        """
        if self._keyless is not None:
            raise self._keyless
        return self._definitions

    def read(self, *, payload: bool = True, sealed: bool = False) -> Block | None:
        """The next block, or None. With payload=False the payload is not read; `sealed`: it is not decrypted."""
        self.closed = False
        while True:
            segment = self._open()
            if segment is None or self._position is None:
                return None
            start = self._position
            if start.rba >= self._durable:
                self._durable = segment.read_durable_end()
            if start.rba >= self._durable:
                self._look_past_end(segment, start)
                return None
            header, data = segment.block_header(start.rba, self._durable), b""
            end = Position(start.seqno, start.rba + header.size)
            if header.kind == BlockKind.METADATA:
                self._learn(segment, start.rba, header)
            elif not payload and (header.kind != BlockKind.DATA or header.is_ddl or header.is_heartbeat):
                # Who plans by this header has only blocks of rows decoded.
                self._authenticate(segment, start.rba, header)
            if payload:
                header, data = segment.plain(start.rba, header, sealed=sealed)
            if header.kind != BlockKind.END:
                self._position = end
                return Block(start, end, header, data, segment.header.seed, bool(segment.header.copies))
            if not self._enter_next(segment):
                self.closed = True
                return None

    def close(self) -> None:
        """Give the descriptor back."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None

    # Files

    def _open(self) -> Segment | None:
        if self._segment is not None:
            return self._segment
        if self._position is None:
            first = first_seqno(self._fs, self._trail)
            if first is None:
                return None
            seqno, rba = first, None
        else:
            seqno, rba = self._position.seqno, self._position.rba or None
        try:
            segment = open_segment(self._fs, self._trail, seqno)
        except FileNotFoundError:
            self._refuse_gone(seqno, entered=rba is not None)
            return None
        self._missing_since = None
        self._check_trail(segment)
        self._check_same(segment)
        durable = segment.read_durable_end()
        if durable == 0:
            segment.close()
            return None
        if rba is None:
            rba = segment.first_rba
        if not self._walk(segment, rba, durable):
            segment.close()
            return None
        self._segment, self._durable = segment, durable
        self._position = Position(seqno, rba)
        return segment

    def _check_trail(self, segment: Segment) -> None:
        found = segment.header.trail_id
        if self._trail_id is not None and found != self._trail_id:
            segment.close()
            raise MismatchError(
                f"{segment.path}: expected trail {self._trail_id.hex()}, found {found.hex()}: the trail was made anew",
                hint="If that is what is wanted, point the group at its start: ALTER ..., EXTSEQNO 0, EXTRBA 0",
            )
        self._trail_id = found

    def _walk(self, segment: Segment, rba: int, durable: int) -> bool:
        """Collect the definitions before `rba` and check that it is a block border; False: not durable yet."""
        place = segment.first_rba
        while place < min(rba, durable):
            header = segment.block_header(place, durable)
            if header.kind == BlockKind.METADATA:
                self._learn(segment, place, header)
            place += header.size
        if place == rba:
            return True
        if place < rba:
            self._look_past_end(segment, Position(segment.header.seqno, rba))
            return False
        raise MismatchError(
            f"{segment.path}, RBA {rba}: expected a block border, found the inside of a block that ends at {place}",
            hint="Give a position that INFO or logdump shows",
        )

    def _enter_next(self, segment: Segment) -> bool:
        """Go to the next file if it is in use; stay before END otherwise."""
        try:
            following = open_segment(self._fs, self._trail, segment.header.seqno + 1)
        except FileNotFoundError:
            found = self._behind_gap(segment)
            if found is None:
                return False
            following = found
        self._check_trail(following)
        durable = following.read_durable_end()
        if durable == 0:
            following.close()
            return False
        segment.close()
        self._segment, self._durable = following, durable
        self._position = Position(following.header.seqno, following.first_rba)
        return True

    def _look_past_end(self, segment: Segment, start: Position) -> None:
        """At the durable end of a file that is not the last, something was cut off."""
        if not segment.file.is_at(segment.path):
            self._created_us = segment.header.created_us
            self.close()  # the next look is for the file that has the name then
            return
        if not self._in_use(start.seqno + 1) and not self._is_left_behind(start.seqno):
            return
        durable = segment.read_durable_end()  # it may have moved while we looked for the next file
        if start.rba < durable:
            return
        raise DamageError(
            f"{segment.path}, RBA {start.rba}: damaged: expected an END block, as a later file is in use; "
            f"found the durable end at {durable}",
            hint=MEND,
        )

    def _is_left_behind(self, seqno: int) -> bool:
        """Whether its trail goes on elsewhere, and an older copy is in its place; the folder is asked once a second."""
        now = self._fs.host.monotonic()
        if now < self._list_again:
            return False
        self._list_again = now + LIST_SECONDS
        return any(found > seqno + 1 for found in self._seqnos())

    def _in_use(self, seqno: int) -> bool:
        try:
            segment = open_segment(self._fs, self._trail, seqno)
        except FileNotFoundError:
            return False
        try:
            return segment.read_durable_end() > 0
        finally:
            segment.close()

    def _check_same(self, segment: Segment) -> None:
        """A file that comes back in the place of a removed one must be that one."""
        created, self._created_us = self._created_us, 0
        if created and segment.header.created_us != created:
            segment.close()
            raise MismatchError(
                f"{segment.path} was replaced while it was read: expected the file made at {created}, found one made "
                f"at {segment.header.created_us} (us)",
                hint=GAP,
            )

    def _behind_gap(self, segment: Segment) -> Segment | None:
        """The file after a missing one, if its writer went on from ours; None: the next file is still to come."""
        missing = segment.header.seqno + 1
        seqnos = self._seqnos()
        later = [seqno for seqno in seqnos if seqno > segment.header.seqno]
        if later and later[0] != missing:
            with contextlib.suppress(FileNotFoundError):  # it was purged since, too
                found = open_segment(self._fs, self._trail, later[0])
                if found.header.follows == segment.header.seqno:
                    return found
                found.close()
        self._refuse_gone(missing if later else segment.header.seqno, entered=not later)
        return None

    def _refuse_gone(self, seqno: int, *, entered: bool = False) -> None:
        """A missing file is waited for only if it can still come: no file yet, the one after the last, or just come.

        `entered`: a reader was in it, so it was there: for a moment its writer may put it back.
        """
        seqnos = self._seqnos()
        if seqno in seqnos:
            self._missing_since = None
            return
        if (not seqnos or seqno == seqnos[-1] + 1) and not (entered and self._waited()):
            return
        found = f"{self._trail.file_name(seqnos[0])} to {self._trail.file_name(seqnos[-1])}" if seqnos else "no file"
        raise MismatchError(
            f"{self._trail.path(seqno)}: expected this file, found {found}: it was purged or removed", hint=GAP
        )

    def _waited(self) -> bool:
        """Whether a file has been missing for so long that it will not come back."""
        now = self._fs.host.monotonic()
        self._missing_since = now if self._missing_since is None else self._missing_since
        return now - self._missing_since >= BACK_SECONDS

    def _seqnos(self) -> list[int]:
        return self._trail.seqnos(self._fs.listdir(self._trail.folder))

    # Blocks

    @staticmethod
    def _authenticate(segment: Segment, rba: int, header: BlockHeader) -> None:
        if segment.header.key_id:
            with contextlib.suppress(KeyMissingError):  # who has no key can count and show, and apply nothing
                segment.plain(rba, header)

    def _learn(self, segment: Segment, rba: int, header: BlockHeader) -> None:
        try:
            plain, payload = segment.plain(rba, header)
        except KeyMissingError as error:
            self._keyless = self._keyless or error  # raised for who asks for the definitions
            return
        for definition in decode_defs(plain, payload, f"{segment.path}, RBA {rba}"):
            old = self._definitions.pop(definition.id, None)  # a shape that comes back is the latest again
            self._definitions[definition.id] = definition
            self._defined += definition.weight if old is None else 0
        check_defined(self._defined // SHAPES, segment.path)


def shapes_of(tables: Sequence[bytes], known: Mapping[bytes, T], where: str) -> list[T]:
    """What is known of a block's tables; DamageError if nothing before the block defines one."""
    missing = [table for table in tables if table not in known]
    if missing:
        raise DamageError(f"{where}: damaged: expected a definition of table {missing[0].hex()} before it, found none")
    return [known[table] for table in tables]


def widths_in(known: Mapping[bytes, TableDef], where: str) -> Widths:
    """For decode_data: the columns of tables that must be known."""
    return lambda tables: [len(shape.columns) for shape in shapes_of(tables, known, where)]


GAP = "Put it back, or START its writer, which may still have it; else see docs/recovery.md#missing-trail-file"


def headers_of(fs: Fs, trail: TrailName, seqno: int, trail_id: bytes | None = None) -> Iterator[Block]:
    """The blocks of one file, without their payloads, up to the durable end."""
    with contextlib.closing(BlockReader(fs, trail, Position(seqno, 0), trail_id)) as reader:
        while (block := reader.read(payload=False)) is not None and block.start.seqno == seqno:
            yield block


def first_seqno(fs: Fs, trail: TrailName) -> int | None:
    """Number of the oldest file there is, or None."""
    seqnos = trail.seqnos(fs.listdir(trail.folder))
    return seqnos[0] if seqnos else None


def is_encrypted(fs: Fs, trail: TrailName) -> bool:
    """Whether the trail is said to be, or its newest file is; one that can't be read is told by who comes to it."""
    if trail.sealed:
        return True
    with contextlib.suppress(GateError):
        header = last_header(fs, trail)
        return header is not None and bool(header.key_id)
    return False


def time_before(fs: Fs, trail: TrailName, position: Position, most_blocks: int | None = None) -> int | None:
    """The source's time at a place: that of the last block before it. None if there is none, or it is too far away.

    Headers alone are read, from the begin of the place's file; an older file if that one has none.
    """
    left = most_blocks
    for seqno in range(position.seqno, -1, -1):
        found = None
        try:
            for block in headers_of(fs, trail, seqno):
                if block.end > position or left == 0:
                    break
                left = None if left is None else left - 1
                found = block.header.time_us or found
        except (DamageError, MismatchError):
            return None  # damaged, or gone: who reads it for its data tells that
        if found is not None or left == 0:
            return found if left != 0 else None
    return None


def tables_told(fs: Fs, trail: TrailName, seqno: int, blocks: int = 1000) -> list[TableDef]:
    """The definitions in the first blocks of a file, which begins with those of all tables before it."""
    reader = BlockReader(fs, trail, Position(seqno, 0))
    try:
        for _ in range(blocks):
            if reader.read(payload=False) is None:
                break
        return list(reader.definitions.values())
    finally:
        reader.close()


def last_header(fs: Fs, trail: TrailName) -> FileHeader | None:
    """Header of the newest file, without taking the writer's lock; None if the trail has no file."""
    seqnos = trail.seqnos(fs.listdir(trail.folder))
    if not seqnos:
        return None
    segment = open_segment(fs, trail, seqnos[-1])
    segment.close()
    return segment.header
