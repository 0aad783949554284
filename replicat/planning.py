"""The plans in force: one for each definition that the trail gave and each MAP that takes its table.

Rule: a plan belongs to the target's shape as it was looked at. A new connection forgets them all, a DDL those of its
tables. What can't be planned is told when a row of it comes, not before: all changes in front of it still arrive. Only
at START everything that can be known is told at once (faults).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from replicat import startup
from replicat.expressions.compiling import Sql
from replicat.mapping.columns import MapErrors
from replicat.mapping.params import MapRule
from replicat.mapping.rules import (
    Rules,
    check_expressions,
    check_names,
    exception_rule,
    missing_table,
    plan_table,
    rules_for,
)
from replicat.params import ReplicatParams
from replicat.plan import TablePlan
from replicat.target import Target, TargetTable
from trails.errors import AwayError, GateError, OperatorError
from trails.fs import Fs
from trails.plan import Planner
from trails.position import Position, TrailName
from trails.record import TableDef
from trails.runtime.params import Pattern

Place = tuple[str, str]
_Looked = Mapping[Place, TargetTable | GateError | None]


@dataclass(frozen=True, slots=True)
class _Job:
    """A MAP for one table: where it goes, and the MAPs for what is refused of it."""

    rule: MapRule
    place: Place
    exceptions: tuple[tuple[MapRule, Place], ...]


def asks_spark(maps: Sequence[MapRule]) -> bool:
    """Whether there is an expression in any of them."""
    return any(rule.colmap or rule.conditions or (rule.exception and rule.exception.colmap) for rule in maps)


def needs_a_look(maps: Sequence[MapRule]) -> bool:
    """Whether a table may show a mistake in the MAPs themselves: expressions, or wildcards that overlap."""
    return len(maps) > 1 or asks_spark(maps)


class Planning:
    """Makes and keeps the plans of one group. `sql`: gives the Spark that analyses expressions, if there are any."""

    def __init__(
        self,
        params: ReplicatParams,
        target: Target,
        sql: Callable[[], Sql | None] = lambda: None,
        tell: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """`tell`: takes a line on each MAP that was found to take a table, once in a run."""
        self._tell = tell
        self._told: set[tuple[str, str]] = set()
        self._params = params
        self._target = target
        self._sql = sql
        self._plans: dict[bytes, tuple[TablePlan, ...]] = {}
        self._orders: list[tuple[Pattern, bool]] = []

    def handle_collisions(self, tables: Pattern, on: bool) -> None:
        """An order of the operator: from now on these source tables overlay collisions, or refuse them."""
        self._orders.append((tables, on))
        self.forget()

    def forget(self) -> None:
        """A new connection: whatever was looked at may have changed."""
        self._plans = {}

    def drop(self, sources: Collection[str], targets: Collection[str]) -> None:
        """Forget the plans of these tables (`schema.name`), and those that could not be made: they are tried again."""
        self._plans = {
            identity: plans
            for identity, plans in self._plans.items()
            if not any(plan.error or plan.source in sources or plan.target in targets for plan in plans)
        }

    def sources_of(self, target: Place) -> set[str]:
        """The source tables, as far as they were met, whose rows a target table takes."""
        return {
            plan.source
            for plans in self._plans.values()
            for plan in plans
            if not plan.error and (plan.layout.schema, plan.layout.name) == target
        }

    def plans(self, planner: Planner) -> dict[bytes, tuple[TablePlan, ...]]:
        """Plans for every definition met; a new dict only when there are new ones."""
        new = [definition for identity, definition in planner.definitions.items() if identity not in self._plans]
        if new:
            self._plans = self._plans | self._made(new)
        return self._plans

    def plan(self, definition: TableDef) -> tuple[TablePlan, ...]:
        """A plan for each MAP that takes the table; an error in one is told when a row of it comes."""
        return self._made([definition])[definition.id]

    def rules(self, schema: str, name: str) -> Rules:
        """The MAPs that take a table."""
        return rules_for(self._params.maps, self._params.excludes, schema, name)

    def check_start(
        self,
        fs: Fs,
        trail: TrailName,
        begin: Position | None,
        trail_id: bytes,
        *,
        began: bool = False,
    ) -> None:
        """Refuse to begin with what can be known to be wrong before the first row.

        A table whose shape changes somewhere in the trail is not judged by a definition that may be an older one. If
        something was applied already (`began`), a missing table may be one that was dropped long ago.
        """
        known = startup.definitions_at(fs, trail, begin, trail_id)
        found = self.faults(known, may_lack=began)
        if found:
            changed = startup.changed_tables(fs, trail)
            known = [each for each in known if (each.schema, each.name) not in changed]
            found = self.faults(known, changed, may_lack=began) if changed else found
        if needs_a_look(self._params.maps):
            behind = startup.definitions_behind(fs, trail, begin, trail_id, known)
            found += self.faults_of_maps(behind)
        if found:
            raise MapErrors(found)

    def faults_of_maps(self, definitions: Sequence[TableDef]) -> list[OperatorError]:
        """What is wrong with the MAPs themselves for tables whose target may still have to be made."""
        params = self._params
        sql = self._sql() if asks_spark(params.maps) else None
        return check_expressions(params.maps, params.excludes, definitions, sql, params.group)

    def faults(
        self, definitions: Sequence[TableDef], but: Collection[Place] = frozenset(), *, may_lack: bool = False
    ) -> list[OperatorError]:
        """Everything wrong with the MAPs of these tables, and of those that MAPs name without wildcards.

        `but`: source tables that are not looked at; `may_lack`: a table that the target lacks is no fault.
        """
        errors: list[OperatorError] = []
        jobs: list[tuple[TableDef, list[_Job]]] = []
        told = {".".join(place) for place in but}
        for definition in definitions:
            try:
                jobs.append((definition, self._jobs(definition.schema, definition.name)))
            except OperatorError as error:
                errors.append(error)
        unseen = [(source, job) for source, job in self._unseen(definitions, errors) if source not in told]
        looked = self._look([*(job for _, some in jobs for job in some), *(job for _, job in unseen)])
        for definition, some in jobs:
            for job in some:
                if not (may_lack and looked.get(job.place) is None):
                    errors += self._faults_of(job, definition, looked)
        for source, job in unseen:
            errors += self._unseen_faults(source, job, looked)
        return list({str(error): error for error in errors}.values())

    # --- making -----------------------------------------------------------------------------------------------------

    def _made(self, definitions: Iterable[TableDef]) -> dict[bytes, tuple[TablePlan, ...]]:
        made: dict[bytes, tuple[TablePlan, ...]] = {}
        jobs: list[tuple[TableDef, list[_Job]]] = []
        for definition in definitions:
            try:
                jobs.append((definition, self._jobs(definition.schema, definition.name)))
            except OperatorError as error:
                made[definition.id] = (startup.failing_plan(definition, str(error)),)
        # Looked at for every new definition: whoever changed the source may have changed the target shortly before.
        looked = self._look([job for _, some in jobs for job in some])
        for definition, some in jobs:
            plans = made[definition.id] = tuple(self._plan_or_error(job, definition, looked) for job in some)
            for job, plan in zip(some, plans, strict=True):
                self._tell_of(job, plan)
        return made

    def _tell_of(self, job: _Job, plan: TablePlan) -> None:
        if plan.error or (plan.source, plan.target) in self._told:
            return
        self._told.add((plan.source, plan.target))
        key = ", ".join(plan.layout.key) or "none: each change is applied by all columns"
        what = f"MAP resolved (entry {job.rule.source}): MAP {plan.source}, TARGET {plan.target}."
        self._tell(f"{what} Key columns: {key}.")

    def _jobs(self, schema: str, name: str) -> list[_Job]:
        found = self.rules(schema, name)
        jobs = []
        for rule in found.rules:
            own = exception_rule(rule)
            others = [*([own] if own else []), *found.exceptions]
            places = tuple((other, other.target.fill(schema, name)) for other in others)
            jobs.append(_Job(rule, rule.target.fill(schema, name), places))
        return jobs

    def _look(self, jobs: Iterable[_Job]) -> _Looked:
        """The target's tables; few round trips where nothing is wrong with any of them."""
        places = {place for job in jobs for place in (job.place, *(place for _, place in job.exceptions))}
        if not places:
            return {}
        try:
            return dict(self._target.tables(sorted(places)))
        except OperatorError:
            return {place: self._look_at(place) for place in places}

    def _look_at(self, place: Place) -> TargetTable | GateError | None:
        try:
            return self._target.table(*place)
        except OperatorError as error:
            return error

    def _plan_or_error(self, job: _Job, definition: TableDef, looked: _Looked) -> TablePlan:
        try:
            return self._plan(job, definition, looked)
        except AwayError:
            raise
        except GateError as error:
            return startup.failing_plan(definition, str(error))

    def _plan(self, job: _Job, definition: TableDef, looked: _Looked) -> TablePlan:
        exceptions = tuple(self._mapped(rule, place, definition, looked) for rule, place in job.exceptions)
        return self._mapped(job.rule, job.place, definition, looked, exceptions)

    def _mapped(
        self, rule: MapRule, place: Place, definition: TableDef, looked: _Looked, more: tuple[TablePlan, ...] = ()
    ) -> TablePlan:
        for pattern, on in self._orders:
            if pattern.matches(definition.schema, definition.name):
                rule = replace(rule, toggles=replace(rule.toggles, collisions=on))
        table = self._table(rule, place, definition.full_name, looked)
        sql = self._sql() if rule.colmap or rule.conditions else None
        plan = plan_table(rule, definition, table, sql=sql, group=self._params.group, exceptions=more)
        self._target.check_layout(plan.layout)
        return plan

    def _table(self, rule: MapRule, place: Place, source: str, looked: _Looked) -> TargetTable:
        table = looked.get(place)
        if isinstance(table, GateError):
            raise table
        if table is None:
            raise missing_table(rule, source, place)
        if table.fires and not self._allows_triggers:
            raise startup.would_fire(rule, table, self._target.kind)
        return table

    @property
    def _allows_triggers(self) -> bool:
        suppress = self._params.db_options.suppress_triggers
        return self._params.allow_triggers if suppress is None else not suppress

    # --- what is wrong ------------------------------------------------------------------------------------------------

    def _faults_of(self, job: _Job, definition: TableDef, looked: _Looked) -> list[OperatorError]:
        found: list[OperatorError] = []
        for rule, place in ((job.rule, job.place), *job.exceptions):
            try:
                self._mapped(rule, place, definition, looked)
            except MapErrors as several:
                found += several.errors
            except OperatorError as error:
                found.append(error)
        return found

    def _unseen(self, seen: Sequence[TableDef], errors: list[OperatorError]) -> list[tuple[str, _Job]]:
        """The MAPs without wildcards whose tables the trail has not told of."""
        known = {(definition.schema, definition.name) for definition in seen}
        found: dict[Place, list[_Job]] = {}
        for rule in self._params.maps:
            exact = rule.source.exact
            if exact is not None and exact not in known and exact not in found:
                try:
                    found[exact] = self._jobs(*exact)
                except OperatorError as error:
                    errors.append(error)
        return [(".".join(exact), job) for exact, some in found.items() for job in some]

    def _unseen_faults(self, source: str, job: _Job, looked: _Looked) -> list[OperatorError]:
        found: list[OperatorError] = []
        for rule, place in ((job.rule, job.place), *job.exceptions):
            if looked.get(place) is None and rule is job.rule and self._params.ddl is not None:
                continue  # its CREATE may be on its way
            try:
                found += check_names(rule, source, self._table(rule, place, source, looked))
            except OperatorError as error:
                found.append(error)
        return found
