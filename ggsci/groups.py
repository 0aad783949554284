"""ADD, ALTER and DELETE of groups: all they do is to write the registration, which a process reads at its start.

An ALTER has a number that no earlier ALTER of this home had, also of a group deleted since: the process compares it
with the number its output bears, and so obeys each once.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from ggsci.choose import chosen, locked, registered, wild
from ggsci.database import delete_row
from ggsci.grammar import CommandError, Parsed
from ggsci.placing import known_csn, of_extract, of_new_extract, of_pump, of_replicat
from ggsci.session import Session
from trails.checkpoint import load as load_checkpoints
from trails.errors import GateError
from trails.fs import read_bytes, replace_durably
from trails.position import TrailName
from trails.reader import last_header
from trails.runtime import globals as globals_file
from trails.runtime import registration as registrations
from trails.runtime.home import MANAGER, Home
from trails.runtime.registration import Registration


def add_extract(session: Session, command: Parsed) -> None:
    """Register an Extract on a log, or a pump on a trail."""
    trail = command.text("EXTTRAILSOURCE")
    alter = of_pump(session, command, trail) if trail else of_new_extract(command)
    _add(session, command, Registration(command.operand, "EXTRACT", "TRAIL" if trail else "TRANLOG", trail), alter)
    session.say("EXTRACT added.")


def add_replicat(session: Session, command: Parsed) -> None:
    """Register a Replicat on a trail."""
    home = session.home
    trail = command.text("EXTTRAIL")
    alter = of_replicat(session, command, trail)
    table = command.text("CHECKPOINTTABLE") or str(globals_file.read(home).one("CHECKPOINTTABLE", ""))
    _add(session, command, Registration(command.operand, "REPLICAT", "TRAIL", trail, checkpoint_table=table), alter)
    session.say("REPLICAT added.")


def _add(session: Session, command: Parsed, group: Registration, alter: dict[str, Any]) -> None:
    home = session.home
    _refuse_taken(home, group.name)
    if group.trail:
        _refuse_foreign(home, command.command.name, group.trail)
    with locked(home, group.name, command.command.name):
        _refuse_taken(home, group.name)
        registrations.save(
            home,
            replace(
                group,
                added_us=session.now_us(),
                desc=command.text("DESC"),
                group_key=group_key(home, group.name),
                alter=alter,
                alter_no=_next_alter(home) if alter else 0,
            ),
        )


def _refuse_taken(home: Home, name: str) -> None:
    if name == MANAGER:
        raise CommandError(f"{name} is the Manager's own name; a group can't have it")
    if home.fs.exists(home.registration(name)):
        raise CommandError(f"group {name} already exists", hint=f"DELETE it first, or ALTER it. INFO {name} shows it")


def _refuse_foreign(home: Home, what: str, trail: str) -> None:
    """A trail is purged by what its own home knows of its readers."""
    if other := home.other_home_of(TrailName.parse(trail, home.root).folder):
        raise CommandError(
            f"{what}: trail {trail} lies in the home {other}, whose Manager would purge what this group still needs",
            hint="ADD the group in that home, or let a pump of that home send the trail here",
        )


def group_key(home: Home, name: str) -> int:
    """The group's number in the checkpoint table: the same again when it is deleted and added again."""
    return int.from_bytes(hashlib.blake2b(f"{home.id}/{name}".encode(), digest_size=8).digest(), "big") >> 1


def _next_alter(home: Home) -> int:
    """A number above every ALTER this home has seen, noted before it is used."""
    path = home.folder("dirpcs") + "/ALTERS"
    noted = read_bytes(home.fs, path).strip() if home.fs.exists(path) else b"0"
    known = [max(group.alter_no, group.start_no) for group in registrations.all(home)]
    number = max([int(noted) if noted.isdigit() else 0, *known]) + 1
    replace_durably(home.fs, path, b"%d\n" % number)
    return number


# --- ALTER ------------------------------------------------------------------------------------------------------------


def alter_extract(session: Session, command: Parsed) -> None:
    """Another place, or a new trail file."""
    group = registered(session.home, command.operand, "EXTRACT")
    alter = of_pump(session, command, group.trail) if group.trail else of_extract(command)
    if command.has("ETROLLOVER"):
        alter["etrollover"] = True
    _alter(session, command, group, alter)
    session.say("EXTRACT altered.")
    if command.has("ETROLLOVER"):
        session.say("A new trail file begins at the next START; readers go on into it by themselves.")


def alter_replicat(session: Session, command: Parsed) -> None:
    """Another place in the trail."""
    group = registered(session.home, command.operand, "REPLICAT")
    alter = of_replicat(session, command, group.trail)
    _alter(session, command, group, alter)
    session.say("REPLICAT altered.")


def order_start(session: Session, command: Parsed, group: Registration) -> None:
    """Note what START says of the place, before the process is started: numbered as an ALTER, and obeyed once."""
    home = session.home
    order: dict[str, Any] = {"skip": 1} if command.has("SKIPTRANSACTION") else {}
    for option, key in (("ATCSN", "at_csn"), ("AFTERCSN", "after_csn")):
        if command.has(option):
            order[key] = known_csn(home, group.trail, command.text(option), f"START: {option}")
    if not order:
        if _waits(home, group):
            session.say(f"The START before this one ({_words(group.start)}) was not obeyed yet; now it is.")
        return
    if group.kind != "REPLICAT":
        raise CommandError(f"{command.command.name}: ATCSN, AFTERCSN and SKIPTRANSACTION are for a Replicat")
    with locked(home, group.name, command.command.name):
        group = registrations.load(home, group.name)
        if _waits(home, group):
            session.say(f"The START before this one ({_words(group.start)}) was not obeyed yet; it is replaced.")
        registrations.save(home, replace(group, start=order, start_no=_next_alter(home)))


def _waits(home: Home, group: Registration) -> bool:
    """May what a START ordered still be waiting for a process? Only good for a notice, as `_unspent`."""
    if not group.start or group.start_no <= group.alter_no:
        return False
    try:
        return _obeyed_by_reader(home, group) < group.start_no
    except GateError:
        return False


def _alter(session: Session, command: Parsed, group: Registration, alter: dict[str, Any]) -> None:
    home = session.home
    if not alter and not command.has("DESC"):
        raise CommandError(
            f"{command.command.name}: what is to be altered?", hint=f"Syntax: {command.command.syntax()}"
        )
    with locked(home, group.name, command.command.name):
        group = registrations.load(home, group.name)
        if command.has("DESC"):
            group = replace(group, desc=command.text("DESC"))
        if alter:
            if _unspent(home, group):
                session.say(f"The ALTER before this one ({_words(group.alter)}) was not obeyed yet; it is replaced.")
            group = replace(group, alter=alter, alter_no=_next_alter(home))
        registrations.save(home, group)


def _unspent(home: Home, group: Registration) -> bool:
    """May the last ALTER still be waiting for a START? Only good for a notice: a reader is told by its checkpoint."""
    try:
        obeyed = _obeyed_by_trail(home, group) if group.source == "TRANLOG" else _obeyed_by_reader(home, group)
    except GateError:
        return False
    return bool(group.alter) and obeyed < group.alter_no


def _obeyed_by_trail(home: Home, group: Registration) -> int:
    headers = [last_header(home.fs, TrailName.parse(trail.path, home.root)) for trail in group.trails]
    return max((header.alter for header in headers if header), default=0)


def _obeyed_by_reader(home: Home, group: Registration) -> int:
    saves = load_checkpoints(home.fs, home.checkpoint(group.name, group.kind))
    return int(saves[0].extra.get("alter_no", 0)) if saves else 0


def _words(alter: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in alter.items())


# --- DELETE -----------------------------------------------------------------------------------------------------------


def delete(session: Session, command: Parsed) -> None:
    """Forget stopped groups; a running one is refused, the others go."""
    groups = chosen(session, command)
    if wild(command.operand):
        names = ", ".join(group.name for group in groups)
        session.confirm(f"This deletes {names}. Are you sure", command)
    for group in groups:
        try:
            _delete(session, group)
        except GateError as error:
            session.fail(str(error))


def _delete(session: Session, group: Registration) -> None:
    home = session.home
    with locked(home, group.name, f"DELETE {group.kind}"):
        # The registration goes first, the row last: a crash in between leaves a file that nobody reads and a row where
        # a group added again goes on. The other way round, the group could still be started, from the trail's begin.
        registrations.delete(home, group.name)
        home.fs.remove(home.checkpoint(group.name, group.kind))
        home.fs.remove(home.status(group.name, group.kind))
        session.say(f"Deleted {group.kind} {group.name}.")
        if group.kind == "REPLICAT" and (told := delete_row(session, group)):
            session.say(told)
    if group.slot.get("slot"):
        session.say(
            f"Replication slot {group.slot['slot']} remains in database {group.slot.get('dbname', '')} "
            "and holds back its log. Drop it there, or ADD the Extract again and UNREGISTER it."
        )
