"""The shapes of today, asked of the server: each table's SHOW CREATE TABLE goes through the grammar of statements.

Rule: a table that the grammar does not understand is kept with the reason, and stops only whoever captures it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from extract.sources.mysql.ddl.journal import Base, Entry, Key, ShapeChange
from extract.sources.mysql.ddl.known import create
from extract.sources.mysql.ddl.lexer import StatementDialect, UnreadError
from extract.sources.mysql.ddl.natives import Charsets, charset_name, collation_name
from extract.sources.mysql.ddl.statements import parse
from extract.sources.mysql.ddl.syntax import Create
from extract.sources.mysql.flavour import Flavour
from trails.errors import OperatorError
from trails.position import Position

SYSTEM: Final = ("mysql", "information_schema", "performance_schema", "sys")
_TRIES: Final = 20
_GONE: Final = (1146, 1051, 1049, 1142, 1305)
_QUOTES: Final = "SET SESSION sql_quote_show_create = 1"
_TABLES: Final = "SELECT table_schema, table_name, table_type FROM information_schema.tables"
_DATABASES: Final = "SELECT schema_name, default_collation_name FROM information_schema.schemata"
_CHARSETS: Final = "SELECT character_set_name, default_collate_name FROM information_schema.character_sets"


class Asks(Protocol):
    """A session with the server that has no ANSI_QUOTES in its sql_mode, UTF-8, and UTC."""

    def query(self, sql: str) -> Sequence[Sequence[Any]]:
        """The rows of a statement."""


@dataclass(frozen=True, slots=True)
class SourceServer:
    """What the grammar must know of the server. `source`: what names it; `folds`: names of tables have no case."""

    flavour: Flavour
    version: int
    source: str
    folds: bool
    charsets: Charsets

    def fold(self, name: str) -> str:
        """A table's or database's name as this server compares it."""
        return name.lower() if self.folds else name

    def key(self, schema: str, name: str) -> Key:
        """What a table is found by."""
        return self.fold(schema), self.fold(name)


def ask_server(session: Asks, flavour: Flavour, source: str) -> SourceServer:
    """All of that. `source`: what names the server for good, such as its UUID."""
    ((version, folds, collation),) = session.query(
        "SELECT @@version, @@lower_case_table_names, @@global.collation_server"
    )
    rows = session.query(_CHARSETS)
    defaults = {charset_name(str(name)): collation_name(str(default)) for name, default in rows}
    charsets = Charsets(defaults, collation_name(str(collation)))
    return SourceServer(flavour, version_number(str(version)), source, str(folds) != "0", charsets)


def version_number(version: str) -> int:
    """101106 of 10.11.6-MariaDB: as version comments write it."""
    major, minor, patch = ([int(n) for n in version.partition("-")[0].split(".")[:3] if n.isdecimal()] + [0, 0, 0])[:3]
    return major * 10000 + minor * 100 + patch


def ask_tables(
    session: Asks, server: SourceServer, wants: Callable[[str, str], bool] = lambda _schema, _name: True
) -> ShapeChange:
    """The wanted tables of the server but its own, and its databases."""
    session.query(_QUOTES)
    databases: dict[str, str | None] = {
        server.fold(str(name)): collation_name(str(collation))
        for name, collation in session.query(_DATABASES)
        if str(name).lower() not in SYSTEM
    }
    tables: dict[Key, Entry] = {}
    for schema, name, kind in session.query(_TABLES):
        is_table = str(schema).lower() not in SYSTEM and str(kind) in ("BASE TABLE", "SYSTEM VERSIONED")
        if is_table and wants(str(schema), str(name)):
            entry = _ask_table(session, server, str(schema), str(name), databases.get(server.fold(str(schema))) or "")
            if entry is not None:
                tables[server.key(str(schema), str(name))] = entry
    return ShapeChange(tables, databases)


def _ask_table(session: Asks, server: SourceServer, schema: str, name: str, collation: str) -> Entry:
    place = ".".join("`" + part.replace("`", "``") + "`" for part in (schema, name))
    try:
        rows = session.query(f"SHOW CREATE TABLE {place}")
    except OperatorError as error:
        if getattr(error, "number", 0) in _GONE:
            return None
        raise
    try:
        made = parse(str(rows[0][1]), StatementDialect(server.flavour, server.version))
        if not isinstance(made, Create):
            raise UnreadError("SHOW CREATE TABLE gave no CREATE TABLE")
        found = create(made, schema, collation or server.charsets.server, server.charsets, server.flavour)
        return found.named(schema, name)
    except UnreadError as error:
        return str(error)


def base_at_now(session: Asks, server: SourceServer, end: Callable[[], Position]) -> Base:
    """The shapes, and a place of the log at which they held: asked before and after it, until both answers are one."""
    before = ask_tables(session, server)
    for _ in range(_TRIES):
        place = end()
        after = ask_tables(session, server)
        if after == before:
            return Base(server.source, place, place, after)
        before = after
    raise OperatorError(
        f"the shapes of tables changed between {_TRIES} looks", hint="Try again when fewer statements change them"
    )


def base_behind(session: Asks, server: SourceServer, origin: Position, end: Callable[[], Position]) -> Base:
    """The shapes of now, for whoever reads from `origin`."""
    now = base_at_now(session, server, end)
    return Base(server.source, min(origin, now.upto), now.upto, now.all)
