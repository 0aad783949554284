"""The SQLite source: a queue in the file itself, filled by triggers (queue.py), read by a thread (reader.py).

Places. An origin is (0, id of the queue's last row that was handed over); a CSN is the same number in 20 digits. What
was committed between two looks is one transaction: SQLite does not say where one ends and the next begins. A heartbeat
is one of its own, so a backlog that was gathered under heartbeats is not one single transaction.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from extract.longtrans import Outstanding
from extract.queueguard import QueueLimits, kept_facts, retained
from extract.retention import Retained, RetentionGuard
from extract.segments import SegmentSource
from extract.source import Say, Sink, SourceFacts, SourceSettings, ThreadPlaces
from extract.sources.sqlite import queue
from extract.sources.sqlite.check import check_history, untriggered
from extract.sources.sqlite.link import SCHEMA, number, path_of, session
from extract.sources.sqlite.reader import Capture, QueueReader, csn_text
from extract.sources.sqlite.tables import SourceTable
from trails.checkpoint import Place
from trails.ddl import DdlChange
from trails.errors import MismatchError, OperatorError
from trails.position import Position
from trails.record import TableDef
from trails.runtime.report.answers import plain
from trails.runtime.report.stats import DdlCounts

TITLE: Final = "SQLite Queue"
ABOUT: Final = (
    "Database Version:", f"SQLite {sqlite3.sqlite_version}", "", "Database Language and Character Set:", "UTF-8", "",
)  # fmt: skip


class QueueRules:
    """What the parameter file makes of the file's tables."""

    def __init__(self, settings: SourceSettings, counts: DdlCounts) -> None:
        self._settings = settings
        self._counts = counts

    def capture(self) -> Capture:
        """For the reader."""
        return Capture(self.definition, self.anys, self.befores, self.wants, self.is_seed)

    def is_seed(self, name: str) -> bool:
        """Whether it is the heartbeat's seed table, which stands in the file's only schema."""
        return name == self._settings.heartbeat.seed

    def captures(self, name: str) -> bool:
        """Whether a table's rows are captured; those of heartbeats never are."""
        return name not in self._settings.heartbeat.tables and self._settings.tables.wants(SCHEMA, name)

    def definition(self, table: SourceTable) -> TableDef | None:
        """As the trail has it; the heartbeat's goes to the sink too, under the name by which it is known there."""
        if self.is_seed(table.name):
            return table.definition(self._settings.heartbeat.schema)
        return table.definition(SCHEMA, self.anys(table)) if self.captures(table.name) else None

    def anys(self, table: SourceTable) -> tuple[str, ...]:
        """The columns whose values carry their own type, as TABLE says."""
        return self._settings.tables.anys(SCHEMA, table.name, [c.name for c in table.columns])

    def befores(self, name: str) -> bool:
        """Whether updates carry their whole old rows."""
        return self.captures(name) and bool(self._settings.tables.befores(SCHEMA, name))

    def wants(self, change: DdlChange) -> bool:
        """Whether a change of shape goes into the trail. A renamed table counts by both of its names."""
        rules = self._settings.ddl
        if rules is None or any(name in self._settings.heartbeat.tables for _, name in change.names):
            return False
        mapped = any(self.captures(name) for _, name in change.names)
        passes = rules.passes(change, mapped)
        self._counts.seen(change, mapped=mapped, passes=passes)
        return passes


def faults(conn: sqlite3.Connection, settings: SourceSettings) -> list[tuple[str, str]]:
    """(what, what mends it) of each captured table of which changes would not come, or not as they are asked for."""
    rules = QueueRules(settings, DdlCounts())
    known = [one for one in queue.logged(conn) if one.is_on] if queue.installed(conn) else []
    found = []
    on = {one.table.name for one in known}
    for name, why in untriggered(conn, on, lambda table: rules.definition(table) is not None):
        full = f"{SCHEMA}.{name}"
        if why:
            found.append((f"table {full} can't be captured: {why}", f"Mend that, or TABLEEXCLUDE {full};"))
        elif not rules.is_seed(name):
            found.append((f"table {full} has no triggers, so its changes don't come", f"ADD TRANDATA {full}"))
    for one in known:
        full, where = one.table.full_name, settings.tables.befores(SCHEMA, one.table.name)
        if where and not one.allcols and rules.captures(one.table.name):
            found.append((f"{where}: whole old rows of {full} are asked for", f"ADD TRANDATA {full}, ALLCOLS"))
    if settings.project is not None:
        given = (rules.definition(one.table) for one in known if rules.captures(one.table.name))
        found += [(error.message, error.hint) for error in settings.project.faults(d for d in given if d is not None)]
    return found


class SqliteSource(SegmentSource):
    """This database's source; extract.source.Source says what each method does."""

    def __init__(self, settings: SourceSettings, say: Say, warn: Say, counts: DdlCounts) -> None:
        self._settings = settings
        self._expected = settings.noted.identity["system"]
        self._reader = QueueReader(settings.url, self._expected, QueueRules(settings, counts).capture(), say)
        self._limits = QueueLimits.of(settings)
        guard = RetentionGuard(self._retained, warn)
        super().__init__(self._reader, settings.reconnect_seconds, say, guard, "sqlite queue")

    # --- before the start -------------------------------------------------------------------------------------------

    def identify(self, known: dict[str, str] | None) -> dict[str, str]:
        with session(self._settings.url) as conn:
            made = queue.installed(conn)
            if made is None:
                raise OperatorError(
                    "the source file has no queue", hint=f"DBLOGIN, then REGISTER EXTRACT {self._settings.group}"
                )
            found = {"kind": "sqlite", "system": made.id}
            for who, expected in (("REGISTER EXTRACT", self._expected), ("the trail", (known or {}).get("system"))):
                if expected and expected != made.id:
                    raise MismatchError(
                        f"the source file is {made.id}, but {who} belongs to {expected}",
                        hint="Mend SOURCEDB; another file needs a group and a trail of its own",
                    )
            reader = self._settings.noted.made["queue"]
            if made.reader != reader:
                raise MismatchError(
                    f"the source's queue is read by {made.reader or 'nobody'}, not by {reader}",
                    hint=f"UNREGISTER the other group, then REGISTER EXTRACT {self._settings.group}",
                )
            missing = faults(conn, self._settings)
        if missing:
            raise OperatorError(
                "the source does not give all that TABLE asks for: "
                + "; ".join(f"{what}. {mend}" for what, mend in missing),
                hint="Then START",
            )
        return found

    def first_origin(self) -> Position:
        return Position(0, self._settings.noted.place.rba)

    def origin_of(self, order: dict[str, Any]) -> Position:
        """The place of ALTER EXTRACT or ADD EXTRACT: BEGIN NOW, or a CSN."""
        with session(self._settings.url) as conn:
            first = number(conn, f"SELECT min(id) FROM {queue.LOG}")
            last = queue.last_id(conn)
        if order.get("begin") == "now":
            return Position(0, last)
        text = str(order.get("csn", ""))
        if not text.isdecimal():
            raise OperatorError(
                f"ALTER EXTRACT: place {text or order}: expected BEGIN NOW or a CSN such as {csn_text(last)}",
                hint="ALTER EXTRACT again, with such a CSN",
            )
        if not first - 1 <= int(text) <= last:
            raise OperatorError(
                f"ALTER EXTRACT to {text}: the source's queue has {first} to {last}",
                hint="ALTER EXTRACT to one of these",
            )
        return Position(0, int(text))

    def fits(self, origin: Position, state: str) -> None:
        with session(self._settings.url) as conn:
            check_history(conn, self._expected, origin.rba, state)

    def start(self, origin: Position, state: str, sink: Sink) -> None:
        self.fits(origin, state)
        super().start(origin, state, sink)

    # --- telling ----------------------------------------------------------------------------------------------------

    def _retained(self) -> Retained:
        return retained(self._reader.facts.last - self._reader.facts.first, self._limits)

    def place(self, origin: Position, time_us: int | None) -> Place:
        return place(origin.rba, self._settings.url, time_us)

    def facts(self, origin: Position, state: str, time_us: int | None) -> SourceFacts:  # noqa: ARG002
        """No transaction is open in the queue, and none in the file needs anything that was captured."""
        current = self.place(Position(0, self.read), self.read_us)
        threads = [ThreadPlaces(self.place(origin, time_us), current)]
        return SourceFacts(TITLE, threads, self._measures(), ABOUT)

    def _measures(self) -> dict[str, Any]:
        """Bytes are rows times the mean size of those that were read last."""
        facts = self._reader.facts
        if not facts.looked_us:
            return {}
        waiting, rows = max(0, facts.last - self.read), max(0, facts.last - facts.first)
        name = self._settings.noted.made["queue"]
        return {
            "backlog_bytes": round(waiting * facts.row_bytes) or waiting,
            "backlog_rows": waiting,
            "queue_rows": rows,
            **plain(kept_facts(name, rows, round(rows * facts.row_bytes), facts.looked_us)),
        }

    def outstanding(self) -> Outstanding:
        """None: SQLite does not say who has a transaction open, and no log is kept because of one."""
        return Outstanding()


def place(last: int, url: str, time_us: int | None = None) -> Place:
    """A place in the queue as SHOWCH prints it."""
    return Place(0, last, time_us, csn_text(last), path_of(url))
