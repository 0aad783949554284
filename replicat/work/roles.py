"""How one image under a MAP's program is read and written: operands for Spark, results to a mapped row, facts.

Rule: everything that follows from the plan alone is worked out once, so a row costs little more than two itemgetters.
An expression over a column that is MISSING gives MISSING, unless it tests for that itself (@COLTEST).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

from replicat.maps.expressions.sparktext import from_spark, to_spark
from replicat.model.plan import Expression, MapProgram, Operand, TablePlan
from replicat.model.programs import OLD, OUT, PASSES, UPDATE, Programs, program_of, wanted_slots
from replicat.model.target import UnmappedError
from replicat.work.net.compact import whole
from trails.position import Position
from trails.record import MISSING, Image, Value, time_of

TRANDATA = (
    "ADD TRANDATA with ALLCOLS for this table (REPLICA IDENTITY FULL), and GETUPDATEBEFORES for it in its Extract"
)


@dataclass(slots=True)
class ChangeFacts:
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
    text = time_of(us).isoformat(" ", "seconds").removesuffix("+00:00")
    fraction = f"{us % 1_000_000:06d}".rstrip("0")
    return f"{text}.{fraction}+00" if fraction else f"{text}+00"


class Failure(NamedTuple):
    """An evaluation that failed, instead of its results. `shown`: what failed, without the row's values."""

    sqlstate: str
    message: str
    shown: str = "an expression fails"


Result = Sequence[Any]
"""What an evaluation gave: the filters' verdict, then values as Spark writes them (maybe more than there are)."""
NOTHING: Result = (PASSES,)


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

    def of(self, image: Image, before: Image, facts: ChangeFacts) -> Sequence[Any]:
        """The pool for one image."""
        if not (self._before or self._constants or self._facts):
            return image
        pool = [*image, *before] if self._before else list(image)
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
        self.plain = self.number >= 0 and self._operands.size == width and not self._converters and not self._tests
        """Whether a whole image's own values are all that is sent."""

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
        made = [_result(value) for value in self.program.values]
        self._results = [(1 + i, convert) for i, convert in enumerate(made) if convert is not None]
        # What most MAPs make: the image's own columns in their places, and values in some of them.
        own = all(value or self._slots.place(at) == i for i, (value, at) in enumerate(places))
        self._over = None
        if own and len(places) == width and self._slots.size == width:
            self._over = [(i, 1 + at, made[at]) for i, (value, at) in enumerate(places) if value]
        self._left_out = [
            i
            for i, slot in enumerate(mapping.slots)
            if slot.value is MISSING or (slot.kind == "expr" and mapping.expressions[slot.index].left_out)
        ]
        self.complete = not self._left_out and all(slot.kind != "before" for slot in mapping.slots)
        """Whether a whole image becomes a whole row."""

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

    def operands(
        self, image: Image, before: Image, facts: ChangeFacts, mask: tuple[bool, ...] | None = None
    ) -> tuple[Any, ...]:
        """The row for Spark: number, mask, operands."""
        if mask is None and self.plain:
            return (self.number, None, *self._pick_operands(image), *self._padding)
        texts = self._pick_operands(self._operands.of(image, before, facts))
        if self._converters:
            texts = list(texts)
            for i, convert in self._converters:
                texts[i] = convert(texts[i])
        if mask is not None or self._tests:
            texts = [None if text is MISSING else text for text in texts]
        masked = None if mask is None else "".join("1" if one else "0" for one in mask)
        return (self.number, masked, *texts, *self._padding)

    # --- what comes of it ---------------------------------------------------------------------------------------------

    def known(self, ask: Ask, result: Result, facts: ChangeFacts) -> Known:
        """The mapped row. Raises UnmappedError where a filter of operations can't be judged."""
        mask = ask.mask
        passes: bool | None = result[0] == PASSES
        if mask is not None and any(mask[: self._filters]):
            if any(mask[: len(self.program.op_filters)]):
                raise unjudged(self.plan, self.program.all[mask.index(True)], self.kind)
            passes = None if passes else False
        if passes is False:
            return Known([], False, result[0] == OUT)
        return Known(self.row(ask.image, ask.before, result, facts, mask), passes)

    def row(
        self, image: Image, before: Image, result: Result, facts: ChangeFacts, mask: tuple[bool, ...] | None = None
    ) -> Image:
        """The mapped row of an image that passes."""
        if self._over is not None and mask is None:
            row = [*image]
            for i, at, convert in self._over:
                value = result[at]
                row[i] = value if convert is None or value is None else convert(value)
            return row
        if mask is not None:
            result = self._masked(result, mask)
        elif self._results:
            result = self._converted([*result])
        return self._pick_slots([*self._slots.of(image, before, facts), *result])

    def _converted(self, made: list[Any]) -> list[Any]:
        for i, convert in self._results:
            if made[i] is not None:
                made[i] = convert(made[i])
        return made

    def _masked(self, result: Result, mask: tuple[bool, ...]) -> Result:
        made = [*result, *[None] * (1 + len(self.program.values) - len(result))]
        self._converted(made)
        for i in range(len(self.program.values)):
            if mask[self._filters + i]:
                made[1 + i] = MISSING
        return made

    def as_new(self, row: Image) -> Image:
        """The row as a new one, which has all its columns: one that @COLSTAT (MISSING) leaves out is NULL there."""
        if not self._left_out:
            return row
        return [None if value is MISSING and i in self._left_out else value for i, value in enumerate(row)]


def unjudged(plan: TablePlan, expression: Expression, kind: str) -> UnmappedError:
    """A filter reads a column that the change lacks."""
    return UnmappedError(
        plan.source,
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
    convert = None if expression.as_text else from_spark(expression.type)
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
