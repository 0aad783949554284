"""The kinds of target: what loads a driver, which URLs there are, what a kind says it can do."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from replicat.targets.contract import TargetSettings
from replicat.targets.kinds import kind_of, open_target, url_fault
from trails.errors import OperatorError

ROOT = Path(__file__).parents[2]
URLS = ("postgresql://u@h/d", "mysql://u@h/d", "sqlite:///d.db")


def test_a_kind_loads_no_driver():
    """Who checks a parameter file, in ggsci too, needs none; nor the grammar of formulas."""
    heavy = ("psycopg", "pymysql", "sqlite3", "lark", "pyspark")
    ask = f"[kinds.kind_of(url).url_fault(url) for url in {URLS}]; kinds.url_fault('oracle://h/d')"
    code = f"import sys; from replicat.targets import kinds; {ask}; print([m for m in {heavy} if m in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert told.stdout == "[]\n"


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("oracle://h/d", "found a URL of kind 'oracle'"),
        ("shop", "found a URL of kind none"),
        ("MYSQL://h/d", "found a URL of kind 'MYSQL'"),
        ("sqlite://d.db", "expected sqlite:///file"),
        ("mysql://h:0/d", "expected a port from 1 to 65535, found 0"),
        *((url, "") for url in URLS),
    ],
)
def test_a_url_is_judged_by_its_kind(url: str, fault: str):
    """Without a database; and what no kind has is told with the shapes of all."""
    found = url_fault(url)
    assert (fault in found) if fault else not found
    if "of kind" in fault:
        for known in URLS:
            assert kind_of(known).url in found


def test_a_scheme_of_no_kind_is_refused_with_those_that_there_are():
    """Where the URL came by another way than a parameter file."""
    with pytest.raises(OperatorError, match="a URL of kind 'oracle'") as told:
        kind_of("oracle://h/d")
    assert told.value.hint == "Expected one of postgresql://, postgres://, mysql://, mariadb://, sqlite://"


def test_the_page_shows_what_each_kind_can_do():
    """docs/replicat.md has Capabilities as a table, line by line."""
    lines = (ROOT / "docs" / "replicat.md").read_text().splitlines()
    (head,) = (line for line in lines if line.startswith("| what the target can do |"))
    kinds = {kind_of(url).title: kind_of(url) for url in URLS}
    titles = [cell.strip() for cell in head.strip("| ").split("|")][1:]
    assert sorted(titles) == sorted(kinds)
    shown = {title: {} for title in titles}
    for line in lines[lines.index(head) + 2 :]:
        if not line.startswith("|"):
            break
        what, *cells = [cell.strip() for cell in line.strip("| ").split("|")]
        for title, cell in zip(titles, cells, strict=True):
            shown[title][what.split("`")[1]] = {"yes": True, "no": False}[cell]
    assert shown == {title: asdict(kind.can) for title, kind in kinds.items()}


def test_a_target_knows_its_kind():
    """Whoever has a target asks it, and no URL."""
    for url in URLS:
        target = open_target(TargetSettings(url, ("main", "chk"), "REP1", 1))
        assert target.kind is kind_of(url)
