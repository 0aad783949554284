"""GoldenGate's column functions, `@NAME (arguments)`, to Spark SQL. Pure: text to text, no Spark, no definitions.

Rule: what a function cannot say in plain Spark SQL it says by four names that expressions/compiling.py resolves for one
source table: `gg_missing(column)`, `gg_key_part(n, parts)`, `gg_environment(name)`, and the structs `change`, `before`,
`after`, `token`, `lasterr`. COLSTAT(MISSING) leaves a column out: it is kept apart from the value, in `Text.left_out`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from replicat.maps.expressions import ggdates, ggnames
from replicat.maps.expressions.exact import number_of_text
from replicat.maps.expressions.ggtext import REFUSED, Arg, SparkText, quoted
from replicat.maps.expressions.ggtext import parse as _parse

MANY = 1000


@dataclass(frozen=True, slots=True)
class Function:
    """One @function: how it is written, what it gives, an example, and how it becomes Spark SQL.

    `least`, `most`: number of arguments. `make` raises the ParamError of Arg.error on arguments it does not expect.
    """

    name: str
    shape: str
    help: str
    example: str
    least: int
    most: int
    make: Callable[[Sequence[Arg]], SparkText]


def parse(text: str, where: str, *, condition: bool = False) -> SparkText:
    """`text` with its @functions as Spark SQL; ParamError (beginning with `where`) names what is wrong."""
    return _parse(text, where, FUNCTIONS, condition=condition)


def translate(text: str, where: str, *, condition: bool = False) -> str:
    """As parse(), the SQL alone: to check a parameter file."""
    return parse(text, where, condition=condition).sql


def _sql(template: str) -> Callable[[Sequence[Arg]], SparkText]:
    """`{0}` is the first argument, `{0s}` the same as STRING."""

    def make(args: Sequence[Arg]) -> SparkText:
        made = template
        for i, arg in enumerate(args):
            made = made.replace(f"{{{i}s}}", arg.string).replace(f"{{{i}}}", arg.sql)
        return SparkText(made)

    return make


# --- choices --------------------------------------------------------------------------------------------------------


def _if(args: Sequence[Arg]) -> SparkText:
    return _choice([(f"WHEN {args[0].condition}", args[1])], args[2])


def _case(args: Sequence[Arg]) -> SparkText:
    pairs = [(f"WHEN {test.sql}", value) for test, value in zip(args[1::2], args[2::2], strict=False)]
    return _choice(pairs, args[-1] if len(args) % 2 == 0 else None, args[0].sql)


def _eval(args: Sequence[Arg]) -> SparkText:
    pairs = [(f"WHEN {test.condition}", value) for test, value in zip(args[::2], args[1::2], strict=False)]
    return _choice(pairs, args[-1] if len(args) % 2 else None)


def _choice(pairs: Sequence[tuple[str, Arg]], other: Arg | None, subject: str = "") -> SparkText:
    """CASE ... END. In GoldenGate values have no types: one 'text' among them makes all of them text."""
    values = [value for _, value in pairs] + ([other] if other else [])
    as_text = any(value.literal is not None for value in values)

    def made(what: Callable[[Arg], str], otherwise: str) -> str:
        whens = " ".join(f"{when} THEN {what(value)}" for when, value in pairs)
        return f"CASE {subject} {whens} ELSE {what(other) if other else otherwise} END".replace("  ", " ")

    left_out = ""
    if any(value.text.left_out for value in values):
        left_out = made(lambda value: value.text.left_out or "false", "false")
    return SparkText(made(lambda value: value.branch(as_text), "NULL"), left_out)


# --- columns --------------------------------------------------------------------------------------------------------


def _colstat(args: Sequence[Arg]) -> SparkText:
    what = args[0].word
    if what == "NULL":
        return SparkText("NULL")
    if what == "MISSING":
        return SparkText("NULL", left_out="true")
    raise args[0].error("NULL or MISSING (INVALID is not supported: a value that does not fit is refused)")


def _coltest(args: Sequence[Arg]) -> SparkText:
    column = args[0].column
    tests = {
        "PRESENT": f"(NOT gg_missing({column}) AND {column} IS NOT NULL)",
        "MISSING": f"gg_missing({column})",
        "NULL": f"(NOT gg_missing({column}) AND {column} IS NULL)",
        "INVALID": "false",
    }
    made = []
    for arg in args[1:]:
        if arg.word not in tests:
            raise arg.error(", ".join(tests))
        made.append(tests[arg.word])
    return SparkText(f"({' OR '.join(made)})")


def _before_after(args: Sequence[Arg]) -> SparkText:
    name = args[0].column
    return SparkText(
        f"CASE WHEN change.operation = 'INSERT' OR gg_missing(before.{name}) THEN after.{name} ELSE before.{name} END"
    )


def _value_one_of(args: Sequence[Arg]) -> SparkText:
    as_text = any(arg.literal is not None for arg in args)
    values = [
        f"IF(gg_missing({arg.sql}), NULL, {arg.branch(as_text)})" if arg.is_column else arg.branch(as_text)
        for arg in args
    ]
    return SparkText(f"coalesce({', '.join(values)})")


def _range(args: Sequence[Arg]) -> SparkText:
    part, parts = (arg.number for arg in args[:2])
    if part is None or parts is None or not 1 <= part <= parts:
        raise args[0].error("two whole numbers, part of how many, such as @RANGE (1, 3)")
    columns = "".join(f", {arg.column}" for arg in args[2:])
    return SparkText(f"gg_key_part({part}, {parts}{columns})")


def _token(args: Sequence[Arg]) -> SparkText:
    return SparkText(f"token.{quoted(args[0].name)}")


# --- texts and numbers ----------------------------------------------------------------------------------------------


def _cat(args: Sequence[Arg]) -> SparkText:
    return SparkText(f"concat({', '.join(arg.string for arg in args)})")


def _ncat(args: Sequence[Arg]) -> SparkText:
    if len(args) % 2:
        raise args[-1].error("pairs of a text and a length")
    pairs = zip(args[::2], args[1::2], strict=True)
    return SparkText(f"concat({', '.join(f'left({text.string}, {length.sql})' for text, length in pairs)})")


def _compare(left: str, right: str) -> str:
    return f"CASE WHEN {left} < {right} THEN -1 WHEN {left} = {right} THEN 0 WHEN {left} > {right} THEN 1 END"


def _substitute(args: Sequence[Arg]) -> SparkText:
    if len(args) % 2 == 0:
        raise args[-1].error("a text, then pairs of what is replaced and by what")
    made = args[0].string
    for old, new in zip(args[1::2], args[2::2], strict=True):
        made = f"replace({made}, {old.string}, {new.string})"
    return SparkText(made)


def _strnum(args: Sequence[Arg]) -> SparkText:
    how = (args[1].word or args[1].literal or "").upper()
    text = args[0].string
    if how == "LEFT":
        return SparkText(text)
    if how not in ("LEFTSPACE", "RIGHT", "RIGHTZERO"):
        raise args[1].error("LEFT, LEFTSPACE, RIGHT or RIGHTZERO")
    if len(args) < 3:
        raise args[1].error(f"a length behind {how}")
    length = args[2].sql
    if how == "RIGHTZERO":
        digits = f"lpad(substr({text}, 2), {length} - 1, '0')"
        padded = f"IF({text} LIKE '-%', concat('-', {digits}), lpad({text}, {length}, '0'))"
    else:
        padded = f"{'rpad' if how == 'LEFTSPACE' else 'lpad'}({text}, {length}, ' ')"
    return SparkText(f"IF(length({text}) >= {length}, {text}, {padded})")


_BYTES = "CAST({0} AS BINARY)"

_ALL = (
    Function("AFTER", "(column)", "The column's value after the change.", "@AFTER (AMOUNT)", 1, 1,
             lambda args: SparkText(f"after.{args[0].column}")),
    Function("BEFORE", "(column)", "The column's value before the change; NULL for an insert.", "@BEFORE (AMOUNT)",
             1, 1, lambda args: SparkText(f"before.{args[0].column}")),
    Function("BEFOREAFTER", "(column)", "The value before the change if it is there, else the one after it.",
             "@BEFOREAFTER (AMOUNT)", 1, 1, _before_after),
    Function("BINARY", "(column)", "The value as bytes.", "@BINARY (CODE)", 1, 1, _sql(_BYTES)),
    Function("BINTOHEX", "(value)", "Bytes, or a text's bytes, as hex digits.", "@BINTOHEX ('12345')", 1, 1,
             _sql(f"hex({_BYTES})")),
    Function("CASE", "(value, test, result [, test, result ...] [, default])",
             "The result behind the first test that equals the value.",
             "@CASE (CODE, 'CAR', 'A car', 'TRUCK', 'A truck', 'Neither')", 3, MANY, _case),
    Function("COLSTAT", "(NULL | MISSING)",
             "NULL; or MISSING: the target column is left out. As a whole value, or a result of @IF, @CASE, @EVAL.",
             "@COLSTAT (NULL)", 1, 1, _colstat),
    Function("COLTEST", "(column, {PRESENT | MISSING | NULL | INVALID} [, ...])",
             "Whether any of the tests holds. PRESENT: there and not NULL; INVALID is never so.",
             "@COLTEST (AMOUNT, PRESENT)", 2, 5, _coltest),
    Function("COMPUTE", "(expression)", "An arithmetic expression.", "@COMPUTE (PRICE * QUANTITY)", 1, 1,
             _sql("({0})")),
    Function("DATE", "('output format', 'input format', value [, 'input format', value ...])",
             "A date or time from one form to another. Parts: CC YY YYYY MM MMM DD DDD DOW0 DOW1 DOWA HH MI SS FFFFFF "
             "JUL JTS CDATE.", "@DATE ('YYYY-MM-DD', 'YY', Y, 'MM', M, 'DD', D)", 3, MANY, ggdates.date),
    Function("DATEDIFF", "('DD' | 'SS', first, second)", "Days or seconds from the first date to the second.",
             "@DATEDIFF ('DD', '2011-01-01', @DATENOW ())", 3, 3, ggdates.date_diff),
    Function("DATENOW", "()", "Now, as YYYY-MM-DD HH:MI:SS in UTC.", "@DATENOW ()", 0, 0, ggdates.date_now),
    Function("EVAL", "(condition, result [, condition, result ...] [, default])",
             "The result behind the first condition that holds.", "@EVAL (AMOUNT > 10000, 'large', 'small')",
             2, MANY, _eval),
    Function("GETENV", "('group', 'item')", "What is known of the change or of the process; see the table of items.",
             "@GETENV ('TRANSACTION', 'CSN')", 1, 3, ggnames.get_env),
    Function("HEXTOBIN", "(hex digits)", "Hex digits as bytes.", "@HEXTOBIN ('414243')", 1, 1, _sql("unhex({0s})")),
    Function("IF", "(condition, value, otherwise)",
             "One of two values. A number other than 0 counts as true, in a condition here and in @EVAL.",
             "@IF (AMOUNT > 0, AMOUNT, 0)", 3, 3, _if),
    Function("NUMBIN", "(bytes)", "Up to eight bytes, the highest first, as a whole number with a sign at eight.",
             "@NUMBIN (CODE)", 1, 1, _sql(f"CAST(conv(hex({_BYTES}), 16, -10) AS BIGINT)")),
    Function("NUMSTR", "(text)",
             "A text as a number; none, or one of over 20 digits before the point or 18 behind, fails the change.",
             "@NUMSTR (PAGE)", 1, 1, lambda args: SparkText(number_of_text(f"trim({args[0].string})"))),
    Function("RANGE", "(part, parts [, column, ...])",
             "Whether the row is one of this part, by a hash of the columns (the source's key, if none is named).",
             "@RANGE (1, 3)", 2, MANY, _range),
    Function("STRCAT", "(text, text [, ...])", "Texts one behind the other.", "@STRCAT (LAST, ', ', FIRST)", 1, MANY,
             _cat),
    Function("STRCMP", "(text, text)", "-1, 0 or 1: less, equal, greater.", "@STRCMP (NAME, 'JANE')", 2, 2,
             lambda args: SparkText(_compare(args[0].string, args[1].string), number=True)),
    Function("STREQ", "(text, text)", "1 if two texts are equal, else 0.", "@STREQ (REGION, 'EAST')", 2, 2,
             lambda args: SparkText(f"CASE WHEN {args[0].string} = {args[1].string} THEN 1 ELSE 0 END", number=True)),
    Function("STREXT", "(text, first, last)", "The characters from first to last, counted from 1.",
             "@STREXT (PHONE, 1, 3)", 3, 3, _sql("substring({0s}, {1}, ({2}) - ({1}) + 1)")),
    Function("STRFIND", "(text, part [, from])", "Where the part begins, counted from 1; 0 if nowhere.",
             "@STRFIND (PHONE, '-')", 2, 3,
             lambda args: SparkText(
                 f"locate({args[1].string}, {args[0].string}, {args[2].sql if len(args) > 2 else 1})", number=True)),
    Function("STRLEN", "(text)", "How many characters.", "@STRLEN (NAME)", 1, 1,
             lambda args: SparkText(f"length({args[0].string})", number=True)),
    Function("STRLTRIM", "(text)", "Without blanks in front.", "@STRLTRIM (STATE)", 1, 1, _sql("ltrim({0s})")),
    Function("STRNCAT", "(text, length [, text, length ...])", "So many characters of each text, one behind the other.",
             "@STRNCAT (LAST, 5, FIRST, 5)", 2, MANY, _ncat),
    Function("STRNCMP", "(text, text, length)", "As STRCMP, of the first so many characters.",
             "@STRNCMP (NAME, 'JANE', 2)", 3, 3,
             lambda args: SparkText(
                 _compare(*(f"left({arg.string}, {args[2].sql})" for arg in args[:2])), number=True)),
    Function("STRNUM", "(number, {LEFT | LEFTSPACE | RIGHT | RIGHTZERO} [, length])",
             "A number as text, filled up to the length.", "@STRNUM (NUM, RIGHTZERO, 6)", 2, 3, _strnum),
    Function("STRRTRIM", "(text)", "Without blanks behind.", "@STRRTRIM (STREET)", 1, 1, _sql("rtrim({0s})")),
    Function("STRSUB", "(text, old, new [, old, new ...])", "With each old part replaced by a new one.",
             "@STRSUB ('ABC', 'B', 'b')", 3, MANY, _substitute),
    Function("STRTRIM", "(text)", "Without blanks in front and behind.", "@STRTRIM (STATE)", 1, 1,
             _sql("trim({0s})")),
    Function("STRUP", "(text)", "In upper case.", "@STRUP ('Salesperson')", 1, 1, _sql("upper({0s})")),
    Function("TOKEN", "('name')", "A token that Extract put beside the row (TABLE ..., TOKENS).", "@TOKEN ('TK-HOST')",
             1, 1, _token),
    Function("VALONEOF", "(value, value [, ...])", "The first that is there and not NULL.", "@VALONEOF (NEW, OLD)",
             1, MANY, _value_one_of),
)  # fmt: skip

FUNCTIONS = {function.name: function for function in _ALL}
"""By name, for documentation too."""


def reference() -> str:
    """The page docs/functions.md."""
    lines = [
        "# @functions",
        "",
        "Made from the tables in `functions.py` and `ggnames.py` of `replicat/maps/expressions/` by",
        "`python -m replicat.maps.expressions.functions`.",
        "",
        "GoldenGate's column functions in COLMAP, WHERE and FILTER. They are translated to Spark SQL, and may stand",
        "anywhere in it, also in each other. Arguments are expressions; formats, groups and items are 'literals'.",
        "A column where a text is expected is the source's own text (`12.50`): [mapping.md](mapping.md#expressions).",
        "",
        "| function | gives | example |",
        "| --- | --- | --- |",
    ]
    for function in FUNCTIONS.values():
        cells = (f"`@{function.name} {function.shape}`", function.help, f"`{function.example}`")
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    lines += ["", "In WHERE, `column = @PRESENT`, `= @NULL` and `= @ABSENT` (or `<>`) test a column as @COLTEST does."]
    for name, why in REFUSED.items():
        lines.append(f"`@{name}` is refused: {why}.")
    lines += ["", "## @GETENV", "", "| group | item | Spark SQL |", "| --- | --- | --- |"]
    for group, items in ggnames.ITEMS.items():
        lines += [f"| {group} | {item or '-'} | `{sql}` |" for item, sql in items.items()]
    lines += ["| OSVARIABLE | any name | the variable of Replicat's environment, at START |", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    print(reference(), end="")
