"""A whole Replicat on SQLite and MariaDB: exactly once through crashes, the ladder, what START refuses."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from demo.mariadb import MariaServer
from demo.patience import PATIENCE
from replicat.targets.sql.target import SqlTarget
from replicat.targets.sqlite.link import path_of
from tests.support.lost_commits import lose_commits
from tests.support.replicat_bench import Bench
from tests.support.replicat_trail import table
from trails.codec import binary
from trails.errors import AwayError, OperatorError
from trails.record import MISSING, Column, Op, TableDef

pytestmark = pytest.mark.e2e

I, U, D, T = Op.INSERT, Op.UPDATE, Op.DELETE, Op.TRUNCATE  # noqa: E741  -- one letter an op keeps scripts readable
KV = TableDef(
    "src", "kv", (Column("id", "integer", "integer", True), Column("a", "text", "text"), Column("b", "text", "text"))
)  # fmt: skip
MAKE_KV = "CREATE TABLE kv (id bigint PRIMARY KEY, a varchar(40), b varchar(40))"


@dataclass
class Case:
    """A bench, and SQL beside it."""

    kind: str
    bench: Bench
    server: MariaServer | None = None

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        if self.server is not None:
            return self.server.sql(statement, self.bench.schema)
        conn = sqlite3.connect(path_of(self.bench.url), isolation_level=None, timeout=PATIENCE)
        try:
            rows = conn.execute(statement).fetchall()
            return [tuple(None if value is None else str(value) for value in row) for row in rows]
        finally:
            conn.close()


@pytest.fixture(params=["sqlite", "mysql"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Case]:
    if request.param == "sqlite":
        made = Case("sqlite", Bench(tmp_path, f"sqlite:///{tmp_path}/target.db", "main"))
    else:
        server, name = request.getfixturevalue("mariadb"), request.getfixturevalue("maria_db")
        made = Case("mysql", Bench(tmp_path, server.url(name), name), server)
    yield made
    made.bench.feed.close()


def test_the_plain_path_and_a_restart(case: Case):
    """Rows arrive, counters count, a restart does nothing."""
    case.sql(MAKE_KV)
    feed = case.bench.feed
    feed.tx((I, KV, ["1", "x", None]), (I, KV, ["2", "y\t\\z\n", "é𝄞"]))
    feed.tx((U, KV, ["1", "xx", "b"]), (D, KV, ["2", MISSING, MISSING]), (I, KV, ["3", "", "c"]))
    done = case.bench.run()
    assert case.sql("SELECT * FROM kv ORDER BY id") == [("1", "xx", "b"), ("3", "", "c")]
    counts = done.stats.to_reply()["tables"][0]
    assert [counts[name] for name in ("inserts", "updates", "deletes")] == [3, 1, 1]
    assert case.bench.run().stats.total() == 0


def test_missing_columns_key_changes_and_swaps(case: Case):
    """OT-15, OT-16: columns that the source did not give are taken from the target's row, also when its key changes."""
    case.sql("CREATE TABLE kv (id bigint PRIMARY KEY, a varchar(40), b varchar(40), note varchar(9) DEFAULT 'n')")
    case.sql("INSERT INTO kv VALUES (1, 'a1', 'b1', 'n1'), (2, 'a2', 'b2', 'n2'), (3, 'a3', 'b3', 'n3')")
    feed = case.bench.feed
    feed.tx((U, KV, ["1", "new", MISSING]), (U, KV, ["9", MISSING, "moved"], ["3", MISSING, MISSING]))
    feed.tx((U, KV, ["10", "end", MISSING], ["9", MISSING, MISSING]))
    case.bench.run()
    feed.tx(
        (U, KV, ["99", "new", "b1"], ["1", "new", "b1"]),
        (U, KV, ["1", "a2", "b2"], ["2", "a2", "b2"]),
        (U, KV, ["2", "new", "b1"], ["99", "new", "b1"]),
    )
    case.bench.run()
    assert case.sql("SELECT id, a, b, note FROM kv ORDER BY id") == [
        ("1", "a2", "b2", "n2"), ("2", "new", "b1", "n1"), ("10", "end", "moved", "n3"),
    ]  # fmt: skip


def test_unique_swap_inside_a_batch(case: Case):
    """CW-25: a pair swaps a unique value among thousands of changed rows; the second level of the ladder."""
    case.sql("CREATE TABLE kv (id bigint PRIMARY KEY, a varchar(40) UNIQUE, b varchar(40))")
    feed = case.bench.feed
    feed.tx(*((I, KV, [str(i), f"u{i}", "old"]) for i in range(3000)))
    case.bench.run()
    swap = [(U, KV, ["500", "tmp", "s"]), (U, KV, ["501", "u500", "s"]), (U, KV, ["500", "u501", "s"])]
    feed.tx(*((U, KV, [str(i), f"u{i}", "new"]) for i in range(3000) if i not in (500, 501)), *swap)
    case.bench.run()
    assert case.sql("SELECT count(*) FROM kv WHERE b = 'new'") == [("2998",)]
    assert case.sql("SELECT id, a FROM kv WHERE b = 's' ORDER BY id") == [("500", "u501"), ("501", "u500")]
    assert any("refused" in note for note in case.bench.notes)


def test_what_is_refused_names_its_change_and_reperror_discards_it(case: Case):
    """The ladder's last level: one row of twenty is refused; those before it arrive, and after mending all others."""
    case.sql("CREATE TABLE kv (id bigint PRIMARY KEY, a varchar(40) CHECK (a <> 'bad'), b varchar(40))")
    for number in range(1, 20):
        case.bench.feed.tx((I, KV, [str(number), "bad" if number == 13 else "good", ""]))
    with pytest.raises(OperatorError, match=r"insert of row \(13\).*CSN 0+13"):
        case.bench.run()
    assert case.sql("SELECT count(*) FROM kv") == [("12",)]
    case.sql("DROP TABLE kv")
    case.sql(MAKE_KV)
    case.bench.run()
    assert case.sql("SELECT count(*) FROM kv") == [("7",)]


def test_a_missing_row_is_an_out_of_sync_alarm_and_handlecollisions_overlays(case: Case):
    """Strict unless told otherwise."""
    case.sql(MAKE_KV)
    case.sql("INSERT INTO kv VALUES (1, 'there', '')")
    feed = case.bench.feed
    feed.tx((I, KV, ["1", "x", "y"]), (U, KV, ["2", "x", "y"]), (D, KV, ["3", "", ""]))
    with pytest.raises(OperatorError, match=r"insert of row \(1\)"):
        case.bench.run()
    case.bench.lines = ["HANDLECOLLISIONS"]
    case.bench.run()
    assert case.sql("SELECT id, a FROM kv ORDER BY id") == [("1", "x"), ("2", "x")]


def test_table_without_a_key(case: Case):
    """Duplicates are kept apart, one row a change, NULL is equal to NULL."""
    log = table("src", "log", "n note")
    case.sql("CREATE TABLE log (n varchar(9), note varchar(9))")
    feed = case.bench.feed
    feed.tx(*[(I, log, ["1", "dup"])] * 3, (I, log, ["1", "DUP"]), (I, log, [None, None]))
    feed.tx((D, log, ["1", "dup"]), (U, log, ["2", None], ["1", "dup"]), (D, log, [None, None]))
    case.bench.run()
    assert sorted(case.sql("SELECT n, note FROM log"), key=str) == [("1", "DUP"), ("1", "dup"), ("2", None)]
    feed.tx((D, log, ["77", None]))
    with pytest.raises(OperatorError, match="no row is equal"):
        case.bench.run()


def test_truncate_in_its_place(case: Case):
    case.sql(MAKE_KV)
    case.bench.feed.tx((I, KV, ["1", "x", ""]), (T, [KV], 0), (I, KV, ["1", "y", ""]))
    case.bench.run()
    case.bench.feed.tx((T, [KV], 0))
    case.bench.feed.tx((I, KV, ["2", "z", ""]))
    case.bench.run()
    assert case.sql("SELECT id, a FROM kv") == [("2", "z")]


def test_large_transaction_in_slices(case: Case):
    """Several jobs, one commit; nobody sees a part of it."""
    case.sql(MAKE_KV)
    case.bench.feed.tx(*((I, KV, [str(k), "x", "y"]) for k in range(3000)), pieces=20)
    case.bench.lines = ["BATCHROWS 500"]
    process = case.bench.replicat()
    seen = set()
    while process.step():
        seen.add(case.sql("SELECT count(*) FROM kv")[0][0])
    process.close()
    assert seen == {"0", "3000"}


def test_start_refuses_triggers_and_values_that_fit_nowhere(case: Case):
    """Before anything is applied."""
    case.sql(MAKE_KV)
    body = "BEGIN SELECT 1; END" if case.kind == "sqlite" else "SET NEW.a = NEW.a"
    case.sql(f"CREATE TRIGGER fire BEFORE INSERT ON kv FOR EACH ROW {body}")
    case.bench.feed.tx((I, KV, ["1", "x", ""]))
    with pytest.raises(OperatorError, match=r"kv has trigger fire.*ALLOWTARGETTRIGGERS"):
        case.bench.run()
    case.bench.lines = ["ALLOWTARGETTRIGGERS"]
    case.bench.run()
    assert case.sql("SELECT id FROM kv") == [("1",)]
    if case.kind == "mysql":
        case.sql("CREATE TABLE odd (id bigint PRIMARY KEY, v point)")
        odd = TableDef("src", "odd", (KV.columns[0], Column("v", "composite", "pair")))
        case.bench.feed.tx((I, odd, ["1", "(1,2)"]))
        with pytest.raises(OperatorError, match=r"column v: values of type composite can't go into point"):
            case.bench.run()


def test_names_meet_without_case(case: Case):
    """Column names have none in either target; table names none in SQLite."""
    case.sql("CREATE TABLE kv (ID bigint PRIMARY KEY, A varchar(40), `B` varchar(40))")
    case.bench.feed.tx((I, KV, ["1", "x", "y"]))
    case.bench.feed.tx((U, KV, ["1", "z", MISSING]))
    case.bench.run()
    assert case.sql("SELECT id, a, b FROM kv") == [("1", "z", "y")]


PEOPLE = TableDef(
    "src", "people",
    (
        Column("id", "integer", "integer", True), Column("name", "text", "character varying(40)"),
        Column("seen", "timestamptz", "timestamp(3) with time zone"), Column("vip", "boolean", "boolean"),
        Column("balance", "decimal", "numeric"), Column("photo", "bytes", "bytea"), Column("password", "text", "text"),
    ),
)  # fmt: skip


def test_OT_34_types_and_names_are_converted_and_secret_columns_stay_away(case: Case):
    """PostgreSQL's types as the target has them, tables and columns under other names; a column that is left out."""
    case.sql(
        "CREATE TABLE persons (no bigint PRIMARY KEY, full_name varchar(40), last_seen datetime(3), is_vip tinyint(1), "
        "balance decimal(12,2), photo blob)"
    )
    schema = case.bench.schema
    case.bench.maps = (
        f"MAP src.people, TARGET {schema}.persons, COLSEXCEPT (password), COLMAP "
        "(USEDEFAULTS, no = id, full_name = name, last_seen = seen, is_vip = vip);"
    )
    row = ["1", "Zoë", "2024-02-29 23:59:59.5+00", "true", "-12.50", binary(b"\x00\xff"), "geheim"]
    case.bench.feed.tx((I, PEOPLE, row), (I, PEOPLE, ["2", *[None] * 5, "geheim"]))
    case.bench.feed.tx((U, PEOPLE, ["1", "Zoë", row[2], "false", "0.01", row[5], "geheim"]))
    case.bench.run()
    columns = "no, full_name, last_seen, is_vip, balance, hex(photo)"
    assert case.sql(f"SELECT {columns} FROM persons ORDER BY no") == [
        ("1", "Zoë", SEEN[case.kind], "0", "0.01", "00FF"), ("2", *[None] * 4, "" if case.kind == "sqlite" else None),
    ]  # fmt: skip


SEEN = {"sqlite": "2024-02-29 23:59:59.5+00", "mysql": "2024-02-29 23:59:59.500"}


# --- exactly once ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["begin", "apply", "commit", "committed"])
def test_the_connection_is_lost_at_each_step(case: Case, call: str, monkeypatch: pytest.MonkeyPatch):
    """CW-01, CW-14: before, during and after the commit; each change of a counter table counts once."""
    case.sql("CREATE TABLE kv (id bigint PRIMARY KEY, a varchar(40), b varchar(40))")
    case.bench.lines = ["BATCHROWS 2"]
    lost = [2]

    def once(target: Any) -> None:
        if lost[0]:
            lost[0] -= 1
            target.close()
            raise AwayError("lost")

    name = "commit" if call == "committed" else call
    plain = getattr(SqlTarget, name)

    def patched(self: Any, *args: Any, **more: Any) -> Any:
        if call == "committed":
            result = plain(self, *args, **more)
            once(self)
            return result
        once(self)
        return plain(self, *args, **more)

    monkeypatch.setattr(SqlTarget, name, patched)
    for number in range(6):
        case.bench.feed.tx((I, KV, [str(number), "x", ""]), *([(D, KV, [str(number - 1), "", ""])] if number else []))
    process = case.bench.replicat()
    deadline = time.monotonic() + PATIENCE
    while case.sql("SELECT id FROM kv") != [("5",)] or not process._pipeline or not process._pipeline.at_end:
        process.step()
        assert time.monotonic() < deadline
    process.close()
    assert lost == [0]


@pytest.mark.soak
def test_i10_sigkill_at_any_time(case: Case):
    """I10: killed again and again at random moments, a history of strict changes ends as if nothing had happened.

    Strict: an insert or delete applied twice, or not at all, would be refused.
    """
    case.sql(MAKE_KV)
    feed = case.bench.feed
    for number in range(400):
        changes: list[Any] = [(I, KV, [str(number), f"v{number}", "x" * 30])]
        if number >= 10:
            changes += [(U, KV, [str(number - 5), "u", "y"]), (D, KV, [str(number - 10), MISSING, MISSING])]
        feed.tx(*changes, sync=False)
    feed.writer.sync()
    case.bench.lines = ["BATCHROWS 20"]
    chance = random.Random(4)
    for _ in range(5):
        process = case.bench.spawn()
        deadline = time.monotonic() + PATIENCE
        before = _csn(case)
        while process.poll() is None and _csn(case) == before and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(chance.random() * 0.15)
        process.kill()
        process.wait()
    case.bench.run()
    expected = [(str(n), "u" if n <= 394 else f"v{n}") for n in range(390, 400)]
    assert case.sql("SELECT id, a FROM kv ORDER BY id") == expected


def _csn(case: Case) -> Any:
    return case.sql("SELECT max(log_csn) FROM chk")


@pytest.mark.parametrize("case", ["mysql"], indirect=True)
def test_CW_16_commits_that_mariadb_lost_come_again(case: Case):
    """Its log waits in memory for the flush: a server that is killed loses what was committed behind that."""
    assert case.server is not None
    put_off = ("innodb_flush_log_at_trx_commit = 0", "innodb_flush_log_at_timeout = 2700")
    lose_commits(case.bench, case.server, case.sql, "chk", [f"SET GLOBAL {setting}" for setting in put_off])
