"""START, STOP, KILL, STATUS and LAG: what is asked of the Manager, and of running groups themselves.

START and KILL are the Manager's work (a group is its child); the others go to the group's own control socket.
START and STOP wait for the outcome, for a bounded time, and say it: a word that something "was requested" helps nobody.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

from ggsci import facts
from ggsci.asking import checked
from ggsci.check import check_group_file, mistakes
from ggsci.choose import chosen, facts_of, wild
from ggsci.grammar import CommandError, Parsed
from ggsci.groups import order_start
from ggsci.session import Session
from trails.errors import AwayError, GateError
from trails.runtime.control import ask
from trails.runtime.home import MANAGER
from trails.runtime.registration import Registration
from trails.runtime.status import GroupStatus, Status, status_of

START_SECONDS = 30.0
STOP_SECONDS = 120.0
SPAWN_SECONDS = 10.0
LOOK_EACH = 0.05


# --- START ------------------------------------------------------------------------------------------------------------


def start(session: Session, command: Parsed) -> None:
    """Check the parameter files, have the Manager start, wait for each."""
    groups = chosen(session, command)
    if begins(command) and (wild(command.operand) or len(groups) != 1):
        raise CommandError(f"{command.command.name}: {' and '.join(begins(command))} is for one group at a time")
    if facts.manager(session.home)[0] != "RUNNING":
        raise CommandError("the Manager is not running, so nothing can be started", hint="START MANAGER first")
    sent = [group for group in groups if _each(session, group, lambda s, g: _start_one(s, g, command))]
    end = time.monotonic() + START_SECONDS
    for group in sent:
        _each(session, group, lambda s, g: _await_start(s, g, end))


def _each(session: Session, group: Registration, do: Callable[[Session, Registration], bool]) -> bool:
    """Do it for one of several groups: an error is told, and the others go on."""
    try:
        return do(session, group)
    except GateError as error:
        for line in mistakes(error):
            session.fail(line)
        return False


BEGINS = ("ATCSN", "AFTERCSN", "SKIPTRANSACTION")


def begins(command: Parsed) -> list[str]:
    """The options that say where to begin."""
    return [name for name in BEGINS if command.has(name)]


def _start_one(session: Session, group: Registration, command: Parsed) -> bool:
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


def _settled(session: Session, group: Registration, verb: str, end: float) -> GroupStatus:
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


def _await_start(session: Session, group: Registration, end: float) -> bool:
    """Wait until the group runs, or its process is gone again."""
    who = f"{group.kind} {group.name}"
    while time.monotonic() < end:
        child = checked(ask(session.home, MANAGER, "CHILD", name=group.name))
        status = status_of(session.home, group)
        if child["alive"] and status.status.value == "RUNNING" and status.pid == child["pid"]:
            session.say(f"{who} is running (process ID {status.pid}).")
            return True
        if not child["alive"]:
            if child["code"] == 0:
                session.say(f"{who} started, and has stopped already{_why(child)}.")
                return True
            raise CommandError(f"{who} ABENDED at its start: {child['message']}", hint=f"See VIEW REPORT {group.name}")
        time.sleep(LOOK_EACH)
    session.say(f"{who} is still starting; INFO {group.name} shows when it runs.")
    return True


def _why(child: dict[str, Any]) -> str:
    return f": {child['message']}" if child.get("message") else ""


# --- STOP, KILL -------------------------------------------------------------------------------------------------------


def stop(session: Session, command: Parsed) -> None:
    """Ask each to stop, then wait for all."""
    sent = [group for group in chosen(session, command) if _each(session, group, _stop_one)]
    end = time.monotonic() + STOP_SECONDS
    for group in sent:
        _each(session, group, lambda s, g: _await_stop(s, g, end))


def _stop_one(session: Session, group: Registration) -> bool:
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


def _is_told(session: Session, group: Registration, now: GroupStatus, *, last: bool) -> bool:
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


def _await_stop(session: Session, group: Registration, end: float) -> bool:
    who = f"{group.kind} {group.name}"
    while time.monotonic() < end:
        status = status_of(session.home, group)
        if not status.status.is_alive:
            if status.status.value == "ABENDED":
                raise CommandError(
                    f"{who} ABENDED while it stopped: {status.message}", hint=f"See VIEW REPORT {group.name}"
                )
            session.say(f"{who} stopped.")
            return True
        time.sleep(LOOK_EACH)
    raise CommandError(
        f"{who} has not stopped within {STOP_SECONDS:.0f} seconds",
        hint=f"Look again with INFO {group.name}; KILL {group.name} ends it at once and loses nothing",
    )


def kill(session: Session, command: Parsed) -> None:
    """Have the Manager end them at once."""
    for group in chosen(session, command):
        _each(session, group, _kill_one)


def _kill_one(session: Session, group: Registration) -> bool:
    who = f"{group.kind} {group.name}"
    if not status_of(session.home, group).status.is_alive:
        session.say(f"{who} is not running.")
        return False
    session.say("", "Sending KILL request to MANAGER ...")
    reply = checked(ask(session.home, MANAGER, "KILL", timeout=10, name=group.name))
    end = time.monotonic() + 10
    while status_of(session.home, group).status.is_alive:
        if time.monotonic() > end:
            raise CommandError(f"{who}: process {reply['pid']} is still there 10 seconds after SIGKILL")
        time.sleep(LOOK_EACH)
    session.say(f"Killed process ({reply['pid']}) for {who}")
    return True


# --- STATUS (STATS, SEND: asking.py) ----------------------------------------------------------------------------------


def status(session: Session, command: Parsed) -> Any:
    """One line a group."""
    groups = facts_of(session, chosen(session, command))
    session.say_lines(f"{group.program} {group.name}: {group.status}" for group in groups)
    return [group.brief() for group in groups]
