"""STATS: its layout, periods, rates and sums; counters that are there only for who uses what they count; REPORTCDR."""

from __future__ import annotations

import pytest

from ggsci.views import sendview, statsview
from tests.support.zones import machine_in
from trails.record import Op
from trails.runtime.report.answers import StatusAnswer, read_answer
from trails.runtime.report.stats import (
    CDR_CONFLICTS,
    CDR_SUCCEEDED,
    IGNORED,
    PERIODS,
    DdlCounts,
    Stats,
    cdr_conflicts,
    report_lines,
)


@pytest.fixture(autouse=True)
def utc():
    """Times are shown in the machine's zone; here it is UTC."""
    with machine_in("UTC"):
        yield


def counted() -> Stats:
    """One table with rarer counters, one without."""
    stats = Stats(lambda: 0)
    stats.count("s.a", "p.a", Op.INSERT, 3)
    stats.count("s.a", "p.a", IGNORED, 2)
    for counter in (CDR_CONFLICTS, CDR_SUCCEEDED, cdr_conflicts("UPDATEROWEXISTS")):
        stats.count("s.a", "p.a", counter)
    stats.count("s.b", "p.b", Op.DELETE)
    return stats


def shown(*, cdr: bool) -> list[str]:
    lines = statsview.stats("REPLICAT", counted().to_reply(), 0, cdr=cdr)
    return [" ".join(line.split()) for line in lines if "ignored" in line or "CDR" in line]


def test_rarer_counters_stand_with_their_table_alone():
    """Operations don't count them; a table without any has no such key."""
    first, second = counted().to_reply()["tables"]
    assert (first["operations"], first["more"][IGNORED], "more" in second) == (3, 2, False)
    assert any("ignored:         2" in line for line in report_lines(counted().to_reply()))


def test_conflicts_are_told_when_asked_for():
    """REPORTCDR: conflicts and resolutions of each table, also where there were none, and conflicts by type."""
    assert shown(cdr=False) == ["Total ignored 2.00"]
    assert shown(cdr=True) == [
        "Total CDR conflicts 1.00", "CDR resolutions succeeded 1.00", "CDR resolutions failed 0.00",
        "Total ignored 2.00", "Total CDR UPDATEROWEXISTS conflicts 1.00",
        "Total CDR conflicts 0.00", "CDR resolutions succeeded 0.00", "CDR resolutions failed 0.00",
    ]  # fmt: skip


NOW = 1_700_000_000_000_000
HOUR = 3_600_000_000


def test_stats_layout():
    """goldengate.md 8.2: counts with two decimals behind a tab, period after period; no tables is said."""
    clock = [NOW]
    stats = Stats(lambda: clock[0], "./dirdat/et")
    stats.count("s.t", "s.u", Op.INSERT, 4)
    clock[0] += 2 * HOUR
    lines = statsview.stats("EXTRACT", stats.to_reply(), clock[0], periods=PERIODS)
    assert lines[:8] == [
        "", "Start of Statistics at 2023-11-15 00:13:20.", "", "Output to ./dirdat/et:", "",
        "Extracting from s.t to s.u:", "", "*** Total statistics since 2023-11-14 22:13:20 ***",
    ]  # fmt: skip
    assert "\tTotal inserts                      \t           4.00" in lines
    assert "\tTotal discards                     \t           0.00" in lines
    # Nothing since midnight, which was also the last full hour; LATEST goes on, as nobody has reset it.
    for name in ("Daily", "Hourly"):
        at = lines.index(f"*** {name} statistics since 2023-11-15 00:00:00 ***")
        assert lines[at + 1] == "\tNo database operations have been performed."
    at = lines.index("*** Latest statistics since 2023-11-14 22:13:20 ***")
    assert lines[at + 1] == "\tTotal inserts                      \t           4.00"
    assert lines[-2:] == ["End of Statistics.", ""]
    empty = statsview.stats("REPLICAT", {"since_us": NOW, "output": "", "tables": []}, NOW)
    assert "No active replication maps" in empty
    assert not any("DDL" in line for line in empty), "nothing is told of what is not carried"


def test_schema_changes_have_a_block_of_their_own():
    """goldengate.md 8.2: met, named by TABLE or MAP, left out by the DDL parameter; errors of a Replicat."""
    stats = Stats(lambda: NOW, "./dirdat/et")
    stats.ddl = DdlCounts()
    for mapped, passes in ((True, True), (True, False), (False, True)):
        stats.ddl.seen(None, mapped=mapped, passes=passes)
    lines = statsview.stats("EXTRACT", stats.to_reply(), NOW)
    assert lines[3:12] == [
        "DDL replication statistics (for all trails):", "", "*** Total statistics since extract started     ***",
        "\tOperations                         \t           3.00",
        "\tMapped operations                  \t           2.00",
        "\tUnmapped operations                \t           1.00",
        "\tOther operations                   \t           0.00",
        "\tExcluded operations                \t           1.00", "",
    ]  # fmt: skip
    stats.ddl = DdlCounts(errors=True)
    stats.ddl.error("ignored errors")
    lines = statsview.stats("REPLICAT", stats.to_reply(), NOW)
    assert "DDL replication statistics:" in lines
    assert "\tIgnored errors                     \t           1.00" in lines


def test_rates_sums_and_a_choice_of_tables():
    """REPORTRATE divides by the period's time, TOTALSONLY adds tables up, TABLE leaves others out."""
    reply = counted().to_reply()
    lines = statsview.stats("REPLICAT", reply, 2 * 60_000_000, rate="MIN")
    assert "\tTotal inserts/minute               \t           1.50" in lines
    statsview.sum_tables(reply, "s.*")
    lines = statsview.stats("REPLICAT", reply, 0)
    assert "Replicating from s.* to s.*:" in lines
    assert "\tTotal operations                   \t           4.00" in lines
    assert "\tTotal ignored                      \t           2.00" in lines
    reply = counted().to_reply()
    statsview.keep_tables(reply, lambda table: table == "s.b")
    assert [len(statsview.period_of(reply, name)["tables"]) for name in PERIODS] == [1] * 4
    reply = counted().to_reply()
    statsview.keep_tables(reply, lambda table: table == "p.a")
    assert [table["from"] for table in reply["tables"]] == ["s.a"], "by the target's name too"


def test_a_pump_that_decodes_nothing_shows_operations_alone():
    """It can't tell inserts from deletes, so it does not say that there were none."""
    stats = Stats(lambda: 0, note="All tables are counted together.")
    stats.count("*.*", "*.*", "operations", 7)
    lines = statsview.stats("EXTRACT", stats.to_reply(), 0)
    assert lines[3:5] == ["All tables are counted together.", ""]
    assert "Extracting from *.* to *.*:" in lines
    assert [line for line in lines if line.startswith("\t")] == [
        "\tTotal operations                   \t           7.00"
    ]
    assert stats.report_lines()[1] == "       #                operations:         7"
    assert stats.report_lines()[-2:] == ["All tables are counted together.", ""]


def test_send_status_layout():
    """Status, read position, write positions."""
    reply = {
        "status": "At EOF", "read": {"seqno": 175, "rba": 36263936, "time_us": NOW, "csn": "0/1"},
        "write": [{"seqno": 9, "rba": 2964, "time_us": None, "trail": "./dirdat/c1"}], "in_transaction": 3,
    }  # fmt: skip
    lines = sendview.status("EXTRACT", "EXT1", 7220, read_answer(StatusAnswer, reply))
    assert lines[1:3] == ["EXTRACT EXT1 (PID 7220)", "  Current status: At EOF"]
    assert "  Sequence #: 175" in lines
    assert "  Timestamp: 2023-11-14 22:13:20.000000" in lines
    assert "  Extract Trail: ./dirdat/c1" in lines
    assert "  3 records in current transaction" in lines


def _open(**changes):
    one = {
        "xid": "771", "status": "Running", "start_us": NOW, "age_us": 2 * HOUR, "user": "app", "database": "shop",
        "client": "psql process 4711", "pid": 4711, "state": "idle in transaction", "name": "", "items": 0, "csn": "",
    }  # fmt: skip
    return one | changes


@pytest.mark.parametrize(("ahead_us", "side"), [(1_234_567, "1.235 s ahead of"), (-500_000, "0.500 s behind")])
def test_send_status_of_a_pump_shows_the_other_clock(ahead_us: int, side: str):
    """With what may be wrong about it, and how old that is; nothing where it is not known."""
    clocks = {"ahead_us": ahead_us, "error_us": 2000, "age_us": 65_000_000}
    lines = sendview.status("EXTRACT", "PMP1", 7, StatusAnswer("At EOF", clocks=clocks))
    assert f"  Clock of the remote host: {side} this one, give or take 0.002 s (00:01:05 ago)" in lines
    unknown = sendview.status("EXTRACT", "PMP1", 7, StatusAnswer("At EOF", clocks={}))
    assert not any("Clock" in line for line in unknown)


def test_showtrans_layout():
    """goldengate.md 4: a dashed line, then labels with values at 22; TABULAR one row each; the log that is kept."""
    reply = {
        "holder": "slot gg_ext1",
        "restart": "LSN 0/1A",
        "unhide": "GRANT pg_read_all_stats",
        "kept_bytes": 5 << 20,
        "transactions": [_open(), _open(start_us=None)],
    }
    lines = sendview.transactions("EXT1", reply, tabular=False)
    assert lines[1] == "Oldest log necessary to restart Extract: LSN 0/1A, 5.0 MB kept by slot gg_ext1"
    assert lines[3:8] == [
        "-" * 60, "XID:                  771", "Items:                0", "Extract:              EXT1",
        "Start Time:           2023-11-14:22:13:20",
    ]  # fmt: skip
    assert "Open for:             02:00:00" in lines
    assert "Start Time:           UNKNOWN (GRANT pg_read_all_stats shows it)" in lines
    rows = sendview.transactions("EXT1", reply, tabular=True)
    assert rows[3] == "Transactions that hold back Extract EXT1: 2"
    assert rows[7].split() == [
        "771", "0", "2023-11-14", "22:13:20", "02:00:00", "Running", "app", "shop", "psql", "process", "4711",
    ]  # fmt: skip
    none = sendview.transactions(
        "EXT1", {"holder": "", "restart": "", "kept_bytes": None, "transactions": []}, tabular=True
    )
    assert none[-2] == "No open transactions found."
    hidden = sendview.transactions(
        "EXT1", {"restart": "", "unhide": "GRANT PROCESS ON *.*", "hidden": True, "transactions": []}, tabular=True
    )
    told = "Open transactions are not shown to this Extract's user: GRANT PROCESS ON *.* TO that user shows them."
    assert hidden[-2] == told and not any("No open" in line for line in hidden)


def test_tcp_statistics_and_parameters_layout():
    """Figures end in one column; a parameter that is not in the file is said."""
    reply = {
        "since_us": NOW, "elapsed_us": 10_000_000, "sessions": 1, "local": "127.0.0.1:5", "remote": "10.0.0.2:7810",
        "tls": True, "unsent": 0, "bytes_in": 66, "bytes_out": 1197, "messages_in": 9, "messages_out": 10,
        "receives": 18, "sends": 10, "blocks": 8, "raw_bytes": 4000, "stored_bytes": 1000, "acknowledged": 8,
        "ack_wait_us": 1_600_000, "send_wait_us": 0,
    }  # fmt: skip
    lines = sendview.tcp(reply)
    assert "Local address 127.0.0.1:5  Remote address 10.0.0.2:7810  TLS" in lines
    assert "Outbound Msgs                       10         Bytes            1197,           120 bytes/second" in lines
    assert "Avg bytes per recv                   3, per msg             7" in lines
    assert "Acknowledge Wait Time         1.600000 s, per block      0.200000 s" in lines
    assert "Compressed bytes                  1000  (ratio 4.00 : 1)" in lines
    value = {"parameter": "WALWARN", "value": "20G", "file": "/gg/dirprm/ext1.prm", "line": 5}
    assert sendview.parameters({"file": "f", "values": [value]}, "walwarn")[1] == "  WALWARN 20G  (ext1.prm:5)"
    assert sendview.parameters({"file": "f", "values": []}, "walwarn")[1] == "  WALWARN is not in f: its default holds."
