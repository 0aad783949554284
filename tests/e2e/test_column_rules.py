"""COLS, COLSEXCEPT, COLGROUP and TOKENS on a real database, through Extract and pump: what stands in the trails."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.patience import PATIENCE, wait_for
from tests.support.capturing import Capture, Change, step_until
from tests.support.homes import make_home
from tests.support.link import LinkBench, Source
from trails.errors import OperatorError
from trails.record import Op
from trails.runtime.home import registration
from trails.runtime.home.registration import Registration, TrailReg
from trails.show.dump import main

pytestmark = pytest.mark.e2e
LONG = "x" * 100_000
PEOPLE = "CREATE TABLE people (id int PRIMARY KEY, name text, secret text, city text, zip text)"
TOASTED = ("CREATE TABLE t (id int PRIMARY KEY, big text, n int)", "ALTER TABLE t ALTER big SET STORAGE EXTERNAL")


@pytest.fixture
def capture(source_db: str, tmp_path: Path) -> Capture:
    """A group on an empty database."""
    return Capture(source_db, tmp_path)


@pytest.fixture
def pipe(source_db: str, tmp_path: Path) -> Iterator[tuple[Capture, LinkBench]]:
    """An Extract that writes the local trail of a real pump."""
    bench = LinkBench(
        tmp_path,
        parameters="TABLE *.*, TOKENS (pump = @GETENV ('GGENVIRONMENT', 'GROUPNAME'));\n"
        "TABLE public.people, COLSEXCEPT (zip), COLGROUP (city, zip), TOKENS (first = 'again', n = 'x');",
    )
    yield Capture(source_db, Path(bench.near.folder("dirdat"))), bench
    bench.close()


def flat(transactions: list[list[Change]]) -> list[tuple[Any, ...]]:
    """(operation, after, before) of every change."""
    return [(c.op, c.after, c.before) for transaction in transactions for c in transaction]


def test_a_whole_pipe(pipe: tuple[Capture, LinkBench]) -> None:
    """OT-34, OT-36: a column leaves the path where a rule says so, and both ends may be killed on the way."""
    capture, bench = pipe
    capture.tables = (
        "TABLE public.*, TOKENS (first = 'extract', xid = @GETENV ('TRANSACTION', 'XID'));\n"
        "TABLE public.people, COLSEXCEPT (secret), TOKENS (first = 'extract', op = @GETENV ('GGHEADER', 'OPTYPE'));\n"
    )
    capture.sql(PEOPLE, "CREATE TABLE log (v text)")
    capture.register()
    capture.sql(
        "INSERT INTO people VALUES (1, 'Ann', 'first secret', 'Porto', '4000')",
        "UPDATE people SET name = 'Eve', secret = 'second secret'",
        "UPDATE people SET id = 2",
        "INSERT INTO log VALUES ('one')",
    )
    with capture.running() as extract:
        capture.drain(extract)
    bench.start()
    bench.drain()
    assert bench.pump is not None
    bench.pump.kill()
    bench.pump.wait()
    capture.sql("UPDATE people SET name = 'Bob'", "DELETE FROM people", "INSERT INTO log VALUES ('two'), ('two')")
    extract = capture.start()
    capture.drain(extract)
    extract._writer.abandon()  # a crash: no last save
    extract.close()
    capture.sql("DELETE FROM log WHERE v = 'one'")
    with capture.running() as extract:
        capture.drain(extract)
    bench.start()
    bench.drain()
    near, far = capture.changes(), capture.changes(bench.remote)
    assert flat(near)[:3] == [
        (Op.INSERT, {**person(1, "Ann"), "FIRST": "extract", "OP": "INSERT"}, None),
        (Op.UPDATE, {**person(1, "Eve"), "FIRST": "extract", "OP": "UPDATE"}, None),
        (
            Op.UPDATE,
            {**person(2, "Eve"), "FIRST": "extract", "OP": "UPDATE"},
            {**person(1, "Eve"), "FIRST": "extract", "OP": "UPDATE"},
        ),
    ]
    people = [(op, after or before) for op, after, before in flat(far) if "id" in (after or before)]
    assert people == [
        (op, {"id": key, "name": name, "OP": op.name, "FIRST": "again", "N": "x"})
        for op, key, name in (
            (Op.INSERT, "1", "Ann"),
            (Op.UPDATE, "1", "Eve"),
            (Op.UPDATE, "2", "Eve"),
            (Op.UPDATE, "2", "Bob"),
            (Op.DELETE, "2", "Bob"),
        )
    ]
    logged = [(op, after or before) for op, after, before in flat(far) if "v" in (after or before)]
    assert [(op, row["v"]) for op, row in logged] == [
        (Op.INSERT, "one"), (Op.INSERT, "two"), (Op.INSERT, "two"), (Op.DELETE, "one"),
    ]  # fmt: skip
    assert {row["FIRST"] for _, row in logged} == {"extract"}
    assert {row["PUMP"] for _, row in logged} == {"PMP1"}
    assert len({row["XID"] for _, row in logged}) == 3
    assert not any(b" secret" in path.read_bytes() for path in capture.folder.glob("lt*"))


def person(number: int, name: str) -> dict[str, str]:
    """A row of `people` without its secret."""
    return {"id": str(number), "name": name, "city": "Porto", "zip": "4000"}


def test_a_large_transaction_is_cut_alike_in_all_its_blocks(capture: Capture) -> None:
    """CW-04: also when the Extract dies inside it; each row has its transaction's facts."""
    capture.tables = "TABLE public.t, COLS (id, n), TOKENS (xid = @GETENV ('TRANSACTION', 'XID'));"
    capture.sql("CREATE TABLE t (id int PRIMARY KEY, big text, n int)", "CREATE TABLE other (id int PRIMARY KEY)")
    capture.register()
    capture.sql("INSERT INTO t SELECT g, repeat('v', 200), g FROM generate_series(1, 5000) g", "DELETE FROM t")
    extract = capture.start(block_bytes=1 << 16)
    step_until(extract, lambda: extract._assembler._began)
    extract._writer.abandon()
    extract.close()
    with capture.running(block_bytes=1 << 16) as extract:
        capture.drain(extract)
    inserts, deletes = capture.changes()
    assert [c.after and (c.after["id"], c.after["n"]) for c in inserts] == [(str(n), str(n)) for n in range(1, 5001)]
    assert len({c.after["XID"] for c in inserts if c.after}) == len({c.before["XID"] for c in deletes if c.before}) == 1
    assert all("big" not in (c.after or c.before or {}) for c in [*inserts, *deletes])


def test_an_unchanged_value_that_the_trail_does_not_get_stops_nobody(capture: Capture) -> None:
    """TOAST, the replica identity not full: no warning, no error, if the column is left out."""
    capture.tables = "TABLE public.*, COLSEXCEPT (big);"
    capture.sql(*TOASTED)
    capture.register(trandata=False)
    capture.sql(f"INSERT INTO t VALUES (1, '{LONG}', 0)", "UPDATE t SET n = 1", "UPDATE t SET id = 2, n = 2")
    with capture.running() as extract:
        capture.drain(extract)
    assert not any("ADD TRANDATA" in line for line in capture.said)
    assert [c.after for t in capture.changes() for c in t] == [
        {"id": "1", "n": "0"}, {"id": "1", "n": "1"}, {"id": "2", "n": "2"},
    ]  # fmt: skip


@pytest.mark.parametrize("trandata", [True, False])
def test_an_unchanged_value_of_a_group(capture: Capture, trandata: bool) -> None:
    """OT-36: from the old row where that has it (ADD TRANDATA); else the table, row and column are named."""
    capture.tables = "TABLE public.t, COLS (id, n), COLGROUP (n, big);"
    capture.sql(*TOASTED)
    capture.register(trandata=trandata)
    capture.sql(f"INSERT INTO t VALUES (1, '{LONG}', 0)", "UPDATE t SET n = 1")
    if not trandata:
        extract = capture.start()
        with pytest.raises(OperatorError, match=r"public\.t, row \(1\).*column big.*ADD TRANDATA"):
            step_until(extract, lambda: False)
        extract.close()
        return
    with capture.running() as extract:
        capture.drain(extract)
    assert [c.after for t in capture.changes() for c in t] == [
        {"id": "1", "big": LONG, "n": "0"}, {"id": "1", "big": LONG, "n": "1"},
    ]  # fmt: skip


def test_a_table_that_changes_its_shape(capture: Capture) -> None:
    """DB-09: COLS keeps what it names through ADD and DROP of others, by each row's own shape; then it loses one."""
    capture.tables = "TABLE public.t, COLS (id, v);\n"
    capture.sql("CREATE TABLE t (a int, id int PRIMARY KEY, v text, secret text)")
    capture.register()
    capture.sql(
        "INSERT INTO t VALUES (0, 1, 'one', 's')",
        "BEGIN; ALTER TABLE t DROP a; ALTER TABLE t ADD w text; INSERT INTO t VALUES (2, 'two', 's', 'w'); COMMIT",
        "ALTER TABLE t RENAME v TO u",
        "INSERT INTO t VALUES (3, 'three', 's', 'w')",
    )
    with pytest.raises(OperatorError, match=r"e\.prm:4: TABLE public\.t: COLS: the table has no column v; .*wildcard"):
        capture.start()
    assert capture.changes() == []
    capture.sql("ALTER TABLE t RENAME u TO v")
    extract = capture.start()
    capture.sql("ALTER TABLE t RENAME v TO u", "UPDATE t SET u = 'III' WHERE id = 3")
    with pytest.raises(OperatorError, match=r"e\.prm:4: TABLE public\.t: COLS: the table has no column v; .*id, u"):
        step_until(extract, lambda: False)
    extract.close()
    # With both names under a wildcard each shape gives what it has.
    capture.tables = "TABLE public.t*, COLS (id, v, u);\n"
    with capture.running() as extract:
        capture.drain(extract)
    assert [c.after for t in capture.changes() for c in t] == [
        {"id": "1", "v": "one"}, {"id": "2", "v": "two"}, {"id": "3", "u": "three"}, {"id": "3", "u": "III"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (
            "TABLE public.people, COLSEXCEPT (id);",
            r"e\.prm:4: TABLE public\.people: COLSEXCEPT leaves out key column id",
        ),
        ("TABLE public.*, COLS (name, city);", r"e\.prm:4: TABLE public\.people: COLS leaves out key column id"),
        (
            "TABLE public.people, COLS (id, nmae);",
            r"COLS: the table has no column nmae; its columns are id, name, secret",
        ),
        ("TABLE p*.people, COLS (id);\nTABLE *c.people;", r"e\.prm:5: TABLE public\.people: ambiguous: p\*\.people"),
    ],
)
def test_what_cannot_be_obeyed_is_told_at_the_start(capture: Capture, tables: str, message: str) -> None:
    """Before anything is captured; nothing is written."""
    capture.tables = tables
    capture.sql(PEOPLE)
    capture.register()
    with pytest.raises(OperatorError, match=message):
        capture.start()
    assert not list(capture.folder.glob("lt0*"))


def test_a_pump_that_would_lose_a_key_ends_with_code_2(tmp_path: Path) -> None:
    """For a table that its trail knows already; nothing is sent."""
    bench = LinkBench(tmp_path, parameters="TABLE *.*;\nTABLE sales.orders, COLSEXCEPT (id);")
    try:
        source = Source(bench.fs, bench.local)
        source.small()
        source.sync()
        bench.start()
        code, said = bench.ended()
        assert code == 2
        assert "pmp1.prm:8: TABLE sales.orders: COLSEXCEPT leaves out key column id" in said
    finally:
        bench.close()


def test_the_process_itself(source_db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options from its own parameter file, facts of its own environment; a clause that can't be obeyed: code 2."""
    monkeypatch.setenv("SHOP", "Porto")
    home = make_home(tmp_path / "home")
    capture = Capture(source_db, Path(home.folder("dirdat")))
    capture.sql("CREATE TABLE t (id int PRIMARY KEY, secret text)")
    capture.register()
    trails = (TrailReg("./dirdat/lt", "EXTTRAIL", 1),)
    registration.save(home, Registration("EXT1", "EXTRACT", "TRANLOG", trails=trails, registered=capture.registered))
    head = f"EXTRACT ext1\nSOURCEDB {source_db}\nEXTTRAIL ./dirdat/lt\n"

    def run(tables: str) -> subprocess.Popen[str]:
        Path(home.prm("EXT1")).write_text(head + tables)
        command = [sys.executable, "-P", "-m", "extract", "--home", home.root, "EXT1"]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    _, said = run("TABLE public.t, COLS (secret);\n").communicate(timeout=PATIENCE)
    assert "ext1.prm:4: TABLE public.t: COLS leaves out key column id" in said
    facts = ("GGENVIRONMENT', 'GROUPNAME", "GGENVIRONMENT', 'PROCESSID", "OSVARIABLE', 'SHOP", "OSVARIABLE', 'NO_SUCH")
    tokens = ", ".join(f"t{n} = @GETENV ('{fact}')" for n, fact in enumerate(facts))
    process = run(f"TABLE public.t, COLSEXCEPT (secret),\n  TOKENS ({tokens});\n")
    try:
        capture.sql("INSERT INTO t VALUES (1, 'pin')")
        wait_for(
            lambda: process.poll() is not None or ((capture.folder / "lt000000000").exists() and capture.changes())
        )
        assert process.poll() is None, process.communicate()[1]
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    row = {"id": "1", "T0": "EXT1", "T1": str(process.pid), "T2": "Porto", "T3": None}
    assert flat(capture.changes()) == [(Op.INSERT, row, None)]


def test_logdump_shows_tokens_apart(capture: Capture) -> None:
    """Marked, so that a column of the same name is told from it."""
    capture.tables = "TABLE public.t, TOKENS (id = 'token');"
    capture.sql("CREATE TABLE t (id int PRIMARY KEY)")
    capture.register()
    capture.sql("INSERT INTO t VALUES (1)")
    with capture.running() as extract:
        capture.drain(extract)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main([str(capture.settings.trail), "--records"]) == 0
    lines = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert "id (key) '1'" in lines
    assert "@TOKEN ID 'token'" in lines


def test_filters_and_switches_on_a_whole_pipe(pipe: tuple[Capture, LinkBench]) -> None:
    """OT-34: START refuses what can't be asked; then rows move in and out, across the death of both ends."""
    capture, bench = pipe
    capture.sql(
        "CREATE TABLE t (id int PRIMARY KEY, n numeric(8, 2), at timestamptz, doc json)",
        "CREATE TABLE log (v text)",
        "CREATE TABLE narrow (id int PRIMARY KEY, n int)",
    )
    capture.register()
    for clause, message in (
        ("t, WHERE (m = 1)", "the table has no column m"),
        ("t, WHERE (doc = 'x')", "doc is of type json, which is not compared here"),
        ("t, WHERE (n > 'ten')", "'ten' is no decimal, which n is"),
        (
            "narrow, FILTER (n > 1)",
            r"narrow is under GETUPDATEBEFORES or a filter \(e\.prm:4\).*ADD TRANDATA .*, ALLCOLS",
        ),
    ):
        capture.tables = f"TABLE public.{clause};\n"
        with pytest.raises(OperatorError, match=message):
            capture.start()
    capture.tables = (
        "TABLE public.t, WHERE (n >= 10 AND at > '2024-02-29 12:00:00');\nIGNOREDELETES\nTABLE public.log;\n"
    )
    early, late = "'2024-02-29 11:00:00+00'", "'2024-02-29 11:00:00-05'"
    capture.sql(
        f"INSERT INTO t VALUES (1, 10, {late}), (2, 9.99, {late}), (3, 11, {early})",
        "INSERT INTO log VALUES ('one')", "DELETE FROM log",
        "UPDATE t SET n = 10.00 WHERE id = 2", f"UPDATE t SET at = {late} WHERE id = 3",
    )  # fmt: skip
    extract = capture.start()
    capture.drain(extract)
    extract._writer.abandon()  # a crash: no last save
    extract.close()
    bench.start()
    bench.drain()
    assert bench.pump is not None
    bench.pump.kill()
    bench.pump.wait()
    capture.sql(
        "UPDATE t SET n = NULL WHERE id = 1", "UPDATE t SET id = 4 WHERE id = 2", "UPDATE t SET n = 1 WHERE id = 4"
    )
    with capture.running() as extract:
        capture.drain(extract)
    bench.start()
    bench.drain()
    for trail in (None, bench.remote):
        rows: dict[str, str | None] = {}
        found = [(c.op, c.after, c.before) for one in capture.changes(trail) for c in one if c.table.name == "t"]
        for _, after, before in found:
            if before is not None:
                del rows[before["id"]]
            if after is not None:
                assert after["id"] not in rows
                rows[after["id"]] = after["n"]
        assert [op for op, _, _ in found] == [Op.INSERT, Op.INSERT, Op.INSERT, Op.DELETE, Op.UPDATE, Op.DELETE]
        assert rows == {"3": "11.00"}
        assert [c.op for one in capture.changes(trail) for c in one if c.table.name == "log"] == [Op.INSERT]
