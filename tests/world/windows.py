"""Counters at the crash windows CW-01 to CW-28: how often lives met each, whatever came of it.

A few can be shown by a real database or a real Spark alone: they are named in ELSEWHERE.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING

from trails.errors import GateError
from trails.format import DURABLE_OFFSET, BlockKind, Indicator, file_seed, parse_block_header, parse_durable_end
from trails.link import wire
from trails.position import START, Position, TrailName
from trails.reader import headers_of, last_header
from trails.runtime.home import registration, status
from trails.testing import Inode, folder_of

if TYPE_CHECKING:
    from tests.world.fibers import Proc
    from tests.world.machines import Machine
    from tests.world.world import World

TRAILS: Mapping[str, TrailName] = MappingProxyType(
    {"near": TrailName("/near/dirdat", "lt"), "far": TrailName("/far/dirdat", "rt")}
)
ELSEWHERE: Mapping[str, str] = MappingProxyType({
    "CW-13": "a slot that is made anew is PostgreSQL's",
    "CW-14": "there is no Spark here, and so no task of it that is tried again",
    "CW-15": "staging tables are a database's",
    "CW-20": "cascades and triggers are a database's",
    "CW-25": "it is about time",
})  # fmt: skip
"""Each with a test of its name."""
HERE = tuple(window for window in (f"CW-{n:02}" for n in range(1, 29)) if window not in ELSEWHERE)
FILES = 2
"""So many files of the local trail may nothing pass from, for CW-06."""


class Windows:
    """Of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._passed = START  # in the local trail, behind the last block with changes that a Collector got

    def met(self, window: str) -> None:
        """Once more."""
        self.world.counts[window] += 1

    @contextmanager
    def _unseen(self) -> Iterator[None]:
        """Without any edge: the world looks, and no process."""
        current, self.world.current = self.world.current, None
        try:
            yield
        finally:
            self.world.current = current

    # processes

    def killed(self, proc: Proc) -> None:
        """Before it has obeyed an ALTER, or after it."""
        if proc.kind in self.world.ordered:
            self.met("CW-19")

    def manager_starts(self, proc: Proc) -> None:
        """It finds a group that was killed while no Manager was there."""
        with self._unseen():
            for group in registration.all(proc.machine.home):
                found = status.status_of(proc.machine.home, group)
                if found.status is status.Status.ABENDED and found.ended_us is None:
                    self.met("CW-26")

    def extract_starts(self) -> None:
        """From a trail of one file, without a checkpoint, at a source that knows less than the trail."""
        near = self.world.near
        with self._unseen():
            try:
                header = last_header(near.fs, TRAILS["near"])
            except GateError:
                return
            seqnos = TRAILS["near"].seqnos(near.fs.listdir(TRAILS["near"].folder))
            lost = not near.fs.exists(near.home.checkpoint("EXT1", "EXTRACT"))
        if header is not None and len(seqnos) == 1 and seqnos[0] > 0 and lost:
            self.met("CW-12")

    def extract_started(self) -> None:
        """Behind the open part of a transaction."""
        near = self.world.near
        with self._unseen():
            header = last_header(near.fs, TRAILS["near"])
            if header is not None:
                blocks = headers_of(near.fs, TRAILS["near"], header.seqno)
                if any(block.header.kind == BlockKind.RESTART for block in blocks):
                    self.met("CW-04")

    def zombie(self, proc: Proc) -> None:
        """It will wake after another took over."""
        if proc.kind == "collector":
            self.met("CW-24")

    def purge(self, machine: Machine) -> None:
        """While a group's checkpoint file is gone."""
        with self._unseen():
            if not machine.fs.listdir(machine.home.folder("dirchk")):
                self.met("CW-17")

    # the link

    def welcomed(self, welcome: wire.Welcome) -> None:
        """A pump goes on where a Collector says."""
        if welcome.origin > START:
            self.met("CW-02")
        if welcome.open:
            self.met("CW-03")
        with self._unseen():
            trail = TRAILS["near"]
            seqnos = trail.seqnos(self.world.near.fs.listdir(trail.folder))
        idle = welcome.origin.seqno - self._passed.seqno >= FILES
        if self.world.plan.sizes.only_kv and idle and seqnos and seqnos[0] > self._passed.seqno:
            self.met("CW-06")

    def taken(self, block: wire.BlockMessage, hello: wire.Hello | None) -> None:
        """A Collector has got a block."""
        assert hello is not None
        seed = file_seed(hello.trail_id, block.start.seqno)
        header = parse_block_header(bytes(block.header), seed, block.start.rba, "a block")
        if header.kind == BlockKind.METADATA and block.start == block.end > START:
            self.met("CW-07")
        if header.kind == BlockKind.DATA and header.changes:
            self._passed = Position(block.end.seqno, block.end.rba)
        elif header.kind == BlockKind.DATA and header.indicator in (Indicator.BEGIN, Indicator.END):
            self.met("CW-05")

    # disks, and the target

    def power(self, machine: Machine) -> None:
        """It goes, right now."""
        trail = TRAILS[machine.name]
        names, synced = machine.fs.names, machine.fs.synced_names
        folder = {path: inode for path, inode in names.items() if folder_of(path) == trail.folder}
        if any(synced.get(path) is not inode or path.endswith(".tmp") for path, inode in folder.items()):
            self.met("CW-09")
        files = sorted(
            path for path in folder if os.path.basename(path).startswith(trail.prefix) and path[-1].isdigit()
        )
        if files:
            self._last_file(machine, folder[files[-1]], files[-1])
        if machine is self.world.near and any(not link.far.closed for link in self.world.links):
            self.met("CW-23")

    def _last_file(self, machine: Machine, inode: Inode, path: str) -> None:
        if len(inode.data) > len(inode.disk):
            self.met("CW-11")
        with self._unseen():
            try:
                header = last_header(machine.fs, TRAILS[machine.name])
                assert header is not None
                end = parse_durable_end(bytes(inode.disk[DURABLE_OFFSET : DURABLE_OFFSET + 12]), header.seed, path)
            except GateError:
                return
        if end < len(inode.disk):
            self.met("CW-10")

    def disk(self, what: str, operation: str, path: str) -> None:
        """A call has failed."""
        if what == "EIO" and operation == "datasync":
            self.met("CW-08")
        elif what == "full" and operation in ("write", "create"):
            self.met("CW-28")

    def target_crash(self) -> None:
        """It forgets what was committed."""
        store = self.world.server.store
        if store.row is not None and store.flushed is not None and store.flushed[1] != store.row:
            self.met("CW-16")
