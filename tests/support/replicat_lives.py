"""Lives of a Replicat on a file system that crashes and a target that does: a scripted trail, no Spark, no database."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

import pytest

from replicat.apply.discard import Discards
from replicat.apply.discardfile import DiscardFile, Examined
from replicat.model.target import TargetTable
from replicat.params import ReplicatParams
from replicat.run.replicat import Replicat
from tests.support.crashing import crash_everywhere
from tests.support.list_target import ListTarget, Store, copied
from tests.support.replicat_trail import InlineEngine, TrailFeed
from trails.position import TrailName
from trails.runtime.home.registration import Registration
from trails.testing import After, Crash, FakeClock, FaultFs

TRAIL = TrailName("/home/dirdat", "rt")
DISCARDS = "/home/dirdsc/REP1.dsc"
REG = Registration("REP1", "REPLICAT", "TRAIL", trail="./dirdat/rt", group_key=1, added_us=5)

Tables = dict[tuple[str, str], Any]


class FailAt:
    """Raises at the n-th call of the target."""

    def __init__(self, number: int, error: BaseException) -> None:
        self.left = number
        self.error = error

    def __call__(self, call: str) -> None:
        self.left -= 1
        if self.left == 0:
            raise self.error


def trail_with(script: Callable[[TrailFeed], None]) -> FaultFs:
    """A file system with the script's trail: all of it is on the disk, with no writer to recover it."""
    fs = FaultFs()
    feed = TrailFeed(fs, TRAIL)
    script(feed)
    feed.close()
    fs.corrupt(TRAIL.path(0), lambda data: None)
    return fs


def apply_all(process: Replicat, verbs: Sequence[str] = ()) -> None:
    """Apply all there is, however often the target is away, ask for `verbs`, flush."""
    clock: Any = process._clock
    for _ in range(400):
        if not process.step():
            if not process._away and process._at_eof:
                break
            clock.sleep(1)
    for verb in verbs:
        process.command(verb, {})
    process.flush()


class Lives:
    """Processes of one group with a discard file, one after the other, on one file system and one target."""

    def __init__(
        self,
        script: Callable[[TrailFeed], None],
        params: ReplicatParams,
        shapes: list[TargetTable],
        wanted: Tables,
        discarded: list[tuple[int, int]],
        whole: Callable[[Any], str] | None = None,
    ) -> None:
        """`wanted` and `discarded` (CSN, change) are the end; `whole`: what a transaction may not leave behind."""
        self.fs = trail_with(script)
        self.params, self.shapes, self.wanted, self.discarded = params, shapes, wanted, discarded
        self.whole = whole
        self.store = Store()
        self.said: list[str] = []
        self.faults: Callable[[str], None] = lambda call: None
        """Called at each call of the target."""

    def outside(self) -> str:
        """See crashing.World."""
        return repr(self.store)

    def with_fs(self, fs: FaultFs) -> Self:
        """See crashing.World."""
        other = copy(self)
        other.fs, other.said, other.faults = fs, list(self.said), lambda call: None
        other.store = replace(self.store, tables=copied(self.store.tables), others=dict(self.store.others))
        return other

    def crash_everywhere(self, again: Callable[[int], int]) -> int:
        """At every call of the target and of the file system; what was committed then stands in the discard file."""
        return crash_everywhere(
            self, type(self).__call__, type(self).check, found=type(self).check_durable, again=again, hook=_watch_target
        )  # fmt: skip

    def target(self, faults: Callable[[str], None] | None = None) -> ListTarget:
        """The group's target, as a new process finds it."""
        target = ListTarget(self.store, self.shapes, unique=(("s.kv", "v"),))
        target.faults = faults or self.faults
        if self.whole is not None:
            target.whole = self.whole
        return target

    def __call__(self, target: ListTarget | None = None, *verbs: str, params: ReplicatParams | None = None) -> Replicat:
        """Start, apply all there is, ask for `verbs`, flush, stop."""
        params = params or self.params
        file = DiscardFile(self.fs, DISCARDS, 1, title="A discard file")
        process = Replicat(
            params, REG, TRAIL, fs=self.fs, clock=FakeClock(), target=target or self.target(),
            engine=InlineEngine(self.fs), note=lambda text: None,
            discards=Discards("REP1", params.error_rules, file, clock=FakeClock(), warn=self.said.append),
        )  # fmt: skip
        try:
            apply_all(process, verbs)
        finally:
            process.close()
        return process

    def records(self) -> list[tuple[int, int]]:
        """(CSN, change) of each whole record, in order of the source."""
        if not self.fs.exists(DISCARDS):
            return []
        lines = [place.decode() for place, *_ in Examined(self.fs.open(DISCARDS))]
        return sorted((int(n[1]), int(n[2])) for n in (re.search(r"CSN (\d+), change (\d+)", x) for x in lines) if n)

    def check(self, where: object = "") -> None:
        """Everything else arrived, everything given up is in the file, once."""
        assert self.store.tables == self.wanted, where
        assert self.records() == self.discarded, where

    def check_durable(self, where: object = "") -> None:
        """What was committed without a change had its record on the disk."""
        if self.store.row is not None:
            committed = [(csn, n) for csn, n in self.discarded if csn <= int(self.store.row.csn or 0)]
            assert set(committed) <= set(self.records()), where


def _watch_target(lives: Lives, note: Callable[[str], None]) -> None:
    lives.faults = lambda call: note(f"the target's {call}")


def calls_of(lives: Lives) -> int:
    """How many calls of the target a clean run makes."""
    counter = FailAt(10**9, Crash())
    lives(lives.target(counter))
    lives.check("clean")
    return 10**9 - counter.left


def killed_at(lives: Lives, number: int, how: After) -> None:
    """A process dies at the n-th call of the target, with its file system or not; the next one ends as it should."""
    with pytest.raises(Crash):
        lives(lives.target(FailAt(number, Crash())))
    lives.fs.reboot(how)
    if how is not After.KILL:
        lives.check_durable(number)
    lives()
    lives.check(number)
