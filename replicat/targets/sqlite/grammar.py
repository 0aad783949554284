"""What an SQLite source declares: types and defaults as its CREATE TABLE has them."""

from __future__ import annotations

import re
from typing import Final

from replicat.ddl.formula import Formula, parse_constant
from replicat.ddl.grammar import SourceGrammar
from replicat.ddl.typename import TypeName

# SQLite takes any words for a type; only these are written into a statement.
_WORDS: Final = frozenset({
    "BIG", "BIGINT", "BLOB", "BOOL", "BOOLEAN", "CHAR", "CHARACTER", "CLOB", "DATE", "DATETIME", "DECIMAL", "DOUBLE",
    "FLOAT", "INT", "INT2", "INT4", "INT8", "INTEGER", "MEDIUMINT", "NATIVE", "NCHAR", "NUMBER", "NUMERIC", "NVARCHAR",
    "PRECISION", "REAL", "SMALLINT", "TEXT", "TIME", "TIMESTAMP", "TINYINT", "UNSIGNED", "VARCHAR", "VARYING",
})  # fmt: skip
_TYPE: Final = re.compile(r"([A-Za-z][A-Za-z0-9 ]{0,99}?) ?(?:\( ?(\d{1,9}) ?(?:, ?(\d{1,9}) ?)?\))?\Z", re.ASCII)

_NUMBERS: Final = {"true": "1", "false": "0"}


def _type(text: str) -> TypeName | None:
    """A declared type of known words, with a length that SQLite does not hold values to."""
    found = _TYPE.match(text)
    if found is None or not _WORDS.issuperset(found[1].upper().split()):
        return None
    return TypeName("", " ".join(found[1].split()), tuple(number for number in found.groups()[1:] if number))


def _formula(text: str) -> Formula | None:
    """A constant; TRUE and FALSE are numbers here."""
    return parse_constant(_NUMBERS.get(text.lower(), text))


GRAMMAR: Final = SourceGrammar(_type, _formula)
