"""VERIFY: every CRC of every file, every payload decoded, and what the files say of each other."""

from __future__ import annotations

import itertools
import os
from contextlib import closing
from typing import Any

from trails.codec import decode_data, decode_hole, state_of
from trails.errors import DamageError, GateError, KeyMissingError
from trails.format import BlockKind, Indicator
from trails.fs import Fs, RealFs
from trails.heartbeat import beat_of
from trails.position import TrailName
from trails.reader import Block, widths_in
from trails.segment import Segment, goes_on_from, open_segment
from trails.show.printing import Say, Totals
from trails.show.rows import Definitions, DumpSource, Wanted, blocks
from trails.wellformed import Opened


def verify(fs: Fs, source: DumpSource, say: Say) -> bool:
    """Check every CRC of every file, decode every payload. True if all is well; each damage is told."""
    seqnos = source.seqnos(fs)
    good = True
    behind_gap = set[int]()
    for before, seqno in itertools.pairwise(seqnos):
        if seqno != before + 1:
            behind_gap.add(seqno)
        if seqno != before + 1 and goes_on_from(fs, source.trail, seqno) == before:
            say(f"GAP {source.trail.path(before + 1)}: deleted; {source.trail.file_name(seqno)} goes on from {before}")
        elif seqno != before + 1:
            good = False
            say(f"DAMAGE {source.trail.path(before + 1)}: expected this file, found none")
    trail_id: bytes | None = None
    open_: bool | None = None
    opened = Opened()
    for seqno in seqnos:
        last = seqno == seqnos[-1]
        opened = Opened() if seqno in behind_gap else opened
        try:
            trail_id, open_, line = _verify_file(fs, source.trail, seqno, trail_id, open_, opened, last=last)
            say(line)
        except (GateError, FileNotFoundError) as error:
            good, open_, opened = False, None, Opened()
            say(f"DAMAGE {error}")
    say("All is well." if good else "There is damage.")
    return good


def _verify_file(
    fs: Fs, trail: TrailName, seqno: int, trail_id: bytes | None, open_: bool | None, opened: Opened, *, last: bool
) -> tuple[bytes, bool, str]:
    """(trail id, whether a transaction is open at the file's end, what to say)."""
    with closing(open_segment(fs, trail, seqno)) as segment:
        path = segment.path
        header, durable = segment.header, segment.read_durable_end()
        beyond = segment.file.size() - durable
        sealed = not _opens(segment)
    if trail_id is not None and header.trail_id != trail_id:
        raise DamageError(f"{path}, RBA 0: expected trail {trail_id.hex()}, found {header.trail_id.hex()}")
    if open_ is not None and header.open != open_:
        raise DamageError(f"{path}, RBA 0: expected an open transaction {open_}, found {header.open}")
    totals, open_now, end = Totals(), header.open, segment.first_rba
    one_file = _OneFile(fs, trail, seqno)
    source = DumpSource(trail, seqno)
    for block, definitions in blocks(one_file, source, Wanted(), payload=True, sealed=sealed):
        totals.add(block)
        open_now = _check_block(block, definitions, open_now, opened, path)
        end = block.end.rba
    if not last:
        _check_end(fs, trail, seqno, end)
    waiting = f", {beyond} bytes not yet durable" if beyond and last else ""
    waiting += ", CRCs only: it is encrypted and its key is not here" if sealed else ""
    line = f"{path}: {totals.blocks} blocks, {totals.transactions} transactions, {totals.changes} changes{waiting}"
    return header.trail_id, open_now, line


def _opens(segment: Segment) -> bool:
    """Whether the file's payloads can be read."""
    try:
        return not segment.header.key_id or segment.key is not None
    except KeyMissingError:
        return False


def _check_end(fs: Fs, trail: TrailName, seqno: int, rba: int) -> None:
    """A file before the last must be closed by END; one without was cut."""
    with closing(open_segment(fs, trail, seqno)) as segment:
        durable = segment.read_durable_end()
        header = segment.block_header(rba, durable) if rba < durable else None
        if header is not None and _opens(segment):
            segment.plain(rba, header)
    if header is None or header.kind is not BlockKind.END:
        found = header.kind.name if header else f"the durable end at {durable}"
        raise DamageError(f"{segment.path}, RBA {rba}: damaged: expected an END block, found {found}")


class _OneFile(RealFs):
    """A file system on which a trail has one file only, so that each file is checked alone."""

    def __init__(self, inner: Fs, trail: TrailName, seqno: int) -> None:
        self._inner = inner
        self._path = trail.path(seqno)
        self._name = trail.file_name(seqno)

    def open(self, path: str, *, write: bool = False) -> Any:
        if path != self._path and os.path.dirname(path) == os.path.dirname(self._path):
            raise FileNotFoundError(path)
        return self._inner.open(path, write=write)

    def listdir(self, folder: str) -> list[str]:  # noqa: ARG002  -- the protocol's name
        return [self._name]


def _check_block(block: Block, definitions: Definitions, open_: bool, opened: Opened, path: str) -> bool:
    """Decode it, hold it to its header and to the indicators' order; whether a transaction is open after it."""
    where = f"{path}, RBA {block.start.rba}"
    header = block.header
    if header.has_state and not header.is_encrypted:
        state_of(block.payload, where)
    if header.kind is BlockKind.RESTART:
        return False
    if header.kind is BlockKind.HOLE and not header.is_encrypted:
        decode_hole(header, block.payload, where)
    if header.kind is not BlockKind.DATA:
        return open_
    expected = (Indicator.MIDDLE, Indicator.END) if open_ else (Indicator.WHOLE, Indicator.BEGIN)
    if header.indicator not in expected:
        names = " or ".join(indicator.name for indicator in expected)
        raise DamageError(f"{where}: damaged: expected indicator {names}, found {header.indicator.name}")
    if header.is_encrypted:
        opened.changes = None
    else:
        _, records = decode_data(header, block.payload, where, widths_in(definitions, where), opened)
        if header.is_heartbeat:
            beat_of(records, where)
    return header.indicator in (Indicator.BEGIN, Indicator.MIDDLE)
