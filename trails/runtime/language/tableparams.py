"""TABLE and TABLEEXCLUDE of Extract and pump: text to clauses, and which clause a table falls under.

    TABLE sales.*, COLSEXCEPT (secret);
    TABLE sales.orders, COLS (id, total, place), COLGROUP (place, country), WHERE (total > 10),
        TOKENS (shop = 'Porto', csn = @GETENV ('TRANSACTION', 'CSN'));

Rule: one clause decides for a table: an exact name beats wildcards, a narrower wildcard a wider one. Clauses that
neither beats must say the same; where they don't, the table is refused with both lines, when it is met.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from trails.columns import FACTS, ColumnRule, Environment, Projection, Token, project, project_ddl
from trails.ddl import DdlChange
from trails.errors import OperatorError, ParamError
from trails.naming import ColumnName
from trails.record import TableDef
from trails.runtime.home.home import user_name
from trails.runtime.language.params import (
    Group,
    Literal,
    Pattern,
    Statement,
    Values,
    Word,
    did_you_mean,
    narrowest,
    table_pattern,
)
from trails.runtime.language.whereparams import row_filter

CONDITIONS = ("WHERE", "FILTER")
SHAPE = (
    "schema.table [, schema.table ...] [, COLS (column, ...) | COLSEXCEPT (column, ...)] [, COLGROUP (column, ...)] "
    "[, TOKENS (name = 'text' | name = @GETENV ('group', 'fact'), ...)] [, WHERE (condition)] "
    "[, FILTER ([{ON | IGNORE} {INSERT | UPDATE | DELETE}, ...] condition)];"
)
OPTIONS = ("COLS", "COLSEXCEPT", "COLGROUP", "TOKENS", *CONDITIONS)
_REPEATED = ("COLGROUP", *CONDITIONS)
BEFORES = "GETBEFORECOLS"
"""An option that only an Extract has: a pump sends the old rows that its trail has."""
ANY = "ANY"
"""Another one: a source whose columns hold values of any type gives each with its own."""
EXTRACT_SHAPE = SHAPE.replace("];", f"] [, {BEFORES} (ON UPDATE ALL)] [, {ANY} (column, ...)];")
COLUMN_HELP = (
    "docs/extract.md has the rules of the options:\n"
    "- COLS takes only these columns, COLSEXCEPT all but these. The key must stay.\n"
    "- COLGROUP names columns that travel together.\n"
    "- TOKENS are facts that are sent along with each change.\n"
    "- WHERE and FILTER send only the rows for which all conditions are true; FILTER with ON or IGNORE chooses "
    "operations. They compare columns with constants; FILTER computes, too (docs/extract.md)."
)
_COLUMN = re.compile(r'"(?P<quoted>(?:[^"]|"")+)"|(?P<plain>[^".*?=@]+)')
_TOKEN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$#-]*")
_TOKENS = "TOKENS (name = 'text', other = @GETENV ('TRANSACTION', 'CSN'))"


@dataclass(frozen=True, slots=True)
class TableClause:
    """One pattern of a TABLE, with the options of its statement."""

    pattern: Pattern
    rule: ColumnRule


# --- text -> clauses --------------------------------------------------------------------------------------------------


def clauses(statement: Statement) -> tuple[TableClause, ...]:
    """The parser of TABLE. Raises ParamError."""
    return _clauses(statement, OPTIONS)


def extract_clauses(statement: Statement) -> tuple[TableClause, ...]:
    """The parser of an Extract's TABLE. Raises ParamError.

    Where a filter asks how rows were, their changes carry it (GETUPDATEBEFORES).
    """
    found = _clauses(statement, (*OPTIONS, BEFORES, ANY))
    if not any(one.reads_old_rows for one in found[0].rule.filters):
        return found
    return tuple(replace(clause, rule=replace(clause.rule, befores=True)) for clause in found)


def _clauses(statement: Statement, options: Sequence[str]) -> tuple[TableClause, ...]:
    words = list(statement.words)
    named: list[Pattern] = []
    while words and not _is_option(words):
        named.append(table_pattern(statement, words.pop(0)))
    if not named:
        raise statement.error("schema.table, such as sales.*")
    rule = _options(statement, words, options)
    return tuple(TableClause(one, replace(rule, strict=one.exact is not None)) for one in named)


def _is_option(words: Sequence[Word]) -> bool:
    """Whether an option begins here: a known one, or a word that can't be a table."""
    first = words[0]
    return isinstance(first, str) and not isinstance(first, Literal) and "." not in first


def _options(statement: Statement, words: list[Word], options: Sequence[str]) -> ColumnRule:
    rule = ColumnRule(where=f"{statement.file}:{statement.line}")
    seen: set[str] = set()
    while words:
        name = str(words.pop(0)) if not isinstance(words[0], Group) else "("
        option = name.upper()
        if option not in options:
            expected = f"TABLE has no option {name}{did_you_mean(option, options)}"
            raise statement.wrong(f"{expected}. Its options are {', '.join(options)}")
        if option in seen and option not in _REPEATED:
            raise statement.wrong(f"{option} is given twice; expected one list")
        seen.add(option)
        given = words.pop(0) if words else None
        if not isinstance(given, Group) or not given:
            raise statement.error(f"a list in parentheses after {option}")
        rule = _with(statement, rule, option, given)
    if rule.only and rule.without:
        raise statement.wrong("expected COLS or COLSEXCEPT, found both")
    return rule


def _with(statement: Statement, rule: ColumnRule, option: str, given: Group) -> ColumnRule:
    if option in CONDITIONS:
        return replace(rule, filters=(*rule.filters, row_filter(statement, option, given)))
    if option == "TOKENS":
        return replace(rule, tokens=_tokens(statement, given))
    if option == BEFORES:
        # Where updates carry the whole old row deletes do too: the one does not go without the other.
        if " ".join(map(str, given)).upper() not in ("ON UPDATE ALL", "ON UPDATE ALL ON DELETE ALL"):
            raise statement.error(f"{BEFORES} (ON UPDATE ALL)")
        return replace(rule, befores=True)
    names = tuple(_column(statement, option, word) for word in given)
    if len(set(names)) < len(names):
        raise statement.wrong(f"{option} names a column twice")
    if option == "COLS":
        return replace(rule, only=names)
    if option == "COLSEXCEPT":
        return replace(rule, without=names)
    if option == ANY:
        return replace(rule, anys=names)
    if len(names) < 2:
        raise statement.wrong("COLGROUP expected two columns or more")
    return replace(rule, groups=(*rule.groups, names))


def _column(statement: Statement, option: str, word: Word) -> ColumnName:
    found = _COLUMN.fullmatch(word) if isinstance(word, str) and not isinstance(word, Literal) else None
    if found is None:
        raise statement.error(f'names of columns in {option}, such as id or "Order No"', word)
    if found["quoted"] is not None:
        return ColumnName(found["quoted"].replace('""', '"'), quoted=True)
    return ColumnName(found["plain"])


def _tokens(statement: Statement, given: Group) -> tuple[Token, ...]:
    # `name='text'` and `name = 'text'` are the same.
    words: list[Word] = []
    for word in given:
        if isinstance(word, Literal | Group):
            words.append(word)
        else:
            words += [part for part in re.split("(=)", word) if part]
    found: dict[str, Token] = {}
    while words:
        token = _token(statement, words)
        if token.name in found:
            raise statement.wrong(f"TOKENS: {token.name} is given twice")
        found[token.name] = token
    return tuple(found.values())


def _token(statement: Statement, words: list[Word]) -> Token:
    """Takes one `name = value` from the front."""
    name, equals, value = (words.pop(0) if words else "" for _ in range(3))
    if isinstance(name, Literal | Group) or not _TOKEN_NAME.fullmatch(name) or equals != "=":
        raise statement.error(_TOKENS, " ".join(str(word) for word in (name, equals) if word) or None)
    if isinstance(value, Literal):
        return Token(name.upper(), literal=value)
    if isinstance(value, Group) or not value.startswith("@"):
        raise statement.error(f"'text' or @GETENV (...) for token {name}", value)
    if value.upper() != "@GETENV":
        raise statement.wrong(
            f"TOKENS: function {value} is not known here; Extract and pump know @GETENV only "
            "(a Replicat's COLMAP has them all)"
        )
    arguments = words.pop(0) if words else None
    if not isinstance(arguments, Group) or not all(isinstance(one, str) for one in arguments):
        raise statement.error("@GETENV ('group', 'fact')", value)
    # Older files have "text"; no name of a column can stand here.
    return Token(name.upper(), fact=_fact(statement, [str(one).strip('"') for one in arguments]))


def _fact(statement: Statement, arguments: list[str]) -> tuple[str, str]:
    shown = "@GETENV ({})".format(", ".join(f"'{one}'" for one in arguments))
    group = arguments[0].upper() if arguments else ""
    if group not in FACTS:
        near = did_you_mean(group, FACTS)
        raise statement.wrong(f"TOKENS: {shown}: expected one of {', '.join(FACTS)}, found {group or 'nothing'}{near}")
    if len(arguments) != 2 or not arguments[1]:
        raise statement.wrong(f"TOKENS: {shown}: expected two arguments, a group and a fact")
    if group == "OSVARIABLE":
        return group, arguments[1]
    name = arguments[1].upper()
    if name not in FACTS[group]:
        near = did_you_mean(name, FACTS[group])
        known = ", ".join(FACTS[group])
        raise statement.wrong(f"TOKENS: {shown}: Extract and pump know of {group}: {known}; found {name}{near}")
    return group, name


def patterns(statement: Statement) -> tuple[Pattern, ...]:
    """The parser of TABLEEXCLUDE: a list of tables."""
    if not statement.words:
        raise statement.error("schema.table, such as sales.*")
    return tuple(table_pattern(statement, word) for word in statement.words)


# --- which clause a table falls under ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TableRules:
    """TABLE and TABLEEXCLUDE of one file. `every`: without any TABLE, every table is meant."""

    clauses: tuple[TableClause, ...] = ()
    excluded: tuple[Pattern, ...] = ()
    every: bool = False

    @classmethod
    def of(
        cls,
        values: Values,
        *,
        every: bool = False,
        befores: Collection[Statement] = (),
        ignored: Mapping[int, frozenset[int]] | None = None,
    ) -> TableRules:
        """What a checked file says. Raises the ParamError of two TABLEs that can never both be obeyed.

        `befores`: the TABLEs that stand under GETUPDATEBEFORES. `ignored`: by id of a TABLE's statement, the operations
        that the switches in force there leave out (switches.py).
        """
        wanting = {id(statement) for statement in befores}
        found = [
            replace(clause, rule=_switched(clause.rule, id(statement) in wanting, (ignored or {}).get(id(statement))))
            for statement, some in values.found.get("TABLE", ())
            for clause in some
        ]
        for i, second in enumerate(found):
            for first in found[:i]:
                if _alike(first, second) and first.rule != second.rule:
                    raise ParamError(
                        f"{second.rule.where}: TABLE: expected {second.pattern} once, or with the same options; "
                        f"found {first.pattern} in {first.rule.where} with others"
                    )
        return cls(tuple(found), tuple(one for some in values.all("TABLEEXCLUDE") for one in some), every)

    def wants(self, schema: str, name: str) -> bool:
        """Whether the rules take this table."""
        wanted = any(clause.pattern.matches(schema, name) for clause in self.clauses)
        return (wanted or (self.every and not self.clauses)) and not any(
            pattern.matches(schema, name) for pattern in self.excluded
        )

    @property
    def has_columns(self) -> bool:
        """Whether any clause changes what is sent of its tables."""
        return any(not clause.rule.is_plain for clause in self.clauses)

    def rule(self, schema: str, name: str) -> ColumnRule | None:
        """What changes what is sent of a table; None if nothing does. OperatorError if clauses say different things."""
        rule = self._rule(schema, name)
        return None if rule is None or rule.is_plain else rule

    def befores(self, schema: str, name: str) -> str:
        """The file:line of the clause by which a table's changes carry their whole old rows; empty if they need not.

        Raises as rule().
        """
        rule = self._rule(schema, name)
        return rule.where if rule is not None and rule.befores else ""

    def anys(self, schema: str, name: str, columns: Sequence[str]) -> tuple[str, ...]:
        """Those of a table's columns whose values carry their own type. Raises as rule()."""
        rule = self._rule(schema, name)
        named = () if rule is None else rule.anys
        return tuple(columns[i] for column in named for i in column.find(columns))

    def _rule(self, schema: str, name: str) -> ColumnRule | None:
        found = [clause for clause in self.clauses if clause.pattern.matches(schema, name)]
        if not found:
            return None
        best = [found[i] for i in narrowest([clause.pattern for clause in found])]
        for other in best[1:]:
            if other.rule != best[0].rule:
                raise OperatorError(
                    f"{other.rule.where}: TABLE {schema}.{name}: ambiguous: {best[0].pattern} of {best[0].rule.where} "
                    f"and {other.pattern} of {other.rule.where} both match, with different options",
                    hint="Give the table a TABLE clause of its own",
                )
        return best[0].rule

    def projector(self, environment: Environment) -> Projector | None:
        """What asks for a table's Projection; None if no clause has options, so that nobody needs to ask."""
        return Projector(self, environment) if self.has_columns else None


def _switched(rule: ColumnRule, befores: bool, ignored: frozenset[int] | None) -> ColumnRule:
    return replace(rule, befores=rule.befores or befores, ignored=ignored or rule.ignored)


def _alike(first: TableClause, second: TableClause) -> bool:
    return first.pattern.covers(second.pattern) and second.pattern.covers(first.pattern)


class Projector:
    """Projections by definition, each made once. Called with a TableDef; None: it stays as it is."""

    def __init__(self, rules: TableRules, environment: Environment) -> None:
        self._rules = rules
        self._environment = environment
        self._known: dict[bytes, Projection | None] = {}

    def __call__(self, table: TableDef) -> Projection | None:
        """Raises OperatorError if the table's clause can't be obeyed."""
        try:
            return self._known[table.id]
        except KeyError:
            rule = self._rules.rule(table.schema, table.name)
            made = self._known[table.id] = None if rule is None else project(rule, table, self._environment)
            return made

    def ddl(self, change: DdlChange) -> DdlChange | None:
        """A change of shape as the rules let it through; None if it only concerns columns that they leave out."""
        return project_ddl(change, self._rules.rule)

    def faults(self, tables: Iterable[TableDef]) -> list[OperatorError]:
        """For START: every table whose clause can't be obeyed."""
        found = []
        for table in tables:
            try:
                self(table)
            except OperatorError as error:
                found.append(error)
        return found


def environment(group: str, host: str) -> Environment:
    """GGENVIRONMENT and OSVARIABLE of this Extract or pump; a variable that is not set is NULL."""
    facts: dict[str, Callable[[], str]] = {
        "GROUPNAME": lambda: group,
        "GROUPTYPE": lambda: "EXTRACT",
        "HOSTNAME": lambda: host,
        "OSUSERNAME": user_name,
        "PROCESSID": lambda: str(os.getpid()),
    }

    def value(kind: str, name: str) -> str | None:
        return os.environ.get(name) if kind == "OSVARIABLE" else facts[name]()

    return value
