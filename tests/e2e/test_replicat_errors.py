"""Every action of REPERROR on a real PostgreSQL, and what only a whole transaction violates."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from replicat.apply.discard import Discards
from replicat.apply.discardfile import DiscardFile
from replicat.run.phase import ApplyPhase
from replicat.run.replicat import Replicat
from replicat.targets.contract import TargetSettings
from replicat.targets.kinds import open_target
from tests.e2e.test_replicat_discards import DiscardBench, counts
from tests.e2e.test_replicat_postgres import D, I, U
from tests.support.ddl_target import definition, feed_ddl, table_shape
from tests.support.replicat_bench import REG
from tests.support.replicat_trail import InlineEngine, table
from trails.clock import RealClock
from trails.ddl import ALTER, DdlChange, DdlColumn
from trails.errors import OperatorError
from trails.fs import RealFs
from trails.record import MISSING

pytestmark = pytest.mark.e2e

KV, LOG = table("src", "kv", "id a n", "id"), table("src", "log", "id note", "id")
ENDS = r"CSN (\d+), changes (\d+) to (\d+) in (\d+) records"
CHECKED = """
CREATE TABLE allowed (n int PRIMARY KEY);
CREATE FUNCTION allows(wanted int) RETURNS bool LANGUAGE sql VOLATILE AS
    'SELECT wanted < 1000 OR EXISTS (SELECT 1 FROM public.allowed WHERE n = wanted)';
ALTER TABLE kv ADD CONSTRAINT kv_allowed CHECK (allows(n));
"""


class Waiting(RealClock):
    """Does something instead of letting time pass."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.at_wait: Callable[[int], None] = lambda _number: None

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.at_wait(len(self.waits))


class ErrorBench(DiscardBench):
    """A Bench whose triggers fire where asked, and whose clock is the test's."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder, url)
        self.clock = Waiting()
        self.triggers = False

    def replicat(self, url: str = "") -> Replicat:
        params = self.params()
        settings = TargetSettings(
            url or self.url, ("gg", "chk"), "REP1", 77, "/home", suppress_triggers=False if self.triggers else None
        )
        file = DiscardFile(RealFs(), self.path, 1, title="A discard file")
        return Replicat(
            params, REG, self.trail, fs=RealFs(), clock=RealClock(), target=open_target(settings),
            engine=InlineEngine(), note=self.notes.append,
            discards=Discards("REP1", params.error_rules, file, clock=self.clock, warn=self.said.append),
        )  # fmt: skip

    def run(self, url: str = "") -> Replicat:
        """Apply all that waits, pauses included."""
        process = self.replicat(url)
        try:
            while process.step() or process._away:
                pass
            process.flush()
        finally:
            process.close()
        return process

    def places(self) -> list[tuple[str, str, str]]:
        """(action, table, change) of each record."""
        found = re.findall(
            r"on action (\w+) on.*\n.*\nOperation.*change (\d+) of.*\nDiscarding record...\nProblem replicating (\S+) ",
            self.text(),
        )
        return [(action, name, change) for action, change, name in found]


@pytest.fixture
def bench(tmp_path: Path, target_db: str) -> Iterator[ErrorBench]:
    made = ErrorBench(tmp_path, target_db)
    made.sql("CREATE TABLE kv (id int PRIMARY KEY, a text, n int CHECK (n >= 0))")
    made.sql("CREATE TABLE log (id int PRIMARY KEY, note text)")
    yield made
    made.feed.close()


def ids(bench: ErrorBench, name: str = "kv") -> list[int]:
    return [row[0] for row in bench.sql(f"SELECT id FROM {name} ORDER BY id")]


def test_ignore_is_counted_and_told(bench: ErrorBench):
    """Nothing is written to the file; the rest of its transaction is applied."""
    bench.lines = ["REPERROR (23514, IGNORE)", "REPERROR (23505, DISCARD)"]
    bench.feed.tx((I, KV, ["1", "a", "1"]), (I, KV, ["2", "b", "-1"]), (I, KV, ["3", "c", "-2"]))
    assert counts(bench.run()) == {"src.kv": {"inserts": 1, "ignored": 2}}
    assert ids(bench) == [1]
    assert bench.said == ["Changes that the target refused were ignored (src.kv SQLSTATE 23514: 2)"]
    assert not Path(bench.path).exists()


def test_a_maps_own_rule_comes_before_the_global_one(bench: ErrorBench):
    """REPERROR inside MAP holds for that MAP alone."""
    bench.lines = ["REPERROR (23514, ABEND)"]
    bench.maps = "MAP src.kv, TARGET public.kv, REPERROR (23514, IGNORE);\nMAP src.log, TARGET public.log;"
    bench.sql("ALTER TABLE log ADD CHECK (id > 0)")
    bench.feed.tx((I, KV, ["2", "b", "-1"]), (I, LOG, ["1", "x"]))
    bench.run()
    assert (ids(bench), ids(bench, "log")) == ([], [1])
    bench.feed.tx((I, LOG, ["-1", "x"]))
    with pytest.raises(OperatorError, match=r"src\.log: the target refuses the insert of row \(-1\)"):
        bench.run()


def test_retryop_tries_the_operation_again(bench: ErrorBench):
    """In the open transaction, after a pause; told once it is applied."""
    bench.sql(CHECKED)
    bench.lines = ["REPERROR (23514, RETRYOP MAXRETRIES 3, DELAYCSECS 20)"]
    bench.clock.at_wait = lambda n: bench.sql("INSERT INTO allowed VALUES (2000)") and None if n == 2 else None
    bench.feed.tx((I, KV, ["1", "a", "1"]), (I, KV, ["2", "b", "2000"]))
    assert counts(bench.run()) == {"src.kv": {"inserts": 2}}
    assert bench.clock.waits == [0.2, 0.2]
    assert any(note.endswith("applied change 1 of CSN 0000000000000001 at retry 2 (RETRYOP)") for note in bench.notes)


def test_retryop_that_waits_long_keeps_nothing_open(bench: ErrorBench):
    """Rolled back for the pause, so a STOP is obeyed meanwhile; each begin is one of the retries, then ABEND."""
    bench.sql(CHECKED)
    bench.lines = ["REPERROR (23514, RETRYOP MAXRETRIES 2, DELAYSECS 60)"]
    bench.feed.tx((I, KV, ["1", "a", "1"]), (I, KV, ["2", "b", "2000"]))
    process = bench.replicat()
    while not any("retry 1 of 2 in 60 seconds (RETRYOP)" in note for note in bench.notes):
        process.step()
    assert (process._phase is ApplyPhase.OPEN, process.step(), ids(bench)) == (False, False, [])
    assert 0.9 < process.idle_seconds() <= 1
    assert bench.clock.waits == []
    bench.sql("INSERT INTO allowed VALUES (2000)")
    process._try_at = 0
    while ids(bench) != [1, 2]:
        process.step()
    process.close()
    bench.feed.tx((I, KV, ["3", "b", "3000"]))
    process = bench.replicat()

    def on() -> None:
        while True:
            process._try_at = 0
            process.step()

    with pytest.raises(OperatorError, match=r"row \(3\): .* \(tried 3 times\); position .*\. Mend the row"):
        on()
    process.close()


def test_retryop_ends_after_its_retries(bench: ErrorBench):
    """ABEND, and nothing of the batch is committed."""
    bench.lines = ["REPERROR (DEFAULT, RETRYOP MAXRETRIES 2)"]
    bench.feed.tx((I, KV, ["1", "a", "1"]), (I, KV, ["2", "b", "-1"]))
    with pytest.raises(OperatorError, match=r"row \(2\): .*kv_n_check.* \(tried 3 times\); position .*\. Mend the row"):
        bench.run()
    assert (ids(bench), bench.clock.waits) == ([], [1.0, 1.0])


def test_transabort_does_the_transaction_again(bench: ErrorBench):
    """Rolled back, begun again after the pause; other transactions of the batch arrive once."""
    bench.sql(CHECKED)
    bench.lines = ["REPERROR (23514, TRANSABORT, MAXRETRIES 3, DELAYCSECS 1)"]
    bench.feed.tx((I, KV, ["1", "a", "1"]))
    bench.feed.tx((I, LOG, ["1", "x"]), (I, KV, ["2", "b", "2000"]))
    process = bench.replicat()
    while not any("try 3 of 4" in note for note in bench.notes):
        process.step()
        assert ids(bench) == []  # rolled back whole
    bench.sql("INSERT INTO allowed VALUES (2000)")
    while ids(bench) != [1, 2]:
        process.step()
    process.close()
    assert ids(bench, "log") == [1]
    assert counts(process) == {"src.kv": {"inserts": 2}, "src.log": {"inserts": 1}}
    assert bench.said == []


def test_transabort_ends_after_its_retries(bench: ErrorBench):
    """The message says how often; retries of one transaction count by themselves."""
    bench.lines = ["REPERROR (23514, TRANSABORT, MAXRETRIES 1, DELAYSECS 0)"]
    bench.feed.tx((I, KV, ["2", "b", "-1"]))
    with pytest.raises(OperatorError, match=r"row \(2\).*its transaction was tried 2 times"):
        bench.run()


def test_transdiscard_gives_up_all_of_a_transaction(bench: ErrorBench):
    """Also one larger than a job; its neighbours of the same batch are applied. Each change has its record."""
    bench.lines = ["REPERROR (23514, TRANSDISCARD)", "BATCHROWS 10"]
    bench.feed.tx((I, KV, ["1", "a", "1"]))
    rows = [(I, LOG, [str(n), "x"]) for n in range(30)]
    csn = bench.feed.tx(*rows[:20], (U, KV, ["1", "b", "-1"], ["1", "a", "1"]), *rows[20:], pieces=5)
    bench.feed.tx((I, LOG, ["99", "after"]), (U, KV, ["1", "c", "3"], ["1", "b", "-1"]))
    done = bench.run()
    assert (bench.sql("SELECT * FROM kv"), ids(bench, "log")) == ([(1, "c", 3)], [99])
    assert counts(done) == {
        "src.kv": {"inserts": 1, "updates": 1, "discards": 1}, "src.log": {"inserts": 1, "discards": 30},
    }  # fmt: skip
    assert bench.places() == [("TRANSDISCARD", "src.kv" if n == 20 else "src.log", str(n)) for n in range(31)]
    assert re.findall(r"CSN (\d+), change \d", bench.text()) == [csn] * 31
    assert re.findall(ENDS, bench.text()) == [(csn, "0", "30", "31")]
    told = "public.kv: change 20 of its transaction was refused: public.kv: new row for relation"
    assert bench.text().count(told.removeprefix("public.kv: ")) == 30
    assert len(bench.said) == 1


def test_transdiscard_of_one_transaction_among_many(bench: ErrorBench):
    """In one block with others; two of them are condemned one after the other."""
    bench.lines = ["REPERROR (23514, TRANSDISCARD)"]
    for n in range(20):
        bench.feed.tx((I, KV, [str(n), "a", "-1" if n in (4, 11) else "1"]), (I, LOG, [str(n), "x"]))
    bench.run()
    wanted = [n for n in range(20) if n not in (4, 11)]
    assert (ids(bench), ids(bench, "log")) == (wanted, wanted)
    assert [change for _, _, change in bench.places()] == ["0", "1"] * 2


def test_transdiscard_where_maxtransops_has_cut_the_transaction(bench: ErrorBench):
    """What was committed before stays (MAXTRANSOPS says so); all the rest goes, by its place in the transaction."""
    bench.lines = ["REPERROR (23514, TRANSDISCARD)", "BATCHROWS 5", "MAXTRANSOPS 10"]
    rows = [(I, LOG, [str(n), "x"]) for n in range(30)]
    csn = bench.feed.tx(*rows[:15], (I, KV, ["1", "b", "-1"]), *rows[16:], pieces=15)
    bench.feed.tx((I, LOG, ["99", "after"]))
    bench.run()
    records = [int(change) for _, _, change in bench.places()]
    assert records == list(range(records[0], 30))
    assert 0 < records[0] <= 15
    assert ids(bench, "log") == [*range(records[0]), 99]
    assert re.findall(r"CSN (\d+), change \d", bench.text()) == [csn] * len(records)
    parts = [(int(first), int(last), int(number)) for _, first, last, number in re.findall(ENDS, bench.text())]
    assert [n for first, last, _ in parts for n in range(first, last + 1)] == records
    assert all(number == last - first + 1 for first, last, number in parts)


# --- what only whole transactions violate ---------------------------------------------------------------------------

DEFERRED = """
CREATE TABLE child (id int PRIMARY KEY, kv int REFERENCES kv DEFERRABLE INITIALLY DEFERRED);
"""
CHILD = table("src", "child", "id kv", "id")


def test_a_constraint_of_the_whole_transaction_names_its_transaction(bench: ErrorBench):
    """Found before the commit, in the one transaction that violates it; those before it arrive."""
    bench.sql(DEFERRED)
    bench.triggers = True
    bench.feed.tx((I, CHILD, ["1", "5"]), (I, KV, ["5", "a", "1"]))
    csn = bench.feed.tx((I, CHILD, ["2", "6"]), (I, LOG, ["1", "x"]))
    bench.feed.tx((I, CHILD, ["3", "5"]))
    with pytest.raises(OperatorError, match=rf"transaction CSN {csn} as a whole, at its end: .*child_kv_fkey"):
        bench.run()
    assert ids(bench, "child") == [1]


@pytest.mark.parametrize(("action", "outcome"), [("DISCARD", "discards"), ("IGNORE", "ignored")])
def test_such_a_transaction_is_given_up_whole(bench: ErrorBench, action: str, outcome: str):
    """No single change of it can be blamed, so all of them go."""
    bench.sql(DEFERRED)
    bench.triggers = True
    bench.lines = [f"REPERROR (23503, {action})"]
    bench.feed.tx((I, CHILD, ["1", "5"]), (I, KV, ["5", "a", "1"]))
    bench.feed.tx((I, CHILD, ["2", "6"]), (I, LOG, ["1", "x"]))
    bench.feed.tx((I, CHILD, ["3", "5"]))
    done = bench.run()
    assert (ids(bench, "child"), ids(bench, "log")) == ([1, 3], [])
    assert counts(done) == {
        "src.child": {"inserts": 2, outcome: 1}, "src.kv": {"inserts": 1}, "src.log": {outcome: 1},
    }  # fmt: skip
    if action == "DISCARD":
        assert bench.places() == [("DISCARD", "src.child", "0"), ("DISCARD", "src.log", "1")]
        assert "its transaction, at its end, was refused: public.child: insert or update on table" in bench.text()


def test_such_a_transaction_larger_than_a_job(bench: ErrorBench):
    """Condemned: the batch is begun again without it."""
    bench.sql(DEFERRED)
    bench.triggers = True
    bench.lines = ["REPERROR (23503, TRANSDISCARD)", "BATCHROWS 5"]
    bench.feed.tx((I, KV, ["5", "a", "1"]))
    bench.feed.tx((I, CHILD, ["2", "6"]), *[(I, LOG, [str(n), "x"]) for n in range(20)], pieces=6)
    bench.feed.tx((I, CHILD, ["3", "5"]))
    bench.run()
    assert (ids(bench, "child"), ids(bench, "log"), len(bench.places())) == ([3], [], 21)


def test_a_single_change_and_the_whole_transaction(bench: ErrorBench):
    """A change is discarded by itself; what the rest comes to is refused, and all of it goes, counted once."""
    bench.sql(DEFERRED)
    bench.triggers = True
    bench.lines = ["REPERROR (DEFAULT, DISCARD)"]
    bench.feed.tx((I, KV, ["7", "a", "-1"]), (I, CHILD, ["2", "7"]), (D, LOG, ["4", MISSING]))
    done = bench.run()
    assert counts(done) == {name: {"discards": 1} for name in ("src.kv", "src.child", "src.log")}
    assert len(bench.places()) == 3


# --- exceptions tables ----------------------------------------------------------------------------------------------

EXCEPTIONS = """
CREATE TABLE exc (id int, a text, n text, what text, why text, num text, type text, csn text);
"""
COLMAP = (
    "COLMAP (USEDEFAULTS, what = @GETENV('LASTERR','OPTYPE'), why = @GETENV('LASTERR','DBERRMSG'), "
    "num = @GETENV('LASTERR','DBERRNUM'), type = lasterr.errtype, csn = change.csn)"
)


def test_an_exceptions_table_takes_what_is_refused(bench: ErrorBench):
    """MAPEXCEPTION: one inserted row a change, in the transaction that leaves it out; unknown columns are NULL."""
    bench.sql(EXCEPTIONS)
    bench.lines = ["REPERROR (DEFAULT, EXCEPTION)"]
    bench.maps = f"MAP src.kv, TARGET public.kv, MAPEXCEPTION (TARGET public.exc, {COLMAP});"
    csn = bench.feed.tx(
        (I, KV, ["1", "a", "1"]), (I, KV, ["2", "b", "-1"]), (U, KV, ["1", "c", "-2"], ["1", "a", "1"]),
        (D, KV, ["9", MISSING, MISSING]),
    )  # fmt: skip
    done = bench.run()
    assert bench.sql("SELECT * FROM kv") == [(1, "a", 1)]
    assert bench.sql("SELECT id, a, n, what, num, type, csn FROM exc ORDER BY id") == [
        (1, "c", "-2", "UPDATE", "23514", "DB", csn), (2, "b", "-1", "INSERT", "23514", "DB", csn),
        (9, None, None, "DELETE", "02000", "DB", csn),
    ]  # fmt: skip
    assert bench.sql("SELECT count(*) FROM exc WHERE why LIKE '%kv_n_check%'") == [(2,)]
    assert counts(done) == {"src.kv": {"inserts": 1, "exceptions": 3}}
    assert bench.said[0].startswith("Changes that the target refused were put into exceptions tables (src.kv SQLSTATE")


def test_exceptionsonly_is_a_map_for_what_another_refuses(bench: ErrorBench):
    """The same by a MAP of its own, here with a wildcard; it takes nothing else."""
    bench.sql(EXCEPTIONS)
    bench.lines = ["REPERROR (23514, EXCEPTION)"]
    bench.maps = (
        f"MAP src.*, TARGET public.*;\nMAP src.*, TARGET public.exc, EXCEPTIONSONLY, INSERTALLRECORDS, {COLMAP};"
    )
    bench.feed.tx((I, KV, ["1", "a", "1"]), (I, KV, ["2", "b", "-1"]), (I, LOG, ["1", "x"]))
    bench.run()
    assert bench.sql("SELECT id, a FROM exc") == [(2, "b")]
    assert (ids(bench), ids(bench, "log")) == ([1], [1])


def test_an_exceptions_row_that_is_refused_ends_the_process(bench: ErrorBench):
    """Both errors are in the message; nothing is committed."""
    bench.sql(EXCEPTIONS + "ALTER TABLE exc ADD CHECK (id < 2)")
    bench.lines = ["REPERROR (23514, EXCEPTION)"]
    bench.maps = f"MAP src.kv, TARGET public.kv, MAPEXCEPTION (TARGET public.exc, {COLMAP});"
    bench.feed.tx((I, KV, ["1", "a", "1"]), (I, KV, ["2", "b", "-1"]))
    with pytest.raises(OperatorError, match=r"public\.exc: the exceptions table refuses .*exc_id_check.*kv_n_check"):
        bench.run()
    assert (ids(bench), ids(bench, "exc")) == ([], [])


def test_an_exceptions_table_that_is_missing_is_found_at_start(bench: ErrorBench):
    """With the line of the file that names it, or its columns."""
    bench.maps = f"MAP src.kv, TARGET public.kv, MAPEXCEPTION (TARGET public.exc, {COLMAP});"
    with pytest.raises(OperatorError, match=r"rep1\.prm:\d+: .*exceptions table public\.exc does not exist"):
        bench.replicat()
    bench.path += ".2"  # the lock of the first is this process's own
    bench.sql("CREATE TABLE exc (id int)")
    with pytest.raises(OperatorError, match=r"rep1\.prm:\d+: .*public\.exc has no column what"):
        bench.replicat()


def test_a_change_of_shape_behind_rows_that_are_checked_late(bench: ErrorBench):
    """The source checked them at once; here their checks are done before the table is altered, not at the end."""
    bench.sql(DEFERRED)
    bench.triggers = True
    bench.lines = [*bench.lines, "DDL INCLUDE MAPPED"]
    old = table_shape("src", "child", "1:id 2:kv")
    new = replace(old, columns=(*old.columns, DdlColumn(3, "note", "text", "text")))
    bench.feed.tx((I, KV, ["5", "a", "1"]))
    added = DdlChange(ALTER, old, new, "ALTER TABLE child ADD note text")
    feed_ddl(bench.feed, (I, definition(old), ["1", "5"]), added, (I, definition(new), ["2", "5", "x"]))
    bench.run()
    assert bench.sql("SELECT id, note FROM child ORDER BY id") == [(1, None), (2, "x")]


def test_transexception_takes_all_of_a_transaction(bench: ErrorBench):
    """A table without an exceptions MAP goes by DEFAULT2, else the process ends."""
    bench.sql(EXCEPTIONS)
    bench.lines = ["REPERROR (23514, TRANSEXCEPTION)"]
    bench.maps = (
        f"MAP src.kv, TARGET public.kv, MAPEXCEPTION (TARGET public.exc, {COLMAP});\nMAP src.log, TARGET public.log;"
    )
    bench.feed.tx((I, KV, ["1", "a", "1"]))
    bench.feed.tx((I, LOG, ["1", "x"]), (I, KV, ["2", "b", "2"]), (I, KV, ["3", "b", "-1"]))
    with pytest.raises(
        OperatorError, match=r"insert of row \(1\).*MAP of src\.log has no exceptions table for TRANSEXCEPTION"
    ):
        bench.run()
    assert ids(bench) == [1]
    bench.lines.append("REPERROR (DEFAULT2, DISCARD)")
    done = bench.run()
    assert (ids(bench), ids(bench, "log"), ids(bench, "exc")) == ([1], [], [2, 3])
    assert bench.places() == [("TRANSEXCEPTION", "src.log", "0")]
    assert counts(done) == {"src.kv": {"exceptions": 2}, "src.log": {"discards": 1}}


def test_two_maps_of_one_table(bench: ErrorBench):
    """Each MAP by its own rule and with its own record; what one refuses the other takes all the same."""
    bench.sql("CREATE TABLE kv2 (id int PRIMARY KEY, a text, n int CHECK (n > 5)); ALTER TABLE kv ADD CHECK (id < 3)")
    bench.maps = (
        "MAP src.kv, TARGET public.kv, REPERROR (23514, DISCARD);\n"
        "MAP src.kv, TARGET public.kv2, REPERROR (23514, DISCARD);"
    )
    bench.feed.tx(
        (I, KV, ["1", "a", "1"]), (I, KV, ["2", "b", "7"]), (I, KV, ["3", "c", "7"]), (I, KV, ["4", "c", "1"])
    )
    done = bench.run()
    assert (ids(bench), ids(bench, "kv2")) == ([1, 2], [2, 3])
    assert sorted(re.findall(r'change (\d).*, to "public\.(\w+)"', bench.text())) == [
        ("0", "kv2"), ("2", "kv"), ("3", "kv"), ("3", "kv2"),
    ]  # fmt: skip
    tables = {row["to"]: (row["inserts"], row["discards"]) for row in done.stats.to_reply()["tables"]}
    assert tables == {"public.kv": (2, 2), "public.kv2": (2, 2)}
