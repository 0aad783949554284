"""Options of a TABLE clause: a definition to the one the trail gets, and its images.

Rule: pure, and nothing for a table that stays as it is: `project` gives None then, and nobody looks at its rows. Where
it gives a Projection, every record of the table goes through `record`. What can't be obeyed is refused when the
definition is met, before any row of it: a column that an exactly named table lacks, a key column left out. (Under a
wildcard, columns that a table lacks are passed over.)

Tokens are columns of the logical type `token` behind all others, named in upper case. Their type tells them from a
column of the same name. They hold facts of the change, so an update's before image has the same ones as its after.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, Final, Protocol

from trails.choosing import Choice, TableFilter, chosen
from trails.ddl import DDL_FILLED, DDL_USING, DdlChange, TableShape
from trails.errors import OperatorError
from trails.naming import TOKEN, ColumnName, shown_key
from trails.record import MISSING, Column, Image, Op, Record, TableDef, Value, time_of

FACTS: Final[dict[str, tuple[str, ...]]] = {
    "TRANSACTION": ("XID", "TRANSACTIONID", "CSN"),
    "GGHEADER": ("COMMITTIMESTAMP", "OPTYPE", "TABLENAME", "OBJECTNAME"),
    "GGENVIRONMENT": ("GROUPNAME", "GROUPTYPE", "HOSTNAME", "OSUSERNAME", "PROCESSID"),
    "OSVARIABLE": (),
}
"""What @GETENV knows here. OSVARIABLE takes any name."""

Environment = Callable[[str, str], str | None]
"""(group, name) of a GGENVIRONMENT or OSVARIABLE fact -> its value; it never changes in a process's life."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token: a literal, or the fact `@GETENV(fact[0], fact[1])`."""

    name: str
    literal: str = ""
    fact: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """The options of one TABLE clause. `where` is its file:line; `strict`: it names its table without a wildcard.

    `befores`: its changes carry their whole old rows (GETUPDATEBEFORES); `anys`: columns whose values carry their own
    type (ANY). Both are the source's affair: here they change nothing.
    """

    only: tuple[ColumnName, ...] = ()
    without: tuple[ColumnName, ...] = ()
    groups: tuple[tuple[ColumnName, ...], ...] = ()
    tokens: tuple[Token, ...] = ()
    filters: tuple[TableFilter, ...] = ()
    ignored: frozenset[int] = frozenset()
    befores: bool = False
    anys: tuple[ColumnName, ...] = ()
    strict: bool = field(default=True, compare=False)
    where: str = field(default="", compare=False)

    @property
    def is_plain(self) -> bool:
        """Nothing that changes what is sent: every table goes as it is."""
        return not (self.only or self.without or self.groups or self.tokens or self.filters or self.ignored)


class Projection:
    """What becomes of one table's records: `definition` is what the trail gets.

    `choice`: which of them go at all, asked before `record`; None: all. `kept`: the columns whose values are needed.
    """

    __slots__ = (
        "_begin", "_constant", "_pick", "_source", "_tails", "_together", "_tokens", "choice", "definition", "kept",
    )  # fmt: skip

    def __init__(
        self,
        source: TableDef,
        definition: TableDef,
        kept: Sequence[int],
        together: Sequence[int] = (),
        tokens: Sequence[Callable[[Any, int], Value] | Value] = (),
        choice: Choice | None = None,
    ) -> None:
        """`kept`: source columns in the image; `together`: those that an update must have; then the tokens."""
        self.definition = definition
        self.choice = choice
        self.kept = frozenset(kept) | (choice.reads if choice is not None else frozenset())
        self._source = source
        self._together = tuple(together)
        self._pick = _picker(kept, len(source.columns))
        self._tokens = tuple(tokens)
        self._constant = None if any(callable(token) for token in tokens) else tuple(tokens)
        self._begin: Any = None
        self._tails: dict[int, tuple[Any, ...]] = {}

    def record(self, record: Record, begin: Any) -> Record:
        """An INSERT, UPDATE or DELETE as the trail gets it. `begin`: the BEGIN record of its transaction.

        Raises OperatorError if a column of a COLGROUP is missing, and nobody knows its value.
        """
        op = record[0]
        if self._together and op == Op.UPDATE:
            record = self._completed(record, begin)
        tail = self._constant
        if tail is None:
            tail = self._facts(op, begin)
        pick = self._pick
        return (op, record[1], *(image if image is None else pick(image) + tail for image in record[2:]))

    def _facts(self, op: int, begin: Any) -> tuple[Any, ...]:
        """The tokens' values: the same for all changes of one kind in one transaction."""
        if begin is not self._begin:
            self._begin, self._tails = begin, {}
        tail = self._tails.get(op)
        if tail is None:
            tail = self._tails[op] = tuple(t(begin, op) if callable(t) else t for t in self._tokens)
        return tail

    def _completed(self, record: Record, begin: Any) -> Record:
        """The update with the columns that travel together, from the old row where they are as they were."""
        after, before = record[2], record[3]
        lacking = [i for i in self._together if after[i] is MISSING]
        if not lacking:
            return record
        whole = list(after)
        for i in lacking:
            if before is None or before[i] is MISSING:
                raise self._incomplete(i, after, begin)
            whole[i] = before[i]
        return (record[0], record[1], whole, before)

    def _incomplete(self, column: int, after: Image, begin: Any) -> OperatorError:
        table = self._source
        return OperatorError(
            f"table {table.full_name}, row {shown_key(table, after)}, CSN {begin[1]}: an update lacks column "
            f"{table.columns[column].name} of a COLGROUP, and so does its old row",
            hint=f"ADD TRANDATA {table.full_name} at the source has later updates carry it",
        )


def project(rule: ColumnRule, table: TableDef, environment: Environment) -> Projection | None:
    """What a rule makes of a table; None if it stays as it is. Raises OperatorError if it can't be obeyed."""
    plain = [i for i, column in enumerate(table.columns) if column.type != TOKEN]
    keep, together = _Chooser(rule, table, plain).chosen()
    named = {token.name for token in rule.tokens}
    older = [i for i, column in enumerate(table.columns) if column.type == TOKEN and column.name not in named]
    kept = [*keep, *older]
    choice = chosen(rule.filters, rule.ignored, rule.where, table)
    if len(kept) == len(table.columns) and not rule.tokens and not together and choice is None:
        return None
    columns = [table.columns[i] for i in kept] + [Column(token.name, TOKEN, "") for token in rule.tokens]
    values = [_value(token, table, environment) for token in rule.tokens]
    return Projection(table, replace(table, columns=tuple(columns)), kept, together, values, choice)


def project_ddl(change: DdlChange, rule: Callable[[str, str], ColumnRule | None]) -> DdlChange | None:
    """A change of shape as somebody sees it who gets only the rules' columns; None if nothing is left of it.

    `rule(schema, table)`: a renamed table may fall under another one, and so gain or lose columns by it.

    A shape that the rule can't be obeyed for is refused with its first row, not here: it may never have one. Where a
    column is left out, so is the statement: it may tell of it.
    """
    old, new = (
        shape and _shape(rule(shape.schema, shape.name) or ColumnRule(), shape) for shape in (change.old, change.new)
    )
    if (old, new) == (change.old, change.new):
        return change
    return None if old == new else replace(change, old=old, new=new, sql="", flags=_flags(change, old, new))


def _flags(change: DdlChange, old: TableShape | None, new: TableShape | None) -> int:
    """The change's flags without the reasons that only concern columns that are left out.

    A column that was left out so far, and comes into sight by a rename, brings values that are not in the trail.
    """
    flags = change.flags
    if change.old is None or old is None or new is None:
        return flags
    before = old.by_number
    if not any(c.number in before and before[c.number].native != c.native for c in new.columns):
        flags &= ~DDL_USING
    added = {c.number for c in new.columns} - before.keys()
    if not added:
        flags &= ~DDL_FILLED
    elif added & change.old.by_number.keys():
        flags |= DDL_FILLED
    return flags


def _shape(rule: ColumnRule, shape: TableShape) -> TableShape:
    names = [column.name for column in shape.columns]
    columns = tuple(Column(name, "", "", name in shape.key) for name in names)
    table = TableDef(shape.schema, shape.name, columns)
    keep, _ = _Chooser(rule, table, range(len(names)), forgiving=True).chosen()
    kept = {names[i] for i in keep}
    return shape.keeping(lambda name: name in kept)


class _Chooser:
    """Which columns of one table a rule takes, and which of them an update must have. `forgiving`: never raises."""

    def __init__(self, rule: ColumnRule, table: TableDef, plain: Sequence[int], *, forgiving: bool = False) -> None:
        self._rule = rule
        self._table = table
        self._plain = plain
        self._names = [table.columns[i].name for i in plain]
        self._forgiving = forgiving

    def chosen(self) -> tuple[list[int], list[int]]:
        """(columns kept, those of them that are in a COLGROUP)."""
        rule, table = self._rule, self._table
        groups = [self._found("COLGROUP", names) for names in rule.groups]
        kept = set(self._plain)
        if rule.only:
            kept = _grown(self._found("COLS", rule.only), groups)
        if rule.without:
            kept -= _grown(self._found("COLSEXCEPT", rule.without), groups)
        lost = [table.columns[i].name for i in table.key if i not in kept]
        if lost and not self._forgiving:
            word = "COLS" if rule.only else "COLSEXCEPT"
            raise self._wrong(
                f"{word} leaves out key column {', '.join(lost)}: without it nobody knows which row a change is of",
                f"Name it in {word}" if rule.only else f"Take it (or its COLGROUP) out of {word}",
            )
        if not kept and self._plain and not self._forgiving:
            raise self._wrong("no column is left", "Leave the table out with TABLEEXCLUDE, or name a column it has")
        kept.update(table.key)
        return sorted(kept), sorted(kept & {i for group in groups for i in group})

    def _found(self, option: str, names: Iterable[ColumnName]) -> set[int]:
        """The columns that are named; under a wildcard without those that the table lacks."""
        found: set[int] = set()
        for name in names:
            at = name.find(self._names)
            if len(at) > 1 and not self._forgiving:
                which = ", ".join(f'"{self._names[i]}"' for i in at)
                raise self._wrong(f"{option}: {name} may be {which}", "Name it in double quotes")
            if not at and self._rule.strict and not self._forgiving:
                raise self._wrong(
                    f"{option}: the table has no column {name}; its columns are {', '.join(self._names)}",
                    "Mend the clause. If rows of an older shape are on their way, write the table with a wildcard "
                    "(sales.order?), which passes over missing columns",
                )
            found.update(self._plain[i] for i in at)
        return found

    def _wrong(self, what: str, mend: str) -> OperatorError:
        return OperatorError(f"{self._rule.where}: TABLE {self._table.full_name}: {what}", hint=mend)


def _grown(columns: set[int], groups: Sequence[Collection[int]]) -> set[int]:
    """The columns with all that travel together with any of them, over groups that share a column too."""
    grown = set(columns)
    while True:
        more = {i for group in groups if grown.intersection(group) for i in group} - grown
        if not more:
            return grown
        grown |= more


def _picker(kept: Sequence[int], width: int) -> Callable[[Image], tuple[Any, ...]]:
    if list(kept) == list(range(width)):
        return tuple
    if len(kept) > 1:
        return itemgetter(*kept)
    return lambda image: tuple(image[i] for i in kept)


def _value(token: Token, table: TableDef, environment: Environment) -> Callable[[Any, int], Value] | Value:
    """A token's value: fixed, or a function of the transaction's BEGIN record and the operation."""
    if token.fact is None:
        return token.literal
    match token.fact:
        case ("TRANSACTION", "CSN"):
            return lambda begin, _: begin[1]
        case ("TRANSACTION", _):
            return lambda begin, _: begin[2]
        case ("GGHEADER", "COMMITTIMESTAMP"):
            return lambda begin, _: _stamp(begin[3])
        case ("GGHEADER", "OPTYPE"):
            return lambda _, op: Op(op).name
        case ("GGHEADER", _):
            return table.full_name
        case (group, name):
            return environment(group, name)


def _stamp(time_us: int) -> str:
    """A commit time as GoldenGate writes it, in UTC."""
    return f"{time_of(time_us):%Y-%m-%d %H:%M:%S.%f}"


class Project(Protocol):
    """What of a `tableparams.Projector` is used here: the TABLE options that leave columns out or add tokens."""

    def __call__(self, table: TableDef) -> Projection | None:
        """What becomes of a table's rows; None: they stay as they are."""
        ...

    def ddl(self, change: DdlChange) -> DdlChange | None:
        """A change of shape without the columns that are left out; None if nothing is left of it."""
        ...
