"""Commands on the files of a home: its folders, parameter files, reports and the event log."""

from __future__ import annotations

import fnmatch
import os
import shlex
import subprocess
from collections.abc import Callable

from ggsci.check import check_name, discard_path, dry_run, mistakes, path_of, program_of, without_meaning
from ggsci.commands.choose import wild
from ggsci.commands.session import OperatorSession
from ggsci.commands.shellcmds import editor_of
from ggsci.table.grammar import CommandError, Parsed, nearest
from trails.errors import GateError
from trails.runtime.home import registration as registrations
from trails.runtime.home.home import MANAGER, Home
from trails.runtime.report.report import AGED

_WHAT = {
    "dirprm": "Parameter files", "dirrpt": "Report files", "dirchk": "Checkpoint files",
    "dirpcs": "Process status files", "dirdat": "Extract data files", "dirdsc": "Discard files",
    "dircrd": "Credential store files", "dirwlt": "Wallet of master keys", "dirtmp": "Temporary files",
}  # fmt: skip


def create_subdirs(session: OperatorSession, _command: Parsed) -> None:
    """Make the folders and the home's id."""
    home = Home(session.root)
    session.say("", f"Creating subdirectories under current directory {home.root}", "")
    for path, made in home.create_subdirs():
        what = _WHAT.get(os.path.basename(path), "Files")
        session.say(f"{what:31}{path}: {'created.' if made else 'already exists.'}")
    session.say("")
    Home.at(session.root)  # an older folder that others may read is told now, not at the first START


def edit_params(session: OperatorSession, command: Parsed) -> None:
    """Open the editor, then tell the mistakes."""
    path = path_of(session.home, command.operand)
    editor = editor_of(session)
    try:
        with session.hands_off():
            code = subprocess.run([*shlex.split(editor), path], check=False).returncode
    except OSError as error:
        raise CommandError(
            f"the editor {editor!r} can't be run: {error.strerror}", hint="SET EDITOR chooses another"
        ) from None
    if code != 0:
        raise CommandError(f"the editor {editor!r} ended with code {code}")
    if os.path.exists(path) and _checked(session, command.operand):
        session.say(f"{path}: no mistakes found.")


def check_params(session: OperatorSession, command: Parsed) -> None:
    """Every mistake of a parameter file, each with its line; a group's also by its database, trail or remote host."""
    for name in _meant(session.home, command.operand):
        _check_params(session, name)


def _meant(home: Home, name: str) -> list[str]:
    """The name itself; by a wildcard the Manager and the groups that it matches."""
    if not wild(name):
        return [name]
    known = [MANAGER, *(group.name for group in registrations.all(home))]
    found = [each for each in known if fnmatch.fnmatchcase(each, name.upper())]
    if not found:
        raise CommandError(f"no group matches {name}")
    return found


def _check_params(session: OperatorSession, name: str) -> None:
    if not _checked(session, name):
        return
    home = session.home
    path = path_of(home, name)
    session.say(*without_meaning(home, path))
    if program_of(home, path) not in ("GLOBALS", "MANAGER"):
        session.say("Checking against the database, the trail or the other host; this may take some seconds.")
    found, notes = dry_run(home, path)
    session.say(*notes)
    for line in found:
        session.fail(line)
    if not found:
        session.say(f"{path}: no mistakes found.")


def _checked(session: OperatorSession, name: str) -> bool:
    """Tell the mistakes that the text alone shows; whether there are none."""
    try:
        check_name(session.home, name)
    except GateError as error:
        for line in mistakes(error):
            session.fail(line)
        return False
    return True


def view_params(session: OperatorSession, command: Parsed) -> None:
    """Print it, passwords masked."""
    from trails.runtime.report.report import mask_parameters
    from trails.runtime.secrets.credentials import hide_file

    path = path_of(session.home, command.operand)
    if not os.path.exists(path):
        raise CommandError(f"parameter file {path} does not exist", hint=f"EDIT PARAMS {command.operand}")
    hide_file(path)
    session.page("\n" + mask_parameters(_text(path)).rstrip("\n") + "\n\n")


def _text(path: str) -> str:
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        return file.read()


def view_report(session: OperatorSession, command: Parsed) -> None:
    """A report: of a group, an aged one of it, or by its file's name."""
    home, name = session.home, command.operand.upper()
    if "/" in name or name.endswith(".RPT"):
        path = _named(home, command.operand)
    else:
        group, age = _group_and_age(command, name, lambda name: os.path.exists(home.report(name)))
        path = home.report("MGR" if group == "MANAGER" else group, age)
    if not os.path.exists(path):
        raise CommandError(f"there is no report of {command.operand} in {home.folder('dirrpt')}", hint=_reports(home))
    _show(session, command, path)


def _reports(home: Home) -> str:
    names = sorted(name for name in os.listdir(home.folder("dirrpt")) if name.endswith(".rpt"))
    return f"There are {', '.join(names)}" if names else "There are none: no group has run yet"


def _named(home: Home, operand: str) -> str:
    """A file in dirrpt, however its path is written; nothing outside can be named."""
    path = os.path.realpath(os.path.join(home.root, operand if "/" in operand else f"dirrpt/{operand}"))
    if os.path.dirname(path) != os.path.realpath(home.folder("dirrpt")):
        raise CommandError(f"VIEW REPORT {operand}: expected a group, or a file in {home.folder('dirrpt')}")
    return path


def _group_and_age(command: Parsed, name: str, is_there: Callable[[str], bool]) -> tuple[str, int | None]:
    """`EXT1, AGED 0`, or `ext10` where there is no EXT10: the youngest aged one of EXT1."""
    age = command.number("AGED")
    if age is not None and age >= AGED:
        raise CommandError(f"{command.command.name}: AGED: expected 0 (the youngest) to {AGED - 1}, found {age}")
    if age is None and name[-1].isdigit() and not is_there(name):
        return name[:-1], int(name[-1])
    return name, age


def view_discard(session: OperatorSession, command: Parsed) -> None:
    """A Replicat's discard file, or an aged one of it."""
    home = session.home
    replicats = {group.name: group for group in registrations.all(home) if group.kind == "REPLICAT"}
    name, age = _group_and_age(command, command.operand.upper(), replicats.__contains__)
    if name not in replicats:
        close = nearest(command.operand, replicats)
        raise CommandError(
            f"there is no Replicat {command.operand} in this home", hint=f"Did you mean {close}?" if close else ""
        )
    path = discard_path(home, replicats[name])
    if age is not None:
        stem, suffix = os.path.splitext(path)
        path = f"{stem}.{age}{suffix}"
    if not os.path.exists(path):
        raise CommandError(f"there is no discard file {home.shown(path)}: nothing was discarded")
    _show(session, command, path)


def view_ggsevt(session: OperatorSession, command: Parsed) -> None:
    """ggserr.log, or one that was rolled; ggserr.json in the same layout, where GLOBALS has messages go there only."""
    from trails.runtime.report.eventlog import aged, current, line_of_json

    home, age = session.home, command.number("AGED")
    path = now = current(home)
    path = path if age is None else aged(path, age)
    if not os.path.exists(path):
        if age is not None:
            raise CommandError(f"there is no {home.shown(path)}")
        session.say("No event has been logged yet.")
        return
    _show(session, command, path, line_of_json if now == home.ggserr_json else None)


def _show(session: OperatorSession, command: Parsed, path: str, as_line: Callable[[str], str] | None = None) -> None:
    """The file, or with TAIL n its last n lines; a screenful at a time where a person reads."""
    count = command.number("TAIL")
    text = _text(path) if count is None else _last_lines(path, count)
    session.page(text if as_line is None else "\n".join(map(as_line, text.split("\n"))))


def _last_lines(path: str, count: int) -> str:
    """Read from the end, so that a log of gigabytes costs no more than what is shown."""
    data = b""
    with open(path, "rb") as file:
        at = file.seek(0, os.SEEK_END)
        while at > 0 and data.count(b"\n") <= count:
            step = min(at, _CHUNK)
            at -= step
            file.seek(at)
            data = file.read(step) + data
    lines = data.decode("utf-8", "replace").splitlines()
    return "\n".join(lines[-count:]) if count else ""


_CHUNK = 1 << 16
