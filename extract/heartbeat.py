"""Heartbeats of an Extract: the thread that writes the seed row, and the row's way into the trail.

    seed thread                     capture
    ask the database's clock        the row comes through the log, like any other
    write the row, commit      ==>  alone in its transaction: a block of its own, stamped with our time
    wait FREQUENCY                  other rows beside it, or another Extract's row: dropped, it is no heartbeat

Rule: the thread has a connection of its own with short timeouts, and shares nothing with capture but plain numbers and
a queue of lines for the operator. Whatever happens to it, capture goes on; a heartbeat that is not written is missed
downstream, and said there (trails/heartbeat.py).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from trails.clock import Clock
from trails.errors import GateError
from trails.heartbeat import Arrivals, Beat, Stamp
from trails.record import Op, Record, TableDef, us_of
from trails.runtime.language.heartbeattable import MOST_FREQUENCY, HeartbeatTable
from trails.runtime.process.clockdiff import ClockWatch, compare

SEED = 1 << 30
"""What stands for the seed table in records that are being gathered; no block's table list is so long."""
LOOK_SECONDS = 60.0
"""How often the clock is compared, and a table that was not there is looked for."""
RETRY_SECONDS = 10.0
FIRST_SECONDS = 2.0
CLOSE_SECONDS = 1.0

_ROWS = (Op.INSERT, Op.UPDATE)


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose heartbeats: several Extracts may capture one database."""

    home_id: str
    group: str

    @property
    def key(self) -> str:
        """The row's key in the seed table."""
        return f"{self.home_id}/{self.group}"


class Seed(Protocol):
    """The source database's end, used by one thread. Any call may raise a GateError; then it is made anew."""

    def clock_us(self) -> int:
        """The database's clock."""
        ...

    def frequency(self) -> int | None:
        """Seconds between heartbeats, 0 while they are paused; None where there are no tables for them."""
        ...

    def beat(self, every: int) -> None:
        """Write the row; the next is due in `every` seconds, 0 for none."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...


class Heart:
    """The thread. `open_seed` connects; `warn` is called by `tell()` only, on the caller's thread.

    Without `open_seed` nobody writes the row, and the source's clock is taken for ours.
    """

    def __init__(
        self,
        open_seed: Callable[[], Seed] | None,
        clock: Clock,
        limit_s: float = 0,
        warn: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self._open = open_seed
        self._clock = clock
        self._warn = warn
        self._lines: deque[str] = deque(maxlen=20)
        self._watch = ClockWatch("the source database's host", limit_s or 1e9, self._lines.append)
        self._stop = threading.Event()
        self._first = threading.Event()
        self._trouble = ""
        self._tables = True
        self._written = float("-inf")
        self._every = 0  # what the row says that was written last
        self._thread = threading.Thread(target=self._run, args=(open_seed,), name="heartbeat", daemon=True)

    @property
    def ahead_us(self) -> int | None:
        """How far the database's clock is ahead of ours; None: not known."""
        return self._watch.ahead_us if self._open else 0

    @property
    def error(self) -> str:
        """Why none can be written; empty where they are, or where there are no tables for them."""
        return self._trouble

    @property
    def trouble(self) -> str:
        """Why no heartbeat is written; empty while they are."""
        return self._trouble or ("" if self._tables else "their tables are not there, ADD HEARTBEATTABLE makes them")

    def start(self) -> None:
        """Begin; wait a moment for the first look at the clock."""
        if self._open:
            self._thread.start()
            self._first.wait(FIRST_SECONDS)

    def tell(self) -> None:
        """Give the operator what the thread has to say."""
        while self._lines:
            self._warn(self._lines.popleft())

    def close(self) -> None:
        """End. A thread that waits for the database is left alone: it ends with the process."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)

    def _run(self, open_seed: Callable[[], Seed]) -> None:
        seed: Seed | None = None
        seconds = 0.0
        while not self._stop.wait(seconds):
            try:
                seed = seed or open_seed()
                seconds = self._round(seed)
                self._trouble = ""
            except GateError as error:
                seconds = RETRY_SECONDS
                self._complain(error)
                if seed is not None:
                    seed.close()
                seed = None
            self._first.set()
        if seed is not None:
            seed.close()

    def _round(self, seed: Seed) -> float:
        found = compare(seed.clock_us, self._clock)
        self._watch.found(found.ahead_us, found.error_us)
        self._first.set()
        return self._beat(seed)

    def _beat(self, seed: Seed) -> float:
        """Write the row if it is due, or says no more what is so; in how many seconds to look again."""
        every = seed.frequency()
        self._tables = every is not None
        if every is None:
            return LOOK_SECONDS
        now = self._clock.monotonic()
        # The one that says that they are paused goes out once: so nobody downstream waits for the next.
        if now >= self._written + every if every else self._every:
            seed.beat(every)
            self._written, self._every = now, every
        return min(self._written + every - now, LOOK_SECONDS) if every else LOOK_SECONDS

    def say(self, line: str) -> None:
        """Have `tell` give it to the operator."""
        self._lines.append(line)

    def _complain(self, error: GateError) -> None:
        """Once for each trouble: the source's own connection tells of a database that is away."""
        if str(error) != self._trouble:
            self._trouble = str(error)
            self.say(f"no heartbeat was written: {error}")


class Heartbeats:
    """What capture knows of them: which table it is, which row is ours, and the last one that went into the trail."""

    def __init__(self, table: HeartbeatTable, owner: Owner, clock: Clock, heart: Heart | None = None) -> None:
        self.seed = table.schema, table.seed
        """The seed table."""
        self._owner = owner
        self._clock = clock
        self.heart = heart or Heart(None, clock)
        self.arrivals = Arrivals()
        self._refused = False

    def beat(self, definition: TableDef, rows: Sequence[Record]) -> Beat | None:
        """The heartbeat in one transaction's records of the seed table; None if they are somebody else's, or nonsense.

        Whoever may write the table can write anything: it is told once, and never ends capture.
        """
        names = [column.name for column in definition.columns]
        images = (map(_text, record[2]) for record in reversed(rows) if record[0] in _ROWS)
        try:
            # Those of several groups may come in one transaction, where a source is asked now and then.
            beats = (dict(zip(names, image, strict=True)) for image in images)
            found = next((beat for beat in beats if beat["extract_key"] == self._owner.key), None)
            if found is None:
                return None
            us = us_of(datetime.fromisoformat(found["heartbeat_timestamp"]))
            database, every = found["local_database"], int(found["frequency"])
            if not 0 <= every <= MOST_FREQUENCY:
                raise ValueError(f"frequency {every}")
        except (KeyError, TypeError, ValueError) as error:  # TypeError: a time without a zone
            self._refuse(definition, error)
            return None
        ahead = self.heart.ahead_us
        made = Beat(database, self._owner.home_id, us, every, None if ahead is None else -ahead)
        return made.stamped(Stamp("EXTRACT", self._owner.group, self._clock.now_us(), 0))

    def _refuse(self, definition: TableDef, error: Exception) -> None:
        if not self._refused:
            self._refused = True
            self.heart.say(
                f"table {definition.full_name}: expected a heartbeat of this release, found {error!r:.200}; such rows "
                "are dropped. Has somebody else written it? Else DELETE HEARTBEATTABLE, then ADD HEARTBEATTABLE"
            )


def split(records: list[Record], begin: int) -> list[Record]:
    """Take the records of the seed table out of those from `begin` on; returns them."""
    taken: list[Record] = []
    kept: list[Record] = []
    for record in records[begin:]:
        if record[0] in (Op.INSERT, Op.UPDATE, Op.DELETE) and record[1] == SEED:
            taken.append(record)
        elif record[0] == Op.TRUNCATE and SEED in record[1]:
            taken.append(record)
            if others := tuple(table for table in record[1] if table != SEED):
                kept.append((record[0], others, *record[2:]))
        else:
            kept.append(record)
    records[begin:] = kept  # in place: a source holds on to this very list
    return taken


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
