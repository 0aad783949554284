"""The prompt of logdump: it moves, filters and counts as GoldenGate's does, and an error leaves it usable."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.trail_script import IDENTITY, MOMENT, SCRIPT, TABLE, WIDER, trail_to_show, write_tx
from trails.crypt import MasterKey, Wallet, save_wallet
from trails.ddl import DdlChange, DdlColumn, TableShape
from trails.format import Indicator
from trails.fs import RealFs
from trails.position import Position, TrailName
from trails.record import Column, Op, TableDef
from trails.show.rows import DumpSource
from trails.show.shell import VERBS, Shell
from trails.show.verifying import verify
from trails.writer import TrailWriter

WIDE = TableDef("s", "wi\x1b[2Jde", (Column("id", "int8", "bigint", key=True), Column("b\r", "bytes", "bytea")))


@pytest.fixture
def trail(tmp_path):
    """Several files: the script, and a transaction of a table whose names would clear a screen."""
    return trail_to_show(str(tmp_path), WIDE, "77")


class Session:
    """A shell, and what it printed last."""

    def __init__(self, trail: TrailName) -> None:
        self.shell = Shell(RealFs(), io.StringIO())
        self("TIMEOFFSET GMT")
        self(f"OPEN {trail}")

    def __call__(self, *lines: str) -> str:
        self.shell.out = out = io.StringIO()
        for line in lines:
            self.shell.obey(line)
        assert all(text.isprintable() for text in out.getvalue().splitlines())
        return out.getvalue()


@pytest.fixture
def session(trail):
    """The first file is open."""
    return Session(trail)


def test_next_shows_records_one_by_one(session, trail):
    """First the definitions, then each record with its place in block and transaction."""
    assert f"Current LogTrail is {trail.path(0)}" in session("OPEN")
    assert "Metadata" in (text := session("N"))
    assert "Name: s.t" in text
    assert "Insert           Len    23 RBA" in session("next")
    text = session("GHDR ON", "NEXT")
    for label in ("Hdr-Ind", "BeforeAfter: A", "RecCount    : 1 of 3", "TransInd    : FIRST  (x00)", "IOType     : 2",
                  "LogCSN     : 00000002", "TransID     : 2", "AuditPos"):  # fmt: skip
        assert label in text
    assert "MIDDLE" in session("N")
    assert "LAST" in session("N")
    assert "322d 3276 7676" not in session("GHDR OFF", "DETAIL DATA", "HEX OFF", "N")


def test_details_of_an_image(session):
    """DETAIL ON: lengths; DATA: names and values; HEX: bytes, no more than RECLEN."""
    session("NEXTTRAIL ON", "SFTS 2023-01-01", "HEX OFF", "DETAIL ON")
    text = session("POS FIRST", "SFTS 2023-01-01")
    assert "Name: s.wi\\x1b[2Jde" in text
    assert "Column     1 (x0001), Len     2 (x0002)" in text
    text = session("DETAIL DATA", "GGSTOKEN ON", "N")
    assert "After  Image:" in text
    assert "Before Image:" in text
    assert "b\\r                             (missing)" in text
    assert "LOGCSN  : 00000009\nTRANID  : 77" in text
    text = session("DETAIL OFF", "HEX ON", "RECLEN 1", "N")
    assert " 31                                      | 1" in text


def test_positions_are_block_borders(session):
    """FIRST, LAST, EOF, an RBA; another RBA is refused with its neighbours; SFR and SFH find the way."""
    assert "Reading forward from RBA 4096" in session("POS FIRST")
    refused = session("POS 17")
    assert "ERROR: no block begins at RBA 17. Blocks begin at RBA 4096" in refused
    session("N 2")
    here = session("POS")
    text = session("SFH")
    assert "Scanned to RBA" in text
    assert "Scanned to RBA" in session("SFH PREV")
    rba = here.split("RBA ")[1].split()[0]
    assert f"RBA {rba}" in session(f"SFR {rba}")
    assert "End of what is durable" in session("POS EOF", "N")


def test_scans(session):
    """To a type, a time, the end of a transaction, the next one, the definitions; across files with NEXTTRAIL ON."""
    assert "Filter not matched: Delete was not found" in session("SFT Delete")
    session("POS FIRST", "NEXTTRAIL ON")
    assert "Delete           Len" in session("SFT delete")
    session(f"OPEN {session.shell.file.trail}", "N 3")
    assert "record 3 of 3" in session("SFET")
    assert "record 1 of" in session("SFNT")
    assert "Metadata" in session("SFMD")
    assert "2023/11/14 22:13:20.000.000 Insert" in session("SFTS 2023-11-14 22:13:20+00:00")


def test_count_stays_where_it_was(session):
    """Also inside a block: what NEXT shows behind it is the record that it would have shown."""
    session("N 3")
    text = session("COUNT DETAIL")
    assert "has 25 records" in text
    assert "Insert                          25" in text
    assert "s.t\n  Insert                        25" in text
    assert "record 2 of 3" in session("N")
    assert "has 0 records" in session("COUNT START 2020-01-01")


@pytest.mark.parametrize(
    ("condition", "records"),
    [
        ("INCLUDE RECTYPE Insert", 1), ("EXCLUDE RECTYPE Insert", 2), ("INCLUDE FILENAME s.wi*", 3),
        ("INCLUDE CSN 00000009", 3), ("INCLUDE CSN > 00000009", 0), ("TRANSID 77", 3), ("INCLUDE HEX 00ff", 1),
        ("INCLUDE STRING nothing", 0), ("INCLUDE TRANSIND 2", 1), ("INCLUDE STARTTIME 2023-01-01", 3),
        ("INCLUDE ENDTIME 2001-01-01", 0),
    ],
)  # fmt: skip
def test_filters(session, condition, records):
    """Each condition; two with ANY and ALL; CLEAR takes them away."""
    session("NEXTTRAIL ON", "SFTS 2023-01-01")
    at = session.shell.file.rba
    session(f"POS {at}")
    assert "1. " in session(f"FILTER {condition}")
    text = session("COUNT")
    assert f"has {records} records" in text
    session("FILTER MATCH ALL", "FILTER RECTYPE Truncate", f"POS {at}")
    assert "has 0 records" in session("COUNT")
    assert "there are none" in session("FILTER CLEAR")


def seen(session: Session, *, back: bool = False) -> list[tuple[object, ...]]:
    """What NEXT would show up to the end, with each record's place and transaction."""
    found = []
    while (item := session.shell.take(back=back)) is not None:
        values = item.row.record[2:] if item.row else None
        place = (session.shell.file.seqno, item.block.start.rba, item.number)
        found.append((item.type, item.csn, item.xid, item.time_us, item.transaction, values, place))
    return found


def test_reverse_shows_the_same_records_back_to_the_first(session):
    """Over all files, in and out of large transactions that other files begin, and each with its own transaction."""
    session("NEXTTRAIL ON")
    forward = seen(session)
    assert len({place[0] for *_, place in forward}) == 3
    assert len({(csn, xid) for kind, csn, xid, *_ in forward if kind == "Insert"}) == len(SCRIPT) + 1
    assert seen(session, back=True) == forward[::-1]
    assert seen(session) == forward


def test_pos_rev_and_pos_forward_turn_next_round(session):
    """NEXT, SKIP and the scans go back from where they stand; NEXT behind a turn shows the same record again."""
    first, second, third = (session("N").splitlines()[0] for _ in range(3))
    assert f"Reading in reverse from RBA {session.shell.file.rba}" in session("POS REV")
    assert "POS                REV" in session("ENV")
    assert [session("N").splitlines()[0] for _ in range(3)] == [third, second, first]
    assert "Begin of " in session("N")
    assert "Reading forward from RBA 4096" in session("POS FORWARD")
    assert session("N").splitlines()[0] == first
    assert "Reading in reverse" in session("POS EOF", "POS REV")
    assert "Metadata" in session("SFMD")
    assert "Filter not matched" in session("SFMD")
    session("NEXTTRAIL ON", "POS FORWARD", "SFTS 2023-01-01", "N 3")
    assert "2023/11/14 22:13:20.000.000" in session("POS REV", "SFTS 2030-01-01")
    assert "1970/01/01" in session("SFTS 1999-01-01")
    session("POS FIRST")
    assert "Insert" in session(f"SFR {session.shell.file.rba + 600}"), "RBAs are looked for from the file's begin"


def test_a_place_inside_a_large_transaction_knows_which(session):
    """POS into the middle of one: its CSN is not that of the transaction before it."""
    inside = [block.start.rba for block in session.shell.file.borders() if block.header.indicator is Indicator.MIDDLE]
    text = session(f"POS {inside[0]}", "GHDR ON", "N")
    assert "LogCSN     : 00000003" in text
    assert "TransID     : 3" in text


def test_damage_is_told_in_reverse_and_stays(session, trail):
    """The record behind it is still shown, and SFH PREV passes over it."""
    session("POS EOF", "POS REV", "N")
    starts = [block.start.rba for block in session.shell.file.borders()]
    rba = starts[-3]
    with open(trail.path(0), "r+b") as file:
        file.seek(rba + 120)
        byte = file.read(1)
        file.seek(rba + 120)
        file.write(bytes([byte[0] ^ 4]))
    text = session("POS EOF", "N 99")
    assert f"ERROR: {trail.path(0)}, RBA {rba}" in text
    assert f"RBA {rba}" in session("N")
    assert f"Scanned to RBA {starts[-3]}" in session("SFH PREV")
    assert "Scanned to RBA" in session("SFH PREV")


def write_a_changed_table(writer: TrailWriter) -> None:
    """One transaction: a row, a change of its table's shape, a row of the new shape, a TRUNCATE."""
    change = DdlChange("ALTER", *(TableShape("s", "t", (DdlColumn(1, name, "text", "text"),)) for name in "ab"), "x")
    begin, commit = (Op.BEGIN, "00000010", "80", MOMENT), (Op.COMMIT, 4)
    blocks = (
        (Indicator.BEGIN, TABLE, [begin, (Op.INSERT, 0, ["1", "\udc80"])]),
        (Indicator.MIDDLE, None, [(Op.DDL, change.to_wire())]),
        (Indicator.END, WIDER, [(Op.INSERT, 0, ["2", None, False]), (Op.TRUNCATE, [0], 1), commit]),
    )
    for indicator, table, records in blocks:
        tables = [table] if table else []
        writer.define(tables)
        last = indicator is Indicator.END
        writer.append_data(
            indicator, [one.id for one in tables], records, changes=2 if last else 1, transactions=int(last),
            origin=Position(0, 10 if last else 9), csn="00000010" if last else "00000009", time_us=MOMENT,
            ddl=table is None,
        )  # fmt: skip


def test_save_makes_a_trail_of_the_same_records(session, trail, tmp_path):
    """All of them, with CSN, transaction and time, and definitions; VERIFY finds no fault in it."""
    with contextlib.closing(TrailWriter.open(RealFs(), trail, IDENTITY, restart_open=True)) as writer:
        write_a_changed_table(writer)
        writer.append_place(Position(0, 11))
    session("NEXTTRAIL ON")
    rows = [one[:-1] for one in seen(session) if one[5] is not None]
    session(f"OPEN {trail}")
    assert f"Saved {len(rows)} records of {len(SCRIPT) + 2} transactions" in (text := session(f"SAVE {tmp_path}/zz"))
    assert "Left out, as they tell of the trail that they stood in: " in text
    assert "1 Place" in text
    saved = TrailName(str(tmp_path), "zz")
    said: list[str] = []
    assert verify(RealFs(), DumpSource(saved), said.append), said
    session("NEXTTRAIL ON", f"OPEN {saved}")
    assert [one[:-1] for one in seen(session) if one[5] is not None] == rows


def test_save_takes_what_next_would_show(session, tmp_path):
    """From here on, what FILTER lets through, up to so many records or bytes; parts of a transaction are one."""
    text = session("N 3", f"SAVE {tmp_path}/za 4 RECORDS")
    assert "Saved 4 records of 2 transactions" in text
    assert "record 3 of" in session("N"), "NEXT goes on behind the last one"
    assert "Saved 2 records of 1 transactions, 46 bytes" in session("POS FIRST", "N 2", f"SAVE {tmp_path}/zb 24 BYTES")
    session("NEXTTRAIL ON", "SFTS 2023-01-01", f"POS {session.shell.file.rba}", "FILTER INCLUDE RECTYPE Delete")
    text = session(f"SAVE {tmp_path}/zc000000000")
    assert "Saved 1 records of 1 transactions" in text
    text = session("FILTER CLEAR", f"OPEN {tmp_path}/zc", "SFT Delete", "GGSTOKEN ON", "FILEHEADER ON")
    assert "Name: s.wi\\x1b[2Jde" in text
    assert "Written by            : LOGDUMP of home home on " in text


def test_save_writes_over_nothing_but_what_it_made(session, trail, tmp_path):
    """Not even with `!`: a trail of an Extract stays as it is."""
    before = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path) if name.startswith("lt")}
    assert "this is the open trail" in session(f"SAVE {trail} !")
    session(f"SAVE {tmp_path}/zy 1 RECORDS", f"OPEN {tmp_path}/zy")
    assert f"{trail.path(0)} is there, written by EXT1. Name a trail that is not there" in session(f"SAVE {trail} !")
    assert "this is the open trail" in session(f"SAVE {tmp_path}/zy !")
    session(f"OPEN {trail}")
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    session(f"SAVE {tmp_path}/zz 1 RECORDS")
    assert f"written by LOGDUMP. SAVE {tmp_path}/zz ! replaces it" in session(f"SAVE {tmp_path}/zz")
    assert "Saved 2 records" in session("POS FIRST", f"SAVE {tmp_path}/zz ! 2 RECORDS")
    assert "has 3 records" in session(f"OPEN {tmp_path}/zz", "COUNT"), "definitions and two rows"


def test_what_is_saved_of_an_encrypted_trail_is_encrypted(tmp_path):
    """With the keys of the same home; without them nothing is written."""
    for folder in ("dirwlt", "dirdat", "dirtmp"):
        (tmp_path / folder).mkdir()
    save_wallet(RealFs(), str(tmp_path / "dirwlt"), Wallet("mine", (MasterKey(1, 1, bytes(32)),)))
    trail = TrailName(str(tmp_path / "dirdat"), "lt")
    with contextlib.closing(TrailWriter.open(RealFs(), trail, IDENTITY, restart_open=True, encrypt=True)) as writer:
        for tx in SCRIPT:
            write_tx(writer, tx)
    session = Session(trail)
    assert f"of {len(SCRIPT)} transactions" in session("NEXTTRAIL ON", f"SAVE {tmp_path}/dirtmp/zz")
    assert b"vvvv" not in (tmp_path / "dirtmp" / "zz000000000").read_bytes()
    assert "Encrypted             : AES256" in session("FILEHEADER ON", f"OPEN {tmp_path}/dirtmp/zz")
    assert "Insert" in session("SFT Insert")
    session(f"OPEN {trail}")
    os.remove(tmp_path / "dirwlt" / "masterkeys")
    assert "ERROR: " in session(f"SAVE {tmp_path}/dirtmp/zy")
    assert not any(name.startswith("zy") for name in os.listdir(tmp_path / "dirtmp"))


def test_transhist_lists_the_largest_transactions(session):
    """By bytes, the place stays."""
    text = session("TRANSHIST 2")
    assert "3 transactions; the largest:" in text
    assert [line.split()[0] for line in text.splitlines()[-3:-1]] == ["3", "2"]
    assert "Metadata" in session("N")


def test_files_obey_and_time(session, trail, tmp_path):
    """The open trail's files with the open one marked; a file of commands, which obeys no other; the zone's time."""
    assert f"* {trail.path(0)} " in (text := session("FILES"))
    assert f"  {trail.path(1)} " in text
    (tmp_path / "commands").write_text(f"N\n-- a comment\nOBEY {tmp_path}/commands\nEXIT\nN\n")
    text = session(f"OBEY {tmp_path}/commands")
    assert text.count("Metadata") == 1
    assert "a file that is obeyed obeys no other" in text
    assert session.shell.leave
    assert "Current time  20" in session("SHOW TIME")


def test_mistakes_and_damage_leave_it_usable(session, trail):
    """Each is told; the next command works; a damaged block is named, and SFH goes on behind it."""
    for line, told in (
        ("FROB", "unknown command"), ("OPEN ./nowhere/xx", "no such trail"), ("POS x", "expected a whole number"),
        ("FILTER FROB 1", "expected a condition"), ("DETAIL MAYBE", "expected ON, OFF, DATA"), ("NEXT 'a", "quot"),
        ("SFT Frob", "no type of record"), ("SFTS yesterday", "expected a time"), ("!99", "no such command"),
        ("SAVE", "expected file"), ("SAVE ./nowhere/zz 1", "expected file"), ("OBEY", "expected a file"),
        ("SAVE ./nowhere/zz", "no such folder"), ("SAVE ./nowhere/zz000000007", "begins with file 0"),
        ("SHOW FROB", "expected ENV"), ("TIMEOFFSET 99", "less than a day"), ("HELP FROB", "unknown command"),
        ("LOG TO /nonexistent/x", "No such file"),
    ):  # fmt: skip
        assert told in session(line), line
        assert session.shell.failed
    session("POS FIRST", "N 2")
    rba = session.shell.file.rba
    with open(trail.path(0), "r+b") as file:
        file.seek(rba + 120)
        byte = file.read(1)
        file.seek(rba + 120)
        file.write(bytes([byte[0] ^ 4]))
    text = session("N")
    assert f"ERROR: {trail.path(0)}, RBA {rba}" in text
    assert f"RBA {rba}" in session("N"), "it stays before the damage"
    assert "Scanned to RBA" in (text := session("SFH"))
    assert "Insert" in text


def test_no_file_is_open():
    """Every command that needs one says so."""
    shell = Shell(RealFs(), io.StringIO())
    for line in ("NEXT", "POS", "COUNT", "SFH", "NEXTTRAIL", "SFET"):
        shell.out = out = io.StringIO()
        shell.obey(line)
        assert "no trail file is open. OPEN ./dirdat/lt000000000" in out.getvalue()


def test_help_env_history_and_log(session, tmp_path):
    """HELP names every command; ENV every switch; what is shown is copied to LOG."""
    text = session("HELP")
    assert all(verb.name in text for verb in VERBS)
    page = (Path(__file__).parents[2] / "docs" / "logdump.md").read_text()
    assert all(f"| {verb.help.replace('|', chr(92) + '|')} |" in page for verb in VERBS)
    assert "HEX                OFF" in session("HEX OFF", "ENV")
    assert "SHOW" in session("HELP ENV")
    assert "Logging to" in session(f"LOG TO {tmp_path}/log", "N", "LOG STOP")
    assert "Metadata" in (tmp_path / "log").read_text()
    assert "HEX OFF" in session("HISTORY")
    assert "File " in session("FILEHEADER ON")
    before = session.shell.prompt
    assert "FILEHEADER ON" in session("!")
    assert session.shell.prompt != before


def test_a_log_is_added_to_no_other_file(session, trail, tmp_path):
    """LOG TO a trail's file, as tab completion offers: it would stand behind what is durable."""
    before = Path(trail.path(0)).read_bytes()
    assert "expected a new file, or one that LOG made" in session(f"LOG TO {trail.path(0)}", "N")
    assert Path(trail.path(0)).read_bytes() == before
    session(f"LOG TO {tmp_path}/log", "LOG STOP", f"LOG TO {tmp_path}/log", "LOG STOP")
    assert (tmp_path / "log").read_text().count("Logging to ") == 2


def test_commas_part_words_but_not_in_quotes(session):
    """A value may have one."""
    assert "INCLUDE STRING a,b" in session('FILTER INCLUDE, STRING "a,b"', "FILTER SHOW")


def test_commands_on_standard_input(trail):
    """Without a file and a terminal; exit code 2 if one failed, 0 otherwise; EXIT ends it."""

    def run(text: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "trails.show.dump"], input=text, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout

    code, text = run(f"OPEN {trail};\nN ;\nEXIT\nFROB\n")
    assert (code, "Metadata" in text, "frob" in text.lower()) == (0, True, False)
    assert run("FROB\n")[0] == 2
