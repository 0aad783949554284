"""A Replicat in the test's own process, or in one that can be killed: a scripted trail, any kind of target, no Spark.

python -m tests.support.replicat_bench FOLDER URL SCHEMA     applies all that waits, as Bench.run() does
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from replicat.params import ReplicatParams
from replicat.run.replicat import Replicat
from replicat.targets.contract import Target, TargetSettings
from replicat.targets.kinds import admin_for, open_target
from tests.support.replicat_trail import InlineEngine, TrailFeed
from trails.clock import RealClock
from trails.fs import RealFs
from trails.position import TrailName
from trails.runtime.home.registration import Registration
from trails.runtime.language.params import parse_text

REG = Registration("REP1", "REPLICAT", "TRAIL", group_key=77, added_us=5)


class Bench:
    """One trail, one target, and a Replicat between them that can be made again. `schema`: of the target's tables."""

    def __init__(self, folder: Path, url: str, schema: str, *, feed: bool = True, checkpoints: str = "") -> None:
        """`checkpoints`: the schema of the checkpoint table, if it is another one."""
        self.folder, self.url, self.schema = folder, url, schema
        self.trail = TrailName(str(folder / "dirdat"), "rt")
        self.lines: list[str] = []
        self.notes: list[str] = []
        self.maps = f"MAP src.*, TARGET {schema}.*;"
        self.table = (checkpoints or schema, "chk")
        self.registration = REG
        if feed:
            self.feed = TrailFeed(RealFs(), self.trail)
            admin_for(url).add_row_table(url, self.table)

    def params(self) -> ReplicatParams:
        """The parameter file."""
        text = f"REPLICAT rep1\nTARGETDB '{self.url}'\n" + "\n".join(self.lines) + f"\n{self.maps}\n"
        return ReplicatParams.from_statements(parse_text(text, "rep1.prm"))

    def target(self, url: str = "") -> Target:
        """The target as the parameters say, not connected."""
        wait = self.params().commit_wait
        return open_target(TargetSettings(url or self.url, self.table, "REP1", 77, str(self.folder), wait))

    def replicat(self, url: str = "") -> Replicat:
        """A process, not begun."""
        target = self.target(url)
        options = {"clock": RealClock(), **self.options(target)}
        return Replicat(
            self.params(), self.registration, self.trail, fs=RealFs(), target=target, engine=InlineEngine(),
            note=self.notes.append, **options,
        )  # fmt: skip

    def options(self, target: Target) -> dict[str, Any]:
        """What else the Replicat is given."""
        return {}

    def run(self, url: str = "") -> Replicat:
        """Apply all that waits, then stop."""
        process = self.replicat(url)
        try:
            while process.step():
                pass
            process.flush()
        finally:
            process.close()
        return process

    def spawn(self) -> subprocess.Popen[bytes]:
        """The same in a process of its own."""
        command = [sys.executable, "-m", __name__, str(self.folder), self.url, self.schema, *self.lines]
        return subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.DEVNULL)


def main(arguments: list[str]) -> Any:
    """See the module."""
    folder, url, schema, *lines = arguments
    bench = Bench(Path(folder), url, schema, feed=False)
    bench.lines = lines
    bench.run()


if __name__ == "__main__":
    main(sys.argv[1:])
