"""How far a trail goes at the source: in a trail behind a pump the origins are places of another trail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from replicat.batches.batch import Batcher
from replicat.compare.flight import Flight
from replicat.model.sourceplace import place_of
from replicat.model.target import CheckpointRow
from tests.support.trail_script import IDENTITY, TABLE
from trails.format import Indicator
from trails.fs import RealFs
from trails.plan import Planner
from trails.position import Position, TrailName
from trails.reader import BlockReader
from trails.record import BEGIN, COMMIT, INSERT, Record
from trails.writer import TrailWriter

CSN = "0/500"
THERE, BEYOND = Position(0, 0x500), Position(0, 0x501)


def _trail(folder: Path, copies: bytes) -> tuple[TrailName, Position]:
    """One transaction, as Extract writes it or as a Collector does: from the second file of its source's trail."""
    trail = TrailName(str(folder), "rt")
    writer = TrailWriter.open(RealFs(), trail, replace(IDENTITY, copies=copies), restart_open=False)
    records: list[Record] = [(BEGIN, CSN, "1", 1), (INSERT, 0, ["1"] * len(TABLE.columns)), (COMMIT, 1)]
    try:
        writer.define([TABLE])
        writer.append_data(
            Indicator.WHOLE, [TABLE.id], records, changes=1, transactions=1,
            origin=Position(1, 80) if copies else Position(0, 0x540), csn=CSN, time_us=1,
        )  # fmt: skip
        writer.append_place(Position(1, 120) if copies else Position(0, 0x600))
        writer.sync()
        return trail, writer.position
    finally:
        writer.close()


@pytest.mark.parametrize(("copies", "sure"), [(b"", True), (b"c" * 16, False)], ids=["of Extract", "of a Collector"])
def test_a_snapshot_is_passed_only_by_what_tells_a_place_of_the_source(tmp_path: Path, copies: bytes, sure: bool):
    """Behind a pump a table of a load was live too soon, or never, and a row on its way was called different."""
    trail, end = _trail(tmp_path, copies)
    flight = Flight(RealFs(), trail, lambda: CheckpointRow(end), 1.0)
    begin = CheckpointRow(Position(0, 0))
    assert flight.wait(begin, THERE) is not None
    assert (flight.wait(begin, BEYOND) is not None) == sure
    assert (flight.wait(CheckpointRow(end), BEYOND) is not None) == sure
    reader = BlockReader(RealFs(), trail, Position(0, 0))
    try:
        batcher = Batcher(Planner(reader), 100, 64 << 20)
        while batcher.next() is not None:
            assert batcher.position is not None
        assert batcher.origin == (Position(0, 0x600) if sure else THERE)
    finally:
        reader.close()


def test_places_of_all_kinds_of_csn():
    """As snapshots tell them; what is none of these proves nothing."""
    assert place_of("1A/2B") == Position(0, 0x1A0000002B)
    assert place_of("0002:0000000007:000000000001548") == Position(2 << 32 | 7, 1548)
    assert place_of("00000000000000000042") == Position(0, 42)
    assert [place_of(csn) for csn in ("", "x", "1/2/3", "load a 1")] == [None] * 4
