"""Heartbeats for tests: a trail with some in it, and a Replicat that takes them."""

from __future__ import annotations

from typing import Any

from replicat.run.heartbeat import HeartbeatEnd, ReplicatHeartbeats
from replicat.run.heartbeattables import add
from tests.support.replicat_bench import Bench
from trails.clock import Clock, RealClock
from trails.format import Indicator, bounded
from trails.heartbeat import Beat, Stamp, block_records
from trails.position import Position
from trails.record import Op
from trails.runtime.language.heartbeattable import HeartbeatTable
from trails.writer import TrailWriter

SECOND = 1_000_000


def beat(us: int, *, ahead: int | None = 0, every: int = 60, group: str = "EXT1") -> Beat:
    """A heartbeat as an Extract writes it, a tenth of a second after it was made; `ahead`: as in Beat."""
    stamp = Stamp("EXTRACT", group, us + (ahead or 0) + SECOND // 10, 0)
    return Beat("shop", "e" * 32, us, every, ahead, (stamp,))


def piped(made: Beat, *, ahead: int | None = 0, after: int = SECOND // 10) -> Beat:
    """The same with a pump's stamp."""
    return made.stamped(Stamp("PUMP", "PMP1", made.stamps[-1].us + after, ahead))


def write_beat(writer: TrailWriter, made: Beat, number: int) -> None:
    """A heartbeat's transaction: its number is its CSN and place."""
    csn = f"{number:016d}"
    records = block_records(made, (Op.BEGIN, csn, f"x{number}", bounded(made.us)))
    writer.append_data(
        Indicator.WHOLE, [], records, changes=0, transactions=1, origin=Position(0, number), csn=csn, time_us=made.us,
        heartbeat=True,
    )  # fmt: skip


class BeatBench(Bench):
    """A Bench whose Replicat takes heartbeats; the target has the tables if `tables`."""

    def __init__(self, folder: Any, url: str, schema: str, *, tables: bool = True, clock: Clock | None = None) -> None:
        super().__init__(folder, url, schema)
        self.clock = clock or RealClock()
        self.names = HeartbeatTable(schema)
        self.warned: list[str] = []
        self.heartbeats: ReplicatHeartbeats | None = None
        if tables:
            add({"url": url, "heartbeat": self.names.text, "target": True})

    def options(self, target: Any) -> dict[str, Any]:
        """See Bench."""
        self.heartbeats = ReplicatHeartbeats(
            self.names, HeartbeatEnd("REP1", 77, "copy"), target, self.clock, 2, self.warned.append
        )
        return {"heartbeats": self.heartbeats, "clock": self.clock}

    def beat(self, made: Beat) -> None:
        """Append a heartbeat to the trail."""
        self.feed.number += 1
        write_beat(self.feed.writer, made, self.feed.number)
        self.feed.writer.sync()
