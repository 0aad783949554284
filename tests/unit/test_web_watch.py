"""What the page knows: joined pipelines, figures over time, and what it says of that which it can't see."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import threading
from pathlib import Path

import pytest

from demo.patience import PATIENCE, wait_for
from ggsci.flow import pipelines
from ggsci.manager.webparams import WebHome, WebParams
from ggsci.manager.webtokens import ensure_token, token_path
from ggsci.web import remote, watch
from ggsci.web.app import _home_row
from ggsci.web.kept import KeptHistory
from ggsci.web.ring import MAX_SAMPLES, MISSED, History, Ring, thinned
from ggsci.web.watch import UNKNOWN, HomesWatch, HomeView
from tests.support.homes import make_home
from tests.support.web import Site, pipeline, stage
from trails.errors import AwayError, OperatorError
from trails.runtime.home.home import MANAGER


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
    samples = {"at": times, "lag": [1.0, nan, 3.0, 4.0], "rate": [1.0] * 4, "backlog": [0.0] * 4, "kept": [nan] * 4}
    found = thinned(samples, 100, 5.0, 0.0)
    assert found["lag"] == [1.0, None, 3.0, None, 4.0]
    assert found["at"][3] == 15.0


def test_thinning_keeps_peaks_and_never_bridges_a_gap():
    count = 1000
    times = [n * 5.0 for n in range(count // 2)] + [n * 5.0 + 1000 for n in range(count // 2, count)]
    lag = [0.0] * count
    lag[77] = 9.0
    found = thinned({"at": times, "lag": lag, "rate": [2.0] * count, "backlog": lag, "kept": lag}, 100, 5.0, 0.0)
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
    thread.join(PATIENCE)


def test_the_slot_of_a_stopped_extract_is_what_the_manager_saw_last(home, monkeypatch):
    """It keeps log all the more: figures, chart and problem as of the Manager's look; of one that runs its own word."""
    facts = {"log_status": "lost", "log_kept_bytes": 7 << 30, "log_checked_us": 1_770_000_000_000_000}
    monkeypatch.setattr(watch, "_asked", lambda _: {"slots": {"EXT1": facts, "EXT2": facts}})
    lock = home.fs.lock(home.lock(MANAGER))
    try:
        stopped = stage(home, status="STOPPED", lag_us=None, extra={"home_id": home.id, "holder": "slot tg_1"})
        site = Site(home, [pipeline(stopped), pipeline(stage(home, "EXT2"))])
    finally:
        lock.release()
    one, two = (path.stages[0] for path in site.watch.picture().pipelines)
    assert one.extra["log_kept_bytes"] == 7 << 30
    assert "log_kept_bytes" not in two.extra
    assert site.watch.history.series(0, 10)[f"{site.watch.name}/EXT1"]["kept"] == [float(7 << 30)]
    assert "Slot tg_1 is lost" in site.get("/").text


def test_what_was_doubted_there_is_judged_anew_here(home, tmp_path):
    """A home that sees no Extract says UNKNOWN; a page that sees both homes believes what each told of itself."""
    there = make_home(tmp_path / "there")
    fed = {"home_id": there.id, "fed_by": f"{home.id}/EXT1", "input_age_us": 90_000_000, "writer": "EXT1"}
    alone = Site(there, pipelines.join([pipeline(stage(there, "REP1", "REPLICAT", reads="./dirdat/rt", extra=fed))]))
    told = json.loads(alone.get("/api/home.json").text)
    answer = remote._parsed(told)
    (replicat,) = answer.pipelines[0].stages
    assert (replicat.lag_us, replicat.lag_age_us, answer.id) == (None, 90_000_000, there.id)
    assert "which is not seen from here" in replicat.lag_why
    (whole,) = pipelines.join([pipeline(stage(home)), *answer.pipelines])
    assert (whole.name, whole.state, whole.stages[1].lag_us) == ("EXT1 > REP1", "RUNNING", 400_000)
    (missing,) = [one for one in pipelines.join(answer.pipelines, [home.id]) if len(one.stages) == 2]
    assert (missing.stages[0].status, missing.state) == ("MISSING", "UNKNOWN")


def test_history_outlives_the_page(home):
    """Another page of the same home goes on with the charts; what is older than their span is not taken."""
    clock = 1_000_000.0
    first = History(100.0, 5.0, KeptHistory(home))
    for n in range(40):
        first.add(clock + n * 5, [("here/EXT1", stage(home, lag_us=n * 1_000_000, extra={"log_kept_bytes": n}))])
    again = History(100.0, 5.0, KeptHistory(home))
    again.load(clock + 200)
    assert again.series(0, 1000) == {
        "here/EXT1": {name: values[-19:] for name, values in first.series(0, 1000)["here/EXT1"].items()}
    }
    assert again.series(0, 1000)["here/EXT1"]["kept"][-1] == 39
    again.add(clock + 205, [("here/EXT1", stage(home, lag_us=None))])
    third = History(100.0, 5.0, KeptHistory(home))
    third.load(clock + 205)
    assert third.series(0, 1000)["here/EXT1"]["lag"][-2:] == [39.0, None]


def test_history_on_disk_is_private_and_bounded(home):
    """Two files of a size; the older one goes when the newer is full."""
    kept = KeptHistory(home, max_bytes=4096)
    for n in range(2000):
        kept.add(float(n), {"here/EXT1": {"lag": 1.0, "rate": None}})
    sizes = [os.stat(path) for path in (kept.path, f"{kept.path}.old") if os.path.exists(path)]
    assert sum(one.st_size for one in sizes) < 2 * 4096 + 200
    assert all(one.st_mode & 0o777 == 0o600 for one in sizes)
    found = list(kept.load(0.0, 1e9))
    assert found[-1] == (1999.0, {"here/EXT1": {"lag": 1.0, "rate": None}})
    assert [at for at, _ in found] == [float(n) for n in range(int(found[0][0]), 2000)]
    assert not list(kept.load(5000.0, 1e9)), "nothing that old is asked for"
    assert [at for at, _ in kept.load(0.0, 1990.0)][-1] == 1990.0, "a clock that was put back"


def test_history_after_a_crash_at_any_byte(home):
    """A torn or damaged end is cut; what stands before it is read, and the next look is found behind it."""
    kept = KeptHistory(home)
    for n in range(3):
        kept.add(float(n + 1), {"h/E": {"lag": n + 0.1}})  # its last byte is no zero
    data = Path(kept.path).read_bytes()
    size = len(data) // 3
    for cut in range(len(data) + 1):
        for torn in (data[:cut], data[:cut] + bytes(len(data) - cut), data[:cut] + b"\xff" * 50):
            Path(kept.path).write_bytes(torn)
            assert [at for at, _ in kept.load(0.0, 9.0)] == [float(n + 1) for n in range(cut // size)], cut
            kept.add(8.0, {"h/E": {"lag": 8.0}})
            assert [at for at, _ in kept.load(0.0, 9.0)] == [*(float(n + 1) for n in range(cut // size)), 8.0]


def test_history_between_the_steps_of_a_turn(home):
    """web.history.old alone, as a crash between the two renames leaves it."""
    kept = KeptHistory(home)
    kept.add(1.0, {"h/E": {"lag": 1.0}})
    os.rename(kept.path, f"{kept.path}.old")
    assert [at for at, _ in kept.load(0.0, 9.0)] == [1.0]
    kept.add(2.0, {"h/E": {"lag": 2.0}})
    assert [at for at, _ in kept.load(0.0, 9.0)] == [1.0, 2.0]


def test_history_that_cant_be_kept_is_told_and_nothing_ends(home):
    """No place to write: the charts go on in memory, and the page says so."""
    os.mkdir(os.path.join(home.folder("dirpcs"), "web.history"))
    site = Site(home, [pipeline(stage(home))])
    assert "What the charts show is not kept" in site.get("/").text
    assert site.watch.history.series(0, 10)


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


def test_GG_19_a_home_that_cant_be_seen_keeps_its_last_picture_as_unknown(home):
    """No state, no lag, no rate; the age of the last truth grows, the reason is told; and back again."""
    gathering = Gathering(home)
    looking = HomesWatch(home, WebParams(), gathering)
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


def test_GG_19_a_watch_that_hangs_shows_everything_as_unknown(home, monkeypatch):
    """The page has a clock of its own: an old picture is never shown as new."""
    looking = HomesWatch(home, WebParams(), Gathering(home))
    looking.look()
    monkeypatch.setattr(watch, "STALE_US", -1)
    seen = looking.picture()
    assert seen.pipelines[0].stages[0].status == UNKNOWN
    assert seen.own[0].stages[0].status == UNKNOWN
    assert "not looked at" in seen.pipelines[0].stages[0].lag_why
    assert seen.homes[0].manager == UNKNOWN
    assert "not looked at" in seen.homes[0].trouble


def test_disks_and_counters_of_what_cant_be_seen_are_not_shown(home):
    """Neither how much was free, nor how much log the source could still keep: only where it belongs stays."""
    fed = {
        "home_id": home.id,
        "log_headroom_bytes": 10**12,
        "operations": 7,
        "turn_age_us": 5,
        "source": "PostgreSQL a",
    }
    gathering = Gathering(home)
    gathering.found[home.root] = [pipeline(stage(home, extra=fed))]
    looking = HomesWatch(home, WebParams(), gathering)
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
    looking = HomesWatch(make_home(tmp_path / "my home?#%"), WebParams())
    assert looking.name == "my_home___"


def test_a_home_that_hangs_holds_up_nobody(home, tmp_path, monkeypatch):
    """Each is looked at for itself; what hangs is waited for a moment, not asked again meanwhile, and told."""
    other = make_home(tmp_path / "there")
    release = threading.Event()
    calls = []

    def gather(which, now_us):
        calls.append(which.root)
        if which.root == other.root:
            release.wait(PATIENCE)
        return [pipeline(stage(which, "EXT1" if which.root == home.root else "REP9"))]

    monkeypatch.setattr(watch, "PATIENCE_SECONDS", 0.2)
    looking = HomesWatch(home, WebParams(homes=(WebHome("there", folder=other.root),)), gather)
    wait_for(lambda: looking.look() or [one.stages[0].name for one in looking.picture().pipelines] == ["EXT1"])
    looking.look()
    assert "no answer within" in looking.picture().home("there").trouble
    assert calls.count(other.root) == 1
    release.set()
    wait_for(lambda: looking.look() or not looking.picture().home("there").trouble)
    assert {one.stages[0].name for one in looking.picture().pipelines} == {"EXT1", "REP9"}


def test_a_folder_that_is_no_home_is_told(home, tmp_path):
    looking = HomesWatch(home, WebParams(homes=(WebHome("gone", folder=str(tmp_path / "gone")),)), Gathering(home))
    looking.look()
    assert "is no home" in looking.picture().home("gone").trouble
    assert looking.picture().pipelines[0].stages[0].status == "RUNNING"
    with pytest.raises(OperatorError, match="is no home"):
        looking.local("gone")
    assert looking.local("else") is None


def test_two_homes_of_one_name_are_refused(home):
    with pytest.raises(OperatorError, match="WEBHOME here: this name is taken"):
        HomesWatch(home, WebParams(homes=(WebHome("here", folder="/x"),)))


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
    looking = HomesWatch(home, WebParams(homes=(given,)), Gathering(home))
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
    looking = HomesWatch(home, WebParams(homes=(given,)), Gathering(home))
    looking.look()
    assert "gives no answer" in looking.picture().home("far").trouble
    assert looking.picture().home("here").trouble == ""


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lag_us", "soon"), ("lag_us", 1e300), ("lag_us", float("nan")), ("ops_s", float("inf")), ("busy", []),
        ("backlog_bytes", -1), ("name", "a b"), ("name", "../x"), ("name", "x" * 100), ("status", "<b>"),
        ("program", 7), ("writes", None), ("writes", [1]), ("extra", []), ("extra", {"x": float("nan")}), ("why", 3),
        ("extra", {str(n): n for n in range(1000)}), ("extra", {"load_states": {"live": 1}, "loading": [{"rows": 1}]}),
    ],
)  # fmt: skip
def test_a_figure_of_another_page_that_is_none_is_refused(home, other, field, value):
    """So that no page, no chart and no watch ever meets it; the other homes are drawn as ever."""
    site, given = other
    real = site.get("/api/home.json")
    answer = json.loads(real.body)
    answer["pipelines"][0]["stages"][0][field] = value
    site.answer = lambda: type(real)(200, {}, json.dumps(answer).encode())
    looking = HomesWatch(home, WebParams(homes=(given,)), Gathering(home))
    looking.look()
    assert "gives no answer" in looking.picture().home("far").trouble
    assert looking.picture().pipelines[0].stages[0].status == "RUNNING"


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"pipelines": ' + b"[" * 100_000], ids=["list", "within"])
def test_an_answer_as_deep_as_the_sea_is_one_named_error(home, other, body):
    site, given = other
    site.answer = lambda: type(site.get("/"))(200, {}, body)
    looking = HomesWatch(home, WebParams(homes=(given,)), Gathering(home))
    looking.look()
    assert "gives no answer" in looking.picture().home("far").trouble


def test_what_another_page_says_is_cut_to_size_and_cant_pose_as_ours(home, other):
    """Long texts, unknown fields, too many stages; links lead to that page, whatever it says."""
    site, given = other
    real = site.get("/api/home.json")
    answer = json.loads(real.body)
    one = answer["pipelines"][0]["stages"][0]
    one |= {"why": "x" * 100_000, "newer": 1, "home": home.root}
    table = {"source": "a", "target": "b", "state": "copying", "rows_s": 2.5, "bytes_s": None, "left_us": None}
    table |= {"chunks": 4, "chunks_done": 1, "rows": 100, "bytes": 2000}
    one["extra"] |= {
        "load_states": {"copying": 1},
        "loading": [{**table, "more": {"a": [1]}}],
        "web_home": "here",
        "web_url": "http://evil.org",
        "deep": {"a": [1]},
        "read": {"seqno": 1, "rba": 2},
    }
    site.answer = lambda: type(real)(200, {}, json.dumps(answer).encode())
    looking = HomesWatch(home, WebParams(homes=(given,)), Gathering(home))
    looking.look()
    far = next(s for p in looking.picture().pipelines for s in p.stages if s.name == "PMP1")
    assert len(far.why) <= remote.MAX_TEXT
    assert watch.key(far) == "far/PMP1"
    assert far.extra["web_url"] == given.url
    assert "deep" not in far.extra
    assert far.extra["read"] == {"seqno": 1, "rba": 2}
    assert (far.extra["load_states"], far.extra["loading"]) == ({"copying": 1}, [table])
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
        thread.join(PATIENCE)


def test_refusals_of_another_page_are_told(home, other, monkeypatch):
    """A wrong token; too long an answer; an answer that was old when it came."""
    site, given = other
    real = site.get("/api/home.json")
    looking = HomesWatch(home, WebParams(homes=(given,)), Gathering(home))
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
