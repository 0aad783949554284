"""`main`: from a command line to a running process and its exit code. Every process's `__main__` is one call of it.

Order, and why: home and registration (nothing is touched for a group that does not exist), the group's lock (one
process a group), the process file with stop status A (from here on a death shows ABENDED), report and log, the
parameter file, control socket, `build`, the loop, the exit code into the process file, exit. After SIGKILL nothing
needs cleaning: the system frees the lock, the next start ages the report and replaces the socket.

Exit codes: 0 stopped, 1 a bug, 2 the operator must act, 3 the peer or database is away.
"""

from __future__ import annotations

import argparse
import dataclasses
import errno
import os
import socket
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from trails import checkpoint as checkpoints
from trails.checkpoint import Checkpoint
from trails.errors import (
    EXIT_AWAY,
    EXIT_BUG,
    EXIT_OPERATOR,
    EXIT_STOPPED,
    GateError,
    LockedError,
    OperatorError,
    ParamError,
)
from trails.fs import NO_SPACE, Fs, Lock, RealFs
from trails.runtime import diskguard, metrics, params, prmtext, registration, report, status
from trails.runtime.clock import Clock, RealClock
from trails.runtime.control import ControlServer
from trails.runtime.credentials import hide_file
from trails.runtime.diskguard import DiskGuard, Limits
from trails.runtime.globals import read as read_globals
from trails.runtime.home import MANAGER, Home, group_name
from trails.runtime.loop import Chore, Process, Stop, run
from trails.runtime.masking import mask, mask_parameters
from trails.runtime.metrics import Meter
from trails.runtime.params import Statement, Values
from trails.runtime.registration import Registration
from trails.runtime.report import Log, Report, quietly
from trails.runtime.reporting import Reporting
from trails.runtime.reportparams import SHARED, TIMED_VERBS

CHECKPOINT_SECONDS = 10
TURN_SECONDS = 1.0
LONGEST_MESSAGE = 2000


@dataclass(frozen=True, slots=True)
class Program:
    """What main() knows of a program: the groups it runs, and its name in reports and logs."""

    kind: str
    source: str
    product: str


PROGRAMS = {
    "EXTRACT": Program("EXTRACT", "TRANLOG", "Trailgate Capture"),
    "PUMP": Program("EXTRACT", "TRAIL", "Trailgate Pump"),
    "REPLICAT": Program("REPLICAT", "TRAIL", "Trailgate Delivery"),
    "MANAGER": Program("MANAGER", "", "Trailgate Manager"),
}


@dataclass(frozen=True)
class Context:
    """Everything `build` gets. `registration` is None for the Manager only; `previous` is newest first."""

    home: Home
    fs: Fs
    group: str
    kind: str
    statements: list[Statement]
    registration: Registration | None
    report: Report
    log: Log
    clock: Clock
    stop: Stop
    started_us: int
    parameter_file: str
    previous: list[Checkpoint] = field(default_factory=list)

    @property
    def host(self) -> str:
        """This machine's name."""
        return socket.gethostname()


Build = Callable[[Context], Process]


def main(program: str, argv: Sequence[str], build: Build) -> int:
    """Run a process to its end. `program` is one of PROGRAMS; `argv` is `--home DIR GROUP` (Manager: no group).

    Returns the exit code. `build` makes the Process, or raises a GateError that says why it can't start.
    """
    os.umask(0o077)
    try:
        this = _Run.begin(PROGRAMS[program], argv, build)
    except (GateError, OSError) as error:
        return _complain(error)
    return this.to_the_end()


class _Run:
    """One run of one group, from the moment its lock is held."""

    def __init__(
        self, program: Program, home: Home, group: str, reg: Registration | None, build: Build, log: Log, lock: Lock
    ) -> None:
        self.program = program
        self.home = home
        self.group = group
        self.registration = reg
        self.build = build
        self.clock = RealClock()
        self.stop = Stop()
        self.note = status.ProcessFile(os.getpid(), self.clock.now_us())
        self.log = log
        self.lock = lock
        self.process: Process | None = None
        self.meter: Meter | None = None
        self.reporting: Reporting | None = None
        self.statements: list[Statement] = []
        self.parameters: list[str] = []

    @classmethod
    def begin(cls, program: Program, argv: Sequence[str], build: Build) -> _Run:
        """Find home and group and take its lock; nothing of the group is touched before that."""
        home_path, group = _arguments(program, argv)
        home = Home.at(home_path, RealFs())
        log = Log(home, program.product, os.path.basename(home.prm(group)), RealClock())
        log.must_write = program.kind != "MANAGER"
        try:
            reg = None if program.kind == "MANAGER" else _registered(home, group, program)
            lock = _take_lock(home, group)
            if reg is not None:
                reg = _registered(home, group, program)  # as an ALTER or DELETE left it that held the lock just now
        except (GateError, OSError) as error:
            code, message = exit_of(error)
            quietly(log.error, report.FAILED, message, exit_code=code)
            raise
        return cls(program, home, group, reg, build, log, lock)

    def to_the_end(self) -> int:
        """Start, run, and record how it ended."""
        code, message = EXIT_STOPPED, ""
        try:
            self.stop.install()
            self._note(state="STARTING")
            message = self._run()
        except BaseException as error:  # noqa: BLE001  -- whatever it is, its exit code must be recorded
            code, message = self._ended_by(error)
        return self._record(code, message)

    def _run(self) -> str:
        """To the end; why the process ended by itself, if it did."""
        context = self._open()
        guard = self._disk_guard()
        self.process = process = self.build(context)
        context.report.box("Run Time Messages")
        settings = _common(context.statements)
        self.statements = context.statements
        self.reporting = Reporting(process, settings, self.log, self.clock, lambda: self._head(context.report))
        self.meter = Meter(process.counters, self.clock)
        control = self._listen(process)
        try:
            self._note(state="RUNNING")
            self.log.info(report.STARTED, f"{self._who} started.", state="RUNNING", started_us=self.note.started_us)
            run(
                process,
                self._save,
                self.stop,
                clock=self.clock,
                checkpoint_every=settings.one("CHECKPOINTSECS", CHECKPOINT_SECONDS),
                control=control,
                chores=[*guard, *self._chores(self.reporting)],
                meter=self.meter,
            )
            self._write_statistics()
            if process.finished():
                self.log.info(report.STOPPED, process.finished())
            self.log.info(report.STOPPED, f"{self._who} stopped normally.", state="STOPPED", exit_code=EXIT_STOPPED)
            return process.finished()
        finally:
            control.close()

    def _disk_guard(self) -> list[DiskGuard]:
        """The guard of a group's process; it refuses to start where it would have to end at once. Manager: its own."""
        if self.registration is None:
            return []
        folders, limits = diskguard.folders_of(self.home, self.registration), Limits.of(read_globals(self.home))
        writes_trail = any(trail.type == "EXTTRAIL" for trail in self.registration.trails)
        end = lambda error: self.stop.request(error=error)  # noqa: E731
        guard = DiskGuard(folders, limits, self.log, writes_trail=writes_trail, stop=end)
        guard.at_start()
        return [guard]

    def _listen(self, process: Process) -> ControlServer:
        # Only now: while a process starts, who asks it learns that at once instead of waiting.
        try:
            return ControlServer(self.home, self.group, self._answer)
        except OSError:
            process.close()
            raise

    def _open(self) -> Context:
        """Report, parameters, earlier checkpoints."""
        paper = self.log.report = Report(self.home, self.group, must_write=self.log.must_write)
        self._banner(paper)
        self.log.info(report.STARTING, f"{self._who} starting.", state="STARTING")
        path = self.home.prm(self.group)
        statements = params.parse_file(path)
        self._echo(path)
        self._environment(path, statements)
        if self.registration:
            check_group(statements, self.program.kind, self.group, path)
        previous = [] if not self.registration else checkpoints.load(self.home.fs, self._checkpoint_path)
        return Context(
            self.home,
            self.home.fs,
            self.group,
            self.program.kind,
            statements,
            self.registration,
            paper,
            self.log,
            self.clock,
            self.stop,
            self.note.started_us,
            path,
            previous,
        )

    def _banner(self, paper: Report) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            release = version("trailgate")
        except PackageNotFoundError:
            release = "(not installed)"
        description = self.registration.desc if self.registration else ""
        paper.banner(self.program.product, release, self.note.started_us, description)

    def _head(self, paper: Report) -> None:
        """What the report of the same run begins with after REPORTROLLOVER."""
        self._banner(paper)
        paper.parameters("\n".join(self.parameters))
        paper.box("Run Time Messages")

    def _echo(self, path: str) -> None:
        hide_file(path)
        text = "\n".join(prmtext.read(path).echo)
        self.parameters = mask_parameters(text).splitlines()
        if self.log.report:
            self.log.report.parameters(text)

    def _environment(self, path: str, statements: Sequence[Statement]) -> None:
        """Obey SETENV and GETENV."""
        values = params.check([s for s in statements if s.keyword in params.ALWAYS], params.ALWAYS, path)
        os.environ.update(values.all("SETENV"))
        for name in values.all("GETENV"):
            self.log.info(report.COMMAND, f"GETENV ({name}): {name}={os.environ.get(name, '(not set)')}")

    @property
    def _who(self) -> str:
        return "Manager" if self.program.kind == "MANAGER" else f"{self.program.kind} {self.group}"

    @property
    def _checkpoint_path(self) -> str:
        return self.home.checkpoint(self.group, self.program.kind)

    def _save(self, checkpoint: Checkpoint) -> None:
        """The runtime knows these fields, the process all others."""
        done = dataclasses.replace(
            checkpoint, started_us=self.note.started_us, saved_us=self.clock.now_us(), record_source="A"
        )
        checkpoints.save(self.home.fs, self._checkpoint_path, done)
        if self.reporting is not None:
            self.reporting.saves += 1

    # --- the control socket ---

    def _answer(self, verb: str, args: dict[str, Any]) -> dict[str, Any]:
        if verb == "PING":
            return {"pid": os.getpid(), "started_us": self.note.started_us}
        if verb in ("STOP", "FORCESTOP"):
            self.stop.request(forced=verb == "FORCESTOP")
            self.log.info(report.COMMAND, f"Command received: {verb}.")
            return {}
        if verb == "METRICS":
            return self._metrics()
        if verb == "GETPARAMINFO":
            return self._parameter_info(str(args.get("name") or "").upper())
        if verb == "STATS":
            return self._stats(reset=bool(args.get("reset")))
        if verb == "REPORT":
            self.log.info(report.COMMAND, "Command received: REPORT.")
            self._write_statistics()
            return {"report": self.home.report(self.group)}
        return self.process.command(verb, args) if self.process else {}

    def _metrics(self) -> dict[str, Any]:
        """What METRICS answers (metrics.py): the process itself tells only what the meter can't know."""
        if self.process is None or self.meter is None or self.registration is None:
            raise OperatorError(f"{self._who} measures nothing")
        own, lag = self.process.command("METRICS", {}), self.process.command("GETLAG", {})
        kind = (
            "PUMP" if self.registration.kind == "EXTRACT" and self.registration.source == "TRAIL" else self.program.kind
        )
        return metrics.reply(kind, self.group, self.meter, self.clock.now_us(), own, lag)

    def _parameter_info(self, name: str) -> dict[str, Any]:
        """The parameter file as it was read at the start, or all settings of one parameter in it."""
        values = [
            {"parameter": s.keyword, "value": mask_parameters(f"{s.keyword} {s.text}")[len(s.keyword) + 1 :],
             "file": s.file, "line": s.line}
            for s in self.statements if name in ("", s.keyword)
        ]  # fmt: skip
        return {"file": self.home.prm(self.group), "parameters": self.parameters, "values": values}

    def _stats(self, *, reset: bool) -> dict[str, Any]:
        stats = self.process.stats if self.process else None
        if stats is None:
            raise OperatorError(f"{self._who} counts nothing")
        reply = stats.to_reply()
        if reset:
            self.log.info(report.COMMAND, "Command received: STATS, RESET.")
            stats.reset()
        return reply

    # --- report ---

    def _chores(self, reporting: Reporting) -> list[Chore]:
        turns = _Turns(self.home.status(self.group, self.program.kind), self.clock)
        return [turns, *reporting.chores()]

    def _write_statistics(self) -> None:
        if self.reporting is not None:
            self.reporting.statistics()

    # --- the end ---

    def _ended_by(self, error: BaseException) -> tuple[int, str]:
        """Tell it to the report, ggserr.log and stderr. Returns (exit code, message)."""
        code, message = exit_of(error)
        if code == EXIT_BUG and self.log.report:
            trace = "".join(traceback.format_exception(error))
            quietly(self.log.report.lines, ["", "Source Context:", *trace.splitlines()])
        quietly(self.log.error, _CODES[code], message, exit_code=code)
        quietly(self._write_statistics)
        quietly(self.log.error, report.ABENDING, "PROCESS ABENDING.", state="ABENDED", exit_code=code)
        _say(f"{self._who}: {message}")
        return code, message

    def _record(self, code: int, message: str) -> int:
        """Write the exit code down, then let the group go."""
        stop = "G" if code == EXIT_STOPPED else "A"
        quietly(self.log.end)
        try:
            now = self.clock.now_us()
            self._note(state="ENDED", stop=stop, exit_code=code, message=message[:LONGEST_MESSAGE], ended_us=now)
        except (GateError, OSError) as error:
            # Nothing more can be written. Unrecorded, the end shows as ABENDED with exit code 3.
            if code == EXIT_STOPPED:
                code = EXIT_OPERATOR
                _say(f"{self._who}: {exit_of(error)[1]}")
        self.lock.release()
        return code

    def _note(self, **changes: Any) -> None:
        self.note = dataclasses.replace(self.note, **changes)
        status.write(self.home.fs, self.home.status(self.group, self.program.kind), self.note)


_CODES = {EXIT_BUG: report.BUG, EXIT_OPERATOR: report.FAILED, EXIT_AWAY: report.AWAY}


def exit_of(error: BaseException) -> tuple[int, str]:
    """(exit code, message for people) of whatever ended a process."""
    if isinstance(error, GateError):
        return error.exit_code, mask(str(error))
    if isinstance(error, (ConnectionError, TimeoutError)):
        return EXIT_AWAY, mask(f"connection lost: {error}")
    if isinstance(error, OSError) and (error.filename or error.errno in _OPERATORS):
        name = f"{error.filename}: " if error.filename else ""
        code = EXIT_AWAY if error.errno in NO_SPACE else EXIT_OPERATOR
        return code, mask(f"{name}{error.strerror}. Mend that, then START again")
    return EXIT_BUG, mask(f"bug in Trailgate: {type(error).__name__}: {error} (see the report)")


_OPERATORS = frozenset(
    (
        *NO_SPACE,
        errno.EFBIG,
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.EIO,
        errno.EMFILE,
        errno.ENFILE,
    )
)
"""What the system refuses until somebody mends the machine."""


def _complain(error: BaseException) -> int:
    """One line on stderr for what ended the start before the group's lock was ours."""
    code, message = exit_of(error)
    _say(f"ERROR: {message}")
    return code


def _say(text: str) -> None:
    """A line on stderr. Not print(): what it buffers and can't write (disk full) would change the exit code later."""
    try:
        os.write(2, (text + "\n").encode("utf-8", "backslashreplace"))
    except OSError:
        return


class _Arguments(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OperatorError(f"command line: {message}", hint="Expected --home DIR GROUP")


def _arguments(program: Program, argv: Sequence[str]) -> tuple[str, str]:
    parser = _Arguments(add_help=False)
    parser.add_argument("--home", required=True)
    if program.kind != "MANAGER":
        parser.add_argument("group")
    found = parser.parse_args(list(argv))
    return found.home, MANAGER if program.kind == "MANAGER" else group_name(found.group)


def _registered(home: Home, group: str, program: Program) -> Registration:
    reg = registration.load(home, group)
    if (reg.kind, reg.source) != (program.kind, program.source):
        raise OperatorError(
            f"group {group} is registered as {reg.kind} of {reg.source}, "
            f"this program runs {program.kind} of {program.source}",
            hint="Start it with START in ggsci",
        )
    return reg


def _take_lock(home: Home, group: str) -> Lock:
    try:
        return home.fs.lock(home.lock(group))
    except LockedError as error:
        pid = status.lock_holder(home.lock(group)) or "(unknown)"
        raise LockedError(f"{group} is already running as process {pid}", hint="STOP it first") from error


def check_group(statements: Sequence[Statement], kind: str, group: str, path: str) -> None:
    """Raise ParamError unless the file's first parameter names this group."""
    first = statements[0] if statements else None
    if first is None or first.keyword != kind:
        shown = first.keyword if first else "nothing"
        raise ParamError(f"{path}:{first.line if first else 1}: expected {kind} {group} first, found {shown}")
    if first.text.upper() != group:
        raise first.error(f"the name of this group, {group}")


def _common(statements: Sequence[Statement]) -> Values:
    """The parameters that the runtime obeys itself; the program's own check has accepted them before."""
    known = SHARED | TIMED_VERBS
    return params.check([s for s in statements if s.keyword in known], known, "trailgate")


class _Turns:
    """A chore: the process file shows when the main loop last came round (status.py), to about a second."""

    def __init__(self, path: str, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._last = 0.0

    def __call__(self, now: float) -> None:
        if now - self._last >= TURN_SECONDS:
            self._last = now
            status.turned(self._path, self._clock.now_us())
