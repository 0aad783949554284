"""Reading a trail in one process: headers alone, records, and records to what Replicat stages (COPY text).

The peer is the floor: LZ4 and msgpack of the same payloads, already in memory, and nothing else.
"""

from __future__ import annotations

import gc
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
DIRTY = "inserts, 5 % of rows to escape"
BATCH_ROWS = 100_000


def measure(run: Run) -> None:
    """Inserts and updates."""
    every = round(ROWS * run.scale)
    for case, per_transaction, keys in (("inserts", 1000, 0), ("updates", 10, every), (DIRTY, 1000, 0)):
        with tempfile.TemporaryDirectory(prefix="tg-bench-") as folder:
            rows = round(ROWS * run.scale)
            made = list(trailfiles.blocks(rows, per_transaction, keys, dirty=case == DIRTY))
            trailfiles.write(Path(folder), "lt", "bench", made)
            _measure(run, case, TrailName(folder, "lt"), rows)


def _measure(run: Run, case: str, trail: TrailName, rows: int) -> None:
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

    loaded = yardstick.load(trail)
    rivals = [timed(yardstick.NAME, RECORDS, lambda: yardstick.decode(loaded))] if run.peers else []
    run.interleaved(
        *rivals,
        timed(OURS, RECORDS, lambda: _records(trail)),
        timed(OURS, HEADERS, lambda: _headers(trail)),
        timed(OURS, STAGED, lambda: _staged(trail)),
        timed(OURS, PLAIN, lambda: _without_kernel(trail)),
    )
    for (who, what), values in found.items():
        peer = yardstick.NAME if (who, what) == (OURS, RECORDS) else ""
        run.take(Line("decode", case, who, what, tuple(values), peer=peer))


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
