"""What FILTER of a TABLE computes: each function on rows, what is unknown, and parts that never change."""

from __future__ import annotations

from typing import Any

import pytest

from extract.params import ExtractParams
from tests.support import documented
from tests.support.documented import DOCUMENTED
from tests.unit.test_conditions import EXTRACT
from trails.computing import part_of
from trails.conditions import bind
from trails.record import MISSING, Column, TableDef
from trails.rowvalues import UnaskableError, UnknownError, UnreadableError
from trails.runtime.language.params import parse_text
from trails.terms import columns

ROW = {
    "k": ("bigint", "7"), "name": ("text", "Ann-Lee"), "raw": ("text", b"Ann-Lee"), "price": ("decimal", "12.50"),
    "amount": ("integer", "3"), "f": ("double", "NaN"), "nothing": ("text", None), "none": ("integer", None),
    "gone": ("text", MISSING), "bin": ("bytes", b"x"),
}  # fmt: skip
PARTS = [2, 2, 2, 3, 3, 3, 1, 2, 2, 2, 3, 2]
TABLE = TableDef("s", "t", tuple(Column(name, kind, "", name == "k") for name, (kind, _) in ROW.items()))


def condition(text: str) -> Any:
    """What an Extract's FILTER says."""
    params = ExtractParams.from_statements(parse_text(f"{EXTRACT}TABLE s.t, FILTER ({text});", "e.prm"))
    return params.tables.clauses[0].rule.filters[0].condition


def answer(text: str, table: TableDef = TABLE) -> bool | None:
    """What the row says."""
    return bind(condition(text), table)([value for _, value in ROW.values()])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("@STREQ (name, 'Ann-Lee')", True),
        ("@STREQ (raw, name) = 1", True),
        ("@STREQ (name, 'ann-lee')", False),
        ("@STREQ (price, '12.50')", True),
        ("@STREQ (price, '12.5')", False),
        ("@STREQ (nothing, 'x') = 0", True),
        ("@STRCMP (name, 'B') = -1", True),
        ("@STRCMP (name, 'Ann-Lee') = 0", True),
        ("@STRCMP (nothing, 'B') < 0", None),
        ("@STRNCMP (name, 'Anna', 3) = 0", True),
        ("@STRNCMP (name, 'Anna', 4) = 0", False),
        ("@STRFIND (name, '-')", True),
        ("@strfind (name, '-') = 4", True),
        ("@STRFIND (name, 'n', 4) = 0", True),
        ("@STRFIND (name, 'n', 3) = 3", True),
        ("@STRFIND (name, 'n', 0) = 0", True),
        ("@STRLEN (name) >= 7 AND NOT @STRLEN (name) > 7", True),
        ("@STRLEN (nothing) > 0", None),
        ("@COMPUTE (price * amount) = 37.5", True),
        ("@COMPUTE (price*amount-0.5)=37", True),
        ("@COMPUTE (-(price + 2) * 2) < -28.9", True),
        ("@COMPUTE (2 - 1 - 1)", False),
        ("@COMPUTE (1 - 2 * 3) = -5", True),
        ("@COMPUTE (f + 1) > 1e300", True),
        ("@COMPUTE (f - f) > 1e300", True),
        ("@COMPUTE (amount + none) > 0", None),
        ("@RANGE (1, 1)", True),
        ("@RANGE (1, 2) OR @RANGE (2, 2)", True),
        ("@RANGE (1, 2) AND @RANGE (2, 2)", False),
        ("@RANGE (1, 1, nothing, price)", True),
        ("(@STREQ (name, 'x')) OR (amount = 3)", True),
        ("@COMPUTE (price / amount) = 4.1666666666666666666666666666666666667", True),
        ("@COMPUTE (price / (amount - 3)) = 0", None),
        ("@COMPUTE (amount * @STRLEN (name) - 1) = 20", True),
        ("@STRUP (name) = 'ANN-LEE' AND @STRUP (name) <> 'x'", True),
        ("@STRUP (name) > 'B'", False),
        ("@STRUP (nothing) = 'X'", None),
        ("name = raw AND price > amount", True),
        ("amount < @COMPUTE (price - amount)", True),
        ("name <> @STRUP (name)", True),
        ("@STREXT (name, 1, @COMPUTE (@STRFIND (name, '-') - 1)) = 'Ann'", True),
        ("@STREXT (name, amount, amount) = 'n'", True),
        ("@STREXT (name, 0, 2) = 'Ann'", True),
        ("@STREXT (name, 9, 12) = ''", True),
        ("@STRNCAT (name, 3, ' ', 1, name, 0) = 'Ann '", True),
        ("@STRSUB (name, '', 'x') = 'Ann-Lee'", True),
        ("@STRNUM (price, RIGHTZERO, 8) = '00012.50'", True),
        ("@IF (amount > 2 AND NOT price < 1, price, 0) >= 12.5", True),
        ("@IF (@STRCMP (name, 'B'), 1, 2) = 1", True),
        ("@IF (@STREQ (name, 'B') OR nothing = @NULL, 1, 2) = 1", True),
        ("@IF (none > 0, 'yes', 'no') = 'no'", True),
        ("@EVAL (price > 100, 'high', price > 10, 'fair', 'low') = 'fair'", True),
        ("@EVAL (price > 100, 1, @STRLEN (name)) = 7", True),
        ("@EVAL (price > 100, 1) = 1", None),
        ("@CASE (amount, 1, 'one', 3, 'three') = 'three'", True),
        ("@CASE (name, 'x', 1, amount) = 3", True),
        ("@CASE (nothing, 'x', 1, 2) = 2", True),
        ("@VALONEOF (gone, nothing, name) = 'Ann-Lee'", True),
        ("@VALONEOF (none, amount) = 3", True),
        ("@COLTEST (gone, MISSING)", True),
        ("@COLTEST (nothing, PRESENT, INVALID)", False),
        ("@COLTEST (nothing, NULL) = 1", True),
        ("@NUMSTR (@STRSUB (name, 'Ann-Lee', ' 1.50 ')) = 1.5", True),
        ("@DATEDIFF ('DD', '2024-02-28', '2024-03-01') = 2", True),
        ("@DATEDIFF ('SS', '2024-02-29 00:00:01.5', '2024-02-29 00:00:00') = -1", True),
        ("@DATE ('YYYY', 'YYYY-MM-DD', nothing) = '2024'", None),
    ],
)
def test_a_function_says_of_a_row(text: str, said: bool | None) -> None:
    """As in a MAP of a Replicat (docs/functions.md); a function alone is true above 0."""
    assert answer(text) is said


OTHERS = ("BEFORE", "AFTER", "BINARY", "COLSTAT", "GETENV", "HEXTOBIN", "TOKEN")


@pytest.mark.parametrize(
    ("text", "gives"), [one for one in DOCUMENTED if not any(f"@{no} " in one[0] for no in OTHERS)]
)
def test_a_function_gives_what_goldengate_documents(text: str, gives: str | None) -> None:
    """The very results that Spark gives for a MAP."""
    test = bind(condition(f"@STREQ (@VALONEOF ({text}, 'NULL'), '{gives or 'NULL'}')"), documented.TABLE)
    assert test(list(documented.ROW.values())) is True


@pytest.mark.parametrize(
    ("text", "by"),
    [
        ("@NUMSTR (name) > 0", "@NUMSTR"),
        ("@NUMSTR ('1e400') > 0", "@NUMSTR"),
        ("@NUMSTR ('NaN') > 0", "@NUMSTR"),
        ("@NUMSTR ('0.0000000000000000001') > 0", "@NUMSTR"),
        ("@NUMBIN (@STRCAT (name, 'xx')) > 0", "@NUMBIN"),
        ("@DATEDIFF ('DD', '2024-02-30', '2024-03-01') > 0", "@DATEDIFF"),
        ("@DATEDIFF ('DD', name, '2024-03-01') > 0", "@DATEDIFF"),
        ("@DATE ('YYYY', 'YYYY-MM-DD', name) > '2'", "@DATE"),
        ("@DATE ('YYYY', 'MMM', 'ANF') > '2'", "@DATE"),
        ("@DATE ('YYYY', 'JTS', '99999999999999999999') > '2'", "@DATE"),
        ("@DATE ('YYYY', 'JUL', '-99999999999999999999') > '2'", "@DATE"),
        ("@DATE ('YYYY', 'YYYYDDD', '9999999') > '2'", "@DATE"),
        ("@STRNUM (k, RIGHT, 100000000) = ''", "@STRNUM"),
        ("@STRSUB (@STRNUM (k, RIGHT, 2000), ' ', @STRNUM (k, RIGHT, 2000)) = ''", "@STRSUB"),
    ],
)
def test_a_text_that_a_function_can_not_read_is_refused(text: str, by: str) -> None:
    """No row is chosen by a guess."""
    with pytest.raises(UnreadableError) as told:
        answer(text)
    assert told.value.by == by


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@COMPUTE (name + 1)", "name is of type text, which is no number"),
        ("@STRLEN (bin)", "bin is of type bytes, which is no text"),
        ("@STRLEN (other)", "the table has no column other"),
        ("@RANGE (1, 2, other)", "the table has no column other"),
        ("@COLTEST (other, NULL)", "the table has no column other"),
        ("@COMPUTE (@STRUP (name) + 1)", r"@STRUP \(...\) is no number"),
        ("@STRUP (name) = 1", r"@STRUP \(...\) is a text, and 1 is a number"),
        ("@STRLEN (name) = 'x'", r"@STRLEN \(...\) is a number, and 'x' is a text"),
        ("name > price", "name is a text, and price is a number"),
        ("@CASE (name, 1, 2, 3) = 1", "name is a text, and 1 is a number"),
        ("@STREXT (name, 'a', 2) = 'x'", "'a' is no number"),
        ("@IF (amount > 1, bin, name) = 'x'", "bin is of type bytes, which is no number and no text"),
    ],
)
def test_what_a_table_can_not_be_asked(text: str, message: str) -> None:
    """Before any row of it."""
    with pytest.raises(UnaskableError, match=message):
        answer(text)


def test_a_table_without_key_names_what_is_hashed() -> None:
    """Else a row's part would change with each of its values."""
    bare = TableDef("s", "t", tuple(Column(column.name, column.type, "") for column in TABLE.columns))
    with pytest.raises(UnaskableError, match="the table has no key to hash"):
        answer("@RANGE (1, 2)", bare)
    assert answer("@RANGE (1, 1, name)", bare) is True


@pytest.mark.parametrize("text", ["@STRLEN (gone) > 0", "@RANGE (1, 2, gone)", "@STREQ (gone, 'x')"])
def test_what_did_not_come_is_not_guessed(text: str) -> None:
    """The column is named."""
    with pytest.raises(UnknownError) as told:
        answer(text)
    assert TABLE.columns[told.value.column].name == "gone"


def test_a_filter_says_which_columns_it_reads() -> None:
    """So START knows whose old rows it needs."""
    read = columns(condition("@STREQ (name, raw) AND @COMPUTE (price * (amount + 1)) > 0 AND @RANGE (1, 2, f)"))
    assert [str(column) for column in read] == ["name", "raw", "price", "amount", "f"]
    read = columns(condition("@IF (k = 1, @STRUP (name), raw) = nothing OR @COLTEST (gone, NULL)"))
    assert [str(column) for column in read] == ["k", "name", "raw", "nothing", "gone"]


def test_parts_never_change() -> None:
    """Groups that share out a table's rows, on whatever hosts and releases, must agree: these numbers stay."""
    keys = [[str(n)] for n in range(12)]
    assert [part_of(key, 3) for key in keys] == PARTS
    assert part_of(["a", "b"], 1000) != part_of(["ab", ""], 1000)
    assert part_of([None], 1000) != part_of([""], 1000)
    counts = [sum(part_of([str(n)], 4) == part for n in range(4000)) for part in (1, 2, 3, 4)]
    assert min(counts) > 900
