"""What an expression of a MAP means for one source table: its operands and types, and Spark's own analysis of it.

A name is a column (as spelled, else in any case), `before.column` and `after.column`, `change.fact`, `token.name`, and
in MAPEXCEPTION `lasterr.item`. What is no more than a name, a 'literal', a number or NULL becomes a Slot that needs no
Spark. Everything else is Spark SQL: parsed by Spark, its names put in place of by typed operands, analysed by Spark.

Rule: nothing is left for the first row to find out that can be known from the source's definition.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Protocol

from replicat.maps.expressions import functions
from replicat.maps.expressions.exact import ExpressionError, Settled, SparkNode, settle, shown, wide
from replicat.maps.expressions.ggtext import SparkText
from replicat.maps.expressions.plainnames import plain_calls, plain_names
from replicat.maps.expressions.sparknames import WORDS
from replicat.model.plan import Expression, Operand, Slot
from replicat.model.programs import mark
from trails.errors import OperatorError
from trails.record import MISSING, TableDef

FACTS = {
    "operation": "STRING",
    "csn": "STRING",
    "xid": "STRING",
    "commit_time": "TIMESTAMP",
    "position": "STRING",
    "index": "INT",
}
"""Of a change, by the names that `change.` has; `schema` and `table` are known with the source's definition."""
LASTERR = ("dberrnum", "dberrmsg", "optype", "errtype")
STRUCTS = ("before", "after", "change", "token", "lasterr")
TOKEN = "token"  # the logical type of a column that carries a token

_SPARK = {
    "smallint": "SMALLINT", "integer": "INT", "bigint": "BIGINT", "real": "FLOAT", "double": "DOUBLE",
    "boolean": "BOOLEAN", "bytes": "BINARY", "date": "DATE", "timestamp": "TIMESTAMP_NTZ", "timestamptz": "TIMESTAMP",
}  # fmt: skip
_LOGICAL = {
    "tinyint": "smallint", "smallint": "smallint", "int": "integer", "bigint": "bigint", "float": "real",
    "double": "double", "boolean": "boolean", "binary": "bytes", "date": "date", "timestamp_ntz": "timestamp",
    "timestamp": "timestamptz", "void": "text",
}  # fmt: skip
_PRECISION = re.compile(r"\(\s*(\d+)\s*(?:,\s*(-?\d+)\s*)?\)")
_NAME = re.compile(r'(?:([A-Za-z_][A-Za-z0-9_]*)|"((?:[^"]|"")+)"|`((?:[^`]|``)+)`)(\.)?')
_NUMBER = re.compile(r"[+-]?(\d+(\.\d+)?|\.\d+)\Z")
_LITERAL = re.compile(r"'(?:[^'\\]|'')*'\Z")
_ENVIRONMENT = re.compile(r"gg_environment\('(\w+)'(?:, '((?:[^'\\]|''|\\\\)*)')?\)\Z")
_WITHOUT_COLUMN = ("current_date", "current_timestamp", "current_time", "localtimestamp", "user", "current_user",
                   "session_user")  # fmt: skip
_MARK = re.compile("`?\x1f(\\d+)\x1f`?")
_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Name:
    """A name in an expression's text, or a call of one of our own functions: from `start` up to `end`.

    `parts`: of the name; `function`: the function's name, then `arguments` are names (tuples) and literals (text).
    """

    start: int
    end: int
    parts: tuple[str, ...] = ()
    function: str = ""
    arguments: tuple[tuple[str, ...] | str, ...] = ()


class Sql(Protocol):
    """What a running Spark is asked (expressions/sql.py)."""

    def names(self, text: str) -> Sequence[Name]:
        """The names in an expression; SqlError if it is none, or holds what no expression over one row may."""

    def spans(self, text: str) -> frozenset[tuple[int, int]]:
        """Where the parts of an expression begin and end."""

    def analysed(self, text: str, columns: Sequence[tuple[str, str]]) -> SparkNode:
        """An expression over columns (name, type), types known and conversions put in; SqlError."""


@dataclass(slots=True)
class _Operands:
    """The operands of one expression, one for each place where one stands."""

    found: list[Operand] = field(default_factory=list)

    def mark(self, operand: Operand) -> str:
        self.found.append(operand)
        return shown(len(self.found) - 1)


class Compiler:
    """Gathers the expressions of one MAP for one source table.

    compiler = Compiler(engine.sql, definition, group="REP1")
    slot = compiler.slot("upper(name)", "dirprm/REP1.prm:7", "COLMAP shout")
    test = RowFilter(compiler.condition("amount > 0", "dirprm/REP1.prm:8", "FILTER"))
    MapProgram(slots, tuple(compiler.expressions), (test,))
    """

    def __init__(self, sql: Sql | None, source: TableDef, *, group: str = "", lasterr: bool = False) -> None:
        """`sql`: None refuses what needs Spark. `lasterr`: the names `lasterr.*` are there (MAPEXCEPTION)."""
        self.expressions: list[Expression] = []
        self._sql = sql
        self._source = source
        self._group = group
        self._lasterr = lasterr
        self._columns = {c.name: i for i, c in enumerate(source.columns) if c.type != TOKEN}
        self._tokens = {c.name: i for i, c in enumerate(source.columns) if c.type == TOKEN}

    def slot(self, text: str, where: str, keyword: str) -> Slot:
        """A written column's value; OperatorError names `where`, `keyword` (such as `COLMAP total`), the expression."""
        made = functions.parse(text, f"{where}: {keyword}")
        if made.left_out == "true":
            return Slot("const", value=MISSING)
        simple = self._simple(made.sql.strip(), self._failing(text, where, keyword))
        if simple is not None:
            return simple
        self.expressions.append(self._expression(made, text, where, keyword))
        return Slot("expr", len(self.expressions) - 1)

    def condition(self, text: str, where: str, keyword: str) -> int:
        """The index of a boolean expression; errors as slot()."""
        made = functions.parse(text, f"{where}: {keyword}", condition=True)
        if made.left_out:
            raise self._failing(text, where, keyword)("@COLSTAT (MISSING) is a value, not a condition")
        expression = self._expression(made, text, where, keyword, condition=True)
        if expression.type != "boolean":
            raise self._failing(text, where, keyword)(f"expected a condition, found a value of type {expression.type}")
        self.expressions.append(expression)
        return len(self.expressions) - 1

    def look_at_names(
        self, text: str, where: str, keyword: str, *, condition: bool = False, known: frozenset[str] = frozenset()
    ) -> None:
        """Raise OperatorError for a function or column that is not there, as far as that is known without Spark.

        `known`: the functions of that Spark (sparknames.py); without any, functions are left to it.
        """
        made = functions.parse(text, f"{where}: {keyword}", condition=condition)
        failing = self._failing(text, where, keyword)
        for name in (*plain_calls(made.sql), *plain_calls(made.left_out)):
            if known and name.lower() not in known | WORDS:
                near = get_close_matches(name.lower(), sorted(known), n=1, cutoff=0.6)
                raise failing(f"there is no function {name}{f'; did you mean {near[0]}?' if near else ''}")
        for parts in (*plain_names(made.sql), *plain_names(made.left_out)):
            self._operand(parts, failing)

    def type_of(self, slot: Slot) -> str:
        """The logical type (docs/values.md) of a slot's value."""
        if slot.kind in ("column", "before"):
            return self._source.columns[slot.index].type
        if slot.kind == "expr":
            return self.expressions[slot.index].type
        if slot.kind == "fact":
            return {"TIMESTAMP": "timestamptz", "INT": "integer"}.get(FACTS.get(slot.name, ""), "text")
        return "text"

    # --- values that need no Spark ------------------------------------------------------------------------------------

    def _simple(self, sql: str, failing: Callable[[str], OperatorError]) -> Slot | None:
        if sql.upper() in ("NULL", "TRUE", "FALSE"):
            return Slot("const", value=None if sql.upper() == "NULL" else sql.lower())
        if _NUMBER.match(sql):
            return Slot("const", value=_plain_number(sql))
        if _LITERAL.match(sql):
            return Slot("const", value=sql[1:-1].replace("''", "'"))
        if match := _ENVIRONMENT.match(sql):
            return Slot("const", value=self._environment(*(part or "" for part in match.groups())))
        parts = _parts_of(sql)
        if not parts:
            return None
        operand = self._operand(parts, failing)
        if operand is None:
            return None
        if operand.kind == "const":
            return Slot("const", value=operand.name)
        return Slot(operand.kind, operand.index, name=operand.name if operand.kind in ("fact", "token") else "")

    def _environment(self, item: str, name: str = "") -> str | None:
        if item == "OSVARIABLE":
            return os.environ.get(name.replace("''", "'").replace("\\\\", "\\"))
        known: dict[str, Callable[[], str]] = {
            "GROUPNAME": lambda: self._group,
            "GROUPTYPE": lambda: "REPLICAT",
            "HOSTNAME": socket.gethostname,
            "OSUSERNAME": getpass.getuser,
            "PROCESSID": lambda: str(os.getpid()),
        }
        return known[item]()

    # --- names --------------------------------------------------------------------------------------------------------

    def _operand(self, parts: Sequence[str], failing: Callable[[str], OperatorError]) -> Operand | None:
        """What a name stands for; None: something of Spark's own."""
        if len(parts) == 1:
            at = self._column(parts[0], failing)
            if at is not None:
                return self._column_operand("column", at)
            if parts[0].lower() in _WITHOUT_COLUMN:
                return None
            raise failing(f"there is no column {parts[0]}{_near(parts[0], self._columns)}")
        struct, name = parts[0].lower(), parts[1]
        if len(parts) > 2 or struct not in STRUCTS:
            raise failing(
                f"there is no {'.'.join(parts)}; expected a column's name, or one of {', '.join(STRUCTS[:4])}"
            )
        if struct in ("before", "after"):
            at = self._column(name, failing)
            if at is None:
                raise failing(f"there is no column {name}{_near(name, self._columns)}")
            return self._column_operand("before" if struct == "before" else "column", at)
        return self._fact(struct, name, failing)

    def _fact(self, struct: str, name: str, failing: Callable[[str], OperatorError]) -> Operand:
        if struct == "change":
            fact = name.lower()
            if fact in ("schema", "table"):
                return Operand("const", name=self._source.schema if fact == "schema" else self._source.name)
            if fact not in FACTS:
                known = [*FACTS, "schema", "table"]
                raise failing(f"change has no {name}; it has {', '.join(known)}")
            return Operand("fact", name=fact, type=FACTS[fact])
        if struct == "lasterr":
            if not self._lasterr:
                raise failing("lasterr is known in MAPEXCEPTION and EXCEPTIONSONLY alone")
            if name.lower() not in LASTERR:
                raise failing(f"lasterr has no {name}; it has {', '.join(LASTERR)}")
            return Operand("fact", name=f"lasterr.{name.lower()}")
        at = _find(name, self._tokens)
        if len(at) != 1:
            raise failing(f"the trail has no token {name} for this table{_near(name, self._tokens)}")
        return Operand("token", at[0], name)

    def _column(self, name: str, failing: Callable[[str], OperatorError]) -> int | None:
        found = _find(name, self._columns)
        if len(found) > 1:
            names = ", ".join(f'"{self._source.columns[i].name}"' for i in found)
            raise failing(f"{name} may be {names}: name it exactly")
        return found[0] if found else None

    def _column_operand(self, kind: str, at: int) -> Operand:
        column = self._source.columns[at]
        return Operand(kind, at, column.name, spark_type(column.type, column.native))

    # --- expressions --------------------------------------------------------------------------------------------------

    def _expression(
        self, made: SparkText, text: str, where: str, keyword: str, *, condition: bool = False
    ) -> Expression:
        failing = self._failing(text, where, keyword)
        if self._sql is None:
            raise failing("it needs Spark, which is not there")
        operands: dict[Operand, int] = {}
        value = self._settled(made.sql, operands, failing, condition=condition)
        left_out = self._settled(made.left_out, operands, failing, condition=True) if made.left_out else None
        kind = logical_type(value.type, failing)
        return Expression(
            value.sql, where, text, tuple(operands), kind, left_out.sql if left_out else "", keyword, value.as_text
        )

    def _settled(
        self, text: str, operands: dict[Operand, int], failing: Callable[[str], OperatorError], *, condition: bool
    ) -> Settled:
        """The text made exact, its operands numbered as in `operands`."""
        assert self._sql is not None
        sql, found = self._sql, _Operands()

        def analyse(text: str, types: Sequence[str]) -> SparkNode:
            return sql.analysed(text, [(mark(i), type_) for i, type_ in enumerate(types)])

        try:
            replaced = self._replaced(text, found, failing)
            made = settle(analyse, sql.spans, replaced, [one.type for one in found.found], condition=condition)
        except ExpressionError as error:
            raise failing(_MARK.sub(lambda at: display(found.found[int(at[1])], self._source), str(error))) from None
        own = [replace(one, type=type_) for one, type_ in zip(found.found, made.types, strict=True)]
        numbers = [operands.setdefault(one, len(operands)) for one in own]
        return replace(made, sql=_MARK.sub(lambda at: mark(numbers[int(at[1])]), made.sql))

    def _replaced(self, text: str, operands: _Operands, failing: Callable[[str], OperatorError]) -> str:
        """`text` with an operand in place of each of its names."""
        assert self._sql is not None
        found, last = "", 0
        for name in sorted(self._sql.names(text), key=lambda name: name.start):
            made = self._made(name, operands, failing)
            if made is not None:
                found += _unmarked(text[last : name.start], failing) + made
                last = name.end
        return found + _unmarked(text[last:], failing)

    def _made(self, name: Name, operands: _Operands, failing: Callable[[str], OperatorError]) -> str | None:
        if not name.function:
            operand = self._operand(name.parts, failing)
            return None if operand is None else operands.mark(operand)
        if name.function == "gg_environment":
            value = self._environment(*(str(argument) for argument in name.arguments))
            return "NULL" if value is None else _literal(value)
        if name.function == "gg_key_part":
            return self._key_part(name, operands, failing)
        (parts,) = name.arguments
        column = self._operand(tuple(parts), failing)
        if column is None or column.kind not in ("column", "before"):
            raise failing(f"{'.'.join(parts)} is no column")
        which = "before" if column.kind == "before" else ""
        return operands.mark(Operand("missing", column.index, which, "BOOLEAN"))

    def _key_part(self, name: Name, operands: _Operands, failing: Callable[[str], OperatorError]) -> str:
        part, parts, *named = name.arguments
        columns = [self._operand(tuple(column), failing) for column in named]
        indexes = [column.index for column in columns if column is not None]
        indexes = indexes or list(self._source.key) or list(self._columns.values())
        texts = ", ".join(
            operands.mark(Operand("column", index, self._source.columns[index].name)) for index in indexes
        )
        return f"(pmod(xxhash64({texts}), {parts}) = {part} - 1)"

    @staticmethod
    def _failing(text: str, where: str, keyword: str) -> Callable[[str], OperatorError]:
        shown = " ".join(text.split())
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
        return lambda message: OperatorError(f"{where}: {keyword}: {shown}: {message}", hint="Mend the expression")


def spark_type(logical: str, native: str) -> str:
    """The Spark type of a column's values."""
    if logical == "decimal":
        match = _PRECISION.search(native)
        precision, scale = (int(match[1]), int(match[2] or 0)) if match else (0, 0)
        return f"DECIMAL({max(precision, scale)},{scale})" if match and 0 <= scale <= 38 >= precision else wide()
    return _SPARK.get(logical, "STRING")


def logical_type(spark: str, failing: Callable[[str], OperatorError]) -> str:
    """The logical type of a result; what has none here is refused."""
    base = spark.partition("(")[0].partition(" ")[0].lower()
    if base in ("string", "char", "varchar"):
        return "text"
    if base == "decimal":
        precision, scale = (int(part) for part in spark[spark.index("(") + 1 : -1].split(","))
        return "decimal" if scale or precision > 18 else "bigint"
    if base in _LOGICAL:
        return _LOGICAL[base]
    hint = {"array": "to_json(...)", "map": "to_json(...)", "struct": "to_json(...)", "variant": "to_json(...)"}
    kind = base.partition("<")[0]
    raise failing(
        f"a result of type {spark.lower()} has no place in a column; use {hint.get(kind, 'CAST(... AS STRING)')}"
    )


def display(operand: Operand, source: TableDef) -> str:
    """How a person names an operand."""
    if operand.kind == "fact":
        return operand.name if "." in operand.name else f"change.{operand.name}"
    if operand.kind == "token":
        return f"token.{operand.name}"
    if operand.kind == "const":
        return f"'{operand.name}'"
    name = source.columns[operand.index].name
    if operand.kind == "missing":
        return f"{'before.' if operand.name else ''}{name} is missing"
    return f"before.{name}" if operand.kind == "before" else name


def _unmarked(text: str, failing: Callable[[str], OperatorError]) -> str:
    if "\x1f" in text:
        raise failing("there is a control character in it (U+001F)")
    return text


def _literal(value: str) -> str:
    """Any text as Spark SQL."""
    signs = {"\\": "\\\\", "'": "\\'", "\x1f": "\\u001f"}
    return "'" + "".join(signs.get(sign, sign) for sign in value) + "'"


def _find(name: str, known: dict[str, int]) -> list[int]:
    """As spelled, else in any case."""
    if name in known:
        return [known[name]]
    return [i for other, i in known.items() if other.lower() == name.lower()]


def _near(name: str, known: dict[str, int]) -> str:
    folded = {other.lower(): other for other in known}
    near = get_close_matches(name.lower(), list(folded), n=1, cutoff=0.6)
    return f"; did you mean {folded[near[0]]}?" if near else f"; there are {', '.join(known)}" if known else ""


def _parts_of(sql: str) -> tuple[str, ...]:
    """The parts of a name that is all of the text; none if it is something else."""
    parts: list[str] = []
    at = 0
    while match := _NAME.match(sql, at):
        bare, double, back = match.groups()[:3]
        parts.append(bare or (double or "").replace('""', '"') or (back or "").replace("``", "`"))
        at = match.end()
        if not match[4]:
            return tuple(parts) if at == len(sql) else ()
    return ()


def _plain_number(text: str) -> str:
    sign = "-" if text[0] == "-" else ""
    whole, _, fraction = text.lstrip("+-").partition(".")
    return sign + (whole.lstrip("0") or "0") + (f".{fraction}" if fraction else "")
