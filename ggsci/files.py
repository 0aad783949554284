"""Commands on the files of a home: its folders, parameter files, reports and the event log."""

from __future__ import annotations

import os
import shlex
import subprocess

from ggsci.admin import ask
from ggsci.check import check_name, discard_path, mistakes, path_of, replicat_of
from ggsci.grammar import CommandError, Parsed
from ggsci.session import Session
from trails.errors import GateError
from trails.runtime.home import Home

_WHAT = {
    "dirprm": "Parameter files", "dirrpt": "Report files", "dirchk": "Checkpoint files",
    "dirpcs": "Process status files", "dirdat": "Extract data files", "dirdsc": "Discard files",
    "dircrd": "Credential store files", "dirtmp": "Temporary files",
}  # fmt: skip


def create_subdirs(session: Session, _command: Parsed) -> None:
    """Make the folders and the home's id."""
    home = Home(session.root)
    session.say("", f"Creating subdirectories under current directory {home.root}", "")
    for path, made in home.create_subdirs():
        what = _WHAT.get(os.path.basename(path), "Files")
        session.say(f"{what:31}{path}: {'created.' if made else 'already exists.'}")
    session.say("")
    Home.at(session.root)  # an older folder that others may read is told now, not at the first START


def edit_params(session: Session, command: Parsed) -> None:
    """Open the editor, then tell the mistakes."""
    path = path_of(session.home, command.operand)
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        code = subprocess.run([*shlex.split(editor), path], check=False).returncode
    except OSError as error:
        raise CommandError(f"the editor {editor!r} can't be run: {error.strerror}", hint="Set EDITOR") from None
    if code != 0:
        raise CommandError(f"the editor {editor!r} ended with code {code}")
    if os.path.exists(path) and _checked(session, command):
        session.say(f"{path}: no mistakes found.")


def check_params(session: Session, command: Parsed) -> None:
    """Every mistake of a parameter file, each with its line; a Replicat's also by its trail, Spark and target."""
    if not _checked(session, command):
        return
    home, found = session.home, []
    group = replicat_of(home, command.operand)
    if group:
        session.say("Checking MAPs by the trail, Spark and the target; this may take some seconds.")
        reply = ask("replicat", "check_params", home=home.root, group=group)
        found = reply["mistakes"]
        session.say(*reply["notes"])
        for line in found:
            session.fail(line)
    if not found:
        session.say(f"{path_of(home, command.operand)}: no mistakes found.")


def _checked(session: Session, command: Parsed) -> bool:
    """Tell the mistakes that the text alone shows; whether there are none."""
    try:
        check_name(session.home, command.operand)
    except GateError as error:
        for line in mistakes(error):
            session.fail(line)
        return False
    return True


def view_params(session: Session, command: Parsed) -> None:
    """Print it, passwords masked."""
    from trails.runtime.report import mask_parameters

    path = path_of(session.home, command.operand)
    if not os.path.exists(path):
        raise CommandError(f"parameter file {path} does not exist", hint=f"EDIT PARAMS {command.operand}")
    session.say("", mask_parameters(_text(path)).rstrip("\n"), "")


def _text(path: str) -> str:
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        return file.read()


def view_report(session: Session, command: Parsed) -> None:
    """Print a report; `ext10` is an aged one of EXT1 unless there is a group EXT10."""
    home, name = session.home, command.operand.upper()
    path = home.report("MGR" if name == "MANAGER" else name)
    if not os.path.exists(path) and name[-1].isdigit():
        path = home.report(name[:-1], int(name[-1]))
    if "/" in name or not os.path.exists(path):
        raise CommandError(f"there is no report of {command.operand} in {home.folder('dirrpt')}")
    session.say(_text(path).rstrip("\n"))


def view_discard(session: Session, command: Parsed) -> None:
    """Print a Replicat's discard file."""
    home = session.home
    group = next((group for group in home.groups() if group.name == command.operand.upper()), None)
    if group is None or group.kind != "REPLICAT":
        raise CommandError(f"there is no Replicat {command.operand} in this home")
    path = discard_path(home, group)
    if not os.path.exists(path):
        raise CommandError(f"there is no discard file {home.shown(path)}: nothing was discarded")
    session.say(_text(path).rstrip("\n"))


def view_ggsevt(session: Session, _command: Parsed) -> None:
    """Print ggserr.log."""
    home = session.home
    session.say(_text(home.ggserr).rstrip("\n") if os.path.exists(home.ggserr) else "No event has been logged yet.")
