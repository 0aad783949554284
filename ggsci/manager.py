"""The Manager of a home: `python -P -m ggsci.manager --home DIR`. One per home, by the lock of the name MGR.

It is a process like any other (trails.runtime): report, ggserr.log, status file, control socket, signals, exit codes.
Its parts: the groups (manager_children), the Collectors (manager_collectors), purging (manager_purge), lag reports
(manager_lag).
It keeps nothing that its death could lose: groups and Collectors go on, and the next Manager finds them again.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from ggsci import manager_children, manager_collectors, manager_lag, manager_purge
from ggsci.manager_children import Children
from ggsci.manager_collectors import Collectors
from ggsci.manager_params import ManagerParams
from trails.checkpoint import Checkpoint
from trails.errors import GateError, OperatorError
from trails.runtime.process import Context, Process, main

STARTED, PURGED, CHORE_FAILED = "TG-00983", "TG-01810", "TG-00924"

# While an older Collector is being ended, only the clock moves a request on.
BUSY_SECONDS = 0.05


class Manager(Process):
    """Steps through its parts; keeps no checkpoint."""

    def __init__(
        self,
        context: Context,
        params: ManagerParams,
        group_command: manager_children.CommandLine = manager_children.command_line,
        collector_command: manager_collectors.CommandLine = manager_collectors.command_line,
    ) -> None:
        self._context = context
        self._params = params
        home, log, clock = context.home, context.log, context.clock
        log.must_write = False
        # The port first: a Manager that can't have it must not have started anything.
        self._collectors = Collectors(home, params, log, clock, collector_command)
        self._children = Children(home, params, log, clock, group_command)
        self._purge_at = self._lag_at = clock.monotonic()
        log.info(STARTED, f"Manager listens for pumps at {params.bind}, port {self._collectors.port}.")
        # A child's death wakes the loop: the runtime's wakeup descriptor becomes readable for any handled signal.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._children.adopt_and_start()

    def step(self) -> bool:
        """Look after groups and Collectors; purge when due."""
        self._children.look()
        self._collectors.step()
        now = self._context.clock.monotonic()
        if now >= self._purge_at:
            self._purge_at = now + self._params.check_s
            self._survive("Purging", self._purge)
        if self._params.lag_report_s is not None and now >= self._lag_at:
            self._lag_at = now + self._params.lag_report_s
            self._survive("The lag report", self._report_lag)
        return False

    def _survive(self, what: str, chore: Callable[[], None]) -> None:
        """A chore that fails (a registration that can't be read) is told, and must not end who restarts the others."""
        try:
            chore()
        except (GateError, OSError) as error:
            self._context.log.error(CHORE_FAILED, f"{what} failed: {error}")

    def _report_lag(self) -> None:
        manager_lag.report(self._context.home, self._params, self._context.log, self._context.clock.now_us())

    def _purge(self) -> None:
        for verdict in manager_purge.purge(self._context.home, self._params.purge):
            self._context.log.info(PURGED, f"Purged {verdict.path}: {verdict.reason}.")

    def flush(self) -> Checkpoint | None:
        """No output, no checkpoint."""
        return None

    def close(self) -> None:
        """Groups and Collectors go on."""
        self._collectors.close()

    def waits(self) -> list[int]:
        """Connections, starting Collectors, adopted groups."""
        return [*self._collectors.waits(), *self._children.pidfds()]

    def idle_seconds(self) -> float:
        """Until the next restart or purge."""
        to_purge = max(0.0, self._purge_at - self._context.clock.monotonic())
        busy = BUSY_SECONDS if self._collectors.busy else 1.0
        return min(self._children.seconds_to_next(), to_purge, busy)

    def command(self, verb: str, args: dict[str, Any]) -> dict[str, Any]:
        """What ggsci asks."""
        if verb in ("START", "KILL", "HOLD", "CHILD"):
            return self._group_command(verb, str(args.get("name", "")))
        if verb == "STATUS":
            return {"status": "RUNNING", "pid": os.getpid(), "port": self._collectors.port, "bind": self._params.bind}
        if verb == "CHILDSTATUS":
            return {"children": self._children.rows()}
        if verb == "GETPORTINFO":
            return {"collectors": self._collectors.rows()}
        if verb == "GETPURGEOLDEXTRACTS":
            return self._purge_info()
        raise OperatorError(f"the Manager doesn't know {verb!r}")

    def _group_command(self, verb: str, group: str) -> dict[str, Any]:
        if verb == "START":
            return {"pid": self._children.start(group)}
        if verb == "KILL":
            return {"pid": self._children.kill(group)}
        if verb == "HOLD":
            self._children.hold(group)
        return self._children.child(group)

    def _purge_info(self) -> dict[str, Any]:
        home = self._context.home
        return {
            "rules": [{"pattern": rule.pattern, "min_files": rule.min_files} for rule in self._params.purge],
            "files": [
                {"file": home.shown(verdict.path), "goes": verdict.goes, "reason": verdict.reason}
                for verdict in manager_purge.verdicts(home, self._params.purge)
            ],
        }


def build(context: Context) -> Process:
    """The Manager for a checked parameter file."""
    return Manager(context, ManagerParams.from_statements(context.statements, context.parameter_file))


if __name__ == "__main__":
    sys.exit(main("MANAGER", sys.argv[1:], build))
