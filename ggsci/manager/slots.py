"""The Manager's look at the slots of Extracts that do not run: nobody else watches how much log they keep back.

    each CHECKMINUTES   a stopped, registered Extract's slot is asked about (a sub-process of extract.admin)
    lost                an ERROR line: only a re-sync helps
    WALWARN, WALCRITICAL of the group's own file   a WARNING line

Rule: the Manager's loop never waits for a database. One thread at a time asks, one group after the other, each for a
bounded time; the loop writes the lines. The same news of a group is said again after REPEAT_SECONDS only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ggsci.facts import gather
from ggsci.flow import slots
from trails.errors import GateError
from trails.runtime.home import registration as registrations
from trails.runtime.home.home import Home
from trails.runtime.report.answers import KeptAnswer, plain
from trails.runtime.report.report import Log

LOG_KEPT, LOST = "TG-01755", "TG-01756"
REPEAT_SECONDS = 3600.0
MISSED = 2
FIRST_SECONDS = 5.0
"""After the Manager's start: AUTOSTART comes first."""

Found = tuple[str, KeptAnswer]


class SlotChecks:
    """Asks about the slots of what is stopped; `step` is called by the Manager's loop."""

    def __init__(self, home: Home, log: Log, now: float, look: Callable[[Home, str], KeptAnswer] | None = None) -> None:
        self._home = home
        self._log = log
        self._look = look or slots.of_stopped
        self._due = now + FIRST_SECONDS
        self._thread: threading.Thread | None = None
        self._found: list[Found] = []
        self._said: dict[str, tuple[tuple[str, int], float]] = {}
        self._last: dict[str, KeptAnswer] = {}
        self._looked = self._every = 0.0

    def step(self, now: float, every: float) -> None:
        """Say what was found; begin to look again when it is time."""
        if self._thread is not None:
            if self._thread.is_alive():
                return
            self._thread = None
            self._looked, self._last, self._every = now, dict(self._found), every
            for name, kept in self._found:
                self._tell(name, kept, now)
        if now < self._due:
            return
        self._due = now + every
        stopped = self._stopped()
        if stopped:
            self._found = []
            self._thread = threading.Thread(target=self._ask, args=(stopped,), name="slots", daemon=True)
            self._thread.start()

    def rows(self, now: float) -> dict[str, dict[str, Any]]:
        """For STATUS: what the last look found, by METRICS' names; nothing once the next one is overdue."""
        if now - self._looked > MISSED * self._every:
            return {}
        return {
            name: {
                key: value
                for key, value in plain(kept).items()
                if key.startswith("log_") and (value or kept.log_checked_us)
            }
            for name, kept in self._last.items()
        }

    def _stopped(self) -> list[str]:
        """Extracts with a slot that nothing reads. Raises GateError for a registration that can't be read."""
        groups = [gather(self._home, registration, 0) for registration in registrations.lasting(self._home)]
        return [group.name for group in groups if slots.is_registered(group) and group.status in ("STOPPED", "ABENDED")]

    def _ask(self, names: list[str]) -> None:
        for name in names:
            try:
                self._found.append((name, self._look(self._home, name)))
            except GateError:
                continue  # a database that is away keeps nobody waiting; INFO EXTRACT, DETAIL says why it is not known

    def _tell(self, name: str, kept: KeptAnswer, now: float) -> None:
        news = kept.log_status, kept.level or 0
        last, when = self._said.get(name, (("", 0), 0.0))
        if news == last and now - when < REPEAT_SECONDS:
            return
        self._said[name] = (news, now)
        if kept.lost:
            self._log.error(LOST, f"EXTRACT {name}, which is not running: {kept.lost}.")
        elif kept.text:
            self._log.warning(LOG_KEPT, f"EXTRACT {name} is not running: {kept.text}.")
