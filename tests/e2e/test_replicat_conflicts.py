"""Conflict detection and resolution on a real PostgreSQL: each conflict, each method, order, counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replicat.run.replicat import Replicat
from tests.e2e.test_replicat_discards import DiscardBench
from tests.e2e.test_replicat_postgres import D, I, U
from trails.errors import OperatorError
from trails.record import MISSING, Column, TableDef

pytestmark = pytest.mark.e2e

KV = TableDef("src", "kv", (
    Column("id", "integer", "integer", key=True), Column("a", "text", "text"), Column("n", "decimal", "numeric"),
    Column("at", "timestamp", "timestamp"),
))  # fmt: skip
T1, T2, T3 = (f"2024-01-0{n} 10:00:00" for n in (1, 2, 3))
COMPARE = "COMPARECOLS (ON UPDATE ALL, ON DELETE ALL)"


class ConflictBench(DiscardBench):
    """A Bench with one table whose rows somebody else changes too."""

    def map(self, *rules: str) -> None:
        """COMPARECOLS, and a RESOLVECONFLICT for each rule."""
        options = [COMPARE, *(f"RESOLVECONFLICT ({rule})" for rule in rules)]
        self.maps = f"MAP src.kv, TARGET public.kv, {', '.join(options)};"

    def rows(self) -> list[tuple[Any, ...]]:
        return [(i, a, str(n), str(at)) for i, a, n, at in self.sql("SELECT * FROM kv ORDER BY id")]


@pytest.fixture
def bench(tmp_path: Path, target_db: str) -> Iterator[ConflictBench]:
    made = ConflictBench(tmp_path, target_db)
    made.sql("CREATE TABLE kv (id int PRIMARY KEY, a text, n numeric, at timestamp)")
    yield made
    made.feed.close()


def cdr(done: Replicat) -> dict[str, int]:
    """What STATS ... REPORTCDR tells, without its prefix."""
    (table,) = done.stats.to_reply()["tables"]
    more: dict[str, int] = table.get("more", {})
    return {name.removeprefix("CDR "): number for name, number in more.items() if name.startswith("CDR ")}


def test_without_conflicts_nothing_is_looked_at_one_by_one(bench: ConflictBench):
    """Compared by one join; the target is not asked for single rows, and the log is silent."""
    bench.map("UPDATEROWEXISTS, (DEFAULT, OVERWRITE)")
    for n in range(300):
        bench.feed.tx((I, KV, [str(n), "a", "1.50", T1]))
    for n in range(300):
        bench.feed.tx(
            (U, KV, [str(n), "b", "2", T2], [str(n), "a", "1.50", T1]),
            (U, KV, [str(n), "c", None, T2], [str(n), "b", "2", T2]),
        )
    bench.feed.tx(*[(D, KV, [str(n), "c", None, T2]) for n in range(299)])
    done = bench.run()
    assert bench.rows() == [(299, "c", "None", T2)]
    assert (cdr(done), [note for note in bench.notes if "refused" in note]) == ({}, [])


@pytest.mark.parametrize(
    ("rule", "theirs", "wanted"),
    [
        ("INSERTROWEXISTS, (DEFAULT, OVERWRITE)", T3, "ours"),
        ("INSERTROWEXISTS, (DEFAULT, IGNORE)", T1, "theirs"),
        ("INSERTROWEXISTS, (DEFAULT, DISCARD)", T1, "theirs"),
        ("INSERTROWEXISTS, (DEFAULT, USEMAX (at))", T1, "ours"),
        ("INSERTROWEXISTS, (DEFAULT, USEMAX (at))", T2, "theirs"),
        ("INSERTROWEXISTS, (DEFAULT, USEMAXEQ (at))", T2, "ours"),
        ("INSERTROWEXISTS, (DEFAULT, USEMIN (at))", T3, "ours"),
        ("INSERTROWEXISTS, (DEFAULT, USEMINEQ (at))", T1, "theirs"),
    ],
)
def test_an_insert_of_a_row_that_is_there(bench: ConflictBench, rule: str, theirs: str, wanted: str):
    """INSERTROWEXISTS: what the other side wrote stays, or goes."""
    bench.map(rule)
    bench.sql(f"INSERT INTO kv VALUES (1, 'theirs', 5, '{theirs}')")
    bench.feed.tx((I, KV, ["1", "ours", "7", T2]), (I, KV, ["2", "new", "7", T2]))
    done = bench.run()
    assert [row[1] for row in bench.rows()] == [wanted, "new"]
    assert cdr(done) == {"conflicts": 1, "resolutions succeeded": 1, "INSERTROWEXISTS conflicts": 1}
    assert Path(bench.path).exists() == ("DISCARD" in rule)


def test_I8_a_column_that_the_change_does_not_win_stays_as_the_target_has_it(bench: ConflictBench):
    """Also where the source's type has no word for the value: a date knows no time of day."""
    days = TableDef("src", "kv", (*KV.columns[:3], Column("at", "date", "date")))
    bench.map("UPDATEROWEXISTS, (ours, OVERWRITE, COLS (a)), (DEFAULT, IGNORE)")
    bench.sql("INSERT INTO kv VALUES (1, 'theirs', 5, '2024-01-03 15:30:00')")
    bench.feed.tx((U, days, ["1", "ours", "5", "2024-01-01"], ["1", "old", "5", "2024-01-01"]))
    bench.run()
    assert bench.rows() == [(1, "ours", "5", "2024-01-03 15:30:00")]


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ("(DEFAULT, OVERWRITE)", ("ours", "15", T2)),
        ("(DEFAULT, IGNORE)", ("theirs", "100", T3)),
        ("(DEFAULT, DISCARD)", ("theirs", "100", T3)),
        ("(DEFAULT, USEMAX (at))", ("theirs", "100", T3)),
        ("(DEFAULT, USEMIN (n))", ("ours", "15", T2)),
        ("(sums, USEDELTA, COLS (n)), (DEFAULT, IGNORE)", ("theirs", "105", T3)),
        ("(sums, USEDELTA, COLS (n)), (newest, USEMAX (at), COLS (at)), (DEFAULT, OVERWRITE)", ("ours", "105", T3)),
    ],
)
def test_an_update_of_a_row_that_somebody_changed(bench: ConflictBench, rule: str, wanted: tuple[str, str, str]):
    """UPDATEROWEXISTS; the next update of the row finds what the resolution left."""
    bench.map(f"UPDATEROWEXISTS, {rule}")
    bench.sql(f"INSERT INTO kv VALUES (1, 'theirs', 100, '{T3}'), (2, 'x', 1, '{T1}')")
    bench.feed.tx(
        (U, KV, ["1", "ours", "15", T2], ["1", "old", "10", T1]), (U, KV, ["2", "y", "1.0", T1], ["2", "x", "1", T1])
    )
    done = bench.run()
    assert bench.rows() == [(1, *wanted), (2, "y", "1.0", T1)]
    assert cdr(done) == {"conflicts": 1, "resolutions succeeded": 1, "UPDATEROWEXISTS conflicts": 1}


@pytest.mark.parametrize(("rule", "rows"), [("OVERWRITE", [(1, "ours", "10", T2)]), ("IGNORE", []), ("DISCARD", [])])
def test_an_update_of_a_row_that_somebody_deleted(bench: ConflictBench, rule: str, rows: list[Any]):
    """UPDATEROWMISSING: OVERWRITE inserts it, unchanged columns from before the update."""
    bench.map(f"UPDATEROWMISSING, (DEFAULT, {rule})")
    bench.feed.tx((U, KV, ["1", "ours", MISSING, T2], ["1", "old", "10", T1]))
    assert cdr(bench.run()) == {"conflicts": 1, "resolutions succeeded": 1, "UPDATEROWMISSING conflicts": 1}
    assert bench.rows() == rows


@pytest.mark.parametrize(("rule", "left"), [("OVERWRITE", 0), ("IGNORE", 1), ("DISCARD", 1)])
def test_a_delete_of_a_row_that_somebody_changed(bench: ConflictBench, rule: str, left: int):
    """DELETEROWEXISTS: OVERWRITE deletes by the key alone."""
    bench.map(f"DELETEROWEXISTS, (DEFAULT, {rule})")
    bench.sql(f"INSERT INTO kv VALUES (1, 'theirs', 100, '{T3}')")
    bench.feed.tx((D, KV, ["1", "old", "10", T1]))
    assert cdr(bench.run()) == {"conflicts": 1, "resolutions succeeded": 1, "DELETEROWEXISTS conflicts": 1}
    assert len(bench.rows()) == left


@pytest.mark.parametrize("rule", ["IGNORE", "DISCARD"])
def test_a_delete_of_a_row_that_is_gone(bench: ConflictBench, rule: str):
    """DELETEROWMISSING; a discard has its record, with the conflict for an error."""
    bench.map(f"DELETEROWMISSING, (DEFAULT, {rule})")
    bench.feed.tx((D, KV, ["1", "old", "10", T1]))
    assert cdr(bench.run()) == {"conflicts": 1, "resolutions succeeded": 1, "DELETEROWMISSING conflicts": 1}
    if rule == "DISCARD":
        assert (
            "Discarding record on action DISCARD on conflict DELETEROWMISSING\npublic.kv: the target's row"
            in bench.text()
        )
    assert bench.said[0].startswith(
        f"Changes that the target refused were {'discarded' if rule == 'DISCARD' else 'ignored'}"
    )


def test_changes_of_one_key_see_each_others_resolution(bench: ConflictBench):
    """In one batch: an overwrite, then changes that follow it without a conflict; a delete; an insert."""
    bench.map("UPDATEROWEXISTS, (sums, USEDELTA, COLS (n)), (DEFAULT, OVERWRITE)")
    bench.sql(f"INSERT INTO kv VALUES (1, 'theirs', 100, '{T3}')")
    bench.feed.tx((U, KV, ["1", "b", "15", T2], ["1", "a", "10", T1]))
    bench.feed.tx((U, KV, ["1", "c", "16", T2], ["1", "b", "15", T2]))
    done = bench.run()
    assert bench.rows() == [(1, "c", "106", T2)]  # the sums differ for ever, so each update is one more conflict
    assert cdr(done)["conflicts"] == 2


def test_a_key_that_changes(bench: ConflictBench):
    """The row is looked at under its old key, and written under the new one; a row in the way is refused."""
    bench.map("UPDATEROWEXISTS, (DEFAULT, OVERWRITE)")
    bench.sql(f"INSERT INTO kv VALUES (1, 'theirs', 100, '{T3}'), (3, 'theirs', 1, '{T3}'), (4, 'x', 1, '{T3}')")
    bench.feed.tx((U, KV, ["2", "ours", "15", T2], ["1", "old", "10", T1]))
    bench.run()
    assert [row[:2] for row in bench.rows()] == [(2, "ours"), (3, "theirs"), (4, "x")]
    bench.feed.tx((U, KV, ["4", "ours", "15", T2], ["3", "old", "10", T1]))
    with pytest.raises(OperatorError, match=r"row \(3 -> 4\).*the key changes to \(4\), where a row is"):
        bench.run()
    assert [row[:2] for row in bench.rows()] == [(2, "ours"), (3, "theirs"), (4, "x")]


def test_what_nothing_resolves_meets_reperror(bench: ConflictBench):
    """No rule for this conflict, or a method that can't: counted as failed, refused by 02000 and 23505."""
    bench.map("UPDATEROWEXISTS, (sums, USEDELTA, COLS (n)), (DEFAULT, OVERWRITE)")
    bench.lines = ["REPERROR (02000, DISCARD)", "REPERROR (23505, IGNORE)"]
    bench.sql(f"INSERT INTO kv VALUES (1, 'theirs', NULL, '{T3}'), (2, 'x', 1, '{T3}')")
    bench.feed.tx(
        (U, KV, ["1", "ours", "15", T2], ["1", "old", "10", T1]), (D, KV, ["9", "old", "10", T1]),
        (I, KV, ["2", "ours", "15", T2]), (I, KV, ["5", "ours", "15", T2]),
    )  # fmt: skip
    done = bench.run()
    assert [row[:2] for row in bench.rows()] == [(1, "theirs"), (2, "x"), (5, "ours")]
    assert cdr(done) == {
        "conflicts": 3, "resolutions failed": 3, "UPDATEROWEXISTS conflicts": 1, "DELETEROWMISSING conflicts": 1,
        "INSERTROWEXISTS conflicts": 1,
    }  # fmt: skip
    assert "USEDELTA needs numbers, which n does not have before, after and in the target" in bench.text()


def test_a_resolution_that_the_target_refuses(bench: ConflictBench):
    """The row that the resolution would write breaks a constraint: refused, and the target's row is as it was."""
    bench.map("UPDATEROWEXISTS, (sums, USEDELTA, COLS (n)), (DEFAULT, OVERWRITE)")
    bench.lines = ["REPERROR (23514, DISCARD)"]
    bench.sql(f"ALTER TABLE kv ADD CHECK (n < 102); INSERT INTO kv VALUES (1, 'theirs', 100, '{T3}')")
    bench.feed.tx((U, KV, ["1", "ours", "15", T2], ["1", "old", "10", T1]))
    bench.run()
    assert bench.rows() == [(1, "theirs", "100", T3)]
    assert "on action DISCARD on error 23514" in bench.text()


def test_a_change_without_its_before_image(bench: ConflictBench):
    """COMPARECOLS needs it: one message that says what to do; KEYINCLUDING fewer columns is enough."""
    bench.map("UPDATEROWEXISTS, (DEFAULT, OVERWRITE)")
    bench.sql(f"INSERT INTO kv VALUES (1, 'theirs', 100, '{T3}')")
    bench.feed.tx((U, KV, ["1", "ours", "15", T2]))
    made = r"src\.kv: no target row can be made of the update of row \(1\): COMPARECOLS compares a"
    with pytest.raises(OperatorError, match=made + r", but its update came.*ADD TRANDATA"):
        bench.run()
    bench.maps = bench.maps.replace("ON UPDATE ALL", "ON UPDATE KEY")
    bench.run()
    assert bench.rows() == [(1, "ours", "15", T2)]


def test_handlecollisions_beside(bench: ConflictBench):
    """A row that is there without a rule is overlaid and counted as a collision, not as a conflict."""
    rule = "RESOLVECONFLICT (UPDATEROWEXISTS, (DEFAULT, IGNORE))"
    bench.maps = f"MAP src.kv, TARGET public.kv, HANDLECOLLISIONS, {COMPARE}, {rule};"
    bench.sql(f"INSERT INTO kv VALUES (1, 'theirs', 100, '{T3}'), (2, 'theirs', 100, '{T3}')")
    bench.feed.tx((I, KV, ["1", "ours", "15", T2]), (U, KV, ["2", "ours", "15", T2], ["2", "old", "1", T1]))
    assert cdr(bench.run())["conflicts"] == 1
    assert [row[:2] for row in bench.rows()] == [(1, "ours"), (2, "theirs")]


def test_a_row_whose_key_changes_in_a_conflict_keeps_what_is_the_targets_own(bench: ConflictBench):
    """Columns that the source lacks go along, as they do without a conflict."""
    bench.map("UPDATEROWEXISTS, (DEFAULT, OVERWRITE)")
    bench.sql("ALTER TABLE kv ADD ours text")
    bench.sql(f"INSERT INTO kv VALUES (1, 'theirs', 100, '{T3}', 'a note')")
    bench.feed.tx((U, KV, ["7", "ours", "15", T2], ["1", "old", "10", T1]))
    done = bench.run()
    assert bench.sql("SELECT id, a, n, ours FROM kv") == [(7, "ours", 15, "a note")]
    assert cdr(done) == {"conflicts": 1, "resolutions succeeded": 1, "UPDATEROWEXISTS conflicts": 1}
