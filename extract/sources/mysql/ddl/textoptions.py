"""How a statement says a table's or a database's character set and collation."""

from __future__ import annotations

from extract.sources.mysql.ddl.lexer import WordKind
from extract.sources.mysql.ddl.natives import read_charset
from extract.sources.mysql.ddl.reader import WordReader
from extract.sources.mysql.ddl.syntax import TextOptions


def one_text_option(r: WordReader, text: TextOptions) -> TextOptions | None:
    """[DEFAULT] CHARACTER SET and COLLATE; None if neither stands here."""
    shift = 1 if r.stands("DEFAULT") else 0
    word = r.ahead(shift).text.upper() if r.ahead(shift).kind is WordKind.WORD else ""
    is_charset = word == "CHARSET" or (word in ("CHARACTER", "CHAR") and r.ahead(shift + 1).text.upper() == "SET")
    if not is_charset and word != "COLLATE":
        return None
    r.take("DEFAULT")
    if is_charset:
        return text_of_charset(read_charset(r), text.collation)
    r.next()
    r.take_sign("=")
    collation = r.name("a collation") if r.is_name else r.string("a collation")
    return TextOptions(text.charset, "" if collation.upper() == "DEFAULT" else collation, text.default)


def text_of_charset(name: str, collation: str) -> TextOptions:
    """Of a character set's name as it stands there, and a collation's, which may be empty."""
    is_default = name.upper() == "DEFAULT"
    return TextOptions("" if is_default else name, collation, is_default)


def text_options(r: WordReader) -> TextOptions:
    """Of a database, whose other options make no difference."""
    text = TextOptions()
    while r.token.kind is not WordKind.END and not r.is_sign(";"):
        found = one_text_option(r, text)
        if found is None:
            r.next()
        else:
            text = found
    return text
