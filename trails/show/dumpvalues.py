"""How logdump prints what records hold: rows, values, and shapes of tables. Lines of text for people, no more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trails.ddl import DDL_REASONS, DdlChange, DdlColumn
from trails.format import TIMES
from trails.heartbeat import Beat
from trails.naming import TOKEN
from trails.record import MISSING, Column, TableDef, time_of

SHOWN_VALUE = 200


def ddl_lines(change: DdlChange, start: str, end: str) -> list[str]:
    """Statement, why shapes are not enough, and both shapes, column by column."""
    old, new = change.old, change.new
    names = " to ".join(f"{schema}.{name}" for schema, name in change.names)
    reasons = [text for flag, text in DDL_REASONS.items() if change.flags & flag]
    lines = [f"{start}{change.op} {names}{end}", f"    statement {_value(change.sql)}"]
    lines += [f"    flags {change.flags}: {'; '.join(reasons)}"] if change.flags else []
    for title, shape in (("before", old), ("after", new)):
        if shape is not None:
            key = f"  key ({', '.join(shape.key)})" if shape.key else "  no key"
            lines += [f"    {title} {shape.full_name}{key}", *(_ddl_column(column) for column in shape.columns)]
    return lines


def heartbeat_lines(wire: Any, start: str) -> list[str]:
    """Where it was made, and every stamp with the time since the one before it."""
    beat = Beat.from_wire(wire, start.strip())
    lines = [f"{start}{'HEARTBEAT':9} {beat.database}  {_moment(beat.us)}  every {beat.every_s} s  {beat.path}"]
    for stamp, (_, _, took) in zip(beat.stamps, beat.hops(), strict=True):
        after = "UNKNOWN" if took is None else f"{took / 1_000_000:.6f} s"
        lines.append(f"    {stamp.program:9} {stamp.group:9} {_moment(stamp.us)}  after {after}")
    return lines


def _moment(us: int) -> str:
    if us not in TIMES:
        return f"{us} us since 1970"
    return str(time_of(us))


def _ddl_column(column: DdlColumn) -> str:
    parts = [f"      {column.number:>4} {column.name:30} {column.native} ({column.type})"]
    parts += ["NOT NULL"] if column.not_null else []
    parts += [f"IDENTITY {'always' if column.identity == 'a' else 'by default'}"] if column.identity else []
    if column.default is not None:
        parts.append(f"{'GENERATED AS' if column.generated else 'DEFAULT'} {_value(column.default)}")
    parts += [f"older rows have {_value(column.missing)}"] if column.missing is not None else []
    parts += [f"of {_value(', '.join(name for _, name in column.inner))}"] if column.inner else []
    return "  ".join(parts)


def image_lines(table: TableDef | None, image: Sequence[Any]) -> list[str]:
    """A row, column by column."""
    columns = [_title(column) for column in table.columns] if table else []
    columns += [f"column {n}" for n in range(len(columns), len(image))]
    return [f"      {name:30} {_value(value)}" for name, value in zip(columns, image, strict=False)]


def _title(column: Column) -> str:
    """Tokens look unlike columns, which may bear the same name."""
    if column.type == TOKEN:
        return f"@TOKEN {column.name}"
    return column.name + (" (key)" if column.key else "")


def _value(value: Any) -> str:
    if value is None:
        return "NULL"
    if value is MISSING:
        return "(missing)"
    if isinstance(value, bytes):
        text = f"0x{value[: SHOWN_VALUE // 2].hex()}"
        return text if len(value) <= SHOWN_VALUE // 2 else f"{text}... ({len(value)} bytes)"
    text = repr(value[:SHOWN_VALUE])
    return text if len(value) <= SHOWN_VALUE else f"{text}... ({len(value)} characters)"
