"""@DATE, @DATEDIFF, @DATENOW: GoldenGate's date formats to Spark SQL.

A format is a run of parts of fixed width with any signs between them, so an input's parts are cut out by place. A
single part takes the whole value, however many digits it has.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from replicat.maps.expressions.ggtext import Arg, SparkText

_PARTS = re.compile(r"YYYY|YY|CC|MMM|MM|DDD|DD|DOW0|DOW1|DOWA|HH|MI|SS|FFFFFF|JUL|JTSGMT|JTS|CDATE|[A-Z]+|[^A-Z]+")
_WIDTH = {"YYYY": 4, "YY": 2, "CC": 2, "MMM": 3, "MM": 2, "DDD": 3, "DD": 2, "HH": 2, "MI": 2, "SS": 2, "FFFFFF": 6}
_JULIAN_US = "210866760000000000L"
_WHOLE = {
    "JTS": f"timestamp_micros(CAST({{0}} AS BIGINT) - {_JULIAN_US})",
    "JTSGMT": f"timestamp_micros(CAST({{0}} AS BIGINT) - {_JULIAN_US})",
    "CDATE": "timestamp_seconds(CAST({0} AS BIGINT))",
    "JUL": "CAST(date_add(DATE'1970-01-01', CAST({0} AS INT) - 2440588) AS TIMESTAMP)",
}
_PATTERN = {
    "YYYY": "yyyy", "YY": "yy", "MM": "MM", "DDD": "DDD", "DD": "dd", "HH": "HH", "MI": "mm", "SS": "ss",
    "FFFFFF": "SSSSSS",
}  # fmt: skip
_PLAIN_SIGNS = set("-/: .,")  # each of which a date_format pattern takes as itself
_OUT = {
    "CC": "left(date_format({0}, 'yyyy'), 2)",
    "MMM": "upper(date_format({0}, 'MMM'))",
    "DOW0": "CAST(dayofweek({0}) - 1 AS STRING)",
    "DOW1": "CAST(dayofweek({0}) AS STRING)",
    "DOWA": "upper(date_format({0}, 'E'))",
    "JTS": f"CAST(unix_micros({{0}}) + {_JULIAN_US} AS STRING)",
    "JTSGMT": f"CAST(unix_micros({{0}}) + {_JULIAN_US} AS STRING)",
    "CDATE": "CAST(unix_seconds({0}) AS STRING)",
    "JUL": "CAST(datediff(CAST({0} AS DATE), DATE'1970-01-01') + 2440588 AS STRING)",
}
_MONTHS = "JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC"


def date(args: Sequence[Arg]) -> SparkText:
    """DATE('output format', 'input format', value, ...)."""
    if len(args) % 2 == 0:
        raise args[-1].error("a value behind each input format")
    parts: dict[str, str] = {}
    for form, value in zip(args[1::2], args[2::2], strict=True):
        parts |= _input(form, value.string)
    moment = next((_WHOLE[name].format(value) for name, value in parts.items() if name in _WHOLE), "") or _made(parts)
    return SparkText(_output(_split(args[0], [*_PATTERN, *_OUT]), moment))


def _output(pieces: Sequence[str], moment: str) -> str:
    """Runs of what date_format knows as one pattern: the moment is long."""
    runs: list[tuple[bool, str]] = []
    for piece in pieces:
        simple = piece in _PATTERN or set(piece) <= _PLAIN_SIGNS
        if simple and runs and runs[-1][0]:
            runs[-1] = True, runs[-1][1] + _PATTERN.get(piece, piece)
        elif simple or piece in _OUT:
            runs.append((simple, _PATTERN.get(piece, piece)))
        else:
            runs.append((False, "'" + piece.replace("'", "''").replace("\\", "\\\\") + "'"))
    made = [f"date_format({moment}, '{run}')" if simple else _piece(run, moment) for simple, run in runs]
    return made[0] if len(made) == 1 else f"concat({', '.join(made)})"


def _piece(run: str, moment: str) -> str:
    return _OUT[run].format(moment) if run in _OUT else run


def date_diff(args: Sequence[Arg]) -> SparkText:
    """DATEDIFF('DD' | 'SS', first, second)."""
    unit = (args[0].literal or "").upper()
    if unit == "DD":
        return SparkText(f"datediff(CAST({args[2].sql} AS DATE), CAST({args[1].sql} AS DATE))", number=True)
    if unit == "SS":
        first, second = (f"CAST({arg.sql} AS TIMESTAMP)" for arg in args[1:])
        return SparkText(f"timestampdiff(SECOND, {first}, {second})", number=True)
    raise args[0].error("'DD' or 'SS'")


def date_now(_args: Sequence[Arg]) -> SparkText:
    """DATENOW()."""
    return SparkText("date_format(current_timestamp(), 'yyyy-MM-dd HH:mm:ss')")


def _split(form: Arg, known: Collection[str]) -> list[str]:
    text = form.literal
    if text is None:
        raise form.error("a format as 'literal', such as 'YYYY-MM-DD HH:MI:SS'")
    found = _PARTS.findall(text.upper())
    unknown = [piece for piece in found if piece[0].isalpha() and piece not in known]
    if unknown or not found:
        raise form.error(f"a format of {', '.join(known)}")
    return [str(piece) for piece in found]


def _input(form: Arg, value: str) -> dict[str, str]:
    """Part -> Spark SQL of its text, cut out of `value`."""
    pieces = _split(form, [*_WIDTH, *_WHOLE])
    names = [piece for piece in pieces if piece[0].isalpha()]
    if len(pieces) == 1:
        return {names[0]: value}
    if any(name in _WHOLE for name in names):
        raise form.error("JUL, JTS or CDATE alone")
    found: dict[str, str] = {}
    at = 1
    for piece in pieces:
        width = _WIDTH.get(piece, len(piece))
        if piece in _WIDTH:
            found[piece] = f"substr({value}, {at}, {width})"
        at += width
    return found


def _made(parts: dict[str, str]) -> str:
    """A timestamp of cut out parts; what is not there counts as the beginning of 1970. No fraction counts as 0."""

    def number(name: str, default: int) -> str:
        return f"CAST({parts[name]} AS INT)" if name in parts else str(default)

    year = number("YYYY", 1970)
    if "YY" in parts:
        short = number("YY", 0)
        century = f"CAST({parts['CC']} AS INT) * 100" if "CC" in parts else f"IF({short} < 50, 2000, 1900)"
        year = f"({century} + {short})"
    month, day = number("MM", 1), number("DD", 1)
    if "MMM" in parts:
        month = f"CAST((locate(upper({parts['MMM']}), '{_MONTHS}') + 2) DIV 3 AS INT)"
    if "DDD" in parts:
        month, day = "1", "1"
    fraction = "0"
    if "FFFFFF" in parts:  # what stands behind the digits is a zone
        digits = f"regexp_extract({parts['FFFFFF']}, '^[0-9]*', 0)"
        fraction = f"CAST(rpad({digits}, 6, '0') AS DECIMAL(16,6)) / 1000000"
    seconds = f"CAST({number('SS', 0)} + {fraction} AS DECIMAL(16,6))"
    made = f"make_timestamp({year}, {month}, {day}, {number('HH', 0)}, {number('MI', 0)}, {seconds})"
    return f"({made} + make_dt_interval({number('DDD', 1)} - 1))" if "DDD" in parts else made
