"""Which groups a command means, and holding one still while its registration is changed."""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Iterator

from ggsci.commands.session import OperatorSession
from ggsci.facts import GroupFacts
from ggsci.flow import pipelines
from ggsci.flow.stages import with_waits
from ggsci.table.grammar import CommandError, Parsed, nearest
from trails.errors import LockedError
from trails.runtime.home import registration as registrations
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registration


def kind_of(command: Parsed) -> str:
    """EXTRACT or REPLICAT if the command names it, else an empty text (ER)."""
    object_ = command.command.words[1]
    return object_ if object_ in ("EXTRACT", "REPLICAT") else ""


def chosen(session: OperatorSession, command: Parsed) -> list[Registration]:
    """The registered groups that the operand means. Raises CommandError if there is none."""
    kind = kind_of(command)
    groups = [group for group in registrations.all(session.home) if not kind or group.kind == kind]
    found = [group for group in groups if fnmatch.fnmatchcase(group.name, command.operand)]
    if wild(command.operand):
        found = meant(command, found)
    if not found:
        raise _nothing(command, kind or "group", [group.name for group in groups])
    return found


def meant(command: Parsed, groups: list[Registration]) -> list[Registration]:
    """Of several groups those that the command is about: tasks only if it asks for them."""
    if command.has("ALLPROCESSES"):
        return groups
    return [group for group in groups if group.is_task == command.has("TASKS")]


def _nothing(command: Parsed, what: str, names: list[str]) -> CommandError:
    if wild(command.operand):
        return CommandError(f"no {'task' if command.has('TASKS') else what} matches {command.operand}")
    verb = command.command.words[0]
    close = nearest(command.operand, [*names, "ALL", "MANAGER"] if what == "group" else names)
    hint = f"Did you mean {verb} {close}?" if close else "INFO ALL lists the groups"
    return CommandError(f"{what} {command.operand} does not exist", hint=hint)


def wild(text: str) -> bool:
    """Does the operand hold a wildcard?"""
    return "*" in text or "?" in text


def registered(home: Home, name: str, kind: str) -> Registration:
    """One group by name. Raises CommandError if it does not exist or is of the other kind."""
    group = registrations.load(home, name)
    if group.kind != kind:
        raise CommandError(f"{kind} {name} does not exist; there is a {group.kind} of that name")
    return group


def facts_of(session: OperatorSession, groups: list[Registration]) -> list[GroupFacts]:
    """The facts of each, at one time, with what is to be doubted of them."""
    home = session.home
    return with_waits(home, pipelines.facts_of(home, groups, session.now_us(), pipelines.neighbours(home)))


@contextlib.contextmanager
def locked(home: Home, name: str, what: str) -> Iterator[None]:
    """Hold the group's lock: it doesn't run now, and can't be started until this is done."""
    try:
        lock = home.fs.lock(home.lock(name))
    except LockedError as error:
        raise CommandError(f"{what}: group {name} is running ({error.message})", hint=f"STOP {name} first") from None
    try:
        yield
    finally:
        lock.release()
