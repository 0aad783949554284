"""Trails as logdump shows them, a page at a time: the files of a trail, the blocks of it, the records in them.

Rule: only a trail that this home has can be named. Each page looks at so many records for so many seconds at most, then
says where it stopped; damage is shown as what it is, where it is, and never skipped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import urlencode

from ggsci.web.drawing import trail_key
from trails.errors import GateError
from trails.format import FileHeader
from trails.fs import RealFs
from trails.position import Position, TrailName, parse_file_name
from trails.reader import Block
from trails.runtime.home import registration as registrations
from trails.runtime.home.home import Home
from trails.segment import open_segment
from trails.show.printing import record_lines
from trails.show.rows import DumpSource, RecordRow, Wanted, is_wanted, rows_by_block
from trails.show.rows import blocks as trail_blocks

BLOCKS = 50
RECORDS = 100
SECONDS = 5.0
MAX_LINE = 4000
MAX_TEXT = 1 << 20
"""So many characters of records a page: a hundred rows of wide tables may have many more."""


@dataclass(frozen=True, slots=True)
class FileShown:
    """One file of a trail, and who stands in it; `trouble` if it can't be read."""

    seqno: int
    readers: str
    trouble: str = ""
    header: FileHeader | None = None
    durable: int = 0
    size: int = 0


@dataclass(slots=True)
class Page:
    """What one page shows, and the query of the next one."""

    blocks: list[Block] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    following: str = ""
    note: str = ""
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Search:
    """What the form of the records' page asks for."""

    table: str = ""
    csn: str = ""
    since: str = ""

    def wanted(self) -> Wanted:
        """For logdump's functions. Raises ValueError if the time is none."""
        return Wanted(self.table, self.csn, _time_us(self.since) if self.since else None)

    def query(self, **more: str) -> str:
        """The address' query that asks for this again."""
        given = {"table": self.table, "csn": self.csn, "since": self.since, **more}
        return urlencode({name: value for name, value in given.items() if value})


def trails(home: Home) -> dict[str, TrailName]:
    """The trails of this home by how an address names them: those in dirdat, and those that a group reads or writes."""
    found = {name[0] for name in map(parse_file_name, os.listdir(home.folder("dirdat"))) if name}
    shown = {f"./dirdat/{prefix}" for prefix in found}
    for group in registrations.all(home):
        shown |= {*group.writes, group.trail} - {""}
    named = {trail_key(path): TrailName.parse(path, home.root) for path in sorted(shown)}
    return dict(sorted(named.items()))


def files(trail: TrailName, readers: dict[int, list[str]]) -> list[FileShown]:
    """Every file of the trail, newest first."""
    fs = RealFs()
    return [_file(fs, trail, seqno, readers) for seqno in reversed(trail.seqnos(fs.listdir(trail.folder)))]


def _file(fs: RealFs, trail: TrailName, seqno: int, readers: dict[int, list[str]]) -> FileShown:
    names = ", ".join(readers.get(seqno, []))
    try:
        with closing(open_segment(fs, trail, seqno)) as segment:
            return FileShown(seqno, names, "", segment.header, segment.read_durable_end(), segment.file.size())
    except (GateError, OSError) as error:
        return FileShown(seqno, names, str(error))


def blocks(trail: TrailName, start: Position) -> Page:
    """The blocks from `start` on, from their headers alone."""
    page = Page()
    wanted = Wanted(start=start)
    try:
        for block, _ in trail_blocks(RealFs(), DumpSource(trail), wanted, payload=False):
            if len(page.blocks) == BLOCKS:
                page.following = urlencode({"at": str(block.start)})
                break
            page.blocks.append(block)
    except (GateError, OSError) as error:
        page.trouble = str(error)
    return page


def records(trail: TrailName, start: Position, skip: int, search: Search) -> Page:
    """The records from the block at `start` on, less the first `skip` of them."""
    page = Page()
    try:
        _fill(page, trail, start, skip, search)
    except (GateError, OSError, ValueError) as error:
        page.trouble = str(error)
    return page


def _fill(page: Page, trail: TrailName, start: Position, skip: int, search: Search) -> None:
    """Records that are wanted, until there are enough or the time is over; where the next page begins."""
    wanted, end, shown, length = search.wanted(), time.monotonic() + SECONDS, 0, 0
    for at, met, row in _met(trail, start, skip):
        late = time.monotonic() > end
        full = row is not None and (shown == RECORDS or length >= MAX_TEXT)
        if full or late:
            page.following = search.query(at=str(at), skip=str(met))
            page.note = f"looked for {SECONDS:g} seconds, up to {at}" if late else ""
            return
        if row is not None and is_wanted(row, wanted):
            lines = [_cut(line) for line in record_lines(row, wanted)]
            length += sum(map(len, lines))
            page.lines += lines
            shown += 1


def _met(trail: TrailName, start: Position, skip: int) -> Iterator[tuple[Position, int, RecordRow | None]]:
    """(block, number in it, record), less the first `skip`; None at a block's beginning, as it may have no record."""
    for block, found in rows_by_block(RealFs(), DumpSource(trail), Wanted(start=start)):
        first = skip if block.start == start else 0
        if not first:
            yield block.start, 0, None
        for number, row in enumerate(found):
            if number >= first:
                yield block.start, number, row


def _cut(line: str) -> str:
    return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}... ({len(line)} characters)"


def _time_us(text: str) -> int:
    """`2026-02-03`, `2026-02-03 02:30:05`: a time of this host's time zone unless it names one."""
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1_000_000)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r}: expected a time such as 2026-02-03 02:30:05") from None


def place(text: str, trail: TrailName) -> Position:
    """A place that an address names (`3/1024`); without one, the beginning of the trail's oldest file."""
    if text:
        return Position.parse(text[:40])
    seqnos = trail.seqnos(RealFs().listdir(trail.folder))
    return Position(seqnos[0] if seqnos else 0, 0)
