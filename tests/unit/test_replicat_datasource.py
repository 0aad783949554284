"""Rows of `format("trail")` from records, without a Spark session."""

from __future__ import annotations

import os
import pickle

import pytest

from replicat.run.datasource import TrailReader, TrailStreamReader, _images
from tests.support.trail_script import IDENTITY, SCRIPT, write_tx
from trails.crypt import KEY_SIZE, MasterKey, Wallet, save_wallet
from trails.ddl import CREATE, DdlChange, TableShape
from trails.errors import KeyMissingError, OperatorError
from trails.fs import RealFs
from trails.hole import Hole
from trails.position import Position, TrailName
from trails.record import MISSING, Column, Op, TableDef
from trails.recovery import Mark
from trails.writer import TrailWriter

TABLE = TableDef("s", "t", (Column("id", "integer", "", key=True), Column("X", "text", ""), Column("X", "token", "")))
PLAIN = TableDef("s", "p", TABLE.columns[:2])


def test_tokens_stand_in_a_column_of_their_own() -> None:
    """Those of the change, from whichever image it has; a column of the same name does not clash."""
    tables = [TABLE, PLAIN]
    assert list(_images([Op.INSERT, 0, ["1", "x", "token"]], tables)) == [
        ("s.t", None, {"id": "1", "X": "x"}, {"X": "token"})
    ]
    update = [Op.UPDATE, 0, ["1", MISSING, "token"], ["0", "x", "token"]]
    assert list(_images(update, tables)) == [("s.t", {"id": "0", "X": "x"}, {"id": "1"}, {"X": "token"})]
    assert next(_images([Op.DELETE, 0, ["1", None, "token"]], tables))[3] == {"X": "token"}
    assert list(_images([Op.DELETE, 1, ["1", None]], tables)) == [("s.p", {"id": "1", "X": None}, None, None)]


def test_a_change_of_shape_is_one_row_without_images() -> None:
    """It has no rows of its own, but a place among them."""
    change = DdlChange(CREATE, None, TableShape("s", "t", ()))
    assert list(_images([Op.DDL, change.to_wire()], [])) == [("s.t", None, None, None)]


def test_an_encrypted_trail_is_read_and_no_partition_holds_a_key(tmp_path, monkeypatch) -> None:
    """With the keys beside dirdat, or those of the home that the option names; a partition has paths only."""
    for name in ("dirdat", "dirwlt"):
        (tmp_path / name).mkdir()
    key = MasterKey(1, 1, os.urandom(KEY_SIZE))
    save_wallet(RealFs(), str(tmp_path / "dirwlt"), Wallet("mine", (key,)))
    trail = TrailName(str(tmp_path / "dirdat"), "rt")
    writer = TrailWriter.open(RealFs(), trail, IDENTITY, restart_open=True, encrypt=True)
    for tx in SCRIPT:
        write_tx(writer, tx)
    writer.close()
    rows = sum(tx.rows for tx in SCRIPT)

    def read(**options: str) -> int:
        reader = TrailReader({"path": "dirdat/rt", **options})
        parts = [pickle.loads(pickle.dumps(part)) for part in reader.partitions()]
        assert all(key.key not in pickle.dumps(part) and b"masterkeys" not in pickle.dumps(part) for part in parts)
        return sum(len(list(reader.read(part))) for part in parts)

    monkeypatch.chdir(tmp_path)
    assert read() == rows
    (tmp_path / "there").mkdir()
    (tmp_path / "dirwlt").rename(tmp_path / "there" / "dirwlt")
    assert read(home="there") == rows
    with pytest.raises(KeyMissingError, match="master key version 1 of wallet mine"):
        read()


def test_a_hole_ends_a_read_unless_it_is_to_be_passed(tmp_path) -> None:
    """Nobody passes a hole in silence; what stands before it can be read."""
    (tmp_path / "dirdat").mkdir()
    trail = TrailName(str(tmp_path / "dirdat"), "rt")
    writer = TrailWriter.open(RealFs(), trail, IDENTITY, restart_open=True)
    write_tx(writer, SCRIPT[0])
    writer.close()
    hole = Hole("ALTER EXTRACT EXT1", "1", "9")
    ahead = Mark(writer.last.csn, Position(0, 9))
    TrailWriter.open(
        RealFs(), trail, IDENTITY, restart_open=True, alter=1, start=ahead, hole=lambda _last: hole
    ).close()
    path = str(tmp_path / "dirdat/rt")
    for reader in (TrailReader({"path": path}), TrailReader({"path": path, "holes": "raise"})):
        with pytest.raises(OperatorError, match="changes between 1 and 9 are not in the trail"):
            reader.partitions()
    assert TrailReader({"path": path, "end": "1/0"}).partitions()
    assert TrailReader({"path": path, "holes": "pass"}).partitions()
    stream = TrailStreamReader({"path": path})
    with pytest.raises(OperatorError, match="changes between 1 and 9 are not in the trail"):
        stream.partitions(stream.initialOffset(), stream.latestOffset())
    with pytest.raises(OperatorError, match="expected raise or pass"):
        TrailReader({"path": path, "holes": "x"})
