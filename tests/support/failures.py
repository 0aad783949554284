"""A pytest plugin: `--failures FILE` keeps each failed test with what it said, as JSON {node id: text}, for suite.py.

Tests of a group bear it in their id where they run beside others (`...::test_x@spark`): the file has the id alone.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option."""
    parser.addoption("--failures", metavar="FILE", help="write failed tests and what they said to FILE, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Only the process that sees every report keeps them; workers only send theirs."""
    path = config.getoption("--failures")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Keeper(Path(path), grouped=config.getoption("dist", "no") == "loadgroup"))


class _Keeper:
    def __init__(self, path: Path, *, grouped: bool) -> None:
        self._path = path
        self._grouped = grouped
        self._found: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The first failure of a test counts: its set-up, the test, or what it left behind."""
        if report.failed:
            node = report.nodeid.rpartition("@")[0] if self._grouped else report.nodeid
            self._found.setdefault(node or report.nodeid, report.longreprtext)

    def pytest_sessionfinish(self) -> None:
        """Written once, at the end."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(self._found, indent=1))
