"""LAG, INFO and the commands on heartbeat tables: what is shown of figures that are true, stale or not known."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ggsci.commands.session import OperatorSession
from ggsci.views.heartbeatview import TITLE, lag_lines
from tests.support.beating import SECOND, beat, piped
from tests.support.homes import as_json, bad, good, make_home, run
from trails import checkpoint
from trails.checkpoint import Checkpoint
from trails.clock import RealClock
from trails.heartbeat import entry_of, judged
from trails.runtime.home.home import Home
from trails.runtime.language import globals as globals_file
from trails.runtime.language.heartbeattable import HeartbeatTable


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = make_home(tmp_path / "home")
    good(made, "ADD REPLICAT rep1, EXTTRAIL ./dirdat/rt, CHECKPOINTTABLE main.chk")
    return made


def entry(ago: float, every: int = 60, ahead: int | None = 0, now_us: int = 0) -> dict[str, Any]:
    made = piped(
        beat((now_us or RealClock().now_us()) - int(ago * SECOND) - SECOND, every=every), ahead=ahead, after=SECOND
    )
    return entry_of(made, "copy")


def save(home: Home, *entries: dict[str, Any]) -> None:
    found = Checkpoint("REP1", "REPLICAT", saved_us=RealClock().now_us(), extra={"heartbeats": list(entries)})
    checkpoint.save(home.fs, home.checkpoint("REP1", "REPLICAT"), found)


def test_a_table_of_paths_with_each_stages_time():
    """GoldenGate's columns; then the stages; then why there is no figure, and what the last true one was."""
    now = RealClock().now_us()
    fresh, stale, across = entry(5, now_us=now), entry(300, now_us=now), entry(5, ahead=None, now_us=now)
    across = {**across, "lag_us": None, "why": "the clocks of EXT1 and PMP1 were not compared, or have moved since"}
    lines = lag_lines([judged(each, now) for each in (fresh, stale, across)])
    assert lines[1] == TITLE
    assert lines[3].split() == ["LAG", "AGE", "FROM", "TO", "PATH"]
    assert lines[5].split()[0] == "1.10s"
    assert lines[5].split()[2:] == ["shop", "copy", "EXT1", "==>", "PMP1"]
    assert lines[6] == "  shop to EXT1 100.0 ms, EXT1 to PMP1 1,000.0 ms"
    assert lines[7].startswith("UNKNOWN     ")
    assert lines[9] == "  unknown because no heartbeat for 299 s; one each 60 s was due; it was 1.10s"
    assert lines[12] == "  unknown because the clocks of EXT1 and PMP1 were not compared, or have moved since"
    assert lag_lines([]) == []


def test_GG_19_a_stopped_groups_figure_is_shown_with_its_age_only(home: Home):
    """LAG fails, as ever, and says what the checkpoint has kept; INFO and JSON the same."""
    save(home, entry(3600))
    text = bad(home, "LAG REPLICAT rep1")
    assert "not currently running" in text
    assert "UNKNOWN" in text
    assert "EXT1 ==> PMP1" in text
    assert "Heartbeat Steps      shop to EXT1 100.0 ms, EXT1 to PMP1 1,000.0 ms" in good(home, "INFO rep1")
    info = good(home, "INFO rep1")
    assert re.search(r"UNKNOWN \(EXT1 ==> PMP1, 3[56]\d\d s ago\); unknown because no heartbeat", info)
    (shown,) = as_json(home, "INFO rep1")[0]["heartbeats"]
    assert (shown["lag_us"], shown["last_lag_us"], shown["age_us"] > 3590 * SECOND) == (None, 1_100_000, True)
    (row,) = json.loads(run(home, "LAG rep1 --json")[1].splitlines()[-1])
    assert (row["ok"], row["heartbeats"][0]["lag_us"]) == (False, None)


def test_a_fresh_figure_is_shown(home: Home):
    save(home, entry(5))
    assert "1.10s (EXT1 ==> PMP1, " in good(home, "INFO rep1")


def test_globals_name_the_tables(home: Home):
    """GGSCHEMA or HEARTBEATTABLE; the names of the others follow."""

    def named(text: str) -> HeartbeatTable:
        Path(home.globals).write_text(text)
        return HeartbeatTable.of(globals_file.read(home))

    assert named("") == HeartbeatTable("gg", "gg_heartbeat")
    assert named("GGSCHEMA ggadmin\nCLOCKDIFFSECS 5\n") == HeartbeatTable("ggadmin", "gg_heartbeat")
    table = named("HEARTBEATTABLE ops.beat\n")
    assert table.tables == ("beat_seed", "beat", "beat_history", "beat_settings")
    assert table.owns("ops", "beat_seed")
    assert not table.owns("gg", "beat_seed")
    assert HeartbeatTable.parse(table.text) == table


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("ADD HEARTBEATTABLE", "needs a database login"),
        ("LAG rep1, HISTORY", "needs a database login"),
        ("ALTER HEARTBEATTABLE", "expected an option"),
        ("ADD HEARTBEATTABLE, FREQUENCY 8000", "expected 0 to 7999 seconds"),
        ("ADD HEARTBEATTABLE, RETENTION_TIME 99999999", "expected days up to 36500"),
        ("ADD HEARTBEATTABLE, FREQUENZY 5", "Did you mean FREQUENCY?"),
        ("LAG nobody", "does not exist"),
    ],
)
def test_what_is_refused(home: Home, line: str, told: str):
    session = OperatorSession(home.root)
    if "8000" in line or "9999" in line:
        good(home, f"DBLOGIN TARGETDB sqlite:///{home.root}/copy.db", session)
    assert told in bad(home, line, session)


def test_the_tables_in_a_target_by_commands(home: Home):
    """Made, altered, shown and dropped; in a database without a seed."""
    session = OperatorSession(home.root)
    good(home, f"DBLOGIN TARGETDB sqlite:///{home.root}/copy.db", session)
    assert "There are no heartbeat tables" in good(home, "INFO HEARTBEATTABLE", session)
    made = good(home, "ADD HEARTBEATTABLE, RETENTION_TIME 7", session)
    assert "Successfully created view main.gg_lag." in made
    assert "seed" not in made
    assert "\n  History of 7 days, purged each day.\n" in good(home, "INFO HEARTBEATTABLE", session)
    assert "paused" in good(home, "ALTER HEARTBEATTABLE, FREQUENCY 0", session)
    assert "were there already" in good(home, "ADD HEARTBEATTABLE", session)
    assert "not confirmed" in bad(home, "DELETE HEARTBEATTABLE", session)
    assert "Successfully deleted table main.gg_heartbeat_history." in good(home, "DELETE HEARTBEATTABLE!", session)
