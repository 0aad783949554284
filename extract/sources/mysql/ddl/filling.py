"""The value that older rows get in an added column, as the trail writes values (docs/values.md).

Rule: it is known exactly, or the change says by a flag that only the source knows it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from extract.sources.mysql.ddl import natives
from extract.sources.mysql.ddl.lexer import StatementDialect
from extract.sources.mysql.ddl.syntax import ColumnSpec
from extract.sources.mysql.flavour import Flavour
from trails.ddl import DdlColumn
from trails.record import time_of

STRICT: Final = 0x200000 | 0x400000
_NUMBERS: Final = frozenset(("smallint", "integer", "bigint"))
_TEXTS: Final = frozenset(("text", "char", "enum"))
_ZONE: Final = re.compile(r"([+-])(\d{1,2}):(\d\d)\Z")
_WHOLE: Final = re.compile(r"[-+]?(\d{1,20})\Z")
_DECIMAL: Final = re.compile(r"([-+]?)(\d*)(?:\.(\d*))?\Z")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d\Z")
_MOMENT: Final = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{1,6}))?\Z")


@dataclass(frozen=True, slots=True)
class StatementSession:
    """Who ran the statement: how it wrote, when, and in which time zone."""

    dialect: StatementDialect
    time_us: int = 0
    zone: str = ""
    names: frozenset[str] = field(default_factory=frozenset)

    @property
    def flavour(self) -> Flavour:
        """The server's."""
        return self.dialect.flavour

    @property
    def strict(self) -> bool:
        """A value that does not fit is an error."""
        return bool(self.dialect.sql_mode & STRICT)

    @property
    def offset(self) -> timedelta | None:
        """The zone as a distance from UTC; None where it is one with a name."""
        found = _ZONE.match(self.zone)
        if found is None:
            return timedelta() if self.zone.upper() == "UTC" else None
        distance = timedelta(hours=int(found[2]), minutes=int(found[3]))
        return -distance if found[1] == "-" else distance


def missing(spec: ColumnSpec, made: DdlColumn, session: StatementSession) -> tuple[str | None, bool]:
    """(the value, None for NULL; whether it is known)."""
    if made.generated:
        return None, True  # whoever makes it computes it
    if made.identity or spec.volatile:
        return None, False
    if spec.now:
        return _now(spec.default or "", made, session)
    if spec.default is not None:
        value = _constant(spec.default, made, session)
        return value, value is not None
    if not made.not_null:
        return None, True
    value = _implied(spec, made)
    return value, value is not None


def _now(default: str, made: DdlColumn, session: StatementSession) -> tuple[str | None, bool]:
    """The statement's own time."""
    if not session.time_us or made.type not in ("timestamp", "timestamptz"):
        return None, False
    if "(" in default or "(" in made.native:
        return None, False  # the log has no fractions of all servers
    moment = time_of(session.time_us // 1_000_000 * 1_000_000)
    if made.type == "timestamptz":
        return f"{moment:%Y-%m-%d %H:%M:%S}+00", True
    offset = session.offset
    return (None, False) if offset is None else (f"{moment + offset:%Y-%m-%d %H:%M:%S}", True)


def _implied(spec: ColumnSpec, made: DdlColumn) -> str | None:
    """What NOT NULL alone gives: zero, the empty text, the first label."""
    if made.type in _NUMBERS and natives.base_of(made.native) != "year":
        return "0"
    if made.type == "decimal":
        return _decimal("0", made.native)
    if made.type in ("real", "double"):
        return "0"
    if made.type == "enum":
        return spec.type.labels[0]
    if natives.base_of(made.native) in ("set", "varchar", "tinytext", "text", "mediumtext", "longtext"):
        return ""
    if natives.base_of(made.native) in ("varbinary", "tinyblob", "blob", "mediumblob", "longblob"):
        return "\\x"
    return "00:00:00" if made.type == "time" and "(" not in made.native else None


def _constant(default: str, made: DdlColumn, session: StatementSession) -> str | None:
    """A constant as a row of the log would have it; None where that is not certain."""
    text = _string(default)
    if made.type in _NUMBERS:
        found = _WHOLE.match(text if text is not None else default)
        return str(int(found[0])) if found and natives.base_of(made.native) != "year" else None
    if made.type == "decimal":
        return _decimal(text if text is not None else default, made.native)
    if made.type == "bits" and default[:2] == "b'":
        size = int(made.native[4:-1])
        digits = default[2:-1]
        return digits.rjust(size, "0") if len(digits) <= size else None
    if text is None:
        return None
    if made.type == "enum":
        labels = [label for label in natives.labels_of(made.native) if label.lower() == text.rstrip(" ").lower()]
        return labels[0] if labels else None
    base = natives.base_of(made.native)
    if base == "varchar" or base.endswith("text"):
        return text
    if base == "set":
        return "" if not text else text if text in natives.labels_of(made.native) else None
    return _moment(text, made, session)


def _moment(text: str, made: DdlColumn, session: StatementSession) -> str | None:
    """A date or a time that is written in full."""
    if made.type == "date":
        return text if _DATE.match(text) and not text.startswith("0000") else None
    found = _MOMENT.match(text)
    if found is None or found[1].startswith("0000") or "(" in made.native or found[2]:
        return None
    if made.type == "timestamp":
        return found[1]
    zero = made.type == "timestamptz" and session.offset == timedelta()
    return f"{found[1]}+00" if zero else None


def _decimal(text: str, native: str) -> str | None:
    """With as many digits behind the point as the column has, if it takes no more away."""
    found = _DECIMAL.match(text)
    sizes = re.match(r"decimal\((\d+),(\d+)\)", native)
    if native.startswith("bigint"):
        whole = _WHOLE.match(text)
        return str(int(whole[0])) if whole else None
    if found is None or sizes is None or not (found[2] or found[3]):
        return None
    scale, behind = int(sizes[2]), found[3] or ""
    if len(behind.rstrip("0")) > scale or len((found[2] or "").lstrip("0")) > int(sizes[1]) - scale:
        return None
    whole_text, behind = (found[2] or "").lstrip("0") or "0", behind[:scale].ljust(scale, "0")
    sign = "-" if found[1] == "-" and (whole_text + behind).strip("0") else ""
    return f"{sign}{whole_text}{'.' + behind if scale else ''}"


def _string(default: str) -> str | None:
    """What a quoted constant holds; None of any other."""
    if not default.startswith("'"):
        return None
    return re.sub(r"\\(.)|''", lambda found: found[1] or "'", default[1:-1], flags=re.DOTALL)
