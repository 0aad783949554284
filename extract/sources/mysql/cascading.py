"""Captured tables whose rows a foreign key changes without a word in the log: at START, and at a statement's place.

The keys are found by KEY_COLUMN_USAGE and read from SHOW CREATE TABLE: a user with SELECT alone sees both. MariaDB
hides REFERENTIAL_CONSTRAINTS from such a user.

Rule: a key that is seen in the log stops at its place, before any row that it may have changed; one that is seen at
START or at a new connection stops there. Only ALLOWCASCADES goes on, and it says so each time.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from extract.source import Say, SourceSettings
from extract.sources.mysql import server as ask
from extract.sources.mysql.ddl.asking import version_number
from extract.sources.mysql.ddl.cascades import Cascade, rules
from extract.sources.mysql.ddl.lexer import StatementDialect
from extract.sources.mysql.link import MysqlError, MysqlSession
from extract.sources.mysql.words import allows_cascades
from trails.errors import OperatorError

_CHILDREN: Final = f"""
SELECT DISTINCT table_schema, table_name FROM information_schema.key_column_usage
WHERE referenced_table_name IS NOT NULL AND table_schema NOT IN {ask.IS_SYSTEM} ORDER BY 1, 2
"""
_NO_TABLE: Final = 1146
ALLOW: Final = "Or write ALLOWCASCADES in the Extract's file, if the target gets these changes in another way"


class KeyOf(NamedTuple):
    """A key of a table that is captured."""

    schema: str
    table: str
    key: Cascade

    @property
    def what(self) -> str:
        """What is wrong."""
        return self.key.says(self.schema, self.table)

    @property
    def mend(self) -> str:
        """The statement that ends it."""
        return self.key.mend(self.schema, self.table)


def keys_of(session: MysqlSession, tables: Collection[tuple[str, str]]) -> list[KeyOf]:
    """Those of these tables, by schema and name, as they are now. None where the server logs what they change."""
    if not tables or ask.logs_cascades(session):
        return []
    dialect = StatementDialect(session.flavour, version_number(session.version))
    children = [(str(schema), str(name)) for schema, name in session.query(_CHILDREN)]
    return [
        KeyOf(*name, key)
        for name in children
        if name in tables
        for key in rules(_create_table(session, *name), dialect)
    ]


def _create_table(session: MysqlSession, schema: str, name: str) -> str:
    quoted = ".".join("`" + part.replace("`", "``") + "`" for part in (schema, name))
    try:
        return str(session.one(f"SHOW CREATE TABLE {quoted}")[1])
    except MysqlError as error:
        if error.number == _NO_TABLE:
            return ""  # dropped since
        raise


@dataclass(frozen=True, slots=True)
class CascadeWatch:
    """What becomes of a key that a statement of the log makes; ddl.shapes.Cascades."""

    session: MysqlSession
    settings: SourceSettings
    say: Say

    def now(self, schema: str, table: str) -> list[Cascade]:
        """The keys that a table has today."""
        return [found.key for found in keys_of(self.session, {(schema, table)})]

    def met(self, where: str, schema: str, table: str, key: Cascade) -> None:
        """A statement makes this one. Raises OperatorError, unless the operator takes care of it."""
        text = f"{where}: {key.says(schema, table)}"
        if allows_cascades(self.settings):
            self.say(f"{text}. ALLOWCASCADES lets it pass")
            return
        there = self.now(schema, table)
        first = f"{there[0].mend(schema, table)}. Then" if there else "It is gone by now:"
        raise OperatorError(
            text,
            hint=f"{first} START with ALLOWCASCADES, which lets this place pass, and load {schema}.{table} again if "
            "rows of the key's parent were deleted or changed meanwhile",
        )
