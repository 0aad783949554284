"""A chore: what a process has in its home must stand there as long as it runs. Somebody may have deleted it.

    deleted or replaced      what it would cost                              what is done, within a second
    the group's lock         it shows as ended; a second process could start   taken anew; if another has it, or had it
                                                                               meanwhile, ours ends
    the process file         INFO shows STARTING for ever                    written anew
    the registration         purging would not know of this reader           written anew, as it was at the start
    the control socket       nobody can ask or stop it                       made anew

A registration counts as replaced by one that can't be read, by another group's, and by an older copy: one from before
the last ALTER or START with an order, so that what commands noted since would be forgotten. A checkpoint file is
replaced at each save, logs and reports are opened for each line, a discard file for each batch: they come back by
themselves. Trail files: keeping.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trails.clock import Clock
from trails.errors import DamageError, GateError, LockedError
from trails.fs import Lock
from trails.host import is_younger
from trails.runtime.home import registration, status
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registration
from trails.runtime.home.status import ProcessFile
from trails.runtime.process.control import ControlServer
from trails.runtime.process.loop import Stop
from trails.runtime.report.report import Log

TURN_SECONDS = 1.0
GONE = "TG-01851"


@dataclass(slots=True)
class Standing:
    """Called in each turn of the main loop; works once a second. It also sets the process file's time (status.py)."""

    home: Home
    process_file: str
    clock: Clock
    log: Log
    lock: Lock
    note: Callable[[], ProcessFile]
    """What the process file says now."""
    registration: Registration | None
    control: ControlServer
    stop: Stop
    last: float = 0.0
    followed_by: int = 0
    """The process that had the group after ours."""

    def __call__(self, now: float) -> None:
        """Look if it is time."""
        if now - self.last < TURN_SECONDS:
            return
        self.last = now
        try:
            self.hold()
        except LockedError as error:
            self.stop.request(forced=True, error=error)
            return
        self._renew("process file", self._renew_process_file)
        self._renew("registration", self._renew_registration)
        self._renew("control socket", self.control.renew)

    def hold(self) -> None:
        """The group is still ours: LockedError where another process has it, or had it while the lock was gone.

        What that one has saved is newer than what ours knows. Asked before each save, and before the end is noted.
        """
        self._renew("lock", self._renew_lock)
        if self.followed_by:
            raise LockedError(
                f"{self.process_file}: process {self.followed_by} had this group while the lock was gone",
                hint="INFO shows how that one ended; START the group if it is to run",
            )

    def _renew(self, what: str, renew: Callable[[], bool]) -> None:
        try:
            if renew():
                self.log.warning(GONE, f"The {what} of this process was removed or replaced; it was made anew.")
        except LockedError:
            raise
        except (GateError, OSError) as error:
            self.log.warning(GONE, f"The {what} of this process is gone, and can't be made anew: {error}", alike=what)

    def _renew_lock(self) -> bool:
        if not self.lock.keep():
            return False
        found = status.read(self.home.fs, self.process_file)
        if found is not None and is_younger(found.birth, self.note().birth):
            self.followed_by = found.pid
        return True

    def _renew_process_file(self) -> bool:
        fs, note = self.home.fs, self.note()
        found = status.read(fs, self.process_file)
        ours = found is not None and (found.pid, found.started_us) == (note.pid, note.started_us)
        if ours and fs.touch(self.process_file, self.clock.now_us()):
            return False
        status.write(fs, self.process_file, note)
        return True

    def _renew_registration(self) -> bool:
        ours = self.registration
        if ours is None:
            return False
        try:
            found = registration.find(self.home, ours.name)
        except DamageError:
            found = None
        if found is not None and _is_from(found, ours):
            return False
        registration.save(self.home, ours)
        return True


def _is_from(found: Registration, ours: Registration) -> bool:
    """Whether it is ours, or what became of it."""
    return found.name == ours.name and found.alter_no >= ours.alter_no and found.start_no >= ours.start_no
