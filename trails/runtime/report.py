"""What a process tells people: its report `dirrpt/<GROUP>.rpt`, and its lines in the home's `ggserr.log`.

Rule: every message goes through `Log`, which masks passwords and puts it in both files; row values never go there.
Each line is one O_APPEND write of its own, so processes share ggserr.log and a SIGKILL leaves whole lines. These two
files are for people: not synced, but a failed write (disk full) is an error like any other, never a traceback.
"""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Callable, Sequence

from trails.errors import GateError, OperatorError
from trails.runtime.clock import Clock, local_text
from trails.runtime.home import Home
from trails.runtime.masking import mask, mask_parameters

AGED = 10
WIDTH = 71
_HINT = "Mend that, then START again"

STARTING = "TG-00992"
STARTED = "TG-00993"
STOPPED = "TG-00994"
COMMAND = "TG-01021"
FAILED = "TG-00446"
AWAY = "TG-01224"
BUG = "TG-00001"
ABENDING = "TG-01668"

__all__ = ["Log", "Report", "append", "mask", "mask_parameters", "quietly"]


def append(path: str, text: str) -> None:
    """Add `text` to a log in one write. Raises OperatorError if that fails."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            data = memoryview(text.encode("utf-8", "backslashreplace"))
            while data:
                data = data[os.write(fd, data) :]
        finally:
            os.close(fd)
    except OSError as error:
        raise OperatorError(f"{path} can't be written: {error.strerror}", hint=_HINT) from None


class Report:
    """The report of this run. Making one ages the older ones: EXT1.rpt becomes EXT1.0.rpt, ... EXT1.9.rpt goes."""

    def __init__(self, home: Home, group: str) -> None:
        self.path = home.report(group)
        try:
            for age in range(AGED - 1, -1, -1):
                older = home.report(group, age - 1 if age else None)
                if os.path.exists(older):
                    os.replace(older, home.report(group, age))
        except OSError as error:
            raise OperatorError(f"{self.path} can't be aged: {error.strerror}", hint=_HINT) from None
        append(self.path, "")

    def lines(self, lines: Sequence[str]) -> None:
        """Add lines as they are, passwords masked."""
        append(self.path, mask("".join(line + "\n" for line in lines)))

    def box(self, *titles: str) -> None:
        """Add a title in a box of asterisks."""
        stars = "*" * WIDTH
        self.lines(["", stars, *(f"**{title:^{WIDTH - 4}}**" for title in titles), stars, ""])

    def banner(self, product: str, version: str, started_us: int) -> None:
        """The head: what runs, where, as which process, under which limits."""
        machine = platform.uname()
        self.box(product, f"Version {version}", f"Starting at {local_text(started_us)}")
        self.lines(
            [
                f"Operating System Version: {machine.system}, {machine.release}, {machine.version}",
                f"Node: {machine.node}",
                f"Machine: {machine.machine}",
                f"Python: {platform.python_version()}",
                f"{'':21}soft limit   hard limit",
                *(_limit(*item) for item in _LIMITS),
                f"Process id: {os.getpid()}",
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
    """Messages of one process: `component` is its product name, `source` its parameter file's base name."""

    def __init__(self, home: Home, component: str, source: str, clock: Clock, report: Report | None = None) -> None:
        self._path = home.ggserr
        self._component = f"{component}, {source}" if source else component
        self._clock = clock
        self.report = report
        self.must_write = True
        """False: a line that can't be written is lost, and nothing else: the Manager has to outlive a full disk."""

    def info(self, code: str, text: str) -> None:
        """Something an operator may want to know."""
        self._write("INFO", code, text)

    def warning(self, code: str, text: str) -> None:
        """Something that may need a hand later."""
        self._write("WARNING", code, text)

    def error(self, code: str, text: str) -> None:
        """Something that ended the process, or will."""
        self._write("ERROR", code, text)

    def _write(self, severity: str, code: str, text: str) -> None:
        # Continuation lines are indented, so that a line that begins with a time is always a message's first.
        text = mask(text).replace("\n", "\n    ")
        head = f"{local_text(self._clock.now_us())}  {severity:<7} {code}"
        lines = [(self._path, f"{head}  {self._component}:  {text}\n")]
        if self.report is not None:
            lines.append((self.report.path, f"{head}  {text}\n"))
        for path, line in lines:
            if self.must_write:
                append(path, line)
            else:
                quietly(append, path, line)


def quietly(write: Callable[..., object], *args: object) -> None:
    """Call `write(*args)` where a failure can't be told: the process is ending because of one, or must go on."""
    try:
        write(*args)
    except (GateError, OSError):
        pass
