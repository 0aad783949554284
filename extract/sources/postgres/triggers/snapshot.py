"""A snapshot of the source: which transactions had committed at one moment; and the state that keeps it in the trail.

Rule: what was committed between two snapshots is what the second one sees and the first one does not. A transaction's
number alone says nothing: one with a low number may commit after one with a high number.

    state     snapshot @ microseconds [+ xid, ...]
    snapshot  xmin : xmax : the open ones between, each as its distance from the one before

The microseconds tell a tick from another one with the same number in a copy of the database. Behind `+` stand
transactions that the snapshot sees and that were not handed over yet: those of heartbeats, which go alone. A heartbeat
has its own snapshot: what that sees goes before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trails.errors import AwayError, MismatchError

MOST_STATE: Final = 4096


@dataclass(frozen=True, slots=True)
class XidSnapshot:
    """All transactions below `xmax` but those in `open` have ended; the others have not, or had not begun."""

    xmin: int
    xmax: int
    open: tuple[int, ...] = ()

    @classmethod
    def of(cls, text: str) -> XidSnapshot:
        """From what pg_current_snapshot() gives."""
        xmin, xmax, rest = text.split(":")
        return cls(int(xmin), int(xmax), tuple(int(xid) for xid in rest.split(",") if xid))

    def sees(self, xid: int) -> bool:
        """Whether that transaction had committed, if it ever did."""
        return xid < self.xmax and xid not in self.open

    def seeing(self, xid: int) -> XidSnapshot:
        """The same, and one transaction more."""
        begun = tuple(range(self.xmax, xid))
        return XidSnapshot(self.xmin, max(self.xmax, xid + 1), tuple(one for one in self.open + begun if one != xid))

    def covers(self, other: XidSnapshot) -> bool:
        """Whether it sees all that the other one sees."""
        later = range(self.xmax, other.xmax)
        return not any(map(other.sees, self.open)) and len(later) <= len(other.open) and not any(map(other.sees, later))

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, self.open))}"


@dataclass(frozen=True, slots=True)
class Tick:
    """Where a transaction of the trail ends: a snapshot, when it was taken, and what of it is still to come."""

    snapshot: XidSnapshot
    at_us: int
    due: tuple[int, ...] = ()

    @property
    def state(self) -> str:
        """As text. Raises AwayError where so many transactions are open that it has no room."""
        base, steps = self.snapshot.xmin, []
        for xid in self.snapshot.open:
            steps.append(str(xid - base))
            base = xid
        due = "+" + ",".join(map(str, self.due)) if self.due else ""
        text = f"{self.snapshot.xmin}:{self.snapshot.xmax}:{','.join(steps)}@{self.at_us}{due}"
        if len(text) > MOST_STATE:
            raise AwayError(f"{len(steps)} transactions are open in the source at once, too many to be noted")
        return text

    @classmethod
    def of(cls, state: str) -> Tick:
        """Inverse of `state`. Raises MismatchError."""
        try:
            snapshot, _, rest = state.partition("@")
            at, _, due = rest.partition("+")
            xmin, xmax, steps = snapshot.split(":")
            xid, found = int(xmin), []
            for step in steps.split(",") if steps else ():
                xid += int(step)
                found.append(xid)
            waiting = tuple(int(one) for one in due.split(",") if one)
            return cls(XidSnapshot(int(xmin), int(xmax), tuple(found)), int(at), waiting)
        except ValueError:
            raise MismatchError(
                f"the trail's state is {state[:60]!r}, expected a snapshot: it belongs to another kind of source",
                hint="An Extract with TRIGGERLOG needs a trail of its own",
            ) from None


def between(first: XidSnapshot, then: XidSnapshot) -> str:
    """A condition in SQL on a row's `xid`: `then` sees it and `first` does not. An index on `xid` serves it."""
    late = f" OR xid = ANY ('{{{','.join(map(str, first.open))}}}'::xid8[])" if first.open else ""
    return f"(xid >= '{first.xmax}'::xid8{late}) AND {seen(then)}"


def seen(snapshot: XidSnapshot) -> str:
    """A condition in SQL on a row's `xid`: the snapshot sees it."""
    return f"xid < '{snapshot.xmax}'::xid8 AND pg_visible_in_snapshot(xid, '{snapshot}'::pg_snapshot)"
