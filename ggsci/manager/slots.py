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

from ggsci import slots
from ggsci.facts import gather
from trails.errors import GateError
from trails.runtime import registration as registrations
from trails.runtime.home import Home
from trails.runtime.report import Log

LOG_KEPT, LOST = "TG-01755", "TG-01756"
REPEAT_SECONDS = 3600.0
FIRST_SECONDS = 5.0
"""After the Manager's start: AUTOSTART comes first."""

Found = tuple[str, dict[str, Any]]


class SlotChecks:
    """Asks about the slots of what is stopped; `step` is called by the Manager's loop."""

    def __init__(
        self, home: Home, log: Log, now: float, look: Callable[[Home, str], dict[str, Any]] | None = None
    ) -> None:
        self._home = home
        self._log = log
        self._look = look or slots.of_stopped
        self._due = now + FIRST_SECONDS
        self._thread: threading.Thread | None = None
        self._found: list[Found] = []
        self._said: dict[str, tuple[tuple[str, int], float]] = {}

    def step(self, now: float, every: float) -> None:
        """Say what was found; begin to look again when it is time."""
        if self._thread is not None:
            if self._thread.is_alive():
                return
            self._thread = None
            for name, facts in self._found:
                self._tell(name, facts, now)
        if now < self._due:
            return
        self._due = now + every
        stopped = self._stopped()
        if stopped:
            self._found = []
            self._thread = threading.Thread(target=self._ask, args=(stopped,), name="slots", daemon=True)
            self._thread.start()

    def _stopped(self) -> list[str]:
        """Extracts with a slot that nothing reads. Raises GateError for a registration that can't be read."""
        groups = [gather(self._home, registration, 0) for registration in registrations.all(self._home)]
        return [group.name for group in groups if slots.has_slot(group) and group.status in ("STOPPED", "ABENDED")]

    def _ask(self, names: list[str]) -> None:
        for name in names:
            try:
                self._found.append((name, self._look(self._home, name)))
            except GateError:
                continue  # a database that is away keeps nobody waiting; INFO EXTRACT, DETAIL says why it is not known

    def _tell(self, name: str, facts: dict[str, Any], now: float) -> None:
        news = (str(facts.get("wal_status")), int(facts.get("level") or 0))
        last, when = self._said.get(name, (("", 0), 0.0))
        if news == last and now - when < REPEAT_SECONDS:
            return
        self._said[name] = (news, now)
        if facts.get("lost"):
            self._log.error(LOST, f"EXTRACT {name}, which is not running: {facts['lost']}.")
        elif facts.get("text"):
            self._log.warning(LOG_KEPT, f"EXTRACT {name} is not running: {facts['text']}.")
