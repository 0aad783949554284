"""Heartbeats of an SQLite source: each a transaction of its own, whatever was committed around it."""

from __future__ import annotations

from pathlib import Path

import pytest

from extract.extract import Extract, Settings
from extract.heartbeat import Heartbeats, Owner
from extract.params import ExtractParams
from extract.sources.sqlite.heartbeat import SqliteSeed
from tests.support.mirror import Mirror
from tests.support.sqlite_source import HOME_ID, SourceFile, run_until_captured
from tests.support.trail_script import TRAIL
from trails.clock import RealClock
from trails.errors import OperatorError
from trails.runtime.language.heartbeattable import HeartbeatTable
from trails.runtime.language.params import parse_text
from trails.testing import FaultFs

TABLE, OWNER = HeartbeatTable(), Owner(HOME_ID, "EXT1")


def seed(file: SourceFile) -> SqliteSeed:
    """The end that writes the row."""
    text = f"EXTRACT ext1\nSOURCEDB {file.url}\nEXTTRAIL ./dirdat/lt\nTABLE main.*;\n"
    params = ExtractParams.from_statements(parse_text(text, "ext1.prm"))
    return SqliteSeed(params.settings(file.registered, TABLE), OWNER)


def test_a_heartbeat_parts_what_was_committed_before_it_from_what_came_behind(tmp_path: Path) -> None:
    """Three looks' worth of changes in one look: two transactions, and the heartbeat between them; no row of it."""
    file, fs, clock = SourceFile.make(tmp_path), FaultFs(), RealClock()
    made = seed(file)
    assert made.frequency() is None
    file.ask("add_heartbeat", heartbeat=TABLE.text, made=[])
    file.run("CREATE TABLE gg_heartbeat_settings (id INTEGER PRIMARY KEY, frequency INTEGER)")
    file.run("INSERT INTO gg_heartbeat_settings VALUES (1, 30)")
    assert made.frequency() == 30
    for code in "abc":
        file.run(f"INSERT INTO item (code) VALUES ('{code}')", f"INSERT INTO line VALUES (1, '{code}', '')")
        if code != "c":
            made.beat(30)
    made.close()
    heartbeats = Heartbeats(TABLE, OWNER, clock)
    settings = Settings("EXT1", HOME_ID, "host", TRAIL, "./dirdat/lt")
    extract = Extract.start(fs, settings, file.source(), clock, heartbeats)
    run_until_captured(extract, file)
    extract.close()
    mirror = Mirror.of(fs, TRAIL)
    assert (mirror.heartbeats, [n for n in mirror.changes if n]) == (2, [2, 2, 2])
    assert set(mirror.tables) == {"item", "line"}
    (entry,) = heartbeats.arrivals.entries()
    assert "shop.db" in str(entry)


def test_a_seed_table_without_triggers_is_told(tmp_path: Path) -> None:
    """Its heartbeats would never come; DELETE HEARTBEATTABLE takes it away."""
    file = SourceFile.make(tmp_path)
    made = seed(file)
    file.ask("add_heartbeat", heartbeat=TABLE.text, made=[])
    file.ask("delete_trandata", pattern="main.gg_heartbeat_seed")
    with pytest.raises(OperatorError, match="has no triggers, so no heartbeat would come"):
        made.beat(30)
    made.close()
    assert file.ask("info_heartbeat", heartbeat=TABLE.text, made=[])["exists"]
    assert file.ask("delete_heartbeat", heartbeat=TABLE.text)["deleted"] == ["table main.gg_heartbeat_seed"]
    assert not file.ask("info_heartbeat", heartbeat=TABLE.text, made=[])["exists"]
