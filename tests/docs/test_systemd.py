"""docs/systemd: the units say what docs/manager.md promises, name programs that are there, and systemd takes them."""

from __future__ import annotations

import configparser
import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from demo.patience import PATIENCE
from ggsci.table.table import GRAMMAR

DOCS = Path(__file__).parents[2] / "docs"
UNITS = sorted((DOCS / "systemd").glob("*.service"))


def unit(path: Path) -> configparser.ConfigParser:
    """A unit file, each key as written."""
    found = configparser.ConfigParser(strict=False, interpolation=None, comment_prefixes=("#",), delimiters=("=",))
    found.optionxform = str
    found.read_string(path.read_text())
    return found


def test_the_manager_outlives_nothing_it_should_not_and_groups_outlive_it():
    """The promises: groups go on, systemd watches the loop, an operator's STOP and exit code 2 are respected."""
    service = unit(DOCS / "systemd" / "trailgate@.service")["Service"]
    assert (service["KillMode"], service["Type"], service["Restart"]) == ("process", "notify", "on-failure")
    assert service["RestartPreventExitStatus"] == "2"
    assert int(service["WatchdogSec"]) >= 60
    assert service["UMask"] == "0077"
    groups = unit(DOCS / "systemd" / "trailgate-groups@.service")["Unit"]
    assert "Requires" not in groups  # it would stop the groups at each restart of the Manager


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_what_a_unit_runs_exists(path):
    """Each command line: a module of ours, or a line that ggsci's parser takes."""
    service = unit(path)["Service"]
    for key in ("ExecStart", "ExecStop"):
        line = service[key]
        if module := re.search(r" -m (\S+) --home %f$", line):
            assert importlib.util.find_spec(module[1])
        elif command := re.search(r"/ggsci --home %f (.+)$", line):
            assert GRAMMAR.parse(command[1]).command
        else:
            assert line == "/bin/true"
    assert path.name in (DOCS / "manager.md").read_text()


def test_systemd_finds_no_fault(tmp_path):
    """systemd-analyze verify, where there is a systemd; programs and user are replaced by such as every machine has."""
    assert len(UNITS) == 2
    for path in UNITS:
        text = re.sub(r"/opt/trailgate/\.venv/bin/\w+", "/bin/true", path.read_text()).replace(
            "=trailgate\n", "=root\n"
        )
        (tmp_path / path.name).write_text(text)
        (tmp_path / path.name.replace("@", "@srv-trailgate-source")).write_text(text)
    if analyze := shutil.which("systemd-analyze"):
        units = sorted(str(path) for path in tmp_path.glob("*@srv*"))
        done = subprocess.run(
            [analyze, "verify", *units], capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        said = [line for line in done.stderr.splitlines() if "trailgate" in line]
        assert (done.returncode, said) == (0, [])
