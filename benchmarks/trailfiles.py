"""Trails made for reading: the benchmark's rows, packed as Extract packs them, without a database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from trails.format import Indicator
from trails.fs import RealFs
from trails.position import Position, TrailName
from trails.record import Column, Op, Record, TableDef
from trails.recovery import Mark
from trails.writer import TrailWriter, WriterIdentity

_COLUMNS = [
    ("id", "bigint", "bigint", True), ("version", "integer", "integer", False),
    ("name", "text", "character varying(30)", False), ("note", "text", "character varying(80)", False),
    ("amount", "decimal", "numeric(14,2)", False), ("created", "timestamptz", "timestamp with time zone", False),
    ("active", "boolean", "boolean", False), ("tag", "text", "character varying(10)", False),
    ("score", "integer", "integer", False), ("updated", "timestamptz", "timestamp with time zone", False),
]  # fmt: skip
DEFINITION = TableDef("bench", "accounts", tuple(Column(*column) for column in _COLUMNS))
BLOCK_ROWS = 4000


DIRTY = 20
"""One row of so many has a tab, where such rows are asked for."""


def image(number: int, key: int, *, dirty: bool = False) -> list[bytes]:
    """A row as the source gives it: text as bytes."""
    gap = "\t" if dirty and number % DIRTY == 0 else " "
    mixed = number * 0x9E3779B97F4A7C15 % (1 << 64) * 0xC2B2AE3D27D4EB4F  # does not compress, as a hash does not
    text = (
        f"{key}|{number % 9}|customer-{key}|{mixed:032x}{gap}with a remark of some words|{key / 7:.2f}|"
        f"2026-01-{number % 28 + 1:02d} 08:11:{number % 60:02d}.123456+00|{('true', 'false')[number % 2]}|"
        f"tag-{key % 97}|{key % 1000}|2026-02-{number % 28 + 1:02d} 08:11:{number % 60:02d}.654321+00"
    )
    return text.encode().split(b"|")


def blocks(rows: int, per_transaction: int, keys: int, *, dirty: bool = False) -> Iterator[list[Record]]:
    """The records of one block after the other; with `keys`, updates of so many keys in no order.

    `dirty`: some rows have a value that must be escaped.
    """
    records: list[Record] = []
    for number in range(0, rows, per_transaction):
        size = min(per_transaction, rows - number)
        records.append((Op.BEGIN, f"0/{number + 1:X}", str(number), 1_790_000_000_000_000 + number))
        for i in range(number, number + size):
            key = (i * 0x9E3779B1 % keys if keys else i) + 1
            records.append((Op.UPDATE, 0, image(i, key), None) if keys else (Op.INSERT, 0, image(i, key, dirty=dirty)))
        records.append((Op.COMMIT, size))
        if len(records) >= BLOCK_ROWS:
            yield records
            records = []
    if records:
        yield records


def write(folder: Path, prefix: str, home_id: str, made: Sequence[list[Record]], repeat: int = 1) -> None:
    """Write a trail of these blocks, all of them `repeat` times over."""
    identity = WriterIdentity(home_id, "EXT1", "bench", {"kind": "postgresql"})
    writer = TrailWriter.open(RealFs(), TrailName(str(folder), prefix), identity, start=Mark(), restart_open=True)
    try:
        writer.define([DEFINITION])
        for turn in range(repeat):
            for i, records in enumerate(made):
                _append(writer, records, turn * len(made) + i + 1)
            writer.sync()
    finally:
        writer.close()


def _append(writer: TrailWriter, records: list[Record], number: int) -> None:
    writer.append_data(
        Indicator.WHOLE,
        [DEFINITION.id],
        records,
        changes=sum(1 for record in records if record[0] in (Op.INSERT, Op.UPDATE)),
        transactions=sum(1 for record in records if record[0] == Op.COMMIT),
        origin=Position(0, number),
        csn=f"0/{number:X}",
        time_us=1_790_000_000_000_000 + number,
    )
