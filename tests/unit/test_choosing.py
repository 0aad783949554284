"""Which changes go on: filters, GETINSERTS, IGNOREINSERTS and their kin, in Extract, pump and Replicat."""

from __future__ import annotations

from typing import Any

import pytest

from extract.assemble import Assembler
from extract.params import ExtractParams
from pump.filter import Filter
from pump.params import PumpParams
from replicat.model.plan import TablePlan
from replicat.model.target import Layout, Truncate, Work
from replicat.params import ReplicatParams
from replicat.work.builder import Builder
from tests.support.link import ORDERS
from tests.unit.test_conditions import EXTRACT, PUMP
from tests.unit.test_extract_assemble import Blocks
from tests.unit.test_pump_filter import BEGIN, KNOWN, block
from trails.codec import decode_data
from trails.errors import OperatorError, ParamError
from trails.format import Indicator
from trails.position import Position
from trails.record import COMMIT, DELETE, INSERT, MISSING, TRUNCATE, UPDATE, Column, Op, TableDef
from trails.runtime.language.params import parse_text
from trails.runtime.language.tableparams import environment

KV = TableDef("s", "t", (Column("id", "integer", "", key=True), Column("a", "integer", ""), Column("b", "text", "")))
OTHER = TableDef("s", "other", KV.columns)
REPLICAT = "REPLICAT r\nTARGETDB postgresql://h/d\n"


def assembler(tables: str, block_bytes: int = 1000) -> tuple[Assembler, Blocks]:
    """Behind place 10."""
    rules = ExtractParams.from_statements(parse_text(EXTRACT + tables, "e.prm")).tables
    blocks = Blocks()
    project = rules.projector(environment("E", "here"))
    return Assembler(blocks, Position(0, 10), "csn10", block_bytes=block_bytes, project=project), blocks


def transaction(sink: Assembler, place: int, *records: tuple[Any, ...], size: int = 1) -> None:
    """Of table KV, or of the tables that a TRUNCATE names."""
    sink.begin(f"csn{place}", f"x{place}", place)
    for op, *rest in records:
        tables = (sink.table(KV), sink.table(OTHER)) if op == TRUNCATE else sink.table(KV)
        sink.records.append((int(op), tables, *rest))
        sink.grew(size)
    sink.commit(Position(0, place), f"csn{place}", place)


def left(blocks: Blocks) -> list[Any]:
    """All records but BEGINs, without their table."""
    found = [record for one in blocks.blocks for record in one["records"] if record[0] != Op.BEGIN]
    return [r if r[0] == COMMIT else (r[0], *(image and list(image) for image in r[2:])) for r in found]


IN, OUT = ["1", "5", "x"], ["1", "50", "x"]
MOVES = [
    ((INSERT, IN), (INSERT, IN)),
    ((INSERT, OUT), None),
    ((DELETE, IN), (DELETE, IN)),
    ((DELETE, OUT), None),
    ((UPDATE, IN, IN), (UPDATE, IN, IN)),
    ((UPDATE, OUT, OUT), None),
    ((UPDATE, IN, OUT), (INSERT, IN)),
    ((UPDATE, OUT, IN), (DELETE, IN)),
    ((INSERT, ["1", None, "x"]), None),
    ((UPDATE, ["1", "5", MISSING], OUT), (INSERT, IN)),
    ((UPDATE, ["1", MISSING, "y"], IN), (UPDATE, ["1", MISSING, "y"], IN)),
]


@pytest.mark.parametrize(("given", "sent"), MOVES)
def test_a_row_moves_in_and_out(given: tuple[Any, ...], sent: tuple[Any, ...] | None) -> None:
    """The other side has exactly the rows that pass; the same in Extract and pump, down to the counts."""
    sink, blocks = assembler("TABLE s.t, WHERE (a < 10);")
    transaction(sink, 11, given)
    sink.cut()
    assert left(blocks) == ([] if sent is None else [sent, (COMMIT, 1)])
    params = PumpParams.from_statements(parse_text(f"{PUMP}TABLE sales.*, FILTER (note < '2');", "p.prm"))
    rules = Filter(params.passes, lambda table, op, n: None, params.tables.projector(environment("P", "here")))
    images = [[image[0], {"5": "1", "50": "2"}.get(image[1], image[1])] for image in given[1:]]
    found = rules.data(*block(Indicator.WHOLE, [BEGIN, [given[0], 1, *images], [Op.COMMIT, 1]]), KNOWN, "here")
    if sent is None:
        assert found is None
    else:
        assert found is not None
        assert [r[0] for r in decode_data(found.header, found.payload)[1]] == [Op.BEGIN, sent[0], Op.COMMIT]
        assert (found.header.changes, found.header.transactions) == (1, 1)


def test_a_filter_reads_what_is_not_sent() -> None:
    """A column that COLS leaves out may decide; the source is told that its value is needed."""
    sink, blocks = assembler("TABLE s.t, COLS (id), WHERE (a < 10), TOKENS (op = @GETENV ('GGHEADER', 'OPTYPE'));")
    transaction(sink, 11, (UPDATE, OUT, IN))
    sink.cut()
    assert left(blocks)[0] == (DELETE, ["1", "DELETE"])
    assert sink.keeps(KV, 1)
    assert not sink.keeps(KV, 2)


@pytest.mark.parametrize(
    "record",
    [(UPDATE, IN, None), (DELETE, ["1", MISSING, MISSING]), (UPDATE, ["2", "5", "x"], ["1", MISSING, MISSING])],
)
def test_what_can_not_be_decided_is_refused(record: tuple[Any, ...]) -> None:
    """With table, key, CSN, column and the clause; nothing of the transaction goes out."""
    sink, blocks = assembler("TABLE s.t, WHERE (a < 10);")
    message = r"table s\.t, row id=\d, CSN csn11: the \w+ came without what its row had in column a, by which e\.prm:4"
    with pytest.raises(OperatorError, match=message):
        transaction(sink, 11, record)
    assert blocks.blocks == []


def test_a_text_that_a_function_can_not_read_is_refused_and_not_shown() -> None:
    """With table, key, CSN and the clause: Extract sends nothing by a guess, and tells nobody what a row holds."""
    sink, blocks = assembler("TABLE s.t, FILTER (@NUMSTR (b) > 5);")
    message = r"table s\.t, row id=1, CSN csn11: the INSERT has a text that is no value for @NUMSTR, by which e\.prm:4"
    with pytest.raises(OperatorError, match=message) as told:
        transaction(sink, 11, (INSERT, ["1", "5", "secret"]))
    assert "secret" not in str(told.value)
    assert blocks.blocks == []
    sink, blocks = assembler("TABLE s.t, FILTER (@IF (@STREXT (b, 1, 1) > '9', 0, @NUMSTR (b)) > 5);")
    transaction(sink, 11, (INSERT, ["1", "5", "secret"]), (INSERT, ["2", "5", "6.5"]))
    sink.cut()
    assert left(blocks)[:1] == [(INSERT, ["2", "5", "6.5"])]


def test_a_row_that_came_in_part_does_not_move_in() -> None:
    """Its other columns are not known."""
    sink, _ = assembler("TABLE s.t, WHERE (a < 10);")
    with pytest.raises(OperatorError, match="in column b"):
        transaction(sink, 11, (UPDATE, ["1", "5", MISSING], ["1", "50", MISSING]))


def test_a_filter_of_the_key_needs_no_old_rows() -> None:
    """Without an old row the key is as it was; with a changed key the old one is there."""
    sink, blocks = assembler("TABLE s.t, WHERE (id < 10);")
    old = ["5", MISSING, MISSING]
    transaction(
        sink, 11, (UPDATE, IN, None), (DELETE, old), (UPDATE, ["50", "1", "x"], old), (UPDATE, ["50", "", ""], None)
    )
    sink.cut()
    assert left(blocks) == [(UPDATE, IN, None), (DELETE, old), (DELETE, old), (COMMIT, 3)]


def test_a_large_transaction_is_chosen_part_by_part() -> None:
    """COMMIT counts what is there; a part that keeps nothing is no block, and takes no memory."""
    sink, blocks = assembler("TABLE s.t, WHERE (a < 10);", block_bytes=20)
    given = [(INSERT, [str(n), "5" if n > 50 else "50", "x"]) for n in range(100)]
    transaction(sink, 11, *given)
    assert blocks.indicators()[0] == "BEGIN"
    assert blocks.indicators()[-1] == "END"
    assert left(blocks) == [*given[51:], (COMMIT, 49)]
    assert blocks.blocks[-1]["transactions"] == 1
    transaction(sink, 12, *given[:50])
    assert sink.is_empty
    assert sink.put_place.__self__._size == 0  # type: ignore[attr-defined]


def test_filters_of_operations_never_move_a_row() -> None:
    """Other operations are not asked."""
    sink, blocks = assembler("TABLE s.t, FILTER (ON DELETE, a < 10), FILTER (IGNORE DELETE, IGNORE INSERT, b = 'x');")
    transaction(sink, 11, (INSERT, OUT), (DELETE, OUT), (DELETE, IN), (UPDATE, OUT, IN), (UPDATE, ["1", "5", "y"], IN))
    sink.cut()
    assert left(blocks) == [(INSERT, OUT), (DELETE, IN), (UPDATE, OUT, IN), (COMMIT, 3)]


SWITCHED = """{each} s.other{to};
IGNOREINSERTS
IGNOREUPDATES
GETUPDATES
IGNOREDELETES
{each} s.t{to};
GETDELETES
GETINSERTS
{each} s.last{to};
"""
ALL = ((INSERT, IN), (UPDATE, OUT, IN), (DELETE, OUT))


def test_switches_of_an_extract() -> None:
    """They hold for the TABLEs behind them, until their GET."""
    rules = ExtractParams.from_statements(parse_text(EXTRACT + SWITCHED.format(each="TABLE", to=""), "e.prm")).tables
    assert [clause.rule.ignored for clause in rules.clauses] == [set(), {INSERT, DELETE}, set()]
    sink, blocks = assembler(SWITCHED.format(each="TABLE", to=""))
    transaction(sink, 11, *ALL)
    transaction(sink, 12, (INSERT, IN))
    sink.cut()
    assert left(blocks) == [(UPDATE, OUT, IN), (COMMIT, 1)]


def test_a_truncate_that_is_ignored() -> None:
    """Goes on for the other tables, and not at all where none is left."""
    sink, blocks = assembler("TABLE s.other;\nIGNORETRUNCATES\nTABLE s.t;")
    transaction(sink, 11, (TRUNCATE, 0))
    sink.cut()
    ((_, record, _),) = [b["records"] for b in blocks.blocks]
    assert record == (TRUNCATE, (1,), 0)
    sink, blocks = assembler("IGNORETRUNCATES\nTABLE s.*;")
    transaction(sink, 11, (TRUNCATE, 0))
    assert sink.is_empty


def test_switches_of_a_pump() -> None:
    """It decodes then; without a TABLE behind it a switch does nothing, and is refused."""
    params = PumpParams.from_statements(parse_text(f"{PUMP}IGNOREDELETES\nIGNORETRUNCATES\nTABLE *.*;", "p.prm"))
    assert params.filters
    rules = Filter(params.passes, lambda table, op, n: None, params.tables.projector(environment("P", "here")))
    row = ["1", "x"]
    given = [BEGIN, [INSERT, 1, row], [DELETE, 1, row], [TRUNCATE, [1, 2], 0], [COMMIT, 3]]
    found = rules.data(*block(Indicator.WHOLE, given), KNOWN, "here")
    assert found is not None
    assert decode_data(found.header, found.payload) == ([ORDERS.id], [BEGIN, [INSERT, 0, row], [COMMIT, 1]])
    with pytest.raises(ParamError, match=r"p\.prm:4: PASSTHRU: options of TABLE, and IGNORE switches, need decoded"):
        PumpParams.from_statements(parse_text(f"{PUMP}PASSTHRU\nIGNOREDELETES\nTABLE *.*;", "p.prm"))
    with pytest.raises(ParamError, match=r"p\.prm:4: IGNOREDELETES: no TABLE stands behind it"):
        PumpParams.from_statements(parse_text(f"{PUMP}IGNOREDELETES\n", "p.prm"))


def test_switches_of_a_replicat() -> None:
    """What they leave out is counted as filtered; a TRUNCATE too."""
    text = SWITCHED.format(each="MAP", to=", TARGET p.*") + "IGNORETRUNCATES\nMAP s.kept, TARGET p.kept;"
    maps = ReplicatParams.from_statements(parse_text(REPLICAT + text, "r.prm")).maps
    assert [rule.ignored for rule in maps] == [set(), {INSERT, DELETE}, set(), {TRUNCATE}]
    with pytest.raises(ParamError, match=r"r\.prm:4: IGNOREINSERTS: no MAP stands behind it"):
        ReplicatParams.from_statements(parse_text(f"{REPLICAT}MAP s.*, TARGET p.*;\nIGNOREINSERTS\n", "r.prm"))
    layout = Layout("p", "t", ("id", "a", "b"), ("text",) * 3, ("id",))
    plan = TablePlan("s.t", "p.t", layout, (0,), ignored=maps[1].ignored | maps[3].ignored)
    builder = Builder({b"t": (plan,)})
    changes = [(INSERT, 0, IN), (UPDATE, 0, OUT, None), (DELETE, 0, OUT), (TRUNCATE, [0], 0)]
    builder.add([b"t"], [(Op.BEGIN, "c", "x", 1), *changes, (COMMIT, 4)])
    part = builder.finish()
    assert part.filtered == {("s.t", "p.t"): [1, 0, 1, 1]}
    assert part.counts == {("s.t", "p.t"): [0, 1, 0, 0]}
    assert not any(isinstance(step, Truncate) for step in part.steps)
    (work,) = [step for step in part.steps if isinstance(step, Work)]
    assert [bool(rows.updates) for rows in work.rows] == [True]
