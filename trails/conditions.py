"""WHERE and FILTER of a TABLE: conditions on the columns of one row, and what they say of its canonical texts.

Rule: exact or refused. A column is compared by its logical type: numbers by their value, whatever their digits; dates
and times by the calendar; text by its characters. What has no such order is refused when the table is met, before any
row of it. NULL compares as in SQL: the answer is unknown, and only true lets a row pass. Nothing is known of a column
that did not come: UnknownError is raised, unless what stands to its left has decided already.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from trails.computing import Test, compared
from trails.record import MISSING, Image, TableDef
from trails.rowvalues import NUMBERS, UnaskableError, UnknownError, in_order, index_of, number_of, text_of
from trails.terms import ABSENT, NULL, OPERATORS, ColumnState, ColumnTest, ComputedTest, Condition, Not

_TEXTS = ("text", "char", "enum")
_EQUALITY = ("=", "<>", "!=")

Key = Callable[[str], Any]


def bind(condition: Condition, table: TableDef) -> Test:
    """The condition as a question to images of a table. Raises UnaskableError.

    Where a definition has no types yet (START looks at names and key), types are not asked.
    """
    if isinstance(condition, ColumnTest):
        return _column_compared(condition, table)
    if isinstance(condition, ColumnState):
        return _state(condition, index_of(condition.column, table))
    if isinstance(condition, ComputedTest):
        return compared(condition.left, condition.op, condition.right, table, bind)
    if isinstance(condition, Not):
        return _inverted(bind(condition.inner, table))
    return _joined([bind(part, table) for part in condition.parts], condition.every)


def _column_compared(condition: ColumnTest, table: TableDef) -> Test:
    at = index_of(condition.column, table)
    column = table.columns[at]
    if not column.type:  # who looks at names alone gets no question
        return lambda _image: None
    if column.type not in _KEYS:
        raise UnaskableError(
            f"{column.name} is of type {column.type}, which is not compared here",
            "Only = @NULL, @PRESENT and @ABSENT may be asked of it; a Replicat's MAP compares more",
        )
    key, ordered = _KEYS[column.type]
    if column.type in _TEXTS and not condition.quoted:
        raise UnaskableError(
            f"{column.name} is of type {column.type}, and {condition.constant} is none", "Write it in 'quotes'"
        )
    if condition.op not in _EQUALITY and not ordered:
        raise UnaskableError(f"{column.name} is of type {column.type}, which has no order here", "Use = or <>")
    try:
        constant = key(condition.constant)
    except (ValueError, InvalidOperation):
        raise UnaskableError(
            f"{condition.constant!r} is no {column.type}, which {column.name} is", f"Write it as {_FORMS[column.type]}"
        ) from None
    compare = OPERATORS[condition.op]

    def test(image: Image) -> bool | None:
        text = text_of(image, at)
        return None if text is None else compare(key(text), constant)

    return test


def _state(condition: ColumnState, at: int) -> Test:
    holds = condition.holds
    if condition.state == NULL:

        def is_null(image: Image) -> bool:
            if image[at] is MISSING:
                raise UnknownError(at)
            return (image[at] is None) is holds

        return is_null
    absent = (condition.state == ABSENT) is holds
    return lambda image: (image[at] is MISSING) is absent


def _inverted(test: Test) -> Test:
    def inverted(image: Image) -> bool | None:
        found = test(image)
        return None if found is None else not found

    return inverted


def _joined(tests: list[Test], every: bool) -> Test:
    """AND is decided by the first that is false, OR by the first that is true."""
    decides = not every

    def joined(image: Image) -> bool | None:
        found: bool | None = every
        for test in tests:
            one = test(image)
            if one is decides:
                return decides
            found = None if one is None else found
        return found

    return joined


# --- values by their logical type -------------------------------------------------------------------------------------

_DATE = re.compile(r"(\d{4,})-(\d\d)-(\d\d)")
_TIME = re.compile(r"(-?)(\d{1,3}):(\d\d)(?::(\d\d(?:\.\d{1,9})?))?", re.ASCII)


def _number(text: str) -> tuple[int, Decimal]:
    return in_order(number_of(text))


def _boolean(text: str) -> bool:
    return ("false", "true").index(text.lower()) == 1


def _char(text: str) -> str:
    """The padding of CHAR says nothing."""
    return text.rstrip(" ")


def _moment(text: str) -> tuple[Any, ...]:
    """Of a date or a timestamp; a date is the begin of its day."""
    if text in ("infinity", "-infinity"):
        return (1 if text[0] == "i" else -1,)
    plain, before_christ = text.removesuffix(" BC"), text.endswith(" BC")
    date, _, time = plain.partition(" ")
    found = _DATE.fullmatch(date)
    if found is None:
        raise ValueError(text)
    year, month, day = map(int, found.groups())
    if month > 12 or day > 31:
        raise ValueError(text)
    return (0, 1 - year if before_christ else year, month, day, _time(time or "00:00:00"))


def _date(text: str) -> tuple[Any, ...]:
    if ":" in text:
        raise ValueError(text)
    return _moment(text)


def _utc(text: str) -> tuple[Any, ...]:
    """Canonical texts are in UTC, and so is a constant without an offset."""
    end = " BC" if text.endswith(" BC") else ""
    return _moment(text.removesuffix(" BC").removesuffix("+00") + end)


def _time(text: str) -> Decimal:
    """In seconds, with a sign."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(text)
    sign, hours, minutes, seconds = found.groups()
    if int(minutes) > 59 or Decimal(seconds or 0) >= 61:
        raise ValueError(text)
    total = Decimal(int(hours) * 3600 + int(minutes) * 60) + Decimal(seconds or 0)
    return -total if sign else total


def _uuid(text: str) -> str:
    return str(uuid.UUID(text))


_KEYS: Final[dict[str, tuple[Key, bool]]] = {
    **dict.fromkeys(NUMBERS, (_number, True)),
    "boolean": (_boolean, False), "text": (str, True), "char": (_char, True), "enum": (str, False),
    "uuid": (_uuid, False), "date": (_date, True), "time": (_time, True), "timestamp": (_moment, True),
    "timestamptz": (_utc, True),
}  # fmt: skip
"""By logical type: what a text is compared as, and whether that has an order."""

COMPARED: Final = tuple(_KEYS)
_FORMS: Final = {
    **dict.fromkeys(COMPARED, "a number such as 12.50"), "boolean": "true or false", "uuid": "hexadecimal digits",
    "date": "'2026-02-03'", "time": "'02:30:05.5'", "timestamp": "'2026-02-03 02:30:05.5'",
    "timestamptz": "'2026-02-03 02:30:05.5', in UTC",
}  # fmt: skip
