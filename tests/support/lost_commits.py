"""CW-16 on a real server: it dies and has lost the commits behind the last flush, while Replicat holds the next batch.

A server that need not wait for its disk writes its log now and then in the background. A test puts that off as far as
its server lets it; as nobody can forbid it, whether the commits were lost is looked at, and if not, done again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from demo.patience import PATIENCE
from replicat.run.replicat import Replicat
from tests.support.replicat_bench import Bench
from tests.support.replicat_trail import table
from trails.position import Position
from trails.record import Op

LOG = table("src", "log", "t")
TRIES = 5


def lose_commits(
    bench: Bench, server: Any, sql: Callable[[str], list[tuple[Any, ...]]], checkpoints: str, put_off: Sequence[str]
) -> None:
    """`put_off`: said once the first six are flushed; from then on the server leaves its log in memory.

    Six transactions are flushed, two more committed, the ninth is decoded; the server loses the two. Then the row
    stands at the sixth, the files behind it are still needed, and each row arrives once, in a table without a key.
    """
    sql("CREATE TABLE log (t varchar(9))")
    process = bench.replicat()
    lost = False
    for _ in range(TRIES):
        _apply(bench, process, sql, 6)
        process.flush()
        flushed = _row(sql, checkpoints)
        for statement in put_off:
            sql(statement)
        _apply(bench, process, sql, 2)
        behind = _row(sql, checkpoints)
        assert flushed < behind
        bench.feed.tx((Op.INSERT, LOG, [str(bench.feed.number)]))
        assert process._pipeline is not None
        process._pipeline.fill()
        assert process._pipeline.busy
        server.kill()
        server.start()
        found = _row(sql, checkpoints)
        needed = process._checkpoint().reads[0].needed
        assert Position(needed.seqno, needed.rba) <= found
        assert flushed <= found <= behind
        _step_until(process, sql, bench.feed.number)
        if lost := found < behind:
            break
    process.close()
    assert lost, "the server wrote its log each time before it was killed"
    ((rows, different),) = sql("SELECT count(*), count(DISTINCT t) FROM log")
    assert (int(rows), int(different)) == (bench.feed.number, bench.feed.number)


def _row(sql: Callable[[str], list[tuple[Any, ...]]], checkpoints: str) -> Position:
    ((seqno, rba),) = sql(f"SELECT seqno, rba FROM {checkpoints}")
    return Position(int(seqno), int(rba))


def _apply(bench: Bench, process: Replicat, sql: Callable[[str], list[tuple[Any, ...]]], count: int) -> None:
    """Each in a commit of its own."""
    for _ in range(count):
        bench.feed.tx((Op.INSERT, LOG, [str(bench.feed.number)]))
        _step_until(process, sql, bench.feed.number)


def _step_until(process: Replicat, sql: Callable[[str], list[tuple[Any, ...]]], rows: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while int(sql("SELECT count(*) FROM log")[0][0]) < rows:
        assert time.monotonic() < deadline
        if not process.step():
            time.sleep(0.01)
