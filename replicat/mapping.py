"""From a source table's definition to a plan for its rows: MAP rules, and columns by name.

Strategy: the first MAP that matches counts. Every source column must exist in the target, but for those that the target
computes itself; target columns that the source doesn't have are left alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from replicat.params import MapRule
from replicat.plan import TablePlan
from replicat.target import Layout, TargetTable
from trails.errors import OperatorError
from trails.record import TableDef
from trails.runtime.params import Pattern

_INTEGERS = ("smallint", "integer", "bigint")


def find_rule(maps: Sequence[MapRule], excludes: Sequence[Pattern], schema: str, name: str) -> MapRule | None:
    """The MAP that takes this source table, if any does."""
    if any(pattern.matches(schema, name) for pattern in excludes):
        return None
    return next((rule for rule in maps if rule.source.matches(schema, name)), None)


def missing_table(rule: MapRule, source: str, target: tuple[str, str]) -> OperatorError:
    """The target table is not there."""
    return OperatorError(
        f"{rule.where}: MAP {source}: target table {target[0]}.{target[1]} does not exist",
        hint="Create it in the target database, or change the MAP",
    )


def plan_table(rule: MapRule, source: TableDef, target: TargetTable) -> TablePlan:
    """How rows of `source` become rows of `target`; OperatorError names the MAP and the column that doesn't fit."""
    columns = {column.name: column for column in target.columns}
    lacking = [column.name for column in source.columns if column.name not in columns]
    if lacking:
        raise OperatorError(
            f"{rule.where}: MAP {source.full_name}: target table {target.full_name} lacks column {', '.join(lacking)}",
            hint="Add it to the target table, then START again",
        )
    pick = tuple(i for i, column in enumerate(source.columns) if not columns[column.name].generated)
    lost = [source.columns[i].name for i in source.key if i not in pick]
    if lost:
        raise OperatorError(
            f"{rule.where}: MAP {source.full_name}: {target.full_name} computes key column {', '.join(lost)}",
            hint="Make it a plain column there",
        )
    written = tuple(source.columns[i].name for i in pick)
    return TablePlan(
        source=source.full_name,
        target=target.full_name,
        layout=_layout(target, written, tuple(source.columns[i].name for i in source.key)),
        key=source.key,
        pick=None if len(pick) == len(source.columns) else pick,
        columns=() if len(pick) == len(source.columns) else tuple(column.name for column in source.columns),
        integer_key=len(source.key) == 1 and columns[source.columns[source.key[0]].name].type in _INTEGERS,
    )


def _layout(target: TargetTable, written: tuple[str, ...], key: tuple[str, ...]) -> Layout:
    columns = {column.name: column for column in target.columns}
    extras = [c for c in target.columns if c.name not in written and not c.generated]
    # An identity column GENERATED ALWAYS can be inserted but never updated to a value.
    fixed = any(columns[name].always for name in written if name not in key)
    return Layout(
        schema=target.schema,
        name=target.name,
        columns=written,
        types=tuple(columns[name].type for name in written),
        key=key,
        arbiter=frozenset(key) in target.unique and not fixed,
        extras=tuple(c.name for c in extras),
        extra_types=tuple(c.type for c in extras),
        fixed=tuple(c.name for c in extras if c.always),
        key_equal=tuple(columns[name].equal for name in key),
        rank=target.rank,
    )
