"""MAP: its options (a table, which HELP and docs/parameters.md show), and from its text to a MapRule.

Rule: every mistake of one MAP is told at once, each with its own line. Expressions are looked at only as far as needs
no Spark: GoldenGate's @functions by name and number of arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from replicat.conflicts import params as conflictparams
from replicat.expressions.functions import translate
from replicat.mapping.clauses import Clause, Reader
from replicat.mapping.params import OPERATIONS, Assignment, Condition, ExceptionRule, MapRule, Toggles
from replicat.refused.rules import rule_of_text
from trails.errors import ParamError
from trails.runtime.params import ParamErrors, Pattern, Statement, did_you_mean

SHAPE = "source.table, TARGET target.table [, option ...];"
MOST_WEIGHT = 1_000_000
NOT_OURS = (
    "SQLEXEC", "EVENTACTIONS", "THREAD", "THREADRANGE", "COORDINATED", "DEF", "TARGETDEF", "INSERTAPPEND", "TRIMSPACES",
    "NOTRIMSPACES", "TOKENS", "SQLPREDICATE", "PARTITION",
)  # fmt: skip
"""Options of GoldenGate's MAP that are refused by name, without a guess at what was meant."""

Found = dict[str, Any]
Read = Callable[[Clause], Found]


@dataclass(frozen=True, slots=True)
class MapOption:
    """One option of MAP. `takes` is what follows its name: a group in parentheses, a word, or nothing.

    `read` gives fields of a MapRule; those of an option that repeats are tuples, put one behind another.
    """

    name: str
    shape: str
    help: str
    example: str
    read: Read
    takes: str = "group"
    repeats: bool = False


def parse_map(statement: Statement) -> MapRule:
    """A whole MAP. Raises ParamErrors with every mistake in it."""
    clause = Clause(statement, statement.text)
    reader = Reader(clause)
    source = reader.word()
    keyword, target = reader.word(), reader.word()
    if source is None or keyword is None or target is None or keyword.text.upper() != "TARGET":
        raise statement.error(SHAPE)
    errors: list[ParamError] = []
    found: Found = {"where": f"{statement.file}:{statement.line}"}
    reads: tuple[Callable[[], Found], ...] = (
        lambda: {"source": _pattern(source)},
        lambda: {"target": _target(target)},
        lambda: _options(reader, MAP_OPTIONS, "MAP"),
    )
    for read in reads:
        try:
            found |= read()
        except ParamErrors as several:
            errors += several.errors
        except ParamError as error:
            errors.append(error)
    errors += _contradictions(clause, found)
    if errors:
        raise ParamErrors(errors)
    return MapRule(**found)


def _options(reader: Reader, table: dict[str, MapOption], of: str) -> Found:
    """Options up to the end; those that repeat are gathered."""
    found: Found = {}
    seen: dict[str, Clause] = {}
    errors: list[ParamError] = []
    while not reader.rest_is_empty():
        try:
            name, value = _option(reader, table, of, seen)
            for field, item in value.items():
                found[field] = found.get(field, ()) + item if table[name].repeats else item
        except ParamErrors as several:
            errors += several.errors
        except ParamError as error:
            errors.append(error)
    if errors:
        raise ParamErrors(errors)
    return found


def _option(reader: Reader, table: dict[str, MapOption], of: str, seen: dict[str, Clause]) -> tuple[str, Found]:
    word = reader.word()
    if word is None:
        raise reader.stray().expected(f"an option of {of}")
    option = table.get(word.text.upper())
    if option is None:
        reader.group()  # what belongs to it is no mistake of its own
        if word.text.upper() in NOT_OURS:
            raise word.wrong(f"option {word.text.upper()} is not supported")
        raise word.wrong(f"{of} has no option {word.text}{did_you_mean(word.text, table)}")
    argument = _argument(reader, option, word)
    if option.name in seen and not option.repeats:
        raise word.wrong(f"expected {option.name} once, found again (first in line {seen[option.name].line})")
    seen[option.name] = word
    return option.name, option.read(argument)


def _argument(reader: Reader, option: MapOption, word: Clause) -> Clause:
    if not option.takes:
        return word
    argument = reader.group() if option.takes == "group" else reader.word()
    if argument is None:
        raise word.wrong(f"expected {option.name} {option.shape}, found no argument")
    return argument


def _contradictions(clause: Clause, found: Found) -> list[ParamError]:
    """Options that can't stand together."""
    errors = []
    if found.get("columns") and found.get("columns_except"):
        errors.append(clause.wrong("expected COLS or COLSEXCEPT, found both"))
    if found.get("exceptions_only"):
        options = {"MAPEXCEPTION": "exception", "RESOLVECONFLICT": "resolve", "COMPARECOLS": "compare"}
        wrong = [name for name, field in options.items() if field in found]
        errors += [clause.wrong(f"{name} has no meaning in a MAP with EXCEPTIONSONLY") for name in wrong]
    if not found.get("use_defaults", True) and not found.get("colmap"):
        errors.append(clause.wrong("COLMAP names no column; expected USEDEFAULTS, or column = expression"))
    types = [rule.type for rule in found.get("resolve", ())]
    twice = sorted({name for name in types if types.count(name) > 1})
    errors += [clause.wrong(f"expected RESOLVECONFLICT for {name} once, found it again") for name in twice]
    return errors


# --- names ----------------------------------------------------------------------------------------------------------


def _pattern(clause: Clause) -> Pattern:
    if "'" in clause.text:
        raise clause.expected("schema.table, such as sales.*, without 'quotes'")
    try:
        return Pattern(clause.text)
    except ValueError as error:
        raise clause.expected(str(error)) from None


def _target(clause: Clause) -> Pattern:
    target = _pattern(clause)
    if not target.is_target:
        raise clause.expected("a target with at most one * in each part and no ?, such as public.* or public.copy_*")
    return target


# --- options --------------------------------------------------------------------------------------------------------


def _colmap(clause: Clause) -> Found:
    use_defaults = False
    pairs: list[Assignment] = []
    errors: list[ParamError] = []
    for item in clause.items():
        if item.text.upper() == "USEDEFAULTS":
            use_defaults = True
            continue
        try:
            column, value = item.assignment()
            pairs.append(Assignment(column, value.text, item.where))
            check_expression(value)
        except ParamError as error:
            errors.append(error)
    names = [pair.column for pair in pairs]
    errors += [
        ParamError(f"{pair.where}: {clause.statement.keyword}: COLMAP names column {pair.column} twice")
        for i, pair in enumerate(pairs)
        if pair.column in names[:i]
    ]
    if errors:
        raise ParamErrors(errors)
    return {"use_defaults": use_defaults, "colmap": tuple(pairs)}


def check_expression(clause: Clause, *, condition: bool = False) -> None:
    """What can be known of an expression without Spark; ParamError at its place."""
    translate(clause.text, f"{clause.where}: {clause.statement.keyword}", condition=condition)


_ON = re.compile(rf"(ON|IGNORE)\s+({'|'.join(OPERATIONS)})", re.IGNORECASE)


def _filter(clause: Clause) -> Found:
    on: set[str] = set()
    ignored: set[str] = set()
    rest: list[Clause] = []
    for item in clause.items():
        match = _ON.fullmatch(item.text)
        if item.text.upper().startswith("RAISEERROR"):
            raise item.wrong("RAISEERROR is not supported: what does not pass a FILTER is left out")
        if match is None:
            rest.append(item)
        else:
            (on if match[1].upper() == "ON" else ignored).add(match[2].upper())
    if len(rest) != 1:
        found = ", ".join(item.text for item in rest)
        raise clause.expected("([ON INSERT | UPDATE | DELETE, ...] condition)", found)
    check_expression(rest[0], condition=True)
    if ignored:
        on = (on or set(OPERATIONS)) - ignored
        if not on:
            raise clause.wrong("FILTER ignores every operation")
    return {"conditions": (Condition(rest[0].text, rest[0].where, frozenset(on)),)}


def _where(clause: Clause) -> Found:
    if not clause.text:
        raise clause.expected("(condition)")
    check_expression(clause, condition=True)
    return {"conditions": (Condition(clause.text, clause.where, keyword="WHERE"),)}


def _names(field: str) -> Read:
    return lambda clause: {field: clause.names()}


def _switch(field: str, on: bool) -> Read:
    return lambda _clause: {"overrides": ((field, on),)}


def _reperror(clause: Clause) -> Found:
    rule = rule_of_text(f"({clause.text})", lambda expected, found: clause.expected(f"REPERROR {expected}", str(found)))
    return {"error_rules": (rule,)}


def _mapexception(clause: Clause) -> Found:
    reader = Reader(clause)
    keyword, target = reader.word(), reader.word()
    if keyword is None or target is None or keyword.text.upper() != "TARGET":
        raise clause.expected("(TARGET schema.table [, COLMAP (...)])")
    table = {name: MAP_OPTIONS[name] for name in ("COLMAP", "INSERTALLRECORDS")}
    found = _options(reader, table, "MAPEXCEPTION")
    found.pop("overrides", None)  # an exceptions table gets a row for each change in any case
    errors = _contradictions(clause, found)
    if errors:
        raise ParamErrors(errors)
    return {"exception": ExceptionRule(_target(target), clause.where, **found)}


def _weight(clause: Clause) -> Found:
    if not (clause.text.isascii() and clause.text.isdecimal() and int(clause.text[:18]) <= MOST_WEIGHT):
        raise clause.expected(f"a whole number from 0 to {MOST_WEIGHT}")
    return {"weight": int(clause.text)}


def _of(*options: MapOption) -> dict[str, MapOption]:
    return {option.name: option for option in options}


MAP_OPTIONS = _of(
    MapOption(
        "COLMAP",
        "([USEDEFAULTS,] target column = expression, ...)",
        "What the target's columns get: Spark SQL over the source's columns, `before.column`, `token.name` and the "
        "change's own facts. Columns not named get the source's column of their name if USEDEFAULTS is there, else "
        "nothing.",
        "MAP sales.orders, TARGET public.orders, COLMAP (USEDEFAULTS, total = price * amount, source = 'sales');",
        _colmap,
    ),
    MapOption(
        "WHERE",
        "(condition)",
        "Only rows for which it is true belong to the target: an update that makes it false becomes a delete, one "
        "that makes it true an insert. Several must all be true.",
        "MAP sales.orders, TARGET public.orders, WHERE (region = 'EU');",
        _where,
        repeats=True,
    ),
    MapOption(
        "FILTER",
        "([{ON | IGNORE} {INSERT | UPDATE | DELETE}, ...] condition)",
        "As WHERE. With ON it does not choose rows but operations: one that is named and for which the condition is "
        "not true is left out.",
        "MAP sales.orders, TARGET public.orders, FILTER (ON DELETE, status = 'open');",
        _filter,
        repeats=True,
    ),
    MapOption(
        "KEYCOLS",
        "(target column, ...)",
        "The columns that tell the target's rows apart, in place of the source's key. Before images must carry what "
        "they come from.",
        "MAP sales.orders, TARGET public.orders, KEYCOLS (order_no);",
        _names("key_columns"),
    ),
    MapOption(
        "COLS",
        "(source column, ...)",
        "Only these columns of the source are mapped; the key must be among them.",
        "MAP sales.orders, TARGET public.orders, COLS (id, status);",
        _names("columns"),
    ),
    MapOption(
        "COLSEXCEPT",
        "(source column, ...)",
        "All columns of the source but these are mapped.",
        "MAP sales.orders, TARGET public.orders, COLSEXCEPT (note);",
        _names("columns_except"),
    ),
    MapOption(
        "INSERTALLRECORDS",
        "",
        "Every change becomes a new row: a history table.",
        "MAP sales.orders, TARGET history.orders, INSERTALLRECORDS, COLMAP (USEDEFAULTS, op = change.operation);",
        _switch("insert_all", True),
        takes="",
        repeats=True,
    ),
    MapOption(
        "HANDLECOLLISIONS",
        "",
        "This MAP overlays rows that are there already, and passes over rows that are not.",
        "MAP sales.orders, TARGET public.orders, HANDLECOLLISIONS;",
        _switch("collisions", True),
        takes="",
        repeats=True,
    ),
    MapOption(
        "NOHANDLECOLLISIONS",
        "",
        "This MAP does not, whatever HANDLECOLLISIONS before it says.",
        "MAP sales.orders, TARGET public.orders, NOHANDLECOLLISIONS;",
        _switch("collisions", False),
        takes="",
        repeats=True,
    ),
    MapOption(
        "REPERROR",
        "(as the parameter REPERROR)",
        "What becomes of this MAP's changes that the target refuses; counts before the global rules.",
        "MAP sales.orders, TARGET public.orders, REPERROR (23514, DISCARD);",
        _reperror,
        repeats=True,
    ),
    MapOption(
        "MAPEXCEPTION",
        "(TARGET schema.table [, COLMAP (...)])",
        "The exceptions table of this MAP: it gets a row for each change that REPERROR gives to EXCEPTION.",
        "MAP sales.*, TARGET public.*, REPERROR (DEFAULT, EXCEPTION), MAPEXCEPTION (TARGET public.exceptions, "
        "COLMAP (source = change.table, op = change.operation));",
        _mapexception,
    ),
    MapOption(
        "EXCEPTIONSONLY",
        "",
        "This MAP takes nothing but changes that REPERROR gives to EXCEPTION in the other MAPs of its source; each "
        "becomes a new row.",
        "MAP sales.orders, TARGET public.orders_exceptions, EXCEPTIONSONLY;",
        lambda _clause: {"exceptions_only": True},
        takes="",
    ),
    MapOption(
        "COMPARECOLS",
        "(ON {UPDATE | DELETE} {ALL | KEY | KEYINCLUDING (column, ...) | ALLEXCLUDING (column, ...)}, ...)",
        "Which columns of the target's row must be as the change's before image says; if they are not, it is a "
        "conflict. Only the key if not given.",
        "MAP sales.orders, TARGET public.orders, COMPARECOLS (ON UPDATE ALL, ON DELETE KEYINCLUDING (changed_at));",
        conflictparams.compare_cols,
    ),
    MapOption(
        "RESOLVECONFLICT",
        "(conflict, [(name, method, COLS (column, ...)), ...] (DEFAULT, method))",
        "What a conflict comes to. Conflicts: INSERTROWEXISTS, UPDATEROWEXISTS, UPDATEROWMISSING, DELETEROWEXISTS, "
        "DELETEROWMISSING. Methods: OVERWRITE, IGNORE, DISCARD, USEMAX (column), USEMAXEQ, USEMIN, USEMINEQ, USEDELTA.",
        "MAP sales.orders, TARGET public.orders, COMPARECOLS (ON UPDATE ALL), RESOLVECONFLICT (UPDATEROWEXISTS, "
        "(sums, USEDELTA, COLS (total)), (DEFAULT, USEMAX (changed_at)));",
        conflictparams.resolve_conflict,
        repeats=True,
    ),
    MapOption(
        "WEIGHT",
        "n",
        "Where a target can't apply all tables in one transaction: tables of lower weight come first; 0 if not given.",
        "MAP sales.orders, TARGET public.orders, WEIGHT 2;",
        _weight,
        takes="word",
    ),
)


# --- switches that hold for the MAPs behind them ----------------------------------------------------------------------

SWITCHES: dict[str, str] = {
    "INSERTALLRECORDS": "Every change becomes a new row, in the order of the source: a history table. It needs no key.",
    "INSERTDELETES": "A delete becomes an insert of the row as it was.",
    "INSERTUPDATES": "An update becomes an insert of the new row.",
    "UPDATEDELETES": "A delete becomes an update of the row as it was; COLMAP may mark it.",
    "UPDATEINSERTS": "An insert becomes an update; where there is no such row, an insert after all.",
    "INSERTMISSINGUPDATES": "An update whose row is not there becomes an insert, if the trail has the whole row.",
    "HANDLECOLLISIONS": "An insert of a row that is there overlays it; an update of one that is not becomes an insert "
    "if the trail has the whole row, else it is passed over, as a delete is. All are counted. Without it they are "
    "errors: the target is out of sync.",
    "ALLOWDUPTARGETMAP": "The same source may go to the same target by several MAPs.",
    "IGNOREMISSINGCOLUMNS": "Source columns that the target lacks are skipped and counted. Without it they are errors.",
}
"""Each holds for the MAPs behind it; with NO in front it ends."""

TOGGLES: dict[str, str] = dict(
    zip(
        SWITCHES,
        (
            "insert_all", "insert_deletes", "insert_updates", "update_deletes", "update_inserts", "insert_missing",
            "collisions", "allow_dup_target", "ignore_missing_columns",
        ),
        strict=True,
    )
)  # fmt: skip
"""Their fields in Toggles."""


def settled(rule: MapRule, toggles: Toggles) -> Toggles:
    """The switches of a MAP: those in force where it stands, and its own."""
    return replace(toggles, **dict(rule.overrides))


def target_key(rule: MapRule) -> tuple[tuple[str, bool], ...]:
    """Equal for MAPs with the same target, wildcards and all."""
    return tuple((name, not quoted and "*" in name) for name, quoted in rule.target.parts)


def check_map(rule: MapRule, before: Sequence[MapRule]) -> list[ParamError]:
    """What is wrong with a MAP because of what stands before it in the file; `before`: the MAPs with its target."""
    switches = rule.toggles
    found = []
    if switches.insert_deletes and switches.update_deletes:
        found.append("expected one of INSERTDELETES and UPDATEDELETES, both are in force")
    if switches.insert_all and (rule.compare or rule.resolve):
        found.append("COMPARECOLS and RESOLVECONFLICT have no meaning with INSERTALLRECORDS")
    if not switches.allow_dup_target and not rule.exceptions_only:
        twin = next((other for other in before if not other.exceptions_only and _same(rule, other)), None)
        if twin is not None:
            line = twin.where.rpartition(":")[2]
            found.append(
                f"{rule.source} goes to {rule.target} already in line {line}; expected it once, or ALLOWDUPTARGETMAP "
                "before both"
            )
    return [ParamError(f"{rule.where}: MAP: {message}") for message in found]


def _same(one: MapRule, other: MapRule) -> bool:
    return one.source.covers(other.source) and other.source.covers(one.source)
