"""Heartbeats at their end: a Replicat writes them into the target, in the transaction that moves its checkpoint row.

State of one heartbeat in the target, at any crash: the row has not passed its block, and nothing of it is there; or the
row has, and its history row is there once. What is not there yet comes again with the next start, with later stamps,
which is the truth: that is when it arrived. Without the tables the figures live on in status and checkpoint alone.

Rule: a heartbeat never ends a Replicat. What the target refuses is told once and undone, and the batch goes on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from replicat.model.again import ShapeChangedError
from replicat.model.target import RefusedError
from replicat.targets.contract import Target
from replicat.targets.sql.heartbeatsql import HeartbeatSql, first_number
from trails.clock import Clock
from trails.errors import OperatorError
from trails.heartbeat import ARROW, Arrivals, Beat, Stamp, beat_of
from trails.record import Record
from trails.runtime.language.heartbeattable import HeartbeatSettings, HeartbeatTable
from trails.runtime.process.clockdiff import ClockWatch, compare

LOOK_SECONDS = 60.0
_DAY_US = 86_400_000_000
_KEEP = (OperatorError, RefusedError, ShapeChangedError)
"""What of a target's errors concerns the heartbeat alone; AwayError concerns the whole batch."""


@dataclass(frozen=True, slots=True)
class HeartbeatEnd:
    """Whose heartbeats these are at their end: the Replicat, and the target's name for people."""

    group: str
    group_key: int
    database: str


class ReplicatHeartbeats:
    """One Replicat's part in heartbeats. `warn` takes a line for the operator; `limit_s` is CLOCKDIFFSECS."""

    def __init__(
        self,
        table: HeartbeatTable,
        end: HeartbeatEnd,
        target: Target,
        clock: Clock,
        limit_s: float,
        warn: Callable[[str], None],
    ) -> None:
        self._end = end
        self._target = target
        self._clock = clock
        self._warn = warn
        self._sql = HeartbeatSql.of(target.kind.words, table)
        self._watch = ClockWatch("the target database's host", limit_s or 1e9, warn)
        self._there = False
        self._look_at = 0.0
        self._purge_at_us = 0
        self._told = ""
        self._waiting: list[Beat] = []
        self.arrivals = Arrivals(end.database)
        self.skew_us: int | None = None
        """How far our clock is ahead of the source database's, by the last heartbeat; None without one."""

    @property
    def ahead_us(self) -> int | None:
        """How far the target database's clock is ahead of ours; None: not known."""
        return self._watch.ahead_us

    def attached(self) -> None:
        """A new connection: compare clocks, look for the tables. No transaction is open."""
        self._waiting = []
        try:
            self._compare()
            self._look()
        except _KEEP as error:
            self._failed(error)

    def read(self, blocks: Sequence[tuple[str, list[Any]]]) -> Record:
        """Take a batch's heartbeats, given as (where, records); the begin of the last one's transaction."""
        self._waiting = []
        begin: Record = ()
        for where, records in blocks:
            begin, beat = beat_of(records, where)
            self._waiting.append(beat)
        return begin

    def write(self) -> None:
        """Into the open transaction, right before its commit: this is when they arrive."""
        beats = self._waiting
        if not beats:
            return
        now = self._clock.now_us()
        self.skew_us = beats[-1].skew_us
        ahead = self.ahead_us if self._sql.words.clock_us else 0
        stamp = Stamp("REPLICAT", self._end.group, now, ahead)
        self._waiting = [beat.stamped(stamp) for beat in beats]
        if not self._there and self._clock.monotonic() >= self._look_at:
            self._tried(self._look)
        if self._there:
            self._tried(lambda: self._write(self._waiting))

    def committed(self) -> None:
        """What was written is there, and can be told."""
        for beat in self._waiting:
            self.arrivals.met(beat)
        self._waiting = []

    # the database

    def _tried(self, work: Callable[[], None]) -> None:
        """Do something in the open transaction; refused, it is undone and told once."""
        mark = self._target.mark()
        try:
            work()
        except _KEEP as error:
            self._target.undo(mark)
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """It is tried again in a minute, or with the next connection."""
        self._there = False
        self._look_at = self._clock.monotonic() + LOOK_SECONDS
        if str(error) != self._told:
            self._told = str(error)
            self._warn(f"heartbeats are not written into the target: {error}")

    def _compare(self) -> None:
        statement = self._sql.words.clock_us
        if not statement:
            return
        self._watch.found(None)
        found = compare(lambda: first_number(self._target.read(statement), "the target's clock"), self._clock)
        self._watch.found(found.ahead_us, found.error_us)

    def _look(self) -> None:
        """Whether the tables are there; asked again each minute while they are not."""
        self._look_at = self._clock.monotonic() + LOOK_SECONDS
        table = self._sql.table
        places = [(table.schema, table.base), (table.schema, table.history), (table.schema, table.settings)]
        self._there = len(self._target.tables(places)) == len(places)

    def _write(self, beats: Sequence[Beat]) -> None:
        self._compare()
        newest: dict[str, list[Any]] = {}
        now = self._there_us(beats[-1])
        for beat in beats:
            key, values = self._key(beat), self._values(beat)
            newest[key] = values
            self._target.write(self._sql.put_history(), [*values, key, self._sql.moment(now)])
        for key, values in newest.items():
            self._target.write(self._sql.put(), [*values, key])
        if now >= self._purge_at_us:
            self._purge(now)
        self._told = ""

    def _purge(self, now: int) -> None:
        found = self._target.read(self._sql.settings())
        settings = HeartbeatSettings(*(int(value) for value in found[0])) if found else HeartbeatSettings()
        self._purge_at_us = now + max(1, settings.purge) * _DAY_US
        if settings.purge:
            self._target.write(self._sql.purge(), [self._sql.moment(now - settings.retention * _DAY_US)])

    @staticmethod
    def _there_us(beat: Beat) -> int:
        """When it arrived, by the database's clock."""
        return beat.times()[-1]

    def _key(self, beat: Beat) -> str:
        """The path's, also where groups of two homes have the same names."""
        text = "/".join([beat.home, beat.path, str(self._end.group_key)])
        return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()

    def _values(self, beat: Beat) -> list[Any]:
        """COLUMNS of one heartbeat; its last stamp is ours."""
        times = [self._sql.moment(us) for us in beat.times()]
        extract, *route, replicat = beat.stamps
        return [
            self._end.database[:128], beat.database[:128], extract.group, ARROW.join(s.group for s in route)[:512],
            replicat.group, beat.path[:512], times[0], times[1], times[-2] if route else None, times[-1],
            None if beat.lag_us is None else beat.lag_us / 1_000_000, beat.every_s,
        ]  # fmt: skip
