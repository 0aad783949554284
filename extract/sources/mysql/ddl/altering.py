"""The grammar of ALTER TABLE: one action after the other."""

from __future__ import annotations

from extract.sources.mysql.ddl.columns import (
    VERSIONED,
    is_key,
    read_column,
    read_default,
    read_definition,
    read_key,
    skip_item,
)
from extract.sources.mysql.ddl.lexer import UnreadError, WordKind
from extract.sources.mysql.ddl.natives import read_charset
from extract.sources.mysql.ddl.reader import TableName, WordReader
from extract.sources.mysql.ddl.syntax import (
    PRIMARY,
    Action,
    AddColumn,
    Alter,
    ChangeColumn,
    ConvertText,
    DropColumn,
    DropIndex,
    MovesRows,
    RenameColumn,
    RenameIndex,
    SetDefault,
    TextOptions,
)
from extract.sources.mysql.ddl.textoptions import one_text_option, text_of_charset


class AlterReader:
    """Reads the actions of one ALTER TABLE."""

    def __init__(self, r: WordReader, table: TableName, *, ignore: bool) -> None:
        self._r = r
        self._table = table
        self._ignore = ignore
        self._actions: list[Action] = []
        self._text = TextOptions()
        self._renamed: TableName | None = None

    def read(self) -> Alter:
        """All of them."""
        r = self._r
        while r.token.kind is not WordKind.END and not r.is_sign(";"):
            self._action()
            if not r.take_sign(",") and not r.is_name:
                break
        return Alter(self._table, tuple(self._actions), self._text, self._renamed, self._ignore)

    def _action(self) -> None:
        r = self._r
        word = r.word
        do = {
            "ADD": self._add, "CHANGE": self._change, "MODIFY": self._modify, "DROP": self._drop,
            "RENAME": self._rename, "ALTER": self._set, "CONVERT": self._convert, "EXCHANGE": self._exchange,
            "TRUNCATE": self._truncate,
        }.get(word)  # fmt: skip
        if do is not None:
            r.next()
            do()
            return
        text = one_text_option(r, self._text)
        if text is not None:
            self._text = text
        elif r.take("PARTITION", "BY") or r.take("REMOVE", "PARTITIONING") or r.take("ORDER", "BY"):
            r.skip_all()
        elif word:
            if r.word in ("DISCARD", "IMPORT"):
                self._actions.append(MovesRows(f"{word} TABLESPACE"))
            r.next()
            self._rest()
        else:
            raise r.wrong("what to alter")

    def _rest(self) -> None:
        """An option, up to its comma; several may stand without any between."""
        r = self._r
        while r.token.kind is not WordKind.END and not r.is_sign(",") and not r.is_sign(";"):
            text = one_text_option(r, self._text)
            if text is not None:
                self._text = text
            elif r.is_sign("("):
                r.group()
            else:
                r.next()

    def _add(self) -> None:
        r = self._r
        if r.take("PARTITION"):
            self._rest()
            return
        if r.stands("SYSTEM", "VERSIONING"):
            raise UnreadError(VERSIONED)
        if is_key(r):
            if (index := read_key(r)) is not None:
                self._actions.append(index)
            return
        r.take("COLUMN")
        unless = r.take("IF", "NOT", "EXISTS")
        if not r.take_sign("("):
            self._actions.append(AddColumn(read_column(r, places=True), unless))
            return
        while True:
            if is_key(r):
                if (index := read_key(r)) is not None:
                    self._actions.append(index)
            else:
                self._actions.append(AddColumn(read_column(r), unless))
            if not r.take_sign(","):
                break
        r.need_sign(")")

    def _change(self) -> None:
        r = self._r
        r.take("COLUMN")
        exists = r.take("IF", "EXISTS")
        old = r.name("a column's name")
        self._actions.append(ChangeColumn(old, read_column(r, places=True), exists))

    def _modify(self) -> None:
        r = self._r
        r.take("COLUMN")
        exists = r.take("IF", "EXISTS")
        name = r.name("a column's name")
        self._actions.append(ChangeColumn(name, read_definition(r, name, places=True), exists))

    def _drop(self) -> None:
        r = self._r
        if r.take("PRIMARY", "KEY"):
            self._actions.append(DropIndex(PRIMARY))
        elif r.take("PARTITION"):
            self._rest()
            self._actions.append(MovesRows("DROP PARTITION"))
        elif r.take("FOREIGN", "KEY") or r.take("CHECK") or r.take("PERIOD", "FOR"):
            self._rest()
        elif r.stands("SYSTEM", "VERSIONING"):
            raise UnreadError(VERSIONED)
        elif r.take_any("INDEX", "KEY", "CONSTRAINT"):
            r.take("IF", "EXISTS")
            self._actions.append(DropIndex(r.name("an index's name")))
        else:
            r.take("COLUMN")
            exists = r.take("IF", "EXISTS")
            self._actions.append(DropColumn(r.name("a column's name"), exists))
            r.take_any("RESTRICT", "CASCADE")

    def _rename(self) -> None:
        r = self._r
        if r.take("COLUMN"):
            exists = r.take("IF", "EXISTS")
            old = r.name("a column's name")
            r.need("TO")
            self._actions.append(RenameColumn(old, r.name("a column's name"), exists))
        elif r.take_any("INDEX", "KEY"):
            r.take("IF", "EXISTS")
            old = r.name("an index's name")
            r.need("TO")
            self._actions.append(RenameIndex(old, r.name("an index's name")))
        else:
            if not r.take_any("TO", "AS"):
                r.take_sign("=")
            self._renamed = r.table()

    def _set(self) -> None:
        r = self._r
        if r.word in ("INDEX", "KEY", "CHECK", "CONSTRAINT"):
            self._rest()
            return
        r.take("COLUMN")
        exists = r.take("IF", "EXISTS")
        name = r.name("a column's name")
        if r.take("SET", "DEFAULT"):
            self._actions.append(SetDefault(name, read_default(r)["default"], exists))
        elif r.take("DROP", "DEFAULT"):
            self._actions.append(SetDefault(name, None, exists))
        else:
            r.need("SET")
            if not r.take_any("VISIBLE", "INVISIBLE"):
                raise r.wrong("DEFAULT")

    def _convert(self) -> None:
        r = self._r
        if r.take("PARTITION"):
            r.name("a partition's name")
            r.need("TO", "TABLE")
            self._actions.append(MovesRows("CONVERT PARTITION", r.table()))
            self._rest()
            return
        if r.take("TABLE"):
            self._actions.append(MovesRows("CONVERT TABLE", r.table()))
            self._rest()
            return
        r.need("TO")
        charset = read_charset(r)
        collation = ""
        if r.take("COLLATE"):
            r.take_sign("=")
            collation = r.name("a collation") if r.is_name else r.string("a collation")
        self._actions.append(ConvertText(text_of_charset(charset, collation)))

    def _exchange(self) -> None:
        r = self._r
        r.need("PARTITION")
        r.name("a partition's name")
        r.need("WITH", "TABLE")
        self._actions.append(MovesRows("EXCHANGE PARTITION", r.table()))
        skip_item(r)

    def _truncate(self) -> None:
        self._r.need("PARTITION")
        self._rest()
        self._actions.append(MovesRows("TRUNCATE PARTITION"))
