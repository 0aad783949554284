"""Applies a change of shape at its place, between the batches before and behind it.

Rule: nothing is applied unless this group's parameter file says DDL, and nothing of it is skipped in silence: each
change has a line in the report that says what was done with it. What the target refuses, or what can't be carried
there, meets DDLERROR; without one it ends the process with nothing of it committed, and START goes on after it was done
by hand. The source's own statement, and values, stand in the discard file alone: others read reports and logs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from replicat.apply.applying import Applying
from replicat.apply.discardrecord import Reason
from replicat.apply.ladder import Note
from replicat.batches.pipeline import RunningJob
from replicat.batches.planning import Planning
from replicat.ddl.definition import CannotError
from replicat.ddl.shapes import BY_HAND, Carry, MappedTable, carry, shown
from replicat.maps.ddlerror import DdlErrorRule, ddl_rule_for
from replicat.model.again import BeginAgainError
from replicat.model.reperror import DISCARD, IGNORE
from replicat.model.target import RefusedError
from replicat.params import ReplicatParams
from replicat.targets.contract import Target
from replicat.targets.kinds import SOURCES
from trails.ddl import DdlChange, TableShape
from trails.errors import OperatorError
from trails.record import Op, TableId


class DdlApply:
    """What one group does with changes of shape."""

    def __init__(
        self,
        params: ReplicatParams,
        target: Target,
        planning: Planning,
        applying: Applying,
        note: Note,
        trail_id: Callable[[], bytes],
    ) -> None:
        """`trail_id`: of the trail being read."""
        self._params = params
        self._target = target
        self._planning = planning
        self._applying = applying
        self._note = note
        self._trail_id = trail_id
        self.counts = applying.ddl_counts
        self._tries: dict[str, int] = {}  # how often a change was refused that is to be tried again

    def before(self, records: Sequence[Any], reshape: Callable[[DdlChange], None]) -> None:
        """Tell of each change of a DDL block before anything is done."""
        for change in _changes(records):
            reshape(change)

    def behind(self, records: Sequence[Any], reshaped: Callable[[DdlChange, Sequence[str]], None]) -> None:
        """Tell of each change of a DDL block that is applied, and to which targets the table goes now."""
        for change in _changes(records):
            reshaped(change, [".".join(mapped.place) for mapped in self._mapped(change.new)])

    def apply(self, running: RunningJob, records: Sequence[Any]) -> None:
        """Apply what stands in a DDL block; BeginAgainError, or OperatorError with the source's statement."""
        assert running.ddl is not None
        for record in records:
            if record[0] == Op.DDL:
                where = f"position {running.ddl.start}"
                self._one(DdlChange.from_wire(record[1], where), f"{where}, CSN {running.batch.csn}", running)

    def _one(self, change: DdlChange, where: str, running: RunningJob) -> None:
        old, new = self._mapped(change.old), self._mapped(change.new)
        sources = [".".join(name) for name in change.names]
        targets = {mapped.place for mapped in (*old, *new)}
        mapped = bool(old or new)
        rules = self._params.ddl
        passes = rules is not None and rules.passes(change, mapped=True)
        self._applying.saw_ddl(mapped=mapped, passes=passes)
        try:
            if not mapped:
                return
            if not passes:
                why = "no DDL INCLUDE in the parameter file takes it" if rules is None else "DDL leaves it out"
                self._note(f"DDL {change.op} of {change.full_name} ({where}) is not applied: {why}")
                return
            self._carry(change, old, new, where, running)
        finally:
            self._planning.drop(sources, [".".join(place) for place in targets])

    def _mapped(self, shape: TableShape | None) -> list[MappedTable]:
        if shape is None:
            return []
        name = shape.schema, shape.name
        return [MappedTable(rule, rule.target.fill(*name)) for rule in self._planning.rules(*name).rules]

    def _carry(
        self, change: DdlChange, old: Sequence[MappedTable], new: Sequence[MappedTable], where: str, running: RunningJob
    ) -> None:
        dialect = self._target.dialect(SOURCES.get(self._planning.source))
        carries = carry(change, old, new, self._look, dialect, self._planning.sources_of)
        while True:
            try:
                item = next(carries, None)
            except CannotError as error:
                self._refused(change, where, running, str(error), "", "", str(error))
                return
            if item is None:
                break
            self._run(change, item, where, running)
        self._tries.pop(where, None)

    def _run(self, change: DdlChange, item: Carry, where: str, running: RunningJob) -> None:
        try:
            if item.types:
                self._target.check_types(dict(item.types))
            if item.statements:
                self._target.ddl(item.statements)
        except RefusedError as error:
            ran = "; ".join(item.statements)
            full = f"the target refuses it: {error}; statements: {ran}"
            told = f"the target refuses it: {shown(error.shown)}; statements: {shown(ran)}"
            self._refused(change, where, running, full, error.sqlstate, error.code, told)
            return
        self._note(_told(change, where, item))
        if item.statements:
            self._applying.count_ddl(change.full_name, item.target)

    def _look(self, place: TableId) -> Any:
        return self._target.table(*place)

    def _refused(
        self, change: DdlChange, where: str, running: RunningJob, error: str, sqlstate: str, code: str, told: str
    ) -> None:
        """`told`: the error without values, for all but the discard file."""
        rule = ddl_rule_for(self._params.ddl_errors, sqlstate, code)
        what = f"DDL {change.op} of {change.full_name} ({where})"
        self.counts.error("errors")
        self._try_again(rule, where, told)
        if rule.action == IGNORE:
            self.counts.error("ignored errors")
            self._note(f"{what} is left out by DDLERROR: {told}")
        elif rule.action == DISCARD:
            self.counts.error("discarded errors")
            reason = Reason(DISCARD, f"error {sqlstate or code or '(none)'}", error)
            self._applying.discard_ddl(running, change, reason, self._trail_id())
            self._note(f"{what} goes to the discard file by DDLERROR: {told}")
        else:
            raise OperatorError(f"{what}: {told}", hint=BY_HAND)

    def _try_again(self, rule: DdlErrorRule, where: str, error: str) -> None:
        tries = self._tries.get(where, 0)
        if tries < rule.retries:
            self._tries = {where: tries + 1}
            self.counts.error("retried errors")
            raise BeginAgainError(f"DDL ({where}): try {tries + 1} of {rule.retries} failed: {error}", rule.delay)


def _changes(records: Sequence[Any]) -> list[DdlChange]:
    return [DdlChange.from_wire(record[1]) for record in records if record[0] == Op.DDL]


def _told(change: DdlChange, where: str, item: Carry) -> str:
    done = shown("; ".join(item.statements)) or "nothing to do"
    notes = f" ({'; '.join(item.notes)})" if item.notes else ""
    return f"DDL {change.op} of {change.full_name} ({where}) to {item.target}: {done}{notes}"
