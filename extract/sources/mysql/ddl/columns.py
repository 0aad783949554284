"""The grammar of columns and keys, as CREATE TABLE and ALTER TABLE have them.

Rule: what makes no difference to a shape (comments, storage, checks, foreign keys) is passed over by name; a word that
is not known is an UnreadError, as it may make one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from extract.sources.mysql.ddl.lexer import UnreadError, Word, WordKind
from extract.sources.mysql.ddl.natives import read_charset, read_type
from extract.sources.mysql.ddl.reader import WordReader
from extract.sources.mysql.ddl.syntax import PRIMARY, ColumnSpec, IndexSpec

_NOW: Final = ("CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP")
_WORDS: Final = frozenset(("VISIBLE", "INVISIBLE", "VIRTUAL", "STORED", "PERSISTENT", "ENFORCED"))
_VALUED: Final = frozenset((
    "COMMENT", "COLUMN_FORMAT", "STORAGE", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE", "SRID", "REF_SYSTEM_ID",
    "COMPRESSED",
))  # fmt: skip
VERSIONED: Final = "tables with SYSTEM VERSIONING are not captured"


# --- texts ------------------------------------------------------------------------------------------------------------


def quoted(text: str) -> str:
    """A string as a default has it in a shape: backslashes and quotes doubled."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def rendered(tokens: list[Word]) -> str:
    """An expression, in one form whatever was written between its words."""
    return " ".join(map(_written, tokens))


def _written(token: Word) -> str:
    if token.kind is WordKind.STRING:
        return quoted(token.text)
    return "`" + token.text.replace("`", "``") + "`" if token.kind is WordKind.NAME else token.text


# --- columns ----------------------------------------------------------------------------------------------------------


def read_column(r: WordReader, *, places: bool = False) -> ColumnSpec:
    """A name and a definition; `places`: FIRST and AFTER may stand behind it."""
    return read_definition(r, r.name("a column's name"), places=places)


def read_definition(r: WordReader, name: str, *, places: bool = False) -> ColumnSpec:
    """What stands behind a column's name."""
    spec = read_type(r)
    column = ColumnSpec(name, spec, is_json=spec.base == "json")
    if spec.is_serial:
        column = replace(column, null=False, auto_increment=True, unique=True)
    while not _ends(r):
        if places and r.take("FIRST"):
            column = replace(column, place="")
        elif places and r.take("AFTER"):
            column = replace(column, place=r.name("a column's name"))
        else:
            column = _attribute(r, column)
    return column


def _ends(r: WordReader) -> bool:
    """Whether a column's definition is over; how a table is partitioned may stand behind the last one."""
    if r.token.kind is WordKind.END or r.stands("PARTITION", "BY") or r.stands("REMOVE", "PARTITIONING"):
        return True
    return r.is_sign(",") or r.is_sign(")") or r.is_sign(";")


def _attribute(r: WordReader, column: ColumnSpec) -> ColumnSpec:
    """One attribute, and the column with it."""
    if changed := _value(r):
        return replace(column, **changed)
    if r.stands("COLLATE") or r.stands("CHARSET") or r.stands("CHARACTER", "SET"):
        if r.take("COLLATE"):
            return replace(column, type=replace(column.type, collation=_named(r)))
        return replace(column, type=replace(column.type, charset=read_charset(r)))
    if r.take("CHECK"):
        return replace(column, is_json=_is_json_check(r.group(), column.name) or column.is_json)
    if not _passed(r):
        raise UnreadError(f"an attribute of column {column.name[:60]} was expected, found {r.token.told}")
    return column


def _value(r: WordReader) -> dict[str, Any]:
    """Whether it may be NULL, where values come from, and of which keys it is; empty where that is not said here."""
    if r.take("NOT", "NULL"):
        return {"null": False}
    if r.take("NULL"):
        return {"null": True}
    if r.take("DEFAULT"):
        return read_default(r)
    if r.take("ON", "UPDATE"):
        return {"on_update": _now(r) or _no_time(r)}
    if r.take("AUTO_INCREMENT"):
        return {"auto_increment": True, "null": False}
    if r.take("SERIAL", "DEFAULT", "VALUE"):
        return {"auto_increment": True, "null": False, "unique": True}
    if r.take("UNIQUE"):
        r.take("KEY") or r.take("INDEX")
        return {"unique": True}
    if r.take("PRIMARY", "KEY") or r.take("KEY"):
        return {"primary": True, "null": False}
    if r.take("GENERATED", "ALWAYS", "AS") or r.take("AS"):
        if r.stands("ROW"):
            raise UnreadError(VERSIONED)
        return {"generated": rendered(r.group())}
    return {}


def _no_time(r: WordReader) -> str:
    raise r.wrong("CURRENT_TIMESTAMP")


def read_default(r: WordReader) -> dict[str, Any]:
    """What stands behind DEFAULT, as fields of a ColumnSpec."""
    made: dict[str, Any] = {"has_default": True, "default": None, "volatile": False, "now": False}
    if r.take("NULL"):
        return made
    if text := _now(r):
        return made | {"default": text, "now": True}
    literal = read_literal(r)
    if literal is not None:
        return made | {"default": literal}
    if r.is_sign("("):
        inside = r.group()
        constant = _constant(inside)
        return made | ({"default": constant} if constant else {"default": f"({rendered(inside)})", "volatile": True})
    return made | {"default": _call(r), "volatile": True}


def _now(r: WordReader) -> str:
    """CURRENT_TIMESTAMP in any of its forms; nothing if none stands here."""
    if not r.take_any(*_NOW):
        return ""
    if not r.take_sign("("):
        return "CURRENT_TIMESTAMP"
    digits = r.number() if r.token.kind is WordKind.NUMBER else 0
    r.need_sign(")")
    return f"CURRENT_TIMESTAMP({digits})" if digits else "CURRENT_TIMESTAMP"


def read_literal(r: WordReader) -> str | None:
    """A constant in its one form; None if none stands here."""
    if r.take("TRUE"):
        return "1"
    if r.take("FALSE"):
        return "0"
    sign = "-" if r.is_sign("-") else ""
    if (sign or r.is_sign("+")) and r.ahead(1).kind is WordKind.NUMBER:
        r.next()
    if r.token.kind is WordKind.NUMBER:
        return sign + r.next().text
    if r.word in ("DATE", "TIME", "TIMESTAMP") and r.ahead(1).kind is WordKind.STRING:
        r.next()
    r.introducer()
    if r.token.kind is WordKind.BITS:
        return r.next().text
    return quoted(r.string()) if r.token.kind is WordKind.STRING else None


def _constant(tokens: list[Word]) -> str:
    """MariaDB and MySQL both allow a constant in parentheses."""
    if len(tokens) == 1 and tokens[0].kind in (WordKind.NUMBER, WordKind.STRING, WordKind.BITS):
        return _written(tokens[0])
    return ""


def _call(r: WordReader) -> str:
    """A function without parentheses around it, as MariaDB allows; or the next number of a sequence."""
    parts = [r.token]
    r.name("a default")
    if parts[0].text.upper() == "NEXT":
        r.need("VALUE", "FOR")
        return f"NEXT VALUE FOR {'.'.join(filter(None, r.table()))}"
    while r.is_sign("."):
        parts.append(r.next())
        parts.append(r.token)
        r.name()
    inside = rendered(r.group()) if r.is_sign("(") else None
    head = "".join(map(_written, parts))
    return head if inside is None else f"{head}({inside})"


def _is_json_check(tokens: list[Word], column: str) -> bool:
    """Whether the check is what MariaDB makes of the type JSON."""
    texts = [token.text.lower() for token in tokens]
    return texts == ["json_valid", "(", column.lower(), ")"]


def _named(r: WordReader) -> str:
    r.take_sign("=")
    return r.name("a collation") if r.is_name else r.string("a collation")


def _passed(r: WordReader) -> bool:
    """Go over an attribute that no shape has."""
    if r.word in _VALUED:
        r.next()
        r.take_sign("=")
        r.next()
    elif r.take("REFERENCES"):
        skip_item(r)
    elif r.take("WITH", "SYSTEM", "VERSIONING"):
        raise UnreadError(VERSIONED)
    elif r.take("CONSTRAINT"):
        if not r.stands("CHECK"):
            r.name("a constraint's name")
    elif r.is_name and r.ahead(1).text == "=" and r.ahead(1).kind is WordKind.SIGN:
        r.next(), r.next(), r.next()
    else:
        return bool(r.take("NOT", "ENFORCED") or r.take("WITHOUT", "SYSTEM", "VERSIONING") or r.take_any(*_WORDS))
    return True


def skip_item(r: WordReader) -> None:
    """Go on to the comma, or the parenthesis, behind this item."""
    while r.token.kind is not WordKind.END and not r.is_sign(",") and not r.is_sign(")") and not r.is_sign(";"):
        if r.is_sign("("):
            r.group()
        else:
            r.next()


# --- keys -------------------------------------------------------------------------------------------------------------


def is_key(r: WordReader) -> bool:
    """Whether a key, index or constraint stands here, and no column."""
    if r.token.kind is WordKind.NAME:
        return False
    if r.word in ("PRIMARY", "UNIQUE", "INDEX", "KEY", "FULLTEXT", "SPATIAL", "CONSTRAINT", "FOREIGN", "CHECK"):
        return True
    return r.stands("PERIOD", "FOR") or (r.word == "VECTOR" and r.ahead(1).text.upper() in ("INDEX", "KEY"))


def read_key(r: WordReader) -> IndexSpec | None:
    """A key or index; None of a constraint that is neither."""
    symbol = ""
    if r.take("CONSTRAINT") and r.word not in ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
        symbol = r.name("a constraint's name")
    if r.take("PRIMARY", "KEY"):
        return _index(r, PRIMARY, unique=True, primary=True)
    if r.take("UNIQUE"):
        r.take("KEY") or r.take("INDEX")
        return _index(r, symbol, unique=True)
    if r.take("PERIOD", "FOR"):
        if r.stands("SYSTEM_TIME"):
            raise UnreadError(VERSIONED)
        skip_item(r)
        return None
    if r.word in ("FOREIGN", "CHECK"):
        skip_item(r)
        return None
    r.take_any("FULLTEXT", "SPATIAL", "VECTOR")
    r.take("KEY") or r.take("INDEX")
    return _index(r, "")


def _index(r: WordReader, name: str, *, unique: bool = False, primary: bool = False) -> IndexSpec:
    unless = r.take("IF", "NOT", "EXISTS")
    if not r.is_sign("(") and r.word not in ("USING", "TYPE"):
        given = r.name("an index's name")
        name = PRIMARY if primary else given
    columns, whole = read_parts(r)
    return IndexSpec(name, columns, unique, primary, whole, unless)


def read_parts(r: WordReader) -> tuple[tuple[str, ...], bool]:
    """The columns of an index, and whether they are in it whole."""
    if r.take_any("USING", "TYPE"):
        r.name()
    r.need_sign("(")
    columns, whole = [], True
    while True:
        if r.is_sign("("):
            r.group()
            whole = False
        else:
            columns.append(r.name("a column's name"))
            if r.is_sign("("):
                r.group()
                whole = False
        if r.take("WITHOUT", "OVERLAPS"):
            whole = False
        r.take_any("ASC", "DESC")
        if not r.take_sign(","):
            break
    r.need_sign(")")
    skip_item(r)
    return tuple(columns), whole
