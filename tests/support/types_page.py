"""docs/types.md, from what types_observed.py sees.

python -m tests.support.types_page > docs/types.md
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from demo.mariadb import MariaServer
from demo.mysql import MysqlServer
from demo.servers import PostgresServer
from tests.support.type_cases import Case
from tests.support.types_from_binlog import MARIADB, BinlogObserver, observe_binlogs
from tests.support.types_observed import EXACT, LOST, REFUSED, SAME, Observer, Seen, places

NAMES = {"sqlite": "SQLite", "mysql": "MySQL/MariaDB", "postgresql": "PostgreSQL"}

HEAD = """# Types: what arrives

Made by `python -m tests.support.types_page > docs/types.md`, from what `tests/e2e/test_types_conformance.py` observes.
Every value went from a source (PostgreSQL, MariaDB 10.11, MySQL 8.0.12) through capture, trail and Replicat into a
column of the target: as a new row, by an update, as the row before a change (by which the row must be found), as a
key, and beside a NULL. No value ever becomes another one without a word. Each cell says what happens:

- **exact**: read back, it is the source's text again.
- **the same value**, as the column's type has it (`1.10` in a column of four decimals is `1.1000`).
- **by rule, counted**: something is lost by a declared rule (a zero's sign, zeros behind the last digit); STATS shows
  how many values.
- **refused**: the message has table, column, key and SQLSTATE (or the database's own code, if the database refused it).
  The group ends, or `REPERROR` says what becomes of the change.

An arrow shows what the target's own client prints, where that differs from the source's text.
PostgreSQL to PostgreSQL, with a column of the source's own type, is exact for every type and value on this page, and no
value is looked at. Types of extensions that are not on it travel as `ltree` and `cube` do: as their own text.

First come three tables for PostgreSQL as the source, then [three for MySQL and MariaDB](#from-mysql-and-mariadb).

A table of PostgreSQL as the target has columns of other types than the source's, and of another length, precision or
scale. The server itself would round, cut or shift some of these values without a word, so it is asked about them first.
Columns of a domain go by what the domain is made of. Arrays, ranges and composite types must give back the same text.
The same rules hold for every other source.

For the other targets the first column of each type is the one that Replicat makes itself (`DDL`). The others are for
people who make tables by hand. START names a column that no value of a type can go into ("values of type ... can't go
into ..."); `replicat/targets/*/types.py` has the whole table. A key's collation may take two of the source's keys for
one (`a`, `A`, `á`, `a` with a blank at the end). Then the second is refused, and a row is only ever changed by exactly
its own key. From PostgreSQL, what stands under MySQL/MariaDB was seen in MariaDB. What Replicat makes itself was tried
in MySQL too: the same values arrive there, and the same are refused; MySQL keeps a zero's sign.
"""
BINLOG = """## From MySQL and MariaDB

The sources are a MariaDB 10.11 and a MySQL 8.0.12. The session that wrote was not strict, so zero dates and an enum's
empty value are among the values. A row names its servers where others give another column, or something else arrives.

- A table in MySQL or MariaDB gets the source's own types, character sets and collations (the names of collations are
  left out here). MySQL lacks `uuid`, `inet4` and `inet6`, and so do older MariaDBs: text stands in their place.
- Four character sets stand for all: `tests/e2e/test_mysql_values.py` compares what is captured of each one that the
  servers have with what the server itself reads.
- `time` lasts up to 838 hours and may be negative. PostgreSQL's own `time` is a time of the day, from 00:00 to 24:00.
  Where a column holds longer or negative times, make it `interval` at the target.
- Zero and partial dates are refused by PostgreSQL. `ZERODATE NULL` in a MAP makes NULL of them, and a column of text
  takes them as they are ([values](values.md#zero-dates)).
- `json` becomes `longtext` in MySQL and MariaDB, which keeps its text. A column of MySQL's own type `json` sorts keys
  and prints blanks and numbers in its own way: what becomes another text is counted, and what MySQL prints itself is
  exact. A key that stands there twice is refused (22030), and so is a number that MySQL's `json` can't hold (22003), or
  that the server reads as its neighbour (22032; MySQL 8.0.12 does so with about every fifth number of 17 digits).
- `-0` is counted at MySQL and MariaDB alike, as a target of this kind may lose its sign. MySQL itself keeps it.
"""
_COLLATED = re.compile(r"(CHARACTER SET \w+) .*")
_LONGEST = 44
_MOST = 4


def of_postgres(observer: Observer) -> str:
    """The page from its begin on."""
    lines = [HEAD]
    for kind in ("postgresql", "sqlite", "mysql"):
        seen = [(one, "") for one in observer.seen if one.kind == kind and not one.own and one.place != "MySQL"]
        lines += [f"## From PostgreSQL to {NAMES[kind]}", "", *_table(observer.cases, seen), ""]
    return "\n".join(lines)


def of_binlogs(*observers: BinlogObserver) -> str:
    """The page to its end."""
    lines = [BINLOG]
    for kind in ("postgresql", "sqlite", "mysql"):
        to = " to {}" if kind == "mysql" else ""
        seen = [
            (one, observer.name + to.format(one.place))
            for observer in observers
            for one in observer.seen
            if one.kind == kind
        ]
        lines += [f"### From MySQL and MariaDB to {NAMES[kind]}", "", *_table(MARIADB, seen), ""]
    return "\n".join(lines)


def _table(cases: Sequence[Case], found: Iterable[tuple[Seen, str]]) -> list[str]:
    """What is seen, each with the names of its servers: told once where it is the same for all that were tried."""
    order = {case.type: i for i, case in enumerate(cases)}
    rows: dict[tuple[str, str], dict[str, list[str]]] = {}
    made: dict[str, set[str]] = {}
    for seen, servers in sorted(found, key=lambda one: order[one[0].case.type]):
        column = _COLLATED.sub(r"\1", seen.column)
        if seen.made:
            made.setdefault(seen.case.type, set()).add(column)
        told = rows.setdefault((seen.case.type, column), {})
        told.setdefault(f"{_arrives(seen)} | {_refusals(seen)}", []).append(servers)
    lines = ["| source type | column | what arrives | refused |", "| --- | --- | --- | --- |"]
    for (case, column), told in rows.items():
        for text, servers in told.items():
            differs = len(told) > 1 or (len(mine := made.get(case, set())) > 1 and column in mine)
            named = f" ({', '.join(servers)})" if differs else ""
            lines.append(f"| `{case}`{named} | `{column}` | {text} |")
    return lines


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
        MariaServer(options=MariaServer.BINLOG) as maria_source, MariaServer() as maria,
        MysqlServer(options=MysqlServer.BINLOG) as mysql_source, MysqlServer() as mysql,
    ):  # fmt: skip
        folders = [Path(folder) / name for name in ("postgres", "maria", "mysql")]
        for one in folders:
            one.mkdir()
        server.sql("CREATE DATABASE source")
        first = Observer(server.url("source"), folders[0])
        first.observe("types", *places(server, maria))
        second = observe_binlogs(server, (maria_source, mysql_source), (mysql, maria), folders[1:])
    print(of_postgres(first) + of_binlogs(*second), end="")
    print("\n".join(fault for one in (first, *second) for fault in one.faults), file=sys.stderr)


if __name__ == "__main__":
    main()
