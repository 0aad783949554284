"""From the local trail to the blocks of one session: reading, definitions first, and filtering where asked.

Rule: a Feed begins at the origin that the Collector stated and lives for one session. One source block gives at most
one block to send, after the definitions in force at the origin. Nothing here knows a socket.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import takewhile

from pump.filter import Filter, empty_middle
from trails.codec import EMPTY, decode_data, decode_defs, encode_data, encode_defs, portions
from trails.errors import AwayError, MismatchError
from trails.format import FLAG_HEARTBEAT, BlockHeader, BlockKind, Indicator, file_seed, make_block_header
from trails.fs import Fs
from trails.heartbeat import Beat, beat_of, block_records
from trails.link import wire
from trails.position import START, Position, TrailName
from trails.reader import Block, BlockReader, first_seqno, headers_of
from trails.record import TableDef
from trails.segment import open_segment

PLACE_EVERY = 1.0

StampBeat = Callable[[Beat], Beat]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A block to send. `needed`: where reading must begin to resume after it, if that is before its end.

    `beat`: the heartbeat that it is, with this pump's stamp.
    """

    block: wire.BlockMessage
    header: BlockHeader
    needed: Position | None = None
    beat: Beat | None = None


class Feed:
    """Reads from `origin` on. `rules` None: blocks pass as they stand."""

    def __init__(
        self,
        fs: Fs,
        trail: TrailName,
        trail_id: bytes,
        origin: Position,
        opened: bool,
        rules: Filter | None,
        stamp: StampBeat | None = None,
    ) -> None:
        """Raises MismatchError if the file of `origin` is gone. `stamp`: puts the pump's stamp on a heartbeat."""
        self._trail = trail
        self._trail_id = trail_id
        self._origin = origin
        self._rules = rules
        self._stamp = stamp
        self._introduced = False
        self._dropped: Block | None = None
        self._placed = 0.0
        self._begin: Position | None = None
        self.at_end = False
        self.taken = 0
        """Bytes of blocks read."""
        if origin == START:
            _expect_first_file(fs, trail)
        if opened and rules is not None:
            self._begin = find_begin(fs, trail, trail_id, origin)
        begin = self._begin or (None if origin == START else origin)
        self._reader = BlockReader(fs, trail, begin, trail_id)

    @property
    def position(self) -> Position | None:
        """What the local trail was read to."""
        return self._reader.position

    @property
    def needed(self) -> Position | None:
        """Begin of the open transaction, where a filtering pump must count from; None outside, and for PASSTHRU."""
        return self._begin

    def read(self, now: float) -> list[Outgoing]:
        """What the next source block gives to send: up to two blocks, or none. Never waits; sets `at_end`."""
        block = self._reader.read()
        self.at_end = block is None
        self.taken += block.header.size if block is not None else 0
        found = self._introduce(block)
        if block is None:
            return [*found, *self._place(now)]
        if block.header.is_heartbeat and self._stamp is not None:
            return [*found, *self._stamped(block, self._stamp)]
        if self._rules is None:
            raw = make_block_header(block.header, block.seed, block.start.rba)
            sent = wire.BlockMessage(block.start, block.end, raw, block.payload)
            return [*found, Outgoing(sent, block.header)]
        return [*found, *self._filtered(block, now)]

    def close(self) -> None:
        """Give the descriptor back."""
        self._reader.close()

    # definitions first

    def _introduce(self, block: Block | None) -> list[Outgoing]:
        """Once, at the origin: METADATA with the definitions in force there (the remote trail may not have them)."""
        if self._introduced or self._reader.header is None or (block is not None and block.start < self._origin):
            return []
        self._introduced = True
        defs = self._kept(latest(list(self._reader.definitions.values())), strict=True)
        return [self._introducing(part, block.header.time_us if block else 0) for part in portions(defs)]

    def _introducing(self, defs: list[TableDef], time_us: int) -> Outgoing:
        payload = encode_defs(defs)
        header = BlockHeader(
            BlockKind.METADATA, flags=payload.flags, payload_len=len(payload.data), raw_len=payload.raw_len,
            payload_crc=payload.crc, time_us=time_us,
        )  # fmt: skip
        return self._outgoing(header, payload.data, self._origin, self._origin)

    def _kept(self, defs: list[TableDef], *, strict: bool = False) -> list[TableDef]:
        return defs if self._rules is None else self._rules.definitions(defs, strict=strict)

    # heartbeats

    def _stamped(self, block: Block, stamp: StampBeat) -> list[Outgoing]:
        """A heartbeat passes whatever TABLE says, with our stamp: the one block that PASSTHRU encodes anew."""
        if block.end <= self._origin:
            return []  # sent in an earlier session
        where = f"{self._trail} {block.start}"
        begin, beat = beat_of(decode_data(block.header, block.payload, where)[1], where)
        stamped = stamp(beat)
        made = encode_data([], block_records(stamped, begin))
        header = replace(
            block.header, flags=made.flags | FLAG_HEARTBEAT, payload_len=len(made.data), raw_len=made.raw_len,
            payload_crc=made.crc,
        )  # fmt: skip
        self._dropped = None  # its place is said by this block
        return [replace(self._outgoing(header, made.data, block.start, block.end), beat=stamped)]

    # filtering

    def _filtered(self, block: Block, now: float) -> list[Outgoing]:
        assert self._rules is not None
        kept = self._keep(block, self._rules)
        if block.end <= self._origin:
            return []  # sent in an earlier session: only its changes were to be counted again
        if kept is None:
            self._dropped = block
            return self._place(now)
        self._dropped = None
        return [self._outgoing(kept[0], kept[1], block.start, block.end)]

    def _keep(self, block: Block, rules: Filter) -> tuple[BlockHeader, bytes] | None:
        header = block.header
        if header.kind == BlockKind.DATA:
            self._track(block)
            where, again = f"{self._trail} {block.start}", block.end <= self._origin
            kept = rules.data(header, block.payload, self._reader.definitions, where, again=again)
            return (kept.header, kept.payload) if kept else None
        if header.kind == BlockKind.METADATA:
            return self._keep_defs(block)
        if header.kind in (BlockKind.RESTART, BlockKind.HOLE):
            self._begin = None
            return header, block.payload
        return None  # PLACE: one of our own follows in time

    def _keep_defs(self, block: Block) -> tuple[BlockHeader, bytes] | None:
        every = decode_defs(block.header, block.payload)
        defs = self._kept(every)
        if not defs or defs == every:
            return (block.header, block.payload) if defs else None
        made = encode_defs(defs)
        header = replace(
            block.header, flags=made.flags, payload_len=len(made.data), raw_len=made.raw_len, payload_crc=made.crc
        )
        return header, made.data

    def _track(self, block: Block) -> None:
        if block.header.indicator is Indicator.BEGIN:
            self._begin = block.start
        elif block.header.indicator in (Indicator.END, Indicator.WHOLE):
            self._begin = None

    def _place(self, now: float) -> list[Outgoing]:
        """The place of what was dropped, at most one each second, so that the remote trail knows how far we are."""
        block = self._dropped
        if block is None or now - self._placed < PLACE_EVERY:
            return []
        self._placed, self._dropped = now, None
        if self._begin is not None:
            made = empty_middle(replace(block.header, kind=BlockKind.DATA, indicator=Indicator.MIDDLE))
            return [self._outgoing(made.header, made.payload, block.end, block.end)]
        header = BlockHeader(BlockKind.PLACE, time_us=block.header.time_us, csn=block.header.csn, payload_crc=EMPTY.crc)
        return [self._outgoing(header, b"", block.end, block.end)]

    def _outgoing(self, header: BlockHeader, payload: bytes, start: Position, end: Position) -> Outgoing:
        raw = make_block_header(header, file_seed(self._trail_id, start.seqno), start.rba)
        return Outgoing(wire.BlockMessage(start, end, raw, payload), header, self._begin)


def latest(defs: Sequence[TableDef]) -> list[TableDef]:
    """One definition a table: the last one."""
    return list({(d.schema, d.name): d for d in defs}.values())


def _expect_first_file(fs: Fs, trail: TrailName) -> None:
    first = first_seqno(fs, trail)
    if first:
        raise MismatchError(
            f"the remote trail is empty and the local one begins with {trail.path(first)}: what stood before is purged",
            hint=f"To begin there: ALTER EXTRACT with EXTSEQNO {first}, EXTRBA 0 (docs/recovery.md#purged-place)",
        )


def find_begin(fs: Fs, trail: TrailName, trail_id: bytes, upto: Position) -> Position:
    """Start of the transaction that is open at `upto`, by block headers, file by file backwards.

    Raises MismatchError if its file is gone, AwayError while the trail ends before `upto`: what a loss of power left
    may say of itself that it is shorter than it was, until its Extract has looked.
    """
    first = first_seqno(fs, trail) or 0
    for seqno in range(upto.seqno, first - 1, -1):
        known = list(takewhile(lambda block: block.end <= upto, headers_of(fs, trail, seqno, trail_id)))
        if seqno == upto.seqno:
            _expect_recovered(fs, trail, known, upto)
        begins = [block.start for block in known if block.header.indicator is Indicator.BEGIN]
        if begins:
            return begins[-1]
    raise MismatchError(
        f"trail {trail}: the transaction open at {upto} begins in a file before {trail.path(first)}, which is purged",
        hint="Use PASSTHRU until this transaction has ended, or see docs/recovery.md#purged-place",
    )


def _expect_recovered(fs: Fs, trail: TrailName, known: Sequence[Block], upto: Position) -> None:
    try:
        with closing(open_segment(fs, trail, upto.seqno)) as segment:
            end = known[-1].end.rba if known else segment.first_rba
    except FileNotFoundError:
        return  # told by who comes to it
    if end < upto.rba:
        raise AwayError(
            f"{trail.path(upto.seqno)}: expected blocks up to RBA {upto.rba}, which are passed on; found the end at "
            f"RBA {end}",
            hint="START the Extract that writes it. If it runs, see docs/recovery.md#truncated-trail-file",
        )
