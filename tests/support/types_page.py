"""What each source type becomes in each target, observed through the whole path; writes docs/types.md.

    python -m tests.support.types_page > docs/types.md

Each value goes through a real capture, a trail and a Replicat as an insert, an update's after image, a before image
(a table without a key whose rows must be found by it), a key (updated and deleted by it), and beside a NULL.
"""

from __future__ import annotations

import re
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from demo.mariadb import MariaServer
from demo.servers import PostgresServer
from extract.extract import Extract
from replicat.conflicts.comparing import same
from replicat.ddl.types import column_type
from replicat.params import ReplicatParams
from replicat.refused.discard import Discards
from replicat.refused.discardfile import DiscardFile
from replicat.replicat import Replicat
from replicat.targets import TargetSettings, admin_for, mysql_link, open_target, sqlite_link
from replicat.targets.postgres_sql import SESSION
from replicat.targets.types import Rule, mysql_type, rule_for, sqlite_type
from tests.support.capturing import Capture
from tests.support.direct_target import Direct
from tests.support.replicat_trail import InlineEngine
from tests.support.type_cases import CASES, SETUP, Case
from trails.ddl import DdlColumn
from trails.fs import RealFs
from trails.record import Op
from trails.runtime.clock import RealClock
from trails.runtime.params import parse_text
from trails.runtime.registration import Registration

REG = Registration("REP1", "REPLICAT", "TRAIL", group_key=77, added_us=5)
NAMES = {"sqlite": "SQLite", "mysql": "MySQL/MariaDB", "postgresql": "PostgreSQL"}
EXACT, SAME, LOST, REFUSED = "exact", "the same value", "by rule, counted", "refused"
_FAILED = re.compile(
    r"Discarding record on action DISCARD on error (\S+)\n(.*)\n.*\n.*\nProblem replicating \S+ to \S+\.(\w+)"
)


@dataclass
class Outcome:
    """One value in one column: `value` is the source's canonical text, `stored` what the target shows of it."""

    value: Any
    verdict: str
    stored: str = ""
    sqlstate: str = ""


@dataclass
class Seen:
    """One source type in one column of one kind of target. `rule` is empty where nothing can be written at all."""

    case: Case
    kind: str
    column: str
    rule: str
    outcomes: list[Outcome] = field(default_factory=list)
    keys: dict[Any, str] = field(default_factory=dict)  # refused as a key only: value -> SQLSTATE


class Observer:
    """One source, its trail, and targets of all kinds and variants of columns."""

    def __init__(self, source: str, folder: Path) -> None:
        (folder / "dirdat").mkdir(mode=0o700)
        self.capture = Capture(source, folder / "dirdat")
        self.folder = folder
        self.seen: list[Seen] = []
        self.faults: list[str] = []
        self.values: dict[str, list[Any]] = {}
        self.logical: dict[str, tuple[str, str]] = {}
        self._runs: list[_Run] = []

    def observe(self, postgres: str, maria: MariaServer, database: str) -> None:
        """Everything, into `seen` and `faults`."""
        self._make_source()
        with self.capture.running() as extract:
            self._change(extract, self._first_changes)
            self._read_trail()
            self._runs = list(self._targets(postgres, maria, database))
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
            for n, case in enumerate(CASES):
                conn.execute(f"CREATE TABLE v{n} (id bigint PRIMARY KEY, v {case.type})".encode())
                conn.execute(f"CREATE TABLE b{n} (id bigint, v {case.type})".encode())
                for table in (f"v{n}", f"b{n}"):
                    conn.execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL".encode())
                if case.key:
                    conn.execute(f"CREATE TABLE k{n} (v {case.type} PRIMARY KEY, n bigint)".encode())
        self.capture.register()

    def _change(self, extract: Extract, statements: Callable[[int, Case], list[str]]) -> None:
        """Each in its own transaction, and a block for each type: what is refused has the whole block read again."""
        for n, case in enumerate(CASES):
            with self._source() as conn:
                for statement in statements(n, case):
                    conn.execute(statement.encode())
            self.capture.drain(extract, 60)

    def _first_changes(self, n: int, case: Case) -> list[str]:
        statements = []
        for j, value in enumerate(case.values):
            cast = f"CAST({value} AS {case.type})"
            statements += [
                f"INSERT INTO v{n} VALUES ({2 * j}, {cast})",
                f"INSERT INTO v{n} VALUES ({2 * j + 1}, NULL)",
                f"UPDATE v{n} SET v = {cast} WHERE id = {2 * j + 1}",
                f"INSERT INTO b{n} VALUES ({j}, {cast})",
                f"INSERT INTO b{n} VALUES ({1000 + j}, {cast})",
            ]
            if case.key:
                statements += [
                    f"INSERT INTO k{n} VALUES ({cast}, {j})", f"UPDATE k{n} SET n = {1000 + j} WHERE n = {j}",
                ]  # fmt: skip
        return statements

    def _second_changes(self, n: int, case: Case) -> list[str]:
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
        return statements

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

    def _targets(self, postgres: str, maria: MariaServer, database: str) -> Iterator[_Run]:
        yield _Run(
            self, "postgresql", postgres, "public", [case.type for case in CASES], self._key_columns("postgresql")
        )
        for kind in ("sqlite", "mysql"):
            for variant in range(1 + max(len(getattr(case, kind)) for case in CASES)):
                columns = [self._column(kind, n, case, variant) for n, case in enumerate(CASES)]
                keys = self._key_columns(kind) if not variant else columns
                if kind == "sqlite":
                    yield _Run(self, kind, f"sqlite:///{self.folder}/{variant}.db", "main", columns, keys)
                else:
                    name = f"{database}_{variant}"
                    yield _Run(self, kind, maria.url(name), name, columns, keys, maria)

    def _column(self, kind: str, n: int, case: Case, variant: int) -> str | None:
        if variant:
            others: tuple[str, ...] = getattr(case, kind)
            return others[variant - 1] if variant <= len(others) else None
        return column_type(kind, self._ddl_column(n))

    def _key_columns(self, kind: str) -> list[str | None]:
        return [column_type(kind, self._ddl_column(n), 1) if case.key else None for n, case in enumerate(CASES)]

    def _ddl_column(self, n: int) -> DdlColumn:
        logical, native = self.logical[str(n)]
        return DdlColumn(1, "v", logical, native)


class _Run:
    """One target with one column for each type (None: not tried)."""

    def __init__(
        self, observer: Observer, kind: str, url: str, schema: str, columns: list[Any], keys: list[Any],
        maria: MariaServer | None = None,
    ) -> None:  # fmt: skip
        self.observer, self.kind, self.url, self.schema, self.maria = observer, kind, url, schema, maria
        self.columns, self.keys = columns, keys
        self.direct = Direct(kind, url, schema, maria)
        self.table = ("gg" if kind == "postgresql" else schema, "chk")
        self.tables: list[str] = []
        self.seen: dict[int, Seen] = {}
        self._link: Any = None
        self.discards = observer.folder / f"{kind}_{schema}_{len(observer._runs)}_{id(self)}.dsc"

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
        if self.maria is not None:
            self.maria.sql(f"CREATE DATABASE {self.schema}")
        admin_for(self.url).add_row_table(self.url, self.table)
        if self.kind == "postgresql":
            self.sql(SETUP)
        statements = []
        for n, column in enumerate(self.columns):
            if column is None:
                continue
            seen = Seen(CASES[n], self.kind, column, self._rule(n, column))
            self.observer.seen.append(seen)
            if not seen.rule:
                continue
            self.seen[n] = seen
            statements += [
                f"CREATE TABLE v{n} (id bigint PRIMARY KEY, v {column})",
                f"CREATE TABLE b{n} (id bigint, v {column})",
            ]
            self.tables += [f"v{n}", f"b{n}"]
            if CASES[n].key and self.keys[n] and self._can_be_key(self.keys[n]):
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
        if self.kind == "postgresql":
            return EXACT
        found = self._rule_of(n, column)
        return found.name if found else ""

    def _rule_of(self, n: int, column: str) -> Rule | None:
        if self.kind == "postgresql":
            return None
        native = mysql_type(column) if self.kind == "mysql" else sqlite_type(column.partition(" COLLATE")[0])
        return rule_for(self.observer.logical[str(n)][0], native)

    def _can_be_key(self, column: str) -> bool:
        return self.kind != "mysql" or not any(word in column for word in ("text", "blob", "json", "point"))

    def _not_null(self, column: str) -> str:
        return column.replace(" NULL", "") if self.kind == "mysql" else column

    def apply(self) -> None:
        """A Replicat that discards what is refused."""
        maps = "\n".join(f"MAP public.{table}, TARGET {self.schema}.{table};" for table in self.tables)
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
                lost = rule is not None and rule.lossy is not None and rule.lossy(value)
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
                f"{seen.kind} {seen.case.type} -> {seen.column}: {value!r:.80}: fares otherwise {where}"
            )

    def _shown(self, column: str) -> str:
        if self.kind == "postgresql":
            return "v::text"
        if self.kind == "sqlite":
            return "CASE typeof(v) WHEN 'text' THEN v WHEN 'null' THEN NULL ELSE quote(v) END"
        binary = any(word in column for word in ("blob", "binary", "bit"))
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


def _stored(raw: Any) -> str:
    return "NULL" if raw is None else str(raw)


# --- the page ---------------------------------------------------------------------------------------------------------

HEAD = """# Types: what arrives

Made by `python -m tests.support.types_page > docs/types.md`, from what `tests/e2e/test_types_conformance.py` observes:
every value went from a PostgreSQL source through capture, trail and Replicat into a column of the target: as a new row,
by an update, as the row before a change (which must be found by it), as a key, and beside a NULL. No value ever arrives
as another one in silence:

- **exact**: read back, it is the source's text again.
- **the same value**, as the column's type has it (`1.10` in a column of four decimals is `1.1000`).
- **by rule, counted**: something is lost by a declared rule (a zero's sign, zeros behind the last digit); STATS shows
  how many values.
- **refused**: with table, column, key, and SQLSTATE (the database's own code, if it was the database); the group ends,
  or `REPERROR` says what becomes of the change.

An arrow shows what the target's own client prints, where that differs from the source's text.
PostgreSQL to PostgreSQL, with a column of the source's own type, is exact for every type and value on this page.
Types of extensions that are not on it travel as `ltree` and `cube` do: as their own text.

For the other targets the first column of each type is the one that Replicat makes itself (`DDL`); the others are for
who makes tables by hand. A column that no value of a type can go into is told at START ("values of type ... can't go
into ..."); `replicat/targets/types.py` has the whole table. A key's collation may take two of the source's keys for one
(`a`, `A`, `á`, `a` with a blank behind it): the second is refused, and a row is only ever changed by exactly its own
key. MariaDB is what is tested; MySQL is meant to behave the same.
"""
_LONGEST = 44
_MOST = 4


def page(observer: Observer) -> str:
    """docs/types.md."""
    lines = [HEAD]
    for kind in ("sqlite", "mysql"):
        lines += [
            f"## {NAMES[kind]}",
            "",
            "| source type | column | what arrives | refused |",
            "| --- | --- | --- | --- |",
        ]
        order = {case.type: i for i, case in enumerate(CASES)}
        for seen in sorted((s for s in observer.seen if s.kind == kind), key=lambda s: order[s.case.type]):
            lines.append(f"| `{seen.case.type}` | `{seen.column}` | {_arrives(seen)} | {_refusals(seen)} |")
        lines.append("")
    return "\n".join(lines)


def _arrives(seen: Seen) -> str:
    if not seen.rule:
        return "nothing: told at START"
    verdicts = {outcome.verdict for outcome in seen.outcomes} - {REFUSED}
    said = "" if seen.rule == EXACT else f"{seen.rule}"
    parts = [part for part in (said, "; ".join(v for v in (EXACT, SAME, LOST) if v in verdicts)) if part]
    shown = [
        f"{_code(o.value)} → {_code(o.stored)}"
        for o in seen.outcomes
        if o.verdict != REFUSED and _text(o.value) != o.stored and max(len(_text(o.value)), len(o.stored)) <= _LONGEST
    ]
    text = ": ".join(parts) if parts else "nothing of what was tried"
    return text + (f" ({', '.join(shown[:_MOST])})" if shown else "")


def _refusals(seen: Seen) -> str:
    by_state: dict[str, list[str]] = {}
    for outcome in seen.outcomes:
        if outcome.verdict == REFUSED:
            by_state.setdefault(outcome.sqlstate or "?", []).append(_code(outcome.value))
    parts = [
        f"{state}: {', '.join(values[:_MOST])}{' ...' if len(values) > _MOST else ''}"
        for state, values in by_state.items()
    ]
    if seen.keys:
        parts.append(
            f"as a key {', '.join(sorted(set(seen.keys.values())))}: {', '.join(map(_code, list(seen.keys)[:_MOST]))}"
        )
    return "; ".join(parts)


def _text(value: Any) -> str:
    return "\\x" + value.hex() if isinstance(value, bytes) else str(value)


def _code(value: Any) -> str:
    text = _text(value)
    text = text if len(text) <= _LONGEST else f"{text[:20]}... ({len(text)} characters)"
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text).replace("|", "\\|")
    return f"`` {shown} ``" if "`" in shown else f"`{shown}`" if shown else "(empty)"


def main() -> None:
    """Print the page; faults go to standard error."""
    with (
        tempfile.TemporaryDirectory() as folder, PostgresServer(version="system", tcp=True) as server,
        MariaServer() as maria,
    ):  # fmt: skip
        server.sql("CREATE DATABASE source")
        server.sql("CREATE DATABASE target")
        observer = Observer(server.url("source"), Path(folder))
        observer.observe(server.url("target"), maria, "types")
    print(page(observer), end="")
    print("\n".join(observer.faults), file=sys.stderr)


if __name__ == "__main__":
    main()
