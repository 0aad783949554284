"""The checkpoint table in each kind of target: one made by an earlier release, and every field of a row."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from replicat.target import PlaceLostError, Row
from replicat.targets import TargetSettings, admin_for, open_target, rowtable
from trails.position import Position

pytestmark = pytest.mark.e2e

ROW = Row(
    Position(3, 4096), bytes(range(16)), "00000001/0A2B3C40", "77", 1_700_000_000_123_456, 9, 1_690_000_000_000_000,
    Position(2, 96), 41, ">=00000001/0A2B3C40",
)  # fmt: skip


@dataclass
class Kind:
    """A target, and its own SQL."""

    name: str
    settings: TargetSettings
    sql: Callable[[str], Any]
    table: str


@pytest.fixture(params=["postgresql", "sqlite", "mysql"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    """An empty target of each kind."""

    def settings(url: str, schema: str) -> TargetSettings:
        return TargetSettings(url, (schema, "chk"), "REP1", 77, str(tmp_path))

    with contextlib.ExitStack() as stack:
        if request.param == "postgresql":
            url = request.getfixturevalue("target_db")
            conn = stack.enter_context(psycopg.connect(url, autocommit=True))
            yield Kind(request.param, settings(url, "public"), conn.execute, '"public"."chk"')
        elif request.param == "sqlite":
            file = tmp_path / "target.db"
            lite = stack.enter_context(contextlib.closing(sqlite3.connect(file, isolation_level=None)))
            yield Kind(request.param, settings(f"sqlite:///{file}", "main"), lite.execute, '"main"."chk"')
        else:
            server, name = request.getfixturevalue("mariadb"), request.getfixturevalue("maria_db")
            yield Kind(request.param, settings(server.url(name), name), server.sql, f"`{name}`.`chk`")


def test_a_table_of_an_earlier_release_is_upgraded(kind: Kind):
    """connect() adds what it lacks; a row written before stands at a border and leaves nothing out."""
    kind.sql(rowtable.create(kind.table, kind.name))
    for column in rowtable.LATER:
        kind.sql(f"ALTER TABLE {kind.table} DROP COLUMN {column}")
    names = (
        "group_name, group_key, seqno, rba, create_ts, last_update_ts, current_dir, version, trail_id, alter_no, "
        "added_us, flush_seqno, flush_rba"
    )
    values = "'REP1', 77, 1, 2, '2024-01-02', '2024-01-02', '', 1, '0a', 0, 5, 1, 2"
    kind.sql(f"INSERT INTO {kind.table} ({names}) VALUES ({values})")
    target = open_target(kind.settings)
    target.connect()
    assert target.load_row() == Row(Position(1, 2), b"\n", added_us=5, flushed=Position(1, 2))
    target.close()


def test_two_groups_upgrade_one_table_at_once(target_db: str):
    """The second waits for the first, and finds done what it was about to do."""
    with psycopg.connect(target_db, autocommit=True) as conn, psycopg.connect(target_db) as other:
        conn.execute(rowtable.create('"public"."chk"', "postgresql"))  # type: ignore[arg-type]
        for column in rowtable.LATER:
            conn.execute(f"ALTER TABLE chk DROP COLUMN {column}")  # type: ignore[arg-type]
        other.execute("ALTER TABLE chk ADD COLUMN split bigint DEFAULT 0 NOT NULL")
        settings = TargetSettings(target_db, ("public", "chk"), "REP1", 77, "")
        target = open_target(settings)
        second = threading.Thread(target=target.connect)
        second.start()
        waiting = "SELECT 1 FROM pg_locks WHERE NOT granted"
        while second.is_alive() and conn.execute(waiting).fetchone() is None:
            pass
        other.commit()
        second.join()
        assert target.load_row() is None
        target.close()


def test_every_field_goes_and_comes_back(kind: Kind):
    """And each part of a row's place decides whether it is where it was left."""
    kind.sql(rowtable.create(kind.table, kind.name))
    target = open_target(kind.settings)
    target.connect()
    assert target.load_row() is None
    target.add_row(replace(ROW, split=40, skip_until=""))
    old = target.load_row()
    assert old is not None
    for lost in (replace(old, split=0), replace(old, skip_until=">x"), replace(old, position=Position(3, 4097))):
        with pytest.raises(PlaceLostError):
            target.flush(lost, ROW)
    target.flush(old, ROW)
    assert target.load_row() == ROW
    (found,) = kind.sql(f"SELECT log_cmplt_csn FROM {kind.table}")
    assert found == (ROW.csn,)
    target.close()


@pytest.mark.parametrize("name", ["a%chk", 'a"chk', "a`c%s", "ü{0}?"])
def test_odd_names(kind: Kind, name: str):
    """A checkpoint table may be called anything: it is made, moved, read, forgotten and dropped."""
    schema = kind.settings.checkpoint_table[0]
    settings, table = replace(kind.settings, checkpoint_table=(schema, name)), (schema, name)
    admin = admin_for(settings.url)
    admin.add_row_table(settings.url, table)
    target = open_target(settings)
    target.connect()
    target.add_row(ROW)
    moved = replace(ROW, position=Position(3, 8192))
    target.begin(ROW, moved)
    target.commit()
    assert target.load_row() == admin.read_row(settings.url, table, "REP1", 77) == moved
    target.close()
    assert admin.delete_row(settings.url, table, "REP1", 77)
    admin.drop_row_table(settings.url, table)
    assert admin.rows_of_table(settings.url, table) is None
