"""What METRICS answers: how fast a process works, how busy it is, and what waits for it.

Rule: cheap, and never per row. A process keeps plain counters (`Counters`) that only grow; a `Meter` looks at them once
a second and keeps ten seconds of looks. Rates are of these ten seconds, so that they are true for now and not for the
mean of a long run; they are None while there is no second of history. Busy is the share of time not spent waiting in
the main loop; blocked the share spent waiting because the output took nothing more.

    METRICS   {"program", "group", "at_us", "turn_age_us", "lag_us", "lag_at_us", "lag_why",
               "operations", "transactions", "bytes_in", "bytes_out", "ops_s", "bytes_s", "bytes_out_s", "busy",
               "backlog_bytes", "backlog_us", "read", "write", "extra": {"blocked", "output_share", ...}}

Counts are since the process started. What only one kind of process knows stands in "extra".
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trails.format import HEADER_UNIT
from trails.fs import Fs
from trails.position import Position, TrailName
from trails.runtime.clock import Clock
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

    def reply(self) -> dict[str, Any]:
        """Counts, rates and shares, as METRICS has them."""
        now = self._clock.monotonic()
        self._forget(now)
        last, first = self._look(now), self._looks[0]
        passed = now - first.at
        done, before = last.counters, first.counters
        brief = passed < BRIEF_SECONDS
        return {
            "turn_age_us": int((now - self._turn) * 1_000_000),
            "operations": done.operations,
            "transactions": done.transactions,
            "bytes_in": done.bytes_in,
            "bytes_out": done.bytes_out,
            "ops_s": None if brief else round((done.operations - before.operations) / passed, 3),
            "bytes_s": None if brief else round((done.bytes_in - before.bytes_in) / passed, 3),
            "bytes_out_s": None if brief else round((done.bytes_out - before.bytes_out) / passed, 3),
            "busy": None if brief else _share(passed - (last.rested - first.rested), passed),
            "extra": {
                "blocked": None if brief else _share(last.blocked - first.blocked, passed),
                "output_share": None if brief else _share(done.output_s - before.output_s, passed),
            },
        }

    def _look(self, now: float) -> _Look:
        return _Look(now, self._rested, self._blocked, self._count())

    def _forget(self, now: float) -> None:
        """Keep the youngest look that is at least the whole window old, and all after it."""
        while len(self._looks) > 1 and now - self._looks[1].at >= WINDOW_SECONDS:
            self._looks.popleft()


def _share(part: float, whole: float) -> float:
    return round(min(1.0, max(0.0, part / whole)), 3)


Reply = dict[str, Any]


def reply(program: str, group: str, meter: Meter, at_us: int, own: Reply, lag: Reply) -> Reply:
    """The whole answer: what the meter knows, what the process says of itself (`own`), and its answer to GETLAG."""
    measured = meter.reply()
    extra = {**measured.pop("extra"), **own.get("extra", {})}
    return {
        "program": program,
        "group": group,
        "at_us": at_us,
        "lag_us": lag.get("lag_us"),
        "lag_at_us": lag.get("lag_at_us", at_us if lag.get("lag_us") is not None else None),
        "lag_why": str(lag.get("lag_why", "")),
        **measured,
        "backlog_bytes": own.get("backlog_bytes"),
        "backlog_us": own.get("backlog_us"),
        "read": own.get("read"),
        "write": own.get("write"),
        "extra": extra,
    }


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


def _durable_bytes(fs: Fs, trail: TrailName, seqno: int, from_rba: int) -> int:
    segment = open_segment(fs, trail, seqno)
    try:
        return max(0, segment.read_durable_end() - max(from_rba, segment.first_rba))
    finally:
        segment.close()


def _size(fs: Fs, path: str) -> int:
    file = fs.open(path)
    try:
        return file.size()
    finally:
        file.close()


def written_us(trail: TrailName, fs: Fs) -> int | None:
    """When the trail's newest file was last written, by this host's clock; None if there is none."""
    seqnos = trail.seqnos(fs.listdir(trail.folder))
    try:
        return os.stat(trail.path(seqnos[-1])).st_mtime_ns // 1000 if seqnos else None
    except FileNotFoundError:
        return None
