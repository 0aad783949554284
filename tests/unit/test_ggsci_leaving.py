"""What an ALTER leaves out is said, asked and noted before the order is (whose shape test_ggsci_places has)."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from ggsci.commands.session import OperatorSession
from tests.support.homes import bad, good, make_home
from tests.support.replicat_trail import TrailFeed, table
from tests.support.trail_script import IDENTITY
from trails import checkpoint
from trails.checkpoint import Checkpoint, Place, ReadCheckpoint
from trails.fs import RealFs
from trails.hole import Hole
from trails.position import Position, TrailName
from trails.reader import BlockReader
from trails.record import Op
from trails.recovery import Mark
from trails.runtime.home import registration
from trails.runtime.home.home import Home
from trails.writer import TrailWriter

KV = table("s", "kv", "id v", "id")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """EXT1 on a log and REP1 on its trail, which holds transactions 1 to 3; REP1 stands behind the first."""
    made = make_home(tmp_path)
    feed = TrailFeed(RealFs(), TrailName.parse("./dirdat/lt", made.root))
    for _ in range(3):
        feed.tx((Op.INSERT, KV, ["1", "a"]))
    feed.close()
    good(made, "ADD EXTRACT ext1, TRANLOG, BEGIN NOW")
    good(made, "ADD EXTTRAIL ./dirdat/lt, EXTRACT ext1")
    good(made, "ADD REPLICAT rep1, EXTTRAIL ./dirdat/lt, CHECKPOINTTABLE gg.ckpt")
    place = borders(made)[0]
    stands = Place(place.seqno, place.rba, 1, f"{1:016d}")
    saved = Checkpoint("REP1", "REPLICAT", (ReadCheckpoint("GGS Log Trail", stands, stands),), saved_us=1)
    checkpoint.save(made.fs, made.checkpoint("REP1", "REPLICAT"), saved)
    return made


def borders(home: Home) -> list[Position]:
    """The places behind the trail's transactions."""
    reader, found = BlockReader(home.fs, TrailName.parse("./dirdat/lt", home.root)), []
    while (block := reader.read(payload=False)) is not None:
        found += [block.end] if block.header.transactions else []
    reader.close()
    return found


def log(home: Home) -> str:
    """The lines of ggserr.log but for those that repeat the command."""
    lines = Path(home.root, "ggserr.log").read_text().splitlines()
    return "\n".join(line for line in lines if "GGSCI command" not in line)


def number(home: Home, group: str) -> int:
    """Of the last ALTER that was noted."""
    return registration.load(home, group).alter_no


@pytest.mark.parametrize("order", ["BEGIN NOW", "LSN 9", "EXTSEQNO 7, EXTRBA 0"])
def test_a_hole_at_the_source_is_confirmed_and_noted(home: Home, order: str):
    """A lost slot's way on: where the trail ends, where it goes on, and that what lies between is lost."""
    said = bad(home, f"ALTER EXTRACT ext1, {order}")
    assert f"WARNING: EXT1 has captured up to {3:016d}. What commits between there and" in said
    assert "is lost to trail ./dirdat/lt. See docs/recovery.md#lost-slot." in said
    assert "End the command with ! to confirm it" in said
    assert number(home, "EXT1") == 0
    assert "TG-01811" not in log(home)
    good(home, f"ALTER EXTRACT ext1, {order}!")
    assert number(home, "EXT1") == 1
    assert "WARNING TG-01811" in log(home)
    assert f"ALTER EXTRACT EXT1: EXT1 has captured up to {3:016d}" in log(home)


def test_where_every_file_is_gone_it_leads_to_the_page_of_files(home: Home):
    """START leads there too; a lost slot's steps would leave the pump at its old place."""
    trail = TrailName.parse("./dirdat/lt", home.root)
    for seqno in trail.seqnos(os.listdir(trail.folder)):
        os.unlink(trail.path(seqno))
    said = bad(home, "ALTER EXTRACT ext1, BEGIN NOW")
    assert "EXT1 has captured up to an unknown place, as every file of its trail is gone." in said
    assert "See docs/recovery.md#missing-trail-file." in said


def test_a_person_is_asked(home: Home, monkeypatch: pytest.MonkeyPatch):
    """At a prompt the question is put, and anything but yes leaves all as it was."""
    session = OperatorSession(home.root, may_ask=True)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\ny\n"))
    assert "not done" in bad(home, "ALTER EXTRACT ext1, BEGIN NOW", session)
    assert number(home, "EXT1") == 0
    good(home, "ALTER EXTRACT ext1, BEGIN NOW", session)
    assert number(home, "EXT1") == 1


def test_what_leaves_nothing_out_is_not_asked(home: Home):
    """A CSN that the trail has, a new file, an Extract that has captured nothing."""
    good(home, "ALTER EXTRACT ext1, LSN 3")
    good(home, "ALTER EXTRACT ext1, ETROLLOVER")
    good(home, "ADD EXTRACT ext2, TRANLOG, BEGIN NOW")
    good(home, "ADD EXTTRAIL ./dirdat/ab, EXTRACT ext2")
    good(home, "ALTER EXTRACT ext2, BEGIN NOW")
    assert "TG-01811" not in log(home)


def test_what_a_reader_leaves_out_is_counted(home: Home):
    """From where its checkpoint stands; going back, or to where it stands, leaves nothing out."""
    one, _, three = borders(home)
    said = bad(home, f"ALTER REPLICAT rep1, EXTSEQNO {three.seqno}, EXTRBA {three.rba}")
    assert f"REP1 stands at {one}. 2 transactions with 2 changes between there and {three} are left out." in said
    assert "See docs/recovery.md#purged-place." in said
    good(home, f"ALTER REPLICAT rep1, EXTSEQNO {one.seqno}, EXTRBA {one.rba}")
    good(home, "ALTER REPLICAT rep1, EXTSEQNO 0, EXTRBA 0")
    assert "TG-01811" not in log(home)
    good(home, f"ALTER REPLICAT rep1, EXTSEQNO {three.seqno}, EXTRBA {three.rba}!")
    assert "2 transactions with 2 changes" in log(home)
    assert f"applied up to CSN {1:016d}" in bad(home, "ALTER REPLICAT rep1, CSN 3")
    assert "What was up to" in bad(home, "ALTER REPLICAT rep1, BEGIN NOW")


def test_a_hole_that_a_reader_passes_is_named(home: Home):
    """Also where no transaction is left out: the place may be just behind the hole."""
    name, made = TrailName.parse("./dirdat/lt", home.root), Hole("ALTER EXTRACT EXT1", "3", "9")
    last = borders(home)[-1]
    stands = Place(last.seqno, last.rba, 1, f"{3:016d}")
    saved = Checkpoint("REP1", "REPLICAT", (ReadCheckpoint("GGS Log Trail", stands, stands),), saved_us=1)
    checkpoint.save(home.fs, home.checkpoint("REP1", "REPLICAT"), saved)
    writer = TrailWriter.open(
        home.fs,
        name,
        IDENTITY,
        alter=1,
        start=Mark(f"{3:016d}", Position(0, 9)),
        hole=lambda _last: made,
        restart_open=True,
    )
    writer.close()
    there = writer.durable
    said = bad(home, f"ALTER REPLICAT rep1, EXTSEQNO {there.seqno}, EXTRBA {there.rba}")
    assert f"REP1 stands at {last}. A hole is passed: {made}. See" in said
