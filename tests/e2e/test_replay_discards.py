"""REPLAY DISCARDS on a real PostgreSQL: once the cause is mended each change arrives, at most once ever."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replicat.apply.discardfile import framed
from replicat.apply.replay import Outcome, Replay
from replicat.run.replicat import Replicat
from replicat.targets.contract import TargetSettings
from replicat.targets.kinds import open_target
from tests.e2e.test_replicat_discards import DiscardBench
from tests.e2e.test_replicat_postgres import D, I, T, U
from tests.support.homes import bad, good, make_home, write
from tests.support.replicat_trail import table
from trails.fs import RealFs
from trails.record import MISSING
from trails.runtime.home import registration
from trails.runtime.home.registration import Registration

pytestmark = pytest.mark.e2e

KV, BAG = table("src", "kv", "id a n", "id"), table("src", "bag", "note n")


class ReplayBench(DiscardBench):
    """A Bench whose discards are applied again."""

    def target(self) -> Any:
        return open_target(TargetSettings(self.url, ("gg", "chk"), "REP1", 77, "/home"))

    def replay(self, path: str = "", **options: bool) -> list[Outcome]:
        file = RealFs().open(path or self.path)
        try:
            return Replay(self.target(), "REP1", 77, **options).run(file)
        finally:
            file.close()

    def outcomes(self, path: str = "", **options: bool) -> list[str]:
        return [one.outcome for one in self.replay(path, **options)]


@pytest.fixture
def bench(tmp_path: Path, target_db: str) -> Iterator[ReplayBench]:
    made = ReplayBench(tmp_path, target_db)
    made.lines = ["REPERROR (DEFAULT, DISCARD)", "ALLOWTARGETTRIGGERS"]
    made.sql("CREATE TABLE kv (id int PRIMARY KEY, a text, n int CHECK (n >= 0), extra text DEFAULT 'own')")
    made.sql("CREATE TABLE bag (note text, n int CHECK (n >= 0))")
    yield made
    made.feed.close()


def discarded(bench: ReplayBench) -> None:
    """An insert, an update, a delete of what is not there, changes of a table without a key: all refused."""
    bench.sql("INSERT INTO kv VALUES (2, 'b', 2), (3, 'c', 3)")
    bench.sql("CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'not now'; END$$")
    bench.sql("CREATE TRIGGER no BEFORE DELETE ON kv FOR EACH ROW EXECUTE FUNCTION no()")
    bench.sql("ALTER TABLE kv ENABLE ALWAYS TRIGGER no")
    bench.feed.tx(
        (I, KV, ["1", "tab\tand\nline", "-1"]), (U, KV, ["2", None, "-2"], ["2", "b", "2"]),
        (D, KV, ["3", "c", "3"]), (I, BAG, ["x", "-1"]), (I, KV, ["4", "d", "4"]),
    )  # fmt: skip
    bench.run()
    assert bench.text().count("Current time: ") == 4


def mend(bench: ReplayBench) -> None:
    bench.sql(
        "ALTER TABLE kv DROP CONSTRAINT kv_n_check; ALTER TABLE bag DROP CONSTRAINT bag_n_check; DROP TRIGGER no ON kv"
    )


def rows(bench: ReplayBench) -> list[Any]:
    return [*bench.sql("SELECT id, a, n FROM kv ORDER BY id"), *bench.sql("SELECT * FROM bag")]


def test_what_was_refused_arrives_once(bench: ReplayBench):
    """Before it is mended: kept, with the database's words; a dry run applies nothing; then all of it, once."""
    discarded(bench)
    before = rows(bench)
    kept = bench.replay()
    assert [one.outcome for one in kept] == ["kept"] * 4
    assert "kv_n_check" in kept[0].why
    assert "not now" in kept[2].why
    mend(bench)
    assert bench.outcomes(dry=True) == ["applied"] * 4
    assert rows(bench) == before
    assert bench.outcomes() == ["applied"] * 4
    wanted = [(1, "tab\tand\nline", -1), (2, None, -2), (4, "d", 4), ("x", -1)]
    assert rows(bench) == wanted
    assert bench.sql("SELECT extra FROM kv ORDER BY id") == [("own",)] * 3
    bench.sql("DELETE FROM kv WHERE id = 1; DELETE FROM bag")
    assert bench.outcomes() == ["applied before"] * 4
    assert rows(bench) == wanted[1:3]


def test_a_transaction_that_was_discarded_whole_is_replayed_whole(bench: ReplayBench):
    """All of its records in one transaction, also where a later one builds on an earlier; or none of them."""
    bench.lines = ["REPERROR (23514, TRANSDISCARD)", "REPERROR (DEFAULT, DISCARD)"]
    bench.feed.tx((I, KV, ["1", "a", "1"]), (I, KV, ["2", "b", "-2"]), (U, KV, ["1", "c", "5"], ["1", "a", "1"]))
    bench.feed.tx((I, KV, ["7", "z", "1"]))
    bench.run()
    assert bench.text().count(" on error 23514 (of its whole transaction)") == 3
    kept = bench.replay()
    assert [one.outcome for one in kept] == ["kept"] * 3
    assert all("replayed whole or not at all: record 2: " in one.why and "kv_n_check" in one.why for one in kept)
    assert rows(bench) == [(7, "z", 1)]
    bench.sql("ALTER TABLE kv DROP CONSTRAINT kv_n_check; INSERT INTO kv VALUES (2, 'mine', 0)")
    assert [one.outcome for one in bench.replay(dry=True)] == ["kept"] * 3
    bench.sql("DELETE FROM kv WHERE id = 2")
    part = Path(bench.path).with_name("REP1.0.dsc")
    part.write_text(bench.text()[: bench.text().rindex("Current time: ")])
    assert all("its end is not in this file, which has 3 of its records" in one.why for one in bench.replay(str(part)))
    assert rows(bench) == [(7, "z", 1)]
    assert bench.outcomes(dry=True) == ["applied"] * 3
    assert rows(bench) == [(7, "z", 1)]
    assert bench.outcomes() == ["applied"] * 3
    assert rows(bench) == [(1, "c", 5), (2, "b", -2), (7, "z", 1)]
    bench.sql("DELETE FROM kv")
    assert bench.outcomes() == ["applied before"] * 3


def test_a_dry_run_sees_what_earlier_records_would_do(bench: ReplayBench):
    """An update of a row that an earlier record brings; nothing of it stays."""
    bench.feed.tx((I, KV, ["1", "a", "-1"]))
    bench.feed.tx((U, KV, ["1", "b", "-2"], ["1", "a", "-1"]))
    bench.feed.tx((I, KV, ["1", "x", "-3"]))
    bench.feed.tx((D, KV, ["1", "x", "-3"]))
    bench.run()
    bench.sql("ALTER TABLE kv DROP CONSTRAINT kv_n_check")
    dry = [(one.outcome, one.why) for one in bench.replay(dry=True)]
    assert rows(bench) == []
    assert dry == [(one.outcome, one.why) for one in bench.replay()]
    assert [outcome for outcome, _ in dry] == ["applied", "applied", "kept", "kept"]
    assert rows(bench) == [(1, "b", -2)]


def test_a_dry_run_says_of_a_record_that_comes_twice_what_the_run_does(bench: ReplayBench):
    """In a file that was joined: of a transaction that was discarded whole, or alone."""
    bench.lines = ["REPERROR (23514, TRANSDISCARD)"]
    bench.feed.tx((I, KV, ["1", "a", "1"]), (I, KV, ["2", "b", "-2"]))
    bench.run()
    bench.sql("ALTER TABLE kv DROP CONSTRAINT kv_n_check")
    bench.feed.tx((I, KV, ["3", "c", "3"]))
    bench.lines = ["REPERROR (DEFAULT, DISCARD)"]
    bench.feed.tx((I, KV, ["3", "d", "4"]))
    bench.run()
    bench.sql("DELETE FROM kv")
    text = Path(bench.path).read_bytes()
    Path(bench.path).write_bytes(text + b"\n" + text)
    wanted = ["applied"] * 3 + ["applied before"] * 3
    assert bench.outcomes(dry=True) == wanted
    assert bench.outcomes() == wanted


def test_what_has_no_row_of_the_target_says_why(bench: ReplayBench):
    """An expression that failed, a TRUNCATE: each by its own name."""
    from replicat.apply.discardrecord import Reason, record
    from replicat.work.decode import Spot
    from trails.position import Position

    failed = "no row of the target could be made of it: public.kv: r.prm:7: COLMAP n: 1 / n fails: [DIVIDE_BY_ZERO]"
    for op, unmade in (("insert", failed), ("truncate", "")):
        spot = Spot(Position(0, 1), "1", 0, "src.kv", op, "", "public.kv")
        lines = record(spot, Reason("DISCARD", "error 22012", "x", unmade), "REP1", b"", 0)
        with open(bench.path, "ab") as file:
            file.write(framed(lines))
    assert [one.why for one in bench.replay()] == [failed, "it is a TRUNCATE"]


def test_a_record_is_known_wherever_it_stands(bench: ReplayBench):
    """A file that was moved, cut and joined; only what was changed or torn is no record."""
    discarded(bench)
    mend(bench)
    text = Path(bench.path).read_text()
    records = ["Current time: " + part for part in text.split("Current time: ")[1:]]
    other = Path(bench.path).with_name("REP1.0.dsc")
    other.write_text("-- of the night shift\n" + records[3] + records[0])
    assert bench.outcomes(str(other)) == ["applied"] * 2
    assert bench.outcomes() == ["applied before", "applied", "applied", "applied before"]
    other.write_text(records[1].replace('"-2"', '"-7"') + records[2][:200])
    assert bench.outcomes(str(other)) == []


def test_rows_that_somebody_touched_since_are_left_alone(bench: ReplayBench):
    """Each with its reason; the others are applied. NOCOMPARE looks only whether the row is there."""
    discarded(bench)
    mend(bench)
    bench.sql(
        "INSERT INTO kv VALUES (1, 'mine', 1); UPDATE kv SET a = 'other' WHERE id = 2; DELETE FROM kv WHERE id = 3"
    )
    bench.sql("INSERT INTO bag VALUES ('x', -1)")
    assert [one.why for one in bench.replay()] == [
        "a row with key (1) is there already", "the row is not as it was before the change: a",
        "there is no row with key (3)",
        "an equal row is there already, and the table has no key to tell them apart (NOCOMPARE applies it)",
    ]  # fmt: skip
    assert bench.outcomes(compare=False) == ["kept", "applied", "kept", "applied"]
    assert rows(bench) == [(1, "mine", 1), (2, None, -2), (4, "d", 4), ("x", -1), ("x", -1)]


def test_what_can_not_be_replayed_is_named(bench: ReplayBench):
    """A TRUNCATE, a change without its row as it was, a table or column that is gone."""
    bench.sql(
        "CREATE TABLE child (id int REFERENCES kv); CREATE TABLE gone (id int PRIMARY KEY, a text, n int CHECK (n > 5))"
    )
    bench.sql("INSERT INTO kv VALUES (2, 'b', 2)")
    gone = table("src", "gone", "id a n", "id")
    bench.feed.tx(
        (T, [KV], 0), (I, KV, ["1", "a", "-1"]), (U, KV, ["2", "c", "-1"]), (I, gone, ["1", "x", "1"]),
        (U, KV, ["9", MISSING, "1"], ["9", "q", "0"]), (I, KV, ["8", "a", "-1"]),
    )  # fmt: skip
    bench.run()
    bench.sql("ALTER TABLE kv DROP CONSTRAINT kv_n_check; DROP TABLE gone; ALTER TABLE kv ADD b int")
    old = Path(bench.path).read_text()
    Path(bench.path).write_text(old)
    whys = [one.why for one in bench.replay()]
    assert whys[0] == "it is a TRUNCATE"
    assert whys[1] == ""
    assert "does not have the whole row before the change" in whys[2]
    assert whys[3] == "target table public.gone does not exist"
    assert whys[4] == "there is no row with key (9)"
    bench.sql("ALTER TABLE kv DROP COLUMN a")
    assert bench.replay()[2].why == "public.kv lacks column a"


def killed() -> None:
    raise KeyboardInterrupt


def run_on(process: Replicat) -> None:
    while True:
        process.step()


def test_a_change_that_comes_again_is_not_replayed(bench: ReplayBench):
    """Its record is there, but the commit that skips it is not: the trail brings it again."""
    bench.feed.tx((I, KV, ["1", "a", "1"]))
    bench.run()
    bench.feed.tx((I, KV, ["2", "b", "-1"]))
    process = bench.replicat()
    process._target.commit = killed  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        run_on(process)
    process.close()
    (one,) = bench.replay()
    assert (one.outcome, one.why) == (
        "kept", "its change is not committed as skipped, and comes again: START the group, then replay",
    )  # fmt: skip
    bench.run()
    bench.sql("ALTER TABLE kv DROP CONSTRAINT kv_n_check")
    assert bench.outcomes() == ["applied"]


def test_two_replays_at_once_apply_each_record_once(bench: ReplayBench):
    """One waits for the other's row, and finds the record applied."""
    bench.feed.tx(*[(I, BAG, ["x", "-1"]) for _ in range(30)])
    bench.run()
    bench.sql("ALTER TABLE bag DROP CONSTRAINT bag_n_check")
    found: list[str] = []

    def one() -> None:
        found.extend(bench.outcomes(compare=False))

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == ["applied"] * 30 + ["applied before"] * 30
    assert bench.sql("SELECT count(*) FROM bag") == [(30,)]


@pytest.mark.parametrize("at", range(1, 12))
def test_a_connection_lost_at_any_call(bench: ReplayBench, at: int):
    """The next replay goes on: nothing twice, nothing lost."""
    bench.feed.tx((I, BAG, ["x", "-1"]), (I, BAG, ["y", "-1"]))
    bench.run()
    bench.sql("ALTER TABLE bag DROP CONSTRAINT bag_n_check")
    target = bench.target()
    left = at

    def lossy(name: str) -> None:
        call = getattr(target, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                raise KeyboardInterrupt(name)
            done = call(*args, **kwargs)
            if left == 1 and name == "commit":
                left = 0
                raise KeyboardInterrupt("after the commit")
            return done

        setattr(target, name, wrapped)

    for name in ("add_row", "begin", "apply", "commit"):
        lossy(name)
    file = RealFs().open(bench.path)
    with pytest.raises(KeyboardInterrupt):
        Replay(target, "REP1", 77).run(file)
    file.close()
    bench.replay()
    assert bench.sql("SELECT note FROM bag ORDER BY 1") == [("x",), ("y",)]


def test_the_command(bench: ReplayBench, tmp_path: Path):
    """REPLAY DISCARDS in ggsci: what is kept makes it fail and is told; --json has every record."""
    home = make_home(tmp_path / "home")
    assert "REP1" in bad(home, "REPLAY DISCARDS rep1")
    registration.save(home, Registration("REP1", "REPLICAT", "TRAIL", trail="./dirdat/rt", group_key=77, added_us=5))
    write(home, "rep1", f"REPLICAT rep1\nTARGETDB '{bench.url}'\nCHECKPOINTTABLE gg.chk\nMAP src.*, TARGET public.*;\n")
    assert "there is no discard file ./dirdsc/REP1.dsc: nothing was discarded" in bad(home, "REPLAY DISCARDS rep1")
    discarded(bench)
    Path(home.discard("REP1")).write_text(bench.text())
    assert "4 records: 0 would be applied, 0 were applied before, 4 kept." in good(home, "REPLAY DISCARDS rep1, DRYRUN")
    bench.sql("ALTER TABLE kv DROP CONSTRAINT kv_n_check")
    text = bad(home, "REPLAY DISCARDS rep1")
    assert "4 records: 2 applied, 0 were applied before, 2 kept." in text
    assert "record 3 (delete of public.kv, CSN 0000000000000001, change 2): target: not now" in text
    mend_rest = "ALTER TABLE bag DROP CONSTRAINT bag_n_check; DROP TRIGGER no ON kv"
    bench.sql(mend_rest)
    answer = json.loads(good(home, "REPLAY DISCARDS rep1, FILE dirdsc/REP1.dsc --json"))
    assert answer["counts"] == {"applied before": 2, "applied": 2}
    assert [record["outcome"] for record in answer["records"]] == ["applied before"] * 2 + ["applied"] * 2


@pytest.mark.parametrize(("more", "outcome"), [("", "applied"), ("INSERT INTO kv VALUES (1, 'mine', 1)", "kept")])
def test_a_change_that_does_not_know_whether_its_row_is_there(bench: ReplayBench, more: str, outcome: str):
    """UPDATEINSERTS: it becomes a row; over one that is there only by NOCOMPARE. What follows is replayed too."""
    bench.maps = "UPDATEINSERTS\n" + bench.maps
    bench.feed.tx((I, KV, ["1", "a", "-1"]), (U, KV, ["2", "b", "-2"]))
    bench.run()
    assert '"op":"upsert"' in bench.text()
    bench.sql(f"ALTER TABLE kv DROP CONSTRAINT kv_n_check; INSERT INTO kv VALUES (2, 'old', 2); {more}")
    assert bench.outcomes() == [outcome, "kept"]
    assert bench.outcomes(compare=False) == ["applied before" if outcome == "applied" else "applied", "applied"]
    assert bench.sql("SELECT id, a, n, extra FROM kv ORDER BY id") == [(1, "a", -1, "own"), (2, "b", -2, "own")]


def test_each_of_two_maps_into_one_table_has_its_record(bench: ReplayBench):
    """ALLOWDUPTARGETMAP: neither stands for the other (I8)."""
    bench.maps = "ALLOWDUPTARGETMAP\nMAP src.bag, TARGET public.bag;\nMAP src.bag, TARGET public.bag;\n"
    bench.feed.tx((I, BAG, ["x", "-1"]))
    bench.run()
    assert bench.text().count("Current time: ") == 2
    bench.sql("ALTER TABLE bag DROP CONSTRAINT bag_n_check")
    assert bench.outcomes(compare=False) == ["applied", "applied"]
    assert bench.sql("SELECT * FROM bag") == [("x", -1)] * 2
