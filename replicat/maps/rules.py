"""From a source table's definition to plans for its rows: which MAPs take it, and what each makes of it.

    rules_for     exact names beat wildcards, a narrower wildcard a wider one; equal ones all apply
    plan_table    one MAP: columns and key (mapping/columns.py), expressions compiled, options resolved

Rule: a MAP that asks for nothing but columns, some left out or renamed, gets a plan without a program: its rows are
never touched by Python but to be written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from replicat.maps.columns import ColumnMapper, MapErrors, column_name
from replicat.maps.expressions.compiling import Compiler, Sql
from replicat.model.mapparams import USEDELTA, Comparison, MapRule, ResolveGroup, ResolveRule, Toggles
from replicat.model.plan import ANY, UNIQUE, Conflict, MapProgram, RowFilter, TablePlan
from replicat.model.target import Layout, TargetTable
from trails.errors import OperatorError
from trails.record import TableDef
from trails.runtime.language.params import Pattern, narrowest

_INTEGERS = ("smallint", "integer", "bigint")
_DATES = ("date", "timestamp", "timestamptz")
_NUMBERS = (*_INTEGERS, "decimal", "real", "double")


# --- which MAPs -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rules:
    """The MAPs that take a table. `exceptions`: those for refused changes alone (EXCEPTIONSONLY)."""

    rules: tuple[MapRule, ...] = ()
    exceptions: tuple[MapRule, ...] = ()


def rules_for(maps: Sequence[MapRule], excludes: Sequence[Pattern], schema: str, name: str) -> Rules:
    """The MAPs that take this source table; OperatorError if it is ambiguous which, or two fill one target twice."""
    if any(pattern.matches(schema, name) for pattern in excludes):
        return Rules()
    matching = [rule for rule in maps if rule.source.matches(schema, name)]
    plain = _best([rule for rule in matching if not rule.exceptions_only], schema, name)
    return Rules(plain, _best([rule for rule in matching if rule.exceptions_only], schema, name))


def _best(rules: Sequence[MapRule], schema: str, name: str) -> tuple[MapRule, ...]:
    best = [rules[i] for i in narrowest([rule.source for rule in rules])]
    for i, rule in enumerate(best):
        for other in best[:i]:
            if not (rule.source.covers(other.source) and other.source.covers(rule.source)):
                raise OperatorError(
                    f"{rule.where}: MAP {schema}.{name}: ambiguous: {other.source} of {other.where} and {rule.source} "
                    f"of {rule.where} both match, and neither is the narrower one",
                    hint="Give the table a MAP of its own",
                )
            same = rule.target.fill(schema, name) == other.target.fill(schema, name)
            if same and not rule.exceptions_only and not rule.toggles.allow_dup_target:
                raise OperatorError(
                    f"{rule.where}: MAP {schema}.{name}: goes to {'.'.join(rule.target.fill(schema, name))} already by "
                    f"{other.where}",
                    hint="Take one of both out, or give ALLOWDUPTARGETMAP before them",
                )
    return tuple(best)


def exception_rule(rule: MapRule) -> MapRule | None:
    """A MAP's MAPEXCEPTION as a MAP of its own."""
    wanted = rule.exception
    if wanted is None:
        return None
    return MapRule(rule.source, wanted.target, wanted.where, wanted.use_defaults, wanted.colmap, exceptions_only=True)


def missing_table(rule: MapRule, source: str, target: tuple[str, str]) -> OperatorError:
    """The target table is not there."""
    kind = "exceptions table" if rule.exceptions_only else "target table"
    return OperatorError(
        f"{rule.where}: MAP {source}: {kind} {target[0]}.{target[1]} does not exist",
        hint="Create it in the target database, or change the MAP",
    )


def check_names(rule: MapRule, source: str, target: TargetTable) -> list[OperatorError]:
    """What is wrong with a MAP that can be known without its source table: the columns of the target that it names."""
    columns = [column.name for column in target.columns]
    named = [(pair.column, "COLMAP", pair.where) for pair in rule.colmap]
    named += [(name, "KEYCOLS", rule.where) for name in rule.key_columns]
    return [
        OperatorError(
            f"{where}: MAP {source}: {option}: target table {target.full_name} has no column {name}; its columns are "
            f"{', '.join(columns)}",
            hint="Mend the MAP, or add the column there",
        )
        for name, option, where in named
        if not column_name(name).find(columns)
    ]


def check_expressions(
    maps: Sequence[MapRule], excludes: Sequence[Pattern], definitions: Sequence[TableDef], sql: Sql | None, group: str
) -> list[OperatorError]:
    """What is wrong with the expressions for these tables, the target unknown."""
    return _each_expression(maps, excludes, definitions, sql, group, _compiled)


def check_plain_names(
    maps: Sequence[MapRule],
    excludes: Sequence[Pattern],
    definitions: Sequence[TableDef],
    group: str,
    known: frozenset[str],
) -> list[OperatorError]:
    """The columns and functions in expressions that are not there, as far as that is known without Spark.

    `known`: the functions that Spark has, if that is known.
    """
    return _each_expression(maps, excludes, definitions, None, group, partial(_named, known))


def _each_expression(
    maps: Sequence[MapRule],
    excludes: Sequence[Pattern],
    definitions: Sequence[TableDef],
    sql: Sql | None,
    group: str,
    look: Callable[[MapRule, Compiler], list[OperatorError]],
) -> list[OperatorError]:
    errors: list[OperatorError] = []
    for definition in definitions:
        try:
            found = rules_for(maps, excludes, definition.schema, definition.name)
        except OperatorError as error:
            errors.append(error)
            continue
        for rule in (*found.rules, *found.exceptions, *filter(None, map(exception_rule, found.rules))):
            compiler = Compiler(sql, definition, group=group, lasterr=rule.exceptions_only)
            errors += look(rule, compiler)
    return errors


def _named(known: frozenset[str], rule: MapRule, compiler: Compiler) -> list[OperatorError]:
    errors: list[OperatorError] = []
    looks = [(pair.text, pair.where, f"COLMAP {pair.column}", False) for pair in rule.colmap]
    looks += [(condition.text, condition.where, condition.keyword, True) for condition in rule.conditions]
    for text, where, keyword, condition in looks:
        try:
            compiler.look_at_names(text, where, keyword, condition=condition, known=known)
        except OperatorError as error:
            errors.append(error)
    return errors


def _compiled(rule: MapRule, compiler: Compiler) -> list[OperatorError]:
    """The mistakes in a MAP's expressions."""
    errors: list[OperatorError] = []
    for pair in rule.colmap:
        try:
            compiler.slot(pair.text, pair.where, f"COLMAP {pair.column}")
        except OperatorError as error:
            errors.append(error)
    for condition in rule.conditions:
        try:
            compiler.condition(condition.text, condition.where, condition.keyword)
        except OperatorError as error:
            errors.append(error)
    return errors


# --- one MAP, one table -----------------------------------------------------------------------------------------------


def plan_table(
    rule: MapRule,
    source: TableDef,
    target: TargetTable,
    *,
    sql: Sql | None = None,
    group: str = "",
    exceptions: tuple[TablePlan, ...] = (),
    like: bool = False,
) -> TablePlan:
    """How rows of `source` become rows of `target`; MapErrors names each place and what doesn't fit there.

    `sql`: the Spark that analyses expressions. `like`: both are databases of one kind.
    """
    if rule.exceptions_only:
        rule = replace(rule, toggles=Toggles(insert_all=True))
    compiler = Compiler(sql, source, group=group, lasterr=rule.exceptions_only)
    mapper = ColumnMapper(rule, source, target, compiler, lenient=rule.exceptions_only)
    mapper.run()
    filters = _filters(rule, mapper)
    conflict = _conflict(rule, mapper)
    if rule.toggles.update_deletes and not rule.toggles.insert_all and not mapper.key:
        mapper.wrong("UPDATEDELETES needs a key to find the row by", "Name one by KEYCOLS, or give NOUPDATEDELETES")
    if target.cascades and (identity := _rewritten(mapper)):
        mapper.wrong(
            f"column {identity} of {target.full_name} is GENERATED ALWAYS, so an update is DELETE and INSERT, which "
            "would set off foreign keys with ON DELETE",
            f"ALTER TABLE {target.full_name} ALTER {identity} SET GENERATED BY DEFAULT, or let triggers be suppressed",
        )
    if mapper.errors:
        raise MapErrors(mapper.errors)
    plan = TablePlan(
        source=source.full_name,
        target=target.full_name,
        layout=_layout(mapper, like=like),
        key=mapper.key,
        integer_key=len(mapper.key) == 1 and mapper.written[mapper.key[0]].column.type in _INTEGERS,
        skipped=mapper.skipped,
        error_rules=rule.error_rules,
        exceptions=exceptions,
        conflict=conflict,
        across=_across(mapper),
        ignored=rule.ignored,
    )
    program = _program(mapper, filters)
    if program is not None:
        columns = tuple(column.name for column in source.columns)
        return replace(plan, mapping=program, columns=columns, zero_dates=_zero_dates(mapper))
    return _without_program(plan, mapper)


def _without_program(plan: TablePlan, mapper: ColumnMapper) -> TablePlan:
    """Columns of the image as they are: the key counts in the image, and `pick` says what is written."""
    pick = tuple(item.slot.index for item in mapper.written)
    key = tuple(pick[at] for at in plan.key)
    names = tuple(column.name for column in mapper.source.columns)
    every = pick == tuple(range(len(names)))
    shown = () if names == plan.layout.columns else names
    zeros = tuple(pick[at] for at in _zero_dates(mapper))
    return replace(plan, key=key, pick=None if every else pick, columns=shown, zero_dates=zeros)


def _zero_dates(mapper: ColumnMapper) -> tuple[int, ...]:
    """The written columns beside the key that ZERODATE NULL is about."""
    dates = [at for at, item in enumerate(mapper.written) if mapper.logical(item.slot) in _DATES]
    return tuple(at for at in dates if at not in mapper.key) if mapper.rule.zero_dates else ()


def _filters(rule: MapRule, mapper: ColumnMapper) -> tuple[RowFilter, ...]:
    found = []
    for condition in rule.conditions:
        try:
            number = mapper.compiler.condition(condition.text, condition.where, condition.keyword)
            found.append(RowFilter(number, condition.ops))
        except OperatorError as error:
            mapper.errors.append(error)
    return tuple(found)


def _program(mapper: ColumnMapper, filters: tuple[RowFilter, ...]) -> MapProgram | None:
    """What is to be done beyond picking columns, if anything is."""
    switches = mapper.rule.toggles
    asked = (
        switches.insert_all, switches.insert_deletes, switches.insert_updates, switches.update_deletes,
        switches.update_inserts, mapper.needs_before,
    )  # fmt: skip
    slots = tuple(item.slot for item in mapper.written)
    if not filters and not any(asked) and all(slot.kind == "column" for slot in slots):
        return None
    return MapProgram(
        slots,
        tuple(mapper.compiler.expressions),
        filters,
        switches.insert_all,
        switches.insert_deletes,
        switches.insert_updates,
        switches.update_deletes,
        switches.update_inserts,
        mapper.needs_before,
        mapper.source.key,
    )


def _across(mapper: ColumnMapper) -> str:
    """By what a change of one row can have another row's refused."""
    written, target = [mapper.written[at] for at in mapper.key], mapper.target
    inserts_only = mapper.rule.toggles.insert_all
    key = frozenset(item.name for item in written)
    if target.fires or target.across or any(item.column.soft for item in written):
        return ANY
    if inserts_only:
        return UNIQUE if target.unique else ""
    return UNIQUE if not key or any(not key <= unique for unique in target.unique) else ""


def _rewritten(mapper: ColumnMapper) -> str:
    """A written identity column GENERATED ALWAYS, if any: it can be inserted but never updated to a value."""
    key = {mapper.written[at].name for at in mapper.key}
    return next((item.name for item in mapper.written if item.column.always and item.name not in key), "")


def _layout(mapper: ColumnMapper, *, like: bool) -> Layout:
    names = [item.name for item in mapper.written]
    switches = mapper.rule.toggles
    return mapper.target.layout(
        names,
        [names[at] for at in mapper.key],
        [mapper.logical(item.slot) for item in mapper.written],
        natives=tuple(mapper.native(item.slot) for item in mapper.written) if like else (),
        weight=mapper.rule.weight,
        collisions=switches.collisions,
        insert_missing=switches.insert_missing,
    )


# --- conflicts --------------------------------------------------------------------------------------------------------


def _conflict(rule: MapRule, mapper: ColumnMapper) -> Conflict | None:
    if (rule.compare is None and not rule.resolve) or mapper.errors:
        return None
    if not mapper.key:
        mapper.wrong("COMPARECOLS and RESOLVECONFLICT need a key, and the table has none", "Name one by KEYCOLS")
        return None
    compare = rule.compare
    update = _compared(compare.update, compare.where, mapper) if compare and compare.update else ()
    delete = _compared(compare.delete, compare.where, mapper) if compare and compare.delete else ()
    return Conflict(update, delete, tuple(_resolved(item, mapper) for item in rule.resolve))


def _compared(comparison: Comparison, where: str, mapper: ColumnMapper) -> tuple[int, ...]:
    """Indexes of the columns beside the key that are compared."""
    found = [mapper.named(name, "COMPARECOLS", where) for name in comparison.columns]
    named = {at for at in found if at is not None}
    rest = [at for at in range(len(mapper.written)) if at not in mapper.key]
    if comparison.kind == "KEYINCLUDING":
        return tuple(at for at in rest if at in named)
    return () if comparison.kind == "KEY" else tuple(at for at in rest if at not in named)


def _resolved(rule: ResolveRule, mapper: ColumnMapper) -> ResolveRule:
    """A RESOLVECONFLICT with its columns named as the target spells them."""
    groups = tuple(_group(group, rule, mapper) for group in rule.groups)
    names = [name for group in groups for name in group.cols]
    for name in sorted({name for name in names if names.count(name) > 1}):
        mapper.wrong(f"RESOLVECONFLICT {rule.type}: column {name} is in two groups", "Name it in one", rule.where)
    return replace(rule, groups=groups, default=_group(rule.default, rule, mapper))


def _group(group: ResolveGroup, rule: ResolveRule, mapper: ColumnMapper) -> ResolveGroup:
    option = f"RESOLVECONFLICT {rule.type}"
    found = [mapper.named(name, option, rule.where) for name in group.cols]
    at = mapper.named(group.column, option, rule.where) if group.column else None
    cols = [i for i in found if i is not None]
    if group.method == USEDELTA:
        for i in cols:
            kind = mapper.logical(mapper.written[i].slot)
            if kind not in _NUMBERS:
                mapper.wrong(
                    f"{option}: USEDELTA adds numbers, and column {mapper.written[i].name} is {kind}",
                    "Take another method for it",
                    rule.where,
                )
    changes: dict[str, Any] = {"cols": tuple(mapper.written[i].name for i in cols)}
    if at is not None:
        changes["column"] = mapper.written[at].name
    return replace(group, **changes)
