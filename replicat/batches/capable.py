"""What a kind of target cannot do (its Capabilities), decided before the first row is applied.

Rule: an option that would change nothing is refused by name. A target whose rows and checkpoint row are not committed
together may meet a batch again, so there rows are overlaid by their keys (I6), and a table without a key is refused.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from replicat.model.mapparams import MapRule
from replicat.model.plan import TablePlan
from replicat.settings import DbOptions
from replicat.targets.contract import Kind
from trails.errors import OperatorError


def unfit_options(options: DbOptions, kind: Kind) -> list[OperatorError]:
    """What DBOPTIONS asks of a target that cannot do it."""
    asked = (
        (options.suppress_triggers, kind.can.holds_triggers, "SUPPRESSTRIGGERS", "keep triggers from firing"),
        (options.defer_ref_const, kind.can.defers_constraints, "DEFERREFCONST", "check foreign keys at the end"),
        (options.follow_sequences, kind.can.follows_sequences, "FOLLOWSEQUENCES", "move its sequences"),
    )
    return [
        OperatorError(f"DBOPTIONS {word}: a {kind.title} target cannot {what}", hint=f"Take {word} out")
        for wanted, able, word, what in asked
        if wanted and not able
    ]


def loosened(rule: MapRule, kind: Kind) -> MapRule:
    """The MAP as the target needs it: what is applied again must be harmless."""
    return rule if kind.can.exactly_once else replace(rule, toggles=replace(rule.toggles, collisions=True))


def check_plan(rule: MapRule, plan: TablePlan, kind: Kind) -> None:
    """OperatorError for a table without a key where every table needs one."""
    if not plan.layout.key and not (kind.can.keyless_tables and kind.can.exactly_once):
        raise OperatorError(
            f"{rule.where}: MAP: table {plan.source} has no key, and a {kind.title} target finds no row without one",
            hint="Name columns that tell its rows apart by KEYCOLS, or MAPEXCLUDE it",
        )


def parts_seen(kind: Kind, others: Collection[str]) -> str:
    """What to tell of a table where its changes and those of `others` are not seen together; nothing where they are."""
    if kind.can.several_tables or len(others) != 1:  # once, with the second table
        return ""
    return f"Warning: a {kind.title} target shows a transaction of several tables one table after the other"
