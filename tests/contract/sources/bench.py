"""One group on a place: applications write, Extracts live and die, and the trail says what came."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from demo.patience import PATIENCE
from extract import kinds
from extract.admin import answer
from extract.extract import Extract, Settings
from extract.heartbeat import Heartbeats, Owner
from extract.params import ExtractParams
from extract.source import Source, SourceSettings
from tests.contract.sources.places import SourcePlace
from tests.support.mirror import Mirror
from tests.support.trail_script import TRAIL
from trails.clock import RealClock
from trails.fs import Fs
from trails.position import Position, TrailName
from trails.record import Record
from trails.runtime.home.registration import Registered
from trails.runtime.language.heartbeattable import HeartbeatTable
from trails.runtime.language.params import parse_text
from trails.runtime.report.stats import DdlCounts
from trails.testing import After, FaultFs

HOME_ID, GROUP = "0123456789abcdef", "EXT1"
HEARTBEATS = HeartbeatTable()
KV = "CREATE TABLE kv (id integer PRIMARY KEY, a varchar(100), b integer)"


def ask(verb: str, **request: Any) -> dict[str, Any]:
    """One of ggsci's requests; fails if it is refused."""
    reply = answer({"verb": verb, **request})
    assert reply.pop("ok"), reply
    return reply


@dataclass
class SourceBench:
    """`tables`: TABLE and what belongs to it, `{}` being the schema. `lines`: what stands before them."""

    place: SourcePlace
    tables: str = "TABLE {}.*;"
    lines: tuple[str, ...] = ()
    fs: Fs = field(default_factory=FaultFs)
    trail: TrailName = TRAIL
    registered: Registered | None = None
    heartbeats: bool = False
    said: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    _living: list[Extract] = field(default_factory=list)

    # --- the application

    def sql(self, *statements: str) -> None:
        """Each committed."""
        for statement in statements:
            self.together(statement)

    def together(self, *statements: str) -> None:
        """All in one transaction."""
        with self.place.transaction() as application:
            for statement in statements:
                application.execute(statement)

    def insert(self, table: str, *rows: Sequence[Any]) -> None:
        """Rows of any values, in one transaction."""
        marks = ", ".join([self.place.mark] * len(rows[0]))
        with self.place.transaction() as application:
            for row in rows:
                application.execute(f"INSERT INTO {table} VALUES ({marks})", row)

    # --- the group

    def register(self, *tables: str, allcols: bool = False) -> None:
        """Make tables, ADD TRANDATA and REGISTER EXTRACT."""
        self.sql(*tables)
        asked = {"url": self.place.url, "method": self.place.method}
        ask("add_trandata", **asked, pattern=f"{self.place.schema}.*", allcols=allcols)
        self.registered = Registered.of(ask("register", **asked, group=GROUP, home_id=HOME_ID))

    def follow_ddl(self) -> None:
        """ADD DDLCAPTURE, where the database has a need of it."""
        reply = answer({"verb": "add_ddlcapture", "url": self.place.url})
        assert reply["ok"] or "needs no DDL capture" in reply["error"], reply

    def told(self, url: str = "") -> SourceSettings:
        """What the parameter file and the registration tell a source."""
        head = (f"EXTRACT {GROUP}", f"SOURCEDB {url or self.place.url}", "EXTTRAIL ./dirdat/lt", *self.lines)
        text = "\n".join([*head, self.tables.format(*[self.place.schema] * 9)])
        return ExtractParams.from_statements(parse_text(text, "ext1.prm")).settings(
            self.registered, HEARTBEATS, method=self.place.method
        )

    def source(self, url: str = "", **changes: Any) -> Source:
        """A process's worth of source."""
        told = replace(self.told(url), **changes)
        return kinds.method(kinds.of(told.url), told.method).source(
            told, self.said.append, self.said.append, DdlCounts()
        )

    def start(self, source: Source | None = None, **settings: Any) -> Extract:
        """A process's worth of Extract; stopped at the test's end, if it still lives then."""
        given = {"block_bytes": 1 << 14, **self.settings, **settings}
        clock = RealClock()
        beats = Heartbeats(HEARTBEATS, Owner(HOME_ID, GROUP), clock) if self.heartbeats else None
        made = Extract.start(
            self.fs, Settings(GROUP, HOME_ID, "host", self.trail, "./dirdat/lt", **given), source or self.source(),
            clock, beats,
        )  # fmt: skip
        self._living.append(made)
        return made

    def drain(self, extract: Extract) -> None:
        """Until all that is committed now is durable in the trail."""
        goal, sink = self.place.end(), extract._assembler
        self.until(extract, lambda: sink.is_empty and self.place.has_read(sink.origin, goal))
        extract.flush()

    def until(self, extract: Extract, done: Callable[[], object], seconds: float = PATIENCE) -> None:
        """Drive it as the runtime's loop does."""
        end = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < end, (extract.command("STATUS", {}), self.said)
            if extract.step() or done():
                continue
            poller = select.poll()
            for fd in extract.waits():
                poller.register(fd, select.POLLIN)
            poller.poll(min(50, int(extract.idle_seconds() * 1000) + 1))

    def sees(self, extract: Extract, *statements: str) -> Mirror:
        """What the trail has once these were captured."""
        self.sql(*statements)
        self.drain(extract)
        return self.mirror()

    def capture(self, **settings: Any) -> Mirror:
        """A whole life: start, capture what is there, stop; what the trail has then."""
        extract = self.start(**settings)
        self.drain(extract)
        self.stop(extract)
        return self.mirror()

    def stop(self, extract: Extract) -> None:
        """In order."""
        self._living.remove(extract)
        extract.flush()
        extract.close()

    def die(self, extract: Extract) -> None:
        """As a killed process: nothing is saved, nothing more is told to the source, and the trail's lock is free."""
        self._living.remove(extract)
        extract._writer.abandon()
        self.place.cut(extract._source)
        extract._source.close()
        assert isinstance(self.fs, FaultFs)
        self.fs.reboot(After.KILL)

    def end(self) -> None:
        """What a test has left."""
        for extract in self._living:
            extract._source.close()
            extract._writer.abandon()

    # --- the trail

    def mirror(self) -> Mirror:
        """What it says."""
        return Mirror.of(self.fs, self.trail)

    def same(self, mirror: Mirror, *tables: str) -> None:
        """The mirror has what an application sees, in the trail's text."""
        for table in tables:
            seen = sorted((tuple(map(text, row)) for row in self.place.rows(table)), key=repr)
            assert mirror.sorted(table) == seen, table


def text(value: Any) -> Any:
    """A value as the trail has it."""
    return value if value is None or isinstance(value, str | bytes) else str(value)


@dataclass
class Collected:
    """A sink that keeps what it is handed: each transaction's records, and where it ended."""

    origin: Position
    state: str = ""
    records: list[Record] = field(default_factory=list)
    cache: dict[Any, Any] = field(default_factory=dict)
    ends: list[tuple[Position, str, str]] = field(default_factory=list)
    found: list[list[Record]] = field(default_factory=list)

    def table(self, definition: Any) -> int:
        return 0

    def keeps(self, definition: Any, column: int) -> bool:
        return True

    def packs(self, records: Any) -> bool:
        return False

    def begin(self, csn: str, xid: str, commit_us: int) -> None:
        assert not self.records

    def commit(self, origin: Position, csn: str, commit_us: int, state: str = "") -> None:
        self.found.append(self.records[:])
        self.records.clear()
        self.ends.append((origin, state, csn))
        self.origin, self.state = origin, state

    def grew(self, size: int) -> None: ...

    def reached(self, origin: Position, time_us: int, state: str = "") -> None:
        self.origin, self.state = max(self.origin, origin), state

    def abandon(self) -> None:
        self.records.clear()

    def read(self, source: Source, place: SourcePlace, seconds: float = PATIENCE) -> None:
        """Poll until all that is committed now was handed over."""
        goal, end = place.end(), time.monotonic() + seconds
        while not place.has_read(self.origin, goal):
            assert time.monotonic() < end, (self.origin, goal)
            if not source.poll():
                select.select(source.waits(), [], [], 0.02)
