"""ADD, ALTER, DELETE and INFO of EXTTRAIL and RMTTRAIL: which trails a group writes, kept in its registration."""

from __future__ import annotations

import fnmatch
import os
from dataclasses import replace
from typing import Any

from ggsci.commands.choose import locked, registered
from ggsci.commands.session import OperatorSession
from ggsci.facts import gather
from ggsci.table.grammar import CommandError, Parsed
from ggsci.views import view
from trails.format import FILE_MEGABYTES
from trails.keeping import forget_last
from trails.position import TrailName
from trails.runtime.home import registration as registrations
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registration, TrailReg

MAX_MEGABYTES = 2000


def add(session: OperatorSession, command: Parsed) -> None:
    """Register a trail with its writer."""
    home, type_ = session.home, command.command.words[1]
    megabytes = _megabytes(command)
    name = command.text("EXTRACT")
    with locked(home, name, command.command.name):
        group = registered(home, name, "EXTRACT")
        _check(session, group, command.operand, type_)
        trails = (*group.trails, TrailReg(command.operand, type_, megabytes))
        if type_ == "EXTTRAIL":
            forget_last(home.fs, TrailName.parse(command.operand, home.root))
        registrations.save(home, replace(group, trails=trails))
    session.say(f"{type_} added.")


def _megabytes(command: Parsed) -> int:
    megabytes = command.number("MEGABYTES")
    megabytes = FILE_MEGABYTES if megabytes is None else megabytes
    if not 1 <= megabytes <= MAX_MEGABYTES:
        raise CommandError(f"MEGABYTES: expected 1 to {MAX_MEGABYTES}, found {megabytes}")
    return megabytes


def _check(session: OperatorSession, group: Registration, path: str, type_: str) -> None:
    home = session.home
    trail = TrailName.parse(path, home.root)
    if group.is_task:
        raise CommandError(f"EXTRACT {group.name} is a task: EXTFILE of its parameter file says where it writes")
    if type_ == "RMTTRAIL" and group.source != "TRAIL":
        raise CommandError(
            f"EXTRACT {group.name} reads a database's log and writes a local trail",
            hint=f"ADD EXTTRAIL {path}, EXTRACT {group.name}; a pump then sends it on",
        )
    if type_ == "EXTTRAIL" and group.source == "TRAIL":
        raise CommandError(
            f"EXTRACT {group.name} reads a trail: it sends it on, also to this host",
            hint=f"ADD RMTTRAIL {path}, EXTRACT {group.name}, and RMTHOST localhost in its file",
        )
    for other in registrations.all(home):
        for known in other.trails:
            # Two pumps may well name their remote trails alike: they can lie on two hosts.
            same = TrailName.parse(known.path, home.root) == trail
            if same and known.type == type_ and (type_ == "EXTTRAIL" or other.name == group.name):
                raise CommandError(f"{type_} {path} is registered already, for {other.name}; a trail has one writer")


def _writers(home: Home, command: Parsed) -> list[str]:
    """The groups for which the trail is registered, or the one of them that is named."""
    type_, wanted = command.command.words[1], command.text("EXTRACT")
    found = [
        group.name for group in registrations.all(home)
        if (not wanted or group.name == wanted) and any(_is(trail, command.operand, type_) for trail in group.trails)
    ]  # fmt: skip
    if not found:
        raise CommandError(f"{type_} {command.operand} is not registered", hint=f"INFO {type_} * lists them")
    return found


def alter(session: OperatorSession, command: Parsed) -> None:
    """Files of another size from the next START on."""
    home, type_, megabytes = session.home, command.command.words[1], _megabytes(command)
    for name in _writers(home, command):
        with locked(home, name, command.command.name):
            group = registrations.load(home, name)
            trails = (replace(t, megabytes=megabytes) if _is(t, command.operand, type_) else t for t in group.trails)
            registrations.save(home, replace(group, trails=tuple(trails)))
        session.say(f"{type_} altered.")


def delete(session: OperatorSession, command: Parsed) -> None:
    """Forget a trail; its files stay."""
    home, type_ = session.home, command.command.words[1]
    for name in _writers(home, command):
        with locked(home, name, command.command.name):
            group = registrations.load(home, name)
            kept = tuple(trail for trail in group.trails if not _is(trail, command.operand, type_))
            registrations.save(home, replace(group, trails=kept))
        session.say(f"Deleting extract trail {command.operand} for extract {name}")


def _is(trail: TrailReg, path: str, type_: str) -> bool:
    return trail.type == type_ and os.path.normpath(trail.path) == os.path.normpath(path)


def info(session: OperatorSession, command: Parsed) -> Any:
    """The registered trails and where their writers stood at their last checkpoint."""
    home, type_, pattern = session.home, command.command.words[1], command.operand or "*"
    now = session.now_us()
    rows = [
        trail
        for group in registrations.all(home)
        for trail in gather(home, group, now).trails
        if trail.type == type_ and fnmatch.fnmatchcase(os.path.normpath(trail.path), os.path.normpath(pattern))
    ]
    if not rows and pattern != "*":
        raise CommandError(f"{type_} {pattern} is not registered", hint=f"INFO {type_} * lists them")
    for trail in rows:
        session.say_lines(view.exttrail(trail))
    session.say("" if rows else f"No {type_} is registered.")
    return [trail.to_json() for trail in rows]
