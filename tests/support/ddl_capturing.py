"""Schema changes as tests look at them: a group with DDL and the event trigger, and what it captured in short text."""

from __future__ import annotations

from pathlib import Path

from tests.support.capturing import Capture, Change, ask
from trails.ddl import DdlChange, TableShape


def capture_with_trigger(url: str, folder: Path) -> Capture:
    """A group with DDL on an empty database that has the event trigger."""
    made = Capture(url, folder, ddl="INCLUDE MAPPED")
    ask("add_ddlcapture", url=url)
    return made


def ddls(found: list[list[Change]]) -> list[DdlChange]:
    """The schema changes among all changes, in order."""
    return [change.ddl for transaction in found for change in transaction if change.ddl is not None]


def shown(shape: TableShape | None) -> str:
    """A shape in one line: number, name, native type, * not null."""
    if shape is None:
        return "-"
    columns = ", ".join(f"{c.number} {c.name} {c.native}{'*' * c.not_null}" for c in shape.columns)
    return f"{shape.name}({columns}; {' '.join(shape.key)})"


def told(found: list[list[Change]]) -> list[str]:
    """Rows and schema changes, transaction by transaction."""
    return [" | ".join(map(_told, transaction)) for transaction in found]


def _told(change: Change) -> str:
    if change.ddl is not None:
        return f"{change.ddl.op} {shown(change.ddl.new or change.ddl.old)}"
    image = change.after or change.before or {}
    return f"{change.op.name} {change.table.name} {' '.join(f'{k}={v}' for k, v in image.items())}"
