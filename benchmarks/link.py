"""Pump and Collector, PASSTHRU: MB of stored blocks a second from one home's trail to the other's, synced.

Method: a local trail lies ready; the clock runs from the first block durable at the far side to the last, so start and
handshake are left out (they are a line of their own). The peer is the floor: 1 MB blocks over loopback, each synced.
"""

from __future__ import annotations

from benchmarks import machine, peers, trailfiles
from benchmarks.options import Run
from benchmarks.ours import Ours, Progress, started
from benchmarks.results import OURS, Line
from trails.runtime.home import Home

FLOOR = "1 MB blocks, fdatasync"
CASE = "PASSTHRU, loopback"
ROWS = 1_000_000
REPEAT = 10
BAR = 200.0


def measure(run: Run) -> None:
    """Both in turn."""
    found: dict[tuple[str, str], list[float]] = {}
    rows = round(ROWS * run.scale)
    with Ours("postgresql://nobody@/none", "postgresql://nobody@/none") as ours:
        _create(ours, rows)
        run.say(f"link: a trail of {rows * REPEAT:,} rows lies ready")
        floor = [lambda: _note(found, FLOOR, "MB/s", peers.synced_copy(max(50, round(1000 * run.scale))))]
        run.interleaved(*(floor if run.peers else []), lambda: _measure(ours, rows * REPEAT, found))
    for (who, what), values in found.items():
        bar = BAR if (who, what) == (OURS, "MB/s") else None
        run.take(Line("link", CASE, who, what, tuple(values), bar, FLOOR if who == OURS else ""))


def _note(found: dict[tuple[str, str], list[float]], who: str, what: str, value: float) -> None:
    found.setdefault((who, what), []).append(value)


def _create(ours: Ours, rows: int) -> None:
    """Two homes with a pump between them, and a trail for it; no database."""
    ours.pipeline.make_homes()
    ours.pipeline.write_params()
    made = list(trailfiles.blocks(rows, 1000, 0))
    trailfiles.write(ours.source.home / "dirdat", "lt", Home(str(ours.source.home)).id, made, REPEAT)
    ours.source.run("ADD EXTRACT PMP1, EXTTRAILSOURCE ./dirdat/lt", "ADD RMTTRAIL ./dirdat/rt, EXTRACT PMP1")
    ours.keep()


def _measure(ours: Ours, rows: int, found: dict[tuple[str, str], list[float]]) -> None:
    ours.restore()
    ours.target.run("START MANAGER")
    ours.source.run("START MANAGER")
    starting = ours.start_soon(ours.source, "START EXTRACT PMP1")
    pump = ours.await_pid(ours.source, "PMP1")
    began = started(pump)
    progress = Progress(ours.trail(ours.target, "rt"))
    end = progress.wait(rows, ours.check_alive)
    starting.result()
    if progress.first is None:
        raise RuntimeError("no block has arrived")
    first, _, before = progress.first
    collector = ours.collector_pid()
    megabytes = progress.size / 1e6
    _note(found, OURS, "MB/s", (progress.size - before) / 1e6 / (end - first))
    _note(found, OURS, "s until the first block", first - began)
    _note(found, OURS, "CPU ms/MB, pump", machine.cpu_seconds(pump) / megabytes * 1000)
    _note(found, OURS, "CPU ms/MB, Collector", machine.cpu_seconds(collector) / megabytes * 1000)
    _note(found, OURS, "MB resident, pump", machine.peak_megabytes(pump))
    _note(found, OURS, "MB resident, Collector", machine.peak_megabytes(collector))
    ours.stop()
