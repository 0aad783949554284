"""Where ADD and ALTER send a group: the order that stands in its registration, checked against what is there.

    kind                 EXTSEQNO, EXTRBA            BEGIN                              CSN
    Extract on a log     the log's file and offset   NOW; a time can't be had           LSN, SCN or CSN
    pump                 a block border of its trail NOW or a time, looked up here      -
    Replicat             a block border of its trail NOW or a time, found at START      CSN, found at START

A position in a trail is looked at before it is recorded, so a wrong one is told now and not at START.

A pump's time means the first transaction in the trail's order that committed then or later. Commit times follow that
order only nearly (commits that overlap, clocks that are set), so no file is passed over for what it begins with alone:
reading begins in the last file before the first one that begins later than an hour before the time. Thus no file's
headers are read but those, as long as no clock of the source was put back by more than that hour. A block's header has
the time of its last transaction; where a clock was put back inside of one, what came before that is not seen.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ggsci.grammar import CommandError, Parsed
from ggsci.session import Session
from ggsci.view import stamp
from trails.csn import like
from trails.format import Indicator, Kind
from trails.plan import Planner
from trails.position import Position, TrailName
from trails.reader import BlockReader, last_header
from trails.runtime.home import Home
from trails.segment import open_segment

PUT_BACK_US = 3_600_000_000
"""A source's clock may be put back by as much."""
_NO_TIME = (
    "a PostgreSQL log is found by LSN, not by time, and a slot gives only what the server has not let go of: "
    "an Extract can't begin at a time"
)


def of_new_extract(command: Parsed) -> dict[str, Any]:
    """ADD EXTRACT on a log: BEGIN NOW is where its slot was made, which needs no order."""
    if command.has("BEGIN"):
        if command.text("BEGIN").upper() != "NOW":
            raise CommandError(
                f"ADD EXTRACT: BEGIN {command.text('BEGIN')}: {_NO_TIME}", hint="Use BEGIN NOW: where its slot was made"
            )
        _one_of(command, "BEGIN", "EXTSEQNO", "EXTRBA", *_CSNS)
        return {}
    return of_extract(command)


def of_extract(command: Parsed) -> dict[str, Any]:
    """An Extract on a log: a CSN, a file of the log and an offset, or the log's end at the next START."""
    name = command.command.name
    begin, csn = command.text("BEGIN"), next((command.text(o) for o in _CSNS if command.has(o)), "")
    _one_of(command, "BEGIN", "EXTSEQNO", *_CSNS)
    if begin:
        if begin.upper() != "NOW":
            raise CommandError(
                f"{name}: BEGIN {begin}: {_NO_TIME}",
                hint="Use BEGIN NOW, or LSN n. To apply changes of the trail again, ALTER its readers with BEGIN",
            )
        return {"begin": "now"}
    return {"csn": csn} if csn else _file_and_rba(command)


_CSNS = ("LSN", "SCN", "CSN")


def of_pump(session: Session, command: Parsed, trail: str) -> dict[str, Any]:
    """A pump: a block border of its trail, given, or found by the time of a commit."""
    name = command.command.name
    if any(command.has(option) for option in _CSNS):
        raise CommandError(f"{name}: LSN, SCN and CSN are for an Extract on a database's log; this group reads a trail")
    _one_of(command, "BEGIN", "EXTSEQNO")
    home, begin = session.home, command.text("BEGIN")
    if not begin:
        return _in_trail(command, home, trail)
    found = _at_end(home, trail) if begin.upper() == "NOW" else _at_time(home, trail, _time(name, begin))
    session.say(f"It begins at sequence # {found.seqno}, RBA {found.rba} of {trail}.")
    return {"seqno": found.seqno, "rba": found.rba}


def of_replicat(session: Session, command: Parsed, trail: str) -> dict[str, Any]:
    """A Replicat: a block border, or by CSN or time, also inside a block; those are found in the trail at START."""
    name, begin = command.command.name, command.text("BEGIN")
    _one_of(command, "BEGIN", "CSN", "EXTSEQNO")
    if command.has("CSN"):
        return {"csn": known_csn(session.home, trail, command.text("CSN"), f"{name}: CSN")}
    if begin:
        return {"begin_us": session.now_us() if begin.upper() == "NOW" else _time(name, begin)}
    return _in_trail(command, session.home, trail)


def _one_of(command: Parsed, *names: str) -> None:
    given = [name for name in names if command.has(name)]
    if "EXTSEQNO" not in given and command.has("EXTRBA") and "EXTRBA" not in given:
        given.append("EXTRBA")
    if len(given) > 1:
        raise CommandError(f"{command.command.name}: expected one place, found {' and '.join(given)}")


def _time(name: str, text: str) -> int:
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1_000_000)
    except (ValueError, OverflowError):
        raise CommandError(f"{name}: BEGIN: expected NOW or a time as '2026-02-03 02:30:05', found {text!r}") from None


def _file_and_rba(command: Parsed) -> dict[str, Any]:
    seqno, rba = command.number("EXTSEQNO"), command.number("EXTRBA")
    if seqno is None:
        if rba is not None:
            raise CommandError(f"{command.command.name}: EXTRBA needs EXTSEQNO")
        return {}
    return {"seqno": seqno, "rba": rba or 0}


# --- trails -----------------------------------------------------------------------------------------------------------


def _in_trail(command: Parsed, home: Home, trail: str) -> dict[str, Any]:
    TrailName.parse(trail, home.root)
    order = _file_and_rba(command)
    if order:
        _check_border(home, trail, Position(order["seqno"], order["rba"]))
    return order


def _check_border(home: Home, trail: str, place: Position) -> None:
    """Only where a block begins can anybody begin to read. The file after the last may still come."""
    name = TrailName.parse(trail, home.root)
    seqnos = name.seqnos(home.fs.listdir(name.folder))
    if place.rba == 0 and place.seqno == (seqnos[-1] + 1 if seqnos else 0):
        return
    if place.seqno not in seqnos:
        there = f"{seqnos[0]} to {seqnos[-1]}" if seqnos else "none"
        raise CommandError(f"trail {trail} has no file {place.seqno}; its files are {there}")
    reader = BlockReader(home.fs, name, place)
    try:
        reader.read(payload=False)
        found = reader.position
    finally:
        reader.close()
    if found is None or found < place:
        raise CommandError(f"trail {trail}: position {place} lies behind its end")


def _at_end(home: Home, trail: str) -> Position:
    """The border behind the trail's last whole transaction; the first file's beginning if there is none."""
    name = TrailName.parse(trail, home.root)
    seqnos = name.seqnos(home.fs.listdir(name.folder)) or [0]
    # A file that begins inside a transaction is read from where that began.
    outside = (seqno for seqno in reversed(seqnos[1:]) if not _begins_inside(home, name, seqno))
    first = Position(next(outside, seqnos[0]), 0)
    reader = BlockReader(home.fs, name, first)
    try:
        planner = _planner(home, name, reader, first.seqno)
        while planner.next() is not None:
            pass
        return planner.position or first
    finally:
        reader.close()


def _planner(home: Home, trail: TrailName, reader: BlockReader, seqno: int) -> Planner:
    """A planner from a file's beginning. The rest of a transaction that began in purged files is passed by."""
    if trail.seqnos(home.fs.listdir(trail.folder)) and _begins_inside(home, trail, seqno):
        while (block := reader.read(payload=False)) is not None:
            if block.header.kind == Kind.RESTART or block.header.indicator == Indicator.END:
                break
    return Planner(reader)


def _begins_inside(home: Home, trail: TrailName, seqno: int) -> bool:
    segment = open_segment(home.fs, trail, seqno)
    segment.close()
    return segment.header.open


def _file_before(home: Home, trail: TrailName, time_us: int) -> int:
    """The last file that lies whole, by the rule above, before a time's transactions and begins outside of one.

    The first file there is, where none does. A file without a commit says nothing, and is passed over.
    """
    seqnos = trail.seqnos(home.fs.listdir(trail.folder))
    found = seqnos[0] if seqnos else 0
    for seqno in seqnos:
        first_us = _first_commit_us(home, trail, seqno)
        if first_us is None:
            continue
        if first_us >= time_us - PUT_BACK_US:
            break
        if not _begins_inside(home, trail, seqno):
            found = seqno
    return found


def _first_commit_us(home: Home, trail: TrailName, seqno: int) -> int | None:
    """The time of the first block in a file that ends a transaction; that of other blocks is none of the source's."""
    reader = BlockReader(home.fs, trail, Position(seqno, 0))
    try:
        while (block := reader.read(payload=False)) is not None and block.start.seqno == seqno:
            if block.header.kind == Kind.DATA and block.header.transactions:
                return block.header.time_us
        return None
    finally:
        reader.close()


def _at_time(home: Home, trail: str, time_us: int) -> Position:
    """The block of the first transaction committed then or later; a pump sends whole blocks."""
    name = TrailName.parse(trail, home.root)
    first = _file_before(home, name, time_us)
    reader = BlockReader(home.fs, name, Position(first, 0))
    last = None
    try:
        planner = _planner(home, name, reader, first)
        while (unit := planner.next()) is not None:
            if unit.blocks and unit.time_us >= time_us:
                return unit.start
            last = unit.time_us if unit.blocks else last
    finally:
        reader.close()
    there = f"its last was committed at {stamp(last)}" if last is not None else "it has none yet"
    raise CommandError(
        f"trail {trail} has no transaction committed at {stamp(time_us)} or later; {there}",
        hint="BEGIN NOW begins behind its last one",
    )


def known_csn(home: Home, trail: str, csn: str, what: str) -> str:
    """The CSN in the trail's own form, as far as the trail shows one yet."""
    name = TrailName.parse(trail, home.root)
    try:
        return like(csn, _sample_csn(home, name))
    except ValueError as error:
        raise CommandError(f"{what}: expected {error}", hint="logdump shows a trail's CSNs") from None


def _sample_csn(home: Home, trail: TrailName) -> str:
    """Any CSN of a trail; empty if it has none yet."""
    header = last_header(home.fs, trail)
    if header is None or header.last_csn:
        return header.last_csn if header else ""
    reader = BlockReader(home.fs, trail)
    try:
        while (block := reader.read(payload=False)) is not None:
            if block.header.csn:
                return block.header.csn
        return ""
    finally:
        reader.close()
