"""The shapes of all tables at the place that is read: begun from what the server says, changed by the log's statements,
and confirmed by every TABLE_MAP.

    resume     at each connection: the shapes as of the place that reading goes on from
    run        a statement: the journal first, then memory, then what the trail is told
    current    a table's shape
    agrees     a TABLE_MAP is of that shape, or the process stops

Rule: shapes are right for the place that is read, however far behind the server it is, or nothing is read. A statement
that is not understood stops where it may concern a captured table; any other table that it may name is not known from
there on. journal.py says what each crash leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from extract.sources.mysql.ddl.agreeing import disagreement
from extract.sources.mysql.ddl.asking import Asks, SourceServer, base_behind
from extract.sources.mysql.ddl.cascades import Cascade, rules
from extract.sources.mysql.ddl.changing import Changing, Effect
from extract.sources.mysql.ddl.filling import StatementSession
from extract.sources.mysql.ddl.journal import REMOVE, Base, Content, Entry, Journal, Key, ShapeChange
from extract.sources.mysql.ddl.known import KnownTable
from extract.sources.mysql.ddl.lexer import StatementDialect, UnreadError, hidden
from extract.sources.mysql.ddl.query import QueryText, Truncated
from extract.sources.mysql.ddl.reader import TableName
from extract.sources.mysql.ddl.statements import RowsError, names, parse
from extract.sources.mysql.ddl.syntax import Alter, Create, Rename, Statement
from extract.sources.mysql.tablemap import TableMap
from extract.sources.mysql.values import charsets
from extract.sources.mysql.values.unread import UnreadValueError
from trails.ddl import DdlChange, TableShape
from trails.errors import OperatorError
from trails.fs import Fs
from trails.position import Position

_SHOWN: Final = 300
_MANY: Final = 2000
"""With more statements than these, the next start makes the journal's base anew."""
PASS: Final = "A newer release may read it. Or ALTER EXTRACT to the place behind it, and load the table again"


class Cascades(Protocol):
    """What becomes of foreign keys that change rows of a captured table without a word in the log."""

    def now(self, schema: str, table: str) -> Sequence[Cascade]:
        """Those that a table has today."""
        ...

    def met(self, where: str, schema: str, table: str, key: Cascade) -> None:
        """A statement makes one; `where`: file and position. Raises OperatorError where that stops."""
        ...


@dataclass(frozen=True, slots=True)
class ShapeRules:
    """What the parameter file says. `captures`: a table's rows; `passes`: a change of shape, None without DDL.

    `cascades`: None where the server logs what foreign keys change.
    """

    captures: Callable[[str, str], bool]
    passes: Callable[[DdlChange], bool] | None = None
    cascades: Cascades | None = None


@dataclass(slots=True)
class _Now:
    """Everything known at the place that is read. `asked`: tables as the base has them."""

    tables: dict[Key, Entry] = field(default_factory=dict)
    databases: dict[str, str] = field(default_factory=dict)
    asked: set[Key] = field(default_factory=set)

    def apply(self, change: ShapeChange) -> None:
        for key, entry in change.tables.items():
            self.asked.discard(key)
            if entry is None:
                self.tables.pop(key, None)
            else:
                self.tables[key] = entry
        for name, collation in change.databases.items():
            if collation is None:
                self.databases.pop(name, None)
            else:
                self.databases[name] = collation


class Shapes:
    """Of one group. It is what the decoder of events calls Statements."""

    def __init__(self, fs: Fs, path: str, server: SourceServer, rules: ShapeRules) -> None:
        """`path`: the journal's."""
        self._journal = Journal(fs, path)
        self._server = server
        self._rules = rules
        self._now = _Now()
        self._unsure = Position(0, 0)  # up to here statements stand in what was asked already

    # --- where reading goes on ----------------------------------------------------------------------------------------

    def resume(self, origin: Position, session: Asks, end: Callable[[], Position], *, continues: bool) -> None:
        """The shapes as of `origin`. `end`: the place where the server's log ends.

        `continues`: everything up to `origin` was read, by this process or one before; not so for a new trail, and
        after an ALTER.
        """
        found = self._journal.read()
        if found is None or not self._covers(found, origin, continues=continues):
            base = base_behind(session, self._server, origin, end)
            self._journal.begin(base)
            found = Content(base, [])
        else:
            self._journal.cut(origin)
        self._fill(found, origin)
        if len(found.changes) > _MANY and found.base.upto <= origin:
            self._journal.begin(Base(found.base.source, origin, origin, self._all()))

    def _covers(self, found: Content, origin: Position, *, continues: bool) -> bool:
        """Whether the journal has all statements between its base and `origin`."""
        if origin < found.base.begin:
            return False
        return continues or (found.base.source == self._server.source and origin <= found.last)

    def _fill(self, found: Content, origin: Position) -> None:
        self._now = _Now()
        self._now.apply(found.base.all)
        self._now.asked = set(self._now.tables)
        for place, change in found.changes:
            if place <= origin:
                self._now.apply(change)
        self._unsure = found.base.upto

    def _all(self) -> ShapeChange:
        return ShapeChange(dict(self._now.tables), dict(self._now.databases))

    # --- what is known ------------------------------------------------------------------------------------------------

    def current(self, schema: str, name: str) -> TableShape | None:
        """A table's shape; None of one that is not known."""
        found = self._now.tables.get(self._server.key(schema, name))
        return found.shape if isinstance(found, KnownTable) else None

    def agrees(self, table: TableMap, where: str) -> TableShape:
        """The shape of a captured table, if the log has it so too; `where`: file and position. Raises OperatorError."""
        found = self._now.tables.get(self._server.key(table.schema, table.name))
        if isinstance(found, KnownTable):
            wrong = disagreement(found.shape, table)
            if not wrong:
                return found.shape
            what = f"table {table.full_name} is not of the shape known: {wrong}"
        elif found is not None:
            what = f"the shape of table {table.full_name} is not known: {found}"
        else:
            what = f"table {table.full_name} has rows in the log, and no statement before made it"
        raise OperatorError(
            f"{where}: {what}",
            hint=f"If it is so now, remove {self._journal.path}, START. Else ALTER EXTRACT past it, load it again",
        )

    # --- statements ---------------------------------------------------------------------------------------------------

    def run(self, query: QueryText) -> Sequence[DdlChange | Truncated]:
        """Of ddl.query.Statements."""
        text = decoded(query)
        dialect = StatementDialect(self._server.flavour, self._server.version, query.sql_mode)
        try:
            statement = parse(text, dialect)
            if statement is None:
                return ()
            told = shown(text, dialect)
            changing = Changing(
                self._server, self._now.tables, self._now.databases, query.schema,
                StatementSession(dialect, query.time_us, query.zone), self._rules.captures, told,
            )  # fmt: skip
            effect = changing.run(statement)
            self._refuse_cascades(query, rules(text, dialect), statement, effect)
        except RowsError as error:
            raise OperatorError(
                f"{query.where}: rows were changed by a statement ({error}), which does not say which",
                hint="Set binlog_format = ROW in all sessions, ALTER EXTRACT to a place behind it, and load the tables "
                "again that it changed",
            ) from None
        except UnreadError as error:
            return self._unread(query, text, dialect, error)
        self._refuse_early(query, told, effect)
        self._keep(query.origin, effect.change)
        return [one for one in effect.told if isinstance(one, Truncated) or self._passes(query, told, one)]

    def _keep(self, place: Position, change: ShapeChange) -> None:
        """The journal first: what the trail has must be known again after a crash.

        One that somebody has deleted begins anew here, with all that is known.
        """
        if not (change.tables or change.databases):
            return
        is_there = self._journal.append(place, change)
        self._now.apply(change)
        if not is_there:
            self._journal.begin(Base(self._server.source, place, place, self._all()))

    def _passes(self, query: QueryText, told: str, change: DdlChange) -> bool:
        if self._rules.passes is not None:
            return self._rules.passes(change)
        if change.flags and change.old == change.new and any(self._rules.captures(*name) for name in change.names):
            raise OperatorError(
                f"{query.where}: rows of {change.full_name} came or went without being logged: {told}",
                hint="With DDL in both parameter files Replicat's DDLERROR decides. Else ALTER EXTRACT to a place "
                "behind it, and load the table again",
            )
        return False

    def _refuse_early(self, query: QueryText, told: str, effect: Effect) -> None:
        """Before the place where shapes were asked, a change builds on a shape from behind it."""
        if query.origin > self._unsure:
            return
        for key in effect.built_on:
            if key in self._now.asked and self._rules.captures(*key):
                raise OperatorError(
                    f"{query.where}: {'.'.join(key)} is changed here, and its shape was asked of the server only after "
                    f"that, at {self._unsure}: {told}",
                    hint="ALTER EXTRACT to a place behind its last change, and load it again",
                )

    def _refuse_cascades(self, query: QueryText, made: list[Cascade], statement: Statement, effect: Effect) -> None:
        """A key that the statement makes, or that a table has which comes into sight by its new name."""
        watch = self._rules.cascades
        if watch is None:
            return
        for old, new in _targets(statement):
            schema, table = self._key_of(query, new)
            is_made = not isinstance(statement, Create) or (schema, table) in effect.change.tables
            if not is_made or not self._rules.captures(schema, table):
                continue
            was_seen = self._rules.captures(*self._key_of(query, old))
            for key in made or (() if was_seen else watch.now(schema, table)):
                watch.met(query.where, schema, table, key)

    def _key_of(self, query: QueryText, name: TableName) -> Key:
        return self._server.key(name.schema or query.schema, name.name)

    def _unread(
        self, query: QueryText, text: str, dialect: StatementDialect, error: UnreadError
    ) -> Sequence[DdlChange | Truncated]:
        """A statement that is not understood: does no captured table stand in it, then it is of no interest."""
        found = names(text, dialect)
        low = {name.lower() for name in found or ()}
        schemas = {s for s in self._now.databases if s.lower() in low} | {self._server.fold(query.schema)}
        wanted = found is None or any(
            self._rules.captures(schema, self._server.fold(name)) for schema in schemas for name in found
        )
        touched = {key for key in self._now.tables if found is None or (key[0] in schemas and key[1].lower() in low)}
        if wanted or any(self._rules.captures(*key) for key in touched):
            raise OperatorError(
                f"{query.where}: a statement that may change a captured table is not understood: {error}. It is: "
                f"{shown(text, dialect)}",
                hint=PASS,
            )
        reason = f"a statement at {query.where} was not understood ({error})"
        self._keep(query.origin, ShapeChange(dict.fromkeys(touched, reason)))
        return ()


def _targets(statement: Statement) -> Sequence[tuple[TableName, TableName]]:
    """The tables that a statement may give a foreign key: by name before, and by name behind it."""
    match statement:
        case Create():
            return [(statement.table, statement.table)]
        case Alter():
            return [(statement.table, statement.renamed or statement.table)]
        case Rename(pairs):
            return pairs
    return ()


def decoded(query: QueryText) -> str:
    """The statement's text, by its session's character set."""
    try:
        return charsets.decoder(charsets.charset(query.charset or 45))(query.sql)
    except (UnreadValueError, UnicodeDecodeError):
        return query.sql.decode("utf-8", "surrogateescape")


def shown(text: str, dialect: StatementDialect) -> str:
    """A statement for people and the trail: on one line, not too long, and without what may be a password or a row."""
    flat = "".join(letter if letter.isprintable() else "?" for letter in hidden(text, dialect))
    return flat if len(flat) <= _SHOWN else f"{flat[:_SHOWN]} ..."


__all__ = ["REMOVE", "ShapeRules", "Shapes"]
