"""The plans in force: one for each definition that the trail gave and each MAP that takes its table.

Rule: a plan belongs to the target's shape as it was looked at. A new connection forgets them all, a DDL those of its
tables. What can't be planned is told when a row of it comes, not before: all changes in front of it still arrive. Only
at START everything that can be known is told at once (faults).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from replicat.batches import startup
from replicat.batches.capable import check_plan, loosened, parts_seen, unfit_options
from replicat.maps.columns import MapErrors
from replicat.maps.expressions import sparknames
from replicat.maps.expressions.compiling import Sql
from replicat.maps.rules import (
    Rules,
    check_expressions,
    check_names,
    check_plain_names,
    exception_rule,
    missing_table,
    plan_table,
    rules_for,
)
from replicat.maps.tableerror import pause_rule
from replicat.model.mapparams import MapRule
from replicat.model.pausing import Pair
from replicat.model.plan import TablePlan
from replicat.model.target import TargetTable
from replicat.params import ReplicatParams
from replicat.targets.contract import Target
from replicat.targets.kinds import SOURCES
from trails.errors import AnewError, AwayError, GateError, OperatorError
from trails.fs import Fs
from trails.position import Position, TrailName
from trails.record import TableDef, TableId
from trails.runtime.language.params import Pattern

_Looked = Mapping[TableId, TargetTable | GateError | None]


@dataclass(frozen=True, slots=True)
class _Job:
    """A MAP for one table: where it goes, and the MAPs for what is refused of it."""

    rule: MapRule
    place: TableId
    exceptions: tuple[tuple[MapRule, TableId], ...]


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
        source: Callable[[], str] = lambda: "",
    ) -> None:
        """`tell`: takes a line on each MAP that was found to take a table, once in a run.

        `source`: gives the kind of database that the trail's changes are of, as its header names it.
        """
        self._source = source
        self._kind = ""
        self._tell = tell
        self._told: set[tuple[str, str]] = set()
        self._told_firing: set[str] = set()
        self._params = params
        self._target = target
        self._sql = sql
        self._plans: dict[bytes, tuple[TablePlan, ...]] = {}
        self._orders: list[tuple[Pattern, bool]] = []
        self.judging: Callable[[TablePlan, TableDef], TablePlan] = lambda plan, _definition: plan
        """Gives the plan of a table that is being loaded its chunks."""
        self.left_out: Callable[[], Collection[Pair]] = frozenset
        """Gives the tables whose changes are left out, and whose targets nobody looks at."""

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

    @property
    def source(self) -> str:
        """The kind of database that the changes are of; empty as long as there is no trail."""
        self._kind = self._kind or self._source()
        return self._kind

    def sources_of(self, target: TableId) -> set[str]:
        """The source tables, as far as they were met, whose rows a target table takes."""
        return {
            plan.source
            for plans in self._plans.values()
            for plan in plans
            if not plan.error and (plan.layout.schema, plan.layout.name) == target
        }

    def plans(self, definitions: Mapping[bytes, TableDef]) -> dict[bytes, tuple[TablePlan, ...]]:
        """Plans for every definition met; a new dict only when there are new ones."""
        new = [definition for identity, definition in definitions.items() if identity not in self._plans]
        if new:
            self._plans = self._plans | self._made(new)
        return self._plans

    def plan(self, definition: TableDef) -> tuple[TablePlan, ...]:
        """A plan for each MAP that takes the table; an error in one is told when a row of it comes."""
        return self._made([definition])[definition.id]

    def plans_to(self, definition: TableDef, target: str) -> tuple[TablePlan, ...]:
        """Those that go to one target table, also where their changes are left out at this time."""
        jobs = [job for job in self._jobs(definition.schema, definition.name) if ".".join(job.place) == target]
        looked = self._look(jobs)
        return tuple(self._plan_or_error(job, definition, looked) for job in jobs)

    def rules(self, schema: str, name: str) -> Rules:
        """The MAPs that take a table."""
        return rules_for(self._params.maps, self._params.excludes, schema, name)

    def targets_of(self, schema: str, name: str) -> list[TableId]:
        """The target tables to which MAPs take a source table."""
        return [rule.target.fill(schema, name) for rule in self.rules(schema, name).rules]

    def check_start(
        self,
        fs: Fs,
        trail: TrailName,
        begin: Position | None,
        trail_id: bytes,
        *,
        began: bool = False,
    ) -> list[str]:
        """Refuse to begin with what can be known to be wrong before the first row; warnings of what may be wrong.

        A table whose shape changes somewhere in the trail is not judged by a definition that may be an older one. If
        something was applied already (`began`), a missing table may be one that was dropped long ago, and what does not
        fit to a definition that no row has is told and refuses nothing: its shape may be one of long ago.
        """
        known = startup.definitions_at(fs, trail, begin, trail_id)
        if asks_spark(self._params.maps):
            self._check_names(fs, trail, [*known, *startup.definitions_behind(fs, trail, begin, trail_id, known)])
        told_of = known
        doubtful: list[str] = []
        found = self.faults(known, may_lack=began, pausing=True)
        if found:
            changed = startup.changed_tables(fs, trail)
            known = [each for each in known if (each.schema, each.name) not in changed]
            waiting = lambda: startup.shapes_waiting(fs, trail, begin, trail_id)  # noqa: E731
            found, doubtful = self.judged(known, changed, waiting, began=began, pausing=True)
        if needs_a_look(self._params.maps):
            behind = startup.definitions_behind(fs, trail, begin, trail_id, known)
            found += self.faults_of_maps(behind)
        if found:
            raise MapErrors(found)
        for text in startup.unmatched(self._params.maps, fs, trail, begin, trail_id, told_of):
            self._tell(f"{text}.")
        return doubtful

    def _check_names(self, fs: Fs, trail: TrailName, definitions: Sequence[TableDef]) -> None:
        """Names that no table has are told before Spark is started for the rest of an expression."""
        params = self._params
        known = sparknames.functions(params.spark_options)
        found = check_plain_names(params.maps, params.excludes, definitions, params.group, known)
        if found and (changed := startup.changed_tables(fs, trail)):
            definitions = [each for each in definitions if (each.schema, each.name) not in changed]
            found = check_plain_names(params.maps, params.excludes, definitions, params.group, known)
        if found:
            raise MapErrors(found)

    def faults_of_maps(self, definitions: Sequence[TableDef]) -> list[OperatorError]:
        """What is wrong with the MAPs themselves for tables whose target may still have to be made."""
        params = self._params
        sql = self._sql() if asks_spark(params.maps) else None
        return check_expressions(params.maps, params.excludes, definitions, sql, params.group)

    def faults(
        self,
        definitions: Sequence[TableDef],
        but: Collection[TableId] = frozenset(),
        *,
        may_lack: bool = False,
        pausing: bool = False,
        must_fit: Callable[[TableDef], bool] = lambda _definition: True,
    ) -> list[OperatorError]:
        """Everything wrong with the MAPs of these tables, and of those that MAPs name without wildcards.

        `but`: source tables that are not looked at; `may_lack`: a table that the target lacks is no fault. `pausing`:
        nor is what TABLEERROR pauses a table for, at its first row. `must_fit`: whether a MAP of a definition must fit
        to the target's columns.
        """
        errors = unfit_options(self._params.db_options, self._target.kind)
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
                lacks = may_lack and looked.get(job.place) is None
                pauses = pausing and pause_rule(self._params.table_errors, definition.full_name) is not None
                if not (lacks or pauses or self._is_left_out(definition, job)):
                    errors += self._faults_of(job, definition, looked, must_fit(definition))
        for source, job in unseen:
            pauses = pausing and pause_rule(self._params.table_errors, source) is not None
            if pauses or (source, ".".join(job.place)) in self.left_out():
                continue
            errors += self._unseen_faults(source, job, looked)
        return list({str(error): error for error in errors}.values())

    def judged(
        self,
        definitions: Sequence[TableDef],
        but: Collection[TableId],
        waiting: Callable[[], Collection[bytes]],
        *,
        began: bool,
        pausing: bool = False,
    ) -> tuple[list[OperatorError], list[str]]:
        """What is wrong, as `faults` finds it; and what may be wrong with definitions that no row has, for people.

        `waiting`: the definitions of rows that are still to come; asked for only where something was applied already.
        """
        found = self.faults(definitions, but, may_lack=began, pausing=pausing)
        if not found or not began:
            return found, []
        used = waiting()
        sure = self.faults(definitions, but, may_lack=True, pausing=pausing, must_fit=lambda each: each.id in used)
        told = {str(error) for error in sure}
        return sure, [
            f"{error.message}. No row of this shape waits in the trail: nothing is refused before one comes"
            for error in found
            if str(error) not in told
        ]

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
            plans = made[definition.id] = tuple(
                startup.plan_without(definition, job.place)
                if self._is_left_out(definition, job)
                else self._plan_or_error(job, definition, looked)
                for job in some
            )
            for job, plan in zip(some, plans, strict=True):
                self._tell_of(job, plan)
        return made

    def _is_left_out(self, definition: TableDef, job: _Job) -> bool:
        return (definition.full_name, ".".join(job.place)) in self.left_out()

    def _tell_of(self, job: _Job, plan: TablePlan) -> None:
        if plan.error or (plan.source, plan.target) in self._told or (plan.source, plan.target) in self.left_out():
            return
        others = {target for _, target in self._told} - {plan.target}
        self._told.add((plan.source, plan.target))
        key = ", ".join(plan.layout.key) or "none: each change is applied by all columns"
        what = f"MAP resolved (entry {job.rule.source}): MAP {plan.source}, TARGET {plan.target}."
        self._tell(f"{what} Key columns: {key}.")
        if warning := parts_seen(self._target.kind, others):
            self._tell(warning)

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

    def _look_at(self, place: TableId) -> TargetTable | GateError | None:
        try:
            return self._target.table(*place)
        except OperatorError as error:
            return error

    def _plan_or_error(self, job: _Job, definition: TableDef, looked: _Looked) -> TablePlan:
        try:
            return self._plan(job, definition, looked)
        except (AwayError, AnewError):  # not of this table
            raise
        except GateError as error:
            return startup.failing_plan(definition, str(error), job.place)

    def _plan(self, job: _Job, definition: TableDef, looked: _Looked) -> TablePlan:
        exceptions = tuple(self._mapped(rule, place, definition, looked) for rule, place in job.exceptions)
        return self._mapped(job.rule, job.place, definition, looked, exceptions)

    def _mapped(
        self, rule: MapRule, place: TableId, definition: TableDef, looked: _Looked, more: tuple[TablePlan, ...] = ()
    ) -> TablePlan:
        for pattern, on in self._orders:
            if pattern.matches(definition.schema, definition.name):
                rule = replace(rule, toggles=replace(rule.toggles, collisions=on))
        kind = self._target.kind
        table, rule = self._table(rule, place, definition.full_name, looked), loosened(rule, kind)
        sql = self._sql() if rule.colmap or rule.conditions else None
        like = SOURCES.get(self.source) is kind
        plan = plan_table(rule, definition, table, sql=sql, group=self._params.group, exceptions=more, like=like)
        check_plan(rule, plan, kind)
        self._target.check_layout(plan.layout)
        return self.judging(plan, definition)

    def _table(self, rule: MapRule, place: TableId, source: str, looked: _Looked) -> TargetTable:
        table = looked.get(place)
        if isinstance(table, GateError):
            raise table
        if table is None:
            raise missing_table(rule, source, place)
        if table.fires:
            self._accept(rule, table)
        return table

    def _accept(self, rule: MapRule, table: TargetTable) -> None:
        """What fires is refused, or told: it may have come since somebody accepted another."""
        if not self._allows_triggers:
            raise startup.would_fire(rule, table, self._target.kind.without_triggers)
        if table.full_name not in self._told_firing:
            self._told_firing.add(table.full_name)
            self._tell(f"Target table {table.full_name} has {', '.join(table.fires)}: accepted by the parameter file.")

    @property
    def _allows_triggers(self) -> bool:
        return self._params.allow_triggers or self._params.db_options.suppress_triggers is False

    # --- what is wrong ------------------------------------------------------------------------------------------------

    def _faults_of(self, job: _Job, definition: TableDef, looked: _Looked, must_fit: bool) -> list[OperatorError]:
        found: list[OperatorError] = []
        for rule, place in ((job.rule, job.place), *job.exceptions):
            try:
                self._mapped(rule, place, definition, looked)
            except MapErrors as several:
                found += several.errors if must_fit else ()
            except OperatorError as error:
                found.append(error)
        return found

    def _unseen(self, seen: Sequence[TableDef], errors: list[OperatorError]) -> list[tuple[str, _Job]]:
        """The MAPs without wildcards whose tables the trail has not told of."""
        known = {(definition.schema, definition.name) for definition in seen}
        found: dict[TableId, list[_Job]] = {}
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
