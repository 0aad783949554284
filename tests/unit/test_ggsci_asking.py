"""How ggsci asks a sub-process: one for each request, or in a run of ggsci one for all of them."""

from __future__ import annotations

import errno
import sys
import tempfile
from pathlib import Path

import pytest

from demo.patience import wait_for
from ggsci import admin
from trails.errors import AwayError, OperatorError

PROGRAM = """
import json, os, sys, time
for line in sys.stdin:
    request = json.loads(line)
    if request["verb"] == "die":
        sys.exit("it died")
    if request["verb"] == "sleep":
        time.sleep(1000)
    reply = {"ok": True, "pid": os.getpid(), "size": len(line), "text": "x" * request.get("wanted", 0)}
    print(json.dumps(reply), flush=True)
    if request["verb"] == "last":
        sys.exit(0)
"""


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    for name in ("extract", "replicat"):
        monkeypatch.setitem(admin.COMMANDS, name, [sys.executable, str(file), name])


def pid(verb: str = "look", program: str = "extract") -> int:
    """Who answered."""
    return int(admin.ask(program, verb)["pid"])


def test_each_request_has_a_process_of_its_own_outside_of_a_run():
    assert pid() != pid()


def test_in_a_run_one_process_answers_all_requests_to_its_program(monkeypatch):
    """Each program its own; another environment is another process; one that is asked about parameters is not kept."""
    with admin.kept():
        first = pid()
        assert pid() == first != pid(program="replicat")
        assert pid("check_params") == first and (second := pid()) != first
        monkeypatch.setenv("OF_THIS_TEST", "1")
        assert pid() not in (first, second)


def test_one_that_ended_meanwhile_is_replaced():
    with admin.kept():
        first = pid("last")
        stat = Path(f"/proc/{first}/stat")
        wait_for(lambda: stat.read_text().rpartition(") ")[2][0] == "Z", lambda: "it has not ended")
        assert pid() != first


def test_requests_and_replies_of_any_size():
    """Longer than what a pipe holds, both ways at once."""
    with admin.kept():
        for _ in range(2):
            reply = admin.ask("extract", "look", given="y" * 300_000, wanted=400_000)
            assert reply["size"] > 300_000 and len(reply["text"]) == 400_000


def test_no_disk_is_needed(monkeypatch):
    """Who has to make room asks databases too."""

    def full(*_args: object, **_more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    monkeypatch.setattr(tempfile, "mkstemp", full)
    with pytest.raises(OperatorError, match="it died"):
        pid("die")
    assert pid()


@pytest.mark.parametrize("kept", [False, True])
def test_one_that_dies_says_why_and_one_that_is_silent_is_ended(kept: bool):
    with admin.kept():
        if kept:
            pid()
        with pytest.raises(OperatorError, match=r"extract.admin die ended with code 1: it died"):
            pid("die")
        if kept:
            pid()
        with pytest.raises(AwayError, match="sleep: no answer from the database within 0 s"):
            admin.ask("extract", "sleep", seconds=0.3)
        assert pid()
