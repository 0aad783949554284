"""A real Extract EXT1 in a home, killed with SIGKILL again and again, and then run until it has captured all."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from demo.guard import end_now
from demo.patience import PATIENCE, wait_for
from demo.pipeline import Pipeline
from trails.runtime.home.home import Home

HEADER = 5000
"""What a file has before anything was captured, at most."""


def start(home: Home) -> subprocess.Popen[bytes]:
    """The process, as the Manager starts it."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "extract", "--home", home.root, "EXT1"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=home.root,
    )  # fmt: skip


def written(home: Home) -> int:
    """How many bytes the trail has beside its files' headers, about."""
    sizes = [path.stat().st_size for path in Path(home.folder("dirdat")).glob("lt?????????")]
    return sum(max(0, size - HEADER) for size in sizes)


def report(home: Home) -> Path:
    """What it says."""
    return Path(home.folder("dirrpt"), "EXT1.rpt")


def kill_at_random(home: Home, kills: int, dice: random.Random) -> None:
    """Every fourth time somewhere in its start, else once it has written. Checkpoint files are deleted now and then."""
    for n in range(kills):
        before = written(home)
        process = start(home)
        while n % 4 and written(home) == before and process.poll() is None:
            time.sleep(0.01)
        time.sleep(dice.random() * (0.3 if n % 4 else 1.5))
        assert process.poll() is None, report(home).read_text()
        end_now(process.pid)
        process.wait()
        if n % 3 == 0:
            for left in Path(home.folder("dirchk")).iterdir():
                left.unlink()


def run_until(home: Home, done: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Run it, and kill it once that is so."""
    process = start(home)
    end = time.monotonic() + seconds
    try:
        while not done():
            assert process.poll() is None, report(home).read_text()
            assert time.monotonic() < end, "it does not get there"
            time.sleep(0.05)
    finally:
        end_now(process.pid)
        process.wait()


def kill_of_a_pipeline(pipeline: Pipeline, victim: str, dice: random.Random, longest: float) -> None:
    """Within so many seconds, its start included; its host's checkpoint files are deleted now and then."""
    time.sleep(dice.random() * longest)
    wait_for(lambda: pipeline.kill(victim) is not None, pipeline.state)
    if victim.endswith("manager"):
        pipeline.host_of(victim).run("START MANAGER")
    if dice.random() < 0.3:
        for left in (pipeline.host_of(victim).home / "dirchk").iterdir():
            left.unlink(missing_ok=True)
