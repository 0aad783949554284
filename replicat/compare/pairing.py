"""Which tables COMPARE can compare, and what of them; of any other it says why not.

Rule: columns are compared only where equal canonical texts are what docs/types.md says must arrive: both databases are
of one kind, and the types take the same values, or both whole numbers, or both text without padding. Anything else
would be a false alarm (a scale) or a false green, so the table is refused by name.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from replicat.batches.planning import Planning
from replicat.compare.ranges import Pair
from replicat.load.group import LoadingGroup
from replicat.load.loadtables import LIVE, LoadState
from replicat.model.mapparams import MapRule
from replicat.model.plan import TablePlan
from replicat.targets.kinds import SOURCES
from trails.described import DescribedTable
from trails.errors import GateError
from trails.record import Column, TableDef
from trails.runtime.language.params import Pattern

_WHOLE: Final = ("smallint", "integer", "bigint")
_SHOWN: Final = re.compile(r"(?<=int)\(\d+\)|(?<=^year)\(4\)| CHARACTER SET .*")
"""What a type's text has beside what its values may be: a width to print, and how text is stored."""
_TEXT: Final = re.compile(r"(text|(character varying|varchar)(\(\d+\))?)\Z")


@dataclass(frozen=True, slots=True)
class Wish:
    """A source table and where it goes. `pair` is None where `why` says what stands in the way.

    `skipped`: source columns that the target does not have. `plan`: how Replicat writes its rows.
    """

    source: str
    target: str
    pair: Pair | None = None
    why: str = ""
    skipped: tuple[str, ...] = ()
    plan: TablePlan | None = field(default=None, repr=False)


def wishes(
    group: LoadingGroup, tables: Sequence[DescribedTable], pattern: Pattern | None, state: LoadState
) -> list[Wish]:
    """One for each MAP of each source table; the group's target is connected."""
    scheme = group.params.source_url.partition("://")[0]
    planning = Planning(group.params, group.target, source=lambda: scheme)
    like = SOURCES.get(scheme) is group.target.kind
    states = {row.pair: row.state for row in state.tables}
    amiss = {one.pair: f"it is {one.state} and lacks changes; INFO TABLES says why" for one in group.paused_rows()}
    feeders = _feeders(group, planning, tables)
    found = []
    for table in tables:
        if pattern is not None and not pattern.matches(*table.place):
            continue
        try:
            rules = planning.rules(*table.place).rules
        except GateError as error:
            found.append(Wish(table.full_name, "", why=str(error)))
            continue
        for rule in rules:
            target = ".".join(rule.target.fill(*table.place))
            why = _refused(table, rule, states.get((table.full_name, target), LIVE), like=like)
            why = why or amiss.get((table.full_name, target), "")
            if others := sorted(feeders[target] - {table.full_name}):
                why = why or f"its target also takes the rows of {', '.join(others[:3])}: nothing tells whose a row is"
            found.append(Wish(table.full_name, target, why=why) if why else _paired(planning, table.definition, target))
    return found


def _feeders(group: LoadingGroup, planning: Planning, tables: Sequence[DescribedTable]) -> dict[str, set[str]]:
    """By target, the source tables whose rows it takes: those that were asked for, and those that MAPs name."""
    named = [rule.source.exact for rule in group.params.maps]
    found: dict[str, set[str]] = defaultdict(set)
    for place in {table.place for table in tables} | {place for place in named if place is not None}:
        with contextlib.suppress(GateError):  # told where the table's own MAPs are looked at
            for rule in planning.rules(*place).rules:
                found[".".join(rule.target.fill(*place))].add(".".join(place))
    return found


def _refused(table: DescribedTable, rule: MapRule, state: str, *, like: bool) -> str:
    """What is in the way before any column is looked at."""
    if table.unfit:
        return table.unfit
    if rule.conditions:
        return "its MAP has FILTER or WHERE, and COMPARE compares only rows that arrive as they are"
    if rule.ignored:
        return "IGNORE switches hold for its MAP, so the target may have other rows than the source"
    if state != LIVE:
        return f"its load is not done ({state}); INFO TABLES shows how far it is"
    return "" if like else "source and target are databases of different kinds"


def _paired(planning: Planning, table: TableDef, target: str) -> Wish:
    plan = next((one for one in planning.plan(table) if one.target == target), None)
    if plan is None:
        errors = [one.error for one in planning.plan(table) if one.error]
        return Wish(table.full_name, target, why=errors[0] if errors else "the target has no such table")
    if plan.error or plan.mapping is not None or plan.zero_dates:
        return Wish(table.full_name, target, why=plan.error or "its MAP makes other rows than the source has")
    return _by_columns(plan, table)


def _by_columns(plan: TablePlan, table: TableDef) -> Wish:
    picked = plan.pick if plan.pick is not None else tuple(range(len(table.columns)))
    if len(set(picked)) < len(picked):
        return Wish(table.full_name, plan.target, why="its MAP writes one column of the source to several")
    columns = [table.columns[i] for i in picked]
    made = []
    for column, name, native in zip(columns, plan.layout.columns, plan.layout.types, strict=True):
        if not _same(column.native, native):
            why = f"column {column.name} is {column.native}, and {native} in the target: their texts may differ"
            return Wish(table.full_name, plan.target, why=why)
        made.append(Column(name, column.type, column.native, column.key))
    if lost := [table.columns[i].name for i in table.key if i not in picked]:
        return Wish(table.full_name, plan.target, why=f"the target has no column {', '.join(lost)} of the key")
    source = TableDef(table.schema, table.name, tuple(columns))
    place = TableDef(plan.layout.schema, plan.layout.name, tuple(made))
    return Wish(table.full_name, plan.target, Pair(source, place), skipped=tuple(plan.skipped), plan=plan)


def _same(source: str, target: str) -> bool:
    source, target = _SHOWN.sub("", source), _SHOWN.sub("", target)
    if source == target:
        return True
    if source in _WHOLE and target in _WHOLE:
        return True
    return bool(_TEXT.match(source) and _TEXT.match(target))
