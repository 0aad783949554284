"""The groups as the Manager's children: starting, noticing death, starting again by AUTORESTART, ending at once.

A group outlives its Manager. So a new Manager looks for groups that run already (their locks tell) and watches them
too: by a pidfd in place of waitpid. What died while no Manager was there shows ABENDED, and is treated like a death
seen. Who must act decides: AUTORESTART is for exit code 3 (peer or database away) and deaths without a recorded code.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ggsci.manager_params import ManagerParams
from trails.errors import EXIT_AWAY, EXIT_STOPPED, OperatorError
from trails.fs import read_bytes, replace_durably
from trails.runtime import registration as registrations
from trails.runtime import status as statuses
from trails.runtime.clock import Clock
from trails.runtime.home import Home
from trails.runtime.registration import Registration
from trails.runtime.report import Log

STARTING, DOWN, NOTICE = "TG-00975", "TG-00965", "TG-00963"

_MODULES = {("EXTRACT", "TRANLOG"): "extract", ("EXTRACT", "TRAIL"): "pump", ("REPLICAT", "TRAIL"): "replicat"}

CommandLine = Callable[[Home, Registration], list[str]]


def command_line(home: Home, group: Registration) -> list[str]:
    """How a group's program is started. -P keeps a stray extract.py in the current folder from being run instead."""
    module = _MODULES[group.kind, group.source]
    return [sys.executable, "-P", "-m", module, "--home", home.root, group.name]


@dataclass(slots=True)
class Child:
    """A group that this Manager started, or found running; what became of it, and its next restart."""

    kind: str
    pid: int
    started_us: int
    started: float
    process: subprocess.Popen[bytes] | None = None
    pidfd: int = -1
    alive: bool = True
    code: int | None = None
    message: str = ""
    retries: int = 0
    retry_at: float | None = None
    retry_us: int | None = None


class Children:
    """All groups of the home, by name."""

    def __init__(
        self, home: Home, params: ManagerParams, log: Log, clock: Clock, command: CommandLine = command_line
    ) -> None:
        self._home = home
        self._params = params
        self._log = log
        self._clock = clock
        self._command = command
        self._held_path = os.path.join(home.folder("dirpcs"), "MGR.held")
        self._held = self._read_held()
        self.children: dict[str, Child] = {}

    # --- the Manager's own start ---

    def adopt_and_start(self) -> None:
        """Find what runs already; AUTOSTART the rest; what died unseen meets AUTORESTART."""
        for group in self._home.groups():
            found = statuses.status_of(self._home, group)
            if found.pid and found.is_process:
                self._adopt(group, found.pid, found.started_us)
            elif any(spec.matches(group.kind, group.name) for spec in self._params.autostart):
                self._start_by_rule(group, "AUTOSTART")
            elif found.status is statuses.Status.ABENDED and found.exit_code == EXIT_AWAY:
                child = Child(group.kind, 0, found.started_us or 0, self._clock.monotonic(), alive=False)
                child.code, child.message = found.exit_code, found.message
                self.children[group.name] = child
                self._consider_restart(group.name, child, wait=False)

    def _adopt(self, group: Registration, pid: int, started_us: int | None) -> None:
        child = Child(group.kind, pid, started_us or self._clock.now_us(), self._clock.monotonic())
        with contextlib.suppress(OSError):
            child.pidfd = os.pidfd_open(pid)
        self.children[group.name] = child
        self._log.info(NOTICE, f"{group.kind} {group.name} runs already as process {pid}; it is watched from now on.")

    def _start_by_rule(self, group: Registration, rule: str) -> None:
        try:
            self.start(group.name, keep_count=rule == "AUTORESTART")
        except OperatorError as error:
            self._log.error(DOWN, f"{rule}: {group.kind} {group.name} can't be started: {error}")

    # --- commands ---

    def start(self, name: str, *, keep_count: bool = False) -> int:
        """Start a group's process. Raises OperatorError if it runs, or is not registered."""
        group = registrations.load(self._home, name)
        now = statuses.status_of(self._home, group)
        known = self.children.get(name)
        if now.status.is_alive or (known and known.alive):
            raise OperatorError(f"{group.kind} {name} is already running as process {now.pid or (known and known.pid)}")
        self._release_hold(name)
        process = self._spawn(group)
        child = Child(group.kind, process.pid, self._clock.now_us(), self._clock.monotonic(), process)
        if known and keep_count:
            child.retries = known.retries
        self.children[name] = child
        self._log.info(STARTING, f"{group.kind} {name} starting as process {process.pid}.")
        return process.pid

    def _spawn(self, group: Registration) -> subprocess.Popen[bytes]:
        # The .out file holds what a process says before it has a report: an import error, a wrong command line.
        try:
            with open(self._out_file(group.name), "wb") as out:
                return subprocess.Popen(
                    self._command(self._home, group), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                    start_new_session=True, cwd=self._home.root,
                )  # fmt: skip
        except OSError as error:
            raise OperatorError(f"{group.kind} {group.name}: its program can't be started: {error.strerror}") from None

    def _out_file(self, name: str) -> str:
        return os.path.join(self._home.folder("dirrpt"), f"{name}.out")

    def kill(self, name: str) -> int:
        """SIGKILL a group's process; it stays down until START."""
        group = registrations.load(self._home, name)
        # The pid comes from the group's lock, which a process holds for its life: never a stranger's.
        found = statuses.status_of(self._home, group)
        pid, child = found.pid, self.children.get(name)
        if not pid:
            raise OperatorError(f"{group.kind} {name} is not running")
        if not found.is_process and (child is None or child.pid != pid):
            raise OperatorError(f"{group.kind} {name} is held by process {pid}, which is not its own", hint="Try again")
        self.hold(name)
        os.kill(pid, signal.SIGKILL)
        self._log.warning(NOTICE, f"Killed process {pid} of {group.kind} {name} on request.")
        return pid

    def hold(self, name: str) -> None:
        """The operator wants it down: no restart before START. Kept on disk, for the next Manager too."""
        child = self.children.get(name)
        if child:
            child.retry_at = child.retry_us = None
        if name not in self._held:
            self._write_held(self._held | {name})

    def _release_hold(self, name: str) -> None:
        if name in self._held:
            self._write_held(self._held - {name})

    def _read_held(self) -> frozenset[str]:
        try:
            return frozenset(str(name) for name in json.loads(read_bytes(self._home.fs, self._held_path)))
        except (FileNotFoundError, ValueError, TypeError):
            return frozenset()

    def _write_held(self, names: frozenset[str]) -> None:
        replace_durably(self._home.fs, self._held_path, json.dumps(sorted(names)).encode())
        self._held = names

    def child(self, name: str) -> dict[str, Any]:
        """What START in ggsci waits on: is the process it asked for still there, and how did it end?"""
        self.look()
        child = self.children.get(name)
        if child is None:
            return {"alive": False, "pid": None, "code": None, "message": "the Manager knows no process of it"}
        return {"alive": child.alive, "pid": child.pid, "code": child.code, "message": child.message}

    def rows(self) -> list[dict[str, Any]]:
        """For CHILDSTATUS."""
        return [
            {
                "group": name, "kind": child.kind, "pid": child.pid if child.alive else None, "retries": child.retries,
                "retry_us": child.retry_us, "started_us": child.started_us or None,
            }
            for name, child in sorted(self.children.items())
        ]  # fmt: skip

    # --- watching ---

    def pidfds(self) -> list[int]:
        """Readable when an adopted process ends."""
        return [child.pidfd for child in self.children.values() if child.alive and child.pidfd >= 0]

    def seconds_to_next(self) -> float:
        """How long until the next restart is due; at most a second, to notice deaths that nothing announced."""
        due = [child.retry_at for child in self.children.values() if child.retry_at is not None]
        return max(0.0, min([1.0, *(at - self._clock.monotonic() for at in due)]))

    def look(self) -> None:
        """Notice deaths, and do the restarts that are due."""
        for name, child in list(self.children.items()):
            if child.alive and self._is_gone(name, child):
                self._ended(name, child)
            if child.retry_at is not None and self._clock.monotonic() >= child.retry_at:
                self._restart(name, child)

    def _is_gone(self, name: str, child: Child) -> bool:
        if child.process is not None:
            return child.process.poll() is not None
        group = self._registration(name)
        return group is None or statuses.status_of(self._home, group).pid != child.pid

    def _registration(self, name: str) -> Registration | None:
        try:
            return registrations.load(self._home, name)
        except OperatorError:
            return None

    def _ended(self, name: str, child: Child) -> None:
        child.alive = False
        if child.pidfd >= 0:
            os.close(child.pidfd)
            child.pidfd = -1
        child.code, child.message = self._how(name, child)
        if child.code == EXIT_STOPPED:
            return
        self._log.error(DOWN, f"{child.kind} {name} is down (exit code {child.code}): {child.message}")
        self._consider_restart(name, child, wait=True)

    def _how(self, name: str, child: Child) -> tuple[int, str]:
        """(exit code, message). The process file is believed if it is of this very process."""
        note = statuses.read(self._home.fs, self._home.status(name, child.kind))
        if note is not None and note.pid == child.pid and note.state == "ENDED" and note.exit_code is not None:
            return note.exit_code, note.message
        returned = child.process.returncode if child.process else None
        if returned is not None and returned > 0:
            return returned, self._last_words(name)
        if returned == 0:
            return EXIT_STOPPED, ""
        what = f"killed by signal {-returned}" if returned else "died without a word"
        return EXIT_AWAY, f"process {child.pid} {what}"

    def _last_words(self, name: str) -> str:
        try:
            with open(self._out_file(name), encoding="utf-8", errors="replace") as file:
                lines = [line.strip() for line in file if line.strip()]
        except OSError:
            lines = []
        return lines[-1] if lines else "it said nothing"

    # --- AUTORESTART ---

    def _consider_restart(self, name: str, child: Child, *, wait: bool) -> None:
        rule = self._params.restart_rule(child.kind, name)
        if rule is None or child.code != EXIT_AWAY or name in self._held:
            return
        now = self._clock.monotonic()
        if now - child.started >= rule.reset_s:
            child.retries = 0
        if child.retries >= rule.retries:
            self._log.error(
                DOWN, f"{child.kind} {name}: {child.retries} restarts did not help; START it when the cause is mended."
            )
            return
        delay = rule.wait_s if wait else 0.0
        child.retry_at = now + delay
        child.retry_us = self._clock.now_us() + int(delay * 1_000_000)
        self._log.info(
            NOTICE, f"{child.kind} {name}: restart {child.retries + 1} of {rule.retries} in {delay:g} seconds."
        )

    def _restart(self, name: str, child: Child) -> None:
        child.retry_at = child.retry_us = None
        child.retries += 1
        group = self._registration(name)
        # Deleted meanwhile, or started by somebody else: nothing to do.
        if group is not None and not statuses.status_of(self._home, group).status.is_alive:
            self._start_by_rule(group, "AUTORESTART")
