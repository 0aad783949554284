"""SOURCEISTABLE on a scripted reader: killed at every file-system call, the file is the old or the new one, whole."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

import pytest

from extract.tabletask import TableTask
from tests.support.crashing import crash_everywhere
from tests.support.tabletask import SETTINGS, ListReader, run, sent, stands, step_on
from tests.support.trail_script import open_writer
from trails.errors import AwayError, OperatorError
from trails.position import TrailName
from trails.testing import FakeClock, FaultFs

pytestmark = pytest.mark.fault


@dataclass
class TaskWorld:
    """Files, and the snapshot of the next run."""

    fs: FaultFs
    csn: str = "1"

    def outside(self) -> Hashable:
        return self.csn

    def with_fs(self, fs: FaultFs) -> TaskWorld:
        return replace(self, fs=fs)


def test_the_file_is_replaced_whole_or_not_at_all():
    """A crash at any call, of the process or the power: the old file or the new one; the next run makes the new one."""
    world = TaskWorld(FaultFs(), "2")
    assert stands(world.fs) == ""
    assert "as of CSN 1" in run(world.fs, ListReader("1"))

    def found(left: TaskWorld) -> None:
        assert stands(left.fs) in ("1", "2")

    def check(left: TaskWorld) -> None:
        assert stands(left.fs) == "2"

    assert crash_everywhere(world, lambda one: run(one.fs, ListReader(one.csn)), check, found=found) > 20


def test_a_lost_connection_leaves_the_file_as_it_was():
    """Also where it comes at the last piece; nothing of the run is left."""
    fs = FaultFs()
    run(fs, ListReader("1"))
    before = fs.image()
    task = TableTask(fs, SETTINGS, ListReader("2", lost=True), FakeClock(), lambda _text: None)
    with pytest.raises(AwayError):
        step_on(task)
    task.close()
    assert stands(fs) == "1" and len(fs.image()) == len(before)


def test_a_file_that_is_not_its_own_is_not_replaced():
    """The trail of a pipeline, and the file of another group."""
    fs = FaultFs()
    run(fs, ListReader("1"))
    with pytest.raises(OperatorError, match="was written by group LOAD1"):
        run(fs, ListReader("2"), replace(SETTINGS, group="LOAD9"))
    assert stands(fs) == "1"
    open_writer(fs).close()
    with pytest.raises(OperatorError, match="a trail is there"):
        run(fs, ListReader("2"), replace(SETTINGS, file=TrailName("/home/dirdat", "lt")))


def test_a_file_for_another_host_waits_hidden_until_it_is_there():
    """It gets no name here; INFO shows how much is sent, and nothing is left of it in the end."""
    fs = FaultFs()
    task, sending = sent(fs, "1")
    (file, whole) = sending.order[0]
    assert not task.finished() and fs.exists(file.path(0)) and stands(fs) == ""
    sending.sent = 700
    save = task.flush()
    assert save is not None and save.extra["task"]["sending"] == f"700 of {whole.rba} bytes sent to there"
    assert save.writes[0].type == "RMTFILE" and not save.extra["task"]["whole"]
    assert task.status().status == f"700 of {whole.rba} bytes sent to there"
    sending.waits_for = "Waiting for the Manager"
    assert task.waits_for() == "Waiting for the Manager"
    sending.done = True
    task.step()
    assert "./dirdat/in000000000 at there has 84 rows of 2 tables as of CSN 1" in task.finished()
    task.close()
    assert stands(fs) == "" and not fs.exists(file.path(0))
    task, sending = sent(fs, "2")
    task.close()
    assert not fs.exists(sending.order[0][0].path(0))
