"""What the pages show: every figure of a stage, what is unknown as such, texts as ggsci prints them, trails paged."""

from __future__ import annotations

import os
import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from ggsci.web import details, drawing, guard, trailpages, words
from ggsci.web.app import THREADS
from ggsci.web.params import WebParams
from ggsci.web.tokens import ensure_token
from tests.support.homes import good, make_home, write
from tests.support.trail_script import IDENTITY, SCRIPT, write_tx
from tests.support.web import Site, pipeline, stage
from trails import checkpoint
from trails.checkpoint import Checkpoint, Place, ReadCheckpoint
from trails.crypt import KEY_SIZE, MasterKey, Wallet, save_wallet, wallet_path
from trails.format import Indicator
from trails.fs import RealFs
from trails.position import Position, TrailName
from trails.record import Column, Op, TableDef
from trails.writer import TrailWriter

SECRET = "xyzzy-Secret-42"


@pytest.fixture
def home(tmp_path):
    """A home with three groups, a trail of several files, a report, parameters with a password."""
    made = make_home(tmp_path / "home")
    for line in (
        "ADD EXTRACT ext1, TRANLOG", "ADD EXTTRAIL ./dirdat/lt, EXTRACT ext1",
        "ADD EXTRACT pmp1, EXTTRAILSOURCE ./dirdat/lt", "ADD REPLICAT rep1, EXTTRAIL ./dirdat/lt, CHECKPOINTTABLE a.b",
    ):  # fmt: skip
        good(made, line)
    write(made, "mgr", "PORT 7809\nWEBPORT 7890\n")
    write(
        made, "ext1", f"EXTRACT ext1\nSOURCEDB postgresql://gg:{SECRET}@h/db\nEXTTRAIL ./dirdat/lt\nTABLE public.*;\n"
    )
    writer = TrailWriter.open(
        RealFs(), TrailName.parse("./dirdat/lt", made.root), IDENTITY, max_bytes=5600, restart_open=True
    )
    for tx in SCRIPT:
        write_tx(writer, tx)
    writer.sync()
    writer.close()
    place = Place(1, 4230)
    saved = Checkpoint("PMP1", "EXTRACT", (ReadCheckpoint("GGS Log Trail", place, place),))
    checkpoint.save(made.fs, made.checkpoint("PMP1", "EXTRACT"), saved)
    return made


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """No search stops because this machine stands still for a while."""
    monkeypatch.setattr(trailpages, "SECONDS", 60.0)


@pytest.fixture
def site(home):
    fed = {"home_id": home.id, "fed_by": f"{home.id}/EXT1"}
    return Site(home, [pipeline(stage(home), stage(home, "PMP1", "PUMP", reads="./dirdat/lt", extra=fed))])


def shown(site, url, status=200):
    """A page behind the token."""
    got = site.get(url, {"authorization": f"Bearer {ensure_token(site.home)}"})
    assert got.status == status, got.text
    return got.text


def plain(html):
    """What a person reads."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))


# --- the overview -----------------------------------------------------------------------------------------------------


def test_a_pipeline_is_drawn_with_every_stage(site):
    """State, lag, rate, backlog, busy of each; where a click leads."""
    html = shown(site, "/")
    text = plain(html)
    for word in ("EXT1 → PMP1", "RUNNING", "0.4 s", "1 234 changes/s", "2.00 KB", "50 %", "PostgreSQL shop"):
        assert word in text
    assert 'href="/stage/home/EXT1"' in html
    assert 'href="/trail/home/lt"' in html
    assert 'data-keys="home/EXT1 home/PMP1"' in html
    assert "<noscript><meta http-equiv" in html, "without JavaScript it loads itself anew"
    assert "style=" not in html, "the policy forbids inline styles"
    assert "<script>" not in html, "and inline scripts"


def test_gg_19_what_is_unknown_says_so(home):
    """UNKNOWN with the age of the last truth and the reason; never a zero."""
    blind = stage(
        home, lag_us=None, lag_age_us=190_000_000, lag_why="it does not answer", ops_s=None, bytes_s=None, busy=None,
        backlog_bytes=None,
    )  # fmt: skip
    text = plain(shown(Site(home, [pipeline(blind)]), "/"))
    assert "last known 3 min 10 s ago; it does not answer" in text
    assert text.count("UNKNOWN") >= 5
    assert "0 B" not in text
    assert (
        plain(shown(Site(home, [pipeline(replace(blind, lag_us=-5, lag_why="clocks disagree"))]), "/")).count("UNKNOWN")
        >= 5
    )


def test_a_process_that_does_not_answer_never_looks_healthy(home):
    """Its process lives, so it is RUNNING; whether it does anything nobody knows, and so it is drawn and counted."""
    hung = stage(home, lag_us=None, lag_why="it runs, but does not tell", extra={"unanswered": True})
    html = shown(Site(home, [pipeline(hung)]), "/")
    assert 'class="stage unknown' in html
    assert "1 UNKNOWN" in plain(html)


def test_of_a_slot_that_was_not_looked_at_nothing_is_known(home):
    """No headroom means no limit only where the limit was looked at."""
    for limit, told in (({"wal_limit_bytes": None}, "no limit"), ({}, "UNKNOWN")):
        extra = {"home_id": home.id, "wal_status": "reserved", "wal_headroom_bytes": None, **limit}
        rows = dict(drawing.figures(stage(home, extra=extra)))
        assert rows["WAL headroom"] == told


def test_names_from_elsewhere_are_text(home):
    """A group, a database, a message with HTML in it is shown, never run."""
    evil = "<script>alert(1)</script>\"'&"
    found = pipeline(
        stage(home, evil, lag_us=None, lag_why=evil, why=evil, reads=evil, writes=(evil,), extra={"x": evil})
    )
    html = shown(Site(home, [replace(found, source=evil, target=evil)]), "/")
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(1)" in html


def test_a_home_without_groups_says_what_to_do(tmp_path):
    assert "No pipeline yet" in plain(Site(make_home(tmp_path / "empty")).get("/").text)


def test_figures_are_readable():
    lengths = (0, 1500, 40_000, 400_000, 12_000_000, 185_000_000, 7_800_000_000, 273_600_000_000)
    assert [words.duration(us) for us in lengths] == [
        "0.0 s", "1.5 ms", "40 ms", "0.4 s", "12 s", "3 min 05 s", "2 h 10 min", "3 d 4 h",
    ]  # fmt: skip
    assert [words.size(n) for n in (0, 1023, 1024, 20480, 1 << 30, 5 << 50)] == [
        "0 B", "1023 B", "1.00 KB", "20.0 KB", "1.00 GB", "5.00 PB",
    ]  # fmt: skip
    assert words.duration(None) == words.duration(-1) == words.size(None) == words.number(None) == "UNKNOWN"
    assert words.figure("clock_offset_us", -1500) == "-1.5 ms"
    assert words.figure("newest_us", 1_770_000_000_000_000).startswith("2026-")


# --- texts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("/stage/home/EXT1", "EXTRACT EXT1 Initialized"),
        ("/stage/home/ext1?tab=showch", "No checkpoint has been saved yet"),
        ("/stage/home/PMP1?tab=showch", "Sequence #: 1"),
        ("/stage/home/EXT1?tab=stats", "is not currently running"),
        ("/stage/home/EXT1?tab=params", "EXTTRAIL ./dirdat/lt"),
        ("/stage/home/EXT1?tab=report", "No such file"),
        ("/stage/home/REP1?tab=discard", "No such file"),
        ("/home/home", "Program Status Group"),
        ("/home/home?tab=params", "WEBPORT 7890"),
        ("/home/home?tab=children", "the Manager is not running"),
    ],
)
def test_texts_are_those_of_ggsci(site, url, told):
    assert told in plain(shown(site, url))


def test_looking_leaves_no_line_in_the_event_log(site, home):
    before = Path(home.ggserr).read_text()
    for url in ("/home/home", "/stage/home/EXT1", "/stage/home/EXT1?tab=showch", "/stage/home/EXT1?tab=stats"):
        shown(site, url)
    assert Path(home.ggserr).read_text() == before


def test_passwords_are_masked(site, home):
    """In parameters, reports and the event log."""
    Path(home.report("EXT1")).write_text(f"connecting to postgresql://gg:{SECRET}@h/db\npassword={SECRET}\n")
    with open(home.ggserr, "a") as log:
        log.write(f"password={SECRET}\n")
    for url in ("/stage/home/EXT1?tab=params", "/stage/home/EXT1?tab=report", "/home/home?tab=log", "/stage/home/EXT1"):
        html = shown(site, url)
        assert SECRET not in html, url
    assert "********" in shown(site, "/stage/home/EXT1?tab=params")


def test_long_reports_are_shown_a_piece_at_a_time(site, home):
    """From the end; Earlier leads back to the first line, no line is missing or doubled."""
    lines = [f"line {n} of the report" for n in range(20_000)]
    Path(home.report("EXT1")).write_text("\n".join(lines) + "\n")
    Path(home.report("EXT1", 3)).write_text("an older run\n")
    seen, url = [], "/stage/home/EXT1?tab=report"
    assert "an older run" in shown(site, f"{url}&age=3")
    for _ in range(20):
        html = shown(site, url)
        seen = re.findall(r"line \d+ of the report", html) + seen
        earlier = re.search(r'href="([^"]*)">Earlier', html)
        if earlier is None:
            break
        url = earlier[1].replace("&amp;", "&")
    assert seen == lines
    assert len(details.piece(home, home.report("EXT1"), None).text) <= details.PIECE


@pytest.mark.parametrize(
    "url",
    [
        "/stage/home/NONE", "/stage/none/EXT1", "/stage/home/..%2f..", "/stage/home/EXT1?tab=x", "/trail/home/zz",
        "/trail/home/../../etc/passwd", "/trail/home//etc/passwd", "/trail/home/", "/home/none", "/none",
        "/stage/home/EXT1?tab=discard", "/stage/home/MGR",
    ],
)  # fmt: skip
def test_what_isnt_there_is_not_found(site, url):
    """Names are looked up among what the home has; no path is made of them."""
    shown(site, url, 404)


@pytest.mark.parametrize(
    "url", ["/stage/home/EXT1?tab=report&end=x", "/trail/home/lt?at=1", "/api/history.json?since=x"]
)
def test_a_wrong_number_is_told(site, url):
    shown(site, url, 400)


def test_a_bug_is_told_by_name_and_nothing_of_it_shown(site, monkeypatch):
    """No traceback, no value for the browser; those are in the page's own output, so many times at most."""

    def broken(*_):
        raise ZeroDivisionError(SECRET)

    monkeypatch.setattr(details, "report", broken)
    html = shown(site, "/stage/home/EXT1?tab=report", 500)
    assert "ZeroDivisionError" in html
    assert SECRET not in html


def test_pages_that_hang_keep_their_threads_and_others_are_drawn(site, monkeypatch):
    """However often somebody asks for what hangs, there are never more threads; the overview never waits for them."""
    hang, before = threading.Event(), set(threading.enumerate())
    monkeypatch.setattr(details, "report", lambda *_: hang.wait(60))
    monkeypatch.setattr(guard, "ANSWER_SECONDS", 0.02)
    for _ in range(THREADS + 5):
        shown(site, "/stage/home/EXT1?tab=report", 503)
    monkeypatch.setattr(guard, "ANSWER_SECONDS", 60.0)
    assert len([one for one in threading.enumerate() if one not in before and one.name.startswith("page")]) <= THREADS
    assert "EXT1" in shown(site, "/")
    hang.set()


# --- trails -----------------------------------------------------------------------------------------------------------


def test_the_files_of_a_trail_with_their_readers(site):
    text = plain(shown(site, "/trail/home/lt"))
    assert "EXT1 on host" in text
    assert re.search(r"1 5\.\d\d KB \d+ [-\d: ]+ EXT1 on host \d+ no PMP1", text)


def test_blocks_and_records_lead_through_the_whole_trail(site, monkeypatch):
    """Next after Next: every record once, in order, across files; then no Next."""
    monkeypatch.setattr(trailpages, "RECORDS", 7)
    monkeypatch.setattr(trailpages, "BLOCKS", 3)
    seen, url = [], "/trail/home/lt?records=1"
    for _ in range(60):
        html = shown(site, url)
        seen += re.findall(r"&#39;(\d+-\d+)&#39;", html)
        following = re.search(r'href="([^"]*)">Next', html)
        if following is None:
            break
        url = following[1].replace("&amp;", "&")
    assert seen == [f"{tx.number}-{n}" for tx in SCRIPT for n in range(tx.rows)]
    blocks, url = [], "/trail/home/lt?at=0/0"
    for _ in range(60):
        html = shown(site, url)
        blocks += re.findall(r"records=1&amp;at=(\d+/\d+)", html)
        following = re.search(r'href="([^"]*)">Next', html)
        if following is None:
            break
        url = following[1].replace("&amp;", "&")
    assert len(blocks) == len(set(blocks)) == sum(tx.pieces for tx in SCRIPT)


def test_records_are_searched_by_table_and_csn(site):
    found = shown(site, "/trail/home/lt?records=1&csn=00000003")
    assert re.findall(r"&#39;(\d+)-\d+&#39;", found) == ["3"] * 30
    assert "(no record)" in shown(site, "/trail/home/lt?records=1&table=x.*")
    assert "&#39;1-0&#39;" in shown(site, "/trail/home/lt?records=1&table=s.*")
    assert "expected a time" in plain(shown(site, "/trail/home/lt?records=1&since=yesterday"))


@pytest.mark.parametrize("keyed", [True, False])
def test_an_encrypted_trail_is_browsed_with_its_home_s_keys_and_without_says_so(home, keyed):
    """Files and blocks need none; rows do, and where the key is missing it is named, and nothing of a row is shown."""
    save_wallet(RealFs(), home.folder("dirwlt"), Wallet("mine", (MasterKey(1, 1, bytes(KEY_SIZE)),)))
    trail = TrailName.parse("./dirdat/et", home.root)
    writer = TrailWriter.open(RealFs(), trail, IDENTITY, max_bytes=5600, restart_open=True, encrypt=True)
    for tx in SCRIPT:
        write_tx(writer, tx)
    writer.close()
    if not keyed:
        os.unlink(wallet_path(home.folder("dirwlt")))
    site = Site(home)
    assert re.search(r"EXT1 on host - mine\S*1", plain(shown(site, "/trail/home/et")))
    assert "WHOLE" in shown(site, "/trail/home/et?at=0/0")
    rows = shown(site, "/trail/home/et?records=1")
    assert ("&#39;1-0&#39;" in rows) == keyed
    assert ("is encrypted under master key version 1" in rows) != keyed


def test_rows_reports_and_names_with_html_are_text(home):
    """Whatever stands in a row, a table's name, a report, a parameter file."""
    evil = "<script>alert(1)</script>"
    table = TableDef("s", evil, (Column("id", "int8", "bigint", key=True), Column(evil, "text", "text")))
    trail = TrailName.parse("./dirdat/ht", home.root)
    writer = TrailWriter.open(RealFs(), trail, IDENTITY, max_bytes=1 << 20, restart_open=True)
    writer.define([table])
    writer.append_data(
        Indicator.WHOLE, [table.id], [(Op.BEGIN, evil, evil, 1), (Op.INSERT, 0, ["1", evil]), (Op.COMMIT, 1)],
        changes=1, transactions=1, origin=Position(0, 1), csn="1", time_us=1,
    )  # fmt: skip
    writer.close()
    Path(home.report("EXT1")).write_text(evil)
    write(home, "ext1", f"EXTRACT ext1 -- {evil}\n")
    for url in (
        "/trail/home/ht", "/trail/home/ht?at=0/0", "/trail/home/ht?records=1", f"/trail/home/ht?records=1&table={evil}",
        "/stage/home/EXT1?tab=report", "/stage/home/EXT1?tab=params", f"/?minutes={evil}",
    ):  # fmt: skip
        assert "<script>alert" not in shown(Site(home), url), url
    assert "&lt;script&gt;alert" in shown(Site(home), "/trail/home/ht?records=1")


def test_wide_rows_fill_a_page_sooner(site, monkeypatch):
    """A page is bounded in characters too, and Next goes on behind them."""
    monkeypatch.setattr(trailpages, "MAX_TEXT", 500)
    html = shown(site, "/trail/home/lt?records=1")
    assert html.count("INSERT") < 10
    assert "Next" in html


def test_a_search_over_blocks_without_rows_is_bounded_too(site, home, monkeypatch):
    """An idle trail has a block each second, and nothing in it."""
    trail = TrailName.parse("./dirdat/it", home.root)
    writer = TrailWriter.open(RealFs(), trail, IDENTITY, max_bytes=1 << 20, restart_open=True)
    for n in range(1, 4):
        writer.append_place(Position(0, n))
    writer.close()
    monkeypatch.setattr(trailpages, "SECONDS", -1.0)
    assert "looked for" in shown(site, "/trail/home/it?records=1")


def test_a_search_that_takes_long_says_where_it_stopped(site, monkeypatch):
    """And goes on from there."""
    monkeypatch.setattr(trailpages, "SECONDS", -1.0)
    html = shown(site, "/trail/home/lt?records=1&csn=none")
    assert "looked for" in html
    assert "Next" in html


def test_damage_is_shown_as_what_it_is(site, home):
    path = TrailName.parse("./dirdat/lt", home.root).path(1)
    with open(path, "r+b") as file:
        file.seek(4500)
        file.write(b"\xff" * 20)
    assert "damaged" in plain(shown(site, "/trail/home/lt?records=1"))
    assert os.path.basename(path) in plain(shown(site, "/trail/home/lt?records=1"))


def test_a_trail_of_a_home_by_folder_is_shown_there(home, tmp_path):
    """The page of one home shows the groups and trails of another of this host."""
    from ggsci.web.params import WebHome

    here = make_home(tmp_path / "here")
    site = Site(here, [], WebParams(port=1, homes=(WebHome("there", folder=home.root),)))
    assert "EXT1 on host" in shown(site, "/trail/there/lt")
    assert "EXTRACT EXT1" in plain(shown(site, "/stage/there/EXT1"))
