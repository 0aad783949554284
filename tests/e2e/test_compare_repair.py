"""COMPARE ..., REPAIR against concurrent apply, and at targets that refuse: only what is proved is written."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from demo.servers import PostgresServer
from ggsci import admin
from replicat.compare.flight import Flight
from replicat.model.target import CheckpointRow
from replicat.targets.contract import Target
from tests.support.comparing import Compare, between, both, sql
from tests.support.homes import bad, write
from tests.support.replicat_bench import REG
from tests.support.syncrep import commits_wait
from trails.position import Position
from trails.runtime.home import registration

pytestmark = pytest.mark.e2e
DONE = ("repaired", "")


@pytest.fixture
def bench(source_db: str, target_db: str, tmp_path: Path) -> Iterator[Compare]:
    with between(source_db, target_db, tmp_path) as made:
        yield made


def carried(bench: Compare, extract: Any, *tables: str) -> None:
    """A change of each table is in the trail, and applied; from here on they flow while a command waits."""
    for table in tables:
        bench.capture.sql(f"INSERT INTO {table} (id) VALUES (0)")
    bench.capture.drain(extract)
    bench.until(lambda: all(sql(bench.url, f"SELECT 1 FROM {table} WHERE id = 0") for table in tables))
    bench.extract = extract


def waits_for_lock(url: str) -> bool:
    """Whether a session waits for another one's."""
    found = sql(url, "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()")
    return bool(found)


def eventually(done: Callable[[], bool]) -> None:
    """Within a minute."""
    pause = threading.Event()
    for _ in range(3000):
        if done():
            return
        pause.wait(0.02)
    raise AssertionError("it did not come to that")


def test_B3_a_change_between_the_snapshot_and_the_lock_is_not_undone(bench: Compare):
    """What was read from the source is old once Replicat is past it: the row is read again, and is equal by then."""
    both(bench, "CREATE TABLE a (id int PRIMARY KEY, v text)", "INSERT INTO a VALUES (1, 'old'), (2, 'two')")
    bench.capture.register()
    with bench.capture.running() as extract:
        bench.start()
        carried(bench, extract, "a")
        sql(bench.url, "UPDATE a SET v = 'wrong'  WHERE id > 0")
        found = bench.compare()["a"]
        passes: list[int] = []

        class Late(Flight):
            def wait(self, begin: CheckpointRow, past: Position) -> CheckpointRow | None:
                if not passes:
                    bench.capture.sql("UPDATE a SET v = 'new' WHERE id = 1")
                    eventually(lambda: sql(bench.url, "SELECT v FROM a WHERE id = 1") == [("new",)])
                passes.append(1)
                return super().wait(begin, past)

        outcomes = bench.repair([found], flight=Late)["a"]
    assert outcomes == {("1",): ("equal by now", ""), ("2",): DONE} and len(passes) == 2
    assert sql(bench.url, "SELECT v FROM a WHERE id > 0 ORDER BY id") == [("new",), ("two",)]


def test_B3_a_commit_that_waits_for_a_standby_is_not_taken_back(bench: Compare, pg_source: PostgresServer):
    """The target has it, and no snapshot of the source shows it; a later commit, which waits for nobody, is shown."""
    both(bench, "CREATE TABLE a (id int PRIMARY KEY, v text)", "INSERT INTO a VALUES (1, 'old'), (2, 'two')")
    bench.capture.register()
    with bench.capture.running() as extract, ThreadPoolExecutor(1) as pool:
        bench.start()
        carried(bench, extract, "a")
        sql(bench.url, "UPDATE a SET v = 'wrong' WHERE id = 0")
        with commits_wait(pg_source, bench.capture.url):
            waiting = pool.submit(sql, bench.capture.url, "UPDATE a SET v = 'late' WHERE id = 1")
            with bench.flowing(extract):
                eventually(lambda: sql(bench.url, "SELECT v FROM a WHERE id = 1") == [("late",)])
                sql(bench.capture.url, "SET synchronous_commit = local", "UPDATE a SET v = 'local' WHERE id = 2")
                eventually(lambda: sql(bench.url, "SELECT v FROM a WHERE id = 2") == [("local",)])
                assert not waiting.done()
                hidden = bench.compare()["a"]
        waiting.result(60)
        shown = bench.compare()["a"]
    assert (hidden.differences, hidden.unknown) == ([], 2)
    assert ([one.key for one in shown.differences], shown.unknown) == ([("0",)], 0)
    assert sql(bench.url, "SELECT v FROM a WHERE id > 0 ORDER BY id") == [("late",), ("local",)]


def test_B3_replicat_waits_for_a_repair_of_the_same_row_and_never_comes_between(bench: Compare):
    """It holds the group's row from before it looks at the trail until it commits: the newer value comes last."""
    both(bench, "CREATE TABLE a (id int PRIMARY KEY, v text)", "INSERT INTO a VALUES (1, 'old')")
    bench.capture.register()
    with bench.capture.running() as extract, ThreadPoolExecutor(1) as pool:
        bench.start()
        carried(bench, extract, "a")
        sql(bench.url, "UPDATE a SET v = 'wrong' WHERE id = 1")
        found = bench.compare()["a"]
        flows: list[Any] = []

        def is_new() -> bool:
            return sql(bench.url, "SELECT v FROM a WHERE id = 1") == [("new",)]

        def opened() -> Target:
            target: Any = bench.target()
            lock_row = target.lock_row

            def locked() -> CheckpointRow | None:
                row: CheckpointRow | None = lock_row()
                bench.capture.sql("UPDATE a SET v = 'new' WHERE id = 1")
                bench.capture.drain(extract)
                flows.append(pool.submit(bench.until, is_new))
                eventually(lambda: is_new() or waits_for_lock(bench.url))
                return row

            target.lock_row = locked
            return target

        assert bench.repair([found], connection=opened)["a"] == {("1",): DONE}
        for flow in flows:
            flow.result()
        assert is_new()


def test_B3_what_the_target_refuses_or_changes_is_named_and_all_else_is_repaired(bench: Compare):
    """Unique values, checks, triggers, locks; and columns that only the target has stay as they are."""
    both(bench, "CREATE TABLE a (id int PRIMARY KEY, u int, v text)")
    bench.capture.sql("INSERT INTO a SELECT i, i, 'v' || i FROM generate_series(1, 9) i")
    sql(
        bench.url, "ALTER TABLE a ADD UNIQUE (u) , ADD mine text DEFAULT 'new'",
        "INSERT INTO a (id, u, v, mine) SELECT i, i, 'v' || i, 'kept' FROM generate_series(1, 9) i",
    )  # fmt: skip
    bench.capture.register()
    with bench.capture.running() as extract:
        bench.start()
        carried(bench, extract, "a")
        sql(
            bench.url,
            "UPDATE a SET u = NULL WHERE id BETWEEN 1 AND 3",  # 1 needs what the row too many has, 2 what 3 has
            "INSERT INTO a (id, u, v) VALUES (20, 1, 'too many')",
            "UPDATE a SET u = 2 WHERE id = 3",
            "UPDATE a SET v = 'wrong' WHERE id BETWEEN 4 AND 8",
            "DELETE FROM a WHERE id = 9",
            "ALTER TABLE a ADD CHECK (id <> 5 OR v <> 'v5') NOT VALID",
            "CREATE FUNCTION other() RETURNS trigger LANGUAGE plpgsql AS "
            "$$BEGIN IF new.id = 6 THEN new.v = 'mine'; END IF; RETURN new; END$$",
            "CREATE TRIGGER t BEFORE UPDATE ON a FOR EACH ROW EXECUTE FUNCTION other()",
            "ALTER TABLE a ENABLE ALWAYS TRIGGER t",
        )
        bench.lines.append("ALLOWTARGETTRIGGERS")
        found = bench.compare()["a"]
        with psycopg.connect(bench.url) as holder:
            holder.execute("SELECT 1 FROM a WHERE id = 7 FOR UPDATE")
            outcomes = bench.repair([found])["a"]
    kept = {int(str(key)): why for (key,), (what, why) in outcomes.items() if what == "not repaired"}
    assert sorted(kept) == [5, 6, 7], outcomes
    assert '"a_check"' in kept[5] and "v: a trigger, or its type" in kept[6] and "lock timeout" in kept[7]
    rows = sql(bench.url, "SELECT id, u, v, mine FROM a WHERE id > 0 ORDER BY id")
    right = [(i, i, f"v{i}" if i not in kept else "wrong", "new" if i == 9 else "kept") for i in range(1, 10)]
    assert rows == right


def test_B3_what_is_not_proved_is_not_written(bench: Compare):
    """No unique key at the target; at the last moment the group is moved, or its table is to be loaded."""
    both(bench, "CREATE TABLE a (id int PRIMARY KEY, v text)", "CREATE TABLE b (id int PRIMARY KEY, v text)")
    both(bench, "INSERT INTO a VALUES (1, 'one')", "INSERT INTO b VALUES (1, 'one')")
    bench.capture.register()
    with bench.capture.running() as extract:
        bench.start()
        carried(bench, extract, "a", "b")
        sql(bench.url, "UPDATE a SET v = 'wrong'", "ALTER TABLE b DROP CONSTRAINT b_pkey", "UPDATE b SET v = 'wrong'")
        found = bench.compare()

        def why(change: Callable[[], object]) -> str:
            def opened() -> Target:
                change()
                return bench.target()

            outcomes = bench.repair([found["a"]], connection=opened)["a"]
            assert {what for what, _ in outcomes.values()} == {"not repaired"}
            return outcomes[("1",)][1]

        assert "no unique index on its key (id)" in bench.repair([found["b"]])["b"][()][1]
        assert "START ordered to leave out" in why(lambda: sql(bench.url, "UPDATE chk SET skip_until = '>9'"))
        sql(bench.url, "UPDATE chk SET skip_until = ''")
        assert "was moved meanwhile" in why(lambda: sql(bench.url, "UPDATE chk SET alter_no = alter_no + 1"))
        sql(bench.url, "UPDATE chk SET alter_no = alter_no - 1, split = 0")
        assert "MAXTRANSOPS" in why(lambda: sql(bench.url, "UPDATE chk SET split = 1"))
        sql(bench.url, "UPDATE chk SET split = 0")
        process = bench.process
        assert process is not None
        table = {"table": "public.a"}
        assert "it was paused, and lacks changes" in why(lambda: process.command("PAUSETABLE", table))
        process.command("SKIPTABLE", table)
        assert "its load is not done (waiting)" in why(lambda: bench.instantiate("a"))
        assert "its load is not done (waiting)" in bench.repair([found["a"]])["a"][("1",)][1]
    assert sql(bench.url, "SELECT v FROM a WHERE id = 1 UNION SELECT v FROM b WHERE id = 1") == [("wrong",)]


def test_B3_the_command_asks_first_and_a_kill_in_the_middle_leaves_nothing(bench: Compare):
    """SIGKILL behind the first row's write: neither is there, Replicat goes on, and the next REPAIR does both."""
    both(bench, "CREATE TABLE a (id int PRIMARY KEY, v text)", "INSERT INTO a VALUES (1, 'one'), (2, 'two'), (3, '')")
    both(bench, "CREATE TABLE still (id int PRIMARY KEY)")
    sql(bench.url, "INSERT INTO still VALUES (9)")
    home = bench.home("MAP public.*, TARGET public.*;")
    bench.capture.register()
    wrong = "SELECT v FROM a WHERE id IN (1, 2) AND v = 'wrong'"
    with bench.capture.running() as extract:
        bench.start()
        carried(bench, extract, "a")
        with bench.flowing(extract):
            sql(bench.url, "UPDATE a SET v = 'wrong' WHERE id IN (1, 2)", "DELETE FROM a WHERE id = 3")
            assert "not confirmed" in bad(home, "COMPARE REPLICAT rep1, REPAIR")
            request = {"home": home.root, "group": "REP1", "tables": [one.to_wire() for one in bench.described()],
                       "pattern": "", "sample": 100, "values": False, "rate": 0, "repair": True}  # fmt: skip
            registration.save(home, replace(REG, name="REP2", group_key=78))
            write(home, "rep2", Path(home.prm("rep1")).read_text().replace("rep1", "rep2", 1))
            (first, _) = admin.ask("replicat", "compare", **request)["wanted"]
            assert (first["rows"], first["why"][:29]) == ([], "group REP2 writes to the same")
            registration.delete(home, "REP2")
            wanted = admin.ask("replicat", "compare", **request)["wanted"]
            assert [len(one["rows"]) for one in wanted] == [3, 0] and "no change of it" in wanted[1]["why"]
            with psycopg.connect(bench.url) as holder:
                holder.execute("SELECT 1 FROM a WHERE id = 2 FOR UPDATE")
                killed = subprocess.Popen(admin.COMMANDS["replicat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
                assert killed.stdin is not None
                killed.stdin.write(json.dumps({"verb": "repair", "wanted": wanted, **request}).encode())
                killed.stdin.close()
                eventually(lambda: waits_for_lock(bench.url))
                killed.kill()
                killed.wait()
            assert len(sql(bench.url, wrong)) == 2
            bench.capture.sql("INSERT INTO a (id) VALUES (4)")
            eventually(lambda: bool(sql(bench.url, "SELECT 1 FROM a WHERE id = 4")))
            text = bad(home, "COMPARE REPLICAT rep1, REPAIR !")
            assert (
                "public.still: not repaired: the trail has no change of it" in text and "public.a: 3 repaired" in text
            )
            assert "of 2 tables 1 different" in text
        report = Path(home.root, "dirrpt", "COMPARE-REP1.rpt").read_text()
        bench.capture.sql("CREATE SCHEMA more", "CREATE TABLE more.a (id int PRIMARY KEY, v text)")
        bench.home("MAP public.a, TARGET public.a;", "MAP more.*, TARGET public.*;")
        assert "takes the rows of more.a" in bad(home, "COMPARE REPLICAT rep1, TABLE public.a, REPAIR !")
    assert not sql(bench.url, wrong)
    every = "SELECT a::text FROM a ORDER BY id"
    assert sql(bench.url, every) == sql(bench.capture.url, every)
    assert sql(bench.url, "SELECT id FROM still") == [(9,)]
    log = Path(home.ggserr).read_text()
    assert "REPAIR of REP1 begins: 3 rows of the target, 2 to update, 1 to insert (3 of public.a)." in log
    assert "REPAIR of REP1 ended: 3 repaired." in log
    assert "REPAIR of public.a: 3 repaired\n" in report and "  repaired (id=3)\n" in report
