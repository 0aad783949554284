"""What a target is to Replicat, and what there is to know of a kind of target before one is opened.

Strategy: a target does no thinking of its own. It gets ready-made steps (net effects in its own form, truncates) in the
order they must be applied, and applies each call to apply() whole or not at all. What is refused raises RefusedError
and leaves the transaction usable: apply/ladder.py decides what to try next. All SQL databases have one target,
replicat/targets/sql/target.py, which asks them for what differs.

States of one target: closed -> (connect) -> idle -> (begin) -> open -> (commit) -> idle. AwayError, from any
call, means closed: what was open is lost or landed, and only the row read after the next connect() tells which.

Rule: nothing here, and nothing in a folder's kind.py, loads a driver. Whoever asks a Kind for its target, its admin or
its dialect does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from replicat.model.target import CheckpointRow, Layout, Step, Tally, TargetTable
from trails.record import Image, Value

if TYPE_CHECKING:
    from replicat.ddl.dialect import Dialect
    from replicat.ddl.grammar import SourceGrammar

Table = tuple[str, str]
_CONSTANTS = "replicat.ddl.grammar:CONSTANTS"


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """What any target needs to know of its group.

    `suppress_triggers` (None as the target permits it), `defer_constraints` (DEFERREFCONST) and `follow_sequences`
    (FOLLOWSEQUENCES) are for targets that can do so; see Capabilities.
    """

    url: str
    checkpoint_table: Table
    group: str
    group_key: int
    home: str = ""
    commit_wait: bool = False
    suppress_triggers: bool | None = None
    defer_constraints: bool = False
    follow_sequences: bool = False


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the targets of a kind can do; docs/replicat.md shows it as a table. Each says who decides by it.

    `exactly_once`: the checkpoint row is committed with the rows; else rows are overlaid by key (batches/capable.py).
    `several_tables`: so are all tables of a batch, and nobody sees a source's transaction in part; else START says so.
    `savepoints`: a part of an open transaction can be undone; else what is refused ends the process (apply/ladder.py).
    `ddl_in_transaction`: changes of shapes too are committed with the row; else each stands alone (run/replicat.py).
    `keyless_tables`: a table may have no key; else its MAP is refused. `holds_triggers`, `defers_constraints`,
    `follows_sequences`: triggers need not fire, foreign keys are checked at the end, numbers that the target gives out
    stay ahead of the rows; else the words of DBOPTIONS for them are refused. `waits_open`: while a transaction is open,
    others can write; else none is begun before all of it has come (batches/early.py).
    """

    exactly_once: bool = True
    several_tables: bool = True
    savepoints: bool = True
    ddl_in_transaction: bool = True
    keyless_tables: bool = True
    holds_triggers: bool = False
    defers_constraints: bool = False
    follows_sequences: bool = False
    waits_open: bool = True


@dataclass(frozen=True, slots=True)
class Words:
    """How a kind of database writes what Replicat's own tables need (targets/sql/rowtable.py, heartbeatsql.py).

    `mark`: what stands for a parameter. `schema`: the only one there is; empty where there are many. `types`: its names
    of the standard's types, where they differ; `text`: what it has for any other. `now`: when the transaction, or the
    statement, began; `clock`: the time at this moment; `clock_us`: a query for that in microseconds, empty where the
    database has no clock of its own. `zone`: what a moment as text ends with. `age` and `day`: seconds since a moment,
    and its date as text. `columns`: a query for a table's columns, of its schema and name. `replaces`: there is
    REPLACE, else INSERT has ON CONFLICT. `options`: end a CREATE TABLE. `makes_view`: begins a view that may be there.
    `make_schema`: statements for a schema that may be there. `for_update`: ends a SELECT whose rows are to stay locked.
    """

    mark: str
    now: str
    clock: str
    clock_us: str
    age: str
    day: str
    columns: str
    schema: str = ""
    types: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    zone: str = ""
    replaces: bool = True
    options: str = ""
    makes_view: str = "CREATE OR REPLACE VIEW"
    make_schema: Callable[[str], list[str]] = lambda _name: []
    for_update: str = " FOR UPDATE"

    def type_of(self, standard: str) -> str:
        """The database's own name of a type of the standard."""
        return self.types.get(standard, self.text or standard)

    def create_table(self, table: str, columns: Iterable[tuple[str, str]], key: Sequence[str]) -> str:
        """CREATE TABLE; `table` is quoted already. `columns`: a name, and the standard's type with what follows it."""
        parts = []
        for name, made in columns:
            standard, *rest = made.split(" ", 1)
            parts.append(" ".join([name, self.type_of(standard), *rest]))
        return f"CREATE TABLE {table} ({', '.join(parts)}, PRIMARY KEY ({', '.join(key)})){self.options}"


@dataclass(frozen=True, slots=True)
class Kind:
    """All that others ask of one kind of target. Each stands in its folder's kind.py, and in the table in kinds.py.

    `title`: for people. `url`: the shape of its URLs; `url_fault`: what is wrong with one, empty if nothing is.
    `is_file`: the database is a file, its URL `scheme:///path`, and nobody logs in.
    `about`: a query for version and character set. `target`, `admins`, `changes`: where its target, its admin and its
    dialect for changes of shapes stand; they are loaded when they are asked for. `without_triggers`: how to keep
    triggers of a target table from firing. `reads`: where the grammar
    of its own types and defaults stands, if there are sources of this kind. `pours`: it takes the bulk form that it
    gives itself.
    """

    title: str
    url: str
    url_fault: Callable[[str], str]
    about: str
    words: Words
    can: Capabilities
    target: str
    admins: str
    changes: str
    without_triggers: str = "Drop them in the target"
    is_file: bool = False
    reads: str = _CONSTANTS
    pours: bool = False

    def open(self, settings: TargetSettings) -> Target:
        """A target, not connected yet."""
        made: Target = _load(self.target)(self, settings)
        return made

    def admin(self) -> Admin:
        """Who does the work of replicat/admin.py there."""
        made: Admin = _load(self.admins)(self)
        return made

    def dialect(self, source: Kind | None, has: frozenset[str] = frozenset()) -> Dialect:
        """How changes of shapes are written there that come from a source of this kind; None: nobody knows it.

        `has`: types of the server that not every one of this kind has; who has a target asks that.
        """
        grammar: SourceGrammar = _load(source.reads if source else _CONSTANTS)
        made: Dialect = _load(self.changes)(grammar, like=source is self, has=has)
        return made


def _load(place: str) -> Any:
    """What stands at `module:name`."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


class RunStatement(Protocol):
    """Runs one statement of an administrator's; the rows it gives."""

    def __call__(self, statement: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run it."""


class Target(Protocol):
    """One connection to a target; made new after an AwayError.

    `row_table`: the checkpoint table as its SQL names it. `tally`: what is counted; begin() forgets all but the bytes.
    Any call may raise ShapeChangedError once a transaction is open.
    """

    kind: Kind
    row_table: str
    tally: Tally

    def connect(self) -> None:
        """Connect and check what is needed; AwayError or OperatorError. A second call starts anew."""

    def speak_for(self, group: str, group_key: int) -> None:
        """Whose checkpoint row the other calls mean from now on; nothing may be open."""

    def load_row(self) -> CheckpointRow | None:
        """The group's checkpoint row, or None if it has none yet."""

    def lock_row(self) -> CheckpointRow | None:
        """As load_row(), in the open transaction: until that ends no begin() of the group goes on."""

    def bound_waits(self, lock_seconds: float, idle_seconds: float) -> None:
        """Until the connection is closed: wait for a lock so long at most, then AwayError.

        And a server that can do so ends it if nothing is heard of it for `idle_seconds` while a transaction is open.
        """

    def add_row(self, row: CheckpointRow) -> None:
        """Make the group's row, committed and durable."""

    def table(self, schema: str, name: str) -> TargetTable | None:
        """A table's shape, or None if there is no such table."""

    def tables(self, places: Iterable[tuple[str, str]]) -> dict[tuple[str, str], TargetTable]:
        """The shapes of those of these (schema, name) tables that exist; few round trips, however many there are."""

    def check_layout(self, layout: Layout) -> None:
        """OperatorError where values of a column's logical type can't go into it at all."""

    def begin(self, old: CheckpointRow, new: CheckpointRow) -> None:
        """Open a transaction and move the row from `old` to `new` in it, which may be the same place.

        PlaceLostError if it is not at `old`, or if anybody has moved the group's own row since load_row(), which comes
        before any move of it.
        """

    def move_on(self, new: CheckpointRow) -> None:
        """Move the row of the open transaction once more: begin() could not know yet where that would end."""

    def apply(
        self,
        steps: tuple[Step, ...],
        *,
        first: bool = False,
        rewrite: bool = False,
        single: bool = False,
        border: bool = False,
    ) -> None:
        """Apply all steps or none; RefusedError.

        `first`: nothing was done in the transaction since begin(), so it may be begun anew where they are refused.
        `rewrite`: delete and insert rather than update. `single`: this is one change, so no two of its keys can be one
        row by mistake (soft_key). `border`: behind these steps stands a state that the source had, so constraints that
        are checked at the end of a transaction are checked now, and their refusal is of these steps.
        """

    def check_commit(self) -> None:
        """What a COMMIT would check now (deferred constraints): RefusedError, the transaction left usable."""

    def current(self, layout: Layout, key: tuple[Value, ...]) -> Image | None:
        """The row at exactly this key as canonical text in the layout's order, locked; None if there is none."""

    def put(self, layout: Layout, row: Image) -> None:
        """Write a whole row over the one at its key, or as a new one; RefusedError."""

    def remove(self, layout: Layout, key: tuple[Value, ...]) -> bool:
        """Delete the row at exactly this key; whether there was one."""

    def mark(self) -> object:
        """A place in the open transaction that undo() can go back to; later marks are forgotten by that."""

    def undo(self, token: object) -> None:
        """Back to a mark, which stays usable."""

    def dialect(self, source: Kind | None) -> Dialect:
        """How changes of shapes of such a source are written for this very server."""

    def ddl(self, statements: tuple[str, ...]) -> None:
        """Run statements that change shapes; RefusedError (sqlstate, code, the database's words) if one fails.

        Inside the open transaction where the kind can do so, and a refusal leaves that as it was before the call; else
        no transaction is open, and what came before the refused statement stays.
        """

    def cautions(self) -> list[str]:
        """What CHECK PARAMS tells of who we are in the target; no fault, but better otherwise."""

    def check_types(self, types: Mapping[str, bool]) -> None:
        """RefusedError if statements of ddl() may not name one of these types, which the database does not bring.

        With each, whether values are cast from or to it.
        """

    def read(self, statement: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query of our own tables."""

    def write(self, statement: str, params: Sequence[object]) -> int:
        """Change rows of our own tables, in the open transaction; how many."""

    def alone(self) -> AbstractContextManager[None]:
        """A transaction beside the checkpoint row, which is committed durably where nothing is raised."""

    def pour(self, layout: Layout, pieces: Iterable[bytes]) -> int:
        """New rows in the database's own bulk form, where the kind has one (Kind.pours); how many. RefusedError."""

    def commit(self) -> None:
        """Commit; visible at once, durable by the next flush at the latest."""

    def flush(self, old: CheckpointRow, new: CheckpointRow) -> None:
        """Move the row, and make this and every commit before it durable; PlaceLostError."""

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back by the server."""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group's row of the checkpoint table, as INFO CHECKPOINTTABLE has it; times and key as the driver reads them."""

    group: str
    group_key: Any
    seqno: int
    rba: int
    csn: str
    alter_no: int
    created: Any
    updated: Any


class Admin(Protocol):
    """What replicat/admin.py does in a target, each in a connection of its own."""

    def unverified(self, url: str) -> str:
        """What to say of a link that leaves this host to a server that proves nothing; else nothing."""

    def database_info(self, url: str) -> dict[str, str]:
        """Who we are where: user, database, server."""

    def tables(self, url: str) -> list[Table]:
        """LIST TABLES: schema and name of every table of a user's, by name."""

    def add_row_table(self, url: str, table: Table) -> None:
        """ADD CHECKPOINTTABLE."""

    def drop_row_table(self, url: str, table: Table) -> None:
        """DELETE CHECKPOINTTABLE."""

    def row_table_made(self, url: str, table: Table) -> int | None:
        """INFO CHECKPOINTTABLE: when the table was made, in microseconds; None if it does not say."""

    def rows_of_table(self, url: str, table: Table) -> list[GroupRow] | None:
        """INFO CHECKPOINTTABLE: every group's row; None if there is no such table."""

    def delete_row(self, url: str, table: Table, group: str, group_key: int) -> bool:
        """DELETE REPLICAT: forget how far the group was. True if there was a row."""

    def statements(self, url: str) -> AbstractContextManager[RunStatement]:
        """A connection in which statements can be run one by one."""
