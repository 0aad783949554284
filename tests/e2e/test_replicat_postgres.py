"""Replicat's steps on a real PostgreSQL: a scripted trail, decoded in this process, applied there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from demo.patience import PATIENCE
from replicat.run.replicat import Replicat
from replicat.targets.contract import TargetSettings
from replicat.targets.kinds import open_target
from replicat.targets.sql.merge import Merge
from tests.support import replicat_bench
from tests.support.late_commits import commit_in_the_socket, until_it_waits
from tests.support.lost_commits import lose_commits
from tests.support.replicat_trail import table
from trails.errors import OperatorError
from trails.record import MISSING, TRUNCATE_CASCADE, TRUNCATE_RESTART_IDENTITY, Column, Op, TableDef
from trails.testing import Crash

pytestmark = pytest.mark.e2e

I, U, D, T = Op.INSERT, Op.UPDATE, Op.DELETE, Op.TRUNCATE  # noqa: E741  -- one letter an op keeps scripts readable
KV = table("src", "kv", "id a b", "id")


class Bench(replicat_bench.Bench):
    """See there: on PostgreSQL, with DBOPTIONS."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder, url, "public", checkpoints="gg")

    def target(self, url: str = "", **more: Any) -> Any:
        """See there."""
        params = self.params()
        options = params.db_options
        settings = TargetSettings(
            url or self.url, self.table, "REP1", 77, "/home", params.commit_wait, options.suppress_triggers,
            options.defer_ref_const, options.follow_sequences,
        )  # fmt: skip
        return open_target(replace(settings, **more))

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as conn:
            cursor = conn.execute(statement)
            return cursor.fetchall() if cursor.description else []


@pytest.fixture
def bench(tmp_path: Path, target_db: str) -> Iterator[Bench]:
    made = Bench(tmp_path, target_db)
    yield made
    made.feed.close()


def test_inserts_updates_deletes_and_the_row(bench: Bench):
    """The plain path: rows arrive, counters count, the checkpoint row stands at the end, a restart does nothing."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text, b text)")
    bench.feed.tx((I, KV, ["1", "x", None]), (I, KV, ["2", "y\t\\z\n", "é"]))
    bench.feed.tx((U, KV, ["1", "xx", "b"]), (D, KV, ["2", MISSING, MISSING]), (I, KV, ["3", "", "c"]))
    done = bench.run()
    assert bench.sql("SELECT * FROM kv ORDER BY id") == [(1, "xx", "b"), (3, "", "c")]
    assert done.stats.to_reply()["tables"][0] | {"from": 0, "to": 0} == {
        "from": 0, "to": 0, "inserts": 3, "updates": 1, "deletes": 1, "truncates": 0, "ddls": 0, "discards": 0,
        "operations": 5,
    }  # fmt: skip
    row = bench.sql("SELECT seqno, rba, log_csn, log_cmplt_xids, flush_rba, group_key FROM gg.chk")[0]
    assert row[2:4] == (f"{2:016d}", "2")
    assert row[1] == row[4] > 4096
    again = bench.run()
    assert again.stats.total() == 0


def test_later_transactions_come_after_earlier_ones_across_restarts(bench: Bench):
    """Each run goes on at the row."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text, b text)")
    for number in range(5):
        bench.feed.tx((I, KV, [str(number), "x", "y"]), *([(U, KV, ["0", str(number), "z"])] if number else []))
        bench.run()
    assert bench.sql("SELECT count(*), max(a) FILTER (WHERE id = 0) FROM kv") == [(5, "4")]


def test_missing_columns_keep_what_the_target_has(bench: Bench):
    """An update that gives only some columns changes only these, also when the key changes with it."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text, b text)")
    bench.sql("INSERT INTO kv VALUES (1, 'a1', 'b1'), (2, 'a2', 'b2'), (3, 'a3', 'b3')")
    bench.feed.tx((U, KV, ["1", "new", MISSING]), (U, KV, ["2", MISSING, "new"]))
    bench.feed.tx((U, KV, ["9", MISSING, "moved"], ["3", MISSING, MISSING]))
    bench.feed.tx((U, KV, ["10", "end", MISSING], ["9", MISSING, MISSING]))
    bench.run()
    assert bench.sql("SELECT * FROM kv ORDER BY id") == [(1, "new", "b1"), (2, "a2", "new"), (10, "end", "moved")]


def test_missing_columns_of_a_row_that_is_not_there_stop_the_group(bench: Bench):
    """Nothing is made up: the message names table, key, position and CSN."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text, b text)")
    bench.feed.tx((I, KV, ["1", "x", "y"]))
    csn = bench.feed.tx((U, KV, ["7", "new", MISSING]))
    with pytest.raises(OperatorError, match=rf"src.kv.*update of row \(7\).*position 0/\d+, CSN {csn}"):
        bench.run()
    assert bench.sql("SELECT count(*) FROM kv") == [(1,)]
    bench.sql("INSERT INTO kv VALUES (7, 'old', 'kept')")
    bench.run()
    assert bench.sql("SELECT * FROM kv ORDER BY id") == [(1, "x", "y"), (7, "new", "kept")]


def test_key_changes_swap_and_chain(bench: Bench):
    """Two keys change places in one transaction, others chain over three."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text, b text)")
    bench.feed.tx(*((I, KV, [str(k), f"a{k}", f"b{k}"]) for k in range(1, 5)))
    bench.run()
    bench.feed.tx(
        (U, KV, ["99", "a1", "b1"], ["1", "a1", "b1"]),
        (U, KV, ["1", "a2", "b2"], ["2", "a2", "b2"]),
        (U, KV, ["2", "a1", "b1"], ["99", "a1", "b1"]),
    )
    bench.feed.tx((U, KV, ["30", "a3", "b3"], ["3", "a3", "b3"]))
    bench.feed.tx((U, KV, ["31", "a3", "b3"], ["30", "a3", "b3"]), (D, KV, ["4", "a4", "b4"]))
    bench.run()
    assert bench.sql("SELECT id, a FROM kv ORDER BY id") == [(1, "a2"), (2, "a1"), (31, "a3")]


def test_columns_that_only_the_target_has_are_left_alone(bench: Bench):
    """Also when a row's key changes, and when a unique swap forces DELETE and INSERT."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text UNIQUE, b text, note text DEFAULT 'none')")
    bench.sql("INSERT INTO kv VALUES (1, 'x', '', 'one'), (2, 'y', '', 'two'), (3, 'z', '', 'three')")
    bench.feed.tx((U, KV, ["30", "z", "moved"], ["3", "z", ""]), (I, KV, ["4", "w", ""]))
    bench.run()
    bench.feed.tx((U, KV, ["1", "t", ""]), (U, KV, ["2", "x", ""]), (U, KV, ["1", "y", ""]), (I, KV, ["5", "v", ""]))
    bench.run()
    assert bench.sql("SELECT id, a, note FROM kv ORDER BY id") == [
        (1, "y", "one"), (2, "x", "two"), (4, "w", "none"), (5, "v", "none"), (30, "z", "three"),
    ]  # fmt: skip


def test_CW_25_unique_swap_inside_a_large_batch(bench: Bench):
    """CW-25: one pair swaps a unique value among 100,000 changed rows; all rows are right afterwards."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text UNIQUE, b text)")
    bench.sql("INSERT INTO kv SELECT i, 'u' || i, 'old' FROM generate_series(1, 100000) i")
    changes = [(U, KV, [str(i), f"u{i}", "new"]) for i in range(1, 100_001) if i not in (500, 501)]
    swap = [(U, KV, ["500", "tmp", "s"]), (U, KV, ["501", "u500", "s"]), (U, KV, ["500", "u501", "s"])]
    for start in range(0, len(changes), 1000):
        bench.feed.tx(*changes[start : start + 1000], *(swap if start == 50_000 else []), sync=False)
    bench.feed.writer.sync()
    bench.lines = ["BATCHROWS 200000"]
    bench.run()
    assert bench.sql("SELECT count(*) FROM kv WHERE b = 'new' AND a = 'u' || id") == [(99_998,)]
    assert bench.sql("SELECT id, a FROM kv WHERE b = 's' ORDER BY id") == [(500, "u501"), (501, "u500")]
    assert any("refused" in note for note in bench.notes)


def test_a_load_that_overlaps_is_overlaid_by_handlecollisions(bench: Bench):
    """New rows that are there already are refused, as the target is not what the source was; or overlaid if told."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text, b text)")
    bench.sql("INSERT INTO kv VALUES (2, 'loaded', 'loaded')")
    bench.feed.tx(*((I, KV, [str(k), "a", "b"]) for k in range(1, 4)))
    with pytest.raises(OperatorError, match=r"insert of row \(2\).*kv_pkey"):
        bench.run()
    bench.lines = ["HANDLECOLLISIONS"]
    bench.run()
    assert bench.sql("SELECT DISTINCT a, b, count(*) FROM kv GROUP BY a, b") == [("a", "b", 3)]


def test_what_the_target_refuses_stops_the_group_with_its_place(bench: Bench):
    """What is before its transaction arrives; after the cause is mended it all goes on."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text CHECK (a <> 'bad'), b text)")
    for number in range(1, 20):
        bench.feed.tx((I, KV, [str(number), "bad" if number == 13 else "good", ""]))
    with pytest.raises(OperatorError, match=r"insert of row \(13\): .*kv_a_check.*; position .*CSN 0+13"):
        bench.run()
    assert bench.sql("SELECT count(*) FROM kv") == [(12,)]
    bench.sql("ALTER TABLE kv DROP CONSTRAINT kv_a_check")
    bench.run()
    assert bench.sql("SELECT count(*) FROM kv") == [(19,)]


def test_table_without_a_key(bench: Bench):
    """Duplicates are kept apart, one row a change, NULL is equal to NULL, order counts."""
    log = TableDef("src", "log", (Column("n", "decimal", "numeric"), Column("note", "char", "character(5)")))
    bench.sql("CREATE TABLE log (n numeric, note char(5))")
    bench.feed.tx(*[(I, log, ["1", "dup"])] * 3, (I, log, ["1.00", "dup"]), (I, log, [None, None]))
    bench.feed.tx((D, log, ["1", "dup  "]), (U, log, ["2", None], ["1", "dup  "]), (D, log, [None, None]))
    bench.feed.tx((I, log, ["3", "x"]), (U, log, ["4", "y"], ["3", "x    "]), (D, log, ["4", "y    "]))
    bench.run()
    assert sorted(bench.sql("SELECT n::text, note FROM log"), key=str) == [
        ("1", "dup  "), ("1.00", "dup  "), ("2", None),
    ]  # fmt: skip
    bench.feed.tx((D, log, ["77", None]))
    with pytest.raises(OperatorError, match=r"src\.log.*delete of row \(no key\).*no row is equal in all"):
        bench.run()


def test_truncate_in_its_place(bench: Bench):
    """What came before is gone, what came after is there; restart identity is obeyed, a cascade names its tables."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text, b text, s serial)")
    bench.sql("CREATE TABLE child (id int PRIMARY KEY, kv int REFERENCES kv)")
    child = table("src", "child", "id kv", "id")
    bench.feed.tx((I, KV, ["1", "x", ""]), (I, child, ["1", "1"]))
    bench.feed.tx((T, [KV, child], TRUNCATE_RESTART_IDENTITY), (I, KV, ["2", "x", ""]))
    bench.feed.tx((I, KV, ["3", "x", ""]))
    bench.run()
    assert bench.sql("SELECT id, s FROM kv ORDER BY id") == [(2, 1), (3, 2)]
    bench.feed.tx((T, [KV, child], TRUNCATE_CASCADE))
    bench.run()
    assert bench.sql("SELECT (SELECT count(*) FROM kv), (SELECT count(*) FROM child)") == [(0, 0)]


def test_large_transaction_in_slices(bench: Bench):
    """A transaction larger than the bounds takes several jobs and one commit; nobody sees a part of it."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text, b text)")
    bench.feed.tx((I, KV, ["0", "first", ""]))
    bench.feed.tx(*((I, KV, [str(k), "x", "y"]) for k in range(1, 5001)), pieces=20)
    bench.feed.tx((I, KV, ["9999", "last", ""]))
    bench.lines = ["BATCHROWS 1000"]
    process = bench.replicat()
    counts = []
    while process.step():
        counts.append(bench.sql("SELECT count(*) FROM kv")[0][0])
    process.close()
    assert set(counts) <= {0, 1, 5001, 5002}
    assert counts[-1] == 5002
    assert counts.count(1) >= 5


def test_generated_and_identity_columns(bench: Bench):
    """GENERATED ALWAYS identity takes the source's values, in a key and beside it; computed columns are left out."""
    bench.sql(
        "CREATE TABLE kv (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a text, "
        "b text GENERATED ALWAYS AS (a || '!') STORED)"
    )
    bench.sql("CREATE TABLE kv2 (id int PRIMARY KEY, a int GENERATED ALWAYS AS IDENTITY, b text)")
    kv2 = table("src", "kv2", "id a b", "id")
    bench.feed.tx((I, KV, ["5", "x", "x!"]), (I, kv2, ["1", "10", ""]))
    bench.run()
    bench.feed.tx((U, KV, ["5", "y", "y!"]), (U, KV, ["6", "y", "y!"], ["5", "y", "y!"]), (U, kv2, ["1", "11", "z"]))
    bench.run()
    assert bench.sql("SELECT * FROM kv") == [(6, "y", "y!")]
    assert bench.sql("SELECT * FROM kv2") == [(1, 11, "z")]


def test_key_without_a_unique_index_in_the_target(bench: Bench):
    """The source's key decides; rows are deleted and inserted where the target can't upsert."""
    bench.sql("CREATE TABLE kv (id int, a text, b text)")
    bench.feed.tx((I, KV, ["1", "x", ""]), (I, KV, ["2", "x", ""]))
    bench.run()
    bench.feed.tx((U, KV, ["1", "y", ""]), (D, KV, ["2", "x", ""]), (I, KV, ["3", "n", ""]))
    bench.run()
    assert bench.sql("SELECT id, a FROM kv ORDER BY id") == [(1, "y"), (3, "n")]


def test_composite_keys_and_odd_names(bench: Bench):
    """Quotes, percent signs, blanks and capitals in names; two key columns out of order."""
    odd = TableDef(
        "src",
        'My "Tab%',
        (Column("v%s", "text", "text"), Column("K 2", "text", "text", True), Column("K1", "t", "t", True)),
    )
    bench.sql('CREATE TABLE "My ""Tab%" ("v%s" text, "K1" int, "K 2" text, PRIMARY KEY ("K1", "K 2"))')
    bench.sql('CREATE TABLE "No%Key" ("v%s" text, "K 2" text, "K1" int)')
    bag = TableDef("src", "No%Key", tuple(replace(c, key=False) for c in odd.columns))
    bench.feed.tx((I, odd, ["x", "b", "1"]), (I, odd, ["y", "c", "1"]), (I, bag, ["x", "b", "1"]))
    bench.run()
    bench.feed.tx((U, odd, ["xx", "b", "2"], ["x", "b", "1"]), (D, odd, [MISSING, "c", "1"]))
    bench.feed.tx((U, bag, ["100%", "b", "1"], ["x", "b", "1"]))
    bench.run()
    assert bench.sql('SELECT "v%s", "K1", "K 2" FROM "My ""Tab%"') == [("xx", 2, "b")]
    assert bench.sql('SELECT "v%s" FROM "No%Key"') == [("100%",)]


def test_definition_changes_in_the_middle(bench: Bench):
    """Rows before and after an ALTER each name their own shape, in one batch."""
    wider = TableDef("src", "kv", (*KV.columns, Column("c", "text", "text")))
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text, b text, c text)")
    bench.feed.tx((I, KV, ["1", "x", "y"]))
    bench.feed.tx((I, wider, ["2", "x", "y", "c"]), (U, wider, ["1", "xx", "y", "cc"]))
    bench.run()
    assert bench.sql("SELECT * FROM kv ORDER BY id") == [(1, "xx", "y", "cc"), (2, "x", "y", "c")]


def test_CW_20_triggers_and_cascades_do_not_fire(bench: Bench):
    """CW-20: the parent's delete comes before the cascaded child's; the trigger's effect is in the trail already."""
    make_family(bench)
    parent, child = table("src", "parent", "id", "id"), table("src", "child", "id p", "id")
    log = table("src", "log", "t")
    bench.feed.tx((I, parent, ["1"]), (I, log, ["ins 1"]), (I, child, ["10", "1"]))
    bench.feed.tx((D, parent, ["1"]), (D, child, ["10", "1"]), (I, parent, ["2"]), (I, log, ["ins 2"]))
    bench.run()
    assert bench.sql("SELECT (SELECT count(*) FROM parent), (SELECT count(*) FROM child)") == [(1, 0)]
    assert bench.sql("SELECT t FROM log ORDER BY t") == [("ins 1",), ("ins 2",)]


def make_family(bench: Bench) -> None:
    """Tables with a cascade and a trigger."""
    bench.sql("CREATE TABLE parent (id int PRIMARY KEY)")
    bench.sql("CREATE TABLE child (id int PRIMARY KEY, p int REFERENCES parent ON DELETE CASCADE)")
    bench.sql("CREATE TABLE log (t text)")
    bench.sql(
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN INSERT INTO public.log VALUES ('ins ' || NEW.id); RETURN NEW; END $$"
    )
    bench.sql("CREATE TRIGGER note AFTER INSERT ON parent FOR EACH ROW EXECUTE FUNCTION note()")


@pytest.fixture
def plain_user(bench: Bench, pg_target: Any) -> Iterator[str]:
    """The URL of a user who may not set session_replication_role."""
    name = "plain_" + bench.sql("SELECT current_database()")[0][0]
    bench.sql(f"CREATE ROLE {name} LOGIN")
    bench.sql(f"GRANT ALL ON SCHEMA public, gg TO {name}; GRANT ALL ON ALL TABLES IN SCHEMA gg TO {name}")
    yield bench.url.replace("postgres@", f"{name}@")
    bench.sql(f"DROP OWNED BY {name}")
    bench.sql(f"DROP ROLE {name}")


def test_CW_20_without_the_privilege(bench: Bench, plain_user: str):
    """START refuses what would fire, by name; the parameter accepts it, and then foreign keys are obeyed by order."""
    make_family(bench)
    user = plain_user.split("//")[1].split("@", maxsplit=1)[0]
    bench.sql(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {user}")
    parent, child = table("src", "parent", "id", "id"), table("src", "child", "id p", "id")
    bench.feed.tx((I, parent, ["1"]), (I, child, ["10", "1"]))
    bench.feed.tx((D, child, ["10", "1"]), (D, parent, ["1"]), (I, child, ["11", "2"]), (I, parent, ["2"]))
    with pytest.raises(OperatorError, match=r"rep1\.prm:\d+: MAP.*trigger note.*ALLOWTARGETTRIGGERS"):
        bench.run(plain_user)
    bench.lines = ["ALLOWTARGETTRIGGERS"]
    bench.run(plain_user)
    assert bench.sql("SELECT c.id, p.id FROM child c JOIN parent p ON p.id = c.p") == [(11, 2)]


def test_triggers_for_replicated_rows_are_told_at_start(bench: Bench):
    """Triggers and rules that are enabled as REPLICA or ALWAYS fire in the replica role, of a partition too."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text, b text) PARTITION BY RANGE (id)")
    bench.sql("CREATE TABLE kv_1 PARTITION OF kv FOR VALUES FROM (0) TO (100)")
    bench.sql("CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END$$")
    bench.sql("CREATE TRIGGER audit BEFORE INSERT ON kv_1 FOR EACH ROW EXECUTE FUNCTION no()")
    bench.sql("CREATE RULE keep AS ON DELETE TO kv DO INSTEAD NOTHING")
    bench.feed.tx((I, KV, ["1", "x", "y"]))
    bench.run()
    bench.sql("ALTER TABLE kv_1 ENABLE REPLICA TRIGGER audit; ALTER TABLE kv ENABLE ALWAYS RULE keep")
    with pytest.raises(OperatorError, match=r"rep1\.prm:4: MAP: target table public\.kv has rule keep, trigger audit:"):
        bench.run()
    bench.lines, told = ["ALLOWTARGETTRIGGERS"], list[str]()
    bench.options = lambda _target: {"tell": told.append}  # type: ignore[method-assign]
    bench.run()
    assert "Target table public.kv has rule keep, trigger audit: accepted by the parameter file." in told


def test_a_map_that_names_nothing_of_the_trail_is_told(bench: Bench):
    """A misspelt MAP would apply nothing, and look well: in the report, and by CHECK PARAMS."""
    told = list[str]()
    bench.options = lambda _target: {"tell": told.append}  # type: ignore[method-assign]
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text, b text)")
    bench.maps = "MAP src.*, TARGET public.*;\nMAP scr.*, TARGET public.*;"
    bench.run()
    assert not [line for line in told if "names no table" in line]
    bench.feed.tx((I, KV, ["1", "x", "y"]))
    bench.run()
    assert [line for line in told if "names no table" in line] == [
        "rep1.prm:5: MAP scr.* names no table that the trail tells of so far."
    ]


def test_a_change_of_a_missing_row_names_that_row(bench: Bench):
    """Of an update that gives its row another key, the key that is looked for."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text, b text)")
    bench.feed.tx((U, KV, ["9", "k", ""], ["7", "x", "y"]))
    with pytest.raises(OperatorError, match=r"update of row \(7 -> 9\).*to (update|delete), key \(7\), is not there"):
        bench.run()


def test_a_text_that_has_no_place_in_the_encoding_says_which(bench: Bench):
    """Values are left out of what people read; encodings are no values."""
    from replicat.targets.postgres.link import without_values

    with psycopg.connect(bench.url, autocommit=True) as conn:
        for statement, told in (
            ("SELECT convert_to('\u20ac', 'LATIN1')", 'in encoding "UTF8" has no equivalent in encoding "LATIN1"'),
            ("SELECT convert_from('\\xff'::bytea, 'UTF8')", 'invalid byte sequence for encoding "UTF8"'),
            ("SELECT 'in encoding \"secret\"'::int", 'invalid input syntax for type integer: "..."'),
        ):
            with pytest.raises(psycopg.Error) as caught:
                conn.execute(statement)
            assert told in without_values(caught.value)


def test_missing_table_or_column_is_told_at_start_with_the_line(bench: Bench):
    """File and line of the MAP, and the column."""
    bench.feed.tx((I, KV, ["1", "x", "y"]))
    with pytest.raises(OperatorError, match=r"rep1\.prm:4: MAP src\.kv: target table public\.kv does not exist"):
        bench.run()
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text)")
    with pytest.raises(OperatorError, match=r"rep1\.prm:4: MAP src\.kv: target table public\.kv lacks column b"):
        bench.run()
    bench.maps = "MAP src.none, TARGET public.none;"
    with pytest.raises(OperatorError, match=r"src\.none: target table public\.none does not exist"):
        bench.run()


def test_what_no_map_wants_is_left_out(bench: Bench):
    """Excluded and unmapped tables need no target."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text, b text)")
    other = table("src", "other", "id", "id")
    bench.maps = "MAP src.*, TARGET public.*;\nMAPEXCLUDE src.o*;"
    bench.feed.tx((I, other, ["1"]), (I, KV, ["1", "x", "y"]), (T, [other], 0))
    bench.run()
    assert bench.sql("SELECT count(*) FROM kv") == [(1,)]


@pytest.mark.parametrize("wait", [False, True])
def test_commits_wait_for_the_disk_only_if_asked(bench: Bench, wait: bool):
    """COMMITWAIT turns asynchronous commits off; then the flushed place goes along with each commit."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text, b text)")
    bench.feed.tx((I, KV, ["1", "x", "y"]))
    bench.lines = ["COMMITWAIT"] if wait else []
    process = bench.replicat()
    assert process._target.database.ask("SHOW synchronous_commit") == [("on" if wait else "off",)]
    while process.step():
        pass
    flushed = bench.sql("SELECT flush_rba = rba FROM gg.chk")[0][0]
    assert flushed is wait
    checkpoint = process.flush()
    assert bench.sql("SELECT flush_rba = rba FROM gg.chk") == [(True,)]
    assert checkpoint.reads[0].needed.rba == bench.sql("SELECT rba FROM gg.chk")[0][0]
    process.close()


def test_no_checkpoint_table_names_the_command(bench: Bench):
    """Refused, with what to type."""
    bench.sql("DROP TABLE gg.chk")
    with pytest.raises(OperatorError, match=r"ADD CHECKPOINTTABLE gg\.chk"):
        bench.run()


def test_CW_01_a_predecessors_commit_lands_late(bench: Bench):
    """A killed process's COMMIT is in the server's socket; the next one reads the old row, applies the same batch, and
    waits for the row's lock. When that commit lands it finds no row to move, and starts again from the new one.
    """
    log = table("src", "log", "t")
    bench.sql("CREATE TABLE log (t text)")
    bench.feed.tx((I, log, ["before"]))
    before = bench.run()._row.position.rba  # the row names the trail already: only its place will move
    bench.feed.tx((I, log, ["once"]))
    first, second = bench.replicat(), bench.replicat()
    with ThreadPoolExecutor() as pool, commit_in_the_socket(first) as server:
        with pytest.raises(Crash):
            first.step()
        late = pool.submit(_apply_all, second)
        until_it_waits(bench.sql, server, late)
        assert bench.sql("SELECT (SELECT rba FROM gg.chk), (SELECT count(*) FROM log)") == [(before, 1)]
    late.result(60)
    assert bench.sql("SELECT t FROM log") == [("before",), ("once",)]
    assert [note for note in bench.notes if "starting again from the row" in note]
    bench.feed.tx((I, log, ["next"]))
    _apply_all(second)
    assert bench.sql("SELECT t FROM log") == [("before",), ("once",), ("next",)]
    first.close()
    second.close()


def _apply_all(process: Replicat) -> None:
    while process.step():
        pass


def test_CW_16_commits_that_postgresql_lost_come_again(bench: Bench, pg_target: Any):
    """Asynchronous commits wait for the server's writer: it is told to come seldom."""
    put_off = ["ALTER SYSTEM SET wal_writer_delay = '10s'", "SELECT pg_reload_conf()"]
    try:
        lose_commits(bench, pg_target, bench.sql, "gg.chk", put_off)
    finally:
        pg_target.sql("ALTER SYSTEM RESET wal_writer_delay")
        pg_target.sql("SELECT pg_reload_conf()")


def test_CW_15_target_crash_between_staging_and_merge(bench: Bench, pg_target: Any, monkeypatch: pytest.MonkeyPatch):
    """CW-15: staged rows are lost with their transaction; the row has not moved, the batch comes again."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text, b text)")
    bench.sql("INSERT INTO kv SELECT i, 'old', '' FROM generate_series(1, 300) i")
    bench.feed.tx(*((U, KV, [str(i), "x", "y"]) for i in range(1, 301)))
    process = bench.replicat()
    write = Merge.write

    def crash(self: Merge) -> None:
        monkeypatch.setattr(Merge, "write", write)
        pg_target.kill()
        pg_target.start()
        write(self)

    monkeypatch.setattr(Merge, "write", crash)
    process.step()
    assert process._away
    assert bench.sql("SELECT rba, (SELECT count(*) FROM kv WHERE a = 'old') FROM gg.chk") == [(0, 300)]
    drain(process)
    process.close()
    assert bench.sql("SELECT a, count(*) FROM kv GROUP BY a") == [("x", 300)]


def drain(process: Replicat) -> None:
    """Step and flush until nothing is left, reconnecting as the loop would: a flush notices what a crash took."""
    deadline = time.monotonic() + PATIENCE
    while True:
        more = process.step()
        if not more and not process._away and process._at_eof:
            process.flush()
            if not process._away and process._at_eof:
                return
        assert time.monotonic() < deadline
        if not more:
            time.sleep(0.02)
