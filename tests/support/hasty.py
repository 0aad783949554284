"""The real Extract or Replicat process (this one without Spark), to which a silent server is soon a lost one.

python -P -m tests.support.hasty extract|replicat --home DIR GROUP
"""

from __future__ import annotations

import sys

from extract.sources.postgres import driver, source
from replicat.targets.postgres import bounded
from replicat.targets.sql.database import SqlDatabase
from tests.support import sparkless
from trails.runtime.process.startup import main

SECONDS = 1.0


def make_hasty() -> None:
    """All bounds of waits for PostgreSQL."""
    driver.ANSWER_SECONDS = SECONDS  # type: ignore[misc]
    driver.Session.__init__.__defaults__ = (SECONDS,)  # type: ignore[attr-defined]
    source.DEAD_SECONDS = SECONDS  # type: ignore[misc]
    bounded.BoundLink.open.__func__.__defaults__ = (SECONDS,)  # type: ignore[attr-defined]
    bounded.BoundLink.silent_seconds = bounded.PROBE_SECONDS = SECONDS
    SqlDatabase.answer_seconds = SECONDS


if __name__ == "__main__":
    make_hasty()
    program, *arguments = sys.argv[1:]
    if program == "extract":
        from extract.__main__ import build
    else:
        sparkless.take_its_place()
        from replicat.__main__ import build
    sys.exit(main("EXTRACT" if program == "extract" else "REPLICAT", arguments, build))
