"""A pytest plugin for suite.py: `--record FILE` keeps what failed or was skipped, how long each test took, and what it
drew anew (`record_property`).

JSON {"failed": {node id: text}, "skipped": {node id: why}, "seconds": {node id: seconds with set-up and end},
"drawn": {node id: text}}.

Tests of a group bear it in their id where they run beside others (`...::test_x@spark`): the file has the id alone.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option."""
    parser.addoption("--record", metavar="FILE", help="write failed tests, and the seconds of all, to FILE as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Only the process that sees every report keeps them; workers only send theirs."""
    path = config.getoption("--record")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Recorder(Path(path), grouped=config.getoption("dist", "no") == "loadgroup"))


class _Recorder:
    def __init__(self, path: Path, *, grouped: bool) -> None:
        self._path = path
        self._grouped = grouped
        self._failed: dict[str, str] = {}
        self._skipped: dict[str, str] = {}
        self._seconds: dict[str, float] = {}
        self._drawn: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The first failure of a test counts: its set-up, the test, or what it left behind."""
        node = (report.nodeid.rpartition("@")[0] if self._grouped else "") or report.nodeid
        self._seconds[node] = self._seconds.get(node, 0.0) + report.duration
        if report.user_properties:
            self._drawn[node] = ", ".join(f"{name} {value}" for name, value in report.user_properties)
        if report.failed:
            self._failed.setdefault(node, report.longreprtext)
        if report.skipped:
            self._skipped[node] = str(report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr)

    def pytest_sessionfinish(self) -> None:
        """Written once, at the end."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        found = {"failed": self._failed, "skipped": self._skipped, "seconds": self._seconds, "drawn": self._drawn}
        self._path.write_text(json.dumps(found, indent=1))
