"""Reading a trail by position: checked blocks, up to the durable end and never past it.

Strategy: `read()` gives a block, or None for "nothing durable yet", or raises. It never blocks, skips or resyncs.
At END it goes on in the next file once that is in use; END itself is not given to the caller.
A block comes as its writer was given it: decrypted, with the header that fits it. Headers alone, and blocks as they
stand in the file (`sealed`), need no key; who then asks for the definitions is told that it is missing. Where the key
is there, whatever the caller will not open is opened here: so nothing can stand in for a block that was taken out.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from trails.codec import decode_defs
from trails.errors import DamageError, GateError, KeyMissingError, MismatchError
from trails.format import BlockHeader, FileHeader, Kind, make_block_header
from trails.fs import Fs
from trails.position import Position, TrailName
from trails.record import TableDef
from trails.segment import Segment, open_segment


@dataclass(frozen=True, slots=True)
class Block:
    """A block with its place. `payload` is empty if only the header was asked for; `seed` is its file's CRC seed."""

    start: Position
    end: Position
    header: BlockHeader
    payload: bytes
    seed: int

    @property
    def raw_header(self) -> bytes:
        """The 96 bytes for this payload; as they stand in the file unless the block was decrypted."""
        return make_block_header(self.header, self.seed, self.start.rba)


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
        self._keyless: KeyMissingError | None = None

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
            block = self._block(segment, start, payload, sealed)
            if block.header.kind != Kind.END:
                self._position = block.end
                return block
            if not self._enter_next(segment):
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
            self._refuse_gone(seqno)
            return None
        self._check_trail(segment)
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
            if header.kind == Kind.METADATA:
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
            self._refuse_gone(segment.header.seqno + 1)
            return False
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
        if not self._in_use(start.seqno + 1):
            return
        durable = segment.read_durable_end()  # it may have moved while we looked for the next file
        if start.rba < durable:
            return
        raise DamageError(
            f"{segment.path}, RBA {start.rba}: damaged: expected an END block, as a later file is in use; "
            f"found the durable end at {durable}",
            hint="Restore the file from a copy",
        )

    def _in_use(self, seqno: int) -> bool:
        try:
            segment = open_segment(self._fs, self._trail, seqno)
        except FileNotFoundError:
            return False
        try:
            return segment.read_durable_end() > 0
        finally:
            segment.close()

    def _refuse_gone(self, seqno: int) -> None:
        """A missing file is waited for only if it can still come: no file yet, the one after the last, or just come."""
        seqnos = self._trail.seqnos(self._fs.listdir(self._trail.folder))
        if seqnos and seqno not in seqnos and seqno != seqnos[-1] + 1:
            raise MismatchError(
                f"{self._trail.path(seqno)}: expected this file, found only {self._trail.file_name(seqnos[0])} to "
                f"{self._trail.file_name(seqnos[-1])}: it was purged or removed",
                hint="Restore it from a copy; without it changes would be lost",
            )

    # Blocks

    def _block(self, segment: Segment, start: Position, payload: bool, sealed: bool) -> Block:
        header, data = segment.block_header(start.rba, self._durable), b""
        end = Position(start.seqno, start.rba + header.size)
        if header.kind == Kind.METADATA:
            self._learn(segment, start.rba, header)
        elif not payload and not _has_rows(header):
            self._authenticate(segment, start.rba, header)
        if payload and sealed:
            data = segment.payload(start.rba, header)
        elif payload:
            header, data = segment.plain(start.rba, header)
        return Block(start, end, header, data, segment.header.seed)

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
            self._definitions.pop(definition.id, None)  # a shape that comes back is the latest again
            self._definitions[definition.id] = definition


def _has_rows(header: BlockHeader) -> bool:
    """Whether who plans by this header will have the block decoded."""
    return header.kind == Kind.DATA and not header.is_ddl and not header.is_heartbeat


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


def last_header(fs: Fs, trail: TrailName) -> FileHeader | None:
    """Header of the newest file, without taking the writer's lock; None if the trail has no file."""
    seqnos = trail.seqnos(fs.listdir(trail.folder))
    if not seqnos:
        return None
    segment = open_segment(fs, trail, seqnos[-1])
    segment.close()
    return segment.header
