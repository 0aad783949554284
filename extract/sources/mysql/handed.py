"""Which groups of the log were handed over: what a start knows of them, and what the trail keeps of it.

A group was handed over if it begins before the origin, or, after a failover and on MySQL, if its GTID is in the set.
"""

from __future__ import annotations

from dataclasses import dataclass

from extract.sources.mysql.flavour import Flavour
from extract.sources.mysql.gtid import Gtid, GtidSet
from extract.sources.mysql.places import parts
from extract.sources.mysql.state import Again, State
from trails.position import Position


@dataclass(frozen=True, slots=True)
class Start:
    """Where to hand over from. Reading begins wherever the server was asked to: its first ROTATE says so.

    `origin`: groups that begin before it were handed over, and none behind it but those in the set. `state`: what the
    trail has with it. `by_gtid`: it is read behind GTIDs: this may be another server than the one that the state was
    made of. Then `origin` bears the epoch of this one.
    """

    origin: Position
    state: State
    by_gtid: bool = False


class Handed:
    """As the log is read. All that is asked is asked once a group, and nothing for a row."""

    def __init__(self, flavour: Flavour, start: Start) -> None:
        self.origin = start.origin
        # By place in any case: what stands before the origin was handed over, or is in the set. Behind it the set
        # counts too where this log may have another order than the one of which the trail has its first part. MariaDB's
        # sets hold all that has a lower number, so they are not asked where they need not be.
        self._by_set = flavour is Flavour.MYSQL or start.by_gtid or parts(start.origin)[0] > 0
        self._gtids = start.state.gtids
        # By the place that is read, while older groups are passed over.
        self._read: GtidSet | None = start.state.again.gtids if start.state.again is not None else None
        # Another server's log is read for XA transactions that were prepared in the first one's: up to the end of what
        # was handed over, they are what a restart must read from.
        self._owed = start.state if start.by_gtid and start.state.again is not None else None

    @property
    def read(self) -> GtidSet:
        """All that is committed before the place that is read, as far as it is known."""
        return self._gtids if self._read is None else self._read

    def has(self, begins: Position, gtid: Gtid | None) -> bool:
        """Whether a group was handed over; `begins`: where its first event does."""
        return begins < self.origin or (self._by_set and gtid is not None and self._gtids.contains(gtid))

    def passed(self, gtid: Gtid | None) -> None:
        """The end of a group was read that was handed over already."""
        if gtid is not None and self._read is not None:
            self._read = self._read.add(gtid)

    def took(self, gtid: Gtid | None) -> None:
        """A group counts now, and is handed over."""
        if not self._by_set:
            self._read = None  # what was handed over has been reached: both are the same from here on
        if gtid is not None:
            if self._read is not None:
                self._read = self._read.add(gtid)
            self._gtids = self._gtids.add(gtid)

    def state(self, oldest: Again | None) -> str:
        """For the trail. `oldest`: where reading must begin again for what is kept of the log that was read."""
        again = oldest
        if self._owed is not None:
            if self._read is not None and not self._read.contains_all(self._owed.gtids):
                again = self._owed.again
            else:
                self._owed = None
        return str(State(self._gtids, again))
