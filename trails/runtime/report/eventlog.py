"""The home's event log: `ggserr.log` for people, `ggserr.json` for programs; both rolled by size.

Every process of the home and every ggsci writes here, so nobody holds the files open: each message is one O_APPEND
write to the file that has the name then. Who finds a file at its size rolls it, under a lock:

    ggserr.8.log -> ggserr.9.log (gone before), ..., ggserr.0.log -> ggserr.1.log, ggserr.log -> ggserr.0.log

    crash, or another writer                     then
    between two renames                          a number is missing; the next roll fills it, and no other moves
    after the last rename                        there is no ggserr.log until the next message
    a writer opened the file before the rename   its line stands at the end of ggserr.0.log, whole
    two find the file too large                  one has the lock; the other sees under it that nothing is left to do

GLOBALS says how large, how many, and which of the two (`GGSERRLOG`, `LOGFORMAT`). A file with mistakes is told by those
who read it for their own sake; what must be logged meanwhile is logged by the defaults. A file that can't be rolled
grows, and says so once a writer: the message stands, and no process ends for that.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from trails.clock import local_text
from trails.errors import GateError, OperatorError
from trails.fs import kind_of
from trails.runtime.home.home import Home
from trails.runtime.language.logparams import MOST_KEPT, LogFormat, LogSize
from trails.taming import tame_json

HINT = "Mend that, then START again"
GROWS = "It grows until that is mended"
NOT_ROLLED = "TG-01977"
_NAMED = re.compile(rb"(?i)GGSERRLOG|LOGFORMAT|INCLUDE|OBEY|MACRO")


def settings(home: Home) -> tuple[LogSize, LogFormat]:
    """What GLOBALS says of the log. The file is parsed only if it may say anything: ggsci logs each command."""
    with suppress(OSError, GateError):
        with open(home.globals, "rb") as file:
            named = _NAMED.search(file.read())
        if named:
            from trails.runtime.language.globals import read

            found = read(home)
            return found.one("GGSERRLOG", LogSize()), found.one("LOGFORMAT", LogFormat())
    return LogSize(), LogFormat()


def current(home: Home) -> str:
    """The file that messages go to now; text, where they go to both."""
    wanted, other = home.ggserr, home.ggserr_json
    if not settings(home)[1].text:
        wanted, other = other, wanted
    return wanted if os.path.exists(wanted) or not os.path.exists(other) else other


def indented(text: str) -> str:
    """Continuation lines are, so that a line that begins with a time is always a message's first."""
    return text.replace("\n", "\n    ")


def line_of(event: dict[str, Any]) -> str:
    """A message as ggserr.log has it (goldengate.md 8.4), from its object."""
    component = ", ".join(filter(None, (event["component"], event["source"])))
    head = f"{local_text(event['time_us'])}  {event['severity']:<7} {event['code']}"
    return f"{head}  {component}:  {indented(event['text'])}\n"


def line_of_json(line: str) -> str:
    """A line of ggserr.json as ggserr.log would have it; as it stands, if it is no message."""
    try:
        return line_of(json.loads(line)).rstrip("\n")
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, OSError, RecursionError):
        return line


class EventLog:
    """The log of one home, for one writer. Settings are read once, at the first message."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._settings: tuple[LogSize, LogFormat] | None = None
        self._told = False  # that a file can't be rolled

    def write(self, event: dict[str, Any]) -> None:
        """One message, as a line of text and as an object. Raises OperatorError if it can't be written."""
        if self._settings is None:
            self._settings = settings(self._home)
        size, form = self._settings
        if form.text:
            self._append(self._home.ggserr, line_of, event, size)
        if form.json:
            self._append(self._home.ggserr_json, _json_line, event, size)

    def _append(self, path: str, form: Callable[[dict[str, Any]], str], event: dict[str, Any], size: LogSize) -> None:
        if append(path, form(event)) < size.megabytes << 20:
            return
        try:
            roll(self._home, path, size)
        except OperatorError as error:
            if not self._told:
                self._told = True
                told = {"severity": "WARNING", "code": NOT_ROLLED, "text": str(error), "fields": {}}
                append(path, form(event | told))


def _json_line(event: dict[str, Any]) -> str:
    return tame_json(event, default=str) + "\n"


def append(path: str, text: str) -> int:
    """Add `text` to a log in one write; the file's size then. Raises OperatorError if that fails."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            data = memoryview(text.encode("utf-8", "backslashreplace"))
            while data:
                data = data[os.write(fd, data) :]
            return os.fstat(fd).st_size
        finally:
            os.close(fd)
    except OSError as error:
        raise kind_of(error)(f"{path} can't be written: {error.strerror}", hint=HINT) from None


def aged(path: str, age: int) -> str:
    """An older file: `ggserr.0.log` is the youngest of them."""
    stem, suffix = os.path.splitext(path)
    return f"{stem}.{age}{suffix}"


def roll(home: Home, path: str, size: LogSize) -> bool:
    """Begin a new file if this one has its size, and nobody else is about to. Raises OperatorError if it can't be."""
    try:
        fd = os.open(os.path.join(home.folder("dirpcs"), ".ggserr.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return _roll(path, size)
        except BlockingIOError:
            return False
        finally:
            os.close(fd)
    except OSError as error:
        raise OperatorError(f"{path} can't be rolled over: {error.strerror}", hint=GROWS) from None


def _roll(path: str, size: LogSize) -> bool:
    if not os.path.exists(path) or os.path.getsize(path) < size.megabytes << 20:
        return False
    age = size.keep
    while age <= MOST_KEPT and os.path.exists(aged(path, age)):  # KEEP was larger before
        os.unlink(aged(path, age))
        age += 1
    make_room(path, size.keep)
    os.replace(path, aged(path, 0))
    return True


def make_room(path: str, keep: int) -> None:
    """Leave no `aged(path, 0)`: each older file gets the next number, up to one that is free; the oldest goes."""
    free = next((age for age in range(keep) if not os.path.exists(aged(path, age))), keep - 1)
    for age in range(free, 0, -1):
        os.replace(aged(path, age - 1), aged(path, age))
