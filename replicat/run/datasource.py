r"""The trail as a Spark data source, for anybody's own jobs, batch and streaming:

    from replicat.run.datasource import register

    register(spark)
    changes = spark.read.format("trail").load("dirdat/rt")
    changes = spark.read.format("trail").option("begin", "3/4096").option("end", "5/8192").load("dirdat/rt")
    stream  = spark.readStream.format("trail").load("dirdat/rt")

One row a change, of whole transactions only, decoded by the code that Replicat uses. `begin` and `end` are positions
(seqno/RBA) at transaction borders; without them all that is durable when the read begins. An image is a map from column
name to text: NULL is a null value, a column that the source did not give is not in it, bytes are `\x` and hex digits.
`tokens` has what TABLE's TOKENS sent along.
A hole in the trail (changes that an ALTER left out) ends the read with an error that names both places;
`.option("holes", "pass")` lets it go on behind it.
A truncate is one row a table, a change of a table's shape (DDL) one row without images.
Partitions carry places of blocks, so the executors must reach the trail's folder. An encrypted trail is decrypted with
the keys in dirwlt beside its dirdat, or in that of the home that `.option("home", "/gg")` names; they stay there, as
options, plans and partitions carry paths only.
A stream's offsets come from a Python worker for which Spark has ten seconds to begin, which nobody can set. On a busy
host a query may end with "Python worker failed to connect back": then start it again, from its own checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from replicat.model.copytext import text_of
from replicat.work.decode import Task, blocks
from trails.ddl import DdlChange
from trails.errors import OperatorError
from trails.fs import RealFs
from trails.naming import TOKEN
from trails.plan import Planner, Unit, hole_of
from trails.position import WALLET_FOLDER, Position, TrailName
from trails.reader import Block, BlockReader
from trails.record import MISSING, Image, Op, TableDef, time_of
from trails.walk import NO_CHANGES, walk

SCHEMA = (
    "`table` string, op string, position string, csn string, xid string, index int, commit_time timestamp, "
    "before map<string,string>, after map<string,string>, tokens map<string,string>"
)
PARTITION_BYTES = 32 << 20
Row = tuple[Any, ...]


def register(spark: SparkSession) -> None:
    """Make `format("trail")` known to a session."""
    spark.dataSource.register(TrailDataSource)


@dataclass
class TrailPartition(InputPartition):
    """Some whole transactions, by the places of their blocks, and what their tables look like."""

    task: Task
    definitions: tuple[TableDef, ...]

    def __init__(self, task: Task, definitions: tuple[TableDef, ...]) -> None:
        super().__init__(None)
        self.task = task
        self.definitions = definitions


class TrailDataSource(DataSource):
    """`format("trail")`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "trail"

    def schema(self) -> str:
        """Its columns."""
        return SCHEMA

    def reader(self, schema: Any) -> TrailReader:  # noqa: ARG002  -- Spark's signature
        """For spark.read."""
        return TrailReader(self.options)

    def streamReader(self, schema: Any) -> TrailStreamReader:  # noqa: ARG002, N802  -- Spark's signature
        """For spark.readStream."""
        return TrailStreamReader(self.options)


class TrailReader(DataSourceReader):
    """A batch read: what is durable between two positions."""

    def __init__(self, options: Any) -> None:
        self._trail = _trail(options)
        self._begin = _position(options, "begin")
        self._end = _position(options, "end")
        self._pass_holes = _pass_holes(options)

    def partitions(self) -> Sequence[InputPartition]:
        """Whole transactions, about PARTITION_BYTES a partition; one large transaction is one partition."""
        return _partitions(self._trail, self._begin, self._end, self._pass_holes)

    def read(self, partition: InputPartition) -> Iterator[Row]:
        """Rows of one partition."""
        assert isinstance(partition, TrailPartition)
        return _rows(partition)


class TrailStreamReader(DataSourceStreamReader):
    """A streaming read; an offset is a position in the trail."""

    def __init__(self, options: Any) -> None:
        self._trail = _trail(options)
        self._begin = _position(options, "begin")
        self._pass_holes = _pass_holes(options)
        self._seen = self._begin

    def initialOffset(self) -> dict[str, str]:  # noqa: N802  -- Spark's name
        """Where a stream without a checkpoint begins."""
        return {"position": str(self._begin or Position(0, 0))}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, str]:  # noqa: ARG002, N802  -- Spark's
        """The last transaction border that is durable. Spark before 4.2 gives no `start`."""
        if start and self._seen is None:
            self._seen = _after_start(Position.parse(start["position"]))
        reader = BlockReader(RealFs(), self._trail, self._seen)
        try:
            planner = Planner(reader)
            while planner.next() is not None:
                pass
            self._seen = planner.position or self._seen  # the next call goes on from here: a stream never turns back
            return {"position": str(self._seen or Position(0, 0))}
        finally:
            reader.close()

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """Whole transactions between two offsets."""
        begin, last = Position.parse(start["position"]), Position.parse(end["position"])
        return _partitions(self._trail, _after_start(begin), last, self._pass_holes)

    def read(self, partition: InputPartition) -> Iterator[Row]:
        """Rows of one partition."""
        assert isinstance(partition, TrailPartition)
        return _rows(partition)

    def commit(self, end: dict[str, str]) -> None:
        """Nothing to tell anybody: the trail is purged by what registered groups have read."""

    def stop(self) -> None:
        """Nothing is held between calls."""


def _trail(options: Any) -> TrailName:
    path = options.get("path")
    if not path:
        raise OperatorError("format trail: no path", hint='Give it like .load("dirdat/rt")')
    trail = TrailName.parse(os.path.abspath(path.removeprefix("file:")))
    home = options.get("home")
    return replace(trail, wallet=os.path.join(os.path.abspath(home), WALLET_FOLDER)) if home else trail


def _position(options: Any, name: str) -> Position | None:
    text = options.get(name)
    try:
        return Position.parse(text) if text else None
    except ValueError as error:
        raise OperatorError(
            f"format trail: option {name}: {error}", hint="It is a file number and an RBA, such as 3:1024"
        ) from None


def _pass_holes(options: Any) -> bool:
    given = str(options.get("holes") or "raise")
    if given not in ("raise", "pass"):
        raise OperatorError(f"format trail: option holes: expected raise or pass, found {given!r}")
    return given == "pass"


def _after_start(position: Position) -> Position | None:
    """0/0 stands for the first file there is."""
    return None if position == Position(0, 0) else position


def _partitions(
    trail: TrailName, begin: Position | None, end: Position | None, pass_holes: bool
) -> list[InputPartition]:
    reader = BlockReader(RealFs(), trail, begin)
    try:
        planner = Planner(reader)
        groups: list[list[Unit]] = [[]]
        size = 0
        while (unit := planner.next()) is not None and (end is None or unit.end <= end):
            if unit.hole is not None and not pass_holes:
                raise _at_hole(trail, reader, unit.hole)
            if unit.blocks and not unit.is_heartbeat:
                if groups[-1] and size + unit.raw_bytes > PARTITION_BYTES:
                    groups.append([])
                    size = 0
                groups[-1].append(unit)
                size += unit.raw_bytes
        trail_id = reader.header.trail_id if reader.header else b""
        definitions = tuple(planner.definitions.values())
        return [_partition(trail, trail_id, units, definitions) for units in groups]
    finally:
        reader.close()


def _at_hole(trail: TrailName, reader: BlockReader, block: Block) -> OperatorError:
    assert reader.header is not None
    hole = hole_of(RealFs(), trail, reader.header.trail_id, block)
    return OperatorError(
        f"format trail: {hole}: {trail}, position {block.start}",
        hint='Read up to there, or set option "holes" to "pass"',
    )


def _partition(
    trail: TrailName, trail_id: bytes, units: list[Unit], definitions: tuple[TableDef, ...]
) -> TrailPartition:
    found = tuple(block for unit in units for block in unit.blocks)
    columns = {definition.id: len(definition.columns) for definition in definitions}
    task = Task(trail.folder, trail.prefix, trail_id, found, {}, columns, wallet=trail.wallet)
    return TrailPartition(task, definitions)


def _rows(partition: TrailPartition) -> Iterator[Row]:
    """Every change of the partition's transactions, with its transaction's facts."""
    known = {definition.id: definition for definition in partition.definitions}
    for one, change in walk(blocks(partition.task)):
        if change.op in NO_CHANGES:
            continue
        commit = time_of(one.time_us or 0)
        place = str(change.position)
        for name, before, after, tokens in _images(change.record, [known[table] for table in change.tables]):
            yield name, change.op.name, place, one.csn, one.xid, one.changes, commit, before, after, tokens


def _images(record: Any, shapes: list[TableDef]) -> Iterator[tuple[str, Any, Any, Any]]:
    op = record[0]
    if op == Op.TRUNCATE:
        for t in record[1]:
            yield shapes[t].full_name, None, None, None
        return
    if op == Op.DDL:
        yield DdlChange.from_wire(record[1]).full_name, None, None, None
        return
    shape = shapes[record[1]]
    after = None if op == Op.DELETE else record[2]
    before = record[2] if op == Op.DELETE else record[3] if op == Op.UPDATE else None
    has_tokens = shape.columns and shape.columns[-1].type == TOKEN  # they stand behind all columns
    tokens = _map(shape, before if after is None else after, tokens=True) if has_tokens else None
    yield shape.full_name, _map(shape, before), _map(shape, after), tokens


def _map(shape: TableDef, image: Image | None, *, tokens: bool = False) -> dict[str, str | None] | None:
    """An image's columns by name, or its tokens: both may have the same names."""
    if image is None:
        return None
    pairs = zip(shape.columns, image, strict=True)
    return {
        column.name: text_of(value)
        for column, value in pairs
        if value is not MISSING and (column.type == TOKEN) is tokens
    }
