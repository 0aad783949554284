"""Where a group is told to begin: ALTER and ADD by CSN or time, START with ATCSN, AFTERCSN, SKIPTRANSACTION."""

from __future__ import annotations

import io
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from extract import kinds
from ggsci.commands.groups import order_start
from ggsci.commands.placing import _begins_inside
from ggsci.commands.session import OperatorSession
from ggsci.table.grammar import CommandError
from ggsci.table.table import GRAMMAR
from tests.support.homes import bad, good, make_home
from tests.support.replicat_trail import TrailFeed, table
from tests.support.trail_script import IDENTITY, MAX_BYTES, SCRIPT, WIDER, Tx, write_tx
from trails.errors import OperatorError
from trails.format import Indicator
from trails.fs import RealFs
from trails.plan import Planner
from trails.position import Position, TrailName
from trails.reader import BlockReader, last_header
from trails.record import Op
from trails.runtime.home import registration
from trails.runtime.home.home import Home
from trails.writer import TrailWriter

KV = table("s", "kv", "id", "id")
HOUR = 3_600_000_000


@pytest.fixture
def home(tmp_path) -> Home:
    """A Replicat on a trail with one transaction."""
    made = make_home(tmp_path / "home")
    feed = TrailFeed(RealFs(), TrailName.parse("./dirdat/rt", made.root))
    feed.tx((Op.INSERT, KV, ["1"]))
    feed.close()
    good(made, "ADD REPLICAT rep1, EXTTRAIL ./dirdat/rt, CHECKPOINTTABLE gg.ckpt")
    return made


def rep(home: Home) -> registration.Registration:
    return registration.load(home, "REP1")


def start(home: Home, line: str) -> str:
    """What START notes before it asks the Manager; returns what it says."""
    out = io.StringIO()
    order_start(OperatorSession(home.root, out=out), GRAMMAR.parse(line), rep(home))
    return out.getvalue()


def test_alter_by_csn_and_time(home: Home):
    """A CSN gets the trail's form; a time is of this machine's zone; each order has a number."""
    good(home, "ALTER REPLICAT rep1, CSN 42")
    assert (rep(home).alter, rep(home).alter_no) == ({"csn": "0000000000000042"}, 1)
    good(home, "ALTER REPLICAT rep1, BEGIN '2026-02-03 02:30:05'")
    moment = int(datetime(2026, 2, 3, 2, 30, 5).astimezone().timestamp() * 1_000_000)
    assert (rep(home).alter, rep(home).alter_no) == ({"begin_us": moment}, 2)
    good(home, "ALTER REPLICAT rep1, BEGIN NOW")
    assert rep(home).alter["begin_us"] > moment


def test_what_is_wrong_with_a_place(home: Home):
    """One message each; nothing is noted."""
    text = bad(home, "ALTER REPLICAT rep1, CSN 0/16B3748")
    assert "expected a CSN such as 0000000000000001, found '0/16B3748'" in text
    assert "BEGIN: expected NOW or a time as" in bad(home, "ALTER REPLICAT rep1, BEGIN tomorrow")
    assert "expected one place, found BEGIN and CSN" in bad(home, "ALTER REPLICAT rep1, BEGIN NOW, CSN 4")
    assert "found BEGIN and EXTRBA" in bad(home, "ALTER REPLICAT rep1, BEGIN NOW, EXTRBA 4")
    assert "exclude each other" in bad(home, "START REPLICAT rep1, ATCSN 4, SKIPTRANSACTION")
    assert "for one group at a time" in bad(home, "START REPLICAT *, ATCSN 4")
    with pytest.raises(CommandError, match="ATCSN: expected a CSN such as 0000000000000001"):
        start(home, "START REPLICAT rep1, ATCSN x/y")
    assert rep(home).alter_no == rep(home).start_no == 0


def test_start_notes_its_order_beside_alters(home: Home):
    """Numbered in one count, kept apart: an ALTER that waits is not lost by it."""
    good(home, "ALTER REPLICAT rep1, EXTSEQNO 0, EXTRBA 0")
    start(home, "START REPLICAT rep1, AFTERCSN 7")
    assert (rep(home).start, rep(home).start_no) == ({"after_csn": "0000000000000007"}, 2)
    assert (rep(home).alter, rep(home).alter_no) == ({"seqno": 0, "rba": 0}, 1)
    said = start(home, "START REPLICAT rep1, SKIPTRANSACTION")
    assert "The START before this one (after_csn 0000000000000007) was not obeyed yet; it is replaced" in said
    assert (rep(home).start, rep(home).start_no) == ({"skip": 1}, 3)
    assert "was not obeyed yet; now it is" in start(home, "START REPLICAT rep1")
    good(home, "ALTER REPLICAT rep1, CSN 3")
    assert rep(home).alter_no == 4
    assert start(home, "START REPLICAT rep1") == ""


def test_a_damaged_checkpoint_file_keeps_nobody_from_starting(home: Home):
    """Whether the last order was obeyed is only good for a notice: the process asks the target."""
    start(home, "START REPLICAT rep1, SKIPTRANSACTION")
    with open(home.checkpoint("REP1", "REPLICAT"), "wb") as file:
        file.write(b"damaged")
    assert start(home, "START REPLICAT rep1") == ""
    assert start(home, "START REPLICAT rep1, AFTERCSN 7") == ""
    assert rep(home).start_no == 2


def test_a_registration_without_start_orders_reads_as_before(home: Home):
    """Written by an earlier release."""
    path = home.registration("REP1")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    older = text.replace(',\n "start_no": 0,\n "start": {}', "")
    assert older != text
    with open(path, "w", encoding="utf-8") as file:
        file.write(older)
    assert rep(home) == replace(rep(home), start_no=0, start={})


# --- Extracts and pumps -----------------------------------------------------------------------------------------------


@pytest.fixture
def source(tmp_path) -> Home:
    """An Extract, and a pump on its trail of transactions committed at 1 to 8 microseconds, over several files."""
    made = make_home(tmp_path / "source")
    trail = TrailName.parse("./dirdat/lt", made.root)
    writer = TrailWriter.open(RealFs(), trail, IDENTITY, max_bytes=MAX_BYTES, restart_open=True)
    for tx in SCRIPT:
        write_tx(writer, tx)
    writer.sync()
    writer.close()
    good(made, "ADD EXTRACT ext1, TRANLOG, BEGIN NOW")
    good(made, "ADD EXTRACT pmp1, EXTTRAILSOURCE ./dirdat/lt")
    return made


def at(time_us: int) -> str:
    """A time as BEGIN takes it."""
    return datetime.fromtimestamp(time_us / 1_000_000, UTC).astimezone().isoformat(sep=" ")


def read_from(home: Home, group: str, trail: str = "lt") -> list[str]:
    """CSNs of the transactions that a reader finds where the group is sent."""
    order = registration.load(home, group).alter
    name = TrailName.parse(f"./dirdat/{trail}", home.root)
    reader = BlockReader(home.fs, name, Position(order["seqno"], order["rba"]))
    planner, found = Planner(reader), []
    while (unit := planner.next()) is not None:
        found += [unit.csn] if unit.blocks else []
    reader.close()
    return found


@pytest.mark.parametrize("first", range(1, 9))
def test_a_pump_begins_at_the_first_transaction_of_a_time(source: Home, first: int):
    """Also of a large one, whose blocks lie in several files; the place is told."""
    text = good(source, f"ALTER EXTRACT pmp1, BEGIN '{at(first)}'")
    assert "It begins at sequence #" in text
    assert read_from(source, "PMP1") == [tx.csn for tx in SCRIPT[first - 1 :]]


def _trail_of(home: Home, times: Sequence[int]) -> list[int]:
    """A trail, ./dirdat/lc, of transactions of these commit times, over many files; the number of each one's file."""
    trail = TrailName.parse("./dirdat/lc", home.root)
    writer = TrailWriter.open(RealFs(), trail, IDENTITY, max_bytes=MAX_BYTES, restart_open=True)
    writer.define([WIDER])
    files = []
    for number, time_us in enumerate(times, 1):
        tx = Tx(number, 6, table=WIDER)
        writer.append_data(
            Indicator.WHOLE, [WIDER.id], tx.records(), changes=6, transactions=1, origin=Position(0, number),
            csn=tx.csn, time_us=time_us,
        )  # fmt: skip
        files.append(writer.position.seqno)
    writer.sync()
    writer.close()
    good(home, "ADD EXTRACT pmp2, EXTTRAILSOURCE ./dirdat/lc")
    return files


@pytest.mark.parametrize("seed", range(5))
def test_a_time_is_found_in_the_trails_order_though_clocks_were_put_back(source: Home, seed: int):
    """By up to an hour, any number of times, inside files and between them: the first that committed then or later."""
    chance, now, times = random.Random(seed), 10**15, []
    for _ in range(60):
        now += chance.randrange(HOUR)
        times.append(now)
        if chance.random() < 0.2:
            now = max(times) - chance.randrange(HOUR)
    files = _trail_of(source, times)
    assert files[-1] > 10
    for wanted in chance.sample(times, 12):
        text = good(source, f"ALTER EXTRACT pmp2, BEGIN '{at(wanted)}'")
        first = next(n for n, time_us in enumerate(times) if time_us >= wanted)
        assert f"It begins at sequence # {files[first]}, RBA" in text
        assert read_from(source, "PMP2", "lc")[0] == Tx(first + 1, 0).csn


def test_files_that_lie_before_a_time_are_not_read(source: Home):
    """Of each only the header and the first commit: what is damaged behind that is nobody's matter here."""
    times = [10**15 + n * HOUR for n in range(40)]
    files = _trail_of(source, times)
    trail = TrailName.parse("./dirdat/lc", source.root)
    wanted = 30
    for seqno in range(files[wanted] - 2):
        last = max(n for n, file in enumerate(files) if file == seqno)
        assert last > min(n for n, file in enumerate(files) if file == seqno), "a file has more than one"
        with open(trail.path(seqno), "r+b") as file:
            file.seek(-500, os.SEEK_END)
            file.write(bytes(100))
    assert f"sequence # {files[wanted]}," in good(source, f"ALTER EXTRACT pmp2, BEGIN '{at(times[wanted])}'")


def test_a_pump_begins_behind_the_last_transaction(source: Home):
    """BEGIN NOW; for a trail that has no file yet, where it will begin."""
    good(source, "ALTER EXTRACT pmp1, BEGIN NOW, ETROLLOVER")
    assert read_from(source, "PMP1") == []
    assert registration.load(source, "PMP1").alter["etrollover"] is True
    good(source, "ADD EXTRACT pmp2, EXTTRAILSOURCE ./dirdat/lx, BEGIN NOW")
    assert registration.load(source, "PMP2").alter == {"seqno": 0, "rba": 0}


def test_a_pump_begins_in_a_trail_whose_first_files_were_purged(source: Home):
    """Also where its first file now begins inside a large transaction, of which the rest is nobody's any more."""
    trail = TrailName.parse("./dirdat/lt", source.root)
    seqnos = trail.seqnos(source.fs.listdir(trail.folder))
    inside = next(n for n in seqnos if _begins_inside(source, trail, n))
    for seqno in range(inside):
        source.fs.remove(trail.path(seqno))
    good(source, f"ALTER EXTRACT pmp1, BEGIN '{at(1)}'")
    assert read_from(source, "PMP1") == [tx.csn for tx in SCRIPT[3:]]
    for seqno in range(inside + 1, last_header(source.fs, trail).seqno + 1):
        source.fs.remove(trail.path(seqno))
    good(source, "ALTER EXTRACT pmp1, BEGIN NOW")


def test_a_pump_begins_before_a_transaction_that_is_still_open(source: Home):
    """Its first blocks are in the trail, over a file's border, its end is not: none of it is left out."""
    trail = TrailName.parse("./dirdat/lt", source.root)
    writer = TrailWriter.open(RealFs(), trail, IDENTITY, max_bytes=MAX_BYTES, restart_open=True)
    large = Tx(9, 80, pieces=8, table=WIDER)
    records = large.records()
    for n, indicator in enumerate([Indicator.BEGIN, *[Indicator.MIDDLE] * 6]):
        piece = records[n * 10 : n * 10 + 10]
        writer.append_data(
            indicator, [WIDER.id], piece, changes=len(piece), transactions=0, origin=writer.last.origin,
            csn=writer.last.csn, time_us=9,
        )  # fmt: skip
    writer.sync()
    good(source, "ALTER EXTRACT pmp1, BEGIN NOW")
    order = registration.load(source, "PMP1").alter
    assert order["seqno"] < last_header(source.fs, trail).seqno
    reader = BlockReader(source.fs, trail, Position(order["seqno"], order["rba"]))
    blocks = []
    while (block := reader.read(payload=False)) is not None:
        blocks.append(block.header.indicator)
    assert Indicator.BEGIN in blocks
    reader.close()
    writer.close()


def test_start_of_an_extract_at_a_csn(source: Home):
    """In the trail's form, beside an ALTER that waits; what the trail has is refused, and nothing is noted then."""
    good(source, "ADD EXTTRAIL ./dirdat/lt, EXTRACT ext1")
    good(source, "ALTER EXTRACT ext1, LSN 12!")

    def ordered(line: str) -> str:
        out = io.StringIO()
        command = GRAMMAR.parse(line)
        order_start(OperatorSession(source.root, out=out), command, registration.load(source, command.operand))
        return out.getvalue()

    for line in ("START EXTRACT ext1, ATCSN 8", "START EXTRACT ext1, AFTERCSN 7"):
        with pytest.raises(CommandError, match="has transactions up to 00000008 already, which would come twice"):
            ordered(line)
    with pytest.raises(CommandError, match="ATCSN: expected a CSN such as 0000"):
        ordered("START EXTRACT ext1, ATCSN 0/1")
    with pytest.raises(CommandError, match="SKIPTRANSACTION is for a Replicat"):
        ordered("START ER ext1, SKIPTRANSACTION")
    with pytest.raises(CommandError, match="a pump sends whole blocks"):
        ordered("START EXTRACT pmp1, ATCSN 12")
    assert registration.load(source, "EXT1").start_no == 0
    assert ordered("START EXTRACT ext1, ATCSN 9") == ""
    noted = registration.load(source, "EXT1")
    assert (noted.start, noted.start_no, noted.alter_no) == ({"at_csn": "00000009"}, 2, 1)
    assert "not obeyed yet; it is replaced" in ordered("START EXTRACT ext1, AFTERCSN 8")
    assert "(after_csn 00000008) was not obeyed yet; now it is" in ordered("START EXTRACT ext1")


def test_an_extract_is_sent_to_its_log(source: Home):
    """By LSN, by file and offset as SHOWCH shows them, or to the log's end at the next START."""
    for line, order in (
        ("LSN 0/16B3748", {"csn": "0/16B3748"}),
        ("EXTSEQNO 7, EXTRBA 900", {"seqno": 7, "rba": 900}),
        ("BEGIN NOW, ETROLLOVER", {"begin": "now", "etrollover": True}),
    ):
        good(source, f"ALTER EXTRACT ext1, {line}")
        assert registration.load(source, "EXT1").alter == order


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("ALTER EXTRACT ext1, BEGIN '2026-02-03 02:30:05'", "found by BEGIN at a time depends on its database"),
        ("ALTER EXTRACT ext1, LOGNUM 7", "found by LOGNUM depends on its database"),
        ("ALTER EXTRACT ext1, LOGPOS 7", "LOGPOS needs LOGNUM"),
        ("ALTER EXTRACT ext1, LOGNUM 7, GTID '0-1-2'", "found LOGNUM and GTID"),
        ("ALTER EXTRACT ext1, BEGIN soon", "expected NOW or a time"),
        ("ALTER EXTRACT pmp1, GTID '0-1-2'", "for an Extract on a database's log"),
        ("ALTER EXTRACT ext1, BEGIN NOW, LSN 0/1", "found BEGIN and LSN"),
        ("ADD EXTRACT ext2, TRANLOG, BEGIN 2026-01-01", "Use BEGIN NOW"),
        ("ADD EXTRACT ext2, TRANLOG, EXTRBA 4", "EXTRBA needs EXTSEQNO"),
        ("ALTER EXTRACT pmp1, BEGIN soon", "expected NOW or a time"),
        ("ALTER EXTRACT pmp1, BEGIN '2126-02-03 02:30:05'", "its last was committed at"),
        ("ALTER EXTRACT pmp1, BEGIN NOW, EXTSEQNO 0", "found BEGIN and EXTSEQNO"),
        ("ALTER EXTRACT pmp1, CSN 4", "for an Extract on a database's log"),
        ("ADD EXTRACT pmp2, EXTTRAILSOURCE ./dirdat/lx, BEGIN '2026-02-03'", "it has none yet"),
    ],
)
def test_a_place_that_can_not_be_had_is_refused_with_why(source: Home, line: str, told: str):
    """Nothing is noted then."""
    assert told in bad(source, line)
    assert [group.alter_no for group in registration.all(source)] == [0, 0]


@pytest.mark.parametrize(
    ("line", "order", "word"),
    [
        ("BEGIN '1970-01-02 00:00:00+00:00'", {"begin_us": 86_400_000_000}, "BEGIN at a time"),
        ("LOGNUM 7, LOGPOS 1548", {"lognum": 7, "logpos": 1548}, "LOGNUM"),
        ("GTID '0-1-26,7-1-1'", {"gtid": "0-1-26,7-1-1"}, "GTID"),
    ],
)
def test_places_that_only_a_binary_log_has(source: Home, line: str, order: dict[str, object], word: str):
    """The parameter file says whose log it is. With any other database they are refused by name, also by START."""
    path, text = Path(source.prm("ext1")), "EXTRACT ext1\nSOURCEDB {}\nEXTTRAIL ./dirdat/lt\nTABLE shop.*;\n"
    for url in ("postgresql://db/shop", "sqlite:////shop.db"):
        path.write_text(text.format(url))
        assert f"is not found by {word}. Use BEGIN NOW" in bad(source, f"ALTER EXTRACT ext1, {line}")
        with pytest.raises(OperatorError, match=f"is not found by {word}"):
            kinds.placed(kinds.of(url), order)
    for url in ("mysql://db/shop", "mariadb://db"):
        path.write_text(text.format(url))
        assert "START will look for that place" in good(source, f"ALTER EXTRACT ext1, {line}")
        assert registration.load(source, "EXT1").alter == order
    assert kinds.placed(kinds.of(url), {"lognum": 7, "logpos": 9, "etrollover": True}) == {
        "seqno": 7, "rba": 9, "etrollover": True
    }  # fmt: skip
