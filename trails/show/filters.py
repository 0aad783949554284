"""FILTER of logdump: which records NEXT stops at, and COUNT counts.

    FILTER INCLUDE RECTYPE Insert          FILTER INCLUDE FILENAME sales.*
    FILTER EXCLUDE STRING 'abc'            FILTER INCLUDE STARTTIME 2026-02-03 02:30
    FILTER MATCH ALL                       FILTER CLEAR

Rule: with MATCH ANY, the default, a record passes if some condition holds, with ALL if all do. EXCLUDE turns a
condition round. No condition passes everything.
"""

from __future__ import annotations

import fnmatch
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from trails.errors import OperatorError
from trails.record import MISSING
from trails.show.cursor import TYPES, Item

Test = Callable[[Item], bool]
_SIGNS = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq, "<>": operator.ne,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RecordCondition:
    """One FILTER: as it was typed, and what it asks."""

    text: str
    holds: Test


@dataclass(slots=True)
class Filters:
    """All conditions in force."""

    conditions: list[RecordCondition] = field(default_factory=list)
    match_all: bool = False
    enabled: bool = True

    def passes(self, item: Item) -> bool:
        """Is the record wanted?"""
        if not self.conditions or not self.enabled:
            return True
        return (all if self.match_all else any)(condition.holds(item) for condition in self.conditions)

    def lines(self) -> list[str]:
        """FILTER SHOW."""
        if not self.conditions:
            return ["Data filters are ENABLED, and there are none" if self.enabled else "Data filters are DISABLED"]
        state = "ENABLED" if self.enabled else "DISABLED"
        title = f"Data filters are {state}; match {'ALL' if self.match_all else 'ANY'}"
        return [title, *(f"  {number}. {one.text}" for number, one in enumerate(self.conditions, 1))]

    def obey(self, words: Sequence[str]) -> None:
        """What stands behind FILTER. Raises OperatorError."""
        verb = words[0].upper() if words else "SHOW"
        if verb == "CLEAR":
            self._clear(words[1:])
        elif verb == "MATCH" and len(words) == 2 and words[1].upper() in ("ANY", "ALL"):
            self.match_all = words[1].upper() == "ALL"
        elif verb in ("ENABLE", "ON", "DISABLE", "OFF"):
            self.enabled = verb in ("ENABLE", "ON")
        elif verb != "SHOW":
            exclude = verb in ("EXCLUDE", "EXC")
            rest = list(words[1:] if exclude or verb in ("INCLUDE", "INC") else words)
            test = _test(rest)
            text = " ".join([verb if rest != list(words) else "INCLUDE", *rest])
            self.conditions.append(RecordCondition(text, (lambda item: not test(item)) if exclude else test))

    def _clear(self, words: Sequence[str]) -> None:
        if not words:
            self.conditions.clear()
            return
        if not words[0].isdecimal() or not 0 < int(words[0]) <= len(self.conditions):
            raise OperatorError(f"FILTER CLEAR {words[0]}: no such filter", hint="FILTER SHOW numbers them")
        del self.conditions[int(words[0]) - 1]


def _test(words: list[str]) -> Test:
    name, values = (words[0].upper(), words[1:]) if words else ("", [])
    make = _MAKERS.get(name)
    if make is None or not values:
        known = ", ".join(sorted(_MAKERS))
        raise OperatorError(f"FILTER {name}: expected a condition and its value", hint=f"Conditions are {known}")
    return make(values)


def _types(values: list[str]) -> Test:
    wanted = {type_named(value) for value in values}
    return lambda item: item.type in wanted


def type_named(text: str) -> str:
    """A type of record, as its name or GoldenGate's. Raises OperatorError."""
    alike = {"GGSPURGEDATA": "Truncate", "DDLOP": "DDL", "FIELDCOMP": "Update", "GGSUNIFIEDUPDATE": "Update"}
    known = {name.upper(): name for name in TYPES} | alike
    if text.upper() not in known:
        raise OperatorError(f"no type of record {text}", hint=f"Types are {', '.join(TYPES)}")
    return known[text.upper()]


def _names(values: list[str]) -> Test:
    patterns = [value.lower() for value in values]

    def holds(item: Item) -> bool:
        tables = [table.full_name.lower() for table in (item.row.tables if item.row else ()) if table]
        return any(fnmatch.fnmatchcase(table, pattern) for table in tables for pattern in patterns)

    return holds


def _text(values: list[str]) -> Test:
    wanted = " ".join(values)
    return lambda item: any(wanted in value for value in values_of(item) if isinstance(value, str))


def _hex(values: list[str]) -> Test:
    try:
        wanted = bytes.fromhex("".join(values).removeprefix("0x"))
    except ValueError:
        raise OperatorError(f"FILTER HEX {' '.join(values)}: expected hex digits") from None
    return lambda item: any(wanted in raw(value) for value in values_of(item))


def values_of(item: Item) -> list[Any]:
    """Every value of its images."""
    images = item.row.record[2:] if item.row is not None else ()
    return [value for image in images if isinstance(image, list | tuple) for value in image]


def raw(value: Any) -> bytes:
    """A value as bytes; none for NULL and what is missing."""
    if value is None or value is MISSING:
        return b""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")


def _compared(values: list[str], of: Callable[[Item], Any], read: Callable[[str], Any]) -> Test:
    sign, rest = (values[0], values[1:]) if values[0] in _SIGNS else ("=", values)
    wanted, compare = read(" ".join(rest)), _SIGNS[sign]
    return lambda item: bool(compare(of(item), wanted))


def number(text: str) -> int:
    """A whole number, also as 0x1F. Raises OperatorError."""
    try:
        found = int(text, 0)
    except ValueError:
        found = -1
    if found < 0:
        raise OperatorError(f"expected a whole number, found {text!r}")
    return found


def moment(text: str) -> int:
    """A time, of this machine's zone if it names none. Raises OperatorError."""
    try:
        return int(datetime.fromisoformat(text.replace("/", "-")).astimezone().timestamp() * 1_000_000)
    except (ValueError, OverflowError):
        raise OperatorError(f"expected a time such as 2026-02-03 02:30:05, found {text!r}") from None


def _from(values: list[str]) -> Test:
    since = moment(" ".join(values))
    return lambda item: item.time_us >= since


def _until(values: list[str]) -> Test:
    until = moment(" ".join(values))
    return lambda item: item.time_us <= until


_MAKERS: dict[str, Callable[[list[str]], Test]] = {
    "RECTYPE": _types, "TYPE": _types, "FILENAME": _names, "FILE": _names, "ANSINAME": _names, "TABLE": _names,
    "STRING": _text, "HEX": _hex, "STARTTIME": _from, "ENDTIME": _until,
    "CSN": lambda values: _compared(values, lambda item: item.csn, str),
    "LOGCSN": lambda values: _compared(values, lambda item: item.csn, str),
    "TRANSID": lambda values: _compared(values, lambda item: item.xid, str),
    "AUDITRBA": lambda values: _compared(values, lambda item: item.block.start.seqno, number),
    "AUDITPOS": lambda values: _compared(values, lambda item: item.block.start.rba, number),
    "RBA": lambda values: _compared(values, lambda item: item.block.start.rba, number),
    "TRANSIND": lambda values: _compared(values, lambda item: item.transaction.value, number),
    "RECLEN": lambda values: _compared(values, lambda item: item.block.header.raw_len, number),
}  # fmt: skip
