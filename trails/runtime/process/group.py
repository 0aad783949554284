"""The process of a group: Extract, pump or Replicat. It tells where it stands, and the requests that all of them know.

Rule: a group says what it knows as answers.py has it. What STATUS, GETLAG, LOGEND and METRICS show is made of that
here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from trails.runtime.process.control import unknown
from trails.runtime.process.loop import Process
from trails.runtime.report.answers import LagAnswer, MetricsAnswer, StatusAnswer, plain

Request = Callable[[dict[str, Any]], dict[str, Any]]


class GroupProcess(Process):
    """Inherit from it. `called`: its kind, for messages."""

    called: str

    @abstractmethod
    def status(self) -> StatusAnswer:
        """For STATUS, and for a report's last record."""

    @abstractmethod
    def lag(self) -> LagAnswer:
        """For GETLAG and LOGEND."""

    @abstractmethod
    def metrics(self) -> MetricsAnswer:
        """For METRICS: what the Meter can't know, and GETLAG does not say."""

    @abstractmethod
    def requests(self) -> Mapping[str, Request]:
        """What only this kind of process can be asked for, by verb."""

    def command(self, verb: str, args: dict[str, Any]) -> dict[str, Any]:
        known: dict[str, Request] = {
            "STATUS": lambda _: plain(self.status()),
            "GETLAG": lambda _: plain(self.lag()),
            "LOGEND": lambda _: {"logend": self.lag().at_eof},
            "METRICS": lambda _: plain(self.metrics()),
            **self.requests(),
        }
        if verb not in known:
            raise unknown(self.called, verb, known)
        return known[verb](args)
