"""logdump: shows trails and checkpoint files from nothing but the files, and names all damage."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest

from tests.support.trail_script import MOMENT, SCRIPT, TABLE, trail_to_show
from trails import checkpoint
from trails.checkpoint import Checkpoint, Place, ReadCheckpoint, WriteCheckpoint
from trails.fs import RealFs
from trails.position import TrailName
from trails.record import Column, Op, TableDef
from trails.show.dump import main

WIDE = TableDef("s", "wide", (Column("id", "int8", "bigint", key=True), Column("b", "bytes", "bytea")))


@pytest.fixture
def trail(tmp_path):
    """The scripted trail with a second table at its end, in several files."""
    return trail_to_show(str(tmp_path), WIDE, "9", (Op.TRUNCATE, [0, 1], 1))


def dump(capsys, *words: str, code: int = 0) -> str:
    """What logdump prints."""
    assert main(list(words)) == code
    out = capsys.readouterr()
    return out.out + out.err


def test_headers_tell_what_stood_before_each_file(trail, capsys):
    """Trail id, writer, source, last CSN and origin, durable end."""
    text = dump(capsys, str(trail), "--headers")
    assert text.count("File /") == len(os.listdir(trail.folder)) - 2  # .lt.lock and .lt.last are no trail files
    for label in ("Trail id", "Written by", "Last CSN before", "Last origin before", "Durable end", "Transaction open"):
        assert label in text
    assert "kind=postgresql" in text


def test_blocks_are_one_line_each(trail, capsys):
    """Position, kind, indicator, size, counts, origin, time, CSN."""
    lines = dump(capsys, str(trail)).splitlines()
    assert lines[0].split()[:3] == ["Position", "Kind", "Indicator"]
    assert any(line.split()[1:3] == ["METADATA", "NONE"] for line in lines)
    assert [line.split()[2] for line in lines if "DATA  " in line and "META" not in line][:3] == [
        "WHOLE",
        "WHOLE",
        "BEGIN",
    ]
    assert len(dump(capsys, str(trail), "--limit", "2").splitlines()) == 3


def test_records_show_every_kind_of_value(trail, capsys):
    """Text, binary, NULL and missing are told apart; keys are marked."""
    text = dump(capsys, str(trail), "--csn", "00000009")
    assert "BEGIN     CSN 00000009  xid 9" in text
    assert "COMMIT    CSN 00000009  4 changes" in text
    for value in ("0x00ff", "NULL", "(missing)", "'1'", "id (key)"):
        assert value in text
    assert "TRUNCATE  s.wide, s.t  flags 1" in text
    assert "00000008" not in text


def test_search_by_table_time_and_position(trail, capsys):
    """Each alone, and together."""
    by_table = dump(capsys, str(trail), "--table", "s.w*")
    assert by_table.count("INSERT    s.wide") == 1
    assert "INSERT    s.t" not in by_table
    assert "TRUNCATE" in by_table
    since = dump(capsys, str(trail), "--records", "--since", "2001-01-01")
    assert since.count("BEGIN") == 1
    until = dump(capsys, str(trail), "--records", "--until", "2001-01-01")
    assert until.count("BEGIN") == len(SCRIPT)
    begin = dump(capsys, str(trail), "--blocks", "--from", "1/0", "--to", "2/0").splitlines()[1:]
    assert {line.split("/")[0] for line in begin} == {"1"}
    one_file = dump(capsys, trail.path(1), "--blocks").splitlines()[1:]
    assert one_file == begin


def test_count_adds_up(trail, capsys):
    """Totals from headers, changes by table from records."""
    text = dump(capsys, str(trail), "--count")
    rows = sum(tx.rows for tx in SCRIPT)
    assert f"Transactions   {len(SCRIPT) + 1:>14}" in text
    assert f"Changes        {rows + 4:>14}" in text
    table = next(line for line in text.splitlines() if line.startswith("s.t "))
    assert table.split() == ["s.t", str(rows), "0", "0", "1", "0"]
    wide = next(line for line in text.splitlines() if line.startswith("s.wide"))
    assert wide.split() == ["s.wide", "1", "1", "1", "1", "0"]


def test_verify_of_a_good_trail(trail, capsys):
    """Every file named, exit code 0."""
    text = dump(capsys, str(trail), "--verify")
    assert "All is well." in text
    assert text.count(" blocks, ") == len(os.listdir(trail.folder)) - 2


def flip(path: str, at: int) -> None:
    """Change one byte."""
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def _payload(trail: TrailName) -> None:
    flip(trail.path(0), 4096 + 100)


def _header(trail: TrailName) -> None:
    flip(trail.path(1), 60)


def _block_header(trail: TrailName) -> None:
    flip(trail.path(2), 4096 + 20)


def _cut(trail: TrailName) -> None:
    os.truncate(trail.path(1), 4200)


def _missing(trail: TrailName) -> None:
    os.unlink(trail.path(1))


def _renamed(trail: TrailName) -> None:
    os.replace(trail.path(0), trail.path(1))


def _foreign(trail: TrailName) -> None:
    with open(trail.path(1), "wb") as file:
        file.write(b"no trail file at all" * 500)


@pytest.mark.parametrize(
    ("damage", "path", "told"),
    [
        (_payload, 0, "RBA 4096: damaged: expected CRC"),
        (_header, 1, "RBA 0: damaged: expected CRC"),
        (_block_header, 2, "RBA 4096: damaged: expected CRC"),
        (_cut, 1, "durable bytes, found 4200"),
        (_missing, 1, "expected this file, found none"),
        (_renamed, 1, "the file was renamed or copied"),
        (_foreign, 1, "not a trail file"),
    ],
)
def test_verify_names_every_damage(trail, capsys, damage, path, told):
    """File, RBA, expected and found; exit code 2; the other files are checked all the same."""
    damage(trail)
    text = dump(capsys, str(trail), "--verify", code=2)
    assert trail.path(path) in text
    assert told in text
    assert f"{trail.path(0 if path == 2 else 2)}: " in text
    assert "There is damage." in text


def test_verify_finds_a_file_without_its_end(trail, tmp_path, capsys):
    """CW-09: a file before the last that END doesn't close was cut, though its CRCs hold."""
    from trails.format import DURABLE_OFFSET, make_durable_end
    from trails.segment import open_segment

    segment = open_segment(RealFs(), trail, 0, write=True)
    end = segment.read_durable_end() - 96  # without the END block
    segment.file.write_at(DURABLE_OFFSET, make_durable_end(end, segment.header.seed))
    segment.close()
    assert f"RBA {end}: damaged: expected an END block" in dump(capsys, str(trail), "--verify", code=2)


def test_showing_stops_at_damage(trail, capsys):
    """Never past it, and never silently."""
    _payload(trail)
    assert "damaged" in dump(capsys, str(trail), "--records", code=2)


def test_a_checkpoint_file_is_shown(tmp_path, capsys):
    """Every save, with what SHOWCH shows."""
    place = Place(3, 4096, MOMENT, "0/1", "./dirdat/lt")
    save = Checkpoint(
        "PMP1", "EXTRACT", (ReadCheckpoint("GGS Log Trail", place, place),),
        (WriteCheckpoint(1, 2, MOMENT, "./dirdat/rt", "RMTTRAIL"),), MOMENT, MOMENT, extra={"alter_no": 2},
    )  # fmt: skip
    path = str(tmp_path / "PMP1.cpe")
    for _ in range(2):
        checkpoint.save(RealFs(), path, save)
    text = dump(capsys, path)
    assert "Checkpoint #2 of EXTRACT PMP1" in text
    assert "current   3/4096" in text
    assert "Write RMTTRAIL ./dirdat/rt  1/2" in text
    assert "alter_no: 2" in text
    flip(path, 30)
    assert "damaged checkpoint file" in dump(capsys, path, code=2)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["/nowhere/lt"], "no such trail"),
        (["/nowhere/EXT1.cpe"], "no such file"),
        (["/nowhere/trail"], "two-character prefix"),
        (["lt", "--since", "yesterday"], "expected a time such as"),
        (["lt", "--from", "x"], "expected seqno/rba"),
        (["lt", "--limit", "0"], "expected a number from 1"),
        (["lt", "--count", "--verify"], "not allowed with"),
    ],
)
def test_a_wrong_request_is_one_clear_line(words, told, capsys):
    """Exit code 2, no traceback."""
    text = dump(capsys, *words, code=2)
    assert told in text
    assert text.startswith("ERROR: ")


def test_it_runs_as_a_program(trail):
    """From any folder, and a reader that goes away early is no error."""
    command = f"{shlex.quote(sys.executable)} -P -m trails.show.dump {trail} --records | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False, cwd=trail.folder)
    assert done.stdout.startswith("0/")
    assert done.stderr == ""
    assert TABLE.full_name == "s.t"
