"""What a MySQL or MariaDB source declares: types as its shapes have them, and defaults.

Rule: the text comes from whoever wrote the trail. A type is one of the known ones, printed from its parts; a default is
a constant, the present time, or an expression of known words, printed word by word. Anything else is none.

    int unsigned, decimal(12,2), varchar(20) CHARACTER SET latin1 COLLATE latin1_bin, enum('a','b') CHARACTER SET ...
    5, 'it''s', b'101', x'4142', CURRENT_TIMESTAMP(3), NULL ON UPDATE CURRENT_TIMESTAMP, (`a` + 1), `a` * 2
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from replicat.ddl.formula import LONGEST, Formula
from replicat.ddl.grammar import SourceGrammar
from replicat.ddl.typename import TypeName

_LONGEST_TYPE: Final = 200_000
_TYPE: Final = re.compile(
    r"(?P<name>[a-z][a-z0-9]{1,20})"
    r"(?:\((?P<numbers>\d{1,9}(?:,\d{1,9})?)\)|\((?P<labels>'(?:[^']|'')*'(?:,'(?:[^']|'')*')*)\))?"
    r"(?P<sign> unsigned)?(?P<zero> zerofill)?"
    r"(?: CHARACTER SET (?P<charset>[a-z0-9]{1,32}) COLLATE (?P<collation>[a-z0-9_]{1,64}))?\Z",
    re.ASCII | re.DOTALL,
)
_LABEL: Final = re.compile(r"'((?:[^']|'')*)'", re.DOTALL)
_NAMES: Final = frozenset((
    "tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "bit", "date", "time",
    "datetime", "timestamp", "year", "char", "varchar", "tinytext", "text", "mediumtext", "longtext", "binary",
    "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "enum", "set", "json", "uuid", "inet4", "inet6",
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection",
))  # fmt: skip
_LABELLED: Final = ("enum", "set")

_NUMBER: Final = re.compile(r"[-+]?(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:[eE][-+]?\d{1,4})?\Z", re.ASCII)
_STRING: Final = re.compile(r"'(?:[^'\\]|''|\\\\)*'\Z", re.DOTALL)
_BITS: Final = re.compile(r"(?:b'([01]*)'|x'((?:[0-9a-fA-F]{2})*)'|0x((?:[0-9a-fA-F]{2})+)|0b([01]+))\Z", re.IGNORECASE)
_NOW: Final = re.compile(r"CURRENT_TIMESTAMP(?:\(([0-6])\))?\Z")
_UPDATE: Final = " ON UPDATE "

_WORD: Final = re.compile(
    r"\s+|(?P<string>'(?:[^'\\]|''|\\\\)*')|(?P<name>`(?:[^`\x00]|``)+`)|(?P<number>\d{1,40}(?:\.\d{1,40})?(?![\w$]))"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign><=>|<<|>>|<>|!=|<=|>=|\|\||&&|->>|->|[-+*/%=<>!^&|(),.~])",
    re.ASCII | re.DOTALL,
)
_WORDS: Final = frozenset((
    "and", "or", "xor", "not", "is", "null", "true", "false", "between", "in", "like", "rlike", "regexp", "div", "mod",
    "case", "when", "then", "else", "end", "interval", "as", "using", "collate", "binary", "unsigned", "signed", "char",
    "date", "time", "datetime", "decimal", "double", "integer", "charset", "microsecond", "second", "minute", "hour",
    "day", "week", "month", "quarter", "year", "from", "for", "both", "leading", "trailing",
))  # fmt: skip
FUNCTIONS: Final = frozenset((
    "abs", "acos", "adddate", "addtime", "ascii", "asin", "atan", "atan2", "bin", "bit_count", "bit_length", "cast",
    "ceil", "ceiling", "char_length", "character_length", "coalesce", "concat", "concat_ws", "conv", "convert", "cos",
    "cot", "crc32", "curdate", "current_date", "current_time", "current_timestamp", "curtime", "date_add",
    "date_format", "date_sub", "datediff", "dayname", "dayofmonth", "dayofweek", "dayofyear", "degrees", "elt", "exp",
    "extract", "field", "find_in_set", "floor", "format", "from_base64", "from_days", "from_unixtime", "greatest",
    "hex", "if", "ifnull", "insert", "instr", "isnull", "json_array", "json_extract", "json_keys", "json_length",
    "json_object", "json_quote", "json_type", "json_unquote", "json_valid", "json_value", "last_day", "lcase", "least",
    "left", "length", "ln", "locate", "log", "log10", "log2", "lower", "lpad", "ltrim", "makedate", "maketime", "md5",
    "mid", "monthname", "now", "nullif", "octet_length", "ord", "period_add", "period_diff", "pi", "position", "pow",
    "power", "radians", "rand", "repeat", "replace", "reverse", "right", "round", "rpad", "rtrim", "sec_to_time",
    "sha1", "sha2", "sign", "sin", "soundex", "space", "sqrt", "str_to_date", "strcmp", "subdate", "substr",
    "substring", "substring_index", "subtime", "tan", "time_format", "time_to_sec", "timediff", "timestamp",
    "timestampadd", "timestampdiff", "to_base64", "to_days", "to_seconds", "trim", "truncate", "ucase", "unhex",
    "unix_timestamp", "upper", "utc_date", "utc_time", "utc_timestamp", "uuid", "weekday", "weekofyear", "yearweek",
)) | _WORDS  # fmt: skip
"""Functions that compute, and neither read nor change anything else; and those words that may stand before `(` too."""


@dataclass(frozen=True, slots=True)
class MysqlType(TypeName):
    """A type of these servers; `sign`: what stands behind the numbers. Text has a character set and a collation."""

    labels: tuple[str, ...] = ()
    sign: str = ""
    charset: str = ""
    collation: str = ""

    def sql(self) -> str:
        """The type for a statement. A collation of one of the two servers alone stands in a comment of that server."""
        inside = ",".join(map(literal, self.labels)) if self.labels else ",".join(self.modifiers)
        head = f"{self.name}({inside})" if inside else self.name
        return f"{head}{self.sign}{_characters(self.charset, self.collation)}"


def _characters(charset: str, collation: str) -> str:
    if not charset or charset == "binary":
        return ""
    if charset == "utf8mb3":
        return f" CHARACTER SET utf8 COLLATE {collation.replace('utf8mb3_', 'utf8_')}"
    if "_0900_" in collation:
        return f" CHARACTER SET {charset} /*M!100202 COLLATE {charset}_nopad_bin */ /*!80000 COLLATE {collation} */"
    if "_nopad_" in collation or "uca1400" in collation:
        return f" CHARACTER SET {charset} /*M!100202 COLLATE {collation} */ /*!80017 COLLATE {charset}_bin */"
    return f" CHARACTER SET {charset} COLLATE {collation}"


def literal(text: str) -> str:
    """A string as our sessions read it, where a backslash stands for itself only when doubled."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def parse_type(text: str) -> TypeName | None:
    """The type that a text names; None if it names none."""
    found = _TYPE.match(text) if len(text) <= _LONGEST_TYPE else None
    if found is None or found["name"] not in _NAMES or (found["labels"] is None) == (found["name"] in _LABELLED):
        return None
    labels = tuple(label.replace("''", "'") for label in _LABEL.findall(found["labels"] or ""))
    if any("\0" in label for label in labels):
        return None
    sign = (found["sign"] or "") + (found["zero"] or "")
    numbers = tuple((found["numbers"] or "").split(",")) if found["numbers"] else ()
    return MysqlType("", found["name"], numbers, "", 0, labels, sign, found["charset"] or "", found["collation"] or "")


def parse_default(text: str) -> Formula | None:
    """The formula that a default, or what a generated column is computed by, is; None if it is none that is carried."""
    if len(text) > LONGEST or "\0" in text:
        return None
    head, update, tail = text.partition(_UPDATE)
    if update and (now := _NOW.match(tail)) is not None:
        found = Formula("NULL", is_null=True) if head == "NULL" else _simple(head)
        shown = f"{_UPDATE}{now[0]}"
        if found is None:
            return None
        return Formula(found.sql + shown, found.constant, bare=False, is_null=found.is_null, now=found.now)
    return _simple(text) or _expression(text)


def _simple(text: str) -> Formula | None:
    if _NUMBER.match(text):
        return Formula(text, text.removeprefix("+"), bare=True)
    if _STRING.match(text):
        value = re.sub(r"''|\\\\", lambda found: found[0][0], text[1:-1])
        return Formula(literal(value), value, bare=True)
    if bits := _BITS.match(text):
        digits = bits[1] if bits[1] is not None else bits[4]
        return Formula(text, digits, bare=True)
    if now := _NOW.match(text):
        return Formula(now[0], now=int(now[1] or 0))
    return None


def _expression(text: str) -> Formula | None:
    """Known words alone, one behind the other, with parentheses that close."""
    parts: list[str] = []
    reads: set[str] = set()
    at = depth = 0
    words = list(_WORD.finditer(text))
    for i, found in enumerate(words):
        if found.start() != at:
            return None
        at = found.end()
        kind, part = found.lastgroup, found[0]
        if kind is None:
            continue
        after = next((other[0] for other in words[i + 1 :] if other.lastgroup), "")
        if after == "(" and (kind not in ("word", "sign") or parts[-1:] == ["."]):
            return None  # a function too, of its own database or in quotes, and perhaps not the known one
        if kind == "word" and part.lower() not in (FUNCTIONS if after == "(" else _WORDS):
            if part.startswith("_") and after.startswith("'"):
                continue  # the string's character set: ours are all in one
            if after == "(" or after == "." or after.startswith("'"):
                return None
            part = f"`{part}`"
            kind = "name"
        if kind == "name":
            reads.add(part[1:-1].replace("``", "`"))
        elif kind == "string":
            part = literal(re.sub(r"''|\\\\", lambda pair: pair[0][0], part[1:-1]))
        depth += (part == "(") - (part == ")")
        if depth < 0 or (not depth and part == ","):
            return None
        parts.append(part)
    if at != len(text) or depth or not parts:
        return None
    # A space before a parenthesis would make a column's name of a function's.
    text = "".join(part if part == "(" else f" {part}" for part in parts)
    return Formula(text.lstrip(), reads=frozenset(reads))


GRAMMAR: Final = SourceGrammar(parse_type, parse_default, binds=True, rows_have_generated=True)
