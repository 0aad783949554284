"""What the pages show: every figure of a stage, what is unknown as such, texts as ggsci prints them, trails paged."""

from __future__ import annotations

import os
import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from demo.patience import PATIENCE
from ggsci.manager.webparams import WebParams
from ggsci.manager.webtokens import ensure_token
from ggsci.web import details, drawing, guard, trailpages, words
from ggsci.web.site import THREADS
from tests.support.homes import good, make_home, write
from tests.support.trail_script import IDENTITY, SCRIPT, write_tx
from tests.support.web import Site, pipeline, stage
from tests.support.zones import machine_in
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


def test_GG_19_what_is_unknown_says_so(home):
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


def fed(home, by, **more):
    """What a stage knows of who feeds it."""
    return {"home_id": home.id, "fed_by": f"{home.id}/{by}", "input_age_us": 1000, **more}


def test_one_extract_is_drawn_once_however_many_paths_begin_there(home):
    """A tree: each stage one box, each path its own end, in one panel with one set of charts."""
    extract = stage(home)
    one, two = (stage(home, name, "PUMP", reads="./dirdat/lt", extra=fed(home, "EXT1")) for name in ("PMP1", "PMP2"))
    readers = [
        stage(home, f"REP{n}", "REPLICAT", reads="./dirdat/rt", writes=(f"copy {n}",), extra=fed(home, by))
        for n, by in ((1, "PMP1"), (2, "PMP1"), (3, "PMP2"))
    ]
    found = [pipeline(extract, one, readers[0]), pipeline(extract, one, readers[1]), pipeline(extract, two, readers[2])]
    html = shown(Site(home, found), "/")
    assert re.findall(r'<a class="stage [^"]*" [^>]*data-key="home/(\w+)"', html) == [
        "EXT1", "PMP1", "REP1", "REP2", "PMP2", "REP3",
    ]  # fmt: skip
    assert html.count('<section class="panel"') == 1
    assert html.count('<div class="branch">') == 4
    assert re.findall(r"copy \d", re.sub(r'title="[^"]*"', "", html)) == ["copy 1", "copy 2", "copy 3"]
    assert "EXT1 → 3 targets" in plain(html)
    assert plain(html).count("end to end") == 3


def test_problems_come_first_with_their_whole_text(home):
    """Abended before unknown before stopped, in words of their own; what only follows from one is not said again."""
    long = "column amount: the value 123456789012.34 does not fit. " * 30
    bad = stage(home, "REP9", "REPLICAT", status="ABENDED", lag_us=None, lag_why="ABENDED", reads="./dirdat/r9",
                extra={"home_id": home.id, "message": long.strip()})  # fmt: skip
    stopped = stage(home, status="STOPPED", lag_us=None, lag_age_us=90_000_000, lag_why="STOPPED")
    behind = stage(home, "PMP1", "PUMP", lag_us=0, reads="./dirdat/lt", extra=fed(home, "EXT1"))
    late = stage(
        home, "EXT2", lag_us=700_000_000, extra={"home_id": home.id, "holder": "slot tg_2", "log_status": "lost"}
    )
    html = shown(Site(home, [pipeline(stopped, behind), pipeline(late), pipeline(bad)]), "/")
    problems = html[html.index('<section id="problems"') : html.index('<p id="spoken"')]
    assert re.findall(r'<p class="problem (\w+)">.*?<a href="[^"]*">([^<]*)</a>', problems) == [
        ("abended", "Home home"), ("abended", "EXTRACT EXT2"), ("abended", "REPLICAT REP9"),
        ("unknown", "EXTRACT EXT2"), ("stopped", "EXTRACT EXT1"),
    ]  # fmt: skip
    assert long.strip() in problems
    assert "Slot tg_2 is lost" in problems
    assert html.index('<section id="problems"') < html.index('<section class="panel"')
    assert re.findall(r"<h2>(.*?)</h2>", html) == ["REP9", "EXT1 → PMP1", "EXT2"], "the worst panel first"
    spoken = html[html.index('<p id="spoken"') :].partition("</p>")[0]
    assert 'aria-live="polite"' in spoken
    assert "5 to look at." in spoken
    assert "EXTRACT EXT2: SLOT LOST. REPLICAT REP9: ABENDED. EXTRACT EXT2: LATE. EXTRACT EXT1: STOPPED." in spoken
    assert "123456789012" not in spoken, "read out is which, not the whole of it"


def test_GG_19_a_pipeline_whose_extract_was_deleted_is_not_green(home):
    """Nothing is captured: a MISSING stage stands in the drawing, and nothing idle behind it says 0."""
    pump = stage(home, "PMP1", "PUMP", lag_us=0, reads="./dirdat/lt", extra=fed(home, "EXT1"))
    html = shown(Site(home, [pipeline(pump)]), "/")
    text = plain(html)
    assert 'class="pill running"' not in html.partition('<section class="panel"')[2]
    assert "EXT1 → PMP1 UNKNOWN EXTRACT EXT1 is MISSING" in text
    assert "it is not registered in its home" in text
    assert "0.0 s" not in text


def test_tables_that_are_loaded_have_a_section(home):
    """On the overview and on the group's page: state, chunks, rows, bytes, rate, time left; UNKNOWN for what is not."""
    one = {
        "source": "public.a", "target": "copy.a", "state": "copying", "chunks": 40, "chunks_done": 10,
        "rows": 2_500_000, "bytes": 550 << 20, "estimate": None, "rows_s": 160_000.4, "bytes_s": 35e6,
        "left_us": 46_900_000,
    }  # fmt: skip
    blind = {**one, "source": "b<i>", "rows_s": None, "bytes_s": None, "left_us": None}
    extra = {"home_id": home.id, "load_states": {"live": 3, "copying": 2, "waiting": 70}, "loading": [one, blind]}
    site = Site(home, [pipeline(stage(home, extra=extra))])
    for url in ("/", "/stage/home/EXT1"):
        html = shown(site, url)
        text = plain(html)
        assert "EXT1 loads tables: 2 copying, 70 waiting, 3 live" in text
        assert "public.a → copy.a COPYING 10 of 40 2 500 000 550 MB 160 000 rows/s, 33.4 MB/s 46 s" in text
        assert "2 500 000 550 MB UNKNOWN UNKNOWN" in text
        assert "and 70 more: INFO TABLES EXT1" in text
        assert '<rect class="part" width="25"' in html and "b<i>" not in html
    assert "LOAD FAILED" not in text
    bad = stage(home, extra=extra | {"load_states": {"failed": 1}})
    assert "1 table could not be loaded" in plain(shown(Site(home, [pipeline(bad)]), "/"))
    done = stage(home, extra=extra | {"load_states": {"live": 3}, "loading": []})
    assert "loads tables" not in shown(Site(home, [pipeline(done)]), "/")


def test_times_tell_their_zone(home):
    """The host's zone is named, and each moment carries its own time for who chooses another."""
    with machine_in("Europe/Berlin"):
        html = shown(Site(home, [pipeline(stage(home))]), "/")
    assert re.search(r'data-zone="Europe/Berlin"', html)
    assert re.search(r'<option value="host">Host: CES?T, UTC\+0[12]:00</option>', html)
    assert re.search(r'<time data-us="\d{16}">20\d\d-', html)
    with machine_in("<+0530>-5:30"):
        assert 'data-zone="+05:30"' in shown(Site(home), "/")


def test_figures_of_a_stage_stand_in_groups(home):
    """Each under one heading, and none is lost."""
    extra = {
        "home_id": home.id,
        "holder": "slot tg_1",
        "log_kept_bytes": 5,
        "newest_us": 1_770_000_000_000_000,
        "odd": 7,
    }
    one = stage(home, extra=extra)
    groups = dict(drawing.groups(one))
    assert [title for title, _, _ in groups["Log kept at the source"]] == ["holder", "log kept"]
    assert ("newest change", words.figure("newest_us", extra["newest_us"]), extra["newest_us"]) in groups["Lag"]
    assert [title for title, _, _ in groups["More"]] == ["odd"]
    assert sorted(row for rows in groups.values() for row in rows) == sorted(drawing.figures(one))
    html = shown(Site(home, [pipeline(one)]), "/stage/home/EXT1")
    assert "<h2>Log kept at the source</h2>" in html
    assert 'data-chart="kept"' in html
    stopped = replace(one, status="STOPPED", extra={"home_id": home.id, "holder": "slot tg_1"})
    assert 'data-chart="kept"' in shown(Site(home, [pipeline(stopped)]), "/"), "its slot keeps log all the more"


def test_the_event_log_by_severity(site, home):
    """Errors alone, or warnings too, with all lines of a message; pieces without any are passed over."""
    head = "2026-02-03 02:30:05  "
    lines = [f"{head}ERROR   TG-00001  A, b.prm:  first", "  its second line"]
    lines += [f"{head}INFO    TG-00002  A, b.prm:  nothing {n}" for n in range(9000)]
    lines += [f"{head}WARNING TG-00003  A, b.prm:  mind this"]
    Path(home.ggserr).write_text("\n".join(lines) + "\n")

    def log(severity):
        html = shown(site, f"/home/home?tab=log&severity={severity}")
        return re.search(r"<pre[^>]*>(.*?)</pre>", html, re.DOTALL)[1].splitlines()

    assert log("errors") == lines[:2]
    assert log("warnings") == lines[-1:]
    assert log("all")[-2:] == lines[-2:]
    assert "severity=warnings&amp;end=" in shown(site, "/home/home?tab=log&severity=warnings")
    shown(site, "/home/home?tab=log&severity=none", 404)


def test_of_a_slot_that_was_not_looked_at_nothing_is_known(home):
    """No headroom means no limit only where the limit was looked at."""
    for limit, told in (({"log_limit_bytes": None}, "no limit"), ({}, "UNKNOWN")):
        extra = {"home_id": home.id, "log_status": "reserved", "log_headroom_bytes": None, **limit}
        rows = {title: text for title, text, _ in drawing.figures(stage(home, extra=extra))}
        assert rows["log headroom"] == told


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
        ("/stage/home/ext1?tab=showch", "Record Source = U"),
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

    monkeypatch.setattr(details, "piece", broken)
    html = shown(site, "/stage/home/EXT1?tab=report", 500)
    assert "ZeroDivisionError" in html
    assert SECRET not in html


def test_pages_that_hang_keep_their_threads_and_others_are_drawn(site, monkeypatch):
    """However often somebody asks for what hangs, there are never more threads; the overview never waits for them."""
    hang, before = threading.Event(), set(threading.enumerate())
    monkeypatch.setattr(details, "piece", lambda *_: hang.wait(PATIENCE))
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
    from ggsci.manager.webparams import WebHome

    here = make_home(tmp_path / "here")
    site = Site(here, [], WebParams(port=1, homes=(WebHome("there", folder=home.root),)))
    assert "EXT1 on host" in shown(site, "/trail/there/lt")
    assert "EXTRACT EXT1" in plain(shown(site, "/stage/there/EXT1"))
