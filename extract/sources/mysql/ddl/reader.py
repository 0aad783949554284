"""Goes through the words of a statement: what all of the grammar has in common."""

from __future__ import annotations

from typing import Final, NamedTuple

from extract.sources.mysql.ddl.lexer import StatementDialect, UnreadError, Word, WordKind, tokens

_DIGITS: Final = 18


class TableName(NamedTuple):
    """A table as a statement names it; `schema` is empty where it names none."""

    schema: str
    name: str


class WordReader:
    """The words from where it stands on. `take...` goes on only where it finds what it was asked for."""

    def __init__(self, text: str, dialect: StatementDialect) -> None:
        self.dialect = dialect
        self._tokens = tokens(text, dialect)
        self._at = 0

    @property
    def token(self) -> Word:
        """The one that stands here."""
        return self._tokens[self._at]

    def ahead(self, count: int) -> Word:
        """One that stands further on; the last one behind it."""
        return self._tokens[min(self._at + count, len(self._tokens) - 1)]

    @property
    def word(self) -> str:
        """The word that stands here, in capitals; empty where there is none."""
        token = self.token
        return token.text.upper() if token.kind is WordKind.WORD else ""

    @property
    def is_end(self) -> bool:
        """Nothing is left but semicolons."""
        return all(token.kind is WordKind.END or token.text == ";" for token in self._tokens[self._at :])

    def next(self) -> Word:
        """The token here, and one step on."""
        token = self.token
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def stands(self, *words: str) -> bool:
        """Whether these words stand here."""
        some = self._tokens[self._at : self._at + len(words)]
        return len(some) == len(words) and all(
            token.kind is WordKind.WORD and token.text.upper() == word for token, word in zip(some, words, strict=True)
        )

    def take(self, *words: str) -> bool:
        """Go over these words, if they all stand here."""
        if not self.stands(*words):
            return False
        self._at += len(words)
        return True

    def take_any(self, *words: str) -> str:
        """Go over one of these words; which it was, or nothing."""
        word = self.word
        if word in words:
            self._at += 1
            return word
        return ""

    def need(self, *words: str) -> None:
        """Go over these words."""
        for word in words:
            if not self.take(word):
                raise self.wrong(word)

    def is_sign(self, sign: str) -> bool:
        """Whether this sign stands here."""
        return self.token.kind is WordKind.SIGN and self.token.text == sign

    def take_sign(self, sign: str) -> bool:
        """Go over this sign."""
        if not self.is_sign(sign):
            return False
        self._at += 1
        return True

    def need_sign(self, sign: str) -> None:
        """Go over this sign, which must stand here."""
        if not self.take_sign(sign):
            raise self.wrong(sign)

    @property
    def is_name(self) -> bool:
        """Whether a name can stand here."""
        return self.token.kind in (WordKind.WORD, WordKind.NAME)

    def name(self, what: str = "a name") -> str:
        """A name, in quotes or not."""
        if not self.is_name:
            raise self.wrong(what)
        return self.next().text

    def table(self) -> TableName:
        """A table's name, with its database or without."""
        self.take_sign(".")  # an empty database's, as ODBC writes it
        first = self.name("a table's name")
        return TableName(first, self.name("a table's name")) if self.take_sign(".") else TableName("", first)

    def string(self, what: str = "a string") -> str:
        """A string, or several side by side."""
        self.introducer()
        if self.token.kind is not WordKind.STRING:
            raise self.wrong(what)
        parts = [self.next().text]
        while self.token.kind is WordKind.STRING:
            parts.append(self.next().text)
        return "".join(parts)

    def introducer(self) -> str:
        """Go over what says the character set of a literal: `_utf8mb4` or N."""
        named = self.word.startswith("_") or self.word == "N"
        if named and self.ahead(1).kind in (WordKind.STRING, WordKind.BITS):
            return self.next().text
        return ""

    def number(self) -> int:
        """A whole number."""
        text = self.token.text
        if self.token.kind is not WordKind.NUMBER or not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
            raise self.wrong("a whole number")
        return int(self.next().text)

    def skip_all(self) -> None:
        """Go to the end."""
        self._at = len(self._tokens) - 1

    def group(self) -> list[Word]:
        """What stands in parentheses, and over it."""
        self.need_sign("(")
        depth, begin = 1, self._at
        while depth:
            token = self.next()
            if token.kind is WordKind.END:
                raise self.wrong(")")
            if token.kind is WordKind.SIGN:
                depth += (token.text == "(") - (token.text == ")")
        return self._tokens[begin : self._at - 1]

    def wrong(self, expected: str) -> UnreadError:
        """Something else stands here than what was expected."""
        found = "its end" if self.token.kind is WordKind.END else self.token.told
        return UnreadError(f"{expected} was expected, found {found}")
