"""What an Extract hears of the process that sends its file: lines, errors by their exit code, and its end."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from demo.patience import wait_for
from extract.carrier import Carrier
from trails.errors import AwayError, OperatorError
from trails.position import Position, TrailName
from trails.runtime.language.remotehost import CarryOrder, RemoteHost

SAYS = """import json, sys
first = json.loads(sys.stdin.readline())
def say(**told): print(json.dumps(told), flush=True)
"""


@pytest.fixture
def made() -> Iterator[list[Carrier]]:
    found: list[Carrier] = []
    yield found
    for one in found:
        one.close()
        assert one._process.returncode is not None


def carrier(made: list[Carrier], script: str) -> Carrier:
    there, command = RemoteHost("there", 7809), (sys.executable, "-c", SAYS + script)
    made.append(Carrier(CarryOrder("/home", "LOAD1", "here", there, "./dirdat/in", True, "LOAD2"), command))
    return made[-1]


def test_it_is_told_what_to_send_and_says_how_far_it_is(made: list[Carrier]):
    """The second line comes when the file is finished."""
    one = carrier(
        made,
        "assert first == dict(home='/home', group='LOAD1', host='here', file='./dirdat/in', encrypt=True, task='LOAD2',"
        " remote=dict(host='there', port=7809, dead_seconds=10, tls=True)), first\n"
        "say(waits='Waiting'); second = json.loads(sys.stdin.readline())\n"
        "assert second == dict(trail=['/home/dirdat/.in.LOAD1.task', 'in', '/home/dirwlt'], whole=[0, 77]), second\n"
        "say(sent=70, waits=''); say(sent=77, done=True)",
    )
    wait_for(lambda: one.step() or one.waits_for == "Waiting", lambda: one.waits_for)
    assert one.sent == 0
    one.begin(TrailName("/home/dirdat/.in.LOAD1.task", "in"), Position(0, 77))
    wait_for(one.step, lambda: str(one.sent))
    assert one.sent == 77 and one.waits_for == ""


@pytest.mark.parametrize(("code", "kind"), [(2, OperatorError), (3, AwayError)])
def test_what_it_could_not_mend_ends_the_extract(made: list[Carrier], code: int, kind: type[Exception]):
    """With the exit code that the other has."""
    one = carrier(made, f"say(error='the peer refused', hint='Mend it', code={code}); sys.exit({code})")
    with pytest.raises(kind, match=r"the peer refused\. Mend it"):
        wait_for(one.step, lambda: "")


def test_one_that_is_killed_ends_the_extract_and_may_be_started_again(made: list[Carrier]):
    """Exit code 3: nothing is wrong with what was asked."""
    one = carrier(made, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(AwayError, match="ended with exit code -9"):
        wait_for(one.step, lambda: "")


def test_it_ends_with_the_extract(made: list[Carrier]):
    """Its input ends; and what is told to one that has ended is no error of its own."""
    one = carrier(made, "sys.stdin.read(); sys.exit(0)")
    one.close()
    assert one._process.returncode == 0
    gone = carrier(made, "sys.exit(5)")
    gone._process.wait()
    gone.begin(TrailName("/x", "in"), Position(0, 1))
    with pytest.raises(AwayError, match="exit code 5"):
        gone.step()
    assert os.get_blocking(gone.fileno()) is False
