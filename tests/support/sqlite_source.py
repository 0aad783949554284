"""An SQLite file as a source, and an Extract on it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo.patience import PATIENCE
from extract.admin import answer
from extract.extract import Extract, Settings
from extract.params import ExtractParams
from extract.segments import SegmentSource
from extract.sources.sqlite.kind import SQLITE
from tests.support.mirror import Mirror
from trails.clock import RealClock
from trails.fs import Fs
from trails.position import TrailName
from trails.runtime.home.registration import Registered
from trails.runtime.language.params import parse_text
from trails.runtime.report.stats import DdlCounts

HOME_ID = "0123456789abcdef"
SCHEMA = (
    "CREATE TABLE item (id INTEGER PRIMARY KEY, code TEXT UNIQUE COLLATE NOCASE, price REAL, n NUMERIC, pic BLOB)",
    "CREATE TABLE line (a INTEGER, b TEXT, note TEXT, PRIMARY KEY (a, b)) WITHOUT ROWID",
)


@dataclass
class SourceFile:
    """A source; `told` and `warned` are the lines for the operator."""

    path: Path
    registered: Registered | None = None
    told: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)

    @classmethod
    def make(cls, folder: Path, statements: Sequence[str] = SCHEMA, *, wal: bool = True) -> SourceFile:
        """A new file, with tables, triggers and a registration."""
        made = cls(folder / "shop.db")
        with made.connect() as conn:
            if wal:
                conn.execute("PRAGMA journal_mode = WAL")
            for statement in statements:
                conn.execute(statement)
        conn.close()
        made.ask("add_trandata", pattern="main.*")
        made.register()
        return made

    @property
    def url(self) -> str:
        """For SOURCEDB."""
        return f"sqlite:///{self.path}"

    def connect(self) -> sqlite3.Connection:
        """An application's connection, in autocommit."""
        return sqlite3.connect(self.path, isolation_level=None, timeout=PATIENCE)

    def run(self, *statements: str) -> None:
        """Statements of an application, each committed."""
        conn = self.connect()
        for statement in statements:
            conn.execute(statement)
        conn.close()

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """What a query or table gives."""
        conn = self.connect()
        query = table if table.upper().startswith(("SELECT", "PRAGMA")) else f"SELECT * FROM {table}"
        found = conn.execute(query).fetchall()
        conn.close()
        return found

    def ask(self, verb: str, **request: Any) -> dict[str, Any]:
        """One of ggsci's requests; fails if it is refused."""
        reply = answer({"verb": verb, "url": self.url, **request})
        assert reply.pop("ok"), reply
        return reply

    def refused(self, verb: str, **request: Any) -> str:
        """The error of one of ggsci's requests."""
        reply = answer({"verb": verb, "url": self.url, **request})
        assert not reply["ok"], reply
        return str(reply["error"])

    def register(self) -> None:
        """REGISTER EXTRACT."""
        self.registered = Registered.of(self.ask("register", group="EXT1", home_id=HOME_ID))

    def source(self, *lines: str, table: str = "TABLE main.*;") -> SegmentSource:
        """The source, as a parameter file with these lines makes it."""
        text = "\n".join(["EXTRACT EXT1", f"SOURCEDB {self.url}", "EXTTRAIL ./dirdat/lt", *lines, table])
        params = ExtractParams.from_statements(parse_text(text, "ext1.prm"))
        made = SQLITE.source(params.settings(self.registered), self.told.append, self.warned.append, DdlCounts())
        assert isinstance(made, SegmentSource)
        return made

    def extract(self, fs: Fs, trail: TrailName, source: SegmentSource | None = None, **settings: Any) -> Extract:
        """An Extract, started."""
        told = Settings("EXT1", HOME_ID, "host", trail, "./dirdat/lt", **{"block_bytes": 1 << 16, **settings})
        return Extract.start(fs, told, source or self.source(), RealClock())

    def last(self) -> int:
        """The queue's last id."""
        return int(self.rows("SELECT max(id) FROM trailgate_log")[0][0])


def run_until_captured(extract: Extract, file: SourceFile, seconds: float = PATIENCE) -> None:
    """Step until all that is committed now is durable in the trail."""
    goal = file.last()
    clock = RealClock()
    end = clock.monotonic() + seconds
    while extract._writer.last.origin.rba < goal:
        if not extract.step():
            clock.sleep(0.002)
        assert clock.monotonic() < end, f"stuck at {extract._writer.last.origin}, expected {goal}"
    extract.flush()


def capture(file: SourceFile, fs: Fs, trail: TrailName, source: SegmentSource | None = None, **settings: Any) -> None:
    """A whole life: start, capture what is there, stop."""
    extract = file.extract(fs, trail, source, **settings)
    run_until_captured(extract, file)
    extract.close()


def same_rows(file: SourceFile, mirror: Mirror, *tables: str) -> None:
    """The mirror has what the source has, value by value, in the trail's text."""
    from extract.sources.sqlite.values import CONVERTERS

    for table in tables:
        rows = []
        for row in file.rows(table):
            types = [column.type for column in mirror.definitions[table].columns] if table in mirror.definitions else []
            rows.append(tuple(_plain(CONVERTERS[kind](value)) for kind, value in zip(types, row, strict=True)))
        assert sorted(rows, key=repr) == mirror.sorted(table), table


def _plain(value: Any) -> Any:
    """As a reader has it: bytes for what the encoder is given wrapped."""
    return value.data if hasattr(value, "data") else value
