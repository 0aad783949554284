"""Headers, blocks, records, totals and checkpoint files as lines of text for a person."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime

from trails import checkpoint
from trails.checkpoint import Checkpoint, Place
from trails.codec import decode_hole, state_of
from trails.ddl import DdlChange
from trails.errors import KeyMissingError, OperatorError
from trails.format import TIMES, BlockKind, FileHeader
from trails.fs import Fs
from trails.reader import Block
from trails.record import Op
from trails.segment import open_segment
from trails.show.dumpvalues import ddl_lines, heartbeat_lines, image_lines
from trails.show.rows import Definitions, DumpSource, RecordRow, Wanted, blocks, chosen_rows, is_wanted, rows_by_block
from trails.taming import tame

Say = Callable[[str], None]


def _stamp(time_us: int | None) -> str:
    if not time_us or time_us not in TIMES:
        return "Not Available"
    seconds, micros = divmod(time_us, 1_000_000)
    return f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M:%S}.{micros:06d}"


def show_headers(fs: Fs, source: DumpSource, say: Say) -> None:
    """The header of each file: what it says of itself, and what stood before it."""
    for seqno in source.seqnos(fs):
        with closing(open_segment(fs, source.trail, seqno)) as segment:
            durable, size = segment.read_durable_end(), segment.file.size()
        say(f"File {segment.path}")
        for label, value in _header_fields(segment.header):
            say(f"  {label:22}: {value}")
        say(f"  {'First block at RBA':22}: {segment.first_rba}")
        say(f"  {'Durable end':22}: {durable} of {size} bytes")
        say("")


def _header_fields(header: FileHeader) -> list[tuple[str, object]]:
    source = ", ".join(f"{key}={value}" for key, value in sorted(header.source.items()))
    return [
        ("Trail id", header.trail_id.hex()),
        ("Prefix, seqno", f"{header.prefix}, {header.seqno}"),
        ("Created", _stamp(header.created_us)),
        ("Written by", f"{header.group} of home {header.home_id} on {header.host}"),
        ("Source", source or "-"),
        ("Copies trail", header.copies.hex() or "-"),
        ("Character set", header.charset),
        ("Encrypted", f"AES256, master key {header.key_id}" if header.key_id else "no"),
        ("Last CSN before", header.last_csn or "-"),
        ("Last origin before", header.last_origin),
        ("Source's state before", header.last_state or "-"),
        ("Transaction open", "yes" if header.open else "no"),
        ("Last ALTER obeyed", header.alter),
    ]


def show_blocks(fs: Fs, source: DumpSource, wanted: Wanted, say: Say) -> None:
    """One line a block, from the headers alone."""
    say(
        f"{'Position':22} {'Kind':9} {'Indicator':9} {'Bytes':>9} {'Changes':>8} {'Txs':>6} "
        f"{'Origin':22} {'Time':26} CSN"
    )
    for number, (block, _) in enumerate(_headers_wanted(fs, source, wanted)):
        if number == wanted.limit:
            return
        h = block.header
        say(
            f"{block.start!s:22} {h.kind_name:9} {h.indicator.name:9} {h.size:>9} {h.changes:>8} {h.transactions:>6} "
            f"{h.origin!s:22} {_stamp(h.time_us):26} {h.csn or '-'}"
        )


def _headers_wanted(fs: Fs, source: DumpSource, wanted: Wanted) -> Iterator[tuple[Block, Definitions]]:
    for block, definitions in blocks(fs, source, wanted, payload=False):
        if wanted.in_time(block.header.time_us) and (not wanted.csn or block.header.csn == wanted.csn):
            yield block, definitions


def show_records(fs: Fs, source: DumpSource, wanted: Wanted, say: Say) -> None:
    """The decoded records, images column by column."""
    shown = 0
    for block, found in rows_by_block(fs, source, wanted):
        if block.header.kind is BlockKind.HOLE and not wanted.table and not wanted.csn:
            say(f"{block.start!s:16} HOLE      {decode_hole(block.header, block.payload, str(block.start))}")
        for row in found:
            if not is_wanted(row, wanted):
                continue
            if shown == wanted.limit:
                return
            shown += 1
            for line in record_lines(row, wanted):
                say(line)
        if block.header.has_state and not wanted.picks:
            say(f"{block.start!s:16} STATE     {state_of(block.payload, str(block.start))}")


def record_lines(row: RecordRow, wanted: Wanted) -> list[str]:
    """A record as it is shown: one line, and one more a column."""
    op, record = row.op, row.record
    where = f"{row.place!s:16} "
    if op is Op.BEGIN:
        return [f"{where}BEGIN     CSN {row.csn}  xid {record[2]}  {_stamp(row.time_us)}"]
    if op is Op.HEARTBEAT:
        return heartbeat_lines(record[1], where)
    if op is Op.COMMIT:
        return [f"{where}COMMIT    CSN {row.csn}  {record[1]} changes", ""]
    names = ", ".join(table.full_name if table else "(table without a definition)" for table in row.tables)
    csn = f"  CSN {row.csn}  {_stamp(row.time_us)}" if wanted.picks else ""
    if op is Op.TRUNCATE:
        return [f"{where}TRUNCATE  {names}  flags {record[2]}{csn}"]
    if op is Op.DDL:
        return ddl_lines(DdlChange.from_wire(record[1], where), f"{where}{op.name:9} ", csn)
    lines = [f"{where}{op.name:9} {names}{csn}"]
    images = {Op.INSERT: ("after",), Op.UPDATE: ("after", "before"), Op.DELETE: ("before",)}[op]
    for title, image in zip(images, record[2:], strict=False):
        if image is not None:
            lines += [f"    {title}", *image_lines(row.tables[0], image)]
    return lines


@dataclass(slots=True)
class Totals:
    """What was met."""

    files: set[int] = field(default_factory=set)
    blocks: int = 0
    bytes: int = 0
    transactions: int = 0
    changes: int = 0

    def add(self, block: Block) -> None:
        """Count one block."""
        self.files.add(block.start.seqno)
        self.blocks += 1
        self.bytes += block.end.rba - block.start.rba
        self.transactions += block.header.transactions
        self.changes += block.header.changes

    def lines(self) -> list[str]:
        """For people."""
        return [
            f"Files          {len(self.files):>14}", f"Blocks         {self.blocks:>14}",
            f"Bytes          {self.bytes:>14}", f"Transactions   {self.transactions:>14}",
            f"Changes        {self.changes:>14}",
        ]  # fmt: skip


def show_count(fs: Fs, source: DumpSource, wanted: Wanted, say: Say) -> None:
    """Totals from the headers, then changes by table from the records."""
    totals = Totals()
    for block, _ in _headers_wanted(fs, source, wanted):
        totals.add(block)
    for line in totals.lines():
        say(line)
    try:
        _count_tables(fs, source, wanted, say)
    except KeyMissingError as error:
        say("")
        say(f"Changes by table are not shown: {error}")


def _count_tables(fs: Fs, source: DumpSource, wanted: Wanted, say: Say) -> None:
    counted: dict[str, Counter[Op]] = {}
    for row in chosen_rows(fs, source, wanted):
        for table in row.tables[-1:] if row.op is Op.DDL else row.tables:
            if wanted.is_table(table):
                counted.setdefault(table.full_name if table else "(no definition)", Counter())[row.op] += 1
    if counted:
        say("")
        say(f"{'Table':40} {'Inserts':>10} {'Updates':>10} {'Deletes':>10} {'Truncates':>10} {'DDLs':>10}")
    for name, ops in sorted(counted.items()):
        counts = " ".join(f"{ops[op]:>10}" for op in (Op.INSERT, Op.UPDATE, Op.DELETE, Op.TRUNCATE, Op.DDL))
        say(f"{name:40} {counts}")


def show_checkpoint(fs: Fs, path: str, say: Say) -> None:
    """Every save of a checkpoint file, newest first."""
    if not os.path.exists(path):
        raise OperatorError(f"{path}: no such file", hint="FILES shows what is there")
    for number, save in enumerate(checkpoint.load(fs, path), 1):
        say(f"Checkpoint #{number} of {save.kind} {save.group}")
        for line in _save_lines(save):
            say(f"  {line}")
        say("")


def _save_lines(save: Checkpoint) -> list[str]:
    lag = "UNKNOWN" if save.lag_us is None else f"{save.lag_us / 1_000_000:.6f} s"
    lines = [
        f"Saved {_stamp(save.saved_us)}, run began {_stamp(save.started_us)}",
        f"Stop status {save.stop_status}, record source {save.record_source}, lag {lag}",
    ]
    for read in save.reads:
        lines.append(f"Read {read.source}")
        for title, place in (("startup", read.startup), ("recovery", read.recovery), ("current", read.current)):
            if place is not None:
                lines.append(f"  {title:9} {_place(place)}")
    lines += [f"Write {w.type} {w.trail}  {w.seqno}/{w.rba}  {_stamp(w.time_us)}" for w in save.writes]
    return [*lines, *(f"{key}: {value}" for key, value in sorted(save.extra.items()))]


def _place(place: Place) -> str:
    csn = f"  CSN {place.csn}" if place.csn else ""
    return f"{place.seqno}/{place.rba}  {_stamp(place.time_us)}{csn}{'  ' + place.file if place.file else ''}"


def shown(line: str) -> str:
    """A line as it is printed: names and texts in a trail may hold anything, a newline too."""
    return tame(line, keep="")
