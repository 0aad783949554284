"""/metrics: what Prometheus reads is what the table of figures says, and the dashboard and the docs use its names."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from ggsci.flow.pipelines import facts_of
from ggsci.manager.webtokens import ensure_token
from ggsci.web import figures
from ggsci.web import site as page_site
from ggsci.web.figures import COUNTER, FAMILIES
from ggsci.web.watch import HomeView
from tests.support.homes import good, make_home
from tests.support.web import Site, pipeline, stage
from trails import checkpoint
from trails.checkpoint import Checkpoint, Place, ReadCheckpoint, WriteCheckpoint
from trails.clock import RealClock
from trails.runtime.home import registration as registrations
from trails.runtime.process.control import ControlServer
from trails.runtime.report.answers import LagAnswer

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "docs" / "grafana" / "trailgate.json"
RULES = ROOT / "docs" / "prometheus" / "trailgate.rules.yml"
PAGE = ROOT / "docs" / "web.md"


@pytest.fixture
def home(tmp_path):
    made = make_home(tmp_path / "home")
    good(made, "ADD EXTRACT ext1, TRANLOG")
    good(made, "ADD EXTTRAIL ./dirdat/lt, EXTRACT ext1")
    place = Place(3, 4096, time_us=1)
    write = WriteCheckpoint(5, 6000, 1, "./dirdat/lt", "EXTTRAIL")
    read = ReadCheckpoint("PostgreSQL", place, place, Place(2, 512, time_us=1))
    beat = {"from": "shop", "to": "", "path": "EXT1", "lag_us": 7, "at_us": 1_000_000, "every_s": 60}
    save = Checkpoint(
        "EXT1", "EXTRACT", (read,), (write,), saved_us=RealClock().now_us(), lag_us=2_000_000,
        extra={"heartbeats": [beat]},
    )  # fmt: skip
    checkpoint.save(made.fs, made.checkpoint("EXT1", "EXTRACT"), save)
    return made


def samples(text):
    """(name, labels) -> value."""
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in parse(text) for s in family.samples}


def value(found, name, **labels):
    """The one sample of that name with these labels; None if there is none."""
    hits = [v for (n, given), v in found.items() if n == name and labels.items() <= dict(given).items()]
    assert len(hits) <= 1, (name, hits)
    return hits[0] if hits else None


def test_figures_of_a_stage_and_its_checkpoint(home):
    """Lag, age, backlog, rates, counters, log kept; positions and lag as INFO tells them."""
    extra = {
        "home_id": home.id, "operations": 77, "bytes_in": 10, "log_kept_bytes": 123, "clock_offset_us": -2_000_000,
        "turn_age_us": 5000, "inflight_bytes": 9, "log_status": "reserved", "blocked": None, "lossy": True,
    }  # fmt: skip
    site = Site(home, [pipeline(stage(home, extra=extra, holds_back=True))])
    found = samples(site.get("/metrics").text)
    group = {"home": "home", "program": "EXTRACT", "group": "EXT1"}
    expected = {
        "trailgate_lag_seconds": 0.4, "trailgate_lag_known": 1, "trailgate_backlog_bytes": 2048,
        "trailgate_busy_ratio": 0.5, "trailgate_changes_total": 77,
        "trailgate_read_bytes_total": 10, "trailgate_log_kept_bytes": 123, "trailgate_clock_offset_seconds": -2,
        "trailgate_turn_age_seconds": 0.005, "trailgate_group_up": 0,
        "trailgate_read_timestamp_seconds": 1e-6, "trailgate_write_timestamp_seconds": 1e-6,
        "trailgate_read_seqno": 3, "trailgate_read_rba_bytes": 4096, "trailgate_write_seqno": 5,
        "trailgate_write_rba_bytes": 6000, "trailgate_recovery_seqno": 2, "trailgate_recovery_rba_bytes": 512,
    }  # fmt: skip
    assert {name: value(found, name, **group) for name in expected} == expected
    assert value(found, "trailgate_inflight_bytes", **group) == 9
    assert value(found, "trailgate_log_status", status="reserved", **group) == 1
    assert value(found, "trailgate_checkpoint_lag_seconds") is None, "its heartbeat is overdue"
    assert value(found, "trailgate_heartbeat_overdue", path="EXT1") == 1
    assert value(found, "trailgate_blocked_ratio") is None, "nobody counts it"
    assert not any("lossy" in name for name, _ in found)
    assert value(found, "trailgate_heartbeat_age_seconds", path="EXT1") > 1e9  # it does not run; that is old
    assert value(found, "trailgate_heartbeat_lag_seconds", path="EXT1") is None
    assert value(found, "trailgate_group_status", status="STOPPED") == 1
    assert value(found, "trailgate_group_status", status="ABENDED") == 0
    assert value(found, "trailgate_manager_up", home="home") == 0


def test_what_is_loaded_has_figures_of_its_own(home):
    """Of a table nothing of which is known but its state, that alone."""
    waiting = dict.fromkeys(LOADS["loading"][0]) | {"source": "b", "target": "c", "chunks": 0}
    extra = {"load_states": LOADS["load_states"], "loading": [*LOADS["loading"], waiting]}
    found = samples(Site(home, [pipeline(stage(home, extra=extra))]).get("/metrics").text)
    assert value(found, "trailgate_load_tables", state="waiting") == 2
    expected = {"chunks": 4, "copied_chunks": 1, "rows": 100, "bytes": 2000, "rows_per_second": 2.5, "left_seconds": 30}
    got = {name: value(found, f"trailgate_load_{name}", table="a", target="b") for name in expected}
    assert got == expected
    assert {n for n, given in found if dict(given).get("table") == "b"} == {"trailgate_load_chunks"}


def test_each_thread_of_a_clustered_source_has_figures_of_its_own(home):
    """Two threads are two sources to Prometheus, which refuses a figure that stands twice."""
    path = home.checkpoint("EXT1", "EXTRACT")
    (save,) = checkpoint.load(home.fs, path)
    places = (Place(3, 1, 1, thread=1), Place(9, 1, 1, thread=2))
    reads = tuple(ReadCheckpoint("Redo Log", place, place) for place in places)
    checkpoint.save(home.fs, path, replace(save, reads=reads))
    found = samples(Site(home, [pipeline(stage(home))]).get("/metrics").text)
    assert value(found, "trailgate_read_seqno", source="Redo Log thread 1") == 3
    assert value(found, "trailgate_read_seqno", source="Redo Log thread 2") == 9


def test_GG_19_what_is_unknown_is_left_out_and_said(home):
    """No zero stands for what is not known."""
    blind = stage(home, lag_us=None, lag_age_us=9_000_000, ops_s=None, bytes_s=None, busy=None, backlog_bytes=None)
    found = samples(Site(home, [pipeline(blind)]).get("/metrics").text)
    assert value(found, "trailgate_lag_known") == 0
    assert value(found, "trailgate_lag_age_seconds") == 9
    for name in ("lag_seconds", "pipeline_lag_seconds", "busy_ratio", "backlog_bytes"):
        assert value(found, f"trailgate_{name}") is None


def test_GG_19_a_pipeline_has_figures_of_its_own(home):
    """RUNNING only while all of it is seen to work; a stage that is missing makes it UNKNOWN."""
    labels = {"home": "home", "pipeline": "EXT1 > PMP1"}
    fed = {"home_id": home.id, "fed_by": f"{home.id}/EXT1", "input_age_us": 7_000_000}
    pump = stage(home, "PMP1", "PUMP", reads="./dirdat/lt", extra=fed)
    found = samples(Site(home, [pipeline(stage(home), pump)]).get("/metrics").text)
    assert value(found, "trailgate_pipeline_status", status="RUNNING", **labels) == 1
    assert value(found, "trailgate_pipeline_lag_seconds", **labels) == 0.4
    found = samples(Site(home, [pipeline(pump)]).get("/metrics").text)
    states = {dict(given)["status"]: v for (name, given), v in found.items() if name == "trailgate_pipeline_status"}
    assert states == {"STARTING": 0, "RUNNING": 0, "STOPPED": 0, "ABENDED": 0, "UNKNOWN": 1}
    assert value(found, "trailgate_pipeline_lag_known", **labels) == 0
    assert value(found, "trailgate_pipeline_lag_seconds", **labels) is None
    assert value(found, "trailgate_pipeline_lag_age_seconds", **labels) == 7


def test_the_build_is_told(home):
    found = samples(Site(home, []).get("/metrics").text)
    assert value(found, "trailgate_build_info", version=figures._RELEASE) == 1


def test_a_home_that_cant_be_seen_is_neither_up_nor_down(home):
    """Left out, as every figure that is not known."""
    for view, expected in ((HomeView("h", manager="STOPPED"), 0), (HomeView("h", trouble="no answer"), None)):
        made = [s for s in figures._home(view, 0, figures.Asked()) if s[2] is not None]
        assert value(samples(figures.exposition(made)[0].decode()), "trailgate_manager_up") == expected


def test_stats_heartbeats_and_disks(home):
    """STATS by table and operation, also the rarer counters; LAG's paths; the Manager's disks."""
    table = {"from": 's."T"', "to": "s.t", "inserts": 3, "updates": 0, "operations": 3, "more": {"exceptions": 2}}
    beat = {
        "from": "shop",
        "to": "copy",
        "path": "EXT1 ==> REP1",
        "lag_us": 1_500_000,
        "at_us": 5_000_000,
        "every_s": 10,
        "stages": [{"from": "shop", "to": "EXT1", "us": 400_000}, {"from": "EXT1", "to": "REP1", "us": None}],
    }
    stale = {**beat, "path": "EXT1 ==> REP2", "at_us": -500_000_000}
    asked = figures.Asked(
        {"EXT1": {"tables": [table], "since_us": 4_000_000}},
        {"EXT1": LagAnswer(heartbeats=[beat, stale])},
        {"children": []},
    )
    labels = ("home", "EXTRACT", "EXT1")
    disk = {"path": "/d", "free": 10, "size": 100, "warn": 20, "stop": 5}
    made = [
        *figures._of_answers(asked, "EXT1", labels, 8_000_000),
        *figures._home(HomeView("home", details={"disks": [disk, disk | {"free": 7, "unit": "files"}]}), 0, asked),
    ]
    found = samples(figures.exposition([s for s in made if s[2] is not None])[0].decode())
    assert value(found, "trailgate_table_operations_total", operation="inserts", table='s."T"', target="s.t") == 3
    assert value(found, "trailgate_table_operations_total", operation="exceptions") == 2
    assert value(found, "trailgate_stats_since_timestamp_seconds") == 4
    assert value(found, "trailgate_table_operations_total", operation="operations") is None
    assert value(found, "trailgate_heartbeat_lag_seconds", path="EXT1 ==> REP1", to="copy") == 1.5
    assert value(found, "trailgate_heartbeat_age_seconds", path="EXT1 ==> REP1") == 3
    assert value(found, "trailgate_heartbeat_lag_seconds", path="EXT1 ==> REP2") is None, "stale"
    assert value(found, "trailgate_heartbeat_stage_seconds", path="EXT1 ==> REP1", stage="shop to EXT1") == 0.4
    assert value(found, "trailgate_heartbeat_stage_seconds", stage="EXT1 to REP1") is None, "clocks not compared"
    assert value(found, "trailgate_heartbeat_stage_seconds", path="EXT1 ==> REP2") is None, "stale"
    assert value(found, "trailgate_heartbeat_age_seconds", path="EXT1 ==> REP2") == 508
    assert value(found, "trailgate_disk_free_bytes", path="/d") == 10
    assert value(found, "trailgate_disk_free_files", path="/d") == 7


def test_a_scrape_asks_running_processes_at_most_once_in_a_while(home, monkeypatch):
    """Two scrapes in a row are one look."""
    monkeypatch.setattr(page_site, "FIGURES_SECONDS", 600.0)
    calls = []
    server = ControlServer(home, "EXT1", lambda verb, _: calls.append(verb) or {})
    site = Site(home, [pipeline(stage(home))])
    first = site.get("/metrics").text
    assert site.get("/metrics").text == first
    server.close()


LOADS = {
    "load_states": {"copying": 1, "waiting": 2},
    "loading": [{
        "source": "a", "target": "b", "state": "copying", "chunks": 4, "chunks_done": 1, "rows": 100, "bytes": 2000,
        "rows_s": 2.5, "bytes_s": 50.0, "left_us": 30_000_000,
    }],
}  # fmt: skip
_UNITS = ("_seconds", "_bytes", "_ratio", "_total", "_info")
_PLAIN = {
    f"trailgate_{name}"
    for name in (
        "manager_up", "group_up", "lag_known", "pipeline_lag_known", "heartbeat_overdue", "holds_back",  # 0 or 1
        "group_status", "pipeline_status", "log_status",  # 1 for one of them
        "restarts", "disk_free_files", "exit_code", "read_seqno", "recovery_seqno", "write_seqno",  # whole numbers
        "load_tables", "load_chunks", "load_copied_chunks", "load_rows",  # as well
        "load_rows_per_second",
    )
}  # fmt: skip


class _Threes(dict[str, Any]):
    """What a stage knows beside the rest, whatever it is asked for."""

    def get(self, _name: str, _default: object = None) -> int:
        return 3


def test_every_family_is_emitted(home):
    """No name in the table, and so in docs, dashboard and alerts, that nothing tells."""
    asked = figures.Asked(
        {"EXT1": {"since_us": 1, "tables": [{"from": "a", "to": "b", "inserts": 1}]}},
        {"EXT1": LagAnswer(heartbeats=[{
            "from": "shop", "to": "copy", "path": "EXT1", "lag_us": 7, "at_us": 9, "every_s": 60,
            "stages": [{"from": "shop", "to": "EXT1", "us": 4}],
        }])},
        {"children": [{"group": "EXT1", "retries": 1}]},
    )  # fmt: skip
    disk = {"path": "/d", "free": 10, "size": 100, "warn": 20, "stop": 5}
    view = HomeView("home", manager="RUNNING", details={"disks": [disk, disk | {"unit": "files"}]})
    (group,) = facts_of(home, registrations.all(home), RealClock().now_us())
    group = replace(group, started_us=1, exit_code=0, doubt=None)
    labels = ("home", "EXTRACT", "EXT1")
    made = [
        *figures._home(view, 0, asked), *figures._of_pipeline(pipeline(stage(home)), ("home", "EXT1")),
        *figures._of_files(group, labels), *figures._of_answers(asked, "EXT1", labels, 9),
        *figures._of_stage(replace(stage(home), extra=_Threes()), labels), *figures._of_load(LOADS, labels),
    ]  # fmt: skip
    assert {name for name, _, value in made if value is not None} == set(FAMILIES)


def test_every_family_is_named_as_prometheus_wants():
    for name, family in FAMILIES.items():
        assert re.fullmatch(r"trailgate_[a-z_]+", name)
        assert name.endswith("_total") == (family.kind == COUNTER)
        assert name.endswith(_UNITS) or name in _PLAIN, name
        assert family.help.endswith(".")


def alerts() -> list[dict[str, str]]:
    """The rules; each field stands on a line of its own."""
    found: list[dict[str, str]] = []
    for line in RULES.read_text().splitlines():
        if match := re.fullmatch(r"\s+(?:- )?(alert|expr|for|labels|summary): (.*)", line):
            found += [{}] if match[1] == "alert" else []
            found[-1][match[1]] = match[2].strip("'")
    return found


def test_each_alert_asks_for_what_is_emitted(home):
    """docs/prometheus: names, labels and the values of status are those of /metrics; each has a row in docs/web.md."""
    page, rules = PAGE.read_text(), alerts()
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 15
    statuses = {*figures._PIPELINE_STATUSES, "lost"}
    for rule in rules:
        assert set(rule) == {"alert", "expr", "for", "labels", "summary"}, rule
        for name, selector in re.findall(r"(trailgate_[a-z_]+)(\{[^}]*\})?", rule["expr"]):
            assert name in FAMILIES, rule["alert"]
            given = dict(re.findall(r'(\w+)="([^"]*)"', selector))
            assert set(given) <= set(FAMILIES[name].labels)
            assert given.get("status", "lost") in statuses
        check_promql(rule["expr"], [])
        family = next(iter(re.findall(r"trailgate_[a-z_]+", rule["expr"])), "")
        shown = set(re.findall(r"\$labels\.(\w+)", rule["summary"]))
        assert shown <= {*FAMILIES[family].labels, "instance"} if family else shown == {"instance"}, rule["alert"]
        severity = re.fullmatch(r"\{severity: (critical|warning)\}", rule["labels"])
        assert severity
        expression = rule["expr"].replace("|", "\\|")  # in a cell of a table
        assert f"| `{rule['alert']}` | {severity[1]} | `{expression}` for {rule['for']} |" in page


def test_the_dashboard_uses_these_names_only():
    """docs/grafana/trailgate.json: each expression names families and labels that there are."""
    board = json.loads(DASHBOARD.read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    assert len(expressions) >= 10
    used = set()
    for expression in expressions:
        for name, selector in re.findall(r"(trailgate_[a-z_]+)(\{[^}]*\})?", expression):
            assert name in FAMILIES, expression
            labels = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector)
            assert set(labels) <= set(FAMILIES[name].labels), expression
            used.add(name)
    queries = [one["query"]["query"] for one in board["templating"]["list"] if one["type"] == "query"]
    assert all(name in FAMILIES for query in queries for name in re.findall(r"trailgate_[a-z_]+", query))
    assert {"trailgate_lag_seconds", "trailgate_lag_known", "trailgate_backlog_bytes", "trailgate_group_status"} <= used


def test_the_dashboard_is_one_that_grafana_takes():
    """Variables before they are used, a data source to choose, panels that don't overlap, expressions that close."""
    board = json.loads(DASHBOARD.read_text())
    assert {"title", "uid", "schemaVersion", "time", "refresh", "templating", "panels"} <= set(board)
    assert "id" not in board, "Grafana gives it"
    variables = board["templating"]["list"]
    names = [one["name"] for one in variables]
    assert (names[0], variables[0]["type"], variables[0]["query"]) == ("datasource", "datasource", "prometheus")
    for at, one in enumerate(variables):
        assert {"name", "type", "query", "current"} <= set(one)
        assert set(re.findall(r"\$\{?(\w+)", json.dumps(one["query"]))) <= set(names[:at])
    cells: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        assert panel["type"] in ("stat", "timeseries")
        assert panel["title"]
        assert set(panel["fieldConfig"]) == {"defaults", "overrides"}
        place = panel["gridPos"]
        taken = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in taken) < 24
        assert not taken & cells, panel["title"]
        cells |= taken
        assert panel["targets"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        for asked in (panel, *panel["targets"]):
            assert asked["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        for target in panel["targets"]:
            check_promql(target["expr"], names)
            legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            labels = {label for name in re.findall(r"trailgate_\w+", target["expr"]) for label in FAMILIES[name].labels}
            assert legend <= labels, target["legendFormat"]
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)


def check_promql(text: str, variables: list[str]) -> None:
    """Every character is of a known kind, brackets close, counters are only read by rate, variables are there."""
    kinds = (
        r'"(?:[^"\\]|\\.)*"', r"\[\d+[smhd]\]", r"[A-Za-z_]\w*", r"\d+(?:\.\d+)?", r"=~|!~|!=|==|>=|<=|[-+*/<>=,(){}]",
    )  # fmt: skip
    rest = re.sub("|".join(kinds), "", text)
    assert not rest.strip(), f"{rest!r} in {text}"
    bare = re.sub(kinds[0], "", text)
    depth: list[str] = []
    for mark in re.findall(r"[(){}\[\]]", bare):
        if mark in "({[":
            depth.append(mark)
        else:
            assert depth.pop() + mark in ("()", "{}", "[]"), text
    assert not depth, text
    words = set(re.findall(r"[A-Za-z_]\w*", re.sub(r"\{[^}]*\}|\([a-z, ]+\)|\[\w+\]", " ", bare)))
    known = {"sum", "count", "max", "rate", "increase", "abs", "vector", "or", "and", "on", "by", "up"}
    assert {w for w in words if not w.startswith("trailgate_")} <= known
    assert set(re.findall(r"\$(\w+)", text)) <= set(variables)
    for counter in re.findall(r"trailgate_\w+_total", bare):
        assert re.search(rf"(?:rate|increase)\({counter}(?:\{{[^}}]*\}})?\[", bare), text


def test_the_docs_name_every_family():
    """docs/web.md has a row for each, with its labels and help."""
    text = PAGE.read_text()
    for name, family in FAMILIES.items():
        assert f"| `{name}` | {', '.join(family.labels)} | {family.help} |" in text, name


def test_elsewhere_a_scrape_needs_the_token(home):
    from ggsci.manager.webparams import WebParams

    site = Site(home, [], WebParams(port=1, bind="0.0.0.0"))
    assert site.get("/metrics").status == 401
    assert site.get("/metrics", {"authorization": f"Bearer {ensure_token(home)}"}).status == 200
