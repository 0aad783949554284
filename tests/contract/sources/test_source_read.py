"""What Replicat reads of a source for the initial load, beside what the capture of the same source writes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from replicat.model.loading import Seen
from replicat.reading.contract import WHOLE, Reader
from replicat.reading.kinds import open_reader
from tests.contract.sources.bench import SourceBench
from tests.contract.sources.places import BinlogPlace, SqlitePlace, TriggerPlace
from tests.support import mysql_values, type_cases
from tests.support.mirror import Mirror
from tests.unit.test_sqlite_values import COLUMNS, EXACT
from trails.errors import OperatorError
from trails.record import TableDef

LACKING = ("citext", "hstore", "ltree", "cube", "xml", "folded")
"""Types that the wheel's servers lack; the server has them as extensions, whose values are text like others."""
OWN_TYPES = (
    "CREATE TYPE mood AS ENUM ('sad', 'so \"so\"', 'häppy, yes')",
    "CREATE TYPE pair AS (a int, b text)",
    "CREATE DOMAIN posint AS int CHECK (VALUE > 0)",
)
ROUNDS = 12


@contextlib.contextmanager
def reading(bench: SourceBench) -> Iterator[Reader]:
    """A reader of the place; what its registration knows is what a trail's headers say of it."""
    known = {"queue": "of the trail"} if isinstance(bench.place, TriggerPlace) else {}
    reader = open_reader(bench.place.url, known)
    try:
        yield reader
    finally:
        reader.close()


def tables_of(bench: SourceBench) -> tuple[list[str], list[tuple[str, ...]]]:
    """(statements that make tables, transactions that fill them) with all values that the kind's tests have."""
    place = bench.place
    if isinstance(place, SqlitePlace):
        return [COLUMNS], []
    if isinstance(place, BinlogPlace):
        other = mysql_values.MYSQL if _is_maria(bench) else mysql_values.MARIA
        cases = [case for case in mysql_values.CASES if case.only != other]
        made = [f"CREATE TABLE v{n} (id INT PRIMARY KEY, v {case.type})" for n, case in enumerate(cases)]
        mode = "SET sql_mode = 'ALLOW_INVALID_DATES'"
        return made, [(mode, *_rows(n, case.values)) for n, case in enumerate(cases)]
    some = [case for case in type_cases.CASES if case.type not in LACKING]
    some = [case for case in some if not (case.type == "money" and isinstance(place, TriggerPlace))]
    made = [f"CREATE TABLE v{n} (id integer PRIMARY KEY, v {case.type})" for n, case in enumerate(some)]
    values = [tuple(f"({value})::{case.type}" for value in case.values) for case in some]
    return [*OWN_TYPES, *made], [_rows(n, given) for n, given in enumerate(values)]


def _rows(n: int, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"INSERT INTO v{n} VALUES ({i}, {value})" for i, value in enumerate((*values, "NULL")))


def _is_maria(bench: SourceBench) -> bool:
    with reading(bench) as reader:
        return reader.identity()["kind"] == "mariadb"


def _read(reader: Reader, table: TableDef) -> list[tuple[Any, ...]]:
    reader.begin(table)
    found = [tuple(row) for row in reader.rows(table, [column.name for column in table.columns], WHOLE)]
    reader.end()
    return sorted(found, key=repr)


def test_B9_snapshot_and_stream_give_the_same_values(bench: SourceBench) -> None:
    """Each type and edge value that the tests of types have: as captured, and as read. Both name one source."""
    tables, transactions = tables_of(bench)
    bench.register(*tables)
    extract = bench.start()
    for statements in transactions:
        bench.together(*statements)
    if isinstance(bench.place, SqlitePlace):
        for column, value, _ in EXACT:
            with bench.place.transaction() as application:
                application.execute(f"INSERT INTO v ({column}) VALUES (?)", (value,))
    bench.drain(extract)
    mirror = bench.mirror()
    assert len(mirror.tables) == sum(one.startswith("CREATE TABLE") for one in tables)
    differ = []
    with reading(bench) as reader:
        for name, table in sorted(mirror.definitions.items()):
            for read, captured in zip(_read(reader, table), mirror.sorted(name), strict=True):
                if read != captured:
                    differ.append((table.columns, f"read {read!r:.200}, captured {captured!r:.200}"))
        known = extract._source.identify(None)
        assert reader.identity().items() <= known.items()
    assert not differ, differ[:10]


def test_what_a_snapshot_sees_is_what_it_says(bench: SourceBench) -> None:
    """While others commit, all the time: each transaction of the trail is in the snapshot, or is not, as it says."""
    bench.register("CREATE TABLE kv (id integer PRIMARY KEY, a varchar(100), b integer)")
    bench.sql("INSERT INTO kv VALUES (0, 'first', 0)")
    table = bench.capture().definitions["kv"]
    extract = bench.start()
    ended = threading.Event()
    failed: list[BaseException] = []
    writers = [threading.Thread(target=_write, args=(bench, n, ended, failed)) for n in (1, 2, 3)]
    for writer in writers:
        writer.start()
    taken = []
    try:
        with reading(bench) as reader:
            for _ in range(ROUNDS):
                while extract.step():
                    pass
                snapshot = reader.begin(table, bench.mirror().csns[-1])
                taken.append((snapshot, {row[0] for row in reader.rows(table, ["id"], WHOLE)}))
                reader.end()
    finally:
        ended.set()
        for writer in writers:
            writer.join()
    assert not failed, failed
    bench.drain(extract)
    mirror = bench.mirror()
    seen_some = left_some = 0
    for snapshot, ids in taken:
        seen = Seen.parse(snapshot.seen)
        assert extract._assembler.origin >= snapshot.past
        for csn, xid, rows in _transactions(mirror):
            verdict = seen.sees(csn, xid)
            seen_some += verdict is True
            left_some += verdict is False or verdict is None
            assert verdict is None or (rows <= ids if verdict else not rows & ids), (snapshot, csn, xid)
            assert seen.kind == "tick" or verdict is not None
    assert seen_some and left_some, "the snapshots were not taken between commits"


def _write(bench: SourceBench, n: int, ended: threading.Event, failed: list[BaseException]) -> None:
    number = n * 1_000_000
    try:
        while not ended.is_set():
            with bench.place.transaction() as application:
                for _ in range(3):
                    number += 1
                    application.execute(f"INSERT INTO kv VALUES ({number}, 'w{n}', {n})")
    except Exception as error:
        failed.append(error)
        raise


def _transactions(mirror: Mirror) -> Iterator[tuple[str, str, set[Any]]]:
    """CSN, number, and the keys that it inserted."""
    at = 0
    for csn, xid, count in zip(mirror.csns, mirror.xids, mirror.changes, strict=True):
        yield csn, xid, {record[2][0] for record in mirror.records[at : at + count]}
        at += count


def test_a_table_that_is_not_as_defined_is_refused_by_name(bench: SourceBench) -> None:
    """No such table, a column that is not there; and a table without a key where no snapshot has an exact border."""
    bench.register("CREATE TABLE kv (id integer PRIMARY KEY, a varchar(100), b integer)")
    bench.sql("INSERT INTO kv VALUES (1, 'a', 1)")
    extract = bench.start()
    table = bench.sees(extract, "INSERT INTO kv VALUES (2, 'a', 1)").definitions["kv"]
    bench.sql("ALTER TABLE kv RENAME COLUMN b TO c")
    with reading(bench) as reader:
        with pytest.raises(OperatorError, match=r"table .*kv of the source database has no column b"):
            reader.bounds(table, 10)
        with pytest.raises(OperatorError, match="has no table"):
            reader.bounds(TableDef(table.schema, "other", table.columns), 10)
        if isinstance(bench.place, TriggerPlace):
            with pytest.raises(OperatorError, match=r"table public.kv has no key, and its source is captured by trig"):
                reader.begin(TableDef(table.schema, "kv", tuple(replace(c, key=False) for c in table.columns)))
