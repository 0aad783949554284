"""ADD, ALTER and DELETE of groups: all they do is to write the registration, which a process reads at its start.

An ALTER has a number that no earlier ALTER of this home had, also of a group deleted since: the process compares it
with the number its output bears, and so obeys each once.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from ggsci.commands import leaving
from ggsci.commands.choose import chosen, kind_of, locked, registered, wild
from ggsci.commands.database import delete_row
from ggsci.commands.placing import known_csn, of_extract, of_new_extract, of_pump, of_replicat, source_url
from ggsci.commands.session import OperatorSession
from ggsci.table.grammar import CommandError, Parsed
from trails import wholefile
from trails.checkpoint import load as load_checkpoints
from trails.checkpoint import reserve as reserve_checkpoint
from trails.errors import DamageError, GateError
from trails.fs import read_bytes, replace_durably
from trails.position import TrailName
from trails.reader import last_header
from trails.runtime.home import registration as registrations
from trails.runtime.home.home import MANAGER, Home
from trails.runtime.home.methods import METHODS
from trails.runtime.home.registration import Registration
from trails.runtime.language import globals as globals_file


def add_extract(session: OperatorSession, command: Parsed) -> None:
    """Register an Extract on a log, or a pump on a trail."""
    trail = command.text("EXTTRAILSOURCE")
    if command.has(registrations.SOURCEISTABLE):
        _refuse_places(command)
        _add(session, command, Registration(command.operand, "EXTRACT", registrations.SOURCEISTABLE), {})
        session.say("EXTRACT added: a task. EXTFILE, RMTFILE or RMTTASK of its parameter file says where to write.")
        return
    alter = of_pump(session, command, trail) if trail else of_new_extract(session, command)
    _add(session, command, _extract(command, trail), alter)
    session.say("EXTRACT added.")


def _extract(command: Parsed, trail: str) -> Registration:
    if trail:
        return Registration(command.operand, "EXTRACT", "TRAIL", trail)
    method = next((word for word in METHODS if command.has(word)), METHODS[0])
    return Registration(command.operand, "EXTRACT", "TRANLOG", method=method)


def add_replicat(session: OperatorSession, command: Parsed) -> None:
    """Register a Replicat on a trail."""
    home = session.home
    trail, special = command.text("EXTTRAIL"), command.has(registrations.SPECIALRUN)
    if trail and special:
        raise CommandError("ADD REPLICAT: SPECIALRUN applies a file: name EXTFILE, not EXTTRAIL")
    source = "TRAIL" if trail else registrations.SPECIALRUN
    if not trail:
        if not (special or command.has("EXTFILE")):
            raise CommandError("ADD REPLICAT: expected EXTTRAIL or EXTFILE, which say what is applied, or SPECIALRUN")
        _refuse_places(command)
        trail = command.text("EXTFILE") or wholefile.of_task(command.operand)
    alter = of_replicat(session, command, trail)
    table = command.text("CHECKPOINTTABLE") or str(globals_file.read(home).one("CHECKPOINTTABLE", ""))
    _add(session, command, Registration(command.operand, "REPLICAT", source, trail, checkpoint_table=table), alter)
    sent = source == registrations.SPECIALRUN and not command.has("EXTFILE")
    how = f": a task, which RMTTASK REPLICAT, GROUP {command.operand} of an Extract sends rows to" if sent else ""
    session.say(f"REPLICAT added{how}.")


_PLACES = ("BEGIN", "EXTSEQNO", "EXTRBA", "CSN", "LSN", "SCN", "LOGNUM", "LOGPOS", "GTID")


def _refuse_places(command: Parsed) -> None:
    """A task begins at the beginning."""
    given = [name for name in _PLACES if command.has(name)]
    if given:
        raise CommandError(f"{command.command.name}: a task begins at the beginning; leave {given[0]} out")


def _add(session: OperatorSession, command: Parsed, group: Registration, alter: dict[str, Any]) -> None:
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
        reserve_checkpoint(home.fs, home.checkpoint(group.name, group.kind))


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


def alter_extract(session: OperatorSession, command: Parsed) -> None:
    """Another place, or a new trail file."""
    group = registered(session.home, command.operand, "EXTRACT")
    if group.is_task:
        _refuse_places(command)
        if command.has("ETROLLOVER"):
            raise CommandError(f"ALTER EXTRACT: {group.name} is a task, which writes its file anew at each START")
    alter = of_pump(session, command, group.trail) if group.trail else of_extract(session, command)
    if command.has("ETROLLOVER"):
        alter["etrollover"] = True
    _alter(session, command, group, alter)
    session.say("EXTRACT altered.")
    if command.has("ETROLLOVER"):
        session.say("A new trail file begins at the next START; readers go on into it by themselves.")


def alter_replicat(session: OperatorSession, command: Parsed) -> None:
    """Another place in the trail."""
    group = registered(session.home, command.operand, "REPLICAT")
    alter = of_replicat(session, command, group.trail)
    _alter(session, command, group, alter)
    session.say("REPLICAT altered.")


_SWITCHES = {"SKIPTRANSACTION": "skip", "FILTERDUPTRANSACTIONS": "filter_dup", "PASTHOLE": "past_hole"}


def order_start(session: OperatorSession, command: Parsed, group: Registration) -> None:
    """Note what START says of the place, before the process is started: numbered as an ALTER, and obeyed once."""
    home = session.home
    order: dict[str, Any] = {key: 1 for option, key in _SWITCHES.items() if command.has(option)}
    if group.package == "pump" and any(command.has(option) for option in ("ATCSN", "AFTERCSN")):
        raise CommandError(
            f"{command.command.name}: ATCSN and AFTERCSN are for an Extract on a log and for a Replicat; a pump sends "
            "whole blocks",
            hint=f"ALTER EXTRACT {group.name}, BEGIN time; or START REPLICAT, ATCSN n, which is exact",
        )
    trail = group.trail or next(iter(group.writes), "")
    for option, key in (("ATCSN", "at_csn"), ("AFTERCSN", "after_csn")):
        if command.has(option) and trail:
            order[key] = known_csn(home, trail, command.text(option), f"START: {option}")
    if not order:
        if _waits(home, group):
            session.say(f"The START before this one ({_words(group.start)}) was not obeyed yet; now it is.")
        return
    if group.kind != "REPLICAT":
        _check_start(home, command, group, order)
    with locked(home, group.name, command.command.name):
        group = registrations.load(home, group.name)
        if _waits(home, group):
            session.say(f"The START before this one ({_words(group.start)}) was not obeyed yet; it is replaced.")
        registrations.save(home, replace(group, start=order, start_no=_next_alter(home)))


def _check_start(home: Home, command: Parsed, group: Registration, order: dict[str, Any]) -> None:
    """An Extract captures nothing twice: told before it is noted, and again at START (extract/since.py)."""
    if others := [option for option, key in _SWITCHES.items() if key in order]:
        raise CommandError(f"{command.command.name}: {others[0]} is for a Replicat")
    from extract.params import check_start

    if url := source_url(home, group.name):
        check_start(url, group.method, group.name)
    trail = group.writes[0]
    last = leaving.last_csn(home, TrailName.parse(trail, home.root))
    if last and (last > order["after_csn"] if "after_csn" in order else last >= order["at_csn"]):
        raise CommandError(
            f"{command.command.name}: trail {trail} has transactions up to {last} already, which would come twice",
            hint=f"START EXTRACT {group.name} goes on behind them",
        )


def _waits(home: Home, group: Registration) -> bool:
    """May what a START ordered still be waiting for a process? Only good for a notice, as `_unspent`."""
    if not group.start or group.start_no <= group.alter_no:
        return False
    try:
        return _obeyed(home, group) < group.start_no
    except GateError:
        return False


def _alter(session: OperatorSession, command: Parsed, group: Registration, alter: dict[str, Any]) -> None:
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
            leaving.ask(session, command, group, alter)
            if _unspent(home, group):
                session.say(f"The ALTER before this one ({_words(group.alter)}) was not obeyed yet; it is replaced.")
            group = replace(group, alter=alter, alter_no=_next_alter(home))
        registrations.save(home, group)


def _unspent(home: Home, group: Registration) -> bool:
    """May the last ALTER still be waiting for a START? Only good for a notice: a reader is told by its checkpoint."""
    try:
        return bool(group.alter) and _obeyed(home, group) < group.alter_no
    except GateError:
        return False


def _obeyed(home: Home, group: Registration) -> int:
    return _obeyed_by_trail(home, group) if group.source == "TRANLOG" else _obeyed_by_reader(home, group)


def _obeyed_by_trail(home: Home, group: Registration) -> int:
    headers = [last_header(home.fs, TrailName.parse(trail.path, home.root)) for trail in group.trails]
    return max((header.alter for header in headers if header), default=0)


def _obeyed_by_reader(home: Home, group: Registration) -> int:
    saves = load_checkpoints(home.fs, home.checkpoint(group.name, group.kind))
    return int(saves[0].extra.get("alter_no", 0)) if saves else 0


def _words(alter: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in alter.items())


# --- DELETE -----------------------------------------------------------------------------------------------------------


def delete(session: OperatorSession, command: Parsed) -> None:
    """Forget stopped groups; a running one is refused, the others go."""
    groups = _unreadable(session.home, command) or chosen(session, command)
    if wild(command.operand):
        names = ", ".join(group.name for group in groups)
        session.confirm(f"This deletes {names}. Are you sure", command)
    for group in groups:
        try:
            _delete(session, group)
        except GateError as error:
            session.fail(str(error))


def _unreadable(home: Home, command: Parsed) -> list[Registration]:
    """The one group that is named, if its registration is damaged: nothing but its name and kind is known."""
    kind, name = kind_of(command), command.operand
    if kind and not wild(name) and home.fs.exists(home.registration(name)):
        try:
            registrations.load(home, name)
        except DamageError:
            return [Registration(name, kind, "", group_key=group_key(home, name))]
    return []


def _delete(session: OperatorSession, group: Registration) -> None:
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
    if (noted := group.registered) is not None and noted.holds:
        session.say(
            f"What REGISTER EXTRACT made remains in database {noted.database} and holds back its log: {noted.shown}. "
            "Drop it there; UNREGISTER EXTRACT does that only before DELETE."
        )
