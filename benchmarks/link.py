"""Pump and Collector, PASSTHRU: MB of stored blocks a second from one home's trail to the other's, synced.

Method: a local trail lies ready; the clock runs from the first block durable at the far side to the last, so start and
handshake are left out (they are a line of their own). Over TLS, as links are unless told otherwise, and
plain. The peer is the floor: 1 MB plain blocks over loopback, each synced.
"""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks import machine, peers, trailfiles
from benchmarks.options import Run
from benchmarks.ours import Ours, Progress, started
from benchmarks.results import OURS, Line
from demo.pipeline import Options
from trails.runtime.home.home import Home

FLOOR = "1 MB blocks, fdatasync"
CASES = {"PASSTHRU, loopback, TLS": True, "PASSTHRU, loopback, NOTLS": False}
ROWS = 1_000_000
REPEAT = 10
BAR = 200.0


def measure(run: Run) -> None:
    """All in turn."""
    floor: list[float] = []
    rows = round(ROWS * run.scale)
    with ExitStack() as stack:
        made = [_Case(name, stack.enter_context(_ours(tls)), rows) for name, tls in CASES.items()]
        run.say(f"link: trails of {rows * REPEAT:,} rows lie ready")
        peer = [lambda: floor.append(peers.synced_copy(max(50, round(1000 * run.scale))))] if run.peers else []
        run.interleaved(*peer, *(case.measure for case in made))
    for case in made:
        if floor:
            run.take(Line("link", case.name, FLOOR, "MB/s", tuple(floor)))
        for what, values in case.found.items():
            bar = BAR if what == "MB/s" else None
            run.take(Line("link", case.name, OURS, what, tuple(values), bar, FLOOR))


def _ours(tls: bool) -> Ours:
    return Ours("postgresql://nobody@/none", "postgresql://nobody@/none", Options(tables=("bench.*",), tls=tls))


class _Case:
    """Two homes with a pump between them and a trail for it, and what was found of them."""

    def __init__(self, name: str, ours: Ours, rows: int) -> None:
        self.name, self._ours, self._rows = name, ours, rows * REPEAT
        self.found: dict[str, list[float]] = {}
        _create(ours, rows)

    def measure(self) -> None:
        """Once."""
        for what, value in _measured(self._ours, self._rows):
            self.found.setdefault(what, []).append(value)


def _create(ours: Ours, rows: int) -> None:
    """Two homes with a pump between them, and a trail for it; no database."""
    ours.pipeline.make_homes()
    ours.pipeline.write_params()
    made = list(trailfiles.blocks(rows, 1000, 0))
    trailfiles.write(ours.source.home / "dirdat", "lt", Home(str(ours.source.home)).id, made, REPEAT)
    ours.source.run("ADD EXTRACT PMP1, EXTTRAILSOURCE ./dirdat/lt", "ADD RMTTRAIL ./dirdat/rt, EXTRACT PMP1")
    ours.keep()


def _measured(ours: Ours, rows: int) -> list[tuple[str, float]]:
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
    measured = [
        ("MB/s", (progress.size - before) / 1e6 / (end - first)),
        ("s until the first block", first - began),
        ("CPU ms/MB, pump", machine.cpu_seconds(pump) / megabytes * 1000),
        ("CPU ms/MB, Collector", machine.cpu_seconds(collector) / megabytes * 1000),
        ("MB resident, pump", machine.peak_megabytes(pump)),
        ("MB resident, Collector", machine.peak_megabytes(collector)),
    ]
    ours.stop()
    return measured
