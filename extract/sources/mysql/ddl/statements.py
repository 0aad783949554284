"""The grammar of statements that change shapes; and by their first words all others.

    parse   a statement, or None of one that changes no shape; RowsError of one that changes rows
    names   all that a statement may name, for one that is not understood

Strategy: the first words tell what a statement is, so nearly all are passed over without being cut into words. Of the
others, options that change no shape are passed over; what is not known is an UnreadError.
"""

from __future__ import annotations

import re
from typing import Final

from extract.sources.mysql.ddl.altering import AlterReader
from extract.sources.mysql.ddl.columns import (
    VERSIONED,
    is_key,
    read_column,
    read_key,
    read_parts,
)
from extract.sources.mysql.ddl.lexer import StatementDialect, UnreadError, WordKind
from extract.sources.mysql.ddl.reader import WordReader
from extract.sources.mysql.ddl.syntax import (
    Alter,
    ColumnSpec,
    Create,
    Drop,
    DropDatabase,
    DropIndex,
    IndexSpec,
    MakeDatabase,
    Rename,
    Statement,
    TextOptions,
    TruncateTable,
)
from extract.sources.mysql.ddl.textoptions import one_text_option, text_options

_FIRST: Final = re.compile(r"(?:\s+|\(|/\*(?![!M]).*?\*/|#[^\n]*\n|--\s[^\n]*\n)*([A-Za-z_]+)", re.DOTALL)
SHAPES: Final = frozenset(("CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE"))
ROWS: Final = frozenset((
    "INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "SELECT", "WITH", "CALL", "DO", "VALUES", "TABLE", "HANDLER",
    "IMPORT",
))  # fmt: skip
PASSED: Final = frozenset((
    "GRANT", "REVOKE", "SET", "ANALYZE", "ANALYSE", "OPTIMIZE", "REPAIR", "CHECK", "CHECKSUM", "FLUSH", "RESET",
    "PURGE", "INSTALL", "UNINSTALL", "CACHE", "KILL", "LOCK", "UNLOCK", "USE", "BEGIN", "COMMIT", "ROLLBACK",
    "SAVEPOINT", "RELEASE", "START", "STOP", "XA", "CHANGE", "CLONE", "RESTART", "SHUTDOWN", "HELP", "DESCRIBE", "DESC",
    "EXPLAIN", "SHOW", "PREPARE", "EXECUTE", "DEALLOCATE", "SIGNAL", "BACKUP", "BINLOG",
))  # fmt: skip
_EMPTIED: Final = re.compile(r"DELETE\s+FROM\s+(`(?:[^`]|``)+`\.`(?:[^`]|``)+`)\s*(?:/\*.*)?\Z", re.DOTALL)
_OTHERS: Final = frozenset((
    "VIEW", "TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "USER", "ROLE", "SERVER", "TABLESPACE", "LOGFILE", "UNDO",
    "SEQUENCE", "PACKAGE", "RESOURCE", "SPATIAL", "INSTANCE", "AGGREGATE", "PREPARE", "LIBRARY", "MASKING", "JSON",
    "CATALOG",
))  # fmt: skip
_BETWEEN: Final = ("DEFINER", "INVOKER", "OR", "REPLACE", "IF", "NOT", "EXISTS")
_DATABASE_OPTIONS: Final = frozenset(("CHARACTER", "CHARSET", "COLLATE", "DEFAULT", "READ", "ENCRYPTION", "UPGRADE"))


class RowsError(UnreadError):
    """The statement changes rows, which should stand in the log as rows."""


def first_word(text: str) -> str:
    """The word that a text begins with, in capitals; empty where a version comment stands before it."""
    found = _FIRST.match(text)
    return found[1].upper() if found else ""


def parse(text: str, dialect: StatementDialect) -> Statement | None:
    """What the statement does to shapes; None: nothing. Raises UnreadError."""
    word = first_word(text)
    if emptied := _EMPTIED.match(text) if word == "DELETE" else None:
        # So a server tells, after its start, that a table in memory has lost its rows.
        return TruncateTable(WordReader(emptied[1], StatementDialect(dialect.flavour, dialect.version)).table())
    if word in PASSED:
        return None
    if word in ROWS:
        raise RowsError(word)
    r = WordReader(text, dialect)
    while r.is_sign("("):
        r.next()
    word = r.word
    if word in PASSED or r.is_end:
        return None
    if word in ROWS:
        raise RowsError(word)
    if word not in SHAPES:
        raise UnreadError(f"a statement that begins with {r.token.told} is not known")
    r.next()
    made = _READERS[word](r)
    if made is not None and not r.is_end:
        raise r.wrong("the statement's end")
    return made


def names(text: str, dialect: StatementDialect) -> set[str] | None:
    """All words and names of a statement, for one that is not understood; None: not even these."""
    try:
        r = WordReader(text, dialect)
    except UnreadError:
        return None
    found = set()
    while not r.is_end:
        token = r.next()
        if token.kind in (WordKind.WORD, WordKind.NAME, WordKind.STRING):
            found.add(token.text)
    return found


# --- CREATE, DROP -----------------------------------------------------------------------------------------------------


def _create(r: WordReader) -> Statement | None:
    replaces = r.take("OR", "REPLACE")
    r.take_any("ONLINE", "OFFLINE")
    if r.take("TEMPORARY"):
        return None
    if r.take("TABLE"):
        return _create_table(r, replaces=replaces)
    if r.take_any("DATABASE", "SCHEMA"):
        unless = r.take("IF", "NOT", "EXISTS")
        return MakeDatabase(r.name("a database's name"), text_options(r), True, unless, replaces)
    unique = r.take("UNIQUE")
    kind = r.take_any("FULLTEXT", "SPATIAL", "VECTOR") if not unique else ""
    if r.take("INDEX"):
        return _create_index(r, unique=unique)
    if not kind:
        _other_kind(r)
    return None


def _other_kind(r: WordReader) -> None:
    """CREATE, ALTER or DROP of what is no table: told by the first words, before any body."""
    while r.token.kind is not WordKind.END:
        if r.word in _OTHERS:
            return
        if r.stands("DEFINER") and r.ahead(1).text == "=":
            r.next(), r.next(), r.next()
            if r.take_sign("@"):
                r.next()
            elif r.is_sign("("):
                r.group()
        elif r.take("ALGORITHM"):
            r.take_sign("=")
            r.next()
        elif not (r.take("SQL", "SECURITY") or r.take_any(*_BETWEEN)):
            break
    raise r.wrong("TABLE, DATABASE, INDEX, VIEW or the like")


def _create_table(r: WordReader, *, replaces: bool) -> Create:
    unless = r.take("IF", "NOT", "EXISTS")
    table = r.table()
    inner = r.is_sign("(") and r.ahead(1).text.upper() == "LIKE" and r.ahead(1).kind is WordKind.WORD
    if inner:
        r.next()
    if r.take("LIKE"):
        like = r.table()
        if inner:
            r.need_sign(")")
        return Create(table, like=like, if_not_exists=unless, or_replace=replaces)
    columns: list[ColumnSpec] = []
    indexes: list[IndexSpec] = []
    if r.is_sign("(") and r.ahead(1).text.upper() not in ("SELECT", "WITH", "VALUES", "("):
        _elements(r, columns, indexes)
    text, selects = _table_options(r)
    return Create(table, tuple(columns), tuple(indexes), text, None, unless, replaces, selects)


def _elements(r: WordReader, columns: list[ColumnSpec], indexes: list[IndexSpec]) -> None:
    r.need_sign("(")
    while True:
        if is_key(r):
            if (index := read_key(r)) is not None:
                indexes.append(index)
        else:
            columns.append(read_column(r))
        if not r.take_sign(","):
            break
    r.need_sign(")")


def _table_options(r: WordReader) -> tuple[TextOptions, bool]:
    """What stands behind the columns: the character set, and whether a query fills the table."""
    text, selects = TextOptions(), False
    while r.token.kind is not WordKind.END and not r.is_sign(";"):
        found = one_text_option(r, text)
        if found is not None:
            text = found
        elif r.word in ("AS", "SELECT", "WITH", "VALUES", "IGNORE", "REPLACE") or _is_query(r):
            if r.stands("WITH", "SYSTEM"):
                raise UnreadError(VERSIONED)
            selects = True
            r.skip_all()
        elif r.take("START", "TRANSACTION"):
            pass  # the rows of a query follow in the log
        elif r.stands("UNION") or not (r.is_name or r.is_sign(",") or r.is_sign("(")):
            _option_value(r)
        elif r.is_sign("("):
            r.group()
        else:
            r.next()
    return text, selects


def _is_query(r: WordReader) -> bool:
    return r.is_sign("(") and r.ahead(1).text.upper() in ("SELECT", "WITH", "VALUES", "(")


def _option_value(r: WordReader) -> None:
    if r.token.kind is WordKind.SIGN and r.token.text not in ("=", "-", "+", "@", "."):
        raise r.wrong("an option of the table")
    r.next()


def _create_index(r: WordReader, *, unique: bool) -> Alter:
    unless = r.take("IF", "NOT", "EXISTS")
    name = r.name("an index's name")
    if r.take_any("USING", "TYPE"):
        r.name()
    r.need("ON")
    table = r.table()
    columns, whole = read_parts(r)
    r.skip_all()
    return Alter(table, (IndexSpec(name, columns, unique, False, whole, unless),))


def _drop(r: WordReader) -> Statement | None:
    r.take_any("ONLINE", "OFFLINE")
    if r.take("TEMPORARY"):
        return None
    if r.take_any("TABLE", "TABLES"):
        r.take("IF", "EXISTS")
        tables = [r.table()]
        while r.take_sign(","):
            tables.append(r.table())
        r.take_any("RESTRICT", "CASCADE")
        _wait(r)
        return Drop(tuple(tables))
    if r.take_any("DATABASE", "SCHEMA"):
        r.take("IF", "EXISTS")
        return DropDatabase(r.name("a database's name"))
    if r.take("INDEX"):
        r.take("IF", "EXISTS")
        name = r.name("an index's name")
        r.need("ON")
        table = r.table()
        r.skip_all()
        return Alter(table, (DropIndex(name),))
    _other_kind(r)
    return None


def _wait(r: WordReader) -> None:
    """MariaDB: how long to wait for others."""
    if r.take("WAIT"):
        r.number()
    else:
        r.take("NOWAIT")


def _rename(r: WordReader) -> Statement | None:
    if r.stands("USER"):
        return None
    if not r.take_any("TABLE", "TABLES"):
        raise r.wrong("TABLE")
    r.take("IF", "EXISTS")
    pairs = []
    while True:
        old = r.table()
        _wait(r)
        r.need("TO")
        pairs.append((old, r.table()))
        if not r.take_sign(","):
            return Rename(tuple(pairs))


def _truncate(r: WordReader) -> TruncateTable:
    r.take("TABLE")
    table = r.table()
    _wait(r)
    return TruncateTable(table)


# --- ALTER ------------------------------------------------------------------------------------------------------------


def _alter(r: WordReader) -> Statement | None:
    r.take_any("ONLINE", "OFFLINE")
    ignore = r.take("IGNORE")
    if r.take_any("DATABASE", "SCHEMA"):
        word = r.word if r.token.kind is WordKind.WORD else ""
        named = r.is_name and word not in _DATABASE_OPTIONS
        return MakeDatabase(r.name() if named else "", text_options(r))
    if not r.take("TABLE"):
        _other_kind(r)
        return None
    r.take("IF", "EXISTS")
    table = r.table()
    _wait(r)
    return AlterReader(r, table, ignore=ignore).read()


_READERS: Final = {"CREATE": _create, "ALTER": _alter, "DROP": _drop, "RENAME": _rename, "TRUNCATE": _truncate}
