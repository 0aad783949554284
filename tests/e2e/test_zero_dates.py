"""ZERODATE NULL: dates of a MySQL or MariaDB source that no calendar has, at a target that has no such dates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from replicat.targets.kinds import admin_for
from tests.support.replicat_bench import Bench
from tests.support.replicat_trail import IDENTITY, TrailFeed
from trails.errors import OperatorError
from trails.fs import RealFs
from trails.record import Column, Op, TableDef
from trails.runtime.report.stats import CONVERTED

pytestmark = pytest.mark.e2e

TABLE = TableDef(
    "src", "t",
    (Column("id", "date", "date", key=True), Column("d", "date", "date"), Column("m", "timestamp", "datetime(6)"),
     Column("s", "timestamptz", "timestamp"), Column("n", "text", "varchar(40)")),
)  # fmt: skip
ZEROS = ["2024-01-01", "0000-00-00", "2024-00-15 12:34:56", "0000-00-00 00:00:00+00", "0000-00-00"]
PLAIN = ["2024-01-02", "2024-02-29", "2024-02-29 12:34:56.5", "2024-02-29 12:34:56+00", "kept"]


@pytest.fixture
def bench(tmp_path: Path, target_db: str) -> Bench:
    made = Bench(tmp_path, target_db, "public", feed=False)
    admin_for(target_db).add_row_table(target_db, made.table)
    made.feed = TrailFeed(RealFs(), made.trail, identity=replace(IDENTITY, source={"kind": "mariadb"}))
    with psycopg.connect(target_db, autocommit=True) as conn:
        conn.execute("CREATE TABLE t (id date PRIMARY KEY, d date, m timestamp, s timestamptz, n text)")
    return made


def test_without_it_they_are_refused_by_name(bench: Bench, target_db: str) -> None:
    """SQLSTATE 22008, for REPERROR."""
    bench.feed.tx((Op.INSERT, TABLE, ZEROS))
    bench.feed.close()
    with pytest.raises(OperatorError, match=r"public.t"):
        bench.run()
    bench.lines = ["REPERROR (22008, IGNORE)"]
    bench.run()
    with psycopg.connect(target_db) as conn:
        assert conn.execute("SELECT count(*) FROM t").fetchone() == (0,)


@pytest.mark.parametrize(
    "more", ["", ", COLMAP (USEDEFAULTS, n = n), INSERTMISSINGUPDATES", ", COMPARECOLS (ON UPDATE ALL)"]
)
def test_with_it_they_become_null_and_are_counted(bench: Bench, target_db: str, more: str) -> None:
    """New rows, updates with and without old rows, deletes; text stays as it is, and so does the key."""
    if "INSERTMISSING" in more:
        bench.lines, more = ["INSERTMISSINGUPDATES"], ", COLMAP (USEDEFAULTS, n = n)"
    bench.maps = f"MAP src.*, TARGET public.*, ZERODATE NULL{more};"
    changed = ["2024-01-02", "0000-00-00", *PLAIN[2:]]
    bench.feed.tx((Op.INSERT, TABLE, ZEROS), (Op.INSERT, TABLE, PLAIN))
    bench.feed.tx((Op.UPDATE, TABLE, changed, PLAIN))
    bench.feed.tx((Op.UPDATE, TABLE, ["2024-01-01", "2024-03-01", *ZEROS[2:]], ZEROS))
    bench.feed.close()
    process = bench.run()
    with psycopg.connect(target_db) as conn:
        conn.execute("SET timezone = 'UTC'")
        rows = conn.execute("SELECT id::text, d::text, m::text, s::text, n FROM t ORDER BY id").fetchall()
    assert rows == [("2024-01-01", "2024-03-01", None, None, "0000-00-00"), ("2024-01-02", None, *PLAIN[2:])]
    (counted,) = process.stats.to_reply()["tables"]
    assert counted["more"][CONVERTED] == 6


def test_a_key_stays_what_it_is(bench: Bench) -> None:
    """NULL tells no row from another: refused."""
    bench.maps = "MAP src.*, TARGET public.*, ZERODATE NULL;"
    bench.feed.tx((Op.INSERT, TABLE, ["0000-00-00", *PLAIN[1:]]))
    bench.feed.close()
    with pytest.raises(OperatorError, match=r"public.t"):
        bench.run()
