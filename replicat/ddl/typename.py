"""A column's type as a trail names it, taken apart, and printed again from its parts.

Rule: a type's text comes from whoever wrote the trail. It is data: what this grammar does not know is no type, and what
it knows is printed from its parts, so nothing but the name of a type can get into a statement. A name without a schema
is one of the built-in types below; any other must bear its schema, as the source's event trigger writes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

LONGEST: Final = 500
_SPANS: Final = (
    "year to month", "day to hour", "day to minute", "day to second", "hour to minute", "hour to second",
    "minute to second", "year", "month", "day", "hour", "minute", "second",
)  # fmt: skip
BUILT_IN: Final = frozenset({
    "smallint", "integer", "bigint", "real", "double precision", "numeric", "money", "text", "name", "json", "jsonb",
    "jsonpath", "uuid", "xml", "bytea", "boolean", "date", "time", "timestamp", "interval", "bit", "bit varying",
    '"bit"', '"char"', "character varying", "character", "bpchar", "inet", "cidr", "macaddr", "macaddr8", "point",
    "line", "lseg", "box", "path", "polygon", "circle", "tsvector", "tsquery", "oid", "tid", "xid", "xid8", "cid",
    "pg_lsn", "pg_snapshot", "txid_snapshot", "refcursor", "regclass", "regcollation", "regconfig", "regdictionary",
    "regnamespace", "regoper", "regoperator", "regproc", "regprocedure", "regrole", "regtype", "int4range",
    "int8range", "numrange", "tsrange", "tstzrange", "daterange", "int4multirange", "int8multirange",
    "nummultirange", "tsmultirange", "tstzmultirange", "datemultirange", "int2vector", "oidvector", "aclitem",
    *(f"interval {span}" for span in _SPANS),
})  # fmt: skip
"""The built-in types that a trail may name, without their modifiers."""

_QUOTED: Final = r'"(?:[^"\x00]|"")+"'
_NAME: Final = rf"(?:{_QUOTED}|[a-z_][a-z0-9_]*)"
_FIXED: Final = "|".join(re.escape(name) for name in sorted(BUILT_IN, key=len, reverse=True))
_WORD: Final = "[A-Za-z][A-Za-z0-9_]{0,62}"
_MODIFIER: Final = rf'(?:-?[0-9]{{1,9}}|{_WORD}|"{_WORD}")'
PATTERN: Final = (
    rf"(?:{_NAME}\.{_NAME}|(?:{_FIXED})(?![a-z0-9_.\"]))(?:\({_MODIFIER}(?:,{_MODIFIER})*\))?"
    r"(?: with(?:out)? time zone)?(?:\[\]){0,6}"
)
"""A type's text; the grammar of formulas has it too."""

_PARTS: Final = re.compile(
    rf"(?:(?P<schema>{_NAME})\.(?P<own>{_NAME})|(?P<fixed>{_FIXED}))(?:\((?P<modifiers>[^()]*)\))?"
    r"(?P<zone> with(?:out)? time zone)?(?P<arrays>(?:\[\])*)\Z"
)
_WHOLE: Final = re.compile(rf"{PATTERN}\Z")
_ZONED: Final = ("time", "timestamp")


@dataclass(frozen=True, slots=True)
class TypeName:
    """A type. `schema` is empty for a built-in one; `zone` is what stands behind the modifiers of times."""

    schema: str
    name: str
    modifiers: tuple[str, ...] = ()
    zone: str = ""
    arrays: int = 0

    @property
    def is_built_in(self) -> bool:
        """Whether the database itself brings it."""
        return not self.schema

    @property
    def numbers(self) -> tuple[int, ...]:
        """The modifiers, where all are numbers."""
        digits = all(modifier.lstrip("-").isdigit() for modifier in self.modifiers)
        return tuple(map(int, self.modifiers)) if digits else ()

    def sql(self) -> str:
        """The type for a statement."""
        name = f"{quoted(self.schema)}.{quoted(self.name)}" if self.schema else self.name
        parts = [part if part.lstrip("-").isdigit() else quoted(part) for part in self.modifiers]
        modifiers = f"({','.join(parts)})" if parts else ""
        return f"{name}{modifiers}{self.zone}{'[]' * self.arrays}"


def quoted(name: str) -> str:
    """A name in double quotes, as the standard writes it."""
    return '"' + name.replace('"', '""') + '"'


def plain(name: str) -> str:
    """A name without the quotes that it may bear."""
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def parse_type(text: str) -> TypeName | None:
    """The type that a text names; None if it names none."""
    if len(text) > LONGEST or not _WHOLE.match(text) or (found := _PARTS.match(text)) is None:
        return None
    modifiers = tuple(map(plain, found["modifiers"].split(","))) if found["modifiers"] else ()
    zone, arrays = found["zone"] or "", len(found["arrays"]) // 2
    if found["own"]:
        if zone:
            return None
        schema, name = plain(found["schema"]), plain(found["own"])
        built_in = schema == "pg_catalog" and name in BUILT_IN
        return TypeName("" if built_in else schema, name, modifiers, "", arrays)
    name = found["fixed"]
    if (zone and name not in _ZONED) or (name in _ZONED and not zone):
        return None
    made = TypeName("", name, modifiers, zone, arrays)
    # PostGIS's modifiers are words; those of built-in types are numbers.
    return made if len(made.numbers) == len(modifiers) else None
