"""Applies a change of shape at its place, between the batches before and behind it.

Rule: nothing of it is skipped in silence: each has a line in the report that says what was done with it. What the
target refuses, or what can't be carried there, meets DDLERROR; without one it ends the process with the source's
statement and nothing of it committed, and START goes on after it was done by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from replicat.applying import Applying
from replicat.ddl.errors import DdlErrorRule, ddl_rule_for
from replicat.ddl.shapes import BY_HAND, CannotError, Carry, Mapped, carry, shown
from replicat.ddl.sql import Place
from replicat.params import ReplicatParams
from replicat.pipeline import Running
from replicat.planning import Planning
from replicat.refused.discardrecord import Reason
from replicat.refused.ladder import Note
from replicat.refused.rules import DISCARD, IGNORE
from replicat.target import RefusedError, Target
from trails.ddl import DdlChange, TableShape
from trails.errors import GateError, OperatorError
from trails.record import Op
from trails.runtime.ddlparams import DdlClause, DdlRules

MAPPED_ONLY = DdlRules((DdlClause(include=True, scope="MAPPED"),))


class TryLaterError(GateError):
    """Roll back, and start again from the row after some seconds (RETRYOP)."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


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
        self._rules: DdlRules = params.ddl or MAPPED_ONLY
        self._tries: dict[str, int] = {}  # how often a change was refused that is to be tried again

    def apply(self, running: Running, records: Sequence[Any]) -> None:
        """Apply what stands in a DDL block; TryLaterError, or OperatorError with the source's statement."""
        assert running.ddl is not None
        for record in records:
            if record[0] == Op.DDL:
                where = f"position {running.ddl.start}"
                self._one(DdlChange.from_wire(record[1], where), f"{where}, CSN {running.batch.csn}", running)

    def _one(self, change: DdlChange, where: str, running: Running) -> None:
        old, new = self._mapped(change.old), self._mapped(change.new)
        sources = [".".join(name) for name in change.names]
        targets = {mapped.place for mapped in (*old, *new)}
        try:
            if not (old or new):
                return
            if not self._rules.passes(change, mapped=True):
                self._note(f"DDL of {change.full_name} ({where}) is left out by DDL: {shown(change.sql)}")
                return
            self._carry(change, old, new, where, running)
        finally:
            self._planning.drop(sources, [".".join(place) for place in targets])

    def _mapped(self, shape: TableShape | None) -> list[Mapped]:
        if shape is None:
            return []
        name = shape.schema, shape.name
        return [Mapped(rule, rule.target.fill(*name)) for rule in self._planning.rules(*name).rules]

    def _carry(
        self, change: DdlChange, old: Sequence[Mapped], new: Sequence[Mapped], where: str, running: Running
    ) -> None:
        carries = carry(change, old, new, self._look, self._target.kind, self._planning.sources_of)
        while True:
            try:
                item = next(carries, None)
            except CannotError as error:
                self._refused(change, where, running, error, "", "")
                return
            if item is None:
                break
            self._run(change, item, where, running)
        self._tries.pop(where, None)

    def _run(self, change: DdlChange, item: Carry, where: str, running: Running) -> None:
        try:
            if item.statements:
                self._target.ddl(item.statements)
        except RefusedError as error:
            ran = f"; statements: {'; '.join(item.statements)}"
            self._refused(
                change,
                where,
                running,
                f"{error}{ran}",
                error.sqlstate,
                getattr(error, "code", ""),
                f"{error.shown}{ran}",
            )
            return
        self._note(_told(change, where, item))
        if item.statements:
            self._applying.count_ddl(change.full_name, item.target)

    def _look(self, place: Place) -> Any:
        return self._target.table(*place)

    def _refused(
        self,
        change: DdlChange,
        where: str,
        running: Running,
        error: Exception | str,
        sqlstate: str,
        code: str,
        told: str = "",
    ) -> None:
        """`told`: the error without values of rows, for all but the discard file."""
        rule = ddl_rule_for(self._params.ddl_errors, sqlstate, code)
        told = told or str(error)
        self._try_again(rule, where, told)
        if rule.action == IGNORE:
            self._note(f"DDL of {change.full_name} ({where}) is left out by DDLERROR: {told}")
        elif rule.action == DISCARD:
            reason = Reason(DISCARD, f"error {sqlstate or code or '(none)'}", str(error))
            self._applying.discard_ddl(running, change, reason, self._trail_id())
            self._note(f"DDL of {change.full_name} ({where}) goes to the discard file by DDLERROR: {told}")
        elif isinstance(error, Exception):
            raise error
        else:
            raise OperatorError(
                f"DDL of {change.full_name} ({where}): the target refuses it: {told}. The source's statement: "
                f"{shown(change.sql)}",
                hint=BY_HAND,
            )

    def _try_again(self, rule: DdlErrorRule, where: str, error: str) -> None:
        tries = self._tries.get(where, 0)
        if tries < rule.retries:
            self._tries = {where: tries + 1}
            raise TryLaterError(f"DDL ({where}): try {tries + 1} of {rule.retries} failed: {error}", rule.delay)


def _told(change: DdlChange, where: str, item: Carry) -> str:
    done = "; ".join(item.statements) or "nothing to do"
    notes = f" ({'; '.join(item.notes)})" if item.notes else ""
    return (
        f"DDL {change.op} of {change.full_name} ({where}) to {item.target}: {done}{notes}. Source: {shown(change.sql)}"
    )
