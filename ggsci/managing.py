"""START, STOP, INFO and SEND MANAGER."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

from ggsci import facts, view
from ggsci.check import check_name
from ggsci.grammar import CommandError, Parsed
from ggsci.running import checked
from ggsci.session import Session
from trails.errors import GateError
from trails.runtime.control import ask
from trails.runtime.home import MANAGER, Home

START_SECONDS = 15.0
STOP_SECONDS = 30.0


def start(session: Session, _command: Parsed) -> None:
    """Check mgr.prm, start the Manager in a session of its own, wait until it answers."""
    home = session.home
    if facts.manager(home)[0] == "RUNNING":
        session.say("Manager is already running.")
        return
    check_name(home, MANAGER)
    child = _spawn(home)
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if child.poll() is not None:
            raise CommandError(f"the Manager ended at its start: {_last_words(home)}")
        if _answers(home, child.pid):
            session.say("Manager started.")
            return
        time.sleep(0.05)
    raise CommandError(
        f"the Manager has not answered within {START_SECONDS:.0f} seconds", hint="See VIEW GGSEVT and VIEW REPORT MGR"
    )


def _spawn(home: Home) -> subprocess.Popen[bytes]:
    with open(_out_file(home), "wb") as out:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "ggsci.manager", "--home", home.root],
            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True, cwd=home.root,
        )  # fmt: skip


def _out_file(home: Home) -> str:
    return os.path.join(home.folder("dirrpt"), f"{MANAGER}.out")


def _last_words(home: Home) -> str:
    with open(_out_file(home), encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    return lines[-1] if lines else "it said nothing"


def _answers(home: Home, pid: int) -> bool:
    try:
        return ask(home, MANAGER, "STATUS", timeout=1).get("pid") == pid
    except GateError:
        return False


def stop(session: Session, command: Parsed) -> None:
    """Ask, then have it stop; the groups go on."""
    home = session.home
    if facts.manager(home)[0] != "RUNNING":
        session.say("Manager is already down.")
        return
    session.confirm("Manager process is required by other processes. Are you sure you want to stop it", command)
    session.say("", "Sending STOP request to MANAGER ...")
    checked(ask(home, MANAGER, "STOP", timeout=10))
    session.say("Request processed.")
    end = time.monotonic() + STOP_SECONDS
    while facts.manager(home)[0] == "RUNNING":
        if time.monotonic() > end:
            raise CommandError(f"the Manager has not stopped within {STOP_SECONDS:.0f} seconds")
        time.sleep(0.05)
    session.say("Manager stopped.")


def info(session: Session, _command: Parsed) -> Any:
    """Running or down, with port and process id."""
    import socket

    home = session.home
    status, pid = facts.manager(home)
    port, trouble = None, ""
    if status == "RUNNING":
        try:
            port = checked(ask(home, MANAGER, "STATUS", timeout=5)).get("port")
        except GateError as error:
            trouble = str(error)
            status, pid = facts.manager(home)  # it may have ended just now
    if status != "RUNNING":
        session.say("", "Manager is DOWN!")
    elif trouble:
        session.fail(f"Manager runs as process {pid}, but gives no answer: {trouble}")
    else:
        session.say("", f"Manager is running (IP port {socket.gethostname()}.{port}, Process ID {pid}).")
    return {"status": status, "pid": pid, "port": port}


def send(session: Session, command: Parsed) -> Any:
    """Children, Collectors, or purge rules."""
    home = session.home
    if facts.manager(home)[0] != "RUNNING":
        raise CommandError("the Manager is not running", hint="START MANAGER")
    verb = next(option.name for option in command.command.options if command.has(option.name))
    session.say("", f"Sending {verb} request to MANAGER ...", "")
    reply = checked(ask(home, MANAGER, verb, timeout=10))
    session.say_lines({"CHILDSTATUS": _children, "GETPORTINFO": _ports, "GETPURGEOLDEXTRACTS": _purges}[verb](reply))
    return {key: value for key, value in reply.items() if key != "ok"}


def _children(reply: dict[str, Any]) -> list[str]:
    lines = [f"{'ID':4}{'Group':8}{'Process':9}{'Retry':7}{'Retry Time':21}{'Start Time':20}"]
    for number, child in enumerate(reply["children"], 1):
        retry_at = view.stamp(child["retry_us"], missing="None")
        started = view.stamp(child["started_us"], missing="None")
        pid = child["pid"] or "-"
        lines.append(f"{number:<4}{child['group']:8}{pid:<9}{child['retries']:<7}{retry_at:21}{started:20}")
    return [*lines, ""]


def _ports(reply: dict[str, Any]) -> list[str]:
    lines = [f"{'Entry':7}{'Port':7}{'Error':8}{'Process':10}{'Assigned':21}{'Program':11}{'Trail':24}Pump"]
    for number, item in enumerate(reply["collectors"]):
        when = view.stamp(item["assigned_us"])
        lines.append(
            f"{number:<7}{item['port']:<7}{0:<8}{item['pid']:<10}{when:21}{'collector':11}"
            f"{item['trail']:24}{item['pump']}"
        )
    return [*lines, ""]


def _purges(reply: dict[str, Any]) -> list[str]:
    lines = ["PurgeOldExtracts Rules", "Fileset                      MinHours MaxHours MinFiles MaxFiles UseCP"]
    lines += [f"{rule['pattern']:29}{0:>8}{0:>9}{rule['min_files']:>9}{0:>9}{'Y':>6}" for rule in reply["rules"]]
    lines += ["", f"{'File':40} {'Goes':5}Because"]
    lines += [f"{item['file']:40} {'Y' if item['goes'] else 'N':5}{item['reason']}" for item in reply["files"]]
    return [*lines, ""]
