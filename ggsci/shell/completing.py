"""What may stand next on a line, for the Tab key: from the same table that the parser reads, and from what is there.

Words of commands, then what the operand or an option's value can be (groups, trails, tables, parameters, files), then
options that are not given yet. Whatever can't be found out is not offered: a Tab never fails and never waits long.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ggsci.commands.session import Login, OperatorSession
from ggsci.table.grammar import SYNONYMS, Command, Option, Takes, object_of
from ggsci.table.table import COMMANDS
from trails.errors import GateError
from trails.runtime.home import registration as registrations

if TYPE_CHECKING:
    from trails.runtime.home.registration import Registration

TABLE_SECONDS = 5.0
"""A database that takes longer offers no tables."""


class Choices:
    """The choices of one session; what was asked of a database is kept as long as the login."""

    def __init__(self, session: OperatorSession) -> None:
        self._session = session
        self._tables: tuple[Login, list[str]] | None = None

    def after(self, line: str) -> tuple[str, list[str]]:
        """(the word that is being typed, what it could become)."""
        words = line.replace(",", " ").split()
        typed = "" if not words or line[-1:].isspace() or line.endswith(",") else words.pop()
        try:
            found = self._next(words, typed)
        except (GateError, OSError):
            found = []
        return typed, [choice for choice in found if choice.upper().startswith(typed.upper())]

    def _next(self, words: list[str], typed: str) -> Iterable[str]:
        upper = [SYNONYMS.get(word.upper(), word.upper()) for word in words]
        if upper[:1] == ["HELP"]:
            return self._topics(upper[1:])
        if upper[1:] and object_of(upper[1]) != upper[1] and upper[1] not in self._groups():
            upper[1] = object_of(upper[1])
        at = len(upper)
        following = {c.words[at] for c in COMMANDS if len(c.words) > at and list(c.words[:at]) == upper}
        either = next((c for c in COMMANDS if c.words == (*upper[:1], "ER")), None)
        if following:
            return [*sorted(following), *(self._groups() if at == 1 and either else [])]
        command = next((c for n in (2, 1) for c in COMMANDS if list(c.words) == upper[:n]), None)
        if command is None:
            return self._behind(either, words[1:], typed) if either else []
        return self._behind(command, words[len(command.words) :], typed)

    def _behind(self, command: Command, rest: list[str], typed: str) -> Iterable[str]:
        """What may stand behind a command's words and what was given already."""
        if command.operand:
            if not rest:
                return self._operands(command, command.operand, typed)
            if not (command.operand_optional and command.option(rest[0])):
                rest = rest[1:]
        given: list[Option] = []
        while rest:
            option = command.option(rest.pop(0))
            if option is None:
                continue
            given.append(option)
            if option.kind and not rest:
                more = _left(command, given) if option.optional_value else []
                return [*self._values(option.kind, option.name, typed), *more]
            if option.kind and not (option.optional_value and command.option(rest[0])):
                rest.pop(0)
        return _left(command, given)

    def _operands(self, command: Command, kind: Takes, typed: str) -> Iterable[str]:
        first = [option.name for option in command.options] if command.operand_optional else []
        if command.words[0] == "ADD" and kind is Takes.GROUP:
            return []  # a new name
        if command.words == ("INFO", "PARAMS"):
            return _parameters()
        object_ = command.words[-1]
        if kind is Takes.NAME and object_ != "DISCARD":
            extra = glob.glob("*.rpt", root_dir=self._folder("dirrpt")) if object_ == "REPORT" else ["./GLOBALS"]
            return [*self._groups(), "MGR", *sorted(extra)]
        return [*self._values(kind, "REPLICAT" if object_ in ("DISCARD", "TABLES") else object_, typed), *first]

    def _values(self, kind: Takes, name: str, typed: str) -> Iterable[str]:
        if kind in (Takes.GROUP, Takes.GROUPS, Takes.NAME):
            return self._groups(name)
        if kind in (Takes.TRAIL, Takes.TRAILS):
            groups = self._registered()
            return sorted({t.path for g in groups for t in g.trails} | {g.trail for g in groups if g.trail})
        if kind in (Takes.TABLE, Takes.TABLES):
            return self._table_names()
        if kind is Takes.FILE:
            found = glob.glob(glob.escape(typed) + "*", root_dir=self._session.root)
            return sorted(path + "/" * os.path.isdir(os.path.join(self._session.root, path)) for path in found)
        return []

    def _topics(self, words: list[str]) -> Iterable[str]:
        """For HELP: the next word of a command, or a parameter."""
        if words and words[0] == "PARAMS":
            return _parameters()
        at = len(words)
        topics = {c.words[at] for c in COMMANDS if len(c.words) > at and list(c.words[:at]) == words}
        return sorted(topics if words else topics | {"PARAM"})

    def _registered(self) -> list[Registration]:
        return registrations.all(self._session.home)

    def _groups(self, kind: str = "") -> list[str]:
        kinds = (kind,) if kind in ("EXTRACT", "REPLICAT") else ("EXTRACT", "REPLICAT")
        return [group.name for group in self._registered() if group.kind in kinds]

    def _folder(self, name: str) -> str:
        return os.path.join(self._session.root, name)

    def _table_names(self) -> list[str]:
        login = self._session.login
        if login is None:
            return []
        if self._tables is None or self._tables[0] is not login:
            from ggsci.commands.database import table_names

            self._tables = login, []  # asked once, also where that fails
            self._tables = login, table_names(login, "*.*", seconds=TABLE_SECONDS)
        return self._tables[1]


def _left(command: Command, given: Sequence[Option]) -> list[str]:
    """Options that may still be given: each once, one of a choice."""
    names = {option.name for option in given}
    choices = {option.choice for option in given if option.choice}
    return [o.name for o in command.options if o.name not in names and o.choice not in choices]


def _parameters() -> list[str]:
    from ggsci.commands.paraminfo import offered

    return offered()
