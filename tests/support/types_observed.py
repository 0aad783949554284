"""What each source type becomes in each target, observed through the whole path. types_page.py tells it.

Each value goes through a real capture, a trail and a Replicat as an insert, an update's after image, a before image
(a table without a key whose rows must be found by it), a key (updated and deleted by it), and beside a NULL.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from demo.mysqld import Mysqld
from demo.servers import PostgresServer
from extract.extract import Extract
from replicat.apply.discard import Discards
from replicat.apply.discardfile import DiscardFile
from replicat.ddl.definition import Definition, defined
from replicat.ddl.dialect import Dialect
from replicat.params import ReplicatParams
from replicat.run.replicat import Replicat
from replicat.targets.contract import TargetSettings
from replicat.targets.kinds import admin_for, kind_of, open_target
from replicat.targets.mysql import link as mysql_link
from replicat.targets.mysql.target import MysqlDatabase
from replicat.targets.mysql.types import mysql_type
from replicat.targets.postgres.ddl import GRAMMAR
from replicat.targets.postgres.sql import SESSION
from replicat.targets.postgres.types import AskedRule, postgres_type
from replicat.targets.sql.types import Rule, rule_for
from replicat.targets.sqlite import link as sqlite_link
from replicat.targets.sqlite.types import sqlite_type
from replicat.work.conflicts.comparing import same
from tests.support.capturing import Capture
from tests.support.direct_target import Direct
from tests.support.replicat_trail import InlineEngine
from tests.support.type_cases import CASES, SETUP, Case
from trails.clock import RealClock
from trails.ddl import DdlColumn
from trails.fs import RealFs
from trails.record import Op
from trails.runtime.home.registration import Registration
from trails.runtime.language.params import parse_text

REG = Registration("REP1", "REPLICAT", "TRAIL", group_key=77, added_us=5)
EXACT, SAME, LOST, REFUSED = "exact", "the same value", "by rule, counted", "refused"
_FAILED = re.compile(
    r"Discarding record on action DISCARD on error (\S+)\n(.*)\n.*\n.*\nProblem replicating \S+ to \S+\.(\w+)"
)


@dataclass(frozen=True)
class Place:
    """A server (SQLite has none) to be a target, and its name on the page.

    `others`: also the columns that people choose, and not just those that Replicat makes.
    """

    kind: str
    name: str
    server: Any = None
    others: bool = True


def places(server: PostgresServer, *others: Mysqld, chosen: bool = True) -> list[Place]:
    """A target of each kind. `chosen`: also columns that people choose, in all but the servers behind the first."""
    first = [Place("postgresql", "PostgreSQL", server, chosen), Place("sqlite", "SQLite", None, chosen)]
    return first + [Place("mysql", one.NAME, one, chosen and one is others[0]) for one in others]


@dataclass
class Outcome:
    """One value in one column: `value` is the source's canonical text, `stored` what the target shows of it."""

    value: Any
    verdict: str
    stored: str = ""
    sqlstate: str = ""


@dataclass
class Seen:
    """One source type in one column of one kind of target. `rule` is empty where nothing can be written at all.

    `made`: the column is the one that Replicat makes. `own`: it is of the source's own type, and no value is looked at.
    """

    case: Case
    kind: str
    place: str
    column: str
    rule: str
    own: bool = False
    made: bool = True
    outcomes: list[Outcome] = field(default_factory=list)
    keys: dict[Any, str] = field(default_factory=dict)  # refused as a key only: value -> SQLSTATE


class Observer:
    """One source, its trail, and targets of all kinds and variants of columns."""

    name, schema, kind, grammar = "PostgreSQL", "public", "postgresql", GRAMMAR
    cases = CASES

    def __init__(self, source: str, folder: Path) -> None:
        (folder / "dirdat").mkdir(mode=0o700)
        self.capture = self._captured(source, folder / "dirdat")
        self.folder = folder
        self.seen: list[Seen] = []
        self.faults: list[str] = []
        self.values: dict[str, list[Any]] = {}
        self.logical: dict[str, tuple[str, str]] = {}
        self._runs: list[_Run] = []

    def observe(self, database: str, *places: Place) -> None:
        """Everything, into `seen` and `faults`. `database`: how names of databases in the targets begin."""
        self._make_source()
        with self.capture.running() as extract:
            self._change(extract, self._first_changes)
            self._read_trail()
            self._runs = [run for place in places for run in self._targets(place, database)]
            for run in self._runs:
                run.make()
                run.apply()
                run.look()
            self._change(extract, self._second_changes)
        for run in self._runs:
            run.apply()
            run.look_again()
            run.drop()

    # The source

    def _captured(self, source: str, folder: Path) -> Capture:
        return Capture(source, folder)

    def cast(self, case: Case, value: str) -> str:
        """SQL of a value of the type."""
        return f"CAST({value} AS {case.type})"

    @contextmanager
    def _source(self) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(self.capture.url, autocommit=True) as conn:
            conn.execute("SET synchronous_commit = off")
            yield conn
            conn.execute("SET synchronous_commit = on")  # what is not written yet, the capture does not wait for
            conn.execute("SELECT pg_logical_emit_message(true, 'types', '')")

    def _make_source(self) -> None:
        with self._source() as conn:
            conn.execute(SETUP)
            for n, case in enumerate(self.cases):
                conn.execute(f"CREATE TABLE v{n} (id bigint PRIMARY KEY, v {case.type})".encode())
                conn.execute(f"CREATE TABLE b{n} (id bigint, v {case.type})".encode())
                for table in (f"v{n}", f"b{n}"):
                    conn.execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL".encode())
                if case.key:
                    conn.execute(f"CREATE TABLE k{n} (v {case.type} PRIMARY KEY, n bigint)".encode())
        self.capture.register()

    def _change(self, extract: Extract, transactions: Callable[[int, Case], list[list[str]]]) -> None:
        """A block for each type: what is refused has the whole block read again, and its transaction taken apart."""
        for n, case in enumerate(self.cases):
            with self._source() as conn:
                for statements in transactions(n, case):
                    conn.execute("; ".join(statements).encode())
            self.capture.drain(extract, 60)

    def _first_changes(self, n: int, case: Case) -> list[list[str]]:
        inserts, updates = [], []
        for j, value in enumerate(case.values):
            cast = self.cast(case, value)
            inserts += [
                f"INSERT INTO v{n} VALUES ({2 * j}, {cast})",
                f"INSERT INTO v{n} VALUES ({2 * j + 1}, NULL)",
                f"INSERT INTO b{n} VALUES ({j}, {cast})",
                f"INSERT INTO b{n} VALUES ({1000 + j}, {cast})",
            ]
            updates.append(f"UPDATE v{n} SET v = {cast} WHERE id = {2 * j + 1}")
            if case.key:
                inserts.append(f"INSERT INTO k{n} VALUES ({cast}, {j})")
                updates.append(f"UPDATE k{n} SET n = {1000 + j} WHERE n = {j}")
        return [inserts, updates]

    def _second_changes(self, n: int, case: Case) -> list[list[str]]:
        statements = []
        for j in range(len(case.values)):
            statements += [
                f"UPDATE b{n} SET id = {-1 - j} WHERE id = {j}",
                f"DELETE FROM b{n} WHERE id = {1000 + j}",
                f"UPDATE v{n} SET v = NULL WHERE id = {2 * j}",
                f"DELETE FROM v{n} WHERE id = {2 * j + 1}",
            ]
            if case.key:
                statements.append(f"DELETE FROM k{n} WHERE n = {1000 + j}")
        return [statements]

    def _read_trail(self) -> None:
        for transaction in self.capture.changes():
            for change in transaction:
                if (
                    change.op == Op.INSERT
                    and change.table.name[0] == "v"
                    and change.after
                    and int(change.after["id"]) % 2 == 0
                ):
                    self.values.setdefault(change.table.name[1:], []).append(change.after["v"])
                    self.logical[change.table.name[1:]] = (change.table.columns[1].type, change.table.columns[1].native)

    # The targets

    def _targets(self, place: Place, database: str) -> Iterator[_Run]:
        kind, dialect = place.kind, self._dialect(place)
        for variant in range(1 + max(len(getattr(case, kind)) for case in self.cases) * place.others):
            columns = [self._column(kind, n, case, variant, dialect) for n, case in enumerate(self.cases)]
            keys = columns if variant else [self._key_column(n, case, dialect) for n, case in enumerate(self.cases)]
            own = kind == self.kind == "postgresql" and not variant
            columns = [case.type for case in self.cases] if own else columns
            name = f"{database}_{variant}"
            if kind == "sqlite":
                yield _Run(self, place, f"sqlite:///{self.folder}/{variant}.db", "main", columns, keys, variant)
                continue
            place.server.sql(f"CREATE DATABASE {name}")
            schema = name if kind == "mysql" else "public"
            yield _Run(self, place, place.server.url(name), schema, columns, keys, variant)

    def _dialect(self, place: Place) -> Dialect:
        """As the server itself has it."""
        source = kind_of(self.kind)
        if place.kind != "mysql":
            return kind_of(place.kind).dialect(source)
        database = MysqlDatabase(kind_of(place.kind), TargetSettings(place.server.url("mysql"), ("", ""), "REP1", 77))
        database.connect()
        with closing(database):
            return database.kind.dialect(source, database.types())

    def _column(self, kind: str, n: int, case: Case, variant: int, dialect: Dialect) -> str | None:
        if variant:
            others: tuple[str, ...] = getattr(case, kind)
            return others[variant - 1] if variant <= len(others) else None
        return dialect.column_type(self._ddl_column(n))

    def _key_column(self, n: int, case: Case, dialect: Dialect) -> str | None:
        return dialect.column_type(self._ddl_column(n), 1) if case.key else None

    def _ddl_column(self, n: int) -> Definition:
        logical, native = self.logical[str(n)]
        return defined(DdlColumn(1, "v", logical, native), self.grammar)


class _Run:
    """One target with one column for each type (None: not tried)."""

    def __init__(
        self, observer: Observer, place: Place, url: str, schema: str, columns: list[Any], keys: list[Any],
        variant: int,
    ) -> None:  # fmt: skip
        """`variant`: 0 for the columns that Replicat makes."""
        self.made = not variant
        self.own = self.made and place.kind == observer.kind == "postgresql"
        self.observer, self.place, self.kind, self.url, self.schema = observer, place, place.kind, url, schema
        self.columns, self.keys = columns, keys
        self.maria: Mysqld | None = place.server if place.kind == "mysql" else None
        self.direct = Direct(place.kind, url, schema, self.maria)
        self.table = ("gg" if place.kind == "postgresql" else schema, "chk")
        self.tables: list[str] = []
        self.seen: dict[int, Seen] = {}
        self._link: Any = None
        self.discards = observer.folder / f"{place.kind}_{schema}_{len(observer._runs)}_{id(self)}.dsc"

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """By one connection: there are thousands of statements."""
        if self._link is None:
            self._link = self._connected()
        cursor = self._link.cursor()
        cursor.execute(statement)
        return list(cursor.fetchall()) if cursor.description else []

    def _connected(self) -> Any:
        if self.maria is not None:
            return self.maria.connect(self.schema)
        if self.kind == "sqlite":
            return sqlite3.connect(self.url.removeprefix("sqlite:///"), isolation_level=None)
        link = psycopg.connect(self.url, autocommit=True)
        link.execute(SESSION)
        link.execute("SET search_path = public")
        return link

    def make(self) -> None:
        """Tables for all that a rule is for."""
        admin_for(self.url).add_row_table(self.url, self.table)
        if self.kind == self.observer.kind == "postgresql":
            self.sql(SETUP)
        statements = []
        for n, column in enumerate(self.columns):
            if column is None:
                continue
            case, rule = self.observer.cases[n], self._rule(n, column)
            seen = Seen(case, self.kind, self.place.name, column, rule, self.own, self.made)
            self.observer.seen.append(seen)
            if not seen.rule:
                continue
            self.seen[n] = seen
            statements += [
                f"CREATE TABLE v{n} (id bigint PRIMARY KEY, v {column})",
                f"CREATE TABLE b{n} (id bigint, v {column})",
            ]
            self.tables += [f"v{n}", f"b{n}"]
            if self.observer.cases[n].key and self.keys[n] and self._can_be_key(self.keys[n]):
                statements.append(f"CREATE TABLE k{n} (v {self._not_null(self.keys[n])} PRIMARY KEY, n bigint)")
                self.tables.append(f"k{n}")
        self._all(statements)

    def _all(self, statements: list[str]) -> None:
        if self.kind == "postgresql":
            self.sql("; ".join(statements))
            return
        for statement in ["BEGIN", *statements, "COMMIT"]:
            self.sql(statement)

    def _rule(self, n: int, column: str) -> str:
        if self.own:
            return EXACT
        found = self._rule_of(n, column)
        return found.name if found else ""

    def _rule_of(self, n: int, column: str) -> Rule | None:
        if self.own:
            return None
        if self.kind == "postgresql":
            native = postgres_type(column)
        else:
            native = mysql_type(column) if self.kind == "mysql" else sqlite_type(column.partition(" COLLATE")[0])
        return rule_for(self.observer.logical[str(n)][0], native)

    def _can_be_key(self, column: str) -> bool:
        if self.kind == "postgresql":
            return column != "json"
        return self.kind != "mysql" or not any(word in column for word in ("text", "blob", "json", "point"))

    def _not_null(self, column: str) -> str:
        return column.replace(" NULL", "") if self.kind == "mysql" else column

    def apply(self) -> None:
        """A Replicat that discards what is refused."""
        maps = "\n".join(f"MAP {self.observer.schema}.{table}, TARGET {self.schema}.{table};" for table in self.tables)
        text = f"REPLICAT rep1\nTARGETDB '{self.url}'\nBATCHROWS 40\nREPERROR (DEFAULT, DISCARD)\n{maps}\n"
        params = ReplicatParams.from_statements(parse_text(text, "rep1.prm"))
        file = DiscardFile(RealFs(), str(self.discards), 500, title="Types")
        process = Replicat(
            params, REG, self.observer.capture.settings.trail, fs=RealFs(), clock=RealClock(),
            target=open_target(TargetSettings(self.url, self.table, "REP1", 77, str(self.observer.folder))),
            engine=InlineEngine(), note=lambda _text: None, discards=Discards("REP1", params.error_rules, file),
        )  # fmt: skip
        try:
            while process.step():
                pass
            process.flush()
        finally:
            process.close()

    def look(self) -> None:
        """What has arrived; an update's after image must have fared as an insert did."""
        refused = self._refused()
        self.direct.target = open_target(TargetSettings(self.url, self.table, "REP1", 77))
        self.direct.target.connect()
        self.direct.target.begin(row := self.direct.target.load_row(), row)
        for n, seen in self.seen.items():
            self._look_at(n, seen, refused)
        self.direct.close()

    def _look_at(self, n: int, seen: Seen, refused: dict[tuple[str, str, str], str]) -> None:
        logical = self.observer.logical[str(n)][0]
        rule = self._rule_of(n, seen.column)
        layout = self.direct.layout(f"v{n}", "id v", "id", f"bigint {logical}")
        raw = {int(key): value for key, value in self.sql(f"SELECT id, {self._shown(seen.column)} FROM v{n}")}
        bag = {int(key) for (key,) in self.sql(f"SELECT id FROM b{n}")}
        keys = {int(number) for (number,) in self.sql(f"SELECT n FROM k{n}")} if f"k{n}" in self.tables else None
        for j, value in enumerate(self.observer.values[str(n)]):
            outcome = Outcome(value, REFUSED, sqlstate=refused.get((f"v{n}", "insert", str(2 * j)), ""))
            if 2 * j in raw:
                back = self.direct.target.current(layout, (str(2 * j),))[1]
                lost = rule is not None and _loses(rule, value, _stored(raw[2 * j]))
                verdict = LOST if lost else EXACT if back == value else SAME
                self._expect(same(logical, back, value), seen, value, f"when read back: {back!r:.80}")
                outcome = Outcome(value, verdict, _stored(raw[2 * j]))
            seen.outcomes.append(outcome)
            arrived = outcome.verdict != REFUSED
            after = raw.get(2 * j + 1, "missing")
            self._expect(
                arrived == (after is not None and after != "missing"), seen, value, "as an update's after image"
            )
            self._expect(after is None or after == raw.get(2 * j), seen, value, "otherwise by an update")
            self._expect(arrived == (j in bag), seen, value, "in a table without a key")
            if arrived and keys is not None and 1000 + j not in keys:
                state = refused.get((f"k{n}", "insert", str(j)), "?")
                seen.keys[value] = state
                self._expect(state != "?", seen, value, "in a key")

    def look_again(self) -> None:
        """Rows are found by before images and by keys, and are gone or changed."""
        for n, seen in self.seen.items():
            bag = {int(key) for (key,) in self.sql(f"SELECT id FROM b{n}")}
            left = {int(key): value for key, value in self.sql(f"SELECT id, v FROM v{n}")}
            for j, outcome in enumerate(seen.outcomes):
                arrived = outcome.verdict != REFUSED
                self._expect(
                    (-1 - j in bag) == arrived and 1000 + j not in bag, seen, outcome.value, "by a before image"
                )
                self._expect(
                    2 * j + 1 not in left and left.get(2 * j) is None, seen, outcome.value, "when it becomes NULL"
                )
            if f"k{n}" in self.tables:
                self._expect(self.sql(f"SELECT n FROM k{n}") == [], seen, "", "by a deleted key")

    def drop(self) -> None:
        """Databases of our own."""
        if self._link is not None:
            self._link.close()
        if self.maria is not None:
            self.maria.sql(f"DROP DATABASE {self.schema}")

    def _expect(self, fact: bool, seen: Seen, value: Any, where: str) -> None:
        if not fact:
            self.observer.faults.append(
                f"{seen.place} {seen.case.type} -> {seen.column}: {value!r:.80}: fares otherwise {where}"
            )

    def _shown(self, column: str) -> str:
        if self.kind == "postgresql":
            return "CASE WHEN num_nulls(v) = 0 THEN concat(v) END"
        if self.kind == "sqlite":
            return "CASE typeof(v) WHEN 'text' THEN v WHEN 'null' THEN NULL ELSE quote(v) END"
        binary = any(word in column for word in ("blob", "binary", "bit", "point"))
        return "concat('0x', hex(v))" if binary else "CAST(v AS CHAR)"

    def _refused(self) -> dict[tuple[str, str, str], str]:
        """(table, operation, id or n) -> SQLSTATE, from the discard file."""
        found = {}
        text = self.discards.read_text() if self.discards.exists() else ""
        for block in text.split("Current time: ")[1:]:
            head = _FAILED.search(block)
            op = re.search(r"Error occurred with (\w+) record", block)
            number = re.search(r'\n(?:id|n) = "(-?\d+)"\n', block.partition("After image")[2] or block)
            if head and op and number:
                found[head[3], op[1], number[1]] = _state(head[1])
        return found


def _state(code: str) -> str:
    """A refusal as the discard file tells it, with its SQLSTATE where that is the database's own code."""
    state = mysql_link._SQLSTATES.get(int(code), "") if len(code) == 4 else sqlite_link._SQLSTATES.get(code, "")
    return f"{state} ({code})" if state else code


def _loses(rule: Rule, value: Any, stored: str) -> bool:
    """Whether a rule that counts what it loses has counted this."""
    if isinstance(rule, AskedRule):
        return bool(rule.counted) and stored != value
    return rule.lossy is not None and rule.lossy(value)


def _stored(raw: Any) -> str:
    return "NULL" if raw is None else str(raw)
