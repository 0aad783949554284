"""requirements.lock is constraints.txt with hashes: what make setup installs is what was looked at."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOT_INSTALLED = {"oracledb"}


def pinned(text: str) -> dict[str, str]:
    """Name -> version of each pinned package."""
    found = re.findall(r"(?m)^([A-Za-z0-9._-]+)==([^\s\\]+)", text)
    return {re.sub(r"[._-]+", "-", name).lower(): version for name, version in found}


def test_the_lock_is_the_constraints_with_hashes():
    """Run `make locked` after a change of constraints.txt."""
    lock = (ROOT / "requirements.lock").read_text()
    wanted = pinned((ROOT / "constraints.txt").read_text())
    assert pinned(lock) == {name: version for name, version in wanted.items() if name not in NOT_INSTALLED}
    for entry in re.split(r"(?m)^(?=[A-Za-z0-9])", lock)[1:]:
        assert re.fullmatch(r"[^\s;]+ \\\n(    --hash=sha256:[0-9a-f]{64}( \\)?\n)+", entry), entry[:80]


@pytest.mark.parametrize("name", ["requirements.lock", "scripts/tools.lock"])
def test_a_lock_names_no_index(name: str) -> None:
    """Where files come from is the reader's own setting; what they must be is here."""
    lock = (ROOT / name).read_text()
    assert "://" not in lock and "--index" not in lock and "--find-links" not in lock


def test_the_tools_that_look_at_the_lock_are_locked_themselves() -> None:
    """Each package with hashes, and all that scripts/tools.in asks for is there."""
    lock = (ROOT / "scripts/tools.lock").read_text()
    entries = re.split(r"(?m)^(?=[A-Za-z0-9])", lock)[1:]
    for entry in entries:
        assert re.fullmatch(r"[^\s;]+( ; [^\n\\]+)? \\\n(    --hash=sha256:[0-9a-f]{64}( \\)?\n)+", entry), entry[:80]
    wanted = {line for line in (ROOT / "scripts/tools.in").read_text().splitlines() if not line.startswith("#")}
    assert wanted <= pinned(lock).keys()


def supply(folder: Path, verb: str, **tools: str) -> subprocess.CompletedProcess[str]:
    """The script in a folder of its own, where these tools are there already: each by the shell text that it runs."""
    here = folder / "build/tools/bin"
    here.mkdir(parents=True)
    (folder / "scripts").mkdir()
    for name in ("supply.sh", "tools.lock"):
        (folder / "scripts" / name).write_bytes((ROOT / "scripts" / name).read_bytes())
    (here.parent / "installed.lock").write_bytes((ROOT / "scripts/tools.lock").read_bytes())
    (folder / "requirements.lock").write_text("a==1\n", encoding="utf-8")
    for name, text in tools.items():
        tool = here / name.replace("_", "-")
        tool.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        tool.chmod(0o755)
    command = ["sh", str(folder / "scripts/supply.sh"), verb]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


@pytest.mark.parametrize(
    ("found", "code", "said"),
    [
        ('{"dependencies": [{"name": "a", "version": "1", "vulns": []}]}', 0, "no known problem in 1 packages"),
        ('{"dependencies": [{"name": "a", "skip_reason": "not found"}]}', 2, "1 of 1 packages were not found"),
    ],
    ids=["all known", "none known"],
)
def test_an_audit_that_looked_nothing_up_is_no_good_news(tmp_path: Path, found: str, code: int, said: str) -> None:
    """The tool ends well where its database answers but knows no package: then nothing was checked."""
    done = supply(tmp_path, "audit", pip_audit=f"cat >build/audit.json <<'END'\n{found}\nEND")
    assert done.returncode == code
    assert said in done.stdout + done.stderr


def test_an_sbom_is_of_what_is_installed_and_says_where_it_is(tmp_path: Path) -> None:
    """The tool looks at .venv, not at its own environment; where it fails there is no word of a file."""
    said = supply(tmp_path / "good", "sbom", cyclonedx_py='echo "$@" >build/asked')
    assert (said.returncode, said.stdout) == (0, "build/sbom.cdx.json\n"), said.stderr
    asked = (tmp_path / "good/build/asked").read_text().split()
    assert asked[0] == "environment" and asked[-1] == ".venv/bin/python" and "JSON" in asked
    said = supply(tmp_path / "bad", "sbom", cyclonedx_py="exit 1")
    assert (said.returncode, said.stdout, said.stderr) == (2, "", "build/sbom.cdx.json was not made\n")
