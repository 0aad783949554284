"""A PostgreSQL database captured by triggers, and an Extract on it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import psycopg

from demo.patience import PATIENCE
from extract.admin import answer
from extract.extract import Extract, Settings
from extract.params import ExtractParams
from extract.segments import SegmentSource
from extract.source import SourceSettings
from extract.sources.postgres.kind import POSTGRES
from trails.clock import RealClock
from trails.fs import Fs
from trails.position import TrailName
from trails.runtime.home.methods import METHODS
from trails.runtime.home.registration import Registered
from trails.runtime.language.heartbeattable import HeartbeatTable
from trails.runtime.language.params import parse_text
from trails.runtime.report.stats import DdlCounts

HOME_ID = "0123456789abcdef"
METHOD = METHODS[1]


@dataclass
class TriggeredDb:
    """A source; `told` and `warned` are the lines for the operator."""

    url: str
    registered: Registered | None = None
    told: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)

    @classmethod
    def make(cls, url: str, *statements: str) -> TriggeredDb:
        """Tables, with triggers and a registration."""
        made = cls(url)
        made.run(*statements)
        if statements:
            made.ask("add_trandata", pattern="*.*")
        made.register()
        return made

    def connect(self) -> psycopg.Connection[Any]:
        """An application's connection, in autocommit."""
        return psycopg.connect(self.url, autocommit=True)

    def run(self, *statements: str) -> None:
        """Statements of an application, each committed."""
        with self.connect() as conn:
            for statement in statements:
                conn.execute(statement.encode())

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What a query or table gives."""
        with self.connect() as conn:
            return conn.execute((query if " " in query else f"SELECT * FROM {query}").encode()).fetchall()

    def ask(self, verb: str, **request: Any) -> dict[str, Any]:
        """One of ggsci's requests; fails if it is refused."""
        reply = answer({"verb": verb, "url": self.url, "method": METHOD, **request})
        assert reply.pop("ok"), reply
        return reply

    def refused(self, verb: str, **request: Any) -> str:
        """The error of one of ggsci's requests."""
        reply = answer({"verb": verb, "url": self.url, "method": METHOD, **request})
        assert not reply["ok"], reply
        return str(reply["error"])

    def register(self) -> None:
        """REGISTER EXTRACT."""
        self.note(self.ask("register", group="EXT1", home_id=HOME_ID))

    def note(self, reply: dict[str, Any]) -> None:
        """Take what the request `register` answered as the group's registration."""
        self.registered = Registered.of(reply)

    def settings(self, *lines: str, table: str = "TABLE public.*;") -> SourceSettings:
        """What a source is told by a parameter file with these lines."""
        text = "\n".join(["EXTRACT EXT1", f"SOURCEDB {self.url}", "EXTTRAIL ./dirdat/lt", *lines, table])
        params = ExtractParams.from_statements(parse_text(text, "ext1.prm"))
        return params.settings(self.registered, HeartbeatTable(), method=METHOD)

    def source(self, *lines: str, table: str = "TABLE public.*;", **told: Any) -> SegmentSource:
        """The source itself; `told`: what else its settings have."""
        settings = replace(self.settings(*lines, table=table), **told)
        made = POSTGRES.methods[METHOD].source(settings, self.told.append, self.warned.append, DdlCounts())
        assert isinstance(made, SegmentSource)
        return made

    def extract(self, fs: Fs, trail: TrailName, source: SegmentSource | None = None, **settings: Any) -> Extract:
        """An Extract, started."""
        told = Settings("EXT1", HOME_ID, "host", trail, "./dirdat/lt", **{"block_bytes": 1 << 16, **settings})
        return Extract.start(fs, told, source or self.source(), RealClock())

    def has_captured(self, goal: str) -> bool:
        """Whether all that the snapshot sees was released."""
        from extract.sources.postgres.driver import Session
        from extract.sources.postgres.triggers.admin import captured

        session = Session(self.url, "test")
        try:
            return bool(captured(session, goal, 0)["reached"])
        finally:
            session.close()


def run_until_captured(extract: Extract, db: TriggeredDb, seconds: float = PATIENCE) -> None:
    """Step until all that is committed now is durable in the trail, and released."""
    goal = str(db.rows("SELECT pg_current_snapshot()::text")[0][0])
    clock = RealClock()
    end = clock.monotonic() + seconds
    while not db.has_captured(goal):
        for _ in range(20):
            if not extract.step():
                clock.sleep(0.002)
        assert clock.monotonic() < end, f"stuck at {extract._writer.last.origin}"
    extract.flush()


def capture(db: TriggeredDb, fs: Fs, trail: TrailName, source: SegmentSource | None = None, **settings: Any) -> None:
    """A whole life: start, capture what is there, stop."""
    extract = db.extract(fs, trail, source, **settings)
    run_until_captured(extract, db)
    extract.close()
