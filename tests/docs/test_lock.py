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


def test_the_lock_names_no_index():
    """Where files come from is the reader's own setting; what they must be is here."""
    lock = (ROOT / "requirements.lock").read_text()
    assert "://" not in lock and "--index" not in lock and "--find-links" not in lock


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
    tools = tmp_path / "build/tools/bin"
    tools.mkdir(parents=True)
    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts/supply.sh"
    script.write_text((ROOT / "scripts/supply.sh").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "requirements.lock").write_text("a==1\n", encoding="utf-8")
    for name, text in (("python", "exit 0"), ("pip-audit", f"cat >build/audit.json <<'END'\n{found}\nEND")):
        (tools / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (tools / name).chmod(0o755)
    done = subprocess.run(["sh", str(script), "audit"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == code
    assert said in done.stdout + done.stderr
