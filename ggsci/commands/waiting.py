"""WAIT: until a group has handled all that stood in its input when its turn came.

    Extract    everything committed up to the source's log end of that moment stands, synced, in its trail: the slot
               was told so, and Extract tells it only what is durable
    pump       everything in its trail up to the durable end of that moment was acknowledged by the Collector as synced
    Replicat   every whole transaction in its trail up to the durable end of that moment is committed in the target, and
               the tables of an initial load are copied: what came for them before is in the copy

Rule: the answer is never a guess. A place that the group itself has made durable is compared with one that was noted
before; where the place stands still because only empty blocks follow, the block headers in between must say so. Of
several groups each waits behind those that feed it, so `WAIT EXTRACT *` in the source's home and then
`WAIT REPLICAT *` in the target's mean: what was committed before the first of them is applied now.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from ggsci import admin
from ggsci.commands.choose import chosen, facts_of
from ggsci.commands.session import OperatorSession
from ggsci.table.grammar import CommandError, Parsed
from trails.errors import AwayError
from trails.plan import Planner
from trails.position import START, Position, TrailName
from trails.reader import BlockReader
from trails.runtime.home.home import MANAGER, Home
from trails.runtime.home.registration import Registration
from trails.runtime.process.control import ask
from trails.runtime.report.answers import PlaceAnswer, StatusAnswer, read_answer
from trails.segment import open_segment

DEFAULT_SECONDS = 60
PAUSE_SECONDS = 0.1
ASK_SECONDS = 5.0
LOG_SECONDS = 2.0
"""So long one look at the source's log waits; then it is seen whether the group still runs."""

Reached = Callable[[], bool]


def wait(session: OperatorSession, command: Parsed) -> Any:
    """Each group in its turn; the first that does not get there in time is an error."""
    found = command.number("SECONDS")
    seconds = DEFAULT_SECONDS if found is None else found
    deadline = time.monotonic() + seconds
    rows = []
    for group in _in_order(chosen(session, command)):
        _check_runs(session, group)
        words, reached = _goal(session.home, group)
        _until(session, group, reached, deadline, seconds)
        session.say(f"{group.kind} {group.name} {words}.")
        rows.append({"program": group.kind, "group": group.name, "reached": words})
    return rows


def _in_order(groups: list[Registration]) -> list[Registration]:
    """Whoever writes a trail comes before those that read it."""
    left, ordered = list(groups), []
    while left:
        writes = {trail.path for group in left for trail in group.trails}
        free = [group for group in left if group.trail not in writes] or left
        ordered += free
        left = [group for group in left if group not in free]
    return ordered


def _check_runs(session: OperatorSession, group: Registration) -> None:
    (found,) = facts_of(session, [group])
    if found.is_down and not _comes_back(session.home, group):
        why = f": {found.message}" if found.message else ""
        raise CommandError(
            f"{group.kind} {group.name} is {found.status}, so it handles nothing{why}",
            hint=f"START {group.kind} {group.name}",
        )


def _comes_back(home: Home, group: Registration) -> bool:
    """Whether the Manager is about to start it again: after a death, or as soon as the disk has space."""
    try:
        child = ask(home, MANAGER, "CHILD", timeout=ASK_SECONDS, name=group.name)
    except AwayError:
        return False
    return bool(child.get("alive") or child.get("retry_us"))


def _until(session: OperatorSession, group: Registration, reached: Reached, deadline: float, seconds: float) -> None:
    while not reached():
        _check_runs(session, group)
        if time.monotonic() > deadline:
            raise CommandError(
                f"{group.kind} {group.name} has not handled all of its input within {seconds} seconds",
                hint="INFO ALL, DETAIL says what holds it back",
            )
        time.sleep(PAUSE_SECONDS)


def _goal(home: Home, group: Registration) -> tuple[str, Reached]:
    """What is to be reached, in words, and whether it is by now."""
    if not group.trail:
        return _log_goal(home, group)
    trail = TrailName.parse(group.trail, home.root)
    end = _durable_end(home, trail)
    if end is None:
        raise CommandError(f"{group.kind} {group.name}: trail {group.trail} has no file yet", hint="START its writer")
    done = "applied" if group.kind == "REPLICAT" else "sent"
    words = f"has {done} everything in {group.trail} up to file {end.seqno}, RBA {end.rba}"
    return words, lambda: _has_read(home, group, trail, end)


def _log_goal(home: Home, group: Registration) -> tuple[str, Reached]:
    def look(goal: str, seconds: float) -> dict[str, Any]:
        return admin.ask("extract", "captured", home=home.root, group=group.name, goal=goal, seconds_to_wait=seconds)

    goal = str(look("", 0)["goal"])
    return f"has captured everything that was committed up to {goal}", lambda: bool(look(goal, LOG_SECONDS)["reached"])


def _durable_end(home: Home, trail: TrailName) -> Position | None:
    """Of the trail's last file that is in use."""
    for seqno in reversed(trail.seqnos(home.fs.listdir(trail.folder))):
        with closing(open_segment(home.fs, trail, seqno)) as segment:
            if durable := segment.read_durable_end():
                return Position(seqno, durable)
    return None


def _has_read(home: Home, group: Registration, trail: TrailName, goal: Position) -> bool:
    """Whether the group's own place is at the goal, or only blocks without changes lie between."""
    try:
        answer = read_answer(StatusAnswer, ask(home, group.name, "STATUS", timeout=ASK_SECONDS))
    except AwayError:
        return False  # it starts, or is busy with something large
    if answer.not_copied:
        failed = ", ".join(answer.not_copied)
        raise CommandError(
            f"REPLICAT {group.name}: the initial load of {failed} failed, so changes of it are left out",
            hint=f"INFO TABLES {group.name} says why",
        )
    if answer.paused:
        raise CommandError(
            f"REPLICAT {group.name}: {', '.join(answer.paused)} is left out, as it is paused or has failed",
            hint=f"INFO TABLES {group.name} says why; RESUME TABLE has it catch up",
        )
    if answer.to_copy or answer.catching_up:
        return False
    place = answer.read or PlaceAnswer()
    at = Position(place.seqno, place.rba)
    return at >= goal or not _has_changes(home, group, trail, at, goal)


def _has_changes(home: Home, group: Registration, trail: TrailName, begin: Position, end: Position) -> bool:
    """Whether a change lies between: block headers tell. A pump may stand inside of a transaction, a Replicat not."""
    with closing(BlockReader(home.fs, trail, None if begin == START else begin)) as reader:
        planner = Planner(reader)
        while (reader.position or START) < end:
            if group.kind == "REPLICAT":
                if (unit := planner.next()) is None:
                    return False
                if unit.changes or unit.has_ddl:
                    return unit.start < end
            elif (block := reader.read(payload=False)) is None:
                return False
            elif block.header.changes or block.header.is_ddl:
                return block.start < end
    return False
