"""Foreign keys by which the server changes rows of their table, and writes no such change into its log.

    rules      those that a text makes: a statement of the log, or what SHOW CREATE TABLE gives

InnoDB carries out CASCADE, SET NULL and SET DEFAULT itself, below the part of the server that writes the log. MySQL 9.6
and newer carry them out above it, and log them: server.logs_cascades.

Rule: only words outside quotes count, so no comment and no default of a column is taken for a key.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from extract.sources.mysql.ddl.lexer import StatementDialect, Word, WordKind
from extract.sources.mysql.ddl.reader import TableName, WordReader
from extract.sources.mysql.flavour import Flavour

_INLINE_MYSQL: Final = 90000
"""Before this MySQL, REFERENCES behind a column makes no foreign key."""


class Cascade(NamedTuple):
    """One such key. `name` is empty where the text gives none; `columns`, `others`: of the table and of its parent."""

    name: str
    columns: tuple[str, ...]
    parent: TableName
    others: tuple[str, ...]
    actions: str

    def says(self, schema: str, table: str) -> str:
        """What is wrong with it, in a sentence."""
        key = f"foreign key {self.name}" if self.name else "a foreign key"
        return (
            f"{key} of table {schema}.{table} ({self.actions}) changes rows of this table, and the server does not "
            "write these changes into its binary log"
        )

    def mend(self, schema: str, table: str) -> str:
        """The statement that puts one in its place which only refuses."""
        parent = _quoted(self.parent.schema or schema, self.parent.name)
        return (
            f"ALTER TABLE {_quoted(schema, table)} DROP FOREIGN KEY {_quoted(self.name)}, ADD FOREIGN KEY "
            f"({_listed(self.columns)}) REFERENCES {parent} ({_listed(self.others)}) ON DELETE RESTRICT ON UPDATE "
            "RESTRICT"
        )


def rules(text: str, dialect: StatementDialect) -> list[Cascade]:
    """Those keys that a CREATE or ALTER TABLE makes. Raises UnreadError of a text that can't be cut into words."""
    r = WordReader(text, dialect)
    inline = dialect.flavour is Flavour.MARIADB or dialect.version >= _INLINE_MYSQL
    found: list[Cascade] = []
    name, foreign = "", False
    columns: tuple[str, ...] = ()
    while not r.is_end:
        if r.take("CONSTRAINT"):
            name = r.next().text if r.is_name and not r.stands("FOREIGN", "KEY") else ""
        elif r.take("FOREIGN", "KEY"):
            while r.is_name:
                r.next()
            columns, foreign = _names(r), True
        elif r.take("REFERENCES"):
            parent, others = r.table(), _names(r)
            actions = _actions(r)
            if actions and (foreign or inline):
                found.append(Cascade(name, columns, parent, others, actions))
            name, columns, foreign = "", (), False
        else:
            r.next()
    return found


def _names(r: WordReader) -> tuple[str, ...]:
    tokens: list[Word] = r.group() if r.is_sign("(") else []
    return tuple(token.text for token in tokens if token.kind in (WordKind.WORD, WordKind.NAME))


def _actions(r: WordReader) -> str:
    """`ON DELETE CASCADE` and the like; those that only refuse are left out."""
    made = []
    if r.take("MATCH"):
        r.next()
    while r.stands("ON", "DELETE") or r.stands("ON", "UPDATE"):
        r.next()
        event = r.next().text.upper()
        if r.take("CASCADE"):
            made.append(f"ON {event} CASCADE")
        elif r.take("SET"):
            made.append(f"ON {event} SET {r.next().text.upper()}")
        elif not r.take("NO", "ACTION"):
            r.take("RESTRICT")
    return " ".join(made)


def _quoted(*names: str) -> str:
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(_quoted, names))
