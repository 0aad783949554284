"""`logdump`: shows trails and checkpoint files to a person. Needs nothing but the files, and changes nothing.

An encrypted trail is decrypted with the keys of its home, or of the one that --home names; without them headers, totals
and CRCs are still there.

    logdump ./dirdat/lt                      one line a block
    logdump ./dirdat/lt000000003 --records   the records of one file, decoded
    logdump ./dirdat/lt --verify             every CRC of every file; exit code 2 if anything is damaged
    logdump dirchk/EXT1.cpe                  a checkpoint file

It reads up to the durable end, as every reader does, and stops at damage with file, RBA, expected and found; VERIFY
goes on with the next file, because it is asked for all that is wrong.
Exit codes: 0 shown, 2 damage or a wrong request.
"""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NoReturn

from trails import checkpoint
from trails.checkpoint import Checkpoint, Place
from trails.codec import decode_data
from trails.ddl import DdlChange
from trails.dumpvalues import ddl_lines, heartbeat_lines, image_lines
from trails.errors import EXIT_OPERATOR, EXIT_STOPPED, DamageError, GateError, KeyMissingError, OperatorError
from trails.format import FileHeader, Indicator, Kind
from trails.fs import Fs, RealFs
from trails.heartbeat import beat_of
from trails.position import WALLET_FOLDER, Position, TrailName, parse_file_name
from trails.reader import Block, BlockReader
from trails.record import Op, TableDef
from trails.segment import Segment, open_segment

Say = Callable[[str], None]
Definitions = dict[bytes, TableDef]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to show. Bounds are inclusive; None is no bound."""

    table: str = ""
    csn: str = ""
    since_us: int | None = None
    until_us: int | None = None
    start: Position | None = None
    end: Position | None = None
    limit: int | None = None

    def in_time(self, time_us: int) -> bool:
        """Does this time lie within the bounds?"""
        return (self.since_us is None or time_us >= self.since_us) and (
            self.until_us is None or time_us <= self.until_us
        )

    def is_table(self, definition: TableDef | None) -> bool:
        """Is this table meant?"""
        return not self.table or (definition is not None and fnmatch.fnmatchcase(definition.full_name, self.table))

    @property
    def picks(self) -> bool:
        """Is only a part of the transactions wanted?"""
        return bool(self.table or self.csn or self.since_us is not None or self.until_us is not None)


@dataclass(frozen=True, slots=True)
class Source:
    """A trail, or one file of it."""

    trail: TrailName
    only: int | None = None

    @classmethod
    def of(cls, path: str, home: str = "") -> Source:
        """`./dirdat/lt` or `./dirdat/lt000000003`. `home`: where its keys are, if it lies in another's dirdat.

        Raises OperatorError for anything else.
        """
        folder, name = os.path.split(path)
        found = parse_file_name(name)
        trail = TrailName.parse(os.path.join(folder or ".", found[0] if found else name))
        if home:
            trail = replace(trail, wallet=os.path.join(home, WALLET_FOLDER))
        return cls(trail, found[1] if found else None)

    def seqnos(self, fs: Fs) -> list[int]:
        """The files to show. Raises OperatorError if there is none."""
        found = self.trail.seqnos(fs.listdir(self.trail.folder))
        if self.only is not None:
            found = [seqno for seqno in found if seqno == self.only]
        if not found:
            raise OperatorError(f"{self.trail}: no such trail, or none of its files is here")
        return found


# --- reading ----------------------------------------------------------------------------------------------------------


def blocks(
    fs: Fs, source: Source, wanted: Wanted, *, payload: bool, sealed: bool = False
) -> Iterator[tuple[Block, Definitions]]:
    """The blocks within the bounds, with the definitions in force at each; none without payload, or if `sealed`."""
    start = wanted.start or Position(source.seqnos(fs)[0], 0)
    reader = BlockReader(fs, source.trail, start)
    try:
        while (block := reader.read(payload=payload, sealed=sealed)) is not None:
            if source.only is not None and block.start.seqno != source.only:
                return
            if wanted.end is not None and block.start >= wanted.end:
                return
            yield block, reader.definitions if payload and not sealed else {}
    finally:
        reader.close()


@dataclass(frozen=True, slots=True)
class Row:
    """A decoded record, with its transaction's CSN and time and its tables."""

    record: list[Any]
    place: Position
    csn: str
    time_us: int
    tables: tuple[TableDef | None, ...]

    @property
    def op(self) -> Op:
        """Its kind."""
        return Op(self.record[0])


def rows(fs: Fs, source: Source, wanted: Wanted) -> Iterator[Row]:
    """Every record of the wanted blocks. A large transaction's CSN is carried from its `begin` block on."""
    for _, found in rows_by_block(fs, source, wanted):
        yield from found


def rows_by_block(fs: Fs, source: Source, wanted: Wanted) -> Iterator[tuple[Block, Iterator[Row]]]:
    """The same with the blocks, also those without a record; each one's rows before the next block."""
    last = ("", 0)

    def of(block: Block, definitions: Definitions) -> Iterator[Row]:
        nonlocal last
        where = f"{source.trail.path(block.start.seqno)}, RBA {block.start.rba}"
        ids, records = decode_data(block.header, block.payload, where)
        tables = [definitions.get(table_id) for table_id in ids]
        for record in records:
            op = _op(record, where)
            if op is Op.BEGIN:
                last = (str(record[1]), int(record[3]))
            yield Row(record, block.start, *last, _tables(op, record, tables, where))

    for block, definitions in blocks(fs, source, wanted, payload=True):
        yield block, of(block, definitions) if block.header.kind == Kind.DATA else iter(())


def _op(record: Any, where: str) -> Op:
    try:
        return Op(record[0])
    except (ValueError, TypeError, IndexError):
        raise DamageError(f"{where}: expected a record, found {str(record)[:80]!r}") from None


def _tables(op: Op, record: list[Any], tables: list[TableDef | None], where: str) -> tuple[TableDef | None, ...]:
    if op in (Op.INSERT, Op.UPDATE, Op.DELETE):
        return (tables[record[1]],)
    if op is Op.TRUNCATE:
        return tuple(tables[index] for index in record[1])
    if op is Op.DDL:
        # A renamed table is met by both of its names.
        return tuple(TableDef(schema, name, ()) for schema, name in DdlChange.from_wire(record[1], where).names)
    return ()


def chosen_rows(fs: Fs, source: Source, wanted: Wanted) -> Iterator[Row]:
    """The rows that the bounds of table, CSN and time leave; a search by table leaves BEGIN and COMMIT out."""
    return (row for row in rows(fs, source, wanted) if is_wanted(row, wanted))


def is_wanted(row: Row, wanted: Wanted) -> bool:
    """Does the row lie within the bounds of table, CSN and time?"""
    if (wanted.csn and row.csn != wanted.csn) or not wanted.in_time(row.time_us):
        return False
    return not wanted.table or any(wanted.is_table(table) for table in row.tables)


# --- showing ----------------------------------------------------------------------------------------------------------


def _stamp(time_us: int | None) -> str:
    if not time_us:
        return "Not Available"
    seconds, micros = divmod(time_us, 1_000_000)
    return f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M:%S}.{micros:06d}"


def show_headers(fs: Fs, source: Source, say: Say) -> None:
    """The header of each file: what it says of itself, and what stood before it."""
    for seqno in source.seqnos(fs):
        segment = open_segment(fs, source.trail, seqno)
        try:
            durable, size = segment.read_durable_end(), segment.file.size()
        finally:
            segment.close()
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
        ("Transaction open", "yes" if header.open else "no"),
        ("Last ALTER obeyed", header.alter),
    ]


def show_blocks(fs: Fs, source: Source, wanted: Wanted, say: Say) -> None:
    """One line a block, from the headers alone."""
    say(
        f"{'Position':22} {'Kind':9} {'Indicator':9} {'Bytes':>9} {'Changes':>8} {'Txs':>6} "
        f"{'Origin':22} {'Time':26} CSN"
    )
    for number, (block, _) in enumerate(_headers_wanted(fs, source, wanted)):
        if number == wanted.limit:
            return
        h = block.header
        kind = "DDL" if h.is_ddl else "HEARTBEAT" if h.is_heartbeat else h.kind.name
        say(
            f"{block.start!s:22} {kind:9} {h.indicator.name:9} {h.size:>9} {h.changes:>8} {h.transactions:>6} "
            f"{h.origin!s:22} {_stamp(h.time_us):26} {h.csn or '-'}"
        )


def _headers_wanted(fs: Fs, source: Source, wanted: Wanted) -> Iterator[tuple[Block, Definitions]]:
    for block, definitions in blocks(fs, source, wanted, payload=False):
        if wanted.in_time(block.header.time_us) and (not wanted.csn or block.header.csn == wanted.csn):
            yield block, definitions


def show_records(fs: Fs, source: Source, wanted: Wanted, say: Say) -> None:
    """The decoded records, images column by column."""
    for number, row in enumerate(chosen_rows(fs, source, wanted)):
        if number == wanted.limit:
            return
        for line in record_lines(row, wanted):
            say(line)


def record_lines(row: Row, wanted: Wanted) -> list[str]:
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


# --- counting and checking --------------------------------------------------------------------------------------------


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


def show_count(fs: Fs, source: Source, wanted: Wanted, say: Say) -> None:
    """Totals from the headers, then changes by table from the records."""
    totals = Totals()
    for block, _ in _headers_wanted(fs, source, wanted):
        totals.add(block)
    for line in totals.lines():
        say(line)
    try:
        _count_tables(fs, source, wanted, say)
    except KeyMissingError as error:
        say(f"\nChanges by table are not shown: {error}")


def _count_tables(fs: Fs, source: Source, wanted: Wanted, say: Say) -> None:
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


def verify(fs: Fs, source: Source, say: Say) -> bool:
    """Check every CRC of every file, decode every payload. True if all is well; each damage is told."""
    seqnos = source.seqnos(fs)
    good = True
    for before, seqno in itertools.pairwise(seqnos):
        if seqno != before + 1:
            good = False
            say(f"DAMAGE {source.trail.path(before + 1)}: expected this file, found none")
    trail_id: bytes | None = None
    open_: bool | None = None
    for seqno in seqnos:
        try:
            trail_id, open_, line = _verify_file(fs, source.trail, seqno, trail_id, open_, last=seqno == seqnos[-1])
            say(line)
        except (GateError, FileNotFoundError) as error:
            good, open_ = False, None
            say(f"DAMAGE {error}")
    say("All is well." if good else "There is damage.")
    return good


def _verify_file(
    fs: Fs, trail: TrailName, seqno: int, trail_id: bytes | None, open_: bool | None, *, last: bool
) -> tuple[bytes, bool, str]:
    """(trail id, whether a transaction is open at the file's end, what to say)."""
    segment = open_segment(fs, trail, seqno)
    path = segment.path
    try:
        header, durable = segment.header, segment.read_durable_end()
        beyond = segment.file.size() - durable
        sealed = not _opens(segment)
    finally:
        segment.close()
    if trail_id is not None and header.trail_id != trail_id:
        raise DamageError(f"{path}, RBA 0: expected trail {trail_id.hex()}, found {header.trail_id.hex()}")
    if open_ is not None and header.open != open_:
        raise DamageError(f"{path}, RBA 0: expected an open transaction {open_}, found {header.open}")
    totals, open_now, end = Totals(), header.open, segment.first_rba
    one_file = _OneFile(fs, trail, seqno)
    source = Source(trail, seqno)
    for block, definitions in blocks(one_file, source, Wanted(), payload=True, sealed=sealed):
        totals.add(block)
        open_now = _check_block(block, definitions, open_now, path)
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
    segment = open_segment(fs, trail, seqno)
    try:
        durable = segment.read_durable_end()
        header = segment.block_header(rba, durable) if rba < durable else None
        if header is not None and _opens(segment):
            segment.plain(rba, header)
    finally:
        segment.close()
    if header is None or header.kind is not Kind.END:
        found = header.kind.name if header else f"the durable end at {durable}"
        raise DamageError(f"{segment.path}, RBA {rba}: damaged: expected an END block, found {found}")


class _OneFile(RealFs):
    """A file system on which a trail has one file only, so that each file is checked alone."""

    def __init__(self, inner: Fs, trail: TrailName, seqno: int) -> None:
        self._inner = inner
        self._path = trail.path(seqno)
        self._name = trail.file_name(seqno)

    def open(self, path: str, *, write: bool = False) -> Any:
        """See Fs."""
        if path != self._path and os.path.dirname(path) == os.path.dirname(self._path):
            raise FileNotFoundError(path)
        return self._inner.open(path, write=write)

    def listdir(self, folder: str) -> list[str]:  # noqa: ARG002  -- the protocol's name
        """See Fs."""
        return [self._name]


def _check_block(block: Block, definitions: Definitions, open_: bool, path: str) -> bool:
    """Decode it, hold it to its header and to the indicators' order; whether a transaction is open after it."""
    where = f"{path}, RBA {block.start.rba}"
    header = block.header
    if header.kind is Kind.RESTART:
        return False
    if header.kind is not Kind.DATA:
        return open_
    expected = (Indicator.MIDDLE, Indicator.END) if open_ else (Indicator.WHOLE, Indicator.BEGIN)
    if header.indicator not in expected:
        names = " or ".join(indicator.name for indicator in expected)
        raise DamageError(f"{where}: damaged: expected indicator {names}, found {header.indicator.name}")
    if header.is_encrypted:
        return header.indicator in (Indicator.BEGIN, Indicator.MIDDLE)
    tables, records = decode_data(header, block.payload, where)
    unknown = [table.hex() for table in tables if table not in definitions]
    if unknown:
        raise DamageError(f"{where}: damaged: expected a definition of table {unknown[0]}, found none in this file")
    if header.is_heartbeat:
        beat_of(records, where)
        return False
    ops = [op for record in records if (op := _op(record, where)) not in (Op.BEGIN, Op.COMMIT)]
    if header.is_ddl != (Op.DDL in ops) or (header.is_ddl and len(ops) != 1):
        raise DamageError(f"{where}: damaged: expected {'one DDL record' if header.is_ddl else 'no DDL'}, found {ops}")
    changes = len(ops)
    if changes != header.changes:
        raise DamageError(f"{where}: damaged: expected {header.changes} changes, found {changes}")
    return header.indicator in (Indicator.BEGIN, Indicator.MIDDLE)


# --- checkpoint files -------------------------------------------------------------------------------------------------


def show_checkpoint(fs: Fs, path: str, say: Say) -> None:
    """Every save of a checkpoint file, newest first."""
    if not os.path.exists(path):
        raise OperatorError(f"{path}: no such file")
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


# --- command line -----------------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OperatorError(f"logdump: {message}", hint="logdump --help tells more")


def _time(text: str) -> int:
    """`2026-02-03`, `2026-02-03 02:30:05.123` (this machine's time zone unless it names one) to microseconds."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a time such as '2026-02-03 02:30:05'") from None
    return int(moment.astimezone().timestamp() * 1_000_000)


def _position(text: str) -> Position:
    try:
        return Position.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _limit(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number from 1")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="logdump", description="Show a trail, one file of it, or a checkpoint file.")
    parser.add_argument("path", help="./dirdat/lt, ./dirdat/lt000000003, or dirchk/EXT1.cpe")
    parser.add_argument("--home", default="", metavar="DIR", help="decrypt with the keys of this home")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--headers", action="store_true", help="the file headers")
    what.add_argument("--blocks", action="store_true", help="one line a block (the default)")
    what.add_argument("--records", action="store_true", help="the records, decoded")
    what.add_argument("--count", action="store_true", help="totals, and changes by table")
    what.add_argument("--verify", action="store_true", help="check every CRC of every file; exit code 2 on damage")
    parser.add_argument("--table", default="", metavar="NAME", help="only this table, such as sales.*; shows records")
    parser.add_argument("--csn", default="", help="only the transaction with this CSN; shows records")
    parser.add_argument("--since", type=_time, metavar="TIME", help="only commits from this time on")
    parser.add_argument("--until", type=_time, metavar="TIME", help="only commits up to this time")
    parser.add_argument("--from", dest="start", type=_position, metavar="SEQNO/RBA", help="begin at this block")
    parser.add_argument("--to", dest="end", type=_position, metavar="SEQNO/RBA", help="stop before this position")
    parser.add_argument("--limit", type=_limit, metavar="N", help="show at most so many")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run logdump; returns the exit code."""
    try:
        return _show(_parser().parse_args(argv), RealFs(), print)
    except (GateError, FileNotFoundError) as error:
        sys.stdout.flush()
        print(f"ERROR: {error}", file=sys.stderr)
        return EXIT_OPERATOR
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_STOPPED


def _show(options: argparse.Namespace, fs: Fs, say: Say) -> int:
    if options.path.endswith((".cpe", ".cpr")):
        show_checkpoint(fs, options.path, say)
        return EXIT_STOPPED
    source = Source.of(options.path, options.home)
    source.seqnos(fs)  # a trail that isn't there is told before any title is shown
    wanted = Wanted(options.table, options.csn, options.since, options.until, options.start, options.end, options.limit)
    if options.verify:
        return EXIT_STOPPED if verify(fs, source, say) else EXIT_OPERATOR
    if options.headers:
        show_headers(fs, source, say)
    elif options.count:
        show_count(fs, source, wanted, say)
    elif options.records or ((options.table or options.csn) and not options.blocks):
        show_records(fs, source, wanted, say)
    else:
        show_blocks(fs, source, wanted, say)
    return EXIT_STOPPED


if __name__ == "__main__":
    sys.exit(main())
