"""A crash at every call of a purge, with what was not synced lost in every way: no hole, nothing unread gone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ggsci.manager import purge as manager_purge
from ggsci.manager.rules import PurgeRule
from replicat.batches import startup
from tests.support.trail_script import IDENTITY, SCRIPT, write_tx
from trails import checkpoint
from trails.checkpoint import Checkpoint, Place, ReadCheckpoint
from trails.errors import MismatchError
from trails.position import TrailName
from trails.reader import BlockReader
from trails.runtime.home import registration
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registration
from trails.testing import After, Crash, FaultFs
from trails.writer import TrailWriter

pytestmark = pytest.mark.fault

RULES = [PurgeRule("./dirdat/*")]
TRAIL = TrailName("/home/gate/dirdat", "lt")


def prepared() -> tuple[Home, FaultFs, list[int]]:
    """A home in memory: a trail of several files, and a Replicat that is at the beginning of the last but one."""
    fs = FaultFs()
    home = Home("/home/gate", fs)
    writer = TrailWriter.open(fs, TRAIL, IDENTITY, max_bytes=4800, restart_open=True)
    for tx in SCRIPT:
        write_tx(writer, tx)
    writer.sync()
    writer.close()
    seqnos = TRAIL.seqnos(fs.listdir(TRAIL.folder))
    registration.save(home, Registration("REP1", "REPLICAT", "TRAIL", trail="./dirdat/lt"))
    place = Place(seqnos[-2], 4096)
    save = Checkpoint("REP1", "REPLICAT", (ReadCheckpoint("trail", place, place),))
    checkpoint.save(fs, home.checkpoint("REP1", "REPLICAT"), save)
    return home, fs, seqnos


def test_a_start_that_looks_at_the_whole_trail_while_it_is_purged():
    """It looks again from the file that is the first by then; a file that is missing between others is told."""
    home, fs, seqnos = prepared()

    def purge_once(operation: str, path: str) -> None:
        if operation == "open" and path == TRAIL.path(seqnos[1]):
            fs.fail = lambda _operation, _path: None
            assert list(manager_purge.purge(home, RULES, 0))

    fs.fail = purge_once
    assert startup.changed_tables(fs, TRAIL) == set()
    assert TRAIL.seqnos(fs.listdir(TRAIL.folder)) == seqnos[-2:]
    assert startup.source_kind(fs, TRAIL) == "postgresql"
    for calls in range(1, 40):
        _, fs, seqnos = prepared()
        fs.fail = _purging(fs, calls)
        assert startup.changed_tables(fs, TRAIL) == set()

    _, holed, _ = prepared()
    holed.take_away(TRAIL.path(seqnos[1]))
    with pytest.raises(MismatchError, match=f"{TRAIL.file_name(seqnos[1])}: expected this file"):
        startup.changed_tables(holed, TRAIL)


def _purging(fs: FaultFs, calls: int) -> Callable[[str, str], None]:
    """From the n-th call on a file goes at each, the first one: but for the last two."""
    number = 0

    def purge_one(operation: str, path: str) -> None:
        nonlocal number
        if operation == "exists":
            return
        number += 1
        there = [seqno for seqno in range(20) if fs.exists(TRAIL.path(seqno))] if number >= calls else []
        if len(there) > 2:
            fs.take_away(TRAIL.path(there[0]))

    return purge_one


def calls_of_a_purge() -> tuple[int, int]:
    """(calls before it, calls after it)."""
    home, fs, seqnos = prepared()
    before = fs.calls
    assert len(list(manager_purge.purge(home, RULES, 0))) == len(seqnos) - 2 > 0
    return before, fs.calls


@pytest.mark.parametrize("how", After, ids=lambda how: how.name)
def test_a_crash_in_the_middle_of_a_purge_leaves_a_trail_without_a_hole(how):
    """CW-17: what is left is one run of numbers with all that is unread in it; the next purge finishes the work."""
    before, after = calls_of_a_purge()
    for crash_at in range(before + 1, after + 1):
        home, fs, seqnos = prepared()
        fs.crash_at = crash_at
        with pytest.raises(Crash):
            list(manager_purge.purge(home, RULES, 0))
        fs.reboot(how)
        left = TRAIL.seqnos(fs.listdir(TRAIL.folder))
        assert left == seqnos[-len(left) :], (crash_at, left)
        assert set(seqnos[-2:]) <= set(left)
        reader = BlockReader(fs, TRAIL)
        while reader.read(payload=False) is not None:
            pass
        reader.close()
        list(manager_purge.purge(home, RULES, 0))
        assert TRAIL.seqnos(fs.listdir(TRAIL.folder)) == seqnos[-2:]
