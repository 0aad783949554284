"""TABLEERROR: whether an error of one table ends the process, or pauses that table while all others go on.

    TABLEERROR (sales.audit, ABEND)
    TABLEERROR (sales.*, PAUSE, MAXKEEPDAYS 2)

Rule: the first whose pattern takes the source table counts; without one it is ABEND. It is asked only where REPERROR,
with all its tries, would end the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from replicat.model.pausing import KEEP_HOURS, MOST_HOURS, Pair
from replicat.model.reperror import ABEND
from trails.runtime.language import params
from trails.runtime.language.params import Group, Pattern, Statement

PAUSE = "PAUSE"
SHAPE = "(schema.table, {ABEND | PAUSE [, MAXKEEPHOURS n | MAXKEEPDAYS n]})"
_LIMITS = {"MAXKEEPHOURS": 1, "MAXKEEPDAYS": 24}


@dataclass(frozen=True, slots=True)
class TableErrorRule:
    """One TABLEERROR. `tables`: of the source; `hours`: how long the trail keeps what a paused table misses."""

    tables: Pattern
    pauses: bool = True
    hours: int = KEEP_HOURS


def pause_rule(rules: Sequence[TableErrorRule], source: str) -> TableErrorRule | None:
    """The rule that pauses a source table, `schema.name`; None where its errors end the process."""
    rule = next((rule for rule in rules if _takes(rule.tables, source)), None)
    return rule if rule is not None and rule.pauses else None


def _takes(tables: Pattern, name: str) -> bool:
    """Wherever the schema ends: names may have dots."""
    return any(tables.matches(name[:at], name[at + 1 :]) for at, sign in enumerate(name) if sign == ".")


def hours_of_pair(rules: Sequence[TableErrorRule], pair: Pair | None) -> int | None:
    """For how long the changes of a table are kept that is at fault; None where its errors end the process."""
    rule = pause_rule(rules, pair[0]) if pair is not None else None
    return rule.hours if rule is not None else None


def table_error(statement: Statement) -> TableErrorRule:
    """For the keyword table. Raises ParamError."""
    words = statement.words[0] if len(statement.words) == 1 else None
    if not isinstance(words, Group) or len(words) < 2:
        raise statement.error(SHAPE)
    tables, action, *limit = words[0], str(words[1]).upper(), *words[2:]
    pattern = params.table_pattern(statement, tables)
    if action == ABEND and not limit:
        return TableErrorRule(pattern, pauses=False)
    if action != PAUSE or len(limit) not in (0, 2):
        raise statement.error(SHAPE)
    if not limit:
        return TableErrorRule(pattern)
    factor = _LIMITS.get(str(limit[0]).upper())
    if factor is None:
        raise statement.error(SHAPE, limit[0])
    return TableErrorRule(pattern, hours=params.whole(statement, limit[1], 1, MOST_HOURS // factor) * factor)
