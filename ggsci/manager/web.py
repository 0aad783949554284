"""The page as a child of the Manager: started, watched, started again, ended; the Manager never waits for it.

    starts      WEBPORT is given                       a process that gets its parameters on standard input
    ends 2      somebody must mend something first     told once; tried again by REFRESH MANAGER or the next START
    ends else   a crash, a signal                      started again after 1, 2, 4, ... 60 s, RETRIES times in a row
    Manager dies, however                              standard input ends, and the page with it

Rule: nothing of replication depends on the page, so none of this can end the Manager or hold it up.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from ggsci.manager.webparams import WebParams
from ggsci.spawning import last_words, spawn
from trails.clock import Clock
from trails.errors import EXIT_OPERATOR
from trails.runtime.home.home import MANAGER, Home
from trails.runtime.report.report import Log

STARTED, DOWN = "TG-01962", "TG-01963"
RETRIES = 20
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
RESET_SECONDS = 600.0
END_SECONDS = 5.0
OUT = f"{MANAGER}.web"

CommandLine = Callable[[Home], list[str]]


def command_line(home: Home) -> list[str]:
    """How the page's program is started; its parameters are not for the process list."""
    return [sys.executable, "-P", "-m", "ggsci.web", "--home", home.root]


class WebChild:
    """The page's process, if there is to be one."""

    def __init__(
        self, home: Home, params: WebParams, log: Log, clock: Clock, command: CommandLine = command_line
    ) -> None:
        self._home = home
        self._params = params
        self._log = log
        self._clock = clock
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._leaving: subprocess.Popen[bytes] | None = None
        self._kill_at = 0.0
        self._started = 0.0
        self._retries = 0
        self._due: float | None = clock.monotonic() if params.port else None

    def step(self) -> None:
        """Notice its end; start it when due, and when the one before is gone."""
        self._see_off()
        process = self._process
        if process is not None and process.poll() is not None:
            self._ended(process)
        if self._due is not None and self._clock.monotonic() >= self._due and self._leaving is None:
            self._due = None
            self._start()

    def _see_off(self) -> None:
        """The one that was told to end: gone, or killed when its time is over."""
        leaving = self._leaving
        if leaving is None:
            return
        if leaving.poll() is not None:
            self._leaving = None
        elif self._clock.monotonic() >= self._kill_at:
            leaving.kill()

    def seconds_to_next(self) -> float:
        """Until a start is due; at most a second."""
        due = self._due if self._leaving is None else None
        return 1.0 if due is None else max(0.0, min(1.0, due - self._clock.monotonic()))

    def refresh(self, params: WebParams) -> None:
        """Take other parameters: if they differ, or the page is down, it is started anew."""
        if params == self._params and self._process is not None:
            return
        self._let_go()
        self._params = params
        self._retries = 0
        self._due = self._clock.monotonic() if params.port else None

    def close(self) -> None:
        """The Manager ends, and the page with it."""
        self._let_go()
        self._due = None
        if self._leaving is not None:
            try:
                self._leaving.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self._leaving.kill()
                self._leaving.wait()
            self._leaving = None

    def _let_go(self) -> None:
        """Tell it to end, by closing its standard input."""
        if self._process is None:
            return
        _close_input(self._process)
        self._leaving, self._process = self._process, None
        self._kill_at = self._clock.monotonic() + END_SECONDS

    def row(self) -> dict[str, Any] | None:
        """For STATUS: None if there is to be no page."""
        if not self._params.port:
            return None
        pid = self._process.pid if self._process else None
        return {"port": self._params.port, "bind": self._params.bind, "pid": pid, "retries": self._retries}

    def _start(self) -> None:
        self._started = self._clock.monotonic()
        try:
            process = spawn(self._home, self._command(self._home), OUT, pipe=True)
        except OSError as error:
            self._log.error(DOWN, f"The page can't be started: {error.strerror}.")
            self._retry()
            return
        self._process = process
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it ended at once: noticed as any end
            process.stdin.write(self._params.to_line().encode())
            process.stdin.flush()
        self._log.info(STARTED, f"The page starts as process {process.pid}, port {self._params.port}.")

    def _ended(self, process: subprocess.Popen[bytes]) -> None:
        self._process = None
        _close_input(process)
        code = process.returncode
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        self._log.error(DOWN, f"The page is down ({how}): {last_words(self._home, OUT)}")
        if code != EXIT_OPERATOR:
            self._retry()

    def _retry(self) -> None:
        now = self._clock.monotonic()
        if now - self._started >= RESET_SECONDS:
            self._retries = 0
        if self._retries >= RETRIES:
            self._log.error(DOWN, f"The page: {RETRIES} restarts did not help; REFRESH MANAGER tries again.")
            return
        self._due = now + min(LONGEST_WAIT, FIRST_WAIT * 2**self._retries)
        self._retries += 1


def _close_input(process: subprocess.Popen[bytes]) -> None:
    if process.stdin:
        with contextlib.suppress(OSError):
            process.stdin.close()
