"""The groups as the Manager's children: starting, noticing death, starting again by AUTORESTART, ending at once.

A group outlives its Manager. So a new Manager looks for groups that run already (their locks tell) and watches them
too: by a pidfd in place of waitpid. What died while no Manager was there shows ABENDED, and is treated like a death
seen. Who must act decides: AUTORESTART is for exit code 3 (peer or database away, disk full) and deaths without a
recorded code; after exit code 1, a fault of ours, FAULT_RETRIES times, as one bad moment may have brought it. States,
and what a death of the Manager at each leaves:

    forked, lock not yet taken   the process goes on; the next Manager may start another, which finds the lock taken and
                                 ends; the census finds who holds it, and watches that one
    running                      the next Manager adopts it
    waiting for its restart      the next Manager finds it ABENDED, and restarts it at once; tries go on (tries.py)
    held (KILL, STOP)            stays down: noted in dirpcs/MGR.held before the process is touched
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ggsci.manager.noted import Noted
from ggsci.manager.params import ManagerParams
from ggsci.manager.rules import RestartRule, minutes
from ggsci.manager.tries import Tries
from ggsci.spawning import THIS_SYSTEM, Processes, Spawned, last_words
from trails.clock import Clock
from trails.errors import EXIT_AWAY, EXIT_BUG, EXIT_STOPPED, GateError, OperatorError
from trails.position import TrailName
from trails.runtime.home import purge
from trails.runtime.home import registration as registrations
from trails.runtime.home import status as statuses
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registration
from trails.runtime.report.report import Log

STARTING, DOWN, NOTICE = "TG-00975", "TG-00965", "TG-00963"

# How often to look for groups that run and nobody told us of, for space on a full disk, and for the end of a command
# of ggsci (ALTER, ...) that holds a group.
CENSUS_SECONDS = 5.0
SPACE_SECONDS = 5.0
HELD_SECONDS = 1.0

RESTARTED = (EXIT_AWAY, EXIT_BUG)
FAULT_RETRIES = 2

CommandLine = Callable[[Home, Registration], list[str]]


def command_line(home: Home, group: Registration) -> list[str]:
    """How a group's program is started. -P keeps a stray extract.py in the current folder from being run instead."""
    return [sys.executable, "-P", "-m", group.package, "--home", home.root, group.name]


@dataclass(slots=True)
class Child:
    """A group that this Manager started, or found running; what became of it, and its next restart.

    `waits_for`: what it waits for (space) before it is started; that start is no try. `before_us`: when the run before
    it began, by the process file; after a boot, or in a container, that run may have had the same process number.
    """

    kind: str
    pid: int
    started_us: int
    started: float
    process: Spawned | None = None
    pidfd: int = -1
    alive: bool = True
    code: int | None = None
    message: str = ""
    retry_at: float | None = None
    gave_up: bool = False
    """Its tries were used up: the next comes much later, and nobody waits for it."""
    retry_us: int | None = None
    waits_for: str = ""
    before_us: int | None = None

    def row(self, name: str) -> dict[str, Any]:
        """For CHILDSTATUS."""
        return {
            "group": name, "kind": self.kind, "pid": self.pid if self.alive else None,
            "retry_us": self.retry_us, "started_us": self.started_us or None,
            "watched": ("as a child" if self.process else "adopted") if self.alive else "",
            "exit_code": self.code, "message": self.message, "waits_for": self.waits_for,
        }  # fmt: skip


def uptime() -> float:
    """Seconds since this machine was booted."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Children:
    """All groups of the home, by name."""

    def __init__(
        self,
        home: Home,
        params: ManagerParams,
        log: Log,
        clock: Clock,
        command: CommandLine = command_line,
        processes: Processes = THIS_SYSTEM,
    ) -> None:
        self._home = home
        self._processes = processes
        self._params = params
        self._log = log
        self._clock = clock
        self._command = command
        self.no_space: Callable[[Registration], str] = lambda _group: ""
        """Why a group may not be started by a rule now (the Manager's disk guard sets it); empty if it may."""
        self._automatic_at: float | None = clock.monotonic() + max(0.0, params.boot_delay_s - uptime())
        self._undecided: set[str] | None = None  # of these the start must still decide what to do; None: of all
        self._census_at = clock.monotonic() + CENSUS_SECONDS
        self._tries = Tries(home, clock, lambda text: log.error(DOWN, text))
        self._faults = Tries(home, clock, lambda text: log.error(DOWN, text), "MGR.faults")
        self._noted = Noted(home, "MGR.held")
        warn = lambda why: log.error(DOWN, f"{why}: what was held down may be started again.")  # noqa: E731
        self._held: frozenset[str] = self._noted.load(frozenset, frozenset(), warn)
        self._held_before = self._held
        self.children: dict[str, Child] = {}
        self._last_run: dict[str, int] = {}
        """When the last run began whose end is known, by its process file."""

    # --- the Manager's own start ---

    def adopt_and_start(self) -> None:
        """Find what runs already; then AUTOSTART the rest, unless the machine was booted just now."""
        self._census()
        wait = (self._automatic_at or 0.0) - self._clock.monotonic()
        if wait > 0:
            self._log.info(NOTICE, f"BOOTDELAYMINUTES: nothing is started by itself for {minutes(round(wait))}.")
        else:
            self._start_automatically()

    def _start_automatically(self) -> None:
        """AUTOSTART; what died unseen meets AUTORESTART. What a command of ggsci holds just now is decided later."""
        names = registrations.names(self._home)
        meant = [name for name in names if self._undecided is None or name in self._undecided]
        meant.sort(key=self._writes_here)  # after a full disk it is looked which readers are on their way up
        self._undecided = {name for name in meant if not self._tried(name, self._decide)}
        self._automatic_at = self._clock.monotonic() + HELD_SECONDS if self._undecided else None

    def _writes_here(self, name: str) -> bool:
        """Whether it fills this host's disk; of a registration that can't be read the start tells."""
        try:
            return bool(registrations.load(self._home, name).writes)
        except GateError:
            return False

    def _decide(self, name: str) -> bool:
        """Start it, or leave it. False: that can't be told yet."""
        group, known = registrations.load(self._home, name), self.children.get(name)
        if group.is_task or name in self._held - self._held_before:
            return True
        if known and (known.alive or known.retry_at is not None):
            return True
        found = statuses.status_of(self._home, group)
        if found.status.is_alive:
            return self._is_watched(group, found)
        child = Child(group.kind, 0, found.started_us or 0, self._clock.monotonic(), alive=False)
        child.code, child.message = found.exit_code, found.message
        if any(spec.matches(group.kind, group.name) for spec in self._params.autostart):
            self._start_by_rule(group, child, "AUTOSTART")
        elif found.status is statuses.Status.ABENDED and found.exit_code in RESTARTED:
            self.children[group.name] = child
            self._consider_restart(group.name, child, wait=False)
        return True

    def _tried(self, name: str, do: Callable[[str], bool]) -> bool:
        """Do it for one group. What can't be read or looked at is said now and then, and the others go on."""
        try:
            return do(name)
        except (GateError, OSError) as error:
            self._log.error(DOWN, f"Group {name} can't be looked after: {error}", alike=name)
            return False

    def _census(self) -> None:
        """Watch every group that runs, whoever started it (an earlier Manager, a person); forget what was deleted."""
        self._census_at = self._clock.monotonic() + CENSUS_SECONDS
        names = registrations.names(self._home)
        for name in names:
            self._tried(name, self._find)
        for name in [name for name, child in self.children.items() if name not in names and not child.alive]:
            del self.children[name]
        self._tries.keep(names)
        self._faults.keep(names)
        self._last_run = {name: begun for name, begun in self._last_run.items() if name in names}

    def _find(self, name: str) -> bool:
        """Is it watched, or not there?"""
        known = self.children.get(name)
        if known is None or not known.alive:
            group = registrations.load(self._home, name)
            found = statuses.status_of(self._home, group)
            if not self._is_watched(group, found) and not found.status.is_alive and not group.is_task:
                self._look_at_end(group, found)
        return True

    def _look_at_end(self, group: Registration, found: statuses.GroupStatus) -> None:
        """A run that nobody watched, as somebody else has started it, and that is over: a death as any other."""
        begun, known = found.started_us or 0, self.children.get(group.name)
        if begun == self._last_run.setdefault(group.name, begun):
            return
        self._last_run[group.name] = begun
        if found.status is not statuses.Status.ABENDED or (known is not None and known.retry_at is not None):
            return
        child = Child(group.kind, 0, begun, self._clock.monotonic(), alive=False)
        child.code, child.message = found.exit_code, found.message
        self.children[group.name] = child
        self._tell_down(group.name, child)
        self._consider_restart(group.name, child, wait=True)

    def _is_watched(self, group: Registration, found: statuses.GroupStatus) -> bool:
        """Watch the process that has the group; False: there is none, or it is a command of ggsci."""
        if found.pid and found.is_process:
            self._adopt(group, found.pid, found.started_us)
            return True
        return False

    def _adopt(self, group: Registration, pid: int, started_us: int | None) -> None:
        child = Child(group.kind, pid, started_us or self._clock.now_us(), self._clock.monotonic())
        with contextlib.suppress(OSError):
            child.pidfd = self._processes.open(pid)
        self.children[group.name] = child
        self._log.info(NOTICE, f"{group.kind} {group.name} runs already as process {pid}; it is watched from now on.")

    def _start_by_rule(self, group: Registration, child: Child, rule: str) -> None:
        """Start it, unless its disk is full: then it waits, and that is no try."""
        if why := self.no_space(group):
            self._wait_for_space(group.name, child, why)
            return
        if rule == "AUTORESTART" and not child.waits_for:
            self._tries_after(child.code).add(group.name)
        child.waits_for = ""
        try:
            self._start(group.name)
        except OperatorError as error:
            self._log.error(DOWN, f"{rule}: {group.kind} {group.name} can't be started: {error}")
            child.code, child.message = EXIT_AWAY, str(error)
            self.children[group.name] = child
            self._consider_restart(group.name, child, wait=True)

    def _wait_for_space(self, name: str, child: Child, why: str) -> None:
        if not child.waits_for:
            self._log.warning(NOTICE, f"{child.kind} {name} is not started yet: {why}")
        child.waits_for = why
        self.children[name] = child
        child.retry_at = self._clock.monotonic() + SPACE_SECONDS
        child.retry_us = self._clock.now_us() + int(SPACE_SECONDS * 1_000_000)

    # --- commands ---

    def start(self, name: str) -> int:
        """START: tries are counted anew. Raises OperatorError if it runs, or is not registered."""
        pid = self._start(name)
        self._tries.forget(name)
        self._faults.forget(name)
        return pid

    def _start(self, name: str) -> int:
        """Start a group's process."""
        group = registrations.load(self._home, name)
        now = statuses.status_of(self._home, group)
        known = self.children.get(name)
        if now.status.is_alive or (known and known.alive):
            raise OperatorError(
                f"{group.kind} {name} is already running as process {now.pid or (known and known.pid)}",
                hint="STOP it first",
            )
        self._release_hold(name)
        process = self._spawn(group)
        self.children[name] = Child(
            group.kind, process.pid, self._clock.now_us(), self._clock.monotonic(), process, before_us=now.started_us
        )
        text = f"{group.kind} {name} starting as process {process.pid}."
        self._log.info(STARTING, text, program=group.kind, group=name, process=process.pid)
        return process.pid

    def _spawn(self, group: Registration) -> Spawned:
        try:
            return self._processes.spawn(self._home, self._command(self._home, group), group.name)
        except OSError as error:
            raise OperatorError(
                f"{group.kind} {group.name}: its program can't be started: {error.strerror}",
                hint="Install Trailgate anew, then START",
            ) from None

    def kill(self, name: str) -> int:
        """SIGKILL a group's process; it stays down until START."""
        group = registrations.load(self._home, name)
        # The pid comes from the group's lock, which a process holds for its life: never a stranger's.
        found = statuses.status_of(self._home, group)
        pid, child = found.pid, self.children.get(name)
        if not pid:
            raise OperatorError(f"{group.kind} {name} is not running", hint="START begins it")
        if not found.is_process and (child is None or child.pid != pid):
            raise OperatorError(f"{group.kind} {name} is held by process {pid}, which is not its own", hint="Try again")
        self.hold(name)
        if not self._kill(group, pid):
            raise OperatorError(
                f"{group.kind} {name} has just ended by itself", hint="INFO shows why, and START begins it"
            )
        text = f"Killed process {pid} of {group.kind} {name} on request."
        self._log.warning(NOTICE, text, program=group.kind, group=name, process=pid)
        return pid

    def _kill(self, group: Registration, pid: int) -> bool:
        """SIGKILL, if the group's lock still is this process's: its number may have been given to a stranger since."""
        try:
            fd = self._processes.open(pid)
        except ProcessLookupError:
            return False
        try:
            # The descriptor is of whoever has the number now; who holds the lock after that is the one it is of.
            if statuses.status_of(self._home, group).pid != pid:
                return False
            self._processes.signal(fd, signal.SIGKILL)
        except ProcessLookupError:
            return False
        finally:
            self._processes.close(fd)
        return True

    def hold(self, name: str) -> None:
        """The operator wants it down: no restart before START. Kept on disk, for the next Manager too."""
        child = self.children.get(name)
        if child:
            child.retry_at = child.retry_us = None
            child.waits_for = ""
        if name not in self._held:
            self._write_held(self._held | {name})

    def _release_hold(self, name: str) -> None:
        if name in self._held:
            self._write_held(self._held - {name})

    def _write_held(self, names: frozenset[str]) -> None:
        self._held = names
        try:
            self._noted.save(sorted(names))
        except GateError as error:
            # On a full disk too an operator can KILL, and START what was held.
            self._log.error(DOWN, f"Which groups are held down is known to this Manager only, not to the next: {error}")

    def child(self, name: str) -> dict[str, Any]:
        """What START in ggsci waits on: is the process it asked for still there, and how did it end?"""
        self.look()
        child = self.children.get(name)
        if child is None:
            return {"alive": False, "pid": None, "code": None, "message": "the Manager knows no process of it"}
        return {
            "alive": child.alive, "pid": child.pid, "code": child.code, "message": child.message,
            "retry_us": child.retry_us,
        }  # fmt: skip

    def rows(self) -> list[dict[str, Any]]:
        """For CHILDSTATUS."""
        rows = sorted(self.children.items())
        return [
            child.row(name) | {"retries": self._tries_after(child.code).of(name), "port": self._port(name, child)}
            for name, child in rows
        ]

    def _port(self, name: str, child: Child) -> str:
        """Where the group hears commands: a socket of the home, as GoldenGate's groups have had since release 19."""
        return os.path.relpath(self._home.control(name), self._home.root) if child.alive else ""

    def refresh(self, params: ManagerParams) -> None:
        """REFRESH MANAGER: restarts go by these from now on; what waits for space looks again at once."""
        self._params = params
        for name, child in self.children.items():
            if child.waits_for:
                child.retry_at = self._clock.monotonic()
            elif child.retry_at is not None and params.restart_rule(child.kind, name) is None:
                child.retry_at = child.retry_us = None

    # --- watching ---

    def pidfds(self) -> list[int]:
        """Readable when an adopted process ends."""
        return [child.pidfd for child in self.children.values() if child.alive and child.pidfd >= 0]

    def seconds_to_next(self) -> float:
        """How long until the next restart is due; at most a second, to notice deaths that nothing announced."""
        due = [child.retry_at for child in self.children.values() if child.retry_at is not None]
        return max(0.0, min([1.0, *(at - self._clock.monotonic() for at in due)]))

    def look(self) -> None:
        """Notice deaths, and do the starts that are due."""
        now = self._clock.monotonic()
        if now >= self._census_at:
            self._census()
        if self._automatic_at is not None and now >= self._automatic_at:
            self._start_automatically()
        for name in list(self.children):
            self._tried(name, self._watch)

    def _watch(self, name: str) -> bool:
        child = self.children[name]
        if child.alive and self._is_gone(name, child):
            self._ended(name, child)
        if child.retry_at is not None and self._clock.monotonic() >= child.retry_at:
            self._restart(name, child)
        return True

    def _is_gone(self, name: str, child: Child) -> bool:
        if child.process is not None:
            return child.process.poll() is not None
        return self._home.fs.lock_holder(self._home.lock(name)) != child.pid

    def _registration(self, name: str) -> Registration | None:
        """None: it was deleted. Raises GateError if it can't be read."""
        known = self._home.fs.exists(self._home.registration(name))
        return registrations.load(self._home, name) if known else None

    def _ended(self, name: str, child: Child) -> None:
        if child.pidfd >= 0:
            self._processes.close(child.pidfd)
            child.pidfd = -1
        child.code, child.message = self._how(name, child)  # should it fail, it is asked again
        settled = child.code == EXIT_STOPPED or self._found_another(name, child)
        child.alive = False
        group = self._registration(name)
        if settled:
            return
        self._tell_down(name, child)
        if group is None or not group.is_task:  # a task begins anew, which is for who asked for it
            self._consider_restart(name, child, wait=True)

    def _tell_down(self, name: str, child: Child) -> None:
        text = f"{child.kind} {name} is down (exit code {child.code}): {child.message}"
        self._log.error(DOWN, text, program=child.kind, group=name, process=child.pid, exit_code=child.code)

    def _found_another(self, name: str, child: Child) -> bool:
        """Did it end because another process has the group? Then that one is watched, or waited for."""
        group = self._registration(name)
        found = statuses.status_of(self._home, group) if group else None
        if group is None or found is None or not found.pid or found.pid == child.pid:
            return False
        if found.is_process:
            self._adopt(group, found.pid, found.started_us)
            return True
        # A command of ggsci, or a process that has not said a word yet: over in a moment, one way or the other.
        child.code, child.message = EXIT_AWAY, f"process {found.pid} holds the group"
        return False

    def _how(self, name: str, child: Child) -> tuple[int, str]:
        """(exit code, message). The process file is believed if it is of this very process.

        That of another run, in whose place it was not let or which came in its own, is for the census to judge.
        """
        path = self._home.status(name, child.kind)
        note = statuses.read(self._home.fs, path)
        if note is None or note.started_us == child.before_us:
            pass  # it died before it could say a word
        elif note.pid != child.pid:
            if (self._home.fs.touched_us(path) or 0) > child.started_us:
                self._last_run[name] = 0  # it lived beside this one, and its end was not seen
        else:
            self._last_run[name] = note.started_us
            if note.state == "ENDED" and note.exit_code is not None:
                return note.exit_code, note.message
        returned = child.process.returncode if child.process else None
        if returned is not None and returned > 0:
            return returned, last_words(self._home, name)
        if returned == 0:
            return EXIT_STOPPED, ""
        what = f"killed by signal {-returned}" if returned else "died without a word"
        return EXIT_AWAY, f"process {child.pid} {what}"

    # --- AUTORESTART ---

    def _consider_restart(self, name: str, child: Child, *, wait: bool) -> None:
        rule = self._params.restart_rule(child.kind, name)
        if rule is None or child.code not in RESTARTED or name in self._held:
            return
        if why := self._lack_of_space(name):
            self._wait_for_space(name, child, why)
            return
        tries = self._tries_after(child.code).within(name, rule.reset_s)
        most = min(rule.retries, FAULT_RETRIES) if child.code == EXIT_BUG else rule.retries
        if tries >= most:
            self._give_up(name, child, rule)
            return
        delay = rule.wait_s if wait else 0.0
        child.retry_at = self._clock.monotonic() + delay
        child.retry_us = self._clock.now_us() + int(delay * 1_000_000)
        self._log.info(
            NOTICE, f"{child.kind} {name}: restart {tries + 1} of {most} in {delay:g} seconds.",
            program=child.kind, group=name, exit_code=child.code, retry=tries + 1, retries=most,
            seconds=delay,
        )  # fmt: skip

    def _tries_after(self, code: int | None) -> Tries:
        """Tries after a fault of ours are few and counted apart, so that lost peers leave them to it."""
        return self._faults if code == EXIT_BUG else self._tries

    def _lack_of_space(self, name: str) -> str:
        """Why it can't be started again now; a registration that can't be read is for the restart to tell."""
        try:
            group = self._registration(name)
        except GateError:
            return ""
        return self.no_space(group) if group else ""

    def reader_to_come(self, trail: TrailName) -> str:
        """A group of this home that reads the trail and is about to run, for people; empty if there is none.

        One that is held down, or that an operator must mend, is not waited for; nor is anybody where a registration
        can't be read, so that nobody knows the readers.
        """
        try:
            readers = purge.readers(self._home, trail)
        except GateError:
            return ""
        for reader in readers:
            found, child = statuses.status_of(self._home, reader).status, self.children.get(reader.name)
            # A process just made shows as its last run ended until it has its lock.
            waits = child is not None and child.retry_at is not None and not child.gave_up
            to_come = waits or (child is not None and child.alive)
            if (to_come or found is statuses.Status.STARTING) and found is not statuses.Status.RUNNING:
                return f"after a full disk {reader.kind} {reader.name}, which reads this trail, starts first"
        return ""

    def _give_up(self, name: str, child: Child, rule: RestartRule) -> None:
        """For now where the cause heals (the database is away all night); for good behind a fault of ours."""
        tries = self._tries_after(child.code)
        then = "START it when the cause is mended."
        if child.code == EXIT_AWAY and rule.retries:
            child.gave_up = True
            delay = tries.left(name, rule.reset_s)
            child.retry_at = self._clock.monotonic() + delay
            child.retry_us = self._clock.now_us() + int(delay * 1_000_000)
            then = f"it is tried again in {minutes(delay)}."
        self._log.error(
            DOWN,
            f"{child.kind} {name}: {tries.of(name)} restarts did not help within {minutes(rule.reset_s)}; {then}",
            program=child.kind,
            group=name,
            exit_code=child.code,
            retries=tries.of(name),
        )

    def _restart(self, name: str, child: Child) -> None:
        child.retry_at = self._clock.monotonic() + HELD_SECONDS  # for what can't be told now
        group = self._registration(name)
        found = statuses.status_of(self._home, group) if group else None
        if found and found.status.is_alive and not found.is_process:
            return  # a command of ggsci holds it: over in a moment
        child.retry_at = child.retry_us = None
        child.gave_up = False
        # Deleted meanwhile: nothing to do. Started by somebody else, or it had lost its lock alone: it is watched.
        if group and found and not self._is_watched(group, found):
            self._start_by_rule(group, child, "AUTORESTART")
