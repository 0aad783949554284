"""Layouts of INFO ALL, INFO, SHOWCH, DETAIL, label for label; figures are shown only while they are true."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ggsci.facts import GroupFacts
from ggsci.views import view
from tests.support.zones import machine_in
from trails.checkpoint import Checkpoint, Place, ReadCheckpoint, WriteCheckpoint
from trails.runtime.home.registration import Registered, Registration, TrailReg
from trails.runtime.report.answers import LagAnswer

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
        "PostgreSQL WAL", wal(1, 100, "0/1000064"), wal(7, 900, "0/7000384"), wal(7, 500, "0/70001F4"), "LSN"
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


def test_B4_a_table_that_stays_behind_is_told_and_so_is_the_place_that_it_needs():
    """Below INFO ALL, in INFO and in SHOWCH, though the group has no error."""
    group = reader("REPLICAT", place=Place(3, 4096))
    (save,) = group.checkpoints
    behind = replace(save.reads[0], recovery=Place(1, 77))
    group = replace(group, checkpoints=(replace(save, reads=(behind,), extra={"tables_amiss": "s.t is paused"}),))
    assert "REPLICAT REP1: s.t is paused. INFO TABLES says why." in view.info_all("RUNNING", [group])
    assert "Tables               s.t is paused (INFO TABLES says why)" in view.info(group)
    shown = "\n".join(view.showch(group))
    assert "Recovery Checkpoint" in shown and "Sequence #: 1" in shown and "RBA: 77" in shown


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
def test_GG_19_a_lag_is_shown_only_while_it_is_true(facts, lag):
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


@pytest.mark.parametrize("status", ["RUNNING", "STOPPED", "ABENDED"])
def test_GG_14_the_headline_of_every_state_and_thread(status):
    """Group, start, status; the lag with its age; the log's file or name, and time and place of each thread."""
    assert view.info(extract(status, pid=None))[1:] == [
        f"EXTRACT    EXT1      Last Started 2023-11-14 22:03   Status {status}",
        "Checkpoint Lag       00:00:02 (updated 00:00:08 ago)",
        "Log Read Checkpoint  PostgreSQL WAL",
        "                     2023-11-14 22:13:10  Seqno 7, RBA 900",
        "                     LSN 0/7000384",
    ]
    lines = view.info(extract(status, pid=None, checkpoints=(two_threads(),)))
    assert lines[3:] == [
        "Log Read Checkpoint  Oracle RAC Redo Log",
        "                     2023-11-14 22:13:22  Thread 1, Seqno 47, RBA 68748801",
        "                     SCN 0.8440968",
        "Log Read Checkpoint  Oracle RAC Redo Log",
        "                     2023-11-14 22:13:25  Thread 2, Seqno 47, RBA 68748804",
        "                     SCN 0.8440971",
    ]
    assert view.info(reader("REPLICAT", place=Place(12, 4096, NOW), status=status))[2:5] == [
        "Checkpoint Lag       00:00:00 (updated 00:00:01 ago)",
        "Log Read Checkpoint  File ./dirdat/lt000000012",
        "                     2023-11-14 22:13:20.000000  RBA 4096",
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


def test_GG_12_GG_15_showch_of_an_extract_label_for_label():
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


def test_GG_13_showch_of_a_replicat():
    """Startup and Current on the trail, no Recovery, no Write block; INFO says where the First Record is."""
    facts = reader("REPLICAT", place=Place(0, 3702915), recovery=Place(0, 4096))
    lines = view.showch(facts)
    block = lines.index("  Current Checkpoint (position of last record read in the data source):")
    startup = lines.index("  Startup Checkpoint (starting position in the data source):")
    for begin in (startup, block):
        assert lines[begin + 1 : begin + 6] == [
            "    Sequence #: 0",
            "    RBA: 3702915",
            "    Timestamp: Not Available",
            "    Extract Trail: ./dirdat/lt",
            "    Seqno Length: 9",
        ]
    assert sum(" Checkpoint (" in line for line in lines) == 2
    assert view.info(facts)[-1] == "                     First Record  RBA 3702915"
    assert "    Timestamp: 2023-11-14 22:13:20.000000" in view.showch(reader("REPLICAT", place=Place(0, 4096, NOW)))
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


def two_threads() -> Checkpoint:
    """Of a clustered log: places of thread 1 and of thread 2, each later than the one before."""

    def place(thread: int, n: int) -> Place:
        time_us = NOW + (n + 1) * SECOND + n
        return Place(47, 68748800 + n, time_us, f"0.{8440967 + n}", f"+LOG/{thread}.redo", thread)

    reads = tuple(
        ReadCheckpoint("Oracle RAC Redo Log", place(thread, n - 1), place(thread, n + 1), place(thread, n), "SCN")
        for thread, n in ((1, 0), (2, 3))
    )
    return Checkpoint("EXT1", "EXTRACT", reads, (), NOW, NOW, "A", "A", 0)


def test_GG_10_GG_11_showch_has_three_checkpoints_of_each_thread_with_all_their_fields():
    """Startup, Recovery, Current; a log of one thread shows no number of it."""
    lines = view.showch(extract(checkpoints=(two_threads(),)))
    assert lines.count("Read Checkpoint #1") == lines.count("Read Checkpoint #2") == 1
    second = lines[lines.index("Read Checkpoint #2") : lines.index("Header:")]
    assert [line for line in second if line] == [
        "Read Checkpoint #2",
        "  Oracle RAC Redo Log",
        *_checkpoint("Startup Checkpoint (starting position in the data source)", 2, "23.000002", 2, 69),
        *_checkpoint(
            "Recovery Checkpoint (position of oldest unprocessed transaction in the data source)", 3, "24.000003", 2, 70
        ),
        *_checkpoint("Current Checkpoint (position of last record read in the data source)", 4, "25.000004", 2, 71),
    ]
    assert "  Type = 6" in lines
    assert not any("Thread #" in line for line in view.showch(extract()))


def _checkpoint(title: str, rba: int, seconds: str, thread: int, scn: int) -> list[str]:
    return [
        f"  {title}:",
        f"    Thread #: {thread}",
        "    Sequence #: 47",
        f"    RBA: {68748800 + rba}",
        f"    Timestamp: 2023-11-14 22:13:{seconds}",
        f"    SCN: 0.84409{scn}",
        f"    Redo File: +LOG/{thread}.redo",
    ]


def test_GG_16_the_headline_agrees_with_the_detail():
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
    assert view.lag(LagAnswer(4 * SECOND)) == ["Last record lag 4 seconds."]
    assert view.lag(LagAnswer(None, at_eof=True)) == [
        "Last record lag UNKNOWN.",
        "At EOF, no more records to process",
    ]


def test_an_added_group_shows_the_commands_own_record():
    """GG-10: Record Source U, Last Result 0; a pump stands at the First Record, an Extract where its slot was made."""
    facts = reader("EXTRACT", place=Place(0, 0), checkpoints=(), started_us=None)
    assert view.info(facts)[-1] == "                     First Record  RBA 0"
    lines = view.showch(facts)
    assert {"  Record Source = U", "  Last Result = 0", "  Stop Status = G"} <= set(lines)
    begins = Place(1, 100, NOW, "0/1000064", "000000010000000000000001")
    noted = Registered(title="PostgreSQL WAL", place=begins, csn_label="LSN")
    added = replace(extract().registration, registered=noted)
    lines = view.showch(extract(checkpoints=(), started_us=None, registration=added))
    assert {"    Timestamp: 2023-11-14 22:13:20.000000", "    LSN: 0/1000064"} <= set(lines)
    assert "    Redo File: 000000010000000000000001" in lines


def test_a_run_that_saved_nothing_is_shown_as_it_ended():
    """GG-10: ABENDED is Stop Status A, also where the last record is that of a run before, which had stopped."""
    facts = reader("REPLICAT", place=Place(3, 500, NOW), status="ABENDED", started_us=NOW)
    assert {"  Start Time = 2023-11-14 22:13:20", "  Stop Status = A"} <= set(view.showch(facts))
    assert "  Stop Status = G" in view.showch(replace(facts, status="STOPPED"))
    first = reader("REPLICAT", place=Place(0, 0), checkpoints=(), status="ABENDED", started_us=NOW)
    assert {"  Stop Status = A", "  Last Result = 400"} <= set(view.showch(first))


def test_an_altered_group_shows_where_it_will_begin():
    """Until a run has obeyed it; what it ran before stays in the history and in SHOWCH n."""
    altered = replace(reader("EXTRACT", place=Place(3, 500)).registration, alter={"seqno": 2, "rba": 4096}, alter_no=7)
    facts = reader("EXTRACT", place=Place(3, 500, NOW), registration=altered)
    assert view.info(facts)[-2:] == [
        "Log Read Checkpoint  File ./dirdat/lt000000002",
        "                     First Record  RBA 4096",
    ]
    assert {"  Record Source = U", "  Last Result = 400", "    RBA: 4096"} <= set(view.showch(facts))
    assert "    RBA: 500" in view.showch(facts, 2)
    obeyed = replace(facts.checkpoints[0], extra={"alter_no": 7})
    assert "    RBA: 500" in view.showch(replace(facts, checkpoints=(obeyed,)))
    assert facts.to_json()["checkpoints"][0]["record_source"] == "U"


def test_runs_begin_where_they_began():
    """Newest first; the last line is that of ADD, the only one that is Initialized where the place has a time."""
    lines = view.detail(extract(), [], "/h")
    at = next(n for n, line in enumerate(lines) if line.startswith("  Extract Source"))
    assert lines[at + 2 : at + 4] == [
        f"  {'PostgreSQL WAL':40}2023-11-14 22:13  2023-11-14 22:13",
        f"  {'Not Available':40}* Initialized *   2023-11-14 21:13",
    ]
    lines = view.detail(reader("REPLICAT", place=Place(4, 4096, NOW)), [], "/h")
    assert f"  {'./dirdat/lt000000000':40}* Initialized *   First Record" in lines
