"""MAP: its options (a table, which HELP and docs/parameters.md show), and from its text to a MapRule.

Rule: every mistake of one MAP is told at once, each with its own line. Expressions are looked at only as far as needs
no Spark: GoldenGate's @functions by name and number of arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from replicat.maps import conflictparams
from replicat.maps.clauses import Clause, ClauseReader
from replicat.maps.expressions.functions import translate
from replicat.model.mapparams import OPERATIONS, Assignment, Condition, ExceptionRule, MapRule, Toggles
from replicat.model.reperror import rule_of_text
from trails.errors import ParamError
from trails.runtime.language import acceptedoptions
from trails.runtime.language.params import ParamErrors, Pattern, Statement, did_you_mean

SHAPE = "source.table, TARGET target.table [, option ...];"
MOST_WEIGHT = 1_000_000
_MEANINGLESS = acceptedoptions.OPTIONS["MAP"]

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
    reader = ClauseReader(clause)
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


def _options(reader: ClauseReader, table: dict[str, MapOption], of: str) -> Found:
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


def _option(reader: ClauseReader, table: dict[str, MapOption], of: str, seen: dict[str, Clause]) -> tuple[str, Found]:
    word = reader.word()
    if word is None:
        raise reader.stray().expected(f"an option of {of}")
    option = table.get(word.text.upper())
    if option is None and word.text.upper() in _MEANINGLESS and of == "MAP":
        _skip(reader, _MEANINGLESS[word.text.upper()])
        return word.text.upper(), {}
    if option is None:
        reader.group()  # what belongs to it is no mistake of its own
        if why := acceptedoptions.refusal("MAP", word.text):
            raise word.wrong(f"option {word.text.upper()} is not supported: {why}")
        raise word.wrong(f"{of} has no option {word.text}{did_you_mean(word.text, table)}")
    argument = _argument(reader, option, word)
    if option.name in seen and not option.repeats:
        raise word.wrong(f"expected {option.name} once, found again (first in line {seen[option.name].line})")
    seen[option.name] = word
    return option.name, option.read(argument)


def _skip(reader: ClauseReader, option: acceptedoptions.AcceptedOption) -> None:
    for _ in range(option.words):
        reader.word()
    if option.group:
        reader.group()


def _argument(reader: ClauseReader, option: MapOption, word: Clause) -> Clause:
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
    reader = ClauseReader(clause)
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


def _zero_date(clause: Clause) -> Found:
    if clause.text.upper() != "NULL":
        raise clause.expected("NULL")
    return {"zero_dates": True}


def _of(*options: MapOption) -> dict[str, MapOption]:
    return {option.name: option for option in options}


MAP_OPTIONS = _of(
    MapOption(
        "COLMAP",
        "([USEDEFAULTS,] target column = expression, ...)",
        "What the target's columns get: Spark SQL over the source's columns, `before.column`, `token.name` and the "
        "change's own facts. With USEDEFAULTS, columns that are not named get the source's column of the same name, "
        "else nothing.",
        "MAP sales.orders, TARGET public.orders, COLMAP (USEDEFAULTS, total = price * amount, source = 'sales');",
        _colmap,
    ),
    MapOption(
        "WHERE",
        "(condition)",
        "Only rows for which the condition is true belong to the target. An update that makes it false becomes a "
        "delete, and one that makes it true becomes an insert. Several conditions must all be true.",
        "MAP sales.orders, TARGET public.orders, WHERE (region = 'EU');",
        _where,
        repeats=True,
    ),
    MapOption(
        "FILTER",
        "([{ON | IGNORE} {INSERT | UPDATE | DELETE}, ...] condition)",
        "As WHERE, but ON chooses operations, not rows: a change of an operation that is named, for which the "
        "condition is not true, is left out.",
        "MAP sales.orders, TARGET public.orders, FILTER (ON DELETE, status = 'open');",
        _filter,
        repeats=True,
    ),
    MapOption(
        "KEYCOLS",
        "(target column, ...)",
        "The columns that tell the target's rows apart, in place of the source's key. Before images must have the "
        "source columns that they come from.",
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
        "This MAP overlays rows that are there already, and passes over rows that are missing.",
        "MAP sales.orders, TARGET public.orders, HANDLECOLLISIONS;",
        _switch("collisions", True),
        takes="",
        repeats=True,
    ),
    MapOption(
        "NOHANDLECOLLISIONS",
        "",
        "This MAP does not handle collisions, even if a HANDLECOLLISIONS stands before it.",
        "MAP sales.orders, TARGET public.orders, NOHANDLECOLLISIONS;",
        _switch("collisions", False),
        takes="",
        repeats=True,
    ),
    MapOption(
        "REPERROR",
        "(as the parameter REPERROR)",
        "What becomes of this MAP's changes that the target refuses. These rules count before the global ones.",
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
        "This MAP takes only changes that REPERROR gives to EXCEPTION in the other MAPs of its source. Each of them "
        "becomes a new row.",
        "MAP sales.orders, TARGET public.orders_exceptions, EXCEPTIONSONLY;",
        lambda _clause: {"exceptions_only": True},
        takes="",
    ),
    MapOption(
        "COMPARECOLS",
        "(ON {UPDATE | DELETE} {ALL | KEY | KEYINCLUDING (column, ...) | ALLEXCLUDING (column, ...)}, ...)",
        "Which columns of the target's row must be as the change's before image says: only the key if not given. If "
        "they are not, it is a conflict.",
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
        "The order of tables, for a target that can't apply all of them in one transaction: lower weights come first; "
        "0 if not given.",
        "MAP sales.orders, TARGET public.orders, WEIGHT 2;",
        _weight,
        takes="word",
    ),
    MapOption(
        "ZERODATE",
        "NULL",
        "Zero and partial dates (0000-00-00, 2024-00-15), which some sources have, become NULL, and are counted. "
        "Without ZERODATE a target that has no such dates refuses them with SQLSTATE 22008.",
        "MAP sales.*, TARGET public.*, ZERODATE NULL;",
        _zero_date,
        takes="word",
    ),
)


# --- switches that hold for the MAPs behind them ----------------------------------------------------------------------

SWITCHES: dict[str, str] = {
    "INSERTALLRECORDS": "Every change becomes a new row, in the order of the source: a history table. It needs no key.",
    "INSERTDELETES": "A delete becomes an insert of the row as it was.",
    "INSERTUPDATES": "An update becomes an insert of the new row.",
    "UPDATEDELETES": "A delete becomes an update of the row as it was. COLMAP may mark such rows.",
    "UPDATEINSERTS": "An insert becomes an update. If there is no such row, it stays an insert.",
    "INSERTMISSINGUPDATES": "An update whose row is not there becomes an insert, if the trail has the whole row.",
    "HANDLECOLLISIONS": "For the MAPs behind it, rows that are there already, or are missing, are no errors. All such "
    "changes are counted:\n"
    "- An insert of a row that is there overlays the row.\n"
    "- An update of a missing row becomes an insert if the trail has the whole row, else it is "
    "passed over.\n"
    "- A delete of a missing row is passed over.\n"
    "Without HANDLECOLLISIONS they are errors, as the target is out of sync.",
    "ALLOWDUPTARGETMAP": "For the MAPs behind it: several MAPs may take the same source to the same target.",
    "IGNOREMISSINGCOLUMNS": "Source columns that the target does not have are skipped and counted. Without "
    "IGNOREMISSINGCOLUMNS they are errors.",
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
