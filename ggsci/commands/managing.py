"""START, STOP, INFO, REFRESH and SEND MANAGER."""

from __future__ import annotations

import sys
import time
from typing import Any

from ggsci import facts
from ggsci.check import check_name
from ggsci.commands.asking import checked, turns
from ggsci.commands.session import OperatorSession
from ggsci.spawning import last_words, spawn
from ggsci.table.grammar import CommandError, Parsed
from ggsci.views import view
from trails.errors import GateError
from trails.runtime.home.home import MANAGER, Home
from trails.runtime.process.control import ask
from trails.runtime.process.diskguard import amount, free_of

START_SECONDS = 15.0
STOP_SECONDS = 30.0


def start(session: OperatorSession, _command: Parsed) -> None:
    """Check mgr.prm, start the Manager in a session of its own, wait until it answers."""
    home = session.home
    if facts.manager(home)[0] == "RUNNING":
        session.say("Manager is already running.")
        return
    check_name(home, MANAGER)
    child = spawn(home, [sys.executable, "-P", "-m", "ggsci.manager", "--home", home.root], MANAGER)
    for _ in turns(time.monotonic() + START_SECONDS):
        if child.poll() is not None:
            raise CommandError(
                f"the Manager ended at its start (exit code {child.returncode}): {last_words(home, MANAGER)}"
            )
        if _answers(home, child.pid):
            session.say("Manager started.")
            return
    raise CommandError(
        f"the Manager has not answered within {START_SECONDS:.0f} seconds", hint="See VIEW GGSEVT and VIEW REPORT MGR"
    )


def _answers(home: Home, pid: int) -> bool:
    try:
        return ask(home, MANAGER, "STATUS", timeout=1).get("pid") == pid
    except GateError:
        return False


def stop(session: OperatorSession, command: Parsed) -> None:
    """Ask, then have it stop; the groups go on."""
    home = session.home
    if facts.manager(home)[0] != "RUNNING":
        session.say("Manager is already down.")
        return
    session.confirm("Manager process is required by other processes. Are you sure you want to stop it", command)
    session.say("", "Sending STOP request to MANAGER ...")
    checked(ask(home, MANAGER, "STOP", timeout=10))
    session.say("Request processed.")
    for _ in turns(time.monotonic() + STOP_SECONDS):
        if facts.manager(home)[0] != "RUNNING":
            session.say("Manager stopped.")
            return
    raise CommandError(
        f"the Manager has not stopped within {STOP_SECONDS:.0f} seconds", hint="Look again with INFO MANAGER"
    )


def info(session: OperatorSession, command: Parsed) -> Any:
    """Running or down, with port and process id; DETAIL: what it looks after, and the disk."""
    import socket

    home = session.home
    status, pid = facts.manager(home)
    known: dict[str, Any] = {}
    trouble = ""
    if status == "RUNNING":
        try:
            known = checked(ask(home, MANAGER, "STATUS", timeout=5))
        except GateError as error:
            trouble = str(error)
            status, pid = facts.manager(home)  # it may have ended just now
    if status != "RUNNING":
        session.say("", "Manager is DOWN!")
    elif trouble:
        session.fail(f"Manager runs as process {pid}, but gives no answer: {trouble}")
    else:
        session.say("", f"Manager is running (IP port {socket.gethostname()}.{known['port']}, Process ID {pid}).")
        if command.has("DETAIL"):
            session.say_lines(_details(known))
    rest = {key: value for key, value in known.items() if key != "ok"}
    return {"port": None, **rest, "status": status, "pid": pid}


def _details(known: dict[str, Any]) -> list[str]:
    running = sum(1 for child in known["children"] if child["pid"])
    lines = [
        "", f"  {'Listens at':14}{known['bind']}, port {known['port']}",
        f"  {'Running since':14}{view.stamp(known['started_us'])}",
        f"  {'Groups':14}{running} running of {known['groups']}",
        f"  {'Collectors':14}{len(known['collectors'])}",
    ]  # fmt: skip
    for disk in known["disks"]:
        unit = disk["unit"]
        bounds = f"DISKWARN {amount(disk['warn'], unit)}, DISKSTOP {amount(disk['stop'], unit)}"
        mark = "" if disk["state"] == "OK" else f"  ** {disk['state']} **"
        lines.append(f"  {'Disk':14}{disk['path']}: {free_of(disk['free'], disk['size'], unit)} ({bounds}){mark}")
    return [*lines, ""]


def refresh(session: OperatorSession, _command: Parsed) -> Any:
    """Have mgr.prm and GLOBALS read anew; a file with mistakes changes nothing."""
    home = session.home
    if facts.manager(home)[0] != "RUNNING":
        raise CommandError("the Manager is not running", hint="START MANAGER reads mgr.prm")
    check_name(home, MANAGER)
    session.say("", "Sending REFRESH request to MANAGER ...")
    reply = checked(ask(home, MANAGER, "REFRESH", timeout=10))
    changed, kept = reply["changed"], reply["kept"]
    session.say(f"Manager refreshed; changed: {', '.join(changed) or 'nothing'}.")
    if kept:
        session.say(f"{' and '.join(kept)}: as before until the next START MANAGER.")
    return {"changed": changed, "kept": kept}


def send(session: OperatorSession, command: Parsed) -> Any:
    """Children, Collectors, or purge rules."""
    home = session.home
    if facts.manager(home)[0] != "RUNNING":
        raise CommandError("the Manager is not running", hint="START MANAGER")
    verb = next(name for name in _REQUESTS if command.has(name))
    for extra, of in (("DEBUG", "CHILDSTATUS"), ("DETAIL", "GETPORTINFO")):
        if command.has(extra) and verb != of:
            raise CommandError(f"SEND MANAGER: {extra} belongs to {of}")
    more = command.has("DEBUG") or command.has("DETAIL")
    session.say("", f"Sending {verb} request to MANAGER ...", "")
    reply = checked(ask(home, MANAGER, verb, timeout=10))
    session.say_lines(_REQUESTS[verb](reply, more=more))
    return {key: value for key, value in reply.items() if key != "ok"}


def _children(reply: dict[str, Any], *, more: bool) -> list[str]:
    head = f"{'ID':4}{'Group':8}{'Process':9}{'Retry':7}{'Retry Time':21}{'Start Time':21}{'Port':22}"
    lines = [(head + ("Watched     Last end" if more else "")).rstrip()]
    for number, child in enumerate(reply["children"], 1):
        retry_at = view.stamp(child["retry_us"], missing="None")
        started = view.stamp(child["started_us"], missing="None")
        pid = child["pid"] or "-"
        line = f"{number:<4}{child['group']:8}{pid:<9}{child['retries']:<7}{retry_at:21}{started:21}{child['port']:22}"
        lines.append((line + (f"{child['watched'] or '-':12}{_last_end(child)}" if more else "")).rstrip())
    return [*lines, ""]


def _last_end(child: dict[str, Any]) -> str:
    if child["waits_for"]:
        return f"waits: {child['waits_for']}"
    if child["exit_code"] is None:
        return "-"
    return f"exit code {child['exit_code']} {child['message']}".rstrip()


def _ports(reply: dict[str, Any], *, more: bool) -> list[str]:
    lines = [f"{'Entry':7}{'Port':7}{'Error':8}{'Process':10}{'Assigned':21}{'Program':11}{'Trail':24}Pump"]
    for number, item in enumerate(reply["collectors"]):
        when = view.stamp(item["assigned_us"])
        lines.append(
            f"{number:<7}{item['port']:<7}{0:<8}{item['pid']:<10}{when:21}{'collector':11}"
            f"{item['trail']:24}{item['pump']}"
        )
    if more:
        lines += ["", f"{'Ports':16}{'Error':8}State"]
        for row in reply["pool"]:
            ports = str(row["first"]) if row["first"] == row["last"] else f"{row['first']}-{row['last']}"
            lines.append(f"{ports:16}{row['error']:<8}{_POOL[row['state']]}")
    return [*lines, ""]


_POOL = {
    "free": "free",
    "assigned": "assigned to a Collector",
    "resting": "free, but offered last for DYNAMICPORTREASSIGNDELAY",
    "taken": "another program listens there",
}


def _purges(reply: dict[str, Any], *, more: bool) -> list[str]:  # noqa: ARG001  -- as its neighbours
    lines = ["PurgeOldExtracts Rules", "Fileset                      MinHours MaxHours MinFiles MaxFiles UseCP"]
    lines += [
        f"{rule['pattern']:29}{hours:>8}{0:>9}{0 if hours else rule['min_files']:>9}{0:>9}{'Y':>6}"
        for rule in reply["rules"]
        for hours in [rule["min_hours"]]
    ]
    lines += ["", f"{'File':32} {'MB':>8} {'Written':20}{'Goes':5}{'Needed by':18}Because"]
    for item in reply["files"]:
        size = "-" if item["size"] is None else f"{item['size'] / (1 << 20):.1f}"
        written = view.stamp(item["modified_us"], missing="-")
        who = ", ".join(item["who"]) or "-"
        goes = "Y" if item["goes"] else "N"
        lines.append(f"{item['file']:32} {size:>8} {written:20}{goes:5}{who:18}{item['reason']}")
    if reply["stale"]:
        lines += ["", "Registrations to look at"]
        lines += [f"{item['kind']} {item['group']} on {item['trail']}: {item['why']}" for item in reply["stale"]]
    return [*lines, ""]


_REQUESTS = {"CHILDSTATUS": _children, "GETPORTINFO": _ports, "GETPURGEOLDEXTRACTS": _purges}
