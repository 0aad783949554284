"""GETUPDATEBEFORES on real PostgreSQL servers: which old rows stand in the trail, and what is refused without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from replicat.targets.kinds import admin_for
from tests.support.capturing import Capture, Change, ask, step_until
from tests.support.replicat_bench import Bench
from trails.errors import OperatorError
from trails.record import Op

pytestmark = pytest.mark.e2e
TOASTED = ("CREATE TABLE t (id int PRIMARY KEY, big text, n int)", "ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
BIG = "x" * 30_000


@pytest.fixture
def capture(source_db: str, tmp_path: Path) -> Capture:
    """A group on an empty database, whose tables are all under GETUPDATEBEFORES."""
    return Capture(source_db, tmp_path, tables="GETUPDATEBEFORES\nTABLE public.*;\n")


def register(capture: Capture, pattern: str = "public.*") -> None:
    """ADD TRANDATA with ALLCOLS, and REGISTER EXTRACT."""
    ask("add_trandata", url=capture.url, pattern=pattern, allcols=True)
    capture.register()


def run(capture: Capture) -> list[Change]:
    """All changes, once everything is captured."""
    with capture.running() as extract:
        capture.drain(extract)
    return [change for transaction in capture.changes() for change in transaction]


def flat(changes: list[Change]) -> list[tuple[Any, ...]]:
    """(operation, old row, new row), values in order."""
    images = [[None if i is None else tuple(i.values()) for i in (c.before, c.after)] for c in changes]
    return [(c.op.name, *both) for c, both in zip(changes, images, strict=True)]


def test_updates_carry_their_whole_old_row(capture: Capture) -> None:
    """Unchanged TOAST values in both rows, a changed one, NULL, a key change, a delete; across a restart inside."""
    capture.sql(*TOASTED, "CREATE TABLE narrow (id int PRIMARY KEY, n int)")
    register(capture)
    capture.sql(f"INSERT INTO t VALUES (1, '{BIG}', NULL)", "INSERT INTO narrow VALUES (1, 1)", "UPDATE t SET n = 1")
    with capture.running() as extract:
        capture.drain(extract)
    capture.sql("UPDATE narrow SET n = 2", "UPDATE t SET big = repeat('y', 30000)", "UPDATE t SET id = 2, n = 2")
    extract = capture.start()
    capture.drain(extract)
    extract._writer.abandon()  # a crash: no last save
    extract.close()
    capture.sql("UPDATE narrow SET n = NULL", "DELETE FROM t", "DELETE FROM narrow")
    new = "y" * 30_000
    assert flat(run(capture)) == [
        ("INSERT", None, ("1", BIG, None)),
        ("INSERT", None, ("1", "1")),
        ("UPDATE", ("1", BIG, None), ("1", BIG, "1")),
        ("UPDATE", ("1", "1"), ("1", "2")),
        ("UPDATE", ("1", BIG, "1"), ("1", new, "1")),
        ("UPDATE", ("1", new, "1"), ("2", new, "2")),
        ("UPDATE", ("1", "2"), ("1", None)),
        ("DELETE", ("2", new, "2"), None),
        ("DELETE", ("1", None), None),
    ]


def test_each_table_has_its_own_clause(capture: Capture) -> None:
    """By place in the file and by option; columns left out are in no old row, and tokens are those of the change."""
    capture.tables = (
        "TABLE public.plain;\nGETUPDATEBEFORES\nTABLE public.*, COLSEXCEPT (secret), TOKENS (op = @GETENV ('GGHEADER', "
        "'OPTYPE'));\nIGNOREUPDATEBEFORES\nTABLE public.other, GETBEFORECOLS (ON UPDATE ALL);\n"
    )
    for name in ("plain", "other", "ruled"):
        capture.sql(f"CREATE TABLE {name} (id int PRIMARY KEY, secret text, v int)")
    register(capture)
    for name in ("plain", "other", "ruled"):
        capture.sql(f"INSERT INTO {name} VALUES (1, 'pin', 1)", f"UPDATE {name} SET secret = 'new', v = 2")
    updates = {c.table.name: (c.before, c.after) for c in run(capture) if c.op == Op.UPDATE}
    assert updates["plain"] == (None, {"id": "1", "secret": "new", "v": "2"})
    assert updates["other"] == ({"id": "1", "secret": "pin", "v": "1"}, {"id": "1", "secret": "new", "v": "2"})
    assert updates["ruled"] == ({"id": "1", "v": "1", "OP": "UPDATE"}, {"id": "1", "v": "2", "OP": "UPDATE"})


def test_tables_without_full_identity_are_refused_at_the_start(capture: Capture) -> None:
    """All at once, with the command that mends it; ADD TRANDATA alone leaves a narrow table as it is."""
    capture.sql("CREATE TABLE a (id int PRIMARY KEY)", 'CREATE TABLE "B" (id int PRIMARY KEY)', *TOASTED)
    capture.register()
    message = (
        r"(?s)table public\.B is under GETUPDATEBEFORES or a filter \(e\.prm:5\), but its replica identity is default.*"
        r"ADD TRANDATA public\.B, ALLCOLS \(or ALTER TABLE \"public\"\.\"B\" REPLICA IDENTITY FULL\).*public\.a.*"
    )
    with pytest.raises(OperatorError, match=message) as caught:
        capture.start()
    assert "public.t" not in str(caught.value)
    done = ask("add_trandata", url=capture.url, pattern="public.*", allcols=True)["tables"]
    shown = {table["table"]: table["message"] for table in done}
    assert "set to full (the whole old row)" in shown["public.a"]
    assert "already full" in shown["public.t"]
    assert all("is full" in t["message"] for t in ask("info_trandata", url=capture.url, pattern="public.*")["tables"])
    assert run(capture) == []


@pytest.mark.parametrize("change", ["UPDATE t SET n = 2", "DELETE FROM t WHERE id = 1"])
def test_an_identity_that_changes_on_the_way_ends_the_process(capture: Capture, change: str) -> None:
    """Told with the first row, refused with the first change that needs its old row; nothing of that is in the trail.

    START goes on with it, and without the parameter it is sent as it came.
    """
    capture.sql("CREATE TABLE t (id int PRIMARY KEY, n int)")
    register(capture)
    capture.sql("INSERT INTO t VALUES (1, 1)")
    with capture.running() as extract:
        capture.drain(extract)
        capture.sql("UPDATE t SET n = 2", "ALTER TABLE t REPLICA IDENTITY DEFAULT", "INSERT INTO t VALUES (2, 2)")
        capture.drain(extract)
        assert "public.t is under GETUPDATEBEFORES" in capture.said[-1]
        assert len(capture.said) == 1
    capture.sql(change)
    with pytest.raises(OperatorError, match=r"public\.t.*ADD TRANDATA public\.t, ALLCOLS"):
        capture.start()
    ask("add_trandata", url=capture.url, pattern="public.t", allcols=True)
    capture.sql("UPDATE t SET n = 3")
    for _ in range(2):
        extract = capture.start()
        with pytest.raises(
            OperatorError, match=r"public\.t, row \(1\), CSN 0.*came without its whole old row.*e\.prm:5"
        ):
            step_until(extract, lambda: False)
        extract.close()
    assert len(capture.changes()) == 3
    capture.tables = "TABLE public.*;\n"
    plain = flat(run(capture))
    assert plain[1] == ("UPDATE", ("1", "1"), ("1", "2"))
    assert plain[3][0] == change[:6]
    capture.tables = "GETUPDATEBEFORES\nTABLE public.*;\n"
    capture.sql("UPDATE t SET n = 4 WHERE id = 2")
    last = flat(run(capture))[-1]
    assert last == ("UPDATE", ("2", "3"), ("2", "4"))


def test_a_table_made_on_the_way(capture: Capture) -> None:
    """FOR ALL TABLES publishes it as it is: its inserts pass with a warning, and mended in time nothing stops."""
    capture.sql("CREATE TABLE t (id int PRIMARY KEY, n int)")
    register(capture)
    with capture.running() as extract:
        capture.sql("CREATE TABLE later (id int PRIMARY KEY, n int)", "INSERT INTO later VALUES (1, 1)")
        capture.drain(extract)
        assert "public.later is under GETUPDATEBEFORES" in capture.said[-1]
        ask("add_trandata", url=capture.url, pattern="public.later", allcols=True)
        capture.sql("UPDATE later SET n = 2")
        capture.drain(extract)
    assert flat(run(capture))[-1] == ("UPDATE", ("1", "1"), ("1", "2"))


def test_what_a_replicat_makes_of_them(capture: Capture, target_db: str, tmp_path: Path) -> None:
    """Conflicts are found and resolved, rows are found by KEYCOLS outside the source's key, a plain copy is as ever."""
    capture.sql(*TOASTED, "CREATE TABLE stock (id int PRIMARY KEY, n numeric)")
    capture.sql("CREATE TABLE named (id int PRIMARY KEY, code text, v int)")
    register(capture)
    bench = Bench(tmp_path, target_db, "public", feed=False)
    bench.trail = capture.settings.trail
    admin_for(target_db).add_row_table(target_db, bench.table)
    with psycopg.connect(target_db, autocommit=True) as target:
        target.execute("CREATE TABLE t (id int PRIMARY KEY, big text, n int)")
        target.execute("CREATE TABLE stock (id int PRIMARY KEY, n numeric)")
        target.execute("CREATE TABLE named (code text PRIMARY KEY, id int, v int)")
        bench.maps = (
            "MAP public.t, TARGET public.t;\nMAP public.named, TARGET public.named, KEYCOLS (code);\n"
            "MAP public.stock, TARGET public.stock, COMPARECOLS (ON UPDATE ALL, ON DELETE ALL), "
            "RESOLVECONFLICT (UPDATEROWEXISTS, (sums, USEDELTA, COLS (n)), (DEFAULT, OVERWRITE));"
        )
        capture.sql(
            f"INSERT INTO t VALUES (1, '{BIG}', 0), (2, 'small', 0), (3, 'gone', 0)",
            "INSERT INTO stock VALUES (1, 10), (2, 5)",
            "INSERT INTO named VALUES (1, 'a', 1), (2, 'b', 2)",
            "UPDATE t SET n = n + 1",
            "UPDATE stock SET n = n + 1",
        )
        run(capture)
        bench.run()
        target.execute("UPDATE stock SET n = 100 WHERE id = 1")
        capture.sql(
            "UPDATE t SET n = 2",
            "UPDATE t SET id = 9 WHERE id = 1",
            "DELETE FROM t WHERE id = 3",
            "UPDATE stock SET n = n + 5",
            "UPDATE named SET code = 'c' WHERE id = 1",
            "UPDATE named SET v = 7 WHERE id = 2",
        )
        run(capture)
        bench.run()
        assert target.execute("SELECT * FROM t ORDER BY id").fetchall() == [(2, "small", 2), (9, BIG, 2)]
        assert target.execute("SELECT id, n::int FROM stock ORDER BY id").fetchall() == [(1, 105), (2, 11)]
        assert target.execute("SELECT * FROM named ORDER BY code").fetchall() == [("b", 2, 7), ("c", 1, 1)]
