"""Heartbeats: a row's way from the source database to the target, stamped by every stage that it passes.

A heartbeat is a small transaction of the source, so it takes its place in commit order and waits wherever data waits.
In a trail it is a DATA block of its own (FORMAT.md), found by its header alone. Each stage adds a Stamp; clocks differ,
so a stamp says how far the clock of the host that reads its output is ahead of its own, and a time that crosses clocks
that nobody compared is not known: never guessed, never negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from trails.errors import DamageError
from trails.record import Op, Record

BACKWARDS_US = 1_000_000
"""A hop that took less than nothing by more than this crossed clocks that have moved since they were compared."""
MISSED = 3
GRACE_US = 10_000_000
"""A figure is stale when so many heartbeats, and this long, are overdue."""
ARROW = " ==> "
MOST_STAMPS = 16
# A database may say any time, and no heartbeat ends anybody; so bounded, all sums of its times stay within 63 bits.
_TIMES = range(-(1 << 61), 1 << 61)
_SHIFTS = range(-(1 << 57), 1 << 57)
_PERIODS = range(1 << 31)

Entry = dict[str, Any]
"""What a stage remembers of the last heartbeat, as plain values: for status, checkpoint and JSON."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """A stage passed it on at `us` of its own clock. `ahead_us`: so far is the next reader's clock ahead of that one.

    None: the clocks were not compared.
    """

    program: str  # EXTRACT, PUMP or REPLICAT
    group: str
    us: int
    ahead_us: int | None


@dataclass(frozen=True, slots=True)
class Beat:
    """One heartbeat: made in `database` at `us` of its clock for an Extract of `home`; the next is due in `every_s`.

    `ahead_us`: so far is the clock of the Extract's host ahead of the database's; None: they were not compared.
    """

    database: str
    home: str
    us: int
    every_s: int
    ahead_us: int | None
    stamps: tuple[Stamp, ...] = ()

    def stamped(self, stamp: Stamp) -> Beat:
        """With one stage more."""
        return replace(self, stamps=(*self.stamps, stamp))

    @property
    def path(self) -> str:
        """`EXT1 ==> PMP1 ==> REP1`, as far as it went."""
        return ARROW.join(stamp.group for stamp in self.stamps)

    @property
    def _places(self) -> list[tuple[str, int, int | None]]:
        """(name, time, how far the next clock is ahead) of the database and of each stage."""
        return [(self.database, self.us, self.ahead_us), *((s.group, s.us, s.ahead_us) for s in self.stamps)]

    def hops(self) -> list[tuple[str, str, int | None]]:
        """(from, to, us) of each step so far; None: not known."""
        return [(a, b, _hop(then, ahead, now)) for (a, then, ahead), (b, now, _) in pairwise(self._places)]

    @property
    def lag_us(self) -> int | None:
        """From the database to the last stamp; None if one of the hops is not known."""
        return _sum(us for _, _, us in self.hops())

    @property
    def skew_us(self) -> int | None:
        """What must be added to a time of the database's clock to have it on that behind the last stamp."""
        return _sum(ahead for _, _, ahead in self._places)

    def times(self) -> list[int]:
        """The heartbeat's and each stamp's time by the clock behind the last stamp; as it is, where that is unknown."""
        found: list[int] = []
        shift: int | None = 0
        for _, us, ahead in reversed(self._places):
            shift = None if shift is None or ahead is None else shift + ahead
            found.append(us + (shift or 0))
        return found[::-1]

    def why(self) -> str:
        """What is unknown about the lag; empty if nothing is."""
        for start, end, us in self.hops():
            if us is None:
                return f"the clocks of {start} and {end} were not compared, or have moved since"
        return ""

    def to_wire(self) -> list[Any]:
        """Plain lists for the trail."""
        stamps = [[s.program, s.group, s.us, s.ahead_us] for s in self.stamps]
        return [self.database, self.home, self.us, self.every_s, self.ahead_us, stamps]

    @classmethod
    def from_wire(cls, wire: Any, where: str) -> Beat:
        """Inverse of to_wire; DamageError for anything else."""
        try:
            database, home, us, every_s, ahead_us, stamps = wire
            if len(stamps) > MOST_STAMPS:
                raise ValueError(f"{len(stamps)} stamps")
            made = [Stamp(_text(p), _text(g), _number(t, _TIMES), _maybe(a)) for p, g, t, a in stamps]
            due = _number(every_s, _PERIODS)
            return cls(_text(database), _text(home), _number(us, _TIMES), due, _maybe(ahead_us), tuple(made))
        except (TypeError, ValueError) as error:
            raise DamageError(f"{where}: damaged: expected a heartbeat, found {error}") from None


def _sum(parts: Iterable[int | None]) -> int | None:
    total = 0
    for part in parts:
        if part is None:
            return None
        total += part
    return total


def _hop(then: int, ahead: int | None, now: int) -> int | None:
    if ahead is None or (took := now - then - ahead) < -BACKWARDS_US:
        return None
    return max(0, took)


def lag_of(now_us: int, time_us: int, skew_us: int | None) -> tuple[int | None, str]:
    """How old a source's commit time is, by this host's clock, or why that is not known.

    `skew_us`: from the last heartbeat, None without one. A commit in the future is none: the two clocks differ.
    """
    lag = now_us - time_us - (skew_us or 0)
    if lag < -BACKWARDS_US:
        return None, f"clocks differ: the last commit is {-lag / 1_000_000:.3f} s ahead of this host's clock"
    return max(0, lag), ""


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.80} for a text")
    return value


def _number(value: Any, bounds: range) -> int:
    if type(value) is not int or value not in bounds:
        raise TypeError(f"{value!r:.80} for a number from {bounds.start} to {bounds.stop}")
    return value


def _maybe(value: Any) -> int | None:
    return None if value is None else _number(value, _SHIFTS)


# --- in a block -------------------------------------------------------------------------------------------------------


def block_records(beat: Beat, begin: Record) -> list[Record]:
    """The records of a heartbeat's block; `begin` is its transaction's. The commit counts no change."""
    return [tuple(begin), (int(Op.HEARTBEAT), beat.to_wire()), (int(Op.COMMIT), 0)]


def beat_of(records: Sequence[Any], where: str) -> tuple[Record, Beat]:
    """(begin, heartbeat) of such a block's records; DamageError if they are none."""
    if [record[:1] for record in map(list, records)] != [[Op.BEGIN], [Op.HEARTBEAT], [Op.COMMIT]]:
        raise DamageError(f"{where}: damaged: expected begin, heartbeat and commit, found {len(records)} records")
    return records[0], Beat.from_wire(records[1][1], where)


# --- what a stage remembers -------------------------------------------------------------------------------------------


class Arrivals:
    """The last heartbeat that a stage has handled. `to`: the target database, where that is known.

    There is one path to a stage: it reads one trail, which has one writer.
    """

    def __init__(self, to: str = "") -> None:
        self._to = to
        self._last: Entry | None = None

    def met(self, beat: Beat) -> None:
        """A heartbeat was handled: its last stamp is this stage's own."""
        self._last = entry_of(beat, self._to)

    def entries(self) -> list[Entry]:
        """It, if there was one, for status and checkpoint."""
        return [] if self._last is None else [self._last]

    def load(self, entries: Any) -> None:
        """What an earlier run has saved: an old figure with its age is better than none."""
        for entry in entries if isinstance(entries, list) else []:
            if isinstance(entry, dict) and {"path", "at_us", "every_s", "lag_us"} <= entry.keys():
                self._last = dict(entry)


def entry_of(beat: Beat, to: str = "") -> Entry:
    """A handled heartbeat as plain values."""
    return {
        "from": beat.database, "to": to, "path": beat.path, "home": beat.home, "heartbeat_us": beat.us,
        "every_s": beat.every_s, "at_us": beat.stamps[-1].us, "lag_us": beat.lag_us, "why": beat.why(),
        "stages": [{"from": a, "to": b, "us": us} for a, b, us in beat.hops()],
    }  # fmt: skip


def judged(entry: Entry, now_us: int) -> Entry:
    """The entry as it may be shown now: with its age, and without a lag once that is stale (GG-19).

    `last_lag_us` is what it was when it was true. `late`: one was due and did not come, or nobody can tell.
    """
    age = now_us - int(entry["at_us"])
    every = int(entry["every_s"])
    why, late = str(entry.get("why") or ""), False
    if age < -BACKWARDS_US:
        age, why, late = 0, "this host's clock was put back since", bool(every)
    elif age > MISSED * every * 1_000_000 + GRACE_US:
        due = f"one each {every} s was due" if every else "they are paused, or their tables gone"
        why, late = f"no heartbeat for {age // 1_000_000} s; {due}", bool(every)
    return {
        **entry, "age_us": max(0, age), "last_lag_us": entry["lag_us"],
        "lag_us": None if why else entry["lag_us"], "why": why, "late": late,
    }  # fmt: skip
