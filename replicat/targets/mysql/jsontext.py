"""JSON as a column of MySQL's own type `json` keeps it. (MariaDB's `json` is a longtext, and keeps the text itself.)

MySQL parses the text, and prints another one: keys sorted, shorter ones first, one blank behind `:` and `,`, doubles
for all numbers but those that 64 bits hold. It keeps the last of two keys that are one. MySQL 8.0.12 reads about every
fifth double of 17 digits as its neighbour.

Rule: the server is sent the text that it prints itself if it keeps the value, and compares (KEPT): what it reads as
something else is refused there. What no reading could keep is refused here.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, Final

from replicat.targets.sql.canonical import OUT_OF_RANGE, UnfitError

BAD_JSON: Final = "22032"
DUPLICATE_KEY: Final = "22030"
KEPT: Final = "IF(BINARY CAST(CAST({} AS JSON) AS CHAR) <=> BINARY {}, {}, 'other')"
"""The text; where the server's own would be another one, what is no JSON at all, so that the column refuses it."""

_LEAST, _MOST = -(1 << 63), (1 << 64) - 1
_PLAIN_FROM, _PLAIN_UPTO = -14, 15
"""A double is printed without an exponent where its point stands between these places of its digits."""


class _Number(str):
    """A number as the server prints it."""

    __slots__ = ()


def kept(text: str) -> str:
    """JSON as MySQL prints it."""
    try:
        return _printed(json.loads(text, object_pairs_hook=_sorted, parse_float=_double, parse_int=_whole,
                                   parse_constant=_no_json))  # fmt: skip
    except (json.JSONDecodeError, RecursionError):
        raise UnfitError("it can't be read as JSON", BAD_JSON) from None


def only_kept(text: str) -> str:
    """Text that is JSON just as MySQL prints it."""
    if kept(text) != text:
        raise UnfitError("a column of type json would change this text")
    return text


def is_changed(text: str) -> bool:
    """Whether the text is another one than MySQL's; a value that is refused loses nothing."""
    try:
        return kept(text) != text
    except UnfitError:
        return False


def _no_json(word: str) -> Any:
    raise UnfitError(f"{word} is no JSON", BAD_JSON)


def _sorted(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(sorted(pairs, key=lambda pair: (len(raw := pair[0].encode("utf-8", "surrogatepass")), raw)))
    if len(made) < len(pairs):
        raise UnfitError("an object has a key twice, and the column keeps one of them", DUPLICATE_KEY)
    return made


def _whole(text: str) -> _Number:
    if len(text) <= 20 and _LEAST <= (number := int(text)) <= _MOST:
        return _Number(number)
    return _double(text)


def _double(text: str) -> _Number:
    number = float(text)
    if number in (float("inf"), float("-inf")) or Decimal(repr(number)) != Decimal(text):
        raise UnfitError("MySQL's json keeps numbers with a fraction, and very long ones, as doubles: this number "
                         "needs more digits", OUT_OF_RANGE)  # fmt: skip
    return _Number(_shortest(number))


def _shortest(number: float) -> str:
    """The shortest digits; a whole number ends in `.0`."""
    sign, digits, power = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(power, int)
    text, minus = "".join(map(str, digits)), "-" if sign else ""
    point = len(text) + power
    if number == 0:
        return f"{minus}0.0"
    if not _PLAIN_FROM <= point <= _PLAIN_UPTO:
        return f"{minus}{text[0]}{'.' if text[1:] else ''}{text[1:]}e{point - 1}"
    if point <= 0:
        return f"{minus}0.{'0' * -point}{text}"
    return f"{minus}{text[:point].ljust(point, '0')}.{text[point:] or '0'}"


def _printed(value: Any) -> str:
    if isinstance(value, _Number):
        return value
    if isinstance(value, dict):
        return "{" + ", ".join([f"{_quoted(key)}: {_printed(one)}" for key, one in value.items()]) + "}"
    if isinstance(value, list):
        return "[" + ", ".join([_printed(one) for one in value]) + "]"
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    if any("\ud800" <= sign <= "\udfff" for sign in text):
        raise UnfitError("text in it is no UTF-8", BAD_JSON)
    return json.dumps(text, ensure_ascii=False)
