"""REPERROR and the discard file on a real PostgreSQL, and in the real process."""

from __future__ import annotations

import os
import re
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.patience import PATIENCE
from replicat.apply.discard import Discards
from replicat.apply.discardfile import DiscardFile
from replicat.run.replicat import Replicat
from replicat.targets.contract import TargetSettings
from replicat.targets.kinds import open_target
from tests.e2e.test_replicat_postgres import Bench, D, I, T, U
from tests.e2e.test_replicat_process import LOG, SPARKLESS, Group, group
from tests.support.homes import bad, good
from tests.support.replicat_bench import REG
from tests.support.replicat_trail import InlineEngine, table
from trails.clock import RealClock
from trails.errors import OperatorError
from trails.fs import RealFs
from trails.record import MISSING
from trails.runtime.process.control import ask

pytestmark = pytest.mark.e2e

KV = table("src", "kv", "id a n", "id")
__all__ = ["group"]


class DiscardBench(Bench):
    """A Bench whose Replicat discards."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder, url)
        self.path = str(folder / "REP1.dsc")
        self.said: list[str] = []

    def replicat(self, url: str = "") -> Replicat:
        params = self.params()
        settings = TargetSettings(url or self.url, ("gg", "chk"), "REP1", 77, "/home", params.commit_wait)
        file = DiscardFile(RealFs(), self.path, 1, title="A discard file")
        return Replicat(
            params, REG, self.trail, fs=RealFs(), clock=RealClock(), target=open_target(settings),
            engine=InlineEngine(), note=self.notes.append,
            discards=Discards("REP1", params.error_rules, file, warn=self.said.append),
        )  # fmt: skip

    def text(self) -> str:
        return Path(self.path).read_text()


@pytest.fixture
def bench(tmp_path: Path, target_db: str) -> Iterator[DiscardBench]:
    made = DiscardBench(tmp_path, target_db)
    made.sql("CREATE TABLE kv (id int PRIMARY KEY, a text UNIQUE, n int CHECK (n >= 0))")
    yield made
    made.feed.close()


def counts(process: Replicat) -> dict[str, dict[str, int]]:
    """STATS by source table, without zeros."""
    tables: list[dict[str, Any]] = process.stats.to_reply()["tables"]
    shown = ("inserts", "updates", "deletes", "truncates", "discards")
    return {row["from"]: {name: row[name] for name in shown if row[name]} | row.get("more", {}) for row in tables}


def test_a_check_of_the_target_only(bench: DiscardBench):
    """I8: what it refuses is in the file with everything a person needs; all else of its transaction is applied."""
    bench.lines = ["REPERROR (23514, DISCARD)", "REPERROR (1403, IGNORE)"]
    for number in range(1, 9):
        bench.feed.tx((I, KV, [str(number), f"a{number}", "1"]))
    csn = bench.feed.tx(
        (U, KV, ["1", "first", "2"]), (U, KV, ["2", "line\nend", "-5"], ["2", "a2", "1"]), (I, KV, ["20", "new", "-1"]),
        (D, KV, ["3", MISSING, MISSING]), (U, KV, ["20", "new", "7"]),
    )  # fmt: skip
    bench.feed.tx((U, KV, ["4", "last", "1"]))
    done = bench.run()
    assert bench.sql("SELECT id, a, n FROM kv WHERE id IN (1, 2, 3, 4, 20) ORDER BY id") == [
        (1, "first", 2), (2, "a2", 1), (4, "last", 1),
    ]  # fmt: skip
    assert counts(done) == {"src.kv": {"inserts": 8, "updates": 2, "deletes": 1, "discards": 2, "ignored": 1}}
    first, second = bench.text().split("Current time: ")[1:]
    assert "Discarding record on action DISCARD on error 23514\npublic.kv: new row for relation" in first
    assert re.search(
        rf"seqno 0 rba \d+, CSN {csn}, change 1 of its transaction, group REP1, trail [0-9a-f]{{32}}", first
    )
    assert "Problem replicating src.kv to public.kv\nError occurred with update record" in first
    assert 'Before image:\n*\nid = "2"\na = "a2"\nn = "1"\n*\nAfter image:\n*\nid = "2"\na = "line\\nend"\n' in first
    assert f"CSN {csn}, change 2 of" in second
    assert "Before image" not in second
    assert len(bench.said) == 1
    assert "discarded (src.kv SQLSTATE 23514: 2)" in bench.said[0]
    assert bench.said[0].endswith("; ignored (src.kv SQLSTATE 02000: 1)")
    assert "line" not in bench.said[0]  # row values stay out of the logs


def test_what_the_target_passes_over_is_said_so(bench: DiscardBench):
    """A trigger or rule that takes no row is no row that is there already, and none that is missing; never applied."""
    bench.sql("INSERT INTO kv VALUES (1, 'x', 1)")
    bench.sql("CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END$$")
    bench.sql("CREATE TRIGGER no BEFORE INSERT OR UPDATE OR DELETE ON kv FOR EACH ROW EXECUTE FUNCTION no()")
    bench.sql("ALTER TABLE kv ENABLE ALWAYS TRIGGER no")
    bench.lines = ["ALLOWTARGETTRIGGERS", "REPERROR (09000, DISCARD)"]
    bench.feed.tx((I, KV, ["2", "n", "1"]), (U, KV, ["1", "u", "1"]), (U, KV, ["3", "k", "1"], ["1", "x", "1"]))
    bench.feed.tx((D, KV, ["1", "x", "1"]))
    bench.run()
    for what in ("inserts", "updates", "deletes"):
        assert f"the target took 0 of 1 {what}: a trigger or rule there takes no more" in bench.text()
    assert bench.sql("SELECT * FROM kv") == [(1, "x", 1)]


def test_another_error_still_ends_the_group(bench: DiscardBench):
    """Only exactly this SQLSTATE is given up; nothing of the batch is committed."""
    bench.lines = ["REPERROR (23514, DISCARD)"]
    bench.feed.tx((I, KV, ["1", "one", "-1"]), (I, KV, ["2", "two", "1"]), (I, KV, ["3", "two", "1"]))
    with pytest.raises(OperatorError, match=r"src\.kv: the target refuses the insert of row \(3\).*kv_a_key"):
        bench.run()
    assert bench.sql("SELECT * FROM kv") == []
    assert bench.said == []
    bench.lines = ["REPERROR (DEFAULT, DISCARD)"]
    bench.run()
    assert bench.sql("SELECT id FROM kv") == [(2,)]
    assert [text.split(",")[0] for text in bench.text().split("change ")[1:]] == [
        "0 of its transaction", "2 of its transaction",
    ]  # fmt: skip


def test_rows_that_are_not_there_and_truncates(bench: DiscardBench):
    """02000: an update that needs the target's row, changes of a table without a key; 0A000: a TRUNCATE."""
    bag = table("src", "bag", "note")
    bench.sql("CREATE TABLE bag (note text)")
    bench.sql("CREATE TABLE child (id int REFERENCES kv)")
    bench.lines = ["REPERROR (02000, DISCARD)", "REPERROR (0A000, DISCARD)"]
    bench.feed.tx((I, KV, ["1", "one", "1"]), (U, KV, ["9", "x", MISSING]), (I, bag, ["kept"]), (D, bag, ["none"]))
    bench.feed.tx((T, [KV, bag], 0), (U, bag, ["new"], ["none"]))
    done = bench.run()
    assert bench.sql("SELECT id FROM kv") == [(1,)]
    assert bench.sql("SELECT note FROM bag") == [("kept",)]
    assert counts(done) == {"src.kv": {"inserts": 1, "discards": 2}, "src.bag": {"inserts": 1, "discards": 3}}
    assert "Problem replicating src.kv, src.bag to public.kv, public.bag\nError occurred with truncate" in bench.text()
    assert "n = (not in the trail)" in bench.text()


def test_a_large_transaction_in_several_jobs(bench: DiscardBench):
    """One target transaction all the same; CSN and change are those of the transaction."""
    bench.lines = ["REPERROR (23514, DISCARD)", "BATCHROWS 10"]
    rows = [(I, KV, [str(n), f"a{n}", "-1" if n in (25, 77) else "1"]) for n in range(100)]
    csn = bench.feed.tx(*rows, pieces=12)
    bench.run()
    assert bench.sql("SELECT count(*) FROM kv") == [(98,)]
    assert re.findall(r"CSN (\d+), change (\d+)", bench.text()) == [(csn, "25"), (csn, "77")]
    assert len(bench.said) == 1


def test_a_lost_connection_after_the_record_was_written(bench: DiscardBench):
    """The change comes again, is refused again, counted once and not written twice."""
    bench.lines = ["REPERROR (23514, DISCARD)"]
    bench.feed.tx((I, KV, ["1", "one", "-1"]), (I, KV, ["2", "two", "1"]))
    process = bench.replicat()
    commit = process._target.commit

    def cut() -> None:
        process._target.commit = commit  # type: ignore[method-assign]
        bench.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'trailgate REP1'")
        commit()

    process._target.commit = cut  # type: ignore[method-assign]
    until = time.monotonic() + PATIENCE
    while not bench.sql("SELECT 1 FROM kv"):
        assert time.monotonic() < until, (process._phase, bench.notes)
        process.step()
    assert counts(process) == {"src.kv": {"inserts": 1, "discards": 1}}
    process.close()
    assert bench.text().count("Current time: ") == 1
    assert len(bench.said) == 1


# --- the process ----------------------------------------------------------------------------------------------------


def test_a_discard_file_that_can_not_grow(group: Group, monkeypatch: pytest.MonkeyPatch):
    """CW-28: exit code 2, one message, nothing committed; with space START goes on. STATS, the log, VIEW DISCARD."""
    group.sql("ALTER TABLE account ADD CHECK (n >= 0)")
    account = table("src", "account", "id owner n", "id")
    group.parameters("REPERROR (23514, DISCARD)", "DISCARDFILE ./dirdsc/rep1.dsc, MEGABYTES 8")
    path = Path(group.home.root, "dirdsc", "rep1.dsc")
    assert "nothing was discarded" in bad(group.home, "VIEW DISCARD rep1")
    group.start(SPARKLESS)
    group.feed.tx((I, LOG, ["before"]))
    group.wait(lambda: group.sql("SELECT count(*) FROM log") == [(1,)])
    assert group.process is not None
    path.write_bytes(b"-- of another day\n" * 10_000)
    soft, hard = resource.prlimit(group.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(group.process.pid, resource.RLIMIT_FSIZE, (path.stat().st_size + 100, hard))
    group.feed.tx((I, account, ["1", "x", "-1"]), (I, LOG, ["after"]))
    assert group.process.wait(timeout=PATIENCE) == 2
    _, text = group.stop()
    assert len(text.splitlines()) == 1
    assert "rep1.dsc: File too large" in text
    assert "nothing of the batch was committed" in text
    assert group.sql("SELECT count(*) FROM log") == [(1,)]
    assert path.read_bytes() == b"-- of another day\n" * 10_000
    assert (soft, hard) == resource.prlimit(os.getpid(), resource.RLIMIT_FSIZE)

    group.start(SPARKLESS)
    group.wait(lambda: group.sql("SELECT count(*) FROM log") == [(2,)])
    tables = {row["from"]: row for row in ask(group.home, "REP1", "STATS")["tables"]}
    assert (tables["src.account"]["inserts"], tables["src.account"]["discards"]) == (0, 1)
    assert 'owner = "x"' in good(group.home, "VIEW DISCARD rep1")
    warning = re.compile(r"WARNING TG-01154 .*src\.account SQLSTATE 23514: 1\); see .*rep1\.dsc")
    group.wait(lambda: bool(warning.search(Path(group.home.report("REP1")).read_text())))
    assert group.stop()[0] == 0
    assert [
        len(warning.findall(Path(path).read_text())) for path in (group.home.report("REP1"), group.home.ggserr)
    ] == [1, 1]
