"""REPERROR, conflicts and REPLAY DISCARDS on SQLite and MariaDB: the same as on PostgreSQL, by their own errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.mariadb import MariaServer
from demo.patience import PATIENCE
from replicat.apply.discard import Discards
from replicat.apply.discardfile import DiscardFile
from replicat.apply.replay import Replay
from replicat.params import ReplicatParams
from replicat.run.replicat import Replicat
from replicat.targets.contract import TargetSettings
from replicat.targets.kinds import open_target
from replicat.targets.sqlite.link import path_of
from tests.support.replicat_bench import REG, Bench
from tests.support.replicat_trail import InlineEngine, table
from trails.clock import RealClock
from trails.errors import OperatorError
from trails.fs import RealFs
from trails.record import Column, Op, TableDef
from trails.runtime.language.params import parse_text

pytestmark = pytest.mark.e2e

I, U, D = Op.INSERT, Op.UPDATE, Op.DELETE  # noqa: E741  -- one letter an op keeps scripts readable
KV = TableDef("src", "kv", (
    Column("id", "integer", "integer", key=True), Column("a", "text", "text"),
    Column("n", "decimal", "numeric(10,2)"),
))  # fmt: skip
LOG = table("src", "log", "id", "id")
CODES = {"sqlite": ("SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_CHECK"), "mysql": ("1062", "4025")}


class Discarding(Bench):
    """A Bench with a discard file."""

    def __init__(self, folder: Path, url: str, schema: str, kind: str, server: MariaServer | None) -> None:
        super().__init__(folder, url, schema)
        self.kind, self.server = kind, server
        self.path = str(folder / "REP1.dsc")

    def settings(self) -> TargetSettings:
        return TargetSettings(self.url, self.table, "REP1", 77, str(self.folder))

    def replicat(self, url: str = "") -> Replicat:
        text = f"REPLICAT rep1\nTARGETDB '{url or self.url}'\n" + "\n".join([*self.lines, self.maps]) + "\n"
        params = ReplicatParams.from_statements(parse_text(text, "rep1.prm"))
        file = DiscardFile(RealFs(), self.path, 1, title="A discard file")
        return Replicat(
            params, REG, self.trail, fs=RealFs(), clock=RealClock(), target=open_target(self.settings()),
            engine=InlineEngine(), note=self.notes.append, discards=Discards("REP1", params.error_rules, file),
        )  # fmt: skip

    def replay(self, **options: Any) -> list[str]:
        file = RealFs().open(self.path)
        try:
            return [one.outcome for one in Replay(open_target(self.settings()), "REP1", 77, **options).run(file)]
        finally:
            file.close()

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        if self.server is not None:
            return self.server.sql(statement, self.schema)
        conn = sqlite3.connect(path_of(self.url), isolation_level=None, timeout=PATIENCE)
        try:
            found = conn.execute(statement).fetchall()
            return [tuple(None if value is None else str(value) for value in row) for row in found]
        finally:
            conn.close()


@pytest.fixture(params=["sqlite", "mysql"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Discarding]:
    if request.param == "sqlite":
        made = Discarding(tmp_path, f"sqlite:///{tmp_path}/target.db", "main", "sqlite", None)
    else:
        server, name = request.getfixturevalue("mariadb"), request.getfixturevalue("maria_db")
        made = Discarding(tmp_path, server.url(name), name, "mysql", server)
    made.sql("CREATE TABLE kv (id bigint PRIMARY KEY, a varchar(40) UNIQUE, n decimal(10, 2), CHECK (n >= 0))")
    made.sql("CREATE TABLE log (id bigint PRIMARY KEY)")
    yield made
    made.feed.close()


def test_errors_go_by_the_databases_own_names(bench: Discarding):
    """A change by one, a whole transaction by the other; DEFAULT for all else; then replayed, once."""
    unique, check = CODES[bench.kind]
    bench.lines = [f"REPERROR ({unique}, TRANSDISCARD)", f"REPERROR ({check}, DISCARD)", "REPERROR (DEFAULT, ABEND)"]
    bench.feed.tx((I, KV, ["1", "a", "1.50"]), (I, KV, ["2", "b", "-1.00"]))
    bench.feed.tx((I, LOG, ["1"]), (I, KV, ["3", "a", "1.00"]))
    bench.run()
    bench.feed.tx((U, KV, ["1", "c", "2.00"], ["1", "a", "1.50"]))
    bench.run()
    assert bench.sql("SELECT id, a FROM kv") == [("1", "c")]
    assert bench.sql("SELECT id FROM log") == []
    text = Path(bench.path).read_text()
    assert (f"on action DISCARD on error {check}" in text, text.count(f"on action TRANSDISCARD on error {unique}")) == (
        True, 2,
    )  # fmt: skip
    assert bench.replay() == ["kept", "applied", "applied"]
    assert bench.replay() == ["kept", "applied before", "applied before"]
    assert bench.sql("SELECT id, a FROM kv ORDER BY id") == [("1", "c"), ("3", "a")]
    bench.feed.tx((U, KV, ["9", "x", "2.00"], ["9", "y", "1.00"]))
    with pytest.raises(OperatorError, match=r"the target refuses the update of row \(9\)"):
        bench.run()


def test_what_was_replayed_is_remembered_within_bounds(bench: Discarding):
    """The newest rows of the checkpoint table stay; an older record is never applied again, though nobody knows it."""
    unique, _ = CODES[bench.kind]
    bench.lines = [f"REPERROR ({unique}, DISCARD)"]
    bench.feed.tx((I, KV, ["0", "a", "1.00"]))
    for n in range(1, 6):
        bench.feed.tx((I, KV, [str(n), "a", "1.00"]))
    bench.run()
    bench.sql("UPDATE kv SET a = 'free'" if bench.kind == "sqlite" else "UPDATE kv SET a = 'free' WHERE id = 0")
    counted = "SELECT count(*) FROM chk WHERE group_name = 'REP1 replay' AND group_key <> 0"
    assert bench.replay(keep=2) == ["applied", "kept", "kept", "kept", "kept"]  # one a at a time
    for n in range(1, 5):
        bench.sql(f"UPDATE kv SET a = 'b{n}' WHERE id = {n}")
        assert bench.replay(keep=2).count("applied") == 1
    assert [row[0] for row in bench.sql("SELECT id FROM kv ORDER BY id")] == ["0", "1", "2", "3", "4", "5"]
    assert int(bench.sql(counted)[0][0]) == 3  # with the floor
    bench.sql("DELETE FROM kv")
    assert bench.replay(keep=2) == ["kept", "kept", "kept", "applied before", "applied before"]
    assert bench.sql("SELECT id FROM kv") == []


def test_what_is_forgotten_of_replays_never_comes_back(bench: Discarding):
    """Records of one block go together, so fewer rows stay than may; those of records that were refused count not."""
    unique, _ = CODES[bench.kind]
    bench.lines = [f"REPERROR ({unique}, DISCARD)"]
    bench.feed.tx((I, KV, ["0", "a", "1.00"]), (I, KV, ["9", "b", "1.00"]))
    bench.feed.tx((I, KV, ["1", "a", "1.00"]), (I, KV, ["2", "b", "1.00"]))
    bench.feed.tx((I, KV, ["3", "a", "1.00"]))
    bench.feed.tx((I, KV, ["4", "a", "1.00"]))
    bench.run()
    bench.sql("UPDATE kv SET a = 'free' WHERE id = 0")
    bench.sql("UPDATE kv SET a = 'gone' WHERE id = 9")
    assert bench.replay(keep=1) == ["applied", "applied", "kept", "kept"]
    bench.sql("DELETE FROM kv")
    assert bench.replay(keep=1) == ["kept", "kept", "applied", "kept"]
    bench.sql("DELETE FROM kv")
    assert bench.replay(keep=1) == ["kept", "kept", "applied before", "applied"]


def test_unique_values_change_hands_over_the_borders_of_jobs(bench: Discarding):
    """In a transaction larger than BATCHROWS: what is refused waits for what it needs, and for nothing else."""
    bench.lines = ["BATCHROWS 5"]
    bench.feed.tx((I, KV, ["1", "a", "1.00"]), (I, KV, ["2", "b", "2.00"]))
    many = [(I, LOG, [str(n)]) for n in range(30)]
    bench.feed.tx(
        (U, KV, ["1", "b", "1.00"]), *many[:15], (U, KV, ["2", "a", "2.00"]), *many[15:], (D, KV, ["1", "b", "1.00"]),
        pieces=9,
    )  # fmt: skip
    bench.run()
    assert bench.sql("SELECT id, a FROM kv") == [("2", "a")]
    assert [int(row[0]) for row in bench.sql("SELECT count(*) FROM log")] == [30]


def test_conflicts(bench: Discarding):
    """Found by one join, resolved one by one, in order."""
    bench.maps = (
        f"MAP src.kv, TARGET {bench.schema}.kv, COMPARECOLS (ON UPDATE ALL, ON DELETE ALL), "
        "RESOLVECONFLICT (UPDATEROWEXISTS, (sums, USEDELTA, COLS (n)), (DEFAULT, OVERWRITE)), "
        "RESOLVECONFLICT (INSERTROWEXISTS, (DEFAULT, USEMAX (n))), "
        "RESOLVECONFLICT (UPDATEROWMISSING, (DEFAULT, OVERWRITE)), "
        "RESOLVECONFLICT (DELETEROWEXISTS, (DEFAULT, IGNORE)), RESOLVECONFLICT (DELETEROWMISSING, (DEFAULT, DISCARD));"
    )
    bench.sql("INSERT INTO kv VALUES (1, 'theirs', 100), (2, 'p', 5), (3, 'q', 9), (4, NULL, 4)")
    bench.feed.tx(
        (U, KV, ["1", "ours", "15.00"], ["1", "old", "10.00"]), (I, KV, ["2", "r", "7.50"]),
        (I, KV, ["3", "s", "7.50"]),
        (D, KV, ["4", "x", "4.00"]), (D, KV, ["5", "x", "4.00"]), (U, KV, ["6", "t", "1.00"], ["6", "u", "1.00"]),
    )  # fmt: skip
    bench.feed.tx((U, KV, ["4", "v", "4.50"], ["4", None, "4.00"]))
    done = bench.run()
    assert [(i, a, float(n)) for i, a, n in bench.sql("SELECT id, a, n FROM kv ORDER BY id")] == [
        ("1", "ours", 105), ("2", "r", 7.5), ("3", "q", 9), ("4", "v", 4.5), ("6", "t", 1),
    ]  # fmt: skip
    (counted,) = done.stats.to_reply()["tables"]
    assert (counted["more"]["CDR conflicts"], counted["more"]["CDR resolutions succeeded"]) == (6, 6)


def test_nothing_is_looked_at_one_by_one_without_conflicts(bench: Discarding):
    """The join takes decimals and NULLs for what they are."""
    bench.maps = (
        f"MAP src.kv, TARGET {bench.schema}.kv, COMPARECOLS (ON UPDATE ALL, ON DELETE ALL), "
        "RESOLVECONFLICT (UPDATEROWEXISTS, (DEFAULT, OVERWRITE));"
    )
    for n in range(50):
        bench.feed.tx((I, KV, [str(n), None, "1.50"]))
    bench.run()
    for n in range(50):
        bench.feed.tx((U, KV, [str(n), f"a{n}", "2.00"], [str(n), None, "1.50"]))
    bench.feed.tx(*[(D, KV, [str(n), f"a{n}", "2.00"]) for n in range(49)])
    done = bench.run()
    assert bench.sql("SELECT id FROM kv") == [("49",)]
    counted = done.stats.to_reply()["tables"][0].get("more", {})
    assert not [name for name in counted if name != "values converted"]  # SQLite keeps 1.50 as 1.5, and says so
    assert [note for note in bench.notes if "refused" in note] == []
