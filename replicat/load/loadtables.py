"""The load's three tables beside the checkpoint table: their columns, and their statements in any database's words.

    <checkpoint table>_load     a row for each group: the fence, and what was left out
    <checkpoint table>_tables   a row for each table that is loaded, or was: its state, and how its source looks
    <checkpoint table>_chunks   a row for each chunk of those that are not live yet

Rule: pure text and plain values, no driver. Each write is one statement with its parameters, so that who has a
transaction open decides what is committed together.

`left_out` is what later snapshots must see. `fence` goes up with each batch that left a change out because its chunk
was still to be copied: a chunk commits only under the fence that its round began with. `chunks` goes up with each chunk
that commits: a batch whose plans were made from another number is begun again, as is what else writes the tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from replicat.model.loading import newest
from replicat.targets.contract import Kind, Table
from replicat.targets.sql import rowtable
from replicat.targets.sql.forbidden import BESIDE
from trails.errors import OperatorError
from trails.record import TableDef

WAITING: Final = "waiting"
COPYING: Final = "copying"
CATCHING_UP: Final = "catching up"
LIVE: Final = "live"
FAILED: Final = "failed"
STATES: Final = (WAITING, COPYING, CATCHING_UP, LIVE, FAILED)

_NAME = "varchar(130) NOT NULL"
_WHO = (("group_name", "varchar(64) NOT NULL"), ("group_key", "numeric(20) NOT NULL"))
_TABLE = (*_WHO, ("source", _NAME), ("target", _NAME))
_KEY = ("group_name", "group_key")
LOAD_COLUMNS = (*_WHO, ("fence", "bigint NOT NULL"), ("chunks", "bigint NOT NULL"), ("left_out", "clob NOT NULL"))
TABLES_COLUMNS = (
    *_TABLE, ("state", "varchar(20) NOT NULL"), ("reason", "clob NOT NULL"), ("definition", "clob NOT NULL"),
    ("behind", "clob NOT NULL"), ("rows_done", "bigint NOT NULL"), ("bytes_done", "bigint NOT NULL"),
    ("estimate", "bigint NOT NULL"), ("started_us", "bigint NOT NULL"), ("ended_us", "bigint NOT NULL"),
    ("branch", "varchar(200) NOT NULL"),
)  # fmt: skip
CHUNKS_COLUMNS = (
    *_TABLE, ("number", "bigint NOT NULL"), ("low", "clob NOT NULL"), ("orders", "varchar(200) NOT NULL"),
    ("seen", "clob NOT NULL"), ("past", "varchar(128) NOT NULL"), ("rows_done", "bigint NOT NULL"),
    ("bytes_done", "bigint NOT NULL"),
)  # fmt: skip

NONE: Final = -1
MOST_NOTED: Final = 5_000
"""So many transactions that were left out are noted one by one."""
_ALL: Final = ".."

Statement = tuple[str, list[Any]]
Ask = Callable[[str], list[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class LoadRow:
    """A group's row. `left_out`: numbers of transactions that no snapshot was seen to see yet.

    `below`: a number; no snapshot was seen yet before which it and all that began earlier had ended. NONE: there is
    none. It stands for any number of `left_out`, so what is noted does not grow while the source is away.
    """

    fence: int = 0
    chunks: int = 0
    left_out: frozenset[int] = frozenset()
    below: int = NONE

    def bounded(self) -> LoadRow:
        """The same, or more than that: it asks for a later snapshot where many are noted."""
        if len(self.left_out) <= MOST_NOTED:
            return self
        known = self.left_out if self.below == NONE else self.left_out | {self.below}
        return replace(self, left_out=frozenset(), below=newest(known))

    @property
    def noted(self) -> str:
        """As it stands in the table: `..700,705` is 700 and all before it, and 705."""
        first = [] if self.below == NONE else [f"{_ALL}{self.below}"]
        return ",".join([*first, *map(str, sorted(self.left_out))])

    @classmethod
    def read(cls, fence: int, chunks: int, noted: str) -> LoadRow:
        """Inverse of `noted`. Raises ValueError."""
        items = [item for item in noted.split(",") if item]
        below = [int(item.removeprefix(_ALL)) for item in items if item.startswith(_ALL)]
        xids = frozenset(int(item) for item in items if not item.startswith(_ALL))
        return cls(fence, chunks, xids, *below[:1])


@dataclass(frozen=True, slots=True)
class TableRow:
    """A table's row. `source`, `target`: `schema.name`. `definition`: as its rows are read from the source.

    `behind`: statements for the target that wait for the last chunk, such as those that make indexes. `estimate`: how
    many rows the source is thought to have. Times are in microseconds since 1970, 0 for none. `branch`: of the source,
    as `reading.kinds.branch_of` tells it, when the chunks were planned.
    """

    source: str
    target: str
    definition: TableDef
    state: str = WAITING
    reason: str = ""
    behind: tuple[str, ...] = ()
    rows: int = 0
    bytes: int = 0
    estimate: int = 0
    started_us: int = 0
    ended_us: int = 0
    branch: str = ""

    @property
    def pair(self) -> tuple[str, str]:
        """Which table it is."""
        return self.source, self.target


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """A chunk's row. `low`: the canonical texts with which it begins, empty for the first. `seen`: empty if planned."""

    source: str
    target: str
    number: int
    low: tuple[str, ...] = ()
    orders: tuple[str, ...] = ()
    seen: str = ""
    past: str = ""
    rows: int = 0
    bytes: int = 0

    @property
    def pair(self) -> tuple[str, str]:
        """Which table's it is."""
        return self.source, self.target


@dataclass(frozen=True, slots=True)
class LoadState:
    """All that the tables say of one group."""

    load: LoadRow = LoadRow()
    tables: tuple[TableRow, ...] = ()
    chunks: tuple[ChunkRow, ...] = ()
    by_pair: dict[tuple[str, str], list[ChunkRow]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found: dict[tuple[str, str], list[ChunkRow]] = {}
        for chunk in self.chunks:
            found.setdefault(chunk.pair, []).append(chunk)
        object.__setattr__(self, "by_pair", found)


class LoadTables:
    """The statements for one group."""

    def __init__(self, kind: Kind, checkpoint_table: Table, group: str, key: int) -> None:
        schema, name = checkpoint_table
        self.names = tuple((schema, f"{name}_{suffix}") for suffix in BESIDE)
        self._row = rowtable.quoted(kind, checkpoint_table)
        self._words = kind.words
        self._load, self._tables, self._chunks = (rowtable.quoted(kind, table) for table in self.names)
        self._who: list[Any] = [group, key]
        self._here = f"group_name = '{group}' AND group_key = {key}"

    # Making

    def create(self) -> list[str]:
        """The three tables."""
        words, table = self._words, [*_KEY, "source", "target"]
        return [
            words.create_table(self._load, LOAD_COLUMNS, _KEY),
            words.create_table(self._tables, TABLES_COLUMNS, table),
            words.create_table(self._chunks, CHUNKS_COLUMNS, [*table, "number"]),
        ]

    def there(self) -> Statement:
        """Finds rows if the tables exist."""
        return self._words.columns, list(self.names[0])

    # Reading

    def read(self, ask: Ask) -> LoadState:
        """All of it, as it stands."""
        load = ask(f"SELECT fence, chunks, left_out FROM {self._load} WHERE {self._here}")
        tables = ask(
            "SELECT source, target, definition, state, reason, behind, branch, rows_done, bytes_done, estimate, "
            f"started_us, ended_us FROM {self._tables} WHERE {self._here} ORDER BY source, target"
        )
        chunks = ask(
            "SELECT source, target, number, low, orders, seen, past, rows_done, bytes_done "
            f"FROM {self._chunks} WHERE {self._here} ORDER BY source, target, number"
        )
        return LoadState(
            _load_row(load[0]) if load else LoadRow(), tuple(map(_table_row, tables)), tuple(map(_chunk_row, chunks))
        )

    def counted(self) -> str:
        """The number of chunks that have committed."""
        return f"SELECT chunks FROM {self._load} WHERE {self._here}"

    def locked(self) -> str:
        """The number of chunks that have committed; the row stays locked until the transaction ends."""
        return f"{self.counted()}{self._words.for_update}"

    def others_of(self, target: str) -> Statement:
        """Group and source table of each row by which another group fills a target table, whatever the case."""
        mark = self._words.mark
        where = f"lower(target) = {mark} AND NOT ({self._here})"
        return f"SELECT group_name, source FROM {self._plain(self._tables)} WHERE {where}", [target.lower()]

    # Writing

    def outrun(self) -> Statement:
        """The group's row in the checkpoint table has moved: who has read it knows of no load, and moves it no more.

        It waits for the transaction that such a one has open, or whose COMMIT is on its way.
        """
        return f"UPDATE {self._row} SET moves = moves + 1 WHERE {self._here}", []

    def add_load(self) -> Statement:
        """The group's row."""
        return self._insert(self._load, [*_KEY, "fence", "chunks", "left_out"], [*self._who, 0, 0, ""])

    def left_out(self, row: LoadRow) -> Statement:
        """A batch left changes out; `row` as it is from now on."""
        return self._update(self._load, {"fence": row.fence, "left_out": row.noted}, self._here)

    def sees_all(self, newest: int) -> Statement:
        """Every snapshot from now on must be one before which all up to this number had ended: that covers all that
        was left out, or applied, so far. NONE: nothing need be noted.
        """
        return self._update(self._load, {"left_out": LoadRow(below=newest).noted}, self._here)

    def chunk_done(self, fence: int) -> Statement:
        """A chunk commits. It changes one row, or the chunk must not be committed."""
        return f"UPDATE {self._load} SET chunks = chunks + 1 WHERE {self._here} AND fence = {fence}", []

    def joined(self) -> Statement:
        """Tables are to be loaded, or loaded anew: batches and chunks that were planned without that begin again."""
        return f"UPDATE {self._load} SET fence = fence + 1, chunks = chunks + 1 WHERE {self._here}", []

    def add_table(self, row: TableRow) -> Statement:
        """A table to be loaded."""
        names = [*_KEY, "source", "target", "state", "reason", "definition", "behind", "rows_done", "bytes_done",
                 "estimate", "started_us", "ended_us", "branch"]  # fmt: skip
        values = [*self._who, row.source, row.target, *_table_values(row)]
        return self._insert(self._tables, names, values)

    def set_table(self, row: TableRow) -> Statement:
        """The table's row as it is from now on."""
        names = ["state", "reason", "definition", "behind", "rows_done", "bytes_done", "estimate", "started_us",
                 "ended_us", "branch"]  # fmt: skip
        return self._update(self._tables, dict(zip(names, _table_values(row), strict=True)), self._of, row.pair)

    def drop_table(self, pair: tuple[str, str]) -> Statement:
        """The table's row goes."""
        return f"DELETE FROM {self._plain(self._tables)} WHERE {self._of}", list(pair)

    def add_chunk(self, row: ChunkRow) -> Statement:
        """A planned chunk."""
        names = [*_KEY, "source", "target", "number", "low", "orders", "seen", "past", "rows_done", "bytes_done"]
        values = [*self._who, *row.pair, row.number, _json(row.low), ",".join(row.orders), row.seen, row.past,
                  row.rows, row.bytes]  # fmt: skip
        return self._insert(self._chunks, names, values)

    def set_chunk(self, row: ChunkRow) -> Statement:
        """The chunk is loaded: only if it is planned still."""
        values = {"seen": row.seen, "past": row.past, "rows_done": row.rows, "bytes_done": row.bytes}
        where = f"{self._of} AND number = {row.number} AND seen = ''"
        return self._update(self._chunks, values, where, row.pair)

    def drop_chunks(self, pair: tuple[str, str]) -> Statement:
        """All chunks of a table go."""
        return f"DELETE FROM {self._plain(self._chunks)} WHERE {self._of}", list(pair)

    # Words

    @property
    def _of(self) -> str:
        mark = self._words.mark
        return f"{self._here} AND source = {mark} AND target = {mark}"

    def _plain(self, table: str) -> str:
        """The table's name beside parameters."""
        return table.replace("%", "%%") if self._words.mark == "%s" else table

    def _insert(self, table: str, names: Sequence[str], values: Iterable[Any]) -> Statement:
        marks = ", ".join([self._words.mark] * len(names))
        return f"INSERT INTO {self._plain(table)} ({', '.join(names)}) VALUES ({marks})", list(values)

    def _update(self, table: str, values: dict[str, Any], where: str, pair: Sequence[str] = ()) -> Statement:
        sets = ", ".join(f"{name} = {self._words.mark}" for name in values)
        return f"UPDATE {self._plain(table)} SET {sets} WHERE {where}", [*values.values(), *pair]


def _load_row(found: Sequence[Any]) -> LoadRow:
    fence, chunks, noted = found
    return LoadRow.read(int(fence), int(chunks), str(noted))


def _table_values(row: TableRow) -> list[Any]:
    return [
        row.state, row.reason, _json(row.definition.to_wire()), _json(row.behind), row.rows, row.bytes, row.estimate,
        row.started_us, row.ended_us, row.branch,
    ]  # fmt: skip


def _table_row(found: Sequence[Any]) -> TableRow:
    source, target, definition, state, reason, behind, branch, *numbers = found
    try:
        read = TableDef.from_wire(json.loads(definition))
        behind = tuple(json.loads(behind))
        rows, size, estimate, started_us, ended_us = map(int, numbers)
        return TableRow(source, target, read, state, reason, behind, rows, size, estimate, started_us, ended_us, branch)
    except (ValueError, TypeError) as error:
        raise OperatorError(
            f"the load's row of table {source} in the target can't be read: {error}",
            hint="Somebody changed it: INSTANTIATE the table again",
        ) from None


def _chunk_row(found: Sequence[Any]) -> ChunkRow:
    source, target, number, low, orders, seen, past, rows, size = found
    texts = tuple(json.loads(low))
    return ChunkRow(
        source, target, int(number), texts, tuple(filter(None, orders.split(","))), seen, past, int(rows), int(size)
    )


def _json(value: Any) -> str:
    """ASCII only: surrogates of text that is no UTF-8 are kept, and no database's character set matters."""
    return json.dumps(value, separators=(",", ":"))


def again(row: TableRow, reason: str = "") -> TableRow:
    """A table whose load begins anew."""
    return replace(row, state=WAITING, reason=reason, rows=0, bytes=0, started_us=0, ended_us=0)
