"""Where reading of the binary log begins, so that nothing is lost and nothing comes twice.

    this server's own place   its file is there, and the place is what it was       -> at the place
                              its file was purged, but all in it was handed over    -> behind the GTIDs
    another server's place    it has all that was handed over, and all behind it    -> behind the GTIDs
    anything else                                                                   -> refused

Rule: which transactions a server has, its sets of GTIDs say; which it has thrown away, the head of its oldest file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from extract.sources.mysql import gtid, server
from extract.sources.mysql.dump import LOST, MOST_POS, DumpBegin, PurgedError
from extract.sources.mysql.flavour import Flavour
from extract.sources.mysql.gtid import DomainSet, GtidSet
from extract.sources.mysql.link import MysqlSession
from extract.sources.mysql.places import csn_of, parts
from extract.sources.mysql.server import LogFile
from extract.sources.mysql.state import State
from extract.sources.mysql.walk import Walker
from trails.errors import MismatchError
from trails.position import Position

MOVED: Final = f"It was reset, or restored from a backup. {LOST}"


@dataclass(frozen=True, slots=True)
class ReadFrom:
    """Where the dump begins, and what was handed over by the origin.

    `by_gtid`: places before the first event are none of this server's, or not known: what was handed over is known by
    its GTID.
    """

    begin: DumpBegin
    state: State
    by_gtid: bool = False


def read_from(session: MysqlSession, walker: Walker, origin: Position, state: State | None, epoch: int) -> ReadFrom:
    """Where to read for an origin and its state, None where only the place is known; `epoch`: of this server.

    Raises MismatchError where this server can't go on there.
    """
    if state is None:
        return _at_place(session, walker, origin, None, epoch)
    has_all(session, origin, state.gtids)
    start = origin if state.again is None else state.again.origin
    if parts(start)[0] != epoch:
        return _behind(session, walker, state, _logs(session))
    return _at_place(session, walker, start, state, epoch)


def has_all(session: MysqlSession, origin: Position, held: GtidSet) -> None:
    """Raise MismatchError where the trail has transactions that this server does not."""
    missing: GtidSet
    if isinstance(held, DomainSet):
        missing = held.missing_in(str(session.one("SELECT @@GLOBAL.gtid_binlog_state")[0] or ""))
    else:
        executed = gtid.parse(session.flavour, str(session.one("SELECT @@GLOBAL.gtid_executed")[0] or ""))
        missing = held.minus(executed)
    if missing:
        raise MismatchError(
            f"the trail, up to CSN {csn_of(origin)}, has transactions that this server has not: {missing!s:.300}",
            hint=f"Bring them to this server, or name one that has them in SOURCEDB. {LOST}",
        )


def _logs(session: MysqlSession) -> list[LogFile]:
    found = server.logs(session)
    if not found:
        raise MismatchError("the source has no binary log any more", hint=f"Set log_bin and restart it. {LOST}")
    return found


def _at_place(session: MysqlSession, walker: Walker, start: Position, state: State | None, epoch: int) -> ReadFrom:
    at_epoch, number, pos = parts(start)
    if at_epoch != epoch:
        raise MismatchError(
            f"CSN {csn_of(start)} is a place in the binary log of another server than this one",
            hint="ALTER EXTRACT to a place of this server, or START with SOURCEDB of the other one",
        )
    logs = _logs(session)
    found = next((log for log in logs if log.number == number), None)
    if found is None and number < logs[-1].number:
        if state is None:
            raise _purged(number, pos, logs)
        return _behind(session, walker, state, logs, (number, pos))
    if found is None or pos > found.size:
        raise MismatchError(
            f"the server's binary log ends at {logs[-1].name}, position {logs[-1].size}, before CSN {csn_of(start)}",
            hint=MOVED,
        )
    if state is None:
        return ReadFrom(DumpBegin(found.name, pos), State(walker.at(found.name, pos).before))
    expected = state.gtids if state.again is None else state.again.gtids
    if isinstance(expected, DomainSet):
        _same_log(session, found, pos, expected, first=not epoch)
    if pos > MOST_POS:  # no dump by place reaches it
        return ReadFrom(DumpBegin(gtids=expected), state, by_gtid=True)
    return ReadFrom(DumpBegin(found.name, pos), state)


def _same_log(session: MysqlSession, file: LogFile, pos: int, expected: DomainSet, *, first: bool) -> None:
    """MariaDB has no name of its own for a server's data: but at the place the same must have been committed.

    `first`: the group has read no other server. After a failover the trail may have more: what the other server had
    committed before, and this one commits behind the place, in a domain of its own.
    """
    (text,) = session.one("SELECT BINLOG_GTID_POS(%s, %s)", file.name, pos)
    there = None if text is None else DomainSet.parse(text)
    if there is None or not (there == expected if first else there.is_within(expected)):
        raise MismatchError(
            f"{file.name}, position {pos}: the trail was there behind GTID {str(expected) or '(none)'}, this server "
            f"behind {str(there) if text else '(none)'}: it is another log",
            hint=f"Give a server that took over a server_id of its own. {LOST}",
        )


def _behind(
    session: MysqlSession, walker: Walker, state: State, logs: list[LogFile], place: tuple[int, int] | None = None
) -> ReadFrom:
    """Behind the GTIDs, if the server still has all others. `place`: what was asked for, of this server's own."""
    held = state.gtids if state.again is None else state.again.gtids
    if session.flavour is Flavour.MYSQL:
        gone = gtid.parse(session.flavour, str(session.one("SELECT @@GLOBAL.gtid_purged")[0] or ""))
    else:
        gone = walker.head(logs[0].name)[1]
    if not held.contains_all(gone):
        if place is not None:
            raise _purged(*place, logs)
        raise PurgedError(
            f"this server has purged transactions that the trail has not: {gone.minus(held)!s:.300}; its oldest "
            f"binary log is {logs[0].name}",
            hint=f"Name a server that has them in SOURCEDB. {LOST}",
        )
    return ReadFrom(DumpBegin(gtids=held), state, by_gtid=True)


def _purged(number: int, pos: int, logs: list[LogFile]) -> PurgedError:
    name = logs[0].name.rpartition(".")[0]
    return PurgedError(
        f"the server has purged {name}.{number:06d}, which is needed from position {pos} on: its oldest binary log is "
        f"{logs[0].name}",
        hint=f"Put that file back, also into the log's index, and restart the server. {LOST}",
    )
