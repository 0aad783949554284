"""What an application's owner may have written into the source's queue: changes, or one named error, never a bug."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extract.sources.postgres.triggers.reader import LoggedRow, _PieceMaker
from extract.sources.postgres.triggers.shapes import NotedShape, QueueTable
from extract.sources.sqlite.queue import UPDATE, Logged
from extract.sources.sqlite.reader import Capture, _QueueTable
from extract.sources.sqlite.tables import SourceColumn, SourceTable
from extract.sources.sqlite.values import OtherClassError
from tests.support.hostile import hostile
from tests.support.sqlite_source import SourceFile
from trails.codec import encode_data, encode_defs
from trails.errors import GateError, MismatchError
from trails.record import TableDef

STATEMENTS = (
    "INSERT INTO item VALUES (1, 'a', 1.5, 2, x'00'), (2, 'b', NULL, 3.25, NULL)",
    "REPLACE INTO item (id, code) VALUES (7, 'A')",
    "INSERT INTO line VALUES (1, 'x', 'one'), (2, 'y', NULL)",
    "UPDATE line SET note = 'two', b = 'z' WHERE a = 1",
    "ALTER TABLE line ADD COLUMN more TEXT DEFAULT 'm'",
    "UPDATE item SET price = 2",
    "DELETE FROM item WHERE id = 2",
)
WORDS = (
    "name",
    "columns",
    "unique",
    "strict",
    "unfit",
    "declared",
    "key",
    "number",
    "item",
    "line",
    "id",
    "BINARY",
    "a",
)


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> SourceFile:
    """A source file with one change of each kind in its queue, and nobody who has it open."""
    file = SourceFile.make(tmp_path_factory.mktemp("queue"), wal=False)
    file.run(*STATEMENTS)
    read(file)
    file.run("INSERT INTO line VALUES (3, 'late', 'n', 'm')")
    assert len(read(file)) == 4
    return file


def read(file: SourceFile) -> list[Any]:
    """The runs of all that the queue has, as Extract's thread reads it."""
    reader = file.source()._reader  # type: ignore[attr-defined]
    runs: list[Any] = []
    after = int(file.registered.place.rba)  # type: ignore[union-attr]
    reader.open(after, "")
    try:
        while (segment := reader.settled(after)) is not None:
            for piece in reader.changes(after, segment):
                runs += piece.runs
            after = segment.end
    finally:
        reader.close()
    return runs


anything = st.one_of(
    st.none(), st.integers(-3, 12), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=9),
    st.binary(max_size=9),
)  # fmt: skip
documents = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-2, 9),
        st.floats(allow_nan=False),
        st.sampled_from(WORDS),
        st.text(max_size=3),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(WORDS), inner, max_size=3)),
    max_leaves=6,
)


@st.composite
def damages(draw: st.DrawFn, conn: sqlite3.Connection) -> None:
    """One statement upon the queue's own tables."""
    tables = [
        name
        for (name,) in conn.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'trailgate%'")
    ]
    table = draw(st.sampled_from(tables))
    columns = [row[1] for row in conn.execute(f"PRAGMA table_info({table})")]
    rowids = [row for (row,) in conn.execute(f"SELECT rowid FROM {table}")]
    if not rowids:
        return
    rowid = draw(st.sampled_from(rowids))
    column = draw(st.sampled_from(columns))
    kind = draw(st.integers(0, 9))
    if table == "trailgate_table" and column == "shape" and kind:
        (old,) = conn.execute(f"SELECT shape FROM {table} WHERE rowid = ?", (rowid,)).fetchone()
        conn.execute(f"UPDATE {table} SET shape = ? WHERE rowid = ?", (draw(other_shapes(old)), rowid))
    elif kind == 0:
        conn.execute(f"DELETE FROM {table} WHERE rowid = ?", (rowid,))
    elif kind == 1:
        conn.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    else:
        conn.execute(f"UPDATE OR REPLACE {table} SET {column} = ? WHERE rowid = ?", (draw(anything), rowid))


@st.composite
def other_shapes(draw: st.DrawFn, text: Any) -> str:
    """A shape with one of its parts replaced, or any other document."""
    try:
        whole = json.loads(text)
        assert isinstance(whole, dict)
    except (ValueError, TypeError, AssertionError):
        return json.dumps(draw(documents))
    part: Any = whole
    while True:
        keys = list(part) if isinstance(part, dict) else list(range(len(part)))
        if not keys:
            break
        key = draw(st.sampled_from(keys))
        if isinstance(part[key], dict | list) and part[key] and draw(st.integers(0, 4)):
            part = part[key]
            continue
        part[key] = draw(documents)
        break
    return json.dumps(whole)


@hostile(100)
@given(st.data())
def test_a_queue_that_somebody_changed_is_one_error(queue: SourceFile, tmp_path: Path, data: st.DataObject) -> None:
    """Any values in the tables that the triggers write: rows of the trail's types, or what ends Extract by its name."""
    copy = SourceFile(tmp_path / "copy.db", queue.registered)
    shutil.copyfile(queue.path, copy.path)
    conn = copy.connect()
    for _ in range(data.draw(st.integers(1, 3))):
        with contextlib.suppress(sqlite3.Error):
            data.draw(damages(conn))
    conn.close()
    try:
        runs = read(copy)
    except GateError:
        return
    for run in runs:
        if isinstance(run, tuple):
            _check_goes_into_a_trail(*run)


def _check_goes_into_a_trail(definition: TableDef, rows: list[Any]) -> None:
    encode_defs([definition])
    encode_data([bytes(8)], [(row[0], 0, *row[1:]) for row in rows])
    assert all(len(image) == len(definition.columns) for row in rows for image in row[1:] if image is not None)


@hostile(100)
@given(documents.map(json.dumps) | st.text(max_size=40))
def test_any_text_is_a_shape_or_one_error(text: str) -> None:
    """What the queue says of its tables."""
    with contextlib.suppress(GateError):
        SourceTable.from_json(text)


pieces = [b"(", b")", b",", b'"', b'""', b"\\", b"\\\\", b"a", b"\n", b"t", b"\\x00"]
row_texts = st.one_of(st.binary(max_size=40), st.lists(st.sampled_from(pieces), max_size=30).map(b"".join))
SHAPE = {
    "schema": "s", "name": "t", "key": ["k"],
    "columns": [
        {"name": "k", "base": 25, "kind": "b", "category": "S", "native": "text", "generated": ""},
        {"name": "b", "base": 16, "kind": "b", "category": "B", "native": "boolean", "generated": ""},
    ],
}  # fmt: skip
logged = st.builds(
    LoggedRow, st.integers(1, 9), st.sampled_from([b"7", b"8"]), st.just(1),
    st.sampled_from([b"I", b"U", b"D", b"T", b"X", b""]), st.none() | row_texts, st.none() | row_texts,
)  # fmt: skip


@hostile(150)
@given(st.lists(logged, min_size=1, max_size=5))
def test_any_logged_rows_are_changes_or_one_error(rows: list[LoggedRow]) -> None:
    """Whatever the texts say, and whichever of a row's two images is there."""

    def table(row: LoggedRow, width: int | None) -> QueueTable:
        if width not in (None, 2):
            raise MismatchError(f"change {row.id} has {width} columns")
        return QueueTable(NotedShape(1, 1, SHAPE, None), 2, lambda *_: True, lambda *_: False)

    made = _PieceMaker(table, lambda _: [])
    with contextlib.suppress(GateError):
        for row in rows:
            made.take(row)
        made.flush()
    for run in made.piece().runs:
        if isinstance(run, tuple):
            _check_goes_into_a_trail(*run)


DECLARED = ("INTEGER", "TEXT", "REAL", "NUMERIC", "BLOB", "ANY")
STORED = st.one_of(st.none(), st.integers(-9, 1 << 60), st.floats(allow_nan=False), st.text(), st.binary())
KINDS = {"INTEGER": st.integers(), "TEXT": st.text(), "REAL": st.floats(allow_nan=False), "BLOB": st.binary()}


def each(make: Any, rows: list[Any]) -> Any:
    """What it makes of each row; None if it refuses one."""
    try:
        return [make(row) for row in rows]
    except OtherClassError:
        return None


@pytest.mark.parametrize("befores", [False, True])
@given(draw=st.data())
def test_rows_column_by_column_are_what_each_is_alone(befores: bool, draw: st.DataObject) -> None:
    """Of any values in any column, also where one is refused: then it is named, and no other."""
    table = SourceTable("t", tuple(SourceColumn(f"c{n}", kind, False, None, int(n < 2), 0, n)
                                   for n, kind in enumerate(DECLARED)), ())  # fmt: skip
    capture = Capture(
        lambda one: one.definition("main", ("c5",)), lambda _one: ("c5",), lambda _name: befores, lambda _change: False,
        lambda _name: False,
    )  # fmt: skip
    queued = _QueueTable(Logged(1, table, True, None, True, ""), capture)
    odd = draw.draw(st.booleans())
    values = [STORED if odd else KINDS.get(kind, st.integers()) for kind in DECLARED]
    new = st.tuples(*values)
    pairs = st.one_of(new.map(lambda row: row + row), st.tuples(new, new).map(lambda two: two[0] + two[1]))
    found = draw.draw(st.lists(pairs, min_size=1, max_size=8))
    rows = [(number, *row) for number, row in enumerate(found)]
    images, old = each(queued.image, rows), each(queued.before, rows)
    assert each(lambda _row: queued.images(rows), rows[:1]) == (None if images is None else [images])
    assert each(lambda _row: queued.befores_of(rows), rows[:1]) == (None if old is None else [old])
    refused = next(
        (row for row in rows if each(queued.image, [row]) is None or each(queued.before, [row]) is None), None
    )
    assert next((row for row in rows if queued.is_refused(UPDATE, row)), None) is refused
