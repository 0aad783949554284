"""Types of columns: how a statement may write one, the one text that we give it, and its logical type.

    written                     native
    INTEGER(9) UNSIGNED         int unsigned
    BOOL                        tinyint(1)
    NUMERIC(12)                 decimal(12,0)
    TEXT(100)                   tinytext CHARACTER SET latin1 COLLATE latin1_swedish_ci
    NATIONAL VARCHAR(5)         varchar(5) CHARACTER SET utf8mb3 COLLATE utf8mb3_general_ci

Rule: what two servers may print in two ways has one native. So widths of integers are left out (but tinyint(1) and
ZEROFILL), and every type with text names its character set and collation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from extract.sources.mysql.ddl.lexer import UnreadError
from extract.sources.mysql.ddl.reader import WordReader
from extract.sources.mysql.flavour import Flavour

REAL_AS_FLOAT: Final = 0x1
ORACLE: Final = 0x200
BINARY: Final = "binary"

_INTEGERS: Final = {
    "TINYINT": "tinyint", "INT1": "tinyint", "SMALLINT": "smallint", "INT2": "smallint", "MEDIUMINT": "mediumint",
    "INT3": "mediumint", "MIDDLEINT": "mediumint", "INT": "int", "INTEGER": "int", "INT4": "int", "BIGINT": "bigint",
    "INT8": "bigint",
}  # fmt: skip
_WIDTHS: Final = {"tinyint": (4, 3), "smallint": (6, 5), "mediumint": (9, 8), "int": (11, 10), "bigint": (20, 20)}
_DECIMALS: Final = frozenset(("DECIMAL", "DEC", "NUMERIC", "FIXED"))
_FLOATS: Final = {"FLOAT": "float", "FLOAT4": "float", "DOUBLE": "double", "FLOAT8": "double", "REAL": "double"}
_TEXTS: Final = {"TINYTEXT": "tinytext", "MEDIUMTEXT": "mediumtext", "LONGTEXT": "longtext"}
_BLOBS: Final = {"TINYBLOB": "tinyblob", "MEDIUMBLOB": "mediumblob", "LONGBLOB": "longblob"}
_GEOMETRIES: Final = frozenset((
    "GEOMETRY", "POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON",
    "GEOMETRYCOLLECTION", "GEOMCOLLECTION",
))  # fmt: skip
_MARIAS: Final = frozenset(("UUID", "INET4", "INET6"))
_SIZES: Final = {"tiny": 255, "": 65535, "medium": (1 << 24) - 1, "long": (1 << 32) - 1}
_LONGEST: Final = 65535
_CAST: Final = frozenset(
    ("ASCII", "UNICODE", "BYTE", "BINARY", "COMPRESSED", "CHARSET", "CHARACTER", "COLLATE", "CHAR")
)

_BYTES: Final = {
    "utf8mb4": 4, "utf16": 4, "utf16le": 4, "utf32": 4, "gb18030": 4, "utf8mb3": 3, "utf8": 3, "ujis": 3, "eucjpms": 3,
    "ucs2": 2, "gbk": 2, "gb2312": 2, "big5": 2, "sjis": 2, "cp932": 2, "euckr": 2,
}  # fmt: skip
_CHARACTERS: Final = frozenset(("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"))

_LOGICAL: Final = {
    "tinyint": "smallint", "smallint": "smallint", "mediumint": "integer", "int": "integer", "bigint": "bigint",
    "tinyint unsigned": "smallint", "smallint unsigned": "integer", "mediumint unsigned": "integer",
    "int unsigned": "bigint", "bigint unsigned": "decimal", "decimal": "decimal", "float": "real", "double": "double",
    "bit": "bits", "date": "date", "time": "time", "datetime": "timestamp", "timestamp": "timestamptz",
    "year": "smallint", "char": "text", "varchar": "text", "tinytext": "text", "text": "text", "mediumtext": "text",
    "longtext": "text", "enum": "enum", "set": "text", "binary": "bytes", "varbinary": "bytes", "tinyblob": "bytes",
    "blob": "bytes", "mediumblob": "bytes", "longblob": "bytes", "json": "json", "uuid": "uuid", "inet4": "other",
    "inet6": "other", "vector": "other",
}  # fmt: skip
_HEAD: Final = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Charsets:
    """What only the server knows: the collation of each character set that gives none. `server`: of a new database."""

    defaults: dict[str, str]
    server: str = "utf8mb4_general_ci"

    def collation(self, charset: str) -> str:
        """The one that a character set has by itself."""
        name = charset_name(charset)
        return BINARY if name == BINARY else self.defaults.get(name, f"{name}_general_ci")


def charset_name(charset: str) -> str:
    """One name of each: utf8 is utf8mb3."""
    name = charset.lower()
    return "utf8mb3" if name == "utf8" else name


def charset_of(collation: str) -> str:
    """A collation's name begins with its character set's."""
    return charset_name(collation.partition("_")[0])


def collation_name(collation: str) -> str:
    """One name of each: utf8_bin is utf8mb3_bin."""
    name = collation.lower()
    return f"utf8mb3_{name[5:]}" if name.startswith("utf8_") else name


def character_bytes(collation: str) -> int:
    """The bytes of one character at most."""
    return _BYTES.get(charset_of(collation), 1)


@dataclass(frozen=True, slots=True)
class TypeSpec:
    """A type as it was written. `length`: of a text or blob; `charset`, `collation`: empty where none was written."""

    base: str
    numbers: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    unsigned: bool = False
    zerofill: bool = False
    charset: str = ""
    collation: str = ""
    binary: bool = False
    is_serial: bool = False
    compressed: bool = False

    def native(self, default_collation: str, charsets: Charsets) -> str:
        """The one text; `default_collation`: the table's."""
        if self.base in _CHARACTERS:
            return self._characters(default_collation, charsets)
        if self.base == "blob" and self.numbers:
            return _by_size(self.numbers[0], "blob")
        numbers = f"({','.join(map(str, self.numbers))})" if self.numbers else ""
        sign = " unsigned" if self.unsigned else ""
        return f"{self.base}{numbers}{sign}{' zerofill' if self.zerofill else ''}"

    def _characters(self, default_collation: str, charsets: Charsets) -> str:
        collation = self.resolved(default_collation, charsets)
        base, width = self.base, character_bytes(collation)
        if collation == BINARY and not self.labels:
            return replace(self, base=_AS_BYTES[base]).native("", charsets)
        if (base == "text" and self.numbers) or (base == "varchar" and self.numbers[0] * width > _LONGEST):
            return with_text(_by_size(self.numbers[0] * width, "text"), collation)
        inside = ",".join(map(_label, self.labels)) if self.labels else ",".join(map(str, self.numbers))
        return with_text(f"{base}({inside})" if inside else base, collation)

    def resolved(self, default_collation: str, charsets: Charsets) -> str:
        """The collation that a column of it has."""
        if self.collation:
            return collation_name(self.collation)
        found = charsets.collation(self.charset) if self.charset else default_collation
        return f"{charset_of(found)}_bin" if self.binary and found != BINARY else found


_AS_BYTES: Final = {
    "char": "binary", "varchar": "varbinary", "tinytext": "tinyblob", "text": "blob", "mediumtext": "mediumblob",
    "longtext": "longblob",
}  # fmt: skip


def with_text(head: str, collation: str) -> str:
    """A type with its character set."""
    return f"{head} CHARACTER SET {charset_of(collation)} COLLATE {collation}"


def split(native: str) -> tuple[str, str]:
    """A native's type and its collation, empty where it has none."""
    head, _, rest = native.rpartition(" CHARACTER SET ")
    return (head, rest.partition(" COLLATE ")[2]) if head else (native, "")


def converted(native: str, collation: str) -> str:
    """What CONVERT TO CHARACTER SET makes of a column: it keeps room for as many characters."""
    head, old = split(native)
    if not old or base_of(native) in ("enum", "set"):
        return with_text(head, collation) if old else native
    base = base_of(native)
    if base.endswith("text"):
        if collation == BINARY:
            return _AS_BYTES[base]
        size = _SIZES[base.removesuffix("text")]
        wide, width = character_bytes(old), character_bytes(collation)
        return with_text(_by_size(size // wide * width, "text") if width > wide else base, collation)
    if collation == BINARY:
        return head.replace("char", "binary", 1)
    length = int(head[len(base) + 1 : -1])
    if base == "varchar" and length * character_bytes(collation) > _LONGEST:
        head = _by_size(length * character_bytes(collation), "text")
    return with_text(head, collation)


def base_of(native: str) -> str:
    """`varchar` of `varchar(20) CHARACTER SET ...`."""
    found = _HEAD.match(native)
    return found[0] if found else native


def labels_of(native: str) -> tuple[str, ...]:
    """The labels of an ENUM or SET."""
    return tuple(found.replace("''", "'") for found in re.findall(r"'((?:[^']|'')*)'", native))


def logical(native: str) -> str:
    """The logical type (docs/values.md) of a native."""
    base = base_of(native)
    if " unsigned" in native and (known := _LOGICAL.get(f"{base} unsigned")):
        return known
    return "geometry" if base.upper() in _GEOMETRIES else _LOGICAL.get(base, "other")


def _by_size(size: int, family: str) -> str:
    for name, most in _SIZES.items():
        if size <= most:
            return name + family
    return f"long{family}"


def _label(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# --- reading ----------------------------------------------------------------------------------------------------------


def read_type(r: WordReader) -> TypeSpec:
    """A type with its signs and its character set."""
    if r.dialect.sql_mode & ORACLE and r.dialect.flavour is Flavour.MARIADB:
        raise UnreadError("types of sql_mode ORACLE are not read")
    word = r.word
    if not word:
        raise r.wrong("a type")
    r.next()
    found = _number(r, word) or _time(r, word) or _text(r, word) or _other(r, word)
    if found is None:
        raise UnreadError(f"a type was expected, found {word[:40]!r}")
    return found


def _number(r: WordReader, word: str) -> TypeSpec | None:
    if word in _INTEGERS:
        width = _numbers(r)
        return _signed(r, TypeSpec(_INTEGERS[word], width))
    if word in _DECIMALS:
        numbers = _numbers(r) or (10,)
        return _signed(r, TypeSpec("decimal", (*numbers, 0)[:2]))
    if word in _FLOATS:
        base = "float" if word == "REAL" and r.dialect.sql_mode & REAL_AS_FLOAT else _FLOATS[word]
        r.take("PRECISION")
        numbers = _numbers(r)
        if len(numbers) == 1:
            base, numbers = ("double" if numbers[0] > 24 or base == "double" else "float"), ()
        return _signed(r, TypeSpec(base, numbers))
    if word in ("BOOL", "BOOLEAN"):
        return TypeSpec("tinyint", (1,))
    if word == "BIT":
        return TypeSpec("bit", _numbers(r) or (1,))
    return TypeSpec("bigint", unsigned=True, is_serial=True) if word == "SERIAL" else None


def _signed(r: WordReader, spec: TypeSpec) -> TypeSpec:
    unsigned = zerofill = False
    while word := r.take_any("UNSIGNED", "SIGNED", "ZEROFILL"):
        unsigned |= word != "SIGNED"
        zerofill |= word == "ZEROFILL"
    numbers = spec.numbers
    if spec.base in _WIDTHS:
        if zerofill:
            numbers = numbers or (_WIDTHS[spec.base][1],)
        elif numbers != (1,) or spec.base != "tinyint" or unsigned:
            numbers = ()
    return replace(spec, numbers=numbers, unsigned=unsigned, zerofill=zerofill)


def _time(r: WordReader, word: str) -> TypeSpec | None:
    if word in ("TIME", "DATETIME", "TIMESTAMP"):
        numbers = _numbers(r)
        return TypeSpec(word.lower(), () if numbers == (0,) else numbers)
    if word == "YEAR":
        _numbers(r)
        while r.take_any("UNSIGNED", "ZEROFILL", "SIGNED"):
            pass
        return TypeSpec("year")
    return TypeSpec("date") if word == "DATE" else None


def _text(r: WordReader, word: str) -> TypeSpec | None:
    national = word in ("NATIONAL", "NCHAR", "NVARCHAR")
    if word == "NATIONAL":
        word = r.take_any("CHAR", "CHARACTER", "VARCHAR", "VARCHARACTER")
    spec: TypeSpec | None = None
    if word in ("CHAR", "CHARACTER", "NCHAR"):
        varies = bool(r.take_any("VARYING", "VARCHAR", "VARCHARACTER"))
        spec = TypeSpec("varchar" if varies else "char", _numbers(r) or (1,))
    elif word in ("VARCHAR", "VARCHARACTER", "NVARCHAR"):
        spec = TypeSpec("varchar", _numbers(r))
        if not spec.numbers:
            raise r.wrong("a length")
    elif word in _TEXTS:
        spec = TypeSpec(_TEXTS[word])
    elif word == "TEXT":
        spec = TypeSpec("text", _numbers(r))
    elif word == "LONG":
        if r.take("VARBINARY"):
            return TypeSpec("mediumblob")
        r.take_any("VARCHAR", "VARCHARACTER") or r.take("CHAR", "VARYING")
        spec = TypeSpec("mediumtext")
    elif word in ("ENUM", "SET"):
        spec = TypeSpec(word.lower(), labels=_labels(r))
    if spec is None:
        return None
    spec = _with_charset(r, spec)
    return replace(spec, charset="utf8mb3") if national else spec


def _with_charset(r: WordReader, spec: TypeSpec) -> TypeSpec:
    while r.word in _CAST:
        if r.take("COLLATE"):
            spec = replace(spec, collation=r.string() if not r.is_name else r.name())
        elif r.take("ASCII"):
            spec = replace(spec, charset="latin1")
        elif r.take("UNICODE"):
            spec = replace(spec, charset="ucs2")
        elif r.take("BYTE"):
            spec = replace(spec, charset=BINARY)
        elif r.take("BINARY"):
            spec = replace(spec, binary=True)
        elif r.take("COMPRESSED"):
            if r.take_sign("="):
                r.name()
            spec = replace(spec, compressed=True)
        else:
            spec = replace(spec, charset=read_charset(r))
    return spec


def read_charset(r: WordReader) -> str:
    """CHARACTER SET x, or CHARSET x."""
    if not (r.take("CHARSET") or r.take("CHARACTER", "SET") or r.take("CHAR", "SET")):
        raise r.wrong("CHARACTER SET")
    r.take_sign("=")
    return r.name("a character set") if r.is_name else r.string("a character set")


def _other(r: WordReader, word: str) -> TypeSpec | None:
    if word in ("BINARY", "VARBINARY"):
        spec = TypeSpec(word.lower(), _numbers(r) or ((1,) if word == "BINARY" else ()))
    elif word == "BLOB":
        spec = TypeSpec("blob", _numbers(r))
    elif word in _BLOBS:
        spec = TypeSpec(_BLOBS[word])
    elif word in _GEOMETRIES:
        spec = TypeSpec("geometrycollection" if word == "GEOMCOLLECTION" else word.lower())
    elif word == "JSON":
        spec = TypeSpec("json")
    elif word == "VECTOR":
        spec = TypeSpec("vector", _numbers(r))
    elif word in _MARIAS and r.dialect.flavour is Flavour.MARIADB:
        spec = TypeSpec(word.lower())
    else:
        return None
    while r.take("COMPRESSED"):
        if r.take_sign("="):
            r.name()
        spec = replace(spec, compressed=True)
    return spec


def _numbers(r: WordReader) -> tuple[int, ...]:
    """What stands in parentheses behind a type's name."""
    if not r.take_sign("("):
        return ()
    numbers = [r.number()]
    while r.take_sign(","):
        numbers.append(r.number())
    r.need_sign(")")
    return tuple(numbers)


def _labels(r: WordReader) -> tuple[str, ...]:
    """Blanks at their end are no part of labels, but where a collation says otherwise."""
    r.need_sign("(")
    labels = [_member(r)]
    while r.take_sign(","):
        labels.append(_member(r))
    r.need_sign(")")
    return tuple(labels)


def _member(r: WordReader) -> str:
    return r.string("a label").rstrip(" ")
