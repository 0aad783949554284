"""Each operand of an expression as what its place asks for: the source's own text, a number that is wide enough, or the
column's type. Pure: it reads what Spark's analyser found, and mends the text.

place of an operand                              it is given as
a conversion to text, written or Spark's own     the source's own text
what CASE, IF, COALESCE give, if that is alike   the source's own text: no digit of it is touched
+ - * of whole numbers                           DECIMAL, as no int is wide enough; where only an int will do, an int
/ of whole numbers                               DECIMAL(38,18): Spark would take the nearest DOUBLE
/ that would keep fewer than six digits          DECIMAL(38,18)
any other                                        the type of the column

What stands in such a place and is no operand (`coalesce(n, 0) * m`) is put into a CAST to the same type.

Rule: a number is exact, or fails its row; only a division, and what is a DOUBLE in the source or by CAST, is rounded.
So decimals keep their digits behind the point (expressions/sql.py sets Spark so), and where a product would have
too many of them, operands without a declared precision may have fewer: one that has more fails its row. A text beside
a decimal becomes a decimal too, where Spark would make both a DOUBLE. A number that was computed becomes text without
zeros at the end of the fraction, as in a column; one that is CAST to DECIMAL(p,s) keeps its s digits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from replicat.model.programs import mark
from trails.controlflow import ControlFlowError

TEXT = "STRING"
SCALES = (18, 9, 6)
"""Digits behind the point of an operand without a declared precision: the most that its products leave room for."""
MOST_SCALE = 20
"""Of a sum or product; beyond, there is little room before the point."""
CONDITION = "/*condition*/"
"""Marks the CAST by which a number counts as a condition."""
NUMBER = "/*number*/"
"""Marks the CAST by which a text becomes a number."""
WHOLE = "/*whole*/"
"""Marks the CAST by which a whole number that is no operand becomes a decimal."""
LEAST_SCALE = 6
"""Of what a division gives."""
_WHOLE = {"smallint": "DECIMAL(5,0)", "int": "DECIMAL(10,0)", "bigint": "DECIMAL(19,0)"}
_ARITHMETIC = ("Add", "Subtract", "Multiply", "UnaryMinus")
_PRINTED = (*_WHOLE, "tinyint", "float", "double", "string", "boolean")
"""What format_string() prints as it should."""
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)\Z")
_FIT = "^(?! *[+-]?0*[0-9]{0,%d}([.][0-9]{0,%d}0*)?([eE][+]?[0-9]+)? *$)(?s).*$"
_UNFIT = " (no number with up to %d digits before the point and %d behind it)"


class ExpressionError(ControlFlowError):
    """Spark does not take an expression; the message is Spark's, or ours in its place."""


def shown(number: int) -> str:
    """Operand `number` as Spark reads it: a name in quotes, which nobody's column can have."""
    return f"`{mark(number)}`"


def wide(scale: int = SCALES[0]) -> str:
    """The type of a decimal whose precision is not declared, or beyond Spark's."""
    return f"DECIMAL(38,{scale})"


def number_of_text(sql: str) -> str:
    """A text as a decimal: exactly, or the row fails. Spark's own cast rounds."""
    return f"CAST(regexp_replace({sql}{_number_tail()}"


def _number_tail(scale: int = SCALES[0]) -> str:
    room = 38 - scale, scale
    return f", '{_FIT % room}', '$0{_UNFIT % room}') AS {NUMBER} {wide(scale)})"


@dataclass(frozen=True, slots=True)
class SparkNode:
    """A node of Spark's tree. `name`: of an attribute; `start`, `end`: its place in the text, -1 if it has none;
    `user`: a CAST that stands in the text.
    """

    kind: str
    type: str = ""
    name: str = ""
    start: int = -1
    end: int = -1
    user: bool = False
    children: tuple[SparkNode, ...] = ()

    def walk(self) -> Iterator[SparkNode]:
        """It and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def operand(self) -> int:
        """The number of the operand that it is; -1 if it is none."""
        found = re.fullmatch("\x1f(\\d+)\x1f", self.name) if self.kind == "AttributeReference" else None
        return int(found[1]) if found else -1

    @property
    def is_implicit(self) -> bool:
        """Whether it is a conversion that Spark put in."""
        return self.kind == "Cast" and not self.user

    @property
    def bare(self) -> SparkNode:
        """What is below conversions that Spark put in."""
        return self.children[0].bare if self.is_implicit else self

    @property
    def scale(self) -> int:
        """Digits behind the point; -1 of what is no decimal."""
        found = _DECIMAL.match(self.type)
        return int(found[2]) if found else -1

    @property
    def is_exact(self) -> bool:
        """Whether it is a number without a binary point."""
        return self.scale >= 0 or self.type in _WHOLE or self.type == "tinyint"

    @property
    def values(self) -> tuple[SparkNode, ...]:
        """Of a choice, what it may give; nothing of any other node."""
        if self.kind == "CaseWhen":
            count = len(self.children)
            return self.children[1::2] + (self.children[-1:] if count % 2 else ())
        if self.kind == "If":
            return self.children[1:]
        return self.children if self.kind in ("Coalesce", "Nvl", "IfNull") else ()


@dataclass(frozen=True, slots=True)
class Settled:
    """An expression made exact. `types`: of its operands; `type`: Spark's type of what it gives; `as_text`: that is
    given as canonical text.
    """

    sql: str
    types: tuple[str, ...]
    type: str
    as_text: bool = False


Analyse = Callable[[str, Sequence[str]], SparkNode]
"""Spark's analysis of a text over operands of these types; SqlError."""
Spans = Callable[[str], frozenset[tuple[int, int]]]
"""Where the parts of a text begin and end, by Spark's parser."""


def settle(analyse: Analyse, spans: Spans, sql: str, types: Sequence[str], *, condition: bool = False) -> Settled:
    """`sql`: its operands are as shown() says, each of which stands there once. SqlError."""
    types = tuple(types)
    root = analyse(sql, types)
    _refuse_text_conditions(root, sql)
    edits = _Edits(sql, spans(sql))
    _beside_text(root, edits)
    if edits:
        sql = edits.applied()
        root = analyse(sql, types)
    sql, root, types = _narrowed(analyse, *_divided(analyse, *_widened(analyse, spans, sql, root, types)))
    texts = _Texts(_Edits(sql, spans(sql)))
    as_text = not condition and _is_alike(root) and texts.can(root)
    if as_text:
        texts.text(root, inside=True)
    else:
        texts.visit(root)
    types = tuple(TEXT if i in texts.texts - texts.typed else type_ for i, type_ in enumerate(types))
    sql = texts.edits.applied()
    final = analyse(sql, types)
    if as_text and final.type != "string":
        raise ExpressionError(f"expected text of a value, found {final.type}")
    return Settled(sql, types, root.type if as_text else final.type, as_text or _is_declared(final, sql))


def _is_declared(node: SparkNode, sql: str) -> bool:
    """Whether it is a CAST to a decimal that somebody wrote, whose digits behind the point are all wanted."""
    return node.kind == "Cast" and node.user and node.scale > 0 and not _is_number_mark(node, sql)


def _is_number_mark(node: SparkNode, sql: str) -> bool:
    return any(sql[: node.end].endswith(f"{NUMBER} {wide(scale)})") for scale in SCALES)


def _refuse_text_conditions(root: SparkNode, sql: str) -> None:
    for node in root.walk():
        is_text = node.kind == "Cast" and node.type == "boolean" and node.children[0].type == "string"
        if is_text and sql[node.start : node.end].endswith(f"{CONDITION} BOOLEAN)"):
            raise ExpressionError("expected a condition or a number, found a text")


# --- a text beside a number -------------------------------------------------------------------------------------------


def _beside_text(root: SparkNode, edits: _Edits) -> None:
    for node in root.walk():
        doubles = [child for child in node.children if child.is_implicit and child.type == "double"]
        texts = [child.bare for child in doubles if child.bare.type == "string"]
        if texts and any(child.bare.scale >= 0 for child in doubles):
            for text in texts:
                if not edits.wrap(text, *number_of_text("\0").split("\0")):
                    raise ExpressionError("a text stands beside a decimal: CAST one of them as the other")


# --- arithmetic -------------------------------------------------------------------------------------------------------


def _widened(
    analyse: Analyse, spans: Spans, sql: str, root: SparkNode, types: tuple[str, ...]
) -> tuple[str, SparkNode, tuple[str, ...]]:
    """Whole numbers that are computed with, as decimals. Where a function wants an int, it gets one."""
    found: tuple[str, SparkNode, tuple[str, ...]] = (sql, root, types)
    groups = list(_groups(root))
    taken: list[list[tuple[SparkNode, str]]] = []
    for some in (groups, *([group] for group in groups)) if len(groups) > 1 else ([group] for group in groups):
        edits, wanted = _Edits(sql, spans(sql)), list(types)
        for node, type_ in (item for group in (*taken, *some) for item in group):
            if node.operand >= 0:
                wanted[node.operand] = type_
            else:
                edits.wrap(node, "CAST((", f") AS {WHOLE} {type_})")
        tried = edits.applied(), tuple(wanted)
        try:
            found = tried[0], analyse(*tried), tried[1]
        except ExpressionError:
            continue
        taken += some
        if some is groups:
            break
    return found


def _groups(node: SparkNode) -> Iterator[list[tuple[SparkNode, str]]]:
    """What goes into each whole-number computation that is part of no other one, and the types it needs there."""
    if not _is_whole_number_work(node):
        for child in node.children:
            # '%d' takes ints alone, and that is found out only when a row comes.
            if node.kind != "FormatString" or not _is_whole_number_work(child):
                yield from _groups(child)
        return
    inside = list(_computed(node))
    divided = any(one.kind == "Divide" for one in inside)
    leaves = [one for one in inside if not one.is_implicit and not _is_whole_number_work(one)]
    alone = {id(one) for work in inside if _of_literals(work) for one in work.walk()}
    found = [one for one in leaves if one.type in _WHOLE and (one.kind != "Literal" or id(one) in alone)]
    if found:
        yield [(one, wide() if divided else _WHOLE[one.type]) for one in found]
    for one in leaves:
        yield from _groups(one)


def _of_literals(work: SparkNode) -> bool:
    """Whether it computes with nothing but literals, so that nothing else makes them wide."""
    return _is_whole_number_work(work) and all(one.bare.kind == "Literal" for one in work.children)


def _is_whole_number_work(node: SparkNode) -> bool:
    if node.kind == "Divide":
        return all(child.bare.type in _WHOLE for child in node.children)
    return node.kind in _ARITHMETIC and node.type in _WHOLE


def _computed(node: SparkNode) -> Iterator[SparkNode]:
    yield node
    if node.is_implicit or _is_whole_number_work(node):
        for child in node.children:
            yield from _computed(child)


def _divided(
    analyse: Analyse, sql: str, root: SparkNode, types: tuple[str, ...]
) -> tuple[str, SparkNode, tuple[str, ...]]:
    """Operands of a division that would keep few digits, with more digits behind the point."""
    parts = [child.bare.operand for node in _short(root) for child in node.children]
    if parts:
        types = tuple(wide() if i in parts else type_ for i, type_ in enumerate(types))
        root = analyse(sql, types)
    if short := next(_short(root), None):
        raise ExpressionError(f"a division keeps {short.scale} digits behind the point: CAST to fewer digits before it")
    return sql, root, types


def _short(root: SparkNode) -> Iterator[SparkNode]:
    return (node for node in root.walk() if node.kind == "Divide" and 0 <= node.scale < LEAST_SCALE)


def _narrowed(
    analyse: Analyse, sql: str, root: SparkNode, types: tuple[str, ...]
) -> tuple[str, SparkNode, tuple[str, ...]]:
    """Fewer digits behind the point of what has no declared precision, where products crowd them."""
    at = SCALES[0]
    for scale in SCALES[1:]:
        crowded = any(node.kind in _ARITHMETIC and node.scale > MOST_SCALE for node in root.walk())
        narrow = sql.replace(f"{WHOLE} {wide(at)})", f"{WHOLE} {wide(scale)})")
        narrow = narrow.replace(_number_tail(at), _number_tail(scale))
        if not crowded or (narrow == sql and wide(at) not in types):
            break
        sql, types = narrow, tuple(wide(scale) if type_ == wide(at) else type_ for type_ in types)
        root, at = analyse(sql, types), scale
    for node in root.walk():
        if node.kind == "Multiply" and node.scale >= 0 and sum(child.scale for child in node.children) > node.scale:
            raise ExpressionError("a product has more digits behind the point than a decimal can have: CAST to fewer")
    return sql, root, types


# --- texts ------------------------------------------------------------------------------------------------------------


def _leaves(node: SparkNode) -> Iterator[SparkNode]:
    node = node.bare
    if not node.values:
        yield node
    for value in node.values:
        yield from _leaves(value)


def _is_null(node: SparkNode) -> bool:
    return node.type == "void"


def _is_alike(root: SparkNode) -> bool:
    """Whether all that a choice gives is alike, and some of it a source's value that a conversion might touch."""
    if not root.values:
        return False
    leaves = [leaf for leaf in _leaves(root) if not _is_null(leaf)]
    operands = [leaf for leaf in leaves if leaf.operand >= 0]
    if not operands or all(leaf.type in (*_WHOLE, "string", "boolean", "binary") for leaf in operands):
        return False
    if all(leaf.is_exact for leaf in leaves):
        return True
    if operands != leaves:
        return False
    return len({leaf.type for leaf in leaves}) == 1 or all(
        leaf.is_exact or leaf.type in ("float", "double") for leaf in leaves
    )


@dataclass(slots=True)
class _Edits:
    """Texts to be put around parts of an expression; those of an outer part come first."""

    sql: str
    spans: frozenset[tuple[int, int]]
    _made: list[tuple[int, int, str, str]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._made)

    def place(self, node: SparkNode) -> tuple[int, int] | None:
        """Where a node stands; None if nobody knows for sure."""
        if node.operand >= 0:
            name = shown(node.operand)
            at = self.sql.find(name)
            return at, at + len(name)
        return (node.start, node.end) if (node.start, node.end) in self.spans else None

    def wrap(self, node: SparkNode, before: str, after: str) -> bool:
        """False if the node's place is not known."""
        place = self.place(node)
        if place is not None:
            self._made.append((*place, before, after))
        return place is not None

    def applied(self) -> str:
        """The text with all of them."""
        starts: dict[int, str] = {}
        ends: dict[int, str] = {}
        for start, end, before, after in self._made:
            starts[start] = starts.get(start, "") + before
            ends[end] = after + ends.get(end, "")
        found, last = "", 0
        for at in sorted({*starts, *ends}):
            found += self.sql[last:at] + ends.get(at, "") + starts.get(at, "")
            last = at
        return found + self.sql[last:]


@dataclass(slots=True)
class _Texts:
    """Finds which operands are texts. `typed`: those of which some use is not as text."""

    edits: _Edits
    texts: set[int] = field(default_factory=set)
    typed: set[int] = field(default_factory=set)

    def visit(self, node: SparkNode) -> None:
        """A node whose value is used as it is."""
        if node.kind == "Cast" and node.type == "string":
            self.text(node.children[0])
            return
        if node.type == "array<string>" and node.kind == "Cast" and node.children[0].kind == "CreateArray":
            for child in node.children[0].children:
                self.text(child, inside=True)
            return
        if node.kind == "FormatString":
            for child in node.children:  # '%d' and '%f' take none of the others
                self.visit(child) if child.type in _PRINTED else self.text(child, inside=True)
            return
        if node.operand >= 0:
            self.typed.add(node.operand)
        for child in node.children:
            self.visit(child)

    def text(self, node: SparkNode, *, inside: bool = False) -> None:
        """A node whose value becomes text; `inside`: of a choice, so that it must be text itself."""
        node = node.bare if inside else node
        if node.operand >= 0 and node.type not in ("boolean", "binary"):
            self.texts.add(node.operand)
            return
        if node.values and self.can(node):
            for child in node.children:
                if any(child is value for value in node.values):
                    self.text(child, inside=True)
                else:
                    self.visit(child)
            return
        if not _is_null(node) and node.type != "string":
            self._convert(node, inside)
        self.visit(node)

    def can(self, node: SparkNode) -> bool:
        """Whether all that a choice gives can be made text."""
        return all(
            leaf.operand >= 0 or _is_null(leaf) or leaf.type == "string" or self.edits.place(leaf) is not None
            for leaf in _leaves(node)
        )

    def _convert(self, node: SparkNode, inside: bool) -> None:
        computed = node.operand < 0 and node.kind not in ("Literal", "Cast", "NamedLambdaVariable")
        if node.kind == "Cast" and node.end > 0:
            computed = _is_number_mark(node, self.edits.sql)
        if node.type == "binary":
            self.edits.wrap(node, "validate_utf8(CAST((", ") AS STRING))")
        elif computed and node.scale > 0:
            self.edits.wrap(node, "rtrim('.', rtrim('0', CAST((", ") AS STRING)))")
        elif computed and node.type in ("float", "double"):
            self.edits.wrap(node, "regexp_replace(CAST((", ") AS STRING), '[.]0(E|$)', '$1')")
        elif inside:
            self.edits.wrap(node, "CAST((", ") AS STRING)")
