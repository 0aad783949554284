"""Where ADD and ALTER send a group: the order that stands in its registration, checked against what is there.

    kind                 EXTSEQNO, EXTRBA            BEGIN                              CSN
    Extract on a log     the log's file and offset   NOW; a time if the log knows some  LSN, SCN or CSN
    pump                 a block border of its trail NOW or a time, looked up here      -
    Replicat             a block border of its trail NOW or a time, found at START      CSN, found at START

A position in a trail is looked at before it is recorded, so a wrong one is told now and not at START.

A binary log is also found by LOGNUM with LOGPOS, by a set of GTIDs, and by a time. Which kind of log it is, the group's
parameter file says, or DBLOGIN. For any other log, and where neither is there, such a place is refused.

A pump's time means the first transaction in the trail's order that committed then or later. Commit times follow that
order only nearly (commits that overlap, clocks that are set), so no file is passed over for what it begins with alone:
reading begins in the last file before the first one that begins later than an hour before the time. Thus no file's
headers are read but those, as long as no clock of the source was put back by more than that hour. A block's header has
the time of its last transaction; where a clock was put back inside of one, what came before that is not seen.
"""

from __future__ import annotations

import contextlib
from contextlib import closing
from datetime import datetime
from typing import Any

from ggsci import admin
from ggsci.commands.session import OperatorSession
from ggsci.table.grammar import CommandError, Parsed
from ggsci.views.view import stamp
from trails.csn import like
from trails.errors import GateError
from trails.format import BlockKind, Indicator
from trails.plan import Planner
from trails.position import Position, TrailName
from trails.reader import BlockReader, headers_of, last_header
from trails.runtime.home import registration as registrations
from trails.runtime.home.home import Home
from trails.runtime.home.methods import PLACES
from trails.runtime.language import params
from trails.segment import open_segment

PUT_BACK_US = 3_600_000_000
"""A source's clock may be put back by as much."""
_CSNS = ("LSN", "SCN", "CSN")
_OF_BINARY_LOGS = ("LOGNUM", "LOGPOS", "GTID")


def of_new_extract(session: OperatorSession, command: Parsed) -> dict[str, Any]:
    """ADD EXTRACT on a log: BEGIN NOW is where REGISTER EXTRACT was called, which needs no order."""
    found = of_extract(session, command)
    return {} if found.get("begin") else found


def of_extract(session: OperatorSession, command: Parsed) -> dict[str, Any]:
    """An Extract on a log: a CSN, a file of the log and an offset, or the log's end at the next START.

    And what only some logs are found by.
    """
    _one_of(command, "BEGIN", "EXTSEQNO", "LOGNUM", "GTID", *_CSNS)
    if command.has("LOGPOS") and not command.has("LOGNUM"):
        raise CommandError(f"{command.command.name}: LOGPOS needs LOGNUM")
    begin, csn = command.text("BEGIN"), next((command.text(o) for o in _CSNS if command.has(o)), "")
    if begin.upper() == "NOW":
        return {"begin": "now"}
    if csn:
        return {"csn": csn}
    found = _of_some_logs(command, begin)
    if not found:
        return _file_and_rba(command)
    _check_known(session, command, found)
    return found


def _of_some_logs(command: Parsed, begin: str) -> dict[str, Any]:
    """An order of a kind that PLACES has, if it is one."""
    if begin:
        return {"begin_us": _time(command.command.name, begin)}
    if command.has("GTID"):
        return {"gtid": command.text("GTID")}
    if command.has("LOGNUM"):
        return {"lognum": command.number("LOGNUM"), "logpos": command.number("LOGPOS") or 0}
    return {}


def _check_known(session: OperatorSession, command: Parsed, order: dict[str, Any]) -> None:
    """Whether the group's log is found so, and has the place, where that can be seen. Raises OperatorError.

    START asks the same.
    """
    from extract.params import check_order, same_kind

    url = source_url(session.home, command.operand)
    if not url and session.login is not None and session.login.program == "extract":
        url = session.login.url
    if not url:
        word = next(word for key, word in PLACES.items() if key in order)
        raise CommandError(
            f"{command.command.name}: whether a log is found by {word} depends on its database, which is not known",
            hint=f"Write the parameter file of {command.operand}, or DBLOGIN SOURCEDB. Use BEGIN NOW otherwise",
        )
    wanted, login, place = check_order(url, order, command.command.name), session.login, ""
    if login is not None and login.program == "extract" and same_kind(url, login.url):
        server = _registered_server(session.home, command.operand)
        place = admin.ask("extract", "find_place", url=login.url, order=wanted, server=server)["place"]
    if place:
        session.say(f"It begins at {place}.")
    else:
        session.say("START will look for that place: there is no DBLOGIN SOURCEDB to the group's server here.")


def source_url(home: Home, name: str) -> str:
    """The URL of an Extract's parameter file; empty where there is none, or where an alias has it."""
    from extract.params import ExtractParams

    with contextlib.suppress(GateError):
        return ExtractParams.from_statements(params.parse_file(home.prm(name))).url
    return ""


def _registered_server(home: Home, name: str) -> str:
    """What tells the server where the group was registered from others; empty where it was not."""
    if not home.fs.exists(home.registration(name)):
        return ""
    noted = registrations.load(home, name).registered
    return noted.identity.get("server", "") if noted is not None else ""


def of_pump(session: OperatorSession, command: Parsed, trail: str) -> dict[str, Any]:
    """A pump: a block border of its trail, given, or found by the time of a commit."""
    name = command.command.name
    if any(command.has(option) for option in (*_CSNS, *_OF_BINARY_LOGS)):
        words = "LSN, SCN, CSN, LOGNUM, LOGPOS and GTID"
        raise CommandError(f"{name}: {words} are for an Extract on a database's log; this group reads a trail")
    _one_of(command, "BEGIN", "EXTSEQNO")
    home, begin = session.home, command.text("BEGIN")
    if not begin:
        return _in_trail(command, home, trail)
    found = _at_end(home, trail) if begin.upper() == "NOW" else _at_time(home, trail, _time(name, begin))
    session.say(f"It begins at sequence # {found.seqno}, RBA {found.rba} of {trail}.")
    return {"seqno": found.seqno, "rba": found.rba}


def of_replicat(session: OperatorSession, command: Parsed, trail: str) -> dict[str, Any]:
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
    with closing(BlockReader(home.fs, name, place)) as reader:
        reader.read(payload=False)
        found = reader.position
    if found is None or found < place:
        raise CommandError(f"trail {trail}: position {place} lies behind its end", hint="logdump shows its blocks")


def _at_end(home: Home, trail: str) -> Position:
    """The border behind the trail's last whole transaction; the first file's beginning if there is none."""
    name = TrailName.parse(trail, home.root)
    seqnos = name.seqnos(home.fs.listdir(name.folder)) or [0]
    # A file that begins inside a transaction is read from where that began.
    outside = (seqno for seqno in reversed(seqnos[1:]) if not _begins_inside(home, name, seqno))
    first = Position(next(outside, seqnos[0]), 0)
    with closing(BlockReader(home.fs, name, first)) as reader:
        planner = _planner(home, name, reader, first.seqno)
        while planner.next() is not None:
            pass
        return planner.position or first


def _planner(home: Home, trail: TrailName, reader: BlockReader, seqno: int) -> Planner:
    """A planner from a file's beginning. The rest of a transaction that began in purged files is passed by."""
    if trail.seqnos(home.fs.listdir(trail.folder)) and _begins_inside(home, trail, seqno):
        while (block := reader.read(payload=False)) is not None:
            if block.header.kind == BlockKind.RESTART or block.header.indicator == Indicator.END:
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
    headers = (block.header for block in headers_of(home.fs, trail, seqno))
    return next((found.time_us for found in headers if found.kind == BlockKind.DATA and found.transactions), None)


def _at_time(home: Home, trail: str, time_us: int) -> Position:
    """The block of the first transaction committed then or later; a pump sends whole blocks."""
    name = TrailName.parse(trail, home.root)
    first = _file_before(home, name, time_us)
    with closing(BlockReader(home.fs, name, Position(first, 0))) as reader:
        last = None
        planner = _planner(home, name, reader, first)
        while (unit := planner.next()) is not None:
            if unit.blocks and unit.time_us >= time_us:
                return unit.start
            last = unit.time_us if unit.blocks else last
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
    seqnos = trail.seqnos(home.fs.listdir(trail.folder))
    found = (block.header.csn for seqno in seqnos for block in headers_of(home.fs, trail, seqno))
    return next(filter(None, found), "")
