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
import ssl
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NoReturn

from trails import checkpoint as checkpoints
from trails.checkpoint import Checkpoint
from trails.clock import Clock, RealClock
from trails.errors import (
    EXIT_AWAY,
    EXIT_BUG,
    EXIT_OPERATOR,
    EXIT_STOPPED,
    DiskFullError,
    GateError,
    LockedError,
    OperatorError,
    ParamError,
)
from trails.fs import NO_SPACE, SCARCE, Fs, Lock, RealFs
from trails.lasting import keep_imports
from trails.runtime.home import registration, status
from trails.runtime.home.home import MANAGER, Home, group_name
from trails.runtime.home.registration import SOURCEISTABLE, SPECIALRUN, Registration
from trails.runtime.language import accepted, params, prmtext
from trails.runtime.language.globals import read as read_globals
from trails.runtime.language.params import Statement, Values
from trails.runtime.language.reportparams import SHARED, TIMED_VERBS
from trails.runtime.masking import mask, mask_parameters
from trails.runtime.process import diskguard
from trails.runtime.process.control import ControlServer
from trails.runtime.process.diskguard import DiskGuard, Limits
from trails.runtime.process.group import GroupProcess
from trails.runtime.process.loop import Chore, Process, Stop, run
from trails.runtime.process.reporting import Reporting
from trails.runtime.process.standing import TURN_SECONDS, Standing
from trails.runtime.report import answers, metrics, report
from trails.runtime.report.metrics import Meter
from trails.runtime.report.report import Log, Report, quietly
from trails.runtime.secrets.credentials import hide_file
from trails.taming import tame

LONGEST_MESSAGE = 2000
NO_CHECKPOINT = "TG-01843"


@dataclass(frozen=True, slots=True)
class Executable:
    """What main() knows of a program: the groups and tasks it runs, and its name in reports and logs."""

    kind: str
    source: str
    product: str
    task: str = ""


PROGRAMS = {
    "EXTRACT": Executable("EXTRACT", "TRANLOG", "Trailgate Capture", SOURCEISTABLE),
    "PUMP": Executable("EXTRACT", "TRAIL", "Trailgate Pump"),
    "REPLICAT": Executable("REPLICAT", "TRAIL", "Trailgate Delivery", SPECIALRUN),
    "MANAGER": Executable("MANAGER", "", "Trailgate Manager"),
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
    keep_imports()
    try:
        this = _Run.begin(PROGRAMS[program], argv, build)
    except (GateError, OSError) as error:
        return _complain(error)
    return this.to_the_end()


class _Run:
    """One run of one group, from the moment its lock is held."""

    def __init__(
        self, program: Executable, home: Home, group: str, reg: Registration | None, build: Build, log: Log, lock: Lock
    ) -> None:
        self.program = program
        self.home = home
        self.group = group
        self.registration = reg
        self.build = build
        self.clock = RealClock()
        self.stop = Stop()
        self.note = status.ProcessFile(os.getpid(), self.clock.now_us(), birth=home.fs.host.birth(os.getpid()) or "")
        self.log = log
        self.lock = lock
        self.process: Process | None = None
        self.meter: Meter | None = None
        self.reporting: Reporting | None = None
        self.standing: Standing | None = None
        self.statements: list[Statement] = []
        self.parameters: list[str] = []
        self.waits_due = 0.0

    @classmethod
    def begin(cls, program: Executable, argv: Sequence[str], build: Build) -> _Run:
        """Find home and group and take its lock; nothing of the group is touched before that."""
        home_path, group = _arguments(program, argv)
        home = Home.at(home_path, RealFs())
        log = Log(home, program.product, os.path.basename(home.prm(group)), RealClock())
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
        keep_imports()
        for each in guard:
            each.written = lambda: process.counters().bytes_out
            process.before_file(each.look)
        context.report.box("Run Time Messages")
        settings = _common(context.statements)
        self.statements = context.statements
        self.reporting = Reporting(process, settings, self.log, self.clock, lambda: self._head(context.report))
        self.meter = Meter(process.counters, self.clock)
        with closing(self._listen(process)) as control:
            chores: list[Chore] = [*guard, *self._chores(self.reporting, control)]
            self._note(state="RUNNING", waits=status.FIRST_TURN)
            self.log.info(report.STARTED, f"{self._who} started.", state="RUNNING", started_us=self.note.started_us)
            run(
                process,
                self._save,
                self.stop,
                clock=self.clock,
                checkpoint_every=settings.one("CHECKPOINTSECS", params.CHECKPOINT_SECONDS),
                control=control,
                chores=chores,
                meter=self.meter,
            )
            self._write_statistics()
            if process.finished():
                self.log.info(report.STOPPED, process.finished())
            self.log.info(report.STOPPED, f"{self._who} stopped normally.", state="STOPPED", exit_code=EXIT_STOPPED)
            return process.finished()

    def _disk_guard(self) -> list[DiskGuard]:
        """The guard of a group's process; it refuses to start where it would have to end at once. Manager: its own."""
        if self.registration is None:
            return []
        folders, limits = diskguard.folders_of(self.home, self.registration), Limits.of(read_globals(self.home))
        end = lambda error: self.stop.request(error=error)  # noqa: E731
        guard = DiskGuard(folders, limits, self.log, writes_trail=self._writes_trail, stop=end)
        guard.at_start()
        return [guard]

    @property
    def _writes_trail(self) -> bool:
        """Whether it fills this host's disk; else it only reads what others have written."""
        reg = self.registration
        return reg is not None and (bool(reg.writes) or reg.source == SOURCEISTABLE)

    def _listen(self, process: Process) -> ControlServer:
        # Only now: while a process starts, who asks it learns that at once instead of waiting.
        try:
            return ControlServer(self.home, self.group, self._answer)
        except OSError:
            process.close()
            raise

    def _open(self) -> Context:
        """Report, parameters, earlier checkpoints."""
        paper = self.log.report = Report(self.home, self.group)
        self._banner(paper)
        self.log.info(report.STARTING, f"{self._who} starting.", state="STARTING")
        path = self.home.prm(self.group)
        statements = params.parse_file(path)
        self._echo(path)
        self._environment(path, statements)
        for note in accepted.notes(statements, self._table):
            self.log.info(accepted.CODE, note)
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
        description = self.registration.desc if self.registration else ""
        paper.banner(self.program.product, report.release("(not installed)"), self.note.started_us, description)

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
    def _table(self) -> str:
        """Which of accepted.BY_KIND is this program's."""
        return self.registration.package.upper() if self.registration else self.program.kind

    @property
    def _checkpoint_path(self) -> str:
        return self.home.checkpoint(self.group, self.program.kind)

    def _save(self, checkpoint: Checkpoint) -> None:
        """The runtime knows these fields, the process all others.

        Who waits for a database or a peer may have nothing to do for that very reason: his 0 is not known. Who has lost
        the group's lock to another process (LockedError) leaves that one's checkpoint as it is.
        """
        self._hold()
        waits = self.process.waits_for() if self.process else ""
        unknown = bool(waits) and not waits.startswith(status.FOR_TRAIL) and not checkpoint.lag_us
        done = dataclasses.replace(
            checkpoint, started_us=self.note.started_us, saved_us=self.clock.now_us(), record_source="A",
            lag_us=None if unknown else checkpoint.lag_us,
        )  # fmt: skip
        try:
            checkpoints.save(self.home.fs, self._checkpoint_path, done)
        except DiskFullError as error:
            if self._writes_trail:
                raise
            # Who reads trails is who can empty the disk; a later save does for this one.
            self.log.warning(NO_CHECKPOINT, f"{error.message}: the checkpoint stays as it was", alike="checkpoint")
            return
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
            return answers.plain(self._metrics())
        if verb == "GETLAG" and isinstance(self.process, GroupProcess):
            return answers.plain(metrics.checked(self.process.lag(), self.clock.now_us()))
        if verb == "GETPARAMINFO":
            return self._parameter_info(str(args.get("name") or "").upper())
        if verb == "STATS":
            return self._stats(reset=bool(args.get("reset")))
        if verb == "REPORT":
            self.log.info(report.COMMAND, "Command received: REPORT.")
            self._write_statistics()
            return {"report": self.home.report(self.group)}
        answer = self.process.command(verb, args) if self.process else {}
        return {**answer, "unwritten": self.log.unwritten} if verb == "STATUS" and self.log.unwritten else answer

    def _metrics(self) -> answers.MetricsAnswer:
        """What METRICS answers (metrics.py): the process itself tells only what the meter can't know."""
        if not isinstance(self.process, GroupProcess) or self.meter is None or self.registration is None:
            raise OperatorError(f"{self._who} measures nothing", hint="SEND it STATUS")
        now_us = self.clock.now_us()
        lag = metrics.checked(self.process.lag(), now_us)
        return metrics.reply(self._table, self.group, self.meter, now_us, self.process.metrics(), lag)

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
            raise OperatorError(f"{self._who} counts nothing", hint="SEND it STATUS")
        reply = stats.to_reply()
        if reset:
            self.log.info(report.COMMAND, "Command received: STATS, RESET.")
            stats.reset()
        return reply

    # --- report ---

    def _chores(self, reporting: Reporting, control: ControlServer) -> list[Chore]:
        self.standing = Standing(
            self.home, self.home.status(self.group, self.program.kind), self.clock, self.log, lock=self.lock,
            note=lambda: self.note, registration=self.registration, control=control, stop=self.stop,
        )  # fmt: skip
        return [self.standing, self._note_waiting, *reporting.chores()]

    def _note_waiting(self, now: float) -> None:
        """A chore: the process file says for whom the work waits, so that nobody has to ask a process that hangs."""
        waits = self.process.waits_for()[:LONGEST_MESSAGE] if self.process else ""
        if waits == self.note.waits or (waits and now < self.waits_due):
            return
        self.waits_due = now + TURN_SECONDS
        quietly(self._note, waits=waits)

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
        """Write the exit code down, then let the group go. If another process has it, its file stays."""
        stop = "G" if code == EXIT_STOPPED else "A"
        quietly(self.log.end)
        try:
            now = self.clock.now_us()
            ended = message[:LONGEST_MESSAGE]
            self._note(state="ENDED", stop=stop, exit_code=code, message=ended, ended_us=now, waits="")
        except LockedError:
            pass  # it was told what ended us
        except (GateError, OSError) as error:
            # Nothing more can be written. Unrecorded, the end shows as ABENDED with exit code 3.
            if code == EXIT_STOPPED:
                code = EXIT_OPERATOR
                _say(f"{self._who}: {exit_of(error)[1]}")
        self.lock.release()
        return code

    def _hold(self) -> None:
        """LockedError where the group is another's."""
        if self.standing is not None:
            self.standing.hold()
        else:
            self.lock.keep()

    def _note(self, **changes: Any) -> None:
        self._hold()
        self.note = dataclasses.replace(self.note, **changes)
        try:
            status.write(self.home.fs, self.home.status(self.group, self.program.kind), self.note)
        except DiskFullError as error:
            if self.note.state == "ENDED":
                raise
            self.log.warning(
                report.UNWRITTEN, f"{error.message}: INFO shows STARTING until there is space", alike="status"
            )


_CODES = {EXIT_BUG: report.BUG, EXIT_OPERATOR: report.FAILED, EXIT_AWAY: report.AWAY}


def exit_of(error: BaseException) -> tuple[int, str]:
    """(exit code, message for people) of whatever ended a process."""
    if isinstance(error, GateError):
        return error.exit_code, mask(str(error))
    if _is_lost_link(error):
        return EXIT_AWAY, mask(f"connection lost: {error}")
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return EXIT_AWAY, "the system has no memory left for this process"
    if _is_scarce(error):
        return EXIT_AWAY, mask(f"the system has too little left for this process: {error}. See ulimit -n and ulimit -u")
    if isinstance(error, OSError) and (error.filename or error.errno in _OPERATORS):
        name = f"{error.filename}: " if error.filename else ""
        code = EXIT_AWAY if error.errno in NO_SPACE else EXIT_OPERATOR
        return code, mask(f"{name}{error.strerror}. Mend that, then START again")
    return EXIT_BUG, mask(f"bug in Trailgate: {type(error).__name__}: {error} (see the report)")


def _is_lost_link(error: BaseException) -> bool:
    """Whoever knows the peer has told it better: this is for what nobody caught. The numbers of TLS are no errnos."""
    return isinstance(error, (ConnectionError, TimeoutError, socket.gaierror, socket.herror, ssl.SSLError)) or (
        isinstance(error, OSError) and error.errno in _UNREACHABLE
    )


def _is_scarce(error: BaseException) -> bool:
    """No descriptor, process or thread more just now: who else uses them up may end."""
    if isinstance(error, OSError):
        return error.errno in SCARCE
    return isinstance(error, RuntimeError) and str(error) == "can't start new thread"  # Python's only word of it


_UNREACHABLE = frozenset(
    (errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENOTCONN)
)

_OPERATORS = frozenset(
    (
        *NO_SPACE,
        errno.EFBIG,
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.EIO,
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
        os.write(2, (tame(text) + "\n").encode("utf-8", "backslashreplace"))
    except OSError:
        return


class _Arguments(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OperatorError(f"command line: {message}", hint="Expected --home DIR GROUP")


def _arguments(program: Executable, argv: Sequence[str]) -> tuple[str, str]:
    parser = _Arguments(add_help=False)
    parser.add_argument("--home", required=True)
    if program.kind != "MANAGER":
        parser.add_argument("group")
    found = parser.parse_args(list(argv))
    return found.home, MANAGER if program.kind == "MANAGER" else group_name(found.group)


def _registered(home: Home, group: str, program: Executable) -> Registration:
    reg = registration.load(home, group)
    if reg.kind != program.kind or reg.source not in (program.source, program.task):
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
        pid = home.fs.lock_holder(home.lock(group)) or "(unknown)"
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
