"""What a pipeline costs that has nothing to do: Replicat's start, its memory, and the CPU of all processes.

Method: one row waits in the trail when START REPLICAT is given, and the target is looked at until it is there. Then
nothing is committed any more. The first START of a home has no archive of Spark's classes yet, and is not measured.
"""

from __future__ import annotations

import time

from benchmarks import machine
from benchmarks.apply import CLASSES
from benchmarks.bed import SOURCE_DB, Bed
from benchmarks.options import Run
from benchmarks.ours import JVM, REPLICAT, WORKERS, Ours
from benchmarks.results import OURS, Line

NAME = "quiet"
SET = "UPDATE bench.marker SET n = 1 WHERE id = 1"
"""Again in each run: the slot brings those of the runs before it too."""
SETTLE_SECONDS = 15.0
STARTS, IDLES = "START REPLICAT, a row waits", "nothing is committed"
BARS = {"s to its first row": 3.0, "MB resident, Replicat and its JVM": 300.0, "busy cores, all processes": 0.03}


def measure(run: Run) -> None:
    """All of it, as often as there are runs."""
    found: dict[tuple[str, str], list[float]] = {}
    with Bed(tcp=run.tcp) as bed, Ours.on(bed) as ours:
        bed.prepare(1)
        ours.create()
        bed.hold(ours.slot)
        _begin(bed, ours)
        ours.target.run("START REPLICAT REP1")
        bed.await_marker(ours.check_alive)
        ours.target.run("STOP REPLICAT REP1", timeout=120)  # it leaves the archive
        ours.stop()
        _keep_archive(ours)
        run.interleaved(lambda: _once(run, bed, ours, found))
    for (case, what), values in found.items():
        run.take(Line(NAME, case, OURS, what, tuple(values), BARS.get(what), less=True))


def _keep_archive(ours: Ours) -> None:
    """In a home where nothing else has run: it must not know of a checkpoint row that the next target lacks."""
    folder = ours.target.home / "dirtmp"
    made = {path.name: path.read_bytes() for path in folder.glob(CLASSES)}
    ours.restore()
    for name, data in made.items():
        (folder / name).write_bytes(data)
    ours.keep()


def _begin(bed: Bed, ours: Ours) -> None:
    """All but Replicat runs, and a row is on its way to the trail that it reads."""
    ours.restore()
    bed.fresh_target()
    bed.copy_slot(ours.slot)
    ours.target.run("START MANAGER")
    ours.source.run("START MANAGER", "START EXTRACT *")
    bed.source.sql(SET, SOURCE_DB)


def _once(run: Run, bed: Bed, ours: Ours, found: dict[tuple[str, str], list[float]]) -> None:
    def note(case: str, what: str, value: float) -> None:
        found.setdefault((case, what), []).append(value)

    _begin(bed, ours)
    time.sleep(SETTLE_SECONDS)  # the row is in the trail
    began = time.monotonic()
    starting = ours.start_soon(ours.target, "START REPLICAT REP1")
    note(STARTS, "s to its first row", bed.await_marker(ours.check_alive) - began)
    starting.result()
    time.sleep(SETTLE_SECONDS)
    programs = ours.programs()
    resident = {name: sum(map(machine.resident_megabytes, pids)) for name, pids in programs.items()}
    note(IDLES, "MB resident, Replicat and its JVM", resident[REPLICAT] + resident[JVM])
    note(IDLES, "MB resident, its Python workers", resident[WORKERS])
    everything = [pid for pids in programs.values() for pid in pids]
    before, began = machine.cpu_seconds(*everything), time.monotonic()
    time.sleep(run.seconds)
    note(IDLES, "busy cores, all processes", (machine.cpu_seconds(*everything) - before) / (time.monotonic() - began))
    ours.stop()
