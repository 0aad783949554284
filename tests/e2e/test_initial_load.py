"""The initial load on real databases: tables with rows, written to while they are copied, end as their source is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from demo.servers import PostgresServer
from extract.extract import Extract
from replicat.load import reloading, staging
from replicat.load.chunk import ChunkTask, Must, SourceOf
from replicat.load.loadtables import COPYING, ChunkRow, LoadTables
from replicat.load.piping import pipe_partition
from replicat.model.loading import Seen
from replicat.params import ReplicatParams
from replicat.reading.kinds import open_reader
from replicat.targets.kinds import admin_for, kind_of
from tests.support.capturing import Capture, ask, step_until
from tests.support.late_commits import commit_in_the_socket, until_it_waits
from tests.support.loading import LoadBench, writing
from tests.support.loadkv import KEYS, kv_bench, kv_source, rows, settle, sql
from tests.support.syncrep import commits_wait
from trails.errors import AwayError, OperatorError
from trails.record import Column, TableDef
from trails.runtime.language import params as language
from trails.testing import Crash

pytestmark = pytest.mark.e2e


@pytest.fixture
def capture(source_db: str, tmp_path: Path) -> Capture:
    """The source of `kv`."""
    return kv_source(source_db, tmp_path)


@pytest.fixture
def bench(capture: Capture, target_db: str, tmp_path: Path) -> Iterator[LoadBench]:
    """Its target."""
    with kv_bench(capture, target_db, tmp_path) as made:
        yield made


def as_deliverer(url: str) -> str:
    """The same database, by one who may change rows, and not empty tables."""
    sql(url, "DO $$ BEGIN CREATE ROLE deliverer; EXCEPTION WHEN duplicate_object THEN END $$")
    sql(url, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO deliverer")
    return f"{url}{'&' if '?' in url else '?'}options=-c%20role%3Ddeliverer"


@pytest.mark.parametrize("pipes", [True, False])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_GG_01_a_table_that_is_written_to_is_loaded_in_chunks(
    capture: Capture, bench: LoadBench, seed: int, pipes: bool
):
    """Writes, captures, batches and chunks in a random order; then killed at random and gone on."""
    bench.pipes, bench.turn = pipes, 10.0 * seed
    capture.register()
    with capture.running() as extract, writing(capture.url, "kv", seed, KEYS) as writer:
        writer.write(5)
        bench.instantiate("kv")
        bench.start()
        for turn in range(120):
            match writer.random.randrange(6):
                case 0 | 1:
                    writer.write(2)
                case 2:
                    capture.drain(extract)
                case 3 if turn % 7 == 0:
                    bench.kill()
                    bench.start()
                case _:
                    bench.step(2)
        capture.drain(extract)
        settle(capture, extract, bench)
    assert rows(bench.url) == rows(capture.url)
    assert not bench.state().chunks
    assert "is live" in " ".join(bench.notes)


# --- crashes, orphans, and what the source does meanwhile -------------------------------------------------------------


def test_a_chunk_is_committed_with_its_mark_or_not_at_all(capture: Capture, bench: LoadBench):
    """Killed at each write of a chunk's transaction in turn: nothing of it is there, and the next life has it."""
    capture.register()
    bench.pipes = False
    with capture.running() as extract:
        capture.drain(extract)
        bench.instantiate("kv")
        for write in (1, 2):
            process = bench.start()
            bench.until(lambda process=process: process._rounds.running and bool(bench.state().chunks))
            done: list[int] = []
            whole = process._target.write

            def killed(*statement: Any, whole: Any = whole, done: list[int] = done, write: int = write) -> int:
                done.append(1)
                if len(done) == write:
                    raise Crash
                return int(whole(*statement))

            process._target.write = killed  # type: ignore[method-assign]
            with pytest.raises(Crash):
                bench.step(1000)
            bench.kill()
            copied = [chunk for chunk in bench.state().chunks if chunk.seen]
            assert sum(chunk.rows for chunk in copied) == len(rows(bench.url))
        bench.start()
        settle(capture, extract, bench)
    assert rows(bench.url) == rows(capture.url)


def test_CW_14_an_orphan_of_a_round_commits_before_a_batch_or_never(capture: Capture, bench: LoadBench):
    """A task that outlives its process: its chunk counts if nothing was left out since, and else it is rolled back."""
    capture.register()
    bench.rows = 1000
    with capture.running() as extract, writing(capture.url, "kv", 7, KEYS) as writer:
        capture.drain(extract)
        bench.instantiate("kv")
        process = bench.start()
        orphans: list[Any] = []
        process._engine.run_all = lambda _function, items: orphans.extend(items) or Future()  # type: ignore[method-assign,func-returns-value]
        bench.until(lambda: bool(orphans))
        bench.kill()

        bench.start()
        assert bench.process is not None
        bench.process._rounds._pause = float("inf")
        writer.write(5)
        capture.drain(extract)
        bench.step(10)
        assert bench.state().load.fence == 1
        assert [type(one) for one in pipe_partition(orphans)] == [AwayError]
        assert rows(bench.url) == []

        late = replace(orphans[0], fence=1)
        bench.kill()
        process = bench.start()
        process._rounds._pause = float("inf")
        assert [one.rows for one in pipe_partition([late])] == [len(rows(capture.url))]
        writer.write(5)
        capture.drain(extract)
        bench.step(10)
        assert any("since the batch was planned" in note for note in bench.notes)
        process._rounds._pause = 0.0
        settle(capture, extract, bench)
    assert rows(bench.url) == rows(capture.url)


def test_CW_01_a_process_that_looked_before_there_was_a_load_applies_nothing(capture: Capture, bench: LoadBench):
    """It has found no table of the load, and stands still; the next one is instantiated meanwhile."""
    capture.register()
    with capture.running() as extract:
        capture.drain(extract)
        bench.start()
        bench.step(5)
        assert [one["done"] for one in bench.command("kv")] == ["empty"]
        capture.sql("INSERT INTO kv VALUES (1, 'new')", "UPDATE kv SET v = 'moved' WHERE id = 1")
        capture.drain(extract)
        settle(capture, extract, bench)
    assert _again(bench)
    assert rows(bench.url) == rows(capture.url)


def test_CW_01_a_batch_whose_commit_is_on_its_way_is_seen_by_instantiate(capture: Capture, bench: LoadBench):
    """Its process is gone. INSTANTIATE waits for the COMMIT, and finds rows in the table that it takes for empty."""
    capture.register()
    with capture.running() as extract:
        process = bench.start()
        capture.drain(extract)
        bench.step(5)
        capture.sql("INSERT INTO kv VALUES (1, 'new')")
        capture.drain(extract)
        with ThreadPoolExecutor(1) as pool, commit_in_the_socket(process) as server:
            with pytest.raises(Crash):
                bench.step(1000)
            late = pool.submit(bench.command, "kv")
            until_it_waits(lambda text: sql(bench.url, text), server, late)
        with pytest.raises(OperatorError, match=r"target table public\.kv of public\.kv has rows"):
            late.result(60)
        assert rows(bench.url) == [(1, "new")]
        process.close()
        assert [one["done"] for one in bench.command("kv", truncate=True)] == ["emptied"]
        bench.start()
        settle(capture, extract, bench)
    assert rows(bench.url) == rows(capture.url)


def test_CW_01_a_load_that_is_begun_anew_lands_late(capture: Capture, bench: LoadBench):
    """The process that begins it anew is gone, its COMMIT on its way; the next one has looked before that landed."""
    capture.register()
    with capture.running() as extract:
        capture.drain(extract)
        bench.command("kv")
        first = bench.start()
        bench.until(lambda: bool(bench.state().chunks) and all(chunk.seen for chunk in bench.state().chunks))
        capture.sql("INSERT INTO kv VALUES (1, 'before')", "TRUNCATE kv", "INSERT INTO kv VALUES (3, 'behind')")
        capture.drain(extract)
        whole, landing = first._load.begin_again, ExitStack()
        servers: list[int] = []

        def begun(*given: Any) -> None:
            servers.append(landing.enter_context(commit_in_the_socket(first)))
            whole(*given)

        first._load.begin_again = begun  # type: ignore[method-assign]
        with ThreadPoolExecutor(1) as pool:
            with landing:
                with pytest.raises(Crash):
                    bench.step(1000)
                second = bench.start()
                late = pool.submit(
                    bench.until, lambda: any("starting again from the row" in one for one in bench.notes)
                )
                until_it_waits(lambda text: sql(bench.url, text), servers[0], late)
                assert second._load.tables[0].state == COPYING
            late.result(60)
        first.close()
        settle(capture, extract, bench)
    assert rows(bench.url) == rows(capture.url)


def _again(bench: LoadBench) -> bool:
    return any("starting again from the row" in note for note in bench.notes)


def test_DB_12_B4_a_table_is_loaded_anew_and_lacks_nothing_that_was_applied_before(
    capture: Capture, bench: LoadBench, pg_source: PostgresServer, monkeypatch
):
    """A commit that was applied, and that no snapshot shows yet; a column of since INSTANTIATE; rows that differ."""
    monkeypatch.setattr(staging, "MOST_SECONDS", 0.0)
    capture.register()
    with capture.running() as extract:
        capture.drain(extract)
        bench.instantiate("kv")
        process = bench.start()
        settle(capture, extract, bench)
        for url in (bench.url, capture.url):
            sql(url, "ALTER TABLE kv ADD COLUMN w integer NOT NULL DEFAULT 7")
        sql(capture.url, "UPDATE kv SET w = id")
        capture.drain(extract)
        bench.until(lambda: rows(bench.url) == rows(capture.url))
        sql(bench.url, "INSERT INTO kv VALUES (777777, 'too many')")
        sql(bench.url, "DELETE FROM kv WHERE id = 8")
        with ThreadPoolExecutor(1) as pool, commits_wait(pg_source, capture.url):
            waiting = pool.submit(sql, capture.url, "UPDATE kv SET v = 'late' WHERE id = 2")
            bench.until(lambda: _applied(extract, bench))
            assert not waiting.done()
            assert [one["notes"] for one in bench.reload("kv")] == [["was live"]]
            assert rows(bench.url) == []
            process.flush()  # which sees that it was not told
            bench.until(lambda: "had not ended at the source" in bench.notes[-1])
            assert not any(chunk.seen for chunk in bench.state().chunks)
        process._rounds._pause = 0.0
        settle(capture, extract, bench)
    assert (2, "late", 2) in rows(bench.url)
    assert rows(bench.url) == rows(capture.url)


def _applied(extract: Extract, bench: LoadBench) -> bool:
    extract.step()
    extract.flush()
    return (2, "late", 2) in rows(bench.url)


def test_B4_nothing_is_emptied_that_can_not_be_loaded_anew(capture: Capture, bench: LoadBench, monkeypatch):
    """The source may not be read, others fill the table, a reader holds it: each is told, and changes go on."""
    monkeypatch.setattr(reloading, "TRIES", 2)
    monkeypatch.setattr(reloading, "PAUSE_SECONDS", 0.0)
    capture.register()
    with capture.running() as extract:
        capture.drain(extract)
        bench.instantiate("kv")
        bench.start()
        settle(capture, extract, bench)
        sql(capture.url, "DO $$ BEGIN CREATE ROLE nobody_reads; EXCEPTION WHEN duplicate_object THEN END $$")
        unread = f"{capture.url}{'&' if '?' in capture.url else '?'}options=-c%20role%3Dnobody_reads"
        wide = replicat_params("MAP public.kv, TARGET public.kv;", "MAP public.o*, TARGET public.kv;")
        history = replicat_params("INSERTDELETES", "MAP public.*, TARGET public.*;")
        for changed, told in (
            ({"source_url": unread}, "permission denied"), ({"maps": wide}, "may take other tables there"),
            ({"maps": history}, "INSERTDELETES has it keep"),
        ):  # fmt: skip
            with pytest.raises(OperatorError, match=told):
                bench.reload("kv", **changed)
        with pytest.raises(OperatorError, match="no MAP of REP1 takes"):
            bench.reload("no")
        other = LoadTables(kind_of(bench.url), bench.table, "REP2", 78)
        with admin_for(bench.url).statements(bench.url) as run:
            run(*other.add_table(replace(bench.state().tables[0], source="public.part")))
            with pytest.raises(OperatorError, match=r"REP2 loads public\.part into it"):
                bench.reload("kv")
            run(*other.drop_table(("public.part", "public.kv")))
        sql(bench.url, "CREATE TABLE refers (id bigint REFERENCES kv)")
        with pytest.raises(OperatorError, match="foreign key"):
            bench.reload("kv")
        sql(bench.url, "DROP TABLE refers")
        with psycopg.connect(bench.url) as reader:
            reader.execute("SELECT count(*) FROM kv")
            with pytest.raises(AwayError, match=r"nothing was emptied in 2 tries.*lock timeout"):
                bench.reload("kv")
        assert bench.states() == {"kv": "live"}
        capture.sql("UPDATE kv SET v = 'on' WHERE id = 2")
        capture.drain(extract)
        bench.until(lambda: rows(bench.url) == rows(capture.url))


def replicat_params(*lines: str) -> Any:
    """The MAPs of a parameter file."""
    text = "\n".join(["REPLICAT rep1", "TARGETDB 'postgresql://nowhere/x'", *lines]) + "\n"
    return ReplicatParams.from_statements(language.parse_text(text, "rep1.prm"), "rep1.prm").maps


def test_a_commit_that_waits_for_a_standby_is_waited_for(capture: Capture, bench: LoadBench, pg_source: PostgresServer):
    """It stands in the log, is captured and left out, and no snapshot shows it: a chunk copied then would lack it."""
    capture.register()
    bench.rows = 1000
    with capture.running() as extract:
        capture.drain(extract)
        bench.instantiate("kv")
        bench.start()
        assert bench.process is not None
        bench.process._rounds._pause = float("inf")
        with ThreadPoolExecutor(1) as pool, commits_wait(pg_source, capture.url):
            waiting = pool.submit(sql, capture.url, "UPDATE kv SET v = 'late' WHERE id = 2")
            step_until(extract, lambda: extract.stats.total() > 0)
            extract.flush()
            bench.until(lambda: bool(bench.state().load.left_out))
            assert not waiting.done()
            bench.process._rounds._pause = 0.0
            asked = ChunkTask(
                SourceOf(capture.url, {}), bench.describe("kv"), ChunkRow("", "", 0), None,
                Must("", bench.state().load.left_out), "",
            )  # fmt: skip
            reader = open_reader(capture.url)
            newest = reader.newest()
            seen = Seen.parse(reader.begin(asked.table).seen)
            assert newest is not None
            assert (asked.must.lacks(seen), Must(below=newest).lacks(seen) > 0) == (1, True)
            reader.close()
        waiting.result(60)
        settle(capture, extract, bench)
    assert rows(bench.url) == rows(capture.url)


def test_a_truncate_and_a_change_of_shape_begin_the_load_anew(capture: Capture, bench: LoadBench):
    """Chunks that were copied before them go; what is copied then is of behind them."""
    capture.ddl = "INCLUDE ALL"
    ask("add_ddlcapture", url=capture.url)
    bench.lines = ["DDL INCLUDE ALL"]
    capture.register()
    with capture.running() as extract:
        capture.drain(extract)
        bench.instantiate("kv")
        bench.start()
        bench.until(lambda: any(chunk.seen for chunk in bench.state().chunks))
        capture.sql("TRUNCATE kv", "INSERT INTO kv VALUES (1, 'behind')")
        capture.drain(extract)
        bench.until(lambda: any("begins anew" in note for note in bench.notes))
        settle(capture, extract, bench)
        assert rows(bench.url) == rows(capture.url)

        sql(bench.url, "DELETE FROM chk_tables")
        sql(bench.url, "TRUNCATE kv")
        capture.sql("INSERT INTO kv SELECT n, 'more' FROM generate_series(1000, 1400) n")
        capture.drain(extract)
        bench.kill()
        bench.instantiate("kv")
        bench.start()
        bench.until(lambda: any(chunk.seen for chunk in bench.state().chunks))
        capture.sql("ALTER TABLE kv ADD COLUMN w integer NOT NULL DEFAULT 7")
        capture.sql("UPDATE kv SET w = 8 WHERE id < 1100")
        capture.drain(extract)
        settle(capture, extract, bench)
    assert sum("begins anew" in note for note in bench.notes) == 2
    assert rows(bench.url) == rows(capture.url)


def test_a_table_with_a_dot_in_its_name_begins_anew_and_one_that_can_not_be_emptied_fails_alone(
    capture: Capture, bench: LoadBench
):
    """Both are truncated while they are copied. The target lets nobody empty the other: that is its own matter."""
    for url in (capture.url, bench.url):
        sql(url, 'CREATE TABLE "odd.kv" (id bigint PRIMARY KEY, v text)')
    capture.sql('INSERT INTO "odd.kv" SELECT * FROM kv')
    capture.register()
    with capture.running() as extract:
        capture.drain(extract)
        for name, ends in (("odd.kv", "catching up"), ("kv", "failed")):
            bench.instantiate(name)
            if name == "kv":
                bench.url = as_deliverer(bench.url)
            process = bench.start()
            bench.until(lambda name=name: any(c.seen and c.source == f"public.{name}" for c in bench.state().chunks))
            process._rounds._pause = float("inf")
            capture.sql(f'TRUNCATE "{name}"')
            capture.drain(extract)
            bench.until(lambda name=name: not any(c.source == f"public.{name}" for c in bench.state().chunks))
            process._rounds._pause = 0.0
            bench.until(lambda name=name, ends=ends: bench.states()[name] == ends)
            bench.kill()
    assert rows(bench.url, '"odd.kv"') == []
    assert "permission denied" in bench.state().tables[0].reason
    assert "truncated while it was copied" in bench.state().tables[0].reason


def test_a_column_that_is_gone_at_the_source_is_waited_for_and_others_go_first(capture: Capture, bench: LoadBench):
    """The trail tells of it later, and the load begins anew then."""
    capture.ddl = "INCLUDE ALL"
    ask("add_ddlcapture", url=capture.url)
    bench.lines = ["DDL INCLUDE ALL"]
    for url in (capture.url, bench.url):
        sql(url, "CREATE TABLE a (id bigint PRIMARY KEY, v text, w text)")
    sql(capture.url, "INSERT INTO a SELECT n, 'v', 'w' FROM generate_series(1, 100) n")
    capture.register()
    with capture.running() as extract:
        capture.drain(extract)
        bench.instantiate("a", "kv")
        process = bench.start()
        capture.sql("ALTER TABLE a DROP COLUMN w")

        def soon() -> dict[str, str]:
            process._rounds._pause = 0.0
            return bench.states()

        bench.until(lambda: soon() == {"a": "waiting", "kv": "catching up"})
        assert "no column w" in bench.state().tables[0].reason
        capture.drain(extract)
        bench.until(lambda: soon()["a"] == "catching up")
    assert bench.state().tables[0].reason == ""
    assert rows(bench.url, "a") == rows(capture.url, "a")


def test_a_unique_value_that_moves_between_two_rows_while_they_are_copied(capture: Capture, bench: LoadBench):
    """The target's table had its unique index before: one chunk then, so that it never has the value twice."""
    sql(bench.url, "CREATE UNIQUE INDEX ON kv (v)")
    bench.tasks = 1
    capture.register()
    with capture.running() as extract:
        capture.drain(extract)
        bench.instantiate("kv")
        process = bench.start()
        bench.until(lambda: any(chunk.seen for chunk in bench.state().chunks) and not process._rounds.running)
        capture.sql("UPDATE kv SET v = 'moves' WHERE id = 398", "UPDATE kv SET v = 'old 398' WHERE id = 2")
        bench.until(lambda: bench.states() == {"kv": "catching up"})
        capture.drain(extract)
        bench.until(lambda: rows(bench.url) == rows(capture.url))


def test_a_key_that_the_trail_takes_for_none(capture: Capture, bench: LoadBench):
    """The capture believes no key that may be younger than a transaction: its columns judge changes all the same."""
    capture.register()
    with capture.running() as extract:
        capture.drain(extract)
        bench.instantiate("kv")
        process = bench.start()
        bench.until(lambda: any(chunk.seen for chunk in bench.state().chunks))
        bench.step()
        keyless = TableDef("public", "kv", (Column("id", "bigint", "bigint"), Column("v", "text", "text")))
        (plan,) = process._planning.plan(keyless)
        assert plan.error == ""
        assert plan.loading is not None
        assert plan.loading.columns == (0,)
        (lacking,) = process._planning.plan(TableDef("public", "kv", keyless.columns[1:]))
        assert "expected id" in lacking.error


# --- tables of all kinds ----------------------------------------------------------------------------------------------

MANY = "FROM generate_series(1, 150) n"
TABLES = {
    "empty": ("id integer PRIMARY KEY, v text", ""),
    "single": ("id integer PRIMARY KEY, v text", "SELECT 1, 'one'"),
    "keyless": ("a text, b numeric(8,2)", f"SELECT 'x' || n % 20, n % 7 {MANY}"),
    "pairs": ("a integer, b text, v text, PRIMARY KEY (a, b)", f"SELECT n % 9, 'k' || n, 'v' {MANY}"),
    "texts": ("id text PRIMARY KEY, v text", f"SELECT chr(60 + n % 40) || md5(n::text), E'\\t\n' {MANY}"),
    "uuids": ("id uuid PRIMARY KEY, v bytea", f"SELECT md5(n::text)::uuid, '\\x00ff' {MANY}"),
    "floats": ("id double precision PRIMARY KEY, v boolean", f"SELECT (n - 70) / 7.0, n % 2 = 0 {MANY}"),
}


INDEXES = (
    "CREATE INDEX kv_v ON public.kv (v)",
    "CREATE INDEX nothing ON public.no (v)",
    "CREATE UNIQUE INDEX kv_both ON public.kv (v, id)",
)


@pytest.mark.parametrize("pipes", [True, False])
def test_GG_01_tables_of_all_kinds(capture: Capture, bench: LoadBench, pipes: bool):
    """Empty, of one row, without a key, with keys of several columns, text, uuids, floats; indexes made behind."""
    bench.pipes = pipes
    for name, (columns, filled) in TABLES.items():
        capture.sql(f"CREATE TABLE {name} ({columns})", *([f"INSERT INTO {name} {filled}"] if filled else []))
        sql(bench.url, f"CREATE TABLE {name} ({columns})")
    capture.register()
    with capture.running() as extract:
        capture.drain(extract)
        bench.instantiate("kv", behind=INDEXES)
        bench.instantiate(*TABLES)
        bench.start()
        bench.step(20)
        for name, (_, filled) in TABLES.items():
            if filled:
                capture.sql(f"DELETE FROM {name} WHERE ctid IN (SELECT ctid FROM {name} LIMIT 5)")
        capture.drain(extract)
        settle(capture, extract, bench)
    for name in (*TABLES, "kv"):
        assert sorted(rows(bench.url, name), key=str) == sorted(rows(capture.url, name), key=str), name
    assert sql(bench.url, "SELECT count(*) FROM pg_indexes WHERE indexname = 'kv_v'") == [(1,)]
    (kv,) = [row for row in bench.state().tables if row.source == "public.kv"]
    assert "CREATE INDEX nothing" in kv.reason and "kv_both" not in kv.reason
    assert sql(bench.url, "SELECT count(*) FROM pg_indexes WHERE indexname = 'kv_both'") == [(1,)]
    assert (len(list((bench.folder / "scratch").iterdir())) == 0) or not pipes


def test_an_index_that_was_made_before_a_kill_is_not_made_again(capture: Capture, bench: LoadBench, monkeypatch):
    """Each is off the list by its own transaction, so none is told as refused for being there."""
    capture.register()
    with capture.running() as extract:
        capture.drain(extract)
        bench.instantiate(
            "kv", behind=("CREATE INDEX first ON public.kv (v)", "CREATE INDEX other ON public.kv (v, id)")
        )
        target, made = bench.start()._target, list[str]()
        really = target.ddl

        def ddl(statements: Sequence[str]) -> None:
            if made:
                raise Crash
            made.extend(statements)
            really(statements)

        monkeypatch.setattr(target, "ddl", ddl)
        with pytest.raises(Crash):
            settle(capture, extract, bench)
        bench.kill()
        bench.start()
        settle(capture, extract, bench)
    names = sql(bench.url, "SELECT indexname FROM pg_indexes WHERE indexname IN ('first', 'other') ORDER BY 1")
    assert names == [("first",), ("other",)] and bench.state().tables[0].reason == ""


def test_a_row_that_the_target_refuses_fails_its_table_alone(capture: Capture, bench: LoadBench):
    """REPERROR decides: the table's load fails with the row's key, and other tables go on; or the row is discarded."""
    capture.sql("CREATE TABLE other (id integer PRIMARY KEY)", "INSERT INTO other VALUES (1)")
    sql(bench.url, "CREATE TABLE other (id integer PRIMARY KEY)")
    sql(bench.url, "ALTER TABLE kv ADD CHECK (v <> 'old 10')")
    capture.register()
    with capture.running() as extract:
        capture.drain(extract)
        bench.instantiate("kv", "other")
        bench.start()
        bench.until(lambda: bench.states() == {"kv": "failed", "other": "catching up"})
        (kv,) = [row for row in bench.state().tables if row.source == "public.kv"]
        assert "10" in kv.reason
        assert "kv_v_check" in kv.reason
        capture.sql("UPDATE kv SET v = 'new' WHERE id = 0")
        capture.drain(extract)
        bench.step(20)
        assert (0, "new") not in rows(bench.url)
    assert any("failed" in note for note in bench.notes)
