"""Replicat alone: a trail that is there already, to each kind of target, plain and mapped.

Method: the trail's first file brings Replicat up and warm; the others are moved into its folder at once, and the clock
runs from then until the marker of the last transaction is visible in the target. Every case reads the same bytes.
Homes have had a Replicat before, which has left its archive of Spark's classes. The first file of the updates has some
of every table (`manytables.WARM_ROWS`): planning what is mapped, and compiling it, is a matter of START, not of a row.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import applytargets, machine, manytables
from benchmarks.applytargets import Kind
from benchmarks.options import Run
from benchmarks.results import OURS, Line
from trails.position import TrailName
from trails.runtime.home import registration
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registration

ROOT = Path(__file__).resolve().parent.parent
ROWS, KEYS, TABLES = 500_000, 200_000, 10
SWAP_ROWS = 100_000
OF_BULK = 0.7
"""So much of what a target takes in bulk is wanted."""
CLASSES = "spark-*classes-*.jsa"
"""The archive of Spark's classes that a home has from its first STOP on (replicat/batches/classes.py)."""
SMALL_TABLES, SMALL_CHANGES, SMALL_BATCHES = 200, 5, 5
PLAIN = ("MAP bench.*, TARGET {schema}.*;",)
MAPPED = (
    *(
        f"MAP bench.t{n}, TARGET {{schema}}.t{n}, COLMAP (USEDEFAULTS, amount = round(amount * 1.1, 2), "
        "name = upper(concat(name, '-', tag))), FILTER (score < 900);"
        for n in range(TABLES)
    ),
    "MAP bench.marker, TARGET {schema}.marker;",
)
UPDATES = f"{ROWS // 1000}k updates over {TABLES} tables, 10 a transaction"
MANY = f"{SMALL_TABLES} tables of {SMALL_CHANGES} changes, one batch"


@dataclass(frozen=True, slots=True)
class Case:
    """A target and the MAPs towards it; `peer` is the case whose figure it is compared with."""

    who: str
    kind: Kind
    maps: Sequence[str]
    peer: str = ""


def measure(run: Run) -> None:
    """All cases, in turn."""
    with tempfile.TemporaryDirectory(prefix="tg-bench-") as name, applytargets.servers() as kinds:
        folder = Path(name)
        _updates(run, folder, kinds)
        _inserts(run, folder, kinds)
        _many(run, folder, kinds["postgresql"])
        _swap(run, folder, kinds["postgresql"])


def _updates(run: Run, folder: Path, kinds: dict[str, Kind]) -> None:
    rows, keys = int(ROWS * run.scale), int(KEYS * run.scale)
    trail = folder / "updates"
    manytables.write_updates(trail, rows, keys, TABLES)
    cases = [
        Case(OURS, kinds["postgresql"], PLAIN),
        Case("Trailgate, COLMAP and FILTER", kinds["postgresql"], MAPPED, OURS),
        Case("Trailgate, to MariaDB", kinds["mysql"], PLAIN, OURS),
        Case("Trailgate, to SQLite", kinds["sqlite"], PLAIN, OURS),
    ]
    found: dict[str, list[float]] = {case.who: [] for case in cases}

    def once(case: Case) -> None:
        prepare = partial(case.kind.prepare, [f"t{n}" for n in range(TABLES)], keys // TABLES)
        (seconds,) = _apply(folder, trail, case, 1, prepare)
        found[case.who].append(rows / seconds)

    run.interleaved(*(lambda case=case: once(case) for case in cases))
    for case in cases:
        wanted = 0.8 * sorted(found[OURS])[len(found[OURS]) // 2] if case.maps is MAPPED else None
        run.take(Line("apply", UPDATES, case.who, "rows/s", tuple(found[case.who]), wanted, case.peer))


def _inserts(run: Run, folder: Path, kinds: dict[str, Kind]) -> None:
    """To each kind of target, beside what takes rows there in bulk: out of a file, or of memory."""
    rows = int(ROWS * run.scale)
    trail = folder / "inserts"
    manytables.write_inserts(trail, rows, 1000)
    case = f"{rows // 1000}k inserts, 1,000 a transaction"
    found: dict[str, list[float]] = {}

    def own(kind: Kind) -> None:
        kind.prepare(["t0"], 0)
        seconds = kind.bulk(manytables.inserted(0, rows))
        found.setdefault(f"{kind.title}'s {kind.own}", []).append(rows / seconds)

    def ours(kind: Kind) -> None:
        (seconds,) = _apply(folder, trail, Case(OURS, kind, PLAIN), 1, partial(kind.prepare, ["t0"], 0))
        found.setdefault(f"{OURS}, to {kind.title}", []).append(rows / seconds)

    rivals = [partial(own, kind) for kind in kinds.values()] if run.peers else []
    run.interleaved(*rivals, *(partial(ours, kind) for kind in kinds.values()))
    for kind in kinds.values():
        peer, who = f"{kind.title}'s {kind.own}", f"{OURS}, to {kind.title}"
        most = found.get(peer, [])
        run.take(Line("apply", case, peer, "rows/s", tuple(most)))
        bar = OF_BULK * statistics.median(most) if most and run.scale >= 1 else None
        run.take(Line("apply", case, who, "rows/s", tuple(found[who]), bar, peer))


def _many(run: Run, folder: Path, kind: Kind) -> None:
    """The first batch meets tables that Replicat has not looked at yet; those after it find them known."""
    trail = folder / "many"
    names = manytables.write_many(trail, SMALL_TABLES, SMALL_CHANGES, SMALL_BATCHES)
    first: list[float] = []
    later: list[float] = []

    def once() -> None:
        prepare = partial(kind.prepare, names, SMALL_CHANGES)
        seconds = _apply(folder, trail, Case(OURS, kind, PLAIN), SMALL_BATCHES, prepare)
        first.append(seconds[0])
        later.extend(seconds[1:])

    run.interleaved(once)
    run.take(Line("apply", MANY, OURS, "s, first", tuple(first), 3.0, less=True))
    run.take(Line("apply", MANY, OURS, "s, later ones", tuple(later), 3.0, less=True))


def _swap(run: Run, folder: Path, kind: Kind) -> None:
    """A constraint refuses the whole of a large batch for one pair: how much longer does it take (CW-25)?"""
    rows = int(SWAP_ROWS * run.scale)
    trail = folder / "swap"
    manytables.write_swap(trail, rows)
    found: dict[str, list[float]] = {"s, plain": [], "s, with the swap": [], "times as long": []}

    def prepare() -> None:
        kind.prepare(["t0"], rows)
        kind.make_names_unique("t0")

    def once() -> None:
        _, plain, swapped = _apply(folder, trail, Case(OURS, kind, ("BATCHROWS 1000000", *PLAIN)), 3, prepare)
        for what, figure in zip(found, (plain, swapped, swapped / plain), strict=True):
            found[what].append(figure)

    run.interleaved(once)
    for what, figures in found.items():
        bar = 10.0 if what == "times as long" else None
        run.take(
            Line(
                "apply",
                f"{rows // 1000}k updates, one pair swaps a unique value",
                OURS,
                what,
                tuple(figures),
                bar,
                less=True,
            )
        )


def apply_shared(folder: Path, trail: Path, kind: Kind, count: int) -> tuple[float, float]:
    """Seconds of so many Replicats that share a trail of table t0 out by @RANGE, and the megabytes that they had.

    Each moves the marker of its own number. They stay in memory until all of them are measured.
    """
    home = _home(folder, kind)
    groups = [f"REP{number}" for number in range(1, count + 1)]
    for number, group in enumerate(groups, 1):
        share = f"MAP bench.t0, TARGET bench.t0, FILTER (@RANGE ({number}, {count}));"
        _add(home, kind, group, (share, f"MAP bench.marker, TARGET bench.marker, COLMAP (USEDEFAULTS, id = {number});"))
    files = _files(trail)
    _move(trail, home, files[:1])
    with ExitStack() as running:
        processes = [running.enter_context(_replicat(home, group)) for group in groups]

        def alive() -> None:
            for process in processes:
                process.alive()

        kind.await_marker(1, alive)
        began = time.monotonic()
        _move(trail, home, files[1:])
        kind.await_marker(2, alive)
        seconds = time.monotonic() - began
        family = [pid for process in processes for pid in machine.family(process.pid)]
        return seconds, sum(map(machine.peak_megabytes, family))


def _apply(folder: Path, trail: Path, case: Case, batches: int, prepare: Callable[[], None]) -> list[float]:
    """Seconds of each batch: one trail file each, after the first file. A Replicat has run in the home before."""
    classes = folder / f"classes-{case.who}"
    if not classes.exists():
        prepare()
        _run(_ready(folder, trail, case), trail, case, 0)
        left = list((folder / "home" / "dirtmp").glob(CLASSES))
        if not left:
            raise RuntimeError(f"{case.who}: expected an archive {CLASSES} behind the first STOP, found none")
        classes.mkdir()
        for path in left:
            shutil.copy2(path, classes)
    prepare()
    home = _ready(folder, trail, case)
    for path in classes.iterdir():
        shutil.copy2(path, home.folder("dirtmp"))
    return _run(home, trail, case, batches)


def _ready(folder: Path, trail: Path, case: Case) -> Home:
    """A home with a Replicat, and the trail's first file."""
    home = _home(folder, case.kind)
    _add(home, case.kind, "REP1", case.maps)
    _move(trail, home, _files(trail)[:1])
    return home


def _run(home: Home, trail: Path, case: Case, batches: int) -> list[float]:
    with _replicat(home, "REP1") as process:
        alive = process.alive
        case.kind.await_marker(1, alive)
        rest = _files(trail)[1:]
        size = -(-len(rest) // max(1, batches))
        seconds = []
        for number in range(batches):
            began = time.monotonic()
            _move(trail, home, rest[number * size : (number + 1) * size])
            case.kind.await_marker(number + 2, alive)
            seconds.append(time.monotonic() - began)
    return seconds


def _home(folder: Path, kind: Kind) -> Home:
    """A new one, and the checkpoint table."""
    home = Home(str(folder / "home"))
    shutil.rmtree(home.root, ignore_errors=True)
    Path(home.root).mkdir(mode=0o700)
    home.create_subdirs()
    kind.add_checkpoint_table()
    return home


def _add(home: Home, kind: Kind, group: str, maps: Sequence[str]) -> None:
    """A Replicat with its parameter file."""
    table, key = f"{kind.checkpoint_schema}.chk", 10 + int(group.removeprefix("REP"))
    made = Registration(group, "REPLICAT", "TRAIL", trail="./dirdat/rt", checkpoint_table=table, group_key=key)
    registration.save(home, made)
    text = [f"REPLICAT {group}", f"TARGETDB '{kind.url}'", *(line.format(schema=kind.schema) for line in maps), ""]
    Path(home.prm(group)).write_text("\n".join(text))


def _files(trail: Path) -> list[str]:
    return sorted(path.name for path in trail.iterdir() if path.name.startswith("rt"))


def _move(trail: Path, home: Home, names: Sequence[str]) -> None:
    """Make files appear whole and in order: one behind a gap would be taken for a trail that has lost some."""
    folder = Path(TrailName.parse("./dirdat/rt", home.root).folder)
    for name in names:
        shutil.copyfile(trail / name, folder / f"copy-{name}")
    for name in names:
        os.rename(folder / f"copy-{name}", folder / name)


@dataclass(frozen=True, slots=True)
class _Process:
    """A Replicat that runs. `alive` raises when it has ended."""

    pid: int
    alive: Callable[[], None]


@contextmanager
def _replicat(home: Home, group: str) -> Iterator[_Process]:
    """The process while the block lasts."""
    command = [sys.executable, "-P", "-m", "replicat", "--home", home.root, group]
    with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE) as process:

        def alive() -> None:
            if process.poll() is not None:
                raise RuntimeError(f"{group} has ended:\n{Path(home.report(group)).read_text()[-3000:]}")

        try:
            yield _Process(process.pid, alive)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)
