"""An Extract on a real database inside the test's process, and what a reader of its trail sees."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg

from demo.patience import PATIENCE
from extract.admin import answer
from extract.extract import Ears, Extract, Settings
from extract.heartbeat import Heart, Heartbeats, Owner
from extract.params import ExtractParams
from extract.source import SourceSettings
from extract.sources.postgres.heartbeat import PostgresSeed
from extract.sources.postgres.pgoutput import parse_lsn
from extract.sources.postgres.source import PostgresSource
from tests.support.trail_script import payload_of
from trails.clock import RealClock
from trails.codec import decode_data
from trails.ddl import DdlChange
from trails.fs import RealFs
from trails.plan import Planner
from trails.position import TrailName
from trails.reader import BlockReader
from trails.record import Op, TableDef
from trails.runtime.home.registration import Registered
from trails.runtime.language.ddlparams import ddl_rules
from trails.runtime.language.heartbeattable import HeartbeatTable
from trails.runtime.language.params import parse_text
from trails.runtime.language.tableparams import Projector, TableRules, environment


def ask(verb: str, **request: Any) -> dict[str, Any]:
    """One request to extract.admin; it must succeed."""
    reply = answer({"verb": verb, **request})
    assert reply["ok"], reply
    return reply


@dataclass
class Change:
    """One decoded change; images by column name."""

    op: Op
    table: TableDef
    after: dict[str, Any] | None = None
    before: dict[str, Any] | None = None
    ddl: DdlChange | None = None


@dataclass
class Capture:
    """One registered group on a database, and its trail in a folder.

    `tables`: TABLE and TABLEEXCLUDE as a file e.prm has them, from line 4 on; without them `patterns` are captured.
    `ddl`: the argument of the parameter DDL; None: it is not in the file, and `heard` is what is said of shapes.
    """

    url: str
    folder: Path
    patterns: tuple[str, ...] = ("public.*",)
    tables: str = ""
    ddl: str | None = None
    registered: Registered | None = None
    said: list[str] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    reconnect_seconds: float = 120.0
    heartbeat: HeartbeatTable | None = None
    settings: Settings = field(init=False)

    def __post_init__(self) -> None:
        self.settings = Settings("EXT1", "0" * 32, "host", TrailName(str(self.folder), "lt"), "./dirdat/lt")

    def sql(self, *statements: str) -> list[Any]:
        """Run statements, each in its own transaction; the last one's rows."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def register(self, *, trandata: bool = True) -> None:
        """ADD TRANDATA and REGISTER EXTRACT."""
        if trandata:
            ask("add_trandata", url=self.url, pattern="*.*")
        self.note(ask("register", url=self.url, group="EXT1", home_id="0" * 32))

    def note(self, reply: dict[str, Any]) -> None:
        """Take what the request `register` answered as the group's registration."""
        self.registered = Registered.of({key: value for key, value in reply.items() if key != "ok"})

    @property
    def trail(self) -> TrailName:
        """What its Extract writes."""
        return self.settings.trail

    @property
    def made(self) -> dict[str, str]:
        """The names of slot and publication."""
        assert self.registered is not None
        return self.registered.made

    def told(self) -> SourceSettings:
        """What the source is told."""
        return SourceSettings(
            "EXT1",
            self.url,
            self.registered,
            self.rules(),
            self.projector(),
            None if self.ddl is None else ddl_rules(parse_text(f"DDL {self.ddl}", "e.prm")[0]),
            self.reconnect_seconds,
            self.heartbeat or HeartbeatTable(),
        )

    def source(self) -> PostgresSource:
        """A new connection to it."""
        return PostgresSource(self.told(), self.said.append)

    def rules(self) -> TableRules:
        """What is captured, and how."""
        tables = self.tables or "".join(f"TABLE {pattern};\n" for pattern in self.patterns)
        head = "EXTRACT ext1\nSOURCEDB postgresql://here/db\nEXTTRAIL ./dirdat/lt\n"
        return ExtractParams.from_statements(parse_text(head + tables, "e.prm")).tables

    def projector(self) -> Projector | None:
        """What the TABLE options make of tables."""
        return self.rules().projector(environment("EXT1", "host"))

    def start(self, **changes: Any) -> Extract:
        """A new process's worth of Extract."""
        settings = replace(self.settings, project=self.projector(), **changes)
        warn_shape = self.heard.append if self.ddl is None else None
        return Extract.start(
            RealFs(), settings, self.source(), RealClock(), self.heartbeats(), ears=Ears(shape=warn_shape)
        )  # fmt: skip

    def heartbeats(self) -> Heartbeats | None:
        """With the thread that writes them, if there is a table for them."""
        if self.heartbeat is None:
            return None
        table, owner = self.heartbeat, Owner("0" * 32, "EXT1")
        heart = Heart(lambda: PostgresSeed(self.told(), owner), RealClock(), 2, self.said.append)
        return Heartbeats(table, owner, RealClock(), heart)

    @contextmanager
    def running(self, **changes: Any) -> Iterator[Extract]:
        """Started, and stopped in order."""
        extract = self.start(**changes)
        try:
            yield extract
            extract.flush()
        finally:
            extract.close()

    def drain(self, extract: Extract, seconds: float = PATIENCE) -> None:
        """Step until everything committed so far is in the trail and synced."""
        upto = parse_lsn(self.sql("SELECT pg_current_wal_lsn()::text")[0][0])
        step_until(extract, lambda: extract._assembler.origin.rba >= upto and not extract._assembler.has_whole, seconds)
        extract.flush()

    def changes(self, trail: TrailName | None = None) -> list[list[Change]]:
        """All transactions in the trail, or in another one."""
        trail = trail or self.settings.trail
        planner = Planner(BlockReader(RealFs(), trail))
        found: list[list[Change]] = []
        while (unit := planner.next()) is not None:
            for block in unit.blocks:
                ids, records = decode_data(block.header, payload_of(RealFs(), trail, block))
                tables = [planner.definitions[i] for i in ids]
                for record in records:
                    if record[0] == Op.BEGIN:
                        found.append([])
                    elif record[0] == Op.COMMIT:
                        assert record[1] == len(found[-1])
                    elif record[0] != Op.HEARTBEAT:
                        found[-1].extend(_change(record, tables))
        return found


def _change(record: list[Any], tables: list[TableDef]) -> list[Change]:
    op = Op(record[0])
    if op == Op.DDL:
        change = DdlChange.from_wire(record[1])
        return [Change(op, TableDef(change.shape.schema, change.shape.name, ()), ddl=change)]
    if op == Op.TRUNCATE:
        return [Change(op, tables[record[1][0]], {"tables": [tables[i].name for i in record[1]], "flags": record[2]})]
    table = tables[record[1]]
    names = [c.name for c in table.columns]
    images = [None if image is None else dict(zip(names, image, strict=True)) for image in record[2:]]
    if op == Op.INSERT:
        return [Change(op, table, images[0])]
    if op == Op.DELETE:
        return [Change(op, table, None, images[0])]
    return [Change(op, table, images[0], images[1])]


def step_until(extract: Extract, done: Any, seconds: float = PATIENCE) -> None:
    """Drive it as the runtime's loop does, until `done()`."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, extract.command("STATUS", {})
        if extract.step() or done():
            continue
        poller = select.poll()
        for fd in extract.waits():
            poller.register(fd, select.POLLIN)
        poller.poll(min(100, int(extract.idle_seconds() * 1000) + 1))
