"""The assembler: which blocks come of which changes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from extract.assemble import Assembler
from trails.ddl import CREATE, DdlChange, TableShape
from trails.format import Indicator
from trails.position import Position
from trails.record import Column, Op, Record, TableDef
from trails.runtime.report.stats import TOTAL, Stats

A = TableDef("s", "a", (Column("id", "integer", "integer", key=True),))
WIDER = TableDef("s", "a", (*A.columns, Column("v", "text", "text")))
B = TableDef("s", "b", A.columns)


class Blocks:
    """An output that lists what it was given."""

    def __init__(self) -> None:
        self.blocks: list[dict[str, Any]] = []
        self.defined: list[list[str]] = []
        self.restarts = 0

    def define(self, defs: Sequence[TableDef], origin: Position | None = None) -> list[tuple[TableDef, TableDef]]:
        """See TrailWriter."""
        self.defined.append([d.name for d in defs])
        return []

    def append_data(
        self, indicator: Indicator, tables: Sequence[bytes], records: Sequence[Record], **facts: Any
    ) -> None:
        """See TrailWriter."""
        self.blocks.append({"indicator": indicator, "tables": list(tables), "records": list(records), **facts})

    def append_restart(self) -> None:
        """See TrailWriter."""
        self.restarts += 1

    def indicators(self) -> list[str]:
        """In order."""
        return [block["indicator"].name for block in self.blocks]


def assembler(block_bytes: int = 100, **options: Any) -> tuple[Assembler, Blocks]:
    """An empty one behind place 10."""
    blocks = Blocks()
    return Assembler(blocks, Position(0, 10), "csn10", block_bytes=block_bytes, now_us=lambda: 99, **options), blocks


def rows(sink: Assembler, n: int, size: int = 10, table: TableDef = A) -> None:
    """Hand `n` inserts over."""
    for i in range(n):
        sink.records.append((int(Op.INSERT), sink.table(table), [str(i)]))
        sink.grew(size)


def transaction(sink: Assembler, place: int, n: int = 1, **options: Any) -> None:
    """Hand one transaction over."""
    sink.begin(f"csn{place}", str(place), place)
    rows(sink, n, **options)
    sink.commit(Position(0, place), f"csn{place}", place)


def test_small_transactions_are_gathered_until_somebody_cuts() -> None:
    """One WHOLE block with all of them, with the facts of the last."""
    sink, blocks = assembler()
    transaction(sink, 11)
    transaction(sink, 12, 2)
    assert blocks.blocks == []
    assert sink.has_whole
    sink.cut()
    (block,) = blocks.blocks
    facts = {k: block[k] for k in ("changes", "transactions", "origin", "csn", "time_us")}
    assert facts == {"changes": 3, "transactions": 2, "origin": Position(0, 12), "csn": "csn12", "time_us": 12}
    assert [r[0] for r in block["records"]] == [
        Op.BEGIN,
        Op.INSERT,
        Op.COMMIT,
        Op.BEGIN,
        Op.INSERT,
        Op.INSERT,
        Op.COMMIT,
    ]
    assert sink.is_empty


def test_a_full_block_goes_out_at_a_commit() -> None:
    """Never in the middle of a transaction that fits."""
    sink, blocks = assembler()
    for place in range(11, 26):
        transaction(sink, place, 2)
    assert blocks.indicators() == ["WHOLE"] * 3
    assert [block["transactions"] for block in blocks.blocks] == [5, 5, 5]


def test_a_transaction_that_outgrows_a_block_becomes_begin_middle_end() -> None:
    """The small ones before it stay apart; its parts repeat the place before it; the counts add up."""
    sink, blocks = assembler()
    transaction(sink, 11)
    transaction(sink, 12, 25)
    transaction(sink, 13)
    sink.cut()
    assert blocks.indicators() == ["WHOLE", "BEGIN", "MIDDLE", "END", "WHOLE"]
    assert [(b["origin"].rba, b["csn"], b["transactions"]) for b in blocks.blocks] == [
        (11, "csn11", 1), (11, "csn11", 0), (11, "csn11", 0), (12, "csn12", 1), (13, "csn13", 1)
    ]  # fmt: skip
    assert sum(b["changes"] for b in blocks.blocks[1:4]) == 25
    assert blocks.blocks[3]["records"][-1] == (Op.COMMIT, 25)


def test_the_open_transaction_stays_behind_a_cut() -> None:
    """It is not known to be large yet."""
    sink, blocks = assembler()
    transaction(sink, 11)
    sink.begin("csn12", "12", 12)
    rows(sink, 2)
    sink.cut()
    assert blocks.indicators() == ["WHOLE"]
    assert (sink.in_transaction, sink.is_empty) == (2, False)
    sink.commit(Position(0, 12), "csn12", 12)
    sink.cut()
    assert blocks.blocks[1]["changes"] == 2


def test_a_transaction_without_a_captured_change_leaves_its_place_only() -> None:
    """The trail need not know it; the source may forget it."""
    sink, blocks = assembler()
    transaction(sink, 11, 0)
    assert (sink.is_empty, sink.origin, blocks.blocks) == (True, Position(0, 11), [])
    sink.reached(Position(0, 9), 9)
    assert sink.origin == Position(0, 11)
    sink.begin("csn12", "12", 12)
    sink.reached(Position(0, 50), 50)
    assert sink.origin == Position(0, 11)


def test_an_abandoned_transaction_is_gone() -> None:
    """With a RESTART if part of it is out; what is whole before it stays."""
    sink, blocks = assembler()
    transaction(sink, 11)
    sink.begin("csn12", "12", 12)
    rows(sink, 2)
    sink.abandon()
    assert (blocks.restarts, sink.has_whole) == (0, True)
    sink.begin("csn12", "12", 12)
    rows(sink, 15)
    sink.abandon()
    assert (blocks.restarts, sink.is_empty, sink.origin) == (1, True, Position(0, 11))
    transaction(sink, 12, 1)
    sink.cut()
    assert blocks.indicators() == ["WHOLE", "BEGIN", "WHOLE"]
    assert blocks.blocks[-1]["records"][-1] == (Op.COMMIT, 1)


def test_a_block_never_names_two_shapes_of_one_table() -> None:
    """Also inside a transaction: what was gathered goes out, the cache is emptied, indexes begin anew."""
    sink, blocks = assembler()
    transaction(sink, 11, table=B)
    sink.begin("csn12", "12", 12)
    rows(sink, 1)
    sink.cache["key"] = "old index"
    rows(sink, 1, table=WIDER)
    assert sink.cache == {}
    sink.commit(Position(0, 12), "csn12", 12)
    assert blocks.indicators() == ["WHOLE", "BEGIN", "END"]
    assert blocks.blocks[1]["tables"][-1] == A.id
    assert blocks.blocks[2]["tables"] == [WIDER.id]


def test_what_goes_out_is_counted_by_table() -> None:
    """A truncate counts once for each of its tables, and is one change."""
    stats, met = Stats(lambda: 99), []
    sink, blocks = assembler(stats=stats, resolved=met.append)
    sink.begin("csn11", "11", 11)
    rows(sink, 3)
    sink.records.append((int(Op.TRUNCATE), (sink.table(A), sink.table(B)), 0))
    sink.commit(Position(0, 11), "csn11", 11)
    sink.cut()
    assert blocks.blocks[0]["changes"] == 4
    tables = stats.period(TOTAL)["tables"]
    counted = [(one["from"], one["inserts"], one["truncates"], one["operations"]) for one in tables]
    assert sorted(counted) == [("s.a", 3, 1, 4), ("s.b", 0, 1, 1)]
    sink.begin("csn12", "12", 12)
    rows(sink, 1)
    assert met == [A, B]


@pytest.mark.parametrize("seed", range(20))
def test_a_source_that_trusts_its_cache_names_the_right_tables(seed: int) -> None:
    """The contract of `records` and `cache`: both bound once, and an index is asked for where the cache has none."""
    sink, blocks = assembler()
    append, cache, draw, place = sink.records.append, sink.cache, random.Random(seed), 10
    for _ in range(200):
        place += 1
        sink.begin(f"csn{place}", str(place), place)
        for _ in range(draw.randrange(6)):
            table = draw.choice((A, B, WIDER))
            if table.id not in cache:
                number = sink.table(table)
                cache[table.id] = number
            append((int(Op.INSERT), cache[table.id], [table.id.hex()]))
            sink.grew(draw.choice((5, 60)))
            if draw.random() < 0.05:
                sink.ddl(DdlChange(CREATE, None, TableShape("s", f"n{place}", ()), "CREATE TABLE"))
        if draw.random() < 0.1:
            sink.abandon()
        else:
            sink.commit(Position(0, place), f"csn{place}", place)
        if draw.random() < 0.3:
            sink.cut()
    assert sink.cache is cache and len(blocks.blocks) > 50
    for block in blocks.blocks:
        for record in block["records"]:
            if record[0] == Op.INSERT:
                assert block["tables"][record[1]].hex() == record[2][0]
