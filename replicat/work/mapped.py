"""A table's images to rows of its target, by the MAP's program: columns, facts, expressions, filters, conversions.

    image(s) of a change --asks--> evaluations (Spark, or nothing to evaluate) --> mapped row(s) --> the table's worker

Rule: which evaluations a change needs, and in which order, follows from `Mapper.asks` alone. The stage that sends
operands to Spark and the stage that takes its results both ask it, so results need no names.
MISSING in an after image is taken from the before image if it is there. Where a filter says which rows belong to the
target, an update that takes its row in or out becomes an insert or a delete.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from replicat.model.plan import TablePlan
from replicat.model.programs import DELETE, INSERT, OLD, OUT, PASSES, ROLES, UPDATE, Programs
from replicat.model.target import RefusedError, UnmappedError
from replicat.work.net.compact import merge, whole
from replicat.work.roles import NOTHING, TRANDATA, Ask, ChangeFacts, Failure, Known, Result, Role, unjudged
from trails.errors import AwayError, OperatorError
from trails.record import MISSING, Image, Op, Value


class RowMapper:
    """Maps the changes of one plan that has a program."""

    def __init__(self, plan: TablePlan, programs: Programs) -> None:
        mapping = plan.mapping
        assert mapping is not None
        self.plan = plan
        self.mapping = mapping
        self.roles = {kind: Role(plan, kind, programs) for kind in ROLES}
        every = self.roles[UPDATE].program.values
        self._shared = [1 + every.index(value) for value in self.roles[OLD].program.values]
        self.filtered = any(not test.ops for test in mapping.filters)
        width = len(plan.columns)
        self.nulls: Image = (None,) * width
        self.nothing: Image = [MISSING] * width
        self._source_key = frozenset(mapping.source_key)
        # Without a before image nothing ever tells if a filter let the row in, and its key is that of the new one.
        self.blind = self._is_blind() and not mapping.needs_before
        self._looks_back = not (mapping.insert_all or mapping.insert_updates)
        self._always_back = self.filtered or not plan.key or plan.conflict is not None or mapping.needs_before
        key = [mapping.slots[i] for i in plan.key]
        self.key_moves = any(slot.kind not in ("column", "const") for slot in key)
        self._key_columns = [slot.index for slot in key if slot.kind == "column"]
        self.swift = self._swift_roles()
        """By operation: the role of a change that is nothing but one whole image, as most are; else None."""

    def asks(self, op: int, after: Image, before: Image | None) -> tuple[Ask, Ask | None]:
        """What a change (its record's number: 2, 3, 4) needs mapped: its row, and for an update the row that was.

        The `after` of a delete is the row that is gone.
        """
        if op == Op.INSERT:
            return self.roles[INSERT].ask(after, self.nulls), None
        if op == Op.DELETE:
            return self.roles[DELETE].ask(after, after), None
        if before is None:
            new = self.roles[UPDATE].ask(after, self.nothing)
            if self.blind or not self._looks_back or not (self._always_back or self.key_moves):
                return new, None
            return new, self._old(self._key_alone(after), new)
        new = self.roles[UPDATE].ask(merge(before, after), before)
        return new, self._old(before, new) if self._looks_back else None

    def _swift_roles(self) -> tuple[Role | None, ...]:
        update = self.roles[UPDATE]
        alone = self.blind or not self._looks_back or not (self._always_back or self.key_moves)
        return None, None, self.roles[INSERT], update if alone and not update.reads_before else None, None

    def _old(self, image: Image, new: Ask) -> Ask:
        role = self.roles[OLD]
        old = role.ask(image, image)
        if role.number >= 0 and old.mask is None and new.mask is None and role.same(image, new.image):
            old = old._replace(shared=True)
        return old

    def key_row(self, after: Image) -> list[Value]:
        """The key alone of the row that an image maps to, where `blind`."""
        row: list[Value] = [MISSING] * len(self.mapping.slots)
        for i in self.plan.key:
            row[i] = after[self.mapping.slots[i].index]
        return row

    def _is_blind(self) -> bool:
        slots, key = self.mapping.slots, self._source_key
        plain = all(slots[i].kind == "column" and slots[i].index in key for i in self.plan.key)
        reads = [{o.index for o in e.operands if o.index >= 0} for e in self.roles[OLD].program.row_filters]
        never = bool(reads) and all(not columns <= key for columns in reads)
        tests = any(o.kind == "missing" for e in self.roles[OLD].program.row_filters for o in e.operands)
        return never and plain and not tests and bool(self.plan.key) and self.plan.conflict is None

    def _key_alone(self, after: Image) -> Image:
        """The row that was, where the source says no more than that its key is the same."""
        return [value if i in self._source_key else MISSING for i, value in enumerate(after)]

    def shared(self, new: Result) -> Result:
        """The results of the row that was, out of those of an equal new one."""
        return [new[0], *(new[i] for i in self._shared)] if new[0] == PASSES else new


@dataclass(frozen=True, slots=True)
class Evaluations:
    """Where results come from: one for each ask that evaluates, in order."""

    _results: Iterator[Result | Failure] | None = None

    def of(self, ask: Ask) -> Result:
        """An ask's result; RefusedError if its evaluation failed."""
        return self.next(ask.role) if ask.evaluates else NOTHING

    def next(self, role: Role) -> Result:
        """The next result; NOTHING for a role that evaluates nothing."""
        if role.number < 0:
            return NOTHING
        if self._results is None:
            raise OperatorError(
                f"{role.plan.source}: its MAP has expressions, and there is no Spark to evaluate them",
                hint="STOP the Replicat, then START it: a start with expressions begins Spark",
            )
        result = next(self._results, None)
        if result is None:
            raise AwayError(
                f"{role.plan.source}: the results of its expressions end too early: the worker that sends the operands "
                "could not read on",
                hint="Trail files must be the same for all of Spark's workers; see the group's Spark log",
            )
        if type(result) is Failure:
            raise RefusedError(role.plan.target, result.message, result.sqlstate, shown=result.shown)
        return result


class MappedWorker:
    """Takes a table's images, and gives mapped rows to its worker.

    `left_out`: counts the inserts, updates, deletes that the filters left out.
    """

    def __init__(
        self, mapper: RowMapper, inner: Any, evaluations: Evaluations, facts: ChangeFacts, left_out: list[int]
    ) -> None:
        """`inner`: a replicat.work.workers.Worker, an Overlay (or around one) where the plan has filters."""
        if mapper.mapping.update_deletes and not mapper.plan.key and not mapper.mapping.insert_all:
            raise UnmappedError(
                mapper.plan.target,
                "UPDATEDELETES, and the table has no key to find the row by",
                hint="Name its key by KEYCOLS, or take UPDATEDELETES out for this MAP (NOUPDATEDELETES)",
            )
        self.left_out = left_out
        self._mapper = mapper
        self._plan = mapper.plan
        self._mapping = mapper.mapping
        self._inner = inner
        self._evaluations = evaluations
        self._facts = facts
        *_, self._swift_insert, self._swift_update, _ = mapper.swift
        # Of a whole image, whose row may be in the target or not: what most updates of a filtered table are.
        news = mapper.mapping.insert_all or mapper.mapping.insert_updates
        self._upserts = mapper.blind and not news and mapper.roles[UPDATE].complete

    def insert(self, row: Image) -> None:
        """A new row."""
        if (role := self._swift_insert) is not None and whole(row):
            self._swift(role, row, self._evaluations.next(role))
            return
        ask, _ = self._mapper.asks(2, row, None)
        known = self._known(ask)
        if self._judged(known, ask):
            self._insert(known.row, ask.role)
        else:
            self.left_out[0] += 1

    def delete(self, before: Image) -> None:
        """A row that is gone."""
        ask, _ = self._mapper.asks(4, before, None)
        known = self._known(ask)
        mapping = self._mapping
        if known.out or known.passes is False:
            self.left_out[2] += 1
        elif mapping.insert_all or mapping.insert_deletes:
            self._judged(known, ask)
            self._inner.insert(_complete(known.row))
        elif mapping.update_deletes:
            self._update(known.row, None, may=known.passes is None)
        else:
            self._delete(known.row, may=known.passes is None)

    def update(self, after: Image, before: Image | None) -> None:
        """A row as it became."""
        if before is None and (role := self._swift_update) is not None and whole(after):
            self._swift(role, after, self._evaluations.next(role))
            return
        new_ask, old_ask = self._mapper.asks(3, after, before)
        result = self._evaluations.of(new_ask)
        old_result = NOTHING
        if old_ask is not None:
            old_result = self._mapper.shared(result) if old_ask.shared else self._evaluations.of(old_ask)
        new = new_ask.role.known(new_ask, result, self._facts)
        if new.out:
            self.left_out[1] += 1
            return
        passes = self._judged(new, new_ask)
        if old_ask is None:
            self._without_old(new.row if passes else None, after, blind=before is None and self._mapper.blind)
            return
        old = old_ask.role.known(old_ask, old_result, self._facts)
        if self._mapper.filtered:
            self._between(new, passes, old, new_ask)
        else:
            self._update(new.row, self._old_row(old.row, new.row), may=False)

    def _swift(self, role: Role, image: Image, result: Result) -> None:
        """One whole image is all that there is of a change."""
        mapper, passes = self._mapper, result[0] == PASSES
        before = mapper.nulls if role is self._swift_insert else mapper.nothing
        row = role.row(image, before, result, self._facts) if passes else None
        if row is not None and role is self._swift_insert:
            self._insert(row, role)
        elif row is not None and self._upserts:
            self._inner.upsert(row)
        elif role is self._swift_insert or result[0] == OUT:
            self.left_out[role is not self._swift_insert] += 1
        else:
            self._without_old(row, image, blind=mapper.blind)

    def _without_old(self, row: Image | None, after: Image, *, blind: bool) -> None:
        """An update of which no more is known than its new row, if that passes. `blind`: the old one may have."""
        if self._mapping.insert_all or self._mapping.insert_updates:
            if row is None:
                self.left_out[1] += 1
            else:
                self._inner.insert(_complete(row))
        elif row is None and blind:
            self._inner.delete(self._mapper.key_row(after), may=True)
        elif row is None:
            self.left_out[1] += 1
        elif blind and not whole(row):
            raise self._not_whole(row)
        elif blind:
            self._inner.upsert(row)
        else:
            self._inner.update(row, None)

    def _between(self, new: Known, passes: bool, old: Known, ask: Ask) -> None:
        """Whether the row belonged to the target before, and whether it does now."""
        if old.passes is False:
            if passes:
                self._inner.insert(ask.role.as_new(new.row))
            else:
                self.left_out[1] += 1
        elif passes:
            if old.passes is None and MISSING in new.row and self._plan.key:
                raise self._not_whole(new.row)
            self._update(new.row, self._old_row(old.row, new.row), may=old.passes is None)
        else:
            self._delete(old.row, may=old.passes is None)

    def _not_whole(self, row: Image) -> UnmappedError:
        lacking = [name for name, value in zip(self._plan.layout.columns, row, strict=True) if value is MISSING]
        return UnmappedError(
            self._plan.source,
            f"an UPDATE came without {', '.join(lacking)}, and without what tells if the filter "
            f"let its row into {self._plan.target} before",
            hint=TRANDATA,
        )

    # --- giving on ----------------------------------------------------------------------------------------------------

    def _known(self, ask: Ask) -> Known:
        return ask.role.known(ask, self._evaluations.of(ask), self._facts)

    def _judged(self, known: Known, ask: Ask) -> bool:
        """Whether the row belongs to the target; of a new row that must be known."""
        if known.passes is None:
            assert ask.mask is not None
            program = ask.role.program
            at = next(i for i in range(len(program.op_filters) + len(program.row_filters)) if ask.mask[i])
            raise unjudged(self._plan, program.all[at], ask.role.kind)
        return known.passes and not known.out

    def _insert(self, row: Image, role: Role) -> None:
        """What an insert becomes."""
        if self._mapping.insert_all:
            self._inner.insert(_complete(row))
        elif self._mapping.update_inserts and self._plan.key:
            self._inner.upsert(row)
        else:
            self._inner.insert(role.as_new(row))

    def _update(self, row: Image, was: Image | None, *, may: bool) -> None:
        if may and self._plan.key:
            self._inner.update(row, was, may=True)
        else:
            self._inner.update(row, was)

    def _delete(self, row: Image, *, may: bool) -> None:
        self._need_key(row)
        if may and self._plan.key:
            self._inner.delete(row, may=True)
        else:
            self._inner.delete(row)

    def _old_row(self, old: Image, new: Image) -> Image | None:
        """The row that was, as far as it is needed; None where nothing of it is."""
        plan = self._plan
        if not plan.key:
            return old
        if self._mapping.needs_before or self._mapper.key_moves:
            self._need_key(old)
        if plan.conflict is None and all(old[i] is MISSING or old[i] == new[i] for i in plan.key):
            return None
        return old

    def _need_key(self, row: Image) -> None:
        lacking = [self._plan.layout.columns[i] for i in self._plan.key if row[i] is MISSING]
        if lacking:
            raise UnmappedError(
                self._plan.source,
                f"a change came without what key column {', '.join(lacking)} of "
                f"{self._plan.target} comes from, so it is not known which row it is of",
                hint=TRANDATA,
            )


def _complete(row: Image) -> list[Value]:
    """A row that is inserted although its image was not whole."""
    return [None if value is MISSING else value for value in row]
