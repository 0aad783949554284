"""CW-28: the disk is full in the middle of a block, under a checkpoint file, under a discard file."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from functools import partial

import pytest

from extract.extract import Extract
from tests.fault.test_extract_crashes import ITEMS, SETTINGS
from tests.fault.test_replicat_discards import Run
from tests.support.replicat_lives import DISCARDS
from tests.support.scripted import ScriptedLog, ScriptedSource
from tests.support.trail_script import TRAIL, Tx, expected, transactions
from trails import checkpoint
from trails.errors import DiskFullError
from trails.runtime.process.loop import Stop, run
from trails.testing import After, FakeClock, FaultFs

pytestmark = pytest.mark.fault

CHECKPOINTS = "/home/dirchk/EXT1.cpe"


class Capturing:
    """An Extract under the loop that every process has, with its trail and its checkpoint file."""

    def __init__(self) -> None:
        self.fs, self.log = FaultFs(), ScriptedLog(list(ITEMS))

    def __call__(self) -> None:
        """From START to STOP, once all is captured and released."""
        clock, stop = FakeClock(), Stop()

        def tick(now: float) -> None:
            clock.sleep(0.05)
            if self.log.confirmed >= self.log.end():
                stop.request()

        extract = Extract.start(self.fs, SETTINGS, ScriptedSource(self.log), clock)
        save = partial(checkpoint.save, self.fs, CHECKPOINTS)
        run(extract, save, stop, clock=clock, checkpoint_every=0.2, chores=[tick])

    def check(self) -> None:
        """Nothing lost, nothing twice."""
        assert transactions(self.fs) == [*expected(), *expected([Tx(11, 30)])]
        assert checkpoint.load(self.fs, CHECKPOINTS)[0].stop_status == "G"


class Full:
    """From the n-th call that needs space on: no file that begins like this is made or grows.

    Nor is a checkpoint file overwritten, which would need none: a file system may write what is new beside the old.
    """

    def __init__(self, fs: FaultFs, place: str, number: int) -> None:
        self.fs, self.place, self.left = fs, place, number

    def __call__(self, operation: str, path: str) -> None:
        needs_space = operation == "create" or (operation == "write" and (self.fs.appends or path == CHECKPOINTS))
        if needs_space and path.startswith(self.place):
            self.left -= 1
            if self.left < 0:
                raise DiskFullError(f"cannot {operation} {path}: No space left on device", hint="Make space")


def _said(group: Capturing | Run) -> str:
    """Why it ended before its STOP; empty if it did not."""
    try:
        group()
    except DiskFullError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("made", "place"), [(Capturing, TRAIL.folder), (Capturing, CHECKPOINTS), (Run, DISCARDS)],
    ids=["trail", "checkpoint", "discard file"],
)  # fmt: skip
def test_CW_28_the_process_ends_with_one_message_and_goes_on_once_there_is_space(
    made: Callable[[], Capturing | Run], place: str
) -> None:
    """Wherever it meets the full disk, half of a block or record written; START says it again, and loses nothing.

    How often a life saves its checkpoints depends on when its syncs end, so the first that needs less is the last.
    """
    for number in itertools.count():
        group = made()
        group.fs.fail = full = Full(group.fs, place, number)
        said = _said(group)
        if not said:
            assert full.left >= 0
            break
        group.fs.reboot(After.KILL)
        for text in (said, _said(group)):
            assert re.search(f"{place}.*: No space left on device", text)
            assert text.count("No space left") == 1
        group.fs.reboot(After.KILL)
        group.fs.fail = lambda operation, path: None
        assert _said(group) == ""
        group.check()
    assert number > 3
