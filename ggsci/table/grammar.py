"""One line of GGSCI becomes one Parsed command. Prompt, OBEY files, standard input and arguments all come here.

A command is a row of data (see ggsci/table/table.py): its words, an operand, and options. The parser knows no command,
it only reads rows, so syntax, HELP, completion and docs/commands.md can't say different things. Words and options are
case-insensitive, commas between options are optional, `'...'` and `"..."` quote, a trailing `!` means "don't ask", a
trailing `;` nothing, `--json` anywhere asks for JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from trails.errors import OperatorError


class CommandError(OperatorError):
    """A line that is no command of ours, or a command that can't be obeyed."""


class Takes(Enum):
    """What stands behind a word: how it is checked, and how the syntax names it."""

    GROUP = "group"
    GROUPS = "group "
    TRAIL = "trail"
    TRAILS = "trail "
    TABLE = "schema.table"
    TABLES = "schema.table "
    NUMBER = "n"
    WORD = "value"
    TEXT = "'text'"
    URL = "url"
    NAME = "name"
    FILE = "file"
    REST = "text"


@dataclass(frozen=True, slots=True)
class Option:
    """A keyword behind the operand. Options of one `choice` exclude each other; `needed` choices must be given."""

    name: str
    kind: Takes | None = None
    optional_value: bool = False
    choice: str = ""
    needed: bool = False
    secret: bool = False

    def syntax(self) -> str:
        """The option as HELP writes it: `EXTSEQNO n`, `SHOWCH [n]`."""
        if self.kind is None:
            return self.name
        value = self.kind.value.strip()
        return f"{self.name} [{value}]" if self.optional_value else f"{self.name} {value}"


@dataclass(frozen=True, slots=True)
class Command:
    """One row of the table: everything there is to know about a command but its code, which `handler` names."""

    words: tuple[str, ...]
    handler: str
    summary: str
    examples: tuple[str, ...]
    operand: Takes | None = None
    operand_optional: bool = False
    options: tuple[Option, ...] = ()
    notes: str = ""
    section: str = ""
    lists: bool = False

    @property
    def name(self) -> str:
        """`ADD EXTRACT`."""
        return " ".join(self.words)

    def option(self, name: str) -> Option | None:
        """The option of that name, or None."""
        return next((option for option in self.options if option.name == name.upper()), None)

    def syntax(self) -> str:
        """One line: words, operand, options; `{a | b}` one of, `[...]` may be left out."""
        parts = self.name
        if self.operand:
            operand = self.operand.value.strip()
            parts += f" [{operand}]" if self.operand_optional else f" {operand}"
        comma = ", " if self.operand else " "
        for text, needed in _option_groups(self.options):
            parts += f"{comma}{text}" if needed else f" [{comma.strip() and ', '}{text}]"
            comma = ", "
        return parts


def _option_groups(options: Sequence[Option]) -> list[tuple[str, bool]]:
    """Options as syntax, those of one choice gathered: `{TRANLOG | EXTTRAILSOURCE trail}`."""
    groups: dict[str, list[Option]] = {}
    for option in options:
        groups.setdefault(option.choice or option.name, []).append(option)
    shown = []
    for members in groups.values():
        text = " | ".join(member.syntax() for member in members)
        needed = any(member.needed for member in members)
        shown.append((f"{{{text}}}" if len(members) > 1 and needed else text, needed))
    return shown


@dataclass(frozen=True, slots=True)
class Parsed:
    """A command with its operand and option values, ready to run."""

    command: Command
    line: str
    operand: str = ""
    values: dict[str, str | int | bool] = field(default_factory=dict)
    force: bool = False
    json: bool = False

    def has(self, name: str) -> bool:
        """Was this option given?"""
        return name in self.values

    def text(self, name: str, default: str = "") -> str:
        """An option's value as text."""
        value = self.values.get(name, default)
        return value if isinstance(value, str) else default

    def number(self, name: str) -> int | None:
        """An option's value as a number; None if it was not given, or given without one."""
        value = self.values.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


@dataclass(frozen=True, slots=True)
class CommandToken:
    """A word as typed, with the place where it starts."""

    raw: str
    start: int

    @property
    def upper(self) -> str:
        """For comparing with keywords; a quoted word is never a keyword."""
        return self.raw.upper()

    @property
    def plain(self) -> str:
        """Without the quotes around it."""
        if len(self.raw) >= 2 and self.raw[0] == self.raw[-1] and self.raw[0] in "'\"":
            return self.raw[1:-1].replace(self.raw[0] * 2, self.raw[0])
        return self.raw


# A comma parts words even without a blank (`ext1,DETAIL`), but not inside a URL, which may list several hosts.
_TOKEN = re.compile(
    r"""(?P<url>[A-Za-z][A-Za-z0-9+]*://(?:[^\s,]|,(?!\s|$))+)
      | (?P<word>(?:'(?:[^']|'')*'|"(?:[^"]|"")*"|[^\s,'"])+)
      | (?P<open>['"])
      | (?P<skip>[\s,]+)""",
    re.VERBOSE,
)


def tokens(line: str) -> list[CommandToken]:
    """Split a line into words. Raises CommandError for a quote that is never closed."""
    found = []
    for match in _TOKEN.finditer(line):
        if match.lastgroup == "open":
            raise CommandError(f"column {match.start() + 1}: a quote {match[0]} is opened and never closed")
        if match.lastgroup != "skip":
            found.append(CommandToken(match[0], match.start()))
    return found


# Other ways to write a word, where a command's words stand.
SYNONYMS = {
    "MGR": "MANAGER", "PARAM": "PARAMS", "SH": "SHELL", "QUIT": "EXIT", "HIST": "HISTORY", "GGSERR": "GGSEVT",
    "SUBDIR": "SUBDIRS", "EXTTRAILS": "EXTTRAIL", "RMTTRAILS": "RMTTRAIL",
}  # fmt: skip

# May be cut to three letters or more; of two that begin alike the first is meant.
ABBREVIATED = ("EXTRACT", "REPLICAT", "EXTTRAIL", "RMTTRAIL")


def object_of(word: str) -> str:
    """The object that an abbreviation stands for: INFO EXT ext1; the word itself, if it is none."""
    whole = (name for name in ABBREVIATED if len(word) >= 3 and name.startswith(word))
    return next(whole, word)


class Grammar:
    """The parser for one table of commands."""

    def __init__(self, commands: Iterable[Command]) -> None:
        self.commands = tuple(commands)
        self._by_words = {command.words: command for command in self.commands}
        self._verbs = {command.words[0] for command in self.commands}
        self._secrets = {option.name for command in self.commands for option in command.options if option.secret}

    def parse(self, line: str) -> Parsed:
        """Read one line. Raises CommandError that names the word, what was expected, and what is close to it."""
        words = tokens(line)
        as_json = any(word.raw.lower() == "--json" for word in words)
        words = self._without_semicolon([word for word in words if word.raw.lower() != "--json"])
        if not words:
            raise CommandError("no command given", hint="HELP lists all")
        command, rest = self._find(words)
        if command.operand is Takes.REST:
            return Parsed(command, line, operand=line[rest[0].start :].strip() if rest else "", json=as_json)
        force = bool(rest) and rest[-1].raw.endswith("!")
        if force:
            rest = self._without_mark(rest)
        operand, rest = _take_operand(command, rest)
        values = _take_options(command, rest)
        if as_json and not command.lists:
            raise CommandError(f"{command.name} has no --json form", hint="Lists and INFO commands have")
        return Parsed(command, line, operand, values, force, as_json)

    def _without_semicolon(self, words: list[CommandToken]) -> list[CommandToken]:
        """SQL has them, so fingers do. The end of a password is left alone, unless quotes tell where that is."""
        if not words or not words[-1].raw.endswith(";"):
            return words
        last = CommandToken(words[-1].raw[:-1], words[-1].start)
        if len(words) > 1 and words[-2].upper in self._secrets and last.plain == last.raw:
            return words
        return [*words[:-1], *([last] if last.raw else [])]

    @staticmethod
    def _without_mark(rest: list[CommandToken]) -> list[CommandToken]:
        """Drop the trailing `!`, which may stand alone or at the last word's end."""
        last = rest[-1]
        return rest[:-1] if last.raw == "!" else [*rest[:-1], CommandToken(last.raw[:-1], last.start)]

    def _find(self, words: list[CommandToken]) -> tuple[Command, list[CommandToken]]:
        plain = [word.upper.rstrip("!") or word.upper for word in words[:2]]
        names = [SYNONYMS.get(name, name) for name in plain]
        if len(words) > 1 and self._names_an_object(names, words):
            names[1] = object_of(names[1])
        for count in (2, 1):
            command = self._by_words.get(tuple(names[:count]))
            if command is not None and len(names) >= count:
                return command, self._keep_mark(words, count)
        # `INFO ext1`: the kind of object is left out, the group's name tells.
        either = self._by_words.get((names[0], "ER"))
        if either is not None and len(names) > 1:
            self._refuse_mistyped_object(names, words)
            return either, words[1:]
        raise self._unknown(names, words)

    def _names_an_object(self, names: list[str], words: list[CommandToken]) -> bool:
        """`INFO EXT ext1`, and not a group called EXT: that has nothing behind it but options."""
        either = self._by_words.get((names[0], "ER"))
        return either is None or (len(words) > 2 and either.option(words[2].raw) is None)

    @staticmethod
    def _keep_mark(words: list[CommandToken], count: int) -> list[CommandToken]:
        """The words behind the command's own; `STOP MANAGER!` keeps its mark."""
        last = words[count - 1]
        mark = [CommandToken("!", last.start)] if last.raw.endswith("!") and len(last.raw) > 1 else []
        return [*mark, *words[count:]]

    def _refuse_mistyped_object(self, names: list[str], words: list[CommandToken]) -> None:
        """`INFO EXTRAT ext1` is a typing error, not a group called EXTRAT."""
        objects = {command.words[1] for command in self.commands if command.words[0] == names[0] and command.words[1:]}
        behind = words[2].upper if len(words) > 2 else ""
        either = self._by_words[(names[0], "ER")]
        close = nearest(names[1], objects)
        if close and behind and either.option(behind) is None:
            raise CommandError(f"{names[0]} {words[1].raw}: unknown", hint=f"Did you mean {names[0]} {close}?")

    def _unknown(self, names: list[str], words: list[CommandToken]) -> CommandError:
        verb = names[0]
        if verb not in self._verbs:
            close = nearest(verb, self._verbs)
            if close and (close, *names[1:]) in self._by_words:
                close = " ".join([close, *names[1:]])
            return CommandError(f"unknown command {words[0].raw!r}", hint=_did_you_mean(close) or "HELP lists all")
        objects = sorted(command.words[1] for command in self.commands if command.words[0] == verb)
        if len(words) == 1:
            return CommandError(f"{verb}: what? Expected one of {', '.join(objects)}")
        close = nearest(names[1], objects)
        hint = _did_you_mean(f"{verb} {close}" if close else "") or f"Expected one of {', '.join(objects)}"
        return CommandError(f"{verb} {words[1].raw}: unknown", hint=hint)


def nearest(word: str, choices: Iterable[str]) -> str:
    """The choice that `word` was probably meant to be, or an empty string."""
    import difflib

    known = sorted(choices)
    swapped = [choice for choice in known if sorted(choice) == sorted(word.upper())]
    found = swapped or difflib.get_close_matches(word.upper(), known, n=1, cutoff=0.6)
    return found[0] if found else ""


def _did_you_mean(close: str) -> str:
    return f"Did you mean {close}?" if close else ""


_GROUP = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,7}\Z")
_GROUPS = re.compile(r"[A-Za-z0-9_*?]{1,8}\Z")


def _take_operand(command: Command, rest: list[CommandToken]) -> tuple[str, list[CommandToken]]:
    if command.operand is None:
        return "", rest
    if not rest or (command.operand_optional and command.option(rest[0].raw)):
        if command.operand_optional:
            return "", rest
        raise CommandError(f"{command.name}: expected a {command.operand.value.strip()}", hint=_usage(command))
    return str(check_value(command.operand, rest[0], command.name)), rest[1:]


def _usage(command: Command) -> str:
    return f"Syntax: {command.syntax()}"


def _take_options(command: Command, rest: list[CommandToken]) -> dict[str, str | int | bool]:
    values: dict[str, str | int | bool] = {}
    at = 0
    while at < len(rest):
        option = command.option(rest[at].raw)
        if option is None:
            raise _unexpected(command, rest[at])
        if option.name in values:
            raise CommandError(f"{command.name}: {option.name} is given twice")
        at += 1
        if option.kind is None:
            values[option.name] = True
        elif at < len(rest) and not (option.optional_value and command.option(rest[at].raw)):
            values[option.name] = check_value(option.kind, rest[at], f"{command.name}: {option.name}")
            at += 1
        elif option.optional_value:
            values[option.name] = True
        else:
            raise CommandError(f"{command.name}: {option.name} expects a value", hint=_usage(command))
    _check_choices(command, values)
    return values


def _unexpected(command: Command, token: CommandToken) -> CommandError:
    close = nearest(token.raw, [option.name for option in command.options])
    # Behind a mistyped PASSWORD stands a password: such a command's words are not shown.
    shown = "a word" if any(option.secret for option in command.options) else repr(token.raw)
    return CommandError(f"{command.name}: unexpected {shown}", hint=_did_you_mean(close) or _usage(command))


def _check_choices(command: Command, values: dict[str, str | int | bool]) -> None:
    groups: dict[str, list[Option]] = {}
    for option in command.options:
        groups.setdefault(option.choice or option.name, []).append(option)
    for members in groups.values():
        given = [member.name for member in members if member.name in values]
        if len(given) > 1:
            raise CommandError(f"{command.name}: {' and '.join(given)} exclude each other")
        if not given and any(member.needed for member in members):
            names = " or ".join(member.syntax() for member in members)
            raise CommandError(f"{command.name}: expected {names}", hint=_usage(command))


def check_value(kind: Takes, token: CommandToken, where: str) -> str | int:
    """The value of a word for this kind. Raises CommandError with what was expected and found."""
    text = token.plain
    if kind is Takes.NUMBER:
        if not text.isdecimal():
            raise CommandError(f"{where}: expected a number, found {text!r}")
        return int(text)
    if kind is Takes.GROUP and not _GROUP.match(text):
        raise CommandError(f"{where}: {text!r} is no group name", hint="1 to 8 letters, digits or _, a letter first")
    if kind is Takes.GROUPS and not _GROUPS.match(text):
        raise CommandError(
            f"{where}: {text!r} is no group name", hint="1 to 8 letters, digits, _, or wildcards * and ?"
        )
    if kind in (Takes.GROUP, Takes.GROUPS):
        return text.upper()
    if kind in (Takes.TABLE, Takes.TABLES):
        return token.raw
    if not text:
        raise CommandError(f"{where}: expected a {kind.value.strip()}, found an empty text")
    return text


def mask_line(grammar: Grammar, line: str) -> str:
    """The line with every password replaced by `***`; fit for echo, history and ggserr.log."""
    secrets = {option.name for command in grammar.commands for option in command.options if option.secret}
    names = "|".join(sorted(secrets))
    line = re.sub(
        rf"\b({names})([\s,=]+)(?:'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|[^\s,'\"]|['\"])+",
        r"\1\2***",
        line,
        flags=re.IGNORECASE,
    )
    line = re.sub(r"(://[^\s:/@]*):\S*@", r"\1:***@", line)
    return re.sub(r"([?&]password=)[^\s&]*", r"\1***", line, flags=re.IGNORECASE)
