"""Latency of 200 transactions a second, one update each: from the commit at the source to the row at the target.

Method: one process commits at an even pace and notes when each commit returned; this one asks the target, pausing 2 ms
in between, for every row that is still out. So about 2 ms is the resolution, and polling costs both peers alike. The
milliseconds that are wanted are scaled by how quick the machine was (`yardstick.py`).
"""

from __future__ import annotations

import ctypes
import multiprocessing
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import psycopg

from benchmarks import machine, peers
from benchmarks.backlog import NATIVE
from benchmarks.bed import SOURCE_DB, TARGET_DB, Bed
from benchmarks.options import Run
from benchmarks.ours import Ours
from benchmarks.results import OURS, Line
from benchmarks.workloads import W5_KEYS, W5_RATE
from benchmarks.yardstick import NAME as YARDSTICK
from benchmarks.yardstick import Yardstick

CASE = f"W5 {W5_RATE} updates/s"
WARM_SECONDS = 3.0
BARS = {"p50 ms": 12.0, "p95 ms": 30.0, "busy cores, all of Trailgate": 0.4}
LAST_SECONDS = 30.0


def measure(run: Run) -> None:
    """Both paths in turn; the values of a percentile are those of the runs."""
    found: dict[tuple[str, str], list[float]] = {}
    quick = Yardstick()
    with Bed(tcp=run.tcp) as bed, Ours.on(bed) as ours:
        bed.prepare(W5_KEYS)
        ours.create()
        bed.hold(ours.slot)
        rivals = [lambda: _native(run, bed, found)] if run.peers else []
        run.interleaved(quick.measure, *rivals, lambda: _ours(run, bed, ours, found))
    run.take(Line("latency", CASE, YARDSTICK, "rows/s", tuple(quick.found)))
    for (who, what), values in found.items():
        bar = BARS.get(what) if who == OURS else None
        if bar is not None and what.endswith(" ms"):
            bar = quick.scaled(bar)
        run.take(Line("latency", CASE, who, what, tuple(values), bar, NATIVE if who == OURS else "", less=True))


def _native(run: Run, bed: Bed, found: dict[tuple[str, str], list[float]]) -> None:
    bed.fresh_target()
    _level(bed)
    with peers.subscription(bed, backlog=False):
        peers.enable(bed)
        _take(NATIVE, found, *_measure(run, bed, lambda: None))


def _ours(run: Run, bed: Bed, ours: Ours, found: dict[tuple[str, str], list[float]]) -> None:
    ours.restore()
    bed.fresh_target()
    _level(bed)
    bed.copy_slot(ours.slot)
    ours.target.run("START MANAGER", "START REPLICAT REP1")
    ours.source.run("START MANAGER", "START EXTRACT *")
    _take(OURS, found, *_measure(run, bed, ours.check_alive, ours.cpu))
    ours.stop()


def _level(bed: Bed) -> None:
    """Versions back to zero, so that those of this run are told from older ones; nobody listens yet."""
    bed.source.sql("UPDATE bench.accounts SET version = 0 WHERE version <> 0", SOURCE_DB)
    bed.source.sql("VACUUM bench.accounts", SOURCE_DB)


def _take(
    who: str, found: dict[tuple[str, str], list[float]], delays: Sequence[float], busy: Mapping[str, float]
) -> None:
    cuts = statistics.quantiles(delays, n=100)
    for what, value in (("p50 ms", cuts[49]), ("p95 ms", cuts[94]), ("p99 ms", cuts[98]), ("worst ms", max(delays))):
        found.setdefault((who, what), []).append(value * 1000)
    for what, cores in busy.items():
        found.setdefault((who, f"busy cores, {what}"), []).append(cores)


def _measure(
    run: Run, bed: Bed, alive: Callable[[], None], cpu: Callable[[], dict[str, float]] = dict
) -> tuple[list[float], dict[str, float]]:
    """Delays of all commits after the warm-up, in seconds, and how many cores were busy: with what `cpu` tells."""
    count = int((WARM_SECONDS + run.seconds) * W5_RATE)
    keys = _keys(count)
    # Spawned, not forked: a fork would hold what tells the servers' guards that we are dead.
    context = multiprocessing.get_context("spawn")
    committed = context.RawArray(ctypes.c_double, count)
    loader = context.Process(target=_load, args=(bed.source.url(SOURCE_DB), keys, committed), daemon=True)
    _await_connected(bed, alive)
    used, busy, began = cpu(), machine.busy_seconds(), time.monotonic()
    loader.start()
    try:
        seen = _watch(bed.target.url(TARGET_DB), keys, committed, alive)
    finally:
        loader.kill()
        loader.join()
    took, whole = time.monotonic() - began, machine.busy_seconds() - busy
    shares = {name: seconds - used.get(name, 0.0) for name, seconds in cpu().items()}
    ours = {"all of Trailgate": sum(shares.values()), **shares} if shares else {}
    warm = int(WARM_SECONDS * W5_RATE)
    delays = [seen[i] - committed[i] for i in range(warm, count)]
    return delays, {name: seconds / took for name, seconds in {"whole machine": whole, **ours}.items()}


def _keys(count: int) -> list[int]:
    chance = random.Random(5)
    return [chance.randint(1, W5_KEYS) for _ in range(count)]


def _await_connected(bed: Bed, alive: Callable[[], None], seconds: float = 60) -> None:
    """Wait until a change gets through at all."""
    bed.source.sql("UPDATE bench.marker SET n = n + 1", SOURCE_DB)
    (expected,) = bed.source.sql("SELECT n FROM bench.marker", SOURCE_DB)[0]
    deadline = time.monotonic() + seconds
    while bed.target.sql("SELECT n FROM bench.marker", TARGET_DB)[0] != (expected,):
        alive()
        if time.monotonic() > deadline:
            raise TimeoutError(f"no change has arrived within {seconds:.0f} s")
        time.sleep(0.1)


def _load(url: str, keys: Sequence[int], committed: ctypes.Array[ctypes.c_double]) -> None:
    """The loader's process: commit number i sets version i + 1 of its row."""
    with psycopg.connect(url, autocommit=True) as connection:
        began = time.monotonic()
        statement = b"UPDATE bench.accounts SET version = %s, updated = clock_timestamp() WHERE id = %s"
        for i, key in enumerate(keys):
            pause = began + i / W5_RATE - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            connection.execute(statement, (i + 1, key), prepare=True)
            committed[i] = time.monotonic()


def _watch(
    url: str, keys: Sequence[int], committed: ctypes.Array[ctypes.c_double], alive: Callable[[], None]
) -> list[float]:
    """When each commit's version (or a later one of its row) was first seen."""
    seen = [0.0] * len(keys)
    first = ready = 0  # commits before `first` are seen, those from `ready` on not yet made
    last = time.monotonic()
    with psycopg.connect(url, autocommit=True) as connection:
        while first < len(keys):
            while ready < len(keys) and committed[ready]:
                ready += 1
            out = list(dict.fromkeys(keys[first:ready]))[:500]
            rows: dict[int, int] = {}
            if out:
                statement = b"SELECT id, version FROM bench.accounts WHERE id = ANY(%s)"
                rows = dict(connection.execute(statement, (out,), prepare=True).fetchall())
            now = time.monotonic()
            while first < ready and rows.get(keys[first], 0) > first:
                seen[first] = last = now
                first += 1
            if now - last > 2:
                alive()
            if now - last > LAST_SECONDS:
                raise TimeoutError(f"commit {first} of {len(keys)} has not arrived within {LAST_SECONDS:.0f} s")
            time.sleep(0.002)
    return seen
