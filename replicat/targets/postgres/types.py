"""What a value becomes in PostgreSQL: a table of rules (replicat/targets/sql/types.py) by column type.

Rule: canonical text (docs/values.md) is what the server's own input functions read, so nothing is converted here. But
these functions round, cut and shift without a word. Where a column's type could do so with a value of the logical type,
the rule has a condition that the server is asked for. Where it could not, no value is looked at.
docs/types.md shows what comes of the rules.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from replicat.ddl.typename import TypeName, parse_type
from replicat.targets.sql.canonical import BAD_CAST, BAD_MOMENT, OUT_OF_RANGE, TOO_LONG, UnfitError
from replicat.targets.sql.types import ALL_TEXT, FLOATS, INTEGERS, ONLY_TEXT, TEXTS, Maker, Native, Rule, RuleRow, row

DUPLICATE_KEY: Final = "22030"
_DIGITS: Final = 6
"""Digits of a second that a type without modifiers keeps."""


@dataclass(frozen=True, slots=True)
class AskedRule(Rule):
    """A rule whose conditions are the server's to judge, in SQL.

    `fits` and `counted`: conditions on `$v`, a value's text, and `$t`, what the column makes of it. `fits`: the value
    arrives; empty if each one does that the column's type takes at all. `counted`: it loses something by the rule.
    `sqlstate` and `why` tell a refusal. `read`: SQL of the column `$c` whose text is canonical again. `signs`: one of
    them is in the COPY text of each value that the conditions may be about; empty: any value may be one. `shape`: as a
    regular expression, what such a value has in its text; empty: anything.
    """

    fits: str = ""
    counted: str = ""
    sqlstate: str = BAD_CAST
    why: str = "the column's type would change this value"
    read: str = "$c"
    signs: tuple[bytes, ...] = ()
    shape: bytes = b""

    @property
    def asks(self) -> bool:
        """Whether values must be looked at."""
        return bool(self.fits or self.counted or self.convert)


EXACT: Final = AskedRule("exact")
_NUMERIC: Final = "$t = $v::numeric"
_AS_PRINTED: Final = "$t::text = $v"
_FOREVER: Final = "$v ~ '^-?infinity$'"
_MINUS_ZERO: Final = "$v = '-0'"
_IDLE_ZEROS: Final = "$v ~ '[.][0-9]*0$'"
_NUMBER: Final = "$v ~ '^(-?(0|[1-9][0-9]*)([.][0-9]+)?|NaN|-?Infinity)$' AND $v !~ '^-0([.]0+)?$'"
# No second 60 and no hour 24, which would be another minute or day; no zeros before a year of five digits.
_CLOCK: Final = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]+)?"
_DAY: Final = "([0-9]{4}|[1-9][0-9]{4,})-[0-9]{2}-[0-9]{2}"
_MOMENT: Final = f"$v ~ '^{_DAY} {_CLOCK}([+]00)?( BC)?$'"
_TIME: Final = f"$v ~ '^({_CLOCK}|24:00:00)$'"
_PRINTED: Final = AskedRule("text that the column prints as it is", fits=_AS_PRINTED)
_GIVEN_BACK: Final = AskedRule("text that the column prints as it is", fits="concat($t) = $v")
"""As a type's output function has it, which is not what a cast to text gives of an address."""
_SPAN: Final = AskedRule(
    "exact",
    fits=_AS_PRINTED,
    sqlstate=BAD_MOMENT,
    why="the column keeps fewer digits or fields than this value has, or prints it in another form",
)
# What no value of the logical type became is given as it is: somebody else wrote it, and a comparison must see that.
_AS_WHOLE: Final = "CASE WHEN $c::numeric % 1 = 0 THEN $c::numeric::bigint::text ELSE $c::numeric::text END"
_AS_DATE: Final = "CASE WHEN $c = date_trunc('day', $c) THEN $c::date::text ELSE $c::text END"
_AS_TIME: Final = "CASE WHEN date_part('timezone', $c) = 0 THEN $c::time::text ELSE $c::text END"
_DROPS_BLANKS: Final = "the column would drop blanks at the end of this text"


def _is(rule: AskedRule) -> Maker:
    """The same rule for every column."""
    return lambda _native: rule


def _changes(why: str, name: str, fits: str, **more: Any) -> Maker:
    """A number that must stay the number that it is."""
    return _is(AskedRule(name, fits=fits, sqlstate=OUT_OF_RANGE, why=why, **more))


def _whole_in_numeric(native: Native) -> AskedRule:
    """Only a negative scale rounds whole numbers."""
    return _in_numeric("exact", native) if native.scale < 0 else EXACT


def _in_numeric(name: str, native: Native, counted: str = "") -> AskedRule:
    why = f"the column's scale is {native.scale}, this number needs more digits"
    fits = _NUMERIC if native.size else ""
    shape = b"" if native.scale < 0 or counted else b"(?:[.][0-9]{%d}|[eE])" % (native.scale + 1)
    return AskedRule(name, fits=fits, counted=counted, sqlstate=OUT_OF_RANGE, why=why, shape=shape)


def _in_seconds(native: Native, name: str = "exact", also: str = "", read: str = "$c") -> AskedRule:
    """No digit of a second that is not zero may be lost. `also`: what else must hold of a value."""
    digits = f"$v !~ '[.][0-9]{{{native.size}}}[0-9]*[1-9]'"
    why = f"the column keeps {native.size} digits of a second, this value has more"
    fits = f"{digits} AND ({also} OR {_FOREVER})" if also else digits
    why, shape = (f"{why}, or another form", b"") if also else (why, b"[.][0-9]{%d}" % (native.size + 1))
    return AskedRule(name, fits=fits, sqlstate=BAD_MOMENT, why=why, read=read, shape=shape)


def _utc(native: Native) -> AskedRule:
    return _in_seconds(native, "UTC, without the offset", "$v ~ '[+]00( BC)?$'", "$c::timestamptz")


def _in_varchar(native: Native) -> AskedRule:
    """What is longer by blanks alone would be cut; by anything else the COPY refuses it."""
    fits = f"char_length($v) <= {native.size}"
    return AskedRule("exact", fits=fits, sqlstate=TOO_LONG, why=_DROPS_BLANKS, signs=(b" \t", b" \n"))


def _in_char(native: Native) -> AskedRule:
    """Text that ends in a blank could not be told from its padding."""
    padded = f"char_length($v) < {native.size}"
    return AskedRule("padded", fits="$v !~ ' $'", counted=padded, sqlstate=TOO_LONG, why=_DROPS_BLANKS, read="$c::text")


def _unlike_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise UnfitError("an object has a key twice, and jsonb keeps one of them", DUPLICATE_KEY)
    return made


def _same_json(text: str) -> str:
    """JSON without a key twice; whether it is JSON at all is the server's to say."""
    try:
        json.loads(text, object_pairs_hook=_unlike_keys, parse_float=str, parse_int=str)
    except (json.JSONDecodeError, RecursionError):
        raise UnfitError("it can't be read as JSON") from None
    return text


_JSONB: Final = AskedRule("blanks and order of keys as jsonb has them", _same_json, counted="$t::text <> $v")
_ROUNDS: Final = "the column's type would round this number"
_WORDS: Final = TEXTS | {"char"}
_MOMENTS: Final = {"date", "time", "timestamp", "timestamptz"}
_NEVER_BLANK: Final = INTEGERS | FLOATS | _MOMENTS | {"boolean", "decimal", "uuid", "bits"}
_RULES: tuple[RuleRow, ...] = (
    row(ALL_TEXT, "text enum", _is(EXACT)),
    row("bytes", "text varchar", _is(AskedRule("hexadecimal text"))),
    row("bytes", "bytea", _is(EXACT)),
    row("char", "char", _is(AskedRule("padding as the column has it"))),
    row(_NEVER_BLANK, "varchar", _is(EXACT)),
    row(_NEVER_BLANK, "char", _is(AskedRule("padded", read="$c::text"))),
    row(ALL_TEXT, "varchar", _in_varchar),
    row(ALL_TEXT, "char", _in_char),
    row(INTEGERS, "smallint integer bigint", _is(EXACT)),
    row(INTEGERS, "numeric", _whole_in_numeric),
    row("smallint", "real double", _is(EXACT)),
    row("integer", "double", _is(EXACT)),
    row(INTEGERS, "real double",
        _changes(_ROUNDS, "exact", "$t::text::numeric = $v::numeric", read="$c::text::numeric")),
    row(INTEGERS, "money", _is(AskedRule("whole amount", read=_AS_WHOLE))),
    row(INTEGERS | {"decimal"}, "boolean",
        _is(AskedRule("1 as true, 0 as false", fits="$t::integer::text = $v", read="$c::integer"))),
    row(INTEGERS | {"decimal"}, "json jsonb", _is(EXACT)),
    row(INTEGERS, "other", _is(_GIVEN_BACK)),
    row("boolean", "boolean json jsonb", _is(EXACT)),
    row("decimal", "numeric", partial(_in_numeric, "exact number, the column's scale")),
    row("decimal", "smallint integer bigint", _is(AskedRule("exact number, whole ones only"))),
    row("decimal", "real double", _changes(_ROUNDS, "number that the column gives back, all digits kept",
        "$t::text::numeric = $v::numeric", counted=_IDLE_ZEROS, read="$c::text::numeric")),
    row("decimal", "money", _changes(_ROUNDS, "amount", "$t::numeric = $v::numeric", read="$c::numeric")),
    row("real", "real double", _is(EXACT)),
    row("double", "double", _is(EXACT)),
    row("double", "real", _changes(_ROUNDS, "exact", "$t::double precision = $v::double precision")),
    row(FLOATS, "numeric", partial(_in_numeric, "digits of the shortest text", counted=_MINUS_ZERO)),
    row(FLOATS, "smallint integer bigint", _is(AskedRule("exact number, whole ones only", counted=_MINUS_ZERO))),
    row("date", "date", _is(EXACT)),
    row("date", "timestamp timestamptz", _is(AskedRule("midnight", read=_AS_DATE))),
    row("time", "time", _in_seconds),
    row("time", "timetz", partial(_in_seconds, name="taken as UTC", read=_AS_TIME)),
    row("time", "interval", _is(_SPAN)),
    row("timetz", "timetz", _in_seconds),
    row("timestamp", "timestamp", _in_seconds),
    row("timestamp", "timestamptz", partial(_in_seconds, name="taken as UTC", read="$c::timestamp")),
    row("timestamptz", "timestamptz", _in_seconds),
    row("timestamptz", "timestamp", _utc),
    row("timestamp", "date", _is(AskedRule("midnight only", fits=f"$v ~ ' 00:00:00([.]0+)?( BC)?$' OR {_FOREVER}",
        sqlstate=BAD_MOMENT, why="the column keeps no time of day", read="$c::timestamp"))),
    row("interval", "interval", _is(_SPAN)),
    row("money", "money", _is(EXACT)),
    row("uuid", "uuid", _is(EXACT)),
    row("bits", "bit", _is(EXACT)),
    row(_WORDS, "json", _is(EXACT)),
    row(_WORDS, "jsonb", _is(_JSONB)),
    row(_WORDS, "numeric", _changes("the column would make another number of this text", "text of a number",
        f"{_NUMBER} AND {_NUMERIC}")),
    row(_WORDS, "time", partial(_in_seconds, name="text of a time", also=_TIME)),
    row(_WORDS, "timestamp timestamptz", partial(_in_seconds, name="text of a timestamp", also=_MOMENT)),
    row(_WORDS, "smallint integer bigint real double boolean date timetz interval uuid money bit xml", _is(_PRINTED)),
    row(_WORDS | ONLY_TEXT, "other", _is(_GIVEN_BACK)),
)  # fmt: skip


# --- column types ---------------------------------------------------------------------------------------------------

_FAMILIES: Final = {
    "double precision": "double", "character varying": "varchar", "character": "char", "bit varying": "bit",
    "time with time zone": "timetz", "time without time zone": "time", "timestamp with time zone": "timestamptz",
    "timestamp without time zone": "timestamp",
}  # fmt: skip
_OWN: Final = frozenset({
    "smallint", "integer", "bigint", "numeric", "real", "money", "text", "bytea", "boolean", "date", "interval", "bit",
    "uuid", "json", "jsonb", "xml",
})  # fmt: skip
_SECONDS: Final = frozenset({"time", "timetz", "timestamp", "timestamptz"})


def postgres_type(text: str, *, enum: bool = False) -> Native:
    """A type as format_type() names it. Those of users, arrays and ranges are `other`, but for enums."""
    kind = parse_type(text)
    if enum:
        return Native(_RULES, "enum", text)
    if kind is None or not kind.is_built_in or kind.arrays:
        return Native(_RULES, "other", text)
    name = kind.name + kind.zone
    family = _FAMILIES.get(name) or ("interval" if name.startswith("interval") else name if name in _OWN else "other")
    numbers = kind.numbers
    if family == "varchar" and not numbers:
        family = "text"
    size = numbers[0] if numbers else _DIGITS if family in _SECONDS else 0
    return Native(_RULES, family, text, size, numbers[1] if len(numbers) > 1 else 0)


def keeps(native: str, column: str) -> bool:
    """Whether a column takes each value of a source column of a type of the same database, both built in."""
    was, now = parse_type(native), parse_type(column)
    if was is None or now is None or not (was.is_built_in and now.is_built_in):
        return False
    return was == now or (_bare(was) == _bare(now) and bool(was.numbers) and _fits(was.numbers, now.numbers))


def _bare(kind: TypeName) -> tuple[str, str, int]:
    return kind.name, kind.zone, kind.arrays


def _fits(was: tuple[int, ...], now: tuple[int, ...]) -> bool:
    """Lengths, digits of a second and scales round or cut; where a precision is too small the server says so."""
    return not now or was[-1] <= now[-1]
