"""Sources of any kind that a Replicat can read, each with its capture, behind one set of words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from extract.extract import Extract
from tests.support import sqlite_source, trigger_source
from tests.support.mysql_source import MysqlCapture
from tests.support.sqlite_source import SourceFile
from tests.support.trigger_source import TriggeredDb
from trails.fs import RealFs
from trails.position import TrailName

Rows = list[tuple[Any, ...]]


@dataclass
class LoadSource:
    """A source whose tables have rows. `sql`: statements, each committed; `rows`: of a query."""

    url: str
    schema: str
    trail: TrailName
    tables: tuple[str, ...]
    sql: Callable[..., Any]
    rows: Callable[[str], Rows]
    running: Callable[[], AbstractContextManager[Extract]]
    drain: Callable[[Extract], None]


def from_log(url: str, schema: str, folder: Path, tables: tuple[str, ...], *statements: str) -> LoadSource:
    """MySQL or MariaDB, after these statements."""
    made = MysqlCapture(url, folder / "dirdat", (f"{schema}.*",))
    made.sql(*statements)
    made.register()

    def rows(query: str) -> Rows:
        return [(int(row[0]), *row[1:]) for row in made.sql(query)]

    return LoadSource(url, schema, made.settings.trail, tables, made.sql, rows, made.running, made.drain)


def queued(made: SourceFile | TriggeredDb, schema: str, folder: Path, tables: tuple[str, ...]) -> LoadSource:
    """A source whose changes wait in a queue of its own."""
    trail = TrailName(str(folder / "dirdat"), "lt")

    @contextmanager
    def running() -> Iterator[Extract]:
        extract = made.extract(RealFs(), trail)
        try:
            yield extract
        finally:
            extract.close()

    def drain(extract: Extract) -> None:
        if isinstance(made, SourceFile):
            sqlite_source.run_until_captured(extract, made)
        else:
            trigger_source.run_until_captured(extract, made)

    return LoadSource(made.url, schema, trail, tables, made.run, made.rows, running, drain)
