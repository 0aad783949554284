"""Schema changes without a database: the parameter DDL, the assembler's blocks, messages, the pump, logdump."""

from __future__ import annotations

import json
from typing import Any

import pytest

from extract.assemble import Assembler
from extract.sources.postgres.ddl import VERSION, DdlReader, parse
from extract.sources.postgres.driver import SqlError
from extract.sources.postgres.pgoutput import Decoder, PgoutputError
from pump.filter import Filter
from tests.support import pgwire
from tests.support.ddl_trail import BARE, DROPPED, MADE, NAME, RENAMED, SCRIPT, WIDE, WIDENED, write_ddl_trail
from tests.support.pgwire import ListSink, shape_of
from tests.unit.test_extract_assemble import A, Blocks, assembler, rows, transaction
from trails.codec import decode_data, encode_data
from trails.ddl import DDL_ROWS, DdlChange
from trails.errors import DamageError, OperatorError, ParamError
from trails.format import FLAG_DDL, BlockHeader, BlockKind, Indicator
from trails.fs import RealFs
from trails.position import Position, TrailName
from trails.record import Op
from trails.runtime.language.ddlparams import DdlRules, ddl_rules
from trails.runtime.language.params import parse_text
from trails.runtime.report.stats import TOTAL, DdlCounts, Stats
from trails.show import dump

# --- the parameter ----------------------------------------------------------------------------------------------------


def rules(text: str) -> DdlRules:
    """The parameter DDL with this argument."""
    return ddl_rules(parse_text(f"DDL {text}", "e.prm")[0])


@pytest.mark.parametrize(
    ("text", "mapped", "expected"),
    [
        ("", True, True), ("", False, True), ("INCLUDE ALL", False, True), ("INCLUDE MAPPED", True, True),
        ("include mapped", False, False), ("INCLUDE UNMAPPED", True, False), ("INCLUDE UNMAPPED", False, True),
        ("INCLUDE OTHER", True, False), ("INCLUDE OPTYPE rename", True, True), ("INCLUDE OPTYPE DROP", True, False),
        ("INCLUDE MAPPED, OPTYPE RENAME, OBJTYPE TABLE", True, True), ("INCLUDE OBJNAME sales.orders", False, True),
        ('INCLUDE OBJNAME sales."old orders"', True, True), ("INCLUDE OBJNAME sales.item*", True, False),
        ("INCLUDE INSTR 'rename TO'", True, True), ("INCLUDE INSTR 'x', OPTYPE RENAME", True, False),
        ("INCLUDE ALL, EXCLUDE OPTYPE RENAME", True, False), ("EXCLUDE OBJNAME sales.old*, INCLUDE ALL", True, False),
        ("INCLUDE ALL EXCLUDE UNMAPPED", True, True), ("INCLUDE ALL EXCLUDE MAPPED OPTYPE DROP", True, True),
        ("INCLUDE OPTYPE TRUNCATE", True, False),
    ],
)  # fmt: skip
def test_which_changes_pass(text: str, mapped: bool, expected: bool) -> None:
    """Some INCLUDE and no EXCLUDE, in any order, every condition of a clause; a renamed table by both names."""
    assert rules(text).passes(RENAMED, mapped) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("EXCLUDE MAPPED", "expected an INCLUDE beside EXCLUDE"), ("INCLUDE ALL, EXCLUDE ALL", "EXCLUDE ALL leaves"),
        ("MAPPED", "expected INCLUDE, EXCLUDE"), ("INCLUDE MAPED", "did you mean OPTYPE|expected OPTYPE"),
        ("INCLUDE OPTYPE RENAM", "did you mean RENAME"), ("INCLUDE OBJNAME orders", "expected schema.table"),
        ("INCLUDE OBJTYPE INDEX", "expected TABLE"), ("INCLUDE INSTR", "a value behind INSTR"),
        ("INCLUDE OPTYPE DROP OPTYPE DROP", "expected OPTYPE once"), ("INCLUDE (ALL)", "expected OPTYPE"),
        ("INCLUDE ALL, EXCLUDE OPTYPE TRUNCATE", "a change of rows"), ("INCLUDE INSTR ''", "expected INSTR 'text'"),
    ],
)  # fmt: skip
def test_what_the_parameter_refuses(text: str, message: str) -> None:
    """With file and line, and what was expected."""
    with pytest.raises(ParamError, match=f"e.prm:1: DDL: .*({message})"):
        rules(text)


# --- the values -------------------------------------------------------------------------------------------------------


def test_a_change_of_a_captured_table_that_is_turned_away_is_told() -> None:
    """I8: nobody else hears of it; one that passes, or of a table that is not captured, is nothing to tell."""
    told: list[str] = []
    counts = DdlCounts(turned_away=told.append)
    for mapped, passes in ((True, True), (False, False), (False, True)):
        counts.seen(WIDENED, mapped=mapped, passes=passes)
    assert not told
    counts.seen(WIDENED, mapped=True, passes=False)
    (text,) = told
    assert text.startswith(f"ALTER of {WIDENED.full_name} is left out by the DDL parameter")


def test_a_change_for_those_who_have_not_all_columns() -> None:
    """By name in each shape: what is left out is no change, a column renamed into sight is an added one."""
    left = WIDENED.without(["naïve", "note"])
    assert left is not None and left.new is not None
    assert [c.name for c in left.new.columns] == ["id", "sum"]
    assert WIDENED.without({"naïve", "note", "sum"}) is None
    assert WIDENED.without([]) == WIDENED
    assert MADE.without(["x"]) == MADE and DROPPED.without(["id"]) is not None
    assert RENAMED.names == (("sales", "orders"), ("sales", "old orders"))
    assert WIDE.by_number[2] is NAME and BARE.full_name == DROPPED.full_name.replace("old orders", "orders")


@pytest.mark.parametrize(
    "damage",
    [
        lambda wire: wire[:4], lambda wire: [*wire, 1], lambda wire: ["TRUNCATE", *wire[1:]],
        lambda wire: ["CREATE", *wire[1:]], lambda wire: ["DROP", *wire[1:]], lambda wire: [wire[0], None, *wire[2:]],
        lambda wire: [*wire[:3], b"x", 0], lambda wire: [*wire[:4], -1], lambda wire: [*wire[:4], True],
        lambda wire: [*wire[:2], [1, "t", [], []], "", 0], lambda wire: [*wire[:2], ["s", "t", [], ["id"]], "", 0],
        lambda wire: [*wire[:2], ["s", "t", [wire[1][2][0]] * 2, []], "", 0],
        lambda wire: [*wire[:2], ["s", "t", [[0, *wire[1][2][0][1:]]], []], "", 0],
        lambda wire: [*wire[:2], ["s", "t", [[*wire[1][2][0][:7], "x", False]], []], "", 0],
        lambda wire: [*wire[:2], ["s", "t", wire[1][2], ["id", "id"]], "", 0],
    ],
)  # fmt: skip
def test_a_wrong_wire_form_is_damage(damage: Any) -> None:
    """The message names the place and what was expected."""
    assert DdlChange.from_wire(WIDENED.to_wire()) == WIDENED
    with pytest.raises(DamageError, match=r"^here: damaged DDL record: expected"):
        DdlChange.from_wire(damage(WIDENED.to_wire()), "here")


# --- blocks -----------------------------------------------------------------------------------------------------------


def cut(blocks: Blocks) -> list[tuple[str, bool, list[str], int, int]]:
    """(indicator, DDL, record kinds, changes, transactions)."""
    return [
        (b["indicator"].name, b["ddl"], [Op(r[0]).name for r in b["records"]], b["changes"], b["transactions"])
        for b in blocks.blocks
    ]


def ddl_transaction(sink: Assembler, place: int, *items: int) -> None:
    """One transaction: a number is so many rows, 0 a schema change."""
    sink.begin(f"csn{place}", str(place), place)
    for item in items:
        if item:
            rows(sink, item)
        else:
            sink.ddl(WIDENED)
            sink.grew(50)
    sink.commit(Position(0, place), f"csn{place}", place)


def test_a_schema_change_is_alone_in_its_block() -> None:
    """Small transactions before go out whole, those behind begin anew; counts and places are those of any other."""
    stats = Stats(lambda: 99)
    sink, blocks = assembler(stats=stats)
    transaction(sink, 11)
    ddl_transaction(sink, 12, 0)
    transaction(sink, 13)
    transaction(sink, 14)
    ddl_transaction(sink, 15, 2, 0, 1)
    ddl_transaction(sink, 16, 0, 0)
    ddl_transaction(sink, 17, 1, 0)
    ddl_transaction(sink, 18, 0, 1)
    sink.cut()
    assert cut(blocks) == [
        ("WHOLE", False, ["BEGIN", "INSERT", "COMMIT"], 1, 1),
        ("WHOLE", True, ["BEGIN", "DDL", "COMMIT"], 1, 1),
        ("WHOLE", False, ["BEGIN", "INSERT", "COMMIT"] * 2, 2, 2),
        ("BEGIN", False, ["BEGIN", "INSERT", "INSERT"], 2, 0), ("MIDDLE", True, ["DDL"], 1, 0),
        ("END", False, ["INSERT", "COMMIT"], 1, 1),
        ("BEGIN", True, ["BEGIN", "DDL"], 1, 0), ("END", True, ["DDL", "COMMIT"], 1, 1),
        ("BEGIN", False, ["BEGIN", "INSERT"], 1, 0), ("END", True, ["DDL", "COMMIT"], 1, 1),
        ("BEGIN", True, ["BEGIN", "DDL"], 1, 0), ("END", False, ["INSERT", "COMMIT"], 1, 1),
    ]  # fmt: skip
    assert [b["records"][-1] for b in blocks.blocks if b["indicator"] is Indicator.END] == [
        (Op.COMMIT, 4), (Op.COMMIT, 2), (Op.COMMIT, 2), (Op.COMMIT, 2)
    ]  # fmt: skip
    assert [b["csn"] for b in blocks.blocks[3:6]] == ["csn14", "csn14", "csn15"]
    counted = {one["from"]: one["ddls"] for one in stats.period(TOTAL)["tables"]}
    assert counted["sales.orders"] == 6
    assert sink.is_empty


def test_a_schema_change_that_waits_is_abandoned_with_its_transaction() -> None:
    """It comes again; RESTART is due only if something of it went out."""
    sink, blocks = assembler()
    sink.begin("csn11", "11", 11)
    sink.ddl(WIDENED)
    sink.abandon()
    assert (blocks.blocks, blocks.restarts, sink.is_empty) == ([], 0, True)
    ddl_transaction(sink, 11, 0)
    sink.begin("csn12", "12", 12)
    rows(sink, 1)
    sink.ddl(WIDENED)
    sink.abandon()
    assert (len(blocks.blocks), blocks.restarts, sink.is_empty) == (2, 1, True)
    transaction(sink, 12)
    sink.cut()
    assert cut(blocks)[-1] == ("WHOLE", False, ["BEGIN", "INSERT", "COMMIT"], 1, 1)


def test_a_schema_change_in_a_large_transaction() -> None:
    """However the parts fall, no block holds rows beside it, and the commit's count holds."""
    for size in (1, 5, 9, 10, 11, 25):
        sink, blocks = assembler()
        ddl_transaction(sink, 11, size, 0, 0, size)
        assert sum(b["changes"] for b in blocks.blocks) == 2 * size + 2 == blocks.blocks[-1]["records"][-1][1]
        assert [b["ddl"] for b in blocks.blocks].count(True) == 2
        assert all(
            b["ddl"] == any(r[0] == Op.DDL for r in b["records"]) and (not b["ddl"] or len(b["records"]) == 1)
            for b in blocks.blocks
        )


# --- messages ---------------------------------------------------------------------------------------------------------


def column(number: int, name: str, typid: int = 23, native: str = "integer", **more: Any) -> dict[str, Any]:
    """A column as the event trigger writes it."""
    made = {"number": number, "name": name, "typid": typid, "typmod": -1, "native": native, "base": typid, "kind": "b"}
    rest = {"category": "N", "not_null": False, "default": None, "missing": None, "identity": "", "generated": ""}
    return made | rest | more


def message(**more: Any) -> dict[str, Any]:
    """One as the event trigger writes it: an added column."""
    old = {"schema": "public", "name": "t", "columns": [column(1, "id")], "key": ["id"]}
    new = old | {"columns": [column(1, "id"), column(2, "b", 16, "boolean", missing="t")]}
    facts = {"op": "ALTER", "oid": 9, "old": old, "new": new, "rows": True, "sql": "ALTER TABLE t ...", "flags": 0}
    return {"version": VERSION, "key": "k", **facts, **more}


class Told:
    """A reader of messages, and what it said."""

    def __init__(self, wanted: bool = True, born: dict[int, dict[str, Any]] | None = None) -> None:
        self.said: list[str] = []
        rows = {oid: [(json.dumps(m),)] for oid, m in (born or {}).items()}
        self.key = "k"
        self.ours = True
        self.state = ""
        self.asked: list[str] = []

        def ask(sql: str, *values: int) -> list[Any]:
            if values:
                return rows.get(values[1], [])
            self.asked.append(sql)
            if self.state:
                raise SqlError("refused", self.state)
            return [(self.key,)] if "SELECT key" in sql else [("t" if self.ours else "f",)]

        self.reader = DdlReader("k", ask, lambda _: wanted, self.said.append)

    def change(
        self, content: bytes | dict[str, Any], born: set[int] | None = None, where: str = "CSN 1"
    ) -> DdlChange | None:
        """What a message gives."""
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        return self.reader.change(data, born or set(), where)


def test_a_message_gives_its_change() -> None:
    """With logical types, and values as the trail writes them."""
    told = Told()
    change = told.change(message())
    assert change is not None and change.new is not None
    assert [(c.name, c.type, c.missing) for c in change.new.columns] == [
        ("id", "integer", None),
        ("b", "boolean", "true"),
    ]
    assert Told(wanted=False).change(message()) is None
    renamed_type = message()
    renamed_type["old"]["columns"][0]["native"] = "before"
    assert told.change(renamed_type) == change  # a type that got another name is no retype
    assert told.said == []


def test_a_transaction_of_forged_messages_is_told_once() -> None:
    """A flood of them costs one question and one line; what is genuine among them is believed."""
    told = Told()
    assert [told.change(b"forged") for _ in range(1000)] == [None] * 1000
    assert (len(told.said), len(told.asked)) == (1, 2)
    assert told.change(message()) is not None
    told.ours = False  # the schema was dropped, and somebody else made one of that name
    told.key = "theirs"
    assert told.change(message(key="theirs"), where="CSN 2") is None
    assert told.asked[2:] == told.asked[:1]
    told.state = "42501"
    with pytest.raises(SqlError):
        told.change(message(key="new"), where="CSN 3")


def test_a_message_that_is_not_believed() -> None:
    """Anybody may write one: it is told, and passed over."""
    told = Told()
    forged = json.dumps(message(key="x")).encode()
    for content in (b"", b"\xff", b"[]", b"{}", b'{"version": 1}', b"[" * 200_000, b'"key": "k"', forged):
        assert told.change(content, where=f"CSN {content[:9]!r}") is None
    assert len(told.said) == 8 and all("passed over" in line for line in told.said)
    assert told.change(b"[" * 200_000 + b'"key": "k"', where="CSN 2") is None  # the key may have leaked
    told.key = "new"  # DELETE and ADD DDLCAPTURE while Extract ran
    assert told.change(message(key="new")) is not None and told.change(message()) is None
    assert told.change({"version": VERSION, "key": "new", "failed": "why", "sql": "DROP x"}) is None
    assert "could not capture a schema change: why; the statement was: DROP x" in told.said[-1]


@pytest.mark.parametrize(
    "more",
    [
        {"version": VERSION + 1}, {"op": "TRUNCATE"}, {"old": None}, {"new": {}}, {"new": 3}, {"oid": "9"},
        {"flags": None},
        {"sql": 5}, {"op": "CREATE"}, {"new": {"schema": "s", "name": "t", "columns": [{}], "key": []}},
    ],
)  # fmt: skip
def test_a_believed_message_that_nobody_understands_stops(more: dict[str, Any]) -> None:
    """I8: not skipped; an unknown version says which."""
    with pytest.raises(OperatorError, match=r"CSN 1: a message trailgate\.ddl"):
        Told().change(message(**more))


def created(**more: Any) -> dict[str, Any]:
    """A CREATE with rows."""
    return message(op="CREATE", old=None, **more)


def test_create_table_as_is_told_once_and_before_its_rows() -> None:
    """By the first row if there is one; else by the message, which then flags rows that are not in the trail."""
    relation = pgwire.table(9, "t", "d", "id* b")
    told = Told(born={9: created()})
    sink = ListSink()
    decoder = Decoder(sink, shape_of, 0, told.reader)
    content = json.dumps(created()).encode()
    for data in (
        pgwire.begin(100, 7), pgwire.relation(relation), pgwire.insert(9, [b"1", b"t"]), pgwire.relation(relation),
        pgwire.insert(9, [b"2", b"t"]), pgwire.message("trailgate.ddl", content), pgwire.commit(100),
    ):  # fmt: skip
        decoder.decode(data)
    assert [record[0] for record in sink.records] == [Op.DDL, Op.INSERT, Op.INSERT]
    assert parse(created(), "x")[1].to_wire() == sink.records[0][1]
    alone = Told().change(created())
    assert alone is not None and alone.flags == DDL_ROWS
    empty = Told().change(created(rows=False))
    assert empty is not None and empty.flags == 0


def test_where_messages_come() -> None:
    """dbz#2058: others anywhere are passed over; ours only inside a transaction, and not in one the trail has."""
    ours = pgwire.message("trailgate.ddl", json.dumps(message()).encode())
    loose = pgwire.message("trailgate.ddl", b"x", transactional=False)
    other = pgwire.message("other", b"x")
    told, sink = Told(), ListSink()
    decoder = Decoder(sink, shape_of, 100, told.reader)
    for data in (
        loose, pgwire.message("other", b"x", transactional=False), pgwire.begin(50), ours, pgwire.commit(50),
        pgwire.begin(100), other, loose, ours, pgwire.commit(100),
    ):  # fmt: skip
        decoder.decode(data)
    assert [record[0] for record in sink.records] == [Op.DDL]
    assert told.said == []
    with pytest.raises(PgoutputError, match="outside"):
        decoder.decode(ours)
    with pytest.raises(PgoutputError, match="message flags"):
        decoder.decode(b"M\x02" + ours[2:])
    deaf = Decoder(ListSink(), shape_of, 0)
    for data in (pgwire.begin(1), ours, pgwire.commit(1)):
        deaf.decode(data)


# --- the pump ---------------------------------------------------------------------------------------------------------


def filtered(names: str, change: DdlChange, indicator: Indicator = Indicator.WHOLE) -> tuple[bool, list[Any]] | None:
    """What a pump that passes tables of these names makes of a DDL block: (DDL bit, records)."""
    counted: list[Any] = []
    rule = Filter(
        lambda _, name: name in names.split("|"), lambda table, op, n: counted.append((table.full_name, op, n))
    )
    records = [(Op.BEGIN, "1", "1", 1), (Op.DDL, change.to_wire()), (Op.COMMIT, 1)]
    records = records if indicator is Indicator.WHOLE else records[:2]
    payload = encode_data([], records)
    ends = int(indicator is Indicator.WHOLE)
    header = BlockHeader(
        BlockKind.DATA,
        indicator,
        payload.flags | FLAG_DDL,
        len(payload.data),
        payload.raw_len,
        changes=1,
        transactions=ends,
    )
    kept = rule.data(header, payload.data, {}, "here")
    if kept is None:
        assert counted == []
        return None
    found = decode_data(kept.header, kept.payload)[1]
    assert counted == ([(change.full_name, Op.DDL, 1)] if any(r[0] == Op.DDL for r in found) else [])
    return kept.header.is_ddl, [r[0] for r in found]


def test_a_pump_passes_changes_of_the_tables_it_passes() -> None:
    """By the old or the new name; a block that keeps only its begin is no DDL block any more."""
    whole = [Op.BEGIN, Op.DDL, Op.COMMIT]
    assert filtered("orders", WIDENED) == (True, whole)
    assert filtered("old orders", RENAMED) == filtered("orders", RENAMED) == (True, whole)
    assert filtered("items", WIDENED) is None
    assert filtered("items", WIDENED, Indicator.BEGIN) == (False, [Op.BEGIN])
    assert filtered("orders", WIDENED, Indicator.BEGIN) == (True, [Op.BEGIN, Op.DDL])
    broken = encode_data([], [(Op.DDL, ["x"])])
    header = BlockHeader(BlockKind.DATA, Indicator.MIDDLE, broken.flags | FLAG_DDL, len(broken.data), broken.raw_len)
    with pytest.raises(DamageError, match="here: damaged DDL record"):
        Filter(lambda *_: True, lambda *_: None).data(header, broken.data, {}, "here")


# --- logdump ----------------------------------------------------------------------------------------------------------


def test_logdump_shows_schema_changes(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """In blocks, records, counts, a search by either name, and a check of the DDL bit."""
    trail = TrailName(str(tmp_path), "dd")
    write_ddl_trail(RealFs(), trail)

    def shown(*options: str) -> str:
        assert dump.main([str(trail), *options]) == 0
        return capsys.readouterr().out

    assert shown("--blocks").count(" DDL ") == 4
    text = shown("--records")
    assert "DDL       CREATE sales.orders" in text and "key (id)" in text and "IDENTITY by default" in text
    assert "RENAME sales.orders to sales.old orders" in text and "older rows have 'x'" in text
    assert "GENERATED AS '(id + 1)'" in text and "only the source knows" in text
    assert shown("--table", "sales.old*").count("DDL  ") == 2
    counts = {
        line.split("  ")[0]: line.split()[-1] for line in shown("--count").splitlines() if line.startswith("sales")
    }
    assert counts == {"sales.orders": "2", "sales.old orders": "2", "sales.items": "0"}
    assert "All is well" in shown("--verify")
    assert len(SCRIPT) == 5


def test_verify_holds_the_DDL_bit_to_the_records(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A block with the bit and rows in it is told."""
    from tests.support.trail_script import IDENTITY
    from trails.recovery import Mark
    from trails.writer import TrailWriter

    trail = TrailName(str(tmp_path), "dd")
    writer = TrailWriter.open(RealFs(), trail, IDENTITY, start=Mark(), restart_open=True)
    writer.define([A])
    for ddl, records in ((True, [(Op.INSERT, 0, ["1"])]), (False, [(Op.DDL, MADE.to_wire())])):
        every = [(Op.BEGIN, "1", "1", 1), *records, (Op.COMMIT, 1)]
        writer.append_data(
            Indicator.WHOLE,
            [A.id],
            every,
            changes=1,
            transactions=1,
            origin=Position(0, 1),
            csn="1",
            time_us=1,
            ddl=ddl,
        )
        writer.roll()
    writer.close()
    assert dump.main([str(trail), "--verify"]) == 2
    out = capsys.readouterr().out
    assert (
        "expected one DDL record and no change beside it, found" in out
        and "expected changes of rows only, found" in out
    )
