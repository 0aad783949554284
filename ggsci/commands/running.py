"""START, STOP, KILL, STATUS and LAG: what is asked of the Manager, and of running groups themselves.

START and KILL are the Manager's work (a group is its child); the others go to the group's own control socket.
START and STOP wait for the outcome, for a bounded time, and say it: a word that something "was requested" helps nobody.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from typing import Any

from ggsci import facts
from ggsci.check import check_group_file, dry_run, mistakes
from ggsci.commands.asking import LOOK_EACH, checked, turns
from ggsci.commands.choose import chosen, facts_of, wild
from ggsci.commands.groups import order_start
from ggsci.commands.session import OperatorSession
from ggsci.table.grammar import CommandError, Parsed
from ggsci.views.view import stamp
from trails.errors import AwayError, GateError
from trails.runtime.home.home import MANAGER, Home
from trails.runtime.home.registration import Registration
from trails.runtime.home.status import FOR_TRAIL, GroupStatus, Status, status_of
from trails.runtime.process.control import ask

START_SECONDS = 60.0
WAIT_SECONDS = 5.0
"""So long a started group may wait for somebody before START says so and comes back."""
MOST_WARNINGS = 5
CAUTION = "Warning: "
_WARNING = re.compile(r"WARNING +TG-\d{5} +(.*)")
STOP_SECONDS = 120.0
SPAWN_SECONDS = 10.0


# --- START ------------------------------------------------------------------------------------------------------------


def start(session: OperatorSession, command: Parsed) -> None:
    """Check the parameter files, have the Manager start, wait for each."""
    groups = chosen(session, command)
    if begins(command) and any(group.is_task for group in groups):
        raise CommandError(f"{command.command.name}: {begins(command)[0]} is for a Replicat that reads a trail")
    if begins(command) and (wild(command.operand) or len(groups) != 1):
        raise CommandError(f"{command.command.name}: {' and '.join(begins(command))} is for one group at a time")
    if facts.manager(session.home)[0] != "RUNNING":
        raise CommandError("the Manager is not running, so nothing can be started", hint="START MANAGER first")
    sent = [group for group in groups if _each(session, group, lambda s, g: _start_one(s, g, command))]
    end = time.monotonic() + START_SECONDS
    for group in sent:
        _each(session, group, lambda s, g: _await_start(s, g, end))


def _each(session: OperatorSession, group: Registration, do: Callable[[OperatorSession, Registration], bool]) -> bool:
    """Do it for one of several groups: an error is told, and the others go on."""
    try:
        return do(session, group)
    except GateError as error:
        for line in mistakes(error):
            session.fail(line)
        return False


BEGINS = ("ATCSN", "AFTERCSN", "SKIPTRANSACTION", "FILTERDUPTRANSACTIONS", "PASTHOLE")


def begins(command: Parsed) -> list[str]:
    """The options that say where to begin."""
    return [name for name in BEGINS if command.has(name)]


def _start_one(session: OperatorSession, group: Registration, command: Parsed) -> bool:
    """Send the request. True if there is a start to wait for."""
    who = f"{group.kind} {group.name}"
    if _settled(session, group, "CHILD", time.monotonic() + SPAWN_SECONDS).status.is_alive:
        if begins(command):
            raise CommandError(f"{who} is already running: {begins(command)[0]} is for its start", hint="STOP it first")
        session.say(f"{who} is already running.")
        return False
    check_group_file(session.home, group)
    order_start(session, command, group)
    session.say("", "Sending START request to MANAGER ...")
    checked(ask(session.home, MANAGER, "START", timeout=10, name=group.name))
    session.say(f"{who} starting")
    return True


def _settled(session: OperatorSession, group: Registration, verb: str, end: float) -> GroupStatus:
    """The status once no process of the group is half-way, for a bounded time.

    A restart made a moment ago may not hold the group's lock yet, and a process that let it go may still be ending.
    `verb` asks the Manager for what it knows of its child: CHILD, or HOLD, which also forbids restarts.
    """
    while True:
        try:
            child = ask(session.home, MANAGER, verb, timeout=2, name=group.name)
        except AwayError:
            child = {}
        now = status_of(session.home, group)
        if now.status.is_alive or not child.get("alive") or time.monotonic() > end:
            return now
        time.sleep(LOOK_EACH)


def _await_start(session: OperatorSession, group: Registration, end: float) -> bool:
    """Wait until the group has done the first turn of its work, waits for somebody, or its process is gone again."""
    who, since = f"{group.kind} {group.name}", None
    for _ in turns(end):
        child = checked(ask(session.home, MANAGER, "CHILD", name=group.name))
        status = status_of(session.home, group)
        if child["alive"] and status.status is Status.RUNNING and status.pid == child["pid"]:
            since = since or time.monotonic()
            if status.works or time.monotonic() - since > WAIT_SECONDS:
                said = _started(who, status)
                session.say(said, *_warnings(session.home, group.name, said), *_of_link(session.home, group, status))
                return True
        if not child["alive"]:
            if child["code"] == 0:
                session.say(f"{who} started, and has stopped already{_why(child)}.")
                return True
            again = f"It is started again at {stamp(child['retry_us'])}. " if child.get("retry_us") else ""
            hint = f"{again}See VIEW REPORT {group.name}"
            raise CommandError(f"{who} ABENDED at its start: {child['message']}", hint=hint)
    how_far = f"it has not come to its work yet; VIEW REPORT {group.name} shows how far it is"
    session.say(f"{who} is still starting: {how_far}.")
    return True


def _started(who: str, status: GroupStatus) -> str:
    if not status.works:
        return f"{who} is still starting (process ID {status.pid}): {status.waits}."
    waits = f" {status.waits}." if status.waits else ""
    return f"{who} is running (process ID {status.pid}).{waits}"


def _warnings(home: Home, group: str, said: str) -> list[str]:
    """What the start has found that may not be meant, out of the report, but for what was said already."""
    try:
        with open(home.report(group), encoding="utf-8", errors="replace") as report:
            texts = [match[1] for line in report if (match := _WARNING.search(line))]
    except OSError:
        return []
    found = [f"WARNING: {text}" for text in texts if text.partition(". Trying again ")[0] not in said]
    more = [f"and {len(found) - MOST_WARNINGS} more: VIEW REPORT {group}"] if len(found) > MOST_WARNINGS else []
    return [*found[:MOST_WARNINGS], *more]


def _of_link(home: Home, group: Registration, status: GroupStatus) -> list[str]:
    """What a pump does not tell of its link: certificates that end soon, and what is wrong with the other host while
    its trail has no file yet, and so it asks nobody.
    """
    if group.package != "pump":
        return []
    from ggsci.certificates.files import endings

    texts = endings(home)
    if status.waits.startswith(FOR_TRAIL):
        wrong, notes = dry_run(home, home.prm(group.name))
        texts += [*wrong, *(note.removeprefix(CAUTION) for note in notes if note.startswith(CAUTION))]
    return [f"WARNING: {text}" for text in texts]


def _why(child: dict[str, Any]) -> str:
    return f": {child['message']}" if child.get("message") else ""


# --- STOP, KILL -------------------------------------------------------------------------------------------------------


def stop(session: OperatorSession, command: Parsed) -> None:
    """Ask each to stop, then wait for all."""
    sent = [group for group in chosen(session, command) if _each(session, group, _stop_one)]
    end = time.monotonic() + STOP_SECONDS
    for group in sent:
        _each(session, group, lambda s, g: _await_stop(s, g, end))


def _stop_one(session: OperatorSession, group: Registration) -> bool:
    who = f"{group.kind} {group.name}"
    end = time.monotonic() + SPAWN_SECONDS
    announced = False
    while True:
        now = _settled(session, group, "HOLD", end)
        if not now.status.is_alive:
            session.say(f"{who} is already {'stopped' if now.status is Status.STOPPED else now.status}.")
            return False
        if not announced:
            session.say("", f"Sending STOP request to {who} ...")
            announced = True
        if _is_told(session, group, now, last=time.monotonic() > end):
            session.say("Request processed.")
            return True
        time.sleep(LOOK_EACH)


def _is_told(session: OperatorSession, group: Registration, now: GroupStatus, *, last: bool) -> bool:
    """Have it stop. False: its socket is a dead process's, or not there yet; the last try is by signal."""
    try:
        checked(ask(session.home, group.name, "STOP", timeout=10))
    except AwayError:
        if not last:
            return False
        if not (now.pid and now.is_process):
            raise
        os.kill(now.pid, signal.SIGTERM)
    return True


def _await_stop(session: OperatorSession, group: Registration, end: float) -> bool:
    who = f"{group.kind} {group.name}"
    for _ in turns(end):
        status = status_of(session.home, group)
        if not status.status.is_alive:
            if status.status.value == "ABENDED":
                raise CommandError(
                    f"{who} ABENDED while it stopped: {status.message}", hint=f"See VIEW REPORT {group.name}"
                )
            session.say(f"{who} stopped.")
            return True
    raise CommandError(
        f"{who} has not stopped within {STOP_SECONDS:.0f} seconds",
        hint=f"Look again with INFO {group.name}; KILL {group.name} ends it at once and loses nothing",
    )


def kill(session: OperatorSession, command: Parsed) -> None:
    """Have the Manager end them at once."""
    for group in chosen(session, command):
        _each(session, group, _kill_one)


def _kill_one(session: OperatorSession, group: Registration) -> bool:
    who = f"{group.kind} {group.name}"
    if not status_of(session.home, group).status.is_alive:
        session.say(f"{who} is not running.")
        return False
    session.say("", "Sending KILL request to MANAGER ...")
    reply = checked(ask(session.home, MANAGER, "KILL", timeout=10, name=group.name))
    for _ in turns(time.monotonic() + 10):
        if not status_of(session.home, group).status.is_alive:
            session.say(f"Killed process ({reply['pid']}) for {who}")
            return True
    raise CommandError(
        f"{who}: process {reply['pid']} is still there 10 seconds after SIGKILL",
        hint="Look again with STATUS: a disk or a network file system may hold it",
    )


# --- STATUS (STATS, SEND: asking.py) ----------------------------------------------------------------------------------


def status(session: OperatorSession, command: Parsed) -> Any:
    """One line a group."""
    groups = facts_of(session, chosen(session, command))
    session.say_lines(f"{group.program} {group.name}: {group.status}" for group in groups)
    return [group.brief() for group in groups]
