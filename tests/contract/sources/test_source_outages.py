"""Every source: its connection breaks, its database goes away, its process is killed. All comes, and once."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import pytest

from extract.assemble import Assembler
from tests.contract.sources.bench import KV, SourceBench
from trails.errors import AwayError
from trails.fs import RealFs
from trails.position import TrailName
from trails.writer import TrailWriter

pytestmark = pytest.mark.e2e

ROWS = 12_000


def many(bench: SourceBench) -> None:
    """One transaction of many rows, with a small one on each side."""
    bench.sql("INSERT INTO kv VALUES (-1, 'before', 0)")
    bench.insert("kv", *((n, f"{n:0100d}", n) for n in range(ROWS)))
    bench.sql("INSERT INTO kv VALUES (-2, 'behind', 0)")


def test_a_connection_that_breaks_inside_a_transaction(bench: SourceBench):
    """What came of it is dropped by readers, and it comes again whole; as often as it breaks."""
    bench.register(KV)
    extract = bench.start()
    many(bench)
    for least in (1, 500, 2000):
        bench.until(extract, lambda least=least: (extract._assembler.in_transaction or 0) >= least)
        bench.place.cut(extract._source)
        bench.until(extract, lambda: extract.command("STATUS", {})["status"].startswith("Waiting for the source"))
    bench.drain(extract)
    bench.same(bench.mirror(), "kv")
    assert len([line for line in bench.said if "; trying again for" in line]) >= 1


def test_a_database_that_comes_back_is_read_on(bench: SourceBench):
    """Also inside a large transaction: STATUS says for what it waits, and nothing is told to be well meanwhile."""
    bench.register(KV)
    extract = bench.start()
    many(bench)
    bench.until(extract, lambda: (extract._assembler.in_transaction or 0) > 500)
    bench.place.go_away(extract._source)
    bench.until(extract, lambda: extract.waits_for().startswith("Waiting for the source database: "))
    assert extract.command("STATUS", {})["status"] == extract.waits_for()
    assert not extract.command("LOGEND", {})["logend"]
    bench.place.come_back()
    bench.sql("INSERT INTO kv VALUES (-3, 'later', 0)")
    bench.drain(extract)
    bench.same(bench.mirror(), "kv")
    bench.until(extract, lambda: extract.command("STATUS", {})["status"] == "At EOF" and not extract.waits_for())
    assert [line for line in bench.said if line.startswith("connected to the source database, going on at")]


def test_a_database_that_stays_away_ends_the_process(bench: SourceBench):
    """After RECONNECTSECS, with the exit code that AUTORESTART acts on; the next one goes on."""
    bench.register(KV)
    extract = bench.start(bench.source(reconnect_seconds=0.5))
    bench.sees(extract, "INSERT INTO kv VALUES (1, 'before', 1)")
    bench.place.go_away(extract._source)
    with pytest.raises(AwayError, match=r"gave up after 0\.5 s"):
        bench.until(extract, lambda: False)
    bench.place.come_back()
    bench.die(extract)
    bench.sql("INSERT INTO kv VALUES (2, 'behind', 2)")
    bench.same(bench.capture(), "kv")


CALLS = (
    *((Assembler, name) for name in ("table", "begin", "commit", "grew", "reached", "abandon")),
    *((TrailWriter, name) for name in ("append_data", "append_place", "append_restart", "sync_soon", "sync_done")),
)
DEATH = 77


def die_at(call: int) -> None:
    """In a process of its own: end it, as SIGKILL does, right behind the n-th call that comes or goes at the source."""
    left = call

    def dying(do):  # type: ignore[no-untyped-def]
        def called(*args, **kwargs):  # type: ignore[no-untyped-def]
            nonlocal left
            done = do(*args, **kwargs)
            left -= 1
            if left == 0:
                os._exit(DEATH)
            return done

        return called

    for owner, name in CALLS:
        setattr(owner, name, dying(getattr(owner, name)))


def live(bench: SourceBench, errors: Path, call: int) -> int:
    """A process that captures all there is, but for a death at its n-th call (0: never). Its exit code."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        die_at(call)
        extract = bench.start()
        bench.drain(extract)
        extract.close()
        os._exit(0)
    except BaseException:  # noqa: BLE001  -- the test's process must not go on twice
        errors.write_text(traceback.format_exc())
        os._exit(1)


def test_killed_at_every_call(bench: SourceBench, tmp_path: Path):
    """Process after process, each killed one call later than the one before it, until one ends by itself."""
    bench.fs, bench.trail = RealFs(), TrailName(str(tmp_path / "dirdat"), "lt")
    (tmp_path / "dirdat").mkdir(mode=0o700)
    bench.settings = {"block_bytes": 300, "max_bytes": 1 << 17}
    bench.register(f"CREATE TABLE kv (id integer PRIMARY KEY, a {bench.place.large}, b integer)")
    for n in range(2):
        bench.insert("kv", *((10 * n + i, "x" * 20_000, n) for i in (1, 2)))
        bench.sql(f"UPDATE kv SET id = -id WHERE b = {n} AND id % 2 = 0", f"DELETE FROM kv WHERE b = {n - 1}")
    errors, code, call = tmp_path / "errors", DEATH, 0
    while code == DEATH:
        call += 1
        code = live(bench, errors, call)
    assert code == 0, errors.read_text()
    assert call > 6, "there was little to die in"
    bench.same(bench.mirror(), "kv")
