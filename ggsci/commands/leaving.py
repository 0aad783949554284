"""What a group leaves out by going on at another place: said and asked before the order is noted, and in ggserr.log.

    Extract on a log          its trail's end, and the place it is told; what lies between is never captured
    pump, Replicat            where its checkpoint stands, and the place it is told; what lies between is counted

Rule: only what is known to be left out is asked for. A place further back leaves nothing out, and a group that has
captured or read nothing yet has nothing to leave out. What becomes of the hole is said by the process at its START.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

from ggsci.commands.session import OperatorSession, command_log
from ggsci.table.grammar import Parsed
from ggsci.views.view import stamp
from trails.checkpoint import Place
from trails.checkpoint import load as load_checkpoints
from trails.csn import like
from trails.errors import GateError
from trails.keeping import read_last
from trails.plan import Left, Planner, hole_of
from trails.position import Position, TrailName
from trails.reader import BlockReader, headers_of, last_header
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registration
from trails.runtime.report.report import quietly

CODE = "TG-01811"
PAGE = "docs/recovery.md#lost-slot"
PAGE_OF_READERS = "docs/recovery.md#purged-place"
PAGE_OF_FILES = "docs/recovery.md#missing-trail-file"
GONE = "an unknown place, as every file of its trail is gone"


def ask(session: OperatorSession, command: Parsed, group: Registration, order: dict[str, Any]) -> None:
    """Say what an order leaves out, and have it confirmed. Raises CommandError if it is not."""
    on_log = group.source == "TRANLOG"
    found = (_by_extract if on_log else _by_reader)(session.home, group, order)
    if not found:
        return
    page = PAGE_OF_FILES if GONE in found else PAGE if on_log else PAGE_OF_READERS
    session.say(f"WARNING: {found} See {page}.")
    session.confirm("Are you sure", command)
    warn(session.home, f"{command.command.name} {group.name}: {found}")


def warn(home: Home, text: str) -> None:
    """Into ggserr.log."""
    quietly(command_log(home).warning, CODE, text)


def trail_end(home: Home, group: Registration) -> tuple[str, str]:
    """(trail, CSN of the last transaction in it) of an Extract's trails; empty if none holds anything.

    A trail without a transaction that has a file all the same ends at its beginning.
    """
    for trail in group.trails:
        name = TrailName.parse(trail.path, home.root)
        if last_header(home.fs, name) is not None:
            return trail.path, last_csn(home, name) or "its beginning"
        if read_last(home.fs, name) is not None:
            return trail.path, GONE
    return "", ""


def last_csn(home: Home, trail: TrailName) -> str:
    """CSN of the last transaction that an Extract's trail is known to hold; empty if it holds none."""
    header = last_header(home.fs, trail)
    csn = header.last_csn if header is not None else ""
    for block in headers_of(home.fs, trail, header.seqno) if header is not None else ():
        csn = block.header.csn or csn
    return csn


def _by_extract(home: Home, group: Registration, order: dict[str, Any]) -> str:
    place = _named(order)
    if not place:
        return ""
    try:
        trail, last = trail_end(home, group)
    except GateError:
        trail, last = group.trails[0].path, "a place that can't be read"
    if not trail or _is_behind(str(order.get("csn") or ""), last):
        return ""
    return f"{group.name} has captured up to {last}. What commits between there and {place} is lost to trail {trail}."


def _is_behind(csn: str, last: str) -> bool:
    """Whether a CSN, if it is one of this trail's source, is in the trail already."""
    try:
        return bool(csn) and like(csn, last) <= last
    except ValueError:
        return False


def _named(order: dict[str, Any]) -> str:
    """The place that an order on a log names, in words; empty if it names none."""
    if order.get("begin"):
        return "the log's end at the next START"
    if order.get("csn"):
        return str(order["csn"])
    if "begin_us" in order:
        return f"what was committed at {stamp(int(order['begin_us']))}"
    if "gtid" in order:
        return f"the transactions {order['gtid']}"
    if "lognum" in order:
        return f"log file {order['lognum']}, position {order['logpos']}"
    return f"sequence # {order['seqno']}, RBA {order.get('rba', 0)}" if "seqno" in order else ""


def _by_reader(home: Home, group: Registration, order: dict[str, Any]) -> str:
    try:
        saves = load_checkpoints(home.fs, home.checkpoint(group.name, group.kind))
        stands = saves[0].reads[0].current if saves and saves[0].reads else None
        return _ahead(home, group, stands, order) if stands is not None else ""
    except GateError as error:
        return f"what {group.name} leaves out can't be counted: {error.message}."


def _ahead(home: Home, group: Registration, stands: Place, order: dict[str, Any]) -> str:
    here = Position(stands.seqno, stands.rba)
    if "seqno" in order:
        there = Position(int(order["seqno"]), int(order.get("rba") or 0))
        left = _between(home, group.trail, here, there) if there > here else ""
        return f"{group.name} stands at {here}.{left}" if left else ""
    csn, time_us = str(order.get("csn") or ""), order.get("begin_us")
    if csn and stands.csn and csn > stands.csn:
        return (
            f"{group.name} has applied up to CSN {stands.csn}. Transactions between there and CSN {csn} are left out."
        )
    if time_us is not None and stands.time_us is not None and int(time_us) > stands.time_us:
        was, now = stamp(stands.time_us), stamp(int(time_us))
        return f"{group.name} has applied what was committed up to {was}. What was up to {now} is left out."
    return ""


def _between(home: Home, trail: str, here: Position, there: Position) -> str:
    """What stands between two places, in sentences; empty if nothing does."""
    name = TrailName.parse(trail, home.root)
    with closing(BlockReader(home.fs, name, here)) as reader:
        left = Left.between(Planner(reader), there)
    counted = f" {left} between there and {there} are left out." if left.transactions else ""
    holes = [f" A hole is passed: {hole_of(home.fs, name, b'', block)}." for block in left.holes]
    return "".join([counted, *holes])
