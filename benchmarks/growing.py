"""Costs that grow: what a row costs from the source's log to the target while one thing alone becomes larger.

Method: a point is one backlog, measured as end to end (backlog.py), once: a point that is off its neighbours shows by
itself. Everything of a curve but its own number stays as it is. The last curve has no peer: Replicats that split one
trail by @RANGE, each with a JVM of its own, as apply.py measures one.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks import applytargets, manytables
from benchmarks.apply import KEYS, ROWS, apply_shared
from benchmarks.backlog import NATIVE, EndToEnd
from benchmarks.bed import Bed
from benchmarks.options import Run
from benchmarks.ours import Ours
from benchmarks.results import OURS, Line
from benchmarks.workloads import TABLE, Workload

NAME = "growing"
SECONDS, EACH, MEMORY = "s", "us a row", "MB resident"
BYTES = 200_000_000
"""What a point of the curve of widths moves at most, but for the 100 rows that it has at least."""


@dataclass(frozen=True, slots=True)
class Curve:
    """`name`: what grows; `what`: what is shown of each point, SECONDS of it all or microseconds EACH row."""

    name: str
    what: str
    points: tuple[tuple[int, Workload], ...]


def curves(scale: float) -> list[Curve]:
    """All that have a peer; with a `scale` below 1 the largest points are left out, and the others are smaller."""
    most = int(10_000_000 * scale)
    rows = int(500_000 * scale)
    return [
        Curve("tables", EACH, tuple((n, _tables(n, rows)) for n in (1, 5, 20, 100, 500))),
        Curve(
            "rows of backlog",
            SECONDS,
            tuple((n, _inserts(n, 1000)) for n in (10, 1000, 100_000, 1_000_000, 10_000_000) if n <= most),
        ),
        Curve(
            "rows of a transaction",
            EACH,
            tuple(
                (n, _inserts(max(n, rows), n)) for n in (1, 10, 1000, 100_000, 1_000_000, 5_000_000) if n <= most // 2
            ),
        ),
        Curve(
            "bytes of a row",
            EACH,
            tuple((n, _wide(n, rows, int(BYTES * scale))) for n in (50, 500, 5000, 50_000, 1_000_000)),
        ),
    ]


def _inserts(rows: int, per_transaction: int) -> Workload:
    return Workload("", "", rows, per_transaction=per_transaction)


def _tables(count: int, rows: int) -> Workload:
    """Transactions of 100 rows, each to the next table."""
    names = tuple(f"bench.t{n}" for n in range(count))
    ddl = "".join(f"CREATE TABLE {name} (LIKE {TABLE} INCLUDING ALL);" for name in names)
    return Workload("", "", rows, ddl=ddl, statement=f"CALL bench.spread_rows({rows}, 100, {count})", tables=names)


def _wide(width: int, most: int, size: int) -> Workload:
    """A key and one text of hexadecimal digits: `size` bytes in all, or 100 rows; a megabyte or 1,000 rows together."""
    rows = min(most, max(100, size // width))
    together = max(1, min(1000, 1_000_000 // width))
    ddl = "CREATE TABLE bench.wide (id bigint PRIMARY KEY, payload text NOT NULL);"
    statement = f"CALL bench.wide_rows({rows}, {together}, {width})"
    return Workload("", "", rows, ddl=ddl, statement=statement, tables=("bench.wide",))


def measure(run: Run, curve: Curve) -> None:
    """Every point of it."""
    for grown, workload in curve.points:
        _point(run, curve, grown, workload)


def _point(run: Run, curve: Curve, grown: int, workload: Workload) -> None:
    with Bed(tcp=run.tcp) as bed, Ours.on(bed) as ours:
        bed.prepare(0, workload.ddl)
        ours.create()
        bed.hold(ours.slot)
        bed.load(workload)
        both = EndToEnd(run, bed, ours, workload)
        if run.peers:
            both.native()
        both.whole_path()
    for who in (NATIVE, OURS):
        for rate in both.found.get((who, "rows/s"), ()):
            seconds = workload.rows / rate
            value = seconds if curve.what is SECONDS else seconds / workload.rows * 1e6
            _take(run, curve.name, grown, who, curve.what, value)
    resident = [values for (_, what), values in both.found.items() if what.startswith(MEMORY)]
    _take(run, curve.name, grown, OURS, MEMORY, sum(max(values) for values in resident))


def measure_shared(run: Run) -> None:
    """Updates of one trail, shared out among more and more Replicats."""
    rows, keys = int(ROWS * run.scale), int(KEYS * run.scale)
    with tempfile.TemporaryDirectory(prefix="tg-bench-") as name, applytargets.servers() as kinds:
        folder, kind = Path(name), kinds["postgresql"]
        manytables.write_updates(folder / "updates", rows, keys, 1)
        for count in (1, 2, 4, 8):
            kind.prepare(["t0"], keys)
            kind.add_markers(count)
            seconds, megabytes = apply_shared(folder, folder / "updates", kind, count)
            _take(run, "Replicats", count, OURS, EACH, seconds / rows * 1e6)
            _take(run, "Replicats", count, OURS, MEMORY, megabytes)


def _take(run: Run, name: str, grown: int, who: str, what: str, value: float) -> None:
    peer = NATIVE if who == OURS else ""
    run.take(Line(NAME, f"{name} {grown:,}", who, what, (value,), peer=peer, less=True))
