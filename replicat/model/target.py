"""What Replicat hands to a target: ready-made steps and rows, and the shapes of tables; and how a target refuses them.

Strict: every row of a net effect says whether its key is there before, and the target finds out whether that is so. A
row that is missing, or there without being expected, is refused, unless the layout says otherwise (HANDLECOLLISIONS).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from replicat.model.copytext import Pick, render
from trails.errors import GateError, OperatorError
from trails.position import Position
from trails.record import Image, Value


class RefusedError(GateError):
    """The target refused rows (a constraint, a value); the transaction is as it was before the call.

    Its message may hold values of the row: it is for the discard file and exceptions tables. Reports, ggserr.log and
    whatever else people read get `shown`.
    """

    def __init__(
        self, table: str, message: str, sqlstate: str = "", code: str = "", *, shown: str | None = None
    ) -> None:
        """`code`: the database's own number or name of the error as text, which REPERROR may name as well.

        `shown`: the message without values of rows; the message itself if it has none.
        """
        super().__init__(f"{table}: {message}")
        self.shown = f"{table}: {message if shown is None else shown}"
        self.table = table
        self.sqlstate = sqlstate
        self.code = code


class UnmappedError(RefusedError, OperatorError):
    """No target row can be made of a change: its MAP is wrong, or the trail lacks a column. No target was asked.

    The ladder finds the change and what lies before it is applied; no REPERROR gives it up, as all its like would go.
    """

    def __init__(self, table: str, message: str, *, hint: str = "") -> None:
        super().__init__(table, message)
        self.hint = hint


NO_ROW = "02000"
"""SQLSTATE of our own refusal of a change whose row is not there; the standard's "no data"."""
ROW_EXISTS = "23505"
"""SQLSTATE of our own refusal of a new row whose key is there already; the standard's unique violation."""
NOT_TAKEN = "09000"
"""SQLSTATE of our own refusal of what the target passed over by itself; the standard's triggered action exception."""


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """A group's row in the checkpoint table: the truth about what is applied.

    `split`: how much of the unit that begins at `position` is applied already: transactions of a WHOLE block, blocks of
    a large transaction; 0 at a unit's border. `skip_until`: `>=csn` or `>csn` leaves out what comes before that CSN.
    `created_us`: when the table got the row, for SHOWCH.
    """

    position: Position
    trail_id: bytes = b""
    csn: str = ""
    xid: str = ""
    time_us: int | None = None
    alter_no: int = 0
    added_us: int = 0
    flushed: Position = field(default=Position(0, 0))
    split: int = 0
    skip_until: str = ""
    created_us: int | None = field(default=None, compare=False)

    def is_at(self, other: CheckpointRow) -> bool:
        """Whether it is the same place, whatever else is in the row."""
        mine = self.position, self.split, self.skip_until, self.trail_id, self.alter_no, self.added_us
        return mine == (
            other.position, other.split, other.skip_until, other.trail_id, other.alter_no, other.added_us
        )  # fmt: skip


@dataclass(slots=True)
class Tally:
    """What a target tells beside its rows. By (schema, table), of the open transaction or the one before:

    `collisions` of inserts, updates, deletes that were put right; `converted`: values that a declared rule changed.
    `taken`: bytes of rows handed to the database so far, rolled back or not.
    """

    collisions: dict[tuple[str, str], tuple[int, int, int]] = field(default_factory=dict)
    converted: dict[tuple[str, str], int] = field(default_factory=dict)
    taken: int = 0


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column as the target's catalog has it; `always` is GENERATED ALWAYS AS IDENTITY, `generated` a computed one.

    `equal`: the operator that its type's indexes take for equality. `soft`: two different canonical texts can be equal
    for it (case, padding, scale, -0): see Layout.soft_key.
    `labels`: those of an enum, or of an array of one, where the database has such types.
    """

    name: str
    type: str
    generated: bool = False
    always: bool = False
    equal: str = "="
    soft: bool = False
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetTable:
    """A target table's shape. `unique`: column sets of its unique indexes; `fires`: what this connection's rows would
    set off there.

    `across`: something beside `unique` has one row's change refused because of another row: an exclusion, a partial or
    late unique index, a foreign key that is checked.
    `cascaded`: rows of it may vanish by a cascade of another table's rows, which this connection cannot hold back.
    `cascades`: the other way round, a delete of its rows deletes or changes rows of another table.
    `primary`: the columns of the primary key, and what that is called where it has a name.
    """

    schema: str
    name: str
    columns: tuple[TargetColumn, ...]
    unique: tuple[frozenset[str], ...] = ()
    fires: tuple[str, ...] = ()
    rank: int = 0
    cascaded: bool = False
    cascades: bool = False
    primary: tuple[str, ...] = ()
    primary_name: str = ""
    across: bool = False

    def layout(self, columns: Sequence[str], key: Sequence[str], logical: Sequence[str], **more: Any) -> Layout:
        """Where rows of these columns go; `more`: what the shape does not tell."""
        found = {column.name: column for column in self.columns}
        extras = [column for column in self.columns if column.name not in columns and not column.generated]
        return Layout(
            self.schema, self.name, tuple(columns), tuple(found[name].type for name in columns), tuple(key),
            arbiter=frozenset(key) in self.unique, extras=tuple(column.name for column in extras),
            extra_types=tuple(column.type for column in extras),
            fixed=tuple(column.name for column in extras if column.always),
            key_equal=tuple(found[name].equal for name in key), rank=self.rank, logical=tuple(logical),
            rewrite=any(found[name].always for name in columns if name not in key),
            soft_key=any(found[name].soft for name in key), cascaded=self.cascaded, cascades=self.cascades,
            **more,
        )  # fmt: skip

    @property
    def full_name(self) -> str:
        """`schema.name`, for people."""
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where rows go: the target's columns that are written, in image order.

    `key`: names of the key columns, empty for a table without one; `arbiter`: a unique index covers exactly the key,
    so that the target itself refuses a second row; `rewrite`: rows can't be updated, only deleted and inserted again
    (a written column is GENERATED ALWAYS AS IDENTITY);
    `extras`: target columns that the source lacks, whose values a moved row takes with it; `fixed`: those of them
    that can be inserted but never updated (GENERATED ALWAYS AS IDENTITY); `key_equal`: the operator
    for each key column, `=` where none is given; `rank`: parents are lower; `weight`: lower ones are written first.
    `logical`: the source's logical type (docs/values.md) of each written column. `natives`: its native type where that
    is a type of the target's own kind of database, else empty.
    `soft_key`: the target's equality of keys is not that of their canonical text (citext, collations, padding, scale),
    so two keys that are kept apart here may be one row there.
    `collisions`: HANDLECOLLISIONS, what is not as expected is overlaid and counted; `insert_missing`: updates of
    missing rows alone; `cascaded`: a row that is to be deleted may be gone already; `cascades`: a delete takes rows of
    other tables along, so no row may be deleted only to be inserted again.
    """

    schema: str
    name: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    key: tuple[str, ...]
    arbiter: bool = True
    extras: tuple[str, ...] = ()
    extra_types: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    key_equal: tuple[str, ...] = ()
    rank: int = 0
    logical: tuple[str, ...] = ()
    natives: tuple[str, ...] = ()
    rewrite: bool = False
    soft_key: bool = False
    weight: int = 0
    collisions: bool = False
    insert_missing: bool = False
    cascaded: bool = False
    cascades: bool = False
    place: tuple[str, str] = field(init=False, repr=False, compare=False)
    """Schema and name."""
    overlays: bool = field(init=False, repr=False, compare=False)
    """Whether something that is not as expected may be put right, and not refused."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", (self.schema, self.name))
        object.__setattr__(self, "overlays", self.collisions or self.insert_missing)

    def blob(self, rows: Iterable[Image], pick: Pick | None = None) -> tuple[Blob, list[Image]]:
        """Rows as the target takes them, and those that were left out because a column is missing."""
        data, count, partial = render(rows, pick)
        return Blob(data, count), partial

    @property
    def full_name(self) -> str:
        """`schema.name`, for people."""
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class Blob:
    """Rows as lines of text (copytext.py): here, or in the file `path` that whoever applies it may read as often as it
    likes.
    """

    data: bytes = b""
    rows: int = 0
    path: str = ""

    def read(self) -> bytes:
        """The bytes."""
        if not self.path:
            return self.data
        with open(self.path, "rb") as file:
            return file.read()


@dataclass(frozen=True, slots=True)
class Fill:
    """A row to be completed from the target's row at key `base`: missing columns, and extras, come from there.

    `there`: whether the row's own key is there before. `others`: tried in this order where no row is at `base`.
    `new`: the row where none of them is there. With `must` one of them must be there, unless there is a `new`; without,
    the row is left out.
    """

    base: tuple[Value, ...]
    row: Image
    there: bool = True
    must: bool = True
    others: tuple[tuple[tuple[Value, ...], Image], ...] = ()
    new: Image | None = None


@dataclass(frozen=True, slots=True)
class Patch:
    """Rows that are there and stay at their key, of which only some columns are given.

    `given`: indexes of these columns in the layout, those of the key among them, in the order of the rows' text.
    """

    given: tuple[int, ...]
    rows: Blob
    must: bool = True


@dataclass(frozen=True, slots=True)
class Compare:
    """COMPARECOLS: rows of key values and those of `columns` (indexes of the layout's) that the target must still have.

    Checked before anything else of the table; NULL is equal to NULL. Fewer found than given: refused (NO_ROW).
    """

    columns: tuple[int, ...]
    rows: Blob


@dataclass(frozen=True, slots=True)
class Rows:
    """The net effect on one table with a key. Each key stands in one place only; but an insert, or a fill whose key is
    not there, may have its key among those that are deleted: the new row has nothing of the one before.

    field      before     after     applied as
    deletes    there      gone      DELETE; as many as there are keys
    void       not there  gone      nothing; but the key must not be there once the deletes are done
    updates    there      there     UPDATE of whole rows; as many as there are rows
    patches    there      there     UPDATE of the given columns; as many as there are rows, where they must
    inserts    not there  there     INSERT; refused where the key is there
    fills      (says so)  there     read what they lack, before anything is deleted; then UPDATE or INSERT
    removes    either     gone      DELETE of what is there (a row filter that does not know the row before)
    upserts    either     there     UPDATE of what is there, INSERT of what is not (UPDATEINSERTS, row filters)

    Order: check compares (lock these rows); read fills; delete deletes and removes; look for void; write fills, updates
    and patches, upserts, inserts.
    `collisions`: inserts on a present key, updates and deletes on an absent one, that show in the changes themselves.
    Any of them is refused; where the layout overlays, it is only counted.
    """

    layout: Layout
    deletes: Blob = Blob()
    upserts: Blob = Blob()
    inserts: Blob = Blob()
    fills: tuple[Fill, ...] = ()
    void: Blob = Blob()
    updates: Blob = Blob()
    patches: tuple[Patch, ...] = ()
    removes: Blob = Blob()
    collisions: tuple[int, int, int] = (0, 0, 0)
    compares: tuple[Compare, ...] = ()

    def blobs(self) -> Iterable[Blob]:
        """Every blob in it."""
        own = (self.deletes, self.removes, self.void, self.updates, self.upserts, self.inserts)
        return (*own, *(patch.rows for patch in self.patches), *(compare.rows for compare in self.compares))


@dataclass(frozen=True, slots=True)
class Match:
    """Changes of rows of a table without a key, each of exactly one row that is equal in every written column.

    `nulls`: indexes of the columns that are NULL in the rows as they were. `rows`: of each its number, from 0, then the
    other columns as they were, and for an update (`update`) all columns as they became. Two equal ones change two rows.
    """

    nulls: tuple[int, ...]
    rows: Blob
    update: bool = False


@dataclass(frozen=True, slots=True)
class Bag:
    """The net effect on one table without a key. Order: deletes, updates, inserts."""

    layout: Layout
    matches: tuple[Match, ...] = ()
    inserts: Blob = Blob()

    def blobs(self) -> Iterable[Blob]:
        """Every blob in it."""
        return (*(match.rows for match in self.matches), self.inserts)


@dataclass(frozen=True, slots=True)
class Work:
    """Net effects on several tables, between which no order is needed but that of foreign keys.

    `border`: what is checked at the end of a source's transaction is checked behind it.
    """

    rows: tuple[Rows, ...] = ()
    bags: tuple[Bag, ...] = ()
    border: bool = False


@dataclass(frozen=True, slots=True)
class Truncate:
    """Empty these (schema, name) tables in one statement, and no other: the source names all that a cascade emptied."""

    tables: tuple[tuple[str, str], ...]
    restart: bool = False


Step = Work | Truncate
