"""What a process tells people: its report `dirrpt/<GROUP>.rpt`, and its lines in the home's `ggserr.log`.

Rule: every message goes through `Log`, which masks passwords, escapes control characters, cuts what is too long for a
person, collapses what repeats (repeats.py) and puts it in both files; of rows at most keys go there.
Each line is one O_APPEND write of its own, so processes share ggserr.log (eventlog.py) and a SIGKILL leaves whole
lines. These files are for people: not synced, and what can't be written (disk full) ends nobody, as a full disk is
emptied by processes that must start and run on it. STATUS tells of missing lines, and the log once it takes some.
"""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Callable, Sequence

from trails.clock import Clock, iso_text, local_text
from trails.errors import GateError
from trails.fs import kind_of
from trails.runtime.home.home import Home
from trails.runtime.masking import mask, mask_parameters
from trails.runtime.report.eventlog import HINT, EventLog, aged, append, indented, make_room
from trails.runtime.report.repeats import Message, Repeats
from trails.taming import tame

AGED = 10
MAX_TEXT = 8192
WIDTH = 71

STARTING = "TG-00992"
STARTED = "TG-00993"
STOPPED = "TG-00994"
COMMAND = "TG-01021"
FAILED = "TG-00446"
AWAY = "TG-01224"
BUG = "TG-00001"
ABENDING = "TG-01668"
RESOLVED = "TG-06506"
UNWRITTEN = "TG-01978"
TELL_SECONDS = 60.0

__all__ = ["Log", "Report", "append", "mask", "mask_parameters", "quietly"]


class Report:
    """The report of this run. Making one ages the older ones: EXT1.rpt becomes EXT1.0.rpt, ... EXT1.9.rpt goes."""

    def __init__(self, home: Home, group: str) -> None:
        self.path = home.report(group)
        quietly(self.age)

    def age(self) -> None:
        """Begin a new file. Raises OperatorError if it can't be done; then the old one goes on."""
        try:
            if os.path.exists(self.path):
                make_room(self.path, AGED)
                os.replace(self.path, aged(self.path, 0))
        except OSError as error:
            raise kind_of(error)(f"{self.path} can't be aged: {error.strerror}", hint=HINT) from None
        append(self.path, "")

    def lines(self, lines: Sequence[str]) -> None:
        """Add lines as they are, passwords masked, control characters escaped: a name in one begins no other line."""
        quietly(append, self.path, "".join(tame(mask(line), keep="\t") + "\n" for line in lines))

    def box(self, *titles: str) -> None:
        """Add a title in a box of asterisks."""
        stars = "*" * WIDTH
        self.lines(["", stars, *(f"**{title:^{WIDTH - 4}}**" for title in titles), stars, ""])

    def banner(self, product: str, version: str, started_us: int, description: str = "") -> None:
        """The head: what runs, where, as which process, under which limits."""
        machine = platform.uname()
        platform_line = f"{machine.system}, {machine.machine}, Python {platform.python_version()}"
        self.box(product, f"Version {version}", platform_line, f"Starting at {local_text(started_us)}")
        self.lines(
            [
                f"Operating System Version: {machine.system}, {machine.release}, {machine.version}",
                f"Node: {machine.node}",
                f"Machine: {machine.machine}",
                f"{'':21}soft limit   hard limit",
                *(_limit(*item) for item in _LIMITS),
                f"Process id: {os.getpid()}",
                *([f"Description: {description}"] if description else []),
            ]
        )

    def parameters(self, text: str) -> None:
        """Echo the parameter file, passwords masked."""
        self.box("Running with the following parameters")
        self.lines(mask_parameters(text).splitlines())


_LIMITS = (
    ("Address Space Size", resource.RLIMIT_AS),
    ("Heap Size", resource.RLIMIT_DATA),
    ("File Size", resource.RLIMIT_FSIZE),
    ("Open Files", resource.RLIMIT_NOFILE),
)


def _limit(name: str, which: int) -> str:
    shown = ["unlimited" if n == resource.RLIM_INFINITY else str(n) for n in resource.getrlimit(which)]
    return f"{name:<18} : {shown[0]:>10}   {shown[1]:>10}"


class Log:
    """Messages of one process: `component` is its product name, `source` its parameter file's base name.

    Keyword arguments of a message are its fields in ggserr.json: plain values that a program need not parse out.
    `alike` names the kind of a message that can come in turns with others, all day long: few of a kind are written.
    """

    def __init__(self, home: Home, component: str, source: str, clock: Clock, report: Report | None = None) -> None:
        self._events = EventLog(home)
        self._component = component
        self._source = source
        self._clock = clock
        self._repeats = Repeats()
        self.report = report
        self._lost = 0
        self._why = ""
        self._told_at: float | None = None

    def info(self, code: str, text: str, /, *, alike: str = "", **fields: object) -> None:
        """Something an operator may want to know."""
        self._say(Message("INFO", code, text, fields), alike)

    def warning(self, code: str, text: str, /, *, alike: str = "", **fields: object) -> None:
        """Something that may need a hand later."""
        self._say(Message("WARNING", code, text, fields), alike)

    def error(self, code: str, text: str, /, *, alike: str = "", **fields: object) -> None:
        """Something that ended the process, or will."""
        self._say(Message("ERROR", code, text, fields), alike)

    def end(self) -> None:
        """The process ends: how often its last message was repeated is told."""
        for message in self._repeats.rest():
            self._write(message)

    def detail(self, code: str, text: str) -> None:
        """Something for the report of this run alone: a log of the whole home would drown in it."""
        if self.report is not None:
            head = f"{local_text(self._clock.now_us())}  {'INFO':<7} {code}"
            self._put(append, self.report.path, f"{head}  {indented(bounded(tame(mask(text))))}\n")

    @property
    def unwritten(self) -> str:
        """Why lines of log or report are missing; empty if none are that were not told of."""
        return f"{self._lost} lines of log or report could not be written: {self._why}" if self._lost else ""

    def _say(self, message: Message, alike: str) -> None:
        for each in self._repeats.to_write(message, alike, self._clock.monotonic()):
            self._write(each)

    def _write(self, message: Message) -> None:
        text, now = bounded(tame(mask(message.text))), self._clock.now_us()
        fields = {n: bounded(mask(value)) if isinstance(value, str) else value for n, value in message.fields.items()}
        event = {
            "time": iso_text(now), "time_us": now, "severity": message.severity, "code": message.code,
            "component": self._component, "group": self._group, "source": self._source, "pid": os.getpid(),
            "text": text, "fields": fields,
        }  # fmt: skip
        written = self._put(self._events.write, event)
        if self.report is not None:
            head = f"{local_text(now)}  {message.severity:<7} {message.code}"
            self._put(append, self.report.path, f"{head}  {indented(text)}\n")
        if written and self._lost:
            self._tell_lost()

    def _tell_lost(self) -> None:
        """The log takes lines again, though perhaps the report does not: so only now and then."""
        now = self._clock.monotonic()
        if self._told_at is None or now - self._told_at >= TELL_SECONDS:
            text, self._lost, self._told_at = self.unwritten, 0, now
            self._write(Message("WARNING", UNWRITTEN, text, {}))

    @property
    def _group(self) -> str:
        """A group's parameter file has its name."""
        return self._source.removesuffix(".prm").upper() if self._source.endswith(".prm") else ""

    def _put(self, write: Callable[..., object], *args: object) -> bool:
        """Whether it could be written."""
        try:
            write(*args)
        except (GateError, OSError) as error:
            self._lost += 1
            self._why = str(error)
            return False
        return True


def release(missing: str) -> str:
    """The release that runs; `missing` where it is run from its sources and was never installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("trailgate")
    except PackageNotFoundError:
        return missing


def bounded(text: str) -> str:
    """`text`, or its begin and end: a key or a database's words may be of any length, a log line is for people."""
    if len(text) <= MAX_TEXT:
        return text
    half = MAX_TEXT // 2
    return f"{text[:half]} ... ({len(text) - 2 * half} characters left out) ... {text[-half:]}"


def quietly(write: Callable[..., object], *args: object, **fields: object) -> None:
    """Call `write` where a failure can't be told: the process is ending because of one, or must go on."""
    try:
        write(*args, **fields)
    except (GateError, OSError):
        pass
