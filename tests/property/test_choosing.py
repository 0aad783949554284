"""A target behind filters of Extract and pump holds exactly the rows that pass, after every transaction."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pump.filter import Filter
from pump.params import PumpParams
from tests.unit.test_choosing import KV, assembler
from tests.unit.test_conditions import PUMP
from trails.codec import decode_data, encode_data
from trails.format import BlockHeader, BlockKind
from trails.position import Position
from trails.record import BEGIN, COMMIT, DELETE, INSERT, UPDATE
from trails.runtime.language.params import parse_text
from trails.runtime.language.tableparams import environment

STEP = st.tuples(
    st.sampled_from(["insert", "update", "move", "delete"]), st.sampled_from("123"), st.sampled_from("456"),
    st.sampled_from(["5", "15", "25", None]), st.sampled_from("xy"),
)  # fmt: skip
Rows = dict[str, list[Any]]


def change(rows: Rows, kind: str, key: str, other: str, number: str | None, text: str) -> tuple[Any, ...] | None:
    """One change of the source, with whole old rows, if it can be made of what is there."""
    old = rows.get(key)
    if kind == "insert":
        if old is None:
            rows[key] = [key, number, text]
            return (INSERT, 0, rows[key])
        return None
    if old is None or (kind == "move" and other in rows):
        return None
    del rows[key]
    if kind == "delete":
        return (DELETE, 0, old)
    new = rows[other if kind == "move" else key] = [other if kind == "move" else key, number, text]
    return (UPDATE, 0, new, old)


def apply(rows: Rows, record: Any) -> None:
    """As a target does that refuses what does not fit."""
    op, _, *images = record
    for image in images[:1] if op == DELETE else images[1:]:
        assert rows.pop(image[0]) == list(image)
    if op != DELETE:
        assert images[0][0] not in rows
        rows[images[0][0]] = list(images[0])


def passing(rows: Rows, low: int, text: str) -> Rows:
    """What the filters let through."""
    return {k: row for k, row in rows.items() if row[1] is not None and int(row[1]) > low and row[2] == text}


@given(st.lists(st.lists(STEP, max_size=8), max_size=6), st.sampled_from([30, 1000]))
def test_the_target_is_the_filtered_source(transactions: list[list[tuple[Any, ...]]], block_bytes: int) -> None:
    """Large transactions too, that go out in parts."""
    sink, blocks = assembler("TABLE s.t, WHERE (a > 10 AND b = 'x');", block_bytes)
    params = PumpParams.from_statements(parse_text(f"{PUMP}TABLE s.t, FILTER (a > 20);", "p.prm"))
    pump = Filter(params.passes, lambda table, op, n: None, params.tables.projector(environment("P", "here")))
    source: Rows = {}
    near: Rows = {}
    far: Rows = {}
    for place, steps in enumerate(transactions, 11):
        sink.begin(f"c{place}", f"x{place}", place)
        for step in steps:
            record = change(source, *step)
            if record is not None:
                sink.records.append((record[0], sink.table(KV), *record[2:]))
                sink.grew(10)
        sink.commit(Position(0, place), f"c{place}", place)
        sink.cut()
        for block in blocks.blocks:
            take(near, block["records"])
            payload = encode_data(block["tables"], block["records"])
            header = BlockHeader(
                BlockKind.DATA, block["indicator"], payload.flags, len(payload.data), payload.raw_len,
                block["changes"], block["transactions"], payload_crc=payload.crc,
            )  # fmt: skip
            left = pump.data(header, payload.data, {KV.id: KV}, "here")
            if left is not None:
                take(far, decode_data(left.header, left.payload)[1])
        blocks.blocks.clear()
        assert near == passing(source, 10, "x")
        assert far == passing(source, 20, "x")


COUNTED: dict[int, int] = {}


def take(rows: Rows, records: list[Any]) -> None:
    """Apply a block's records; COMMIT tells how many changes the transaction has."""
    for record in records:
        if record[0] == BEGIN:
            COUNTED[id(rows)] = 0
        elif record[0] == COMMIT:
            assert record[1] == COUNTED[id(rows)]
        else:
            COUNTED[id(rows)] += 1
            apply(rows, record)
