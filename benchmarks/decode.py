"""Reading a trail in one process: headers alone, records, and records to what Replicat stages (COPY text).

The peer is the floor: LZ4 and msgpack of the same payloads, already in memory, and nothing else.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import trailfiles, yardstick
from benchmarks.options import Run
from benchmarks.results import OURS, Line
from replicat.model.plan import Plans, TablePlan
from replicat.model.target import Layout
from replicat.work import decode, kernel
from replicat.work.net.part import Part
from trails.codec import decode_data
from trails.format import BlockKind
from trails.fs import RealFs
from trails.plan import Planner
from trails.position import TrailName
from trails.reader import Block, BlockReader

ROWS = 1_000_000
RECORDS, HEADERS, STAGED = "rows/s", "rows/s, headers only", "rows/s, to COPY text"
PLAIN = "rows/s, to COPY text, without kernel"
DIRTY, CLEAN = "inserts, 5 % of rows to escape", "the same rows, none to escape"
SHARE_OF_CLEAN = 0.9
BATCH_ROWS = 100_000


def measure(run: Run) -> None:
    """Inserts, these with some rows to escape, and updates."""
    rows = round(ROWS * run.scale)
    with tempfile.TemporaryDirectory(prefix="tg-bench-") as folder:
        clean = _trail(folder, "in", rows, 1000)
        _measure(run, "inserts", clean, rows)
        _measure(run, DIRTY, _trail(folder, "es", rows, 1000, dirty=True), rows, clean)
    with tempfile.TemporaryDirectory(prefix="tg-bench-") as folder:
        _measure(run, "updates", _trail(folder, "up", rows, 10, keys=rows), rows)


def _trail(
    folder: str, prefix: str, rows: int, per_transaction: int, *, keys: int = 0, dirty: bool = False
) -> TrailName:
    made = list(trailfiles.blocks(rows, per_transaction, keys, dirty=dirty))
    trailfiles.write(Path(folder), prefix, "bench", made)
    return TrailName(folder, prefix)


def _measure(run: Run, case: str, trail: TrailName, rows: int, clean: TrailName | None = None) -> None:
    """`clean`: the same rows with nothing to escape, to measure the price of that beside it."""
    found: dict[tuple[str, str], list[float]] = {}

    def timed(who: str, what: str, work: Callable[[], int]) -> Callable[[], None]:
        def once() -> None:
            gc.disable()  # as Replicat does while it decodes: records hold no cycles
            began = time.monotonic()
            try:
                got = work()
            finally:
                seconds = time.monotonic() - began
                gc.enable()
            if got != rows:
                raise AssertionError(f"{what}: expected {rows} rows, found {got}")
            found.setdefault((who, what), []).append(rows / seconds)

        return once

    def staged(who: str, trail: TrailName) -> list[Callable[[], None]]:
        return [timed(who, STAGED, lambda: _staged(trail)), timed(who, PLAIN, lambda: _without_kernel(trail))]

    loaded = yardstick.load(trail)
    run.interleaved(
        *([timed(yardstick.NAME, RECORDS, lambda: yardstick.decode(loaded))] if run.peers else []),
        timed(OURS, RECORDS, lambda: _records(trail)),
        timed(OURS, HEADERS, lambda: _headers(trail)),
        *(staged(CLEAN, clean) if clean else []),
        *staged(OURS, trail),
    )
    for (who, what), values in found.items():
        beside = found.get((CLEAN, what)) if who == OURS else None
        peer = CLEAN if beside else yardstick.NAME if (who, what) == (OURS, RECORDS) else ""
        bar = SHARE_OF_CLEAN * statistics.median(beside) if beside else None
        run.take(Line("decode", case, who, what, tuple(values), bar=bar, peer=peer))


def _records(trail: TrailName) -> int:
    reader = BlockReader(RealFs(), trail)
    rows = 0
    while (block := reader.read()) is not None:
        if block.header.kind == BlockKind.DATA:
            _, records = decode_data(block.header, block.payload)
            rows += len(records) - 2 * block.header.transactions
    reader.close()
    return rows


def _headers(trail: TrailName) -> int:
    reader = BlockReader(RealFs(), trail)
    planner = Planner(reader)
    rows = 0
    while (unit := planner.next()) is not None:
        rows += unit.changes
    reader.close()
    return rows


def _staged(trail: TrailName) -> int:
    """As a Spark partition does it, batch by batch."""
    reader = BlockReader(RealFs(), trail)
    planner = Planner(reader)
    rows, blocks = 0, list[Block]()
    pending = 0
    while True:
        unit = planner.next()
        if unit is not None:
            blocks += unit.blocks
            pending += unit.changes
        if blocks and (unit is None or pending >= BATCH_ROWS):
            trail_id = reader.header.trail_id if reader.header else b""
            task = decode.Task(
                trail.folder, trail.prefix, trail_id, tuple(blocks), _plans(), decode.columns_of(planner.definitions)
            )
            part = decode.attempt(task)
            assert isinstance(part, Part)
            rows += sum(sum(counts) for counts in part.counts.values())
            blocks, pending = [], 0
        if unit is None:
            reader.close()
            return rows


def _without_kernel(trail: TrailName) -> int:
    taker, kernel.Taker = kernel.Taker, None
    try:
        return _staged(trail)
    finally:
        kernel.Taker = taker


def _plans() -> Plans:
    table = trailfiles.DEFINITION
    layout = Layout(
        table.schema,
        table.name,
        tuple(c.name for c in table.columns),
        tuple(c.native for c in table.columns),
        ("id",),
    )
    plan = TablePlan(table.full_name, table.full_name, layout, table.key, integer_key=True)
    return {table.id: (plan,)}
