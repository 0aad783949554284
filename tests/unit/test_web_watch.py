"""What the page knows: joined pipelines, figures over time, and what it says of that which it can't see."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
import threading

import pytest

from ggsci.flow import pipelines
from ggsci.web import remote, watch
from ggsci.web.app import _home_row
from ggsci.web.params import WebHome, WebParams
from ggsci.web.ring import MAX_SAMPLES, MISSED, History, Ring, thinned
from ggsci.web.tokens import ensure_token, token_path
from ggsci.web.watch import UNKNOWN, HomeView, Watch
from tests.support.homes import make_home, wait_for
from tests.support.web import Site, pipeline, stage
from trails.errors import AwayError, OperatorError


@pytest.fixture
def home(tmp_path):
    return make_home(tmp_path / "here")


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """How long this machine may stand still is not what these tests are about; those that are say how long."""
    monkeypatch.setattr(watch, "PATIENCE_SECONDS", 60.0)
    monkeypatch.setattr(watch, "STALE_US", 600_000_000)


# --- over time --------------------------------------------------------------------------------------------------------


def test_a_ring_is_bounded_and_in_order():
    ring = Ring(100)
    for n in range(1000):
        ring.add(float(n), {"lag": float(n), "rate": None, "backlog": 0.0})
    found = ring.since(0)
    assert len(found["at"]) <= 100
    assert found["at"] == sorted(found["at"])
    assert found["at"][-1] == 999.0
    assert ring.since(990)["lag"] == [991.0 + n for n in range(9)]


def test_what_was_not_known_is_a_gap():
    """Not known, and not looked: None, never zero, never the last value again."""
    times = [0.0, 5.0, 10.0, 10.0 + 5 * (MISSED + 3)]
    nan = float("nan")
    samples = {"at": times, "lag": [1.0, nan, 3.0, 4.0], "rate": [1.0] * 4, "backlog": [0.0] * 4}
    found = thinned(samples, 100, 5.0, 0.0)
    assert found["lag"] == [1.0, None, 3.0, None, 4.0]
    assert found["at"][3] == 15.0


def test_thinning_keeps_peaks_and_never_bridges_a_gap():
    count = 1000
    times = [n * 5.0 for n in range(count // 2)] + [n * 5.0 + 1000 for n in range(count // 2, count)]
    lag = [0.0] * count
    lag[77] = 9.0
    found = thinned({"at": times, "lag": lag, "rate": [2.0] * count, "backlog": lag}, 100, 5.0, 0.0)
    assert len(found["at"]) <= 104
    assert max(value for value in found["lag"] if value is not None) == 9.0
    assert found["lag"].count(None) == 1
    assert {value for value in found["rate"] if value is not None} == {2.0}


def test_charts_are_read_while_samples_come(home):
    """Old ones go a quarter at a time: whoever reads meanwhile gets all figures of the same samples."""
    history = History(40.0, 1.0)
    ended = threading.Event()

    def add():
        for n in range(3000):
            history.add(float(n), [(f"here/G{n % 7}", stage(home, lag_us=n * 1_000_000))])
        ended.set()

    thread = threading.Thread(target=add)
    thread.start()
    while not ended.is_set():
        for one in history.series(-1, 1000).values():
            assert all(lag == at for at, lag in zip(one["at"], one["lag"], strict=True) if lag is not None)
    thread.join(60)


def test_looking_more_often_takes_no_more_memory(home):
    """So many samples a stage, whatever WEBCHECKSECONDS says."""
    history = History(6 * 3600.0, 1)
    for n in range(MAX_SAMPLES + 10):
        history.add(float(n), [("here/EXT1", stage(home))])
    assert len(history._rings["here/EXT1"].columns["at"]) <= MAX_SAMPLES


def test_stages_that_are_gone_are_forgotten(home):
    history = History(100.0, 5.0)
    history.add(0.0, [("here/OLD", stage(home))])
    history.add(50.0, [("here/NEW", stage(home))])
    assert set(history.series(-1, 10)) == {"here/OLD", "here/NEW"}
    history.add(150.1, [("here/NEW", stage(home))])
    assert set(history.series(-1, 10)) == {"here/NEW"}
    assert set(history.series(-1, 10, ["here/NEW", "none"])) == {"here/NEW"}


# --- what can't be seen -----------------------------------------------------------------------------------------------


class Gathering:
    """What `gather` finds, as a test sets it."""

    def __init__(self, home):
        self.found = {home.root: [pipeline(stage(home))]}
        self.error = None

    def __call__(self, home, now_us):
        if self.error:
            raise self.error
        return self.found.get(home.root, [])


def test_gg_19_a_home_that_cant_be_seen_keeps_its_last_picture_as_unknown(home):
    """No state, no lag, no rate; the age of the last truth grows, the reason is told; and back again."""
    gathering = Gathering(home)
    looking = Watch(home, WebParams(), gathering)
    looking.look()
    assert looking.picture().pipelines[0].stages[0].status == "RUNNING"
    gathering.error = OSError(5, "Input/output error")
    looking.look()
    seen = looking.picture()
    one = seen.pipelines[0].stages[0]
    assert (one.status, one.lag_us, one.ops_s, one.busy, one.backlog_bytes, one.pid) == (UNKNOWN, *[None] * 5)
    assert one.lag_age_us >= 1000
    assert "Input/output error" in one.lag_why
    assert not one.holds_back
    assert "Input/output error" in seen.homes[0].trouble
    assert seen.pipelines[0].lag_us is None
    series = looking.history.series(0, 100)["here/EXT1"]
    assert [value is None for value in series["lag"] if series][-1]
    gathering.error = None
    looking.look()
    assert looking.picture().pipelines[0].stages[0].status == "RUNNING"
    assert not looking.picture().homes[0].trouble


def test_gg_19_a_watch_that_hangs_shows_everything_as_unknown(home, monkeypatch):
    """The page has a clock of its own: an old picture is never shown as new."""
    looking = Watch(home, WebParams(), Gathering(home))
    looking.look()
    monkeypatch.setattr(watch, "STALE_US", -1)
    seen = looking.picture()
    assert seen.pipelines[0].stages[0].status == UNKNOWN
    assert seen.own[0].stages[0].status == UNKNOWN
    assert "not looked at" in seen.pipelines[0].stages[0].lag_why
    assert seen.homes[0].manager == UNKNOWN
    assert "not looked at" in seen.homes[0].trouble


def test_gg_19_disks_and_counters_of_what_cant_be_seen_are_not_shown(home):
    """Neither how much was free, nor how much log the source could still keep: only where it belongs stays."""
    fed = {
        "home_id": home.id,
        "wal_headroom_bytes": 10**12,
        "operations": 7,
        "turn_age_us": 5,
        "source": "PostgreSQL a",
    }
    gathering = Gathering(home)
    gathering.found[home.root] = [pipeline(stage(home, extra=fed))]
    looking = Watch(home, WebParams(), gathering)
    looking.look()
    source = looking._sources[0]
    source.view = dataclasses.replace(source.view, details={"disks": [{"path": "/", "free": 10**12}]})
    gathering.error = OSError(5, "Input/output error")
    looking.look()
    seen = looking.picture()
    assert set(seen.pipelines[0].stages[0].extra) == {"home_id", "source", "web_home"}
    assert seen.homes[0].details == {}


def test_inodes_are_shown_where_they_are_few(home):
    """Beside the bytes, which may be plenty."""
    disk = {"path": "/", "free": 10**12, "size": 10**13, "warn": 1}
    few = {"path": "/", "free": 7, "size": 100, "warn": 10, "unit": "files"}

    def shown(*disks):
        return [(one["text"], one["low"]) for one in _home_row(HomeView("home", details={"disks": disks}))["disks"]]

    assert len(shown(disk, few | {"free": 70})) == 1
    assert shown(disk, few)[1:] == [("7 of 100 files free", True)]


def test_a_home_of_any_name_has_one_that_addresses_can_bear(tmp_path):
    """Its folder's name may hold anything; what the page calls it has no blank (those part keys), no sign of URLs."""
    looking = Watch(make_home(tmp_path / "my home?#%"), WebParams())
    assert looking.name == "my_home___"


def test_a_home_that_hangs_holds_up_nobody(home, tmp_path, monkeypatch):
    """Each is looked at for itself; what hangs is waited for a moment, not asked again meanwhile, and told."""
    other = make_home(tmp_path / "there")
    release = threading.Event()
    calls = []

    def gather(which, now_us):
        calls.append(which.root)
        if which.root == other.root:
            release.wait(60)
        return [pipeline(stage(which, "EXT1" if which.root == home.root else "REP9"))]

    monkeypatch.setattr(watch, "PATIENCE_SECONDS", 0.2)
    looking = Watch(home, WebParams(homes=(WebHome("there", folder=other.root),)), gather)
    wait_for(lambda: looking.look() or [one.stages[0].name for one in looking.picture().pipelines] == ["EXT1"])
    looking.look()
    assert "no answer within" in looking.picture().home("there").trouble
    assert calls.count(other.root) == 1
    release.set()
    wait_for(lambda: looking.look() or not looking.picture().home("there").trouble)
    assert {one.stages[0].name for one in looking.picture().pipelines} == {"EXT1", "REP9"}


def test_a_folder_that_is_no_home_is_told(home, tmp_path):
    looking = Watch(home, WebParams(homes=(WebHome("gone", folder=str(tmp_path / "gone")),)), Gathering(home))
    looking.look()
    assert "is no home" in looking.picture().home("gone").trouble
    assert looking.picture().pipelines[0].stages[0].status == "RUNNING"
    with pytest.raises(OperatorError, match="is no home"):
        looking.local("gone")
    assert looking.local("else") is None


def test_two_homes_of_one_name_are_refused(home):
    with pytest.raises(OperatorError, match="WEBHOME here: this name is taken"):
        Watch(home, WebParams(homes=(WebHome("here", folder="/x"),)))


# --- another page -----------------------------------------------------------------------------------------------------


@pytest.fixture
def other(home, tmp_path, monkeypatch):
    """Another home's page, answering without a network; its token lies in a file of this home."""
    there = make_home(tmp_path / "there")
    site = Site(there, [pipeline(stage(there, "PMP1", "PUMP"))])
    site.answer = lambda: site.get("/api/home.json")

    class Link:
        def __init__(self, *_):
            pass

        def request(self, method, path, headers):
            assert (method, path) == ("GET", remote.PATH)
            assert headers["Authorization"] == f"Bearer {ensure_token(there)}"

        def getresponse(self):
            got = site.answer()
            parts = iter([got.body[i : i + 1000] for i in range(0, len(got.body), 1000)])
            return type("Answer", (), {"status": got.status, "reason": "", "read1": lambda _, __: next(parts, b"")})()

        def close(self):
            pass

    monkeypatch.setattr(remote, "_connection", Link)
    ensure_token(there)
    return site, WebHome("far", url="http://localhost:1", token_file=token_path(there))


def test_the_page_of_another_home_is_drawn_with_links_to_it(home, other):
    _, given = other
    looking = Watch(home, WebParams(homes=(given,)), Gathering(home))
    looking.look()
    far = next(s for p in looking.picture().pipelines for s in p.stages if s.name == "PMP1")
    assert far.status == "RUNNING"
    assert watch.home_name(far) == "far"
    drawn = Site(home, [p for p in looking.picture().pipelines if p.stages[0].name == "PMP1"]).get("/").text
    assert 'href="http://localhost:1/stage/there/PMP1"' in drawn


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b"nonsense", b'{"home": "x", "manager": "RUNNING", "age_us": 0, "pipelines": [{"stages": 3}]}',
     b'{"home": 1, "manager": [], "age_us": "y", "pipelines": null}'],
)  # fmt: skip
def test_nonsense_from_another_page_is_one_named_error(home, other, body):
    """Whatever it says: told at its home, and the others go on."""
    site, given = other
    real = site.get("/api/home.json")
    site.answer = lambda: type(real)(200, {}, body)
    looking = Watch(home, WebParams(homes=(given,)), Gathering(home))
    looking.look()
    assert "gives no answer" in looking.picture().home("far").trouble
    assert looking.picture().home("here").trouble == ""


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lag_us", "soon"), ("lag_us", 1e300), ("lag_us", float("nan")), ("ops_s", float("inf")), ("busy", []),
        ("backlog_bytes", -1), ("name", "a b"), ("name", "../x"), ("name", "x" * 100), ("status", "<b>"),
        ("program", 7), ("writes", None), ("writes", [1]), ("extra", []), ("extra", {"x": float("nan")}), ("why", 3),
        ("extra", {str(n): n for n in range(1000)}),
    ],
)  # fmt: skip
def test_a_figure_of_another_page_that_is_none_is_refused(home, other, field, value):
    """So that no page, no chart and no watch ever meets it; the other homes are drawn as ever."""
    site, given = other
    real = site.get("/api/home.json")
    answer = json.loads(real.body)
    answer["pipelines"][0]["stages"][0][field] = value
    site.answer = lambda: type(real)(200, {}, json.dumps(answer).encode())
    looking = Watch(home, WebParams(homes=(given,)), Gathering(home))
    looking.look()
    assert "gives no answer" in looking.picture().home("far").trouble
    assert looking.picture().pipelines[0].stages[0].status == "RUNNING"


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"pipelines": ' + b"[" * 100_000], ids=["list", "within"])
def test_an_answer_as_deep_as_the_sea_is_one_named_error(home, other, body):
    site, given = other
    site.answer = lambda: type(site.get("/"))(200, {}, body)
    looking = Watch(home, WebParams(homes=(given,)), Gathering(home))
    looking.look()
    assert "gives no answer" in looking.picture().home("far").trouble


def test_what_another_page_says_is_cut_to_size_and_cant_pose_as_ours(home, other):
    """Long texts, unknown fields, too many stages; links lead to that page, whatever it says."""
    site, given = other
    real = site.get("/api/home.json")
    answer = json.loads(real.body)
    one = answer["pipelines"][0]["stages"][0]
    one |= {"why": "x" * 100_000, "newer": 1, "home": home.root}
    one["extra"] |= {
        "web_home": "here",
        "web_url": "http://evil.org",
        "deep": {"a": [1]},
        "read": {"seqno": 1, "rba": 2},
    }
    site.answer = lambda: type(real)(200, {}, json.dumps(answer).encode())
    looking = Watch(home, WebParams(homes=(given,)), Gathering(home))
    looking.look()
    far = next(s for p in looking.picture().pipelines for s in p.stages if s.name == "PMP1")
    assert len(far.why) <= remote.MAX_TEXT
    assert watch.key(far) == "far/PMP1"
    assert far.extra["web_url"] == given.url
    assert "deep" not in far.extra
    assert far.extra["read"] == {"seqno": 1, "rba": 2}
    one["why"] = ""
    answer["pipelines"] = answer["pipelines"] * (remote.MAX_STAGES + 1)
    looking.look()
    assert "at most" in looking.picture().home("far").trouble


def test_a_page_that_talks_a_byte_at_a_time_is_cut_off(home, tmp_path, monkeypatch):
    """Each byte comes in time, and yet the whole of it has an end."""
    monkeypatch.setattr(remote, "SECONDS", 0.5)
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip():
            link, _ = server.accept()
            with link, contextlib.suppress(OSError):
                link.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                while not ended.wait(0.05):
                    link.sendall(b"y")

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        ensure_token(home)
        given = WebHome("far", url=f"http://127.0.0.1:{server.getsockname()[1]}", token_file=token_path(home))
        with pytest.raises(AwayError, match="gives no answer"):
            remote.fetch(home, given)
        ended.set()
        thread.join(60)


def test_refusals_of_another_page_are_told(home, other, monkeypatch):
    """A wrong token; too long an answer; an answer that was old when it came."""
    site, given = other
    real = site.get("/api/home.json")
    looking = Watch(home, WebParams(homes=(given,)), Gathering(home))
    site.answer = lambda: type(real)(401, {}, b"")
    looking.look()
    assert "refuses the token" in looking.picture().home("far").trouble
    old = json.loads(real.body) | {"age_us": 3_600_000_000}
    site.answer = lambda: type(real)(200, {}, json.dumps(old).encode())
    looking.look()
    assert "its own watch is 01:00:00 behind" in looking.picture().home("far").trouble
    monkeypatch.setattr(remote, "MAX_ANSWER", 100)
    site.answer = lambda: real
    looking.look()
    assert "more than 100 bytes" in looking.picture().home("far").trouble


def test_one_page_never_tells_of_a_third_home(home, other):
    """So that two pages which know each other don't tell each other their own."""
    _, given = other
    site = Site(home, [pipeline(stage(home))], WebParams(port=1, homes=(given,)))
    told = json.loads(site.get("/api/home.json").body)
    assert told["home"] == "here"
    assert [one.stages[0].name for one in pipelines.from_json(told["pipelines"])] == ["EXT1"]
