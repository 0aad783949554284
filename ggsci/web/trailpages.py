"""Trails as logdump shows them, a page at a time: the files of a trail, the blocks of it, the records in them.

Rule: only a trail that this home has can be named. Each page looks at so many records for so many seconds at most, then
says where it stopped; damage is shown as what it is, where it is, and never skipped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import urlencode

from ggsci.view import stamp
from ggsci.web.drawing import trail_key
from ggsci.web.words import size
from trails import dump
from trails.errors import GateError
from trails.format import Kind
from trails.fs import RealFs
from trails.position import Position, TrailName, parse_file_name
from trails.reader import Block
from trails.runtime import registration as registrations
from trails.runtime.home import Home
from trails.segment import open_segment

BLOCKS = 50
RECORDS = 100
SECONDS = 5.0
MAX_LINE = 4000
MAX_TEXT = 1 << 20
"""So many characters of records a page: a hundred rows of wide tables may have many more."""


@dataclass(frozen=True, slots=True)
class File:
    """One file of a trail; `trouble` if it can't be read."""

    seqno: int
    size: str
    durable: str
    created: str
    writer: str
    csn: str
    encrypted: str
    readers: str
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One block."""

    place: str
    kind: str
    indicator: str
    size: str
    changes: int
    transactions: int
    origin: str
    time: str
    csn: str
    has_records: bool


@dataclass(slots=True)
class Page:
    """What one page shows, and the query of the next one."""

    rows: list[Row] = field(default_factory=list)
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

    def wanted(self) -> dump.Wanted:
        """For logdump's functions. Raises ValueError if the time is none."""
        return dump.Wanted(self.table, self.csn, _time_us(self.since) if self.since else None)

    def query(self, **more: str) -> str:
        """The address' query that asks for this again."""
        given = {"table": self.table, "csn": self.csn, "since": self.since, **more}
        return urlencode({name: value for name, value in given.items() if value})


def trails(home: Home) -> dict[str, TrailName]:
    """The trails of this home by how an address names them: those in dirdat, and those that a group reads or writes."""
    found = {name[0] for name in map(parse_file_name, os.listdir(home.folder("dirdat"))) if name}
    shown = {f"./dirdat/{prefix}" for prefix in found}
    for group in registrations.all(home):
        shown |= {trail.path for trail in group.trails if trail.type == "EXTTRAIL"} | {group.trail} - {""}
    named = {trail_key(path): TrailName.parse(path, home.root) for path in sorted(shown)}
    return dict(sorted(named.items()))


def files(trail: TrailName, readers: dict[int, list[str]]) -> list[File]:
    """Every file of the trail, newest first."""
    fs = RealFs()
    return [_file(fs, trail, seqno, readers) for seqno in reversed(trail.seqnos(fs.listdir(trail.folder)))]


def _file(fs: RealFs, trail: TrailName, seqno: int, readers: dict[int, list[str]]) -> File:
    names = ", ".join(readers.get(seqno, []))
    try:
        segment = open_segment(fs, trail, seqno)
        try:
            durable, all_bytes = segment.read_durable_end(), segment.file.size()
        finally:
            segment.close()
    except (GateError, OSError) as error:
        return File(seqno, "", "", "", "", "", "", names, str(error))
    header = segment.header
    writer = f"{header.group} on {header.host}"
    key = header.key_id or "no"
    created = stamp(header.created_us)
    return File(seqno, size(all_bytes), str(durable), created, writer, header.last_csn or "-", key, names)


def blocks(trail: TrailName, start: Position) -> Page:
    """The blocks from `start` on, from their headers alone."""
    page = Page()
    wanted = dump.Wanted(start=start)
    try:
        for block, _ in dump.blocks(RealFs(), dump.Source(trail), wanted, payload=False):
            if len(page.rows) == BLOCKS:
                page.following = urlencode({"at": str(block.start)})
                break
            page.rows.append(_row(block))
    except (GateError, OSError) as error:
        page.trouble = str(error)
    return page


def _row(block: Block) -> Row:
    h = block.header
    kind = "DDL" if h.is_ddl else "HEARTBEAT" if h.is_heartbeat else h.kind.name
    return Row(
        str(block.start), kind, h.indicator.name, size(h.size), h.changes, h.transactions, str(h.origin),
        stamp(h.time_us or None, micros=True), h.csn or "-", h.kind is Kind.DATA and (h.changes > 0 or h.is_heartbeat),
    )  # fmt: skip


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
        if row is not None and dump.is_wanted(row, wanted):
            lines = [_cut(line) for line in dump.record_lines(row, wanted)]
            length += sum(map(len, lines))
            page.lines += lines
            shown += 1


def _met(trail: TrailName, start: Position, skip: int) -> Iterator[tuple[Position, int, dump.Row | None]]:
    """(block, number in it, record), less the first `skip`; None at a block's beginning, as it may have no record."""
    for block, found in dump.rows_by_block(RealFs(), dump.Source(trail), dump.Wanted(start=start)):
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
