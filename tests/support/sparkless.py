"""The real Replicat process but for Spark: its jobs run in the process itself, so a life costs one second, not ten.

    python -P -m tests.support.sparkless --home DIR GROUP

For what Spark has no part in: the checkpoint row, signals, files, exit codes. There are no expressions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import replicat.engine
from replicat.__main__ import build
from replicat.engine import SparkSettings
from tests.support.replicat_trail import InlineEngine
from trails.runtime.process import main


class Engine(InlineEngine):
    """In SparkEngine's place."""

    def __init__(self, settings: SparkSettings, release: Callable[[], None]) -> None:
        super().__init__()
        self._release = release

    def start(self) -> None:
        """See SparkEngine."""

    def close(self) -> None:
        """See SparkEngine."""
        self._release()


if __name__ == "__main__":
    replicat.engine.SparkEngine = Engine  # type: ignore[assignment, misc]
    sys.exit(main("REPLICAT", sys.argv[1:], build))
