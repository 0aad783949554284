"""Changes of shape between rows: killed at every call of the target, each is applied once, at its place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replicat.apply.discard import Discards
from replicat.apply.discardfile import DiscardFile
from replicat.params import ReplicatParams
from replicat.run.replicat import Replicat
from tests.support.ddl_target import DdlTarget, ShapedStore, definition, feed_ddl, table_shape
from tests.support.list_target import shape
from tests.support.replicat_lives import REG, TRAIL, FailAt, apply_all, trail_with
from tests.support.replicat_trail import InlineEngine, TrailFeed
from trails.ddl import ALTER, CREATE, DDL_USING, DROP, RENAME, DdlChange, DdlColumn
from trails.errors import AwayError, GateError, OperatorError
from trails.fs import read_bytes
from trails.record import Op
from trails.runtime.language.params import parse_text
from trails.testing import Crash, FakeClock, FaultFs

KINDS = ["postgresql", "mysql"]

OLD = table_shape("s", "kv", "1:id 2:v")
STATE = DdlColumn(3, "state", "text", "text", default="'open'::text", missing="open")
WIDE = table_shape("s", "kv", "1:id 2:v 3:state", state=STATE)
NAMED = table_shape("s", "kv", "1:id 3:phase", phase=replace(STATE, name="phase"))
MOVED = replace(NAMED, name="pairs")
LOG = table_shape("s", "log", "1:note", key="")
ADDED = DdlChange(ALTER, OLD, WIDE, "ALTER TABLE s.kv ADD state text DEFAULT 'open'")
DROPPED = DdlChange(ALTER, WIDE, NAMED, "ALTER TABLE s.kv DROP v, RENAME state TO phase")
RENAMED = DdlChange(RENAME, NAMED, MOVED, "ALTER TABLE s.kv RENAME TO pairs")
CREATED = DdlChange(CREATE, None, LOG, "CREATE TABLE s.log (note text)")


def params(more: str = "", maps: str = "MAP s.*, TARGET t.*;\n", ddl: str = "DDL INCLUDE MAPPED\n") -> ReplicatParams:
    """BATCHROWS small enough that transactions stand beside each other."""
    text = f"REPLICAT rep1\nTARGETDB postgresql://x/y\nBATCHROWS 4\nRECONNECTSECS 60\n{ddl}{more}{maps}"
    return ReplicatParams.from_statements(parse_text(text, "p"))


def script(feed: TrailFeed) -> None:
    """Rows before, inside and behind each change."""
    feed.tx((Op.INSERT, definition(OLD), ["1", "a"]))
    feed_ddl(feed, (Op.INSERT, definition(OLD), ["2", "b"]), ADDED, (Op.INSERT, definition(WIDE), ["3", "c", "new"]))
    feed.tx((Op.UPDATE, definition(WIDE), ["2", "b", "done"]))
    feed_ddl(feed, DROPPED)
    feed.tx((Op.INSERT, definition(NAMED), ["4", "late"]))
    feed_ddl(feed, CREATED, (Op.INSERT, definition(LOG), ["x"]), RENAMED)
    feed.tx((Op.INSERT, definition(MOVED), ["5", "last"]), (Op.INSERT, definition(LOG), ["y"]))


WANTED = {
    ("t", "pairs"): {
        ("1",): ("1", "open"), ("2",): ("2", "done"), ("3",): ("3", "new"), ("4",): ("4", "late"),
        ("5",): ("5", "last"),
    },
    ("t", "log"): [("x",), ("y",)],
}  # fmt: skip


def store() -> ShapedStore:
    """A target with the table as it was first."""
    return ShapedStore(shapes={("t", "kv"): shape("t", "kv", "id v", "id")})


@pytest.fixture
def fs() -> FaultFs:
    """A trail with the script in it."""
    return trail_with(script)


def made(
    fs: FaultFs, target: DdlTarget, settings: ReplicatParams | None = None, notes: list[str] | None = None
) -> Replicat:
    """A process on this target."""
    said = notes if notes is not None else []
    return Replicat(
        settings or params(),
        REG,
        TRAIL,
        fs=fs,
        clock=FakeClock(),
        target=target,
        engine=InlineEngine(fs),
        note=said.append,
    )


def run(
    fs: FaultFs, target: DdlTarget, settings: ReplicatParams | None = None, notes: list[str] | None = None
) -> Replicat:
    """Start, apply all there is, flush, stop."""
    process = made(fs, target, settings, notes)
    apply_all(process)
    process.close()
    return process


def _step_on(process: Replicat) -> None:
    for _ in range(50):
        process.step()


def calls(fs: FaultFs, kind: str) -> int:
    """Of a run without faults."""
    counter = FailAt(10**9, Crash())
    target = DdlTarget(store(), kind)
    target.faults = counter
    run(fs, target)
    assert target.store.tables == WANTED
    return 10**9 - counter.left


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_every_call_of_the_target(fs: FaultFs, kind: str):
    """I10: where DDL is transactional, and where it commits by itself and is found done by the next process."""
    for number in range(1, calls(fs, kind) + 1):
        kept = store()
        target = DdlTarget(kept, kind)
        target.faults = FailAt(number, Crash())
        with pytest.raises(Crash):
            run(fs, target)
        run(fs, DdlTarget(kept, kind))
        assert kept.tables == WANTED, number


@pytest.mark.parametrize("kind", KINDS)
def test_away_at_every_call_of_the_target(fs: FaultFs, kind: str):
    """A connection lost at any call: the same process goes on from the row, with the shapes as they are."""
    for number in range(6, calls(fs, kind) + 1):
        kept = store()
        target = DdlTarget(kept, kind)
        target.faults = FailAt(number, AwayError("gone"))
        run(fs, target)
        assert kept.tables == WANTED, number


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_refused_ends_and_goes_on_by_hand(fs: FaultFs, kind: str):
    """ABEND names table, place, the target's words and statement; done by hand, START goes on behind it."""
    kept = store()
    target = DdlTarget(kept, kind)
    target.refuses = "DROP COLUMN"
    words = r"DDL ALTER of s\.kv \(position 0/\d+, CSN 0+4\).*refused.*DROP COLUMN [\"`]v"
    with pytest.raises(OperatorError, match=words) as told:
        run(fs, target)
    assert DROPPED.sql not in str(told.value)
    assert "then START" in str(told.value)
    assert kept.tables["t", "kv"]["2",] == ("2", "b", "done")
    by_hand = DdlTarget(kept, "mysql")
    by_hand.ddl(('ALTER TABLE "t"."kv" DROP COLUMN "v"', 'ALTER TABLE "t"."kv" RENAME COLUMN "state" TO "phase"'))
    kept.shapes = by_hand.shapes
    notes: list[str] = []
    run(fs, DdlTarget(kept, kind), notes=notes)
    assert kept.tables == WANTED
    assert any("column v is dropped already; column state is renamed already" in note for note in notes)


def test_each_change_is_told_and_counted(fs: FaultFs):
    """A line with our statements, without values and without the source's own; STATS counts what was applied."""
    notes: list[str] = []
    process = run(fs, DdlTarget(store()), notes=notes)
    line = next(note for note in notes if "DDL RENAME" in note)
    assert line.endswith('to t.pairs: ALTER TABLE "t"."kv" RENAME TO "pairs"')
    line = next(note for note in notes if "ADD COLUMN" in note)
    assert """ADD COLUMN "state" text DEFAULT '...'::text;""" in line
    assert "open" not in line
    counted = {(t["from"], t["to"]): t["ddls"] for t in process.stats.to_reply()["tables"]}
    assert counted["s.kv", "t.kv"] == 2
    assert counted["s.pairs", "t.pairs"] == counted["s.log", "t.log"] == 1


def test_ddlerror_ignore_and_retry(fs: FaultFs):
    """IGNORE leaves it out with a line; RETRYOP tries the batch again first, as often and as late as it says."""
    kept = store()
    target = DdlTarget(kept)
    target.refuses = "CREATE TABLE"
    notes: list[str] = []
    settings = params(
        "DDLERROR 55P03 IGNORE RETRYOP MAXRETRIES 3 RETRYDELAY 7\n",
        "MAP s.kv, TARGET t.kv;\nMAP s.log, TARGET t.log;\n",
    )
    with pytest.raises(GateError, match=r"target table t\.log does not exist"):
        run(fs, target, settings, notes)
    assert sum("try" in note for note in notes) == 3
    assert any("left out by DDLERROR" in note for note in notes)


def test_ddl_exclude(fs: FaultFs):
    """What DDL does not include is left out with a line, and meets today's error when its rows come."""
    kept, notes = store(), []
    with pytest.raises(GateError, match=r"lacks column state"):
        run(fs, DdlTarget(kept), params(ddl="DDL INCLUDE ALL, EXCLUDE OPTYPE ALTER\n"), notes)
    assert any("is not applied: DDL leaves it out" in note for note in notes)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_applied_without_the_parameter(fs: FaultFs, kind: str):
    """I11: who writes a trail changes no table of a target whose own parameter file does not say DDL."""
    kept, notes = store(), []
    with pytest.raises(GateError, match=r"lacks column state"):
        run(fs, DdlTarget(kept, kind), params(ddl=""), notes)
    assert kept.shapes == store().shapes
    assert any("is not applied: no DDL INCLUDE in the parameter file" in note for note in notes)


def test_a_shape_of_long_ago_refuses_no_start():
    """The definition went from file to file, and the statement that changed it is purged: a row must come first."""

    fs, kept, notes = FaultFs(), store(), []
    feed = TrailFeed(fs, TRAIL, max_bytes=4096 + 600)
    feed.tx((Op.INSERT, definition(OLD), ["1", "a"]))
    feed_ddl(feed, DdlChange(ALTER, OLD, replace(OLD, columns=OLD.columns[:1]), "ALTER TABLE s.kv DROP v"))
    for number in range(20):
        feed.tx((Op.INSERT, definition(LOG), [f"{number}" * 40]))
    feed.close()
    kept.shapes["t", "log"] = shape("t", "log", "note")
    run(fs, DdlTarget(kept))
    for seqno in TRAIL.seqnos(fs.listdir(TRAIL.folder))[:-2]:
        fs.remove(TRAIL.path(seqno))
    run(fs, DdlTarget(kept), notes=notes)
    assert any("lacks column v. No row of this shape waits in the trail" in note for note in notes)
    feed = TrailFeed(fs, TRAIL)
    feed.tx((Op.INSERT, definition(OLD), ["2", "b"]))
    feed.close()
    with pytest.raises(OperatorError, match=r"lacks column v"):
        run(fs, DdlTarget(kept))


def test_what_cannot_be_carried(fs: FaultFs):
    """USING is not carried: DDLERROR's DEFAULT, or the end."""
    feed = TrailFeed(fs, TRAIL)
    retyped = replace(MOVED, columns=(MOVED.columns[0], replace(MOVED.columns[1], type="integer", native="integer")))
    feed_ddl(feed, DdlChange(ALTER, MOVED, retyped, "ALTER ... TYPE int USING length(phase)", DDL_USING))
    feed.close()
    kept = store()
    with pytest.raises(OperatorError, match=r"column phase got its values by an expression"):
        run(fs, DdlTarget(kept))
    assert kept.tables == WANTED
    notes: list[str] = []
    run(fs, DdlTarget(kept), params("DDLERROR DEFAULT IGNORE\n"), notes)
    assert any("left out by DDLERROR" in note for note in notes)


def test_a_table_that_leaves_the_mapping_is_left_alone(fs: FaultFs):
    """RENAME to a name that no MAP takes; and DROP of a table that another source table fills too is refused."""
    kept, notes = store(), []
    run(fs, DdlTarget(kept), params(maps="MAP s.kv, TARGET t.kv;\n"), notes)
    assert kept.tables["t", "kv"]["4",] == ("4", "late")
    assert any("left alone: no MAP takes the table's new name" in note for note in notes)


def test_drop_of_a_shared_target_is_refused():
    """It would drop the other source's rows."""
    fs = FaultFs()
    feed = TrailFeed(fs, TRAIL)
    other = table_shape("s", "other", "1:id 2:v")
    feed.tx((Op.INSERT, definition(OLD), ["1", "a"]), (Op.INSERT, definition(other), ["2", "b"]))
    feed_ddl(feed, DdlChange(DROP, other, None, "DROP TABLE s.other"))
    feed.close()
    kept = store()
    with pytest.raises(OperatorError, match=r"DROP TABLE of t\.kv, which also takes the rows of s\.kv"):
        run(fs, DdlTarget(kept), params(maps="MAP s.*, TARGET t.kv;\n"))
    assert len(kept.tables["t", "kv"]) == 2


def test_ddlerror_discard(fs: FaultFs):
    """The statement, its place and the target's words are in the discard file, durable before the commit."""
    fs.makedirs("/home/dirdsc")
    file = DiscardFile(fs, "/home/dirdsc/REP1.dsc", 10)
    settings = params("DDLERROR 55P03 DISCARD\n", "MAP s.kv, TARGET t.kv;\nMAP s.log, TARGET t.log;\n")
    target = DdlTarget(store())
    target.refuses = "CREATE TABLE"
    process = Replicat(
        settings, REG, TRAIL, fs=fs, clock=FakeClock(), target=target, engine=InlineEngine(fs), note=lambda _text: None,
        discards=Discards("REP1", (), file),
    )  # fmt: skip
    with pytest.raises(GateError, match=r"t\.log does not exist"):
        _step_on(process)
    process.close()
    text = read_bytes(fs, "/home/dirdsc/REP1.dsc").decode()
    assert "Discarding record on action DISCARD on error 55P03" in text
    assert "CSN 0000000000000006, change 0 of its transaction" in text
    assert 'statement = "CREATE TABLE s.log (note text)"' in text


@pytest.mark.parametrize("kind", KINDS)
def test_several_maps_into_one_table_change_it_once(kind: str):
    """What the first of them did is found done by the second: added, renamed, dropped."""
    made_fs = FaultFs()
    feed = TrailFeed(made_fs, TRAIL)
    for change in (ADDED, DROPPED, DdlChange(DROP, NAMED, None, "DROP TABLE s.kv")):
        feed_ddl(feed, change)
    feed.close()
    settings = params(maps="ALLOWDUPTARGETMAP\nMAP s.kv, TARGET t.kv;\nMAP s.kv, TARGET t.kv;\n")
    target = DdlTarget(store(), kind)
    notes: list[str] = []
    run(made_fs, target, settings, notes)
    assert ("t", "kv") not in target.shapes
    assert len([note for note in notes if note.startswith("DDL ") and "nothing to do" in note]) == 3


def test_what_is_before_a_change_that_commits_by_itself_is_durable(fs: FaultFs):
    """CW-16: a crash of the target that kept the change keeps the rows of the shape before it too."""
    target = DdlTarget(store(), "mysql")
    durable: list[bool] = []

    def look(call: str) -> None:
        if call == "ddl" and target.store.row is not None:
            durable.append(target.store.flushed[:2] == (target.store.tables, target.store.row))

    target.faults = look
    run(fs, target)
    assert target.store.tables == WANTED
    assert durable.count(True) >= 4
    assert durable[0]
