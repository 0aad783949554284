"""The names that an expression must find, as far as its text alone tells: what START can say before Spark is there.

Rule: it may miss a name, and never takes for a column's name what is none. So words of Spark's language and its types,
named arguments and functions of a catalog are passed over, and an expression with a lambda, a structure
or a query in it is left to Spark altogether. Spark's own parser has the last word on all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/|[^\W\d]\w*|\d[\w.]*|=>|->|::|\S""",
    re.DOTALL,
)
_WORDS = frozenset(re.findall(r"\w+", """
    ALL AND ANY ARRAY AS ASC AT BETWEEN BIGINT BINARY BOOLEAN BOTH BY BYTE CASE CAST CENTURY CHAR CHARACTER
    COLLATE DATE DAY DAYOFMONTH DAYOFWEEK DAYOFYEAR DAYS DEC DECADE DECIMAL DEFAULT DESC DISTINCT DIV DOUBLE
    DOW DOY ELSE END EPOCH ESCAPE EXISTS EXTRACT FALSE FILTER FLOAT FOR FROM GROUP HOUR HOURS IGNORE ILIKE IN
    INT INTEGER INTERVAL IS ISODOW ISOYEAR LEADING LIKE LONG MAP MICROSECOND MICROSECONDS MILLENNIUM
    MILLISECOND MILLISECONDS MINUTE MINUTES MONTH MONTHS NANOSECOND NANOSECONDS NOT NULL NULLS NUMERIC OR
    ORDER OVER OVERLAY PLACING POSITION QUARTER QUARTERS REAL REGEXP RESPECT RLIKE ROW SECOND SECONDS SHORT
    SMALLINT SOME STRING STRUCT SUBSTR SUBSTRING THEN TIME TIMESTAMP TIMESTAMP_LTZ TIMESTAMP_NTZ TIMEZONE
    TIMEZONE_HOUR TIMEZONE_MINUTE TINYINT TO TRAILING TRIM TRUE TRY_CAST UNKNOWN USING VARCHAR VARIANT VOID
    WEEK WEEKS WHEN WHERE WITHIN WITHOUT XOR YEAR YEAROFWEEK YEARS ZONE
"""))  # fmt: skip
_LEFT_TO_SPARK = frozenset(("->", "SELECT", "WITH", "STRUCT", "OVER", "COLLATE", "IDENTIFIER", "*/"))


def plain_names(text: str) -> list[tuple[str, ...]]:
    """The parts of each name that must be a column, or one of what stands beside them (`before.x`, `token.x`)."""
    tokens = _tokens(text)
    return [parts for parts, at, behind in _names(tokens) if not _is_other(tokens, at, behind)]


def plain_calls(text: str) -> list[str]:
    """What stands before a parenthesis: functions, and words of the language. One of a catalog (`a.b(...)`) is not."""
    tokens = _tokens(text)
    return [
        parts[0] for parts, at, behind in _names(tokens)
        if tokens[behind : behind + 1] == ["("] and len(parts) == 1 and not _is_type_or_part(tokens, at)
    ]  # fmt: skip


def _tokens(text: str) -> list[str]:
    """Without comments; none of an expression that is left to Spark."""
    tokens = [token for token in _TOKEN.findall(text) if not token.startswith(("--", "/*"))]
    return [] if any(token.upper() in _LEFT_TO_SPARK for token in tokens) else tokens


def _names(tokens: list[str]) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """(parts, first token, token behind) of each name."""
    at = 0
    while at < len(tokens):
        parts, behind = _name(tokens, at)
        if parts:
            yield parts, at, behind
        at = max(behind, at + 1)


def _name(tokens: list[str], at: int) -> tuple[tuple[str, ...], int]:
    """The name that begins at a token, and where it ends; no parts if none does."""
    parts: list[str] = []
    while at < len(tokens) and (part := _part(tokens[at])):
        parts.append(part)
        at += 1
        if at >= len(tokens) or tokens[at] != ".":
            return tuple(parts), at
        at += 1
    return (), at


def _part(token: str) -> str:
    if token[0] in '"`':
        return token[1:-1].replace(token[0] * 2, token[0])
    return token if token[0].isalpha() or token[0] == "_" else ""


def _is_other(tokens: list[str], at: int, behind: int) -> bool:
    """Whether a name is a function, a type, a named argument, the prefix of a literal, or a word of the language."""
    following = tokens[behind] if behind < len(tokens) else ""
    if following in ("(", "=>") or following.startswith("'") or _is_type_or_part(tokens, at):
        return True
    return behind == at + 1 and tokens[at].upper() in _WORDS


def _is_type_or_part(tokens: list[str], at: int) -> bool:
    return at > 0 and tokens[at - 1].upper() in ("AS", ":", "::", ".")  # `:` before a path in a variant
