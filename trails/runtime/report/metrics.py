"""What METRICS answers: how fast a process works, how busy it is, and what waits for it.

Rule: cheap, and never per row. A process keeps plain counters (`Counters`) that only grow; a `Meter` looks at them once
a second and keeps ten seconds of looks. Rates are of these ten seconds, so that they are true for now and not for the
mean of a long run; they are None while there is no second of history. Busy is the share of time not spent waiting in
the main loop; blocked the share spent waiting because the output took nothing more.

Counts are since the process started. What only one kind of process knows stands in `extra`.
answers.py has the figures by name.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace

from trails.clock import Clock
from trails.format import HEADER_UNIT
from trails.fs import Fs
from trails.heartbeat import judged
from trails.position import Position, TrailName
from trails.runtime.report.answers import LagAnswer, MetricsAnswer
from trails.segment import open_segment

LOOK_SECONDS = 1.0
WINDOW_SECONDS = 10.0
BRIEF_SECONDS = 0.9
"""Less history than this gives no rate."""


@dataclass(frozen=True, slots=True)
class Counters:
    """What a process has done since it started. `output_s`: seconds it spent putting out, where it can tell."""

    operations: int = 0
    transactions: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    output_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Look:
    at: float
    rested: float
    blocked: float
    counters: Counters


class Meter:
    """A chore of the main loop, which also tells it each rest. `count` is the process's own counters."""

    def __init__(self, count: Callable[[], Counters], clock: Clock) -> None:
        self._count = count
        self._clock = clock
        self._rested = self._blocked = 0.0
        self._turn = clock.monotonic()
        self._looks: deque[_Look] = deque([self._look(self._turn)])

    def __call__(self, now: float) -> None:
        """After each step of the main loop."""
        self._turn = now
        if now - self._looks[-1].at >= LOOK_SECONDS:
            self._looks.append(self._look(now))
            self._forget(now)

    def rested(self, seconds: float, *, blocked: bool) -> None:
        """The loop has waited that long; `blocked`: because the output took nothing more, not for want of input."""
        self._rested += seconds
        if blocked:
            self._blocked += seconds

    def reply(self) -> MetricsAnswer:
        """Counts, rates and shares; the rest is not the meter's."""
        now = self._clock.monotonic()
        self._forget(now)
        last, first = self._look(now), self._looks[0]
        passed = now - first.at
        done, before = last.counters, first.counters
        brief = passed < BRIEF_SECONDS
        return MetricsAnswer(
            turn_age_us=int((now - self._turn) * 1_000_000),
            operations=done.operations,
            transactions=done.transactions,
            bytes_in=done.bytes_in,
            bytes_out=done.bytes_out,
            ops_s=None if brief else round((done.operations - before.operations) / passed, 3),
            bytes_s=None if brief else round((done.bytes_in - before.bytes_in) / passed, 3),
            bytes_out_s=None if brief else round((done.bytes_out - before.bytes_out) / passed, 3),
            busy=None if brief else _share(passed - (last.rested - first.rested), passed),
            extra={
                "blocked": None if brief else _share(last.blocked - first.blocked, passed),
                "output_share": None if brief else _share(done.output_s - before.output_s, passed),
            },
        )

    def _look(self, now: float) -> _Look:
        return _Look(now, self._rested, self._blocked, self._count())

    def _forget(self, now: float) -> None:
        """Keep the youngest look that is at least the whole window old, and all after it."""
        while len(self._looks) > 1 and now - self._looks[1].at >= WINDOW_SECONDS:
            self._looks.popleft()


def _share(part: float, whole: float) -> float:
    return round(min(1.0, max(0.0, part / whole)), 3)


_MEASURED_BY = {"blocked": "PUMP", "output_share": "REPLICAT"}
"""Who knows that share; of the others it would be a zero that nobody counted."""


def reply(program: str, group: str, meter: Meter, at_us: int, own: MetricsAnswer, lag: LagAnswer) -> MetricsAnswer:
    """The whole answer: what the process says of itself (`own`), what the meter knows, and the answer to GETLAG."""
    measured, known_us = meter.reply(), at_us if lag.lag_us is not None else None
    shares = {name: share for name, share in measured.extra.items() if _MEASURED_BY[name] == program}
    return replace(
        measured, program=program, group=group, at_us=at_us, lag_us=lag.lag_us, lag_why=lag.lag_why,
        lag_at_us=known_us if lag.lag_at_us is None else lag.lag_at_us, backlog_bytes=own.backlog_bytes,
        backlog_us=own.backlog_us, read=own.read, write=own.write, heartbeats=lag.heartbeats,
        extra={**shares, **own.extra},
    )  # fmt: skip


def checked(lag: LagAnswer, now_us: int) -> LagAnswer:
    """The answer to GETLAG as it may be told: who is at the end of his input knows nothing of what did not reach him.

    So a lag that is shorter than the time since the last heartbeat is not known while the next one is overdue (GG-19).
    """
    late = [beat for beat in (judged(entry, now_us) for entry in lag.heartbeats) if beat["late"]]
    if not late or lag.lag_us is None or lag.lag_us >= late[-1]["age_us"] > 0:
        return lag
    return replace(lag, lag_us=None, lag_at_us=now_us - late[-1]["age_us"], lag_why=late[-1]["why"])


def trail_backlog(fs: Fs, trail: TrailName, position: Position | None) -> int:
    """Durable bytes of blocks behind `position` (None: in the whole trail). Raises DamageError for a bad header.

    Headers of the first and the last file only are read: those between are as long as they are.
    """
    seqnos = [n for n in trail.seqnos(fs.listdir(trail.folder)) if position is None or n >= position.seqno]
    total = 0
    for seqno in seqnos:
        from_rba = position.rba if position is not None and seqno == position.seqno else 0
        try:
            if from_rba or seqno == seqnos[-1]:
                total += _durable_bytes(fs, trail, seqno, from_rba)
            else:
                total += max(0, _size(fs, trail.path(seqno)) - HEADER_UNIT)
        except FileNotFoundError:
            continue  # purged while we looked
    return total


def trail_end(fs: Fs, trail: TrailName) -> Position | None:
    """Where what is durable ends; None where there is no file. Raises DamageError for a bad header."""
    try:
        seqnos = trail.seqnos(fs.listdir(trail.folder))
        if not seqnos:
            return None
        with closing(open_segment(fs, trail, seqnos[-1])) as segment:
            return Position(seqnos[-1], segment.read_durable_end())
    except FileNotFoundError:
        return None  # deleted while we looked


def _durable_bytes(fs: Fs, trail: TrailName, seqno: int, from_rba: int) -> int:
    with closing(open_segment(fs, trail, seqno)) as segment:
        return max(0, segment.read_durable_end() - max(from_rba, segment.first_rba))


def _size(fs: Fs, path: str) -> int:
    with closing(fs.open(path)) as file:
        return file.size()


def written_us(trail: TrailName, fs: Fs) -> int | None:
    """When the trail's newest file was last written, by this host's clock; None if there is none."""
    seqnos = trail.seqnos(fs.listdir(trail.folder))
    try:
        return os.stat(trail.path(seqnos[-1])).st_mtime_ns // 1000 if seqnos else None
    except FileNotFoundError:
        return None
