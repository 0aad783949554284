"""Layouts of INFO ALL, INFO, SHOWCH, DETAIL, label for label; figures are shown only while they are true."""

from __future__ import annotations

import pytest

from ggsci import view
from ggsci.facts import GroupFacts
from tests.support.zones import machine_in
from trails.checkpoint import Checkpoint, Place, ReadCheckpoint, WriteCheckpoint
from trails.runtime.registration import Registration, TrailReg

SECOND = 1_000_000
NOW = 1_700_000_000 * SECOND


@pytest.fixture(autouse=True)
def utc():
    """Times are shown in the machine's zone; here it is UTC."""
    with machine_in("UTC"):
        yield


def wal(seqno: int, rba: int, lsn: str) -> Place:
    """A place in the WAL."""
    return Place(seqno, rba, NOW - 10 * SECOND, lsn)


def extract(status: str = "RUNNING", *, age: int = 8, lag: int | None = 2 * SECOND, saves: int = 1, **changes):
    """Facts of an Extract on PostgreSQL."""
    read = ReadCheckpoint(
        "PostgreSQL WAL", wal(1, 100, "0/1000064"), wal(7, 900, "0/7000384"), wal(7, 500, "0/70001F4")
    )
    write = WriteCheckpoint(2, 2142224, NOW - 9 * SECOND + 567638, "./dirdat/lt", "EXTTRAIL")
    registration = Registration(
        "EXT1", "EXTRACT", "TRANLOG", trails=(TrailReg("./dirdat/lt", "EXTTRAIL", 50),), added_us=NOW - 3600 * SECOND
    )
    save = Checkpoint("EXT1", "EXTRACT", (read,), (write,), NOW - 600 * SECOND, NOW - age * SECOND, "A", "A", lag)
    facts = {
        "registration": registration, "status": status, "pid": 4711, "started_us": NOW - 600 * SECOND,
        "exit_code": None, "message": "", "checkpoints": (save,) * saves, "checkpoint_bytes": 400, "damage": "",
        "now_us": NOW,
    }  # fmt: skip
    return GroupFacts(**(facts | changes))


def reader(kind: str, *, place: Place, recovery: Place | None = None, **changes):
    """Facts of a pump or a Replicat on ./dirdat/rt."""
    name = "PMP1" if kind == "EXTRACT" else "REP1"
    writes = (WriteCheckpoint(1, 4096, NOW, "./dirdat/rt", "RMTTRAIL"),) if kind == "EXTRACT" else ()
    table = "" if kind == "EXTRACT" else "gg.ckpt"
    registration = Registration(
        name, kind, "TRAIL", "./dirdat/lt", added_us=NOW - 3600 * SECOND, checkpoint_table=table, group_key=1926598335
    )
    read = ReadCheckpoint("GGS Log Trail", place, place, recovery)
    save = Checkpoint(name, kind, (read,), writes, NOW - 600 * SECOND, NOW - SECOND, "G", "A", 0)
    facts = {
        "registration": registration, "status": "STOPPED", "pid": None, "started_us": NOW - 600 * SECOND,
        "exit_code": 0, "message": "", "checkpoints": (save,), "checkpoint_bytes": 400, "damage": "", "now_us": NOW,
    }  # fmt: skip
    return GroupFacts(**(facts | changes))


def test_info_all_has_goldengates_columns():
    """Fields at columns 0, 12, 24, 36, 50; rows padded to 62."""
    lines = view.info_all("RUNNING", [extract(age=5, lag=0), reader("REPLICAT", place=Place(0, 4096))])
    assert lines[1] == "Program     Status      Group       Lag at Chkpt  Time Since Chkpt"
    assert lines[3] == "MANAGER     RUNNING".ljust(62)
    assert lines[4] == "EXTRACT     RUNNING     EXT1        00:00:00      00:00:05    "
    assert lines[5] == "REPLICAT    STOPPED     REP1        00:00:00      00:00:01    "
    assert [len(line) for line in lines[3:6]] == [62, 62, 62]


@pytest.mark.parametrize(
    ("facts", "lag"),
    [
        (extract(lag=None), "UNKNOWN"),
        (extract(lag=-5 * SECOND), "UNKNOWN"),
        (extract(age=402_414, lag=0), "UNKNOWN"),
        (extract(checkpoints=()), "UNKNOWN"),
        (extract(damage="damaged", checkpoints=()), "UNKNOWN"),
        (extract("ABENDED", age=5, lag=6 * SECOND), "00:00:06"),
        (extract("ABENDED", age=402_414, lag=6 * SECOND), "UNKNOWN"),
        (extract(age=59, lag=842 * 3600 * SECOND), "842:00:00"),
    ],
)
def test_a_lag_is_shown_only_while_it_is_true(facts, lag):
    """GG-19: a group whose checkpoint is old shows no zero lag; clocks that disagree show UNKNOWN."""
    assert view.info_all("RUNNING", [facts])[4][36:50].strip() == lag
    assert (facts.brief()["lag_us"] is None) == (lag == "UNKNOWN")


def test_a_long_checkpoint_interval_is_not_stale():
    """A group that says it saves each five minutes is given six of them."""
    save = Checkpoint("EXT1", "EXTRACT", saved_us=NOW - 400 * SECOND, lag_us=0, extra={"checkpoint_every_s": 300})
    assert extract(checkpoints=(save,)).lag_us == 0


def test_info_of_an_extract_on_a_log():
    """Headline, lag with its age, process id, place in the log."""
    assert view.info(extract())[1:] == [
        "EXTRACT    EXT1      Last Started 2023-11-14 22:03   Status RUNNING",
        "Checkpoint Lag       00:00:02 (updated 00:00:08 ago)",
        "Process ID           4711",
        "Log Read Checkpoint  PostgreSQL WAL",
        "                     2023-11-14 22:13:10  Seqno 7, RBA 900",
        "                     LSN 0/7000384",
    ]


def test_info_of_a_replicat_that_read_nothing():
    """First Record in place of a time; a never started group is Initialized."""
    facts = reader("REPLICAT", place=Place(0, 3702915), started_us=None)
    assert view.info(facts)[1:] == [
        "REPLICAT   REP1      Initialized   2023-11-14 21:13   Status STOPPED",
        "Checkpoint Lag       00:00:00 (updated 00:00:01 ago)",
        "Log Read Checkpoint  File ./dirdat/lt000000000",
        "                     First Record  RBA 3702915",
    ]


def test_an_abended_group_says_why():
    """The recorded message stands where the operator looks first."""
    lines = view.info(extract("ABENDED", pid=None, message="the slot is gone"))
    assert "Last Error           the slot is gone" in lines
    assert not any(line.startswith("Process ID") for line in lines)


def test_showch_of_an_extract_label_for_label():
    """GG-10 to GG-15: three read checkpoints, the write checkpoint, and the tail blocks, in GoldenGate's order."""
    text = "\n".join(view.showch(extract()))
    assert text == EXTRACT_SHOWCH


EXTRACT_SHOWCH = """

Current Checkpoint Detail:

Read Checkpoint #1

  PostgreSQL WAL

  Startup Checkpoint (starting position in the data source):
    Sequence #: 1
    RBA: 100
    Timestamp: 2023-11-14 22:13:10.000000
    LSN: 0/1000064

  Recovery Checkpoint (position of oldest unprocessed transaction in the data source):
    Sequence #: 7
    RBA: 500
    Timestamp: 2023-11-14 22:13:10.000000
    LSN: 0/70001F4

  Current Checkpoint (position of last record read in the data source):
    Sequence #: 7
    RBA: 900
    Timestamp: 2023-11-14 22:13:10.000000
    LSN: 0/7000384

Write Checkpoint #1

  GGS Log Trail

  Current Checkpoint (current write position):
    Sequence #: 2
    RBA: 2142224
    Timestamp: 2023-11-14 22:13:11.567638
    Extract Trail: ./dirdat/lt
    Seqno Length: 9
    Flip Seqno Length: No
    Trail Type: EXTTRAIL

Header:
  Version = 2
  Record Source = A
  Type = 4
  # Input Checkpoints = 1
  # Output Checkpoints = 1

File Information:
  Block Size = 400
  Max Blocks = 10
  Record Length = 400
  Current Offset = 0

Configuration:
  Data Source = 3
  Transaction Integrity = 1
  Task Type = 0

Status:
  Start Time = 2023-11-14 22:03:20
  Last Update Time = 2023-11-14 22:13:12
  Stop Status = A
  Last Result = 400
"""


def test_showch_of_a_replicat():
    """GG-13: Startup and Current on the trail, no Recovery, no Write block, the Database Checkpoint block."""
    lines = view.showch(reader("REPLICAT", place=Place(0, 3702915), recovery=Place(0, 4096)))
    block = lines.index("  Current Checkpoint (position of last record read in the data source):")
    assert lines[block + 1 : block + 6] == [
        "    Sequence #: 0",
        "    RBA: 3702915",
        "    Timestamp: Not Available",
        "    Extract Trail: ./dirdat/lt",
        "    Seqno Length: 9",
    ]
    assert not any("Recovery" in line or "Write Checkpoint" in line for line in lines)
    assert "  Transaction Integrity = -1" in lines
    assert "  Checkpoint table = gg.ckpt" in lines
    assert "  Key = 1926598335 (0x72d58ebf)" in lines
    assert "  Stop Status = G" in lines


def test_showch_of_a_pump_writes_a_remote_trail():
    """Data Source 0 with Transaction Integrity 1, Trail Type RMTTRAIL."""
    text = "\n".join(view.showch(reader("EXTRACT", place=Place(3, 4096, NOW))))
    assert "Trail Type: RMTTRAIL" in text
    assert "  Data Source = 0\n  Transaction Integrity = 1" in text


def test_showch_n_repeats_the_blocks():
    """Newest first, each numbered #1."""
    lines = view.showch(extract(saves=3), 2)
    assert lines.count("Read Checkpoint #1") == lines.count("Write Checkpoint #1") == 2
    assert lines.count("Header:") == 1


def test_showch_of_several_threads_shows_them():
    """A clustered log has a Read Checkpoint a thread, with its number."""
    place = Place(47, 68748800, NOW, "0.8440969", "/redo01.log", thread=1)
    read = ReadCheckpoint("Oracle RAC Redo Log", place, place, place)
    save = Checkpoint("EXT1", "EXTRACT", (read, read), (), NOW, NOW)
    lines = view.showch(extract(checkpoints=(save,)))
    assert "Read Checkpoint #2" in lines
    assert lines.count("    Thread #: 1") == 6
    assert "    SCN: 0.8440969" in lines
    assert "    Redo File: /redo01.log" in lines
    assert "  Type = 6" in lines


def test_the_headline_agrees_with_the_detail():
    """GG-16: Log Read Checkpoint is the Current checkpoint."""
    info, detail = view.info(extract()), view.showch(extract())
    current = detail.index("  Current Checkpoint (position of last record read in the data source):")
    assert info[-2].endswith("Seqno 7, RBA 900")
    assert detail[current + 1 : current + 3] == ["    Sequence #: 7", "    RBA: 900"]


def test_detail_lists_trails_and_files():
    """Seqno ends at column 56, RBA at 67, Max MB at 78, the type begins at 79."""
    lines = view.detail(extract(), [("Report file", "/h/dirrpt/EXT1.rpt")], "/h")
    row = next(line for line in lines if line.startswith("  ./dirdat/lt"))
    assert (row[:13], row[55:56], row[60:67], row[76:78], row[79:]) == (
        "  ./dirdat/lt",
        "2",
        "2142224",
        "50",
        "EXTTRAIL",
    )
    assert "Report file          /h/dirrpt/EXT1.rpt" in lines


def test_exttrail_labels_are_right_aligned():
    """Labels end before the colon; an unknown place is said."""
    lines = view.exttrail(extract(checkpoints=()).trails[0])
    assert lines[1] == "       Extract Trail: ./dirdat/lt"
    assert "               Seqno: UNKNOWN" in lines
    assert "           File Size: 50M" in lines


def test_lag_that_is_not_known():
    """UNKNOWN, never a zero; being at the end is said beside it."""
    assert view.lag({"lag_us": 4 * SECOND, "at_eof": False}) == ["Last record lag 4 seconds."]
    assert view.lag({"lag_us": None, "at_eof": True}) == [
        "Last record lag UNKNOWN.",
        "At EOF, no more records to process",
    ]
