"""Commands of the shell itself: HELP, OBEY, HISTORY, !, SHELL, SET EDITOR, SHOW, VERSIONS, EXIT; FC is in fc.py."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ggsci.commands.session import MAX_NESTING, OperatorSession, masked
from ggsci.table.grammar import CommandError, Parsed
from trails import kernels
from trails.runtime.home.home import Home
from trails.runtime.language import globals as globals_file


def help_(session: OperatorSession, command: Parsed) -> None:
    """The topics, a topic's commands, or the commands that begin with the words; a screen at a time on a terminal."""
    from ggsci.commands import help as pages

    words = command.operand.rstrip("; ")
    session.page("\n".join(pages.about(words) if words else pages.topics()) + "\n")


def logical_lines(lines: Iterable[str]) -> Iterator[str]:
    """Lines of a script: `&` at the end goes on in the next line; blank lines and comments are dropped."""
    held = ""
    for raw in lines:
        line = raw.strip()
        if not held and (not line or line.startswith("--") or line.upper().split()[0] == "COMMENT"):
            continue
        if line.endswith("&"):
            held += line[:-1].rstrip() + " "
            continue
        yield held + line
        held = ""
    if held.strip():
        yield held.strip()


def obey(session: OperatorSession, command: Parsed) -> None:
    """Run a file's commands; all are run, also after one that failed."""
    path = os.path.join(session.root, command.operand)
    if session.nesting and not session.allow_nested:
        raise CommandError(
            f"OBEY {command.operand}: a file that is obeyed may not OBEY another one", hint="ALLOWNESTED allows it"
        )
    if session.nesting >= MAX_NESTING:
        raise CommandError(f"OBEY {command.operand}: files OBEY each other more than {MAX_NESTING} deep")
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = list(logical_lines(file))
    except UnicodeDecodeError:
        raise CommandError(f"{path}: expected UTF-8 text") from None
    session.nesting += 1
    failed = 0
    try:
        for line in lines:
            session.say("", f"{session.prompt}{masked(line)}")
            failed += not session.run(line)
            if session.leave:
                break
    finally:
        session.nesting -= 1
    if failed:
        raise CommandError(f"OBEY {command.operand}: {failed} of {len(lines)} commands failed")


def allow_nested(session: OperatorSession, _command: Parsed) -> None:
    """From now on files may OBEY files."""
    session.allow_nested = True
    session.say(f"Nested OBEY is allowed, {MAX_NESTING} deep.")


def no_allow_nested(session: OperatorSession, _command: Parsed) -> None:
    """From now on they may not."""
    session.allow_nested = False
    session.say("Nested OBEY is not allowed.")


def set_editor(session: OperatorSession, command: Parsed) -> None:
    """The editor of EDIT PARAMS, until EXIT."""
    words = shlex.split(command.operand) if command.operand else []
    if not words:
        raise CommandError("SET EDITOR: expected a program, such as vi")
    if shutil.which(words[0]) is None:
        raise CommandError(f"SET EDITOR: {words[0]} is no program that can be run here")
    session.editor = command.operand
    session.say(f"Editor is {session.editor}.")


def editor_of(session: OperatorSession) -> str:
    """The program that EDIT PARAMS runs: SET EDITOR, or the environment's, or vi."""
    return session.editor or os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"


def history(session: OperatorSession, command: Parsed) -> Any:
    """The last commands with their numbers."""
    count = int(command.operand) if command.operand else 10
    numbered = list(enumerate(session.history, 1))[-count:] if count else []
    session.say("", "GGSCI Command History", "", *(f"{number:4}: {line}" for number, line in numbered), "")
    return [{"number": number, "command": line} for number, line in numbered]


def again(session: OperatorSession, command: Parsed) -> None:
    """Run an older command once more. One that held a password is kept masked, and so can't be."""
    line = recall(session.history, command.operand)
    if "***" in line:
        raise CommandError("that command held a password, which is not kept", hint="Type it again")
    session.say(line)
    session.run_again(line)


def recall(lines: list[str], which: str) -> str:
    """The command of the history that `!` and FC mean."""
    if not lines:
        raise CommandError("the history is empty")
    try:
        number = int(which) if which else -1
    except ValueError:
        found = next((line for line in reversed(lines) if line.upper().startswith(which.upper())), "")
        if not found:
            raise CommandError(f"no command in the history begins with {which!r}") from None
        return found
    if number == 0 or not -len(lines) <= number <= len(lines):
        raise CommandError(f"the history has no command {number}", hint="HISTORY lists them")
    return lines[number - 1 if number > 0 else number]


def shell(session: OperatorSession, command: Parsed) -> None:
    """Run a command of the operating system; its failure is ours."""
    if not command.operand:
        raise CommandError("SHELL: expected a command")
    where = session.root if os.path.isdir(session.root) else None
    session.out.flush()
    # Where nobody is there, standard input may be the script that we read: its lines are no input of the command.
    stdin = None if session.may_ask else subprocess.DEVNULL
    with session.hands_off():
        done = subprocess.run(command.operand, shell=True, cwd=where, check=False, stdin=stdin)
    if done.returncode != 0:
        raise CommandError(f"SHELL: the command ended with code {done.returncode}")


def show(session: OperatorSession, _command: Parsed) -> Any:
    """The paths of this home, and what SET and ALLOWNESTED set."""
    from trails.runtime.home.home import SUBDIRS

    home = session.home
    facts = {
        "Home": home.root, "Home id": home.id, "Settings": home.globals,
        **{_FOLDERS.get(name, name): home.folder(name) for name in SUBDIRS}, "Event log": home.ggserr,
        "Editor": editor_of(session), "History size": len(session.history),
        "Nested OBEY": "allowed" if session.allow_nested else "not allowed",
    }  # fmt: skip
    session.say("", *(f"{label:20}{value}" for label, value in facts.items()), "")
    return facts


_FOLDERS = {
    "dirprm": "Parameters", "dirrpt": "Reports", "dirchk": "Checkpoints", "dirpcs": "Process status",
    "dirdat": "Trails", "dirdsc": "Discards", "dircrd": "Credentials", "dirtmp": "Temporary files", "dirwlt": "Wallet",
}  # fmt: skip


def documents() -> str:
    """Where the documents lie that belong to this program, with units, dashboard and alert rules beside them."""
    import sysconfig

    beside = Path(__file__).resolve().parents[2] / "docs"
    installed = Path(sysconfig.get_path("data")) / "share" / "trailgate" / "docs"
    return next((str(folder) for folder in (beside, installed) if (folder / "web.md").exists()), "not installed")


def versions(session: OperatorSession, _command: Parsed) -> Any:
    """Trailgate, Python, system, and where the documents are."""
    from trails.runtime.report.report import release

    home = Home(session.root)  # unchecked: this command is obeyed anywhere
    wanted = not Path(home.globals).exists() or globals_file.read(home).one("KERNELS", True)
    facts = {
        "Trailgate": release("not installed (run from its sources)"), "Python": sys.version.split()[0],
        "Operating System": f"{platform.system()} {platform.release()}", "Node": platform.node(),
        "Machine": platform.machine(), "Kernels": kernels.state(on=wanted),
        "Documents": documents(),
    }  # fmt: skip
    if session.login is not None:
        facts["Database"] = f"{session.login.database}: {session.login.server}"
    session.say("", *(f"{label:20}{value}" for label, value in facts.items()), "")
    return facts


def exit_(session: OperatorSession, _command: Parsed) -> None:
    """Leave."""
    session.leave = True
