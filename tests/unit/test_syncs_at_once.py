"""A writer's sync: at once where that is quicker than to hand it over, beside the loop where it is not."""

from __future__ import annotations

import pytest

import trails.writer
from tests.support.trail_script import SCRIPT, TRAIL, open_writer, write_tx
from trails.errors import OperatorError
from trails.host import RealHost
from trails.testing import FaultFs, TornWrite
from trails.writer import QUICK_SECONDS, TrailWriter


class StillHost(RealHost):
    """Time moves only where the disk takes some."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


class TimedDisk(FaultFs):
    """Each sync takes `seconds`, or fails."""

    def __init__(self) -> None:
        self.clock, self.seconds, self.fails = StillHost(), 0.0, False
        super().__init__(host=self.clock)

    def called(self, operation: str, path: str, torn: TornWrite | None = None) -> None:
        super().called(operation, path, torn)
        if operation == "datasync":
            self.clock.now += self.seconds
            if self.fails:
                raise OperatorError(f"cannot sync {path}: Input/output error")


def synced(writer: TrailWriter, number: int) -> bool:
    """Write a transaction and ask for its sync; whether that was done at once. It is durable at the end."""
    write_tx(writer, SCRIPT[number])
    end = writer.position
    assert writer.sync_soon()
    at_once = writer.syncing is None
    if not at_once:
        assert writer.syncing == end > writer.durable
        assert writer.sync_done(wait=True)
    assert writer.durable == end
    assert not writer.sync_soon()
    return at_once


def test_little_is_synced_at_once_where_the_last_sync_was_quick() -> None:
    """Not the first: nobody knows yet how long it takes."""
    writer = open_writer(TimedDisk())
    assert [synced(writer, n) for n in range(3)] == [False, True, True]
    writer.close()


def test_a_slow_disk_keeps_the_loop_waiting_once() -> None:
    disk = TimedDisk()
    writer = open_writer(disk)
    synced(writer, 0)
    disk.seconds = QUICK_SECONDS
    assert [synced(writer, n) for n in range(1, 4)] == [True, False, False]
    disk.seconds = 0.0
    assert [synced(writer, n) for n in range(4, 6)] == [False, True]
    writer.close()


def test_much_is_synced_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = open_writer(TimedDisk(), max_bytes=1 << 20)
    synced(writer, 0)
    monkeypatch.setattr(trails.writer, "LITTLE", 10)
    assert [synced(writer, n) for n in range(1, 3)] == [False, False]
    writer.close()


def test_a_sync_at_once_that_fails_leaves_a_dead_writer() -> None:
    disk = TimedDisk()
    writer = open_writer(disk, max_bytes=1 << 20)
    synced(writer, 0)
    synced(writer, 1)
    write_tx(writer, SCRIPT[2])
    before = writer.durable
    assert before < writer.position
    disk.fails = True
    for ask in (writer.sync_soon, writer.sync_soon, writer.sync_done, writer.sync):
        with pytest.raises(OperatorError, match="cannot sync"):
            ask()
    assert writer.durable == before
    disk.fails = False
    with pytest.raises(OperatorError, match="cannot sync"):
        write_tx(writer, SCRIPT[3])
    writer.abandon()
    assert disk.exists(TRAIL.path(0))
