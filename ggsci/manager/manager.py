"""The Manager of a home: `python -P -m ggsci.manager --home DIR`. One per home, by the lock of the name MGR.

It is a process like any other (trails.runtime): report, ggserr.log, status file, control socket, signals, exit codes.
Its parts: the groups (children), the Collectors (collectors), purging (purge), the disk
(disk), lag and down reports (lag), the page (web).
It keeps nothing that its death could lose: groups and Collectors go on, and the next Manager finds them again.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import traceback
from collections.abc import Callable
from typing import Any

from ggsci.manager import lag as manager_lag
from ggsci.manager import purge as manager_purge
from ggsci.manager.children import Children
from ggsci.manager.collectors import Collectors, MakeDoor
from ggsci.manager.disk import Disk
from ggsci.manager.door import ManagerDoor
from ggsci.manager.notify import Notifier
from ggsci.manager.params import ManagerParams
from ggsci.manager.slots import SlotChecks
from ggsci.manager.web import WebChild
from ggsci.spawning import THIS_SYSTEM, Processes
from trails.checkpoint import Checkpoint
from trails.errors import GateError, OperatorError
from trails.runtime.home import registration
from trails.runtime.language.globals import read as read_globals
from trails.runtime.language.params import parse_file
from trails.runtime.process.diskguard import Limits
from trails.runtime.process.loop import Process
from trails.runtime.process.startup import Context, exit_of
from trails.runtime.report.report import BUG

STARTED, PURGED, CHORE_FAILED = "TG-00983", "TG-01810", "TG-00924"
REFRESHED, RULE = "TG-00985", "TG-00958"

# What REFRESH leaves as it is: where the Manager listens, and whether by TLS.
FIXED = ("port", "bind", "tls")

# While an older Collector is being ended, only the clock moves a request on.
BUSY_SECONDS = 0.05

# Removing thousands of large files takes minutes: so long at a time, then the others are looked after again.
PURGE_SECONDS = 0.5


FAULT_SECONDS = 1.0
"""Until a Manager with a fault of ours takes its next turn."""


class Timers:
    """What is due when: each chore by its name."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}

    def turn(self, name: str, now: float, every: float | None, *, at_once: bool = True) -> bool:
        """Is it time? Then it is again after `every` seconds, counted from now; None is never."""
        if every is None:
            return False
        due = self._due.setdefault(name, now if at_once else now + every)
        if now < due:
            return False
        self._due[name] = now + every
        return True

    def seconds(self, now: float) -> float:
        """Until the next is due."""
        return max(0.0, min((at - now for at in self._due.values()), default=1.0))


class Manager(Process):
    """Steps through its parts; keeps no checkpoint."""

    def __init__(
        self,
        context: Context,
        params: ManagerParams,
        processes: Processes = THIS_SYSTEM,
        door: MakeDoor = ManagerDoor,
    ) -> None:
        self._context = context
        self._params = params
        home, log, clock = context.home, context.log, context.clock
        self._to_purge: set[str] = set()
        # The port first: a Manager that can't have it must not have started anything.
        self._collectors = Collectors(home, params, log, clock, processes=processes, door=door)
        self._children = Children(home, params, log, clock, processes=processes)
        self._slots = SlotChecks(home, log, clock.monotonic())
        self._web = WebChild(home, params.web, log, clock)
        self._timers = Timers()
        self._faulty: set[str] = set()  # chores whose last turn was a fault of ours
        self._disk = Disk(home, self._limits(), log, clock)
        self._collectors.no_space = lambda trail: self._disk.no_space(trail=trail)
        self._children.no_space = self._disk.no_space
        self._collectors.start_task = self._children.start
        self._disk.reader_to_come = self._children.reader_to_come
        self._note_rules()
        log.info(STARTED, f"Manager listens for pumps at {params.bind}, port {self._collectors.port}.")
        self._notifier = Notifier()  # before anything is started: nobody inherits its variables
        self._survive("Starting groups", self._children.adopt_and_start)
        self._notifier.ready(f"Manager of {home.root}, port {self._collectors.port}")

    def step(self) -> bool:
        """Look after groups and Collectors; purge when due."""
        self._survive("Looking after groups", self._children.look)
        self._survive("Looking after Collectors", self._collectors.step)
        self._survive("Looking after the page", self._web.step)
        now = self._context.clock.monotonic()
        self._survive("Looking at slots", lambda: self._slots.step(now, self._params.check_s))
        self._survive("Looking at the disk", self._look_at_disk)
        rules, every = self._params.purge, self._params.check_s
        self._to_purge |= {
            rule.pattern for rule in rules if self._timers.turn(f"purge {rule.pattern}", now, rule.every_s or every)
        }
        if self._to_purge:
            self._survive("Purging", self._purge)
        self._report(now)
        self._notifier.alive(now)
        return bool(self._to_purge)

    def _report(self, now: float) -> None:
        """LAGREPORT, DOWNREPORT, UPREPORT."""
        home, log, now_us, given = self._context.home, self._context.log, self._context.clock.now_us(), self._params
        if self._timers.turn("lag", now, given.lag_report_s):
            self._survive("The lag report", lambda: manager_lag.report(home, given, log, now_us))
        if self._timers.turn("down", now, given.down_report_s, at_once=False):
            self._survive("The down report", lambda: manager_lag.report_down(home, log, now_us))
        if self._timers.turn("up", now, given.up_report_s, at_once=False):
            self._survive("The up report", lambda: manager_lag.report_up(home, log, now_us))

    def _look_at_disk(self) -> None:
        if self._disk.step():
            self._to_purge |= {rule.pattern for rule in self._params.purge}

    def _survive(self, what: str, chore: Callable[[], None]) -> None:
        """A chore that fails (a registration that can't be read) is told now and then, and ends nobody.

        Nor does a fault of ours: this one process heals the others. It is told once until the chore has worked again.
        """
        try:
            chore()
        except (GateError, OSError) as error:
            self._context.log.error(CHORE_FAILED, f"{what} failed: {error}", alike=what)
        except Exception as error:  # noqa: BLE001  -- a fault of ours can be anything
            if what not in self._faulty:
                self._faulty.add(what)
                self._tell_fault(what, error)
            self._context.clock.sleep(FAULT_SECONDS)  # what woke us may still be there
        else:
            self._faulty.discard(what)

    def _tell_fault(self, what: str, error: Exception) -> None:
        if report := self._context.log.report:
            report.lines(["", "Source Context:", *"".join(traceback.format_exception(error)).splitlines()])
        self._context.log.error(BUG, f"{what} failed: {exit_of(error)[1]}. The Manager goes on")

    def _purge(self) -> None:
        """Purge what is due, for a moment: what is left is judged anew in the next turn. A file is told as it goes."""
        home, clock = self._context.home, self._context.clock
        due, self._to_purge = self._to_purge, set()
        end = clock.monotonic() + PURGE_SECONDS
        for verdict in manager_purge.purge(home, self._params.purge, clock.now_us(), due):
            self._context.log.info(
                PURGED,
                f"Purged {verdict.path}: {verdict.reason}.",
                file=verdict.path,
                size=verdict.size,
                rule=verdict.rule,
            )
            if clock.monotonic() >= end:
                self._to_purge = due
                return

    # --- parameters ---

    def _limits(self) -> Limits:
        """DISKWARN and DISKSTOP. Raises OperatorError if GLOBALS is wrong, or asks for more than the disk has."""
        limits = Limits.of(read_globals(self._context.home))
        try:
            limits.check(self._context.home.folders())
        except OSError as error:
            self._context.log.warning(CHORE_FAILED, f"Free space is not known: {error}.")
        return limits

    def _note_rules(self) -> None:
        for rule in self._params.purge:
            for note in rule.notes:
                self._context.log.warning(RULE, f"PURGEOLDEXTRACTS {rule.pattern}: {note}.")

    def _refresh(self) -> dict[str, Any]:
        """REFRESH MANAGER: mgr.prm and GLOBALS anew, whole or not at all. Where it listens stays as it is."""
        path, log, old = self._context.parameter_file, self._context.log, self._params
        try:
            given = ManagerParams.from_statements(parse_file(path), path)
            limits = self._limits()
        except GateError as error:
            log.error(REFRESHED, f"REFRESH refused, the parameters of before stay in force: {error}")
            raise
        kept = [_keyword(name) for name in FIXED if getattr(given, name) != getattr(old, name)]
        self._params = dataclasses.replace(given, **{name: getattr(old, name) for name in FIXED})
        names = [field.name for field in dataclasses.fields(given)]
        changed = [_keyword(name) for name in names if getattr(self._params, name) != getattr(old, name)]
        self._children.refresh(self._params)
        self._collectors.refresh(self._params)
        self._disk.refresh(limits)
        self._web.refresh(self._params.web)
        self._timers = Timers()
        later = f" {' and '.join(kept)}: as before until the next START MANAGER." if kept else ""
        log.info(REFRESHED, f"Parameters read anew from {path}; changed: {', '.join(changed) or 'nothing'}.{later}")
        self._note_rules()
        return {"changed": changed, "kept": kept}

    def flush(self) -> Checkpoint | None:
        """No output, no checkpoint."""
        return None

    def close(self) -> None:
        """Groups and Collectors go on."""
        self._notifier.close()
        self._collectors.close()
        self._web.close()

    def waits(self) -> list[int]:
        """Connections, starting Collectors, adopted groups."""
        return [*self._collectors.waits(), *self._children.pidfds()]

    def idle_seconds(self) -> float:
        """Until the next restart, purge or report."""
        busy = BUSY_SECONDS if self._collectors.busy else 1.0
        now = self._context.clock.monotonic()
        return min(self._children.seconds_to_next(), self._timers.seconds(now), self._web.seconds_to_next(), busy)

    def command(self, verb: str, args: dict[str, Any]) -> dict[str, Any]:
        """What ggsci asks."""
        name, children = str(args.get("name", "")), self._children
        known: dict[str, Callable[[], dict[str, Any]]] = {
            "START": lambda: {"pid": children.start(name)},
            "KILL": lambda: {"pid": children.kill(name)},
            "HOLD": lambda: self._hold(name),
            "CHILD": lambda: children.child(name),
            "STATUS": self._status,
            "REFRESH": self._refresh,
            "CHILDSTATUS": lambda: {"children": children.rows()},
            "GETPORTINFO": lambda: {"collectors": self._collectors.rows(), "pool": self._collectors.pool_rows()},
            "GETPURGEOLDEXTRACTS": self._purge_info,
        }
        if verb not in known:
            raise OperatorError(f"the Manager doesn't know {verb!r}", hint="Use ggsci of its own release")
        return known[verb]()

    def _hold(self, name: str) -> dict[str, Any]:
        self._children.hold(name)
        return self._children.child(name)

    def _status(self) -> dict[str, Any]:
        return {
            "status": "RUNNING", "pid": os.getpid(), "port": self._collectors.port, "bind": self._params.bind,
            "started_us": self._context.started_us, "groups": len(registration.names(self._context.home)),
            "children": self._children.rows(),
            "collectors": self._collectors.rows(), **self._disk.to_json(), "web": self._web.row(),
            "slots": self._slots.rows(self._context.clock.monotonic()),
        }  # fmt: skip

    def _purge_info(self) -> dict[str, Any]:
        home, rules = self._context.home, self._params.purge
        return {
            "rules": [dataclasses.asdict(rule) for rule in rules],
            "files": [
                {**dataclasses.asdict(verdict), "file": home.shown(verdict.path)}
                for verdict in manager_purge.explain(home, rules, self._context.clock.now_us())
            ],
            "stale": manager_purge.stale(home),
        }


_KEYWORDS = {
    "ports": "DYNAMICPORTLIST", "reassign_s": "DYNAMICPORTREASSIGNDELAY", "boot_delay_s": "BOOTDELAYMINUTES",
    "purge": "PURGEOLDEXTRACTS", "check_s": "CHECKMINUTES", "tls": "NOTLS",
}  # fmt: skip


def _keyword(name: str) -> str:
    """How mgr.prm calls a field of ManagerParams."""
    return _KEYWORDS.get(name, name.removesuffix("_s").replace("_", "").upper())


def build(context: Context) -> Process:
    """The Manager for a checked parameter file."""
    # A child's death wakes the loop: the runtime's wakeup descriptor becomes readable for any handled signal.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return Manager(context, ManagerParams.from_statements(context.statements, context.parameter_file))
