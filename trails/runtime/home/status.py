"""Whether a group runs, and how its last run ended: from its lock and its process file, never from memory.

    lock held   process file of this run says STARTING or RUNNING     STARTING, RUNNING; the file's time: last loop turn
    lock free   no process file                                       STOPPED (never started)
                stop "G": the run ended as asked                      STOPPED
                stop "A": it ended by an error, or just died          ABENDED

A start writes stop "A" first and only a clean end rewrites it to "G", so a process killed at any moment shows ABENDED
the moment somebody looks. The exit code is written before the exit; a death without one counts as EXIT_AWAY (3):
nobody was told to mend anything, so trying again is right.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum

from trails.errors import EXIT_AWAY, OperatorError
from trails.fs import Fs, overwrite, read_bytes, replace_durably
from trails.runtime.home import plain
from trails.runtime.home.home import MANAGER, Home
from trails.runtime.home.registration import Registration


class Status(StrEnum):
    """What INFO shows."""

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    ABENDED = "ABENDED"

    @property
    def is_alive(self) -> bool:
        """Whether a process is there."""
        return self in (Status.STARTING, Status.RUNNING)


@dataclass(frozen=True, slots=True)
class ProcessFile:
    """What a process notes about itself in dirpcs: at start, when it is up, and before it exits."""

    pid: int
    started_us: int
    state: str = "STARTING"  # STARTING | RUNNING | ENDED
    stop: str = "A"  # A: not (yet) ended as asked; G: ended as asked
    exit_code: int | None = None
    message: str = ""
    ended_us: int | None = None
    waits: str = ""  # while it runs: for whom its work waits, and why
    birth: str = ""  # with pid: which process (Host.birth); empty in a file of an earlier release


FIRST_TURN = "Waiting for its first turn of work"
FOR_TRAIL = "Waiting for trail"
"""A reader whose trail has no file yet has done what can be done: it is not starting any more."""


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """Status of a group now; pid only while it lives, exit code and message only when it does not."""

    status: Status
    pid: int | None = None
    started_us: int | None = None
    exit_code: int | None = None
    message: str = ""
    ended_us: int | None = None
    stop: str = "G"
    turned_us: int | None = None
    """When the process was last seen at work, while it runs: its last loop turn, to about a second. The process
    file's time tells (standing.py), also of a process that hangs, which holds its lock and answers nobody."""
    waits: str = ""
    """For whom its work waits, while it runs; the first turn of its work is done when this is empty, or a trail."""

    @property
    def works(self) -> bool:
        """Whether it runs, and has done the first turn of its work."""
        return self.status is Status.RUNNING and (not self.waits or self.waits.startswith(FOR_TRAIL))

    @property
    def is_process(self) -> bool:
        """Whether `pid` has written the process file. Else the lock may be held by a command of ggsci."""
        return self.pid is not None and self.started_us is not None


def write(fs: Fs, path: str, note: ProcessFile) -> None:
    """Put the process file in place, durably.

    On a full disk the old file is overwritten, which takes no space: an end by error must not show as STOPPED.
    """
    data = json.dumps(asdict(note)).encode()
    try:
        replace_durably(fs, path, data)
    except OperatorError:
        if not fs.exists(path):
            raise
        overwrite(fs, path, data)


def read(fs: Fs, path: str) -> ProcessFile | None:
    """The process file, or None if there is none. One that can't be understood stands for an end by error."""
    try:
        data = read_bytes(fs, path)
    except FileNotFoundError:
        return None
    try:
        return plain.of(ProcessFile, json.loads(data))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return ProcessFile(0, 0, "ENDED", "A", EXIT_AWAY, f"{path} can't be read")


def status_of(home: Home, reg: Registration) -> GroupStatus:
    """Status of a registered group."""
    return _status(home, reg.name, reg.kind)


def manager_status(home: Home) -> GroupStatus:
    """Status of the home's Manager."""
    return _status(home, MANAGER, "MANAGER")


def _status(home: Home, group: str, kind: str) -> GroupStatus:
    # The lock is looked at first: a run that ends in between has then written its process file.
    holder = home.fs.lock_holder(home.lock(group))
    note = read(home.fs, home.status(group, kind))
    if holder is None:
        return _ended(note)
    if note is None or note.pid != holder or _is_stranger(home, note):
        return GroupStatus(Status.STARTING, holder, stop="A")
    if note.state == "ENDED":
        return _ended(note)
    turned = home.fs.touched_us(home.status(group, kind))
    return GroupStatus(Status(note.state), note.pid, note.started_us, stop="A", turned_us=turned, waits=note.waits)


def _is_stranger(home: Home, note: ProcessFile) -> bool:
    """Whether the number of a process that died belongs to another now, such as ggsci at work on the group."""
    found = home.fs.host.birth(note.pid) if note.birth else None
    return found is not None and found != note.birth


def _ended(note: ProcessFile | None) -> GroupStatus:
    if note is None:
        return GroupStatus(Status.STOPPED)
    code = note.exit_code if note.state == "ENDED" else EXIT_AWAY
    message = note.message if note.state == "ENDED" else f"process {note.pid} died without a word"
    status = Status.STOPPED if note.stop == "G" else Status.ABENDED
    return GroupStatus(status, None, note.started_us, code, message, note.ended_us, note.stop)
