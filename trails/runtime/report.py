"""What a process tells people: its report `dirrpt/<GROUP>.rpt`, and its lines in the home's `ggserr.log`.

Rule: every message goes through `Log`, which masks passwords, escapes control characters, collapses what repeats
(repeats.py) and puts it in both files; of rows at most keys go there.
Each line is one O_APPEND write of its own, so processes share ggserr.log (eventlog.py) and a SIGKILL leaves whole
lines. These files are for people: not synced, but a failed write (disk full) is an error like any other, never a
traceback.
"""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Callable, Sequence

from trails.errors import DiskFullError, GateError, OperatorError
from trails.fs import NO_SPACE
from trails.runtime.clock import Clock, iso_text, local_text
from trails.runtime.eventlog import HINT, EventLog, aged, append, indented, make_room
from trails.runtime.home import Home
from trails.runtime.masking import mask, mask_parameters
from trails.runtime.repeats import Message, Repeats

AGED = 10
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

__all__ = ["Log", "Report", "append", "mask", "mask_parameters", "quietly"]


class Report:
    """The report of this run. Making one ages the older ones: EXT1.rpt becomes EXT1.0.rpt, ... EXT1.9.rpt goes.

    `must_write` False: what can't be written is lost, and nothing else, as in `Log`.
    """

    def __init__(self, home: Home, group: str, *, must_write: bool = True) -> None:
        self.path = home.report(group)
        self._must_write = must_write
        self.age()

    def age(self) -> None:
        """Begin a new file."""
        if self._must_write:
            self._age()
        else:
            quietly(self._age)

    def _age(self) -> None:
        try:
            if os.path.exists(self.path):
                make_room(self.path, AGED)
                os.replace(self.path, aged(self.path, 0))
        except OSError as error:
            kind = DiskFullError if error.errno in NO_SPACE else OperatorError
            raise kind(f"{self.path} can't be aged: {error.strerror}", hint=HINT) from None
        append(self.path, "")

    def lines(self, lines: Sequence[str]) -> None:
        """Add lines as they are, passwords masked."""
        text = mask("".join(line + "\n" for line in lines))
        if self._must_write:
            append(self.path, text)
        else:
            quietly(append, self.path, text)

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
        self.must_write = True
        """False: a line that can't be written is lost, and nothing else: the Manager has to outlive a full disk."""

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
            self._put(append, self.report.path, f"{head}  {indented(tame(mask(text)))}\n")

    def _say(self, message: Message, alike: str) -> None:
        for each in self._repeats.to_write(message, alike, self._clock.monotonic()):
            self._write(each)

    def _write(self, message: Message) -> None:
        text, now = tame(mask(message.text)), self._clock.now_us()
        fields = {name: mask(value) if isinstance(value, str) else value for name, value in message.fields.items()}
        event = {
            "time": iso_text(now), "time_us": now, "severity": message.severity, "code": message.code,
            "component": self._component, "group": self._group, "source": self._source, "pid": os.getpid(),
            "text": text, "fields": fields,
        }  # fmt: skip
        self._put(self._events.write, event)
        if self.report is not None:
            head = f"{local_text(now)}  {message.severity:<7} {message.code}"
            self._put(append, self.report.path, f"{head}  {indented(text)}\n")

    @property
    def _group(self) -> str:
        """A group's parameter file has its name."""
        return self._source.removesuffix(".prm").upper() if self._source.endswith(".prm") else ""

    def _put(self, write: Callable[..., object], *args: object) -> None:
        if self.must_write:
            write(*args)
        else:
            quietly(write, *args)


def tame(text: str) -> str:
    """`text` without what a terminal would obey or show as a line of its own: keys, names and what databases say."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def quietly(write: Callable[..., object], *args: object, **fields: object) -> None:
    """Call `write` where a failure can't be told: the process is ending because of one, or must go on."""
    try:
        write(*args, **fields)
    except (GateError, OSError):
        pass
