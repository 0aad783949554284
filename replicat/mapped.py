"""A table's images to rows of its target, by the MAP's program: columns, facts, expressions, filters, conversions.

    image(s) of a change --asks--> evaluations (Spark, or nothing to evaluate) --> mapped row(s) --> the table's worker

Rule: which evaluations a change needs, and in which order, follows from `Mapper.asks` alone. The stage that sends
operands to Spark and the stage that takes its results both ask it, so results need no names.
MISSING in an after image is taken from the before image if it is there; an expression over a column that is MISSING
gives MISSING, unless it tests for that itself (@COLTEST).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any, NamedTuple

from replicat.compact import merge, whole
from replicat.plan import Expression, MapProgram, Operand, TablePlan
from replicat.programs import (
    DELETE,
    INSERT,
    OLD,
    OUT,
    PASSES,
    ROLES,
    UPDATE,
    Programs,
    program_of,
    wanted_slots,
)
from replicat.sparktext import from_spark, to_spark
from replicat.target import RefusedError
from trails.errors import OperatorError
from trails.position import Position
from trails.record import MISSING, Image, Value

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TRANDATA = (
    "ADD TRANDATA with ALLCOLS for this table (REPLICA IDENTITY FULL), and GETUPDATEBEFORES for it in its Extract"
)


@dataclass(slots=True)
class Facts:
    """What is known of a change beside its images. `more`: of its error (lasterr.*)."""

    csn: str | None = None
    xid: str | None = None
    time_us: int | None = None
    position: Position | None = None
    index: int = 0
    more: dict[str, Value] = field(default_factory=dict)
    _commit: tuple[int, str] = (0, "1970-01-01 00:00:00+00")

    def begin(self, csn: str | None, xid: str | None, time_us: int | None) -> None:
        """A transaction begins."""
        self.csn, self.xid, self.time_us, self.index = csn, xid, time_us, 0

    def value(self, name: str) -> Value:
        """A fact as canonical text."""
        if name == "commit_time":
            if self.time_us is None:
                return None
            if self._commit[0] != self.time_us:
                self._commit = self.time_us, commit_text(self.time_us)
            return self._commit[1]
        if name == "position":
            return None if self.position is None else f"{self.position.seqno}/{self.position.rba}"
        if name == "index":
            return str(self.index)
        if name in self.more:
            return self.more[name]
        return self.csn if name == "csn" else self.xid if name == "xid" else None


def commit_text(us: int) -> str:
    """A commit time as docs/values.md has a timestamptz."""
    moment = _EPOCH + timedelta(microseconds=us)
    text = moment.isoformat(" ", "seconds").removesuffix("+00:00")
    fraction = f"{us % 1_000_000:06d}".rstrip("0")
    return f"{text}.{fraction}+00" if fraction else f"{text}+00"


class Failure(NamedTuple):
    """An evaluation that failed, instead of its results."""

    sqlstate: str
    message: str


Result = Sequence[Any]
"""What an evaluation gave: the filters' verdict, then values as Spark writes them (maybe more than there are)."""
_NOTHING: Result = (PASSES,)


class Ask(NamedTuple):
    """One image to be mapped. `before`: what `before.` names; `mask`: which expressions can't be evaluated; `shared`:
    the results are those of the ask in front of it.
    """

    role: Role
    image: Image
    before: Image
    mask: tuple[bool, ...] | None
    shared: bool = False

    @property
    def evaluates(self) -> bool:
        """Whether Spark is asked."""
        return self.role.number >= 0 and not self.shared and not (self.mask is not None and all(self.mask))


class Known(NamedTuple):
    """A mapped row. `passes`: the row filters' verdict, None if it can't be known; `out`: the operation is left out."""

    row: Image
    passes: bool | None = True
    out: bool = False


class _Pool:
    """Everything that a role's operands and slots read, side by side: image, before image, constants, facts.

    Only what somebody reads is in it; what stands at the end may follow without being named here.
    """

    def __init__(self, width: int, kind: str) -> None:
        self._width = width
        self._kind = kind
        self._before = False
        self._constants: list[Value] = []
        self._facts: list[str] = []
        self._wanted: list[tuple[str, int]] = []

    def want(self, kind: str, index: int, text: Value) -> int:
        """A number for place(): of an operand or slot. `text`: a fact's name, or a constant."""
        if kind in ("fact", "const"):
            if kind == "fact" and text == "operation":
                kind, text = "const", UPDATE if self._kind == OLD else self._kind
            named: list[Any] = self._facts if kind == "fact" else self._constants
            named.append(text)
            index = len(named) - 1
        self._before = self._before or kind == "before"
        self._wanted.append((kind, index))
        return len(self._wanted) - 1

    def place(self, number: int) -> int:
        """Where in the pool that stands, once everything is wanted."""
        kind, index = self._wanted[number]
        before = self._width if self._before else 0
        base = {"before": self._width, "const": self._width + before}
        base["fact"] = base["const"] + len(self._constants)
        return base.get(kind, 0) + index

    @property
    def size(self) -> int:
        """Where what follows begins."""
        return self._width * (1 + self._before) + len(self._constants) + len(self._facts)

    def of(self, ask: Ask, facts: Facts) -> Sequence[Any]:
        """The pool for one image."""
        if not (self._before or self._constants or self._facts):
            return ask.image
        pool = [*ask.image, *ask.before] if self._before else list(ask.image)
        pool += self._constants
        for name in self._facts:
            pool.append(facts.value(name))
        return pool


class Role:
    """How images of one kind are mapped: what is read, what is evaluated, what is put where."""

    def __init__(self, plan: TablePlan, kind: str, programs: Programs) -> None:
        mapping = plan.mapping
        assert mapping is not None
        self.kind = kind
        self.plan = plan
        self.program = program_of(plan, kind)
        self.number = programs.number(self.program)
        self._filters = len(self.program.op_filters) + len(self.program.row_filters)
        self._needs = [_needs(expression) for expression in self.program.all]
        self.reads_before = any(operand.kind == "before" for operand in self.program.operands)
        self._columns = sorted({o.index for o in self.program.operands if o.kind in ("column", "missing", "token")})
        self._read_operands(len(plan.columns), programs.width)
        self._read_slots(len(plan.columns), mapping)

    def _read_operands(self, width: int, columns: int) -> None:
        operands = self.program.operands
        self._operands = _Pool(width, self.kind)
        wanted = [self._operands.want(*_operand(operand)) for operand in operands]
        self._pick_operands = _picker([self._operands.place(number) for number in wanted])
        made = {i: _converter(operand) for i, operand in enumerate(operands)}
        self._converters = [(i, convert) for i, convert in made.items() if convert is not None]
        self._tests = any(operand.kind == "missing" for operand in operands)
        self._padding = (None,) * (columns - len(operands))

    def _read_slots(self, width: int, mapping: MapProgram) -> None:
        wanted = set(wanted_slots(self.plan, self.kind))
        values = {id(expression): i for i, expression in enumerate(self.program.values)}
        self._slots = _Pool(width, self.kind)
        places: list[tuple[bool, int]] = []  # of a value, or of what the pool holds
        for i, slot in enumerate(mapping.slots):
            if i in wanted and slot.kind == "expr":
                places.append((True, values[id(mapping.expressions[slot.index])]))
            elif i in wanted:
                text = slot.name if slot.kind == "fact" else slot.value
                places.append((False, self._slots.want(slot.kind, slot.index, text)))
            else:
                places.append((False, self._slots.want("const", 0, MISSING)))
        # Behind the pool stand the verdict, and the values.
        first = self._slots.size + 1
        self._pick_slots = _picker([first + at if value else self._slots.place(at) for value, at in places])
        self._results = [
            (1 + i, convert) for i, value in enumerate(self.program.values) if (convert := _result(value)) is not None
        ]
        self._left_out = [
            i
            for i, slot in enumerate(mapping.slots)
            if slot.value is MISSING or (slot.kind == "expr" and mapping.expressions[slot.index].left_out)
        ]

    # --- what is asked ------------------------------------------------------------------------------------------------

    def ask(self, image: Image, before: Image) -> Ask:
        """An image to be mapped."""
        if self.number < 0 or (whole(image) and (not self.reads_before or whole(before))):
            return Ask(self, image, before, None)
        mask = tuple(
            any(image[i] is MISSING for i in columns) or any(before[i] is MISSING for i in befores)
            for columns, befores in self._needs
        )
        return Ask(self, image, before, mask if any(mask) else None)

    def same(self, one: Image, other: Image) -> bool:
        """Whether two images read alike."""
        return not self.reads_before and all(one[i] == other[i] for i in self._columns)

    def operands(self, ask: Ask, facts: Facts) -> tuple[Any, ...]:
        """The row for Spark: number, mask, operands."""
        texts = self._pick_operands(self._operands.of(ask, facts))
        if self._converters:
            texts = list(texts)
            for i, convert in self._converters:
                texts[i] = convert(texts[i])
        mask = None
        if ask.mask is not None:
            mask = "".join("1" if masked else "0" for masked in ask.mask)
        if mask is not None or self._tests:
            texts = [None if text is MISSING else text for text in texts]
        return (self.number, mask, *texts, *self._padding)

    # --- what comes of it ---------------------------------------------------------------------------------------------

    def known(self, ask: Ask, result: Result, facts: Facts) -> Known:
        """The mapped row. Raises OperatorError where a filter of operations can't be judged."""
        mask = ask.mask
        passes: bool | None = result[0] == PASSES
        if mask is not None and any(mask[: self._filters]):
            if any(mask[: len(self.program.op_filters)]):
                raise unjudged(self.plan, self.program.all[mask.index(True)], self.kind)
            passes = None if passes else False
        if passes is False:
            return Known([], False, result[0] == OUT)
        if self._results or mask is not None:
            result = self._converted(result, mask)
        return Known(self._pick_slots([*self._slots.of(ask, facts), *result]), passes)

    def _converted(self, result: Result, mask: tuple[bool, ...] | None) -> Result:
        made = list(result)
        if mask is not None:
            made += [None] * (1 + len(self.program.values) - len(made))
        for i, convert in self._results:
            if made[i] is not None:
                made[i] = convert(made[i])
        if mask is not None:
            for i in range(len(self.program.values)):
                if mask[self._filters + i]:
                    made[1 + i] = MISSING
        return made

    def as_new(self, row: Image) -> Image:
        """The row as a new one, which has all its columns: one that @COLSTAT (MISSING) leaves out is NULL there."""
        if not self._left_out:
            return row
        return [None if value is MISSING and i in self._left_out else value for i, value in enumerate(row)]


def unjudged(plan: TablePlan, expression: Expression, kind: str) -> OperatorError:
    """A filter reads a column that the change lacks."""
    return OperatorError(
        f"{expression.where}: {expression.keyword}: {expression.text}: an {kind} of {plan.source} came without a "
        "column that it reads",
        hint=TRANDATA,
    )


def _operand(operand: Operand) -> tuple[str, int, Value]:
    """What of the pool an operand reads."""
    kind = operand.kind
    if kind == "missing":
        kind = "before" if operand.name else "column"
    return kind, operand.index, operand.name


def _converter(operand: Operand) -> Callable[[Value], str | None] | None:
    """What makes of a value the text for Spark, if it is not that text itself."""
    if operand.kind == "missing":
        return lambda value: "true" if value is MISSING else "false"
    return to_spark(operand.type)


def _result(expression: Expression) -> Callable[[str], Value] | None:
    """What makes of a value as Spark writes it a canonical one, if it is not that itself."""
    convert = from_spark(expression.type)
    if not expression.left_out:
        return convert
    return lambda text: MISSING if text == "!" else convert(text[1:]) if convert else text[1:]


def _needs(expression: Expression) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The columns without which an expression can't be evaluated: of the image, and of the before image."""
    tested = {(o.index, o.name) for o in expression.operands if o.kind == "missing"}
    columns = (o.index for o in expression.operands if o.kind in ("column", "token") and (o.index, "") not in tested)
    befores = (o.index for o in expression.operands if o.kind == "before" and (o.index, "before") not in tested)
    return tuple(columns), tuple(befores)


def _picker(indexes: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """As itemgetter, which gives no tuple for one index, and nothing for none."""
    if len(indexes) > 1:
        return itemgetter(*indexes)
    return lambda pool: [pool[i] for i in indexes]


class Mapper:
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
        self._nulls: Image = (None,) * width
        self._nothing: Image = [MISSING] * width
        self._source_key = frozenset(mapping.source_key)
        # Without a before image nothing ever tells if a filter let the row in, and its key is that of the new one.
        self.blind = self._is_blind() and not mapping.needs_before
        self._looks_back = not (mapping.insert_all or mapping.insert_updates)
        self._always_back = self.filtered or not plan.key or plan.conflict is not None or mapping.needs_before
        key = [mapping.slots[i] for i in plan.key]
        self.key_moves = any(slot.kind not in ("column", "const") for slot in key)
        self._key_columns = [slot.index for slot in key if slot.kind == "column"]

    def asks(self, op: int, after: Image, before: Image | None) -> tuple[Ask, Ask | None]:
        """What a change (its record's number: 2, 3, 4) needs mapped: its row, and for an update the row that was.

        The `after` of a delete is the row that is gone.
        """
        if op == 2:
            return self.roles[INSERT].ask(after, self._nulls), None
        if op == 4:
            return self.roles[DELETE].ask(after, after), None
        if before is None:
            new = self.roles[UPDATE].ask(after, self._nothing)
            if self.blind or not self._looks_back or not (self._always_back or self.key_moves):
                return new, None
            return new, self._old(self._key_alone(after), new)
        new = self.roles[UPDATE].ask(merge(before, after), before)
        return new, self._old(before, new) if self._looks_back else None

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


class Evaluations:
    """Where results come from: one for each ask that evaluates, in order."""

    def __init__(self, results: Iterator[Result | Failure] | None = None) -> None:
        self._results = results

    def of(self, ask: Ask) -> Result:
        """An ask's result; RefusedError if its evaluation failed."""
        if not ask.evaluates:
            return _NOTHING
        if self._results is None:
            raise OperatorError(
                f"{ask.role.plan.source}: its MAP has expressions, and there is no Spark to evaluate them"
            )
        result = next(self._results)
        if type(result) is Failure:
            raise RefusedError(ask.role.plan.target, result.message, result.sqlstate)
        return result


class MappedWorker:
    """Takes a table's images, and gives mapped rows to its worker.

    `left_out`: counts the inserts, updates, deletes that the filters left out.
    """

    def __init__(self, mapper: Mapper, inner: Any, evaluations: Evaluations, facts: Facts, left_out: list[int]) -> None:
        """`inner`: a replicat.workers.Worker, an Overlay (or around one) where the plan has filters."""
        if mapper.mapping.update_deletes and not mapper.plan.key and not mapper.mapping.insert_all:
            raise OperatorError(
                f"{mapper.plan.target}: UPDATEDELETES, and the table has no key to find the row by",
                hint="Name its key by KEYCOLS, or take UPDATEDELETES out for this MAP (NOUPDATEDELETES)",
            )
        self.left_out = left_out
        self._mapper = mapper
        self._plan = mapper.plan
        self._mapping = mapper.mapping
        self._inner = inner
        self._evaluations = evaluations
        self._facts = facts

    def insert(self, row: Image) -> None:
        """A new row."""
        ask, _ = self._mapper.asks(2, row, None)
        known = self._known(ask)
        if self._judged(known, ask):
            if self._mapping.update_inserts and self._plan.key:
                self._inner.upsert(known.row)
            else:
                self._insert(known.row, ask)
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
        new_ask, old_ask = self._mapper.asks(3, after, before)
        result = self._evaluations.of(new_ask)
        old_result = _NOTHING
        if old_ask is not None:
            old_result = self._mapper.shared(result) if old_ask.shared else self._evaluations.of(old_ask)
        new = new_ask.role.known(new_ask, result, self._facts)
        if new.out:
            self.left_out[1] += 1
            return
        passes = self._judged(new, new_ask)
        if old_ask is None:
            if before is None and self._mapper.blind and not (self._mapping.insert_all or self._mapping.insert_updates):
                self._blindly(new, passes, after)
            else:
                self._without_old(new, passes)
            return
        old = old_ask.role.known(old_ask, old_result, self._facts)
        if self._mapper.filtered:
            self._between(new, passes, old, new_ask)
        else:
            self._update(new.row, self._old_row(old.row, new.row), may=False)

    def _without_old(self, new: Known, passes: bool) -> None:
        if not passes:
            self.left_out[1] += 1
        elif self._mapping.insert_all or self._mapping.insert_updates:
            self._inner.insert(_complete(new.row))
        else:
            self._update(new.row, None, may=False)

    def _blindly(self, new: Known, passes: bool, after: Image) -> None:
        """Nothing tells whether the row belonged to the target before."""
        if not passes:
            self._inner.delete(self._mapper.key_row(after), may=True)
            return
        if MISSING in new.row:
            raise self._not_whole(new.row)
        self._inner.update(new.row, None, may=True)

    def _between(self, new: Known, passes: bool, old: Known, ask: Ask) -> None:
        """Whether the row belonged to the target before, and whether it does now."""
        if old.passes is False:
            if passes:
                self._insert(new.row, ask)
            else:
                self.left_out[1] += 1
        elif passes:
            if old.passes is None and MISSING in new.row and self._plan.key:
                raise self._not_whole(new.row)
            self._update(new.row, self._old_row(old.row, new.row), may=old.passes is None)
        else:
            self._delete(old.row, may=old.passes is None)

    def _not_whole(self, row: Image) -> OperatorError:
        lacking = [name for name, value in zip(self._plan.layout.columns, row, strict=True) if value is MISSING]
        return OperatorError(
            f"{self._plan.source}: an UPDATE came without {', '.join(lacking)}, and without what tells if the filter "
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

    def _insert(self, row: Image, ask: Ask) -> None:
        self._inner.insert(_complete(row) if self._mapping.insert_all else ask.role.as_new(row))

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
            raise OperatorError(
                f"{self._plan.source}: a change came without what key column {', '.join(lacking)} of "
                f"{self._plan.target} comes from, so it is not known which row it is of",
                hint=TRANDATA,
            )


def _complete(row: Image) -> list[Value]:
    """A row that is inserted although its image was not whole."""
    return [None if value is MISSING else value for value in row]
