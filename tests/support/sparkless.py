"""The real Replicat process but for Spark: its jobs run in the process itself, so a life costs one second, not ten.

    python -P -m tests.support.sparkless --home DIR GROUP

Where START and AUTORESTART are to start it so, the pipeline's processes have ENVIRONMENT.
For what Spark has no part in: the checkpoint row, signals, files, exit codes. There are no expressions.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import replicat.batches.engine
from replicat.batches.engine import SparkSettings, _empty
from tests.support.replicat_trail import InlineEngine
from trails.runtime.process.startup import main

HERE = Path(__file__).parent
ENVIRONMENT = {"PYTHONPATH": f"{HERE / 'without_spark'}{os.pathsep}{HERE.parents[1]}"}


class Engine(InlineEngine):
    """In SparkEngine's place."""

    def __init__(self, settings: SparkSettings, release: Callable[[], None], _is_stopping: Callable[[], bool]) -> None:
        super().__init__()
        self._release = release
        _empty(settings.scratch)

    def launch(self) -> None:
        """See SparkEngine."""

    def start(self) -> None:
        """See SparkEngine."""

    def close(self) -> None:
        """See SparkEngine."""
        self._release()


def take_its_place() -> None:
    """From now on what this process builds is without Spark."""
    replicat.batches.engine.SparkEngine = Engine  # type: ignore[assignment, misc]


if __name__ == "__main__":
    from replicat.__main__ import build

    take_its_place()
    sys.exit(main("REPLICAT", sys.argv[1:], build))
